"""Build the library by which LLVM's tools are loaded once (``verilocc_mlir/toolchain/loaded_tool.c``).

    python scripts/build_loaded_tool.py

Needs a C compiler: $CC, cc or gcc. Without one there is no library, and each run of a tool loads it anew.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "verilocc_mlir" / "toolchain" / "loaded_tool.c"


def build() -> Path | None:
    """The library beside its source, built if it is older; None where it cannot be built."""
    library = SOURCE.with_suffix(".preload")
    if library.exists() and library.stat().st_mtime_ns >= SOURCE.stat().st_mtime_ns:
        return library
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    if sys.platform != "linux" or not compiler[0]:
        return None
    partial = library.with_suffix(".partial")
    command = [*compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(partial), "-ldl"]
    if subprocess.run(command, check=False).returncode:
        return None
    partial.replace(library)
    return library


if __name__ == "__main__":
    print(build() or "no C compiler: LLVM's tools are loaded anew for each run")
