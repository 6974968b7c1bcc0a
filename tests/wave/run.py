"""Runs a function for one wave: P as it was written, or the assembly that LLVM made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Key: TypeAlias = "tuple[str, int]"
"""A lane of 32 bits: the file (``s``, ``v``, ``a``, ``exec``, ``vcc``) or a variable of P, and a number."""
Operand: TypeAlias = "tuple[Key, ...] | int"
Stores: TypeAlias = "dict[tuple[int, int], int | None]"
"""What each thread stored last at each offset; None: P leaves it undefined."""
THREADS = 8
"""That masks at hand tell apart; the first half may enter the function."""
SCC = ("scc", 0)
_ONES = 0xFFFFFFFF
_MOST_STEPS = 400


@dataclass(frozen=True)
class Line:
    """An instruction: its name in assembly without widths and encodings, what it writes and reads, and where it leads.

    ``both``: the two halves of a V_DUAL.
    """

    name: str
    to: tuple[tuple[Key, ...], ...] = ()
    of: tuple[Operand, ...] = ()
    label: str = ""
    offset: int = 0
    both: tuple[Line, ...] = ()


class Unknown(Exception):
    """It is not known here what an instruction does, or P reads something undefined where that matters."""


_WORDS: Mapping[str, Callable[..., int]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b), "andn1": lambda a, b: ~a & b, "orn1": lambda a, b: ~a | b,
    "add": lambda a, b: a + b, "mov": lambda a: a, "not": lambda a: ~a, "accvgpr": lambda a: a,
}  # fmt: skip
_TESTS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "ne": lambda a, b: a != b, "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b, "le": lambda a, b: a <= b,
}  # fmt: skip


def is_kept(file: str, number: int) -> bool:
    """Whether a call leaves a register alone."""
    if file == "s":
        return 30 <= number < 40 or (number >= 48 and number % 16 < 8)
    return file == "v" and number >= 40 and number % 16 >= 8


def is_vector(key: Key) -> bool:
    return key[0][0] in "vaq" and key[0] != "vcc"


class Run:
    """One wave.

    Args:
        given: what scalars hold at first; all else follows from ``seed``, but that variables are undefined.
    """

    def __init__(self, code: Sequence[Line], wave: int, given: Mapping[Key, int], seed: int) -> None:
        self.code, self.wave, self.seed = code, wave, seed
        self.labels = {line.label: at for at, line in enumerate(code) if line.name == "label"}
        self.scalars: dict[Key, int | None] = dict(given)
        self.vectors: dict[Key, list[int | None]] = {}
        self.stored: Stores = {}
        self.exec: tuple[Key, ...] = tuple(("exec", n) for n in range(wave // 32))
        self._calls: list[int] = []
        self._later: list[tuple[Key, Sequence[int | None]]] | None = None

    # What registers hold.

    def _first(self, key: Key, thread: int) -> int | None:
        """What a register holds that nobody has written, but for calls."""
        file, number = key
        if file not in ("s", "v", "a", "memory"):
            return None
        calls = [] if file == "memory" or is_kept(file, number) else self._calls
        last = max((n for n, active in enumerate(calls, 1) if file == "s" or active >> thread & 1), default=0)
        return hash((self.seed, last, ord(file[0]), number, thread)) & _ONES

    def vector(self, key: Key) -> list[int | None]:
        if key not in self.vectors:
            self.vectors[key] = [self._first(key, thread) for thread in range(self.wave)]
        return self.vectors[key]

    def scalar(self, key: Key) -> int | None:
        if key not in self.scalars:
            self.scalars[key] = self._first(key, self.wave)
        return self.scalars[key]

    def _call(self, active: int) -> None:
        """What a callee may overwrite: its caller's scalars, and its vectors in active threads."""
        if not active:
            raise Unknown("a call without threads")
        self._calls.append(active)
        for key in [key for key in self.scalars if key[0] == "s" and not is_kept(*key)]:
            del self.scalars[key]
        for key in [key for key in self.vectors if key[0] in ("v", "a") and not is_kept(*key)]:
            threads = [thread for thread in range(self.wave) if active >> thread & 1]
            self._write(key, [self._first(key, thread) for thread in range(self.wave)], threads)

    def _number(self, operand: Operand) -> int | None:
        if isinstance(operand, int):
            return operand
        number = 0
        for n, key in enumerate(operand):
            part = self.scalar(key)
            if part is None:
                return None
            number |= part << 32 * n
        return number

    def mask(self, operand: Operand) -> int:
        """A number that must be known, cut to the wave's size."""
        number = self._number(operand)
        if number is None:
            raise Unknown("undefined")
        return number & ((1 << self.wave) - 1)

    def _row(self, operand: Operand) -> list[int | None]:
        if isinstance(operand, tuple) and is_vector(operand[0]):
            return list(self.vector(operand[0]))
        number = self._number(operand)
        return [None if number is None else number & _ONES] * self.wave

    def _put(self, keys: Sequence[Key], number: int | None) -> None:
        self.scalars.update((key, None if number is None else number >> 32 * n & _ONES) for n, key in enumerate(keys))

    def _write(self, key: Key, row: Sequence[int | None], threads: Iterable[int]) -> None:
        if self._later is not None:
            self._later.append((key, row))
            return
        own = self.vector(key)
        for thread in threads:
            own[thread] = row[thread]

    # What instructions do.

    def run(self, through: frozenset[int] = frozenset()) -> Stores:
        """What is stored. ``through``: the lines of branches on EXEC that are gone: where it is 0, what they skip is
        gone through.

        Raises:
            Unknown: an instruction is not known, something undefined matters, or it does not end.
        """
        at = 0
        for _ in range(_MOST_STEPS):
            line = self.code[at]
            at += 1
            if line.name == "tail":
                self._store(-4, self._row((("v", 0),)))
                self._store(-8, self._row((("s", 2),)))
            if line.name in ("s_endpgm", "tail"):
                return self.stored
            if line.name.startswith(("s_branch", "s_cbranch")):
                at = self._at(line.label) if self._is_taken(line, gone=at - 1 in through) else at
            elif line.name != "label":
                self._step(line)
        raise Unknown("it does not end")

    def _at(self, label: str) -> int:
        if label not in self.labels:
            raise Unknown(f"{label} is not printed, so that no assembler takes it")
        return self.labels[label]

    def _is_taken(self, line: Line, *, gone: bool) -> bool:
        kind = line.name.rpartition("_")[2]
        if kind == "branch":
            return True
        if kind[:-1] == "scc":
            return self.mask((SCC,)) == int(kind[-1])
        is_zero = self.mask(tuple((kind.rstrip("nz"), n) for n in range(self.wave // 32))) == 0
        return kind[-2:] == "nz" if gone and is_zero else is_zero == (kind[-2:] != "nz")

    def _store(self, offset: int, row: Sequence[int | None]) -> None:
        active = self.mask(self.exec)
        self.stored.update(((offset, t), row[t]) for t in range(self.wave) if active >> t & 1)

    def _step(self, line: Line) -> None:
        name, to, of = line.name, line.to, line.of
        active = self.mask(self.exec)
        threads = [thread for thread in range(self.wave) if active >> thread & 1]
        file, _, rest = name.partition("_")
        base = rest.partition("_")[0]
        if line.both:
            self._later = []
            for half in line.both:
                self._step(half)
            later, self._later = self._later, None
            for key, row in later:
                self._write(key, row, threads)
        elif name == "call":
            self._call(active)
        elif name == "undefined":
            for key in to[0]:
                if is_vector(key):
                    self._write(key, [None] * self.wave, threads)
                else:
                    self.scalars[key] = None
        elif name == "copy" and is_vector(to[0][0]):
            self._write(to[0][0], self._row(of[0]), threads)
        elif name == "copy":
            self._put(to[0], self._number(of[0]))
        elif name == "global_store":
            assert isinstance(of[1], tuple)
            for n, key in enumerate(of[1]):
                self._store(line.offset + 4 * n, self._row((key,)))
        elif name.startswith("v_mfma"):
            # 16 blocks of four threads: each thread's column, and a row of each thread in its block.
            rows, columns = map(self._row, of[:2])
            for n, key in enumerate(to[0]):
                added = self._row((of[2][n],) if isinstance(of[2], tuple) else of[2])
                parts = [(rows[t // 4 * 4 + n], columns[t], added[t]) for t in range(self.wave)]
                self._write(key, [None if None in part else hash(part) & _ONES for part in parts], range(self.wave))
        elif name == "v_cndmask":
            off, on = map(self._row, of[:2])
            # V_DUAL_CNDMASK does not name VCC.
            mask = self._number(of[2] if len(of) > 2 else (("vcc", 0),))
            row = [None if mask is None else (on if mask >> t & 1 else off)[t] for t in range(self.wave)]
            self._write(to[0][0], row, threads)
        elif name == "s_cselect":
            self._put(to[0], self._number(of[0 if self.mask((SCC,)) else 1]))
        elif name.startswith("scratch"):
            slot = ("memory", line.offset + sum(map(self.mask, of)))
            source, target = (to[0][0], slot) if name == "scratch_store" else (slot, to[0][0])
            self._write(target, self.vector(source), threads)
        elif rest.endswith("saveexec"):
            new = _WORDS[base](self.mask(of[0]), active)
            self._put(to[0], active)
            self._put(self.exec, new)
            self._put((SCC,), int(self.mask(self.exec) != 0))
        elif name.startswith("s_cmp_"):
            numbers = [self._number(operand) for operand in of]
            if name.endswith("_i32"):
                numbers = [None if n is None else (n & _ONES) - ((n >> 31 & 1) << 32) for n in numbers]
            first, second = numbers
            if first is None or second is None:
                self._put((SCC,), None)
            else:
                self._put((SCC,), int(_TESTS[name.split("_")[2]](first, second)))
        elif file == "s" and base in _WORDS:
            numbers = [self._number(operand) for operand in of]
            result = None if None in numbers else _WORDS[base](*numbers)
            self._put(to[0], result)
            if base not in ("mov", "add"):
                self._put((SCC,), None if result is None else int(result & ((1 << 32 * len(to[0])) - 1) != 0))
        elif name.startswith("v_cmp"):
            test, rows = _TESTS[name.split("_")[2]], list(map(self._row, of))
            pairs = [(thread, rows[0][thread], rows[1][thread]) for thread in threads]
            known = [(thread, a, b) for thread, a, b in pairs if a is not None and b is not None]
            self._put(to[0], sum(test(a, b) << thread for thread, a, b in known) if len(known) == len(pairs) else None)
        elif name == "v_readfirstlane":
            self._put(to[0], self._row(of[0])[threads[0] if threads else 0])
        elif name == "v_readlane":
            self._put(to[0], self._row(of[0])[self.mask(of[1])])
        elif name == "v_writelane":
            self.vector(to[0][0])[self.mask(of[1])] = self._number(of[0])
        elif name == "v_swap":
            rows = [self._row(keys) for keys in to]
            self._write(to[0][0], rows[1], threads)
            self._write(to[1][0], rows[0], threads)
        elif name == "v_mov_dpp":
            row = self._row(of[0])
            self._write(to[0][0], [row[t ^ 1] if active >> (t ^ 1) & 1 else 0 for t in range(self.wave)], threads)
        elif file == "v" and base in _WORDS:
            rows = zip(*(self._row(operand) for operand in of), strict=True)
            self._write(to[0][0], [None if None in row else _WORDS[base](*row) & _ONES for row in rows], threads)
        else:
            raise Unknown(f"instruction {name}")


# Assembly.

_NOTHING = re.compile(r"s_(waitcnt|nop|delay_alu|clause|wait_|sendmsg)|v_nop")
_RENAMED = (("and_not1", "andn2"), ("or_not1", "orn2"), ("and_not0", "andn1"), ("or_not0", "orn1"), ("add_nc", "add"))
_SCRATCH = re.compile(r"\s*(?:([va]\d+), )?off, (?:([va]\d+), )?(off|s\d+)(?: offset:(\d+))?")


def lines_of(assembly: str, wave: int) -> list[Line]:
    """LLVM's assembly of a function ``f``."""
    lines: list[Line] = []
    for full in assembly.partition("\nf:")[2].partition("\n.Lfunc_end")[0].splitlines():
        row = re.sub(r"\s+; .*|^;.*", "", full).strip()
        if row.startswith(".LBB"):
            lines.append(Line("label", label=row.rstrip(":")))
        elif row and not row.startswith(".") and not _NOTHING.match(row):
            halves = row.split(" :: ")
            lines += _lines(row, wave) if len(halves) == 1 else [Line("dual", both=tuple(
                line for half in halves for line in _lines(half.replace("v_dual_", "v_"), wave)))]  # fmt: skip
    return lines


def _lines(row: str, wave: int) -> list[Line]:
    name, _, rest = row.partition(" ")
    if name == "s_swappc_b64":
        return [Line("call")]
    if name.startswith("s_setpc"):
        return [Line("s_endpgm" if "s[30:31]" in rest else "tail")]
    if name.startswith(("s_branch", "s_cbranch", "s_endpgm")):
        return [Line(name, label=rest.strip())]
    for old, new in _RENAMED:
        name = name.replace(old, new)
    name = re.sub(r"_e32|_e64", "", name)
    if not name.startswith(("s_cmp", "v_cmp")):
        name = re.sub(r"_([biu](32|64)|dword(x4)?)(?=_|$)", "", name)
    if name.startswith("scratch"):
        match = _SCRATCH.fullmatch(rest)
        if match is None:
            raise Unknown(f"instruction {row}")
        data = _registers(match[1] or match[2])
        of = () if match[3] == "off" else (_registers(match[3]),)
        return [Line(name, (data,), of, offset=int(match[4] or 0))]
    rest, _, offset = rest.partition(" off")
    words = re.split(r",(?![^\[]*\])", rest.split(" quad_perm")[0].rstrip(","))
    operands = [_operand(word.strip()) for word in words]
    if name == "global_store":
        number = re.search(r"offset:(\d+)", offset)
        return [Line(name, (), tuple(operands), offset=int(number[1]) if number else 0)]
    if name.startswith("s_cmp"):
        return [Line(name, (), tuple(operands))]
    if name == "v_swap":
        return [Line(name, tuple(operand for operand in operands if isinstance(operand, tuple)))]
    everybody = tuple(("exec", n) for n in range(wave // 32))
    if name.startswith("v_cmpx"):
        operands = operands if len(operands) > 2 else [everybody, *operands]
    if name == "s_addk":
        name, operands = "s_add", [operands[0], *operands]
    target = operands[0]
    assert isinstance(target, tuple)
    line = Line(name.replace("cmpx", "cmp"), (target,), tuple(operands[1:]))
    return [line, Line("copy", (everybody,), (target,))] if "cmpx" in name else [line]


def _operand(word: str) -> Operand:
    return int(word, 0) if re.fullmatch(r"-?\d+|0x[0-9a-f]+", word) else _registers(word)


def _registers(word: str) -> tuple[Key, ...]:
    if word in ("exec", "vcc", "exec_lo", "vcc_lo"):
        return tuple((word.removesuffix("_lo"), n) for n in range(1 if word.endswith("_lo") else 2))
    match = re.fullmatch(r"([sva])(?:(\d+)|\[(\d+):(\d+)\])", word)
    if match is None:
        raise Unknown(f"operand {word}")
    low = int(match[2] or match[3])
    return tuple((match[1], n) for n in range(low, int(match[4] or low) + 1))
