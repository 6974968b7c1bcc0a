"""Processors as their code objects have them: more of them than the project allocates registers for (``targets.py``).

Sources: llvm/include/llvm/BinaryFormat/ELF.h (EF_AMDGPU_MACH), AMDGPUUsage (kernel descriptor), GCNProcessors.td.
Checked against llc by tests/toolchain/test_descriptor.py.
"""

from __future__ import annotations

from msgspec import Struct


class Processor(Struct, frozen=True):
    """One processor.

    Attributes:
        name: LLVM's ``-mcpu`` name.
        elf_mach: EF_AMDGPU_MACH in the flags of a code object's ELF header.
        descriptor: whose layout its kernel descriptors have: ``gfx9``, ``gfx90a``, ``gfx10``, ``gfx11``, ``gfx12`` or
            ``gfx125`` (``toolchain/descriptor.py``).
        pads_user_sgprs: a wave must start with 16 SGPRs or more initialised (LLVM's UserSGPRInit16Bug).
    """

    name: str
    elf_mach: int
    descriptor: str
    pads_user_sgprs: bool = False


PROCESSORS: dict[str, Processor] = {
    p.name: p
    for p in (
        Processor("gfx900", 0x2C, "gfx9"),
        Processor("gfx906", 0x2F, "gfx9"),
        Processor("gfx908", 0x30, "gfx9"),
        Processor("gfx9-generic", 0x51, "gfx9"),
        Processor("gfx90a", 0x3F, "gfx90a"),
        Processor("gfx942", 0x4C, "gfx90a"),
        Processor("gfx950", 0x4F, "gfx90a"),
        Processor("gfx9-4-generic", 0x5F, "gfx90a"),
        Processor("gfx1010", 0x33, "gfx10"),
        Processor("gfx1030", 0x36, "gfx10"),
        Processor("gfx10-3-generic", 0x53, "gfx10"),
        Processor("gfx1100", 0x41, "gfx11", pads_user_sgprs=True),
        Processor("gfx1101", 0x46, "gfx11"),
        Processor("gfx1102", 0x47, "gfx11", pads_user_sgprs=True),
        Processor("gfx1103", 0x44, "gfx11"),
        Processor("gfx1150", 0x43, "gfx11"),
        Processor("gfx1151", 0x4A, "gfx11"),
        Processor("gfx1152", 0x55, "gfx11"),
        Processor("gfx1153", 0x58, "gfx11"),
        Processor("gfx11-generic", 0x54, "gfx11", pads_user_sgprs=True),
        Processor("gfx1200", 0x48, "gfx12"),
        Processor("gfx1201", 0x4E, "gfx12"),
        Processor("gfx12-generic", 0x59, "gfx12"),
        Processor("gfx1250", 0x49, "gfx125"),
        Processor("gfx1251", 0x5A, "gfx125"),
    )
}
