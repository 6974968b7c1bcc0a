"""Costs of two codes of the same functions, whose loops run equally often in both (``matching.py``).

Everything that compares cycles gets them from here: ``verilocc compare``, the hooks, the choice among candidates and
the guard, the labels of the model of plans.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product

from msgspec import Struct, field

from verilocc_mlir.cost.assembly import Function, parse_assembly
from verilocc_mlir.cost.counting import DEFAULT_TRIPS, Flow, Scratch, control_flow, executions
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.memory import dwords
from verilocc_mlir.cost.model import CostedFile, KernelCost, cost_of_function, costs
from verilocc_mlir.cost.trips import IrLoop, find_trips
from verilocc_mlir.target.targets import Target


class Pair(Struct, frozen=True):
    """One function in two codes.

    Attributes:
        first, second: its cost in each; None where it is not there.
        problem: why the two costs do not compare, in words; ``""`` where they do, and where one is missing.
    """

    first: KernelCost | None
    second: KernelCost | None
    problem: str = ""

    @property
    def compares(self) -> bool:
        """Whether there are two costs, and they compare."""
        return self.first is not None and self.second is not None and not self.problem


def costs_together(
    first: Sequence[Function],
    second: Sequence[Function],
    target: Target,
    ir_loops: Mapping[str, Sequence[IrLoop]] | None = None,
) -> dict[str, Pair]:
    """Every function: first those of ``first``, in their order, then those that only ``second`` has.

    Args:
        ir_loops: loops of the IR that both come from, by function.
    """
    left, right = ({function.name: function for function in side} for side in (first, second))
    loops = ir_loops or {}
    return {
        name: _pair(left.get(name), right.get(name), target, loops.get(name, ()))
        for name in dict.fromkeys([*left, *right])
    }


def files_together(first: CostedFile, second: CostedFile, target: Target) -> dict[str, Pair]:
    """The same of two files; the IR of either counts for both."""
    return costs_together(first.code, second.code, target, {**second.loops, **first.loops})


def _pair(first: Function | None, second: Function | None, target: Target, loops: Sequence[IrLoop]) -> Pair:
    if first is None or second is None:
        alone = [None if side is None else cost_of_function(side, target, loops) for side in (first, second)]
        return Pair(alone[0], alone[1])
    matched = match(first, second, target, loops)
    return Pair(
        cost_of_function(first, target, trips=matched.first),
        cost_of_function(second, target, trips=matched.second),
        matched.problem,
    )


class Reference:
    """Functions that others are compared with: their loops keep the counts that they have here.

    Attributes:
        costs: of these functions, by name.
    """

    def __init__(self, functions: Sequence[Function], target: Target, costs_of: Mapping[str, KernelCost]) -> None:
        self._functions = {function.name: function for function in functions}
        self._target = target
        self.costs = dict(costs_of)

    @classmethod
    def of_assembly(cls, text: str, target: Target, *, where: str = "") -> Reference:
        """
        Raises:
            InputError: the text is no AMDGPU assembly, is for another target, is truncated, or has no function.
        """
        functions = parse_assembly(text, target, where=where)
        return cls(functions, target, costs(functions, target))

    def costs_of_assembly(self, text: str, *, where: str = "") -> dict[str, KernelCost]:
        """The costs of other code of these functions; those that do not compare are left out.

        Raises:
            InputError: as for ``of_assembly``.
        """
        found = {f.name: self.cost_of(f) for f in parse_assembly(text, self._target, where=where)}
        return {name: cost for name, cost in found.items() if cost is not None}

    def cost_of(self, function: Function) -> KernelCost | None:
        """The cost of other code of one of these functions; None where it does not compare."""
        own = self._functions.get(function.name)
        if own is None:
            return None
        fixed = {loop.index: (loop.trips, loop.source) for loop in self.costs[own.name].loops}
        matched = match(own, function, self._target, fixed=fixed)
        return None if matched.problem else cost_of_function(function, self._target, trips=matched.second)


# One count of iterations for the loops of two codes of one kernel.
#
# A compiler may show a loop's counter in one code and not in the other, unroll it, peel iterations off, or leave a
# remainder behind. So each loop of one code is matched with the loop of the other that it comes from, and both get
# counts with which they do the same work (``work.py``): from the IR or from the code where it is known on either side,
# else the default, times whatever one of them is unrolled. Where no counts make the work equal, the codes do not
# compare.


Trips = dict[int, tuple[int, str]]
"""Iterations of each loop by its index, each with its source: ``"ir"``, ``"code"``, ``"other"`` or ``"default"``."""

_MOST_PEELED = 3
"""Iterations peeled off a loop that are looked for."""
_MOST_TRIED = 3
"""Loops that may have peeled iterations at once."""


class _Side(Struct):
    """One code of the kernel, with its loops in the order of their headers."""

    function: Function
    flow: Flow
    trips: Trips
    blocks: list[Mapping[str, float]]
    order: list[int] = field(default_factory=list[int])

    @classmethod
    def of(
        cls,
        function: Function,
        target: Target,
        ir_loops: Sequence[IrLoop],
        given: Mapping[int, tuple[int, str]] | None,
    ) -> _Side:
        flow = control_flow(function)
        trips = dict(given) if given is not None else find_trips(function, flow, ir_loops)
        loops = flow.loops.loops
        order = sorted(range(len(loops)), key=lambda k: loops[k].header)
        return cls(function, flow, trips, [*work_of_blocks(function, target)], order)

    def children(self, parent: int) -> list[int]:
        return [k for k in self.order if self.flow.loops.loops[k].parent == parent]

    def body(self, loop: int) -> Amounts:
        """The work of one iteration, but for the loops in it."""
        inside = [1.0 if k == loop else 0.0 for k in self.flow.loops.innermost]
        return executed(self.blocks, inside)

    def name(self, loop: int) -> str:
        """For messages: the label of the header, and the IR's name of it."""
        block = self.function.blocks[self.flow.loops.loops[loop].header]
        return f"{block.label or 'a loop'}" + (f" (%{block.ir_name})" if block.ir_name else "")

    def ir_name(self, loop: int) -> str:
        return self.function.blocks[self.flow.loops.loops[loop].header].ir_name

    def executed(self, trips: Trips) -> dict[str, float]:
        return executed(self.blocks, executions(self.flow, {k: count for k, (count, _) in trips.items()}))


class Matched(Struct, frozen=True):
    """The counts for two codes.

    Attributes:
        first, second: iterations of every loop.
        problem: why the codes do not compare, in words; ``""`` where they do.
    """

    first: Mapping[int, tuple[int, str]]
    second: Mapping[int, tuple[int, str]]
    problem: str = ""


class _Pair(Struct, frozen=True):
    """A loop of either side; ``remainder`` is what unrolling left behind it on one side, by the side and its loop."""

    first: int
    second: int
    remainder: tuple[int, int] | None = None


def match(
    first: Function,
    second: Function,
    target: Target,
    ir_loops: Sequence[IrLoop] = (),
    fixed: Mapping[int, tuple[int, str]] | None = None,
) -> Matched:
    """Counts of iterations with which two codes of a kernel do the same work.

    Args:
        ir_loops: loops of the IR that both come from.
        fixed: the counts of the first, which stay as they are.
    """
    sides = _Side.of(first, target, ir_loops, fixed), _Side.of(second, target, ir_loops, None)
    known = sides[0].trips, sides[1].trips
    if all(len(side.trips) == len(side.order) for side in sides) and not _unequal(sides, known):
        return Matched(*known)
    pairs = list(_pairs(sides, -1, -1))
    if None in pairs:
        return Matched(*known, _loops_differ(sides))
    matched = [pair for pair in pairs if pair is not None]
    result: tuple[Trips, Trips] = {}, {}
    for pair in matched:
        _count(sides, pair, result, fixed=fixed is not None)
    for peeled in _peeled(sides, matched, result, fixed=fixed is not None):
        if not _unequal(sides, peeled):
            return Matched(*peeled)
    return Matched(
        *result, f"they do not do the same work ({'; '.join(_unequal(sides, result))}); {_loops_of(sides, result)}"
    )


def _unequal(sides: tuple[_Side, _Side], trips: tuple[Trips, Trips]) -> list[str]:
    return differences(sides[0].executed(trips[0]), sides[1].executed(trips[1]))


def _pairs(sides: tuple[_Side, _Side], first: int, second: int) -> Iterator[_Pair | None]:
    """The loops in a pair of loops (-1: in the function), matched; None where that is not possible."""
    left, right = sides[0].children(first), sides[1].children(second)
    names = [[side.ir_name(k) for k in loops] for side, loops in zip(sides, (left, right), strict=True)]
    if all(names[0]) and sorted(names[0]) == sorted(names[1]) and len(set(names[0])) == len(names[0]):
        right = [right[names[1].index(name)] for name in names[0]]
    remainders: dict[int, tuple[int, int]] = {}
    if len(left) != len(right):
        number = 0 if len(left) > len(right) else 1
        longer = left if number == 0 else right
        kept, remainders = _without_remainders(sides[number], longer, abs(len(left) - len(right)))
        left, right = (kept, right) if number == 0 else (left, kept)
        remainders = {main: (number, rest) for main, (_, rest) in remainders.items()}
    if len(left) != len(right):
        yield None
        return
    for a, b in zip(left, right, strict=True):
        yield _Pair(a, b, remainders.get(a) or remainders.get(b))
        yield from _pairs(sides, a, b)


def _without_remainders(side: _Side, loops: list[int], number: int) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """The loops but for those that unrolling left beside a neighbour; these by that neighbour."""
    kept, found = list(loops), dict[int, tuple[int, int]]()
    for main, rest in [*pairwise(loops), *((b, a) for a, b in pairwise(loops))]:
        times = ratio(side.body(main), side.body(rest))
        if len(found) < number and main in kept and rest in kept and times is not None and times > 1:
            kept.remove(rest)
            found[main] = (0, rest)
    return kept, found


def _count(sides: tuple[_Side, _Side], pair: _Pair, result: tuple[Trips, Trips], *, fixed: bool) -> None:
    """The counts of a pair of loops."""
    a, b = pair.first, pair.second
    known = sides[0].trips.get(a), sides[1].trips.get(b)
    times = ratio(sides[1].body(b), sides[0].body(a)) or Fraction(1)
    if known[0] is not None and (fixed or known[1] is None or pair.remainder is not None):
        result[0][a] = known[0]
        result[1][b] = (int(known[0][0] / times), known[0][1] if known[0][1] == "default" else "other")
    elif known[1] is not None and known[0] is None:
        result[0][a], result[1][b] = (int(known[1][0] * times), "other"), known[1]
    elif known[0] is not None and known[1] is not None:
        result[0][a], result[1][b] = known[0], known[1]
    else:
        result[0][a] = DEFAULT_TRIPS * times.numerator, "default"
        result[1][b] = DEFAULT_TRIPS * times.denominator, "default"
    if pair.remainder is not None:
        number, rest = pair.remainder
        main, other = (a, b) if number == 0 else (b, a)
        unrolled = ratio(sides[number].body(main), sides[number].body(rest)) or Fraction(1)
        scale = ratio(sides[1 - number].body(other), sides[number].body(rest)) or Fraction(1)
        whole = result[1 - number][other][0] * scale
        left = whole - result[number][main][0] * unrolled
        result[number][rest] = max(int(left), 0), result[number][main][1]


def _peeled(
    sides: tuple[_Side, _Side], pairs: Sequence[_Pair], result: tuple[Trips, Trips], *, fixed: bool
) -> Iterator[tuple[Trips, Trips]]:
    """The counts; then those with a few iterations less or more of loops whose counts the code does not show."""
    yield result
    free = [(1, p.second) for p in pairs if p.second not in sides[1].trips]
    if not fixed:
        free += [(0, p.first) for p in pairs if p.first not in sides[0].trips]
    changes = [0, *(sign * k for k in range(1, _MOST_PEELED + 1) for sign in (-1, 1))]
    for change in product(changes, repeat=len(free)) if len(free) <= _MOST_TRIED else ():
        changed = dict(result[0]), dict(result[1])
        for (number, loop), more in zip(free, change, strict=True):
            count, source = changed[number][loop]
            changed[number][loop] = max(count + more, 0), source
        yield changed


def _loops_differ(sides: tuple[_Side, _Side]) -> str:
    nests = [", ".join(side.name(k) for k in side.order) or "none" for side in sides]
    return f"their loops cannot be matched: {nests[0]} in the first, {nests[1]} in the second"


def _loops_of(sides: tuple[_Side, _Side], trips: tuple[Trips, Trips]) -> str:
    """The loops with their counts."""
    words = [
        ", ".join(f"{side.name(k)} {found[k][0]}" for k in side.order if k in found) or "none"
        for side, found in zip(sides, trips, strict=True)
    ]
    return f"loops with their trips: {words[0]} in the first, {words[1]} in the second"


# The work that a kernel does whatever its registers are: matrix operations, stores, atomics, and what it loads.
#
# Two codes of one kernel execute the same of it, but for what a compiler copies into several branches. Where they do
# not, their loops were given different counts of iterations, or they are no codes of one kernel, and their cycles do
# not compare. Loads are taken less strictly: a compiler may load a value once or twice.


Amounts = Mapping[str, float]
"""Amounts by what they are of; what is not there is 0."""

LDS_STORED = "bytes stored to LDS"
GLOBAL_STORED = "bytes stored to global memory"
LOADED = "bytes loaded"
_LOADS_DIFFER = 1.5
"""Times as many bytes loaded that two codes of one kernel may differ by (assumed)."""
_BYTE = re.compile(r"_(?:b8|byte)(?:_|$)")
_HALF = re.compile(r"_(?:b16|short)(?:_|$)")
_EQUAL = 0.02
"""Share by which the work of two codes may differ: a compiler copies a store or a matrix operation into two branches,
both of which count (assumed; less than measured times of equal code differ by)."""
_TO_LDS = re.compile(r"_load_(?:async_to_)?lds|\blds\b")


def work_of_blocks(function: Function, target: Target) -> list[Counter[str]]:
    """The work of one execution of each block, by position."""
    private = Scratch(function, target).accesses
    return [_sum(i for i in block.instructions if not private(i)) for block in function.blocks]


def executed(blocks: Sequence[Mapping[str, float]], counts: Sequence[float]) -> dict[str, float]:
    """The work of a wave.

    Args:
        blocks: the work of each block.
        counts: how often it runs.
    """
    total: dict[str, float] = {}
    for work, times in zip(blocks, counts, strict=True):
        for what, amount in work.items():
            total[what] = total.get(what, 0.0) + times * amount
    return {what: amount for what, amount in total.items() if amount}


def differences(first: Amounts, second: Amounts) -> list[str]:
    """What is not the same in both, in words."""
    found: list[str] = []
    for what in sorted(first.keys() | second.keys()):
        less, more = sorted((first.get(what, 0.0), second.get(what, 0.0)))
        if more > less * (_LOADS_DIFFER if what == LOADED else 1 + _EQUAL):
            found.append(f"{what}: {first.get(what, 0.0):,.0f} and {second.get(what, 0.0):,.0f}")
    return found


def ratio(first: Amounts, second: Amounts) -> Fraction | None:
    """How many times the work of ``second`` ``first`` is; None where that is no number.

    Loads count where there is nothing else.
    """
    first, second = ({w: n for w, n in side.items() if w != LOADED} or dict(side) for side in (first, second))
    if not first or first.keys() != second.keys():
        return None
    ratios = {Fraction(first[what]) / Fraction(second[what]) for what in first}
    return ratios.pop() if len(ratios) == 1 else None


def _sum(code: Iterable[Instruction]) -> Counter[str]:
    total: Counter[str] = Counter()
    for instruction in code:
        if (found := _of(instruction)) is not None:
            total[found[0]] += found[1]
    return total


def _of(instruction: Instruction) -> tuple[str, int] | None:
    """What kind of work an instruction is, and how much."""
    base, kind = instruction.base, instruction.kind
    if kind in (Kind.MFMA, Kind.WMMA):
        return base, 1
    if kind not in (Kind.LDS, Kind.VMEM):
        return None
    if "atomic" in base or (kind is Kind.LDS and ("_rtn" in base or _is_lds_atomic(base))):
        return "atomics", 1
    if kind is Kind.LDS:
        if base.startswith(("ds_write", "ds_store")):
            return LDS_STORED, _bytes(base)
        return (LOADED, _bytes(base)) if base.startswith(("ds_read", "ds_load")) else None
    if _TO_LDS.search(instruction.text):
        return "bytes loaded into LDS", _bytes(base)
    if "_store" in base:
        return GLOBAL_STORED, _bytes(base)
    return (LOADED, _bytes(base)) if "_load" in base else None


def _is_lds_atomic(base: str) -> bool:
    return base.startswith(("ds_add", "ds_sub", "ds_min", "ds_max", "ds_and", "ds_or", "ds_xor", "ds_inc", "ds_dec",
                            "ds_cmpst", "ds_cmpstore", "ds_pk_add", "ds_wrxchg", "ds_storexchg"))  # fmt: skip


def _bytes(base: str) -> int:
    """Bytes that a lane moves."""
    return 1 if _BYTE.search(base) else 2 if _HALF.search(base) else 4 * dwords(base)
