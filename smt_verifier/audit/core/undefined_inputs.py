"""Pure instructions that read an undefined register, repeated: is that all that is wrong?

LLVM rematerialises such an instruction as if the undefined operand did not matter (``allUsesAvailableAt`` in
LiveRangeEdit.cpp looks at operands that are read only). Each execution may find something else in that register, so two
uses of what was one value may differ. Where one execution's result reaches all uses, nothing is wrong; which of the two
it is, the audit does not decide. It asks once more under the assumption that all executions find the same: if that is
proved, the answer is UNKNOWN for this reason, else the refutation stands.

A load from an undefined address is one of them. It may be repeated only where it was executed before on the same path;
that is asked in both audits.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from smt_verifier.audit.core.opcodes import facts
from smt_verifier.audit.core.report import Finding, FunctionAudit
from smt_verifier.audit.core.semantics import is_pure
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind

RULE = "undefined-input"
_SAME = Operand("undef", OperandKind.OTHER)
_SAME_ADDRESS = Operand("$ttmp0_ttmp1", OperandKind.REGISTER, phys="ttmp0_ttmp1")
"""A register of the trap handler's, which no shader writes. A register it is, for the audit to know where it was read.
"""


def with_equal_undefined_inputs(function: MachineFunction) -> MachineFunction | None:
    """The function with every undefined operand of a pure instruction replaced by one constant; None if it has none."""
    if not any(_undefined(i) for b in function.blocks for i in b.instructions):
        return None
    blocks = tuple(replace(b, instructions=tuple(_with_constant(i) for i in b.instructions)) for b in function.blocks)
    return replace(function, blocks=blocks)


def undecided(refuted: FunctionAudit, assumed: FunctionAudit) -> FunctionAudit:
    """A refutation as the answer that it is: UNKNOWN where the assumption (``assumed``) removes it."""
    if assumed.outcome is not Outcome.PROVED:
        return refuted
    first = next(f for f in refuted.findings if f.outcome is Outcome.REFUTED)
    message = (
        "an instruction that reads an undefined register is executed more than once, or elsewhere, and each execution "
        f"may give another value; all else is proved. Without that: {first.message}"
    )
    finding = replace(first, rule=RULE, outcome=Outcome.UNKNOWN, message=message)
    return replace(refuted, outcome=Outcome.UNKNOWN, findings=(finding,))


def rests_on_values(refuted: FunctionAudit, post: MachineFunction | None = None) -> bool:
    """Whether only values are at fault, no rule of the machine; or, of ``post``, loads from undefined addresses."""
    instructions = (i for b in post.blocks for i in b.instructions) if post is not None else ()
    loads = {i.line for i in instructions if facts(i.opcode).loads_scalars and _undefined(i)}
    return refuted.outcome is Outcome.REFUTED and all(_of_value(f, loads) for f in refuted.findings)


def _of_value(finding: Finding, loads: Collection[int]) -> bool:
    if finding.rule == "instruction-sequence" and finding.post_line in loads:
        return True
    return finding.rule in ("value", "relation") or finding.outcome is not Outcome.REFUTED


def _undefined(instruction: Instruction) -> tuple[Operand, ...]:
    if not is_pure(instruction):
        return ()
    return tuple(o for o in instruction.operands if o.is_use and o.undef and not o.implicit and o.tied < 0)


def _with_constant(instruction: Instruction) -> Instruction:
    undefined_operands = _undefined(instruction)
    if not undefined_operands:
        return instruction
    same = _SAME_ADDRESS if facts(instruction.opcode).loads_scalars else _SAME
    return replace(instruction, operands=tuple(same if op in undefined_operands else op for op in instruction.operands))
