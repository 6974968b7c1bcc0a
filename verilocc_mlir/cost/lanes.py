"""What the lanes of a wave hold in a vector register, where the code says it: multiples and bits of the work-item's id.

A value is known in each lane, or known but for a number that is the same in all lanes (an address of the work-group, a
loop counter). That is enough for bank conflicts of LDS, which do not depend on such a number.

Sources: the ISA manuals' VALU opcode tables; AMDGPUUsage, "Initial Kernel Execution State", for the ids in ``v0``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import Instruction, Kind, decode, halves
from verilocc_mlir.cost.registers import is_vector, is_vgpr, units

_Rule = Callable[..., "Lanes | None"]
_WORD = 0xFFFFFFFF
_MOST_PASSES = 8
_ID_BITS = 10
"""Bits of each of the three ids of a work-item that are packed in ``v0``."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A 32-bit number in each lane.

    Attributes:
        values: by lane; those of an inexact value start at 0.
        exact: the numbers are these; else all have one unknown number added.
    """

    values: tuple[int, ...]
    exact: bool

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes hold the same number."""
        return len(set(self.values)) == 1


State = dict[int, Lanes]
"""What is known, by the number of the register (``registers.py``). A vector register not in it is not known at all, a
scalar one holds an unknown number.
"""


def work_item_ids(extents: tuple[int, int, int], lanes: int) -> Lanes:
    """``v0`` of the first wave of a work-group: the three ids of each lane's work-item, ten bits each."""
    x, y, _ = extents
    ids = [(k % x, k // x % y, k // (x * y)) for k in range(lanes)]
    return Lanes(tuple(a | b << _ID_BITS | c << 2 * _ID_BITS for a, b, c in ids), exact=True)


def known_lanes(function: Function, flow: Flow, start: State, lanes: int) -> list[State] | None:
    """What is known at the start of each block, by position; None where that does not settle.

    Args:
        start: what is known on entry.
    """
    before: list[State] = [{} for _ in function.blocks]
    after: dict[int, State] = {}
    for _ in range(_MOST_PASSES):
        changed = False
        for block in flow.cfg.order:
            sources = [after[p] for p in flow.cfg.predecessors[block] if p in after]
            if block == flow.cfg.order[0]:
                sources.append(start)
            joined = _join(sources)
            if block in after and joined == before[block]:
                continue
            changed = True
            before[block] = joined
            state = dict(joined)
            for instruction in function.blocks[block].instructions:
                step(instruction, state, lanes)
            after[block] = state
        if not changed:
            return before
    return None


def _join(states: list[State]) -> State:
    if not states:
        return {}
    first, *rest = states
    result = dict(first)
    for state in rest:
        for unit in list(result):
            other = state.get(unit)
            joined = either(result[unit], other) if other is not None else None
            if joined is None:
                del result[unit]
            else:
                result[unit] = joined
    return result


def step(instruction: Instruction, state: State, lanes: int) -> None:
    """Change ``state`` by the execution of ``instruction``."""
    if instruction.is_dual:
        pair = [decode(half, 11) for half in halves(instruction.text)]
        results = [(one.defs, _result(one, state, lanes)) for one in pair]
    else:
        results = [(instruction.defs, _result(instruction, state, lanes))]
    for defs, value in results:
        for unit in defs:
            state.pop(unit, None)
        if value is not None:
            state[defs[0]] = value


def _result(instruction: Instruction, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    """What the first register that it writes holds then; None where that is not known."""
    base, operands = instruction.base, instruction.operands
    if base in ("s_mov_b32", "s_movk_i32", "v_mov_b32"):
        plain = len(operands) == 2 and not instruction.mnemonic.endswith(("dpp", "sdwa", "dpp8"))
        return value_of(operands[1], state, lanes) if plain and instruction.defs else None
    if instruction.kind is not Kind.VALU or not instruction.defs or not is_vector(instruction.defs[0]):
        return None
    rule = _RULES.get(base)
    if rule is None or instruction.mnemonic.endswith(("dpp", "sdwa", "dpp8")):
        return None
    number, compute = rule
    skipped = 2 if len(operands) > number + 1 and operands[1].startswith(("vcc", "s", "null")) else 1
    sources = [value_of(operand, state, lanes) for operand in operands[skipped : skipped + number]]
    known = [source for source in sources if source is not None]
    return compute(*known) if len(known) == number == len(sources) else None


@lru_cache(maxsize=1024)
def constant(number: int, lanes: int) -> Lanes:
    """The same number in each lane."""
    return Lanes((number & _WORD,) * lanes, exact=True)


def value_of(operand: str, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    """What an operand holds; None where that is not known in each lane."""
    group = units(operand)
    if not group:
        try:
            return constant(int(operand, 0), lanes)
        except ValueError:
            return None
    if len(group) != 1 or operand[0] in "-|" or ".l" in operand or ".h" in operand:
        return None
    known = state.get(group[0])
    return known if known is not None or is_vgpr(group[0]) else Lanes((0,) * lanes, exact=False)


def _shifted(values: tuple[int, ...]) -> Lanes:
    """Numbers of which one that is the same in all lanes is not known."""
    return Lanes(tuple(v - values[0] & _WORD for v in values), exact=False)


@lru_cache(maxsize=1 << 14)
def either(a: Lanes, b: Lanes) -> Lanes | None:
    """What is known where either of two values may be there."""
    if a == b:
        return a
    return _shifted(a.values) if _shifted(a.values) == _shifted(b.values) else None


@lru_cache(maxsize=1 << 14)
def add(a: Lanes, b: Lanes) -> Lanes:
    values = tuple(x + y & _WORD for x, y in zip(a.values, b.values, strict=True))
    return Lanes(values, exact=True) if a.exact and b.exact else _shifted(values)


@lru_cache(maxsize=1 << 14)
def subtract(a: Lanes, b: Lanes) -> Lanes:
    values = tuple(x - y & _WORD for x, y in zip(a.values, b.values, strict=True))
    return Lanes(values, exact=True) if a.exact and b.exact else _shifted(values)


@lru_cache(maxsize=1 << 14)
def multiply(a: Lanes, b: Lanes) -> Lanes | None:
    """A product with an unknown number is known where the other factor is a known constant."""
    if not b.exact:
        a, b = b, a
    if not b.exact or not (a.exact or b.is_uniform):
        return None if not (a.is_uniform and b.is_uniform) else Lanes((0,) * len(a.values), exact=False)
    values = tuple(x * y & _WORD for x, y in zip(a.values, b.values, strict=True))
    return Lanes(values, exact=True) if a.exact else _shifted(values)


def shift_left(amount: Lanes, a: Lanes) -> Lanes | None:
    if not amount.exact or not amount.is_uniform:
        return _bits(_shift, a, amount)
    return multiply(a, constant(1 << (amount.values[0] & 31), len(a.values)))


def _bits(rule: Callable[..., int], *sources: Lanes) -> Lanes | None:
    """A rule on bits: only exact numbers have known bits; the same of unknown numbers is the same in all lanes."""
    if all(source.exact for source in sources):
        return _exact(rule, sources)
    if all(source.is_uniform for source in sources):
        return Lanes((0,) * len(sources[0].values), exact=False)
    return None


@lru_cache(maxsize=1 << 14)
def _exact(rule: Callable[..., int], sources: tuple[Lanes, ...]) -> Lanes:
    return Lanes(tuple(rule(*row) & _WORD for row in zip(*(s.values for s in sources), strict=True)), exact=True)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _and(a: int, b: int) -> int:
    return a & b


def _or(a: int, b: int) -> int:
    return a | b


def _xor(a: int, b: int) -> int:
    return a ^ b


def _shift(a: int, n: int) -> int:
    return a << (n & 31)


def _right(n: int, a: int) -> int:
    return a >> (n & 31)


def _right_signed(n: int, a: int) -> int:
    return _signed(a) >> (n & 31)


def _field(a: int, offset: int, width: int) -> int:
    return a >> (offset & 31) & (1 << (width & 31)) - 1


def _select(mask: int, a: int, b: int) -> int:
    return mask & a | ~mask & b


def _high(a: int, b: int) -> int:
    return a * b >> 32


def _then(first: _Rule, second: _Rule, number: int) -> _Rule:
    """``second`` of what ``first`` makes of the first ``number`` operands, and the others."""

    def both(*sources: Lanes) -> Lanes | None:
        inner = first(*sources[:number])
        return None if inner is None else second(inner, *sources[number:])

    return both


def _bitwise(rule: Callable[..., int]) -> _Rule:
    def of(*sources: Lanes) -> Lanes | None:
        return _bits(rule, *sources)

    return of


def _subtract_reversed(a: Lanes, b: Lanes) -> Lanes:
    return subtract(b, a)


def _left(a: Lanes, amount: Lanes) -> Lanes | None:
    return shift_left(amount, a)


def _lanes_below(mask: Lanes, start: Lanes) -> Lanes:
    return add(start, _set_below(mask, 0))


def _high_lanes_below(mask: Lanes, start: Lanes) -> Lanes:
    return add(start, _set_below(mask, 32))


def _set_below(mask: Lanes, first: int) -> Lanes:
    """How many lanes below each, from lane ``first`` on, have a bit set in a mask of 32 lanes."""
    ones = [bin(mask.values[0] & (1 << min(max(k - first, 0), 32)) - 1).count("1") for k in range(len(mask.values))]
    return Lanes(tuple(ones), mask.exact)


_RULES: Mapping[str, tuple[int, _Rule]] = {
    **dict.fromkeys(("v_add_u32", "v_add_nc_u32", "v_add_co_u32", "v_add_i32", "v_add_nc_i32"), (2, add)),
    **dict.fromkeys(("v_sub_u32", "v_sub_nc_u32", "v_sub_co_u32"), (2, subtract)),
    **dict.fromkeys(("v_subrev_u32", "v_subrev_nc_u32", "v_subrev_co_u32"), (2, _subtract_reversed)),
    **dict.fromkeys(
        ("v_mul_u32_u24", "v_mul_i32_i24", "v_mul_lo_u32", "v_mul_lo_i32"),
        (2, multiply),
    ),
    **dict.fromkeys(
        ("v_mad_u32_u24", "v_mad_i32_i24", "v_mad_u64_u32", "v_mad_co_u64_u32"), (3, _then(multiply, add, 2))
    ),
    "v_mul_hi_u32": (2, _bitwise(_high)),
    "v_lshlrev_b32": (2, shift_left),
    "v_lshrrev_b32": (2, _bitwise(_right)),
    "v_ashrrev_i32": (2, _bitwise(_right_signed)),
    "v_and_b32": (2, _bitwise(_and)),
    "v_or_b32": (2, _bitwise(_or)),
    "v_xor_b32": (2, _bitwise(_xor)),
    "v_bfe_u32": (3, _bitwise(_field)),
    "v_bfi_b32": (3, _bitwise(_select)),
    "v_lshl_add_u32": (3, _then(_left, add, 2)),
    "v_add_lshl_u32": (3, _then(add, _left, 2)),
    "v_lshl_or_b32": (3, _then(_left, _bitwise(_or), 2)),
    "v_and_or_b32": (3, _then(_bitwise(_and), _bitwise(_or), 2)),
    "v_or3_b32": (3, _then(_bitwise(_or), _bitwise(_or), 2)),
    "v_xad_u32": (3, _then(_bitwise(_xor), add, 2)),
    "v_add3_u32": (3, _then(add, add, 2)),
    "v_mbcnt_lo_u32_b32": (2, _lanes_below),
    "v_mbcnt_hi_u32_b32": (2, _high_lanes_below),
    "v_cndmask_b32": (2, either),
}
"""By mnemonic, how many sources count, and what comes of them. Of a 64-bit result only the low word is kept."""
