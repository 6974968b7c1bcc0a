"""A model's answer that the proof refutes, and the next one, proved: over gRPC, from start to end.

    python examples/refuted.py [--into=DIR]

A server is started with the language model of the package, whose first answer no mask holds to the constraints
(``--model-unmasked``). An attention kernel gets fewer vector registers than it had. Its machine IR is sent, the model
answers, the proof names what is violated, the model is told and answers again. Exit code 1: no answer was refuted, or
the kernel is not proved.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "service"))

from plans import VERILOCC, serving_with

KERNEL = Path(__file__).parent / "kernels" / "attn_d64.gfx1100.opt.ll"
REGISTERS = 176
"""As many vector registers as the kernel may use; the deterministic allocator takes 192 of 256."""
_BEFORE = '"amdgpu-flat-work-group-size"'


def tightened(kernel: str) -> str:
    """The kernel with no more vector registers than ``REGISTERS``."""
    return kernel.replace(_BEFORE, f'"amdgpu-num-vgpr"="{REGISTERS}" {_BEFORE}')


def show(into: Path) -> bool:
    """Compile the tightened kernel over a server, and say what its model was told; whether it went as promised."""
    source, report = into / "tightened.ll", into / "tightened.json"
    source.write_text(tightened(KERNEL.read_text()))
    with serving_with("--model=packaged", "--model-unmasked") as (address, _):
        command = ["compile", str(source), "-mcpu=gfx1100", f"--server={address}", f"--report={report}"]
        done = subprocess.run([*VERILOCC, *command, "-o", str(into / "tightened.hsaco")], check=False)
    if done.returncode:
        return False
    phases = {p["phase"]: p for f in json.loads(report.read_text())["functions"] for p in f["phases"]}
    first, *others = phases["vgpr"]["attempts"][-1]["tries"]
    return first["outcome"] == "refuted" and bool(others) and others[-1]["outcome"] == "proved"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        into = given.into or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        into.mkdir(exist_ok=True)
        return 0 if show(into) else 1


if __name__ == "__main__":
    sys.exit(main())
