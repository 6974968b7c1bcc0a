"""AMD's matrix instructions as MLIR's ``amdgpu`` dialect names them, and which lane holds which element.

Layouts are those of AMD's matrix instruction calculator and the ISA manuals (MI200, MI300, RDNA 3, RDNA 4: "MFMA",
"WMMA"). A wave multiplies A (m x k) by B (k x n) and adds to C (m x n). With ``g = lane / m``:

* A: lane holds row ``lane % m``, the ``kpl`` consecutive columns from ``g * kpl`` on (gfx11: all of them, g = 0);
* B: lane holds column ``lane % n``, the rows likewise;
* C: lane holds column ``lane % n``, and the rows of ``Instruction.c_row``.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
BITS = {"f16": 16, "bf16": 16, "f32": 32, "i8": 8}
"""Element types, with their width."""


@dataclass(frozen=True)
class Instruction:
    """One shape.

    Attributes:
        op: ``amdgpu.mfma`` or ``amdgpu.wmma``.
        m, k: the shape, m x m x k.
        kpl: elements of A (and of B) in each lane.
        cn: elements of C in each lane.
        wave: lanes.
        rows: how C's rows are spread: ``mfma``, ``interleaved`` (gfx11) or ``halves`` (gfx12).
    """

    op: str
    m: int
    k: int
    kpl: int
    cn: int
    wave: int
    rows: str

    @property
    def name(self) -> str:
        return f"{self.m}x{self.m}x{self.k}"

    @property
    def duplicated(self) -> bool:
        """Whether both halves of the wave hold the same elements of A and B (gfx11)."""
        return self.kpl == self.k

    def c_row(self, element: int) -> tuple[int, int]:
        """C's row of an element, as (constant, factor of ``lane / m``)."""
        if self.rows == "interleaved":
            return 2 * element, 1
        if self.rows == "halves":
            return element, 8
        return 8 * (element // 4) + element % 4 if self.m == 32 else element, 4

    def run(self) -> int:
        """How many consecutive elements of C are consecutive rows."""
        return {"interleaved": 1, "halves": 8, "mfma": 4}[self.rows]


def _mfma(m: int, k: int) -> Instruction:
    return Instruction("amdgpu.mfma", m, k, k * m // 64, m * m // 64, 64, "mfma")


def instructions(target: str, element: str) -> tuple[Instruction, ...]:
    """The shapes that ``target`` has for ``element``; none where there are none."""
    if target == "gfx1100":
        return () if element == "f32" else (Instruction("amdgpu.wmma", 16, 16, 16, 8, 32, "interleaved"),)
    if target == "gfx1201":
        return () if element == "f32" else (Instruction("amdgpu.wmma", 16, 16, 8, 8, 32, "halves"),)
    if element == "f32":
        return _mfma(16, 4), _mfma(32, 2)
    if element == "i8":
        depth = {"gfx90a": (1,), "gfx942": (2,), "gfx950": (2, 4)}[target]
    else:
        depth = {"gfx90a": (1,), "gfx942": (1,), "gfx950": (1, 2)}[target]
    return tuple(shape for d in depth for shape in (_mfma(16, 16 * d), _mfma(32, 8 * d)))


def lds_bytes(target: str) -> int:
    """LDS that one work-group may use."""
    return 160 * 1024 if target == "gfx950" else 64 * 1024
