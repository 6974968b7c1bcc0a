"""Where instructions stand: behind terminators, in bundles, between saves of a tuple."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from smt_verifier.audit.core.opcodes import DEBUG, LANE_SAVE, facts, listed, table_of
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.target.registers import physical_register


def check_places(steps: list[Step]) -> Iterator[Finding]:
    """What stands where it must not, in one block of the post-RA side."""
    terminated = left = False
    bundle: Instruction | None = None
    members: list[Instruction] = []
    for index, step in enumerate(steps):
        post = step.post
        if post is None:
            if step.pre is not None and step.pre.bundled:
                yield _fault("bundle", f"{step.pre} is missing in a bundle", step)
            continue
        if (
            terminated
            and not listed(post.opcode).terminates
            and not post.bundled
            and not (left and step.pre is not None)
        ):
            # On the way out by a branch before it, it is not executed; LLVM takes terminators to end the block. Behind
            # a return nothing is executed: what the given text has there (S_TRAP, for LDS in a function) may stay.
            yield _fault("control-flow", f"{post} stands behind a terminator", step)
        terminated = terminated or listed(post.opcode).terminates
        left = left or "return" in table_of(post.opcode).properties
        if post.bundled and step.pre is None:
            yield _fault("bundle", f"{post} was added in a bundle", step)
        if post.opens_bundle:
            bundle, members = post, []
        elif post.bundled:
            members.append(post)
            if post.closes_bundle and bundle is not None and not _sums_up(bundle, members):
                yield _fault("bundle", f"{bundle} does not say what its instructions read and write", step)
        if post.opcode == LANE_SAVE and not _rest_follows(post, steps[index + 1 :]):
            yield _fault("spill-slot", f"{post} defines a tuple whose other parts are not saved with it", step)


def read_undefined(post: MachineFunction) -> Iterator[Finding]:
    """Reads of virtual registers of a later phase that not every path defines before.

    An undefined value counts as a definition; one that is marked dead does not, and a read marked as the last one ends
    it (MachineVerifier, checkLiveness: "defs don't dominate all uses", "using a killed virtual register").
    """
    if not post.has_virtual_registers:
        return
    place = {b.number: n for n, b in enumerate(post.blocks)}
    defined = [0] * len(post.blocks)
    ended = [0] * len(post.blocks)
    early: list[dict[int, Instruction]] = [{} for _ in post.blocks]
    for n, block in enumerate(post.blocks):
        for i in block.instructions:
            operands = [op for op in i.all_operands if op.vreg >= 0] if i.opcode not in DEBUG else []
            for op in operands:
                if _reads(op) and not defined[n] >> op.vreg & 1:
                    early[n].setdefault(op.vreg, i)
                    if ended[n] >> op.vreg & 1:
                        yield _undefined(op.vreg, n, i)
            ended_here = {op.vreg for op in operands if op.killed or op.dead}
            for vreg in ended_here:
                defined[n] &= ~(1 << vreg)
                ended[n] |= 1 << vreg
            for op in operands:
                if op.is_def and not op.dead:
                    defined[n] |= 1 << op.vreg
    if not any(defined) and not any(early):
        return
    entry = [0] + [-1] * (len(post.blocks) - 1)
    pending = set(range(len(post.blocks)))
    while pending:
        n = pending.pop()
        for successor, _ in post.blocks[n].successors if entry[n] != -1 else ():
            at = place[successor]
            arriving = entry[at] & (entry[n] & ~ended[n] | defined[n])
            if arriving != entry[at]:
                entry[at] = arriving
                pending.add(at)
    for n, reads in enumerate(early):
        for vreg, i in reads.items():
            if not entry[n] >> vreg & 1:
                yield _undefined(vreg, n, i)


def _reads(op: Operand) -> bool:
    """A definition of some lanes reads the others (MachineOperand::readsReg)."""
    return not op.undef and (op.is_use or bool(op.sub))


def _undefined(vreg: int, block: int, i: Instruction) -> Finding:
    message = f"%{vreg} is read, but not defined on every path, or called dead or killed before"
    return Finding("undef-flag", Outcome.REFUTED, message, block, 0, i.line, str(i))


def _fault(rule: str, message: str, step: Step) -> Finding:
    pre, post = (0 if side is None else side.line for side in (step.pre, step.post))
    return Finding(rule, Outcome.REFUTED, message, pre_line=pre, post_line=post, instruction=str(step.post or step.pre))


def _sums_up(header: Instruction, members: list[Instruction]) -> bool:
    """Whether a header has its members' definitions and uses, and ends no life that they do not (finalizeBundle)."""
    inside = [op for i in members for op in i.all_operands if op.is_reg]
    heads = [op for op in header.operands if op.is_reg]

    def parts(operands: Iterable[Operand]) -> set[object]:
        return {part for op in operands for part in _parts(op)}

    defined = parts(op for op in inside if op.is_def)
    if parts(op for op in heads if op.is_def) != defined:
        return False
    used = parts(op for op in heads if op.is_use)
    if not parts(op for op in inside if op.is_use and not op.internal) - defined <= used:
        return False
    killed = parts(op for op in inside if op.killed) | defined
    return parts(op for op in heads if op.killed) <= killed and not any(op.dead and op.is_def for op in heads)


def _parts(op: Operand) -> tuple[object, ...]:
    return physical_register(op.phys).units if op.phys else ((op.vreg, op.sub),)


def _rest_follows(save: Instruction, following: list[Step]) -> bool:
    """Whether the tuple that a save of a scalar into a lane defines is saved in full by this one and the next ones.

    Between them may stand spill code of other registers: where the tuple reaches into the next vector register, the
    fast allocator stores the first one in between.
    """
    own_parts = {part for op in save.operands if op.is_use and not op.implicit for part in _parts(op) if op.is_reg}
    scalar = next(op for op in save.operands if not op.implicit)
    tuple_parts = {part for op in save.operands if op.implicit and op.is_def and op.is_reg for part in _parts(op)}
    if not own_parts.intersection(tuple_parts):
        return True
    saved = set(_parts(scalar)) if scalar.is_reg else set[object]()
    for step in following:
        if tuple_parts <= saved or step.post is None:
            break
        if step.post.opcode not in DEBUG | {LANE_SAVE}:
            touched = {part for op in step.post.all_operands if op.is_reg for part in _parts(op)}
            if facts(step.post.opcode).spill is None or touched & tuple_parts:
                break
        elif step.post.opcode == LANE_SAVE and step.post.operands[0].is_reg:
            saved.update(_parts(step.post.operands[0]))
    return tuple_parts <= saved
