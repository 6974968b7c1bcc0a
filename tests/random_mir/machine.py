"""What the generator knows of a target: register classes by bank and width, lanes, and the names of masks."""

from __future__ import annotations

from dataclasses import dataclass

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 16, 32)
"""Widths of tuples in 32-bit lanes."""


@dataclass(frozen=True)
class Machine:
    """One target."""

    cpu: str

    @property
    def wave64(self) -> bool:
        return self.cpu.startswith("gfx9")

    @property
    def aligned(self) -> bool:
        """Whether vector tuples start at even registers."""
        return self.wave64 or self.cpu == "gfx1250"

    @property
    def matrix_core(self) -> bool:
        """MFMA and AGPRs, rather than WMMA."""
        return self.wave64

    @property
    def halves(self) -> bool:
        return self.cpu in ("gfx1100", "gfx1201")

    @property
    def mask(self) -> int:
        """Lanes of an EXEC mask."""
        return 2 if self.wave64 else 1

    @property
    def suffix(self) -> str:
        """Of scalar instructions on masks."""
        return "B64" if self.wave64 else "B32"

    @property
    def exec(self) -> str:
        return "$exec" if self.wave64 else "$exec_lo"

    @property
    def vcc(self) -> str:
        return "$vcc" if self.wave64 else "$vcc_lo"

    def register_class(self, bank: str, width: int) -> str:
        """Class of a bank (``s``, ``v``, ``a``, ``av``, ``h``) and a width in lanes."""
        if bank == "h":
            return "vgpr_16"
        if bank == "s":
            return f"sgpr_{32 * width}"
        if width == 1:
            return {"v": "vgpr_32", "a": "agpr_32", "av": "av_32"}[bank]
        name = {"v": "vreg", "a": "areg", "av": "av"}[bank]
        return f"{name}_{32 * width}{'_align2' if self.aligned else ''}"

    def offsets(self, bank: str, width: int, part: int) -> list[int]:
        """Lanes at which a part of ``part`` lanes of a tuple may start, by class alignment and LLVM's indices."""
        if part > width:
            return []
        if bank == "s":
            step = 1 if part == 1 else 2 if part == 2 else 4
        elif part >= 5:
            step = 4 if part <= 8 else 16
        else:
            step = 2 if self.aligned and part > 1 else 1
        return list(range(0, width - part + 1, step))


def subregister(offset: int, part: int) -> str:
    """``sub2_sub3`` for two lanes from lane 2."""
    return "_".join(f"sub{n}" for n in range(offset, offset + part))
