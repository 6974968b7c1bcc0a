"""The command line without LLVM: spelling, usage errors, writing all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verilocc_mlir.cli import main, output
from verilocc_mlir.cli.compile import default_output
from verilocc_mlir.cli.main import llc_spelling, run
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import Emit


def test_llc_spelling_of_options() -> None:
    given = ["compile", "-mcpu=gfx942", "-mattr", "+xnack", "-mtriple=amdgcn-amd-amdhsa", "-O3", "-o", "x", "-"]
    assert llc_spelling(given) == [
        "compile", "--mcpu=gfx942", "--mattr", "+xnack", "--mtriple=amdgcn-amd-amdhsa", "-O3", "-o", "x", "-",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "emit", "expected"),
    [
        ("a/k.ll", Emit.HSACO, "a/k.hsaco"),
        ("k.opt.ll", Emit.ASM, "k.opt.s"),
        ("k.bc", Emit.OBJ, "k.o"),
        ("-", Emit.MIR, "-"),
    ],
)
def test_default_output(source: str, emit: Emit, expected: str) -> None:
    assert default_output(source, emit) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "--emit=exe", "k.ll"], "exe"),
        (["compile", "--nonsense", "k.ll"], "nonsense"),
        (["nothing"], "nothing"),
        (["compile", "-O9", "k.ll"], "9"),
        (["compile", "missing.ll"], "missing.ll: cannot be read: No such file or directory"),
        (["compile", "k.ll", "-o", "no/such/place/k.hsaco"], "there is no directory no/such/place"),
        (["compile", "k.ll", "-o", "."], "is a directory"),
        (["compile", "k.ll", "-o", "-", "--report=-"], "cannot both go to standard output"),
        (["compile", "k.mir", "--emit=mir"], "would overwrite the input"),
    ],
)
def test_usage_errors(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "0 proved and written, 1 refuted, 2 bad input or usage, 3 unknown" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_defect_is_not_mistaken_for_a_refutation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise AssertionError("seeded")

    monkeypatch.setattr(main.cli, "main", broken)
    assert run(["compile"]) == 3
    assert "nothing was proved" in capsys.readouterr().err


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.cli, "main", stopped)
    assert run(["compile"]) == 130


def test_written_files_are_whole_and_have_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"old")
    output.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space"):
        output.write(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_devices_can_be_written() -> None:
    output.check_writable(os.devnull)
    output.write(os.devnull, b"x")
    assert not Path(os.devnull).is_file()


def test_unwritable_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no directory"):
        output.check_writable(str(tmp_path / "absent" / "k.o"))
