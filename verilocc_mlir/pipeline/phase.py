"""One phase of a whole file: our allocation where it is proved, LLVM's where it is not, each function on its own.

LLVM allocates all functions of a file at once; its version of one function is spliced into our text, since the
functions of a MIR file are independent documents over one IR module. Whatever the mix, the audit reads the very text
that LLVM will read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import FunctionAudit, audit_function
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver
from verilocc_mlir.allocators import Allocator
from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.errors import ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import (
    Attempted,
    AttemptLimits,
    SpillLimits,
    Start,
    audit_verdict,
    audited,
    begin,
    try_allocators,
)
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import Attempt, Moves, PhaseReport
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.target.targets import Target

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording

_ATTRIBUTE_GROUP = re.compile(r" #\d+\b")
_SAVE = re.compile(r"\bSI_SPILL_\w+_SAVE\b")
_PREDECESSORS = re.compile(r" +; preds = .*$")


@dataclass(frozen=True)
class PhaseResult:
    """The text to resume from, None where some function has none (ours failed, and there is no fallback); and what
    happened to each function, by name.
    """

    text: str | None
    reports: dict[str, PhaseReport]


@dataclass
class _Function:
    """One function on its way through the phase."""

    before: MachineFunction
    clock: Clock
    attempts: list[Attempt]
    chosen: MachineFunction | None = None
    audit: FunctionAudit | None = None
    spills: tuple[SpillAction, ...] = ()
    attempted: Attempted | None = None
    llvm: MachineFunction | None = None
    solver: RecordingSolver | None = None

    def needs_llvm(self) -> bool:
        return self.chosen is None or (self.audit is not None and self.audit.outcome is not Outcome.PROVED)


@dataclass
class Draft:
    """One phase before any audit.

    Attributes:
        before: machine IR as it enters the phase.
        after: the same with what our allocators made of it, ``""`` where they made nothing of any function.
        is_ours: our allocators have something for every function.
        result: the phase audited, once it is.
    """

    before: str
    path: str
    phase: Phase
    file: MirFile
    functions: list[_Function]
    after: str
    is_ours: bool
    result: PhaseResult | None = None

    @property
    def is_fragmented(self) -> bool:
        """Whether no place was found for some tuple at the first try."""
        return any(f.attempts[0].cause == "fragmentation" for f in self.functions if f.attempts)

    @property
    def saves(self) -> bool:
        """Whether registers are saved in it, to memory or to lanes."""
        return "SI_SPILL_" in self.after and _SAVE.search(self.after) is not None


@dataclass
class Shared:
    """What the variants of one compilation have in common, kept for the next one.

    Attributes:
        files: machine IR that was parsed, by its text.
        starts: attempts before any spill code, by function, phase (one text enters both where no scalar is allocated)
            and allocators; the function is kept, so that its identity stays its own.
    """

    files: dict[str, MirFile] = field(default_factory=dict[str, MirFile])
    starts: dict[tuple[int, Phase, tuple[Allocator, ...]], tuple[MachineFunction, Start]] = field(
        default_factory=dict[tuple[int, Phase, tuple[Allocator, ...]], tuple[MachineFunction, Start]]
    )

    def parsed(self, text: str, path: str) -> MirFile:
        """The file of a text that enters a phase.

        Raises:
            InputError: it is not MIR.
        """
        if text not in self.files:
            self.files[text] = parse_mir(text, path)
        return self.files[text]


class PhaseRunner:
    """Runs phases of one file with the same allocator, target and limits.

    Args:
        allocators: ours, in the order they are tried; none to take LLVM's allocation everywhere.
        llvm_allocate: MIR before the phase to MIR after LLVM's own allocation of it.
        fallback: take LLVM's allocation where ours is not proved.
        spills: what is done where registers do not suffice.
        recording: keeps what every phase was decided on; None: nobody wants to look.
    """

    def __init__(
        self,
        allocators: Sequence[Allocator],
        target: Target,
        llvm_allocate: Callable[[str, Phase], str],
        *,
        fallback: bool,
        spills: SpillLimits,
        solver_seconds: float,
        clock: Clock,
        recording: Recording | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.allocators = tuple(allocators)
        self.target = target
        self.llvm_allocate = llvm_allocate
        self.fallback = fallback
        self.spills = spills
        self.solver_seconds = solver_seconds
        self.clock = clock
        self.recording = recording
        self.shared = shared or Shared()

    def run(self, text: str, path: str, phase: Phase) -> PhaseResult:
        """Allocate ``phase`` in ``text``.

        Raises:
            InputError: the text is not MIR.
            ToolchainError: LLVM could not allocate what we could not either.
        """
        return self.settle(self.draft(text, path, phase))

    def draft(self, text: str, path: str, phase: Phase) -> Draft:
        """Our allocators' answer for ``phase`` in ``text``; no audit yet.

        Raises:
            InputError: the text is not MIR.
        """
        with self.clock.measure("parse"):
            file = self.shared.parsed(text, path)
        functions = self._functions(file)
        for function in functions if self.allocators else ():
            self._ours(file, function, phase)
            self.clock.absorb(function.clock)
        after = self._printed(file, functions) if any(f.chosen for f in functions) else ""
        return Draft(text, path, phase, file, functions, after, all(f.chosen for f in functions))

    def settle(self, draft: Draft) -> PhaseResult:
        """The phase audited, with LLVM's allocation where ours is not proved; done once for a draft.

        Raises:
            ToolchainError: LLVM could not allocate what we could not either.
        """
        if draft.result is None:
            draft.result = self._settled(draft)
        return draft.result

    def _settled(self, draft: Draft) -> PhaseResult:
        file, functions, phase, text, after = draft.file, draft.functions, draft.phase, draft.before, draft.after
        before = [dict(function.clock.seconds) for function in functions]
        if after:
            self._audit_text(file, functions, phase, after)
        if any(f.needs_llvm() for f in functions) and (self.fallback or not self.allocators):
            self._take_llvm(file, text, functions, phase)
            after = self._printed(file, functions)
            self._audit_text(file, functions, phase, after)
        if self.recording is not None:
            self._compare(text, functions, phase)
            self._record(file, functions, phase)
        reports = {f.before.name: self._report(f, phase) for f in functions}
        if any(f.chosen is None for f in functions):
            return PhaseResult(None, reports)
        for function, earlier in zip(functions, before, strict=True):
            self.clock.absorb(function.clock.since(earlier))
        return PhaseResult(after, reports)

    def audit_llvm(
        self, before: str, after: str, path: str, phase: Phase, reason: str, names: Collection[str] | None = None
    ) -> PhaseResult:
        """Audit a phase that LLVM ran already; ``reason`` says why ours did not take part.

        Args:
            names: the functions to audit; None: all of them.
        """
        with self.clock.measure("parse"):
            file, allocated = parse_mir(before, path), parse_mir(after, f"{path} after {phase}")
        pairs = [
            (function, llvm_function)
            for function, llvm_function in zip(self._functions(file), allocated.functions, strict=True)
            if names is None or llvm_function.name in names
        ]
        functions = [function for function, _ in pairs]
        for function, llvm_function in pairs:
            if self.allocators:
                function.attempts.append(Attempt(self.allocators[0].name, "build", reason))
            function.attempts.append(Attempt(LLVM_ALLOCATOR, "llvm"))
            function.chosen = function.llvm = llvm_function
            self._audit(file, function, phase, llvm_function)
            self.clock.absorb(function.clock)
        self._record(file, functions, phase)
        return PhaseResult(after, {f.before.name: self._report(f, phase) for f in functions})

    def _functions(self, file: MirFile) -> list[_Function]:
        recorded = self.recording is not None
        return [
            _Function(f, Clock(self.clock.budget), [], solver=RecordingSolver() if recorded else None)
            for f in file.functions
        ]

    def _compare(self, text: str, functions: list[_Function], phase: Phase) -> None:
        """LLVM's own allocation of the same text, to be shown beside ours, where it was not needed."""
        if any(f.llvm is None for f in functions):
            with contextlib.suppress(VeriloccError), self.clock.measure("compare"):
                versions = {f.name: f for f in parse_mir(self.llvm_allocate(text, phase), "LLVM's").functions}
                for function in functions:
                    function.llvm = versions.get(function.before.name)

    def _record(self, file: MirFile, functions: list[_Function], phase: Phase) -> None:
        if self.recording is None:
            return
        from verilocc_mlir.results.page import Action, PhaseRecord

        for function in functions:
            attempted = function.attempted
            # With spill code in it, the question was another function's: what was done is then read off the text.
            exact = attempted if attempted is not None and not attempted.spills else None
            ours = exact is not None and exact.function is not None and function.chosen is exact.function
            record = PhaseRecord(
                function=function.before.name,
                phase=phase,
                before=function.before,
                after=function.chosen,
                llvm=function.llvm,
                problem=exact.problem if exact is not None else None,
                proposal=exact.proposed[-1].proposal if exact is not None and ours else None,
                asked=tuple(function.solver.answers) if function.solver is not None else (),
                actions=tuple(Action(s.kind, s.register, s.point, s.reason, s.cost) for s in function.spills),
            )
            self.recording.add(file, self.target, record)

    def _ours(self, file: MirFile, function: _Function, phase: Phase) -> None:
        limits = AttemptLimits(self.solver_seconds, solver=function.solver, spills=self.spills)
        try:
            start = self._start(file, function, phase, limits)
            attempted = try_allocators(
                self.allocators, file, function.before, self.target, phase, function.clock, limits, start
            )
        except UnsupportedError as error:
            # The function with spill code, or with values in another register file, is not supported. Were the function
            # as it is not supported, an attempt would say so.
            attempted = Attempted((Attempt(self.allocators[0].name, "build", error.what),))
        function.attempts += attempted.attempts
        function.attempted, function.chosen, function.spills = attempted, attempted.function, attempted.spills
        if attempted.spills and function.chosen is not None:
            function.chosen = in_shared_slots(function.chosen)

    def _start(self, file: MirFile, function: _Function, phase: Phase, limits: AttemptLimits) -> Start:
        """The attempts before any spill code: an earlier variant's, if there are such, and nobody wants to look."""
        key = id(function.before), phase, self.allocators
        if self.recording is not None or key not in self.shared.starts:
            start = begin(self.allocators, file, function.before, self.target, phase, function.clock, limits)
            self.shared.starts[key] = function.before, start
        return self.shared.starts[key][1]

    def _take_llvm(self, file: MirFile, text: str, functions: list[_Function], phase: Phase) -> None:
        """Put LLVM's version in the place of each function that needs it."""
        llvm_text = self.llvm_allocate(text, phase)
        with self.clock.measure("parse"):
            llvm = parse_mir(llvm_text, file.path)
        _must_have_the_same_module(file, llvm)
        versions = {f.name: f for f in llvm.functions}
        for function in functions:
            function.llvm = versions[function.before.name]
            if function.needs_llvm():
                function.chosen = versions[function.before.name]
                function.audit = None
                function.spills = ()
                function.attempts.append(Attempt(LLVM_ALLOCATOR, "llvm"))

    def _printed(self, file: MirFile, functions: list[_Function]) -> str:
        """The file as it now stands."""
        with self.clock.measure("print"):
            return print_mir(replace(file, functions=tuple(f.chosen or f.before for f in functions)))

    def _audit_text(self, file: MirFile, functions: list[_Function], phase: Phase, after: str) -> None:
        """Read the printed file again, and audit every function in it that was not yet."""
        with self.clock.measure("parse"):
            read_again = self.shared.files.get(after) or parse_mir(after, f"{file.path} after {phase}")
        for function, printed in zip(functions, read_again.functions, strict=True):
            if function.chosen is None or function.audit is not None:
                continue
            self._audit(file, function, phase, printed)

    def _audit(self, file: MirFile, function: _Function, phase: Phase, after: MachineFunction) -> None:
        function.audit = audit_within(
            self.solver_seconds,
            file,
            function.before,
            after,
            self.target,
            function.clock,
            function.solver,
            saved_later=phase == "sgpr",
        )
        function.attempts[-1] = audited(function.attempts[-1], audit_verdict(function.audit))

    def _report(self, function: _Function, phase: Phase) -> PhaseReport:
        fallback = bool(self.allocators) and function.attempts[-1].allocator == LLVM_ALLOCATOR
        moves = moves_of(function.audit) if function.audit else Moves()
        # The reason of our last attempt. A server that was asked before it has a line of its own.
        reason = function.attempts[-2].reason if fallback else ""
        seconds = dict(function.clock.seconds)
        return PhaseReport(phase, tuple(function.attempts), fallback, reason, moves, seconds, function.spills)


def audit_within(
    solver_seconds: float,
    file: MirFile,
    before: MachineFunction,
    after: MachineFunction,
    target: Target,
    clock: Clock,
    solver: Solver | None = None,
    *,
    saved_later: bool = False,
) -> FunctionAudit:
    """The audit of one function of ``file``; ``clock`` takes its time."""
    with clock.measure("audit"):
        return audit_function(
            file, before, after, target, timeout_s=solver_seconds, solver=solver, saved_later=saved_later
        )


def moves_of(audit: FunctionAudit) -> Moves:
    """The audit's counts in the report's form."""
    counts = audit.moves
    return Moves(counts.copies_before, counts.copies_after, counts.saves, counts.reloads, counts.rematerialised)


def with_functions(text: str, other: str, names: Collection[str], path: str) -> str:
    """Allocated text with the named functions as ``other`` has them, byte for byte.

    A function's document refers to the IR module alone, and calls keep to the calling convention or to the masks in
    both texts, which are proved of the final code (``callees.py``), so that what was audited of a function holds in
    whatever file of that module it stands.

    Raises:
        ToolchainError: the IR modules of both differ.
    """
    file, versions = parse_mir(text, path), parse_mir(other, path)
    _must_have_the_same_module(file, versions)
    replacements = {f.name: f for f in versions.functions if f.name in names}
    return print_mir(replace(file, functions=tuple(replacements.get(f.name, f) for f in file.functions)))


def same_module(file: MirFile, other: MirFile) -> bool:
    """Whether the IR modules of both are the same but for attributes."""
    return _without_attributes(file.preamble) == _without_attributes(other.preamble)


def _must_have_the_same_module(file: MirFile, llvm: MirFile) -> None:
    if not same_module(file, llvm):
        raise ToolchainError(
            "LLVM changed the IR module while it allocated registers, so its functions cannot be put beside ours",
            where=file.path,
            hint="report the file, and compile the functions one by one until then",
        )


def _without_attributes(preamble: str) -> list[str]:
    """The IR module without comments and attribute groups.

    llc renumbers groups when it adds the target to intrinsics declared late, and lists the predecessors of a block in
    any order. What machine instructions refer to, names and metadata numbers, must be the same.
    """
    lines = [line for line in preamble.split("\n") if not line.lstrip().startswith(("attributes #", ";"))]
    return [_ATTRIBUTE_GROUP.sub("", _PREDECESSORS.sub("", line)) for line in lines]


def in_shared_slots(function: MachineFunction) -> MachineFunction:
    """The function with one stack slot for values that are never stored at the same time."""
    # Few functions spill.
    from verilocc_mlir.spilling.code import with_shared_slots

    return with_shared_slots(function)
