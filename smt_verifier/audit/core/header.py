"""The YAML header of both sides: what allocation may change, and what it must not."""

from __future__ import annotations

import re

from smt_verifier.audit.core.brackets import scratch_register
from smt_verifier.audit.core.lanes import LaneMap, key_name
from smt_verifier.audit.core.moves import cell_registers
from smt_verifier.audit.core.numbering import without_number
from smt_verifier.audit.core.report import Finding
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.target.registers import physical_register

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
_WHOLE_WAVE_LISTS = frozenset({"wwmReservedRegs", "spillPhysVGPRs"})
_SCRATCH = frozenset({"sgprForEXECCopy", "vgprForAGPRCopy"})
_LLVM_DERIVES_ANEW = frozenset({"occupancy", "maxCallFrameSize", "adjustsStack", "hasCalls", "isCalleeSavedInfoValid"})


def _kept_lines(function: MachineFunction) -> list[str]:
    """Header lines that allocation must leave alone."""
    kept: list[str] = []
    skipping = listing = False
    for line in function.header_lines:
        key = line.strip().partition(":")[0]
        if not line.startswith(" "):
            skipping = key in _SECTIONS_OF_ALLOCATION
        listing = key in _WHOLE_WAVE_LISTS or (listing and key.startswith("- "))
        if not skipping and not listing and key not in _FIELDS_OF_ALLOCATION | _SCRATCH | _LLVM_DERIVES_ANEW:
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
    for name in _SCRATCH:
        findings += _scratch(name, pre, post)
    for name in _WHOLE_WAVE_LISTS:
        findings += [
            Finding("header", Outcome.REFUTED, f"${register} is no longer in {name}")
            for register in sorted(_listed(pre, name) - _listed(post, name))
        ]
    for number, row in pre.stack.items():
        other = post.stack.get(number)
        if other is None or (other.size, other.alignment, other.type) != (row.size, row.alignment, row.type):
            findings.append(Finding("header", Outcome.REFUTED, f"stack object {number} changed"))
    if sorted(map(without_number, pre.fixed_stack.values())) != sorted(map(without_number, post.fixed_stack.values())):
        findings.append(Finding("header", Outcome.REFUTED, "the fixed stack objects changed"))
    return findings


def _scratch(name: str, pre: MachineFunction, post: MachineFunction) -> list[Finding]:
    """A register LLVM sets aside between the phases for lowering spills later, or gives up: nothing
    else may use it.
    """
    before, after = (scratch_register(f, name) for f in (pre, post))
    if after in ("", before) or not _mentions(post, after):
        return []
    return [Finding("header", Outcome.REFUTED, f"{name} became ${after}, which is not free for it")]


def _mentions(function: MachineFunction, name: str) -> bool:
    units = set(physical_register(name).units)
    return any(
        not units.isdisjoint(physical_register(op.phys).units)
        for b in function.blocks
        for i in b.instructions
        for op in i.all_operands
        if op.phys and op.is_reg
    )


def unreserved_cells(post: MachineFunction, lanes: LaneMap) -> list[Finding]:
    """Registers that hold scalars in single lanes must be reserved for whole-wave use, so that later passes save the
    lanes of inactive threads (SIFrameLowering.cpp) and copies leave them alone.
    """
    listed = whole_wave_keys(post, lanes)
    cells = {k for k in cell_registers(post, lanes) if k < 0}
    return [
        Finding(
            "header",
            Outcome.REFUTED,
            f"{key_name(k, lanes.grain)} holds spilled scalars, but is not in wwmReservedRegs",
        )
        for k in sorted(cells - listed, reverse=True)
    ]


def whole_wave_keys(function: MachineFunction, lanes: LaneMap) -> frozenset[int]:
    """Registers reserved for whole-wave use: a called function saves them for all threads (SIFrameLowering.cpp)."""
    return frozenset(k for name in _listed(function, "wwmReservedRegs") for k in lanes.register_keys(name))


def _listed(function: MachineFunction, name: str) -> frozenset[str]:
    """Registers in a list of ``machineFunctionInfo``, without ``$``."""
    found: set[str] = set()
    listing = False
    for line in function.header_lines:
        key, _, rest = line.strip().partition(":")
        listing = key == name or (listing and key.startswith("- "))
        if listing:
            found.update(_REGISTER.findall(rest if key == name else key))
    return frozenset(found)


_REGISTER = re.compile(r"\$(\w+)")
