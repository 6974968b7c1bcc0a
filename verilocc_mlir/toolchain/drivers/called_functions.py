"""Trap of Triton's interface: functions that are called cannot be resumed.

All of allocation runs again over a text that is further on. In a kernel it finds nothing to do. But in a function that
saves registers for its caller, lowering SGPR spills saves them again and overwrites the saved values.
"""

from __future__ import annotations

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.toolchain.mir_text import function_headers


def refuse_called_functions(mir: str, *, where: str = "") -> None:
    """Refuse machine IR with a function that is no kernel.

    Raises:
        UnsupportedError: it has such a function; the message names it.
    """
    for name, header in function_headers(mir):
        if "isEntryFunction: true" not in " ".join(header.split()):
            raise UnsupportedError(
                f"{name} is called, not a kernel: Triton's LLVM cannot resume it",
                where=where,
                hint="use an llc (--toolchain=llc), or have it inlined: Triton's LLVM inlines what is not noinline",
            )
