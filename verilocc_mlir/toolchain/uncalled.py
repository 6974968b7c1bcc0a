"""A local function that nothing calls has no machine code, but its IR stands in the module that LLVM prints.

Read again, it would be a machine function without blocks, at which LLVM's passes crash. So it is marked
``available_externally``: passes leave it alone, and nothing is emitted for it, as in a compile in one go.
"""

from __future__ import annotations

import re

from verilocc_mlir.toolchain.verifier import defined_functions, without_functions

_MACHINE = re.compile(r"^---\nname: +(['\"]?)(.*?)\1\s*$", re.MULTILINE)


def mark_uncalled(mir: str) -> str:
    """Machine IR as LLVM prints it, with the mark."""
    # YAML doubles a quote between quotes.
    machine = {match[2].replace("''", "'") for match in _MACHINE.finditer(mir)}
    module, rest = mir[: mir.find("\n---\nname:") + 1], mir[mir.find("\n---\nname:") + 1 :]
    uncalled = [name for name in defined_functions(module) if name not in machine and "\\" not in name]
    return without_functions(module, uncalled) + rest
