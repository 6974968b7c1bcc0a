"""Building allocation problems: what goes in, what is fixed, and that names do not matter."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from builders import mir_file, mir_text, problem_of_body
from msgspec.structs import replace
from support import cpu_of, each_kernel, llc, pre_ra

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import PHASES, Affinity, AllocationProblem, LiveRange
from verilocc_mlir.problem.schema import problem_from_json, to_json
from verilocc_mlir.spilling.relieve import pressures
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.targets import target


def by_name(found: AllocationProblem) -> dict[str, LiveRange]:
    return {r.name: r for r in found.ranges}


MIXED = """
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0, $sgpr4_sgpr5

    %2:vgpr_32 = COPY $vgpr0
    %1:sreg_64 = COPY $sgpr4_sgpr5

  bb.1:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)

    undef %5.sub1:vreg_64_align2 = COPY %2
    %5.sub0:vreg_64_align2 = V_ADD_U32_e32 %2, %2, implicit $exec
    %3:av_64_align2 = GLOBAL_LOAD_DWORDX2 %5, 0, 0, implicit $exec
    %1.sub0:sreg_64 = S_ADD_U32 %1.sub0, 4, implicit-def dead $scc
    $vcc = COPY %1
    S_CBRANCH_VCCNZ %bb.1, implicit $vcc

  bb.2:
    S_ENDPGM 0, implicit %3
"""


def test_each_register_belongs_to_one_phase() -> None:
    names = {phase: set(by_name(problem_of_body(MIXED, phase))) for phase in PHASES}
    assert names == {"sgpr": {"%1"}, "wwm": set[str](), "vgpr": {"%2", "%5", "%3"}}


def test_shape_banks_and_alignment() -> None:
    ranges = by_name(problem_of_body(MIXED))
    assert [ranges[n].id for n in ("%2", "%5", "%3")] == [0, 1, 2], "numbered by first definition"
    assert ranges["%2"].banks == ("vgpr",)
    assert ranges["%3"].banks == ("agpr", "vgpr")
    assert (ranges["%3"].width, ranges["%3"].lanes, ranges["%3"].align) == (2, 4, 2)
    assert by_name(problem_of_body(MIXED, "sgpr"))["%1"].banks == ("sgpr", "special")
    assert [b.bank for b in problem_of_body(MIXED).budgets] == ["vgpr", "agpr"]


def test_no_accumulators_on_rdna() -> None:
    body = MIXED.replace("_align2", "")
    found = problem_of_body(body, cpu="gfx1100")
    assert [b.bank for b in found.budgets] == ["vgpr"]
    assert by_name(found)["%3"].banks == ("vgpr",)


def test_points_weights_and_families() -> None:
    found = by_name(problem_of_body(MIXED))["%5"]
    assert [(p.slot, p.lanes, p.kind, p.depth, p.family) for p in found.points] == [
        (10, 12, "def", 1, "copy"),
        (14, 3, "def", 1, "valu"),
        (17, 15, "use", 1, "load"),
    ]
    assert found.weight == 30


def test_affinities_are_by_lane_and_weighted_by_depth() -> None:
    found = problem_of_body(MIXED)
    assert found.affinities == (
        Affinity(0, 0, -1, 0, 2, 1.0, 0, "vgpr0"),
        Affinity(1, 2, 0, 0, 2, 10.0, 8, ""),
    )
    assert [a.fixed for a in problem_of_body(MIXED, "sgpr").affinities] == ["sgpr4_sgpr5", "vcc"]


def test_fixed_ranges_of_this_phase_only() -> None:
    vector = problem_of_body(MIXED)
    assert [(f.units, f.segments, f.reason) for f in vector.fixed] == [((0, 1), ((0, 2),), "argument $vgpr0")]
    scalar = {f.reason: f for f in problem_of_body(MIXED, "sgpr").fixed}
    assert scalar["fixed $vcc"].segments == ((26, 30),)
    assert set(scalar) == {"argument $sgpr4_sgpr5", "fixed $vcc"}, "SCC and EXEC are never handed out"


CALL = """
  bb.0:
    %0:vgpr_32 = IMPLICIT_DEF
    %1:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    $vgpr0 = COPY %1
    dead $sgpr30_sgpr31 = SI_CALL %9, @g, csr_amdgpu_gfx90ainsts, implicit $vgpr0, implicit-def $vgpr0
    %2:vgpr_32 = COPY $vgpr0
    S_ENDPGM 0, implicit %1, implicit %2
"""


def test_calls_clobber_what_their_mask_does_not_preserve() -> None:
    found = problem_of_body(CALL, v9="sreg_64")
    (clobber,) = [f for f in found.fixed if f.reason.startswith("clobbered")]
    assert clobber.segments == ((14, 15),)
    assert clobber.reason == "clobbered by call at slot 12"
    assert set(physical_register("vgpr39").units) <= set(clobber.units)
    assert set(physical_register("vgpr40").units).isdisjoint(clobber.units)
    (argument,) = [f for f in found.fixed if f.reason == "fixed $vgpr0"]
    assert argument.segments == ((10, 18),)


def test_register_that_holds_spilled_scalars_is_taken_for_good() -> None:
    body = """
  bb.0:
    $vgpr5 = SI_SPILL_S32_TO_VGPR $sgpr0, 0, $vgpr5
    S_NOP 0
    S_ENDPGM 0
"""
    (fixed,) = problem_of_body(body).fixed
    assert (fixed.units, fixed.segments) == (physical_register("vgpr5").units, ((0, 12),))


def test_whole_wave_registers_have_their_phase() -> None:
    file = mir_file("  bb.0:\n    %0:vgpr_32 = IMPLICIT_DEF\n    S_ENDPGM 0")
    function = file.functions[0]
    registers = {0: replace(function.registers[0], flags=("WWM_REG",))}
    function = replace(function, registers=registers)
    assert [len(build_problem(file, function, target("gfx942"), p).ranges) for p in PHASES] == [0, 1, 0]


def test_hints() -> None:
    file = mir_file(
        "  bb.0:\n    %0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec\n"
        "    %1:vreg_64_align2 = V_MOV_B64_PSEUDO 0, implicit $exec\n    S_ENDPGM 0"
    )
    function = file.functions[0]
    rows = function.registers
    registers = {0: replace(rows[0], preferred="$vgpr7"), 1: replace(rows[1], preferred="%0")}
    found = build_problem(file, replace(function, registers=registers), target("gfx942"), "vgpr")
    assert [r.hint for r in found.ranges] == ["vgpr7", ""]
    assert found.affinities == (Affinity(1, 0, 0, 0, 2, 0.0, 0, ""),)


def test_tie_to_another_register_is_refused() -> None:
    body = "  bb.0:\n    %0:vgpr_32 = V_FMAC_F32_e32 %1:vgpr_32, %1, %2:vgpr_32(tied-def 0)\n    S_ENDPGM 0"
    with pytest.raises(UnsupportedError, match="tied"):
        problem_of_body(body)
    problem_of_body(body.replace("%2", "%0"))


def test_function_without_body_is_bad_input() -> None:
    file = mir_file("  bb.0:\n    S_ENDPGM 0")
    with pytest.raises(InputError, match="no body"):
        build_problem(file, replace(file.functions[0], blocks=()), target("gfx942"), "vgpr")


def renamed(text: str, seed: int) -> str:
    """The same machine code with other register and block numbers, in one pass each."""
    rng = random.Random(seed)
    head, marker, body = text.partition("\n---\n")
    registers = sorted({int(n) for n in re.findall(r"%(\d+)", body)} | {int(n) for n in re.findall(r"id: (\d+)", body)})
    blocks = sorted({int(n) for n in re.findall(r"^  bb\.(\d+)", body, re.MULTILINE)})
    register = dict(zip(registers, rng.sample(range(10_000), len(registers)), strict=True))
    block = dict(zip(blocks, rng.sample(range(1_000), len(blocks)), strict=True))
    body = re.sub(r"%(\d+)", lambda m: f"%{register[int(m[1])]}", body)
    body = re.sub(r"(\{ id: )(\d+)(, class)", lambda m: f"{m[1]}{register[int(m[2])]}{m[3]}", body)
    body = re.sub(r"((?:^  |%)bb\.)(\d+)", lambda m: f"{m[1]}{block[int(m[2])]}", body, flags=re.MULTILINE)
    return head + marker + body


def anonymous(found: AllocationProblem) -> AllocationProblem:
    return replace(found, ranges=tuple(replace(r, name="") for r in found.ranges))


@pytest.mark.parametrize("name", ["gemm_naive.gfx90a.ll", "attn_d64.gfx1100.opt.ll", "gemm_mma_reg.gfx942.ll"])
def test_renaming_changes_nothing_but_names(kernels: Path, name: str) -> None:
    path = kernels / name
    if not path.exists():
        pytest.skip(f"no {name} at hand")
    text = pre_ra(path)
    other = renamed(text, 5)
    assert other != text
    first, second = parse_mir(text), parse_mir(other)
    for phase in PHASES:
        a = build_problem(first, first.functions[0], target(cpu_of(path)), phase)
        b = build_problem(second, second.functions[0], target(cpu_of(path)), phase)
        assert anonymous(a) == anonymous(b)
        assert to_json(anonymous(a)) == to_json(anonymous(b))


@pytest.mark.parametrize("path", each_kernel())
def test_every_kernel(path: Path) -> None:
    """Problems of real kernels are sound documents: references, segments and lanes pass the reader's checks."""
    file = parse_mir(pre_ra(path))
    for function in file.functions:
        for phase in ("sgpr", "vgpr"):
            found = build_problem(file, function, target(cpu_of(path)), phase)
            assert problem_from_json(to_json(found)) == found
            of_pressure = build_problem(file, function, target(cpu_of(path)), phase, pressure_alone=True)
            assert pressures(of_pressure) == pressures(found)
            assert found.ranges
            for r in found.ranges:
                # A use lies inside the lanes' segments unless it reads nothing; a definition always does.
                assert r.banks
                for point in r.points:
                    if point.kind != "use":
                        held = 0
                        for group in r.groups:
                            if any(a <= point.slot < b for a, b in group.segments):
                                held |= group.lanes
                        assert held & point.lanes == point.lanes, (r.name, point)


@pytest.mark.parametrize(
    "instruction",
    [
        "DS_WRITE2_B32_gfx9 %0, %1, %2, 0, 1, 0, implicit $exec",
        "%2:av_32 = DS_ADD_RTN_U32_gfx9 %0, %1, 0, 0, implicit $exec",
        "%2:av_32 = GLOBAL_ATOMIC_ADD_RTN %3, %1, 0, 1, implicit $exec",
    ],
)
def test_llvm_keeps_two_data_operands_out_of_av_classes(instruction: str, tmp_path: Path) -> None:
    """Why a problem_of_body has no "same bank" constraint: LLVM lets no av_* register meet another one in these."""
    body = f"""
  bb.0:
    %0:vgpr_32 = IMPLICIT_DEF
    %1:av_32 = IMPLICIT_DEF
    %2:av_32 = IMPLICIT_DEF
    %3:vreg_64_align2 = IMPLICIT_DEF
    {instruction}
    S_ENDPGM 0
"""
    source = tmp_path / "f.mir"
    source.write_text(mir_text(body))
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-run-pass=none", "-verify-machineinstrs"]
    done = subprocess.run([*command, "-o", "-", str(source)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "Expected a VGPR_32 register, but got a AV_32 register" in done.stderr
