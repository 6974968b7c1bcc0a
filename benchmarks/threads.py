"""Two codes of one kernel that others measured, modelled: what threads of public projects say, beside the ruler.

    python benchmarks/threads.py --ir DIR

``--ir`` has LLVM IR of the kernels, as Triton 3.9.0 makes it (its cache keeps it), named as in ``THREADS``. They are
those of ROCm/aiter and of triton_kernels in August 2026 (MIT licences); nothing of them is part of this project. The
LLVM in Triton compiles them. Kernels of Triton do not say in their IR how much LDS a work-group gets, so that stands
here too.

Where both codes are launched alike, their loops run equally often and both must do the same work. Where a work-group of
one does more, the modelled time is that of the launch: waves for the same work times cycles, each with the same counts.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import Row, command, machine, options, tree, write
from msgspec.structs import replace

from verilocc_mlir.cost.assembly import Function, parse_assembly
from verilocc_mlir.cost.compare import error_bar, judge, spill_traffic
from verilocc_mlir.cost.counting import control_flow
from verilocc_mlir.cost.model import KernelCost, cost_of_function
from verilocc_mlir.cost.together import costs_together
from verilocc_mlir.cost.trips import IrLoop
from verilocc_mlir.pipeline.plans import planned
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools

TRACKERS = "-amdgpu-use-amdgpu-trackers=1"


@dataclass(frozen=True)
class Variant:
    """One code of a kernel.

    Attributes:
        ir: name of the file, without its suffix.
        shown: for the table.
        lds: bytes of a work-group.
        waves: of the launch, for the same work; only the ratio to the other code's counts.
        extra: options of LLVM.
    """

    ir: str
    shown: str
    lds: int
    waves: float = 1.0
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Thread:
    """Two codes that were measured.

    Attributes:
        source: of the measurement.
        kernel: what it is, with what both codes have in common.
        measured: time of the second over that of the first.
        trips: iterations of the outermost loops in the order of their headers; empty: as the code says, or the default.
        alike: whether a work-group of both does the same.
    """

    source: str
    cpu: str
    kernel: str
    first: Variant
    second: Variant
    measured: float
    trips: tuple[int, ...] = ()
    alike: bool = True


def _a16w16(rows: int, waves: int, block: str, lds: int, measured: float, trips: int) -> Thread:
    kernel = f"gemm_a16w16 {rows}x1280x8192 bf16, blocks {block}, 8 warps, 3 stages"
    shown = [Variant(f"a16w16.m{rows}.waves{n}", f"waves_per_eu {n}", lds) for n in (4, waves)]
    return Thread("ROCm/aiter#5137", "gfx950", kernel, shown[0], shown[1], measured, (trips,))


def _unified(form: str, first: Variant, second: Variant, measured: float) -> Thread:
    kernel = f"kernel_unified_attention_2d {form}, head 512, 32 and 4 heads, pages of 64, tiles of 16, 2 stages"
    return Thread("ROCm/aiter#5649", "gfx942", kernel, first, second, measured, (1, 512), alike=False)


_BF16 = {
    name: Variant(f"ua512.bf16.{name}.s2", shown, lds, waves)
    for name, shown, lds, waves in (
        ("m16.w4", "M 16, 4 warps", 32768, 4.0),
        ("m64.w4", "M 64, 4 warps", 65536, 1.0),
        ("m64.w8", "M 64, 8 warps", 65536, 2.0),
    )
}
THREADS = (
    Thread(
        "triton#11663, #11763",
        "gfx950",
        "gemm_afp4wfp4 4096x4096x4096, blocks 256x256x256, 4 warps, 2 stages, waves_per_eu 1, matrices of 32",
        Variant("afp4wfp4", "default", 141280),
        Variant("afp4wfp4", "trackers", 141280, extra=(TRACKERS,)),
        2639 / 1315,
    ),
    _a16w16(32, 8, "32x32x256", 101312, 3.42, 30),
    _a16w16(192, 6, "128x64x128", 152000, 2.51, 62),
    _a16w16(256, 6, "128x64x128", 152000, 2.57, 62),
    Thread(
        "ROCm/triton#970",
        "gfx942",
        "triton_kernels' matmul, bf16 by mxfp4, one token, 32x3072x6144, blocks 32x256x128, 2 warps",
        Variant("moe", "default", 25600),
        Variant("moe", "trackers", 25600, extra=(TRACKERS,)),
        119 / 79,
        (23,),
    ),
    Thread(
        "triton#11249",
        "gfx950",
        "kernel_unified_attention_2d bf16, head 256, 32 and 2 heads, pages of 16, M 128, tiles of 64, 4 warps, 1 stage",
        Variant("ua950.256.waves1", "waves_per_eu 1", 65536),
        Variant("ua950.256.waves4", "waves_per_eu 4", 65536),
        68 / 11.5,
    ),
    _unified("bf16", _BF16["m64.w8"], _BF16["m64.w4"], 93.0 / 38.8),
    _unified("bf16", _BF16["m64.w8"], _BF16["m16.w4"], 69.9 / 38.8),
    _unified("bf16", _BF16["m16.w4"], _BF16["m64.w4"], 93.0 / 69.9),
    _unified(
        "fp8",
        Variant("ua512.fp8.m128.w8.s2", "M 128, 8 warps", 65536, 1.0),
        Variant("ua512.fp8.m64.w4.s2", "M 64, 4 warps", 65536, 1.0),
        25.7 / 18.9,
    ),
)


def code(variant: Variant, cpu: str, directory: Path) -> Function:
    """The kernel as the LLVM in Triton compiles it."""
    ir = (directory / f"{variant.ir}.ll").read_bytes()
    given = planned(ir, f"{variant.ir}.ll", Settings(cpu, toolchain=ToolchainChoice.TRITON))
    asked = replace(given.work.compiler.options, llc_options=(*given.work.compiler.options.llc_options, *variant.extra))
    assembly = dataclasses.replace(given.work.compiler, options=asked).direct(given.ir, "asm").decode()
    (function,) = parse_assembly(assembly, target(cpu))
    # Loops get their counts by order.
    blocks = tuple(replace(block, ir_name="") for block in function.blocks)
    return replace(function, blocks=blocks, figures=replace(function.figures, lds_bytes=variant.lds))


def counted(function: Function, trips: Sequence[int]) -> tuple[IrLoop, ...]:
    """The loops of a code with the counts of its outermost ones."""
    loops = sorted(control_flow(function).loops.loops, key=lambda loop: loop.header)
    left = iter(trips)
    return tuple(IrLoop("", loop.depth, next(left, None) if loop.depth == 1 else None) for loop in loops)


def _there(cost: KernelCost | None) -> KernelCost:
    if cost is None:
        raise ValueError("the two codes have different functions")
    return cost


def row(thread: Thread, directory: Path) -> Row:
    """What the ruler says of a thread."""
    device = target(thread.cpu)
    codes = [code(variant, thread.cpu, directory) for variant in (thread.first, thread.second)]
    loops = [counted(function, thread.trips) if thread.trips else () for function in codes]
    problem = ""
    if thread.alike:
        pair = costs_together(codes[:1], codes[1:], device, {codes[0].name: loops[0]})[codes[0].name]
        first, second, problem = _there(pair.first), _there(pair.second), pair.problem
    else:
        first, second = (cost_of_function(f, device, of) for f, of in zip(codes, loops, strict=True))
    ratio = second.cycles * thread.second.waves / (first.cycles * thread.first.waves)
    judged = judge(first, second)
    order, ground = judged.order, judged.ground.value
    if not thread.alike:
        allowed = 1 + error_bar(first, second)
        order, ground = (-1 if ratio > allowed else int(ratio * allowed < 1)), "modelled time"
    return {
        "source": thread.source,
        "target": thread.cpu,
        "kernel": thread.kernel,
        "codes": [thread.first.shown, thread.second.shown],
        "measured": round(thread.measured, 2),
        "modelled": round(ratio, 2),
        "problem": problem,
        "better": {-1: "first", 0: "undecided", 1: "second"}[order],
        "ground": ground,
        "agrees": None if order == 0 else (order == -1) == (thread.measured > 1),
        **{
            side: {
                "cycles": round(cost.cycles),
                "waves": cost.occupancy,
                "spill_traffic": spill_traffic(cost),
                "scratch_bytes": cost.scratch_bytes,
                "accumulator_copies": cost.accumulator_copies.weighted,
                "loops": [(loop.depth, loop.trips, loop.source) for loop in cost.loops],
            }
            for side, cost in (("first", first), ("second", second))
        },
    }


def main() -> None:
    """Compile, cost, compare with what was measured."""
    parser = options(__doc__, "threads.json")
    parser.add_argument("--ir", type=Path, required=True)
    given = parser.parse_args()
    rows = [row(thread, given.ir) for thread in THREADS]
    for r in rows:
        ratios = f"measured {r['measured']:5.2f} modelled {r['modelled']:5.2f}"
        print(f"{r['source']:<22} {' / '.join(r['codes'][::-1]):<34} {ratios} {r['better']} ({r['ground']})")
    llvm = choose_tools(ToolchainChoice.TRITON).version_text
    write(given.out, {"command": command(), "tree": tree(), "machine": machine(), "llvm": llvm, "threads": rows})


if __name__ == "__main__":
    sys.exit(main())
