"""The card beside a model's weights: its name, its purpose, what it was trained on. It is read without torch.

The card is JSON. An adapter has one for people too, in the place of peft's empty form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_model.encoding.vocabulary import TEXT, VOCABULARY_VERSION, WORDS, WRITINGS

CARD = "verilocc.json"
"""The file with name, kind, vocabulary version, encoding, window, and what the model was trained on."""

_PRETRAINED = ("config.json", "tokenizer.json")
"""Files in the directory of a language model that this project did not train."""

PRETRAINED_WINDOW = 1024


README = "README.md"
"""An adapter's card for people: peft writes a form with nothing in it under that name."""

_README = """# Model card: {name}

A LoRA adapter for {base}. It is applied for {applied}; for all other GPUs the model answers without it.

| | |
|---|---|
| trained on problems for | {trained} |
| tokens | {tokens:,} |
| seconds | {seconds} |
| rank, alpha, dropout | {config.rank}, {config.alpha}, {config.dropout} |
| learning rate | {config.learning_rate} |
| seed | {seed} |
| answers ranked first, of those kept from training | {shares} |
| made by | verilocc {verilocc} {commit} |

**Use.** `verilocc compile k.ll --model=DIR` and `verilocc serve --model=DIR`, where DIR is this directory, or a
model that has it in `adapters/FAMILY`. Every answer is proved before it becomes code.

**Limits.** This card says what it was made from, not what it brings: `verilocc eval` compares it with its base on
kernels that were kept from it. Costs are modelled, not measured on a GPU.

**Licence.** That of its base and of the data.
"""


def write_card(directory: Path, card: Mapping[str, Any], config: Any, applied: Sequence[str]) -> None:
    """Write a model's card, and beside an adapter's one for people.

    Args:
        config: of its training (``training.config``).
        applied: GPUs that an adapter is applied for; none: all.
    """
    write_whole(directory / CARD, json.dumps(card, indent=1).encode())
    if card["kind"] == "adapter":
        shares = ", ".join(f"{stage} {value['accuracy']:.4f}" for stage, value in card["validation"].items())
        trained = ", ".join(card["targets"]) or "any GPU"
        named = {"shares": shares, "trained": trained, "applied": ", ".join(applied) or "all GPUs", "config": config}
        write_whole(directory / README, _README.format(**card, **named).encode())


def read_card(directory: Path) -> dict[str, Any]:
    """The card of a model, with its ``encoding``, one of ``WRITINGS``; a pretrained model without a card gets one that
    says it takes text.

    Raises:
        InputError: the directory has no model, or one for another vocabulary.
    """
    path = directory / CARD
    if not path.exists() and all((directory / name).exists() for name in _PRETRAINED):
        return {
            "name": directory.resolve().name, "vocabulary": VOCABULARY_VERSION, "encoding": TEXT,
            "window": PRETRAINED_WINDOW, "kind": "pretrained", "tokens": 0,
        }  # fmt: skip
    try:
        card = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(
            "has no allocation model", where=str(directory), hint=f"a model is a directory with {CARD}: {error}"
        ) from error
    if card.get("vocabulary") != VOCABULARY_VERSION:
        raise InputError(
            f"the model speaks vocabulary {card.get('vocabulary')}, this version {VOCABULARY_VERSION}",
            where=str(directory),
            hint="train it again, or use the version of verilocc it was made for",
        )
    if card.setdefault("encoding", WORDS) not in WRITINGS:
        raise InputError(
            f"the model's encoding {card['encoding']!r} is not known", where=str(directory),
            hint="use the version of verilocc it was made for",
        )  # fmt: skip
    return card
