"""What the lanes of a wave hold in a vector register, where the code says it: multiples and bits of the work-item's id.

A value is known in each lane, or known but for a number that is the same in all lanes (an address of the work-group, a
loop counter) or in those of a group (a delay that is read for each row of work-items). That is enough for bank
conflicts of LDS and for the lanes that load neighbouring bytes, which do not depend on such numbers.

A function that is not followed here, as a product of floats, gives equal numbers where its operands are equal. So does
a load, where the addresses are.

Sources: the ISA manuals' VALU opcode tables; AMDGPUUsage, "Initial Kernel Execution State", for the ids in ``v0``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.flow import Flow
from verilocc_mlir.cost.instructions import EXEC, Instruction, Kind, decode, halves, is_vector, units

_Rule = Callable[..., "Lanes | None"]
_WORD = 0xFFFFFFFF
_MOST_PASSES = 8
_ID_BITS = 10
"""Bits of each of the three ids of a work-item that are packed in ``v0``."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A 32-bit number in each lane.

    Attributes:
        values: by lane; in each group of lanes they start at 0, if there are groups.
        groups: of each lane, numbered by their first lanes. To all numbers of a group one unknown number is added.
            Without groups the numbers are exact.
    """

    values: tuple[int, ...]
    groups: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing is unknown."""
        return not self.groups

    @property
    def is_shifted(self) -> bool:
        """Whether one number for all lanes is all that may be unknown."""
        return not any(self.groups)

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes hold the same number."""
        return self.is_shifted and len(set(self.values)) == 1


State = dict[int, Lanes]
"""What is known, by the number of the register (``registers.py``). A vector register not in it is not known at all, a
scalar one holds an unknown number.
"""


def work_item_ids(extents: tuple[int, int, int], lanes: int) -> Lanes:
    """``v0`` of the first wave of a work-group: the three ids of each lane's work-item, ten bits each."""
    x, y, _ = extents
    ids = [(k % x, k // x % y, k // (x * y)) for k in range(lanes)]
    return Lanes(tuple(a | b << _ID_BITS | c << 2 * _ID_BITS for a, b, c in ids))


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
    loads = instruction.kind is Kind.VMEM
    for defs, value in results:
        for unit in defs:
            state.pop(unit, None)
        if value is not None:
            for unit in defs if loads else defs[:1]:
                state[unit] = value


def _result(instruction: Instruction, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    """What the first register that it writes holds then, of a load each; None where that is not known."""
    base, operands = instruction.base, instruction.operands
    if base in ("s_mov_b32", "s_movk_i32", "v_mov_b32"):
        plain = len(operands) == 2 and not instruction.mnemonic.endswith(_OTHER_LANES)
        return value_of(operands[1], state, lanes) if plain and instruction.defs else None
    if not instruction.defs or not is_vector(instruction.defs[0]):
        return None
    if instruction.kind is Kind.VMEM:
        address = loaded_from(instruction, state, lanes)
        return None if address is None else _opaque(address)
    if instruction.kind is not Kind.VALU or instruction.mnemonic.endswith(_OTHER_LANES):
        return None
    if (rule := _RULES.get(base)) is None:
        if not base.startswith(_OPAQUE):
            return None
        read = [_held(unit, state, lanes) for unit in instruction.uses if unit not in (EXEC, EXEC + 1)]
        known = [value for value in read if value is not None]
        return _opaque(*known) if known and len(known) == len(read) else None
    number, compute = rule
    skipped = 2 if len(operands) > number + 1 and operands[1].startswith(("vcc", "s", "null")) else 1
    sources = [value_of(operand, state, lanes) for operand in operands[skipped : skipped + number]]
    known = [source for source in sources if source is not None]
    return compute(*known) if len(known) == number == len(sources) else None


_OTHER_LANES = ("dpp", "sdwa", "dpp8")
_OPAQUE = (
    "v_cvt_", "v_mul_f", "v_add_f", "v_sub_f", "v_subrev_f", "v_fma_", "v_fmac_", "v_fmaak_", "v_fmamk_", "v_mac_f",
    "v_mad_f", "v_rcp_", "v_trunc_", "v_floor_", "v_rndne_", "v_min_", "v_max_",
)  # fmt: skip
"""Beginnings of mnemonics whose result depends on nothing but the operands of its own lane."""


def loaded_from(instruction: Instruction, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    """The low word of what each lane's address of a vector load varies by; None where that is not known.

    The load's scalar base and its offset are the same for all lanes.
    """
    if not instruction.base.startswith(("global_load_", "flat_load_", "buffer_load_")) or instruction.is_store:
        return None
    if "idxen" in instruction.text or len(instruction.operands) < 2:
        return None
    address = units(instruction.operands[1])
    return _held(address[0], state, lanes) if address else Lanes((0,) * lanes, (0,) * lanes)


def constant(number: int, lanes: int) -> Lanes:
    """The same number in each lane."""
    return Lanes((number & _WORD,) * lanes)


def value_of(operand: str, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    """What an operand holds, of a 64-bit one the low word; None where that is not known in each lane."""
    group = units(operand)
    if not group:
        try:
            return constant(int(operand, 0), lanes)
        except ValueError:
            return None
    if group[2:] or operand[0] in "-|" or ".l" in operand or ".h" in operand:
        return None
    return _held(group[0], state, lanes)


def _held(unit: int, state: Mapping[int, Lanes], lanes: int) -> Lanes | None:
    known = state.get(unit)
    return known if known is not None or is_vector(unit) else Lanes((0,) * lanes, (0,) * lanes)


@lru_cache(maxsize=1 << 14)
def _grouped(values: tuple[int, ...], groups: tuple[Hashable, ...]) -> Lanes | None:
    """Numbers of which one that is the same in all lanes of a group is not known; None if each lane is a group."""
    numbers: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for value, group in zip(values, groups, strict=True):
        numbers.setdefault(group, len(numbers))
        first.setdefault(group, value)
    if len(numbers) == len(values) > 1:
        return None
    relative = tuple(v - first[g] & _WORD for v, g in zip(values, groups, strict=True))
    return Lanes(relative, tuple(numbers[g] for g in groups))


def _together(first: tuple[Hashable, ...], second: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """The groups of lanes that are in one group of both."""
    if not first or not second or first == second:
        return first or second
    return tuple(zip(first, second, strict=True))


def _opaque(*sources: Lanes) -> Lanes | None:
    """What a function gives of which only that is known: equal results where the operands are equal."""
    lanes = len(sources[0].values)
    return _grouped((0,) * lanes, tuple(zip(*(c for s in sources for c in (s.values, s.groups) if c), strict=True)))


def either(a: Lanes, b: Lanes) -> Lanes | None:
    """What is known where either of two values may be there."""
    if a == b:
        return a
    groups = _together(a.groups, b.groups) or (0,) * len(a.values)
    first, second = _grouped(a.values, groups), _grouped(b.values, groups)
    return first if first == second else None


def add(a: Lanes, b: Lanes) -> Lanes | None:
    return _known(tuple(x + y & _WORD for x, y in zip(a.values, b.values, strict=True)), a, b)


def subtract(a: Lanes, b: Lanes) -> Lanes | None:
    return _known(tuple(x - y & _WORD for x, y in zip(a.values, b.values, strict=True)), a, b)


def _known(values: tuple[int, ...], a: Lanes, b: Lanes) -> Lanes | None:
    """``values``, to which what is unknown of either is added."""
    return Lanes(values) if a.exact and b.exact else _grouped(values, _together(a.groups, b.groups))


def multiply(a: Lanes, b: Lanes) -> Lanes | None:
    """A product with an unknown number is known but for its multiple, which is the same where both factors are."""
    if not b.exact:
        a, b = b, a
    if not b.exact:
        return _opaque(a, b)
    values = tuple(x * y & _WORD for x, y in zip(a.values, b.values, strict=True))
    return Lanes(values) if a.exact else _grouped(values, _together(a.groups, b.values))


def shift_left(amount: Lanes, a: Lanes) -> Lanes | None:
    if not amount.exact or not amount.is_uniform:
        return _bits(_shift, a, amount)
    return multiply(a, constant(1 << (amount.values[0] & 31), len(a.values)))


def _bits(rule: Callable[..., int], *sources: Lanes) -> Lanes | None:
    """A rule on bits: only exact numbers have known bits."""
    return _exact(rule, sources) if all(source.exact for source in sources) else _opaque(*sources)


def _exact(rule: Callable[..., int], sources: tuple[Lanes, ...]) -> Lanes:
    return Lanes(tuple(rule(*row) & _WORD for row in zip(*(s.values for s in sources), strict=True)))


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


def _subtract_reversed(a: Lanes, b: Lanes) -> Lanes | None:
    return subtract(b, a)


def _left(a: Lanes, amount: Lanes) -> Lanes | None:
    return shift_left(amount, a)


def _lanes_below(mask: Lanes, start: Lanes) -> Lanes | None:
    return add(start, _set_below(mask, 0)) if mask.exact else None


def _high_lanes_below(mask: Lanes, start: Lanes) -> Lanes | None:
    return add(start, _set_below(mask, 32)) if mask.exact else None


def _set_below(mask: Lanes, first: int) -> Lanes:
    """How many lanes below each, from lane ``first`` on, have a bit set in a mask of 32 lanes."""
    ones = [bin(mask.values[0] & (1 << min(max(k - first, 0), 32)) - 1).count("1") for k in range(len(mask.values))]
    return Lanes(tuple(ones))


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
    **dict.fromkeys(("v_lshlrev_b32", "v_lshlrev_b64"), (2, shift_left)),
    "v_lshrrev_b32": (2, _bitwise(_right)),
    "v_ashrrev_i32": (2, _bitwise(_right_signed)),
    "v_and_b32": (2, _bitwise(_and)),
    "v_or_b32": (2, _bitwise(_or)),
    "v_xor_b32": (2, _bitwise(_xor)),
    "v_bfe_u32": (3, _bitwise(_field)),
    "v_bfi_b32": (3, _bitwise(_select)),
    **dict.fromkeys(("v_lshl_add_u32", "v_lshl_add_u64"), (3, _then(_left, add, 2))),
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
