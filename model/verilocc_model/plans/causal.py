"""A causal transformer that reads a kernel's facts as words and answers with a plan; LoRA adapters for CDNA and RDNA.

It is compared with the baselines (``verilocc eval --plans --causal``). A fact becomes a word of its name and of how
many of the training kernels have less of it, in ``_PARTS`` equal parts. The answer is one word, a plan. It is trained
towards all plans at once: each has the probability that its cycles deserve (``_SHARPNESS``). So the model ranks plans
without one being compiled.
"""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from verilocc_model.plans.data import DEFAULT, Labels
from verilocc_model.plans.policies import Policy, baselines, kind

_PARTS = 8
_SHARPNESS = 50.0
"""A plan that takes a share x of the cycles less than another deserves to be e**(_SHARPNESS * x) times as likely:
1.65 times for 1 %."""
_BATCH = 16
KINDS = ("CDNA", "RDNA")


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

    hidden: int = 96
    layers: int = 3
    heads: int = 4
    epochs: int = 60
    rate: float = 1e-3
    dropped: float = 0.2
    rank: int = 4
    adapter_epochs: int = 20


class Causal:
    """The base alone, or with an adapter for each kind.

    Args:
        adapted: with adapters.
        trained: False leaves the weights as they are drawn, which the tests compare with.
    """

    def __init__(self, sizes: Sizes = Sizes(), *, adapted: bool = False, trained: bool = True, seed: int = 0) -> None:
        self._sizes, self._adapted, self._trained, self._seed = sizes, adapted, trained, seed
        self.name = "causal transformer" + (", adapters for CDNA and RDNA" if adapted else "")

    def fit(self, kernels: Sequence[Labels]) -> None:
        torch.manual_seed(self._seed)
        self._words = Words(kernels)
        model: Any = LlamaForCausalLM(self._config())
        if self._trained:
            _train(model, self._words, kernels, self._sizes, self._sizes.epochs, self._sizes.rate)
        self._models = {name: self._of_kind(model, name, kernels) for name in KINDS} if self._adapted else {}
        self._base = model.eval()

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        """By plan the logarithm of its cycles over the first one's, as probabilities say it: the first one's log
        probability less the plan's, over ``_SHARPNESS``.
        """
        words = self._words
        model = self._models.get(kind(kernel.cell.target), self._base)
        with torch.no_grad():
            ids = torch.tensor([words.sequence(kernel)])
            answers = model(input_ids=ids).logits[0, -1, words.plan_ids].log_softmax(-1)
        chances = dict(zip(words.plans, answers.tolist(), strict=True))
        return {plan: (chances[kernel.first] - chance) / _SHARPNESS for plan, chance in chances.items()}

    def _config(self) -> LlamaConfig:
        sizes = self._sizes
        return LlamaConfig(
            vocab_size=-(-len(self._words.ids) // 64) * 64,
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

    def _of_kind(self, base: Any, name: str, kernels: Sequence[Labels]) -> Any:
        """The base with an adapter, trained on the kernels of that kind; the base where there are none."""
        own = [kernel for kernel in kernels if kind(kernel.cell.target) == name]
        if not own:
            return base
        lora = LoraConfig(r=self._sizes.rank, lora_alpha=2 * self._sizes.rank, target_modules=["q_proj", "v_proj"])
        model: Any = get_peft_model(copy.deepcopy(base), lora)
        _train(model, self._words, own, self._sizes, self._sizes.adapter_epochs, self._sizes.rate)
        return model.eval()


class Words:
    """The words of facts, kinds of targets and plans, as the training kernels have them; ``names`` are of the facts."""

    def __init__(self, kernels: Sequence[Labels]) -> None:
        self.names = sorted(kernels[0].facts)
        shares = np.arange(1, _PARTS) / _PARTS
        self._limits = {
            name: np.quantile([kernel.facts[name] for kernel in kernels], shares).tolist() for name in self.names
        }
        self.plans = [DEFAULT, *sorted({p for kernel in kernels for p in kernel.plans if p != DEFAULT})]
        words = ["?", *KINDS, *(f"{name} {part}" for name in self.names for part in range(_PARTS)), *self.plans]
        self.ids = {word: number for number, word in enumerate(words)}
        self.plan_ids = [self.ids[plan] for plan in self.plans]

    def sequence(self, kernel: Labels, hidden: frozenset[str] = frozenset()) -> list[int]:
        """The kernel's kind, its facts, and the question; ``?`` for facts that are hidden."""
        facts = (
            "?" if name in hidden else f"{name} {bisect.bisect_right(self._limits[name], kernel.facts[name])}"
            for name in self.names
        )
        return [self.ids[word] for word in (kind(kernel.cell.target), *facts, "?")]

    def deserved(self, kernel: Labels) -> list[float]:
        """The probability of each plan; 0 where the kernel's target has no such plan."""
        weights = [
            math.exp(-_SHARPNESS * max(kernel.gain(plan), -1.0)) if plan in kernel.plans else 0.0 for plan in self.plans
        ]
        return [weight / math.fsum(weights) for weight in weights]


def _train(model: Any, words: Words, kernels: Sequence[Labels], sizes: Sizes, epochs: int, rate: float) -> None:
    """Train in place, on one core; batches and hidden facts are drawn from torch's generator."""
    torch.set_num_threads(1)
    model.train()
    parameters: Iterable[Any] = (p for p in model.parameters() if p.requires_grad)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.05)
    steps = epochs * -(-len(kernels) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    deserved = torch.tensor([words.deserved(kernel) for kernel in kernels])
    for _ in range(epochs):
        for batch in torch.randperm(len(kernels)).split(_BATCH):
            rows: list[list[int]] = []
            for k in batch.tolist():
                drawn = torch.rand(len(words.names)).tolist()
                hidden = frozenset(n for n, x in zip(words.names, drawn, strict=True) if x < sizes.dropped)
                rows.append(words.sequence(kernels[k], hidden))
            answers = model(input_ids=torch.tensor(rows)).logits[:, -1, words.plan_ids].log_softmax(-1)
            loss = -(deserved[batch] * answers).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def with_causal() -> list[Policy]:
    """The baselines, the transformer, and the transformer with adapters."""
    return [*baselines(), Causal(), Causal(adapted=True)]
