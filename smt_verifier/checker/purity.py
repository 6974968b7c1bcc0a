"""What one text may repeat or leave out (specification 8.1)."""

from __future__ import annotations

from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction, MemoryOperand, Operand, is_relative
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import EXEC_NAMES

_CONSTANT_MEMORY = ", addrspace 4"


def is_pure(instruction: Instruction, opcode: Opcode, lanes: Lanes) -> bool:
    """Whether the first result is a function of what is read, and nothing else happens that matters."""
    loads = "scalar-load" in opcode.traits
    if not loads and opcode.traits.isdisjoint(("pure", "pure-exec")):
        return False
    if not _is_plain(instruction) or not all(_is_pure_operand(o, lanes) for o in instruction.operands):
        return False
    if "relative" not in opcode.traits and any(is_relative(o) for o in instruction.operands):
        return False
    if loads:
        return bool(instruction.memory) and all(map(_is_invariant, instruction.memory))
    return not instruction.memory and ("nofpexcept" in instruction.flags or "may-raise" not in opcode.traits)


def is_dropped(instruction: Instruction, opcode: Opcode, lanes: Lanes, *, is_counted: bool) -> bool:
    """Whether P may have it and Q not: it is pure, or loads and does nothing else (8.4); ``is_counted``: P waits for a
    number of accesses.
    """
    loads = "plain-load" in opcode.traits and bool(instruction.memory) and _is_plain(instruction) and not is_counted
    return (loads and all(map(_is_quiet, instruction.memory))) or is_pure(instruction, opcode, lanes)


def _is_plain(instruction: Instruction) -> bool:
    """One explicit result, in no bundle, nothing but debug locations behind the operands."""
    return (
        instruction.definitions == 1
        and not (instruction.in_bundle or instruction.opens_bundle)
        and all(t.startswith("debug-location ") for t in instruction.tail)
    )


def _is_quiet(memory: MemoryOperand) -> bool:
    return memory.loads and not (memory.stores or memory.volatile or memory.is_atomic)


def _is_invariant(memory: MemoryOperand) -> bool:
    """Whether it gives the same wherever it is read again."""
    safe = memory.dereferenceable or memory.rest.endswith(_CONSTANT_MEMORY)
    return _is_quiet(memory) and memory.invariant and safe


def _is_pure_operand(operand: Operand, lanes: Lanes) -> bool:
    if not operand.is_register or operand.vreg >= 0:
        return True
    register = lanes.register(operand.register)
    if operand.is_def:
        return register.file != "x" or "result" in register.marks or (operand.is_implicit and operand.register == "scc")
    if operand.register in EXEC_NAMES:
        return operand.is_implicit
    return register.file != "x" or "input" in register.marks


def pure_reads(instruction: Instruction, opcode: Opcode) -> list[int]:
    """Numbers of the operands that a pure instruction reads; EXEC first, and only if its result depends on it (8.3)."""
    execs = [n for n, o in enumerate(instruction.operands) if o.is_use and o.register in EXEC_NAMES]
    old = instruction.definitions if _leaves_old(instruction, opcode) else -1
    others = [n for n, o in enumerate(instruction.operands) if o.is_use and n not in execs and n != old]
    return (execs[:1] if "pure-exec" in opcode.traits else []) + others


def _leaves_old(instruction: Instruction, opcode: Opcode) -> bool:
    """Whether it is DPP that leaves its first source, the old value, unread: no row or bank is masked, and threads out
    of bounds read 0 (GCNDPPCombine.cpp).
    """
    explicit = [o.text for o in instruction.operands if not o.is_implicit]
    return "may-leave-old" in opcode.traits and explicit[-3:] in (["15", "15", "1"], ["15", "15", "-1"])
