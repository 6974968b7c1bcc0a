"""``verilocc eval --plans``: every baseline on a data set of plans, on kernels that it did not learn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.files import write_whole
from verilocc_model.corpus.shards import read_manifest
from verilocc_model.plans.data import Labels, read_labels
from verilocc_model.plans.policies import Policy, baselines
from verilocc_model.plans.score import Score, as_data, as_markdown, scores

FOLDS = 5
"""Parts of the kernels for cross-validation; each is judged by policies that learned from the others."""

_LEAST = 10
"""Kernels to learn from."""

Say = Callable[[str], None]
Policies = Callable[[], Sequence[Policy]]


def labels_of(data: Sequence[Path]) -> list[Labels]:
    """The kernels of some data sets; further answers for a kernel that an earlier set has are added to it there."""
    by_cell: dict[str, Labels] = {}
    for directory in data:
        for kernel in read_labels(directory):
            earlier = by_cell.get(kernel.cell.name)
            by_cell[kernel.cell.name] = kernel if earlier is None else earlier.with_answers_of(kernel)
    return list(by_cell.values())


def to_learn_from(kernels: Sequence[Labels], data: Sequence[Path], *, held_out: bool = False) -> list[Labels]:
    """The train part.

    Args:
        held_out: take also what a base must not see (``corpus.split``).

    Raises:
        InputError: too few kernels to learn from.
    """
    train = [kernel for kernel in kernels if kernel.split == "train" and (held_out or not kernel.held_out)]
    if len(train) < _LEAST:
        raise InputError(
            f"{len(train)} kernels to learn from are fewer than {_LEAST}",
            where=", ".join(map(str, data)),
            hint="label more kernels: verilocc corpus plans --kernels=N",
        )
    return train


def evaluate_plans(data: Sequence[Path], out: Path | None, say: Say, *, trained: Sequence[Policy] = ()) -> int:
    """Print a table for each part of the kernels, and write them all as JSON.

    Args:
        data: directories that ``verilocc corpus plans`` wrote.
        trained: policies that were fitted to the train part; they are measured on what they did not learn from.

    Raises:
        InputError: no data set of plans is there, or it has too few kernels to learn from.
    """
    kernels = labels_of(data)
    parts = dict(_parts(kernels, to_learn_from(kernels, data), trained))
    for name, rows in parts.items():
        say(f"\n{name}\n\n{as_markdown(rows)}")
    if out is not None:
        manifests = [read_manifest(directory) for directory in data]
        result: dict[str, Any] = {
            "kernels": len(kernels),
            "data": [{key: manifest[key] for key in ("made_with", "parameters")} for manifest in manifests],
            "parts": {name: as_data(rows) for name, rows in parts.items()},
        }
        write_whole(out, (json.dumps(result, indent=1) + "\n").encode())
    return ExitCode.PROVED


def _parts(
    kernels: Sequence[Labels], train: Sequence[Labels], trained: Sequence[Policy]
) -> Iterable[tuple[str, list[Score]]]:
    """Scores by part: the test part and what is held out, by policies fitted to the train part; then by folds."""
    fitted = [*_fitted(baselines, train), *trained]
    seen = [kernel for kernel in kernels if not kernel.held_out]
    tests = {
        f"test part, fitted to {len(train)} kernels": [k for k in seen if k.split != "train"],
        "source held out": [kernel for kernel in kernels if "source" in kernel.held_out],
        "target held out": [kernel for kernel in kernels if "target" in kernel.held_out and kernel.split != "train"],
    }
    for name, test in tests.items():
        spilled = [kernel for kernel in test if kernel.llvm["spills"]]
        for which, chosen in ((name, test), (f"{name}; where LLVM spills", spilled)):
            if chosen:
                yield which, scores(fitted, chosen)
    of_folds = _cross_validated(kernels)
    for which, chosen in (("", kernels), ("; where LLVM spills", [k for k in kernels if k.llvm["spills"]])):
        if chosen:
            yield f"{FOLDS} folds of all kernels{which}", scores(of_folds, chosen)


def _cross_validated(kernels: Sequence[Labels]) -> list[_Folded]:
    """Each baseline, for a kernel the one that learned from the other folds. Kernels that differ in target or limits
    alone are in the same fold.
    """
    folds: list[list[Labels]] = [[] for _ in range(FOLDS)]
    for kernel in kernels:
        folds[int(kernel.cell.configuration[:8], 16) % FOLDS].append(kernel)
    by_kernel: dict[int, Sequence[Policy]] = {}
    for test in folds:
        rest = [kernel for fold in folds if fold is not test for kernel in fold]
        fitted = _fitted(baselines, rest) if test else ()
        by_kernel.update({id(kernel): fitted for kernel in test})
    return [_Folded(number, by_kernel) for number in range(len(baselines()))]


class _Folded:
    """The policy of that number, for each kernel the one that was not fitted to it."""

    def __init__(self, number: int, by_kernel: dict[int, Sequence[Policy]]) -> None:
        self._number, self._by_kernel = number, by_kernel
        self.name = next(iter(by_kernel.values()))[number].name

    def fit(self, kernels: Sequence[Labels]) -> None:
        raise NotImplementedError("its parts are fitted")

    def reads(self, kernel: Labels) -> Any:
        return self._by_kernel[id(kernel)][self._number].reads(kernel)

    def expected(self, kernel: Labels) -> Any:
        return self._by_kernel[id(kernel)][self._number].expected(kernel)


def _fitted(policies: Policies, kernels: Sequence[Labels]) -> Sequence[Policy]:
    result = policies()
    for policy in result:
        policy.fit(kernels)
    return result
