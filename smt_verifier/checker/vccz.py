"""VCCZ, by which S_CBRANCH_VCCZ and S_CBRANCH_VCCNZ branch (specification 10.12)."""

from __future__ import annotations

from enum import Enum

from smt_verifier.checker.forms import Forms
from smt_verifier.checker.lanes import Lanes
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.outcome import Refused

_BRANCHES = ("S_CBRANCH_VCCZ", "S_CBRANCH_VCCNZ")
_NAMES, _HALVES = frozenset({"vcc", "vcc_lo", "vcc_hi"}), frozenset({"vcc_lo", "vcc_hi"})
_MAJOR = 9
"""Behind it VCCZ is that of VCC, however that is written (GCNSubtarget::partialVCCWritesUpdateVCCZ)."""


class _Write(Enum):
    """What an instruction does to VCC."""

    NONE = "nothing"
    HOLLOW = "LLVM takes it for a write of all, which it is not"
    HALVES = "it writes halves, and VCCZ stays as it was"
    WHOLE = "it writes all of it, and VCCZ too"


def check_vccz(after: Lanes, forms: Forms, major: int) -> None:
    """No branch reads a VCCZ that LLVM takes for that of VCC because an instruction says that it defines VCC.

    Raises:
        Refused: one does.
    """
    for number in range(len(after.parts)) if major <= _MAJOR else ():
        for at, i in enumerate(after.code(number)):
            if i.opcode in _BRANCHES and _is_stale(after, forms, number, at):
                raise Refused("not-followed", f"{i.opcode}: LLVM may not set VCCZ before it", f"line {i.line}")


def _is_stale(after: Lanes, forms: Forms, number: int, at: int) -> bool:
    """Whether on some way to an instruction VCC is written by halves, or not at all, and later said to be defined."""
    pending, seen = [(number, at, False)], set[tuple[int, bool]]()
    while pending:
        block, end, hollow = pending.pop()
        write = _Write.NONE
        for i in reversed(after.code(block)[:end]):
            write = _write(i, forms)
            if write in (_Write.HALVES, _Write.WHOLE):
                break
            hollow = hollow or write is _Write.HOLLOW
        else:
            write = _Write.NONE
        if hollow and (write is _Write.HALVES or (write is _Write.NONE and block == 0)):
            return True
        if write is _Write.NONE:
            ahead = [(n, hollow) for n in after.predecessors[block] if (n, hollow) not in seen]
            seen.update(ahead)
            pending += [(n, len(after.code(n)), hollow) for n, hollow in ahead]
    return False


def _write(i: Instruction, forms: Forms) -> _Write:
    opcode = forms.opcode(i)
    defined = [o for o in i.operands if o.is_def and o.register in _NAMES]
    if "no-code" in opcode.traits or not defined:
        saved = opcode.value("spill") and any(o.register == "vcc" for o in i.operands)
        return _Write.HOLLOW if defined or saved else _Write.NONE
    if any(o.register in _HALVES for o in defined):
        return _Write.HALVES
    if all(o.is_implicit for o in defined) and "vcc" not in opcode.implicit_definitions and "asm" not in opcode.traits:
        return _Write.HOLLOW
    # LLVM expands these, into writes of halves for all that is known here.
    return _Write.HALVES if i.opcode.startswith("SI_") or "PSEUDO" in i.opcode.upper() else _Write.WHOLE
