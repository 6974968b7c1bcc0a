"""The card beside a model's weights: its name, its purpose, what it was trained on. It is read without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_model.encoding.vocabulary import VOCABULARY_VERSION
from verilocc_model.encoding.writing import TEXT, WORDS, WRITINGS

CARD = "verilocc.json"
"""The file with name, kind, vocabulary version, encoding, window, and what the model was trained on."""

_PRETRAINED = ("config.json", "tokenizer.json")
"""Files in the directory of a language model that this project did not train."""

PRETRAINED_WINDOW = 1024


def encoding_of(card: dict[str, Any]) -> str:
    """How the model's words are written, one of ``WRITINGS``."""
    return str(card.get("encoding", WORDS))


def read_card(directory: Path) -> dict[str, Any]:
    """The card of a model; a pretrained model without one gets a card that says it takes text.

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
    if encoding_of(card) not in WRITINGS:
        raise InputError(
            f"the model's encoding {card['encoding']!r} is not known", where=str(directory),
            hint="use the version of verilocc it was made for",
        )  # fmt: skip
    return card
