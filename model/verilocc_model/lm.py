"""The language model: making one, loading one, and scoring with its key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from verilocc_mlir.errors import InputError
from verilocc_model.decoding.scorer import Scores
from verilocc_model.encoding.vocabulary import BEGIN, PAD, words
from verilocc_model.training.config import TrainConfig

# Weights are read and written in a moment, and standard error is for what people must know.
transformers_logging.disable_progress_bar()


def new_model(config: TrainConfig) -> PreTrainedModel:
    """A Llama model with random weights over the domain's vocabulary, or the one that ``config.start`` names.

    Raises:
        InputError: there is no model to begin with.
    """
    torch.manual_seed(config.seed)
    known = words()
    if config.start:
        return _taken(Path(config.start), len(known.words))
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-len(known.words) // 64) * 64,
            hidden_size=config.hidden,
            intermediate_size=config.inner,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=max(config.window, 1024),
            tie_word_embeddings=True,
            pad_token_id=known.ids[PAD],
            bos_token_id=known.ids[BEGIN],
            eos_token_id=None,
        )
    )


def _taken(directory: Path, size: int) -> PreTrainedModel:
    """A pretrained model with embeddings for other words: what it knows of sequences stays, its tokens do not."""
    model: Any = load_model(directory).float()
    model.resize_token_embeddings(-(-size // 64) * 64)
    spread = float(getattr(model.config, "initializer_range", 0.02))
    for table in (model.get_input_embeddings(), model.get_output_embeddings()):
        torch.nn.init.normal_(table.weight, std=spread)
    model.generation_config = GenerationConfig()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(model.config, name, None)
    return model


def parameters(model: PreTrainedModel) -> int:
    """How many there are."""
    return sum(p.numel() for p in model.parameters())


def load_model(directory: Path) -> PreTrainedModel:
    """A model that ``training`` saved, from safetensors only."""
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(f"has no model that can be loaded: {error}", where=str(directory)) from error
    return model.eval()


class LanguageModel:
    """A causal language model over the domain's vocabulary as a ``Scorer``.

    Args:
        model: any causal LM of transformers whose first tokens are the vocabulary's words.
        name: for answers and reports.
        limit: tokens of a window at most.
    """

    def __init__(self, model: Any, name: str, limit: int) -> None:
        self.model = model
        self.name = name
        self.limit = limit
        self._size = len(words().words)
        self._cache = DynamicCache()

    def begin(self, tokens: Sequence[int]) -> None:
        """Start a window."""
        self._cache = DynamicCache()
        if tokens:
            self.extend(tokens, ())

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """Run the tokens through the model, and score what follows at ``positions``."""
        with torch.inference_mode():
            found = self.model(
                input_ids=torch.tensor([list(tokens)]),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=torch.tensor(list(positions), dtype=torch.long),
            )
        return found.logits[0, :, : self._size].float().numpy().astype(np.float32, copy=False)

    def cut(self, length: int) -> None:
        """Keep the first ``length`` tokens of the window."""
        surplus = self._cache.get_seq_length() - length
        if surplus > 0:
            self._cache.crop(-surplus)
