"""Tools that are loaded once and copied for each run: the same results, the same failures, nobody left behind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from process_support import gone
from toolchain_support import source, tools

from verilocc_mlir.crew.copied import call_isolated
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain import loaded_tools
from verilocc_mlir.toolchain.run import RunningTools, ToolFailure, ToolRun, run_tool

pytestmark = pytest.mark.skipif(
    not loaded_tools.LIBRARY.is_file(), reason="loaded_tool.preload was not built: there was no C compiler"
)


def run(*words: str | Path, stdin: bytes = b"", timeout: float = 60.0) -> ToolRun:
    return run_tool(words, stdin=stdin, timeout=timeout, loaded_after=0)


def llc(*flags: str) -> list[str | Path]:
    return [tools().llc, "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", *flags, "-o", "-", "-"]


def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process ids of the copies that are made from now on."""
    pids: list[int] = []
    original = loaded_tools.copy_of

    def noted(*arguments: object) -> loaded_tools.Copy | None:
        copy = original(*arguments)  # pyright: ignore
        if copy is not None:
            pids.append(copy.pid)
        return copy

    monkeypatch.setattr("verilocc_mlir.toolchain.run.copy_of", noted)
    return pids


def test_a_copy_does_what_a_new_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = source("abi.ll").encode()
    pids = copied(monkeypatch)
    for flags in (["-filetype=asm"], ["-filetype=obj"], ["-stop-before=greedy"], ["-O1", "-filetype=asm"]):
        again = [run(*llc(*flags), stdin=ir) for _ in range(2)]
        monkeypatch.setenv(loaded_tools.LOADED_VARIABLE, "0")
        anew = run(*llc(*flags), stdin=ir)
        monkeypatch.delenv(loaded_tools.LOADED_VARIABLE)
        assert [r.stdout for r in again] == [anew.stdout] * 2
        assert anew.stdout
        assert [r.stderr for r in again] == [anew.stderr] * 2
        assert again[0].cpu_seconds > 0
    assert len(set(pids)) == 8


def test_it_runs_where_this_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k.ll").write_text(source("abi.ll"))
    run(tools().llc, "--version")
    monkeypatch.chdir(tmp_path)
    assert run(*llc("-filetype=asm")[:-1], "k.ll").stdout


def test_failures_and_crashes_are_the_tools_own() -> None:
    with pytest.raises(ToolFailure, match="expected") as refused:
        run(*llc(), stdin=b"no IR")
    assert refused.value.status == 1
    shell = shutil.which("sh") or "/bin/sh"
    for script, status in (("exit 7", 7), ("kill -ABRT $$", -signal.SIGABRT), ("kill -SEGV $$", -signal.SIGSEGV)):
        with pytest.raises(ToolFailure) as ended:
            run(shell, "-c", script)
        assert ended.value.status == status


def test_a_time_out_and_a_job_that_is_given_up_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = copied(monkeypatch)
    sleep = shutil.which("sleep") or "/bin/sleep"
    with pytest.raises(ToolchainError, match="did not finish within"):
        run(sleep, "600", timeout=0.2)
    running = RunningTools()
    held = threading.Event()
    monkeypatch.setattr(os, "waitid", _noting(held))
    killer = threading.Thread(target=lambda: held.wait(60) and running.kill())
    killer.start()
    with pytest.raises(ToolFailure) as ended:
        run_tool([sleep, "600"], running=running, loaded_after=0)
    killer.join()
    assert ended.value.status == -signal.SIGKILL
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def _noting(waiting: threading.Event) -> Callable[..., object]:
    original = os.waitid

    def waitid(*arguments: int) -> object:
        waiting.set()
        return original(*arguments)

    return waitid


def test_threads_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = copied(monkeypatch)
    shell = shutil.which("sh") or "/bin/sh"
    outputs: dict[int, bytes] = {}

    def work(number: int) -> None:
        for _ in range(5):
            outputs[number] = run(shell, "-c", f"cat; echo {number}", stdin=b"given ").stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: b"given %d\n" % number for number in range(4)}
    assert len(set(pids)) == 20


def test_a_fork_of_this_process_has_its_own() -> None:
    """The loaded process makes children of the process that started it, for which a fork cannot wait."""
    shell = shutil.which("sh") or "/bin/sh"
    run(shell, "-c", "exit 0")
    assert call_isolated(lambda: run(shell, "-c", "echo of the fork").stdout.decode()) == "of the fork\n"
    assert run(shell, "-c", "echo of the parent").stdout == b"of the parent\n"


def test_one_that_ended_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shutil.which("sh") or "/bin/sh"
    pids = copied(monkeypatch)
    parent = run(shell, "-c", "tr '\\0' ' ' < /proc/$PPID/comm").stdout  # this process, not the one that was copied
    assert parent == Path("/proc/self/comm").read_bytes()
    for loaded in filter(None, loaded_tools._TOOLS.by_file.values()):  # pyright: ignore[reportPrivateUsage]
        os.kill(loaded._process.pid, signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]
        loaded._process.wait()  # pyright: ignore[reportPrivateUsage]
    assert run(shell, "-c", "echo anew").stdout == b"anew\n"
    assert len(pids) == 1


def test_scripts_and_missing_tools_are_started_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = copied(monkeypatch)
    script = tmp_path / "llc"
    script.write_text('#!/bin/sh\necho "$#: $2"\n')
    script.chmod(0o755)
    assert run(script, "a", "b c").stdout == b"2: b c\n"
    with pytest.raises(ToolchainError, match="cannot run"):
        run(tmp_path / "none")
    assert not pids
    library = tmp_path / "lib.so"
    monkeypatch.setattr(loaded_tools, "LIBRARY", library)
    assert not loaded_tools.available()
    library.write_bytes(b"no library")
    assert run(sys.executable, "-c", "print('as ever')").stdout == b"as ever\n"
    assert not pids


def test_few_runs_do_not_load_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "echo"
    shutil.copy(shutil.which("echo") or "/bin/echo", tool)
    pids = copied(monkeypatch)
    for number in range(4):
        assert run_tool([tool, str(number)], loaded_after=2).stdout == b"%d\n" % number
    assert len(pids) == 2


def test_a_copy_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another process in its place would write into the same files."""
    monkeypatch.setattr(loaded_tools, "_START_SECONDS", 1.0)
    tool = tmp_path / "sh"
    shutil.copy(shutil.which("sh") or "/bin/sh", tool)
    run(tool, "-c", "exit 0")
    pids = copied(monkeypatch)
    (loaded,) = (
        known
        for (name, *_), known in loaded_tools._TOOLS.by_file.items()  # pyright: ignore[reportPrivateUsage]
        if known is not None and name == str(tool)
    )
    pid = loaded._process.pid  # pyright: ignore[reportPrivateUsage]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()
    assert run(tool, "-c", "echo once").stdout == b"once\n"
    assert len(pids) == 1
