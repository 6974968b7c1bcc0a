"""What a compilation is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

LLVM_ALLOCATOR = "llvm"
"""Name of LLVM's own allocation: the fallback, and a choice of its own (then it is audited only)."""

DEFAULT_ALLOCATOR = "deterministic"
DEFAULT_SOLVER_SECONDS = 60.0
DEFAULT_TOOL_SECONDS = 300.0


class Emit(Enum):
    """Form of the result, with the suffix a file of it gets."""

    MIR = "mir"
    ASM = "asm"
    OBJ = "obj"
    HSACO = "hsaco"

    @property
    def suffix(self) -> str:
        """File name suffix, dot included; as llc's for assembly and objects."""
        return {Emit.MIR: ".mir", Emit.ASM: ".s", Emit.OBJ: ".o", Emit.HSACO: ".hsaco"}[self]


@dataclass(frozen=True)
class Settings:
    """Options of one compilation.

    Attributes:
        cpu: ``-mcpu``, optionally as a clang target id (``gfx90a:xnack-``); ``""`` takes the IR's ``"target-cpu"``.
        features: ``-mattr``.
        triple: ``-mtriple`` as the user gave it; must name an AMDGPU.
        opt_level: llc's ``-O``.
        allocator: a name of ``verilocc_mlir.allocators``, or ``llvm``.
        emit: form of the result.
        also: further forms of it that are wanted.
        fallback: take LLVM's allocation where ours fails; without it the failure is the verdict.
        verify: run llc's machine verifier on what it resumes from.
        solver_seconds: limit for one question to the solver; UNKNOWN after that.
        tool_seconds: limit for one run of an LLVM tool.
        llc_options: further options for llc, given to every stage and to the direct compile alike.
        llvm: directory of the LLVM tools, or an llc; None searches.
    """

    cpu: str = ""
    features: str = ""
    triple: str = ""
    opt_level: int = 3
    allocator: str = DEFAULT_ALLOCATOR
    emit: Emit = Emit.HSACO
    also: tuple[Emit, ...] = ()
    fallback: bool = True
    verify: bool = True
    solver_seconds: float = DEFAULT_SOLVER_SECONDS
    tool_seconds: float = DEFAULT_TOOL_SECONDS
    llc_options: tuple[str, ...] = ()
    llvm: Path | None = None

    def to_data(self) -> dict[str, Any]:
        """Every field as JSON values, by name."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            **values,
            "emit": self.emit.value,
            "also": [emit.value for emit in self.also],
            "llc_options": list(self.llc_options),
            "llvm": None if self.llvm is None else str(self.llvm),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Settings:
        """What ``to_data`` was made of; fields that are missing have their defaults.

        Raises:
            TypeError, ValueError: ``data`` has an unknown field, or no such form of the result.
        """
        llvm: str | Path | None = data.get("llvm")
        values: dict[str, Any] = {
            **data,
            "emit": Emit(data.get("emit", Emit.HSACO.value)),
            "also": tuple(Emit(value) for value in data.get("also", ())),
            "llc_options": tuple(data.get("llc_options", ())),
            "llvm": None if llvm is None else Path(llvm),
        }
        return cls(**values)
