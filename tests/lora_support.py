"""LoRA adapters for the model of the package, made without training: quick, and different from the base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

import verilocc_model
from verilocc_model.allocator import ADAPTERS
from verilocc_model.card import CARD, read_card
from verilocc_model.lm import load_model

BASE = Path(verilocc_model.__file__).parent / "weights" / "base"


def write_adapter(directory: Path, name: str, targets: tuple[str, ...], *, strength: float = 0.0) -> Path:
    """An adapter on the packaged base, with its card, in ``directory``.

    Args:
        targets: that the card says it was trained on.
        strength: deviation of its weights; 0 leaves the base's answers as they are.
    """
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(load_model(BASE).float(), config)
    for key, weights in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(weights, std=strength)
    model.save_pretrained(directory)
    base = read_card(BASE)
    card = {
        "name": name, "vocabulary": base["vocabulary"], "encoding": base["encoding"], "window": base["window"],
        "kind": "adapter", "base": base["name"], "targets": list(targets),
    }  # fmt: skip
    (directory / CARD).write_text(json.dumps(card))
    return directory


def write_model(directory: Path, family: str, name: str, targets: tuple[str, ...], *, strength: float = 0.0) -> Path:
    """The packaged base with an adapter in ``adapters/FAMILY``; see ``write_adapter``."""
    shutil.copytree(BASE, directory)
    write_adapter(directory / ADAPTERS / family, name, targets, strength=strength)
    return directory
