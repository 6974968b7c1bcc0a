"""The first checker compiled by mypyc says what the interpreted one says, of right pairs and of wrong ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from case_support import CASES
from support import REPOSITORY

from smt_verifier.checker import compiled_modules

_ANSWERS = """
import gc, json, re, sys
from pathlib import Path
from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.checker import COMPILED, text

answers = {"compiled": COMPILED is not None, "of": text.__file__}
circles = []
for path in map(Path, sys.argv[1:]):
    before = path.read_bytes().decode()
    after = path.with_name(path.name.replace(".before.", ".after.")).read_bytes().decode()
    target = re.search(r"target: ([^;\\s]+)", before)[1]
    name = re.search(r"^name: +(\\S+)", before, re.MULTILINE)
    gc.collect()
    gc.disable()
    certified = certify_texts(before, after, name[1].strip("'") if name else "", target)
    in_circles = gc.collect()
    gc.enable()
    if certified.accepted:  # An error holds the frames that it came from.
        circles.append(in_circles)
    answers[path.name] = [certified.text, *map(str, certified.answers)]
answers["circles"] = max(circles)
print(json.dumps(answers))
"""


def test_compiled_and_interpreted_answer_alike() -> None:
    """Where it can be compiled, it must be: a source that mypyc does not take is a failure."""
    build = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "compile_checker.py")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    if "interpreted" in build.stdout:
        pytest.skip(build.stdout.strip())
    cases = sorted(CASES.glob("*.before.mir"))[::9]
    answers: list[dict[str, list[str]]] = []
    for more in ({}, {"VERILOCC_COMPILED_CHECKER": ""}):
        environment = {**os.environ, "VERILOCC_SECOND_CHECKER": "", "PYTHONPATH": str(REPOSITORY), **more}
        run = subprocess.run(
            [sys.executable, "-c", _ANSWERS, *map(str, cases)],
            env=environment, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        answers.append(json.loads(run.stdout))
    compiled, interpreted = answers
    assert (compiled.pop("compiled"), interpreted.pop("compiled")) == (True, False)
    assert str(compiled.pop("of")).endswith(".so")
    assert str(interpreted.pop("of")).endswith(".py")
    # A text is freed as soon as it is judged: mypyc makes a circle of each function that stands in another one.
    assert (compiled.pop("circles"), interpreted.pop("circles")) == (0, 0)
    assert compiled == interpreted
    said = [answer[-1] for answer in compiled.values()]
    assert sum("accepted" in text for text in said) >= 10
    assert sum("accepted" not in text for text in said) >= 10


def test_after_an_edit_the_sources_are_interpreted(tmp_path: Path) -> None:
    """What is compiled is named by all its sources."""
    verifier = REPOSITORY / "smt_verifier"
    for package in ("checker", "certificate"):
        shutil.copytree(verifier / package, tmp_path / "smt_verifier" / package)
    shutil.copy(verifier / "__init__.py", tmp_path / "smt_verifier")
    ask = [sys.executable, "-c", "import smt_verifier.checker as c; print(c.compiled_modules().name, c.COMPILED)"]
    of_copy = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def told() -> list[str]:
        return subprocess.run(ask, env=of_copy, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert told() == [compiled_modules().name, "None"]
    place = tmp_path / "smt_verifier" / "bin" / "compiled" / compiled_modules().name
    place.mkdir(parents=True)
    assert told() == [compiled_modules().name, str(place)]
    with (tmp_path / "smt_verifier" / "certificate" / "write.py").open("a") as source:
        source.write("# another line\n")
    name, there = told()
    assert (name != compiled_modules().name, there) == (True, "None")
