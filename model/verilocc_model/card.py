"""The card beside a model's weights: what it is called, what it is for, what it was trained on. Read without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_model.encoding.vocabulary import VOCABULARY_VERSION

CARD = "verilocc.json"
"""Beside the weights: name, kind, vocabulary version, window, what it was trained on."""


def read_card(directory: Path) -> dict[str, Any]:
    """What is written beside the weights.

    Raises:
        InputError: the directory has no model of ours, or one for another vocabulary.
    """
    path = directory / CARD
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
    return card
