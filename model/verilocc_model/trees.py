"""Gradient-boosted trees as arrays: fitted with scikit-learn, asked with NumPy alone, kept as safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from verilocc_mlir.files import write_whole


@dataclass(frozen=True)
class Trees:
    """Regression trees as arrays over all of their nodes.

    Attributes:
        feature, threshold: a row goes to ``left`` if its feature is at most the threshold, else to ``right``.
        left, right: numbers of nodes; a leaf is its own child.
        value: of leaves.
        roots: of the trees.
        base: what the sum of the leaves is added to.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int32]
    base: NDArray[np.float64]

    @classmethod
    def of(cls, model: Any) -> Trees:
        """A fitted ``HistGradientBoostingRegressor``."""
        parts = [predictor.nodes for (predictor,) in model._predictors]
        starts = np.cumsum([0, *map(len, parts)])
        nodes = np.concatenate(parts)
        own = np.arange(len(nodes), dtype=np.int32)
        offset = np.repeat(starts[:-1], np.diff(starts)).astype(np.int32)
        is_leaf = nodes["is_leaf"].astype(bool)
        return cls(
            nodes["feature_idx"].astype(np.int32),
            np.where(is_leaf, 0.0, nodes["num_threshold"]),
            np.where(is_leaf, own, nodes["left"].astype(np.int32) + offset).astype(np.int32),
            np.where(is_leaf, own, nodes["right"].astype(np.int32) + offset).astype(np.int32),
            np.where(is_leaf, nodes["value"], 0.0),
            starts[:-1].astype(np.int32),
            np.array(model._baseline_prediction, np.float64).reshape(1),
        )

    def values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """One value a row."""
        nodes = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        at = np.arange(len(rows))[:, None]
        while True:
            goes_left = rows[at, self.feature[nodes]] <= self.threshold[nodes]
            children = np.where(goes_left, self.left[nodes], self.right[nodes])
            if np.array_equal(children, nodes):
                return self.value[nodes].sum(axis=1) + self.base
            nodes = children

    def save(self, path: Path) -> None:
        """As safetensors, whole or not at all."""
        write_whole(path, save({name: getattr(self, name) for name in self.__dataclass_fields__}))

    @classmethod
    def load(cls, path: Path) -> Trees:
        """What ``save`` wrote.

        Raises:
            OSError, TypeError, ValueError: it is not there, or something else.
        """
        try:
            read: dict[str, NDArray[Any]] = load_file(path)
        except SafetensorError as error:
            raise ValueError(error) from error
        result = cls(**read)
        count = len(result.left)
        places = np.concatenate([result.left, result.right, result.roots])
        alike = all(len(values) == count for values in (result.feature, result.threshold, result.right, result.value))
        if not alike or places.min(initial=0) < 0 or places.max(initial=0) >= count or result.base.shape != (1,):
            raise ValueError("these are no trees")
        return result
