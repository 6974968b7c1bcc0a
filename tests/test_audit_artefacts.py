"""Obligations as files: every solver reaches the recorded verdict, and a changed file is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from allocation import Pair, phases_of_ir

from smt_verifier.artefacts import RecordingSolver, recheck, write_artefacts
from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from smt_verifier.smt.processes import replay
from smt_verifier.smt.replay import installed
from verilocc_mlir.cli.main import run
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

DIVERGENT = (Path(__file__).parent / "data" / "audit" / "divergent.ll").read_text()


def recorded(pair: Pair, directory: Path) -> Outcome:
    solver = RecordingSolver()
    report = audit(parse_mir(pair.pre), parse_mir(pair.post), target(pair.cpu), solver=solver)
    write_artefacts(directory, {"before": pair.pre.encode(), "after": pair.post.encode()}, solver.asked)
    return report.outcome


@pytest.mark.parametrize("solver", ["z3", "cvc5", "bitwuzla"])
def test_solvers_agree_on_proved_and_refuted_obligations(solver: str, tmp_path: Path) -> None:
    if not installed(solver):
        pytest.skip(f"{solver} is not installed: pip install {solver}")
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    wrong = pair.with_post("V_XOR_B32_e32 killed $vgpr2", "V_XOR_B32_e32 $vgpr0")
    assert recorded(pair, tmp_path / "right") is Outcome.PROVED
    assert recorded(wrong, tmp_path / "wrong") is Outcome.REFUTED
    right, refuted = recheck(tmp_path / "right", solver), recheck(tmp_path / "wrong", solver)
    assert len(right) > 5
    assert all(row.agrees for row in (*right, *refuted)), [row for row in (*right, *refuted) if not row.agrees]
    assert {row.outcome for row in right} == {Outcome.PROVED}
    assert Outcome.REFUTED in {row.outcome for row in refuted}


def test_changed_and_missing_files_are_invalid(tmp_path: Path) -> None:
    recorded(phases_of_ir(DIVERGENT, "gfx942")[1], tmp_path)
    first, second = tmp_path / "0000.smt2", tmp_path / "0001.smt2"
    first.write_text(first.read_text() + "; changed\n")
    second.unlink()
    rows = recheck(tmp_path, "z3")
    assert [row.outcome for row in rows[:2]] == [Outcome.INVALID, Outcome.INVALID]
    assert all(row.agrees for row in rows[2:])
    assert run(["recheck", str(tmp_path)]) == 2


def test_a_limit_is_unknown_not_a_verdict() -> None:
    hard = "(set-logic QF_NIA)(declare-const x Int)(declare-const y Int)(declare-const z Int)" + (
        "(assert (and (> x 2) (> y 2) (> z 2) (= (+ (* x x x) (* y y y)) (* z z z))))(check-sat)"
    )
    assert replay(hard, "z3", timeout_s=2, memory_mib=2048).outcome is Outcome.UNKNOWN
    assert replay("(check-sat", "z3", timeout_s=20, memory_mib=2048).outcome is Outcome.UNKNOWN
    assert replay("(check-sat)", "z3", timeout_s=20, memory_mib=16).outcome is Outcome.UNKNOWN


def test_command_line_writes_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = phases_of_ir(DIVERGENT, "gfx1100")[0]
    before, after = tmp_path / "before.mir", tmp_path / "after.mir"
    before.write_text(pair.pre)
    after.write_text(pair.post)
    smt = tmp_path / "smt"
    assert run(["audit", str(before), str(after), "-mcpu=gfx1100", f"--smt-dir={smt}"]) == 0
    manifest = json.loads((smt / "manifest.json").read_text())
    assert [row["name"] for row in manifest["inputs"]] == ["before", "after"]
    assert run(["recheck", str(smt)]) == 0
    assert f"{len(manifest['obligations'])} of {len(manifest['obligations'])}" in capsys.readouterr().out
    assert run(["recheck", str(tmp_path)]) == 2
    assert "manifest.json" in capsys.readouterr().err
