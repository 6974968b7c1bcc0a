"""``verilocc audit``: the walkthrough of a new user, several functions and phases, options, and what goes wrong."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DEMO_KERNELS, REPOSITORY, llc, long, run_llc

from smt_verifier.certificate import disagreement, second
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

KERNELS = DEMO_KERNELS
COUNTS = r"\d+ obligations(: \d+ literal goals, \d+ decided, \d+ rule checks)?"
GEMM = KERNELS / "gemm_mma_lds.gfx942.opt.ll"
TWO = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @empty() #0 {
  ret void
}
define amdgpu_kernel void @store(ptr addrspace(1) %p, i32 %n) #0 {
  %m = mul i32 %n, %n
  store i32 %m, ptr addrspace(1) %p
  ret void
}
define i32 @f(i32 %a, i32 %b) #0 {
  %c = mul i32 %a, %b
  %d = xor i32 %c, %a
  ret i32 %d
}
attributes #0 = { "target-cpu"="gfx942" }
"""


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERILOCC_LLVM", str(Path(llc()).parent))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what --save-temps keeps of a kernel, and of a file of three functions beside that file."""
    directory = tmp_path_factory.mktemp("audited")
    two = directory / "two" / "two.ll"
    two.parent.mkdir()
    two.write_text(TWO)
    for source, texts in ((GEMM, "gemm"), (two, "two")):
        command = ["audit", "--llvm", str(source), "--phases", f"--save-temps={directory / texts}"]
        assert run([*command, f"--llc={Path(llc()).parent}"]) == 0
    return directory


@pytest.fixture
def gemm(audited: Path) -> tuple[Path, Path]:
    """Both texts of the VGPR phase."""
    shutil.copytree(audited / "gemm", "texts")
    stem = GEMM.stem
    return Path(f"texts/{stem}.vgpr.before.mir"), Path(f"texts/{stem}.vgpr.after.mir")


@pytest.fixture
def two(audited: Path) -> tuple[Path, Path]:
    """The VGPR phase of a file of three functions."""
    shutil.copytree(audited / "two", ".", dirs_exist_ok=True)
    return Path("two.vgpr.before.mir"), Path("two.vgpr.after.mir")


def change(path: Path, pattern: str, by: str) -> None:
    """Replace the first match in the body of a text, as a person would in an editor."""
    text = path.read_text()
    start = text.index("body:")
    changed, count = re.subn(pattern, by, text[start:], count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern} is not in {path}"
    path.write_text(text[:start] + changed)


def line_of(path: Path, text: str) -> int:
    body = path.read_text()
    return body.count("\n", 0, body.index(text, body.index("body:"))) + 1


def test_llvms_allocation_is_audited_all_phases_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--llvm", str(GEMM), "-mcpu=gfx942", "--save-temps=."]) == 0
    assert re.findall("^gemm, (.*): proved", capsys.readouterr().out, re.MULTILINE) == ["all phases"]
    assert {path.name for path in Path().iterdir()} == {f"{GEMM.stem}.all.{side}.mir" for side in ("before", "after")}


def test_llvms_allocation_is_audited_phase_by_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--llvm", str(GEMM), "-mcpu=gfx942", "--phases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Where there is one checker alone, the search is the second opinion, and has a line of its own.
    searches = [line for line in lines if line == "  search with Z3: proved too"]
    assert len(searches) == (0 if second.second_program() is not None else 3)
    shown = [line for line in lines if line not in searches]
    assert re.fullmatch(r".*gemm_mma_lds.gfx942.opt.ll for gfx942, .*LLVM version .*, greedy allocation", shown[0])
    for name, verdict, certificate in zip(("SGPR", "VGPR", "all phases"), shown[1:7:2], shown[2:7:2], strict=True):
        assert re.fullmatch(rf"gemm, {name}: proved, {COUNTS}", verdict)
        told = ", told --saved-later" if name == "SGPR" else ""
        assert re.fullmatch(rf"  certificate: accepted by python( and rust)?, \d+ operands compared{told}", certificate)
    assert shown[7:] == ["proved"]
    assert list(Path().iterdir()) == []


@pytest.mark.skipif(second.second_program() is None, reason="the search is one of the two opinions")
def test_a_third_opinion_is_the_search_with_the_solver(
    gemm: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["audit", *map(str, gemm)]
    assert run(asked) == 0
    assert "Z3" not in capsys.readouterr().out
    assert run([*asked, "--third=z3"]) == 0
    assert "  certificate: accepted by python and rust" in (text := capsys.readouterr().out)
    assert "  search with Z3: proved too\n" in text


def test_where_the_checkers_disagree_nothing_is_proved_and_the_texts_are_kept(
    gemm: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "refuses"
    program.write_text("#!/bin/sh\necho 'refused: value: for a test'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv(second.ENVIRONMENT, str(program))
    monkeypatch.setenv(disagreement.KEEP, str(tmp_path))
    second.second_program.cache_clear()
    try:
        assert run(["audit", *map(str, gemm)]) == 3
    finally:
        second.second_program.cache_clear()
    text = capsys.readouterr().out
    assert re.search(r"unknown: certificate: the checkers disagree, one of them has a fault, please report it", text)
    (folder,) = tmp_path.glob("verilocc-disagreement-*")
    assert str(folder) in text
    assert "rust: value: for a test" in (folder / "answers.txt").read_text()
    names = [str(folder / name) for name in ("before.mir", "after.mir", "certificate")]
    again = [sys.executable, "-m", "smt_verifier.checker", *names, "--mcpu=gfx942"]
    assert subprocess.run(again, cwd=REPOSITORY, capture_output=True, check=False).returncode == 0


def test_walkthrough_wrong_operand(gemm: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = gemm
    assert run(["audit", str(before), str(after)]) == 0
    assert capsys.readouterr().out.endswith("\nproved\n")
    change(after, r"(V_MFMA_F32_16X16X16F16_vgprcd_e64 \$vgpr32_vgpr33, )\$vgpr36_vgpr37", r"\1$vgpr38_vgpr39")
    assert run(["audit", str(before), str(after)]) == 1
    shown = capsys.readouterr().out
    line = line_of(after, "$vgpr32_vgpr33, $vgpr38_vgpr39,")
    assert f"{after}:{line}: refuted: value: v38 must hold %" in shown
    assert re.search(r"operand 2: \$vgpr38_vgpr39, before allocation %\d+\.sub0_sub1, lanes sub0, sub1\n", shown)
    assert re.search(r"expected: %\d+\.sub0 is written by: pre line \d+, bb\.1: %\d+:\S+ = DS_READ2_B64_gfx9", shown)
    assert re.search(r"found: v38 is written by: post line \d+, bb\.1: .*DS_READ2_B64_gfx9", shown)
    assert re.search(r"found: that is the value of %\d+\.sub2 before allocation", shown)
    assert "the expected value is in v36 there" in shown
    assert "path: within bb.1" in shown
    assert shown.endswith("\nrefuted\n")


def test_walkthrough_dropped_copy(gemm: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = gemm
    change(after, r"^ *renamable \$vgpr1 = COPY renamable \$vgpr23\n", "")
    assert run(["audit", str(before), str(after)]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"value: v1 must hold %\d+\.sub1, what AV_MOV_B32_IMM_PSEUDO wrote \(bb\.0, pre line \d+\)", shown)
    assert "lane sub1" in shown
    assert "lost: nothing moves it to v1 between there and here" in shown
    assert "the expected value is in v23 there" in shown
    assert "and 1 more use that this makes wrong" in shown


@pytest.mark.long
def test_walkthrough_mixed_up_spill_slot(capsys: pytest.CaptureFixture[str]) -> None:
    tight = (KERNELS / "attn_d64.gfx942.opt.ll").read_text()
    limit = '"amdgpu-agpr-alloc"="0"'
    Path("tight.ll").write_text(tight.replace(limit, f'{limit} "amdgpu-waves-per-eu"="8,8"'))
    assert run(["audit", "--llvm", "tight.ll", "--phases", "--save-temps=texts"]) == 0
    before, after = Path("texts/tight.vgpr.before.mir"), Path("texts/tight.vgpr.after.mir")
    change(after, r"(= SI_SPILL_AV64_RESTORE )%stack\.1(.*)%stack\.1", r"\1%stack.2\2%stack.2")
    capsys.readouterr()
    assert run(["audit", str(before), str(after)]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"found: v\d+ gets spill slot 2, bits 0 up by: post line \d+, bb\.1: .*RESTORE %stack\.2", shown)
    assert re.search(r"the expected value is in .*spill slot 1, bits 0 up", shown)
    assert re.search(r"path: bb\.0 -> bb\.1", shown)


def test_machine_ir_written_by_hand_is_taken_as_llvm_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "tests/data/audit/llvm/repeats_undefined_input.mir").read_text()
    Path("hand.mir").write_text(text.replace("undef %3:vgpr_32", "%0"))
    assert run(["audit", "--llvm", "hand.mir", "-mcpu=gfx942"]) == 0
    assert "all phases: proved" in capsys.readouterr().out


@pytest.mark.parametrize("regalloc", ["basic", *long("greedy", "fast")])
def test_llvms_other_allocators(regalloc: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.ll").write_text(TWO)
    assert run(["audit", "--llvm", "two.ll", f"--regalloc={regalloc}"]) == 0
    assert f"{regalloc} allocation\n" in capsys.readouterr().out


def test_bitcode_machine_ir_and_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assembler = Path(llc()).with_name("llvm-as")
    subprocess.run([assembler, "-o", "two.bc", "-"], input=TWO.encode(), check=True)
    Path("two.mir").write_text(run_llc(TWO, "gfx942", "-stop-before=greedy,0", mir=False))
    for name in ("two.bc", "two.mir"):
        assert run(["audit", "--llvm", name]) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TWO.encode())))
    assert run(["audit", "--llvm", "-"]) == 0
    assert capsys.readouterr().out.count("f, all phases: proved") == 3


def test_one_verdict_a_function(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = two
    change(after, r"(V_XOR_B32_e32 .*)\$vgpr0", r"\1$vgpr3")
    assert run(["audit", str(before), str(after)]) == 1
    shown = capsys.readouterr().out
    assert re.findall(r"^(\w+): (\w+)(?: \(.*\))?, \d+ obligations", shown, re.MULTILINE) == [
        ("empty", "proved"),
        ("store", "proved"),
        ("f", "refuted"),
    ]


def test_a_function_missing_on_one_side_is_invalid(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = two
    text = after.read_text()
    start = text.index("---\nname:            store")
    after.write_text(text[:start] + text[text.index("---\nname:            f", start) :])
    assert run(["audit", str(before), str(after)]) == 2
    assert "store: invalid" in capsys.readouterr().out
    assert run(["audit", str(after), str(before)]) == 2


def test_virtual_registers_that_are_left_are_noted(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "two.sgpr.before.mir", "two.sgpr.after.mir"]) == 0
    note = r"note: f: two\.sgpr\.after\.mir still has \d+ virtual registers, which a later phase is to allocate\n"
    assert re.search(note, capsys.readouterr().out)
    assert run(["audit", *map(str, two)]) == 0
    assert "note" not in capsys.readouterr().out


def test_obligations_of_each_phase_are_rechecked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.ll").write_text(TWO)
    assert run(["audit", "--llvm", "two.ll", "--phases", "--smt-dir=smt"]) == 0
    manifest = json.loads(Path("smt/manifest.json").read_text())
    phases = ("sgpr", "vgpr", "all")
    assert [row["name"] for row in manifest["inputs"]] == [
        f"{p}/{side}" for p in phases for side in ("before", "after")
    ]
    names = [row["name"] for row in manifest["obligations"]]
    assert len(names) == len(set(names)) == 9
    assert {f"{p}/f/values" for p in phases} <= set(names)
    assert run(["recheck", "smt", "--solver-seconds=30", "--solver-memory=2048"]) == 0
    assert "z3: 9 of 9 obligations as recorded\nfiles only: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("r.json", '{\n  "audit_version": 2'),
        ("r.sarif", '{\n  "$schema": "https://docs.oasis-open.org/sarif'),
        ("r.sarif.json", '{\n  "$schema": "https://docs.oasis-open.org/sarif'),
        ("r.html", "<!DOCTYPE html>"),
        ("r.txt", "empty: proved"),
    ],
)
def test_the_form_follows_the_suffix(
    two: tuple[Path, Path], name: str, starts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *map(str, two), f"--report={name}", "-q"]) == 0
    assert Path(name).read_text().startswith(starts)
    assert capsys.readouterr().out == ""
    assert [p.name for p in Path().glob(f".{name}*")] == []


def test_the_form_asked_for_wins(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *map(str, two), "--report=r.txt", "--format=json"]) == 0
    assert json.loads(Path("r.txt").read_text())["outcome"] == "proved"
    assert capsys.readouterr().out.endswith("\nproved\n")
    assert run(["audit", *map(str, two), "--format=sarif"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


def wrong(pair: tuple[Path, Path], what: str) -> list[str]:
    """Command lines that must fail; files they need are made here."""
    before, after = map(str, pair)
    text = Path(after).read_text()
    Path("truncated.mir").write_text(text[: text.rindex("bb.0")])
    Path("no-function.mir").write_text(text[: text.index("\n---\nname:")])
    Path("empty.mir").write_text("")
    Path("binary.mir").write_bytes(b"\xff\xfe\0\1")
    Path("other.mir").write_text(text.replace("gfx942", "gfx90a"))
    Path("nameless.mir").write_text(Path(before).read_text().replace('"target-cpu"="gfx942"', ""))
    return {
        "absent": [before, "absent.mir"],
        "directory": [before, "."],
        "truncated": [before, "truncated.mir"],
        "truncated-before": ["truncated.mir", after],
        "no-function": [before, "no-function.mir"],
        "empty": [before, "empty.mir"],
        "binary": [before, "binary.mir"],
        "swapped": [after, before],
        "ir": ["two.ll", after],
        "other-target": [before, after, "-mcpu=gfx1100"],
        "unknown-target": ["nameless.mir", after, "-mcpu=gfx1"],
        "no-target": ["nameless.mir", after],
        "targets-differ": [before, "other.mir"],
        "one-file": [before],
        "both-ways": [before, after, "--llvm=two.ll"],
        "temps-without-llvm": [before, after, "--save-temps=t"],
        "no-directory": [before, after, "--report=absent/r.json"],
        "report-is-directory": [before, after, "--report=.", "--format=json"],
        "unknown-suffix": [before, after, "--report=r.pdf"],
        "unknown-form": [before, after, "--format=pdf"],
        "disk-full": [before, after, "--report=/dev/full", "--format=json"],
    }[what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("absent", "absent.mir: cannot be read: No such file"),
        ("directory", "cannot be read: Is a directory"),
        ("truncated", "truncated.mir:"),
        ("truncated-before", "truncated"),
        ("no-function", "no-function.mir: no machine function in it"),
        ("empty", "empty.mir: the input is empty"),
        ("binary", "binary.mir: this is not text"),
        ("swapped", "is allocated already"),
        ("ir", "this is LLVM IR, not machine IR"),
        ("other-target", "it is compiled for gfx942, not for gfx1100"),
        ("unknown-target", "gfx1"),
        ("no-target", "it names no processor"),
        ("targets-differ", "other.mir: it is for gfx90a, the text before allocation for gfx942"),
        ("one-file", "give either BEFORE.mir and AFTER.mir, or --llvm KERNEL"),
        ("both-ways", "give either BEFORE.mir and AFTER.mir, or --llvm KERNEL"),
        ("temps-without-llvm", "--save-temps goes with --llvm"),
        ("no-directory", "there is no directory absent"),
        ("report-is-directory", "is a directory"),
        ("unknown-suffix", "r.pdf: give --format, or one of the suffixes"),
        ("unknown-form", "'pdf' is not one of"),
        ("disk-full", "/dev/full: cannot be written: No space left on device"),
    ],
)
def test_wrong_input_is_one_error(
    two: tuple[Path, Path], what: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = wrong(two, what)
    there = sorted(Path().rglob("*"))
    assert run(["audit", *command]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error
    assert sorted(Path().rglob("*")) == there


def test_llvm_that_is_missing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.ll").write_text(TWO)
    assert run(["audit", "--llvm", "two.ll", "--llc=."]) == 2
    assert "llc" in capsys.readouterr().err


def test_help_names_the_limits_alike(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("audit", "recheck"):
        assert run([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"--solver-seconds.*?60\.0", shown, re.DOTALL)
        assert re.search(r"--solver-memory.*?4096", shown, re.DOTALL)


@pytest.mark.parametrize("wrong", [True, False])
def test_what_was_judged_stands_where_llvm_fails_in_a_later_phase(
    wrong: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refuted phase is told; what was proved is no verdict on phases that were not seen."""

    def dies(*_: object, **__: object) -> str:
        raise ToolchainError("llc-22 crashed with SIGABRT")

    allocate = StagedCompiler.llvm_allocate

    def swapped(self: StagedCompiler, mir: str, phase: LlvmPhase, regalloc: RegAlloc) -> str:
        text = allocate(self, mir, phase, regalloc)
        return re.sub(r"(S_MUL_I32 )(killed )?(renamable )?\$sgpr\d+", r"\1$sgpr99", text, count=1)

    monkeypatch.setattr(StagedCompiler, "resume", dies)
    if wrong:
        monkeypatch.setattr(StagedCompiler, "llvm_allocate", swapped)
    Path("two.ll").write_text(TWO)
    code = run(["audit", "--llvm", "two.ll", "-mcpu=gfx942", "--regalloc=basic"])
    printed = capsys.readouterr()
    if wrong:
        assert code == 1
        assert "the phases after sgpr were not audited: llc-22 crashed" in printed.out
    else:
        assert code == 2
        assert "llc-22 crashed" in printed.err
