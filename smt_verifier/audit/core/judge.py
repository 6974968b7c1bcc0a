"""Audit: translation validation of register allocation, pre-RA machine IR against post-RA machine IR.

Theorem. Let P be a function before a register-allocation phase and Q the text after it, as LLVM reads it on. If
``audit`` answers PROVED, then for every path of blocks and every thread of the wave:

1. P and Q execute the same instructions in the same order, but for copies, spill code, instructions that emit no
   code, and pure instructions that one side repeats or drops (``pairs.py`` says what a pairing is, ``rules.py``
   compares the pairs);
2. whenever a paired instruction reads an operand, each lane of Q's register holds the value that P's operand holds,
   unless P leaves that lane undefined; so, instructions being uninterpreted functions of what they read, both compute
   the same;
3. both hold also path by path, as if EXEC did not exist and every vector instruction wrote all threads: LLVM's passes
   behind allocation reason so of copies (MachineCopyPropagation forwards a COPY over a write of EXEC);
4. fixed physical operands are the same registers, and Q obeys the machine's rules: class, alignment, width, reserved
   registers, early-clobber, ties, spill slots (``rules.py``, ``execute.py``), and what Q says about liveness, on
   which later passes rely (``flags.py``).

Where 1 and 2 hold and 3 does not, the answer is UNKNOWN.

State. P maps lanes of virtual registers and units of physical ones to values, Q maps units, spill slots and virtual
registers of later phases. A scalar that is kept in one thread's lane of a vector register is a place of its own
(``moves.py``). Scalar lanes hold one value a wave; vector lanes one a thread, kept apart for each class of
threads that the masks in EXEC distinguish (``masks.py``): a vector move moves only what is active where it stands.
The lattice of claims at block entries (``relation.py``) has, for each lane of P, the set of places of Q that hold its
value, or "undefined"; transfer functions are in ``alone.py`` and ``execute.py``.

Proof method. ``infer.py`` guesses the claims by an optimistic data flow and is not trusted. ``check.py`` takes each
block with its claims as hypotheses, executes both sides symbolically and asks the solver that every operand agrees
and that the claims of every successor hold at the exit. The function's entry assumes only that both sides start in
the same machine state. By induction over the length of the path the theorem follows.

Assumed, not proved: the parser; the opcode lists of ``semantics.py`` and ``masks.py``; that the vector registers of
inactive threads survive a call (AMDGPU's ABI: a callee that writes them saves them); LLVM's passes before and after
the phase. Not covered, and answered UNKNOWN: whole-quad code, EXEC values that cannot be followed, lanes of inactive
threads that matrix operations and v_readlane read, a branch back to the entry block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from smt_verifier.audit.core.brackets import scratch_register, without_brackets
from smt_verifier.audit.core.callees import newly_overwritten
from smt_verifier.audit.core.check import Describe, FailedGoal, check_block, check_together
from smt_verifier.audit.core.fields import with_numbers_of
from smt_verifier.audit.core.flags import FlagCheck, check_alone, new_faults
from smt_verifier.audit.core.header import compare_headers, require_rows, unreserved_cells
from smt_verifier.audit.core.lanes import as_llvm_reads
from smt_verifier.audit.core.masks import Precision
from smt_verifier.audit.core.opcodes import facts
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.places import check_places, read_undefined
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.relation import Claims
from smt_verifier.audit.core.report import Finding, GoalCounts
from smt_verifier.audit.core.rules import MachineRules
from smt_verifier.audit.core.semantics import acts_alone
from smt_verifier.audit.core.spills import wrong_spills
from smt_verifier.audit.core.wellformed import malformed, module_difference
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.callingconv import callee_saved
from verilocc_mlir.target.registers import AGPR_BASE, SGPR_BASE, SPECIAL_BASE, VGPR_BASE, physical_register
from verilocc_mlir.target.reserved import Allocatable, allocatable
from verilocc_mlir.target.targets import Target

_DECLARED_SPECIALS = frozenset(u for n in ("vcc", "scc") for u in physical_register(n).units)


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of one function as they are compared: stack objects numbered alike, whole-wave brackets folded.

    Attributes:
        available: what an allocator may hand out in this function.
        saved: units of scalar registers that must hold at a return what they held at entry.
        findings: what the headers and the control flow show already; with any of these no pairing is looked for.
    """

    pre: MachineFunction
    post: MachineFunction
    target: Target
    available: Allocatable
    saved: frozenset[int]
    findings: tuple[Finding, ...]

    def product(
        self,
        steps: list[list[Step]],
        *,
        precision: Precision = Precision.FINE,
        outside: bool = False,
        by_path: bool = False,
    ) -> Product:
        """Both sides with a pairing of their instructions; ``precision``, ``outside``, ``by_path``: see ``Product``."""
        kept, wave_size = self.available.kept_units, self.target.wave_size
        return Product(self.pre, self.post, wave_size, steps, kept, self.saved, precision, outside, by_path)

    def rules(self, product: Product) -> MachineRules:
        """The machine's rules for the pairs of a product."""
        restored = frozenset[int]() if self.post.has_virtual_registers else self.saved
        return MachineRules(
            product.pre_lanes,
            product.post_lanes,
            {a.number: b.number for a, b in zip(self.pre.blocks, self.post.blocks, strict=True)},
            _allocatable_units(self.available),
            _fixed_targets(self.pre),
            restored,
            _of_brackets(self.pre, self.post),
            self.target.name,
            self.target.has_agprs,
            product.originals,
        )


def sides_of(
    file: MirFile, pre: MachineFunction, post: MachineFunction, target: Target, *, saved_later: bool = False
) -> Sides:
    """Both sides of one function; ``file`` is the pre-RA file, whose preamble holds the function's IR attributes.

    Args:
        saved_later: the text after allocation is one of the scalar phase, behind which LLVM saves callee-saved scalars
            (SILowerSGPRSpills), also where no virtual register is left by then.

    Raises:
        InputError: as for ``require_rows``: before objects get other numbers, one of which a missing one may have.
    """
    require_rows(pre)
    require_rows(post)
    post = with_numbers_of(pre, post)
    wave_size = target.wave_size
    pre, post = as_llvm_reads(pre, wave_size), as_llvm_reads(post, wave_size)
    available = allocatable(pre, file.preamble, target)
    faults = (*malformed(pre), *malformed(post))
    if not faults:
        pre, post = without_brackets(pre, wave_size), without_brackets(post, wave_size)
    findings = (*faults, *compare_headers(pre, post, _allocatable_units(available)))
    if faults:
        return Sides(pre, post, target, available, frozenset(), findings)
    findings = (
        *findings,
        *wrong_spills(pre, post, scratch_register(pre, "stackPtrOffsetReg"), has_agprs=target.has_agprs),
        *_control_flow(pre, post),
        *newly_overwritten(file, pre, post, target),
    )
    saved = frozenset[int]() if saved_later else _saved_by_callee(file, pre, post, available, target)
    return Sides(pre, post, target, available, saved, findings)


def judge_structure(sides: Sides, product: Product, rules: MachineRules) -> tuple[int, list[Finding]]:
    """How many steps there are, and what breaks a rule that is not about values."""
    findings: list[Finding] = []
    if header_field(sides.post, "isEntryFunction") != "true" and not sides.post.has_virtual_registers:
        findings += unreserved_cells(sides.post, product.post_lanes)
    findings += read_undefined(sides.post)
    for number, steps in enumerate(product.steps):
        for step in steps:
            findings += [replace(f, block=number) for f in rules.check(step)]
        findings += [replace(f, block=number) for f in check_places(steps)]
    # What is missing or added shifts the pairs of pure instructions beside it: it comes first.
    findings.sort(key=lambda f: f.rule != "instruction-sequence")
    return sum(map(len, product.steps)), findings


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """How many goals the blocks have, what could not be shown but for goals, and the goals that fail."""

    goals: GoalCounts
    findings: tuple[Finding, ...]
    failed: tuple[FailedGoal, ...]

    @property
    def holds(self) -> bool:
        """Whether every goal of every block that was asked is proved."""
        return not self.findings and not self.failed


def judge_values(
    product: Product,
    entries: list[Claims | None],
    solver: Solver,
    timeout_s: float,
    describe: Describe,
    *,
    suffix: str = "",
    to_the_end: bool = True,
) -> ValueCheck:
    """Check every reached block under the claims that were proposed.

    Args:
        entries: claims at the entry of each block, in layout order, whoever proposed them.
        solver: is asked one question for all blocks, and one a block where that is not proved.
        timeout_s: seconds for one question.
        describe: words a failed goal.
        suffix: of the questions' names.
        to_the_end: where not all is proved, say what is not.
    """
    name = f"{product.pre.name}/values{suffix}"
    together = check_together(product, entries, solver, timeout_s, name)
    if together is not None and together[1].outcome is Outcome.PROVED:
        return ValueCheck(together[0], (), ())
    if not to_the_end:
        return ValueCheck(GoalCounts(), (Finding("relation", Outcome.UNKNOWN, "not all goals are proved"),), ())
    goals = GoalCounts()
    findings: list[Finding] = []
    failed: list[FailedGoal] = []
    for number in product.order:
        name = f"{product.pre.name}/block-{number}{suffix}"
        block_check = check_block(product, number, entries, solver, timeout_s, name, describe)
        goals += block_check.goals
        findings += block_check.findings
        failed += block_check.failed
    if together is not None and not findings and not failed and together[1].outcome is not Outcome.UNKNOWN:
        # Only a limit excuses a proof of each block where all together were not proved.
        answer = Outcome.INVALID if together[1].outcome is Outcome.INVALID else Outcome.UNKNOWN
        findings.append(Finding("solver", answer, f"{name}: {together[1].reason or 'refuted'}, yet each block proved"))
    return ValueCheck(goals, tuple(findings), tuple(failed))


def judge_liveness(sides: Sides, product: Product) -> FlagCheck:
    """What the text after allocation says about liveness that is not true; known once all blocks are checked."""
    unlisted = _always_available(sides.available)
    post_check = product.liveness(unlisted).check(sides.post)
    if not post_check.faults:
        return post_check
    pre_check = check_alone(sides.pre, product.pre_lanes, product.successors, unlisted)
    partners = product.partners()
    no_reads: dict[int, list[tuple[int, int]]] = {instruction: [] for instruction in partners}
    added = check_alone(sides.post, product.post_lanes, product.successors, unlisted, no_reads)
    return dataclasses.replace(post_check, faults=new_faults(post_check, pre_check, partners, added))


def judge_module(function: str, pre: MirFile, post: MirFile, target: Target) -> tuple[Finding, ...]:
    """Refuted where the IR module is not the same after allocation; invalid where a file has none with the function.

    Later passes read budgets, work-group sizes, constants and metadata from there.
    """
    try:
        for file in (pre, post):
            function_attributes(file.preamble, function)
        difference = module_difference(pre.preamble, post.preamble, target.name)
    except VeriloccError as error:
        return (Finding("header", Outcome.INVALID, str(error)),)
    return (Finding("header", Outcome.REFUTED, difference),) if difference else ()


def _control_flow(pre: MachineFunction, post: MachineFunction) -> list[Finding]:
    """Blocks correspond by layout position; LLVM renumbers them when it reads MIR."""
    if len(pre.blocks) != len(post.blocks):
        message = f"{len(pre.blocks)} blocks became {len(post.blocks)}"
        return [Finding("control-flow", Outcome.REFUTED, message)]
    pre_positions = {b.number: n for n, b in enumerate(pre.blocks)}
    post_positions = {b.number: n for n, b in enumerate(post.blocks)}
    return [
        Finding("control-flow", Outcome.REFUTED, f"the successors of bb.{a.number} changed", block=n)
        for n, (a, b) in enumerate(zip(pre.blocks, post.blocks, strict=True))
        if [pre_positions[s] for s, _ in a.successors] != [post_positions[s] for s, _ in b.successors]
    ]


def _allocatable_units(available: Allocatable) -> frozenset[int]:
    """Units an allocator may hand out: the budgets' registers, and VCC unless it is reserved."""
    banks = ((SGPR_BASE, available.sgprs), (VGPR_BASE, available.vgprs), (AGPR_BASE, available.agprs))
    numbered = {base + 2 * n + half for base, registers in banks for n in registers for half in (0, 1)}
    return frozenset(numbered | set(physical_register("vcc").units)) - available.reserved_units


def _always_available(available: Allocatable) -> Callable[[int], bool]:
    """Reserved registers hold their value across blocks without being declared live-in; so do EXEC, MODE and their
    like.
    """
    reserved = available.reserved_units
    return lambda unit: unit in reserved or (unit >= SPECIAL_BASE and unit not in _DECLARED_SPECIALS)


def _of_brackets(pre: MachineFunction, post: MachineFunction) -> frozenset[int]:
    """Units that whole-wave brackets leave undefined: SCC, and what the headers set aside for EXEC."""
    names = {scratch_register(side, "sgprForEXECCopy") for side in (pre, post)} | {"scc"}
    return frozenset(unit for name in names - {""} for unit in physical_register(name).units)


def _saved_by_callee(
    file: MirFile, pre: MachineFunction, post: MachineFunction, available: Allocatable, target: Target
) -> frozenset[int]:
    """Units of scalar registers that must be restored before a return, also where a budget ends below them; the frame
    pointer is PEI's business, and so are the stack pointer and what keeps EXEC. Where there will be no frame pointer,
    its register is one like others (SIFrameLowering::determineCalleeSavesSGPR): where the text restores it from a lane
    or slot, it must.
    """
    convention = function_attributes(file.preamble, pre.name).calling_convention
    beyond_budget = SGPR_BASE + 2 * (max(available.sgprs, default=-1) + 1)
    saved = callee_saved(convention, target)
    units = frozenset(u for u in saved if u >= beyond_budget or u not in available.reserved_units)
    for field in ("frameOffsetReg", "stackPtrOffsetReg", "sgprForEXECCopy"):
        register = (header_field(post, field) or "").removeprefix("$")
        if register and register not in ("fp_reg", "sp_reg"):
            units -= frozenset(physical_register(register).units)
    units |= saved.intersection(_given_back(post))
    return frozenset(u for u in units if SGPR_BASE <= u < SPECIAL_BASE)


def _given_back(function: MachineFunction) -> Iterator[int]:
    """Units of the frame pointer's register, if a lane or slot gives it back."""
    frame_pointer = (header_field(function, "frameOffsetReg") or "").removeprefix("$")
    for block in function.blocks if any(facts(opcode).restores_scalar for opcode in function.opcodes) else ():
        for instruction in block.instructions:
            if facts(instruction.opcode).restores_scalar and [op.phys for op in instruction.defs] == [frame_pointer]:
                yield from physical_register(frame_pointer).units


def _fixed_targets(function: MachineFunction) -> frozenset[int]:
    """Units of the physical registers that moves and instructions without code of the pre-RA side define."""
    return frozenset(
        unit
        for b in function.blocks
        for i in b.instructions
        if acts_alone(i)
        for op in i.all_operands
        if op.is_def and op.phys
        for unit in physical_register(op.phys).units
    )
