"""A new target: gfx1200, which differs from gfx1201 in its name alone.

Try a target here before it goes into ``verilocc_mlir/target/targets.py`` as a line of ``TARGETS``:

    python examples/extend/target/gfx1200.py examples/kernels/attn_d64.gfx1201.opt.ll
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import TARGETS, target

GFX1200 = replace(target("gfx1201"), name="gfx1200")


def compiled(path: Path) -> Compiled:
    """A kernel of gfx1201, for the new target: allocated, and proved."""
    TARGETS.setdefault(GFX1200.name, GFX1200)
    ir = path.read_bytes().replace(b'"target-cpu"="gfx1201"', b'"target-cpu"="gfx1200"')
    return compile_module(ir, str(path), Settings(cpu=GFX1200.name, fallback=False))


def main(path: str) -> int:
    result = compiled(Path(path))
    print(f"{path} for {result.report.target}: {result.report.outcome}, {len(result.data or b'')} bytes")
    return int(result.report.exit_code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
