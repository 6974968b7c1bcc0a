"""Obligations as files: every solver reaches the recorded verdict, and a changed file is noticed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from allocation import Pair, phases_of_ir
from audit_support import DIVERGENT
from support import long

from smt_verifier.artefacts import RecordingSolver, file_name, rows_digest, sha256, write_artefacts
from smt_verifier.audit import audit
from smt_verifier.outcome import Outcome
from smt_verifier.recheck import recheck
from smt_verifier.smt.processes import Replayer
from smt_verifier.smt.worker import installed
from verilocc_mlir.cli.main import run
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target


@pytest.fixture(scope="module", autouse=True)
def _solvers_stay() -> Iterator[None]:
    """A solver's process answers in all tests here: to load it is most of what a folder costs."""

    class Staying(Replayer):
        def close(self) -> None:
            """It stays."""

    made: dict[object, Staying] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smt_verifier.recheck.Replayer", lambda *given: made.setdefault(given, Staying(*given)))
        yield
    for one in made.values():
        Replayer.close(one)


def recorded(pair: Pair, directory: Path) -> Outcome:
    solver = RecordingSolver()
    report = audit(parse_mir(pair.pre), parse_mir(pair.post), target(pair.cpu), solver=solver)
    write_artefacts(directory, {"before": pair.pre.encode(), "after": pair.post.encode()}, solver.answers)
    return report.outcome


@pytest.mark.parametrize("solver", ["z3", *long("cvc5", "bitwuzla")])
def test_solvers_agree_on_proved_and_refuted_obligations(solver: str, tmp_path: Path) -> None:
    if not installed(solver):
        pytest.skip(f"{solver} is not installed: pip install {solver}")
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    wrong = pair.with_post("V_XOR_B32_e32 killed $vgpr2", "V_XOR_B32_e32 $vgpr0")
    assert recorded(pair, tmp_path / "right") is Outcome.PROVED
    assert recorded(wrong, tmp_path / "wrong") is Outcome.REFUTED
    right, refuted = recheck(tmp_path / "right", solver), recheck(tmp_path / "wrong", solver)
    assert len(right) == len({row.name for row in right}) > 1
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


@pytest.mark.long
def test_a_limit_is_unknown_not_a_verdict() -> None:
    hard = "(set-logic QF_NIA)(declare-const x Int)(declare-const y Int)(declare-const z Int)" + (
        "(assert (and (> x 2) (> y 2) (> z 2) (= (+ (* x x x) (* y y y)) (* z z z))))(check-sat)"
    )
    assert Replayer("z3", 2048).ask(hard, 2).outcome is Outcome.UNKNOWN
    assert Replayer("z3", 2048).ask("(check-sat", 20).outcome is Outcome.UNKNOWN
    assert Replayer("z3", 16).ask("(check-sat)", 20).outcome is Outcome.UNKNOWN


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
    shown = capsys.readouterr().out
    assert f"{len(manifest['obligations'])} of {len(manifest['obligations'])}" in shown
    assert "files only" in shown
    assert run(["recheck", str(smt), str(before), str(after)]) == 0
    assert "the audit of these texts says: proved" in capsys.readouterr().out
    assert run(["recheck", str(tmp_path)]) == 2
    assert "manifest.json" in capsys.readouterr().err


class Folder:
    """A recorded proof in the hands of an attacker, who keeps hashes and digest right."""

    def __init__(self, directory: Path) -> None:
        self.pair = phases_of_ir(DIVERGENT, "gfx942")[1]
        self.smt, self.before, self.after = directory / "smt", directory / "before.mir", directory / "after.mir"

    def record(self) -> None:
        self.before.write_text(self.pair.pre)
        self.after.write_text(self.pair.post)
        assert recorded(self.pair, self.smt) is Outcome.PROVED

    def manifest(self) -> Any:
        return json.loads((self.smt / "manifest.json").read_text())

    def sign(self, manifest: Any) -> None:
        manifest["digest"] = rows_digest(manifest["inputs"], manifest["obligations"])
        (self.smt / "manifest.json").write_text(json.dumps(manifest))

    def put(self, number: int, change: Callable[[str], str]) -> None:
        """Another text in a file, under the right hash."""
        path = self.smt / file_name(number)
        text = change(path.read_text())
        assert text != path.read_text()
        path.write_text(text)
        manifest = self.manifest()
        manifest["obligations"][number]["sha256"] = sha256(text.encode())
        self.sign(manifest)

    def asked(self) -> int:
        """A file with more than one goal and with hypotheses."""
        rows = self.manifest()["obligations"]
        return next(n for n, row in enumerate(rows) if row["goals"] > 2)

    def recheck(self, *options: str) -> int:
        return run(["recheck", str(self.smt), *options])

    def with_texts(self) -> int:
        return self.recheck(str(self.before), str(self.after))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The proof as it was recorded."""
    directory = tmp_path_factory.mktemp("honest")
    Folder(directory).record()
    return directory


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Folder:
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    return Folder(tmp_path)


def test_an_honest_folder_stands(folder: Folder) -> None:
    assert folder.recheck() == folder.with_texts() == 0


def test_an_empty_list_is_refused(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.smt.glob("*.smt2"):
        path.unlink()
    manifest = folder.manifest()
    manifest["obligations"] = []
    folder.sign(manifest)
    assert folder.recheck() == folder.with_texts() == 2
    assert "nothing was asked" in capsys.readouterr().err


def test_a_shortened_list_is_refused(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = folder.manifest()
    last = manifest["obligations"].pop()
    (folder.smt / "manifest.json").write_text(json.dumps(manifest))
    assert folder.recheck() == 2
    assert "its digest differs" in capsys.readouterr().err
    folder.sign(manifest)
    assert folder.recheck() == 2
    assert f"files that the manifest does not list: {last['file']}" in capsys.readouterr().err
    (folder.smt / last["file"]).unlink()
    # Whoever may write all of the folder deceives one who has nothing but the folder, and no other.
    assert folder.recheck() == 0
    assert "files only" in capsys.readouterr().out
    assert folder.with_texts() == 2
    assert "but the audit asks" in capsys.readouterr().err


def test_rows_out_of_order_or_twice_are_refused(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = folder.manifest()
    rows = manifest["obligations"]
    rows[0], rows[1] = rows[1], rows[0]
    folder.sign(manifest)
    assert folder.recheck() == 2
    rows[0] = rows[1] = rows[2]
    folder.sign(manifest)
    assert folder.recheck() == 2
    assert "is not 0000.smt2, the file of obligation 0" in capsys.readouterr().out


def test_texts_of_another_program_are_refused(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.after.write_text(folder.pair.post + "\n")
    assert folder.with_texts() == 2
    assert "the text given as after is not the one that was recorded" in capsys.readouterr().err
    manifest = folder.manifest()
    manifest["inputs"][1]["sha256"] = sha256(folder.after.read_bytes())
    folder.sign(manifest)
    assert folder.with_texts() == 0  # a line break more is the same program
    wrong = folder.pair.with_post("V_XOR_B32_e32 killed $vgpr2", "V_XOR_B32_e32 $vgpr0").post
    folder.after.write_text(wrong)
    manifest["inputs"][1]["sha256"] = sha256(wrong.encode())
    folder.sign(manifest)
    capsys.readouterr()
    assert folder.with_texts() == 2
    assert "but the audit asks" in capsys.readouterr().err  # block by block, where all together are not proved


def test_a_question_of_no_program_is_refused_with_texts(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """One hypothesis more: it still follows, and nothing contradicts itself."""
    folder.put(folder.asked(), lambda text: text.replace("(assert (= ", "(assert (= t0 t1))\n(assert (= ", 1))
    assert folder.recheck() == 0
    capsys.readouterr()
    assert folder.with_texts() == 2
    assert "is not what the audit asks of these texts" in capsys.readouterr().out


@pytest.mark.parametrize("inputs", [[], [{"name": "before", "sha256": ""}], [{"name": "x", "sha256": ""}] * 2])
def test_inputs_that_are_no_pair_are_refused(folder: Folder, inputs: list[object]) -> None:
    manifest = folder.manifest()
    manifest["inputs"] = inputs
    folder.sign(manifest)
    assert folder.with_texts() == 2


def test_one_text_of_a_pair_is_a_usage_error(folder: Folder) -> None:
    assert folder.recheck(str(folder.before)) == 2
    assert folder.recheck("-mcpu=gfx942") == 2
    assert folder.recheck(*[str(folder.before), str(folder.after)] * 2) == 2


@pytest.mark.parametrize("name", ["/{away}", "../away.smt2", "./0000.smt2", "sub/0000.smt2", "0000.smt2/"])
def test_paths_that_leave_the_folder_are_refused(folder: Folder, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    away = folder.smt.parent / "away.smt2"
    away.write_bytes((folder.smt / "0000.smt2").read_bytes())
    manifest = folder.manifest()
    manifest["obligations"][0]["file"] = name.replace("/{away}", str(away))
    folder.sign(manifest)
    assert folder.recheck() == 2
    assert "the file of obligation 0" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["0000.smt2", "manifest.json"])
def test_what_is_no_regular_file_is_refused(folder: Folder, kind: str, name: str) -> None:
    path = folder.smt / name
    away = folder.smt.parent / "away"
    away.write_bytes(path.read_bytes())
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"link": str(away), "link to a folder": "/", "device": "/dev/zero"}[kind])
    assert folder.recheck() == 2


def test_files_that_are_not_listed_are_named(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.smt / "9999\x1b[2J.smt2").write_text("")
    assert folder.recheck() == 2
    error = capsys.readouterr().err
    assert "9999?[2J.smt2" in error


def test_a_goal_that_does_not_follow_is_refuted(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    number = folder.asked()
    folder.put(number, lambda text: re.sub(r"\(assert \(= .*\n", "", text))
    assert folder.recheck() == 1
    assert "recorded proved, z3 says refuted" in capsys.readouterr().out
    assert folder.with_texts() == 2


FALSE = [
    "(assert false)",
    "(assert (not (= t0 t0)))",
    "(declare-const x Bool)\n(assert x)\n(assert (not x))",
    "(define-fun no () Bool false)\n(assert no)",
]


@pytest.mark.parametrize("lie", FALSE)
@pytest.mark.parametrize("solver", ["z3", *long("cvc5", "bitwuzla")])
def test_hypotheses_that_contradict_each_other_are_refused(
    folder: Folder, lie: str, solver: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not installed(solver):
        pytest.skip(f"{solver} is not installed: pip install {solver}")
    folder.put(folder.asked(), lambda text: text.replace("(assert (not (and", f"{lie}\n(assert (not (and"))
    assert folder.recheck(f"--solver={solver}") == 2
    assert "its hypotheses contradict each other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(assert (not (and", "(assert false)(check-sat)(reset)\n(assert (not (and"),
        ("(assert (not (and", '(echo "unsat")(exit)\n(assert (not (and'),
        ("(assert (not (and", "(push 1)(assert false)\n(assert (not (and"),
        ("(check-sat)", "(assert false)\n(check-sat)"),
        ("(check-sat)", "(check-sat-assuming (false))"),
        ("(check-sat)", "(check-sat)\n(check-sat)"),
        ("(check-sat)", "(check-sat) unsat"),
        ("(check-sat)", ""),
        ("(declare-sort Value 0)", "(set-option :produce-models true)\n(declare-sort Value 0)"),
        ("(declare-sort Value 0)", "(declare-sort Value 0)\n(declare-const |a\\| Bool)"),
        ("(declare-sort Value 0)", "(declare-sort Value 0) ) (assert false"),
        (":status unsat", ":status sat"),
        ("(set-logic QF_UF)", "(set-logic ALL)"),
        ("(set-info :smt-lib-version 2.6)\n", ""),
    ],
)
def test_a_file_of_another_form_is_refused(folder: Folder, old: str, new: str) -> None:
    folder.put(folder.asked(), lambda text: text.replace(old, new, 1))
    assert folder.recheck() == 2


def test_goals_that_are_left_out_are_noticed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    number = folder.asked()
    folder.put(number, lambda text: re.sub(r"\(assert \(not \(and\n .*\n", "(assert (not (and\n ", text))
    assert folder.recheck() == 2
    assert "goals of the manifest" in capsys.readouterr().out
    manifest = folder.manifest()
    manifest["obligations"][number]["goals"] -= 1
    folder.sign(manifest)
    assert folder.recheck() == 0
    assert folder.with_texts() == 2


@pytest.mark.parametrize("change", [lambda g: "(= t1 t1)", lambda g: f"(or true {g})"])
def test_another_goal_of_the_right_form_is_not_what_the_audit_asks(
    folder: Folder, change: Callable[[str], str]
) -> None:
    folder.put(
        folder.asked(),
        lambda text: re.sub(r"(\(assert \(not \(and\n )(.*)", lambda m: m[1] + change(m[2]), text),
    )
    assert folder.recheck() == 0
    assert folder.with_texts() == 2


def test_a_goal_among_the_hypotheses_is_not_what_the_audit_asks(folder: Folder) -> None:
    def smuggle(text: str) -> str:
        first = re.search(r"\(assert \(not \(and\n (.*)\n", text)
        assert first
        return text.replace("(assert (not (and", f"(assert {first[1]})\n(assert (not (and")

    folder.put(folder.asked(), smuggle)
    assert folder.recheck() == 0
    assert folder.with_texts() == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcome", "invalid"),
        ("outcome", "unknown"),
        ("outcome", "refuted"),
        ("outcome", "sure"),
        ("logic", "QF_BV"),
        ("logic", "ALL"),
        ("name", "another"),
        ("goals", 0),
        ("goals", True),
        ("goals", "3"),
        ("sha256", ""),
    ],
)
def test_a_row_that_says_something_else_is_refused(folder: Folder, field: str, value: object) -> None:
    manifest = folder.manifest()
    manifest["obligations"][folder.asked()][field] = value
    folder.sign(manifest)
    assert folder.recheck() == 2
    assert folder.with_texts() == 2


def test_what_nobody_could_decide_agrees_with_nothing(folder: Folder) -> None:
    number = folder.asked()
    manifest = folder.manifest()
    manifest["obligations"][number]["outcome"] = "unknown"
    folder.sign(manifest)
    folder.put(number, lambda text: text.replace(":status unsat", ":status unknown"))
    assert folder.recheck() == 1


def test_a_refutation_is_confirmed_and_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    wrong = pair.with_post("V_XOR_B32_e32 killed $vgpr2", "V_XOR_B32_e32 $vgpr0")
    before, after = tmp_path / "before.mir", tmp_path / "after.mir"
    before.write_text(wrong.pre)
    after.write_text(wrong.post)
    assert recorded(wrong, tmp_path / "smt") is Outcome.REFUTED
    assert run(["recheck", str(tmp_path / "smt")]) == 0
    assert run(["recheck", str(tmp_path / "smt"), str(before), str(after)]) == 1
    assert "the audit of these texts says: refuted" in capsys.readouterr().out


def test_a_second_recording_leaves_nothing_of_the_first(folder: Folder) -> None:
    (folder.smt / "0099.smt2").write_text("")
    recorded(folder.pair, folder.smt)
    assert folder.recheck() == 0


@pytest.mark.long
def test_every_question_is_the_same_in_another_process(folder: Folder) -> None:
    command = [sys.executable, "-m", "verilocc_mlir.cli.main", "recheck", folder.smt, folder.before, folder.after]
    for seed in ("1", "6"):
        done = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
