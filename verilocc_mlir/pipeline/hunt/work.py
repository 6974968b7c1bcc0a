"""One case, tried: LLVM allocates phase by phase from the printed text, and each phase is audited."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.pipeline.audit import Judge, Sides, SolverLimits, as_it_is, llvm_phases
from verilocc_mlir.pipeline.hunt.cause import failure, suspects
from verilocc_mlir.pipeline.native import PHASES
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.audit import AuditedPair, Listing
from verilocc_mlir.results.hunt import Case, Row, Suspect, Variant
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_attributes import with_attributes
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.staged import StagedCompiler


class Attempt:
    """LLVM and the audit, set up for one case.

    Raises:
        InputError: the input is not usable. ToolchainError: there is no LLVM.
    """

    def __init__(self, data: bytes, case: Case, settings: Settings) -> None:
        self.case = case
        tools = choose_tools(settings.toolchain, settings.llvm)
        self.kernel = load_input(data, path=case.path, cpu=case.cpu or None, toolchain=tools)
        mattr = ",".join(filter(None, (settings.features, self.kernel.mattr)))
        # Where the verifier complains, LLVM ends before there is a text to audit.
        options = CompileOptions(
            self.kernel.cpu,
            mattr,
            settings.opt_level,
            settings.verify is True,
            settings.tool_seconds,
            case.variant.options,
            case.path,
        )
        self.compiler = StagedCompiler(tools, options)
        self.judge = Judge(target(self.kernel.cpu), SolverLimits(settings.solver_seconds), as_it_is)
        self.text = with_attributes(self.kernel.text, case.variant.attributes)

    def with_variant(self, variant: Variant) -> StagedCompiler:
        """A compiler for other options."""
        return StagedCompiler(self.compiler.toolchain, replace(self.compiler.options, extra=variant.options))

    def before_allocation(self) -> str:
        """The text before the first phase."""
        if self.kernel.kind == "mir":
            return self.compiler.accept_mir(self.text, reprint=True)
        return to_pre_ra(self.compiler, self.text).mir

    def phases(self) -> Iterator[Sides]:
        """Both texts of each phase, and of all."""
        for phase, before, after in llvm_phases(self.compiler, self.before_allocation(), self.case.variant.regalloc):
            yield sides(phase, before, after)

    def audit(self, both: Sides) -> tuple[AuditedPair, tuple[Suspect, ...]]:
        """The verdict, and what is wrong."""
        pair = self.judge.judge(both)
        return pair, tuple(s for function in pair.report.functions for s in suspects(function, both.phase))


def sides(phase: str, before: str, after: str) -> Sides:
    """Both texts under the names that findings have."""
    return Sides(phase, Listing(f"{phase}.before.mir", before), Listing(f"{phase}.after.mir", after))


def hunt_case(data: bytes, case: Case, settings: Settings, key: str) -> Row:
    """Try one case; whatever goes wrong is in the row."""
    start = time.process_time()
    row, done = Row(key, case), 0.0
    phase = "input"
    try:
        attempt = Attempt(data, case, settings)
        try:
            for both in attempt.phases():
                phase = both.phase
                row = _with_phase(row, attempt, both)
                if row.suspects and phase in PHASES:
                    break  # what comes of a wrong text says nothing
        except ToolchainError as error:
            row = replace(row, suspects=(*row.suspects, failure(error, f"after {phase}")))
        finally:
            done = sum(run.cpu_seconds for run in attempt.compiler.runs)
    except VeriloccError as error:
        row = replace(row, suspects=(*row.suspects, failure(error, phase)))
    return replace(row, cpu_seconds=round(time.process_time() - start + done, 3))


def _with_phase(row: Row, attempt: Attempt, both: Sides) -> Row:
    pair, wrong = attempt.audit(both)
    functions = pair.report.functions
    return replace(
        row,
        lines=row.lines or both.before.text.count("\n"),
        phases=row.phases + len(functions),
        proved=row.proved + sum(f.outcome is Outcome.PROVED for f in functions),
        suspects=(*row.suspects, *wrong),
    )
