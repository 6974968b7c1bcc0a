"""LLVM's machine verifier as a second witness: what it says of a text that it does not say of another."""

from __future__ import annotations

import re
import subprocess

from support import llc, readable

_COMPLAINT = re.compile(r"^\*\*\* Bad machine code: (.*?) \*\*\*$", re.M)


def complaints(text: str, cpu: str) -> frozenset[str]:
    """Kinds of complaint about a text; why it cannot be read, where LLVM's parser refuses it."""
    done = subprocess.run(
        [llc(), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-x", "mir", "-run-pass=none", "-verify-machineinstrs",
         "-o", "/dev/null", "-"],
        input=readable(text), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if not done.returncode:
        return frozenset()
    found = _COMPLAINT.findall(done.stderr)
    if found:
        return frozenset(found)
    line = next((x for x in done.stderr.splitlines() if "error:" in x), "llc died")
    return frozenset({"not read: " + line.partition("error:")[2].strip()})
