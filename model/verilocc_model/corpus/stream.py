"""All cells in an order that a seed decides. Every target, source and family comes early; no cell comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from verilocc_model.corpus.cells import SOURCES, TARGETS, Cell
from verilocc_model.corpus.sources import source

_WEIGHTS = {"gemm": 6, "mha": 5, "conv": 1, "softmax": 1, "layernorm": 1, "elementwise": 1}
"""Cells of a family in one round."""

_TRIES = 400
_CDNA_LIMITS = (
    {"amdgpu-waves-per-eu": "2,2"},
    {"amdgpu-waves-per-eu": "4,4"},
    {"amdgpu-waves-per-eu": "6,6"},
    {"amdgpu-num-vgpr": "96"},
    {"amdgpu-agpr-alloc": "0"},
)
_RDNA_LIMITS = (
    {"amdgpu-waves-per-eu": "8,8"},
    {"amdgpu-waves-per-eu": "10,10"},
    {"amdgpu-waves-per-eu": "12,12"},
    {"amdgpu-num-vgpr": "96"},
    {"amdgpu-num-vgpr": "128"},
)
_LIMITED = 0.3
"""Share of the cells with a smaller register budget than the target's."""


def cells(
    seed: int = 0,
    *,
    targets: Sequence[str] = TARGETS,
    sources: Sequence[str] = SOURCES,
    families: Sequence[str] | None = None,
) -> Iterator[Cell]:
    """Different cells, until no pool has a further one; the same for the same arguments.

    Each pool (source, family, target) draws on its own. The draws for two targets begin alike, so that the same
    configurations come for several targets.
    """
    alive = [
        (_pool(seed, name, family, target), _WEIGHTS[family])
        for name in sources
        for target in targets
        for family in source(name).FAMILIES.get(target, ())
        if families is None or family in families
    ]
    while alive:
        remaining: list[tuple[Iterator[Cell], int]] = []
        for pool, weight in alive:
            drawn = [cell for _, cell in zip(range(weight), pool, strict=False)]
            yield from drawn
            if len(drawn) == weight:
                remaining.append((pool, weight))
        alive = remaining


def _pool(seed: int, name: str, family: str, target: str) -> Iterator[Cell]:
    # Each draw has a generator of its own: a draw that is not valid for one target must not shift the others.
    draws = random.Random(f"{seed}/{name}/{family}")
    drawn: set[Cell] = set()
    tries = 0
    while tries < _TRIES:
        tries += 1
        generator = random.Random(draws.getrandbits(64))
        cell = source(name).draw(generator, family, target)
        if cell is None:
            continue
        if generator.random() < _LIMITED:
            limits = generator.choice(_CDNA_LIMITS if target.startswith("gfx9") else _RDNA_LIMITS)
            cell = Cell.of(name, family, target, dict(cell.shape), dict(cell.config), limits)
        if cell in drawn:
            continue
        drawn.add(cell)
        tries = 0
        yield cell
