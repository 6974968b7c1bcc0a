"""The pages: every link leads somewhere, every page can be reached from docs/index.md, and both are in the packages."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from checker_support import builds_the_second_checker
from markdown_it import MarkdownIt
from markdown_it.token import Token
from support import REPOSITORY as ROOT

from smt_verifier.checker import COMPILED

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ROOT_PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
FOLDERS = ("verilocc_mlir", "smt_verifier", "model", "tests", "benchmarks", "examples", "proto", "scripts", "docs")
PACKAGES = [
    *(f"verilocc_mlir.{path.parent.name}" for path in (ROOT / "verilocc_mlir").glob("*/__init__.py")),
    *(f"smt_verifier.{path.parent.name}" for path in (ROOT / "smt_verifier").glob("*/__init__.py")),
    "verilocc_model",
]


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def targets(page: Path) -> Iterator[str]:
    """What a page links to and the pictures that it shows."""
    for block in tokens(page):
        for token in block.children or ():
            target = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
            if target is not None:
                yield unquote(str(target))


def local_targets(page: Path) -> Iterator[tuple[Path, str]]:
    """Files in this project that a page links to, each with the anchor in it or an empty text."""
    for target in targets(page):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, spelt as hosts of git repositories and the site do."""
    blocks = tokens(page)
    titles = [blocks[i + 1] for i, block in enumerate(blocks) if block.type == "heading_open"]
    texts = ["".join(t.content for t in title.children or () if t.type in ("text", "code_inline")) for title in titles]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [
        f"{file.relative_to(ROOT)}#{anchor}"
        for file, anchor in local_targets(page)
        if not file.exists() or (anchor and anchor not in anchors(file))
    ]
    assert missing == []


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths from the root, and Python files by the end of their path: ``core/judge.py``, ``tests/test_ray_*.py``."""
    spans = {t.content.rstrip("/") for block in tokens(page) for t in block.children or () if t.type == "code_inline"}
    paths = {span for span in spans if "NAME" not in span and re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./*-]+", span)}
    modules = {span for span in spans - paths if re.fullmatch(r"[\w/*]+\.py", span)}
    missing = {path for path in paths if not any(ROOT.glob(path))}
    missing |= {module for module in modules if not any(any((ROOT / folder).rglob(module)) for folder in FOLDERS)}
    assert sorted(missing) == []


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.exists():
            reached.add(page)
            waiting += [file for file, _ in local_targets(page) if file.suffix == ".md"]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_the_readme_is_short_and_has_three_doors() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert {"**compile**", "**integrate**", "**audit**"} <= set(re.findall(r"\*\*\w+\*\*", text))


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_a_page_of_design_and_of_its_api(package: str) -> None:
    """A new package needs a row in docs/design/index.md, and docs/api/NAME.md like those beside it."""
    assert f"| `{package}` |" in (DOCS / "design" / "index.md").read_text()
    assert f"::: {package}\n" in (DOCS / "api" / f"{package.rpartition('.')[2]}.md").read_text()


@pytest.mark.long
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "parse_mir" in (tmp_path / "site" / "api" / "mir.html").read_text()


@pytest.mark.long
def test_the_wheel_has_the_contract_and_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the development extra is not installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    protos = {path.name for path in (ROOT / "proto").rglob("*.proto")}
    assert {
        name.rpartition("/")[2] for name in names if name.startswith("verilocc/v1/") and name.endswith(".proto")
    } == protos
    if builds_the_second_checker():
        assert {"smt_verifier/bin/verilocc-check", "smt_verifier/bin/verilocc-certify"} <= set(names)
    if COMPILED is not None:
        assert any(name.startswith(f"smt_verifier/bin/compiled/{COMPILED.name}/") for name in names)
    pages = {name.partition("/share/doc/verilocc-mlir/")[2] for name in names if name.endswith(".md")}
    assert {str(page.relative_to(DOCS)) for page in PAGES} <= pages
