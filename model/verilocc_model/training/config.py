"""The settings of a training run: a JSON file with these fields, all of which have defaults."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert

from verilocc_mlir.errors import InputError


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
        start: directory of a causal language model of transformers (Qwen2, Llama …) to begin with, which reads and
            writes the words as text under its own tokenizer. The shape below is not used.
        init: directory of a model of this project to continue with, its words included: another stage of its training.
        hidden, layers, heads, kv_heads, inner: shape of the Llama model; 256, 6, 4, 4, 704 make 5.4 million parameters.
        window: most tokens of a training sequence.
        batch_tokens: tokens of a step, padding included.
        learning_rate: its peak; it is warmed up over ``warmup`` steps, then decays with a cosine to a tenth at
            ``tokens``.
        decay_minutes: the learning rate also reaches a tenth after so many minutes of training; 0: by tokens alone.
        tokens: tokens to train on in all.
        minutes: most wall time of this run; 0: no limit. The run can be resumed.
        planning_weight: weight of a planning answer; one that joins or places has weight 1. A function has three
            planning answers.
        planning_repeats: how often a pass shows the plans without what follows them.
        advice_rate: part of the examples with made-up refutations.
        checkpoint_minutes: time between checkpoints.
        seed: seed of weights, order and advice.
        threads: threads of torch; 0: torch's choice.
        bf16: compute matrix products in bfloat16.
        rank, alpha, dropout: settings of a LoRA adapter.
        targets: train on problems of these GPUs only; none: all but the one that is held out.
    """

    start: str = ""
    init: str = ""
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 4
    inner: int = 704
    window: int = 1024
    batch_tokens: int = 8192
    learning_rate: float = 1e-3
    decay_minutes: float = 0.0
    weight_decay: float = 0.05
    warmup: int = 100
    tokens: int = 20_000_000
    minutes: float = 0.0
    planning_weight: float = 4.0
    planning_repeats: int = 4
    advice_rate: float = 0.1
    checkpoint_minutes: float = 5.0
    seed: int = 0
    threads: int = 0
    bf16: bool = False
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        return {**asdict(self), "targets": list(self.targets)}


def load_config(path: Path | None, overrides: dict[str, Any] | None = None) -> TrainConfig:
    """The configuration in a file, with ``overrides``.

    Raises:
        InputError: the file cannot be read, or has unknown settings or values.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = json.loads(path.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"no training configuration: {error}", where=str(path)) from error
    data.update(overrides or {})
    where = str(path) if path else ""
    for name in data:
        if name not in _SETTINGS:
            there = f"there are: {', '.join(sorted(_SETTINGS))}"
            raise InputError(f"there is no setting {name!r}", where=where, hint=there)
    try:
        return convert(data, TrainConfig)
    except ValidationError as error:
        raise InputError(f"no such setting: {error}", where=where) from error


_SETTINGS = {field.name for field in fields(TrainConfig)}
