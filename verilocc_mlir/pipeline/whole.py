"""All phases of a file in one audit of each function: the text before the first against the text after the last.

That costs less than an audit a phase, and includes what LLVM does between the phases. Where it proves a function, that
is its proof. Else each phase is audited alone (``phase.py``). That stands where the audit of all is undecided, or LLVM
changed nothing in between, so that the proofs of the phases compose. Where LLVM did, and all at once is refuted, the
function is refuted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.audit import FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.attempt import audit_verdict, audited
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import Draft, Shared, audit_within, moves_of
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import LAST_PHASE, Attempt, CheckFinding, CheckResult, Moves, PhaseReport
from verilocc_mlir.toolchain.long_branches import near_branches

Reports = Mapping[str, Sequence[PhaseReport]]
"""The phases of each function, by name."""

WWM_REASON = "MIR does not say which registers whole-wave values may take"

Audits = dict[str, tuple[FunctionAudit, float]]
"""The audit of each function, and its CPU seconds."""

_ELSEWHERE = CheckResult(Outcome.PROVED, 0)
"""The verdict of a phase whose obligations are counted in the last one."""


class WholeAudit(Struct):
    """The audits of one file.

    Attributes:
        work: with the allocators whose answers are audited.
        known: audits and their CPU seconds by the texts before and after and by function; it grows.
        known_after: the text after the last phase that was parsed last.
    """

    work: Work
    shared: Shared
    known: dict[tuple[str, str, str], tuple[FunctionAudit, float]]
    known_after: tuple[str, MirFile] | None = None

    def of_ours(
        self, scalar: Draft, vector: Draft, names: Collection[str] | None, *, whole_wave: bool
    ) -> Reports | None:
        """Our allocation of the scalar and of the vector phase, of the functions named, of all where none is; None
        where not each of them is proved.

        Args:
            whole_wave: LLVM's whole-wave phase is between them.
        """
        audits = self.audits(scalar.before, vector.after, names)
        if not _all_proved(audits):
            return None
        reports: dict[str, Sequence[PhaseReport]] = {}
        for first, last in zip(scalar.functions, vector.functions, strict=True):
            name = first.before.name
            if name not in audits:
                continue
            verdict, seconds = audits[name]
            middle = [_by_llvm("wwm", _ELSEWHERE, self._attempts(WWM_REASON), WWM_REASON)] if whole_wave else []
            spent = last.events.seconds
            spent["audit"] = spent.get("audit", 0.0) + seconds
            all_again = verdict.moves.rematerialised
            again = sum(len(spill.reloads) for spill in first.spills if spill.kind == "rematerialise")
            scalars_again = min(again, all_again)  # What was planned; the audit may pair some of it.
            moves = _moves(first.before, first.chosen or first.before, scalars_again)
            reports[name] = [
                PhaseReport(
                    scalar.phase, _with(first.attempts, _ELSEWHERE), fallback=False, fallback_reason="", moves=moves,
                    seconds=first.events.seconds, spills=first.spills, audited_with=LAST_PHASE,
                ),
                *middle,
                PhaseReport(
                    vector.phase, _with(last.attempts, audit_verdict(verdict)), fallback=False, fallback_reason="",
                    moves=_moves(last.before, last.chosen or last.before, all_again - scalars_again),
                    seconds=spent, spills=last.spills,
                ),
            ]  # fmt: skip
        return reports

    def of_llvm(
        self, before: str, after: str, phases: Sequence[Phase], names: Collection[str], *, to_the_end: bool
    ) -> Reports:
        """LLVM's allocation in ``phases``, of those of the functions named that are proved or refuted.

        Args:
            to_the_end: as for ``audits``.
        """
        audits = self.audits(before, after, names, to_the_end=to_the_end)
        scalar, *middle, last = phases
        lanes = {function.name: _in_lanes(function) for function in self._parsed_after(after).functions}
        return {
            name: [
                replace(_by_llvm(scalar, _ELSEWHERE), moves=lanes[name]),
                *(_by_llvm(phase, _ELSEWHERE) for phase in middle),
                replace(_by_llvm(last, audit_verdict(a)), moves=moves_of(a), seconds={"audit": seconds}),
            ]
            for name, (a, seconds) in audits.items()
            if a.outcome in (Outcome.PROVED, Outcome.REFUTED)
        }

    def judged(self, before: str, after: str, reports: Reports) -> Reports:
        """The reports of phases audited alone; functions that they prove and that are refuted at once are refuted."""
        proved = [name for name, of in reports.items() if all(r.outcome is Outcome.PROVED for r in of)]
        audits = self.audits(before, after, proved, to_the_end=True) if proved else {}
        refuted = {name: a for name, (a, _) in audits.items() if a.outcome is Outcome.REFUTED}
        return {
            name: [*of[:-1], _refuted(of[-1], refuted[name])] if name in refuted else of for name, of in reports.items()
        }

    def audits(
        self, before: str, after: str, names: Collection[str] | None = None, *, to_the_end: bool = False
    ) -> Audits:
        """The audit of each function named, of all where none is, and its CPU seconds, by name; up to the first that is
        not proved, or ``to_the_end``.
        """
        work = self.work
        with work.events.measure("parse"):
            file = self.shared.parsed(before, work.path)
            allocated = self._parsed_after(after)
        is_near = near_branches(after, lambda: work.compiler)
        partners = {function.name: function for function in allocated.functions}
        audits: Audits = {}
        for function in file.functions:
            if names is not None and function.name not in names:
                continue
            key = before, after, function.name
            if key not in self.known:
                events = Events()
                partner = partners[function.name]
                seconds = work.settings.solver_seconds
                audit = audit_within(seconds, file, function, partner, work.target, events, is_near=is_near)
                work.events.tell(*events.told)
                self.known[key] = audit, events.seconds["audit"]
            audits[function.name] = self.known[key]
            if not to_the_end and audits[function.name][0].outcome is not Outcome.PROVED:
                break
        return audits

    def _parsed_after(self, after: str) -> MirFile:
        if self.known_after is None or self.known_after[0] != after:
            where = f"{self.work.path} after {LAST_PHASE}"
            self.known_after = after, self.shared.files.get(after) or parse_mir(after, where)
        return self.known_after[1]

    def _attempts(self, reason: str) -> tuple[Attempt, ...]:
        return tuple(Attempt(allocator.name, "build", reason) for allocator in self.work.allocators[:1])


def without_seconds(names: Collection[str]) -> Reports:
    """The reports of functions that LLVM allocated and for whose audit there are no seconds left."""
    finding = CheckFinding("seconds", Outcome.UNKNOWN, "the seconds are over")
    return {name: [_by_llvm(LAST_PHASE, CheckResult(Outcome.UNKNOWN, 0, (finding,)))] for name in names}


def _moves(before: MachineFunction, after: MachineFunction, rematerialised: int) -> Moves:
    """Copies and spill code of one phase."""
    opcodes = Counter(i.opcode for b in after.blocks for i in b.instructions)
    spills = [(opcode, count) for opcode, count in opcodes.items() if opcode.startswith("SI_SPILL_")]
    return Moves(
        sum(1 for b in before.blocks for i in b.instructions if i.opcode == "COPY"),
        opcodes["COPY"],
        sum(count for opcode, count in spills if opcode.endswith("_SAVE")),
        sum(count for opcode, count in spills if opcode.endswith("_RESTORE")),
        rematerialised,
    )


def _in_lanes(function: MachineFunction) -> Moves:
    """Scalars saved to lanes of vector registers: what is left of the scalar phase's spill code after the last one."""
    opcodes = Counter(i.opcode for b in function.blocks for i in b.instructions)
    return Moves(saves=opcodes["SI_SPILL_S32_TO_VGPR"], reloads=opcodes["SI_RESTORE_S32_FROM_VGPR"])


def _all_proved(audits: Audits) -> bool:
    return all(audit.outcome is Outcome.PROVED for audit, _ in audits.values())


def _refuted(report: PhaseReport, audit: FunctionAudit) -> PhaseReport:
    """The report of the last phase, where each phase is proved and all together are not."""
    last = audited(report.attempts[-1], audit_verdict(audit))
    reason = f"each phase is proved, but with what LLVM does between them: {last.reason}"
    return replace(report, attempts=(*report.attempts[:-1], replace(last, reason=reason)))


def _with(attempts: Sequence[Attempt], verdict: CheckResult) -> tuple[Attempt, ...]:
    return (*attempts[:-1], audited(attempts[-1], verdict))


def _by_llvm(phase: Phase, verdict: CheckResult, earlier: tuple[Attempt, ...] = (), reason: str = "") -> PhaseReport:
    attempts = (*earlier, audited(Attempt(LLVM_ALLOCATOR, "llvm"), verdict))
    with_last = None if phase == LAST_PHASE else LAST_PHASE
    return PhaseReport(phase, attempts, bool(earlier), reason, Moves(), audited_with=with_last)
