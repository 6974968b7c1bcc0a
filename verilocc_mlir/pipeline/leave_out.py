"""Functions that nobody proves cost themselves, not the file: the rest of the module is compiled without them.

They are marked ``available_externally`` in the input, so that LLVM makes nothing of them (``toolchain/verifier.py``).
A function that mentions one of them could not be linked without it, so it is left out too.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from verilocc_mlir.toolchain.verifier import defined_functions, without_functions

_BODY = re.compile(r"^ *define\b[^@\n]*@(?P<name>\"[^\"]+\"|[\w.$-]+)\(.*?^ *\}", re.MULTILINE | re.DOTALL)
_MENTIONED = re.compile(r"@(\"[^\"]+\"|[\w.$-]+)")
_MACHINE = re.compile(r"^---\nname: +(?P<name>\S.*?) *\n.*?^\.\.\.\n?", re.MULTILINE | re.DOTALL)


def with_callers(ir: str, names: Collection[str]) -> frozenset[str]:
    """The functions called ``names``, and those whose code mentions one of them, directly or through others."""
    mentioned = {
        match["name"].strip('"'): {name.strip('"') for name in _MENTIONED.findall(match[0])}
        for match in _BODY.finditer(ir)
    }
    found = set(names)
    while more := {name for name, others in mentioned.items() if name not in found and others & found}:
        found |= more
    return frozenset(found)


def rest_without(text: str, names: Collection[str]) -> str:
    """IR or machine IR of which LLVM makes nothing of the functions called ``names``."""
    kept = without_functions(text, names)
    return _MACHINE.sub(lambda match: "" if match["name"].strip("'\"") in names else match[0], kept)


def anything_left(text: str, names: Collection[str]) -> bool:
    """Whether the module defines a function that is not among ``names``."""
    return not set(defined_functions(text)) <= set(names)
