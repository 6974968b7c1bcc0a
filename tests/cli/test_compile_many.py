"""``verilocc compile-many`` end to end with the real LLVM: results, journal, cache, failures, interruption."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from batch_support import CPU, faulty_llc, kernel, kernels, start
from process_support import gone, lines_of
from support import TEST_DATA, long

from verilocc_mlir import store as store_module
from verilocc_mlir.cli.main import run
from verilocc_mlir.pipeline.batch.run import JOURNAL_NAME
from verilocc_mlir.results.batch import schema
from verilocc_mlir.results.compile_document import schema as compile_schema
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.elf import read_elf

jsonschema = pytest.importorskip("jsonschema")


class Batch:
    """A directory of kernels, one of results, and a store."""

    def __init__(self, directory: Path) -> None:
        self.source, self.out, self.store = (directory / name for name in ("in", "out", "store"))
        self.summary = directory / "summary.json"

    def run(self, *options: str) -> dict[str, Any]:
        """Run it and return the summary, which says the exit code too."""
        self.summary.unlink(missing_ok=True)
        command = ["compile-many", str(self.source), "-o", str(self.out), f"--report={self.summary}", "-q", *options]
        if "--no-cache" not in options:
            command.append(f"--cache={self.store}")
        if not any(option.startswith("-mcpu") for option in options):
            command.append(f"-mcpu={CPU}")
        if not any(option.startswith("--jobs") for option in options):
            command.append("--jobs=1")  # a worker more takes longer to start than these kernels to compile
        code = run(command)
        found = json.loads(self.summary.read_text())
        jsonschema.validate(found, schema())
        assert found["exit_code"] == code
        return found

    def origins(self, *options: str) -> dict[str, str]:
        """Where the result of each input came from."""
        return {Path(i["input"]).stem: i["origin"] for i in self.run(*options)["inputs"]}

    def entries(self) -> list[Path]:
        """Files of the store."""
        return [path for path in self.store.rglob("*") if path.is_file()]


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path)


def test_results_are_those_of_compile(batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [*kernels(batch.source, 1), *kernels(batch.source / "deep" / "er", 2)]
    report = tmp_path / "r.json"
    found = batch.run("--reports", "--jobs=2")
    assert capsys.readouterr() == ("", "")
    assert found["counts"]["outcomes"]["proved"] == found["counts"]["origins"]["compiled"] == 3
    assert sorted(i["input"] for i in found["inputs"]) == sorted(map(str, paths))
    for path in paths:
        alone = tmp_path / "alone.hsaco"
        assert run(["compile", str(path), f"-mcpu={CPU}", "-o", str(alone), f"--report={report}", "-q"]) == 0
        output = batch.out / path.relative_to(batch.source).with_suffix(".hsaco")
        assert output.read_bytes() == alone.read_bytes()
        ours, theirs = (json.loads(p.read_text()) for p in (output.with_suffix(".report.json"), report))
        jsonschema.validate(ours, compile_schema())
        assert ours["output"] == str(output)
        times = [phase.pop("cpu_seconds") for r in (ours, theirs) for f in r["functions"] for phase in f["phases"]]
        assert times
        assert {**ours, "time": 0, "output": 0} == {**theirs, "time": 0, "output": 0}


def test_the_second_run_has_nothing_to_do_and_without_its_journal_takes_all_from_the_cache(batch: Batch) -> None:
    kernels(batch.source, 2)
    assert set(batch.origins("--reports").values()) == {"compiled"}
    first = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in batch.out.iterdir()}
    assert set(batch.origins("--reports").values()) == {"journal"}
    assert first == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in batch.out.iterdir()}
    (batch.out / JOURNAL_NAME).unlink()
    assert set(batch.origins("--reports").values()) == {"cache"}
    for path in batch.out.glob("k*"):
        assert path.read_bytes() == first[path][0]
    (batch.out / JOURNAL_NAME).unlink()
    assert set(batch.origins("--no-cache").values()) == {"compiled"}


@pytest.mark.long
def test_what_changed_is_done_again(batch: Batch) -> None:
    kernels(batch.source, 2)
    batch.run()
    assert set(batch.origins("-O2").values()) == {"compiled"}
    (batch.source / "k3.ll").write_text(kernel(30))
    assert batch.origins("-O2") == {"k3": "compiled", "k4": "journal"}
    (batch.out / "k4.hsaco").write_bytes(b"edited")
    assert batch.origins("-O2") == {"k3": "journal", "k4": "cache"}
    (batch.out / "k4.hsaco").unlink()
    assert batch.origins("-O2") == {"k3": "journal", "k4": "cache"}
    assert set(batch.origins("-mcpu=gfx1100").values()) == {"compiled"}
    assert len(batch.entries()) == 2 + 2 + 1 + 2


@pytest.mark.long
@pytest.mark.parametrize("damage", [lambda d: d[:-1] + bytes([d[-1] ^ 1]), *long(lambda d: d[:-100], lambda _: b"")])
def test_damaged_entries_are_compiled_again(batch: Batch, damage: Any) -> None:
    kernels(batch.source, 1)
    batch.run()
    (entry,) = batch.entries()
    whole, result = entry.read_bytes(), (batch.out / "k3.hsaco").read_bytes()
    entry.write_bytes(damage(whole))
    (batch.out / JOURNAL_NAME).unlink()
    assert batch.origins() == {"k3": "compiled"}
    assert (batch.out / "k3.hsaco").read_bytes() == result
    (batch.out / JOURNAL_NAME).unlink()
    assert batch.origins() == {"k3": "cache"}


@pytest.mark.long
def test_a_pipe_and_a_wrong_result_in_the_store_are_warnings_and_made_again(batch: Batch) -> None:
    """The wrong result has the right code: somebody with the key made it."""
    kernels(batch.source, 3)
    batch.run()
    results = {path: path.read_bytes() for path in batch.out.glob("*.hsaco")}
    (batch.out / JOURNAL_NAME).unlink()
    store = store_module.Store(batch.store)
    pipe, entry, _ = batch.entries()
    parts = store.get(entry.name)
    assert parts is not None
    store.put(entry.name, {**parts, "result": b"\x7fELF and no more"})
    pipe.unlink()
    os.mkfifo(pipe)
    found = batch.run()
    assert sorted(i["origin"] for i in found["inputs"]) == ["cache", "compiled", "compiled"]
    reasons = {warning.partition(" is not used: ")[::2] for warning in found["warnings"]}
    assert (f"what is kept in {pipe}", "it is no regular file") in reasons
    assert any(what.endswith(str(entry)) and "not a readable ELF file" in why for what, why in reasons)
    assert {path: path.read_bytes() for path in batch.out.glob("*.hsaco")} == results
    (batch.out / JOURNAL_NAME).unlink()
    assert set(batch.origins().values()) == {"cache"}


@pytest.mark.long
def test_a_store_where_others_may_write_is_refused_if_it_was_asked_for(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(batch.source, 1)
    batch.store.mkdir()
    batch.store.chmod(0o777)
    command = ["compile-many", str(batch.source), "-o", str(batch.out), f"-mcpu={CPU}", "-q"]
    assert run([*command, f"--cache={batch.store}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"verilocc: error: {batch.store}: others may write into the directory (mode 777)\n")
    assert not batch.out.joinpath("k3.hsaco").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(batch.store.parent))
    batch.store.rename(batch.store.with_name("verilocc"))
    assert run(command) == 0
    assert "warning: results are not kept: " in capsys.readouterr().err
    assert batch.out.joinpath("k3.hsaco").exists()


@pytest.mark.long
def test_a_store_on_a_full_disk_is_one_warning(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store_module, "write_whole", full)
    kernels(batch.source, 2)
    found = batch.run()
    assert found["exit_code"] == 0
    (warning,) = found["warnings"]
    assert warning == f"results are not kept in {batch.store}: No space left on device"
    assert capsys.readouterr().err == f"verilocc: warning: {warning}\n"
    assert len(list(batch.out.glob("*.hsaco"))) == 2
    assert batch.entries() == []


@pytest.mark.long
def test_a_store_that_cannot_be_made_is_one_warning(batch: Batch) -> None:
    batch.store = Path("/proc/nowhere/store")
    kernels(batch.source, 2)
    found = batch.run()
    assert (found["exit_code"], len(found["warnings"])) == (0, 1)
    assert found["counts"]["outcomes"]["proved"] == 2


@pytest.mark.long
def test_a_tree_with_several_targets(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    """By the IR's own attribute, by pattern, by the option for all; each result says which."""
    kernels(batch.source / "mi300", 1)
    kernels(batch.source / "navi", 1)
    named = kernel(4).replace("@times4(ptr addrspace(1) %p) {", "@times4(ptr addrspace(1) %p) #0 {")
    (batch.source / "named.ll").write_text(named + 'attributes #0 = { "target-cpu"="gfx90a" }\n')
    options = ("-mcpu=", "--mcpu-for=mi300/*.ll=gfx942", "--mcpu-for=navi/*=gfx1100", "--mcpu-for=mi300/k3.ll=gfx950")
    found = batch.run(*options)
    assert found["exit_code"] == 0, found
    targets = {Path(i["input"]).relative_to(batch.source).as_posix(): i["target"] for i in found["inputs"]}
    assert targets == {"mi300/k3.ll": "gfx942", "navi/k3.ll": "gfx1100", "named.ll": "gfx90a"}
    machines = {str(p.relative_to(batch.out)): read_elf(p.read_bytes()).machine for p in batch.out.rglob("*.hsaco")}
    assert machines == {"mi300/k3.hsaco": "gfx942", "navi/k3.hsaco": "gfx1100", "named.hsaco": "gfx90a"}
    assert set(batch.origins(*options).values()) == {"journal"}
    (batch.out / JOURNAL_NAME).unlink()
    assert set(batch.origins(*options).values()) == {"cache"}
    # With another target it is another result.
    found = batch.run("-mcpu=", "--mcpu-for=mi300/*=gfx950", "--mcpu-for=k3.ll=gfx1100")
    assert {i["target"]: i["origin"] for i in found["inputs"]} == {
        "gfx950": "compiled", "gfx1100": "journal", "gfx90a": "journal",
    }  # fmt: skip
    for wrong, words in {"gfx942": "is not PATTERN=CPU", "*=gfx1": "unknown target gfx1"}.items():
        assert run(["compile-many", str(batch.source), f"--mcpu-for={wrong}"]) == 2
        assert words in capsys.readouterr().err


def test_one_bad_file_does_not_stop_the_others(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(batch.source, 2)
    wrong = {"text": "hello", "cut": kernel(3)[:-10], "other": "", "host": 'target triple = "x86_64-linux-gnu"\n'}
    wrong["host"] += "define void @f() {\n  ret void\n}\n"
    for name, text in wrong.items():
        (batch.source / f"{name}.ll").write_text(text)
    (batch.source / "machine.mir").write_bytes(b"\x7fELF")
    found = batch.run()
    assert found["exit_code"] == 2
    assert found["counts"]["outcomes"] == {"proved": 2, "refuted": 0, "unknown": 0, "invalid": 5}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    for name in (*wrong, "machine"):
        assert any(re.match(rf"\[\d/7\] invalid: {batch.source}/{name}\.\w+: \w", line) for line in said)
    assert sorted(path.name for path in batch.out.glob("*.hsaco")) == ["k3.hsaco", "k4.hsaco"]
    again = batch.run()
    assert again["counts"]["origins"] == {"compiled": 0, "cache": 0, "journal": 7}
    assert again["exit_code"] == 2
    assert {i["input"]: i["message"] for i in again["inputs"]} == {i["input"]: i["message"] for i in found["inputs"]}


@pytest.mark.long
def test_the_exit_code_is_the_gravest(batch: Batch, demo_kernels: Path) -> None:
    kernels(batch.source, 1)
    text = (demo_kernels / "attn_d64.gfx942.opt.ll").read_text()
    agprs = '"amdgpu-agpr-alloc"="0"'
    (batch.source / "tight.ll").write_text(text.replace(agprs, f'{agprs} "amdgpu-waves-per-eu"="8,8"'))
    found = batch.run("--no-fallback", "--no-spill", "--reports")
    assert found["exit_code"] == 3
    tight = next(i for i in found["inputs"] if i["input"].endswith("tight.ll"))
    assert (tight["outcome"], tight["output"]) == ("unknown", None)
    assert "VGPRs are needed at once" in tight["message"]
    assert json.loads((batch.out / "tight.report.json").read_text())["output"] is None
    assert len(batch.entries()) == 1
    (batch.source / "bad.ll").write_text("hello")
    assert batch.run("--no-fallback", "--no-spill")["exit_code"] == 2


@pytest.mark.long
def test_a_function_that_nobody_proves_costs_itself(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(batch.source, 1)
    (batch.source / "unproved.ll").write_text((TEST_DATA / "inputs" / "writes_exec.ll").read_text())
    on_rdna = "--mcpu-for=unproved.ll=gfx1100"
    for origin in ("compiled", "journal"):
        found = batch.run("--reports", on_rdna)
        unproved = next(i for i in found["inputs"] if i["input"].endswith("unproved.ll"))
        assert (found["exit_code"], unproved["outcome"], unproved["origin"]) == (3, "unknown", origin)
        assert unproved["message"].startswith("without f, which nobody proves: f, SGPR: ")
        assert unproved["output"] == str(batch.out / "unproved.hsaco")
        assert list(read_code_object((batch.out / "unproved.hsaco").read_bytes()).kernels) == ["k"]
        assert json.loads((batch.out / "unproved.report.json").read_text())["left_out"] == ["f"]
    assert len(batch.entries()) == 1
    (batch.out / "unproved.hsaco").unlink()
    assert next(i for i in batch.run(on_rdna)["inputs"] if i["outcome"] == "unknown")["origin"] == "compiled"
    capsys.readouterr()
    run(["compile-many", str(batch.source), "-o", str(batch.out), f"-mcpu={CPU}", on_rdna, f"--cache={batch.store}"])
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 proved and written, 1 written without functions that nobody proves" in said


@pytest.mark.long
def test_a_result_that_cannot_be_written_is_an_error_of_its_input(batch: Batch) -> None:
    kernels(batch.source, 2)
    (batch.out / "k3.hsaco").mkdir(parents=True)
    found = batch.run()
    messages = {Path(i["input"]).stem: i["message"] for i in found["inputs"]}
    assert messages == {"k3": "cannot be written: Is a directory", "k4": None}
    assert found["exit_code"] == 2
    (batch.out / "k3.hsaco").rmdir()
    assert batch.origins() == {"k3": "cache", "k4": "journal"}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], [], "no file is called *.ll, *.bc, *.mir"),
        (["k.ll", "k.bc"], [], "have the same result"),
        (["k.ll"], ["-mcpu=gfx1"], "gfx1"),
        (["k.ll"], ["--allocator=oracle"], "oracle"),
        (["k.ll"], ["--llvm=/nowhere"], "llc"),
        (["k.ll"], ["--cache=x", "--no-cache"], "exclude each other"),
        (["k.ll"], ["--report=no/such/place.json"], "there is no directory"),
        (["k.ll"], ["--glob=*.bc"], "no file is called *.bc"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(
    files: list[str],
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in"
    source.mkdir()
    for name in files:
        (source / name).write_text(kernel(3))
    assert run(["compile-many", "in", *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert sorted(path.name for path in source.iterdir()) == sorted(files)


@pytest.mark.long
def test_results_go_beside_the_inputs_and_a_table_to_standard_output(
    batch: Batch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = kernels(batch.source, 2)
    (batch.source / "bad.ll").write_text("hello")
    assert run(["compile-many", *map(str, paths), f"-mcpu={CPU}", f"--cache={batch.store}", "--emit=asm"]) == 0
    assert sorted(path.name for path in batch.source.iterdir()) == [
        "bad.ll", "k3.ll", "k3.s", "k4.ll", "k4.s", JOURNAL_NAME,
    ]  # fmt: skip
    shown = capsys.readouterr()
    assert re.search(r"^ proved +2 +0 +0 +2", shown.out, re.MULTILINE)
    assert "2 of 2 proved and written" in shown.out
    lines = shown.err.splitlines()
    assert [re.sub(r"k\d|[\d.]+ s", "…", line) for line in lines] == [
        f"[{number}/2] proved: {batch.source}/….ll for {CPU}: …" for number in (1, 2)
    ]


@pytest.mark.long
def test_the_summary_may_go_to_standard_output(batch: Batch, capsys: pytest.CaptureFixture[str]) -> None:
    kernels(batch.source, 1)
    command = ["compile-many", str(batch.source), f"-mcpu={CPU}", "--no-cache", "--report=-", "--no-progress"]
    assert run(command) == 0
    shown = capsys.readouterr()
    jsonschema.validate(json.loads(shown.out), schema())
    assert "1 of 1 proved and written" in shown.err
    assert "[1/1]" not in shown.err


@pytest.mark.parametrize("stop", long(signal.SIGINT, signal.SIGTERM))
def test_an_interrupted_run_goes_on_where_it_was(stop: signal.Signals, batch: Batch, tmp_path: Path) -> None:
    kernels(batch.source, 3)
    slow = faulty_llc(tmp_path / "llc", "times5", 'if [ ! -e "$0.go" ]; then echo $$ $PPID >> "$0.log"; sleep 600; fi')
    command = [batch.source, "-o", batch.out, "--jobs=1"]
    first = start(*command, cache=batch.store, VERILOCC_LLC=str(slow))
    log = lines_of(Path(f"{slow}.log"))
    lines_of(batch.out / JOURNAL_NAME, 2)
    first.send_signal(stop)
    said, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert said == ""
    assert "verilocc: interrupted; 2 of 3 are finished" in errors
    assert "Traceback" not in errors
    assert all(gone(int(pid)) for line in log for pid in line.split())
    assert sorted(path.name for path in batch.out.iterdir()) == ["k3.hsaco", "k4.hsaco", JOURNAL_NAME]
    Path(f"{slow}.go").touch()
    second = start(*command, cache=batch.store, VERILOCC_LLC=str(slow))
    said, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    done_before = [f"[{n}/3] proved: {batch.source}/k{n + 2}.ll for {CPU}: done before" for n in (1, 2)]
    assert errors.splitlines()[:2] == done_before
    assert re.search(r"^ proved +1 +0 +2 +3", said, re.MULTILINE)
    assert len(list(batch.out.glob("*.hsaco"))) == 3


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_where_it_was(batch: Batch, tmp_path: Path) -> None:
    kernels(batch.source, 3)
    slow = faulty_llc(tmp_path / "llc", "times5", 'if [ ! -e "$0.go" ]; then echo $$ $PPID >> "$0.log"; sleep 600; fi')
    command = [batch.source, "-o", batch.out, "--jobs=1"]
    first = start(*command, cache=batch.store, VERILOCC_LLC=str(slow))
    log = lines_of(Path(f"{slow}.log"))
    lines_of(batch.out / JOURNAL_NAME, 2)
    first.kill()
    first.communicate(timeout=60)
    assert all(gone(int(pid)) for line in log for pid in line.split())
    Path(f"{slow}.go").touch()
    second = start(*command, cache=batch.store, VERILOCC_LLC=str(slow))
    said, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert re.search(r"^ proved +1 +0 +2 +3", said, re.MULTILINE)


@pytest.mark.long
def test_late_and_killed_jobs_are_unknown_and_the_rest_is_done(batch: Batch, tmp_path: Path) -> None:
    kernels(batch.source, 4)
    action = 'grep -q @times4 "$input" && kill -9 $PPID; sleep 600'
    bad = faulty_llc(tmp_path / "llc", "times[45]", action)
    done = start(
        batch.source, "-o", batch.out, "--job-seconds=8", f"--report={batch.summary}",
        cache=batch.store, VERILOCC_LLC=str(bad),
    )  # fmt: skip
    _, errors = done.communicate(timeout=120)
    assert done.returncode == 3, errors
    found = {Path(i["input"]).stem: i for i in json.loads(batch.summary.read_text())["inputs"]}
    assert {name: i["message"] for name, i in found.items()} == {
        "k3": None,
        "k4": "the worker process ended with SIGKILL, twice",
        "k5": "not finished within 8 s",
        "k6": None,
    }
    assert not found["k4"]["final"]
    assert not found["k5"]["final"]
    assert len(batch.entries()) == 2


@pytest.mark.long
def test_two_runs_do_not_write_into_one_directory_at_once(
    batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels(batch.source, 1)
    slow = faulty_llc(tmp_path / "llc", "times3", 'echo $$ >> "$0.log"; sleep 600')
    first = start(batch.source, "-o", batch.out, cache=batch.store, VERILOCC_LLC=str(slow))
    lines_of(Path(f"{slow}.log"))
    assert run(["compile-many", str(batch.source), "-o", str(batch.out), f"-mcpu={CPU}", "--no-cache"]) == 2
    assert "another run is writing here" in capsys.readouterr().err
    first.terminate()
    first.communicate(timeout=60)
