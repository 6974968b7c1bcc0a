"""Running tools: output, CPU time, time-outs without orphans, and failures that say what is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from process_support import gone, lines_of
from support import HEARING, REPOSITORY
from toolchain_support import compiler, source

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.toolchain.run import ToolFailure, first_useful_line, run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase


def test_output_and_resources_come_back() -> None:
    run = run_tool(["sh", "-c", "cat; echo note >&2"], stdin=b"x" * 1_000_000, stage="copy")
    assert run.stdout == b"x" * 1_000_000
    assert run.stderr == "note\n"
    assert run.stage == "copy"
    assert run.max_rss_kib > 0
    busy = run_tool(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"])
    assert busy.cpu_seconds > 0


def test_a_time_out_kills_the_children_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over when the child is there."""
    note = tmp_path / "pid"
    timer = threading.Timer
    monkeypatch.setattr(threading, "Timer", lambda _, expire: timer(0, lambda: lines_of(note) and expire()))
    with pytest.raises(ToolchainError, match="did not finish within") as caught:
        run_tool(["sh", "-c", f"sleep 600 & echo $! > {note}; wait"], timeout=2, stage="slow")
    assert "sh (slow)" in str(caught.value)
    assert gone(int(note.read_text()))


def test_an_interrupt_kills_the_tool(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = textwrap.dedent(f"""
        from verilocc_mlir.toolchain.run import run_tool
        run_tool(["sh", "-c", "echo $$ > {note}; exec sleep 600"])
    """)
    process = subprocess.Popen(
        [*HEARING, sys.executable, "-c", script],
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    (tool,) = lines_of(note)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert gone(int(tool))


def test_a_missing_tool_and_a_failing_one() -> None:
    with pytest.raises(ToolchainError, match="cannot run"):
        run_tool(["/nonexistent/llc"])
    with pytest.raises(ToolFailure) as caught:
        run_tool(["sh", "-c", "echo 'tool: error: no such thing' >&2; exit 7"], where="k.ll")
    assert (caught.value.status, caught.value.where) == (7, "k.ll")
    assert "no such thing" in caught.value.what
    assert "replay with: sh -c" in caught.value.hint


def test_malformed_machine_ir_is_one_clear_error_and_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = compiler("gfx942", "k.mir")
    mir = staged.to_pre_ra(source("abi.ll"))
    broken = mir.replace("$sgpr8_sgpr9", "$sgpr200_sgpr201")
    assert broken != mir
    monkeypatch.setenv("VERILOCC_KEEP", str(tmp_path))
    with pytest.raises(InputError) as caught:
        staged.accept_mir(broken)
    assert "sgpr200" in str(caught.value)
    kept = list(tmp_path.iterdir())
    assert len(kept) == 1
    assert kept[0].name in caught.value.hint


def test_a_crash_names_the_signal_and_not_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERILOCC_KEEP", raising=False)
    with pytest.raises(ToolFailure) as caught:
        run_tool(["sh", "-c", "echo 'Stack dump:' >&2; echo 'LLVM ERROR: out of luck' >&2; kill -ABRT $$"], stage="x")
    assert caught.value.what == "sh (x) crashed with SIGABRT: LLVM ERROR: out of luck"
    assert caught.value.status == -signal.SIGABRT


@pytest.mark.parametrize(
    ("stderr", "line", "where"),
    [
        ("error: <stdin>:12:3: expected a name\n    x\n    ^\n", "expected a name", "<stdin>:12:3"),
        (
            "PLEASE submit a bug report to x\nStack dump:\n0.\tProgram arguments: llc\n#0 0x00 f\nSegmentation fault\n",
            "Segmentation fault",
            "",
        ),
        (
            "# Machine code for function k\n*** Bad machine code: Illegal virtual register ***\n- function:    k\n"
            "- basic block: %bb.0\n- instruction: %1 = COPY %2\nLLVM ERROR: Found 1 machine code errors.\n",
            "Bad machine code: Illegal virtual register; function: k; instruction: %1 = COPY %2",
            "",
        ),
        ("Intrinsic has wrong type!\nptr @f\nllc: error: Broken module found", "Intrinsic has wrong type!; ptr @f", ""),
        ("", "no message", ""),
    ],
)
def test_the_useful_line_is_found(stderr: str, line: str, where: str) -> None:
    assert first_useful_line(stderr) == (line, where)


def test_the_machine_verifier_speaks_on_resume() -> None:
    staged = compiler("gfx942", "k.mir")
    done = staged.llvm_allocate(staged.to_pre_ra(source("abi.ll")), LlvmPhase.SGPR)
    # A 64-bit scalar load into an odd register: no such register class member.
    wrong, count = re.subn(
        r"renamable \$sgpr\d+_sgpr\d+ = S_LOAD_DWORDX2", "renamable $vcc_lo = S_LOAD_DWORDX2", done, count=1
    )
    assert count == 1
    with pytest.raises(ToolFailure, match=r"Bad machine code: .*; function: "):
        staged.resume(wrong, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)


def test_an_interrupt_while_a_tool_is_started_ends_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # a handler that raises does it here, and nobody has the process

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    # A job that a shell starts in the background is deaf to SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_tool(["sleep", "600"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone(started[0])
