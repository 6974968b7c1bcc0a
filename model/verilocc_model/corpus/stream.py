"""All cells in an order that a seed decides. Every target, source and family comes early; no cell comes twice."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import MsgspecError, convert

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.store import Store
from verilocc_model.corpus.ir import ir
from verilocc_model.corpus.sources import SOURCES, TARGETS, Cell, source
from verilocc_model.corpus.workers import run

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


# A fixed list of kernels that is kept in the repository: cells, and the SHA-256 of the IR that is made from them.
#
# Form: ``{"version": 1, "made_with": {source: versions}, "kernels": [{"name", "cell", "function", "sha256",
# "instructions", "llvm": {"vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills"}}]}``. ``instructions`` counts the
# machine IR before allocation; ``llvm`` has the registers and spills of a plain llc.


LIST_VERSION = 1
_SECONDS = 600.0


@dataclass(frozen=True)
class Counts:
    """Registers and spills of one kernel, as its code object's metadata has them."""

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int


@dataclass(frozen=True)
class ListedKernel:
    """One kernel of a list.

    Attributes:
        instructions: number of instructions of its machine IR before allocation.
        llvm: registers and spills of LLVM's own allocation.
    """

    cell: Cell
    function: str
    sha256: str
    instructions: int
    llvm: Counts

    @property
    def name(self) -> str:
        """The cell's name; its IR is in ``NAME.ll``."""
        return self.cell.name


_FIELDS = ("function", "sha256", "instructions", "llvm")
_Fields = tuple[str, str, int, Counts]


def write_list(path: Path, kernels: Sequence[ListedKernel], made_with: dict[str, str]) -> None:
    rows = [json.dumps({"name": k.name, **asdict(k), "cell": k.cell.to_data()}) for k in kernels]
    head = f'{{"version": {LIST_VERSION},\n "made_with": {json.dumps(made_with, sort_keys=True)},\n "kernels": [\n'
    write_whole(path, (head + ",\n".join(rows) + "\n]}\n").encode())


def read_list(path: Path) -> tuple[ListedKernel, ...]:
    """Read a list.

    Raises:
        InputError: it cannot be read, or is no list of this version.
    """
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        if data["version"] != LIST_VERSION:
            raise InputError(f"version {data['version']!r} is not {LIST_VERSION}", where=str(path))
        return tuple(
            ListedKernel(Cell.from_data(row.pop("cell")), *convert([row[name] for name in _FIELDS], _Fields))
            for row in data["kernels"]
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, MsgspecError) as error:
        raise InputError(f"this is no list of kernels: {error}", where=str(path)) from error


@dataclass(frozen=True)
class Exported:
    """One kernel's IR file; ``path`` is None where there is none, ``same`` says whether it is the list's."""

    kernel: ListedKernel
    path: Path | None
    same: bool
    failure: str = ""


def export(
    kernels: Sequence[ListedKernel],
    directory: Path,
    *,
    store: Store | None = None,
    jobs: int = 1,
    progress: Callable[[Exported], None] = lambda _: None,
) -> tuple[Exported, ...]:
    """Write the IR of ``kernels`` into ``directory``; a file that is there and right is not made again.

    Raises:
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    by_name: dict[str, Exported] = {}
    todo: list[ListedKernel] = []
    for kernel in kernels:
        path = directory / f"{kernel.name}.ll"
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == kernel.sha256:
            by_name[kernel.name] = Exported(kernel, path, True)
            progress(by_name[kernel.name])
        else:
            todo.append(kernel)
    by_cell = {kernel.cell: kernel for kernel in todo}
    for outcome in run(partial(ir, store=store), list(by_cell), jobs=jobs, seconds=_SECONDS):
        kernel = by_cell[outcome.task]
        if outcome.failure:
            exported = Exported(kernel, None, False, outcome.failure)
        else:
            data = str(outcome.result).encode()
            path = directory / f"{kernel.name}.ll"
            write_whole(path, data)
            same = hashlib.sha256(data).hexdigest() == kernel.sha256
            exported = Exported(kernel, path, same, "" if same else "the IR is not that of the list: another version?")
        by_name[kernel.name] = exported
        progress(exported)
    return tuple(by_name[kernel.name] for kernel in kernels)
