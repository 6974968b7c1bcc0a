"""Compile a module: lower it, choose of all that is tried what is proved and stands best, finish it, and emit it.

Each step is a function of values that do not change: a ``Request`` is opened (``Opened``), lowered to the text before
the first phase (``Lowered``), settled (``Settled``: an allocation of every function), and finished (``Finished``: the
object, compared with a direct compile). What is to be said on the way goes to one stream of events (``events.py``).

A module is compiled again without a promise that its final code breaks, and without functions that nobody proves.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from verilocc_mlir.allocators import Allocator
from verilocc_mlir.budget import within
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.pipeline.callees import Broken, Promises, callees_first, check_promises, to_withhold
from verilocc_mlir.pipeline.candidates import Candidate
from verilocc_mlir.pipeline.chosen_allocators import allocators_of, checked_allocator
from verilocc_mlir.pipeline.events import Assembled, Budget, Decided, Events, Listener, Spent
from verilocc_mlir.pipeline.finish import Finished, Finisher, LateOrder, PlainCode, late_order
from verilocc_mlir.pipeline.guard import left_out_with, rest_without
from verilocc_mlir.pipeline.learned import check_plan_model
from verilocc_mlir.pipeline.opened import Work, open_input
from verilocc_mlir.pipeline.plans import DEFAULT, Allocating, Planned
from verilocc_mlir.pipeline.portfolio import Kept, Portfolio
from verilocc_mlir.pipeline.resources import resources_by_name
from verilocc_mlir.pipeline.runs import Result, Runs, only_proved, whatever_it_is
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings, check_required, missed_by_server, require_server
from verilocc_mlir.results.compile import FunctionReport, Report, TimedStep
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.find import Toolchain
from verilocc_mlir.toolchain.inputs import Input
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, without_features, without_unread_arguments
from verilocc_mlir.toolchain.mir_repairs import WITHOUT_TRUE16, close_masks, copies_between_widths, loses_mmra, trapped
from verilocc_mlir.toolchain.run import ToolFailure, ToolRun
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler
from verilocc_mlir.toolchain.verifier import unverified, verifier_fault, without_functions
from verilocc_mlir.version import __version__

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.page import PhaseRecord

_PROMISES = 4
"""Times that a module is compiled with masks that say more, each time without what was not proved before."""


class Compiled(Struct, frozen=True):
    """What came of a compilation.

    ``data`` is the result in the form asked for, None where a phase ended without any text; ``also`` the further forms
    asked for. They may be unproved: whoever writes them looks at ``report.outcome`` first. ``before`` is the machine IR
    as it entered the first phase; ``also`` with Emit.MIR is what left the last one. ``records``: what the phases were
    decided on, where that is recorded.
    """

    data: bytes | None
    report: Report
    also: Mapping[Emit, bytes] = field(default_factory=dict[Emit, bytes])
    before: str = ""
    records: tuple[PhaseRecord, ...] = ()


def compile_module(
    data: bytes,
    path: str,
    settings: Settings,
    *,
    allow_unproved: bool = False,
    allocators: Sequence[Allocator] | None = None,
    recording: Recording | None = None,
    listeners: tuple[Listener, ...] = (),
) -> Compiled:
    """Compile one LLVM IR, bitcode or pre-RA MIR file.

    Where nobody proves some functions, neither ours nor LLVM's, the result is that of the others, and the report names
    those that are left out. ``allow_unproved``, and settings without fallback, leave none out.

    Args:
        path: its name, for messages; ``-`` for standard input.
        allow_unproved: go on after a phase that is not proved; without it the run ends there, with its verdict.
        allocators: ours, in the order they are tried; None: those of ``allocators_of(settings)``.
        recording: keeps what every phase was decided on, for the HTML page; costs one more run of llc a phase.
        listeners: hear of what is done as it is done.

    Raises:
        InputError: unusable input or option. ToolchainError: a tool is missing or failed, or a server that is required
            had not its part. UnsupportedError: outside what this version handles.
    """
    check_required(settings)
    if settings.plan_model is not None or settings.effort is Effort.LEARNED:
        check_plan_model(settings)
    # What is recorded is one compilation, so it is not compared with another.
    runs, recorder, once = (Runs, (), _best) if recording is None else (recording.runs, (recording.hear,), _promised)
    allocating = partial(runs, accepts=whatever_it_is if allow_unproved else only_proved)
    request = Request(data, path, settings, allocators, allocating, (*recorder, *listeners))
    whole = allow_unproved or not settings.fallback
    compiled = once(request).compiled if whole else _without_unproved(request, once)
    require_server(settings, compiled.report)
    return compiled


class Request(Struct, frozen=True):
    """What is asked for.

    Attributes:
        allocators: as for ``compile_module``.
        allocating: makes the runs of a text, which end as it is asked for.
        listeners: to what is told meanwhile.
        left_out: functions of which LLVM shall make nothing.
    """

    data: bytes
    path: str
    settings: Settings
    allocators: Sequence[Allocator] | None
    allocating: Allocating
    listeners: tuple[Listener, ...] = ()
    left_out: frozenset[str] = frozenset()


# The whole module, else the rest of it without the functions that nobody proves.


def _without_unproved(request: Request, once: Callable[[Request], _Final]) -> Compiled:
    """The rest of the module where there is one, else what became of all of it."""
    left_out: dict[str, FunctionReport | str] = {}
    records: list[PhaseRecord] = []
    first: Compiled | VeriloccError | None = None
    while True:
        try:
            outcome = once(replace(request, left_out=frozenset(left_out))).compiled
        except VeriloccError as error:
            # Also where the linker wants what is left out, say.
            outcome = error
        unproved = _unproved(outcome)
        if isinstance(outcome, Compiled) and not unproved:
            return _with_left_out(outcome, left_out, records, Events(listeners=request.listeners))
        first = first or outcome
        more = left_out_with(unproved, left_out, _open(request)[0].text) if unproved else {}
        if not more:
            if isinstance(first, VeriloccError):
                raise first
            return first
        if isinstance(outcome, Compiled):
            records += [record for record in outcome.records if record.function in more]
        left_out |= more


def _unproved(outcome: Compiled | VeriloccError) -> Mapping[str, FunctionReport | str]:
    """The functions that nobody proves, by name: the report of each, or in words why LLVM's verifier refuses it."""
    if isinstance(outcome, Compiled):
        return {function.name: function for function in outcome.report.functions if not function.is_proved}
    if isinstance(outcome, ToolFailure) and (fault := verifier_fault(outcome)) is not None:
        return {fault.function: outcome.what}
    return {}


def _with_left_out(
    compiled: Compiled,
    left_out: Mapping[str, FunctionReport | str],
    records: Sequence[PhaseRecord],
    events: Events,
) -> Compiled:
    """The result, with what is left out in its report and among its records."""
    if not left_out:
        return compiled
    events.tell(Decided((*records, *compiled.records)))
    reports = tuple(
        why if isinstance(why, FunctionReport) else FunctionReport(name, False, 0, (), None, None)
        for name, why in left_out.items()
    )
    notes = [f"{name} is left out: {why}" for name, why in left_out.items() if isinstance(why, str)]
    report = replace(
        compiled.report,
        functions=(*reports, *compiled.report.functions),
        notes=(*notes, *compiled.report.notes),
        left_out=tuple(left_out),
    )
    return replace(compiled, report=report)


# With masks of calls that say what callees keep, else by the calling convention.


def _best(request: Request) -> _Final:
    """The module with promises, or what stands better without: LLVM's allocations know of no promise, and took no part
    in what was compiled with them.
    """
    final = _promised(request)
    if final.has_promises and final.standing[0]:
        with contextlib.suppress(ToolchainError):
            other = _by_convention(request, "so it stands better against LLVM's default compile")
            return other if other.standing < final.standing else final
    return final


def _promised(request: Request) -> _Final:
    """The module with masks that say what its functions keep, or by the calling convention."""
    withheld: Mapping[str, frozenset[int]] = {}
    why = ""
    for _ in range(_PROMISES):
        lowered = lower(open_request(request), partial(_promises, withheld=withheld))
        outcome = _kept(lowered) if lowered.promises.kept else _final(lowered)
        if isinstance(outcome, _Final):
            return outcome
        why, doubtful = outcome.why, outcome.doubtful
        if not doubtful:
            break
        # LLVM has the last word on the registers for lanes and frames: the rest can still be kept.
        withheld = {
            name: withheld.get(name, frozenset()) | doubtful.get(name, frozenset())
            for name in (withheld.keys() | doubtful.keys())
        }
    return _by_convention(request, why)


def _kept(lowered: Lowered) -> _Final | Broken:
    """The module with its promises, which are broken too where it comes to nothing with them."""
    try:
        return _final(lowered)
    except VeriloccError as error:
        return Broken(error.what)


def _by_convention(request: Request, why: str) -> _Final:
    opened = open_request(request)
    opened.work.events.note(f"calls keep to the calling convention: {why}")
    final = _final(lower(opened, lambda _, text: Promises(text)))
    assert isinstance(final, _Final)
    return final


# The steps: open, lower, settle, finish, emit.


class Opened(Struct, frozen=True):
    """An input that was read, and the tools and allocators for it; ``start`` is that of the clock on the wall."""

    request: Request
    start: float
    input: Input
    work: Work

    def in_seconds(self) -> contextlib.AbstractContextManager[None]:
        """Long steps inside are left once the seconds are over."""
        return within(lambda: self.work.events.budget.is_over)


class Lowered(Struct, frozen=True):
    """A module before the first phase.

    Attributes:
        promises: its machine IR, with what callees keep in the masks of calls.
        given: the same, to be allocated under any plan.
        llvm: LLVM's own code of the input, which needs nothing of ours.
    """

    opened: Opened
    promises: Promises
    given: Planned
    finisher: Finisher
    llvm: PlainCode

    @property
    def file(self) -> MirFile:
        return self.given.shared.parsed(self.promises.text, self.opened.work.path)


class Settled(Struct, frozen=True):
    """An allocation of every function, or a verdict why there is none.

    Attributes:
        pre: machine IR as it enters the first phase, each function as its candidate has it.
        candidates: what was chosen, by function; empty where nothing is proved throughout.
        standing: in how much it falls short of LLVM's default compile, and its modelled cycles.
    """

    result: Result
    pre: str
    candidates: Mapping[str, Candidate] = field(default_factory=dict[str, Candidate])
    standing: tuple[float, float] = (math.inf, math.inf)
    finished: Finished | None = None

    def chosen(self, name: str) -> tuple[str, str]:
        """The names of a function's plan and variant."""
        candidate = self.candidates.get(name)
        return (DEFAULT.name, "") if candidate is None else (candidate.plan.name, candidate.variant.name)


class _Final(Struct, frozen=True):
    compiled: Compiled
    standing: tuple[float, float]
    has_promises: bool


def open_request(request: Request) -> Opened:
    """Options first: a misspelt one is said before any tool runs."""
    start, settings = time.monotonic(), request.settings
    events = Events(Budget(settings.seconds), request.listeners)
    if request.allocators is None:
        allocators = allocators_of(settings)
    else:
        checked_allocator(settings)
        allocators = request.allocators
    given, compiler = _open(request)
    if request.left_out:
        text = rest_without(given.text, request.left_out)
        functions = tuple(name for name in given.functions if name not in request.left_out)
        given = replace(given, text=text, functions=functions)

    def hear(run: ToolRun) -> None:
        events.budget.take(run.cpu_seconds)
        events.tell(Spent(run.stage, run.cpu_seconds, by_tool=True))

    compiler.hear = hear
    work = Work(request.path, settings, compiler, target(given.cpu), tuple(allocators), events)
    return Opened(request, start, given, work)


def _open(request: Request) -> tuple[Input, StagedCompiler]:
    settings = request.settings
    return open_input(request.data, request.path, settings, verify=settings.verifies, llc_options=settings.llc_options)


def lower(opened: Opened, promising: Callable[[Work, str], Promises]) -> Lowered:
    """The module's machine IR before the first phase.

    Args:
        promising: puts what callees keep into the masks of a text.
    """
    with opened.in_seconds():
        if opened.input.kind == "mir":
            text, ir = _as_llvm_reads(opened, partial(opened.work.compiler.accept_mir, reprint=True)), ""
            # As a plain llc, without the verifier.
            plain = partial(opened.work.compiler.finish_from, text, LlvmPhase.SGPR, verify=False)
        else:
            opened, text, ir = _pre_ra(opened)
            plain = partial(opened.work.compiler.direct, ir)
            text, ir = _handing_on_less(opened.work, text, ir)
        promises = promising(opened.work, text)
    work = opened.work
    if promises.kept:
        # LLVM's allocations know of no promise.
        work = replace(work, settings=replace(work.settings, fallback=False))
    given = Planned(work, ir, promises.text, promises.kept, opened.request.allocating)

    def verified(left_out: frozenset[str]) -> bytes:
        """LLVM's own result with the verifier, without the functions named."""
        if ir:
            return work.compiler.direct(without_functions(ir, left_out), verify=True)
        return work.compiler.finish_from(unverified(promises.text, left_out), LlvmPhase.SGPR)

    finisher = Finisher(work.compiler, verified, work.events)
    return Lowered(opened, promises, given, finisher, PlainCode(plain, work.compiler))


def _pre_ra(opened: Opened) -> tuple[Opened, str, str]:
    """Machine IR of LLVM IR before the first phase, and that IR as LLVM takes it."""
    pre = _as_llvm_reads(opened, partial(to_pre_ra, opened.work.compiler))
    opened.work.compiler.driver.check_resumable(pre.mir, opened.work.path)
    if pre.changes:
        opened.work.events.note(f"IR of a newer LLVM; rewritten for this one: {', '.join(pre.changes)}")
    if names := ", ".join(trapped(pre.mir)):
        opened.work.events.note(f"LLVM puts a trap behind the return of {names}, which takes LDS and is no kernel")
    if not copies_between_widths(pre.mir):
        return opened, pre.mir, pre.ir
    # This and all that follows without 16-bit registers.
    first = opened.work.compiler
    mattr = ",".join(filter(None, (first.options.mattr, WITHOUT_TRUE16)))
    compiler = StagedCompiler(first.toolchain, replace(first.options, mattr=mattr), first.runs, hear=first.hear)
    opened.work.events.note(f"with 16-bit registers LLVM copies between widths: compiled with -mattr={WITHOUT_TRUE16}")
    return replace(opened, work=replace(opened.work, compiler=compiler)), compiler.to_pre_ra(pre.ir), pre.ir


def _handing_on_less(work: Work, text: str, ir: str) -> tuple[str, str]:
    """Machine IR and IR of a module whose local functions are not handed arguments of the hardware that they do not
    read: callers would make them again for each call. As it is where nobody hands on any, or LLVM has no opt.
    """
    # Where LLVM's own object is shipped for what texts lose, it is of the IR as it is.
    if "SI_CALL" not in text or not work.allocators or loses_mmra(ir, work.compiler.toolchain.version):
        return text, ir
    with contextlib.suppress(ToolchainError, InputError):
        inferred = work.compiler.inferred(ir)
        less = ir if inferred is None else without_unread_arguments(ir, inferred)
        if less != ir:
            text, ir = work.compiler.to_pre_ra(less), less
            work.events.note("local functions are not handed what they do not read of the hardware's arguments")
    return text, ir


_Read = TypeVar("_Read")


def _as_llvm_reads(opened: Opened, read: Callable[[str], _Read]) -> _Read:
    """The input, without features of its functions that this LLVM does not know, and so ignores."""
    text = read(opened.input.text)
    if not (unknown := opened.work.compiler.ignored_features):
        return text
    opened.work.events.note(f"this LLVM does not know features of the IR, and ignores them: {', '.join(unknown)}")
    return read(without_features(opened.input.text, unknown))


def _promises(work: Work, text: str, withheld: Mapping[str, frozenset[int]]) -> Promises:
    """The text before the first phase, with what its local functions leave alone in the masks of their calls, but what
    is withheld.
    """
    if not (work.allocators and isinstance(work.compiler.toolchain, Toolchain)):
        return Promises(text)
    with work.events.measure("callees"):
        return callees_first(text, work.path, work.compiler, work.target, withheld)


def _final(lowered: Lowered) -> _Final | Broken:
    """The module settled, finished and emitted; the promise that it does not keep, or that costs it a proof."""
    opened, work = lowered.opened, lowered.opened.work
    with lowered.llvm, opened.in_seconds():
        with work.events.measure("parse"):
            functions = lowered.file.functions
        if not functions:
            raise InputError("no function has a body", where=work.path, hint="give a module that defines a function")
        _refuse_unlinkable(lowered)
        settled = _settled(lowered)
        if isinstance(settled, Broken):
            lowered.llvm.give_up()
            return settled
        records = settled.result.records
        work.events.tell(Decided(records))
        before, text = close_masks(settled.pre), settled.result.text
        if text is None:
            compiled = Compiled(None, _report(lowered, settled, None), before=before, records=records)
            return _Final(compiled, settled.standing, bool(lowered.promises.kept))
        finished = settled.finished or _finished(lowered, text, before)
        if lowered.promises.kept and (broken := _broken(lowered, text, finished.made)) is not None:
            lowered.llvm.give_up()
            return broken
        code = partial(lowered.finisher.finish, text, "asm"), partial(lowered.llvm.code, "asm")
        work.events.tell(Assembled(work.path, work.target, *code))
        data = _emitted(lowered, text, finished, work.settings.emit)
        also = {emit: _emitted(lowered, text, finished, emit) for emit in work.settings.also}
        compiled = Compiled(data, _report(lowered, settled, finished), also, before, records)
        return _Final(compiled, settled.standing, bool(lowered.promises.kept))


_FOREIGN = re.compile(r"^(?:declare (?!.*?@\"?llvm\.)|@.*? = (?:\w+ )*external )", re.MULTILINE)
"""What IR declares and does not define, intrinsics aside. It may be unused, or weak: the linker says."""


def _refuse_unlinkable(lowered: Lowered) -> None:
    """Link LLVM's own object, where the module names what others define: before minutes are spent on allocating it.

    Raises:
        ToolchainError: it has undefined symbols.
    """
    work = lowered.given.work
    if Emit.HSACO not in (work.settings.emit, *work.settings.also) or not _FOREIGN.search(lowered.opened.input.text):
        return
    obj = lowered.llvm.code("obj")
    try:
        work.compiler.link(obj)
    except ToolFailure as failure:
        hint = "link it with the modules that define these, or leave that to a linker: --emit=obj"
        raise ToolchainError(failure.what, where=work.path, hint=hint) from failure


def _settled(lowered: Lowered) -> Settled | Broken:
    """What stands best of all that is tried and proved; where some function has nothing like it, ours or LLVM's by
    what the audit says of it, but with masks that say more what they are to say no longer.

    Raises:
        UnsupportedError: nothing is proved of the one plan that is asked for.
    """
    given, work = lowered.given, lowered.given.work
    portfolio = Portfolio(
        given, [function.name for function in lowered.file.functions], lambda: lowered.llvm.code("asm"),
        lambda: resources_by_name(lowered.llvm.code("obj"), lowered.file, work.target),
    )  # fmt: skip
    if work.allocators and (best := _of_portfolio(lowered, portfolio)) is not None:
        return best
    if plan := work.settings.plan:
        raise UnsupportedError(f"of the plan {plan} nothing is proved", where=work.path, hint="leave --plan out")
    if lowered.promises.kept:
        doubtful = to_withhold(lowered.promises, lowered.file, portfolio.unproved)
        return Broken("not all is proved with masks that say more", doubtful)
    return Settled(given.runs(DEFAULT).by_verdict(), given.pre)


def _of_portfolio(lowered: Lowered, portfolio: Portfolio) -> Settled | None:
    """What is kept of the portfolio and finished; None where some function has nothing like it."""
    given = lowered.given
    while (kept := portfolio.kept()) is not None:
        text = kept.result.text
        assert text is not None
        if kept.is_llvms and loses_mmra(given.ir, given.work.compiler.toolchain.version):
            lowered.finisher.llvms[text] = lowered.llvm.code
        try:
            late = _order(lowered, kept, portfolio)
            if portfolio.refuse_dearer(kept, late.costs):
                continue
            given.work.events.note(*late.notes)
            finished = _finished(lowered, text, kept.pre)
        except ToolchainError as error:
            if not portfolio.refuse(kept, error):
                raise
        else:
            portfolio.note(kept)
            return Settled(kept.result, kept.pre, kept.candidates, portfolio.standing(kept), finished)
    return None


def _order(lowered: Lowered, kept: Kept, portfolio: Portfolio) -> LateOrder:
    """Have what is kept finished in an order of our own, where that is proved and cheaper."""
    as_it_comes = LateOrder("", (), portfolio.costs(kept))
    # A promise is proved of the text that LLVM finishes.
    if not lowered.given.work.settings.order or lowered.promises.kept:
        return as_it_comes
    text = kept.result.text or ""
    try:
        late = late_order(lowered.given, text, as_it_comes.costs)
    except VeriloccError as error:
        if isinstance(error, ToolFailure) and error.status == -signal.SIGKILL:
            raise
        return replace(as_it_comes, notes=(f"LLVM's order stays behind allocation: {error.what}",))
    if not late.text:
        return replace(as_it_comes, notes=late.notes)
    lowered.finisher.ordered[text] = late.text
    return late


def _finished(lowered: Lowered, text: str, pre: str) -> Finished:
    """An allocated text's object, compared with LLVM's own. Machine IR as input has no reference: what LLVM makes of it
    has lost the same fields.
    """
    opened = lowered.opened
    return lowered.finisher.checked(
        text,
        pre,
        lowered.file,
        opened.work.target,
        lowered.llvm,
        is_reference=opened.input.kind != "mir",
    )


def _broken(lowered: Lowered, text: str, made: bytes) -> Broken | None:
    """What is not proved of the masks in the text that is shipped, of the object that LLVM made of it."""
    work = lowered.given.work
    with work.events.measure("audit"):
        broken = check_promises(text, made, work.path, work.compiler, work.target)
    if broken is None:
        names = ", ".join(lowered.promises.kept)
        work.events.note(f"callers use registers that these leave alone, as is proved of their final code: {names}")
    return broken


def _emitted(lowered: Lowered, text: str, finished: Finished, emit: Emit) -> bytes:
    if emit is Emit.MIR:
        return close_masks(text).encode()
    if emit is Emit.OBJ:
        return finished.checked.data
    if emit is Emit.HSACO:
        return lowered.given.work.compiler.link(finished.checked.data)
    return finished.checked.mended_asm(lowered.finisher.finish(text, "asm"))


def _report(lowered: Lowered, settled: Settled, finished: Finished | None) -> Report:
    opened, file, settings = lowered.opened, lowered.file, lowered.opened.request.settings
    work, notes = opened.work, opened.work.events.notes
    functions = tuple(
        FunctionReport(
            f.name,
            function_attributes(file.preamble, f.name).is_entry,
            f.instruction_count,
            tuple(settled.result.phases.get(f.name, ())),
            None if finished is None else finished.ours.get(f.name),
            None if finished is None else finished.greedy.get(f.name),
            *settled.chosen(f.name),
        )
        for f in file.functions
    )
    return Report(
        version=__version__,
        llvm=work.compiler.toolchain.version_text,
        input=work.path,
        input_sha256=hashlib.sha256(opened.request.data).hexdigest(),
        target=work.target.name,
        features=settings.features,
        allocator=settings.server_allocator or settings.allocator,
        emit=settings.emit.value,
        functions=functions,
        mended=() if finished is None else tuple(str(difference) for difference in finished.checked.mended),
        notes=notes,
        steps=tuple(TimedStep(name, seconds) for name, seconds in work.events.seconds.items()),
        wall_seconds=time.monotonic() - opened.start,
        server=missed_by_server(functions, notes),
    )
