"""A front end: arithmetic on arrays, ``y[i] = <expression of x[i]>``, as GPU kernels with proved registers.

    python examples/extend/front_end/expressions.py gfx942 "x * x + 1" "(x - 3) / 2"

A front end makes LLVM IR, asks for code objects, and puts them where its own would be. All else is the pipeline's.
"""

from __future__ import annotations

import ast
import struct
import sys
from collections.abc import Sequence
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.kernels import KernelResult, Kernels, KernelSource
from verilocc_mlir.pipeline.options import with_options

_OPERATIONS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}


def compile_expressions(expressions: Sequence[str], target: str, **options: Any) -> tuple[KernelResult, ...]:
    """One code object for each expression; the kernels are ``k0``, ``k1`` …

    Args:
        expressions: of ``x`` and numbers.
        target: the GPU, for example ``"gfx942"``.
        options: of ``verilocc_mlir.pipeline.options``, by name.

    Raises:
        InputError: an expression is none of this language, or an option is none.
    """
    sources = [KernelSource(f"k{n}", llvm_ir(f"k{n}", text).encode(), target) for n, text in enumerate(expressions)]
    return Kernels(with_options(None, options)).compile(sources)


def llvm_ir(name: str, expression: str) -> str:
    """The kernel ``name(x, y)``: each work-item of a work-group computes one element."""
    lines: list[str] = []

    def value(node: ast.expr) -> str:
        match node:
            case ast.Name(id="x"):
                return "%x"
            case ast.Constant(value=int() | float() as number):
                # LLVM writes a float as the 64 bits of the double that it is.
                return "0x" + struct.pack(">d", struct.unpack("f", struct.pack("f", number))[0]).hex().upper()
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                a, b = value(left), value(right)
                lines.append(f"  %t{len(lines)} = {_OPERATIONS[type(op)]} float {a}, {b}")
                return f"%t{len(lines) - 1}"
        raise InputError(f"{ast.unparse(node)!r} is not x, a number, or a sum, product or quotient", where=expression)

    result = value(ast.parse(expression, mode="eval").body)
    computed = "\n".join(lines)
    return f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @{name}(ptr addrspace(1) %in, ptr addrspace(1) %out) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr float, ptr addrspace(1) %in, i32 %i
  %x = load float, ptr addrspace(1) %from
{computed}
  %to = getelementptr float, ptr addrspace(1) %out, i32 %i
  store float {result}, ptr addrspace(1) %to
  ret void
}}
"""


def main(target: str, *expressions: str) -> int:
    results = compile_expressions(expressions, target)
    for result, expression in zip(results, expressions, strict=True):
        size = len(result.code_object or b"")
        print(f"{result.name}: {expression}: {result.reason or f'proved, {size} bytes'}")
    return max(result.exit_code for result in results)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
