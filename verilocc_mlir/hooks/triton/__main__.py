"""Run a Python program with the hook installed: ``python -m verilocc_mlir.hooks.triton script.py [ARGUMENT …]``.

Processes that the program starts inherit it through ``VERILOCC_TRITON``, where this project is pip-installed. What
became of each kernel is printed to standard error at the end.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.triton.hook import VARIABLE, install_from_environment
from verilocc_mlir.hooks.triton.records import reports


def main() -> None:
    """Install, run the program named on the command line, list the kernels."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: python -m verilocc_mlir.hooks.triton script.py [ARGUMENT ...]")
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "1"
    try:
        install_from_environment()
    except VeriloccError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(int(error.exit_code)) from None
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        for record in reports():
            print(f"verilocc: {record}", file=sys.stderr)


if __name__ == "__main__":
    main()
