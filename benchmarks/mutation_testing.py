"""Mutation testing of the verifier itself: small faults put into ``smt_verifier``, and whether the tests notice.

    .venv/bin/python benchmarks/mutation_testing.py --sample 300 [--seed 0] [--only prove] [--out FILE.json]
    .venv/bin/python benchmarks/mutation_testing.py --list          how many mutants there are, by module
    .venv/bin/python benchmarks/mutation_testing.py --show ID        the difference that a mutant makes

A mutant changes one place of one module: a comparison, a Boolean or arithmetic operator, a constant, a condition, a
returned value, or a statement left out. Messages (strings with a blank), docstrings, annotations, decorators and
``__all__`` are left alone. The sample is drawn in proportion to the modules' mutants, three a module at least.

Each mutant is written into a copy of the tree, and the tests of its package run there in a fork of a process that has
loaded everything else, up to the first failure. ``killed``: a test failed. ``timeout``: they took five times as long as
without a mutant; counted as killed. ``survived``: all passed. Results are appended to the JSON-lines file beside
``--out`` as they come, so a run can be stopped and goes on where it was.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Log, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results" / "mutation_testing.json"

TESTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "audit": (
        ("audit/test_masks.py", "audit/test_mutations.py", "audit/test_explain.py"),
        ("audit/test_artefacts.py", "audit/test_llvm.py", "audit/test_claims.py"),
    ),
    "prove": (
        ("prove/test_rules.py", "prove/test_classes.py"),
        ("prove/test_random.py",),
        ("prove/test_diagnosis.py",),
    ),
    "smt": (("smt/test_solver.py", "smt/test_outcome.py"), ("smt/test_processes.py",)),
    "smt_verifier": (("smt/test_outcome.py", "audit/test_artefacts.py"),),
}
"""Test files by package, quick ones first; a mutant that survives one stage goes to the next."""

PRELOAD = (
    "pytest", "hypothesis", "jsonschema", "click", "verilocc_mlir.mir.parser", "verilocc_mlir.problem.build",
    "verilocc_mlir.allocators", "verilocc_mlir.target.reserved", "verilocc_mlir.toolchain.find",
)  # fmt: skip

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the ``variant``-th of the ``node``-th node (``ast.walk``) of a module."""

    module: str
    node: int
    variant: int
    line: int
    change: str

    @property
    def id(self) -> str:
        """Stable for one text of the module."""
        return f"{self.module}:{self.node}.{self.variant}"


def modules() -> list[Path]:
    """The verifier's modules that hold code."""
    found = sorted((REPOSITORY / "smt_verifier").rglob("*.py"))
    return [path for path in found if path.stat().st_size > 200]


def variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each change of one node: a description, and the node in its place (of the same kind of syntax)."""
    if isinstance(node, ast.Compare):
        for k, op in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[k] = _COMPARISONS[type(op)]()
            yield f"{type(op).__name__} to {type(changed.ops[k]).__name__}", changed
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{type(node.op).__name__} to {type(other).__name__}", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        other_op = _ARITHMETIC[type(node.op)]()
        yield f"{type(node.op).__name__} to {type(other_op).__name__}", ast.BinOp(node.left, other_op, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not left out", node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
        elif isinstance(node.value, int):
            yield f"{node.value} to {node.value + 1}", ast.Constant(node.value + 1)
        elif isinstance(node.value, str) and node.value and " " not in node.value:
            yield f"{node.value!r} changed", ast.Constant(f"XX{node.value}")
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        for value in (True, False):
            if isinstance(node, ast.While) and value:
                continue
            changed_test = copy.deepcopy(node)
            changed_test.test = ast.Constant(value)
            yield f"condition always {value}", changed_test
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Continue):
        yield "continue to break", ast.Break()
    elif isinstance(node, ast.Assign | ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "statement left out", ast.Pass()
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield "filter left out", ast.comprehension(node.target, node.iter, [], node.is_async)


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(path.read_text())
    module = str(path.relative_to(REPOSITORY))
    skipped = _skipped(tree)
    found: list[Mutant] = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        line = getattr(node, "lineno", 0) or getattr(getattr(node, "iter", None), "lineno", 0)
        for variant, (change, _) in enumerate(variants(node)):
            found.append(Mutant(module, number, variant, line, change))
    return found


def mutated(mutant: Mutant) -> str:
    """The module's text with the mutant in it."""
    tree = ast.parse((REPOSITORY / mutant.module).read_text())
    nodes = list(ast.walk(tree))
    old = nodes[mutant.node]
    new = list(variants(old))[mutant.variant][1]
    for parent in nodes:
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is old for item in value):  # pyright: ignore[reportUnknownVariableType]
                setattr(parent, name, [new if item is old else item for item in value])  # pyright: ignore[reportUnknownVariableType]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _skipped(tree: ast.Module) -> set[int]:
    """Nodes that no mutant touches: docstrings, annotations, decorators, f-strings, ``__all__``, type aliases."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            roots += [*node.decorator_list, node.returns]
        elif isinstance(node, ast.ClassDef):
            roots += node.decorator_list
        elif isinstance(node, ast.arg | ast.AnnAssign):
            roots.append(node.annotation)
        elif isinstance(node, ast.JoinedStr):
            roots += [value for value in node.values if isinstance(value, ast.Constant)]
            roots += [value.format_spec for value in node.values if isinstance(value, ast.FormattedValue)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            roots.append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            names_a_type = isinstance(value, ast.Subscript) or (
                isinstance(value, ast.Call) and "TypeVar" in ast.dump(value.func)
            )
            if node.targets[0].id == "__all__" or (names_a_type and node.col_offset == 0):
                roots.append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
            roots.append(node.args[0])
    return {id(node) for root in roots if root is not None for node in ast.walk(root)}


def draw(count: int, seed: int, only: str) -> list[Mutant]:
    """A sample: in proportion to the modules' mutants, three of each at least, in random order."""
    chance = random.Random(seed)
    by_module = {path: mutants_of(path) for path in modules() if only in str(path.relative_to(REPOSITORY))}
    total = sum(map(len, by_module.values()))
    chosen: list[Mutant] = []
    for found in by_module.values():
        wanted = min(len(found), max(3, round(count * len(found) / max(1, total))))
        chosen += chance.sample(found, wanted)
    chance.shuffle(chosen)
    return chosen


def package(module: str) -> str:
    """Key of ``TESTS``."""
    parts = module.split("/")
    return parts[1] if len(parts) > 2 else parts[0]


class Runner:
    """A copy of the tree, and forks that run tests in it."""

    def __init__(self) -> None:
        self.copy = Path(tempfile.mkdtemp(prefix="verilocc-mutants-"))
        for name in ("smt_verifier", "verilocc_mlir", "tests", "examples", "pyproject.toml"):
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, self.copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self.copy / name)
        (REPOSITORY / ".pytest_cache").mkdir(exist_ok=True)
        (self.copy / ".pytest_cache").symlink_to(REPOSITORY / ".pytest_cache")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ.setdefault("VERILOCC_KERNELS", str(REPOSITORY.parent / "shared" / "kernels"))
        sys.dont_write_bytecode = True
        sys.path = [
            str(self.copy),
            str(self.copy / "tests"),
            *(p for p in sys.path if p not in ("", str(REPOSITORY), str(REPOSITORY / "benchmarks"))),
        ]
        for name in PRELOAD:
            importlib.import_module(name)
        self.baseline: dict[tuple[str, ...], float] = {}

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.copy, ignore_errors=True)

    def run(self, files: tuple[str, ...], limit: float) -> tuple[str, str, float]:
        """``passed``, ``failed`` or ``timeout``; the test that failed; CPU seconds."""
        report = self.copy / "report.txt"
        report.unlink(missing_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            self._in_child(files, report, int(limit))
        _, status = os.waitpid(child, 0)
        _end_group(child)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        code = os.waitstatus_to_exitcode(status)
        failed = report.read_text() if report.exists() else ""
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            return "timeout", failed, spent
        return ("passed" if code == 0 else "failed"), failed, spent

    def _in_child(self, files: tuple[str, ...], report: Path, limit: int) -> None:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        signal.alarm(30 * limit)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        os.chdir(self.copy)
        code = 1
        try:
            import pytest

            class Note:
                def pytest_runtest_logreport(self, report: Any, path: Path = report) -> None:
                    if report.failed:
                        path.write_text(report.nodeid)

            paths = [f"tests/{name}" for name in files if (self.copy / "tests" / name).exists()]
            options = ["-x", "-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
            code = int(pytest.main([*options, *paths], plugins=[Note()]))
        finally:
            os._exit(code)

    def judge(self, mutant: Mutant) -> dict[str, Any]:
        """Run the stages of a mutant."""
        target = self.copy / mutant.module
        original = target.read_text()
        row: dict[str, Any] = {"id": mutant.id, "line": mutant.line, "change": mutant.change, "verdict": "survived"}
        start = time.monotonic()
        spent = 0.0
        try:
            target.write_text(mutated(mutant))
            for files in TESTS[package(mutant.module)]:
                if files not in self.baseline:
                    target.write_text(original)
                    said, failed, seconds = self.run(files, 1000)
                    if said != "passed":
                        raise SystemExit(f"without a mutant: {said} {failed}")
                    self.baseline[files] = seconds
                    target.write_text(mutated(mutant))
                said, failed, seconds = self.run(files, 5 + 5 * self.baseline[files])
                spent += seconds
                if said != "passed":
                    row |= {"verdict": "killed" if said == "failed" else "timeout", "by": failed}
                    break
        finally:
            target.write_text(original)
        return row | {"cpu_seconds": round(spent, 1), "seconds": round(time.monotonic() - start, 1)}


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def record(rows: list[dict[str, Any]], sample: list[Mutant], arguments: argparse.Namespace) -> dict[str, Any]:
    """The results as written."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row["id"].partition(":")[0], Counter())[row["verdict"]] += 1
    everything = {str(path.relative_to(REPOSITORY)): len(mutants_of(path)) for path in modules()}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    verdicts = Counter(row["verdict"] for row in rows)
    return {
        "commit": commit.stdout.strip(),
        "seed": arguments.seed,
        "mutants": sum(everything.values()),
        "sampled": len(sample),
        "run": len(rows),
        "verdicts": dict(verdicts),
        "cpu_seconds": round(sum(row["cpu_seconds"] for row in rows)),
        "modules": {
            module: {"mutants": everything.get(module, 0), **dict(count)} for module, count in sorted(counts.items())
        },
        "survivors": sorted((row for row in rows if row["verdict"] == "survived"), key=lambda row: row["id"]),
    }


def main() -> int:
    """See the module."""
    parser = options(__doc__, RESULTS.name)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a module's path")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", default="", metavar="ID")
    arguments = parser.parse_args()
    if arguments.list:
        for path in modules():
            print(f"{len(mutants_of(path)):6} {path.relative_to(REPOSITORY)}")
        return 0
    if arguments.show:
        mutant = next(m for path in modules() for m in mutants_of(path) if m.id == arguments.show)
        plain = ast.unparse(ast.parse((REPOSITORY / mutant.module).read_text()))
        changed = mutated(mutant)
        print("\n".join(difflib.unified_diff(plain.splitlines(), changed.splitlines(), lineterm="", n=4)))
        return 0
    sample = draw(arguments.sample, arguments.seed, arguments.only)
    log = Log(arguments.out.with_suffix(".jsonl"))
    rows = list(log.rows())
    done = {row["id"] for row in rows}
    runner = Runner()
    start = time.monotonic()
    try:
        for number, mutant in enumerate(sample):
            if mutant.id in done:
                continue
            if time.monotonic() - start > arguments.seconds:
                break
            row = runner.judge(mutant)
            rows.append(row)
            log.add(row)
            head = f"{number + 1}/{len(sample)} {row['verdict']:8} {row['cpu_seconds']:6}"
            print(f"{head} {mutant.id}:{mutant.line} {mutant.change}", flush=True)
    finally:
        runner.close()
    write(arguments.out, record(rows, sample, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
