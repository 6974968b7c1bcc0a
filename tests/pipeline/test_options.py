"""Each option of ``pipeline.options`` reaches the compilation, whatever way it is set."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support import REPOSITORY, llc

import verilocc_mlir
from smt_verifier.certificate.second import second_program
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import Allocator, registry
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.cli import compile as compile_cli
from verilocc_mlir.cli import compile_many as compile_many_cli
from verilocc_mlir.cli.frontend import iree_command, torch_command
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.baseline import Replace
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.kernels import KernelSource
from verilocc_mlir.hooks.mlir_compile import compile_ir
from verilocc_mlir.hooks.mlir_pipeline import parse_options
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.hooks.triton import hook as triton_hook
from verilocc_mlir.hooks.triton.hook import cache_key
from verilocc_mlir.pipeline import chosen_allocators
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.pipeline.batch.executors import LocalExecutor
from verilocc_mlir.pipeline.batch.jobs import Job
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys, allocator_versions
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.options import (
    OPTION_NAMES,
    OPTIONS,
    Kind,
    Option,
    option,
    with_options,
)
from verilocc_mlir.pipeline.settings import Effort, Emit, Settings
from verilocc_mlir.remote.access import ServerAccess
from verilocc_mlir.toolchain.find import find_toolchain

pytestmark = pytest.mark.usefixtures("machine_verifier")
_VALUES: dict[str, str] = {
    "effort": "best",
    "plan": "no-clusters",
    "plans": "4",
    "plan_model": "",  # a link to the one in the package: below
    "allocator": "exact",
    "model_samples": "3",
    "allocator_seconds": "7.5",
    "spill": "false",
    "order": "false",
    "fallback": "false",
    "verify": "false",
    "seconds": "0.001",
    "solver_seconds": "11",
    "tool_seconds": "13",
    "toolchain": "triton",
    "llvm": "",  # a link to the usual one: below
    "llc": "-fp-contract=fast",
    "server": "unix:/run/verilocc.sock",
    "server_allocator": "exact",
    "server_required": "true",
    "server_ca": "ca.pem",
    "server_cert": "cert.pem",
    "server_key": "key.pem",
    "server_token": "token",
    "server_insecure": "true",
    "server_seconds": "17",
}
"""For each option a text that is not its default."""


@pytest.fixture(scope="module", autouse=True)
def _another_llvm(tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("another") / "llvm"
    link.symlink_to(Path(llc()).resolve().parent)
    _VALUES["llvm"] = str(link)
    model = link.parent / "plans"
    model.symlink_to(REPOSITORY / "model" / "verilocc_model" / "weights" / "plans")
    _VALUES["plan_model"] = str(model)


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


# Each way in, up to where the work would begin: what it is to be done with is raised.


class Reached(BaseException):
    """Settings that reached the compilation. No ``Exception``: nothing on the way takes it for a failure of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


def _reach(settings: Settings, *_: Any, **__: Any) -> Any:
    raise Reached(settings)


def _reach_module(_data: bytes, _path: str, settings: Settings, **_: Any) -> Any:
    raise Reached(settings)


class _Executor:
    def run(self, jobs: Iterable[Job]) -> Any:
        raise Reached(next(iter(jobs)).settings)


@pytest.fixture
def seams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compilations end before they begin, and so does what goes before them where it is not about options."""
    for place in ("pipeline.compile", "hooks.mlir_compile"):
        monkeypatch.setattr(f"verilocc_mlir.{place}.compile_module", _reach_module)
    monkeypatch.setattr("verilocc_mlir.hooks.iree.Kernels", _reach)
    monkeypatch.setattr(triton_hook, "Hook", _reach)
    monkeypatch.setattr(compile_many_cli, "_executor", lambda *_: _Executor())
    monkeypatch.setattr(compile_cli, "allocators_for", lambda _: nullcontext(None))
    monkeypatch.setattr(compile_many_cli, "server_version", lambda _: "")
    # First, so that none of them takes what stands in for another's.
    for place in ("iree_compiler", "iree", "torch"):
        importlib.import_module(f"verilocc_mlir.hooks.{place}")
    for place in ("iree_compiler", "iree", "torch"):
        monkeypatch.setattr(f"verilocc_mlir.hooks.{place}.find_iree_compile", lambda *_: None)
        monkeypatch.setattr(f"verilocc_mlir.hooks.{place}.check_target", lambda *_: None)
    # One option at a time makes no way to a server: a certificate wants its key, and TLS.
    monkeypatch.setattr("verilocc_mlir.pipeline.checked_settings.check_way", lambda *_: None)
    imported = SimpleNamespace(mlir="module {}", signature=None)
    monkeypatch.setattr("verilocc_mlir.hooks.torch.import_module", lambda *_: imported)
    monkeypatch.setattr("verilocc_mlir.hooks.mlir_compile.prepare", lambda *_: SimpleNamespace(ir="", notes=()))


def _command(command: click.Command, *arguments: str) -> Callable[[str, Path], None]:
    def enter(name: str, directory: Path) -> None:
        (directory / "m.ll").write_text("")
        (directory / "m.py").write_text("def made():\n    return None, ()\n")
        words = _command_words(option(name))
        given = [argument.replace("DIR", str(directory)) for argument in arguments]
        done = CliRunner().invoke(command, [*given, *words])
        raise AssertionError(f"it came to its end: {done.output} {done.exception}")

    return enter


def _command_words(known: Option) -> list[str]:
    text = _VALUES[known.name]
    if known.name == "server_allocator":
        return ["--server=unix:/run/other.sock", f"--allocator={text}"]
    # The way to nowhere is no part of what is asked for.
    nowhere = ["--server=unix:/run/other.sock"] if known.of_access or known.name == "server_required" else []
    if known.kind is Kind.EFFORT:
        return [f"-O={text}"]
    if known.kind is Kind.SWITCH:
        return [f"--no-{known.word}" if text == "false" else f"--{known.word}", *nowhere]
    return [f"--{known.word}={text}", *nowhere]


def _torch(name: str, _directory: Path) -> None:
    pytest.importorskip("torch")
    verilocc_mlir.compile(None, (), target="gfx942", **_keyword(name))


def _dynamo(name: str, _directory: Path) -> None:
    torch = pytest.importorskip("torch")
    from verilocc_mlir.hooks.torch_dynamo import backend

    with torch.no_grad():
        graph = torch.fx.symbolic_trace(torch.nn.ReLU())
        backend(graph, [torch.ones(2)], options={"target": "gfx942", **_keyword(name)})


def _triton_variable(name: str, _directory: Path) -> None:
    triton_hook.install_from_environment({"VERILOCC_TRITON": f"gfx942,gfx1100 {_words(name)}"})


def _triton_variable_without_targets(name: str, _directory: Path) -> None:
    triton_hook.install_from_environment({"VERILOCC_TRITON": _words(name)})


def _mlir(name: str, _directory: Path) -> None:
    options = parse_options(_words(name))
    compile_ir("", RocdlTarget("gfx942"), where="k", settings=options.settings, options=options.ir)


def _keyword(name: str) -> dict[str, Any]:
    return {name: option(name).value(_VALUES[name]), **_beside(name)}


def _beside(name: str) -> dict[str, str]:
    """What an option cannot be without."""
    return {"server": "unix:/run/other.sock"} if name == "server_required" else {}


def _words(name: str) -> str:
    return " ".join(f"{option(key).word}={text}" for key, text in {name: _VALUES[name], **_beside(name)}.items())


WAYS: dict[str, Callable[[str, Path], object]] = {
    "verilocc compile": _command(compile_cli.compile_command, "DIR/m.ll", "--output=DIR/m.hsaco"),
    "verilocc report": _command(compile_cli.report_command, "DIR/m.ll", "--output=DIR/m.html"),
    "verilocc compile-many": _command(compile_many_cli.compile_many_command, "DIR/m.ll", "--no-cache"),
    "verilocc iree": _command(iree_command, "DIR/m.ll", "--iree-rocm-target=gfx942", "--output=DIR/m.vmfb"),
    "verilocc torch": _command(torch_command, "DIR/m.py:made", "--target=gfx942", "--output=DIR/m.vmfb"),
    "verilocc_mlir.compile": _torch,
    "torch.compile": _dynamo,
    "compile_mlir": lambda name, _: compile_mlir("module {}", target="gfx942", **_keyword(name)),
    "triton.install": lambda name, _: triton_hook.install("gfx942", **_keyword(name)),
    "VERILOCC_TRITON": _triton_variable,
    "VERILOCC_TRITON, no target": _triton_variable_without_targets,
    "MLIR's pipeline text": _mlir,
}
"""Every way in of docs/guide/compile.md: a function that sets one option, by name, to its value of ``_VALUES``."""


@pytest.mark.usefixtures("seams")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTION_NAMES)
def test_each_way_in_takes_it_to_the_compilation(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_hook, "_knobs", lambda: None)
    if "exact" in _VALUES[name]:
        pytest.importorskip("ortools")
    if "torch" in way:
        pytest.importorskip("torch")
    with pytest.raises(Reached) as reached:
        WAYS[way](name, tmp_path)
    assert _value(reached.value.settings, name) == option(name).value(_VALUES[name])


def test_the_variable_for_triton_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[dict[str, Any]] = []
    monkeypatch.setattr(triton_hook, "install", lambda names, **given: installed.append(given))
    triton_hook.install_from_environment({"VERILOCC_TRITON": "1 replace=never autotune=ours llc=-a=b llc=-c"})
    assert installed == [{"replace": "never", "autotune": "ours", "llc": ("-a=b", "-c")}]
    with pytest.raises(InputError, match="VERILOCC_TRITON=1 speed=high: there is no option 'speed=high'"):
        triton_hook.install_from_environment({"VERILOCC_TRITON": "1 speed=high"})
    assert not triton_hook.install_from_environment({"VERILOCC_TRITON": "0 effort=best"})


def test_flags_in_mlir_s_text_add_up() -> None:
    given = ("-fp-contract=fast", "-enable-misched")
    assert parse_options(" ".join(f"llc={flag}" for flag in given)).settings.llc_options == given


# What the compilation does with it: one real run for each option.

_KERNEL = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %v = load i32, ptr addrspace(1) %p
  %w = add i32 %v, 1
  store i32 %w, ptr addrspace(1) %p
  ret void
}
"""


class _Seen:
    """What the run handed on."""

    def __init__(self) -> None:
        self.efforts: list[Effort] = []
        self.samples: list[int | None] = []
        self.seconds: list[float] = []
        self.runners: list[tuple[Work, SpillLimits]] = []
        self.solver: list[float] = []
        self.tools: list[tuple[list[str], float]] = []
        self.drivers: set[str] = set()
        self.asked: list[Settings] = []
        self.stated: list[Settings] = []

    def remote(self, server: str, name: str, access: ServerAccess) -> Allocator:
        """In the place of a server's."""
        self.asked.append(Settings(server=server, server_allocator=name, access=access))
        return DeterministicAllocator()


_seen = _Seen()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> _Seen:
    """Looks on at the places where a run hands its options on, and changes nothing there."""
    _seen.__init__()

    def look(place: str, note: Callable[..., None]) -> None:
        module, _, attribute = place.rpartition(".")
        inner = getattr(importlib.import_module(f"verilocc_mlir.{module}"), attribute)

        def looking(*given: Any, **keywords: Any) -> Any:
            note(*given, **keywords)
            return inner(*given, **keywords)

        monkeypatch.setattr(f"verilocc_mlir.{place}", looking)

    look("pipeline.portfolio.variants", lambda effort, *_: _seen.efforts.append(effort))
    look("pipeline.portfolio.stated", lambda given, *_: _seen.stated.append(given.work.settings))
    look("pipeline.runs.PhaseRunner", lambda work, spills, *_: _seen.runners.append((work, spills)))
    look("pipeline.phase.audit_function", lambda *_, timeout_s, **__: _seen.solver.append(timeout_s))
    look("toolchain.staged.run_tool", lambda command, *_, timeout, **__: _seen.tools.append((command, timeout)))

    look("toolchain.staged.driver_of", lambda tools: _seen.drivers.add(type(tools).__name__))

    def model(_directory: str, seconds: float, samples: int) -> Allocator:
        _seen.seconds.append(seconds)
        _seen.samples.append(samples)
        return DeterministicAllocator()

    monkeypatch.setattr(registry, "_model", model)
    monkeypatch.setattr(chosen_allocators, "remote_allocator", _seen.remote)
    return _seen


def _llc_commands(seen: _Seen) -> list[list[str]]:
    return [command for command, _ in seen.tools if "llc" in Path(command[0]).name]


EFFECTS: dict[str, Callable[[_Seen, set[str]], bool]] = {
    "effort": lambda seen, _: set(seen.efforts) == {Effort.BEST},
    "plan": lambda seen, _: any("-misched-cluster=0" in command for command in _llc_commands(seen)),
    "plans": lambda seen, _: {settings.plans for settings in seen.stated} == {4},
    "plan_model": lambda seen, _: {str(settings.plan_model) for settings in seen.stated} == {_VALUES["plan_model"]},
    "allocator": lambda _, allocators: allocators == {"exact"},
    "model_samples": lambda seen, _: set(seen.samples) == {3},
    "allocator_seconds": lambda seen, _: set(seen.seconds) == {7.5},
    "spill": lambda seen, _: {spills.spare for _, spills in seen.runners} == {()},
    "order": lambda seen, _: not any("-start-before=si-post-ra-bundler" in command for command in _llc_commands(seen)),
    "fallback": lambda seen, _: {work.settings.fallback for work, _ in seen.runners} == {False},
    "verify": lambda seen, _: not any("-verify-machineinstrs" in command for command in _llc_commands(seen)),
    "seconds": lambda seen, _: {work.events.budget.is_over for work, _ in seen.runners} == {True},
    "solver_seconds": lambda seen, _: set(seen.solver) == {11.0},
    "tool_seconds": lambda seen, _: {seconds for _, seconds in seen.tools} == {13.0},
    "toolchain": lambda seen, _: seen.drivers == {"TritonTools"},
    "llvm": lambda seen, _: {str(Path(command[0]).parent) for command, _ in seen.tools} == {_VALUES["llvm"]},
    "llc": lambda seen, _: all("-fp-contract=fast" in command for command in _llc_commands(seen)),
    "server": lambda seen, _: {asked.server for asked in seen.asked} == {_VALUES["server"]},
    "server_allocator": lambda seen, _: {asked.server_allocator for asked in seen.asked} == {"exact"},
    **{
        known.name: lambda seen, _, name=known.name: (
            {_value(asked, name) for asked in seen.asked} == {option(name).value(_VALUES[name])}
        )
        for known in OPTIONS
        if known.of_access
    },
}
"""For each option: whether a run with its value of ``_VALUES`` shows it, given also the allocators of its attempts."""


_DEFAULTS: dict[Settings, tuple[_Seen, set[str]]] = {}
"""What a run with the default of an option shows: the same run for most of them."""


# A server that is required is in tests/service/test_server_part.py.
@pytest.mark.parametrize("name", [name for name in OPTION_NAMES if name != "server_required"])
def test_the_run_does_what_it_says(name: str, seen: _Seen) -> None:
    if _VALUES[name] == "exact":
        pytest.importorskip("ortools")
    if name == "toolchain":
        pytest.importorskip("triton")
    beside: dict[str, Any] = {}
    kernel, cpu = _KERNEL, "gfx942"
    if name in ("plans", "plan_model"):
        pytest.importorskip("safetensors")
        beside["effort"] = "learned"
    if name == "order":
        # The order is asked for only where it promises something, and both checkers are there.
        if second_program() is None:
            pytest.skip("no second checker")
        kernel, cpu = (REPOSITORY / "tests" / "data" / "order" / "gemm.gfx90a.ll").read_text(), "gfx90a"
    if name == "plan":
        kernel, cpu = (REPOSITORY / "examples" / "kernels" / "attn_d64.gfx1201.opt.ll").read_text(), "gfx1201"
    if name in ("plans", "plan_model"):
        # Plans are asked for only where another order of the instructions promises something.
        path = REPOSITORY / "tests" / "data" / "plans" / "gemm_naive.gfx1201.opt.ll"
        kernel, cpu = path.read_text(), "gfx1201"
    if name in ("model_samples", "allocator_seconds"):
        beside["allocator"] = f"model:{REPOSITORY}"
    if name.startswith("server_"):
        beside["server"] = _VALUES["server"]
    default = with_options(Settings(cpu=cpu), beside)

    def run(settings: Settings) -> set[str]:
        report = compile_module(kernel.encode(), "k.ll", settings).report
        assert report.outcome is Outcome.PROVED
        return {attempt.allocator for f in report.functions for p in f.phases for attempt in p.attempts}

    if default not in _DEFAULTS:
        allocators = run(default)
        _DEFAULTS[default] = copy(seen), allocators
        seen.__init__()
    assert not EFFECTS[name](*_DEFAULTS[default]), "the default shows it too"
    assert EFFECTS[name](seen, run(with_options(default, {name: _VALUES[name]})))


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_over_the_wire_and_in_the_cache_s_key(name: str) -> None:
    settings = with_options(None, {name: _VALUES[name]})
    sent = Settings.from_data(json.loads(json.dumps(settings.to_data())))
    assert sent == settings
    if name == "allocator":
        pytest.importorskip("ortools")
    toolchain = find_toolchain(None)
    plain = Settings(cpu="gfx942", server="unix:/run/s" if name == "server_allocator" else "")
    changed = with_options(plain, {name: _VALUES[name]})
    # The tools count as what they are: docs of pipeline.key.
    no_part_of_what_comes_out = (
        name in ("toolchain", "llvm", "tool_seconds", "server_required") or option(name).of_access
    )
    same = Keys(changed, toolchain).of("0" * 64) == Keys(plain, toolchain).of("0" * 64)
    assert same == no_part_of_what_comes_out
    # Triton's cache is Triton's: it is enough that nothing is forgotten.
    keys = {cache_key(settings, toolchain, ("gfx942",), Replace.BETTER) for settings in (plain, changed)}
    assert len(keys) == 2


def test_best_s_key_has_what_best_tries_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The language model and the exact allocator change what comes out where they are installed."""
    toolchain, best = find_toolchain(None), Settings(cpu="gfx942", effort=Effort.BEST)
    keys: set[str] = set()
    for version in ("1", "2"):
        model = SimpleNamespace(name="model", version=version)
        monkeypatch.setattr(registry, "_model", lambda *_, model=model: model)
        monkeypatch.setenv(registry.MODEL_VARIABLE, str(REPOSITORY))
        keys.add(Keys(best, toolchain).of("0" * 64))
        assert allocator_versions(best)["model"] == version
        assert "model" not in allocator_versions(replace(best, effort=Effort.BALANCED))
        assert "model" not in allocator_versions(replace(best, server="unix:/run/s"))
    assert len(keys) == 2


def test_a_front_end_s_kernel_has_all_of_them_but_what_the_front_end_decides() -> None:
    settings = with_options(None, _VALUES)
    source = KernelSource("k", b"", "gfx942", "+wavefrontsize64", 2, ("-x",))
    given = source.settings(settings)
    decided = {"cpu": "gfx942", "features": "+wavefrontsize64", "opt_level": 2, "emit": Emit.HSACO, "also": (Emit.MIR,)}
    assert given == replace(settings, **decided, llc_options=("-fp-contract=fast", "-x"))
    set_by_options = {known.field for known in OPTIONS if not known.of_access} | {"access"}
    assert set(Settings.__struct_fields__) - set_by_options == {
        "cpu", "features", "triple", "opt_level", "emit", "also",
    }  # fmt: skip


@pytest.mark.long
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
        ("model_samples", "0"), ("allocator", 3), ("llc", 3), ("llvm", 3), ("toolchain", "gcc"), ("verify", 1),
        ("plans", "0"), ("plan_model", 3),
        ("nothing", "1"),
    ],
)  # fmt: skip
def test_wrong_values_are_said(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=name.replace("_", "-") if name != "nothing" else "no option 'nothing'"):
        with_options(None, {name: wrong})


def test_each_option_has_a_value_here() -> None:
    assert set(_VALUES) == {known.name for known in OPTIONS}


def test_the_page_lists_them() -> None:
    page = (REPOSITORY / "docs" / "guide" / "compile.md").read_text()
    rows = [f"| `{known.word}` | {known.kind.value} | {known.help} |" for known in OPTIONS]
    assert [line for line in page.splitlines() if line.startswith("| `") and line in rows] == rows
