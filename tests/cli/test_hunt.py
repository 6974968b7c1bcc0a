"""``verilocc hunt`` end to end with the real LLVM: a known fault is found, grouped, reduced and reported; resuming."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_support import LLVM_FAULTS
from support import DEMO_KERNELS, REPOSITORY, llc, run_llc

from verilocc_mlir.cli.main import run

KERNEL = DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERILOCC_LLVM", str(Path(llc()).parent))


def hunted(directory: str = "hunt") -> dict[str, Any]:
    return json.loads((Path(directory) / "hunt.json").read_text())


def journal() -> list[dict[str, Any]]:
    return [json.loads(line)["row"] for line in Path("hunt/hunt.jsonl").read_text().splitlines()]


def test_a_known_fault_is_found_grouped_reduced_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The default allocator, and a fault that LLVM's own verifier sees too."""
    source = LLVM_FAULTS / "early_result_over_own_input.mir"
    assert run(["hunt", str(source), "--variants=default,stress-3", "-j1"]) == 1
    (group,) = hunted()["groups"]
    assert (group["kind"], group["regalloc"], group["cause"]) == ("refuted", "greedy", "undef-flag, INLINEASM")
    assert group["cases"] == 2
    assert group["example"]["case"]["variant"]["name"] == "default"
    folder = Path("hunt/refuted-greedy-undef-flag-INLINEASM")
    before, report = (folder / "before.mir").read_text(), (folder / "report.md").read_text()
    assert before.partition("body:")[2].count("\n") <= 7  # a definition, and the instruction
    assert "INLINEASM" in before
    assert "options: none" in report
    assert "`-verify-machineinstrs` on the reduced text says: `No live segment at use" in report
    # The report's command makes the report's text.
    command = next(line for line in report.splitlines() if line.startswith("llc -mtriple")).split()
    subprocess.run([llc(), *command[1:]], cwd=folder, check=True)
    made = (folder / "after.mir").read_text()
    assert made.partition("---\nname")[2] in report
    assert run(["audit", str(folder / "audited.before.mir"), str(folder / "after.mir"), "-mcpu=gfx942"]) == 1
    assert (folder / "input.mir").read_bytes() == source.read_bytes()
    assert "refuted | greedy | undef-flag, INLINEASM | 2 | default, stress-3" in Path("hunt/hunt.md").read_text()
    assert "1 groups of faults" in capsys.readouterr().out


@pytest.mark.long
def test_what_llvm_s_verifier_refuses_is_a_group_of_its_own() -> None:
    source = LLVM_FAULTS / "early_result_over_own_input.mir"
    assert run(["hunt", str(source), "--variants=default", "--verify", "-j1"]) == 1
    (group,) = hunted()["groups"]
    assert (group["kind"], group["cause"]) == ("rejected", "No live segment at use, after Greedy Register Allocator")
    assert "%1:vgpr_32 = IMPLICIT_DEF" in next(Path("hunt").glob("rejected-*/before.mir")).read_text()


@pytest.mark.long
def test_a_fault_of_one_allocator_has_its_name_in_the_smallest_options() -> None:
    assert run(["hunt", str(LLVM_FAULTS / "fast_drops_lane_copy.mir"), "--variants=basic,fast", "-j1"]) == 1
    (group,) = hunted()["groups"]
    assert (group["regalloc"], group["cause"]) == ("fast", "value, of COPY of lanes")
    report = Path("hunt/refuted-fast-value-of-COPY-of-lanes/report.md").read_text()
    assert "allocator: fast" in report
    assert "-sgpr-regalloc=fast" in report
    assert "reduced text says: nothing" in report


@pytest.mark.long
def test_what_is_in_the_journal_is_not_done_again(tmp_path: Path) -> None:
    fault = tmp_path / "in" / "fast_drops_lane_copy.mir"
    fault.parent.mkdir()
    shutil.copy(LLVM_FAULTS / fault.name, fault)
    command = ["hunt", "in", "--variants=default,fast", "-j1", "--reduce-seconds=0", "-q"]
    assert run(command) == 1
    rows = journal()
    assert [row["case"]["variant"]["name"] for row in rows] == ["default", "fast"]
    assert "Not reduced" in next(Path("hunt").glob("refuted-*/report.md")).read_text()
    with Path("hunt/hunt.jsonl").open("a") as stream:
        stream.write('{"hunt": 1, "row": {"key"')  # cut by an interrupt
    assert run(command) == 1
    assert len(Path("hunt/hunt.jsonl").read_text().splitlines()) == 3
    assert hunted()["cases"] == 2
    assert run([*command, "--options=-stress-regalloc=9"]) == 1
    assert hunted()["cases"] == 3
    fault.write_text(fault.read_text().replace("V_MOV_B32_e32 1,", "V_MOV_B32_e32 2,") + "\n")
    assert run(command) == 1
    assert len(Path("hunt/hunt.jsonl").read_text().splitlines()) == 6  # another text, so two new cases
    assert run([*command, "--again"]) == 1
    assert len(Path("hunt/hunt.jsonl").read_text().splitlines()) == 7  # what was not proved


@pytest.mark.long
def test_an_interrupted_hunt_goes_on() -> None:
    command = [
        sys.executable,
        "-m",
        "verilocc_mlir.cli.main",
        "hunt",
        str(KERNEL),
        "-j1",
        "--variants=default,fast,basic",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "model")])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        path = Path("hunt/hunt.jsonl")
        while not (path.exists() and path.read_bytes().count(b"\n")):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        words = process.stderr.read()
        assert process.wait() == 130
    assert "interrupted; " in words
    assert "Traceback" not in words
    left = hunted()["left"]
    assert left > 0
    assert subprocess.run([*command, "-q"], env=environment, capture_output=True, check=False).returncode in (0, 1)
    assert hunted()["left"] == 0
    assert len(journal()) == 3


@pytest.mark.long
def test_proved_and_given_up_and_unknown_are_no_faults() -> None:
    """Four VGPRs do not suffice for any kernel that calls."""
    assert run(["hunt", str(KERNEL), "--variants=default", "--options=-stress-regalloc=2", "-j1"]) in (0, 3)
    counts = hunted()
    assert counts["groups"] == []
    assert counts["phases"] >= 3
    assert list(Path("hunt").glob("*/report.md")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.ll"], "missing.ll: no such file or directory"),
        (["empty"], "empty: no file ends with .ll, .bc, .mir, .llir"),
        (["text.ll", "--variants=none"], "no variant is called 'none'"),
        (["text.ll", "--options=stress"], "'stress' is no option of LLVM"),
        (["text.ll", "--toolchain=triton", "--llvm=x"], "--llvm=x names an llc"),
        (["module.mlir"], "module.mlir: no such file"),
        (["text.ll", "--ray-address=auto"], "--ray-address needs --ray"),
    ],
)
def test_bad_input_is_one_clear_error(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("text.ll").write_text("no IR")
    assert run(["hunt", *arguments]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "Traceback" not in message


def test_files_that_are_no_ir_are_counted_and_named() -> None:
    Path("text.ll").write_text("no IR")
    assert run(["hunt", "text.ll", "--variants=default", "-mcpu=gfx942", "-j1"]) == 2
    assert list(hunted()["by_reason"]) == ["unusable: this is neither LLVM IR nor machine IR: no function is defined"]


def test_two_hunts_in_one_folder_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    from verilocc_mlir.files import JsonLines

    Path("hunt").mkdir()
    lines = JsonLines(Path("hunt/hunt.jsonl"))
    assert run(["hunt", str(KERNEL)]) == 2
    assert "another run is writing here" in capsys.readouterr().err
    lines.close()


@pytest.mark.long
def test_a_kernel_of_triton_s_cache_is_for_the_gpu_that_its_options_name(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "ABC"
    cache.mkdir(parents=True)
    (cache / "k.llir").write_text(KERNEL.read_text())
    (cache / "k.json").write_text(
        json.dumps({"target": {"backend": "hip", "arch": "gfx90a"}, "enable_fp_fusion": True})
    )
    assert run(["hunt", "cache", "--variants=default", "-j1", "-q"]) in (0, 2)
    (row,) = journal()
    assert row["case"]["cpu"] == "gfx90a"


@pytest.mark.long
def test_the_dispatches_of_a_module_are_inputs() -> None:
    pytest.importorskip("iree.compiler")
    module = REPOSITORY / "examples" / "iree_attention.mlir"
    assert run(["hunt", str(module), "-mcpu=gfx942", "--variants=default", "-j1", "-q"]) == 0
    assert hunted()["inputs"] == len(list(Path("hunt/inputs/iree_attention").glob("*.gfx942.ll"))) > 0


def test_the_verifier_s_complaint_is_llvm_s_own(tmp_path: Path) -> None:
    """What the reports cite is what a plain llc says."""
    text = (LLVM_FAULTS / "early_result_over_own_input.mir").read_text()
    flags = ("-start-before=greedy,0", "-stop-after=virtregrewriter,0", "-verify-machineinstrs")
    with pytest.raises(AssertionError, match="No live segment at use"):
        run_llc(text, "gfx942", *flags)
