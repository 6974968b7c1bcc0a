"""A new target: gfx1251, with the registers of gfx1250.

Try a target here before it goes into ``verilocc_mlir/target/targets.py`` as a line of ``TARGETS``:

    python examples/extend/target/gfx1251.py
"""

from __future__ import annotations

import sys

from msgspec.structs import replace

from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import TARGETS, target

GFX1251 = replace(target("gfx1250"), name="gfx1251")
KERNEL = """
define amdgpu_kernel void @scale(ptr addrspace(1) %x, ptr addrspace(1) %y, float %a) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr float, ptr addrspace(1) %x, i32 %i
  %to = getelementptr float, ptr addrspace(1) %y, i32 %i
  %value = load float, ptr addrspace(1) %at
  %old = load float, ptr addrspace(1) %to
  %sum = call float @llvm.fma.f32(float %a, float %value, float %old)
  store float %sum, ptr addrspace(1) %to
  ret void
}
attributes #0 = { "target-cpu"="gfx1251" }
"""


def compiled() -> Compiled:
    """A kernel for the new target: allocated, and proved."""
    TARGETS.setdefault(GFX1251.name, GFX1251)
    return compile_module(KERNEL.encode(), "scale.ll", Settings(cpu=GFX1251.name, fallback=False))


def main() -> int:
    result = compiled()
    print(f"a kernel for {result.report.target}: {result.report.outcome}, {len(result.data or b'')} bytes")
    return int(result.report.exit_code)


if __name__ == "__main__":
    sys.exit(main())
