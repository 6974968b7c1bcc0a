"""The YAML header of both sides: what allocation may change, and what it must not."""

from __future__ import annotations

from smt_verifier.audit.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import MachineFunction

_SECTIONS_OF_ALLOCATION = frozenset({"registers", "liveins", "stack", "body"})
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
    return findings
