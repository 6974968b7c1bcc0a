"""Trap: an intrinsic that this LLVM does not know silently becomes a call to an external symbol.

Newer front ends emit ``llvm.amdgcn.*`` that an older llc lacks (gfx950 ``llvm.amdgcn.asyncmark``). It then lowers the
call like any other. Nothing fails before the link, and nothing at all if the linker is lenient. So a function declared
as ``@llvm.…`` must not survive instruction selection. Globals with such names are ordinary
(``@llvm.amdgcn.module.lds``).
"""

from __future__ import annotations

import re

from verilocc_mlir.errors import UnsupportedError

_DECLARED = re.compile(r"^[^\S\n]*declare\b[^@\n]*@(\"llvm\.[^\"]+\"|llvm\.[\w.$-]+)\(", re.MULTILINE)
_MENTIONED = re.compile(r"[@&](\"llvm\.[^\"]+\"|llvm\.[\w.$-]+)")


def surviving_intrinsics(mir: str) -> tuple[str, ...]:
    """Names of the ``llvm.*`` functions, declared in the IR module, that machine code of ``mir`` refers to, sorted."""
    start = mir.find("\n---\nname:")
    if start < 0:
        return ()
    declared = {match.strip('"') for match in _DECLARED.findall(mir[:start])}
    if not declared:
        return ()
    mentioned = {match.strip('"') for match in _MENTIONED.findall(mir[start:])}
    return tuple(sorted(declared & mentioned))


def refuse_unknown_intrinsics(mir: str, *, where: str = "", version: str = "this LLVM") -> None:
    """Raise UnsupportedError if an intrinsic was lowered to a call of an external symbol."""
    names = surviving_intrinsics(mir)
    if names:
        raise UnsupportedError(
            f"{version} does not know {', '.join(names)}: the call would become one to an external symbol",
            where=where,
            hint="use the LLVM that the front end was built against (VERILOCC_LLVM=DIR), "
            "or switch the front-end feature off (Triton on gfx950: TRITON_HIP_USE_ASYNC_COPY=0)",
        )
