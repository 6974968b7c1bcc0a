"""The target's data, read from ``data/target.txt``; the README beside it says what each column and word means.

Reading is strict: a row of another form is a ValueError. Looking up is total: what the data do not have is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from smt_verifier.checker import DATA

_CUSTOM = "CustomRegMask("
_KINDS = ("register", "register-or-immediate", "immediate", "branch-target", "generic", "any")
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
    half_moves: bool
    budgets: tuple[Budget, ...] = ()


class Register(NamedTuple):
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
    name: str
    base: int
    size: int
    align_of: Mapping[int, int]
    marks: frozenset[str]


class _Run(NamedTuple):
    """Members from one file: their first registers, and the parts of each (``""``, ``lo``, ``hi``, ``w``)."""

    file: str
    firsts: range
    parts: Sequence[str]


class RegisterClass(NamedTuple):
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


class OperandRow(NamedTuple):
    """An explicit operand. ``classes`` has one class for each mode; ``""``: none is prescribed, ``"-"``: the mode has
    no such operand.
    """

    kind: str
    tied_to: int
    early_clobber: bool
    classes: tuple[str, ...]


class Opcode:
    """What LLVM knows of an opcode, and what the reviewed lists do.

    Attributes:
        definitions: how many of ``operands`` are definitions; they come first.
        counts: how many explicit operands an instruction may have.
        not_described: how many it has in LLVM 24 where that form is another one.
        values: of the traits ``key=value``, by key.
    """

    def __init__(
        self,
        name: str,
        definitions: int,
        operands: tuple[OperandRow, ...],
        implicit_uses: tuple[str, ...],
        implicit_definitions: tuple[str, ...],
        traits: frozenset[str],
        counts: tuple[int, ...],
        not_described: tuple[int, ...],
        values: dict[str, str],
    ) -> None:
        self.name, self.definitions, self.operands, self.traits = name, definitions, operands, traits
        self.implicit_uses, self.implicit_definitions = implicit_uses, implicit_definitions
        self.counts, self.not_described, self.values = counts, not_described, values
        self.ties = {n: row.tied_to for n, row in enumerate(operands) if row.tied_to >= 0}
        self.early = {n for n, row in enumerate(operands) if row.early_clobber}

    def named(self, name: str) -> Opcode:
        """The same of another name."""
        own = self.operands, self.implicit_uses, self.implicit_definitions
        return Opcode(name, self.definitions, *own, self.traits, self.counts, self.not_described, self.values)

    def value(self, key: str) -> str:
        """The value of a trait ``key=value``; ``""`` without it."""
        return self.values.get(key, "")

    def numbers(self, key: str) -> tuple[int, ...]:
        """The value of a trait as numbers of operands."""
        return tuple(map(_number, self.value(key).split(","))) if key in self.values else ()


class Tables:
    """All of the data, looked up by name."""

    def __init__(self, text: str) -> None:
        others, _, self._opcodes = text.partition("\n[opcodes]\n")
        if not self._opcodes.endswith("\n"):
            raise ValueError("the file is cut off")
        sections = _read(others)
        processors = [Processor(*row) for row in sections["processors"]]
        self._processors = _by_name((p.name, p._replace(budgets=_budgets(p, sections))) for p in processors)
        self._files = {row[1]: _File(*row) for row in sections["files"]}
        self._specials = _by_name(
            (name, Register(name, "x", -1, units, marks)) for name, units, marks in sections["specials"]
        )
        self._classes = _by_name((row[0], _class(*row)) for row in sections["classes"])
        self._masks: dict[str, frozenset[int]] = _by_name((name, frozenset(units)) for name, units in sections["masks"])
        self.assembly: tuple[tuple[str, str], ...] = tuple(sections["assembly"])
        """Words of inline assembly that hint at other threads, and the longer word in which each does not."""
        self.features: dict[str, tuple[Sequence[str], Sequence[str]]] = _by_name(
            (row[0], row[1:]) for row in sections["features"]
        )
        """Subtarget features: the processors where one may be turned on, and off, without a change of any limit."""
        self.conventions: dict[str, tuple[str, str, bool]] = _by_name(
            (row[0], row[1:]) for row in sections["conventions"]
        )
        """Calling conventions: mask of what a function leaves alone, without and with AGPRs; whether it is a shader."""
        self.arguments: dict[str, int] = _by_name(sections["arguments"])
        """Entries of argumentInfo, and how many SGPRs each counts as preloaded."""
        self._modes = {p.mode for p in processors}
        self._operands = [_operand(len(self._modes), *row) for row in sections["operands"]]
        self._shapes: list[str] = sections["shapes"]
        self._known: dict[str, Opcode] = {}
        self._registers: dict[str, Register | None] = {}

    def check(self) -> None:
        """Read every row, those of opcodes and their shapes too, which are read when they are asked for.

        Raises:
            ValueError: a row is of no form that the README describes, or names what is not there.
        """
        shapes = [self._shape(number) for number in range(len(self._shapes))]
        opcodes = self.opcodes
        registers = {name for s in shapes for name in (*s.implicit_uses, *s.implicit_definitions)}
        masks = {mask for row in self.conventions.values() for mask in row[:2]}
        if (
            self._modes != set(range(len(self._modes)))
            or list(opcodes) != sorted({*opcodes} - {""})
            or None in map(self.opcode, opcodes)
            or None in map(self.register, registers)
            or not masks <= self._masks.keys() | {""}
            or not all(
                c.either in self._classes and c.specials <= self._specials.keys() for c in self._classes.values()
            )
        ):
            raise ValueError("a row names what is not there")

    @lru_cache(maxsize=None)  # noqa: B019 (there is one object)
    def _shape(self, number: int) -> Opcode:
        if number >= len(self._shapes):
            raise ValueError(f"no shape: {number}")
        return _shape(self._operands, *_columns("shapes", self._shapes[number]))

    @property
    def opcodes(self) -> Sequence[str]:
        """Names of all opcodes, sorted."""
        return tuple([line.partition("\t")[0] for line in self._opcodes.splitlines() if not line.startswith("#")])

    @property
    def classes(self) -> Sequence[str]:
        """Names of all register classes."""
        return tuple(self._classes)

    def processor(self, name: str) -> Processor | None:
        """The figures of a GPU."""
        return self._processors.get(name)

    def opcode(self, name: str) -> Opcode | None:
        """What is known of an opcode."""
        known = self._known.get(name)
        if known is None and (shape := self._shape_of(name)):
            known = self._known[name] = self._shape(_number(shape)).named(name)
        return known

    def _shape_of(self, name: str) -> str:
        """The shape of an opcode in its row, which stand in the order of their names; ``""`` without one."""
        rows = self._opcodes
        low, high = 0, len(rows)
        while low < high:
            start = max(low, rows.rfind("\n", low, (low + high) // 2) + 1)
            end = rows.find("\n", start)
            key, _, shape = rows[start:end].partition("\t")
            if key == name:
                return shape
            low, high = (end + 1, high) if key < name else (low, start)
        return ""

    def units(self, letter: str, count: int | None = None) -> range:
        """Units of the first registers of a file; of all without ``count``."""
        file = next(f for f in self._files.values() if f.letter == letter)
        return range(file.base, file.base + 2 * (file.size if count is None else count))

    def operand_keys(self, mark: str) -> frozenset[int]:
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
        number = parts[0].removeprefix(prefix)
        if file is None or number not in _REGISTER_NUMBERS:
            return None
        first = int(number)
        align = file.align_of.get(len(parts))
        if align is None or first % align or first + len(parts) > file.size:
            return None
        if parts != [f"{prefix}{n}" for n in range(first, first + len(parts))]:
            return None
        units = tuple(range(file.base + 2 * first, file.base + 2 * (first + len(parts))))
        if len(parts) == 1 and parts[0] != name:
            units = units[half == "hi16" :][:1]
        return Register(name, file.letter, first, units, file.marks)

    def named_by(self, units: tuple[int, ...]) -> Register | None:
        """A register by its units, of which there is at least one."""
        for file in self._files.values():
            first, half = divmod(units[0] - file.base, 2)
            if 0 <= first < file.size:
                whole = "_".join(f"{file.name}{first + n}" for n in range(max(1, len(units) // 2)))
                register = self.register(whole if len(units) > 1 else f"{whole}_{('lo16', 'hi16')[half]}")
                return register if register is not None and register.units == units else None
        return next((r for r in self._specials.values() if r.units == units and "wide" not in r.marks), None)

    def register_class(self, name: str) -> RegisterClass | None:
        return self._classes.get(name)

    def either_file(self, cls: RegisterClass) -> RegisterClass:
        """The class of the same width and alignment with VGPRs and AGPRs, where there is one; else the class."""
        return self._classes[cls.either]

    def contains_part(self, cls: RegisterClass, register: Register, lanes: tuple[int, ...]) -> bool:
        """Whether a register is the part ``lanes`` (16-bit lanes, lowest first) of some member; no lanes: the whole."""
        if not lanes:
            return cls.contains(register)
        if lanes != tuple(range(lanes[0], lanes[0] + len(register.units))) or 16 * (lanes[-1] + 1) > cls.bits:
            return False
        if register.file == "x":
            members = [self._specials[name] for name in cls.specials if cls.bits > 16]
            return "wide" not in register.marks and any(
                register.units == member.units[lanes[0] : lanes[-1] + 1] for member in members
            )
        first = register.first - lanes[0] // 2
        return (register.units[0] - lanes[0]) % 2 == 0 and any(
            r.file == register.file and "" in r.parts and first in r.firsts for r in cls.runs
        )

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
    return Tables((DATA / "target.txt").read_text(encoding="ascii"))


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
_REGISTER_NUMBERS = frozenset(map(str, range(1024)))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or str(int(text)) != text:
        raise ValueError(f"no number: {text!r}")
    return int(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    return lambda text: choices[choices.index(text)]


def _truth(text: str) -> bool:
    return ("0", "1").index(text) == 1


def _choice(text: str) -> bool | None:
    return None if text == "-" else _truth(text)


def _words(text: str) -> tuple[str, ...]:
    words = tuple(text.split(" ")) if text else ()
    if "" in words or len(set(words)) != len(words):
        raise ValueError(f"no list of words: {text!r}")
    return words


def _set(text: str) -> frozenset[str]:
    return frozenset(_words(text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(_number, text.split(" "))) if text else ()


def _range(text: str, between: str = "-") -> range:
    first, last = map(_number, text.split(between))
    if first > last:
        raise ValueError(f"no range: {text!r}")
    return range(first, last + 1)


def _units(text: str) -> tuple[int, ...]:
    return tuple(unit for part in text.split(",") for unit in _range(part)) if text else ()


def _forms(text: str) -> dict[int, int]:
    return {width: align for form in _words(text) for width, align in [map(_number, form.split(":"))]}


def _runs(text: str) -> tuple[_Run | str, ...]:
    """Members of a class: runs of a file, and names of special registers."""
    return tuple(word[1:] if word.startswith("=") else _run(word) for word in _words(text))


def _run(item: str) -> _Run:
    numbers, *parts = item[1:].replace("..", " ").split(".")
    bounds, step = numbers.split("+")
    if parts not in ([], ["lo"], ["hi"], ["lo", "hi"], ["w"]):
        raise ValueError(f"no members: {item!r}")
    return _Run(_LETTER(item[0]), _range(bounds, " ")[:: _number(step)], parts or [""])


_LETTER = _one_of("v", "a", "s", "t")
_COLUMNS: dict[str, tuple[Callable[[str], Any], ...]] = {
    "processors": (str, *[_number] * 3, *[_truth] * 3, *[_number] * 7, _choice, *[_truth] * 3),
    "budgets": (str, *[_number] * 6),
    "files": (_LETTER, str, _number, _number, _forms, _set),
    "specials": (str, _units, _set),
    "classes": (str, _number, _truth, str, _runs),
    "masks": (str, _units),
    "assembly": (str, str),
    "features": (str, _words, _words),
    "conventions": (str, str, str, _truth),
    "arguments": (str, _number),
    "operands": (_one_of(*_KINDS), lambda text: -1 if text == "-1" else _number(text), _truth, lambda t: t.split("/")),
    "shapes": (_number, _numbers, _words, _words, _words, _numbers, _numbers),
}  # fmt: skip
"""How each column is read, by section, in their order. Shapes are read when they are asked for: a function has few."""


def _read(text: str) -> dict[str, list[Any]]:
    """Rows of each section but the last; all are there, once, in their order, and every line belongs to one."""
    sections: dict[str, list[Any]] = {}
    name = ""
    for line in text.split("\n"):
        if line.startswith("[") or not (name or line.startswith("#")):
            name = line[1:-1]
            if line != f"[{name}]" or name in sections or name not in _COLUMNS:
                raise ValueError(f"unexpected section {line}")
            sections[name] = []
        elif not line.startswith("#"):
            sections[name].append(line if name == "shapes" else _columns(name, line))
    if list(sections) != list(_COLUMNS):
        raise ValueError("a section is missing")
    return sections


def _columns(section: str, line: str) -> tuple[Any, ...]:
    columns = zip(_COLUMNS.get(section, ()), line.split("\t"), strict=True)
    return tuple([read(column) for read, column in columns])


def _by_name(pairs: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    rows = list(pairs)
    found = dict(rows)
    if "" in found or len(found) != len(rows):
        raise ValueError("a name is empty, or stands twice")
    return found


def _budgets(processor: Processor, sections: Mapping[str, list[Any]]) -> tuple[Budget, ...]:
    rows = [row for row in sections["budgets"] if row[0] == processor.name]
    if [row[1] for row in rows] != list(range(1, processor.max_waves + 1)):
        raise ValueError(f"the budgets of {processor.name} are not those of 1 to {processor.max_waves} waves")
    return tuple(Budget(*row[2:]) for row in rows)


def _class(name: str, bits: int, vector: bool, either: str, members: Sequence[_Run | str]) -> RegisterClass:
    runs = tuple(m for m in members if not isinstance(m, str))
    return RegisterClass(name, bits, vector, either, runs, frozenset(m for m in members if isinstance(m, str)))


def _operand(modes: int, kind: str, tied_to: int, early_clobber: bool, classes: list[str]) -> OperandRow:
    if len(classes) not in (1, modes):
        raise ValueError(f"{len(classes)} classes for {modes} modes")
    return OperandRow(kind, tied_to, early_clobber, tuple(classes * modes)[:modes])


def _shape(operands: list[OperandRow], definitions: int, numbers: tuple[int, ...], *rest: Any) -> Opcode:
    uses, implicit_definitions, traits, counts, others = rest
    if max(numbers, default=0) >= len(operands):
        raise ValueError("an operand that is not there")
    values = _by_name((key, value) for key, equals, value in (t.partition("=") for t in traits) if equals)
    explicit = tuple([operands[n] for n in numbers])
    return Opcode("", definitions, explicit, uses, implicit_definitions, frozenset(traits), counts, others, values)
