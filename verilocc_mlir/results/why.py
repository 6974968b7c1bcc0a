"""The result of one ``verilocc why`` as frozen data: where a function is full of registers, and what it costs.

Registers are 32-bit registers. Pressure is what must be kept at once, whatever the assignment: an allocation may need
more, for alignment and tuples, and less, if it spills.
"""

from __future__ import annotations

from dataclasses import dataclass

from verilocc_mlir.results.compile import Resources
from verilocc_mlir.spilling.actions import SpillAction

WHY_VERSION = 2
"""Version of the JSON form; raised whenever ``why.schema.json`` changes."""


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of the text before allocation.

    Attributes:
        block: ``bb.3.loop``, as the text has it.
        depth: loops around it.
        index: number in the function.
        instruction: its text, implicit operands left out.
        source: ``file.py:12:5``, with ``inlined at`` where it was; ``""`` without debug information.
    """

    block: str
    depth: int
    index: int
    instruction: str
    source: str


@dataclass(frozen=True, slots=True)
class LiveValue:
    """One value that is live at a point.

    Attributes:
        name: ``%346``.
        registers: of it that are live there.
        defined: last definition before the point in the text, or the last at all for one that comes around a loop; None
            where no instruction defines it.
        live_for: instructions from there to the point, in the order of the text; None for one from around a loop.
        idle: instructions around the point in which it is live and nothing touches it, over all blocks.
        next_use: the first in the text that touches it after those, or None.
        hint: what might free its registers here, or ``""``; never a promise.
    """

    name: str
    registers: int
    register_class: str
    defined: Site | None
    live_for: int | None
    idle: int
    next_use: Site | None
    hint: str


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number of registers, and the waves that it leaves room for, all else equal."""

    registers: int
    waves: int


@dataclass(frozen=True, slots=True)
class FilePressure:
    """One register file of one function.

    Attributes:
        file: ``SGPR``, ``VGPR`` or ``AGPR``.
        available: registers that LLVM lets the function have.
        beside: registers of the other file that values which are live there may be in as well.
        most: most registers that are needed at once; ``held`` of them by physical registers.
        at: the first point where it is so; ``elsewhere`` a few further ones.
        values: live there, those that are idle longest first.
        fewer_waves: the fewest registers, above ``most``, with which waves are lost; None where none can be lost.
        more_waves: the most registers, below ``most``, with which there are more waves; None where it is not this file
            that limits them.
        plan: what this project's spiller would do to get along with those of ``more_waves``, or with ``available`` if
            more are needed; None where it finds no way.
    """

    file: str
    available: int
    beside: int
    most: int
    held: int
    at: Site
    elsewhere: tuple[Site, ...]
    values: tuple[LiveValue, ...]
    fewer_waves: Threshold | None
    more_waves: Threshold | None
    plan: tuple[SpillAction, ...] | None


@dataclass(frozen=True, slots=True)
class Moved:
    """An instruction that an allocation added.

    Attributes:
        kind: ``spill``, ``reload`` or ``rematerialised``.
        value: whose it is, ``%346``; ``""`` where the text does not show it.
        defined: as of ``LiveValue``.
        site: in the text before, where it stands; ``instruction`` is that of the text after.
    """

    phase: str
    kind: str
    value: str
    defined: Site | None
    site: Site


@dataclass(frozen=True, slots=True)
class Cure:
    """A way to raise a cap that was tried by compiling the kernel so.

    Attributes:
        words: "with work-groups of at most 256 threads".
        attribute: what says so in IR.
        vgpr_spills: VGPRs that LLVM then spills.
        waves: that the code then has.
    """

    words: str
    attribute: str
    vgpr_spills: int
    waves: int


@dataclass(frozen=True, slots=True)
class Cap:
    """What caps the vector registers that LLVM lets a function have.

    Attributes:
        vgprs, agprs: registers of each file that it may have.
        attribute: that which caps them.
        because: why, in words.
        cure: the mildest change with which nothing is spilled, or else the least; None where nothing is spilled, or
            none was tried.
    """

    vgprs: int
    agprs: int
    attribute: str
    because: str
    cure: Cure | None = None


@dataclass(frozen=True, slots=True)
class WhyFunction:
    """One function.

    Attributes:
        waves: that the pressure leaves room for, what must be spilled included.
        other_limit: waves that LDS, work-group size and ``amdgpu-waves-per-eu`` allow.
        files: those that it uses.
        moved: what the allocation added.
        resources: of the finished code; None where it was not made, or of a device function.
        cap: what caps its vector registers; None where the hardware alone does.
    """

    name: str
    is_kernel: bool
    waves: int
    other_limit: int
    files: tuple[FilePressure, ...]
    moved: tuple[Moved, ...]
    resources: Resources | None
    cap: Cap | None = None


@dataclass(frozen=True)
class WhyRun:
    """One run.

    Attributes:
        allocator: whose allocation was made: ``llvm``, or ``verilocc``.
        notes: anything else a person should know.
    """

    version: str
    llvm: str
    input: str
    target: str
    allocator: str
    functions: tuple[WhyFunction, ...]
    notes: tuple[str, ...] = ()
