"""The import contracts of pyproject.toml: they hold, each seeded arrow breaks its own, and no string goes past them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, few

PACKAGES = {"verilocc_mlir": "verilocc_mlir", "smt_verifier": "smt_verifier", "verilocc_model": "model/verilocc_model"}
LAYERS = "layers of the compiler"
VERIFIER = "the verifier shares nothing with what it verifies"
CORE = "what decides a verdict imports nothing that does not"
SECRET = "what is verified does not know the verifier"
LATE = "loaded when they are"


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed: make test installs it")
    return subprocess.run(
        [str(tool), "--no-cache", "--config", "pyproject.toml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{directory / 'model'}"},
    )


def broken(directory: Path) -> set[str]:
    """Names of the contracts that are broken."""
    done = lint_imports(directory)
    names = set(re.findall(r"^(\S.*) BROKEN", done.stdout, re.MULTILINE))
    assert bool(names) == bool(done.returncode), done.stdout + done.stderr
    return names


@pytest.fixture(scope="module", name="tree")
def _tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their configuration, to be broken on purpose and mended again."""
    directory = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", "*.dat", "weights")
    for package in PACKAGES.values():
        shutil.copytree(REPOSITORY / package, directory / package, ignore=ignore)
    (directory / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "import_contracts.py", directory / "scripts")
    shutil.copy(REPOSITORY / "pyproject.toml", directory)
    return directory


def test_the_contracts_hold() -> None:
    assert broken(REPOSITORY) == set()


def test_the_copy_is_whole(tree: Path) -> None:
    assert broken(tree) == set()


ARROWS = [
    # The five that came through when every contract was a list of what is forbidden.
    ("verilocc_mlir/errors.py", "import verilocc_mlir.store", LAYERS),
    ("verilocc_mlir/mir/model.py", "import verilocc_mlir.store", LAYERS),
    ("verilocc_mlir/analysis/cfg.py", "import verilocc_mlir.spilling.plan", LAYERS),
    ("smt_verifier/audit/core/check.py", "import verilocc_mlir.spilling.plan", VERIFIER),
    ("smt_verifier/audit/core/check.py", "import verilocc_mlir.cost.model", VERIFIER),
    # The trusted core, and what it stands on.
    ("smt_verifier/audit/core/check.py", "import smt_verifier.audit.explain", CORE),
    ("smt_verifier/audit/core/product.py", "import smt_verifier.audit.infer", CORE),
    ("smt_verifier/audit/core/judge.py", "import smt_verifier.prove.prover", CORE),
    ("smt_verifier/audit/core/judge.py", "import smt_verifier.artefacts", CORE),
    ("smt_verifier/audit/core/machine.py", "import verilocc_mlir.problem.model", CORE),
    ("smt_verifier/audit/core/rules.py", "from verilocc_mlir.analysis import liveness", VERIFIER),
    ("smt_verifier/smt/solver.py", "import smt_verifier.audit", "layers of the verifier"),
    ("smt_verifier/outcome.py", "import smt_verifier.smt", "layers of the verifier"),
    ("verilocc_mlir/mir/model.py", "import verilocc_mlir.target.targets", LAYERS),
    ("verilocc_mlir/target/targets.py", "import verilocc_mlir.analysis.cfg", LAYERS),
    ("verilocc_mlir/errors.py", "import verilocc_mlir.mir.model", LAYERS),
    # The verifier, and who may know it.
    ("smt_verifier/outcome.py", "import verilocc_mlir.analysis", VERIFIER),
    ("smt_verifier/prove/prover.py", "import verilocc_mlir.problem.build", VERIFIER),
    ("smt_verifier/prove/prover.py", "import verilocc_mlir.allocators", VERIFIER),
    ("smt_verifier/prove/forms.py", "import verilocc_mlir.results.compile", VERIFIER),
    ("smt_verifier/recheck.py", "import verilocc_model.encoding.table", VERIFIER),
    ("verilocc_mlir/spilling/plan.py", "import smt_verifier.outcome", SECRET),
    ("verilocc_mlir/allocators/search.py", "import smt_verifier.prove", SECRET),
    ("verilocc_mlir/cost/model.py", "import smt_verifier.outcome", SECRET),
    ("smt_verifier/outcome.py", "import z3", LATE),
    # Layers.
    ("verilocc_mlir/problem/build.py", "import verilocc_mlir.allocators", LAYERS),
    ("verilocc_mlir/spilling/plan.py", "import verilocc_mlir.allocators", LAYERS),
    ("verilocc_mlir/allocators/search.py", "import verilocc_mlir.remote.client", LAYERS),
    ("verilocc_mlir/results/compile.py", "import verilocc_mlir.pipeline.settings", LAYERS),
    ("verilocc_mlir/results/compile.py", "import verilocc_mlir.report.text", LAYERS),
    ("verilocc_mlir/pipeline/recording.py", "import verilocc_mlir.report.page.html", LAYERS),
    ("verilocc_mlir/pipeline/settings.py", "import verilocc_mlir.cli", LAYERS),
    ("verilocc_mlir/pipeline/settings.py", "import verilocc_mlir.service.jobs", LAYERS),
    ("verilocc_mlir/remote/client.py", "import verilocc_mlir.service.jobs", LAYERS),
    ("verilocc_mlir/hooks/iree_result.py", "import verilocc_mlir.service.jobs", LAYERS),
    ("verilocc_mlir/service/jobs.py", "import verilocc_mlir.hooks.torch", LAYERS),
    ("verilocc_mlir/hooks/iree_result.py", "import verilocc_mlir.cli", LAYERS),
    ("verilocc_mlir/mir/model.py", "import verilocc_mlir", LAYERS),
    # What the layers cannot say.
    ("verilocc_mlir/problem/model.py", "import verilocc_mlir.errors", "problem.model is plain data"),
    ("verilocc_mlir/allocators/search.py", "import verilocc_mlir.mir.model", "allocators see the problem"),
    ("verilocc_mlir/rewrite/function.py", "import verilocc_mlir.problem.build", "rewrite takes the problem"),
    ("verilocc_mlir/banks.py", "import verilocc_mlir.analysis.lanes", "banks imports mir and target only"),
    ("verilocc_mlir/cost/model.py", "import verilocc_mlir.toolchain.run", "only cost.read drives tools"),
    ("verilocc_mlir/cost/counting.py", "import verilocc_mlir.problem.model", "cost is a model of text"),
    ("verilocc_mlir/toolchain/run.py", "import verilocc_mlir.target.targets", "tools know files"),
    ("verilocc_mlir/measure/runner.py", "import verilocc_mlir.cost.model", "a measurement knows codes"),
    ("verilocc_mlir/measure/runner.py", "import verilocc_mlir.pipeline.settings", "a measurement knows codes"),
    ("verilocc_mlir/pipeline/settings.py", "import verilocc_mlir.measure.runner", LAYERS),
    ("verilocc_mlir/store.py", "import verilocc_mlir.mir.model", "store and files keep bytes"),
    (
        "verilocc_mlir/remote/client.py",
        "import verilocc_mlir.problem.build\nimport verilocc_mlir.mir",
        "the client",
    ),
    ("verilocc_mlir/report/text.py", "import verilocc_mlir.allocators", "a report draws results"),
    ("verilocc_mlir/explain/why.py", "import verilocc_mlir.toolchain.run", "explain reads texts and results"),
    ("verilocc_mlir/pipeline/recording.py", "import jinja2", "pages are drawn by report"),
    ("verilocc_mlir/pipeline/compile.py", "import grpc", "speak gRPC"),
    ("verilocc_mlir/pipeline/batch/run.py", "import verilocc_mlir.pipeline.batch.executors", "a batch knows"),
    ("verilocc_mlir/pipeline/batch/run.py", "import ray", "Ray is loaded by the deployment"),
    ("verilocc_mlir/allocators/exact/frame.py", "import ortools", LATE),
    ("verilocc_mlir/hooks/iree_result.py", "import torch", LATE),
    ("verilocc_mlir/pipeline/phase.py", "import verilocc_model", "nothing of the compiler but its command line"),
    ("model/verilocc_model/encoding/table.py", "import torch", "encoding and decoding load no language model"),
    ("model/verilocc_model/encoding/table.py", "import smt_verifier.prove", "encoding and decoding need neither"),
    ("model/verilocc_model/corpus/stream.py", "import verilocc_mlir.cli", "the corpus loads front ends"),
]
"""A module, the lines added to it, and the contract that they break."""


class _Prepared:
    """Gives import-linter a graph that is there already."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def build(self, **_: Any) -> Any:
        return self.graph


class _Linter:
    """import-linter in this process, on the import graph of the repository."""

    def __init__(self) -> None:
        import_module("importlinter.configuration").configure()
        self._settings = import_module("importlinter.application.app_config").settings
        self._use_cases = import_module("importlinter.application.use_cases")
        self.graph = self._settings.GRAPH_BUILDER.build([*PACKAGES], None, include_external_packages=True)
        configuration = str(REPOSITORY / "pyproject.toml")
        self._options = self._use_cases.read_user_options(configuration)
        # Registers the types of the contracts too.
        assert self._use_cases.lint_imports(configuration, cache_dir=None)

    def broken(self, graph: Any, name: str) -> set[str]:
        """Names of the contracts with this name in theirs that are broken by a graph."""
        self._settings.configure(GRAPH_BUILDER=_Prepared(graph))
        options = copy(self._options)
        options.contracts_options = [each for each in options.contracts_options if name in each["name"]]
        report = self._use_cases.create_report(options, cache_dir=None)
        return {contract.name for contract, check in report.get_contracts_and_checks() if not check.kept}


@pytest.fixture(scope="module")
def linter() -> _Linter:
    pytest.importorskip("importlinter", reason="import-linter is not installed: make test installs it")
    return _Linter()


def imported_modules(lines: str) -> Iterator[str]:
    """What import statements of whole modules import."""
    for node in ast.parse(lines).body:
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(("module", "lines", "contract"), ARROWS)
def test_a_seeded_arrow_breaks_its_contract(linter: _Linter, module: str, lines: str, contract: str) -> None:
    importer = ".".join(Path(module).with_suffix("").parts).removeprefix("model.")
    seeded = deepcopy(linter.graph)
    assert importer in seeded.modules
    for imported in imported_modules(lines):
        if imported.partition(".")[0] in PACKAGES:
            assert imported in seeded.modules
        elif imported not in seeded.modules:
            seeded.add_module(imported, is_squashed=True)
        seeded.add_import(importer=importer, imported=imported)
    assert linter.broken(seeded, contract)


@pytest.mark.long
@pytest.mark.parametrize(("module", "lines", "contract"), ARROWS)
def test_a_seeded_line_breaks_its_contract(tree: Path, module: str, lines: str, contract: str) -> None:
    path = tree / module
    whole = path.read_text()
    path.write_text(f"{whole}\n{lines}\n")
    try:
        names = broken(tree)
    finally:
        path.write_text(whole)
    assert any(contract in name for name in names), names


NEW_PACKAGES = [
    ("verilocc_mlir/novelty", None, LAYERS),
    ("smt_verifier/novelty", None, "layers of the verifier"),
    ("verilocc_mlir/novelty", "smt_verifier/prove/prover.py", VERIFIER),
    ("verilocc_mlir/novelty", "verilocc_mlir/allocators/search.py", "allocators see the problem"),
    ("smt_verifier/audit/novelty", "smt_verifier/audit/core/check.py", CORE),
]


@pytest.mark.parametrize(("package", "user", "contract"), few([NEW_PACKAGES[0], NEW_PACKAGES[-1]], NEW_PACKAGES))
def test_a_new_package_is_refused_until_it_is_listed(tree: Path, package: str, user: str | None, contract: str) -> None:
    (tree / package).mkdir()
    (tree / package / "__init__.py").touch()
    path = tree / (user or "verilocc_mlir/version.py")
    whole = path.read_text()
    if user:
        path.write_text(f"{whole}\nimport {package.replace('/', '.')}\n")
    try:
        names = broken(tree)
    finally:
        shutil.rmtree(tree / package)
        path.write_text(whole)
    assert any(contract in name for name in names), names


# Arrows that are strings.

OURS = re.compile(r"\b(?:verilocc_mlir|smt_verifier|verilocc_model)\b(?:\.[a-z_]\w*)*")
LOADERS = {"import_module", "__import__", "find_spec", "spec_from_file_location", "run_module", "run_path"}


@lru_cache(maxsize=1)
def _modules() -> tuple[tuple[str, tuple[ast.AST, ...]], ...]:
    """The nodes of each module that may hold what is looked for."""
    return tuple((module, tuple(ast.walk(tree))) for module, tree in _parsed())


def _parsed() -> Iterator[tuple[str, ast.Module]]:
    for package, place in PACKAGES.items():
        for path in sorted((REPOSITORY / place).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / place).with_suffix("").parts
            text = path.read_text()
            if _may_name(text):
                yield ".".join((package, *parts)).removesuffix(".__init__"), ast.parse(text)


def _may_name(text: str) -> bool:
    """Whether a module has anything beside plain imports that these tests look for. To parse all of them takes long."""
    beside = re.sub(r"^ *(?:import|from) .*$", "", text, flags=re.MULTILINE)
    return "-m" in beside or any(word in beside for word in LOADERS) or OURS.search(beside) is not None


def _called(call: ast.Call) -> str:
    """``a.b`` for ``a.b(…)``; what is called otherwise has no name here."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return f"{function.value.id if isinstance(function.value, ast.Name) else ''}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _prose(nodes: Iterable[ast.AST]) -> set[ast.AST]:
    """Strings that load nothing: docstrings, names of loggers, and what errors and help say."""
    prose: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.add(node.value)
        elif isinstance(node, ast.Call) and _called(node) in ("logging.getLogger", "SystemExit"):
            prose.update(node.args)
    return prose


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    """Modules of ours that strings name; what follows the module in ``module.attribute`` is cut off."""
    prose = _prose(nodes)
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and n not in prose]
    return {_module(name) for text in texts if isinstance(text, str) for name in OURS.findall(text)}


def _module(name: str) -> str:
    while "." in name and not _is_module(name):
        name = name.rpartition(".")[0]
    return name


def _is_module(name: str) -> bool:
    package, *rest = name.split(".")
    path = REPOSITORY.joinpath(PACKAGES[package], *rest)
    return path.is_dir() or path.with_suffix(".py").is_file()


def _own(module: str) -> str:
    """The package of the layers that a module is in: a name within it evades no contract."""
    return ".".join(module.split(".")[:2])


def _configured() -> dict[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return toml.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["verilocc"]


def test_names_in_strings_are_the_listed_ones() -> None:
    named = {
        module: sorted(n for n in _names(nodes) if ("." in n and _own(n) != _own(module)) or n == "verilocc_model")
        for module, nodes in _modules()
    }
    assert {module: names for module, names in named.items() if names} == _configured()["loaded-by-name"]


def test_modules_that_load_what_they_compute_are_the_listed_ones() -> None:
    computing = {
        module
        for module, nodes in _modules()
        for node in nodes
        if isinstance(node, ast.Call)
        and _called(node).rpartition(".")[2] in LOADERS
        and _called(node) != "import_module"  # of torch_import, a function of ours
        and not (node.args and isinstance(node.args[0], ast.Constant))
    }
    listed = [module for modules in _configured()["computed-names"].values() for module in modules]
    assert sorted(computing) == sorted(listed)


def test_nothing_runs_a_module_by_a_flag() -> None:
    """``python -m`` would start what no contract sees."""
    flags = [m for m, nodes in _modules() for n in nodes if isinstance(n, ast.Constant) and n.value == "-m"]
    assert flags == []


def test_only_the_solver_package_loads_z3() -> None:
    loaders = [
        path.relative_to(REPOSITORY)
        for package in ("verilocc_mlir", "smt_verifier")
        for path in (REPOSITORY / package).rglob("*.py")
        if re.search(r"""^\s*(import|from) z3|import_module\(.z3""", path.read_text(), re.MULTILINE)
    ]
    assert loaders
    assert {path.parent for path in loaders} == {Path("smt_verifier/smt")}
