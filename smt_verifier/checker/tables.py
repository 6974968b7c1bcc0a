"""The target's data, read from ``data/target.txt``; the README beside it says what each column and word means.

Reading is strict: a row of another form is a ValueError. Looking up is total: what the data do not have is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

_PATH = Path(__file__).with_name("data") / "target.txt"
_SECTIONS = (
    "processors", "budgets", "files", "specials", "classes", "masks", "assembly", "features",
    "operands", "shapes", "opcodes",
)  # fmt: skip
_FALSE_TRUE = ("0", "1")
_CUSTOM = "CustomRegMask("
_T = TypeVar("_T")


class Budget(NamedTuple):
    """Registers that each of so many waves on a SIMD may take, and the fewest that leave room for no more waves."""

    max_sgprs: int
    max_addressable_sgprs: int
    min_sgprs: int
    max_vectors: int
    min_vectors: int


class Processor(NamedTuple):
    """One GPU; the README names the source of each figure. ``budgets[n - 1]`` is that of ``n`` waves."""

    name: str
    mode: int
    wave_size: int
    major: int
    unified_vgpr: bool
    has_agprs: bool
    align2: bool
    addressable_vgprs: int
    addressable_agprs: int
    addressable_sgprs: int
    max_waves: int
    simds: int
    lds_bytes: int
    max_barriers: int
    cu_mode: bool | None
    architected_flat_scratch: bool
    xnack: bool
    budgets: tuple[Budget, ...]


@dataclass(frozen=True, slots=True)
class Register:
    """A physical register.

    Attributes:
        name: as in MIR, without ``$``.
        file: ``v``, ``a``, ``s`` or ``t``; ``x`` outside the numbered files.
        first: number of its first 32-bit register in the file; -1 outside.
        units: its 16-bit units, lowest first; none for a register without storage.
        marks: what the data say of it.
    """

    name: str
    file: str
    first: int
    units: tuple[int, ...]
    marks: frozenset[str]


class _File(NamedTuple):
    letter: str
    base: int
    size: int
    align_of: Mapping[int, int]
    marks: frozenset[str]


class _Run(NamedTuple):
    """Members from one file: their first registers, and the part of each (``""``, ``lo``, ``hi``, ``w``)."""

    file: str
    firsts: range
    parts: frozenset[str]


@dataclass(frozen=True, slots=True)
class RegisterClass:
    """A register class: its width in bits, whether its registers hold a value a thread, its members."""

    name: str
    bits: int
    is_vector: bool
    either: str
    runs: tuple[_Run, ...]
    specials: frozenset[str]

    def contains(self, register: Register) -> bool:
        """Whether a register is a member."""
        if register.file == "x":
            return register.name in self.specials
        width = len(register.units)
        if self.bits != 16:
            part = "" if 16 * width == self.bits else "-"
        else:
            part = "w" if width == 2 else ("lo", "hi")[register.units[0] % 2] if width == 1 else "-"
        return any(r.file == register.file and part in r.parts and register.first in r.firsts for r in self.runs)


@dataclass(frozen=True, slots=True)
class OperandRow:
    """An explicit operand. ``classes`` has one class for each mode; ``""``: none is prescribed, ``"-"``: the mode has
    no such operand.
    """

    kind: str
    tied_to: int
    early_clobber: bool
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opcode:
    """What LLVM knows of an opcode, and what the reviewed lists do.

    Attributes:
        definitions: how many of ``operands`` are definitions; they come first.
        counts: how many explicit operands an instruction may have.
        not_described: how many it has in LLVM 24 where that form is another one.
        values: of the traits ``key=value``, by key.
    """

    name: str
    definitions: int
    operands: tuple[OperandRow, ...]
    implicit_uses: tuple[str, ...]
    implicit_definitions: tuple[str, ...]
    traits: frozenset[str]
    counts: tuple[int, ...]
    not_described: tuple[int, ...]
    values: Mapping[str, str]

    def value(self, key: str) -> str:
        """The value of a trait ``key=value``; ``""`` without it."""
        return self.values.get(key, "")

    def numbers(self, key: str) -> tuple[int, ...]:
        """The value of a trait as numbers of operands."""
        return tuple(map(_number, self.value(key).split(","))) if key in self.values else ()


class Tables:
    """All of the data, looked up by name."""

    def __init__(self, text: str) -> None:
        sections = _split(text)
        budgets = [_budget(row) for row in sections["budgets"]]
        self._processors = _by_name(_processor(row, budgets) for row in sections["processors"])
        modes = 1 + max((p.mode for p in self._processors.values()), default=-1)
        self._files = _by_name(_file(row) for row in sections["files"])
        self._specials = _by_name((r.name, r) for r in map(_special, sections["specials"]))
        self._classes = _by_name((c.name, c) for c in map(_class, sections["classes"]))
        self._masks = _by_name(_mask(row) for row in sections["masks"])
        self.assembly = tuple(map(_two_columns, sections["assembly"]))
        """Words of inline assembly that hint at other threads, and the longer word in which each does not."""
        self.features = _by_name(map(_two_columns, sections["features"]))
        """Subtarget features, and the processors that have each; ``*`` where it changes no limit."""
        operands = [_operand(row, modes) for row in sections["operands"]]
        shapes = [_shape(row, operands) for row in sections["shapes"]]
        self._opcodes = _by_name(_of_shape(row, len(shapes)) for row in sections["opcodes"])
        self._shapes = shapes
        self._registers: dict[str, Register | None] = {}
        self._names_are_known()

    def _names_are_known(self) -> None:
        """Names that a section has of another one."""
        for cls in self._classes.values():
            if cls.either not in self._classes or not cls.specials <= self._specials.keys():
                raise ValueError(f"class {cls.name} names what is not there")
        for shape in self._shapes:
            for name in (*shape.implicit_uses, *shape.implicit_definitions):
                if self.register(name) is None:
                    raise ValueError(f"there is no register {name}")

    @property
    def opcodes(self) -> Sequence[str]:
        """Names of all opcodes."""
        return tuple(self._opcodes)

    @property
    def classes(self) -> Sequence[str]:
        """Names of all register classes."""
        return tuple(self._classes)

    def processor(self, name: str) -> Processor | None:
        return self._processors.get(name)

    @lru_cache(maxsize=None)  # noqa: B019 (there is one object)
    def opcode(self, name: str) -> Opcode | None:
        shape = self._opcodes.get(name)
        if shape is None:
            return None
        s = self._shapes[shape]
        return Opcode(
            name, s.definitions, s.operands, s.implicit_uses, s.implicit_definitions, s.traits, s.counts,
            s.not_described, s.values,
        )  # fmt: skip

    def units(self, letter: str, count: int | None = None) -> range:
        """Units of the first registers of a file; of all without ``count``."""
        file = next(f for f in self._files.values() if f.letter == letter)
        return range(file.base, file.base + 2 * (file.size if count is None else count))

    def marked(self, mark: str) -> frozenset[int]:
        """Units of all registers with a mark."""
        units = {unit for r in self._specials.values() if mark in r.marks for unit in r.units}
        return frozenset(units.union(*(self.units(f.letter) for f in self._files.values() if mark in f.marks)))

    def register(self, name: str) -> Register | None:
        """A register by its MIR name without ``$``: ``vgpr4``, ``vgpr4_vgpr5``, ``vgpr4_lo16``, ``vcc``."""
        if name not in self._registers:
            self._registers[name] = self._specials.get(name) or self._numbered(name)
        return self._registers[name]

    def _numbered(self, name: str) -> Register | None:
        whole, _, half = name.rpartition("_")
        parts = [whole] if half in ("lo16", "hi16") else name.split("_")
        prefix = parts[0].rstrip("0123456789")
        file = self._files.get(prefix)
        numbers = [part.removeprefix(prefix) for part in parts]
        if file is None or not numbers[0].isdigit():
            return None
        first = int(numbers[0])
        if parts != [f"{prefix}{n}" for n in range(first, first + len(parts))]:
            return None
        align = file.align_of.get(len(parts))
        if align is None or first % align or first + len(parts) > file.size:
            return None
        units = tuple(range(file.base + 2 * first, file.base + 2 * (first + len(parts))))
        if len(parts) == 1 and parts[0] != name:
            units = units[half == "hi16" :][:1]
        return Register(name, file.letter, first, units, file.marks)

    def register_class(self, name: str) -> RegisterClass | None:
        return self._classes.get(name)

    def either_file(self, cls: RegisterClass) -> RegisterClass:
        """The class of the same width and alignment with VGPRs and AGPRs, where there is one; else the class."""
        return self._classes[cls.either]

    def contains_part(self, cls: RegisterClass, register: Register, lanes: tuple[int, ...]) -> bool:
        """Whether a register is the part ``lanes`` (16-bit lanes, lowest first) of some member; no lanes: the whole."""
        if not lanes:
            return cls.contains(register)
        if lanes != tuple(range(lanes[0], lanes[0] + len(register.units))):
            return False
        if register.file == "x":
            members = [self._specials[name].units for name in cls.specials]
            return any(register.units == units[lanes[0] : lanes[-1] + 1] for units in members)
        if 16 * (lanes[-1] + 1) > cls.bits or (register.units[0] - lanes[0]) % 2:
            return False
        first = register.first - lanes[0] // 2
        return any(r.file == register.file and "" in r.parts and first in r.firsts for r in cls.runs)

    @staticmethod
    def lanes(index: str) -> tuple[int, ...] | None:
        """16-bit lanes of a subregister index: ``sub1_sub2``, ``lo16``, ``sub3_hi16``."""
        return _lanes(index)

    def mask(self, text: str) -> frozenset[int] | None:
        """Units that a register mask preserves: one with a name, or ``CustomRegMask($vgpr40,…)``, whose tuples do not
        speak for their parts.
        """
        if not text.startswith(_CUSTOM) or not text.endswith(")"):
            return self._masks.get(text)
        units: set[int] = set()
        for name in text[len(_CUSTOM) : -1].split(","):
            register = self.register(name[1:]) if name.startswith("$") else None
            if register is None:
                return None
            units.update(register.units if len(register.units) <= 2 else ())
        return frozenset(units)


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The data of this package.

    Raises:
        ValueError: the file is not of the form that its README describes.
    """
    return Tables(_PATH.read_text(encoding="ascii"))


@lru_cache(maxsize=None)
def _lanes(index: str) -> tuple[int, ...] | None:
    found: list[int] = []
    parts = index.split("_")
    if parts[0] in ("lo16", "hi16"):
        parts = ["sub0", *parts]
    for number, part in enumerate(parts):
        if part in ("lo16", "hi16"):
            if not number or not parts[number - 1].startswith("sub"):
                return None
            del found[-1 if part == "lo16" else -2]
            continue
        digits = part.removeprefix("sub")
        if part == digits or digits not in _SUBREGISTERS or (found and found[-1] >= 2 * int(digits)):
            return None
        found += (2 * int(digits), 2 * int(digits) + 1)
    return tuple(found)


_SUBREGISTERS = frozenset(map(str, range(32)))


def _split(text: str) -> dict[str, list[str]]:
    """Rows of each section; all sections are there, once, in their order, and every line belongs to one."""
    sections: dict[str, list[str]] = {}
    rows: list[str] | None = None
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            continue
        if line.startswith("["):
            name = line[1:-1]
            if line != f"[{name}]" or len(sections) == len(_SECTIONS) or name != _SECTIONS[len(sections)]:
                raise ValueError(f"unexpected section {line}")
            rows = sections[name] = []
        elif rows is None or not line:
            raise ValueError(f"a line outside of a section: {line!r}")
        else:
            rows.append(line)
    if len(sections) != len(_SECTIONS):
        raise ValueError("a section is missing")
    return sections


def _by_name(pairs: Iterator[tuple[str, _T]]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for name, value in pairs:
        if not name or name in found:
            raise ValueError(f"the name {name!r} is empty or stands twice")
        found[name] = value
    return found


def _columns(row: str, count: int) -> list[str]:
    columns = row.split("\t")
    if len(columns) != count:
        raise ValueError(f"{len(columns)} columns, not {count}: {row!r}")
    return columns


def _two_columns(row: str) -> tuple[str, str]:
    first, second = _columns(row, 2)
    return first, second


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0"):
        raise ValueError(f"no number: {text!r}")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    words = tuple(text.split(" ")) if text else ()
    if "" in words:
        raise ValueError(f"words with more than one blank between them: {text!r}")
    return words


def _one_of(text: str, choices: Sequence[str]) -> int:
    if text not in choices:
        raise ValueError(f"{text!r} is none of {choices}")
    return choices.index(text)


def _truth(text: str) -> bool:
    return bool(_one_of(text, _FALSE_TRUE))


def _range(text: str, between: str) -> range:
    first, _, last = text.partition(between)
    if _number(first) > _number(last):
        raise ValueError(f"no range: {text!r}")
    return range(int(first), int(last) + 1)


def _budget(row: str) -> tuple[str, int, Budget]:
    name, waves, *numbers = _columns(row, 7)
    return name, _number(waves), Budget(*map(_number, numbers))


def _processor(row: str, budgets: Sequence[tuple[str, int, Budget]]) -> tuple[str, Processor]:
    columns = _columns(row, 17)
    name, *numbers = columns
    own = [(waves, budget) for processor, waves, budget in budgets if processor == name]
    readers: list[Callable[[str], int]] = [_number] * 16
    for place in (3, 4, 5, 14, 15):
        readers[place] = _truth
    readers[13] = lambda text: -1 if text == "-" else _truth(text)
    values = [read(text) for read, text in zip(readers, numbers, strict=True)]
    cu_mode = None if values[13] < 0 else bool(values[13])
    processor = Processor(name, *values[:13], cu_mode, *values[14:], tuple(b for _, b in own))  # pyright: ignore
    if [waves for waves, _ in own] != list(range(1, processor.max_waves + 1)):
        raise ValueError(f"the budgets of {name} are not those of 1 to {processor.max_waves} waves")
    return name, processor


def _file(row: str) -> tuple[str, _File]:
    letter, name, base, size, forms, marks = _columns(row, 6)
    _one_of(letter, "vast")
    align_of = {_number(w): _number(a) for w, _, a in (form.partition(":") for form in _words(forms))}
    return name, _File(letter, _number(base), _number(size), align_of, frozenset(_words(marks)))


def _special(row: str) -> Register:
    name, units, marks = _columns(row, 3)
    return Register(name, "x", -1, tuple(_range(units, "-")) if units else (), frozenset(_words(marks)))


def _class(row: str) -> RegisterClass:
    name, bits, vector, either, members = _columns(row, 5)
    items = _words(members)
    runs = tuple(_run(item) for item in items if not item.startswith("="))
    specials = frozenset(item[1:] for item in items if item.startswith("="))
    return RegisterClass(name, _number(bits), _truth(vector), either, runs, specials)


def _run(item: str) -> _Run:
    numbers, *parts = item[1:].replace("..", " ").split(".")
    bounds, _, step = numbers.partition("+")
    span = _range(bounds, " ")
    _one_of(item[0], "vast")
    if not set(parts) <= {"lo", "hi", "w"} or len(set(parts)) != len(parts) or not _number(step):
        raise ValueError(f"no members: {item!r}")
    return _Run(item[0], span[:: int(step)], frozenset(parts or [""]))


def _mask(row: str) -> tuple[str, frozenset[int]]:
    name, ranges = _columns(row, 2)
    units = [unit for text in ranges.split(",") if ranges for unit in _range(text, "-")]
    return name, frozenset(units)


_KINDS = ("register", "register-or-immediate", "immediate", "branch-target", "generic", "any")


def _operand(row: str, modes: int) -> OperandRow:
    kind, tied_to, early_clobber, classes = _columns(row, 4)
    _one_of(kind, _KINDS)
    of_modes = tuple(classes.split("/"))
    if len(of_modes) == 1:
        of_modes *= modes
    if len(of_modes) != modes:
        raise ValueError(f"not one class for each of {modes} modes: {row!r}")
    return OperandRow(kind, -1 if tied_to == "-1" else _number(tied_to), _truth(early_clobber), of_modes)


def _shape(row: str, operands: Sequence[OperandRow]) -> Opcode:
    definitions, numbers, uses, implicit_definitions, traits, counts, others = _columns(row, 7)
    words = _words(traits)
    explicit = [_number(n) for n in _words(numbers)]
    if any(n >= len(operands) for n in explicit) or len(set(words)) != len(words):
        raise ValueError(f"an operand that is not there, or a trait twice: {row!r}")
    values = _by_name((key, value) for key, equals, value in (w.partition("=") for w in words) if equals)
    return Opcode(
        "", _number(definitions), tuple([operands[n] for n in explicit]), _words(uses), _words(implicit_definitions),
        frozenset(words), tuple(map(_number, _words(counts))), tuple(map(_number, _words(others))), values,
    )  # fmt: skip


def _of_shape(row: str, shapes: int) -> tuple[str, int]:
    name, shape = _columns(row, 2)
    if _number(shape) >= shapes:
        raise ValueError(f"no shape {shape}")
    return name, int(shape)
