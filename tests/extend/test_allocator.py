"""``examples/extend/allocator``: a package of somebody else, installed for real; and entry points that are no good."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import REPOSITORY, few, long

from verilocc_mlir.allocators import allocator, allocator_names
from verilocc_mlir.allocators.registry import GROUP
from verilocc_mlir.cli.doctor import doctor_command
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.find import find_toolchain

EXAMPLE = REPOSITORY / "examples" / "extend" / "allocator"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the example."""
    directory = tmp_path_factory.mktemp("site")
    # A build leaves its traces beside the sources.
    sources = shutil.copytree(EXAMPLE, directory / "sources", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", directory / "site", sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "site"


def verilocc(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "model"), str(site)])
    return subprocess.run(
        [sys.executable, "-m", "verilocc_mlir.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )


@pytest.mark.parametrize("cpu", ["gfx950", *long("gfx90a", "gfx942", "gfx1100", "gfx1201")])
def test_compile_finds_it_and_proves_what_it_says(site: Path, demo_kernels: Path, tmp_path: Path, cpu: str) -> None:
    source, report = demo_kernels / f"attn_d64.{cpu}.opt.ll", tmp_path / "report.json"
    arguments = ["compile", source, f"-mcpu={cpu}", "--allocator=mine", "--no-fallback", "-o", tmp_path / "k.hsaco"]
    done = verilocc(site, *arguments, f"--report={report}")
    assert done.returncode == 0, done.stderr
    phases = [phase for function in json.loads(report.read_text())["functions"] for phase in function["phases"]]
    assert {(p["phase"], p["allocator"], p["outcome"]) for p in phases} == {
        ("sgpr", "mine", "proved"),
        ("vgpr", "mine", "proved"),
    }


@pytest.mark.long
def test_doctor_lists_it(site: Path) -> None:
    lines = verilocc(site, "doctor").stdout.splitlines()
    assert "ok       --allocator=mine: verilocc-mine 0.1.0, verilocc_mine:make, version 1" in lines


@pytest.mark.long
def test_workers_find_it_too(site: Path, demo_kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(next(demo_kernels.glob("*gfx942*.ll")), tmp_path / "in")
    out = tmp_path / "out"
    done = verilocc(site, "compile-many", tmp_path / "in", "-mcpu=gfx942", "--allocator=mine", "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr


# Entry points that are no good.


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a package with one module and one entry point on the path, as an installer would."""

    def install(name: str, code: str, *, module: str = "somebody", place: str = "make") -> None:
        site = tmp_path / module
        information = site / f"{module}-1.0.dist-info"
        information.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {module}:{place}\n")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


_CLASS = """class It:
    name, version = 'odd', '1'
    def allocate(self, problem): {body}
def make(s): return It()
"""


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import nowhere_at_all\n", "it cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def make(\n", "it cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)\n", "it cannot be loaded: SystemExit: 3"),
        ("other = 1\n", "it cannot be loaded: AttributeError"),
        ("make = 3\n", "it cannot be loaded: TypeError: 'int' object is not callable"),
        ("def make(): return None\n", "it cannot be loaded: TypeError"),
        ("def make(s): raise ValueError('two\\nlines')\n", "it cannot be loaded: ValueError: two lines"),
        ("def make(s): return None\n", "it returned no allocator: NoneType has no method 'allocate'"),
        (_CLASS.replace("'odd'", "'llvm'").format(body="..."), "its 'name' is 'llvm', not 'odd'"),
        (_CLASS.replace("'1'", "1").format(body="..."), "its 'version' is 1, not a text"),
    ],
)
def test_what_is_no_allocator_is_said_in_one_error(installed: Callable[..., None], code: str, fault: str) -> None:
    installed("odd", code)
    with pytest.raises(InputError) as raised:
        allocator("odd")
    assert raised.value.what.startswith(f"the allocator 'odd' of somebody 1.0: {fault}")
    assert (raised.value.where, "\n" in raised.value.what) == ("somebody:make", False)
    assert "somebody 1.0" in raised.value.hint
    # One bad package is no reason for the doctor not to go on, nor for the others not to be named.
    done = CliRunner().invoke(doctor_command, [], standalone_mode=False)
    assert f"absent   --allocator=odd: the allocator 'odd' of somebody 1.0: {fault}" in done.output
    assert "odd" in allocator_names()


def test_its_own_error_is_shown_as_it_is(installed: Callable[..., None]) -> None:
    installed(
        "odd",
        "from verilocc_mlir.errors import UnsupportedError\n"
        "def make(s): raise UnsupportedError('it needs a licence', hint='buy one')\n",
    )
    with pytest.raises(UnsupportedError, match="it needs a licence"):
        allocator("odd")


NONSENSE = [
    ("return 7", "it gave no Proposal: int"),
    ("return 1 / 0", "a defect of the allocator: ZeroDivisionError at somebody.py:3"),
    (
        "from verilocc_mlir.problem.model import Proposal; return Proposal(1, '', ('vgpr0',))",
        "the proposal has 1 registers",
    ),
]


@pytest.mark.parametrize(("body", "reason"), few(NONSENSE[:1], NONSENSE))
def test_a_nonsensical_answer_ends_its_attempt_alone(
    installed: Callable[..., None], demo_kernels: Path, body: str, reason: str
) -> None:
    from verilocc_mlir.pipeline.compile import compile_module

    installed("odd", _CLASS.format(body=body))
    path = next(demo_kernels.glob("*gfx942*.ll"))
    compiled = compile_module(path.read_bytes(), path.name, Settings(cpu="gfx942", allocator="odd"))
    (function,) = compiled.report.functions
    for phase in function.phases:
        assert [attempt.allocator for attempt in phase.attempts] == ["odd", "llvm"]
        assert reason in phase.attempts[0].reason
    assert compiled.report.outcome.value == "proved"


@pytest.mark.parametrize("name", ["deterministic", "exact", "model", "llvm"])
def test_a_name_of_this_project_is_not_taken_over(installed: Callable[..., None], name: str) -> None:
    installed(name, "raise AssertionError('asked')\n")
    done = CliRunner().invoke(doctor_command, [], standalone_mode=False)
    assert f"absent   --allocator={name}: somebody 1.0, somebody:make: never asked, the name is taken" in done.output
    assert allocator("deterministic").name == "deterministic"


def test_two_packages_with_one_name(installed: Callable[..., None]) -> None:
    installed("odd", "", module="one")
    installed("odd", "", module="two")
    with pytest.raises(InputError, match=r"one 1\.0 and two 1\.0 each have an allocator called 'odd'"):
        allocator("odd")


def test_its_sources_are_in_the_cache_s_key(installed: Callable[..., None], tmp_path: Path) -> None:
    installed("odd", _CLASS.format(body="return 1"))
    settings, toolchain = Settings(cpu="gfx942", allocator="odd"), find_toolchain(None)
    first = Keys(settings, toolchain).of("0" * 64)
    assert Keys(settings, toolchain).of("0" * 64) == first
    (tmp_path / "somebody" / "somebody.py").write_text(_CLASS.format(body="return 2"))
    assert Keys(settings, toolchain).of("0" * 64) != first
