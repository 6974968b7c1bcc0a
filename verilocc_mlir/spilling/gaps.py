"""The gaps between the accesses of a register. In a gap, spilling can free the register.

A *gap* is a stretch of one block, from one access of a virtual register (or the block's start) to the next (or the
block's end), in which some part of the register is live. The set of live parts does not change inside a gap. Gaps of
neighbouring blocks are joined by the edges of the control-flow graph. A part is 32 bits of the register: bit *k* of a
mask is ``subK``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from verilocc_mlir.analysis.cfg import ControlFlow
from verilocc_mlir.analysis.lanes import Access as LaneAccess
from verilocc_mlir.analysis.liveness import LaneLiveness, LaneSegments


class Access(Struct, eq=False):
    """One instruction's access to one register.

    Attributes:
        index: number of the instruction in the function.
        block: layout position of its block.
        reads: parts that must be in the register when it executes.
        writes: parts that it gives a value.
        keeps: those of them that threads which wait still need (``analysis/waiting.py``).
        before: gap that ends here; None where nothing is live.
        after: gap that begins here; None where nothing is live.
    """

    index: int
    block: int
    reads: int
    writes: int
    before: Gap | None = None
    after: Gap | None = None
    keeps: int = 0


class Gap(Struct, eq=False):
    """One gap; the module says what that is.

    Attributes:
        number: position in ``RegisterGaps.gaps``.
        block: layout position of its block.
        opens: access it begins after; None: the block's start.
        closes: access it ends before; None: the block's end.
        live: parts that are live in it.
        first: first instruction inside; ``first == stop`` where there is none.
        stop: one past the last instruction inside.
        predecessors: gaps at the ends of preceding blocks that lead here, if it begins a block.
        successors: gaps at the starts of following blocks that it leads to, if it ends its block.
    """

    number: int
    block: int
    opens: Access | None
    closes: Access | None
    live: int
    first: int
    stop: int
    predecessors: list[Gap] = field(default_factory=list["Gap"])
    successors: list[Gap] = field(default_factory=list["Gap"])


class RegisterGaps(Struct, frozen=True):
    """All accesses and gaps of one virtual register, in layout order."""

    vreg: int
    accesses: tuple[Access, ...]
    gaps: tuple[Gap, ...]


def parts_of(lanes: int) -> int:
    """32-bit parts that a mask of 16-bit lanes touches."""
    parts = part = 0
    while lanes:
        if lanes & 3:
            parts |= 1 << part
        lanes >>= 2
        part += 1
    return parts


def ones(mask: int) -> list[int]:
    """Positions of the ones of ``mask``, ascending."""
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


def register_gaps(
    live: LaneLiveness,
    cfg: ControlFlow,
    may_spill: Callable[[int], bool],
    keeps: Mapping[tuple[int, int], int] | None = None,
) -> dict[int, RegisterGaps]:
    """Accesses and gaps of every register for which ``may_spill`` is true.

    Args:
        keeps: for registers and instructions that write them, the lanes that threads which wait still need.

    A write of one half of a part counts as a read of it where the other half is live, since a part is kept whole.
    """
    by_register: dict[int, list[tuple[int, LaneAccess]]] = {}
    owner = live.accesses.owner
    for block, accesses in enumerate(live.accesses.blocks):
        for access in accesses:
            touched = dict.fromkeys(
                owner[a]
                for atoms in (access.reads, access.early, access.writes, access.undefines, access.implicit)
                for a in atoms
            )
            for vreg in touched:
                if may_spill(vreg):
                    by_register.setdefault(vreg, []).append((block, access))
    entering = _at_boundaries(live.lanes_in, len(cfg.successors))
    leaving = _at_boundaries(live.lanes_out, len(cfg.successors))
    return {
        vreg: _Builder(vreg, live, cfg, entering.get(vreg, {}), leaving.get(vreg, {}), keeps or {}).build(accesses_of)
        for vreg, accesses_of in by_register.items()
    }


def _at_boundaries(lanes: Callable[[int], dict[int, int]], blocks: int) -> dict[int, dict[int, int]]:
    """For each register, the lanes live at a boundary of each block where any is."""
    lanes_of: dict[int, dict[int, int]] = {}
    for block in range(blocks):
        for vreg, mask in lanes(block).items():
            lanes_of.setdefault(vreg, {})[block] = mask
    return lanes_of


class _Builder:
    """Gaps of one register."""

    def __init__(
        self,
        vreg: int,
        live: LaneLiveness,
        cfg: ControlFlow,
        entering: dict[int, int],
        leaving: dict[int, int],
        keeps: Mapping[tuple[int, int], int],
    ) -> None:
        self._vreg = vreg
        self._live = live
        self._cfg = cfg
        self._entering = entering
        self._leaving = leaving
        self._keeps = keeps
        self._groups = live.ranges.get(vreg, ())
        self._gaps: list[Gap] = []

    def build(self, accesses_found: list[tuple[int, LaneAccess]]) -> RegisterGaps:
        first = self._cfg.first
        entering: dict[int, Gap] = {}
        leaving: dict[int, Gap] = {}
        accesses: list[Access] = []
        blocks: dict[int, list[LaneAccess]] = {}
        for block, access in accesses_found:
            blocks.setdefault(block, []).append(access)
        for block in sorted(blocks.keys() | self._entering.keys()):
            opens: Access | None = None
            parts = parts_of(self._entering.get(block, 0))
            begin = first[block]
            for lane_access in blocks.get(block, ()):
                access = self._access(lane_access, block)
                accesses.append(access)
                gap = self._gap(block, opens, access, parts, begin, lane_access.index)
                if gap is not None:
                    access.before = gap
                    if opens is None:
                        entering[block] = gap
                opens = access
                parts = parts_of(_live_at(self._groups, 4 * lane_access.index + 3))
                begin = lane_access.index + 1
            parts = parts_of(self._leaving.get(block, 0))
            if parts:
                gap = self._gap(block, opens, None, parts, begin, first[block + 1])
                if gap is not None:
                    leaving[block] = gap
                    if opens is None:
                        entering[block] = gap
        for block, gap in leaving.items():
            for successor in self._cfg.successors[block]:
                if successor in entering:
                    gap.successors.append(entering[successor])
                    entering[successor].predecessors.append(gap)
        return RegisterGaps(self._vreg, tuple(accesses), tuple(self._gaps))

    def _access(self, access: LaneAccess, block: int) -> Access:
        lanes, owner = self._live.accesses.lanes, self._live.accesses.owner

        def mask(atoms: Iterable[int]) -> int:
            union = 0
            for atom in atoms:
                if owner[atom] == self._vreg:
                    union |= lanes[atom]
            return union

        reads, writes = mask(access.reads), mask(access.early) | mask(access.writes)
        # Lanes that stay live beside the written ones: their part must be in the register as a whole.
        live_on = _live_at(self._groups, 4 * access.index + 3) & ~writes & ~mask(access.implicit)
        written = parts_of(writes)
        kept = written & parts_of(self._keeps.get((self._vreg, access.index), 0))
        return Access(access.index, block, parts_of(reads) | (written & parts_of(live_on)), written, keeps=kept)

    def _gap(
        self, block: int, opens: Access | None, closes: Access | None, live: int, first: int, stop: int
    ) -> Gap | None:
        if not live:
            return None
        gap = Gap(len(self._gaps), block, opens, closes, live, first, stop)
        self._gaps.append(gap)
        if opens is not None:
            opens.after = gap
        return gap


def _live_at(groups: tuple[LaneSegments, ...], slot: int) -> int:
    lanes = 0
    for mask, segments in groups:
        at = bisect_right(segments, slot, key=lambda segment: segment[0]) - 1
        if at >= 0 and slot < segments[at][1]:
            lanes |= mask
    return lanes
