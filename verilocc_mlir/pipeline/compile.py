"""Compile a module: again without a promise that its final code breaks, and without functions that nobody proves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from verilocc_mlir.allocators import Allocator
from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.pipeline.callees import BrokenPromiseError
from verilocc_mlir.pipeline.compilation import Compilation, Compiled
from verilocc_mlir.pipeline.guard import anything_left, with_callers
from verilocc_mlir.pipeline.learned import check_plan_model
from verilocc_mlir.pipeline.settings import Effort, Settings, check_required, require_server
from verilocc_mlir.results.compile import FunctionReport
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.verifier import verifier_fault

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.page import PhaseRecord

__all__ = ["Compiled", "compile_module"]

_PROMISES = 4
"""Times that a module is compiled with masks that say more, each time without what was not proved before."""


def compile_module(
    data: bytes,
    path: str,
    settings: Settings,
    *,
    allow_unproved: bool = False,
    allocators: Sequence[Allocator] | None = None,
    recording: Recording | None = None,
) -> Compiled:
    """Compile one LLVM IR, bitcode or pre-RA MIR file.

    Where nobody proves some functions, neither ours nor LLVM's, the result is that of the others, and the report names
    those that are left out. ``allow_unproved``, and settings without fallback, leave none out.

    Args:
        path: its name, for messages; ``-`` for standard input.
        allow_unproved: go on after a phase that is not proved; without it the run ends there, with its verdict.
        allocators: ours, in the order they are tried; None: those of ``allocators_of(settings)``.
        recording: keeps what every phase was decided on, for the HTML page; costs one more run of llc a phase.

    Raises:
        InputError: unusable input or option. ToolchainError: a tool is missing or failed, or a server that is required
            had not its part. UnsupportedError: outside what this version handles.
    """
    check_required(settings)
    if settings.plan_model is not None or settings.effort is Effort.LEARNED:
        check_plan_model(settings)
    started = partial(Compilation, data, path, settings, allow_unproved, allocators, recording)
    whole = allow_unproved or not settings.fallback
    compiled = _compiled(started) if whole else _Rest(started, recording).compiled()
    require_server(settings, compiled.report)
    return compiled


@dataclass
class _Rest:
    """A module that is compiled without the functions that nobody proves.

    Attributes:
        left_out: why, by name: its report, or in words.
        first: what became of the whole module.
    """

    started: Callable[..., Compilation]
    recording: Recording | None
    left_out: dict[str, FunctionReport | str] = field(default_factory=dict[str, "FunctionReport | str"])
    first: Compiled | ToolFailure | None = None
    _records: list[PhaseRecord] = field(default_factory=list["PhaseRecord"])

    def compiled(self) -> Compiled:
        """The rest of the module where there is one, else what became of all of it."""
        while True:
            texts: list[str] = []
            unproved: dict[str, FunctionReport | str] = {}
            try:
                compiled = _compiled(partial(self._noted, texts))
                unproved |= {f.name: f for f in compiled.report.functions if not f.is_proved}
                if not unproved:
                    return self._with_all(compiled) if self.left_out else compiled
                self.first = self.first or compiled
            except ToolFailure as failure:
                self.first = self.first or failure
                if (fault := verifier_fault(failure)) is not None:
                    unproved[fault.function] = failure.what
            except VeriloccError:
                # The linker wants what is left out, say.
                if self.first is None:
                    raise
            if not (texts and self._leave_out(texts[0], unproved)):
                assert self.first is not None
                if isinstance(self.first, ToolFailure):
                    raise self.first
                return self.first

    def _noted(self, texts: list[str], **more: object) -> Compilation:
        compilation = self.started(left_out=frozenset(self.left_out), **more)
        texts.append(compilation.input.text)
        return compilation

    def _leave_out(self, text: str, unproved: dict[str, FunctionReport | str]) -> bool:
        """Whether there is more to leave out, and something that is left."""
        more = sorted(with_callers(text, unproved) - self.left_out.keys())
        needs = f"it needs {', '.join(sorted(unproved))}"
        if not more or not anything_left(text, {*self.left_out, *more}):
            return False
        if self.recording is not None:
            self._records += [record for record in self.recording.phases if record.function in more]
        self.left_out |= {name: unproved.get(name, needs) for name in more}
        return True

    def _with_all(self, compiled: Compiled) -> Compiled:
        """The result, with what is left out in its report."""
        if self.recording is not None:
            self.recording.phases[:0] = self._records
        reports = tuple(
            why if isinstance(why, FunctionReport) else FunctionReport(name, False, 0, (), None, None)
            for name, why in self.left_out.items()
        )
        notes = [f"{name} is left out: {why}" for name, why in self.left_out.items() if isinstance(why, str)]
        report = replace(
            compiled.report,
            functions=(*reports, *compiled.report.functions),
            notes=(*notes, *compiled.report.notes),
            left_out=tuple(self.left_out),
        )
        return replace(compiled, report=report)


def _compiled(started: Callable[..., Compilation]) -> Compiled:
    """A module with masks that say what its functions keep, or by the calling convention."""

    def by_convention(why: str) -> Compilation:
        compilation = started(promise=False)
        compilation.notes.append(f"calls keep to the calling convention: {why}")
        return compilation

    withheld: dict[str, frozenset[int]] = {}
    for attempt in range(_PROMISES):
        first = started(withheld=withheld)
        try:
            compiled = first.run()
            break
        except VeriloccError as error:
            if not first.promises.kept:
                raise
            doubtful = error.doubtful if isinstance(error, BrokenPromiseError) else {}
            if not doubtful or attempt + 1 == _PROMISES:
                return by_convention(error.what).run()
            # LLVM has the last word on the registers for lanes and frames: the rest can still be kept.
            for name, units in doubtful.items():
                withheld[name] = withheld.get(name, frozenset()) | units
    else:
        raise AssertionError("the last attempt returns or raises")
    if first.promises.kept and first.standing[0] and first.recording is None:
        # LLVM's allocations took no part, because they know of no promise.
        other = by_convention("so it stands better against LLVM's default compile")
        with contextlib.suppress(ToolchainError):
            instead = other.run()
            return instead if other.standing < first.standing else compiled
    return compiled
