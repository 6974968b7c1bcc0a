"""The model behind the ``Allocator`` protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from verilocc_mlir.allocators.protocol import Refutation
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_model.advice import advice_of
from verilocc_model.card import CARD, read_card
from verilocc_model.decoding.decoder import Sampling, decode
from verilocc_model.decoding.scorer import Scorer
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.episode import Advice, Episode
from verilocc_model.encoding.table import Table

ADAPTERS = "adapters"
"""Directory of a model's adapters, one for each family that has one."""

AGAIN_TEMPERATURE = 0.7
"""Of attempts after the first, which is not sampled."""

_FAMILIES = {"gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna3", "gfx1250": "gfx1250"}


def family_of(target: str) -> str:
    """The architecture family of a GPU, as adapters are named: ``cdna3``, ``rdna4`` …"""
    if target in _FAMILIES:
        return _FAMILIES[target]
    for prefix, family in (("gfx11", "rdna3"), ("gfx12", "rdna4")):
        if target.startswith(prefix):
            return family
    return target


class ModelAllocator:
    """Answers with a language model, masked and looking ahead; deterministic. Attempts after a refutation are sampled,
    and their prompt says what was refuted.

    Args:
        directory: a model as ``verilocc train`` leaves it, with adapters under ``adapters/FAMILY`` or without.
        seconds: wall time for one answer; None: no limit.

    Raises:
        InputError: there is no model, or it is for another version.
    """

    name = "model"

    def __init__(self, directory: Path, *, seconds: float | None = None) -> None:
        card = read_card(directory)
        self._limit = int(card["window"])
        self._seconds = seconds
        self._adapters = sorted(p for p in (directory / ADAPTERS).glob("*") if (p / CARD).exists())
        names = [str(card["name"])]
        for path in self._adapters:
            adapter = read_card(path)
            if adapter.get("base") != card["name"]:
                raise InputError(
                    f"the adapter is for {adapter.get('base')}, the model is {card['name']}", where=str(path)
                )
            names.append(str(adapter["name"]))
        self.version = "+".join(names)
        self._weights = _weights(directory, tuple(self._adapters))

    def load(self) -> None:
        """Load the weights, which the first answer does otherwise.

        Raises:
            InputError: they cannot be loaded.
        """
        self._weights.load()

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """The best answer of one decode.

        Raises:
            AllocationFailure: the pressure exceeds a file, no assignment without spilling was found, or time is up.
        """
        return self._answer(problem, Sampling(seconds=self._seconds), lambda form, table: {})

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        """A sampled answer; what was refuted is part of the prompt.

        Raises:
            AllocationFailure: as for ``allocate``.
        """
        sampling = Sampling(AGAIN_TEMPERATURE, seed=len(refuted), seconds=self._seconds)
        found = [c for r in refuted for c in r.counterexamples]
        return self._answer(problem, sampling, lambda form, table: advice_of(found, form, table))

    def scorer(self, target: str) -> Scorer:
        """The model with the adapter for a GPU in place, or with none where there is none. There is one at a time."""
        model = self._weights.load()
        from verilocc_model.lm import LanguageModel

        if self._adapters:
            family = family_of(target)
            layers: Any = model.base_model
            if any(path.name == family for path in self._adapters):
                layers.enable_adapter_layers()
                model.set_adapter(family)
            else:
                layers.disable_adapter_layers()
        return LanguageModel(model, self.version, self._limit)

    def _answer(
        self, problem: AllocationProblem, sampling: Sampling, advise: Callable[[Canonical, Table], Mapping[int, Advice]]
    ) -> Proposal:
        form = canonical(problem)
        table = Table(form.problem)
        table.check_pressure()
        advice = advise(form, table)
        with self._weights.in_use:
            found = decode(Episode(table, advice=advice), self.scorer(problem.target), sampling)
        return Proposal(PROBLEM_VERSION, f"{self.name}/{self.version}", form.restored(found.registers))


class _Weights:
    """A model and its adapters, loaded once; ``in_use`` is held while one adapter is in place."""

    def __init__(self, directory: Path, adapters: tuple[Path, ...]) -> None:
        self._directory = directory
        self._adapters = adapters
        self._loading = threading.Lock()
        self._model: Any = None
        self.in_use = threading.Lock()

    def load(self) -> Any:
        """The model.

        Raises:
            InputError: it cannot be loaded.
        """
        with self._loading:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> Any:
        # Seconds, and hundreds of megabytes: not before it is needed.
        import torch
        from peft import PeftModel

        from verilocc_model.lm import load_model

        # A pass is small: more threads wait for each other longer than they work.
        torch.set_num_threads(1)
        model: Any = load_model(self._directory)
        for number, path in enumerate(self._adapters):
            if number:
                model.load_adapter(str(path), adapter_name=path.name)
            else:
                model = PeftModel.from_pretrained(model, str(path), adapter_name=path.name)
        return model.eval()


@lru_cache(maxsize=4)
def _weights(directory: Path, adapters: tuple[Path, ...]) -> _Weights:
    return _Weights(directory, adapters)
