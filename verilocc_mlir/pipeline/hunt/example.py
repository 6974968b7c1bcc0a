"""A group's example made small: its text, its options, and what LLVM itself says of it."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace

from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.pipeline.audit import Sides, llvm_phases
from verilocc_mlir.pipeline.hunt.cause import failure
from verilocc_mlir.pipeline.hunt.reduce import reduce_mir
from verilocc_mlir.pipeline.hunt.work import Attempt, sides
from verilocc_mlir.pipeline.native import PHASES, native_phases
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.hunt import Case, Kind, Reduced, Suspect, Variant
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.find import Toolchain
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler


@dataclass(frozen=True)
class _Seen:
    """What came of a text: LLVM's own text, and what is wrong."""

    printed: str = ""
    after: str = ""
    suspects: tuple[Suspect, ...] = ()
    words: str = ""


def reduce_example(data: bytes, case: Case, suspect: Suspect, settings: Settings, seconds: float) -> Reduced:
    """Make the case small in which ``suspect`` was seen.

    Args:
        seconds: elapsed time; the smallest text by then is the result.

    Raises:
        VeriloccError: it is not seen again.
    """
    return _Example(Attempt(data, case, settings), suspect, seconds).reduced()


class _Example:
    def __init__(self, attempt: Attempt, suspect: Suspect, seconds: float) -> None:
        self._attempt = attempt
        self._suspect = suspect
        self._deadline = time.monotonic() + seconds
        self._steps = 0
        self._original = ""
        self._start = time.process_time()

    def reduced(self) -> Reduced:
        case, attempt = self._attempt.case, self._attempt
        original = self._original = self._given()
        first = self._see(attempt.compiler, case.variant.regalloc, original)
        if not self._is_it(first):
            raise ToolchainError(f"{self._suspect.cause} is not seen again", where=case.path)
        text = reduce_mir(original, lambda text: self._again(attempt.compiler, case.variant.regalloc, text))
        variant = self._smallest(text)
        compiler = attempt.with_variant(variant)
        last = self._see(compiler, variant.regalloc, text)
        return Reduced(
            given=compiler.as_llvm_reads(text).decode(),
            printed=last.printed,
            after=last.after,
            original=original,
            original_after=first.after,
            variant=variant,
            command=_command(compiler),
            verifier=self._verifier(compiler, variant.regalloc, text),
            plainly=self._plainly(),
            report=last.words,
            steps=self._steps,
            cpu_seconds=round(time.process_time() - self._start, 1),
        )

    def _given(self) -> str:
        """The text before the phase; where it is not of one phase, before the first."""
        attempt, phase = self._attempt, self._suspect.phase
        before = attempt.before_allocation()
        if phase not in ("wwm", "vgpr"):
            return before
        scalar = attempt.compiler.llvm_allocate(before, LlvmPhase.SGPR, attempt.case.variant.regalloc)
        if phase == "wwm":
            return scalar
        return attempt.compiler.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)

    def _see(self, compiler: StagedCompiler, regalloc: RegAlloc, text: str) -> _Seen:
        try:
            if text != self._original:
                text = compiler.accept_mir(text, reprint=True)  # the audit compares headers and modules
            for both in self._made(compiler, regalloc, text):
                if both.phase == self._suspect.phase:
                    pair, wrong = self._attempt.audit(both)
                    findings = [f.message for function in pair.report.functions for f in function.findings]
                    return _Seen(both.before.text, both.after.text, wrong, "\n".join(findings))
        except ToolchainError as error:
            words = error.stderr if isinstance(error, ToolFailure) else error.render()
            return _Seen(text, "", (failure(error, self._suspect.phase),), words)
        return _Seen()

    def _made(self, compiler: StagedCompiler, regalloc: RegAlloc, text: str) -> list[Sides]:
        phase = self._suspect.phase
        if phase == "wwm":
            both = compiler.wwm_phase(text)
            return [sides(phase, both.before, both.after)]
        if phase in PHASES:
            return [sides(phase, text, compiler.llvm_allocate(text, PHASES[phase], regalloc))]
        return [sides(*both) for both in llvm_phases(compiler, text, regalloc)]

    def _is_it(self, seen: _Seen) -> bool:
        wanted = self._suspect
        return any(s.kind is wanted.kind and s.cause == wanted.cause for s in seen.suspects)

    def _again(self, compiler: StagedCompiler, regalloc: RegAlloc, text: str) -> bool:
        if time.monotonic() > self._deadline:
            return False
        self._steps += 1
        try:
            return self._is_it(self._see(compiler, regalloc, text))
        except VeriloccError:
            return False  # no machine IR any more

    def _smallest(self, text: str) -> Variant:
        """The variant without what is not needed for the reduced text; budgets are in the text itself."""
        variant = replace(self._attempt.case.variant, attributes=())
        for option in ("", *variant.options):
            options = tuple(other for other in variant.options if other != option)
            smaller = replace(variant, options=options) if option else replace(variant, regalloc="greedy")
            if smaller != variant and self._again(self._attempt.with_variant(smaller), smaller.regalloc, text):
                variant = smaller
        return variant

    def _verifier(self, compiler: StagedCompiler, regalloc: RegAlloc, text: str) -> str:
        """What LLVM's own verifier complains of after its allocation."""
        verifying = StagedCompiler(compiler.toolchain, replace(compiler.options, verify=True))
        try:
            self._made(verifying, regalloc, text)
        except ToolFailure as error:
            return failure(error, "").cause
        except VeriloccError as error:
            return error.what
        return ""

    def _plainly(self) -> str:
        attempt, phase = self._attempt, self._suspect.phase
        case = attempt.case
        if attempt.kernel.kind == "mir" or case.variant.regalloc != "greedy":
            return "not tried: it begins with machine IR, or has another allocator"
        try:
            ir = to_pre_ra(attempt.compiler, attempt.text).ir
            if self._suspect.kind is not Kind.REFUTED:
                attempt.compiler.direct(ir)
                return "a compile in one go with the same options ends well"
            if phase not in PHASES:
                return "not tried: it is of several phases"
            phases = native_phases(
                "plain",
                lambda name: attempt.compiler.direct_before(ir, PHASES[name]),
                lambda name: attempt.compiler.direct_after(ir, PHASES[name]),
            )
            seen = [s for both in phases if both.phase == phase for s in attempt.audit(both)[1]]
        except VeriloccError as error:
            suspect = failure(error, "")
            return f"a compile in one go with the same options fails: {suspect.kind.value}, {suspect.cause}"
        if self._is_it(_Seen(suspects=tuple(seen))):
            return "a compile in one go with the same options has it too"
        others = ", ".join(sorted({s.cause for s in seen})) or "none: that phase is proved"
        return f"a compile in one go with the same options has not this: {others}"


def _command(compiler: StagedCompiler) -> str:
    """The last command of llc, for a file."""
    if not isinstance(compiler.toolchain, Toolchain):
        return ""
    runs = [*compiler.runs]
    if not runs:
        return ""
    *command, _ = runs[-1].command
    return shlex.join(["llc", *command[1:-2], "before.mir", "-o", "after.mir"])
