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
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "service"))

from plans import VERILOCC, serving_with

KERNEL = Path(__file__).parent / "kernels" / "attn_d64.gfx1100.opt.ll"
REGISTERS = (178, 172, 176, 136)
"""As many vector registers as the kernel may use; the deterministic allocator takes 192 of 256. The next is tried where
nothing is refuted, or the second answer is not the model's: which text LLVM makes of the kernel depends on its version.
"""
_BEFORE = '"amdgpu-flat-work-group-size"'


class Shown(NamedTuple):
    """Whether all that was compiled is proved, and whether an answer was refuted before the model had one proved."""

    proved: bool
    refuted: bool


def tightened(kernel: str, registers: int) -> str:
    """The kernel with no more vector registers than that."""
    return kernel.replace(_BEFORE, f'"amdgpu-num-vgpr"="{registers}" {_BEFORE}')


def show(into: Path) -> Shown:
    """Compile the tightened kernel over a server, which says what its model was told."""
    source, report = into / "tightened.ll", into / "tightened.json"
    with serving_with("--model=packaged", "--model-unmasked") as (address, _):
        command = ["compile", str(source), "-mcpu=gfx1100", f"--server={address}", f"--report={report}"]
        for registers in REGISTERS:
            source.write_text(tightened(KERNEL.read_text(), registers))
            done = subprocess.run([*VERILOCC, *command, "-o", str(into / "tightened.hsaco")], check=False)
            if done.returncode:
                return Shown(proved=False, refuted=False)
            phases = {p["phase"]: p for f in json.loads(report.read_text())["functions"] for p in f["phases"]}
            tries = [(t["allocator"], t["outcome"]) for a in phases["vgpr"]["attempts"] for t in a["tries"]]
            if ("model", "refuted") in tries and tries[-1] == ("model", "proved"):
                return Shown(proved=True, refuted=True)
    return Shown(proved=True, refuted=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        into = given.into or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        into.mkdir(exist_ok=True)
        return 0 if show(into) == Shown(proved=True, refuted=True) else 1


if __name__ == "__main__":
    sys.exit(main())
