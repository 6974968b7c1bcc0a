"""A causal transformer that reads a kernel's facts as words and states an answer; LoRA adapters for CDNA and RDNA.

``choose.py`` says how facts and answers are spelt. The model is trained towards all labelled answers at once: each is
shown as often as its cycles deserve (``_SHARPNESS``). The probability of an answer then ranks it, and nothing is
compiled for that. This module trains and saves; ``choose.py`` answers, without torch.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.pipeline.candidates import SLOTS, Answer
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.version import __version__
from verilocc_model.card import README, write_readme
from verilocc_model.lm import one_thread
from verilocc_model.plans.choose import KINDS, WORDS, Words
from verilocc_model.plans.critic import Critic
from verilocc_model.plans.data import Labels
from verilocc_model.plans.policies import Policy, Shortlist, kind

_SHARPNESS = 50.0
"""An answer that takes a share x of the cycles less than another deserves to be shown e**(_SHARPNESS * x) times as
often: 1.65 times for 1 %."""
_BATCH = 16
_SHOWN = 2
"""Answers shown of a kernel in one pass."""


@dataclass(frozen=True)
class Sizes:
    """Of the model (``LlamaConfig``) and of its training.

    Attributes:
        hidden, layers, heads: width, layers and attention heads; the inner width is three times ``hidden``.
        epochs: passes over all kernels.
        rate: the highest learning rate, of the base and of the adapters.
        rank: of the adapters.
        dropped: share of the facts that are hidden at random in training.
        adapter_epochs: of the adapters, which are trained after the base on the kernels of their kind alone.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    epochs: int = 16
    rate: float = 1e-3
    dropped: float = 0.2
    rank: int = 8
    adapter_epochs: int = 8


Say = Callable[[str], None]


def _silent(_line: str) -> None: ...


class Causal:
    """The base alone, or with an adapter for each kind.

    Args:
        adapted: with adapters.
        say: is told of each pass of its training.
        trained: False leaves the weights as they are drawn, which the tests compare with.
    """

    def __init__(
        self, sizes: Sizes = Sizes(), *, adapted: bool = False, trained: bool = True, seed: int = 0, say: Say = _silent
    ) -> None:
        self._sizes, self._adapted, self._trained, self._seed, self._say = sizes, adapted, trained, seed, say
        self.name = "causal transformer" + (", adapters for CDNA and RDNA" if adapted else "")
        self._models: dict[str, Any] = {}
        self._learned_from: dict[str, Counter[str]] = {}
        """Of each adapter that was trained here: kernels by target."""
        self._cards: dict[str, bytes] = {}
        """Of each adapter that was loaded."""

    def fit(self, kernels: Sequence[Labels]) -> None:
        torch.manual_seed(self._seed)
        self.words = Words.of(kernels)
        model: Any = LlamaForCausalLM(_config(self._sizes, self.words))
        if self._trained:
            train(model, self.words, kernels, self._sizes.epochs, self._sizes, self._say)
        self._base = model.eval()
        if self._adapted:
            for name in KINDS:
                self.adapt(name, [kernel for kernel in kernels if kind(kernel.cell.target) == name])

    def reads(self, kernel: Labels) -> Sequence[str]:
        """No text but the first plan's, which is made anyway."""
        return ()

    def adapt(self, name: str, kernels: Sequence[Labels]) -> None:
        """Train an adapter for a kind or a target, on kernels of it; none where there are none."""
        if not kernels:
            return
        rank = self._sizes.rank
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
        model: Any = get_peft_model(copy.deepcopy(self._base), lora)
        self._say(f"adapter {name}: {len(kernels)} kernels")
        train(model, self.words, kernels, self._sizes.adapter_epochs, self._sizes, self._say)
        self._models[name] = model.eval()
        self._learned_from[name] = Counter(kernel.cell.target for kernel in kernels)

    def model_for(self, target: str) -> tuple[str, Any]:
        """The adapter's name and model for a target: its own, else that of its kind, else the base, ``""``."""
        for name in (target, kind(target)):
            if name in self._models:
                return name, self._models[name]
        return "", self._base

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        """By answer the logarithm of its cycles over the first plan's, as probabilities say it: the first one's log
        probability less the answer's, over ``_SHARPNESS``. Answers are those that labels had (``Words.answers``).
        """
        answers = self.words.ranked(kernel.cell.target)
        chances = dict(zip(map(str, answers), self.chances(kernel, answers), strict=True))
        return {plan: (chances[kernel.first] - chance) / _SHARPNESS for plan, chance in chances.items()}

    def chances(self, kernel: Labels, answers: Sequence[Answer]) -> list[float]:
        """The logarithm of each answer's probability."""
        _, model = self.model_for(kernel.cell.target)
        facts = self.words.facts(kernel.facts, kernel.cell.target)
        rows = torch.tensor([[*facts, *self.words.answer(answer)] for answer in answers])
        with torch.no_grad():
            logits = self._masked(model(input_ids=rows[:, :-1]).logits[:, len(facts) - 1 :], kernel.cell.target)
        spelt = rows[:, len(facts) :]
        return logits.log_softmax(-1).gather(2, spelt[:, :, None]).squeeze(2).sum(1).tolist()

    def stated(self, kernel: Labels, count: int, *, seed: int = 0, masked: bool = True) -> list[Answer | None]:
        """Answers drawn word by word; None for one that is not well-formed, which no mask leaves.

        Args:
            masked: only words of the slot that is asked, and only those that the target has.
        """
        _, model = self.model_for(kernel.cell.target)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.tensor([self.words.facts(kernel.facts, kernel.cell.target)] * count)
        with torch.no_grad(), one_thread():
            for place in range(len(SLOTS)):
                logits = model(input_ids=rows).logits[:, -1:]
                if masked:
                    logits = self._masked(logits, kernel.cell.target, place)
                drawn = torch.multinomial(logits[:, 0].softmax(-1), 1, generator=generator)
                rows = torch.cat([rows, drawn], dim=1)
        return [self.words.read(row[-len(SLOTS) :]) for row in rows.tolist()]

    def _masked(self, logits: Any, target: str, start: int = 0) -> Any:
        """Logits of the slots from ``start`` on, with the words of other slots, and those a target has not, at -inf."""
        mask = torch.full_like(logits[0], -math.inf)
        for row, slot in enumerate(list(SLOTS)[start : start + len(mask)]):
            mask[row, self.words.of_slot(slot, target)] = 0
        return logits + mask

    def both(self) -> list[Causal]:
        """The base alone, and with the adapters that there are."""
        alone = copy.copy(self)
        alone._models = {}
        names = ", ".join(sorted(self._models))
        alone.name, self.name = "causal transformer", f"causal transformer, adapters for {names}"
        return [alone, self]

    def save(self, directory: Path) -> None:
        """Weights (safetensors), words and sizes; adapters below ``adapters/``."""
        self._base.save_pretrained(directory)
        for name, model in self._models.items():
            model.save_pretrained(directory / "adapters" / name)
            self._write_card(directory, name)
        data = {"sizes": asdict(self._sizes), "words": self.words.to_data()}
        write_whole(directory / WORDS, (json.dumps(data, indent=1) + "\n").encode())

    def _write_card(self, directory: Path, name: str) -> None:
        """The card of an adapter for people: what was trained here, or the card that was loaded."""
        adapter, sizes = directory / "adapters" / name, self._sizes
        if name not in self._learned_from:
            if name in self._cards:
                write_whole(adapter / README, self._cards[name])
            return
        counts = self._learned_from[name]
        write_readme(
            adapter,
            f"{directory.name}+{name}",
            f"the model of plans {directory.name}",
            [target for target in TARGETS if name in (target, kind(target))],
            "`verilocc compile -O=learned` and `verilocc serve --plan-model=DIR`, where DIR is the model's directory.\n"
            "What it states is compared with what `fast` tries, and proved.",
            {
                "trained on kernels": ", ".join(f"{count} for {target}" for target, count in sorted(counts.items())),
                "passes": sizes.adapter_epochs,
                "rank, alpha": f"{sizes.rank}, {2 * sizes.rank}",
                "highest learning rate": sizes.rate,
                "facts hidden at random": sizes.dropped,
                "seed": self._seed,
                "made by": f"verilocc {__version__}",
            },
        )

    @classmethod
    def load(cls, directory: Path, say: Say = _silent) -> Causal:
        """What ``save`` wrote.

        Raises:
            InputError: no such model is there.
        """
        try:
            data = json.loads((directory / WORDS).read_text())
            result = cls(Sizes(**data["sizes"]), say=say)
            result.words = Words(**data["words"])
            result._base = LlamaForCausalLM.from_pretrained(directory).eval()
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "make one: verilocc train plans DATA --out DIR"
            raise InputError(f"no model of plans is there: {error}", where=str(directory), hint=hint) from error
        for path in sorted((directory / "adapters").glob("*")):
            model: Any = PeftModel.from_pretrained(copy.deepcopy(result._base), path)
            result._models[path.name] = model.eval()
            if (path / README).is_file():
                result._cards[path.name] = (path / README).read_bytes()
        return result


class _Alone:
    """The base of a model that is fitted before this one is, without its adapters."""

    name = "causal transformer"

    def __init__(self, model: Causal) -> None:
        self._model = model

    def fit(self, kernels: Sequence[Labels]) -> None: ...

    def reads(self, kernel: Labels) -> Sequence[str]:
        return ()

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        return self._model.both()[0].expected(kernel)


def refitted() -> list[Policy]:
    """What states answers, to be fitted in this order: with adapters, its base alone, and with a critic behind it."""
    model = Causal(adapted=True)
    return [model, _Alone(model), Shortlist(model, Critic())]


def well_formed(model: Causal, kernels: Sequence[Labels], *, masked: bool, samples: int = 4) -> float:
    """The share of drawn answers that have one word of each slot."""
    drawn = [a for n, k in enumerate(kernels) for a in model.stated(k, samples, seed=n, masked=masked)]
    return round(sum(answer is not None for answer in drawn) / len(drawn), 5) if drawn else 0.0


def deserved(kernel: Labels) -> tuple[list[Answer], list[float]]:
    """The labelled answers that are not allocated like an earlier one, and how often each is to be shown."""
    plans = [plan for plan in kernel.plans if plan not in kernel.alike]
    weights = [math.exp(-_SHARPNESS * max(min(kernel.unguarded(plan), 1.0), -1.0)) for plan in plans]
    return [Answer.parse(plan) for plan in plans], [weight / math.fsum(weights) for weight in weights]


def train(model: Any, words: Words, kernels: Sequence[Labels], epochs: int, sizes: Sizes, say: Say = _silent) -> None:
    """Train in place, on one core; batches, answers and hidden facts are drawn from torch's generator."""
    with one_thread():
        _train(model, words, kernels, epochs, sizes, say)


def _train(model: Any, words: Words, kernels: Sequence[Labels], epochs: int, sizes: Sizes, say: Say) -> None:
    model.train()
    parameters: Iterable[Any] = (p for p in model.parameters() if p.requires_grad)
    optimizer = torch.optim.AdamW(parameters, lr=sizes.rate, weight_decay=0.05)
    steps = epochs * -(-len(kernels) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=sizes.rate, total_steps=steps)
    shown = [deserved(kernel) for kernel in kernels]
    spelt = [torch.tensor([words.answer(answer) for answer in answers]) for answers, _ in shown]
    chances = [torch.tensor(weights) for _, weights in shown]
    for epoch in range(1, epochs + 1):
        losses: list[float] = []
        for batch in torch.randperm(len(kernels)).split(_BATCH):
            rows: list[Any] = []
            for k in batch.tolist():
                drawn = torch.rand(len(words.names)).tolist()
                hidden = frozenset(n for n, x in zip(words.names, drawn, strict=True) if x < sizes.dropped)
                facts = torch.tensor(words.facts(kernels[k].facts, kernels[k].cell.target, hidden))
                for answer in torch.multinomial(chances[k], _SHOWN, replacement=True).tolist():
                    rows.append(torch.cat([facts, spelt[k][answer]]))
            ids = torch.stack(rows)
            logits = model(input_ids=ids[:, :-1]).logits[:, -len(SLOTS) :]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -len(SLOTS) :].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        say(f"pass {epoch} of {epochs}: loss {math.fsum(losses) / len(losses):.3f}")


def _config(sizes: Sizes, words: Words) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=-(-len(words.ids) // 64) * 64,
        hidden_size=sizes.hidden,
        intermediate_size=3 * sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
