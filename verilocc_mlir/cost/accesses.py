"""Accesses to LDS and memory that take longer than their bytes say, for the addresses that the lanes of a wave want.

The first wave of a work-group stands for all. Where the size of a work-group is not known, nothing takes longer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.counting import Flow
from verilocc_mlir.cost.instructions import EXEC, Instruction, Kind, decode, halves, is_vector, units
from verilocc_mlir.cost.memory import at_fixed_place, dwords
from verilocc_mlir.cost.rates import Figure, Origin, Source
from verilocc_mlir.target.targets import SpeedModel, Target

# What the lanes of a wave hold in a vector register, where the code says it: multiples and bits of the work-item's id.
#
# A value is known in each lane, or known but for a number that is the same in all lanes (an address of the work-group,
# a loop counter) or in those of a group (a delay that is read for each row of work-items). That is enough for bank
# conflicts of LDS and for the lanes that load neighbouring bytes, which do not depend on such numbers.
#
# A function that is not followed here, as a product of floats, gives equal numbers where its operands are equal. So
# does a load, where the addresses are.
#
# Sources: the ISA manuals' VALU opcode tables; AMDGPUUsage, "Initial Kernel Execution State", for the ids in ``v0``.


_Rule = Callable[..., "Lanes | None"]
_WORD = 0xFFFFFFFF
_MOST_PASSES = 8
_ID_BITS = 10
"""Bits of each of the three ids of a work-item that are packed in ``v0``."""


class Lanes(Struct, frozen=True):
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


Slot = tuple[str, int]
"""Four bytes of the wave's private memory: the registers of the address, and the offset."""
State = dict["int | Slot", Lanes]
"""What is known, by the number of the register (``registers.py``) or by the slot. A vector register not in it is not
known at all, a scalar one holds an unknown number.
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
    slots = _slots(instruction) if loads else []
    kept = [state.get(slot) for slot in slots]
    for defs, value in results:
        for unit in defs:
            state.pop(unit, None)
        if value is not None:
            for unit in defs if loads else defs[:1]:
                state[unit] = value
    if instruction.is_store:
        if not slots:
            _forget(instruction, state)
        moved = [state.get(unit) for unit in units(instruction.operands[_data(instruction)])] if slots else []
        places: Sequence[int | Slot] = slots
    else:
        moved, places = kept, instruction.defs
    for place, known in zip(places, moved, strict=False):
        if known is not None:
            state[place] = known
        else:
            state.pop(place, None)


_OFFSET = re.compile(r" ?\boffset:(-?\d+)")
_WHOLE_WORDS = re.compile(r"(?:scratch|buffer)_(?:load|store)_(?:b32|b64|b96|b128|dword(?:x[234])?)")


def _data(instruction: Instruction) -> int:
    """Which operand of an access to private memory is the data."""
    return int(instruction.is_store and instruction.base.startswith("scratch_"))


def _slots(instruction: Instruction) -> list[Slot]:
    """The slots of a load or store of whole words, where no VGPR is in its address (``memory.at_fixed_place``)."""
    if not _WHOLE_WORDS.fullmatch(instruction.base) or len(instruction.operands) < 3 or not at_fixed_place(instruction):
        return []
    data = _data(instruction)
    address = " ".join(operand for number, operand in enumerate(instruction.operands) if number != data)
    offset = _OFFSET.search(address)
    first = int(offset[1]) if offset else 0
    return [(_OFFSET.sub("", address), first + 4 * number) for number in range(dwords(instruction.base))]


def _forget(instruction: Instruction, state: State) -> None:
    """Forget the slots that another store may write."""
    base, operands = instruction.base, instruction.operands
    if base.startswith("scratch_") or (base.startswith("buffer_") and len(operands) > 2):
        resource = operands[2] if base.startswith("buffer_") else ""
        for slot in [key for key in state if isinstance(key, tuple) and resource in key[0]]:
            del state[slot]


def _result(instruction: Instruction, state: Mapping[int | Slot, Lanes], lanes: int) -> Lanes | None:
    """What the first register that it writes holds then, of a load each; None where that is not known."""
    base, operands = instruction.base, instruction.operands
    if base in (
        "s_mov_b32",
        "s_movk_i32",
        "v_mov_b32",
        "v_accvgpr_read_b32",
        "v_accvgpr_write_b32",
        "v_accvgpr_mov_b32",
    ):
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


def loaded_from(instruction: Instruction, state: Mapping[int | Slot, Lanes], lanes: int) -> Lanes | None:
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


def value_of(operand: str, state: Mapping[int | Slot, Lanes], lanes: int) -> Lanes | None:
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


def _held(unit: int, state: Mapping[int | Slot, Lanes], lanes: int) -> Lanes | None:
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


# Bank conflicts of LDS, where the code says which address each lane of a wave accesses.
#
# LDS serves one word of each bank a cycle. Lanes that want different words of one bank wait for each other; lanes that
# want the same word do not. The first wave of a work-group stands for all.
#
# Sources: the ISA manuals' chapters on LDS (32 banks of 4 bytes; 64 on gfx950); that bank conflicts serialise was
# measured (MI308X: 4 cycles a ``ds_read_b32`` without, 16 with a fourfold one, 64 with a full one).


_BANKS = Figure(32, Source(Origin.LLVM, "the ISA manuals: 32 banks of 4 bytes a CU"))
_BANKS_CDNA4 = Figure(64, Source(Origin.LLVM, "the CDNA 4 ISA manual: 64 banks of 4 bytes a CU"))
_NO_ADDRESS = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws", "ds_barrier", "ds_consume", "ds_append")


def banks(target: Target) -> int:
    """Banks of the LDS of a CU."""
    return int((_BANKS_CDNA4 if target.speed_model is SpeedModel.CDNA4 else _BANKS).value)


def bank_conflicts(instruction: Instruction, state: State, lanes: int, active: int, banks: int) -> float:
    """How many times as long an LDS access takes; 1 without conflicts, and where the addresses are not known.

    Args:
        active: lanes that access, from the first on.
    """
    place = 0 if instruction.is_store else 1
    if instruction.base.startswith(_NO_ADDRESS) or "addtid" in instruction.base or place >= len(instruction.operands):
        return 1.0
    address = value_of(instruction.operands[place].split(" ")[0], state, lanes)
    if address is None or not address.is_shifted:
        return 1.0
    two = "read2" in instruction.base or "write2" in instruction.base or "2addr" in instruction.base
    words = dwords(instruction.base)
    return slowdown(address, words // 2 if two else words, active, banks)


def slowdown(address: Lanes, words: int, active: int, banks: int) -> float:
    """How many times as long an access of ``words`` 32-bit words a lane takes as one without conflicts.

    As many lanes are served together as their words fill the banks; that they are neighbours is assumed.

    Args:
        address: of each lane, in bytes.
        active: lanes that access, from the first on.
    """
    together = max(banks // words, 1)
    cycles = least = 0
    for first in range(0, active, together):
        served = address.values[first : min(first + together, active)]
        wanted = {word for at in served for word in range(at // 4, at // 4 + words)}
        held = [word % banks for word in wanted]
        cycles += 1 if len(set(held)) == len(held) else max(Counter(held).values())
        least += 1
    return cycles / least


def slower_accesses(function: Function, flow: Flow, target: Target) -> Sequence[Mapping[int, float]]:
    """How many times as long each access takes, by the position of its block and its own there.

    Accesses without conflicts, and those whose addresses are not known, are left out.
    """
    found: list[dict[int, float]] = [{} for _ in function.blocks]
    extents = function.figures.extents
    kinds = (Kind.LDS, Kind.VMEM) if target.wave_size == 64 else (Kind.LDS,)
    if extents is None or not any(i.kind in kinds for i in function.instructions):
        return found
    lanes = target.wave_size
    before = known_lanes(function, flow, {0: work_item_ids(extents, lanes)}, lanes)
    if before is None:
        return found
    active = min(lanes, extents[0] * extents[1] * extents[2])
    for number, block in enumerate(function.blocks):
        state = dict(before[number])
        for place, instruction in enumerate(block.instructions):
            times = 1.0
            if instruction.kind is Kind.LDS:
                times = bank_conflicts(instruction, state, lanes, active, banks(target))
            elif instruction.kind in kinds:
                times = scattered(instruction, state, lanes, active)
            if times > 1:
                found[number][place] = times
            step(instruction, state, lanes)
    return found


# Loads of neighbours: CDNA serves four lanes a cycle, and sixteen where each four lanes want neighbouring elements.
#
# A CU serves a load by quads of lanes, one a cycle. Of loads of up to 32 bits it serves four quads in a cycle, if the
# lanes of each want the same element or four in a row. RDNA serves all loads of 32 bits alike.
#
# Sources: sebbbi/perftest, results of GCN 2 to 5 and of Navi (loads of 8 to 32 bits, the same for all lanes and linear:
# four times as fast as random ones; on Navi all alike); "Understanding Memory Coalescing on GCN" (GPUOpen): 4 cycles a
# wave under specific cases, else 16. That CDNA does as GCN is borne out by dedispersion on MI250X, where lanes that
# load every second to fourth byte take 16 cycles (docs/results/ruler.md). The quads come from there too.


_QUADS = Figure(4, Source(Origin.MEASURED, "by others: sebbbi/perftest, GCN 2 to 5; MI250X agrees"))
FIGURES = {
    "banks of LDS": _BANKS,
    "banks of LDS, gfx950": _BANKS_CDNA4,
    "quads of lanes that CDNA serves together, where they load neighbours": _QUADS,
}
_QUAD = 4
_BYTES = {1: ("byte", "u8", "i8"), 2: ("short", "u16", "i16", "b16"), 4: ("dword", "b32")}
_HALF = 1 << 31


def scattered(instruction: Instruction, state: State, lanes: int, active: int) -> float:
    """How many times as long a load takes as one of neighbours; 1 where the addresses are not known.

    Args:
        active: lanes that load, from the first on.
    """
    size = _element(instruction.base)
    address = loaded_from(instruction, state, lanes) if size else None
    return coalescing_slowdown(address, size, active) if address is not None else 1.0


def _element(base: str) -> int:
    """Bytes that a lane loads; 0 if more than four, or if it is no load."""
    return next((size for size, ends in _BYTES.items() if "_load_" in base and base.endswith(ends)), 0)


def coalescing_slowdown(address: Lanes, size: int, active: int) -> float:
    """How many times as long a load of ``size`` bytes a lane takes as one of neighbours.

    Args:
        address: of each lane, in bytes. Lanes of several groups are taken to want neighbours.
        active: lanes that load, from the first on.
    """
    groups = address.groups or (0,) * len(address.values)
    quads = [range(first, min(first + _QUAD, active)) for first in range(0, active, _QUAD)]
    far = 0
    for quad in quads:
        wanted: dict[int, list[int]] = {}
        for lane in quad:
            wanted.setdefault(groups[lane], []).append(address.values[lane])
        far += any(_distance(min(of), max(of)) >= _QUAD * size for of in wanted.values())
    return 1 + (_QUADS.value - 1) * far / len(quads)


def _distance(low: int, high: int) -> int:
    """Between two numbers of 32 bits, of which the greater may be below 0."""
    return min(high - low, 2 * _HALF - high + low)
