"""Our block live-ins against those that LLVM's own rewriting prints.

LLVM's basic allocator is used, because it never splits a live range: every virtual register has one physical register,
so LLVM's live-in lanes can be mapped back one to one. The SGPR phase is compared for scalar units, others for vector
units. It is an equality of sets of 16-bit units, block by block, of what LLVM lists with what this project
computes (``implicit_def_holds``: LLVM counts IMPLICIT_DEF as a definition) and the live-ins that stood in the text
before. A function is left out where LLVM spilled, or split a register whose live range has separate parts: then its
registers do not map one to one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis_support import mir_text, random_body
from support import cpu_of, kernel_paths, pre_ra, readable, run_llc

from verilocc_mlir.analysis import liveness
from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.analysis.liveness import lane_liveness
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.lanes import lane_list, llvm_lane_mask, subregister_lanes
from verilocc_mlir.target.registers import physical_register, unit_name

BASIC = ("-sgpr-regalloc=basic", "-wwm-regalloc=basic", "-vgpr-regalloc=basic")


class NotComparable(Exception):
    """LLVM spilled or inserted something, so that registers do not map one to one."""


def align(
    pre: MachineFunction, post: MachineFunction, classes: dict[int, RegisterClass], scalar: bool
) -> dict[int, tuple[int, ...]]:
    """Units that LLVM gave to each virtual register of one kind, by walking both texts."""
    placed: dict[int, tuple[int, ...]] = {}
    dropped: list[Instruction] = []
    if len(pre.blocks) != len(post.blocks):
        raise NotComparable("blocks")
    for a, b in zip(pre.blocks, post.blocks, strict=True):
        rest = list(b.instructions)
        at = 0
        for instruction in a.instructions:
            other = rest[at] if at < len(rest) else None
            if other is not None and _same(instruction, other, placed, classes, scalar):
                at += 1
            elif instruction.opcode == "COPY":
                dropped.append(instruction)
            else:
                raise NotComparable(f"{instruction} / {other}")
        if at != len(rest):
            raise NotComparable(f"extra {rest[at]}")
    for copy in dropped:
        ends = [_units(op, placed) for op in copy.all_operands[:2]]
        if ends[0] != ends[1] and not copy.operands[0].undef:
            raise NotComparable(f"vanished {copy}")
    return placed


def _units(operand: Operand, placed: dict[int, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Units an operand covers after allocation; None for a register that is not placed yet."""
    if operand.phys:
        return physical_register(operand.phys).units
    whole = placed.get(operand.vreg)
    if whole is None:
        return None
    return tuple(whole[k] for k in lane_list(subregister_lanes(operand.sub))) if operand.sub else whole


def _same(
    a: Instruction,
    b: Instruction,
    placed: dict[int, tuple[int, ...]],
    classes: dict[int, RegisterClass],
    scalar: bool,
) -> bool:
    """Whether ``b`` is ``a`` after allocation; if so, what it places is added to ``placed``."""
    if a.opcode != b.opcode and not (a.opcode == "COPY" and b.opcode == "KILL"):
        return False
    found: dict[int, tuple[int, ...]] = {}
    if len(a.all_operands) > len(b.all_operands):
        return False
    for x, y in zip(a.all_operands, b.all_operands, strict=False):
        if x.vreg < 0:
            if x.phys != y.phys and (x.phys, y.phys) not in {("vcc", "vcc_lo"), ("vcc_lo", "vcc")}:
                return False
            if not x.phys and x.kind is not y.kind:
                return False
            continue
        if classes[x.vreg].is_scalar is not scalar or not y.phys:
            continue
        lanes = lane_list(subregister_lanes(x.sub)) if x.sub else tuple(range(classes[x.vreg].lanes))
        units = physical_register(y.phys).units
        if len(units) != len(lanes):
            return False
        if x.vreg in placed:
            if tuple(placed[x.vreg][k] for k in lanes) != units:
                return False
        else:
            first = units[0] - lanes[0]
            whole = tuple(range(first, first + classes[x.vreg].lanes))
            if tuple(whole[k] for k in lanes) != units:
                return False
            found[x.vreg] = whole
    placed.update(found)
    return True


def _listed(post: MachineFunction, block: int, scalar: bool) -> set[int]:
    """Units of one kind that LLVM lists as live into a block."""
    units: set[int] = set()
    for livein in post.blocks[block].liveins:
        register = physical_register(livein.reg)
        if (register.units[0] >= 8192) is scalar:
            units.update(
                u for k, u in enumerate(register.units) if livein.mask < 0 or llvm_lane_mask(livein.mask) >> k & 1
            )
    return units


def compare(pre: MachineFunction, post: MachineFunction, scalar: bool) -> tuple[int, list[str]]:
    """Number of blocks compared, and what differs."""
    classes = virtual_classes(pre)
    cfg = control_flow(pre)
    placed = align(pre, post, classes, scalar)
    live = lane_liveness(pre, cfg, classes, lambda v: classes[v].is_scalar is scalar, implicit_def_holds=True)
    problems: list[str] = []
    for block in range(len(pre.blocks)):
        ours: set[int] = set()
        for vreg, lanes in live.lanes_in(block).items():
            ours.update(placed[vreg][k] for k in lane_list(lanes))
        before = _listed(pre, block, scalar)
        theirs = _listed(post, block, scalar)
        problems += [f"bb at {block}: LLVM alone has {unit_name(u)}" for u in sorted(theirs - ours - before)]
        problems += [f"bb at {block}: ours alone has {unit_name(u)}" for u in sorted((ours | before) - theirs)]
    return len(pre.blocks), problems


def check(cpu: str, text: str) -> tuple[int, int, list[str]]:
    """Phases compared, blocks compared, and differences, over all functions of a pre-RA text."""
    phases = blocks = 0
    problems: list[str] = []
    for start, stop, scalar in (
        ("-start-before=regallocbasic,0", "-stop-after=virtregrewriter,0", True),
        ("-start-after=virtregrewriter,0", "-stop-after=virtregrewriter,2", False),
    ):
        post = run_llc(readable(text), cpu, *BASIC, start, stop)
        for a, b in zip(parse_mir(text).functions, parse_mir(post).functions, strict=True):
            try:
                count, found = compare(a, b, scalar)
            except NotComparable as reason:
                print(f"{a.name} scalar={scalar}: not comparable: {str(reason)[:150]}")
                continue
            phases += 1
            blocks += count
            problems += [f"{a.name}: {p}" for p in found]
        text = post
    return phases, blocks, problems


QUICK = tuple(p for p in kernel_paths() if p.name in {
    "gemm_naive.gfx90a.ll", "gemm_mma_lds.gfx942.opt.ll", "attn_d64.gfx950.ll", "gemm_naive.gfx1100.opt.ll",
    "attn_d64.gfx1201.opt.ll", "torch_linear_f16.k0.gfx1100.ll",
})  # fmt: skip


@pytest.mark.parametrize("path", QUICK, ids=lambda p: p.name)
def test_liveins_of_kernels(path: Path) -> None:
    phases, blocks, problems = check(cpu_of(path), pre_ra(path))
    assert not problems
    assert phases == 2
    assert blocks >= 2


@pytest.mark.long
def test_liveins_of_every_kernel() -> None:
    """LLVM's basic allocator spills in six vector phases; all others must be comparable, and equal."""
    phases = 0
    for path in kernel_paths():
        done, _, problems = check(cpu_of(path), pre_ra(path))
        assert not problems, path.name
        phases += done
    assert phases >= 2 * len(kernel_paths()) - 6


def test_liveins_of_random_functions() -> None:
    """Partial and ``undef`` definitions, IMPLICIT_DEF, any control flow: what the kernels do not combine."""
    text = "".join(mir_text(random_body(seed), name=f"f{seed}") for seed in range(120))
    phases, blocks, problems = check("gfx1100", text)
    assert not problems
    assert phases >= 180  # the rest: LLVM splits a register whose live range has separate parts
    assert blocks >= 1000


def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison tells liveness that ignores what is undefined from LLVM's."""
    original = liveness.solve_forward
    monkeypatch.setattr(
        liveness, "solve_forward", lambda cfg, gen, kill: [(1 << 4000) - 1] * len(original(cfg, gen, kill))
    )
    text = "".join(mir_text(random_body(seed), name=f"f{seed}") for seed in range(120))
    assert check("gfx1100", text)[2]
