"""The process that tries cases and makes examples small. Its question is a task, with the input's bytes."""

from __future__ import annotations

import os
import re
import shlex
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.crew.descendants import serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError, is_out_of_memory
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.pipeline.audit import Judge, Sides, SolverLimits, as_it_is, llvm_phases
from verilocc_mlir.pipeline.hunt.reduce import reduce_mir
from verilocc_mlir.pipeline.native import PHASES, native_phases
from verilocc_mlir.pipeline.opened import open_input
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.audit import AuditedPair, Listing
from verilocc_mlir.results.hunt import Case, Kind, Reduced, Row, Suspect, Variant, data_of, row_from_data
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.find import Toolchain
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, with_attributes
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler
from verilocc_mlir.toolchain.verifier import verifier_fault

# One case, tried: LLVM allocates phase by phase from the printed text, and each phase is audited.


class Attempt:
    """LLVM and the audit, set up for one case.

    Raises:
        InputError: the input is not usable. ToolchainError: there is no LLVM.
    """

    def __init__(self, data: bytes, case: Case, settings: Settings) -> None:
        self.case = case
        # Where the verifier complains, LLVM ends before there is a text to audit.
        self.kernel, self.compiler = open_input(
            data, case.path, replace(settings, cpu=case.cpu), verify=settings.verify is True,
            llc_options=case.variant.options,
        )  # fmt: skip
        self.judge = Judge(target(self.kernel.cpu), SolverLimits(settings.solver_seconds), as_it_is, self.compiler)
        self.text = with_attributes(self.kernel.text, case.variant.attributes)

    def with_variant(self, variant: Variant) -> StagedCompiler:
        """A compiler for other options."""
        return StagedCompiler(self.compiler.toolchain, replace(self.compiler.options, llc_options=variant.options))

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


_MAX_TASKS = 200
"""A worker is replaced after so many: what they left behind in it (memory) goes with it."""
_SLACK_S = 120.0
"""What a reduction may take beyond its time: its last step, and what follows it."""


class Task(Struct, frozen=True):
    """A case to be tried, or, where there is a suspect, one to be made small within ``seconds``."""

    case: Case
    key: str
    data: bytes
    suspect: Suspect | None = None
    seconds: float = 0.0


class Doer:
    """Does tasks in workers of this process; as many as are done at once.

    Args:
        settings: of LLVM and the audit.
        seconds: elapsed time that a case may take; then it is unknown.
        memory_mib: address space of a worker, and of each tool that it starts.
        forks: as for ``JobCrew``.
    """

    def __init__(self, settings: Settings, seconds: float, memory_mib: int, *, forks: bool = False) -> None:
        self._settings = settings.to_data()
        self._seconds = seconds
        self._crew = JobCrew(partial(_work, memory_mib), forks=forks)
        self.stop = self._crew.stop

    def do(self, task: Task) -> Row | Reduced | str:
        """A row, or a reduced example, or why there is none.

        Raises:
            ToolchainError: no worker starts, or the run is over.
        """
        question = {
            "case": data_of(task.case),
            "key": task.key,
            "suspect": data_of(task.suspect),
            "seconds_to_reduce": task.seconds,
            "settings": self._settings,
        }
        seconds = task.seconds + _SLACK_S if task.suspect else self._seconds
        reason = ""
        for _ in range(2):
            try:
                with self._crew.worker() as worker:
                    answer, _ = worker.ask(question, seconds, task.data)
                    worker.last |= worker.answered >= _MAX_TASKS
                return _result(task, answer)
            except Late:
                reason = f"not finished within {seconds:g} s"
                break
            except WorkerFailure as failure:
                reason = f"{failure}, twice"
        return _unknown(task, reason)


def _result(task: Task, answer: Mapping[str, Any]) -> Row | Reduced | str:
    if answer["reason"]:
        return _unknown(task, answer["reason"])
    return msgspec.convert(answer["result"], Reduced) if task.suspect else row_from_data(answer["result"])


def _unknown(task: Task, reason: str) -> Row | str:
    return reason if task.suspect else Row(task.key, task.case, suspects=(Suspect(Kind.UNKNOWN, "", reason),))


def _work(memory_mib: int) -> None:
    def load() -> Answer:
        os.environ["LLVM_DISABLE_SYMBOLIZATION"] = (
            "1"  # reduced texts crash often, and names of functions take a second
        )
        look_for_garbage_seldom()
        return partial(_answer, memory_mib)

    serve_jobs(load, memory_mib)


def _answer(memory_mib: int, question: dict[str, Any], data: bytes) -> tuple[Mapping[str, object], bytes]:
    last, reason, result = False, "", None
    try:
        result = data_of(_done(question, data)())
    except VeriloccError as error:
        reason = error.what
    except Exception as error:
        last = is_out_of_memory(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        memory = f"out of memory: a worker has {memory_mib} MiB"
        reason = memory if last else f"a defect of verilocc: {type(error).__name__} at {where}: {error}"
    return {"result": result, "reason": " ".join(reason.split()), "last": last}, b""


def _done(question: dict[str, Any], data: bytes) -> Callable[[], Row | Reduced]:
    case = msgspec.convert(question["case"], Case)
    settings = Settings.from_data(question["settings"])
    if question["suspect"] is None:
        return partial(hunt_case, data, case, settings, question["key"])
    suspect = msgspec.convert(question["suspect"], Suspect)
    return partial(reduce_example, data, case, suspect, settings, question["seconds_to_reduce"])


# A group's example made small: its text, its options, and what LLVM itself says of it.


class _Seen(Struct, frozen=True):
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
