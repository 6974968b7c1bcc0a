"""Auditing an allocation that exists, or LLVM's own of a kernel, made here with the user's llc."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from smt_verifier.audit import audit
from smt_verifier.certificate.second import programs_cpu_seconds
from smt_verifier.outcome import Outcome
from smt_verifier.smt import ProcessSolver, Solver, default_solver
from smt_verifier.smt.processes import DEFAULT_MEMORY_MIB
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.mir.model import STOP_BEFORE_ALL_PHASES, MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.opened import open_input
from verilocc_mlir.pipeline.settings import DEFAULT_SOLVER_SECONDS, Settings
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.inputs import Input, load_input, named_processors
from verilocc_mlir.toolchain.ir_compat import to_pre_ra
from verilocc_mlir.toolchain.long_branches import near_branches, near_branches_on
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, has_wwm_registers
from verilocc_mlir.version import __version__

Record = Callable[[str, Solver], Solver]
"""From a phase (``""`` where there are none) and the solver to the one to use: a caller may record what it is asked."""


class SolverLimits(Struct, frozen=True):
    """What one question may take: ``seconds``, and the worker's address space ``memory_mib``. Beyond it: UNKNOWN.

    ``third``: the solver is asked where both checkers accept, too.
    """

    seconds: float = DEFAULT_SOLVER_SECONDS
    memory_mib: int = DEFAULT_MEMORY_MIB
    third: bool = False


DEFAULT_LIMITS = SolverLimits()


def as_it_is(_phase: str, solver: Solver) -> Solver:
    """A ``Record`` that records nothing."""
    return solver


class Sides(Struct, frozen=True):
    """The texts before and after one phase."""

    phase: str
    before: Listing
    after: Listing


def audit_texts(
    before: Listing,
    after: Listing,
    cpu: str = "",
    *,
    limits: SolverLimits = DEFAULT_LIMITS,
    record: Record = as_it_is,
) -> AuditRun:
    """Audit two given texts.

    Args:
        before: machine IR from before a phase.
        after: the same file after it, whoever allocated.
        cpu: processor; ``""`` takes the functions' ``"target-cpu"``, which must agree with it where both are given.

    Raises:
        InputError: a text is not machine IR, is truncated, is for another processor, or names none.
    """
    source = load_input(before.text.encode(), path=before.path, cpu=cpu or None)
    if source.kind != "mir":
        raise InputError(
            "this is LLVM IR, not machine IR",
            where=before.path,
            hint=f"llc {STOP_BEFORE_ALL_PHASES}; or audit LLVM's own allocation of it: verilocc audit --llvm",
        )
    _same_processor(after, source.cpu)
    judge = Judge(target(source.cpu), limits, record)
    pair = judge.judge(Sides("", before, after))
    return AuditRun(__version__, "", source.cpu, None, "", (pair,), tuple(judge.notes))


def audit_llvm(
    data: bytes,
    path: str,
    settings: Settings,
    *,
    regalloc: RegAlloc = "greedy",
    name: Callable[[str, str], str] | None = None,
    limits: SolverLimits = DEFAULT_LIMITS,
    record: Record = as_it_is,
    made: Callable[[Sides], None] = lambda _: None,
    each_phase: bool = False,
) -> AuditRun:
    """Audit LLVM's own allocation of a kernel: every function, all phases at once. Where that is not proved, every
    phase by itself too, which says where.

    What greedy makes of IR is the allocation of a plain compile. Machine IR and other allocators are taken through the
    phases one by one, each resumed from the text of the one before.

    Args:
        data: LLVM IR, bitcode or pre-RA machine IR.
        settings: target and LLVM; what is about our allocation is not used.
        each_phase: every phase by itself in any case.
        name: gives the texts their names from phase and ``"before"`` or ``"after"``.
        made: told of both texts of a phase before they are audited.

    Raises:
        InputError: unusable input or option. ToolchainError: llc is missing or failed. UnsupportedError: outside what
            this version handles.
    """
    staged = open_kernel(data, path, settings)
    compiler, kernel = staged.compiler, staged.kernel
    judge = Judge(target(kernel.cpu), limits, record, compiler)
    judge.notes += staged.notes
    pairs: list[AuditedPair] = []
    plain = regalloc == "greedy" and staged.ir
    texts = _of_plain_compile(staged) if plain else _phase_by_phase(staged, regalloc, judge.notes)
    try:
        for phase, before, after in texts:
            names = [name(phase, side) if name else f"{path}.{phase}.{side}.mir" for side in ("before", "after")]
            sides = Sides(phase, Listing(names[0], before), Listing(names[1], after))
            made(sides)
            pairs.append(judge.judge(sides))
            if phase == "all" and pairs[-1].report.outcome is Outcome.PROVED and not each_phase:
                break
    except ToolchainError as error:
        # A refutation stands, whatever llc makes of the text. Proofs say nothing about phases that were not reached.
        if all(pair.report.outcome is Outcome.PROVED for pair in pairs):
            raise
        judge.notes.append(f"the phases after {pairs[-1].phase} were not audited: {error}")
    pairs.sort(key=lambda pair: pair.phase == "all")
    source = Listing(path, kernel.text)
    return AuditRun(
        __version__, compiler.toolchain.version_text, kernel.cpu, source, regalloc, tuple(pairs), tuple(judge.notes)
    )


class StagedKernel(Struct, frozen=True):
    """A kernel as it enters the first phase of allocation (``pre``), and the LLVM that goes on from there.

    ``ir``: the IR that ``pre`` was made from; ``""`` where machine IR was given.
    """

    kernel: Input
    compiler: StagedCompiler
    pre: str
    notes: tuple[str, ...]
    ir: str = ""


def open_kernel(data: bytes, path: str, settings: Settings) -> StagedKernel:
    """LLVM IR, bitcode or pre-RA machine IR up to the first phase.

    Raises:
        InputError: unusable input or option. ToolchainError: llc is missing or failed. UnsupportedError: outside what
            this version handles.
    """
    kernel, compiler = open_input(data, path, settings, verify=settings.verify is not False)
    target(kernel.cpu)
    if kernel.kind == "mir":
        return StagedKernel(kernel, compiler, compiler.accept_mir(kernel.text, reprint=True), ())
    lowered = to_pre_ra(compiler, kernel.text)
    rewritten = f"IR of a newer LLVM; rewritten for this one: {', '.join(lowered.changes)}"
    return StagedKernel(kernel, compiler, lowered.mir, (rewritten,) if lowered.changes else (), lowered.ir)


def llvm_phases(compiler: StagedCompiler, pre: str, regalloc: RegAlloc) -> Iterator[tuple[str, str, str]]:
    """Each phase's name and both its texts, made when they are asked for; ``all``: before the first and after the last,
    with what LLVM does in between.
    """
    scalar = compiler.llvm_allocate(pre, LlvmPhase.SGPR, regalloc)
    yield "sgpr", pre, scalar
    vector = compiler.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    if has_wwm_registers(vector):
        whole_wave = compiler.wwm_phase(scalar)
        yield "wwm", whole_wave.before, whole_wave.after
    final = compiler.llvm_allocate(vector, LlvmPhase.VGPR, regalloc)
    yield "vgpr", vector, final
    yield "all", pre, final


def _of_plain_compile(staged: StagedKernel) -> Iterator[tuple[str, str, str]]:
    """All phases at once, then each."""
    final = staged.compiler.direct_after(staged.ir, LlvmPhase.VGPR)
    yield "all", staged.pre, final
    yield from staged.compiler.direct_phases(staged.ir, staged.pre, final)


def _phase_by_phase(staged: StagedKernel, regalloc: RegAlloc, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    """All phases at once, then each, up to the one at which LLVM fails."""
    phases: list[tuple[str, str, str]] = []
    failure: ToolchainError | None = None
    try:
        for texts in llvm_phases(staged.compiler, staged.pre, regalloc):
            phases.append(texts)
            if texts[0] == "wwm" and regalloc != "greedy":
                notes.append(f"the whole-wave phase is allocated by greedy, not {regalloc}")
    except ToolchainError as error:
        failure = error
    yield from sorted(phases, key=lambda texts: texts[0] != "all")
    if failure is not None:
        raise failure


class Judge:
    """Audits pairs for one target with the same limits; asks ``compiler``, else the LLVM at hand, for long branches."""

    def __init__(
        self, for_target: Target, limits: SolverLimits, record: Record, compiler: StagedCompiler | None = None
    ) -> None:
        self._compiler = compiler
        self._target = for_target
        self._limits = limits
        self._record = record
        self._solver = default_solver() if limits.memory_mib == DEFAULT_MEMORY_MIB else ProcessSolver(limits.memory_mib)
        self.notes: list[str] = []

    def judge(self, sides: Sides, is_near: Callable[[str], bool] | None = None) -> AuditedPair:
        """Audit both texts of a phase.

        Args:
            is_near: whether LLVM makes no long branch in a function of that name; None: LLVM is asked.

        Raises:
            InputError: a text is not machine IR. UnsupportedError: a construct that LLVM does not print.
        """
        before = parse_mir(sides.before.text, sides.before.path)
        after = parse_mir(sides.after.text, sides.after.path)
        if not sides.phase:
            self.notes += unfinished(after, sides.after.path)
        start = self._cpu_seconds()
        solver = self._record(sides.phase, self._solver)
        text, compiler = sides.after.text, self._compiler
        done = LlvmPhase[sides.phase.upper()] if sides.phase in ("sgpr", "wwm") else LlvmPhase.VGPR
        if is_near is None and compiler:
            is_near = near_branches(text, lambda: compiler, done)
        elif is_near is None:
            is_near = near_branches_on(text, self._target.name, done=done)
        report = audit(
            before,
            after,
            self._target,
            timeout_s=self._limits.seconds,
            solver=solver,
            saved_later=sides.phase == "sgpr",
            near_branches=is_near,
            third=self._limits.third,
        )
        return AuditedPair(sides.phase, sides.before, sides.after, report, self._cpu_seconds() - start)

    def _cpu_seconds(self) -> float:
        return time.process_time() + self._solver.cpu_seconds + programs_cpu_seconds()


def unfinished(file: MirFile, path: str) -> list[str]:
    """A note for each function whose text leaves virtual registers to a later phase."""
    counts = [(function.name, len(virtual_registers(function))) for function in file.functions]
    return [
        f"{name}: {path} still has {count} virtual registers, which a later phase is to allocate"
        for name, count in counts
        if count
    ]


def virtual_registers(function: MachineFunction) -> set[int]:
    """Numbers of the virtual registers that instructions name."""
    return {op.vreg for b in function.blocks for i in b.instructions for op in i.all_operands if op.vreg >= 0}


def _same_processor(after: Listing, cpu: str) -> None:
    """Refuse a text that names another processor than the one the text before it is for."""
    other_processors = [name for name in named_processors(after.text) if name != cpu]
    if other_processors:
        raise InputError(
            f"it is for {', '.join(other_processors)}, the text before allocation for {cpu}",
            where=after.path,
            hint="give both texts of one compilation",
        )
