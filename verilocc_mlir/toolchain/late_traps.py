"""Trap: LLVM puts ``S_TRAP`` behind the return of a function that is no kernel and takes an address in LDS.

llc warns ("local memory global used by non-kernel function") and goes on. Its machine verifier then finds a
"non-terminator instruction after the first terminator" in what LLVM itself selected, and LLVM's own compile with
``-verify-machineinstrs`` ends so too. Nothing reaches the trap. llc verifies every machine IR text as it reads it, so
such a function is left off the verifier for good: its text says ``failedISel``, which no pass behind selection looks at
(MachineVerifier::verify; ``failsVerification`` is heeded between passes only).
"""

from __future__ import annotations

import re

_DOCUMENT = re.compile(r"^---\nname: +(?P<name>\S.*?) *$", re.MULTILINE)
_LATE = re.compile(r"^ +(?:SI_RETURN|S_SETPC_B64_return)\b.*\n +S_TRAP ", re.MULTILINE)
_MARK = re.compile(r"^(?P<field>failedISel: +)(?:false|true)$", re.MULTILINE)


def leave_unverified(mir: str) -> str:
    """Machine IR as LLVM selected it, with these functions left off its verifier."""
    if "S_TRAP " not in mir:
        return mir
    starts = [start.start() for start in _DOCUMENT.finditer(mir)]
    documents = [mir[start:end] for start, end in zip(starts, [*starts[1:], len(mir)], strict=True)]
    marked = [_MARK.sub(r"\g<field>true", d, count=1) if _LATE.search(d) else d for d in documents]
    return mir[: starts[0]] + "".join(marked) if starts else mir


def left_unverified(mir: str) -> tuple[str, ...]:
    """Names of the functions that are left off the verifier."""
    names: list[str] = []
    for start in _DOCUMENT.finditer(mir):
        mark = _MARK.search(mir, start.end())
        if mark is not None and mark[0].endswith("true"):
            names.append(start["name"].strip("'\""))
    return tuple(names)
