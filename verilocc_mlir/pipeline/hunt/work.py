"""One case, tried: LLVM allocates phase by phase from the printed text, and each phase is audited."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.audit import Judge, Sides, SolverLimits, as_it_is, llvm_phases
from verilocc_mlir.pipeline.native import PHASES
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.audit import AuditedPair, Listing
from verilocc_mlir.results.hunt import Case, Kind, Row, Suspect, Variant
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.inputs import load_input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, with_attributes
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_mlir.toolchain.verifier import verifier_fault


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


# What is wrong, in words that two kernels with one fault have in common.


_OPCODE = re.compile(r"(?:^|= )(?:(?:[a-z][\w-]*|nofpexcept) )*(?P<opcode>[A-Z][A-Z0-9]*(?:_[A-Za-z0-9]+)*)\b")
_SPILL = re.compile(r"^SI_SPILL_([AVSW]+)\d+(?:_CFI)?_(SAVE|RESTORE)$")
_LANES = re.compile(r"[%$]\w+\.\w+")
_PASS = re.compile(r"Running pass '([^']+)'")
_GAVE_UP = re.compile(r"ran out of registers|requires more registers|no registers from class available")
_COMPLAINT = re.compile(r"\*\*\* Bad machine code.*?(?=\n\n|\n\*\*\*|\nLLVM ERROR|\Z)", re.DOTALL)
_NAMES = re.compile(r"'[^']*'|@\S+|%[\w.]+|\$\w+|<[^>]*>(?::\d+)*|0x[0-9a-f]+|\b[svam]?\d+\b")


def suspects(function: FunctionAudit, phase: str) -> tuple[Suspect, ...]:
    """One for each cause in it, and none where it is proved."""
    if function.outcome is Outcome.PROVED:
        return ()
    kind = Kind.REFUTED if function.outcome is Outcome.REFUTED else Kind.UNKNOWN
    decisive = [f for f in function.findings if f.outcome is function.outcome] or list(function.findings)
    causes: dict[str, Finding] = {}
    for finding in decisive:
        causes.setdefault(_cause(finding, kind), finding)
    return tuple(
        Suspect(kind, phase, cause, function.function, f"{finding.message} [{finding.instruction}]"[:600])
        for cause, finding in causes.items()
    ) or (Suspect(kind, phase, "no finding", function.function),)


def _cause(finding: Finding, kind: Kind) -> str:
    """Of a wrong value, the instruction where it got lost, or else what made it; of anything else, the instruction it
    is about.
    """
    if kind is Kind.UNKNOWN:
        return f"{finding.rule}: {plain(finding.message).partition(', ')[0]}"
    if finding.lost is not None and finding.lost.site is not None:
        return f"{finding.rule}, lost at {shape(finding.lost.site.text)}"
    sites = [fact.site for fact in finding.expected.facts if fact.site] if finding.expected else []
    if sites:
        return f"{finding.rule}, of {shape(sites[-1].text)}"
    if finding.instruction:
        return f"{finding.rule}, {shape(finding.instruction)}"
    return f"{finding.rule}: {plain(finding.message)}"


def shape(instruction: str) -> str:
    """``COPY of lanes``, ``SI_SPILL_V_RESTORE``, ``V_MFMA``: what kind of instruction it is."""
    match = _OPCODE.search(instruction)
    if not match:
        return "block"
    opcode = match["opcode"]
    if spill := _SPILL.match(opcode):
        return f"SI_SPILL_{spill[1]}_{spill[2]}"
    if opcode == "COPY":
        return "COPY of lanes" if len(_LANES.findall(instruction)) > 1 else "COPY"
    return "_".join(opcode.split("_")[:2])


def plain(words: str) -> str:
    """A message without what only one kernel has: names, numbers, registers."""
    return re.sub(r"…(?:, …)+", "…", " ".join(_NAMES.sub("…", words).split()))[:160]


def failure(error: VeriloccError, phase: str) -> Suspect:
    """What LLVM, or its driver, did instead of a text."""
    if not isinstance(error, ToolFailure):
        unusable = isinstance(error, InputError | UnsupportedError)
        return Suspect(Kind.UNUSABLE if unusable else Kind.UNKNOWN, phase, plain(error.what), "", error.render()[:600])
    if _GAVE_UP.search(error.stderr):
        return Suspect(Kind.GAVE_UP, phase, "ran out of registers", "", error.line[:600])
    if fault := verifier_fault(error):
        cause = f"{plain(min(fault.kinds))}, after {fault.after or 'reading the text'}"
        return Suspect(Kind.REJECTED, phase, cause, fault.function, _complaint(error.stderr))
    last = _PASS.findall(error.stderr)
    where = f" in {last[-1]}" if last else ""
    line = error.line if error.status > 0 or "Assertion" in error.line else f"{error.line} (status {error.status})"
    return Suspect(Kind.CRASH, phase, f"{plain(line)}{where}", "", error.line[:600])


def _complaint(stderr: str) -> str:
    """The verifier's first complaint."""
    match = _COMPLAINT.search(stderr)
    return match[0][:600] if match else ""
