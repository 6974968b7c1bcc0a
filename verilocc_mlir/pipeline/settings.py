"""What a compilation is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.remote.access import DEFAULT_ACCESS, ServerAccess
from verilocc_mlir.results.compile import FunctionReport, Report
from verilocc_mlir.toolchain import ToolchainChoice

VERIFY_VARIABLE = "VERILOCC_VERIFY"
"""Environment variable. Where it is set, llc's machine verifier runs unless ``Settings.verify`` says otherwise."""

DEFAULT_ALLOCATOR = "deterministic"
DEFAULT_ALLOCATOR_SECONDS = 60.0
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


class Effort(Enum):
    """How much is done for a good allocation (``pipeline/effort.py``)."""

    FAST = "fast"
    BALANCED = "balanced"
    BEST = "best"
    LEARNED = "learned"

    @property
    def is_quick(self) -> bool:
        """Whether one allocation is made where it stands as well as LLVM's, and what a model states beside it."""
        return self in (Effort.FAST, Effort.LEARNED)


class Settings(Struct, frozen=True):
    """Options of one compilation.

    Attributes:
        cpu: ``-mcpu``, optionally as a clang target id (``gfx90a:xnack-``); ``""`` takes the IR's ``"target-cpu"``.
        triple: ``-mtriple`` as the user gave it; must name an AMDGPU.
        opt_level: llc's ``-O``.
        allocator: a name of ``verilocc_mlir.allocators``, or ``llvm``.
        allocator_seconds: for one phase of one function, where the allocator searches as long as it is let (``exact``).
        plan: an answer (``pipeline/candidates.py``) that alone is tried; ``""``: what the effort tries.
        plans: answers of the model of plans that are tried, where the effort is LEARNED.
        plan_model: its directory; None: what ``$VERILOCC_PLAN_MODEL`` says, else the one that is installed.
        model_samples: answers of a model that are compared by price for one phase of one function; None: what
            ``$VERILOCC_MODEL_SAMPLES`` says, else one.
        also: further forms of it that are wanted.
        spill: spill where registers do not suffice; without it such a function is LLVM's, or a failure.
        order: put instructions in orders of our own, before and behind allocation, where they are proved and pay.
        fallback: take LLVM's allocation where ours fails; without it the failure is the verdict.
        verify: run llc's machine verifier after every pass of what is resumed, not only as it reads it; None: unless
            the effort is FAST or LEARNED (``verifies``).
        seconds: CPU for the whole compile, LLVM's tools counted; behind it nothing further is tried, and the best that
            is proved is taken, LLVM's allocation among it. None: no limit.
        solver_seconds: limit for one question to the solver; UNKNOWN after that.
        llc_options: further options for llc, given to every stage and to the direct compile alike.
        toolchain: which LLVM does the work.
        llvm: directory of the LLVM tools, or an llc; None searches.
        server: address of the server that is asked before ``allocator``, ``""`` for none.
        server_allocator: which of the server's allocators is asked, ``""`` for its default; ``allocator`` is then the
            local one that follows.
        server_required: it is an error where the server has not its part; else the local allocator takes its place.
        access: how to get through to it.
    """

    cpu: str = ""
    features: str = ""
    triple: str = ""
    opt_level: int = 3
    allocator: str = DEFAULT_ALLOCATOR
    allocator_seconds: float = DEFAULT_ALLOCATOR_SECONDS
    model_samples: int | None = None
    emit: Emit = Emit.HSACO
    also: tuple[Emit, ...] = ()
    effort: Effort = Effort.FAST
    plan: str = ""
    plans: int = 1
    plan_model: Path | None = None
    spill: bool = True
    order: bool = True
    fallback: bool = True
    verify: bool | None = None
    seconds: float | None = None
    solver_seconds: float = DEFAULT_SOLVER_SECONDS
    tool_seconds: float = DEFAULT_TOOL_SECONDS
    llc_options: tuple[str, ...] = ()
    toolchain: ToolchainChoice = ToolchainChoice.AUTO
    llvm: Path | None = None
    server: str = ""
    server_allocator: str = ""
    server_required: bool = False
    access: ServerAccess = DEFAULT_ACCESS

    @property
    def verifies(self) -> bool:
        """Whether llc's machine verifier runs after every pass; ``$VERILOCC_VERIFY`` has it run with any effort."""
        if self.verify is not None:
            return self.verify
        return not self.effort.is_quick or bool(os.environ.get(VERIFY_VARIABLE))

    def to_data(self) -> dict[str, Any]:
        """Every field as JSON values, by name."""
        return msgspec.to_builtins(self, enc_hook=str)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Settings:
        """What ``to_data`` was made of; fields that are missing have their defaults.

        Raises:
            TypeError: ``data`` has an unknown field. ValueError: a field has a value of another type.
        """
        access: ServerAccess | Mapping[str, Any] = data.get("access", {})
        _refuse_unknown(data, cls)
        if not isinstance(access, ServerAccess):
            _refuse_unknown(access, ServerAccess)
        return msgspec.convert(data, cls, dec_hook=_path)


def _refuse_unknown(data: Mapping[str, Any], kind: type[Settings | ServerAccess]) -> None:
    unknown = data.keys() - set(kind.__struct_fields__)
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {min(unknown)!r}")


def _path(_kind: type, value: Any) -> Path:
    """The only type here that msgspec does not know."""
    return Path(value)


# The part that a server had in a compilation: what it was asked for and did not give is said, or is an error.


PLANS = "plans: "
"""How notes begin about what a model of plans was asked."""

REQUIRED = "the server had not the part that it is required to have"
REQUIRED_HINT = "start it, or do not require it: the allocation here is proved as well"


def missed_by_server(functions: Sequence[FunctionReport], notes: Sequence[str]) -> str:
    """Why a server that was named had not its part, in a line; ``""`` where it had. Declining is an answer."""
    phases = [phase for function in functions for phase in function.phases if phase.phase != "wwm"]
    failed = [a for p in phases for a in p.attempts[:-1] if a.server and a.cause != "declined"]
    if failed:
        first = failed[0]
        reason = first.reason if first.reason.startswith(first.server) else f"{first.server}: {first.reason}"
        count = sum(phase.forsaken for phase in phases)
        return f"{reason}; the local allocation stands in {count} of {len(phases)} phases"
    return next((note.removeprefix(PLANS) for note in notes if note.startswith(PLANS)), "")


def check_required(settings: Settings) -> None:
    """
    Raises:
        InputError: a server is required, and none is named.
    """
    if settings.server_required and not settings.server:
        raise InputError("a server is required, and none is named", hint="name one with --server=ADDR")


def require_server(settings: Settings, report: Report) -> None:
    """
    Raises:
        ToolchainError: a server is required, and had not its part.
    """
    if settings.server_required and report.server:
        raise ToolchainError(f"{REQUIRED}: {report.server}", where=report.input, hint=REQUIRED_HINT)
