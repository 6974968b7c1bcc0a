"""What a random function may contain, one switch each."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Features:
    """Switches of the generator; those that are off leave plain 32-bit code in one block.

    Attributes:
        size: about how many instructions, before what pressure and control flow add.
        tuples: registers of 64 to 1024 bits, written lane by lane (``undef %5.sub1 = ...``) and read by lanes.
        undef: ``undef`` operands and ``IMPLICIT_DEF``.
        agprs: accumulation registers, ``av_*`` classes and copies between the files (gfx90a, gfx942, gfx950).
        halves: 16-bit registers, ``lo16`` and ``hi16`` (gfx1100, gfx1201).
        copies: copies within and between register files.
        tied: two-address instructions: FMAC, D16 loads, DPP, WRITELANE, matrix accumulators.
        early_clobber: results that must not share a register with an operand.
        early_lanes: such results in some lanes of a tuple; LLVM 22's fast allocator lets them overlap their operands.
        matrix: MFMA, WMMA and SWMMAC (with ``tied`` and ``early_clobber`` also those forms).
        memory: loads, stores and atomics with memory operands.
        fixed: live ranges of VCC, SCC, M0 and argument registers, some across blocks.
        calls: calls with a register mask, arguments and results in fixed registers.
        device: a device function, with callee-saved registers, instead of a kernel.
        branches: uniform branches: diamonds, critical edges.
        loops: uniform loops, nested, some that may run zero times.
        irreducible: loops with two entries.
        divergent: branches and loops that narrow EXEC, and waterfall loops.
        inactive: what reads registers of inactive threads (READLANE, DPP, BPERMUTE) also where threads diverge.
        constants: rematerialisable constants, read far from where they are made.
        vector_pressure: more vector values alive at once than ``amdgpu-num-vgpr`` leaves registers for.
        scalar_pressure: the same for scalars and ``amdgpu-num-sgpr``.
        assembly: inline assembly with early clobbers, ties and clobbered registers.
        mixed: mixed-precision forms, which keep the other half of their result.
        repeats: volatile loads, clock reads and KILL: what no allocator may repeat or drop.
    """

    size: int = 40
    tuples: bool = True
    undef: bool = True
    agprs: bool = True
    halves: bool = True
    copies: bool = True
    tied: bool = True
    early_clobber: bool = True
    early_lanes: bool = False
    matrix: bool = True
    memory: bool = True
    fixed: bool = True
    calls: bool = False
    device: bool = False
    branches: bool = True
    loops: bool = True
    irreducible: bool = False
    divergent: bool = True
    inactive: bool = False
    constants: bool = True
    vector_pressure: bool = False
    scalar_pressure: bool = False
    assembly: bool = False
    mixed: bool = False
    repeats: bool = False

    @classmethod
    def none(cls) -> Features:
        """Every switch off."""
        return cls(**dict.fromkeys(switches(), False))

    @classmethod
    def only(cls, *names: str) -> Features:
        """Just these switches on."""
        return replace(cls.none(), **dict.fromkeys(names, True))

    def on(self) -> tuple[str, ...]:
        """Names of the switches that are on."""
        return tuple(name for name in switches() if getattr(self, name))


def switches() -> tuple[str, ...]:
    """Names of all switches."""
    return tuple(f.name for f in fields(Features) if f.name != "size")


def random_features(seed: int) -> Features:
    """Some switches at random: most of the ordinary ones, few of the costly ones, and a size to go with them."""
    chosen = random.Random(f"features {seed}")
    rare = {"calls": 0.15, "device": 0.15, "irreducible": 0.15, "vector_pressure": 0.1, "scalar_pressure": 0.1}
    on = {name: chosen.random() < rare.get(name, 0.7) for name in switches() if name not in ("inactive", "early_lanes")}
    return Features(size=chosen.randint(6, 30), **on)
