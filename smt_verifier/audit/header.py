"""The YAML header of both sides: what allocation may change, and what it must not."""

from __future__ import annotations

import re
from dataclasses import replace

from smt_verifier.audit.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction, StackObject

_SECTIONS_OF_ALLOCATION = frozenset({"registers", "liveins", "stack", "fixedStack", "body"})
_FIELDS_OF_ALLOCATION = frozenset(
    {
        "noVRegs",
        "tracksDebugUserValues",
        "hasSpilledSGPRs",
        "hasSpilledVGPRs",
        "maxAlignment",
        "failsVerification",
        "isSSA",
    }
)
_LLVM_DERIVES_ANEW = frozenset({"occupancy", "maxCallFrameSize", "adjustsStack", "hasCalls", "isCalleeSavedInfoValid"})


def _kept_lines(function: MachineFunction) -> list[str]:
    """Header lines that allocation must leave alone."""
    kept: list[str] = []
    skipping = False
    for line in function.header_lines:
        key = line.strip().partition(":")[0]
        if not line.startswith(" "):
            skipping = key in _SECTIONS_OF_ALLOCATION
        if not skipping and key not in _FIELDS_OF_ALLOCATION and key not in _LLVM_DERIVES_ANEW:
            kept.append(line.rstrip())
    return kept


def compare_headers(pre: MachineFunction, post: MachineFunction) -> list[Finding]:
    """One finding for each header line that changed, and for stack objects and live-ins that are not what they were."""
    before, after = _kept_lines(pre), _kept_lines(post)
    changed = [line for line in before if line not in after] + [line for line in after if line not in before]
    findings = [
        Finding("header", Outcome.REFUTED, f"header line {line.strip()!r} is not on both sides") for line in changed
    ]
    if [r.reg for r in pre.liveins] != [r.reg for r in post.liveins]:
        findings.append(Finding("header", Outcome.REFUTED, "the function's live-in registers changed"))
    for number, row in pre.stack.items():
        other = post.stack.get(number)
        if other is None or (other.size, other.alignment, other.type) != (row.size, row.alignment, row.type):
            findings.append(Finding("header", Outcome.REFUTED, f"stack object {number} changed"))
    if sorted(map(_without_number, pre.fixed_stack.values())) != sorted(
        map(_without_number, post.fixed_stack.values())
    ):
        findings.append(Finding("header", Outcome.REFUTED, "the fixed stack objects changed"))
    return findings


_NUMBER = re.compile(r"\bid: \d+")
_FIXED = re.compile(r"%fixed-stack\.(\d+)")


def _without_number(row: StackObject) -> str:
    return " ".join(_NUMBER.sub("", row.text).split())


def with_numbers_of(pre: MachineFunction, post: MachineFunction) -> MachineFunction:
    """``post`` with fixed stack objects numbered as in ``pre``: LLVM numbers them anew whenever it reads MIR.

    Objects correspond by everything but their number (``compare_headers`` has checked that they do).
    """
    waiting: dict[str, list[int]] = {}
    for row in pre.fixed_stack.values():
        waiting.setdefault(_without_number(row), []).append(row.id)
    names = {row.id: waiting[_without_number(row)].pop() for row in post.fixed_stack.values()}
    if all(old == new for old, new in names.items()):
        return post

    def rename(text: str) -> str:
        return _FIXED.sub(lambda m: f"%fixed-stack.{names[int(m[1])]}" if int(m[1]) in names else m[0], text)

    def renamed(instruction: Instruction) -> Instruction:
        if "%fixed-stack." not in instruction.render():
            return instruction
        operands = tuple(replace(op, text=rename(op.text)) for op in instruction.operands)
        return replace(instruction, operands=operands, memory=tuple(rename(m) for m in instruction.memory))

    blocks = tuple(replace(b, instructions=tuple(renamed(i) for i in b.instructions)) for b in post.blocks)
    return replace(post, blocks=blocks)
