"""What callees keep: registers that the masks of calls name beyond the calling convention.

Theorem. Let T be the audited text after the last phase and C the text of the same module behind LLVM's last pass, from
which the object is printed. If ``check_calls`` has no findings, then at every call in T or C whose mask is written out,
every unit that the mask names, and that the callee's calling convention does not preserve, holds behind the call what
it held before.

Proof. By induction over the number of steps between the call and its return. Each step of the callee is an instruction
of its code in C that does not define the unit, or a call in C whose masks name it. Of the latter, either the mask is a
convention's, or written out: then the unit is the convention's, or the induction hypothesis is about that call. No
other code can run in the callee's place: only functions with local linkage, which the linker cannot replace, may be
promised for.

Assumed: what the audit assumes of every call, that conventions are kept (docs/trust/base.md); that the function which
a call names is the one whose address it goes to; that the object is what LLVM prints of C
(``verilocc_mlir.pipeline.callees`` compares it).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from smt_verifier.audit.core.opcodes import DEBUG, table_of
from smt_verifier.audit.core.report import Finding
from smt_verifier.audit.core.semantics import is_call, preserved_by
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.callingconv import calls_in, kept_for_callers
from verilocc_mlir.target.registers import physical_register, unit_name
from verilocc_mlir.target.targets import Target

_RULE = "call-mask"
_LONGEST = 200
"""Characters of an instruction that a finding shows: a mask names hundreds of registers."""


def check_calls(text: MirFile, code: MirFile, target: Target) -> tuple[Finding, ...]:
    """What is not shown of the calls in ``text`` and in ``code``; nothing where the theorem holds.

    Raises:
        InputError: the module does not define a function. UnsupportedError: a mask, convention or opcode is not known.
    """
    functions = (*text.functions, *code.functions)
    file = replace(code, functions=functions)
    findings = [finding for function in functions for finding in _replaceable(code, function)]
    for function in code.functions:
        findings += _overwritten(function, kept_for_callers(file, function.name, target))
    return tuple(findings)


def newly_overwritten(
    file: MirFile, pre: MachineFunction, post: MachineFunction, target: Target
) -> tuple[Finding, ...]:
    """Instructions after allocation that may write what the calls in ``file`` say is kept, and ``pre`` does not write.

    What it writes itself is arguments of calls, whose copies LLVM may drop later: the final code decides.

    Raises:
        UnsupportedError: a mask, convention or opcode is not known.
    """
    kept = kept_for_callers(file, pre.name, target)
    return tuple(_overwritten(post, kept - may_write(pre, kept))) if kept else ()


def _overwritten(function: MachineFunction, kept: frozenset[int]) -> Iterator[Finding]:
    if not kept:
        return
    for position, block in enumerate(function.blocks):
        for instruction in block.instructions:
            if lost := _lost(instruction, kept):
                message = f"{unit_name(min(lost))} is written, and a call of {function.name} says that it is kept"
                yield _refuted(message, position, instruction)


def may_write(function: MachineFunction, units: frozenset[int]) -> frozenset[int]:
    """Those of ``units`` that a function, or what it calls, may write, callee-saved ones that it restores included.

    Raises:
        UnsupportedError: a mask or opcode is not known.
    """
    return frozenset[int]().union(*(_lost(i, units) for b in function.blocks for i in b.instructions))


def _lost(instruction: Instruction, kept: frozenset[int]) -> frozenset[int]:
    """Those units of ``kept`` that an instruction may write, or that may be written before it is done."""
    if instruction.opcode in DEBUG:
        return frozenset()
    table = table_of(instruction.opcode)
    names = [op.phys for op in instruction.all_operands if op.is_def and op.is_reg and op.phys]
    written = {unit for name in (*names, *table.implicit_definitions) for unit in physical_register(name).units}
    if is_call(instruction):
        return kept & written | kept - preserved_by(instruction)
    return kept if "call" in table.properties else kept & written


def _replaceable(code: MirFile, function: MachineFunction) -> Iterator[Finding]:
    """Calls with a mask of their own whose callee may be another function than the one in ``code``."""
    bodies = {f.name for f in code.functions}
    for call in calls_in(function):
        if not call.is_written_out:
            continue
        if call.callee not in bodies or not function_attributes(code.preamble, call.callee).is_local:
            callee = call.callee or "what it calls"
            yield _refuted(f"{callee} may be any function, of which nothing is known", -1, call.instruction)


def _refuted(message: str, block: int, instruction: Instruction) -> Finding:
    return Finding(
        _RULE, Outcome.REFUTED, message, block, post_line=instruction.line, instruction=str(instruction)[:_LONGEST]
    )
