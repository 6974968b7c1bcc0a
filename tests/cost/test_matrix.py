"""Passes of matrix instructions and their hazard distances, against the s_nops and v_nops that llc puts in."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
from support import few, llc, run_llc

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.cost.simulate import VALU_BEFORE_MFMA, Mfma, Use, mfma, wait_states, wmma_cycles
from verilocc_mlir.target.targets import target


@dataclass(frozen=True)
class Form:
    """An MFMA in machine IR: opcode, registers of D and C, of A, of B; modifier operands after C."""

    opcode: str
    result: int
    a: int
    b: int
    tail: str = "0, 0, 0"


F16_32 = Form("V_MFMA_F32_32X32X8F16_vgprcd_e64", 16, 2, 2)
F16_16 = Form("V_MFMA_F32_16X16X16F16_vgprcd_e64", 4, 2, 2)
F16_4 = Form("V_MFMA_F32_4X4X4F16_vgprcd_e64", 4, 2, 2)
F32_32 = Form("V_MFMA_F32_32X32X2F32_vgprcd_e64", 16, 1, 1)
F32_16 = Form("V_MFMA_F32_16X16X4F32_vgprcd_e64", 4, 1, 1)
F32_4 = Form("V_MFMA_F32_4X4X1F32_vgprcd_e64", 4, 1, 1)
F16_32_2B = Form("V_MFMA_F32_32X32X4F16_vgprcd_e64", 32, 2, 2)
F64_16 = Form("V_MFMA_F64_16X16X4F64_vgprcd_e64", 8, 2, 2)
F64_4 = Form("V_MFMA_F64_4X4X4F64_vgprcd_e64", 2, 2, 2)
XF32_16 = Form("V_MFMA_F32_16X16X8XF32_vgprcd_e64", 4, 2, 2)
FP8_32 = Form("V_MFMA_F32_32X32X16_FP8_FP8_vgprcd_e64", 16, 2, 2)
F16_950 = Form("V_MFMA_F32_16X16X32_F16_vgprcd_e64", 4, 4, 4)
F16_950_32 = Form("V_MFMA_F32_32X32X16_F16_vgprcd_e64", 16, 4, 4)
FP4_950 = Form("V_MFMA_F32_16X16X128_F8F6F4_f4_f4_vgprcd_e64", 4, 4, 4, "4, 4")
FP8_950 = Form("V_MFMA_F32_16X16X128_F8F6F4_f8_f8_vgprcd_e64", 4, 8, 8, "0, 0")

FORMS = [
    *[(cpu, f) for cpu in ("gfx90a", "gfx942", "gfx950") for f in (F16_32, F16_16, F16_4, F32_32, F32_16, F32_4)],
    *[(cpu, f) for cpu in ("gfx90a", "gfx942", "gfx950") for f in (F16_32_2B, F64_16, F64_4)],
    ("gfx942", XF32_16),
    ("gfx942", FP8_32),
    ("gfx950", F16_950),
    ("gfx950", F16_950_32),
    ("gfx950", FP4_950),
    ("gfx950", FP8_950),
]
SECONDS = [F16_16, F32_16, F16_4, F64_4, F64_16]
IDS = [f"{cpu}-{form.opcode.removesuffix('_vgprcd_e64')}" for cpu, form in FORMS]


def span(first: int, count: int) -> str:
    return "_".join(f"vgpr{first + k}" for k in range(count))


def instruction(form: Form, result: int, a: int, b: int, c: int) -> str:
    operands = f"${span(a, form.a)}, ${span(b, form.b)}, ${span(c, form.result)}, {form.tail}"
    # Machine IR reads "early-clobber" where D may not overlap A or B, as in all forms but 4x4 ones.
    early = EARLY.get(form.opcode, "")
    return f"    {early}${span(result, form.result)} = {form.opcode} {operands}, implicit $mode, implicit $exec\n"


EARLY = {
    f.opcode: "early-clobber "
    for f in (F16_32, F16_16, F32_32, F32_16, F16_32_2B, F64_16, XF32_16, FP8_32, F16_950, F16_950_32, FP4_950, FP8_950)
}


def assembly(cpu: str, *bodies: str) -> str:
    """llc's assembly of blocks of machine IR, a function each, hazards dealt with."""
    names = ["k", *(f"k{number}" for number in range(1, len(bodies)))]
    head = "".join(f"  define amdgpu_kernel void @{name}() {{ ret void }}\n" for name in names)
    functions = "".join(
        f"---\nname: {name}\ntracksRegLiveness: false\nbody: |\n  bb.0:\n{body}    S_ENDPGM 0\n...\n"
        for name, body in zip(names, bodies, strict=True)
    )
    return run_llc(f"--- |\n{head}...\n{functions}", cpu, "-start-before=post-RA-hazard-rec")


def code(cpu: str, body: str) -> list[Instruction]:
    (function,) = parse_assembly(assembly(cpu, body), target(cpu))
    return list(function.instructions)


def uses(form: Form) -> dict[Use, str]:
    """Something after an MFMA, by what it does to the MFMA's registers."""
    then = {
        Use.VALU: "    $vgpr140 = V_MOV_B32_e32 $vgpr0, implicit $exec\n",
        Use.MEMORY: "    GLOBAL_STORE_DWORD $vgpr130_vgpr131, $vgpr0, 0, 0, implicit $exec\n",
        Use.WRITE: "    $vgpr0 = V_MOV_B32_e32 $vgpr140, implicit $exec\n",
        Use.OVERWRITE_C: "    $vgpr96 = V_MOV_B32_e32 $vgpr140, implicit $exec\n",
    }
    return {use: instruction(form, 0, 64, 80, 96) + other for use, other in then.items()}


def another(form: Form, second: Form) -> dict[str, str]:
    """An MFMA after an MFMA: the first one's result is a factor, overlaps the addend, or is the addend."""
    first = instruction(form, 0, 64, 80, 96)
    addends = {"overlaps": form.result - 2} | ({"same": 0} if form.result == second.result else {})
    return {
        "factor": first + instruction(second, 128, 0, 80, 144),
        **{name: first + instruction(second, 128, 64, 80, at) for name, at in addends.items()},
    }


@lru_cache(maxsize=None)
def codes(cpu: str) -> dict[str, list[Instruction]]:
    """The code of all these bodies, by one run of llc."""
    forms = [form for its, form in FORMS if its == cpu]
    bodies = [body for form in forms for body in uses(form).values()]
    bodies += [body for form in forms for second in SECONDS for body in another(form, second).values()]
    functions = parse_assembly(assembly(cpu, *bodies), target(cpu))
    return {body: list(function.instructions) for body, function in zip(bodies, functions, strict=True)}


def padding(instructions: list[Instruction]) -> int:
    """Wait states between the first instruction and the next that is none."""
    total = 0
    for one in instructions[1:]:
        if one.kind is not Kind.NOP:
            break
        total += int(one.operands[0], 0) + 1 if one.base == "s_nop" else 1
    return total


def made(cpu: str, instructions: list[Instruction]) -> Mfma:
    found = mfma(instructions[0].base, instructions[0].modifiers, target(cpu))
    assert found is not None, instructions[0].text
    return found


@pytest.mark.parametrize(("cpu", "form"), FORMS, ids=IDS)
def test_reads_and_overwrites(cpu: str, form: Form) -> None:
    for use, body in uses(form).items():
        found = codes(cpu)[body]
        assert padding(found) == wait_states(made(cpu, found), use, target(cpu)), use


@pytest.mark.parametrize("second", SECONDS, ids=lambda f: f.opcode)
@pytest.mark.parametrize(("cpu", "form"), FORMS, ids=IDS)
def test_mfma_after_mfma(cpu: str, form: Form, second: Form) -> None:
    gpu = target(cpu)
    found = {name: codes(cpu)[body] for name, body in another(form, second).items()}
    factor, partial = found["factor"], found["overlaps"]
    assert padding(factor) == wait_states(made(cpu, factor), Use.FACTOR, gpu)
    then = mfma(partial[-2].base, partial[-2].modifiers, gpu)
    assert then is not None
    assert padding(partial) == wait_states(made(cpu, partial), Use.ADDEND, gpu, then=then)
    if form.result == second.result:
        same = found["same"]
        assert padding(same) == wait_states(made(cpu, same), Use.ADDEND, gpu, same=True, then=then)


@pytest.mark.parametrize("cpu", ["gfx90a", "gfx942", "gfx950"])
def test_valu_before_mfma(cpu: str) -> None:
    move = "    $vgpr64 = V_MOV_B32_e32 $vgpr1, implicit $exec\n"
    assert padding(code(cpu, move + instruction(F16_16, 0, 64, 80, 96))) == VALU_BEFORE_MFMA


@pytest.mark.parametrize(("cpu", "form"), few(FORMS[::3], FORMS), ids=IDS)
def test_the_simulation_stalls_no_longer_than_the_padding(cpu: str, form: Form) -> None:
    """What llc has padded is not waited for again; without the padding, the wait is as long as it."""
    body = instruction(form, 0, 64, 80, 96) + "    $vgpr140 = V_MOV_B32_e32 $vgpr0, implicit $exec\n"
    padded = assembly(cpu, body)
    bare = re.sub(r"^\ts_nop .*\n", "", padded, flags=re.MULTILINE)
    with_padding, without = (cost_of_assembly(t, target(cpu))["k"] for t in (padded, bare))
    assert with_padding.dependencies == 0
    assert with_padding.hazards == without.dependencies > 0
    assert with_padding.latency == without.latency


LISTED = [row for row in FORMS if row[1] is not FP8_950]


@pytest.mark.parametrize(
    ("cpu", "form"),
    few(LISTED[::3], LISTED),
    ids=IDS[:-1],
)
def test_passes_are_those_of_llvm(cpu: str, form: Form) -> None:
    """The matrix unit's (f64: the VALU's) cycles in LLVM's scheduling model, as llvm-mca prints them."""
    found = code(cpu, instruction(form, 0, 64, 80, 96))
    tool = Path(llc()).with_name(Path(llc()).name.replace("llc", "llvm-mca"))
    command = [str(tool), "-mtriple=amdgcn", f"-mcpu={cpu}", "-instruction-tables", "-"]
    done = subprocess.run(command, input=found[0].text + "\n", capture_output=True, text=True, check=True)
    (row,) = [line for line in done.stdout.splitlines() if line.lstrip().startswith("-") and "v_mfma" in line]
    assert made(cpu, found).passes == max(float(n) for n in re.findall(r"\d+\.\d+", row.partition("v_mfma")[0]))


def wmma(a: int) -> str:
    c, factors = span(16, 8), f"8, ${span(a, 8)}, 8, ${span(40, 8)}"
    return (
        f"    early-clobber ${c} = V_WMMA_F32_16X16X16_F16_threeaddr_w32 {factors}, 8, ${span(64, 8)}, "
        "0, 0, implicit $exec\n"
    )


@pytest.mark.parametrize(("factor", "expected"), [(16, 1), (80, 0)], ids=["dependent", "independent"])
def test_wmma_whose_factor_was_just_written(factor: int, expected: int) -> None:
    first = wmma(80)
    second = wmma(factor).replace(span(16, 8) + " =", span(96, 8) + " =", 1)
    cost = cost_of_assembly(assembly("gfx1100", first + second), target("gfx1100"))["k"]
    assert cost.nops.static == expected
    assert cost.hazards == expected
    assert cost.mfma == 2 * wmma_cycles("v_wmma_f32_16x16x16_f16", target("gfx1100")) == 64


@pytest.mark.parametrize(
    ("cpu", "mnemonic", "cycles"),
    [
        ("gfx1201", "v_wmma_f32_16x16x16_f16", 16),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8", 8),
        ("gfx1201", "v_swmmac_f32_16x16x32_f16", 16),
        ("gfx1250", "v_wmma_f32_16x16x32_f16", 8),
        ("gfx1250", "v_wmma_i32_16x16x64_iu8", 16),
        ("gfx1100", "v_add_f32", 0),
    ],
)
def test_wmma_cycles(cpu: str, mnemonic: str, cycles: int) -> None:
    assert wmma_cycles(mnemonic, target(cpu)) == cycles
