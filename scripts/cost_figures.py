"""Write the table of the cost model's figures, each with its source, into docs/design/cost.md."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from verilocc_mlir.cost import accesses, compare, counting, simulate
from verilocc_mlir.cost.rates import RULES, Figure, Source, figures
from verilocc_mlir.target.targets import TARGETS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "design" / "cost.md"
_PLACE = re.compile(r"(?<=<!-- figures: scripts/cost_figures.py -->\n).*?(?=<!-- end -->)", re.DOTALL)

_MODULES = (simulate, accesses, counting, compare)
_FIRST = {t.speed_model: n for n, t in reversed(TARGETS.items())}.values()
"""The first target of each scheduling model: the others have its figures (tests/cost/test_sources.py)."""
_SHOWN = {n: t for n, t in TARGETS.items() if n in _FIRST}
_WAVES = {tuple(n for n, t in _SHOWN.items() if t.wave_size == size): f"wave{size}" for size in (32, 64)}


def table() -> str:
    """Figures by target, with the numbers of their sources; figures of all targets; rules."""
    by_target = {name: figures(target) for name, target in _SHOWN.items()}
    numbers: dict[str, int] = {}
    lines = [*_heading("figure", *by_target, "source")]
    for name in next(iter(by_target.values())):
        lines.append(_row(f"`{name}`", *_cells({cpu: given[name] for cpu, given in by_target.items()}, numbers)))
    sources = "; ".join(f"({number}) {detail}" for detail, number in numbers.items())
    lines += ["", *textwrap.wrap(f"Sources: {sources}.", 160, break_long_words=False, break_on_hyphens=False)]
    lines += ["", *_heading("figure of all targets", "value", "source")]
    for name, figure in (item for module in _MODULES for item in module.FIGURES.items()):
        lines.append(_row(name, str(figure.value), _words(figure.source)))
    lines += ["", *_heading("rule with figures of its own", "source")]
    ruled: dict[Source, list[str]] = {}
    for name, source in sorted(RULES.items()):
        ruled.setdefault(source, []).append(f"`{name}`")
    lines += [_row(", ".join(names), _words(source)) for source, names in ruled.items()]
    return "\n".join(lines) + "\n"


def _cells(by_target: dict[str, Figure], numbers: dict[str, int]) -> Iterator[str]:
    """One value a target, then the sources; several are named by number, and a new one gets the next number."""
    yield from (str(figure.value) for figure in by_target.values())
    sources: dict[Source, list[str]] = {}
    for cpu, figure in by_target.items():
        sources.setdefault(figure.source, []).append(cpu)
    if len(sources) == 1:
        yield _words(*sources)
    else:
        yield "; ".join(
            f"{_WAVES.get(tuple(cpus)) or ', '.join(cpus)} **{source.origin.value}** "
            f"({numbers.setdefault(source.detail, len(numbers) + 1)})"
            for source, cpus in sources.items()
        )


def _words(source: Source) -> str:
    return f"**{source.origin.value}**: {source.detail}"


def _heading(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield _row(*["---"] * len(cells))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str) -> str:
    """The page with the table as it is now."""
    return _PLACE.sub(lambda _: table(), text, count=1)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
