"""The MLIR pass in a pipeline: a kernel becomes a proved code object, and the host side lowers on around it.

    python examples/mlir_pass.py [gfx942] [--out DIR]

Needs MLIR Python bindings: ``pip install 'verilocc-mlir[mlir]'`` (torch-mlir's copy), or upstream's ``mlir``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.mlir_pipeline import Bindings, parse_pipeline

# A host function that launches a kernel: y = sqrt(x) + y on 256 threads. The target attribute says what to compile for,
# and is honoured: chip, features, level, code-object version, bitcode to link, flags.
MODULE = """
module attributes {gpu.container_module} {
  gpu.module @kernels [#rocdl.target<O = 3, chip = "CHIP">] {
    gpu.func @add_root(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel
        attributes {known_block_size = array<i32: 256, 1, 1>} {
      %block = gpu.block_id x
      %size = arith.constant 256 : index
      %thread = gpu.thread_id x
      %start = arith.muli %block, %size : index
      %i = arith.addi %start, %thread : index
      %a = memref.load %x[%i] : memref<1024xf32>
      %root = math.sqrt %a : f32
      %b = memref.load %y[%i] : memref<1024xf32>
      %sum = arith.addf %root, %b : f32
      memref.store %sum, %y[%i] : memref<1024xf32>
      gpu.return
    }
  }
  func.func @main(%x: memref<1024xf32>, %y: memref<1024xf32>) {
    %one = arith.constant 1 : index
    %blocks = arith.constant 4 : index
    %threads = arith.constant 256 : index
    gpu.launch_func @kernels::@add_root blocks in (%blocks, %one, %one) threads in (%threads, %one, %one)
        args(%x : memref<1024xf32>, %y : memref<1024xf32>)
    return
  }
}
"""

# The pass stands where gpu-module-to-binary would: after the kernels are lowered, before the host side is.
PIPELINE = """builtin.module(
  gpu.module(
    convert-gpu-to-rocdl{chipset=CHIP runtime=HIP index-bitwidth=64 use-bare-ptr-memref-call-conv=true},
    reconcile-unrealized-casts),
  verilocc-allocate{unhandled=error},
  gpu-to-llvm{use-bare-pointers-for-host=true use-bare-pointers-for-kernels=true},
  reconcile-unrealized-casts)"""


def main(arguments: list[str] | None = None) -> int:
    """Compile, print what was proved, and write the code object and the host side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chip", nargs="?", default="gfx942")
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args(arguments)
    try:
        # Any bindings do: the pass takes those of the module's own context.
        bindings = Bindings.find()
        context = bindings.ir.Context()
        with context:
            module = bindings.ir.Module.parse(MODULE.replace("CHIP", given.chip))
        pipeline = parse_pipeline(PIPELINE.replace("CHIP", given.chip), context)
        try:
            pipeline.run(module)
        except bindings.ir.MLIRError as error:  # a failed pass, with its diagnostics
            print(error, file=sys.stderr)
            return 1
    except VeriloccError as error:
        print(f"mlir_pass: error: {error}", file=sys.stderr)
        return error.exit_code
    given.out.mkdir(parents=True, exist_ok=True)
    for result in pipeline.passes[0].results:
        (report,) = result.reports  # one for each target attribute
        for function in report.functions:
            for phase in function.phases:
                print(
                    f"@{result.name}::@{function.name} for {report.target}, {phase.phase.upper()}: {phase.outcome}, "
                    f"{phase.obligations} obligations, allocated by {phase.allocator}"
                )
        path = given.out / f"{result.name}.{report.target}.hsaco"
        path.write_bytes(result.code_objects[0])
        print(f"wrote {path}")
    host = given.out / f"host.{given.chip}.mlir"
    host.write_text(str(module))
    print(f"wrote {host}: {', '.join(str(op.operation.name) for op in module.body.operations)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
