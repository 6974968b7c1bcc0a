"""``verilocc measure`` as a command: exit codes, messages, the journal over an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from measure_support import ALSO_MIDDLE, BEST, FAILED, MIDDLE, RECORDING, WORST, gemm, gemm_that_is, stand_in_hip
from process_support import until
from support import REPOSITORY

from verilocc_mlir.cli.main import run
from verilocc_mlir.measure.hip import VARIABLE
from verilocc_mlir.measure.journal import read_measurements

REPLAY = f"--device=replay:{RECORDING}"
RUNS = "--runs=4"


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(name="codes")
def _codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with code objects, where HIP is the stand-in."""
    for word in ("", "SLOW", "WRONG", "ENDLESS"):
        (tmp_path / f"{word or 'plain'}.hsaco").write_bytes(gemm_that_is(word) if word else gemm())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, str(stand_in_hip()))
    return tmp_path


LAUNCH = ("--grid=4,2", "--arg=0=16x16xf16", "--arg=1=16x16xf16=1", "--arg=2=16x16xf16=0")


def test_without_a_gpu_it_says_what_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of its own: a library of HIP that the tests loaded is none for it."""
    (tmp_path / "a.hsaco").write_bytes(gemm())
    if Path("/dev/kfd").exists():
        pytest.skip("there is a GPU here")
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-m", "verilocc_mlir.cli.main", "measure", "a.hsaco", "a.hsaco", "--journal=j.jsonl", *LAUNCH],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith(
        ("verilocc: error: no GPU can be used here: HIP's runtime", "verilocc: error: HIP finds no")
    )
    assert hint.startswith("  hint: ")
    assert not (tmp_path / "j.jsonl").exists()


def test_a_table_says_who_is_faster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", MIDDLE, BEST, ALSO_MIDDLE, WORST, REPLAY, RUNS]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines() if line.strip()]
    verdicts = {line[0]: line[-1] for line in lines if line[0] in (BEST, ALSO_MIDDLE, WORST)}
    assert verdicts == {BEST: "faster", ALSO_MIDDLE: "undecided", WORST: "slower"}
    assert "replay: AMD Radeon PRO W7800" in out
    assert "note: replayed from a recording: nothing was run here" in out
    assert len(err.splitlines()) == 3


def test_too_few_rounds_are_said_to_be_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    note = "5 rounds are too few for an interval of 0.95: they decide nothing"
    assert run(["measure", MIDDLE, BEST, REPLAY, RUNS, "--rounds=5"]) == 0
    assert note in words_of(capsys.readouterr().out)
    assert run(["measure", MIDDLE, BEST, REPLAY, RUNS, "--rounds=6"]) == 0
    assert "too few" not in capsys.readouterr().out


def test_json_obeys_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", MIDDLE, BEST, REPLAY, RUNS, "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    schema = json.loads((REPOSITORY / "verilocc_mlir/results/documents/measure.schema.json").read_text())
    document = json.loads(out)
    Draft202012Validator(schema).validate(document)
    assert document["exit_code"] == 0
    assert [one["verdict"] for one in document["measurements"]] == ["faster"]
    assert err == ""


def test_code_objects_run_through_hip(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ir = codes / "gemm.ll"
    ir.write_text("; IR")
    assert run(["measure", "plain.hsaco", "SLOW.hsaco", *LAUNCH, "--journal=j.jsonl", f"--ir={ir}"]) == 0
    out = capsys.readouterr().out
    assert "hip: Stand-in (gfx942, HIP 60443483)" in out
    assert "gemm: 4x2x1 work-groups of 256x1x1; 16x16xf16, 16x16xf16=1, 16x16xf16=0" in out
    assert "results equal, bit for bit" in out
    assert "never run on a GPU" in out
    (one,), _ = read_measurements(codes / "j.jsonl")
    assert one.verdict.value == "slower"
    assert len(one.kernel.ir) == 64


def test_other_results_end_with_one(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", "plain.hsaco", "WRONG.hsaco", "SLOW.hsaco", *LAUNCH, "--journal=j.jsonl"]) == 1
    out = capsys.readouterr().out
    assert "WRONG.hsaco: RESULTS DIFFER, so nothing was timed: result 2 differs in 1 of 512 bytes" in words_of(out)
    kept, _ = read_measurements(codes / "j.jsonl")
    assert [one.verdict.value for one in kept] == ["different results", "slower"]


def test_a_failure_leaves_what_was_measured_before(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second candidate cannot be run; the next run does the rest."""
    (codes / "bad.hsaco").write_bytes(gemm_that_is("FOREIGN"))
    command = ["measure", "plain.hsaco", "SLOW.hsaco", "bad.hsaco", *LAUNCH, "--journal=j.jsonl"]
    assert run(command) == 2
    assert "for another GPU than this one" in capsys.readouterr().err
    before = (codes / "j.jsonl").read_bytes()
    assert before.count(b"\n") == 1
    (codes / "bad.hsaco").write_bytes(gemm_that_is("WRONG"))
    assert run(command) == 1
    out, err = capsys.readouterr()
    assert "SLOW.hsaco: in the journal" in err
    assert "SLOW.hsaco: from the journal, measured 20" in out
    assert (codes / "j.jsonl").read_bytes().startswith(before)
    assert len(read_measurements(codes / "j.jsonl")[0]) == 2
    assert run([*command, "--again"]) == 1
    assert len(read_measurements(codes / "j.jsonl")[0]) == 4


def test_a_fault_that_ends_a_process_ends_one_measurement(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As AMD's runtime does where a kernel touches memory that is not its own."""
    (codes / "fault.hsaco").write_bytes(gemm_that_is("ABORT"))
    assert run(["measure", "plain.hsaco", "SLOW.hsaco", "fault.hsaco", *LAUNCH, "--journal=j.jsonl"]) == 2
    out, err = capsys.readouterr()
    assert "fault.hsaco: the process that measures ended with SIGABRT: Memory access fault by GPU node-1" in words_of(
        err
    )
    assert "look at --grid, --block and the sizes in --arg" in words_of(err)
    assert out == ""
    assert len(read_measurements(codes / "j.jsonl")[0]) == 1


def test_an_interruption_keeps_what_is_done(codes: Path) -> None:
    """Killed at an endless kernel; the journal has the first, and is not locked."""
    command = ["measure", "plain.hsaco", "SLOW.hsaco", "ENDLESS.hsaco", *LAUNCH, "--journal=j.jsonl"]
    journal = codes / "j.jsonl"
    running = subprocess.Popen(
        [sys.executable, "-m", "verilocc_mlir.cli.main", *command],
        cwd=codes, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    until(lambda: journal.exists() and journal.read_bytes().endswith(b"\n"))
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate()
    assert running.returncode == 130
    assert b"interrupted" in err
    kept, passed_over = read_measurements(journal)
    assert ([one.candidate.name for one in kept], passed_over) == (["SLOW.hsaco"], 0)
    journal.write_bytes(journal.read_bytes() + b'{"measurement": 1, "as')
    assert run([*command[:3], *LAUNCH, "--journal=j.jsonl"]) == 0
    assert len(journal.read_bytes().splitlines()) == 2


def test_what_cannot_be_measured_leaves_no_journal(codes: Path) -> None:
    assert run(["measure", "plain.hsaco", "none.hsaco", *LAUNCH, "--journal=j.jsonl"]) == 2
    assert run(["measure", "plain.hsaco", "SLOW.hsaco", "--grid=1", "--journal=j.jsonl"]) == 2
    assert not (codes / "j.jsonl").exists()


def test_a_code_may_have_a_name_of_its_own(codes: Path) -> None:
    assert run(["measure", "default=plain.hsaco", "max-ilp + beside=SLOW.hsaco", *LAUNCH, "--journal=j.jsonl"]) == 0
    (one,), _ = read_measurements(codes / "j.jsonl")
    assert (one.base.name, one.candidate.name) == ("default", "max-ilp + beside")
    (codes / "a=b.hsaco").write_bytes(gemm_that_is("SLOW"))
    assert run(["measure", "plain.hsaco", "a=b.hsaco", *LAUNCH, "--journal=k.jsonl"]) == 0
    (one,), _ = read_measurements(codes / "k.jsonl")
    assert one.candidate.name == "a=b.hsaco"


def test_a_cut_line_is_noted(codes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = codes / "j.jsonl"
    journal.write_bytes(b'{"measurement": 1, "as')
    assert run(["measure", "plain.hsaco", "SLOW.hsaco", *LAUNCH, "--journal=j.jsonl"]) == 0
    note = "lines of the journal that do not count, cut off or of another version: 1"
    assert note in words_of(capsys.readouterr().out)
    assert len(read_measurements(journal)[0]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MIDDLE,), "Missing argument 'CANDIDATE...'"),
        ((MIDDLE, FAILED, REPLAY), "is not recorded"),
        ((MIDDLE, BEST, "--device=replay:none.json"), "the recording cannot be read"),
        ((MIDDLE, BEST, "--device=cuda"), "--device=cuda is none of hip, hip:N, iree:DEVICE, replay:FILE"),
        ((MIDDLE, BEST, "--device=hip:x"), "--device=hip:x is none of"),
        ((MIDDLE, BEST, REPLAY, "--grid=0"), "'0' is no X,Y,Z of whole numbers above 0"),
        ((MIDDLE, BEST, REPLAY, "--grid=1,2,3,4"), "'1,2,3,4' is no X,Y,Z"),
        ((MIDDLE, BEST, REPLAY, "--grid=1"), "--grid is not for --device=replay"),
        ((MIDDLE, BEST, "--device=iree:local-sync", "--arg=0=4xf32"), "--arg is not for --device=iree"),
        (("plain.hsaco", "SLOW.hsaco", *LAUNCH, "--input=4xf32"), "--input is not for --device=hip"),
        ((MIDDLE, BEST, REPLAY, "--journal=none/j.jsonl"), "there is no directory none"),
        ((MIDDLE, BEST, REPLAY, "--ir=none.ll"), "none.ll: cannot be read"),
        ((MIDDLE, BEST, "--device=iree:local-sync", "--executable=x"), "--executable needs --grid"),
        (("plain.hsaco", "SLOW.hsaco"), "needs --grid: how many work-groups are launched"),
        (("plain.hsaco", "none.hsaco", *LAUNCH), "none.hsaco: cannot be read"),
        (("plain.hsaco", "plain.hsaco", "--grid=1"), "argument 0, a buffer, is not given"),
        ((str(RECORDING), "plain.hsaco", *LAUNCH), "this is no code object"),
    ],
)  # fmt: skip
def test_bad_input_is_one_error(
    codes: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run(["measure", *arguments]) == 2
    out, err = capsys.readouterr()
    assert message in words_of(err)
    assert out == ""
    assert not list(codes.glob("*.jsonl"))
