"""llc's machine verifier: after every pass with balanced and best or where it is asked for, not with fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolchain_support import llvm_directory, source

from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import VERIFY_VARIABLE, Effort, Settings
from verilocc_mlir.results.compile import ExitCode
from verilocc_mlir.toolchain.find import find_toolchain


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose llc writes its arguments to the file ``arguments`` there."""
    monkeypatch.delenv(VERIFY_VARIABLE, raising=False)
    llc = tmp_path / "llc"
    llc.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\nexec {llvm_directory()}/llc "$@"\n')
    llc.chmod(0o755)
    (tmp_path / "ld.lld").symlink_to(llvm_directory() / "ld.lld")
    return tmp_path


def verified(noting: Path, settings: Settings) -> bool:
    """Whether the runs that resume from a text had the verifier: all or none, but those that are only costed."""
    compiled = compile_module(source("mmra.ll").encode(), "k.ll", settings)
    assert compiled.report.exit_code == ExitCode.PROVED
    lines = (noting / "arguments").read_text().splitlines()
    runs = [line for line in lines if "-x mir" in line and "-start-" in line and "-filetype=asm" not in line]
    asked = {"-verify-machineinstrs" in line for line in runs}
    assert len(asked) == 1
    return asked.pop()


def test_fast_goes_without(noting: Path) -> None:
    assert not verified(noting, Settings(cpu="gfx942", llvm=noting))


def test_fast_has_it_where_it_is_asked_for(noting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(noting, Settings(cpu="gfx942", llvm=noting, verify=True))
    (noting / "arguments").unlink()
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    assert verified(noting, Settings(cpu="gfx942", llvm=noting))


def test_balanced_has_it_unless_it_is_declined() -> None:
    assert Settings(effort=Effort.BALANCED).verifies
    assert Settings(effort=Effort.BEST).verifies
    assert not Settings(effort=Effort.BEST, verify=False).verifies


def test_the_key_of_a_result_says_whether_it_ran(noting: Path) -> None:
    tools = find_toolchain()
    plain, asked, declined = (Keys(Settings(verify=v), tools).of("0" * 64) for v in (None, True, False))
    assert plain == declined != asked
