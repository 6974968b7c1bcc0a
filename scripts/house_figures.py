#!/usr/bin/env python3
"""What the source tree costs to keep, in figures: lines, modules, imports, caches, parameters, circles, pages.

Generated modules (`_pb2`) are left out. Imports under TYPE_CHECKING count like others: a reader follows them too.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from trusted_base import lines_of_code  # noqa: E402

SOURCES = {"verilocc_mlir": ROOT, "smt_verifier": ROOT, "verilocc_model": ROOT / "model"}
WIDTH = 160
"""Characters of a line of the pages: what is longer counts as more."""
CACHES = {"cache", "lru_cache", "cached_property"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def parameters(self) -> Iterator[tuple[int, str]]:
        for function in self.functions:
            given = function.args
            names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            yield len(names) - (names[:1] in (["self"], ["cls"])), f"{self.name}.{function.name}"

    def imports_inside_functions(self) -> int:
        found = {
            node
            for function in self.functions
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        return len(found)

    def cache_decorators(self) -> int:
        return sum(_name(decorator) in CACHES for function in self.functions for decorator in function.decorator_list)

    def imported(self, known: dict[str, Module]) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.update(
                    whole if (whole := f"{node.module}.{alias.name}") in known else node.module or ""
                    for alias in node.names
                )
        return (names & known.keys()) - {self.name}


def _name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def read_modules() -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for package, folder in SOURCES.items():
        for path in sorted((folder / package).rglob("*.py")):
            if "_pb2" not in path.name:
                name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
                modules[name] = Module(name, path, ast.parse(path.read_bytes()))
    return modules


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One circle after the other; each is cut at its last import before the next is looked for."""
    graph = {module: set(imported) for module, imported in graph.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            found.append(circle)
            graph[circle[1]].discard(circle[0])
        else:
            return found


def main() -> None:
    modules = read_modules()
    graph = {name: module.imported(modules) for name, module in modules.items()}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, imported in graph.items():
        for other in imported:
            importers[other].add(name)
    lines: Counter[str] = Counter()
    for module in modules.values():
        lines[module.name.split(".")[0]] += lines_of_code(module.path)
    for package in SOURCES:
        print(f"{lines[package]:7,} lines of code in {package}")
    print(f"{len(modules):7,} modules")
    print(f"{sum(len(importers[name]) == 1 for name in modules):7,} modules that one other imports")
    print(f"{sum(module.imports_inside_functions() for module in modules.values()):7,} imports inside functions")
    print(f"{sum(module.cache_decorators() for module in modules.values()):7,} cache decorators")
    widest, name = max(found for module in modules.values() for found in module.parameters())
    print(f"{widest:7,} parameters of the widest function, {name}")
    lines = [line for page in (ROOT / "docs").rglob("*.md") for line in page.read_text().splitlines()]
    full = sum(max(1, -(-len(line) // WIDTH)) for line in lines)
    print(f"{len(lines):7,} lines of docs; {full:,}, none of which is longer than {WIDTH} characters")
    rounds = circles(graph)
    print(f"{len(rounds):7,} import circles")
    for circle in rounds:
        print("        ", " -> ".join(reversed(circle)))


if __name__ == "__main__":
    main()
