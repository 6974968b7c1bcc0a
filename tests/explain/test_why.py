"""``verilocc why``: pressure against an oracle, thresholds, hints, source lines, and what allocators spilled."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace
from pressure_oracle import peak_pressure
from support import DEMO_KERNELS, cpu_of, few, kernel_paths, llc, pre_ra

from verilocc_mlir.analysis.cfg import control_flow
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.cli.main import run
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.pipeline.why import why
from verilocc_mlir.problem.build import phase_liveness
from verilocc_mlir.results.why import FilePressure, WhyFunction, WhyRun, schema, to_json
from verilocc_mlir.target.targets import target

QUICK = [DEMO_KERNELS / f"attn_d64.{cpu}.opt.ll" for cpu in ("gfx942", "gfx1100")]
PATHS = [*QUICK, *(path for path in kernel_paths() if path.name not in {quick.name for quick in QUICK})]
LLVM = Settings(verify=False, allocator="llvm")
DEBUG = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) #0 !dbg !4 {
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !7
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t, !dbg !7
  %x = load i32, ptr addrspace(1) %a, !dbg !8
  %b = getelementptr i32, ptr addrspace(1) %q, i32 %t, !dbg !7
  %y = load i32, ptr addrspace(1) %b, !dbg !9
  %m = mul i32 %x, %y, !dbg !11
  store i32 %m, ptr addrspace(1) %a, !dbg !8
  ret void, !dbg !7
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "target-cpu"="gfx942" }
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "scale.hip", directory: "/nowhere")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 10, type: !5, unit: !0, spFlags: 8)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 11, column: 3, scope: !4)
!8 = !DILocation(line: 12, column: 7, scope: !4)
!9 = !DILocation(line: 30, column: 9, scope: !10, inlinedAt: !8)
!10 = distinct !DISubprogram(name: "f", scope: !12, file: !12, line: 29, type: !5, unit: !0, spFlags: 8)
!11 = !DILocation(line: 31, scope: !13, inlinedAt: !8)
!12 = !DIFile(filename: "f.h", directory: "/nowhere")
!13 = !DILexicalBlock(scope: !10, file: !12, line: 30)
"""


ACCUMULATORS = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k() #0 {
  %a = call <16 x i32> asm sideeffect "; def $0", "=a"()
  %b = call <16 x i32> asm sideeffect "; def $0", "=v"()
  call void asm sideeffect "; use $0 $1", "a,v"(<16 x i32> %a, <16 x i32> %b)
  ret void
}
attributes #0 = { "target-cpu"="gfx90a" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" }
"""


def tight(path: Path, vgprs: int = 64) -> str:
    """A kernel that must get along with few VGPRs."""
    return re.sub(r"^(attributes #\d+ = \{)", rf'\1 "amdgpu-num-vgpr"="{vgprs}"', path.read_text(), flags=re.MULTILINE)


@lru_cache
def explained(path: Path) -> WhyFunction:
    (function,) = why(path.read_bytes(), path.name, replace(LLVM, cpu=cpu_of(path))).functions
    return function


@lru_cache
def spilling(allocator: str) -> WhyRun:
    return why(tight(QUICK[1]).encode(), "tight.ll", replace(LLVM, allocator=allocator))


def file_of(function: WhyFunction, name: str) -> FilePressure:
    return next(file for file in function.files if file.file == name)


@pytest.mark.parametrize("path", few(QUICK[:1], PATHS), ids=lambda path: path.stem)
def test_the_pressure_is_that_of_the_live_ranges_and_the_values_make_it_up(path: Path) -> None:
    for file in explained(path).files:
        assert sum(value.registers for value in file.values) + file.held == file.most
        assert file.held >= 0
        assert not {value.name for value in file.values if value.idle and value.next_use is None}
    mir = parse_mir(pre_ra(path), path.name).functions[0]
    classes = virtual_classes(mir)
    scalars = phase_liveness(mir, control_flow(mir), classes, lambda v: classes[v].is_scalar, "sgpr")
    scalar = file_of(explained(path), "SGPR")
    oracle = peak_pressure(scalars.ranges[v] for v in scalars.ranges if "sgpr" in {b.value for b in classes[v].banks})
    assert scalar.most >= oracle.registers
    assert scalar.most - scalar.held <= oracle.registers


@pytest.mark.parametrize("path", few(QUICK[:1], PATHS), ids=lambda path: path.stem)
def test_thresholds_are_the_nearest_and_a_plan_frees_what_is_missing(path: Path) -> None:
    function = explained(path)
    vgprs = file_of(function, "VGPR")
    assert function.waves <= function.other_limit <= target(cpu_of(path)).max_waves
    assert function.resources is not None
    # What must be spilled counts for the waves, and takes no registers in the code.
    spills = any(file.most > file.available for file in function.files)
    needed, taken = function.waves, function.resources.waves
    assert needed <= taken if spills else taken <= needed
    assert vgprs.most <= function.resources.vgprs or function.moved
    if vgprs.more_waves is not None:
        assert vgprs.more_waves.registers < vgprs.most
        assert vgprs.more_waves.waves > function.waves
        goal = vgprs.available if vgprs.most > vgprs.available else vgprs.more_waves.registers
        # With accumulators in use, values may go there instead.
        shared = any(file.file == "AGPR" for file in function.files)
        assert shared or (vgprs.plan and sum(action.parts for action in vgprs.plan) >= vgprs.most - goal)
    if vgprs.fewer_waves is not None:
        assert vgprs.fewer_waves.registers > vgprs.most
        assert vgprs.fewer_waves.waves < function.waves


def test_attention_could_have_a_wave_more_with_fewer_vgprs() -> None:
    """93 of 512 registers for each of 5 waves; 6 waves have 80 each, and from 97 on there are 4."""
    llc()
    vgprs = file_of(explained(QUICK[0]), "VGPR")
    assert (vgprs.most, explained(QUICK[0]).waves) == (93, 5)
    assert vgprs.more_waves is not None
    assert vgprs.fewer_waves is not None
    assert (vgprs.more_waves.registers, vgprs.more_waves.waves) == (80, 6)
    assert (vgprs.fewer_waves.registers, vgprs.fewer_waves.waves) == (97, 4)
    assert vgprs.at.depth == 1


def test_accumulators_are_a_file_of_their_own_and_share_the_waves() -> None:
    """Sixteen of each: the file is unified, so that both count."""
    (function,) = why(ACCUMULATORS.encode(), "k.ll", LLVM).functions
    assert (file_of(function, "AGPR").most, file_of(function, "VGPR").most) == (16, 16)
    more = file_of(function, "AGPR").fewer_waves
    assert more is not None
    assert (more.registers, more.waves) == (64 - 16 + 1, 7)
    assert all(value.register_class.startswith("areg") for value in file_of(function, "AGPR").values)


def test_lds_that_a_launch_asks_for_limits_the_waves_that_are_offered() -> None:
    data, settings = QUICK[0].read_bytes(), replace(LLVM, cpu="gfx942")
    (function,) = why(data, "attn.ll", settings, launch_lds=32768).functions
    assert function.other_limit == function.waves < explained(QUICK[0]).waves
    assert file_of(function, "VGPR").more_waves is None
    assert function.resources is not None
    assert function.resources.waves <= function.other_limit


def test_hints_tell_constants_from_what_can_come_later_and_what_must_wait() -> None:
    scalars = file_of(explained(QUICK[0]), "SGPR")
    hints = {v.defined.instruction.split(" = ")[1].split()[0]: v.hint for v in scalars.values if v.defined and v.idle}
    assert hints["S_MOV_B32"] == "constant: make it again"
    assert "compute it later" in hints.values()
    assert any(hint.startswith("let it wait in memory") for hint in hints.values())
    for value in scalars.values:
        if value.hint == "compute it later":
            assert value.defined is not None
            assert value.next_use is not None
            assert value.next_use.depth <= value.defined.depth
        if not value.idle:
            assert value.hint == ""


def test_values_have_their_source_lines_with_what_was_inlined() -> None:
    (function,) = why(DEBUG.encode(), "scale.ll", LLVM).functions
    sources = {site.source for file in function.files for v in file.values if (site := v.defined) is not None}
    sources |= {file.at.source for file in function.files}
    sources |= {site.source for file in function.files for site in file.elsewhere}
    assert sources & {"scale.hip:11:3", "scale.hip:12:7"}
    assert sources <= {
        "", "scale.hip:11:3", "scale.hip:12:7", "f.h:30:9, inlined at scale.hip:12:7",
        "f.h:31, inlined at scale.hip:12:7",
    }  # fmt: skip
    assert any("inlined at" in source for source in sources)


@pytest.mark.parametrize("allocator", few(("llvm",), ("llvm", "deterministic")))
def test_what_an_allocation_spilled_is_said_with_its_values(allocator: str) -> None:
    spilled = spilling(allocator)
    (function,) = spilled.functions
    vgprs = file_of(function, "VGPR")
    assert vgprs.available == 64
    assert vgprs.most > 64
    assert function.resources is not None
    assert function.resources.scratch_bytes > 0
    assert vgprs.plan
    kinds = {move.kind for move in function.moved}
    assert {"spill", "reload"} <= kinds
    spills = [move for move in function.moved if move.kind == "spill"]
    assert all(move.site.instruction.startswith("SI_SPILL_") for move in spills)
    named = [move for move in spills if move.value]
    assert len(named) > 0.9 * len(spills)
    assert all(move.defined is not None for move in named)
    if allocator != "llvm":
        assert f"{allocator}: proved" in spilled.notes


def test_an_allocation_that_fails_is_a_note_and_the_pressure_is_shown(tmp_path: Path) -> None:
    (function,) = (run_ := why(tight(QUICK[1], 16).encode(), "tiny.ll", LLVM)).functions
    assert any("ran out of registers" in note for note in run_.notes)
    assert function.resources is None
    assert function.moved == ()
    assert file_of(function, "VGPR").plan is None


def test_the_json_obeys_its_schema_and_has_everything() -> None:
    data = json.loads(to_json(spilling("llvm")))
    jsonschema.validate(data, schema())
    (function,) = data["functions"]
    assert len(function["moved"]) == len(spilling("llvm").functions[0].moved)
    assert {file["file"] for file in function["files"]} == {"SGPR", "VGPR"}


def test_the_command_shows_tables_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "tight.ll"
    kernel.write_text(tight(QUICK[1]))
    assert run(["why", str(kernel), "--function=attn", "--values=3"]) == 0
    shown = capsys.readouterr().out
    assert "kernel attn: its pressure leaves room for" in shown
    assert re.search(r"VGPR: \d+ needed at once, 64 available\n  \d+ too many: something must be spilled", shown)
    assert "let it wait in memory" in shown
    assert "more: --values" in shown
    assert re.search(r"  %\d+ \(VGPR\): stored \w+", shown)
    assert run(["why", str(DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"), "--json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schema())


def test_machine_ir_is_taken_and_needs_no_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "k.mir"
    text.write_text(pre_ra(QUICK[0]))
    (function,) = why(text.read_bytes(), "k.mir", LLVM).functions
    assert file_of(function, "VGPR").most == file_of(explained(QUICK[0]), "VGPR").most


def test_the_llvm_in_tritons_wheel_will_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setenv("VERILOCC_TOOLCHAIN", "triton")
    assert run(["why", str(DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"), "-mcpu=gfx942"]) == 0
    assert "of Triton" in capsys.readouterr().out


def test_bad_input_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "host.ll").write_text('target triple = "x86_64-linux-gnu"\ndefine void @f() {\n  ret void\n}\n')
    (tmp_path / "cut.mir").write_text(pre_ra(QUICK[0])[:-2000])
    for words, message in (
        (["none.ll"], "cannot be read"),
        ([str(tmp_path / "host.ll")], "not for amdgcn"),
        ([str(tmp_path / "cut.mir")], "cut.mir"),
        ([str(QUICK[0]), "--function=nothing"], "there is no function nothing"),
        ([str(QUICK[0]), "-mcpu=gfx90a"], "not for gfx90a"),
        ([str(QUICK[0]), "--allocator=nobody"], "nobody"),
    ):
        assert run(["why", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("error") >= 1
