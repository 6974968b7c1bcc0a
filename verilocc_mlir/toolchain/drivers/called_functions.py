"""Trap of Triton's way in: functions that are called cannot be resumed.

All of allocation runs again over a text that is further on. In a kernel it then finds nothing to do. In a function that
saves registers for its caller, lowering SGPR spills saves them once more, over what it saved before.
"""

from __future__ import annotations

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.toolchain.mir_text import function_headers


def refuse_called_functions(mir: str, *, where: str = "") -> None:
    """Refuse machine IR with a function that is no kernel.

    Raises:
        UnsupportedError: it has one; named.
    """
    for name, header in function_headers(mir):
        if "isEntryFunction: true" not in " ".join(header.split()):
            raise UnsupportedError(
                f"{name} is called, not a kernel: Triton's LLVM cannot resume it",
                where=where,
                hint="use an llc (--toolchain=llc), or have it inlined: Triton's LLVM inlines what is not noinline",
            )
