"""Worker processes: whatever one does costs the question it was asked, and nothing it started stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import crew_copies
import crew_workers
import pytest
from crew_workers import cut, echo, failing, too_long
from process_support import children, descendants, gone
from support import HEARING, REPOSITORY, long

from verilocc_mlir.crew.copied import Ended, call_isolated
from verilocc_mlir.crew.crew import Crew
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Message, frame, receive
from verilocc_mlir.crew.tasks import LocalTasks, as_ready
from verilocc_mlir.crew.worker import Late, Lost, Worker, WorkerFailure, ending
from verilocc_mlir.errors import ToolchainError

# Frames.


@pytest.mark.parametrize("data", [b"", b"x", b"\n", b"two\nlines\n", bytes(range(256)) * 9000])
def test_a_message_comes_as_it_was_sent(data: bytes) -> None:
    header = {"text": "a\nb ä", "list": [1, None]}
    assert _sent(frame(header, data)) == (header, data)


@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_a_frame_that_is_cut_is_no_message(length: int) -> None:
    with pytest.raises(EOFError):
        _sent(frame({"a": 1}, b"data")[:length])


@pytest.mark.parametrize(
    "text", [b"9999999999\n{}", b"-1\n{}", b"x\n{}", b"\n{}", b"2\n[]", b"4\nnull", b"3\n{}x", b"0\n", b"2\n{}2\n{}"]
)
def test_what_is_no_frame_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        _sent(text + b" " * 20 if text == b"\n{}" else text)


def _sent(text: bytes) -> Message:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=lambda: (theirs.sendall(text), theirs.shutdown(socket.SHUT_WR)))
        sender.start()
        try:
            return receive(ours, time.monotonic() + 30)
        finally:
            sender.join()


# One worker.


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(partial(Worker, partial(echo, 512)))
    with closing(made):
        yield made


def asked(crew: Crew, what: str, data: bytes = b"", seconds: float = 30.0) -> Message:
    with crew.worker() as worker:
        return worker.ask({"what": what}, seconds, data)


def test_one_worker_answers_one_question_after_the_other(crew: Crew) -> None:
    data = os.urandom(3 << 20)
    assert asked(crew, "echo", data)[1] == data
    (pid,) = crew.pids()
    assert {asked(crew, "echo")[0]["pid"] for _ in range(20)} == {pid}
    crew.close()
    assert gone(pid)


def test_a_worker_that_dies_costs_its_question(crew: Crew) -> None:
    with pytest.raises(Lost, match="the worker process ended with exit code 7"):
        asked(crew, "die")
    assert crew.pids() == ()
    assert asked(crew, "echo")[0]["what"] == "echo"


def test_a_worker_that_hangs_is_ended(crew: Crew) -> None:
    asked(crew, "echo")
    (pid,) = crew.pids()
    with pytest.raises(Late, match=r"no answer within 0\.3 s"):
        asked(crew, "hang", seconds=0.3)
    assert gone(pid)


def test_a_process_with_a_second_thread_is_not_copied() -> None:
    def started() -> str:
        with closing(Crew(partial(Worker, partial(echo, 0), fork=True))) as crew:
            asked(crew, "echo")
            (pid,) = crew.pids()
            return Path(f"/proc/{pid}/cmdline").read_text()

    parked = threading.Event()
    thread = threading.Thread(target=parked.wait)
    thread.start()
    try:
        assert "pickle.loads" in started() != Path("/proc/self/cmdline").read_text()
    finally:
        parked.set()
        thread.join()


def test_a_copy_of_a_process_is_a_worker_like_any_other() -> None:
    """In a process of its own, which has one thread: this one may hold a server of gRPC."""
    subprocess.run(
        [sys.executable, crew_copies.__file__], check=True, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    )


def test_a_worker_that_is_stopped_and_does_not_read_is_ended(crew: Crew) -> None:
    asked(crew, "echo")
    os.kill(crew.pids()[0], signal.SIGSTOP)
    with pytest.raises(Late):
        asked(crew, "echo", bytes(8 << 20), seconds=0.3)


def test_a_worker_has_its_memory_and_no_more(crew: Crew) -> None:
    """It says so, answers no further question, and the next one is another's."""
    asked(crew, "echo")
    (pid,) = crew.pids()
    assert asked(crew, "allocate")[0]["reason"] == "memory"
    assert gone(pid)
    assert asked(crew, "echo")[0]["pid"] != pid


def test_what_a_worker_prints_is_no_answer(crew: Crew) -> None:
    for _ in range(2):
        assert asked(crew, "print", b"data")[1] == b"data"


@pytest.mark.parametrize(("work", "reason"), [(cut, "ended with exit code 0"), (too_long, "answered nonsense")])
def test_an_answer_that_is_cut_or_too_long_is_none(work: Callable[[], None], reason: str) -> None:
    crew = Crew(partial(Worker, work))
    with pytest.raises(WorkerFailure, match=reason):
        asked(crew, "echo")
    assert crew.pids() == ()


def test_a_question_that_is_cut_ends_the_worker() -> None:
    ours, theirs = socket.socketpair()
    code = "from crew_workers import echo; echo()"
    with ours, theirs:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno(), env=_environment())
    ours.close()
    assert process.wait(30) == 0


def test_an_exception_of_who_asks_ends_the_worker(crew: Crew) -> None:
    asked(crew, "echo")
    (pid,) = crew.pids()
    with pytest.raises(KeyboardInterrupt), crew.worker():
        raise KeyboardInterrupt
    assert gone(pid)


def test_how_a_process_ended_in_words() -> None:
    assert [ending(status) for status in (0, 7, -9, -60)] == ["exit code 0", "exit code 7", "SIGKILL", "signal 60"]


# Workers that start processes.


@pytest.fixture(params=[False, True], ids=["started", "forked"])
def job_crew(request: pytest.FixtureRequest) -> Iterator[JobCrew]:
    made = JobCrew(crew_workers.jobs, forks=request.param)
    yield made
    made.stop()


def test_what_a_worker_starts_ends_with_it(job_crew: JobCrew, tmp_path: Path) -> None:
    note = tmp_path / "pids"

    def kill() -> None:
        while not note.exists() or len(note.read_text().split()) < 4:
            time.sleep(0.02)
        worker.kill()

    with job_crew.worker() as worker:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Lost, match="SIGKILL"):
            worker.ask({"what": "start", "note": str(note), "stay": True}, 60)
    killer.join()
    assert all(gone(int(pid)) for pid in note.read_text().split())


def test_what_a_worker_started_ends_with_another_question_too(job_crew: JobCrew, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    with job_crew.worker() as worker:
        worker.ask({"what": "start", "note": str(note), "stay": False}, 30)
    with pytest.raises(Lost, match="exit code 7"), job_crew.worker() as worker:
        worker.ask({"what": "die"}, 30)
    assert all(gone(int(pid)) for pid in note.read_text().split())


def test_the_death_of_one_is_not_another_ones(job_crew: JobCrew) -> None:
    with job_crew.worker() as other:
        first = other.ask({}, 30)[0]["pid"]
        with job_crew.worker() as worker:
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(Lost, match="SIGKILL"):
                worker.ask({}, 30)
        assert other.ask({}, 30)[0]["pid"] == first


def test_stopping_ends_what_is_asked_and_starts_no_more(job_crew: JobCrew) -> None:
    def stop() -> None:
        time.sleep(0.3)
        job_crew.stop()

    with job_crew.worker() as worker:
        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(Lost):
            worker.ask({"what": "hang"}, 60)
    stopper.join()
    assert gone(worker.pid)
    with pytest.raises(ToolchainError, match="has been stopped"), job_crew.worker():
        pass


@pytest.mark.parametrize("forks", [False, True])
def test_a_worker_that_does_not_load_is_an_error_that_says_why(forks: bool) -> None:
    crew = JobCrew(failing, forks=forks)
    with pytest.raises(
        ToolchainError, match=r"no worker process starts: the worker process ended with .*nothing to load"
    ):
        crew.begun()
    crew.stop()


def test_a_fork_server_that_dies_is_replaced() -> None:
    crew = JobCrew(crew_workers.jobs, forks=True)
    before = set(children(os.getpid()))
    with crew.worker() as worker:
        (server,) = set(children(os.getpid())) - before
        os.kill(server, signal.SIGKILL)
        assert gone(server)
        assert worker.ask({}, 30)[0]["pid"] == worker.pid
        with crew.worker() as other:
            assert other.ask({}, 30)[0]["pid"] != worker.pid
    crew.stop()
    assert gone(worker.pid)
    assert gone(other.pid)


# All of it.


def test_what_is_ready_does_not_wait_for_what_hangs_and_closing_ends_the_rest() -> None:
    crew = JobCrew(crew_workers.jobs, forks=True)

    def do(item: str) -> str:
        with crew.worker() as worker:
            return worker.ask({"what": item}, 60)[0]["what"]

    with closing(as_ready(LocalTasks(do, 2, crew.stop), ["hang", "a", "b", "hang", "never"], 2)) as results:
        # Both may be ready by the time that one is asked for.
        assert {next(results) for _ in range(2)} == {("a", "a"), ("b", "b")}


PARENT = """
import sys
sys.path[:0] = {paths!r}
import crew_copies
import crew_workers
from verilocc_mlir.crew.jobs import JobCrew
crew = JobCrew(crew_workers.jobs, forks={forks})
with crew.worker() as worker:
    worker.ask(dict(what="start", note=sys.argv[1], stay=True), 600)
"""


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, *long(signal.SIGINT, signal.SIGTERM)])
def test_nothing_outlives_its_parent(number: signal.Signals, forks: bool, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = PARENT.format(paths=[str(REPOSITORY), str(REPOSITORY / "tests")], forks=forks)
    process = subprocess.Popen([*HEARING, sys.executable, "-c", code, str(note)], stderr=subprocess.DEVNULL)
    while not note.exists() or len(note.read_text().split()) < 4:
        assert process.poll() is None
        time.sleep(0.02)
    started = {int(pid) for pid in note.read_text().split()} | descendants(process.pid)
    process.send_signal(number)
    process.wait(30)
    assert all(gone(pid) for pid in started)


def test_a_call_in_a_copy_of_this_process() -> None:
    assert call_isolated(lambda: str(os.getppid())) == str(os.getpid())
    with pytest.raises(Ended, match="SIGKILL"):
        call_isolated(lambda: str(os.kill(os.getpid(), signal.SIGKILL)))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "tests")))}
