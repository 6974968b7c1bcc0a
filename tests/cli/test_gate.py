"""``verilocc gate``: real kernels in every form they come in, broken baselines, and what it writes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import REPOSITORY, TEST_DATA, few, llc

from verilocc_mlir.cli.gate import gate_command
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.gate import compare, read_tolerances
from verilocc_mlir.results.gate import Kernel, Status, from_json, schema

SARIF_SCHEMA = json.loads((TEST_DATA / "report" / "sarif-2.1.0-rtm.5.json").read_text())
SCALE = """
target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [640 x i32] poison
define amdgpu_kernel void @_Z5scalePii(ptr addrspace(1) %p, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %t
  %x = load i32, ptr addrspace(1) %a
  %y = load i32, ptr addrspace(3) %l
  %m = mul i32 %x, %n
  %s = add i32 %m, %y
  store i32 %s, ptr addrspace(1) %a
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "target-cpu"="gfx942" "amdgpu-flat-work-group-size"="1,256" }
"""
NAME = "scale(int*, int)"


def tool(name: str) -> str:
    return str(Path(llc()).with_name(Path(llc()).name.replace("llc", name)))


def assemble(at: Path, kind: str) -> Path:
    """The kernel as a file of that kind, made by LLVM's tools alone."""
    path = at / f"scale.{kind}"
    if kind == "ll":
        path.write_text(SCALE)
        return path
    form = "asm" if kind in ("s", "amdgcn", "rocmasm") else "obj"
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-O3", f"-filetype={form}", "-o", str(path), "-"]
    subprocess.run(command, input=SCALE.encode(), check=True)
    if kind == "hsaco":
        subprocess.run([tool("ld.lld"), "-shared", str(path), "-o", str(path)], check=True)
    return path


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder with one code object, and beside it the baseline ``tmp_path/base.json`` of it."""
    folder = tmp_path / "build"
    folder.mkdir()
    assemble(folder, "hsaco")
    assert run(["gate", f"--baseline={tmp_path}/base.json", "--update", "-q", str(folder)]) == 0
    return folder


def kernels(baseline: Path) -> list[dict[str, Any]]:
    data = json.loads(baseline.read_text())
    jsonschema.validate(data, schema())
    return data["kernels"]


def edit(baseline: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    data = json.loads(baseline.read_text())
    change(data["kernels"])
    baseline.write_text(json.dumps(data))


def take_less(rows: list[dict[str, Any]]) -> None:
    """As if the kernel had taken four VGPRs and some LDS less, and had two SGPRs more."""
    rows[0].update(vgprs=rows[0]["vgprs"] - 4, lds_bytes=0, waves=8, sgprs=rows[0]["sgprs"] + 2)


@pytest.mark.parametrize("kind", few(("o", "s", "ll"), ("o", "co", "hsaco", "s", "amdgcn", "rocmasm", "ll")))
def test_a_kernel_is_the_same_in_every_form(kind: str, built: Path, tmp_path: Path) -> None:
    other = assemble(tmp_path, kind)
    assert run(["gate", f"--baseline={tmp_path}/other.json", "--update", str(other)]) == 0
    assert kernels(tmp_path / "other.json") == kernels(tmp_path / "base.json")


def test_the_baseline_says_what_a_kernel_takes_and_nothing_of_the_machine(built: Path, tmp_path: Path) -> None:
    (kernel,) = kernels(tmp_path / "base.json")
    assert (kernel["name"], kernel["demangled"], kernel["target"]) == ("_Z5scalePii", NAME, "gfx942")
    assert (kernel["work_items"], kernel["lds_bytes"], kernel["agprs"], kernel["verdict"]) == (256, 2560, 0, None)
    assert kernel["vgprs"] > 0
    assert kernel["waves"] == 8
    assert str(tmp_path) not in (tmp_path / "base.json").read_text()


def test_what_is_unchanged_passes_and_what_is_worse_fails(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base.json"
    gate = ["gate", f"--baseline={base}", str(built)]
    assert run(gate) == 0
    assert "1 kernel: 1 same" in capsys.readouterr().out
    edit(base, take_less)
    assert run(gate) == 4
    shown = capsys.readouterr().out
    assert f"worse      {NAME} for gfx942: VGPRs " in shown
    assert "LDS bytes 0 -> 2560 (worse)" in shown
    assert "SGPRs" in shown
    assert shown.endswith("the gate fails\n")
    assert run([*gate, "--tolerance=vgprs=4"]) == 4
    assert run([*gate, "--tolerance=vgprs=4,lds_bytes=any"]) == 0
    assert "1 tolerated" in capsys.readouterr().out
    assert run([*gate, "--update"]) == 0
    assert run(gate) == 0


def test_new_and_vanished_kernels_are_said_and_fail_if_asked(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base.json"
    edit(base, lambda rows: rows[0].update(target="gfx90a"))
    gate = ["gate", f"--baseline={base}", str(built)]
    assert run(gate) == 0
    shown = capsys.readouterr().out
    assert f"vanished   {NAME} for gfx90a" in shown
    assert f"new        {NAME} for gfx942" in shown
    assert run([*gate, "--fail-on=new"]) == 4
    assert run([*gate, "--fail-on=vanished"]) == 4


def test_sarif_obeys_the_official_schema_and_markdown_has_the_kernel(built: Path, tmp_path: Path) -> None:
    edit(tmp_path / "base.json", take_less)
    sarif, markdown = tmp_path / "gate.sarif", tmp_path / "gate.md"
    command = ["gate", f"--baseline={tmp_path}/base.json", f"--sarif={sarif}", f"--markdown={markdown}", str(built)]
    assert run([*command, "--tolerance=lds_bytes=any"]) == 4
    data = json.loads(sarif.read_text())
    jsonschema.Draft4Validator(SARIF_SCHEMA, format_checker=jsonschema.FormatChecker()).validate(data)
    (log,) = data["runs"]
    assert log["invocations"][0]["exitCode"] == 4
    levels = {result["ruleId"]: result["level"] for result in log["results"]}
    assert levels == {"vgprs": "error", "lds_bytes": "note"}
    (place,) = log["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("build/scale.hsaco")
    assert place["logicalLocations"][0]["decoratedName"] == "_Z5scalePii"
    text = markdown.read_text()
    assert "### Kernels: 1 of 1 kernels fail" in text
    assert f"| `{NAME}` | gfx942 | worse | **" in text
    assert f"{len(text.splitlines()[4].split('|'))}" == f"{len(text.splitlines()[6].split('|'))}"


def test_a_report_beside_the_code_states_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], built: Path
) -> None:
    source = assemble(tmp_path, "ll")
    folder = tmp_path / "proved"
    folder.mkdir()
    code, report = folder / "scale.hsaco", folder / "scale.report.json"
    assert run(["compile", str(source), "-q", "-o", str(code), f"--report={report}"]) == 0
    base = tmp_path / "proved.json"
    gate = ["gate", f"--baseline={base}", str(folder)]
    assert run([*gate, "--update"]) == 0
    (kernel,) = kernels(base)
    assert kernel["verdict"] == "proved"
    # The report alone: the same figures, but for those that are not in it.
    assert run(["gate", f"--baseline={base}", str(report)]) == 0
    report.rename(tmp_path / "kept.json")
    assert run(gate) == 4
    assert "verdict proved -> not stated (worse)" in capsys.readouterr().out
    # A report of another compilation states nothing.
    text = (tmp_path / "kept.json").read_text()
    report.write_text(text.replace(f'"vgprs": {kernel["vgprs"]}', '"vgprs": 77'))
    assert run(gate) == 4


def test_what_is_for_other_machines_is_left_out_of_a_folder(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy("/bin/true", built / "host.o")
    (built / "host.s").write_text("\t.text\n\tret\n")
    (built / "notes.json").write_text("[]")
    gate = ["gate", f"--baseline={tmp_path}/base.json"]
    assert run([*gate, str(built)]) == 0
    assert "2 files not for AMD GPUs left out" in capsys.readouterr().out
    assert run([*gate, str(built / "host.o")]) == 2
    assert "not for AMDGPU" in capsys.readouterr().err


def test_a_form_that_stands_beside_another_is_read_once(built: Path, tmp_path: Path) -> None:
    assemble(built, "s")
    assert run(["gate", f"--baseline={tmp_path}/base.json", "--fail-on=new", str(built)]) == 0


def test_bad_input_is_one_error_and_nothing_is_written(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, empty = tmp_path / "base.json", tmp_path / "empty"
    empty.mkdir()
    cut = tmp_path / "cut.hsaco"
    cut.write_bytes((built / "scale.hsaco").read_bytes()[:900])
    (tmp_path / "cut.s").write_text("nothing")
    good = base.read_text()
    for words, message in (
        ([str(tmp_path / "none")], "cannot be read"),
        ([str(empty)], "there is no kernel"),
        ([str(cut)], "cut.hsaco: "),
        ([str(tmp_path / "cut.s")], "neither a code object nor AMDGPU assembly"),
        ([str(base)], "no report of verilocc compile"),
        ([str(built), "--tolerance=registers=2"], "'registers=2' is no tolerance"),
        ([str(built), "--tolerance=vgprs=two"], "'vgprs=two' is no tolerance"),
        ([str(built), f"--markdown={tmp_path}/no/such/place.md"], "there is no directory"),
    ):
        assert run(["gate", f"--baseline={base}", "--update", f"--sarif={tmp_path}/x.sarif", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("error:") == 1
        assert base.read_text() == good
        assert not (tmp_path / "x.sarif").exists()
    for text, message in (
        ("{", "no baseline of verilocc gate"),
        ("[]", "no baseline of verilocc gate"),
        (good.replace('"gate_version": 1', '"gate_version": 9'), "has gate_version 9, not 1"),
        (good.replace('"vgprs"', '"vectors"'), "no baseline of verilocc gate"),
    ):
        base.write_text(text)
        assert run(["gate", f"--baseline={base}", str(built)]) == 2
        assert message in capsys.readouterr().err
    base.unlink()
    assert run(["gate", f"--baseline={base}", str(built)]) == 2
    assert "there is no such baseline" in capsys.readouterr().err
    base.write_text("{")
    assert run(["gate", f"--baseline={base}", "--update", str(built)]) == 0
    assert base.read_text() == good


def kernel(name: str = "k", work_items: int = 256, vgprs: int = 64, waves: int = 8) -> Kernel:
    return Kernel(name, name, "gfx942", work_items, vgprs, 0, 32, 0, 0, waves, 0, 0, None)


def test_kernels_of_one_name_are_compared_with_those_most_like_them() -> None:
    """As in Triton's cache: one name, many sets of constants."""
    old = [kernel(vgprs=64), kernel(vgprs=128), kernel(work_items=512, vgprs=64)]
    new = [kernel(vgprs=130), kernel(work_items=512, vgprs=64), kernel(vgprs=32), kernel(vgprs=64)]
    rows = compare(old, new, {})
    assert [row.status for row in rows] == [Status.WORSE, Status.NEW, Status.SAME, Status.SAME]
    assert str(rows[0].changes[0]) == "VGPRs 128 -> 130"
    assert rows[1].kernel.vgprs == 32


def test_tolerances_are_amounts_or_parts() -> None:
    tolerances = read_tolerances("vgprs=5%, waves=1")
    assert compare([kernel(vgprs=100, waves=8)], [kernel(vgprs=105, waves=7)], tolerances)[0].status is Status.TOLERATED
    assert compare([kernel(vgprs=100)], [kernel(vgprs=106)], tolerances)[0].status is Status.WORSE
    assert compare([kernel(waves=8)], [kernel(waves=6)], tolerances)[0].status is Status.WORSE
    assert compare([kernel(waves=6)], [kernel(waves=8)], tolerances)[0].status is Status.BETTER
    with pytest.raises(InputError):
        read_tolerances("vgprs=-1")


def test_tritons_cache_has_each_kernel_once_with_the_lds_that_is_asked_for_at_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("triton.backends.amd.compiler", reason="this triton has no AMD back end")
    from triton_builders import build_sum

    folder, base = tmp_path / "cache", tmp_path / "base.json"
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(folder)
        for block in (256, 1024):
            build_sum("gfx942", block)
    gate = ["gate", f"--baseline={base}", str(folder)]
    assert run([*gate, "--update"]) == 0
    assert [row["name"] for row in kernels(base)] == ["scaled_sum", "scaled_sum"]
    for path in folder.rglob("scaled_sum.json"):
        options = json.loads(path.read_text())
        path.write_text(json.dumps({**options, "shared": 32768}))
    assert run([*gate, "--tolerance=waves=any"]) == 4
    assert run([*gate, "--update"]) == 0
    assert {row.lds_bytes for row in from_json(base.read_bytes(), "")} == {32768}
    assert {row.waves for row in from_json(base.read_bytes(), "")} == {2}


def test_the_workflow_of_the_examples_runs_the_gate_with_options_that_there_are() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    workflow = yaml.safe_load((REPOSITORY / "examples" / "gate" / "kernels.yml").read_text())
    (command,) = (step["run"] for step in workflow["jobs"]["gate"]["steps"] if "verilocc gate" in step.get("run", ""))
    words = command.split()[2:]
    with gate_command.make_context("gate", words) as context:
        assert read_tolerances(",".join(context.params["tolerances"])).keys() == {"vgprs", "sgprs"}
        assert context.params["fail_on"] == ("vanished",)


def test_without_llvm_code_is_read_and_names_stay_mangled(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERILOCC_LLVM", str(tmp_path))
    assert run(["gate", f"--baseline={tmp_path}/base.json", str(built)]) == 0
    assert run(["gate", f"--baseline={tmp_path}/base.json", "--update", str(built)]) == 0
    assert [row["demangled"] for row in kernels(tmp_path / "base.json")] == ["_Z5scalePii"]
