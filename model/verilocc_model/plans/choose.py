"""Facts of one input, and what a model of plans says of them: the way into this package from ``-O=learned``."""

from __future__ import annotations

import bisect
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.candidates import AS_IT_IS, SLOTS, Answer, effective
from verilocc_mlir.pipeline.effort import OURS
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_model.plans.critic import FORM, Critic
from verilocc_model.plans.data import Labels
from verilocc_model.plans.facts import dearest_of, facts, facts_of_text
from verilocc_model.plans.policies import LISTED, kind


def facts_of(given: Planned, first: Plan, code: bytes) -> dict[str, float] | None:
    """Facts of the dearest function; None for one whose allocation problem cannot be stated.

    Args:
        first: the plan that is tried first.
        code: assembly of LLVM's default compile.
    """
    dearest, by_name = dearest_of(code, given.target, given.path)
    try:
        return {**facts(dearest, by_name[dearest.name], given.target), **facts_of_text(given, first, dearest.name)}
    except UnsupportedError:
        return None


def ranked(
    given: Planned, first: Plan, code: bytes, known: Mapping[str, float] | None, directory: Path
) -> tuple[str, list[Answer]]:
    """The name of the model in a directory, and its answers, the best first; none where nothing is known.

    It states answers from the facts alone; or it is a critic, which reads the text of each of its answers; or both are
    there, and the critic reads the texts of the first answers (``policies.py``).

    Args:
        known: what ``facts_of`` gave.

    Raises:
        InputError: the directory has no model of plans, or one that was trained with other facts.
    """
    critic, model = _models(directory, given.target.name)
    if critic is not None and model is None:
        name = f"critic {directory.resolve().name}"
        return name, _judged(critic, critic.answers, given, first, code, known) if known else []
    assert model is not None
    answers = model.ranked(known) if known else []
    if critic is None or known is None:
        return model.name, answers
    return f"{model.name} with its critic", _judged(critic, answers, given, first, code, known, LISTED)


def _judged(
    critic: Critic,
    answers: Sequence[Answer],
    given: Planned,
    first: Plan,
    code: bytes,
    known: Mapping[str, float],
    most: int = sys.maxsize,
) -> list[Answer]:
    """The first ``most`` answers that the input can have, in the critic's order; of those that are allocated alike, the
    first one, and none that is the first plan's.
    """
    dearest, _ = dearest_of(code, given.target, given.path)
    texts: dict[str, Mapping[str, float]] = {}
    seen = {(given.pre_ra(first), OURS)}
    for answer in answers:
        candidate = answer.candidate
        if len(texts) == most or candidate.plan not in given.plans((candidate.plan,)):
            continue
        try:
            # Whether anything is spilled is known of the text that is allocated already.
            variant = effective(given, candidate) if candidate.plan == first else candidate.variant
            key = given.pre_ra(candidate.plan), variant
            if key not in seen:
                seen.add(key)
                texts[str(answer)] = facts_of_text(given, candidate.plan, dearest.name)
        except VeriloccError:
            continue  # LLVM makes no text of it, or its problem cannot be stated.
    of_first = {name: value for name, value in known.items() if name.startswith("text ")}
    gains = dict(zip(texts, critic.gains(given.target.name, known, of_first, texts), strict=True))
    return [Answer.parse(text) for text in sorted(texts, key=lambda text: gains[text])]


@cache
def _models(directory: Path, target: str) -> tuple[Critic | None, Stater | None]:
    """The critic in a directory, and the model that states answers, with the adapter for a target; loaded once.

    Raises:
        InputError: there is neither.
    """
    critic = Critic.load(directory) if (directory / FORM).is_file() else None
    alone = critic is not None and not (directory / WORDS).is_file()
    return critic, None if alone else Stater(directory, target)


# A trained model of plans, asked without torch: a Llama's forward pass in NumPy, in float32.
#
# Weights are read from the safetensors that ``causal.py`` writes; an adapter is added to them as it is loaded.


Array = NDArray[np.float32]
_HINT = "make one: verilocc train plans DATA --out DIR"


class Stater:
    """Ranks answers by their probability.

    Attributes:
        name: the directory's, with ``+ADAPTER`` where one is loaded.

    Raises:
        InputError: the directory has no such model.
    """

    def __init__(self, directory: Path, target: str) -> None:
        try:
            config = json.loads((directory / "config.json").read_text())
            self.words = Words(**json.loads((directory / WORDS).read_text())["words"])
            weights = load_file(directory / "model.safetensors")
            adapter = next((n for n in (target, kind(target)) if (directory / "adapters" / n).is_dir()), "")
            if adapter:
                weights = _with_adapter(weights, directory / "adapters" / adapter)
            self._heads = int(config["num_attention_heads"])
            self._layers = [_layer(weights, number) for number in range(config["num_hidden_layers"])]
            self._embedding, self._norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
            self._epsilon = float(config["rms_norm_eps"])
            self._theta = float(config["rope_parameters"]["rope_theta"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"no model of plans is there: {error}", where=str(directory), hint=_HINT) from error
        self._target = target
        self.name = directory.resolve().name + (f"+{adapter}" if adapter else "")

    def ranked(self, facts: Mapping[str, float]) -> list[Answer]:
        """Its answers, the likeliest first.

        Raises:
            InputError: a fact is missing: the model was trained with other ones.
        """
        answers = self.words.ranked(self._target)
        chances = self.chances(facts, answers)
        return [answers[k] for k in sorted(range(len(answers)), key=lambda k: -chances[k])]

    def chances(self, facts: Mapping[str, float], answers: Sequence[Answer]) -> list[float]:
        """The logarithm of each answer's probability, among those that have one word of each slot.

        Raises:
            InputError: as ``ranked``.
        """
        try:
            prompt = self.words.facts(facts, self._target)
        except KeyError as error:
            raise InputError(f"the model reads a fact that is not there: {error}", hint=_HINT) from error
        last, past = self._run(np.array([prompt]), None)
        spelt = np.array([self.words.answer(answer) for answer in answers])
        rest, _ = self._run(spelt[:, :-1], past)
        first = np.broadcast_to(last[:, -1:], (len(answers), 1, last.shape[2]))
        logits = np.concatenate([first, rest], axis=1) @ self._embedding.T
        total = np.zeros(len(answers), np.float64)
        for place, slot in enumerate(SLOTS):
            own = self.words.of_slot(slot, self._target)
            of_slot = logits[:, place, own].astype(np.float64)
            shifted = of_slot - of_slot.max(axis=1, keepdims=True)
            spoken = [own.index(number) for number in spelt[:, place].tolist()]
            total += shifted[np.arange(len(answers)), spoken] - np.log(np.exp(shifted).sum(axis=1))
        return total.tolist()

    def _run(self, ids: Any, past: list[tuple[Array, Array]] | None) -> tuple[Array, list[tuple[Array, Array]]]:
        """Hidden states of ``ids``, shaped (rows, tokens), after the one row of ``past``; and keys and values."""
        hidden: Array = self._embedding[ids]
        start = past[0][0].shape[2] if past else 0
        rows, count, width = hidden.shape
        size = width // self._heads
        angles = np.outer(
            np.arange(start, start + count), self._theta ** -(np.arange(0, size, 2, dtype=np.float32) / size)
        )
        turn = np.concatenate([angles, angles], axis=1).astype(np.float32)
        cos, sin = np.cos(turn), np.sin(turn)
        # Each token sees all that is past, and of its own row what is not after it.
        mask = np.triu(np.full((count, start + count), -np.inf, np.float32), start + 1)
        kept: list[tuple[Array, Array]] = []
        for number, layer in enumerate(self._layers):
            normal = _normal(hidden, layer["input_layernorm"], self._epsilon)
            query, key, value = (
                (normal @ layer[f"self_attn.{n}_proj"].T).reshape(rows, count, self._heads, size).transpose(0, 2, 1, 3)
                for n in "qkv"
            )
            query, key = (x * cos + _rotated(x) * sin for x in (query, key))
            if past:
                key, value = (
                    np.concatenate([np.broadcast_to(old, (rows, *old.shape[1:])), new], axis=2)
                    for old, new in zip(past[number], (key, value), strict=True)
                )
            kept.append((key, value))
            scores = query @ key.transpose(0, 1, 3, 2) / np.float32(size**0.5) + mask
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares /= shares.sum(axis=-1, keepdims=True)
            seen = (shares @ value).transpose(0, 2, 1, 3).reshape(rows, count, width)
            hidden = hidden + seen @ layer["self_attn.o_proj"].T
            normal = _normal(hidden, layer["post_attention_layernorm"], self._epsilon)
            gate = normal @ layer["mlp.gate_proj"].T
            inner = gate / (1 + np.exp(-gate)) * (normal @ layer["mlp.up_proj"].T)
            hidden = hidden + inner @ layer["mlp.down_proj"].T
        return _normal(hidden, self._norm, self._epsilon), kept


def _layer(weights: Mapping[str, Array], number: int) -> dict[str, Array]:
    start = f"model.layers.{number}."
    return {n.removeprefix(start).removesuffix(".weight"): a for n, a in weights.items() if n.startswith(start)}


def _with_adapter(weights: Mapping[str, Array], directory: Path) -> dict[str, Array]:
    """The weights with a LoRA adapter added (Hu et al. 2021): ``W + alpha / r * B A``."""
    config = json.loads((directory / "adapter_config.json").read_text())
    scale = np.float32(config["lora_alpha"] / config["r"])
    adapter, result = load_file(directory / "adapter_model.safetensors"), dict(weights)
    for name, low in adapter.items():
        if name.endswith(".lora_A.weight"):
            place = name.removeprefix("base_model.model.").replace(".lora_A", "")
            result[place] = weights[place] + scale * (adapter[name.replace("lora_A", "lora_B")] @ low)
    return result


def _normal(hidden: Array, weight: Array, epsilon: float) -> Array:
    mean = np.mean(np.square(hidden), axis=-1, keepdims=True)
    return hidden / np.sqrt(mean + np.float32(epsilon)) * weight


def _rotated(values: Array) -> Array:
    half = values.shape[-1] // 2
    return np.concatenate([-values[..., half:], values[..., :half]], axis=-1)


# The words in which facts of a kernel and answers are written for a model.
#
# A fact becomes a word of its name and of how many of the training kernels have less of it, in ``_PARTS`` equal parts.
# An answer is one word a slot (``pipeline.candidates``), so a model states answers that no label has too.


_PARTS = 8
_SEEN = 8
KINDS = ("CDNA", "RDNA")
_ACCUMULATORS = SLOTS["matrices"]
WORDS = "words.json"
"""The file beside the weights that has the words."""


class Words:
    """The words of facts, kinds of targets and answers.

    Attributes:
        names: of the facts.
        limits: of each, the values that part the training kernels into equal parts.
        answers: those that at least ``_SEEN`` training kernels have, which are ranked.
    """

    def __init__(
        self, names: Sequence[str], limits: Mapping[str, Sequence[float]], answers: Sequence[str] = ()
    ) -> None:
        self.names, self.limits = list(names), {name: list(values) for name, values in limits.items()}
        self.answers = [Answer.parse(text) for text in answers]
        self._answers = [f"{slot}: {word}" for slot, words in SLOTS.items() for word in (AS_IT_IS, *words)]
        facts = [f"{name} {part}" for name in self.names for part in range(_PARTS)]
        words = ["?", *KINDS, *facts, *self._answers]
        self.ids = {word: number for number, word in enumerate(words)}
        self._spelt = {number: word for word, number in self.ids.items()}

    @classmethod
    def of(cls, kernels: Sequence[Labels]) -> Words:
        """As the training kernels have them."""
        shares = np.arange(1, _PARTS) / _PARTS
        names = sorted(kernels[0].facts)
        limits = {n: np.quantile([k.facts[n] for k in kernels], shares).tolist() for n in names}
        counts = Counter(plan for kernel in kernels for plan in kernel.plans)
        return cls(names, limits, [plan for plan, count in counts.items() if count >= min(_SEEN, len(kernels))])

    def to_data(self) -> dict[str, Any]:
        return {"names": self.names, "limits": self.limits, "answers": list(map(str, self.answers))}

    def facts(self, facts: Mapping[str, float], target: str, hidden: frozenset[str] = frozenset()) -> list[int]:
        """The target's kind, a kernel's facts, and the question; ``?`` for facts that are hidden."""
        words = (
            "?" if name in hidden else f"{name} {bisect.bisect_right(self.limits[name], facts[name])}"
            for name in self.names
        )
        return [self.ids[word] for word in (kind(target), *words, "?")]

    def ranked(self, target: str) -> list[Answer]:
        """``answers`` that a target has: RDNA has no accumulators."""
        there = kind(target) == "CDNA"
        return [answer for answer in self.answers if there or not {*_ACCUMULATORS} & {*answer.words}]

    def answer(self, answer: Answer) -> list[int]:
        return [self.ids[f"{slot}: {word}"] for slot, word in answer.by_slot.items()]

    def of_slot(self, slot: str, target: str) -> list[int]:
        """The numbers of a slot's words that a target has: the mask."""
        there = kind(target) == "CDNA"
        return [self.ids[f"{slot}: {w}"] for w in (AS_IT_IS, *SLOTS[slot]) if there or w not in _ACCUMULATORS]

    def read(self, ids: Sequence[int]) -> Answer | None:
        """What ``answer`` gave; None for anything else."""
        words: list[str] = []
        for number, slot in zip(ids, SLOTS, strict=True):
            name, _, word = self._spelt.get(number, "").partition(": ")
            if name != slot:
                return None
            words += [word] if word != AS_IT_IS else []
        return Answer.of(words)
