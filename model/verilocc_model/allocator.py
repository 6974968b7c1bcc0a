"""The model behind the ``Allocator`` protocol."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from verilocc_mlir.allocators.protocol import AdapterFacts, AllocationFailure, ModelProposal, ModelUse, Refutation
from verilocc_mlir.allocators.spread import spread_proposal
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem
from verilocc_mlir.target.targets import TARGETS
from verilocc_model.card import CARD, read_card
from verilocc_model.decoding import OutOfTime, Sampling, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.encoding.vocabulary import Writing
from verilocc_model.lm import one_thread
from verilocc_model.repair import Remainder, guidance_of, remainders

if TYPE_CHECKING:
    from verilocc_model.lm import LanguageModel

ADAPTERS = "adapters"
"""Directory of a model's adapters, one for each family that has one."""

ADAPTER_CONFIG = "adapter_config.json"
"""peft's file beside an adapter's weights."""

AGAIN_TEMPERATURE = 0.7
"""Temperature of the samples after the first answer, and of answers after a second refutation."""

_FAMILIES = {
    "gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna3", "gfx9-4-generic": "cdna3", "gfx1250": "gfx1250",
}  # fmt: skip


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

    After a refutation it starts from the nearest valid assignment, and answers again for the live ranges that move; the
    prompt says what was refuted.

    Args:
        directory: a model as ``verilocc train`` writes it, with or without adapters under ``adapters/FAMILY``; or an
            adapter, whose base is still where it was; or any causal language model with its tokenizer. An adapter is
            applied for the families of the GPUs on its card alone.
        seconds: wall time for one answer, all samples together; None: no limit.
        samples: answers that are compared by price (``price.Price``); the cheapest is proposed. The first is the
            best-ranked answer, the others are sampled with fixed seeds.
        unmasked: the first answer is the model's own, one sample, without mask and look-ahead: any word is taken, and
            the proof finds what is wrong with it. Answers after a refutation are masked.

    Raises:
        InputError: there is no model, or it is for another version.
    """

    name = "model"

    def __init__(
        self, directory: Path, *, seconds: float | None = None, samples: int = 1, unmasked: bool = False
    ) -> None:
        card = read_card(directory)
        self._limit = int(card["window"])
        self._seconds = seconds
        self._samples = 1 if unmasked else samples
        self._unmasked = unmasked
        base = directory
        if "base" in card:
            # An adapter of its own, whose files name its base's directory.
            base, self.model = base_of(directory), str(card["base"])
            found = [_Adapter.of(directory, card)]
        else:
            self.model = str(card["name"])
            paths = sorted(p for p in (directory / ADAPTERS).glob("*") if (p / CARD).exists())
            found = [_Adapter.of(path, read_card(path), path.name) for path in paths]
        for adapter in found:
            if adapter.base != self.model:
                raise InputError(
                    f"the adapter is for {adapter.base}, the model is {self.model}", where=str(adapter.path)
                )
        self._adapters = tuple(found)
        names = "+".join([self.model, *(a.facts.name for a in found)])
        manner = ", unmasked first" if unmasked else f", best of {samples}" if samples > 1 else ""
        self.version = names + manner
        self._weights = _weights(base, tuple(a.path for a in found), directory, card["encoding"])

    @property
    def adapters(self) -> tuple[AdapterFacts, ...]:
        """The model's adapters, and what each is applied for."""
        return tuple(adapter.facts for adapter in self._adapters)

    def load(self) -> None:
        """Load the weights before the first answer needs them.

        Raises:
            InputError: they cannot be loaded.
        """
        self._weights.load()

    def allocate(self, problem: AllocationProblem) -> ModelProposal:
        """The cheapest of the samples, its registers spread over what loses no wave.

        Raises:
            AllocationFailure: the pressure exceeds a file, no assignment without spilling was found, or time is up
                before the first answer.
        """
        drawn = [Sampling(AGAIN_TEMPERATURE if seed else 0.0, seed) for seed in range(self._samples)]
        answer = self._answer(problem, drawn, ())
        return replace(answer, registers=spread_proposal(problem, answer).registers)

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> ModelProposal:
        """An answer for the live ranges that the nearest valid assignment moves, that assignment where it finds none;
        what was refuted is part of the prompt.

        Where none is near, the ranges that must move are answered for; if these find no place around the others, or it
        is not known which they are, all ranges. From the second refutation on, the answer is sampled.

        Raises:
            AllocationFailure: as for ``allocate``.
        """
        drawn = Sampling(AGAIN_TEMPERATURE if len(refuted) > 1 else 0.0, seed=len(refuted))
        return self._answer(problem, [drawn], refuted)

    def scorer(self, target: str) -> LanguageModel:
        """The model with the adapter for a GPU, or without one where there is none. Only one adapter is active."""
        model, writing = self._weights.load()
        from verilocc_model.lm import LanguageModel

        if self._adapters:
            layers: Any = model.base_model
            applied = self._applied(target)
            if applied is None:
                layers.disable_adapter_layers()
            else:
                layers.enable_adapter_layers()
                model.set_adapter(_loaded_as(self._adapters.index(applied)))
        return LanguageModel(model, self.version, self._limit, writing)

    def _applied(self, target: str) -> _Adapter | None:
        return next((a for a in self._adapters if target in a.facts.targets), None)

    def _answer(
        self, problem: AllocationProblem, drawn: Sequence[Sampling], refuted: tuple[Refutation, ...]
    ) -> ModelProposal:
        meter = _Meter()
        try:
            registers = self._registers(problem, drawn, refuted, meter)
        except AllocationFailure as failure:
            failure.use = self._use(problem.target, meter)
            raise
        return ModelProposal(
            PROBLEM_VERSION, f"{self.name}/{self.version}", registers, self._use(problem.target, meter)
        )

    def _use(self, target: str, meter: _Meter) -> ModelUse:
        applied = self._applied(target)
        note = ""
        if self._adapters and applied is None:
            others = ", ".join(f"{f.name} is for {', '.join(f.targets)}" for f in self.adapters)
            note = f"no adapter is applied for {target}: {others}"
        name = "" if applied is None else applied.facts.name
        return ModelUse(self.model, name, meter.tokens, time.monotonic() - meter.start, note)

    def _registers(
        self, problem: AllocationProblem, drawn: Sequence[Sampling], refuted: tuple[Refutation, ...], meter: _Meter
    ) -> tuple[str, ...]:
        stop = None if self._seconds is None else time.monotonic() + self._seconds
        *smaller, everything = remainders(problem, refuted)
        for part in smaller:
            try:
                return self._answer_to(part, drawn, stop, meter)
            except AllocationFailure as failure:
                if part.draft:
                    return part.draft
                if isinstance(failure, OutOfTime):
                    raise
        return self._answer_to(everything, drawn, stop, meter)

    def _answer_to(
        self, part: Remainder, drawn: Sequence[Sampling], stop: float | None, meter: _Meter
    ) -> tuple[str, ...]:
        form = canonical(part.problem)
        table = Table(form.problem)
        table.check_pressure()
        guidance = guidance_of(part.refuted, form, table)
        mask = not self._unmasked or bool(part.refuted)
        best: tuple[Price, tuple[str, ...]] | None = None
        with self._weights.in_use, one_thread():
            scorer = self.scorer(part.problem.target)
            for sampling in drawn:
                seconds_left = None if stop is None else stop - time.monotonic()
                try:
                    episode = Episode(table, mask=mask, advice=guidance.advice, refuted=guidance.grants)
                    decoded = decode(episode, scorer, dataclasses.replace(sampling, seconds=seconds_left))
                except AllocationFailure as failure:
                    if best is None:
                        raise
                    if isinstance(failure, OutOfTime):
                        break
                    continue
                finally:
                    meter.tokens += scorer.take_tokens()
                if not mask:
                    return part.whole(form.restored(decoded.registers))
                price = price_of(table, episode.starts)
                if best is None or price < best[0]:
                    best = price, decoded.registers
        if best is None:
            raise AssertionError("no sample was asked for")
        return part.whole(form.restored(best[1]))


@dataclass
class _Meter:
    """What one answer has taken so far."""

    tokens: int = 0
    start: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class _Adapter:
    """An adapter on disk; ``base`` is the name of the model that it is for."""

    path: Path
    base: str
    facts: AdapterFacts

    @classmethod
    def of(cls, path: Path, card: dict[str, Any], family: str = "") -> _Adapter:
        """What its card says; where that names no GPUs it is for a family, or for all GPUs where none is given."""
        trained_on = tuple(str(name) for name in card.get("targets", ()))
        facts = AdapterFacts(str(card["name"]), applied_for(trained_on, family), trained_on)
        return cls(path, str(card.get("base")), facts)


def applied_for(trained_on: Sequence[str], family: str = "") -> tuple[str, ...]:
    """The GPUs that an adapter is applied for: the families of those that it was trained on; where those are not known,
    a family, or all GPUs where none is given.
    """
    families = {family_of(name) for name in trained_on} or {family}
    return tuple(name for name in TARGETS if family_of(name) in families or families == {""})


def base_of(adapter: Path) -> Path:
    """The directory of an adapter's base, as its files name it.

    Raises:
        InputError: they name none, or nothing is there.
    """
    path = adapter / ADAPTER_CONFIG
    try:
        base = Path(str(json.loads(path.read_text())["base_model_name_or_path"]))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"does not name the adapter's base: {error}", where=str(path)) from error
    if not base.is_dir():
        raise InputError(f"the adapter's base is not where it was: {base}", where=str(path))
    return base


def _loaded_as(number: int) -> str:
    """The name of an adapter among the weights: a directory's may have dots, which peft does not take."""
    return f"adapter{number}"


class _Weights:
    """A model and its adapters, loaded once; ``in_use`` is held while one adapter is active."""

    def __init__(self, directory: Path, adapters: tuple[Path, ...], tokenizer: Path, encoding: str) -> None:
        self._directory = directory
        self._adapters = adapters
        self._tokenizer = tokenizer
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

        writing = load_writing(self._tokenizer, self._encoding)
        # Pretrained models are stored with 16 bits; a CPU multiplies 32-bit numbers fastest.
        model: Any = load_model(self._directory).float()
        for number, path in enumerate(self._adapters):
            if number:
                model.load_adapter(str(path), adapter_name=_loaded_as(number))
            else:
                model = PeftModel.from_pretrained(model, str(path), adapter_name=_loaded_as(number))
        return model.eval(), writing


@lru_cache(maxsize=4)
def _weights(directory: Path, adapters: tuple[Path, ...], tokenizer: Path, encoding: str) -> _Weights:
    return _Weights(directory, adapters, tokenizer, encoding)
