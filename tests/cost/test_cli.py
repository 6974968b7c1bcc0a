"""``verilocc cost`` and ``verilocc compare``: three kinds of files with one answer, one clear error for the rest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
from support import cpu_of, few, kernel_paths, llc, pre_ra, run_llc

from verilocc_mlir.cli.main import run
from verilocc_mlir.results.cost_document import schema

GEMM = {cpu_of(p): p for p in kernel_paths() if p.name.startswith("gemm_mma_lds.") and p.name.endswith(".opt.ll")}
CPUS = sorted(GEMM)


def asm(cpu: str, *flags: str) -> str:
    return run_llc(GEMM[cpu].read_text(), cpu, *flags, mir=False)


def code_object(cpu: str, at: Path) -> Path:
    obj = at / "k.o"
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-O3", "-filetype=obj", str(GEMM[cpu])]
    subprocess.run([*command, "-o", str(obj)], check=True)
    linker = Path(llc()).with_name(Path(llc()).name.replace("llc", "ld.lld"))
    subprocess.run([str(linker), "-shared", str(obj), "-o", str(at / "k.hsaco")], check=True)
    return at / "k.hsaco"


def costs(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, schema())
    return data


def comparable(data: dict) -> dict:
    (cost,) = data["functions"]
    return {k: v for k, v in cost.items() if k != "loops"}


@pytest.mark.parametrize("cpu", few(("gfx942",), CPUS))
def test_assembly_code_object_and_allocated_machine_ir_cost_the_same(
    cpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, allocated = tmp_path / "k.s", tmp_path / "k.mir"
    text.write_text(asm(cpu))
    allocated.write_text(asm(cpu, "-stop-after=virtregrewriter,2"))
    first = costs(capsys, "cost", str(text), "--mcpu", cpu)
    assert first["file"]["kind"] == "assembly"
    assert comparable(costs(capsys, "cost", str(code_object(cpu, tmp_path)))) == comparable(first)
    third = costs(capsys, "cost", str(allocated))
    assert third["file"]["notes"] == []
    assert third["functions"][0]["cycles"] == first["functions"][0]["cycles"]
    assert third["functions"][0]["loops"][0]["source"] == "ir"
    assert first["functions"][0]["loops"][0]["source"] == "code"
    assert third["functions"][0]["loops"][0]["trips"] == first["functions"][0]["loops"][0]["trips"]


def test_unallocated_machine_ir_is_allocated_by_llvm_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pre.mir"
    path.write_text(pre_ra(GEMM["gfx942"]))
    data = costs(capsys, "cost", str(path))
    assert "LLVM's greedy allocator assigned them" in data["file"]["notes"][0]
    half = tmp_path / "half.mir"
    half.write_text(asm("gfx942", "-stop-before=greedy,2"))
    assert "without vector registers assigned" in costs(capsys, "cost", str(half))["file"]["notes"][0]


def test_compare_names_what_the_difference_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llc()
    good, bad = tmp_path / "good.s", tmp_path / "bad.s"
    (kernel,) = [p for p in kernel_paths() if p.name == "attn_d64.gfx1100.opt.ll"]
    good.write_text(run_llc(kernel.read_text(), "gfx1100", mir=False))
    ir = kernel.read_text().replace(
        '"amdgpu-flat-work-group-size"', '"amdgpu-waves-per-eu"="16" "amdgpu-flat-work-group-size"'
    )
    assert '"amdgpu-waves-per-eu"' in ir
    bad.write_text(run_llc(ir, "gfx1100", mir=False))
    data = costs(capsys, "compare", str(good), str(bad))
    (row,) = data["functions"]
    assert row["percent"] > 0
    assert "reloads" in row["explanation"]
    assert run(["compare", str(good), str(bad)]) == 0
    text = capsys.readouterr().out
    assert "B is" in text
    assert "dearer" in text
    assert "modelled, not measured" in text
    assert run(["compare", str(good), str(good)]) == 0
    assert "the same cost" in capsys.readouterr().out


def test_table_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.s"
    path.write_text(asm("gfx942"))
    assert run(["cost", str(path), "-mcpu=gfx942"]) == 0
    out = capsys.readouterr().out
    for word in ("modelled, not measured", "occupancy", "VALU issue", "matrix unit", "LDS", "waits for memory"):
        assert word in out
    for word in ("copies", "registers spilled", "registers reloaded", "dual issues", "hazard padding", "code, bytes"):
        assert word in out


X86 = "\t.text\n\t.globl f\nf:\n\tleal 1(%rdi), %eax\n\tretq\n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x86.s", X86, "neither AMDGPU assembly"),
        ("empty.s", "", "empty"),
        ("notes.txt", "hello\n", "neither AMDGPU assembly"),
        ("k.ll", "define void @f() {\n  ret void\n}\n", "LLVM IR, which has no registers yet"),
        ("k.s", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.text\n', "has no function"),
        ("k.mir", "--- |\n  define void @f() { ret void }\n...\n", "truncated"),
        ("k.s", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx906"\n\t.text\n', "unknown target gfx906"),
        ("k.s", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx10-3-generic"\n\t.text\n', "unknown target gfx10-3-generic"),
    ],
)
def test_wrong_files(name: str, data: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    path.write_text(data)
    assert run(["cost", str(path)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("verilocc: error:") == 1


@pytest.mark.parametrize(
    "text", ["s_nop", "s_nop x", "v_readlane_b32 s0, v1", "v_mfma_f32_4x4x4f16 a[0:3]", "s_cbranch_scc0"]
)
def test_instructions_that_are_cut_off(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.s"
    path.write_text(asm("gfx942").replace("\ts_endpgm", f"\t{text}\n\ts_endpgm"))
    assert run(["cost", str(path)]) == 2
    assert "lacks operands" in capsys.readouterr().err


def test_wrong_targets_and_truncated_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "k.s"
    text.write_text(asm("gfx942"))
    whole = code_object("gfx942", tmp_path)
    part = tmp_path / "part.hsaco"
    part.write_bytes(whole.read_bytes()[:3000])
    host = tmp_path / "host"
    host.write_bytes(Path("/bin/true").read_bytes())
    other = tmp_path / "other.s"
    other.write_text(asm("gfx1100"))
    cases = {
        ("cost", str(text), "-mcpu=gfx1100"): "it is for gfx942, not for gfx1100",
        ("cost", str(whole), "-mcpu=gfx90a"): "it is for gfx942, not for gfx90a",
        ("cost", str(part)): "not a readable ELF file",
        ("cost", str(host)): "not for AMDGPU",
        ("cost", str(tmp_path / "none")): "cannot be read",
        ("compare", str(text), str(other)): "cannot be compared",
    }
    for arguments, message in cases.items():
        assert run(list(arguments)) == 2
        assert message in capsys.readouterr().err


def test_the_size_of_the_work_groups_that_are_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.s"
    source.write_text(run_llc(LDS_KERNEL, "gfx942", mir=False))
    waves: list[int] = []
    for size in ("", "--work-group=64", "--work-group=16x16"):
        assert run(["cost", str(source), "--json", *filter(None, (size,))]) == 0
        waves.append(json.loads(capsys.readouterr().out)["functions"][0]["occupancy"])
    assert waves == [8, 1, 3]
    for wrong in ("0", "16x", "64x64", "many"):
        assert run(["cost", str(source), f"--work-group={wrong}"]) == 2
        assert "is no size of a work-group" in capsys.readouterr().err


LDS_KERNEL = """target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [20000 x i8] poison
define amdgpu_kernel void @k(i32 %i) {
  %p = getelementptr i8, ptr addrspace(3) @lds, i32 %i
  store volatile i8 1, ptr addrspace(3) %p
  ret void
}
"""
