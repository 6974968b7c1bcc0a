"""One phase of a whole file: our allocation where it is proved, LLVM's where it is not, each function on its own.

LLVM allocates all functions of a file at once; its version of one function is spliced into our text, since the
functions of a MIR file are independent documents over one IR module. Whatever the mix, the audit reads the very text
that LLVM will read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.audit import FunctionAudit, audit_function
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver
from verilocc_mlir.allocators import Allocator
from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR
from verilocc_mlir.errors import ToolchainError, UnsupportedError
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
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.problem.model import Phase
from verilocc_mlir.results.compile import Attempt, Moves, PhaseReport
from verilocc_mlir.spilling import SpillAction
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.long_branches import near_branches
from verilocc_mlir.toolchain.staged import LlvmPhase

if TYPE_CHECKING:
    from verilocc_mlir.results.page import PhaseRecord

_ATTRIBUTE_GROUP = re.compile(r" #\d+\b")
_SAVE = re.compile(r"\bSI_SPILL_\w+_SAVE\b")
_PREDECESSORS = re.compile(r" +; preds = .*$")


class PhaseResult(Struct, frozen=True):
    """The text to resume from, None where some function has none (ours failed, and there is no fallback); what happened
    to each function, by name; and what that was decided on, where it is kept.
    """

    text: str | None
    reports: dict[str, PhaseReport]
    records: tuple[PhaseRecord, ...] = ()


class Function(Struct):
    """One function on its way through the phase. ``events``: what is done for it, told by the phase once it is over."""

    before: MachineFunction
    events: Events
    solver: Solver | None = None
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    chosen: MachineFunction | None = None
    audit: FunctionAudit | None = None
    spills: tuple[SpillAction, ...] = ()
    attempted: Attempted | None = None
    llvm: MachineFunction | None = None

    def needs_llvm(self) -> bool:
        return self.chosen is None or (self.audit is not None and self.audit.outcome is not Outcome.PROVED)


class Draft(Struct):
    """One phase before any audit.

    Attributes:
        before: machine IR as it enters the phase.
        after: the same with what our allocators made of it, ``""`` where they made nothing of any function.
        is_ours: our allocators have something for every function.
        result: the phase audited, once it is.
    """

    before: str
    phase: Phase
    file: MirFile
    functions: list[Function]
    after: str
    is_ours: bool
    result: PhaseResult | None = None

    @property
    def is_fragmented(self) -> bool:
        """Whether no place was found for some tuple at the first try."""
        return any(f.attempts[0].cause == "fragmentation" for f in self.functions if f.attempts)

    @property
    def is_too_dear(self) -> bool:
        """Whether some function was given up because more would have to be spilled than is allowed."""
        return any(f.attempted is not None and f.chosen is None and f.attempted.is_too_dear for f in self.functions)

    @property
    def saves(self) -> bool:
        """Whether registers are saved in it, to memory or to lanes."""
        return "SI_SPILL_" in self.after and _SAVE.search(self.after) is not None


class Shared(Struct):
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


class PhaseRunner(Struct):
    """Runs phases of one file with the same allocators and limits.

    Attributes:
        work: with the allocators to try; with none LLVM's allocation is taken everywhere.
        spills: what is done where registers do not suffice.
        shared: with other variants.
        most_spilled: see ``AttemptLimits``; by function, where there is a limit.
    """

    work: Work
    spills: SpillLimits = field(default_factory=SpillLimits)
    shared: Shared = field(default_factory=Shared)
    most_spilled: Mapping[str, float] = field(default_factory=dict[str, float])

    def run(self, text: str, phase: Phase) -> PhaseResult:
        """Allocate ``phase`` in ``text``.

        Raises:
            InputError: the text is not MIR.
            ToolchainError: LLVM could not allocate what we could not either.
        """
        return self.settle(self.draft(text, phase))

    def draft(self, text: str, phase: Phase) -> Draft:
        """Our allocators' answer for ``phase`` in ``text``; no audit yet.

        Raises:
            InputError: the text is not MIR.
        """
        with self.work.events.measure("parse"):
            file = self.shared.parsed(text, self.work.path)
        functions = self._functions(file)
        for function in functions if self.work.allocators else ():
            self._ours(file, function, phase)
            self.work.events.tell(*function.events.told)
        after = self._printed(file, functions) if any(f.chosen for f in functions) else ""
        return Draft(text, phase, file, functions, after, all(f.chosen for f in functions))

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
        told = [len(function.events.told) for function in functions]
        if after:
            self._audit_text(file, functions, phase, after)
        if any(f.needs_llvm() for f in functions) and (self.work.settings.fallback or not self.work.allocators):
            self._take_llvm(file, text, functions, phase)
            after = self._printed(file, functions)
            self._audit_text(file, functions, phase, after)
        records = self._records(draft)
        reports = {f.before.name: self._report(f, phase) for f in functions}
        if any(f.chosen is None for f in functions):
            return PhaseResult(None, reports, records)
        for function, earlier in zip(functions, told, strict=True):
            self.work.events.tell(*function.events.told[earlier:])
        return PhaseResult(after, reports, records)

    def audit_llvm(
        self, before: str, after: str, phase: Phase, reason: str, names: Collection[str] | None = None
    ) -> PhaseResult:
        """Audit a phase that LLVM ran already; ``reason`` says why ours did not take part.

        Args:
            names: the functions to audit; None: all of them.
        """
        path = self.work.path
        with self.work.events.measure("parse"):
            file, allocated = parse_mir(before, path), parse_mir(after, f"{path} after {phase}")
        pairs = [
            (function, llvm_function)
            for function, llvm_function in zip(self._functions(file), allocated.functions, strict=True)
            if names is None or llvm_function.name in names
        ]
        functions = [function for function, _ in pairs]
        is_near = self._near_branches(after, phase)
        for function, llvm_function in pairs:
            if self.work.allocators:
                function.attempts.append(Attempt(self.work.allocators[0].name, "build", reason))
            function.attempts.append(Attempt(LLVM_ALLOCATOR, "llvm"))
            function.chosen = function.llvm = llvm_function
            self._audit(file, function, phase, llvm_function, is_near)
            self.work.events.tell(*function.events.told)
        records = self._records(Draft(before, phase, file, functions, after, is_ours=False))
        return PhaseResult(after, {f.before.name: self._report(f, phase) for f in functions}, records)

    def of_llvm(self, text: str, phase: Phase) -> str:
        """``text`` with LLVM's allocation of ``phase``, in the module of ``text``.

        Raises:
            InputError: the text is not MIR. ToolchainError: LLVM could not allocate it.
        """
        with self.work.events.measure("parse"):
            file = self.shared.parsed(text, self.work.path)
            llvm = parse_mir(self._llvm_allocate(text, phase), file.path)
        _must_have_the_same_module(file, llvm)
        return print_mir(replace(file, functions=llvm.functions))

    def _functions(self, file: MirFile) -> list[Function]:
        return [Function(f, Events(self.work.events.budget), self._solver()) for f in file.functions]

    def _solver(self) -> Solver | None:
        """Who is asked about a function; None: the default solver."""
        return None

    def _records(self, draft: Draft) -> tuple[PhaseRecord, ...]:
        """What a phase that is audited was decided on; nobody wants to look."""
        return ()

    def _llvm_allocate(self, text: str, phase: Phase) -> str:
        return self.work.compiler.llvm_allocate(text, LlvmPhase[phase.upper()])

    def _ours(self, file: MirFile, function: Function, phase: Phase) -> None:
        work = self.work
        limits = AttemptLimits(
            work.settings.solver_seconds,
            solver=function.solver,
            spills=self.spills,
            most_spilled=self.most_spilled.get(function.before.name, math.inf),
        )
        try:
            start = self._start(file, function, phase, limits)
            attempted = try_allocators(
                work.allocators, file, function.before, work.target, phase, function.events, limits, start
            )
        except UnsupportedError as error:
            # The function with spill code, or with values in another register file, is not supported. Were the function
            # as it is not supported, an attempt would say so.
            attempted = Attempted((Attempt(work.allocators[0].name, "build", error.what),))
        function.attempts += attempted.attempts
        function.attempted, function.chosen, function.spills = attempted, attempted.function, attempted.spills
        if attempted.spills and function.chosen is not None:
            function.chosen = in_shared_slots(function.chosen)

    def _start(self, file: MirFile, function: Function, phase: Phase, limits: AttemptLimits) -> Start:
        """The attempts before any spill code: an earlier variant's, if there are such."""
        work = self.work
        key = id(function.before), phase, work.allocators
        if key not in self.shared.starts:
            start = begin(work.allocators, file, function.before, work.target, phase, function.events, limits)
            self.shared.starts[key] = function.before, start
        return self.shared.starts[key][1]

    def _take_llvm(self, file: MirFile, text: str, functions: list[Function], phase: Phase) -> None:
        """Put LLVM's version in the place of each function that needs it."""
        llvm_text = self._llvm_allocate(text, phase)
        with self.work.events.measure("parse"):
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

    def _printed(self, file: MirFile, functions: list[Function]) -> str:
        """The file as it now stands."""
        with self.work.events.measure("print"):
            return print_mir(replace(file, functions=tuple(f.chosen or f.before for f in functions)))

    def _audit_text(self, file: MirFile, functions: list[Function], phase: Phase, after: str) -> None:
        """Read the printed file again, and audit every function in it that was not yet."""
        with self.work.events.measure("parse"):
            read_again = self.shared.files.get(after) or parse_mir(after, f"{file.path} after {phase}")
        is_near = self._near_branches(after, phase)
        for function, printed in zip(functions, read_again.functions, strict=True):
            if function.chosen is None or function.audit is not None:
                continue
            self._audit(file, function, phase, printed, is_near)

    def _near_branches(self, after: str, phase: Phase) -> Callable[[str], bool]:
        return near_branches(after, lambda: self.work.compiler, LlvmPhase[phase.upper()])

    def _audit(
        self, file: MirFile, function: Function, phase: Phase, after: MachineFunction, is_near: Callable[[str], bool]
    ) -> None:
        function.audit = audit_within(
            self.work.settings.solver_seconds,
            file,
            function.before,
            after,
            self.work.target,
            function.events,
            function.solver,
            saved_later=phase == "sgpr",
            is_near=is_near,
        )
        function.attempts[-1] = audited(function.attempts[-1], audit_verdict(function.audit))

    def _report(self, function: Function, phase: Phase) -> PhaseReport:
        fallback = bool(self.work.allocators) and function.attempts[-1].allocator == LLVM_ALLOCATOR
        moves = moves_of(function.audit) if function.audit else Moves()
        # The reason of our last attempt. A server that was asked before it has a line of its own.
        reason = function.attempts[-2].reason if fallback else ""
        seconds = function.events.seconds
        return PhaseReport(phase, tuple(function.attempts), fallback, reason, moves, seconds, function.spills)


def audit_within(
    solver_seconds: float,
    file: MirFile,
    before: MachineFunction,
    after: MachineFunction,
    target: Target,
    events: Events,
    solver: Solver | None = None,
    *,
    saved_later: bool = False,
    is_near: Callable[[str], bool],
) -> FunctionAudit:
    """The audit of one function of ``file``; ``events`` are told of its time. ``is_near``: see ``near_branches``."""
    with events.measure("audit"):
        return audit_function(
            file,
            before,
            after,
            target,
            timeout_s=solver_seconds,
            solver=solver,
            saved_later=saved_later,
            near_branches=is_near,
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
