"""The result of one ``verilocc audit`` as frozen data: the one source of every form and of the exit code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from smt_verifier.audit import AuditReport, Finding, FunctionAudit
from smt_verifier.outcome import Outcome, combine
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.results.compile import EXIT_CODES

AUDIT_VERSION = 2
"""Version of the JSON form; raised whenever ``audit.schema.json`` changes."""


@dataclass(frozen=True)
class Listing:
    """A text as it was audited: ``path`` is its name in messages."""

    path: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.text.split("\n"))


@dataclass(frozen=True)
class AuditedPair:
    """One text before and one after allocation, and the verdict on each of their functions.

    Attributes:
        phase: ``sgpr``, ``wwm`` or ``vgpr`` where LLVM was run phase by phase, ``all`` for the text before the first
            and after the last; ``""`` for two given files.
        before: the text that the allocator was given.
        cpu_seconds: the audit's, solver included; parsing and LLVM left out.
    """

    phase: str
    before: Listing
    after: Listing
    report: AuditReport
    cpu_seconds: float

    def name(self, function: FunctionAudit) -> str:
        """``k``, or ``k, VGPR`` where there are phases."""
        return f"{function.function}, {self.label}" if self.phase else function.function

    @property
    def label(self) -> str:
        return "all phases" if self.phase == "all" else self.phase.upper()

    def listing(self, side: str) -> Listing:
        return self.before if side == "pre" else self.after


@dataclass(frozen=True)
class AuditRun:
    """One run.

    Attributes:
        llvm: version line of the LLVM that made the texts; ``""`` where they were given.
        source: what both sides were made from; None where they were given.
        allocator: LLVM's allocator that was asked for; ``""`` where the texts were given.
        pairs: in the order of the phases.
        notes: anything else a person should know.
    """

    version: str
    llvm: str
    target: str
    source: Listing | None
    allocator: str
    pairs: tuple[AuditedPair, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of all functions in all phases; UNKNOWN where nothing was audited."""
        outcomes = [f.outcome for p in self.pairs for f in p.report.functions]
        return combine(outcomes) if outcomes else Outcome.UNKNOWN

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.outcome]

    def findings(self) -> Iterator[tuple[AuditedPair, FunctionAudit, Finding]]:
        for pair in self.pairs:
            for function in pair.report.functions:
                for finding in function.findings:
                    yield pair, function, finding
