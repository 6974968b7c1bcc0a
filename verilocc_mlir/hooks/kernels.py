"""Compile the kernels of one module beside each other, in worker processes that stay for the next kernel.

What is proved is kept by content (``verilocc_mlir.store``): compiling the same kernel again only reads the store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec.structs import replace

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ExitCode, VeriloccError
from verilocc_mlir.forms import to_json
from verilocc_mlir.pipeline.audit import SolverLimits
from verilocc_mlir.pipeline.batch.executors import LocalExecutor
from verilocc_mlir.pipeline.batch.jobs import BEFORE, REPORT, RESULT, Job, Result, fault_of
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.native import NativeKernel, audit_native
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.compile import EXIT_CODES
from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.find import LlvmTools

KERNEL_SECONDS = 3600.0
"""Elapsed time that one kernel may take; then it stays as the front end made it."""
_MEMORY_MIB = 16384
"""Address space of a worker: a language model maps more than it uses."""


@dataclass(frozen=True)
class KernelSource:
    """LLVM IR of one module and how to compile it; ``features`` and ``llc_options`` go after those of the settings."""

    name: str
    ir: bytes
    cpu: str
    features: str = ""
    opt_level: int = 3
    llc_options: tuple[str, ...] = ()

    def settings(self, base: Settings, *, with_assembly: bool = False) -> Settings:
        """``base`` for this kernel: the front end decides processor, level and form of the result."""
        return replace(
            base,
            cpu=self.cpu,
            features=",".join(filter(None, (base.features, self.features))),
            opt_level=self.opt_level,
            llc_options=(*base.llc_options, *self.llc_options),
            emit=Emit.HSACO,
            also=(Emit.MIR, Emit.ASM) if with_assembly else (Emit.MIR,),
        )


@dataclass(frozen=True)
class KernelResult:
    """What came of one module.

    Attributes:
        code_object: the proved code object; None where there is none.
        report: the JSON report of ``verilocc compile``; empty where it did not come to one.
        reason: why there is no code object, in a line; ``""`` where there is one.
        before: machine IR as it entered allocation; ``""`` where it did not come to that.
        after: machine IR after the last phase; likewise.
        assembly: of the code object, where there is no llvm-objdump to show it; else ``""``.
        keyed: the store may keep it, and what is made of it.
    """

    name: str
    code_object: bytes | None
    report: Mapping[str, Any]
    reason: str
    exit_code: int
    before: str
    after: str
    assembly: str = ""
    kept: bool = False
    keyed: bool = True


@dataclass
class Kernels:
    """How the kernels of a module are compiled.

    Attributes:
        settings: what holds for all of them.
        store: where results are kept; None keeps none. What a server had a part in is not kept.
        jobs: kernels at once; 0 for one a core.
    """

    settings: Settings
    store: Store | None = None
    jobs: int = 0
    toolchain: LlvmTools = field(init=False)
    _keys: dict[Settings, Keys] = field(default_factory=dict[Settings, Keys], init=False)

    def __post_init__(self) -> None:
        self.toolchain = choose_tools(self.settings.toolchain, self.settings.llvm)

    def key(self, source: KernelSource) -> str:
        """The name under which the store keeps what comes of a kernel; ``""`` where that is nothing."""
        settings = self._settings(source)
        if self.store is None or settings.server:
            return ""
        if settings not in self._keys:
            try:
                self._keys[settings] = Keys(settings, self.toolchain)
            except VeriloccError:  # an unknown processor, say: compiling it says so
                return ""
        return self._keys[settings].of(hashlib.sha256(source.ir).hexdigest())

    @property
    def _lacks_objdump(self) -> bool:
        return self.toolchain.objdump is None

    def _settings(self, source: KernelSource) -> Settings:
        return source.settings(self.settings, with_assembly=self._lacks_objdump)

    def compile(
        self, sources: Sequence[KernelSource], progress: Callable[[KernelResult], None] = lambda _: None
    ) -> tuple[KernelResult, ...]:
        """Compile every source; the results come in their order.

        Args:
            progress: called as each result comes in.

        An interrupt ends all workers and their tools, and is raised on.
        """
        results: dict[int, KernelResult] = {}
        for number, result in self._results(sources):
            results[number] = result
            progress(result)
        return tuple(results[number] for number in range(len(sources)))

    def _results(self, sources: Sequence[KernelSource]) -> Iterator[tuple[int, KernelResult]]:
        missing: list[int] = []
        for number, source in enumerate(sources):
            result = self._from_store(source)
            if result is None:
                missing.append(number)
            else:
                yield number, result
        if not missing:
            return
        executor = LocalExecutor(min(self.jobs or default_jobs(), len(missing)), KERNEL_SECONDS, memory_mib=_MEMORY_MIB)
        jobs = (Job(n, sources[n].name, sources[n].ir, self._settings(sources[n])) for n in missing)
        with closing(executor.run(jobs)) as finished:
            for done in finished:
                yield done.number, self._kept(sources[done.number], done)

    def _from_store(self, source: KernelSource) -> KernelResult | None:
        key = self.key(source)
        parts = self.store.get(key) if self.store is not None and key else None
        if self.store is None or parts is None:
            return None
        fault = fault_of(parts, hashlib.sha256(source.ir).hexdigest(), self._settings(source))
        texts: list[str] = []
        try:
            names = (BEFORE, Emit.MIR.value, *([Emit.ASM.value] if self._lacks_objdump else []))
            texts = [parts[name].decode() for name in names]
        except (KeyError, ValueError):
            fault = "it has not the machine IR that is wanted"
        if fault:
            self.store.refuse(key, fault)
            return None
        report = json.loads(parts[REPORT])
        return KernelResult(source.name, parts[RESULT], report, "", ExitCode.PROVED, *texts, kept=True)

    def _kept(self, source: KernelSource, done: Result) -> KernelResult:
        keyed = done.keyed and (done.outcome is Outcome.PROVED or done.final)
        key = self.key(source) if keyed else ""
        if self.store is not None and key and done.data is not None and done.report is not None:
            with suppress(OSError):  # a full disk costs the next run its time, not this one its result
                self.store.put(key, {RESULT: done.data, REPORT: to_json(done.report).encode(), **done.parts})
        return KernelResult(
            name=source.name,
            code_object=done.data,
            report=done.report or {},
            reason="" if done.data is not None else _reason(done),
            exit_code=EXIT_CODES[done.outcome],
            before=done.parts.get(BEFORE, b"").decode(),
            after=done.parts.get(Emit.MIR.value, b"").decode(),
            assembly=done.parts.get(Emit.ASM.value, b"").decode(),
            keyed=keyed,
        )


def default_jobs() -> int:
    """As many workers as there are cores, eight at most."""
    return max(1, min(8, len(os.sched_getaffinity(0))))


def _reason(done: Result) -> str:
    """Why it is not proved; a phase says with what verdict it ended."""
    for function in (done.report or {}).get("functions", ()):
        for phase in function["phases"]:
            if phase["outcome"] != "proved":
                why = " ".join(phase["attempts"][-1]["reason"].split())
                return f"{function['name']}, {phase['phase'].upper()}: {phase['outcome']}: {why}"
    return done.message or f"it ended {done.outcome}"


# The verdict on a kernel that stays as its own compiler allocated it: an audit of what that compiler prints of it.
#
# ``verilocc audit --native`` says more of the same kernels.


NATIVE = "native, proved"
"""The status of a kernel that stays, and is proved as it is."""


@dataclass(frozen=True)
class NativeVerdict:
    """What the audit of a compiler's own allocation came to.

    Attributes:
        outcome: of all its phases together.
        phases: how many were audited, of all its functions.
        obligations: checked in them.
        reason: the first finding, or why there was no audit; ``""`` where it is proved.
    """

    outcome: str
    phases: int
    obligations: int
    reason: str = ""

    @property
    def proved(self) -> bool:
        return self.outcome == Outcome.PROVED.value

    @property
    def refuted(self) -> bool:
        return self.outcome == Outcome.REFUTED.value

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return NATIVE if self.proved else f"native, {self.outcome}: {self.reason}"


def native_verdict(made: Callable[[], NativeKernel], settings: Settings) -> NativeVerdict:
    """Audit what ``made`` gives; where it or the audit fails, nothing is proved, and the reason says why."""
    try:
        run = audit_native([made()], limits=SolverLimits(settings.solver_seconds))
    except VeriloccError as error:
        return not_audited(error)
    audited = [function for pair in run.pairs for function in pair.report.functions]
    finding = next((f for f in audited if f.outcome is run.outcome and f.findings), None)
    reason = "" if run.outcome is Outcome.PROVED else "nothing was audited"
    if finding is not None and run.outcome is not Outcome.PROVED:
        reason = render(finding.findings[0]).splitlines()[0]
    return NativeVerdict(str(run.outcome), len(audited), sum(f.obligations for f in audited), reason)


def not_audited(error: VeriloccError) -> NativeVerdict:
    """The verdict where there is no text to audit."""
    return NativeVerdict(str(Outcome.UNKNOWN), 0, 0, error.what)
