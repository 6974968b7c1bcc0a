"""Each option of ``pipeline.options`` reaches the compilation, whatever way it is set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import REPOSITORY

from verilocc_mlir.cli import compile as compile_cli
from verilocc_mlir.cli import frontend
from verilocc_mlir.cli.iree import iree_command
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.kernels import KernelSource
from verilocc_mlir.hooks.mlir_pipeline import parse_options
from verilocc_mlir.hooks.triton import hook as triton_hook
from verilocc_mlir.pipeline.batch.jobs import Job
from verilocc_mlir.pipeline.batch.local import LocalExecutor
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.options import (
    OPTION_NAMES,
    OPTIONS,
    Kind,
    Option,
    fields_set_by_no_option,
    option,
    with_options,
)
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.find import find_toolchain

_VALUES: dict[str, str] = {
    "effort": "best",
    "allocator": "exact",
    "model_samples": "3",
    "allocator_seconds": "7.5",
    "spill": "false",
    "fallback": "false",
    "verify": "false",
    "solver_seconds": "11",
    "tool_seconds": "13",
    "llvm": "/opt/some/llvm",
    "llc": "-fp-contract=fast",
    "server": "unix:/run/verilocc.sock",
    "server_allocator": "exact",
    "server_ca": "ca.pem",
    "server_cert": "cert.pem",
    "server_key": "key.pem",
    "server_token": "token",
    "server_insecure": "true",
    "server_seconds": "17",
}
"""For each option a text that is not its default."""


def _value(settings: Settings, name: str) -> Any:
    known = option(name)
    return getattr(settings.access if known.of_access else settings, known.field)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_as_a_keyword_and_as_the_text_of_one(name: str) -> None:
    settings = with_options(None, {name: _VALUES[name]})
    assert _value(settings, name) == option(name).value(_VALUES[name]) != option(name).default
    # The value itself does as well, and the others keep what they had.
    assert with_options(None, {name: _value(settings, name)}) == settings
    kept = with_options(settings, {"tool_seconds": 99})
    assert _value(kept, name) == (99 if name == "tool_seconds" else _value(settings, name))


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_in_mlir_s_pipeline_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A path that is not there is no fault of the text.
    settings = parse_options(f"{name.replace('_', '-')}={_VALUES[name]}").settings
    assert _value(settings, name) == option(name).value(_VALUES[name])


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_in_the_variable_for_triton(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``VERILOCC_TRITON``: with targets before it, and alone."""
    installed: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr(triton_hook, "install", lambda names, **given: installed.append((names, given)))
    word = f"{name.replace('_', '-')}={_VALUES[name]}"
    for value, targets in ((f"gfx942,gfx1100 {word}", ["gfx942", "gfx1100"]), (f"1 {word}", []), (word, [])):
        assert triton_hook.install_from_environment({"VERILOCC_TRITON": value})
        names, given = installed.pop()
        assert names == targets
        assert _value(with_options(None, given), name) == option(name).value(_VALUES[name])


def test_the_variable_for_triton_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[dict[str, Any]] = []
    monkeypatch.setattr(triton_hook, "install", lambda names, **given: installed.append(given))
    triton_hook.install_from_environment({"VERILOCC_TRITON": "1 replace=never autotune=ours llc=-a=b llc=-c"})
    assert installed == [{"replace": "never", "autotune": "ours", "llc": ("-a=b", "-c")}]
    with pytest.raises(InputError, match="VERILOCC_TRITON=1 speed=high: there is no option 'speed=high'"):
        triton_hook.install_from_environment({"VERILOCC_TRITON": "1 speed=high"})
    assert not triton_hook.install_from_environment({"VERILOCC_TRITON": "0 effort=best"})


def test_flags_in_mlir_s_text_add_up() -> None:
    assert parse_options("llc=-a=b llc=-c").settings.llc_options == ("-a=b", "-c")


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_on_the_command_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both that of one file and that of a module: what reaches the compilation is looked at, which then is not run."""
    seen: list[Settings] = []

    class Stop(Exception):
        pass

    def stop(settings: Settings) -> Settings:
        seen.append(settings)
        raise Stop

    unchanged = frontend.settings_taken
    monkeypatch.setattr("verilocc_mlir.cli.iree.settings_taken", lambda options: stop(unchanged(options)))
    monkeypatch.setattr(compile_cli, "replace", lambda settings, **_: stop(settings))
    words = _command_words(option(name))
    if name != "server" and name.startswith("server"):
        words.append("--server=unix:/run/other.sock")  # the way to nowhere is no part of what is asked for
    if name == "server_allocator":
        words = ["--server=unix:/run/other.sock", "--allocator=exact"]
    source = tmp_path / "m.mlir"
    source.write_text("module {}\n")
    for command, arguments in (
        (iree_command, [str(source), "--iree-rocm-target=gfx942", "-o", str(tmp_path / "m.vmfb")]),
        (compile_cli.compile_command, [str(source), "-o", str(tmp_path / "m.hsaco")]),
    ):
        done = CliRunner().invoke(command, [*arguments, *words])
        assert isinstance(done.exception, Stop), done.output
        assert _value(seen.pop(), name) == option(name).value(_VALUES[name])


def _command_words(known: Option) -> list[str]:
    text = _VALUES[known.name]
    if known.kind is Kind.EFFORT:
        return [f"-O={text}"]
    if known.kind is Kind.SWITCH:
        return [f"--no-{known.word}" if text == "false" else f"--{known.word}"]
    return [f"--{known.word}={text}"]


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_over_the_wire_and_in_the_cache_s_key(name: str) -> None:
    settings = with_options(None, {name: _VALUES[name]})
    sent = Settings.from_data(json.loads(json.dumps(settings.to_data())))
    assert sent == settings
    if name in ("llvm", "tool_seconds") or option(name).of_access:
        return  # no part of what comes out: docs of pipeline.key
    if name == "allocator":
        pytest.importorskip("ortools")
    toolchain = find_toolchain(None)
    plain = Settings(cpu="gfx942", server="unix:/run/s" if name == "server_allocator" else "")
    assert Keys(with_options(plain, {name: _VALUES[name]}), toolchain).of("0" * 64) != Keys(plain, toolchain).of(
        "0" * 64
    )


def test_a_front_end_s_kernel_has_all_of_them_but_what_the_front_end_decides() -> None:
    settings = with_options(None, _VALUES)
    source = KernelSource("k", b"", "gfx942", "+wavefrontsize64", 2, ("-x",))
    given = source.settings(settings)
    decided = {"cpu": "gfx942", "features": "+wavefrontsize64", "opt_level": 2, "emit": Emit.HSACO, "also": (Emit.MIR,)}
    assert given == replace(settings, **decided, llc_options=("-fp-contract=fast", "-x"))
    assert fields_set_by_no_option() == {"cpu", "features", "triple", "opt_level", "emit", "also"}


def test_a_worker_s_run_has_them(demo_kernels: Path) -> None:
    """The run says what it was asked: effort, allocator and flags."""
    settings = replace(
        with_options(None, {"effort": "balanced", "allocator": "llvm", "llc": "-fp-contract=off"}), cpu="gfx942"
    )
    data = next(demo_kernels.glob("*gfx942*.ll")).read_bytes()
    (done,) = LocalExecutor(1, 600).run([Job(0, "k", data, settings)])
    assert done.report is not None
    assert {p["allocator"] for f in done.report["functions"] for p in f["phases"]} == {"llvm"}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("effort", "most"), ("spill", "perhaps"), ("solver_seconds", "0"), ("tool_seconds", "nan"),
        ("model_samples", "0"), ("allocator", 3), ("llc", 3), ("llvm", 3), ("verify", 1), ("nothing", "1"),
    ],
)  # fmt: skip
def test_wrong_values_are_said(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=name.replace("_", "-") if name != "nothing" else "no option 'nothing'"):
        with_options(None, {name: wrong})


def test_each_option_has_a_value_here() -> None:
    assert set(_VALUES) == {known.name for known in OPTIONS}


def test_the_page_lists_them() -> None:
    page = (REPOSITORY / "docs" / "guide" / "options.md").read_text()
    rows = [f"| `{known.word}` | {known.kind.value} | {known.help} |" for known in OPTIONS]
    assert [line for line in page.splitlines() if line.startswith("| `") and line in rows] == rows
