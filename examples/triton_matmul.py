"""A Triton matmul, autotuned, with proved registers: python examples/triton_matmul.py [gfx942]

Needs no GPU: the configurations are compiled ahead of time, as `kernel.warmup` does it. On a ROCm machine the two lines
marked (1) and (2) are all that a program of yours gains.
"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

import verilocc_mlir.hooks.triton as verilocc_triton  # (1)

# (2) Every kernel that Triton compiles from here on is proved, or passed through. Without replace="always" Triton's own
# stays where ours is worse by the model.
verilocc_triton.install(replace="always")


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """C = A B, row-major f16, sizes multiples of the tile; one program makes an M x N tile."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_ptrs = a_ptr + rows[:, None] * k + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * n + cols[None, :]
    tile = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        tile = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), tile)
        a_ptrs += K
        b_ptrs += K * n
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], tile.to(tl.float16))


# What @triton.autotune would try: tile sizes, and how many waves work on a tile.
CONFIGS = [((32, 32, 32), 1), ((32, 64, 32), 2), ((64, 64, 32), 4)]

target = sys.argv[1] if len(sys.argv) > 1 else "gfx942"
gpu = GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
arguments = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", "n": "i32", "k": "i32"}

for sizes, warps in CONFIGS:
    constants = dict(zip("MNK", sizes, strict=True))
    source = triton.compiler.ASTSource(matmul, {**arguments, **dict.fromkeys(constants, "constexpr")}, constants)
    kernel = triton.compile(source, target=gpu, options={"num_warps": warps, "enable_fp_fusion": True})
    # The verdict travels with the kernel, through Triton's cache too.
    verdict = kernel.metadata.verilocc
    registers = verdict["registers"] or {}
    print(
        f"{sizes} with {warps} warps: {verdict['kind']} {verdict['reason']}",
        f"allocators {verdict['phases']}, VGPRs {registers.get('vgprs')}, spilled {registers.get('vgpr_spills')},",
        f"code object of {len(kernel.asm['hsaco'])} bytes",
    )
