"""Audits of what a compiler ships: each phase before and after, in one compilation that nothing stopped and resumed.

In such a compilation LLVM knows more than its text says: that lanes of a register are undefined at a single use. An
allocation that uses this looks wrong in the text. So where values and liveness are all that is wrong, the compiler
allocates the printed text once more. If that is proved, or if the compiler cannot do it, the answer is *unknown* with
this reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.audit import AuditReport, Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.audit import DEFAULT_LIMITS, Judge, Record, Sides, SolverLimits, as_it_is
from verilocc_mlir.pipeline.opened import open_input
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.long_branches import near_branches_in
from verilocc_mlir.toolchain.mir_repairs import has_true16, state_true16
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, has_wwm_registers
from verilocc_mlir.version import __version__

_OF_LANES = frozenset({"value", "early-clobber", "kill-flag", "dead-flag", "live-in"})
"""Rules that are broken where a lane is read that is live in the printed text and was not in the compilation."""

Reallocate = Callable[[str, str], str]
"""From a phase's name and the text before it to the text after it, allocated by the same compiler."""

PHASES = {"sgpr": LlvmPhase.SGPR, "wwm": LlvmPhase.WWM, "vgpr": LlvmPhase.VGPR}


class NativeKernel(Struct, frozen=True):
    """What a compiler printed on its way through one kernel.

    Attributes:
        name: of the kernel, in messages.
        target: the processor it is for.
        compiler: its version line.
        allocator: its allocator.
        phases: both texts of each phase, in order.
        assembly: what the compiler makes of them in the end, which tells of long branches (``""``: it is not at hand);
            None: the LLVM at hand is asked of the texts.
        source: what it was compiled from, where that is a text.
        reallocate: allocates a printed text; None where the compiler reads no machine IR.
        unlike: why the texts are not of the code that ships; ``""`` where they are.
    """

    name: str
    target: str
    compiler: str
    allocator: RegAlloc
    phases: tuple[Sides, ...]
    assembly: str | None
    source: Listing | None = None
    reallocate: Reallocate | None = None
    unlike: str = ""


def audit_native(
    kernels: Sequence[NativeKernel],
    *,
    limits: SolverLimits = DEFAULT_LIMITS,
    record: Record = as_it_is,
    audited: Callable[[AuditedPair], None] = lambda _: None,
) -> AuditRun:
    """Audit every phase of every function of every kernel.

    Args:
        kernels: of one compiler and one processor.
        limits: of the solver.
        record: wraps the solver for each phase.
        audited: told of each phase.

    Raises:
        InputError: a text is not machine IR as LLVM prints it. UnsupportedError: outside what this version handles.
    """
    first = kernels[0]
    judge = Judge(target(first.target), limits, record)
    pairs: list[AuditedPair] = []
    for kernel in kernels:
        is_near = None if kernel.assembly is None else near_branches_in(kernel.assembly)
        for sides in kernel.phases:
            pairs.append(_of_what_ships(_lost_lanes_unknown(judge.judge(sides, is_near), kernel, judge), kernel))
            audited(pairs[-1])
    source = first.source if len(kernels) == 1 else None
    return AuditRun(
        __version__, first.compiler, first.target, source, first.allocator, tuple(pairs), tuple(judge.notes)
    )


def _of_what_ships(pair: AuditedPair, kernel: NativeKernel) -> AuditedPair:
    """The pair with nothing proved of it where the texts are not of the code that ships."""
    if not kernel.unlike:
        return pair
    unlike = Finding("unsupported", Outcome.UNKNOWN, kernel.unlike)
    functions = tuple(
        replace(f, outcome=Outcome.UNKNOWN, findings=(unlike,)) if f.outcome is Outcome.PROVED else f
        for f in pair.report.functions
    )
    return replace(pair, report=AuditReport(functions))


def _lost_lanes_unknown(pair: AuditedPair, kernel: NativeKernel, judge: Judge) -> AuditedPair:
    """The pair with what may come from lost lanes unknown instead of refuted."""
    suspects = {f.function for f in pair.report.functions if _may_be_lost_lanes(f)}
    if not suspects:
        return pair
    if kernel.reallocate is None:
        reason = f"{kernel.compiler} cannot allocate the printed text, to tell this from lanes that the text has lost"
    else:
        try:
            after = kernel.reallocate(pair.phase, pair.before.text)
        except ToolchainError as error:
            judge.notes.append(f"{pair.label}: the printed text was not allocated again: {error}")
            return pair
        again = judge.judge(Sides(pair.phase, pair.before, Listing(f"{pair.after.path} (again)", after)))
        suspects &= {f.function for f in again.report.functions if f.outcome is Outcome.PROVED}
        reason = "allocated again from the printed text it is proved: the text has lost which lanes are undefined"
    functions = tuple(_unknown(f, reason) if f.function in suspects else f for f in pair.report.functions)
    return replace(pair, report=AuditReport(functions))


def _may_be_lost_lanes(function: FunctionAudit) -> bool:
    """Whether all that is wrong in it would be right if some lanes were undefined where they are read."""
    wrong = [f for f in function.findings if f.outcome is Outcome.REFUTED]
    return function.outcome is Outcome.REFUTED and all(f.rule in _OF_LANES for f in wrong)


def _unknown(function: FunctionAudit, reason: str) -> FunctionAudit:
    findings = tuple(
        replace(f, outcome=Outcome.UNKNOWN, message=f"{f.message}; {reason}") if f.outcome is Outcome.REFUTED else f
        for f in function.findings
    )
    return replace(function, outcome=Outcome.UNKNOWN, findings=findings)


def llc_kernel(data: bytes, path: str, settings: Settings) -> NativeKernel:
    """What llc prints of a kernel in plain compilations up to each point, nothing resumed.

    Raises:
        InputError: unusable input or option. ToolchainError: llc is missing or failed. UnsupportedError: outside what
            this version handles.
    """
    kernel, compiler = open_input(data, path, settings, verify=False, llc_options=settings.llc_options)
    return direct_kernel(compiler, Listing(path, kernel.text), to_pre_ra(compiler, kernel.text).ir, path)


def direct_kernel(compiler: StagedCompiler, source: Listing, ir: str, stem: str) -> NativeKernel:
    """What LLVM prints of a kernel in plain compilations up to each point.

    Args:
        source: the kernel as it was given; ``ir`` is that as this LLVM takes it.
        stem: begins the names of the texts.
    """
    phases = native_phases(
        stem,
        lambda phase: compiler.direct_before(ir, PHASES[phase]),
        lambda phase: compiler.direct_after(ir, PHASES[phase]),
    )
    return NativeKernel(
        stem, compiler.options.cpu, compiler.toolchain.version_text, "greedy", phases, None, source,
        lambda phase, before: compiler.llvm_allocate(before, PHASES[phase]),
    )  # fmt: skip


def native_phases(stem: str, before: Callable[[str], str], after: Callable[[str], str]) -> tuple[Sides, ...]:
    """Both texts of each phase that a kernel has, from a compiler that prints them by the phase's name."""
    phases: list[Sides] = []
    for phase in PHASES:
        text = before(phase)
        if phase != "wwm" or has_wwm_registers(text):
            phases.append(named(stem, phase, text, after(phase)))
    return tuple(phases)


def named(stem: str, phase: str, before: str, after: str) -> Sides:
    """Both texts of a phase under the names that messages show."""
    if has_true16(before):
        before, after = state_true16(before), state_true16(after)
    return Sides(phase, Listing(f"{stem}.{phase}.before.mir", before), Listing(f"{stem}.{phase}.after.mir", after))
