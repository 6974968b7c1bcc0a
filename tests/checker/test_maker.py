"""The maker of certificates in Rust makes those that the one in Python makes.

What it makes for attacks is in ``test_verdicts.py``: ``certify_texts`` asks it first, and takes what both accept.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from case_support import RIGHT, Case, all_cases
from checker_support import needs_both, own_tests_pass
from support import DEMO_KERNELS, cpu_of, few, run_llc

from smt_verifier.certificate import verdict
from smt_verifier.certificate.produce import certify
from smt_verifier.certificate.second import MAKER_ENVIRONMENT, made_certificate, maker_program
from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.check import check, prepare
from smt_verifier.checker.text import read

pytestmark = needs_both
CASES = all_cases()
KERNELS = sorted(DEMO_KERNELS.glob("*.ll"))

CALLED = """
target triple = "amdgcn-amd-amdhsa"
define i32 @g(i32 %x) noinline {
  %y = mul i32 %x, 7
  ret i32 %y
}
define i32 @f(ptr addrspace(1) inreg %p, i32 %n) {
  %c = icmp ult i32 %n, 7
  br i1 %c, label %then, label %end
then:
  %x = load i32, ptr addrspace(1) %p
  %y = call i32 @g(i32 %x)
  %z = call i32 @g(i32 %y)
  store i32 %z, ptr addrspace(1) %p
  br label %end
end:
  %r = phi i32 [ 0, %0 ], [ %z, %then ]
  ret i32 %r
}
"""


def both_make(before: str, after: str, function: str, cpu: str, **premises: bool) -> None:
    """Both make the same certificate, which both checkers accept."""
    made = made_certificate(before, after, cpu, function, **premises)
    assert made is not None
    both = prepare(read(before), read(after), function, cpu, **premises)
    assert made[0] == write_certificate(certify(both).certificate, both.before.grain)
    assert made[1] == (True, check(before, after, made[0], cpu, **premises).operands, "", "", "")


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == RIGHT], ids=lambda c: c.name)
def test_what_is_right_gets_the_same_certificate(case: Case) -> None:
    before, after = case.before.read_text(), case.after.read_text()
    for function in read(before).functions:
        both_make(before, after, function.name, case.target, near_branches="_near_branch_" in case.name)


@pytest.mark.parametrize(
    ("path", "phase"),
    few([*((path, 2) for path in KERNELS), (KERNELS[-1], 0)], [(path, phase) for phase in (0, 2) for path in KERNELS]),
)
def test_so_do_kernels(path: Path, phase: int) -> None:
    stops = f"-stop-before=greedy,{phase}", f"-stop-after=virtregrewriter,{phase}"
    before, after = (run_llc(path.read_text(), cpu_of(path), stop, mir=False) for stop in stops)
    (function,) = read(before).functions
    both_make(before, after, function.name, cpu_of(path), saved_later=phase == 0)


@pytest.mark.parametrize("cpu", ["gfx942", "gfx1100"])
def test_so_does_a_called_function_whose_saved_scalars_llvm_saves_later(cpu: str) -> None:
    """The stack pointer, and upper halves where no half is named, are none of what is claimed to be as at entry."""
    for phase in (0, 2):
        stops = f"-stop-before=greedy,{phase}", f"-stop-after=virtregrewriter,{phase}"
        before, after = (run_llc(CALLED, cpu, stop, mir=False) for stop in stops)
        for name in ("f", "g"):
            both_make(before, after, name, cpu, saved_later=phase == 0)


def test_a_certificate_that_the_first_checker_refuses_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in CASES if c.kind == RIGHT)
    before, after = case.before.read_text(), case.after.read_text()
    (name, *_) = [function.name for function in read(before).functions]
    right = certify_texts(before, after, name, case.target)
    wrong = right.text.replace("steps ", "steps 1+ ", 1)
    monkeypatch.setattr(verdict, "made_certificate", lambda *_, **__: (wrong, (True, 1, "", "", "")))  # pyright: ignore[reportUnknownLambdaType]
    assert certify_texts(before, after, name, case.target) == right


def test_the_variable_names_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert maker_program() is not None
    monkeypatch.setenv(MAKER_ENVIRONMENT, "")
    assert maker_program() is None
    program = tmp_path / "says"
    program.write_text("#!/bin/sh\necho 'accepted: 3 operands compared'\n")
    program.chmod(0o755)
    monkeypatch.setenv(MAKER_ENVIRONMENT, str(program))
    made = made_certificate("", "", "gfx942", "f")
    assert made is not None
    text, (accepted, _, rule, *_) = made
    assert (text, accepted, rule) == ("", False, "checker"), "it has written nothing"


def test_nothing_is_written_where_there_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("no machine IR")
    command = [str(maker_program()), "p", "p", "out", "--mcpu=gfx942", "--function=f"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(": ")[0]) == (1, "refused")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.long
def test_its_own_tests_pass() -> None:
    own_tests_pass("maker")
