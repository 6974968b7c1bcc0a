"""Finding LLVM: the order of the search, and a reason for every candidate that is not taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from toolchain_support import llvm_directory, tools

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.find import _ANSWERS, MINIMUM_VERSION, _kept, find_toolchain, survey


def fake(directory: Path, name: str, output: str) -> Path:
    """A program that prints ``output``, as a tool of another version or build would."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    path.chmod(0o755)
    return path


OLD = "Debian LLVM version 14.0.6\n  Registered Targets:\n    amdgcn     - AMD GCN GPUs"
NO_AMDGPU = "LLVM version 22.1.8\n  Registered Targets:\n    x86-64     - 64-bit X86"


def test_the_machines_tool_chain_is_complete() -> None:
    found = tools()
    assert found.version >= MINIMUM_VERSION
    assert "LLVM" in found.version_text
    for path in (found.llc, found.lld, found.opt, found.objdump, found.dis, found.readelf, found.mc):
        assert path is not None
        assert path.exists()


def test_an_old_llc_on_the_path_is_passed_over_with_the_reason(tmp_path: Path) -> None:
    fake(tmp_path, "llc", OLD)
    (tmp_path / "llc-22").symlink_to(llvm_directory() / "llc")
    found = find_toolchain(env={"PATH": str(tmp_path)})
    assert found.llc == tmp_path / "llc-22"
    assert found.lld.exists()
    assert [(candidate.path, candidate.version) for candidate in found.rejected] == [(tmp_path / "llc", (14, 0, 6))]
    assert "too old" in found.rejected[0].reason


def test_the_newest_versioned_name_comes_first(tmp_path: Path) -> None:
    fake(tmp_path, "llc-9", OLD)
    fake(tmp_path, "llc-23", NO_AMDGPU.replace("22.1.8", "23.0.0"))
    (tmp_path / "llc-22").symlink_to(llvm_directory() / "llc")
    found = find_toolchain(env={"PATH": str(tmp_path)})
    assert found.llc.name == "llc-22"
    assert [candidate.path.name for candidate in found.rejected] == ["llc-23"]
    assert "without the AMDGPU target" in found.rejected[0].reason


@pytest.mark.parametrize("given", ["directory", "prefix", "binary"])
def test_an_option_may_name_a_directory_a_prefix_or_llc(given: str) -> None:
    directory = llvm_directory()
    option = {"directory": directory, "prefix": directory.parent, "binary": directory / "llc"}[given]
    found = find_toolchain(option, env={"PATH": ""})
    assert (found.llc, found.source) == (directory / "llc", "option")


def test_the_environment_wins_over_the_path(tmp_path: Path) -> None:
    directory = llvm_directory()
    fake(tmp_path, "llc", OLD)
    assert find_toolchain(env={"VERILOCC_LLVM": str(directory), "PATH": str(tmp_path)}).source == "VERILOCC_LLVM"
    single = {"VERILOCC_LLC": str(directory / "llc"), "VERILOCC_LLD": str(directory / "ld.lld"), "PATH": ""}
    found = find_toolchain(env=single)
    assert (found.source, found.lld) == ("VERILOCC_LLC", directory / "ld.lld")


def test_rocm_is_found_by_its_prefix(tmp_path: Path) -> None:
    (tmp_path / "llvm" / "bin").mkdir(parents=True)
    (tmp_path / "llvm" / "bin" / "llc").symlink_to(llvm_directory() / "llc")
    candidates = survey(env={"ROCM_PATH": str(tmp_path), "PATH": ""})
    # The same file is listed once, under the first name it was found by.
    assert any(candidate.accepted and candidate.tool == "llc" for candidate in candidates)


def test_an_option_that_does_not_fit_is_an_error_and_nothing_else_is_tried(tmp_path: Path) -> None:
    path = fake(tmp_path, "llc", OLD)
    with pytest.raises(ToolchainError) as caught:
        find_toolchain(path)
    assert "LLVM 14 is too old, 22 or newer is needed" in str(caught.value)
    assert "apt-get install llvm-22 lld-22" in caught.value.hint
    assert "make llvm" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "does not exist"),
        ("echo hello", "prints no LLVM version"),
        ("exit 3", "exit code 3"),
        ("kill -SEGV $$", "crashed with SIGSEGV"),
    ],
)
def test_a_broken_llc_is_named_with_its_fault(tmp_path: Path, script: str | None, reason: str) -> None:
    path = tmp_path / "llc"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    with pytest.raises(ToolchainError, match=reason) as caught:
        find_toolchain(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "llc").write_text("text")
    with pytest.raises(ToolchainError, match="not an executable file"):
        find_toolchain(tmp_path)


def test_a_missing_linker_is_named(tmp_path: Path) -> None:
    env = {"VERILOCC_LLC": str(llvm_directory() / "llc"), "VERILOCC_LLD": str(tmp_path / "ld.lld"), "PATH": ""}
    with pytest.raises(ToolchainError, match=r"no suitable ld\.lld") as caught:
        find_toolchain(env=env)
    assert "lld-22" in caught.value.hint


def test_the_survey_never_raises_and_lists_each_file_once(tmp_path: Path) -> None:
    fake(tmp_path, "llc", OLD)
    (tmp_path / "llc-14").symlink_to(tmp_path / "llc")
    candidates = survey(env={"PATH": str(tmp_path)})
    assert [candidate.path.name for candidate in candidates if candidate.path.parent == tmp_path] == ["llc"]
    assert survey(tmp_path / "nowhere")[0].accepted is False


@pytest.mark.parametrize("variable", ["VERILOCC_LLVM", "VERILOCC_LLC"])
def test_a_named_llvm_that_does_not_fit_is_an_error(variable: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="does not exist"):
        find_toolchain(env={variable: str(tmp_path / "llc"), "PATH": os.environ["PATH"]})


def forget() -> None:
    """What this process knows of tools, as a new one would not."""
    _kept.cache_clear()
    _ANSWERS.clear()


def test_what_a_program_prints_is_kept_by_what_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "llc"
    program.write_bytes((llvm_directory() / "llc").resolve().read_bytes())
    program.chmod(0o755)
    (tmp_path / "ld.lld").symlink_to(llvm_directory() / "ld.lld")
    forget()
    found = find_toolchain(program)
    kept = list((tmp_path / "cache" / "verilocc" / "tools").iterdir())
    assert found.version_text in [line.strip() for path in kept for line in path.read_text().splitlines()]
    for path in kept:
        path.write_text(path.read_text().replace("22.", "32."))
    forget()
    assert find_toolchain(program).version[0] == found.version[0] + 10
    assert [c.version for c in survey(program) if c.tool == "llc"] == [found.version], "doctor runs it"
    os.utime(program, (1, 1))
    forget()
    assert find_toolchain(program).version == found.version


def test_what_a_script_prints_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake(tmp_path, "llc", OLD)
    assert [c.version for c in survey(tmp_path / "llc")] == [(14, 0, 6)]
    with pytest.raises(ToolchainError):
        find_toolchain(tmp_path / "llc")
    assert not (tmp_path / "cache").exists()
