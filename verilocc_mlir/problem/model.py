"""AllocationProblem and Proposal: the architecture-neutral question and an answer to it.

Plain frozen data with a stable JSON form (``schema.py``); no analysis, no LLVM, no solver. Built by ``build.py``.

Program points are *slots*, LLVM's SlotIndexes in miniature: instruction *i* of the function (layout order, blocks
concatenated, bundle members counted one by one) owns slots ``4*i`` .. ``4*i+3``:

* ``4*i``    block boundary: a value live into a block starts at ``4*first``; a live-out one ends at the next block's
  ``4*first``;
* ``4*i+1``  early-clobber definitions start;
* ``4*i+2``  operands have been read, ordinary definitions start;
* ``4*i+3``  a dead definition ends.

Segments ``(start, end)`` are half open. A value defined by *j* and last read by *i* occupies ``[4*j+2, 4*i+2)``, so *i*
may define into the register it reads, unless that definition is early-clobber and so starts at ``4*i+1``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Segment = tuple[int, int]
"""Half-open slot interval ``[start, end)``."""

LARGE = 10_000
"""Instructions of a function above which fewer allocations of it are tried: each takes seconds."""

PROBLEM_VERSION = 1

CALL_CLOBBERS = "clobbered by call"
"""How the reason of a ``FixedOccupation`` by a call starts."""

KEPT_FOR_CALLERS = "kept for callers"
"""The reason of a ``FixedOccupation`` of what no instruction may write."""

CHAIN = "mfma-chain"
"""The kind of a ``Preference``: a matrix operation continues another without a wait."""

Phase = Literal["sgpr", "wwm", "vgpr"]
"""One of the runs of register allocation: scalar registers, those of whole waves, vector registers."""

PHASES: tuple[Phase, ...] = ("sgpr", "wwm", "vgpr")
"""In the order LLVM runs them."""


class LaneGroup(Struct, frozen=True):
    """Lanes of one live range that are live at the same points.

    Attributes:
        lanes: mask of 16-bit lanes (bit *k* = bits ``16*k..16*k+15`` of the register).
        segments: sorted, disjoint, non-adjacent slot intervals in which these lanes must be kept.
    """

    lanes: int
    segments: tuple[Segment, ...]


class Point(Struct, frozen=True):
    """A use or definition: slot, lanes touched, loop depth, and the opcode family of the instruction.

    ``kind`` is one of ``"def"``, ``"use"``, ``"early-def"``; ``family`` is a normalised opcode family (``mfma``,
    ``wmma``, ``valu``, ``trans``, ``load``, ``store``, ``lds``, ``salu``, ``smem``, ``copy``, ``branch``, ``call``,
    ``other``).
    """

    slot: int
    lanes: int
    kind: str
    depth: int
    family: str


class LiveRange(Struct, frozen=True):
    """One virtual register to place.

    Attributes:
        id: index in ``AllocationProblem.ranges``.
        name: where it came from, ``%346``; for messages only, never for decisions.
        banks: register files allowed, sorted names out of ``sgpr``, ``vgpr``, ``agpr``, ``special``
            (``special`` only as VCC: see ``AllocationProblem.special``).
        width: 32-bit registers covered (1 also for 16-bit ranges).
        lanes: number of 16-bit lanes (1 for a 16-bit register).
        align: the first register's number is a multiple of this.
        limit: first register + width must not exceed this, a limit of the class; 0: none. Budgets are in ``budgets``.
        register_class: LLVM's class name; the proof checks membership against it.
        groups: liveness by lane; empty for a range that is never live (only undefined reads).
        points: uses and definitions in slot order.
        weight: sum over points of ``10**min(depth, 6)`` (spill weight numerator; unit: estimated executions).
        hint: physical register preferred by LLVM (``vcc``, ``sgpr4``), or ``""``.
    """

    id: int
    name: str
    banks: tuple[str, ...]
    width: int
    lanes: int
    align: int
    limit: int
    register_class: str
    groups: tuple[LaneGroup, ...]
    points: tuple[Point, ...]
    weight: float
    hint: str = ""


class Affinity(Struct, frozen=True):
    """A copy that disappears if the two ends coincide.

    ``a``/``b`` are range ids, ``a_lane``/``b_lane`` the first 16-bit lanes joined, ``lanes`` how many. ``b`` is -1
    where the other end is the physical register ``fixed`` (name without ``$``). ``weight`` is ``10**min(loop depth,
    6)``, or 0 for a hint of LLVM's for which no copy stands (at slot 0).
    """

    a: int
    a_lane: int
    b: int
    b_lane: int
    lanes: int
    weight: float
    slot: int
    fixed: str = ""


class Relation(Struct, frozen=True):
    """How the registers of two ranges are to relate.

    ``a``/``b`` are range ids, ``a_lane``/``b_lane`` 16-bit lanes that start a register. ``modulus`` 0: the registers
    are the same one; otherwise their numbers differ modulo ``modulus``.
    """

    a: int
    a_lane: int
    b: int
    b_lane: int
    modulus: int


class Preference(Struct, frozen=True):
    """Something that the machine does better where all ``relations`` hold; never needed for correctness.

    ``kind`` says what: ``"vopd"`` (two operations issue as one), ``CHAIN`` (a matrix operation continues another
    without a wait). ``weight`` is in estimated executions of a copy, as ``Affinity.weight``, and well below one for
    each execution; ``slot`` is the (second) instruction's.
    """

    kind: str
    relations: tuple[Relation, ...]
    weight: float
    slot: int


class FixedOccupation(Struct, frozen=True):
    """Units that something else holds: a physical live range, a call's clobbers.

    ``units`` are numbers as in ``verilocc_mlir.target.registers``; ``reason`` reads ``"argument $vgpr0"``,
    ``"clobbered by call at slot 40"``.
    """

    units: tuple[int, ...]
    segments: tuple[Segment, ...]
    reason: str


class BankBudget(Struct, frozen=True):
    """Allocatable registers of a bank for this function, in allocation order.

    Attributes:
        bank: ``sgpr``, ``vgpr`` or ``agpr``.
        registers: numbers of allocatable 32-bit registers (reserved ones and those over budget left out), ascending.
        expensive: those of ``registers`` that cost a save and restore when used (callee-saved), ascending.
    """

    bank: str
    registers: tuple[int, ...]
    expensive: tuple[int, ...] = ()


class Occupancy(Struct, frozen=True):
    """How register counts turn into waves, for deciding what a register costs.

    ``granule`` registers are handed out at a time, ``file`` registers shared by the waves of a SIMD, ``max_waves`` at
    most; ``unified`` adds AGPRs to VGPRs aligned up to 4.
    """

    granule: int
    file: int
    max_waves: int
    unified: bool


class AllocationProblem(Struct, frozen=True):
    """Everything an allocator may know. ``phase`` is ``sgpr``, ``wwm`` or ``vgpr``; ``slots`` is 4 x instructions."""

    version: int
    target: str
    function: str
    phase: str
    slots: int
    block_starts: tuple[int, ...]
    block_depths: tuple[int, ...]
    ranges: tuple[LiveRange, ...]
    affinities: tuple[Affinity, ...]
    fixed: tuple[FixedOccupation, ...]
    budgets: tuple[BankBudget, ...]
    occupancy: Occupancy
    special: tuple[str, ...] = ()
    """Special registers that may be handed out besides the banks, e.g. ``("vcc",)`` or ``("vcc_lo",)``."""
    preferences: tuple[Preference, ...] = ()
    """What this machine does better with some registers than with others, in slot order."""

    @property
    def is_large(self) -> bool:
        """Whether the function has more than ``LARGE`` instructions."""
        return self.slots > 4 * LARGE


class Proposal(Struct, frozen=True):
    """An answer: for each live range, by id, the name of a physical register without ``$``, ``""`` where none is
    given."""

    version: int
    allocator: str
    registers: tuple[str, ...]


def united(segments: Iterable[Segment]) -> list[Segment]:
    """The same slots as segments that neither overlap nor touch, in their order."""
    union: list[Segment] = []
    for start, end in sorted(segments):
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((start, end))
    return union
