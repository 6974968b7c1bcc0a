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
from analysis_support import BASIC, NotComparable, align, random_body
from builders import mir_text
from support import cpu_of, kernel_paths, pre_ra, quick_kernels, readable, run_llc

from verilocc_mlir.analysis import liveness
from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.analysis.liveness import lane_liveness
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.registers import lane_list, llvm_lane_mask, physical_register, unit_name


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


@pytest.mark.parametrize("path", quick_kernels(), ids=lambda p: p.stem)
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


@pytest.mark.long
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
