"""Dual issue: which pairs may be one instruction, against the pairs that llc makes of machine IR."""

from __future__ import annotations

import random

import pytest
from support import cpu_of, kernel_paths, run_llc

from verilocc_mlir.cost import counting
from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.instructions import Instruction, decode, halves
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.target.targets import target

OPCODES = {
    "V_ADD_F32_e32": 2, "V_MUL_F32_e32": 2, "V_SUB_F32_e32": 2, "V_MOV_B32_e32": 1, "V_FMAC_F32_e32": 3,
    "V_ADD_U32_e32": 2, "V_AND_B32_e32": 2, "V_LSHLREV_B32_e32": 2, "V_OR_B32_e32": 2,
}  # fmt: skip


def machine(opcode: str, registers: list[int], first: str) -> str:
    result, *sources = registers
    operands = [first, *(f"$vgpr{s}" for s in sources[1:])][: OPCODES[opcode]]
    if opcode == "V_FMAC_F32_e32":
        operands[2] = f"$vgpr{result}"
    mode = "implicit $mode, " if "F32" in opcode else ""
    return f"    $vgpr{result} = {opcode} {', '.join(operands)}, {mode}implicit $exec\n"


def pairs(cpu: str, seed: int, count: int) -> str:
    """A kernel with ``count`` blocks of two VALU instructions each, allocated at random."""
    rng = random.Random(f"{seed}/{cpu}")
    blocks: list[str] = []
    for k in range(count):
        body = ""
        for _ in range(2):
            registers = [rng.randrange(12) for _ in range(4)]
            first = rng.choice([f"$vgpr{registers[1]}"] * 6 + ["$sgpr2", "$sgpr3", "1065353216", "1234567", "7654321"])
            body += machine(rng.choice(list(OPCODES)), registers, first)
        blocks.append(
            f"  bb.{k}:\n    successors: %bb.{k + 1}\n{body}    S_SLEEP {k % 100}\n    S_BRANCH %bb.{k + 1}\n"
        )
    head = "--- |\n  define amdgpu_kernel void @k() { ret void }\n...\n"
    body = "".join(blocks) + f"  bb.{count}:\n    S_ENDPGM 0\n"
    return f"{head}---\nname: k\ntracksRegLiveness: false\nbody: |\n{body}...\n"


@pytest.mark.parametrize("cpu", ["gfx1100", "gfx1201"])
def test_pairs_are_those_that_llc_makes(cpu: str) -> None:
    """The rule says yes where llc makes a v_dual, and no where it leaves two."""
    gpu, mir = target(cpu), pairs(cpu, 1, 1500)
    (single,) = parse_assembly(run_llc(mir, cpu, "-start-after=gcn-create-vopd"), gpu)
    (paired,) = parse_assembly(run_llc(mir, cpu, "-start-before=gcn-create-vopd"), gpu)
    made = refused = blocked = 0
    for one, other in zip(split(single), split(paired), strict=True):
        first, second = one
        if len(other) == 1:
            assert other[0].is_dual
            made += 1
            assert counting.fit(first, second), (first.text, second.text)
            assert not counting.banks_clash(first, second, gpu), (first.text, second.text)
        else:
            refused += 1
            clash = counting.fit(first, second) and counting.banks_clash(first, second, gpu)
            blocked += clash
            assert clash or not counting.fit(first, second), (first.text, second.text)
    assert made > 100
    assert blocked > 100
    assert refused > blocked
    cost = cost_of_assembly(run_llc(mir, cpu, "-start-before=gcn-create-vopd"), gpu)["k"]
    assert cost.dual.static == made
    assert cost.dual_blocked.static == blocked


def split(function):
    """VALU instructions between the s_sleeps."""
    rows: list[list[Instruction]] = [[]]
    for instruction in function.instructions:
        if instruction.base.startswith("v_"):
            rows[-1].append(instruction)
        elif instruction.base == "s_sleep":
            rows.append([])
    return rows[:-1]


@pytest.mark.parametrize("cpu", ["gfx1100", "gfx1201"])
def test_every_pair_in_real_kernels_obeys_the_rule(cpu: str) -> None:
    gpu, seen = target(cpu), 0
    for path in kernel_paths():
        if cpu_of(path) != cpu or not path.name.endswith(".opt.ll"):
            continue
        for function in parse_assembly(run_llc(path.read_text(), cpu, mir=False), gpu):
            for instruction in function.instructions:
                if instruction.is_dual:
                    first, second = (decode(half, gpu.major) for half in halves(instruction.text))
                    assert not counting.banks_clash(first, second, gpu), instruction.text
                    seen += 1
    assert seen > 50  # 83 on gfx1100 in the kernels that come with the repository
