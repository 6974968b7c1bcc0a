"""Z3 in worker processes: the same verdicts, and whatever a worker does costs one obligation and never proves one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from process_support import gone, works
from smt_support import EASY, EQUAL, HARD, obligation
from support import HEARING, REPOSITORY, few, long

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, ProcessSolver, Verdict, Z3Solver, default_solver, processes
from smt_verifier.smt.processes import Replayer, WorkerPool
from verilocc_mlir.crew import worker as pool
from verilocc_mlir.crew.worker import WorkerFailure

GREEDY = obligation(
    "(= (bvurem (bvmul x y) z) (bvudiv (bvmul z x) y))",
    script="".join(f"(declare-const {name} (_ BitVec 4000))" for name in "xyz"),
    logic="QF_BV",
)


@pytest.fixture
def solver() -> ProcessSolver:
    return ProcessSolver(memory_mib=1024)


def answered(verdict: Verdict) -> bool:
    return verdict == Verdict(Outcome.PROVED)


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (EASY, {}),
        (obligation("(= (f a) (f b))", "(= a c)", "true"), {}),
        (obligation("(= c d)", "(not (= c d))"), {}),
        (obligation("false", script="(declare-const p Bool)(assert p)(assert (not p))"), {"consistent": True}),
        (obligation("(= a"), {}),
        (obligation(), {}),
        (Obligation("twice", "QF_UF", EQUAL, (("g", "true"), ("g", "true"))), {}),
        (obligation('(= a |odd "name"|)', script=EQUAL + '(declare-const |odd "name"| V)'), {}),
    ],
)
def test_same_verdicts_as_in_this_process(solver: ProcessSolver, asked: Obligation, options: dict[str, bool]) -> None:
    assert solver.check(asked, **options) == Z3Solver().check(asked, **options)


def test_one_worker_answers_one_obligation_after_the_other(solver: ProcessSolver) -> None:
    assert answered(solver.check(EASY))
    (pid,) = solver.pool.pids()
    assert all(answered(solver.check(EASY)) for _ in range(20))
    assert solver.pool.pids() == (pid,)
    assert solver.cpu_seconds > 0


def test_the_default_solver_is_one_for_the_process() -> None:
    assert default_solver() is default_solver()


def test_a_time_limit_is_unknown(solver: ProcessSolver) -> None:
    verdict = solver.check(HARD, timeout_s=0.2)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason
    assert answered(solver.check(EASY))


@pytest.mark.long
def test_a_memory_limit_is_unknown(solver: ProcessSolver) -> None:
    verdict = solver.check(GREEDY, timeout_s=120)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "memory" in verdict.reason
    assert answered(solver.check(EASY))


def test_memory_used_up_by_others_is_not_held_against_an_obligation(solver: ProcessSolver) -> None:
    """A worker that fails after it has answered others is replaced, and the question asked once more."""
    assert answered(solver.check(EASY))
    (pid,) = solver.pool.pids()
    os.kill(pid, signal.SIGKILL)
    assert answered(solver.check(EASY))
    assert pid not in solver.pool.pids()


@pytest.mark.parametrize("number", [signal.SIGSEGV, *long(signal.SIGKILL, signal.SIGABRT)])
def test_a_worker_that_crashes_costs_one_obligation(solver: ProcessSolver, number: signal.Signals) -> None:
    solver.start()
    (pid,) = solver.pool.pids()
    killer = threading.Timer(0.5, os.kill, (pid, number))
    killer.start()
    verdict = solver.check(HARD, timeout_s=60)
    killer.join()
    assert verdict.outcome is Outcome.UNKNOWN
    assert number.name in verdict.reason
    assert answered(solver.check(EASY))


def test_a_worker_that_hangs_costs_one_obligation() -> None:
    workers = WorkerPool(1024)
    workers.start()
    (pid,) = workers.pids()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WorkerFailure, match="no answer within"):
        workers.ask({"kind": "replay", "solver": "z3", "text": "(check-sat)"}, 0.3, dict)
    assert not Path(f"/proc/{pid}").exists()
    assert workers.ask({"kind": "replay", "solver": "z3", "text": "(check-sat)"}, 20, dict)["outcome"] == "refuted"


def test_a_worker_that_does_not_even_read_costs_one_obligation() -> None:
    """The question is larger than a pipe holds."""
    workers = WorkerPool(1024)
    workers.start()
    os.kill(workers.pids()[0], signal.SIGSTOP)
    with pytest.raises(WorkerFailure, match="no answer within"):
        workers.ask({"kind": "replay", "solver": "z3", "text": ";" * (1 << 20)}, 0.3, dict)


LIAR = """
import json, sys
length = int(sys.stdin.buffer.readline()); question = json.loads(sys.stdin.buffer.read(length))
def say(**answer):
    body = json.dumps(answer); sys.stdout.write(f"{len(body)}\\n{body}"); sys.stdout.flush()
proved = dict(id=question["id"], cpu_s=0.0, grown_mib=0, last=False, outcome="proved", violated=[], reason="")
"""


NONSENSE = [
    ("sys.stdout.write('proved'); sys.exit(0)", "exit code 0"),
    ("sys.exit(3)", "exit code 3"),
    ("sys.exit('something broke')", "something broke"),
    ("import os; os.abort()", "SIGABRT"),
    ("sys.stdout.write('proved\\n' * 9); sys.stdout.flush(); sys.stdin.read()", "nonsense"),
    ("sys.stdout.write('99999999999\\n'); sys.stdout.flush(); sys.stdin.read()", "nonsense"),
    ("sys.stdout.write('5\\nproved'); sys.stdout.flush(); sys.stdin.read()", "nonsense"),
    ("sys.stdout.write('2\\n[]'); sys.stdout.flush(); sys.stdin.read()", "nonsense"),
    ("sys.stdout.write('90\\nproved'); sys.stdout.flush(); sys.exit(0)", "exit code 0"),
    ("say(**{**proved, 'id': 'x'}); sys.stdin.read()", "another question"),
    ("say(**{**proved, 'outcome': 'yes'}); sys.stdin.read()", "nonsense"),
    ("say(**{**proved, 'outcome': None}); sys.stdin.read()", "nonsense"),
    ("say(**{**proved, 'reason': 'limit'}); sys.stdin.read()", "nonsense"),
    ("say(**{**proved, 'violated': ['other']}); sys.stdin.read()", "nonsense"),
    ("say(**{**proved, 'violated': 3}); sys.stdin.read()", "nonsense"),
    ("say(**{**proved, 'cpu_s': 'long'}); sys.stdin.read()", "nonsense"),
    ("del proved['reason']; say(**proved); sys.stdin.read()", "nonsense"),
]


@pytest.mark.parametrize(("lie", "reason"), few(NONSENSE[::3], NONSENSE))
def test_nonsense_is_unknown(solver: ProcessSolver, monkeypatch: pytest.MonkeyPatch, lie: str, reason: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_START", LIAR + lie)
        verdict = solver.check(EASY)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason
    assert answered(solver.check(EASY))


def test_the_liar_of_these_tests_can_tell_the_truth(solver: ProcessSolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_START", LIAR + "say(**proved); sys.stdin.read()")
    assert answered(solver.check(obligation("false")))


def test_a_worker_that_has_taken_much_memory_is_not_kept(
    solver: ProcessSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answered(solver.check(EASY))
    assert solver.pool.pids()
    monkeypatch.setattr(processes, "_KEPT_MIB", -1)
    assert answered(solver.check(EASY))
    assert not solver.pool.pids()
    assert answered(solver.check(EASY))


def test_no_interpreter_is_unknown(solver: ProcessSolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    verdict = solver.check(EASY)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "no solver process" in verdict.reason


def test_threads_share_a_solver(solver: ProcessSolver) -> None:
    questions = [obligation(f"(= {a} {b})") for a in "abcd" for b in "abcd"]
    expected = [Z3Solver().check(q) for q in questions]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(solver.check, questions)) == expected
    assert 1 <= len(solver.pool.pids()) <= 4


def test_a_forked_process_uses_workers_of_its_own(solver: ProcessSolver) -> None:
    assert answered(solver.check(EASY))
    before = solver.pool.pids()
    child = os.fork()
    if child == 0:
        right = answered(solver.check(EASY)) and solver.check(obligation("(= a c)")).outcome is Outcome.REFUTED
        own = not set(solver.pool.pids()) & set(before)
        solver.close()
        os._exit(0 if right and own else 1)
    assert answered(solver.check(EASY))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answered(solver.check(EASY))
    assert solver.pool.pids() == before


def test_close_ends_the_workers_and_the_solver_goes_on(solver: ProcessSolver) -> None:
    assert answered(solver.check(EASY))
    (pid,) = solver.pool.pids()
    solver.close()
    assert not Path(f"/proc/{pid}").exists()
    assert answered(solver.check(EASY))


PARENT = """
import resource, sys
sys.path[:0] = {paths}
from smt_support import EASY, HARD
from smt_verifier.smt import ProcessSolver
solver = ProcessSolver()
solver.check(EASY)
print(*solver.pool.pids(), flush=True)
{then}
"""


def parent(then: str, cwd: Path = REPOSITORY) -> tuple[subprocess.Popen[str], int]:
    """A process with a worker, and the worker's process id."""
    code = PARENT.format(paths=[str(REPOSITORY), str(REPOSITORY / "tests")], then=then)
    process = subprocess.Popen(
        [*HEARING, sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
    )
    assert process.stdout
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_worker_does_not_outlive_its_parent(number: signal.Signals) -> None:
    """Also in the middle of a question."""
    process, worker = parent("solver.check(HARD, timeout_s=100)")
    assert works(worker)
    process.send_signal(number)
    process.wait(20)
    assert gone(worker)


def test_a_worker_ends_with_its_parent() -> None:
    process, worker = parent("")
    assert process.wait(20) == 0
    assert gone(worker)


def test_an_interrupted_question_leaves_no_answer_behind() -> None:
    then = (
        "try:\n    solver.check(HARD, timeout_s=100)\nexcept KeyboardInterrupt:\n"
        "    print(solver.check(EASY).outcome, len(solver.pool.pids()), flush=True)"
    )
    process, worker = parent(then)
    assert works(worker)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0].split() == ["proved", "1"]


@pytest.mark.parametrize("limit", ["resource.RLIMIT_CPU, (30, 30)", "resource.RLIMIT_AS, (2 << 30, 2 << 30)"])
def test_limits_of_the_user_are_kept_under(limit: str) -> None:
    then = f"solver.close(); resource.setrlimit({limit}); print(solver.check(EASY).outcome, flush=True)"
    process, _ = parent(then)
    assert process.communicate(timeout=30)[0].split() == ["proved"]


def test_the_worker_does_not_import_from_the_current_directory(tmp_path: Path) -> None:
    for name in ("z3", "json", "smt_verifier"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the current directory')")
    script = tmp_path / "elsewhere" / "ask.py"
    script.parent.mkdir()
    script.write_text(
        f"import sys; sys.path[:0] = {[str(REPOSITORY)]!r}\nfrom smt_verifier.smt import ProcessSolver, Obligation\n"
        "print(ProcessSolver().check(Obligation('x', 'QF_UF', '', (('g', 'true'),))))"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "PROVED" in done.stdout


def test_replay_says_which_solver_failed() -> None:
    found = Replayer("z3", 1024).ask("(check-sat", 20)
    assert found.outcome is Outcome.UNKNOWN
    assert found.reason.startswith("z3: ")
