"""Audit: translation validation of register allocation, pre-RA machine IR against post-RA machine IR.

Theorem. Let P be a function before a register-allocation phase and Q the text after it, as LLVM reads it on. If
``audit`` answers PROVED, then for every path of blocks and every thread of the wave:

1. P and Q execute the same instructions in the same order, but for copies, spill code, instructions that emit no
   code, and pure instructions that one side repeats or drops (``align.py`` pairs them, ``rules.py`` compares the
   pairs);
2. whenever a paired instruction reads an operand, each lane of Q's register holds the value that P's operand holds,
   unless P leaves that lane undefined; so, instructions being uninterpreted functions of what they read, both compute
   the same;
3. fixed physical operands are the same registers, and Q obeys the machine's rules: class, alignment, width, reserved
   registers, early-clobber, ties, spill slots (``rules.py``, ``execute.py``), and what Q says about liveness, on
   which later passes rely (``flags.py``).

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

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from smt_verifier.audit.align import acts_alone
from smt_verifier.audit.brackets import without_brackets
from smt_verifier.audit.check import check_block
from smt_verifier.audit.explain import FailedGoal, by_cause, explain_failures
from smt_verifier.audit.flags import check_alone, new_faults
from smt_verifier.audit.header import compare_headers, unreserved_cells
from smt_verifier.audit.infer import infer
from smt_verifier.audit.masks import TooManyClassesError
from smt_verifier.audit.numbering import with_numbers_of
from smt_verifier.audit.operations import operation_name
from smt_verifier.audit.product import Product, has_virtual_registers, instructions_of
from smt_verifier.audit.readers import explain_faults
from smt_verifier.audit.relation import Claims
from smt_verifier.audit.report import AuditReport, Finding, FunctionAudit, MoveCounts
from smt_verifier.audit.rules import MachineRules
from smt_verifier.audit.semantics import is_pure, moves_only, spill
from smt_verifier.audit.undefined_inputs import rests_on_values, undecided, with_equal_undefined_inputs
from smt_verifier.outcome import Outcome, combine
from smt_verifier.smt import Solver, default_solver
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.callingconv import callee_saved
from verilocc_mlir.target.registers import AGPR_BASE, SGPR_BASE, SPECIAL_BASE, VGPR_BASE, physical_register
from verilocc_mlir.target.reserved import Allocatable, allocatable
from verilocc_mlir.target.targets import Target

__all__ = ["RULES", "AuditReport", "Finding", "FunctionAudit", "MoveCounts", "audit", "audit_function"]

RULES = (
    "value",
    "inactive-lanes",
    "undef-flag",
    "kill-flag",
    "dead-flag",
    "live-in",
    "early-clobber",
    "instruction-sequence",
    "instruction-flags",
    "memory-operands",
    "bundle",
    "operands",
    "fixed-register",
    "tied-operand",
    "width",
    "register-class",
    "reserved-register",
    "overlapping-definitions",
    "spill-slot",
    "callee-saved",
    "control-flow",
    "header",
    "relation",
    "solver",
    "undefined-input",
    "unsupported",
)
"""Stable names of everything a finding can be about."""

_DECLARED_SPECIALS = frozenset(u for n in ("vcc", "scc") for u in physical_register(n).units)


def audit(
    pre: MirFile, post: MirFile, target: Target, *, timeout_s: float = 60.0, solver: Solver | None = None
) -> AuditReport:
    """Audit every function of a file.

    Args:
        pre: text before the phase (stopped before ``greedy,N``), as the allocator read it.
        post: text after it (as after ``virtregrewriter,N``), as LLVM will read it.
        target: the GPU both are for.
        timeout_s: seconds the solver may take for one block; UNKNOWN after that.
        solver: Z3 in a worker process where none is given.

    Functions are matched by name; one that is missing or added makes the outcome INVALID.
    """
    after = {f.name: f for f in post.functions}
    done: list[FunctionAudit] = []
    for function in pre.functions:
        other = after.pop(function.name, None)
        if other is None:
            done.append(_single(function.name, Outcome.INVALID, "header", "the function is missing after allocation"))
        else:
            judged = audit_function(pre, function, other, target, timeout_s=timeout_s, solver=solver)
            done.append(_with_attributes(judged, pre, post))
    done += [_single(n, Outcome.INVALID, "header", "the function was not there before allocation") for n in after]
    return AuditReport(tuple(done))


def audit_function(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    *,
    timeout_s: float = 60.0,
    solver: Solver | None = None,
) -> FunctionAudit:
    """Audit one function; ``file`` is the pre-RA file, whose preamble holds the function's IR attributes."""
    asked = solver or default_solver()
    try:
        judged = _in_fine_or_coarse(file, pre, post, target, timeout_s, asked)
        if rests_on_values(judged):
            before, after = with_equal_undefined_inputs(pre), with_equal_undefined_inputs(post)
            if before is not None and after is not None:
                assumed = _in_fine_or_coarse(file, before, after, target, timeout_s, asked)
                return undecided(judged) if assumed.outcome is Outcome.PROVED else judged
        return judged
    except UnsupportedError as error:
        return _single(pre.name, Outcome.UNKNOWN, "unsupported", str(error))
    except VeriloccError as error:
        return _single(pre.name, Outcome.INVALID, "header", str(error))


def _in_fine_or_coarse(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    timeout_s: float,
    solver: Solver,
) -> FunctionAudit:
    judged = _classed(file, pre, post, target, timeout_s, solver, frozenset())
    # Any pairing will do if it is proved; equal instructions in a row may have been paired the wrong way.
    lines = _perhaps_mispaired(pre, post, judged) if rests_on_values(judged) else frozenset[int]()
    if lines:
        again = _classed(file, pre, post, target, timeout_s, solver, lines)
        return again if again.outcome is Outcome.PROVED else judged
    return judged


def _classed(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    timeout_s: float,
    solver: Solver,
    apart: frozenset[int],
) -> FunctionAudit:
    try:
        return _audit(file, pre, post, target, timeout_s, solver, apart)
    except TooManyClassesError:
        return _audit(file, pre, post, target, timeout_s, solver, apart, coarse=True)


def _perhaps_mispaired(pre: MachineFunction, post: MachineFunction, judged: FunctionAudit) -> frozenset[int]:
    """Lines of pure pre-RA instructions that read a wrong value, of operations that the post-RA block has more of."""
    wrong = {f.pre_line: f.block for f in judged.findings if f.rule == "value" and f.pre_line and f.block >= 0}
    found: set[int] = set()
    for line, block in wrong.items():
        before = [i for i in pre.blocks[block].instructions if is_pure(i)]
        name = next((operation_name(i) for i in before if i.line == line), None)
        if name is not None:
            after = [i for i in post.blocks[block].instructions if is_pure(i)]
            counts = [sum(operation_name(i) == name for i in side) for side in (before, after)]
            if counts[1] > counts[0]:
                found.add(line)
    return frozenset(found)


def _audit(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    timeout_s: float,
    solver: Solver,
    apart_lines: frozenset[int],
    coarse: bool = False,
) -> FunctionAudit:
    post = with_numbers_of(pre, post)
    pre, post = without_brackets(pre), without_brackets(post)
    findings = compare_headers(pre, post) + _control_flow(pre, post)
    if findings:
        return FunctionAudit(
            pre.name, combine(f.outcome for f in findings), len(findings), tuple(findings), MoveCounts()
        )
    available = allocatable(pre, file.preamble, target)
    saved = _saved_by_callee(file, pre, post, available, target)

    def paired(apart: frozenset[int]) -> tuple[Product, MachineRules]:
        product = Product(pre, post, target.wave_size, available.kept_units, saved, apart, coarse)
        return product, MachineRules(
            product.pre_lanes,
            product.post_lanes,
            {a.number: b.number for a, b in zip(pre.blocks, post.blocks, strict=True)},
            _allocatable_units(available),
            _fixed_targets(pre),
            target.has_agprs,
            product.originals,
        )

    apart = frozenset(id(i) for b in pre.blocks for i in b.instructions if i.line in apart_lines)
    product, rules = paired(apart)
    misfits = _wrongly_paired(pre, product, rules)
    if misfits:
        product, rules = paired(apart | misfits)
    if header_field(post, "isEntryFunction") != "true" and not has_virtual_registers(post):
        findings += unreserved_cells(post, product.post_lanes)
    obligations = 0
    for number, steps in enumerate(product.steps):
        for step in steps:
            obligations += 1
            findings += [_at(f, number) for f in rules.check(step)]
    # What is missing or added shifts the pairs of pure instructions beside it: it comes first.
    findings.sort(key=lambda f: f.rule != "instruction-sequence")
    if not findings:
        # Most functions with many classes of threads can be proved without telling them apart.
        entries, united = infer(product, unite=True)
        goals, unproved, failed = _check_blocks(product, entries, solver, timeout_s, united=united)
        if united and (unproved or failed):
            product.executor.real_reads.clear()
            entries, _ = infer(product)
            goals, unproved, failed = _check_blocks(product, entries, solver, timeout_s, united=False)
        obligations += goals
        findings += unproved
        unlisted = _always_available(available)
        flagged = product.liveness(unlisted).check(post)
        obligations += flagged.checked
        if flagged.faults:
            given = check_alone(pre, product.pre_lanes, product.successors, unlisted)
            partners = product.partners()
            nothing: dict[int, list[tuple[int, int]]] = {instruction: [] for instruction in partners}
            added = check_alone(post, product.post_lanes, product.successors, unlisted, nothing)
            findings += explain_faults(product, new_faults(flagged, given, partners, added))
        findings = by_cause(explain_failures(product, failed), findings)
    outcome = combine(f.outcome for f in findings)
    return FunctionAudit(pre.name, outcome, obligations, tuple(findings), _moves(product))


def _check_blocks(
    product: Product, entries: list[Claims | None], solver: Solver, timeout_s: float, *, united: bool
) -> tuple[int, list[Finding], list[FailedGoal]]:
    """How many goals the blocks have, what could not be shown but for goals, and the goals that fail.

    Claims of united classes are given up at the first block that needs more.
    """
    goals = 0
    findings: list[Finding] = []
    failed: list[FailedGoal] = []
    for number in product.order:
        name = f"{product.pre.name}/block-{number}" + "/united" * united
        checked = check_block(product, number, entries, solver, timeout_s, name)
        goals += checked.goals
        findings += checked.findings
        failed += checked.failed
        if united and (findings or failed):
            break
    return goals, findings, failed


def _wrongly_paired(pre: MachineFunction, product: Product, rules: MachineRules) -> frozenset[int]:
    """Pre-RA instructions, by ``id``, whose partner rather repeats another one of the same operation.

    Equal instructions in a row (constants, for the lanes of a tuple) pair in order; that may be the wrong order.
    """
    misfits = [s for steps in product.steps for s in steps if rules.misfits(s)]
    originals = instructions_of(pre, {operation_name(s.post) for s in misfits if s.post})
    return frozenset(
        id(s.pre)
        for s in misfits
        if s.post and rules.repeats(s.post, [i for i in originals.get(operation_name(s.post), ()) if i is not s.pre])
    )


def _with_attributes(judged: FunctionAudit, pre: MirFile, post: MirFile) -> FunctionAudit:
    """Refuted where the IR module after allocation gives the function another convention or other attributes.

    Later passes read budgets, work-group sizes and the like from there.
    """
    try:
        before, after = (function_attributes(file.preamble, judged.function) for file in (pre, post))
    except VeriloccError as error:
        changed = str(error)
    else:
        same = (before.calling_convention, before.strings) == (after.calling_convention, after.strings)
        changed = "" if same else "the IR attributes or the calling convention of the function changed"
    if not changed:
        return judged
    finding = Finding("header", Outcome.REFUTED, changed)
    outcome = combine((judged.outcome, Outcome.REFUTED))
    return replace(judged, outcome=outcome, findings=(*judged.findings, finding))


def _control_flow(pre: MachineFunction, post: MachineFunction) -> list[Finding]:
    """Blocks correspond by layout position; LLVM renumbers them when it reads MIR."""
    if len(pre.blocks) != len(post.blocks):
        message = f"{len(pre.blocks)} blocks became {len(post.blocks)}"
        return [Finding("control-flow", Outcome.REFUTED, message)]
    left = {b.number: n for n, b in enumerate(pre.blocks)}
    right = {b.number: n for n, b in enumerate(post.blocks)}
    return [
        Finding("control-flow", Outcome.REFUTED, f"the successors of bb.{a.number} changed", block=n)
        for n, (a, b) in enumerate(zip(pre.blocks, post.blocks, strict=True))
        if [left[s] for s, _ in a.successors] != [right[s] for s, _ in b.successors]
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


def _saved_by_callee(
    file: MirFile, pre: MachineFunction, post: MachineFunction, available: Allocatable, target: Target
) -> frozenset[int]:
    """Units of scalar registers that must be restored before a return; the frame pointer is PEI's business."""
    convention = function_attributes(file.preamble, pre.name).calling_convention
    frame = (header_field(post, "frameOffsetReg") or "").removeprefix("$")
    units = callee_saved(convention, target) - available.reserved_units
    if frame and frame != "fp_reg":
        units -= frozenset(physical_register(frame).units)
    return frozenset(u for u in units if SGPR_BASE <= u < SPECIAL_BASE)


def _fixed_targets(function: MachineFunction) -> frozenset[str]:
    """Physical registers that moves of the pre-RA side write."""
    return frozenset(
        i.defs[0].phys
        for b in function.blocks
        for i in b.instructions
        if i.defs and i.defs[0].phys and moves_only(i.opcode)
    )


def _moves(product: Product) -> MoveCounts:
    count: Counter[str] = Counter()
    for block in product.pre.blocks:
        count["before"] += sum(1 for i in block.instructions if i.opcode == "COPY")
    for block in product.post.blocks:
        for instruction in block.instructions:
            kind = spill(instruction.opcode)
            if instruction.opcode == "COPY":
                count["after"] += 1
            elif kind is not None:
                count["saves" if kind[2] else "reloads"] += 1
    alone = [
        s for steps in product.steps for s in steps if s.pre is None and s.post is not None and not acts_alone(s.post)
    ]
    return MoveCounts(count["before"], count["after"], count["saves"], count["reloads"], len(alone))


def _at(finding: Finding, block: int) -> Finding:
    return replace(finding, block=block)


def _single(function: str, outcome: Outcome, rule: str, message: str) -> FunctionAudit:
    return FunctionAudit(function, outcome, 1, (Finding(rule, outcome, message),), MoveCounts())
