"""What llc prints before allocation, mended or refused before anybody reads it."""

from __future__ import annotations

import re

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.toolchain.verifier import defined_functions, without_functions

# Trap: LLVM 22 lets two conversions of gfx950 overwrite their own sources.
#
# ``v_cvt_scalef32_2xpk16_{fp6,bf6}_f32`` write their result before they have read everything. LLVM's tables say so
# since pull request 188809 only. The text is given the ``early-clobber`` that newer LLVMs print; then LLVM 22 heeds it
# too.

_CONVERSION = "V_CVT_SCALEF32_2XPK16_"
_NOT_STATED = re.compile(rf"^( +)(?! |early-clobber )([^=\n]* = (?:[a-z]+ )*{_CONVERSION}\w+_F32_e64 )", re.MULTILINE)


def state_early_clobbers(mir: str) -> str:
    """Machine IR with ``early-clobber`` where LLVM 22 leaves it out."""
    return _NOT_STATED.sub(r"\1early-clobber \2", mir) if _CONVERSION in mir else mir


# A local function that nothing calls has no machine code, but its IR stands in the module that LLVM prints.
#
# Read again, it would be a machine function without blocks, at which LLVM's passes crash. So it is marked
# ``available_externally``: passes leave it alone, and nothing is emitted for it, as in a compile in one go.

_MACHINE = re.compile(r"^---\nname: +(['\"]?)(.*?)\1\s*$", re.MULTILINE)


def mark_uncalled(mir: str) -> str:
    """Machine IR as LLVM prints it, with the mark."""
    # YAML doubles a quote between quotes.
    machine = {match[2].replace("''", "'") for match in _MACHINE.finditer(mir)}
    module, rest = mir[: mir.find("\n---\nname:") + 1], mir[mir.find("\n---\nname:") + 1 :]
    uncalled = [name for name in defined_functions(module) if name not in machine and "\\" not in name]
    return without_functions(module, uncalled) + rest


# Trap: an intrinsic that this LLVM does not know silently becomes a call to an external symbol.
#
# Newer front ends emit ``llvm.amdgcn.*`` that an older llc lacks (gfx950 ``llvm.amdgcn.asyncmark``). It then lowers the
# call like any other. Nothing fails before the link, and nothing at all if the linker is lenient. So a function
# declared as ``@llvm.…`` must not survive instruction selection. Globals with such names are ordinary
# (``@llvm.amdgcn.module.lds``).

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
