"""What is wrong, in words that two kernels with one fault have in common."""

from __future__ import annotations

import re

from smt_verifier.audit import Finding, FunctionAudit
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.results.hunt import Kind, Suspect
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.verifier import verifier_fault

_OPCODE = re.compile(r"(?:^|= )(?:(?:[a-z][\w-]*|nofpexcept) )*(?P<opcode>[A-Z][A-Z0-9]*(?:_[A-Za-z0-9]+)*)\b")
_SPILL = re.compile(r"^SI_SPILL_([AVSW]+)\d+(?:_CFI)?_(SAVE|RESTORE)$")
_LANES = re.compile(r"[%$]\w+\.\w+")
_PASS = re.compile(r"Running pass '([^']+)'")
_GAVE_UP = re.compile(r"ran out of registers|requires more registers|no registers from class available")
_COMPLAINT = re.compile(r"\*\*\* Bad machine code.*?(?=\n\n|\n\*\*\*|\nLLVM ERROR|\Z)", re.DOTALL)
_NAMES = re.compile(r"'[^']*'|@\S+|%[\w.]+|\$\w+|<[^>]*>(?::\d+)*|0x[0-9a-f]+|\b[svam]?\d+\b")


def suspects(function: FunctionAudit, phase: str) -> tuple[Suspect, ...]:
    """One for each cause in it, and none where it is proved."""
    if function.outcome is Outcome.PROVED:
        return ()
    kind = Kind.REFUTED if function.outcome is Outcome.REFUTED else Kind.UNKNOWN
    decisive = [f for f in function.findings if f.outcome is function.outcome] or list(function.findings)
    causes: dict[str, Finding] = {}
    for finding in decisive:
        causes.setdefault(_cause(finding, kind), finding)
    return tuple(
        Suspect(kind, phase, cause, function.function, f"{finding.message} [{finding.instruction}]"[:600])
        for cause, finding in causes.items()
    ) or (Suspect(kind, phase, "no finding", function.function),)


def _cause(finding: Finding, kind: Kind) -> str:
    """Of a wrong value, the instruction where it got lost, or else what made it; of anything else, the instruction it
    is about.
    """
    if kind is Kind.UNKNOWN:
        return f"{finding.rule}: {plain(finding.message).partition(', ')[0]}"
    if finding.lost is not None and finding.lost.site is not None:
        return f"{finding.rule}, lost at {shape(finding.lost.site.text)}"
    sites = [fact.site for fact in finding.expected.facts if fact.site] if finding.expected else []
    if sites:
        return f"{finding.rule}, of {shape(sites[-1].text)}"
    if finding.instruction:
        return f"{finding.rule}, {shape(finding.instruction)}"
    return f"{finding.rule}: {plain(finding.message)}"


def shape(instruction: str) -> str:
    """``COPY of lanes``, ``SI_SPILL_V_RESTORE``, ``V_MFMA``: what kind of instruction it is."""
    match = _OPCODE.search(instruction)
    if not match:
        return "block"
    opcode = match["opcode"]
    if spill := _SPILL.match(opcode):
        return f"SI_SPILL_{spill[1]}_{spill[2]}"
    if opcode == "COPY":
        return "COPY of lanes" if len(_LANES.findall(instruction)) > 1 else "COPY"
    return "_".join(opcode.split("_")[:2])


def plain(words: str) -> str:
    """A message without what only one kernel has: names, numbers, registers."""
    return re.sub(r"…(?:, …)+", "…", " ".join(_NAMES.sub("…", words).split()))[:160]


def failure(error: VeriloccError, phase: str) -> Suspect:
    """What LLVM, or its driver, did instead of a text."""
    if not isinstance(error, ToolFailure):
        unusable = isinstance(error, InputError | UnsupportedError)
        return Suspect(Kind.UNUSABLE if unusable else Kind.UNKNOWN, phase, plain(error.what), "", error.render()[:600])
    if _GAVE_UP.search(error.stderr):
        return Suspect(Kind.GAVE_UP, phase, "ran out of registers", "", error.line[:600])
    if fault := verifier_fault(error):
        cause = f"{plain(min(fault.kinds))}, after {fault.after or 'reading the text'}"
        return Suspect(Kind.REJECTED, phase, cause, fault.function, _complaint(error.stderr))
    last = _PASS.findall(error.stderr)
    where = f" in {last[-1]}" if last else ""
    line = error.line if error.status > 0 or "Assertion" in error.line else f"{error.line} (status {error.status})"
    return Suspect(Kind.CRASH, phase, f"{plain(line)}{where}", "", error.line[:600])


def _complaint(stderr: str) -> str:
    """The verifier's first complaint."""
    match = _COMPLAINT.search(stderr)
    return match[0][:600] if match else ""
