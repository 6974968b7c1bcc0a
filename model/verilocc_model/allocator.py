"""The model behind the ``Allocator`` protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from verilocc_mlir.allocators.protocol import AllocationFailure, Refutation
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_model.advice import guidance_of
from verilocc_model.card import CARD, encoding_of, read_card
from verilocc_model.decoding.decoder import OutOfTime, Sampling, decode
from verilocc_model.decoding.scorer import Scorer
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.writing import Writing
from verilocc_model.price import Price, price_of
from verilocc_model.repair import Remainder, remainders
from verilocc_model.threads import one_thread

ADAPTERS = "adapters"
"""Directory of a model's adapters, one for each family that has one."""

AGAIN_TEMPERATURE = 0.7
"""Temperature of the samples after the first answer, and of answers after a second refutation."""

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
    """Answers with a language model, masked and with look-ahead; deterministic if there is time for all samples.

    After a refutation it answers again for the live ranges that must move; the prompt says what was refuted.

    Args:
        directory: a model as ``verilocc train`` writes it, with or without adapters under ``adapters/FAMILY``; or an
            adapter, whose base is still where it was; or any causal language model with its tokenizer.
        seconds: wall time for one answer, all samples together; None: no limit.
        samples: answers that are compared by price (``price.Price``); the cheapest is proposed. The first is the
            best-ranked answer, the others are sampled with fixed seeds.

    Raises:
        InputError: there is no model, or it is for another version.
    """

    name = "model"

    def __init__(self, directory: Path, *, seconds: float | None = None, samples: int = 1) -> None:
        card = read_card(directory)
        self._limit = int(card["window"])
        self._seconds = seconds
        self._samples = samples
        self._adapters = sorted(p for p in (directory / ADAPTERS).glob("*") if (p / CARD).exists())
        # The card of an adapter alone names its base, which is loaded with it.
        names = [str(card[k]) for k in ("base", "name") if k in card]
        for path in self._adapters:
            adapter = read_card(path)
            if adapter.get("base") != card["name"]:
                raise InputError(
                    f"the adapter is for {adapter.get('base')}, the model is {card['name']}", where=str(path)
                )
            names.append(str(adapter["name"]))
        self._model_name = "+".join(names)
        self.version = self._model_name + (f", best of {samples}" if samples > 1 else "")
        self._weights = _weights(directory, tuple(self._adapters), encoding_of(card))

    @property
    def model(self) -> str:
        """The model's name, with ``+`` and the name of each of its adapters."""
        return self._model_name

    def load(self) -> None:
        """Load the weights before the first answer needs them.

        Raises:
            InputError: they cannot be loaded.
        """
        self._weights.load()

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """The cheapest of the samples, its registers spread over what loses no wave.

        Raises:
            AllocationFailure: the pressure exceeds a file, no assignment without spilling was found, or time is up
                before the first answer.
        """
        drawn = [Sampling(AGAIN_TEMPERATURE if seed else 0.0, seed) for seed in range(self._samples)]
        return spread_proposal(problem, self._answer(problem, drawn, ()))

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        """An answer for the live ranges that must move; what was refuted is part of the prompt.

        If these ranges find no place around the others, or if it is not known which they are, all ranges are answered
        for. From the second refutation on, the answer is sampled.

        Raises:
            AllocationFailure: as for ``allocate``.
        """
        drawn = Sampling(AGAIN_TEMPERATURE if len(refuted) > 1 else 0.0, seed=len(refuted))
        return self._answer(problem, [drawn], refuted)

    def scorer(self, target: str) -> Scorer:
        """The model with the adapter for a GPU, or without one where there is none. Only one adapter is active."""
        model, writing = self._weights.load()
        from verilocc_model.lm import LanguageModel

        if self._adapters:
            family = family_of(target)
            layers: Any = model.base_model
            if any(path.name == family for path in self._adapters):
                layers.enable_adapter_layers()
                model.set_adapter(family)
            else:
                layers.disable_adapter_layers()
        return LanguageModel(model, self._model_name, self._limit, writing)

    def _answer(
        self, problem: AllocationProblem, drawn: Sequence[Sampling], refuted: tuple[Refutation, ...]
    ) -> Proposal:
        stop = None if self._seconds is None else time.monotonic() + self._seconds
        *smaller, everything = remainders(problem, refuted)
        for part in smaller:
            try:
                return self._answer_to(part, drawn, stop)
            except OutOfTime:
                raise
            except AllocationFailure:
                continue
        return self._answer_to(everything, drawn, stop)

    def _answer_to(self, part: Remainder, drawn: Sequence[Sampling], stop: float | None) -> Proposal:
        form = canonical(part.problem)
        table = Table(form.problem)
        table.check_pressure()
        guidance = guidance_of(part.refuted, form, table)
        best: tuple[Price, tuple[str, ...]] | None = None
        with self._weights.in_use, one_thread():
            scorer = self.scorer(part.problem.target)
            for sampling in drawn:
                seconds_left = None if stop is None else stop - time.monotonic()
                episode = Episode(table, advice=guidance.advice, refuted=guidance.grants)
                try:
                    decoded = decode(episode, scorer, replace(sampling, seconds=seconds_left))
                except AllocationFailure as failure:
                    if best is None:
                        raise
                    if isinstance(failure, OutOfTime):
                        break
                    continue
                price = price_of(table, episode.starts)
                if best is None or price < best[0]:
                    best = price, decoded.registers
        if best is None:
            raise AssertionError("no sample was asked for")
        return Proposal(PROBLEM_VERSION, f"{self.name}/{self.version}", part.whole(form.restored(best[1])))


class _Weights:
    """A model and its adapters, loaded once; ``in_use`` is held while one adapter is active."""

    def __init__(self, directory: Path, adapters: tuple[Path, ...], encoding: str) -> None:
        self._directory = directory
        self._adapters = adapters
        self._encoding = encoding
        self._loading = threading.Lock()
        self._loaded: tuple[Any, Writing] | None = None
        self.in_use = threading.Lock()

    def load(self) -> tuple[Any, Writing]:
        """The model, and how it writes words.

        Raises:
            InputError: it cannot be loaded.
        """
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, Writing]:
        # This takes seconds and hundreds of megabytes, so it is done only when it is needed.
        from peft import PeftModel

        from verilocc_model.lm import load_model, load_writing

        writing = load_writing(self._directory, self._encoding)
        # Pretrained models are stored with 16 bits; a CPU multiplies 32-bit numbers fastest.
        model: Any = load_model(self._directory).float()
        for number, path in enumerate(self._adapters):
            if number:
                model.load_adapter(str(path), adapter_name=path.name)
            else:
                model = PeftModel.from_pretrained(model, str(path), adapter_name=path.name)
        return model.eval(), writing


@lru_cache(maxsize=4)
def _weights(directory: Path, adapters: tuple[Path, ...], encoding: str) -> _Weights:
    return _Weights(directory, adapters, encoding)
