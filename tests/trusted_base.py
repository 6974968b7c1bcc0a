"""What decides a verdict of the audit: the two checkers; and the core of the search, with all that it imports."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "smt_verifier" / "audit" / "core"
_OURS = ("smt_verifier", "verilocc_mlir")


def trusted_modules() -> list[str]:
    """Paths from the project's root: the core, the parser whose output it reads, and all that these import."""
    waiting = [*sorted(CORE.glob("*.py")), ROOT / "verilocc_mlir" / "mir" / "parser.py"]
    reached: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += imported(path)
    return sorted(str(path.relative_to(ROOT)) for path in reached)


def imported(path: Path) -> list[Path]:
    """Files of this project that a module imports, wherever in it the import stands, and their packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    files: list[Path] = []
    for name in names:
        if name.split(".")[0] in _OURS:
            place = ROOT / name.replace(".", "/")
            files += [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()]
    return files


def lines_of_code(path: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    text = path.read_text()
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - strings)


def rust_lines(path: Path) -> int:
    """Lines of a Rust file that hold code, its tests left out."""
    lines = path.read_text().partition("#[cfg(test)]")[0].splitlines()
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("//"))


def checkers() -> str:
    """The table of the two checkers: modules and lines of code of each."""
    rows = ["| checker | modules | lines of code |", "|---|---|---|"]
    for name, files, count in (
        ("smt_verifier/checker", (ROOT / "smt_verifier" / "checker").glob("*.py"), lines_of_code),
        ("smt_verifier/second", (ROOT / "smt_verifier" / "second" / "src").glob("*.rs"), rust_lines),
    ):
        counts = [(path.name, count(path)) for path in sorted(files)]
        listed = ", ".join(f"`{module}` {lines}" for module, lines in counts if lines)
        rows.append(f"| `{name}` | {listed} | {sum(lines for _, lines in counts)} |")
    return "\n".join(rows) + "\n"


def table() -> str:
    """The table of the core: parts, modules and lines of code."""
    parts: dict[str, list[tuple[str, int]]] = {}
    for name in trusted_modules():
        count = lines_of_code(ROOT / name)
        if count:
            parts.setdefault(str(Path(name).parent), []).append((Path(name).name, count))
    rows = ["| part | modules | lines of code |", "|---|---|---|"]
    for part, modules in sorted(parts.items()):
        listed = ", ".join(f"`{name}` {count}" for name, count in modules)
        rows.append(f"| `{part}` | {listed} | {sum(count for _, count in modules)} |")
    rows.append(f"| all | | {sum(count for modules in parts.values() for _, count in modules)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(checkers(), end="\n")
    print(table(), end="")
