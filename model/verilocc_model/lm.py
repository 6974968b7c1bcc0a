"""The language model: making one, loading one, its tokenizer, and scoring with its key-value cache."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from verilocc_mlir.errors import InputError
from verilocc_model.decoding import Scores
from verilocc_model.encoding.vocabulary import BEGIN, DOMAIN, PAD, TEXT, VOCABULARY, Text, Writing
from verilocc_model.training.config import TrainConfig

# Weights are read and written in a moment, and standard error is for things that people must know.
transformers_logging.disable_progress_bar()


TOKENIZER = "tokenizer.json"


def new_model(config: TrainConfig) -> PreTrainedModel:
    """A Llama model with random weights over the domain's vocabulary, or the model that ``config.init`` or
    ``config.start`` names.

    Raises:
        InputError: the named model does not exist.
    """
    torch.manual_seed(config.seed)
    if config.init or config.start:
        return load_model(Path(config.init or config.start)).float()
    vocabulary = VOCABULARY
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-len(vocabulary.words) // 64) * 64,
            hidden_size=config.hidden,
            intermediate_size=config.inner,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            max_position_embeddings=max(config.window, 1024),
            tie_word_embeddings=True,
            pad_token_id=vocabulary.ids[PAD],
            bos_token_id=vocabulary.ids[BEGIN],
            eos_token_id=None,
        )
    )


def load_model(directory: Path) -> PreTrainedModel:
    """A model that ``training`` saved, from safetensors only."""
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(f"has no model that can be loaded: {error}", where=str(directory)) from error
    return model.eval()


def load_writing(directory: Path, kind: str) -> Writing:
    """How a model in a directory, or an adapter for it, writes words.

    Args:
        kind: the writing on its card.

    Raises:
        InputError: it writes text and has no tokenizer, or one that cannot tell the words apart.
    """
    if kind != TEXT:
        return DOMAIN
    path = directory / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises nothing more special.
        raise InputError(
            f"has no tokenizer: {error}", where=str(path), hint="AutoTokenizer.from_pretrained(…).save_pretrained(DIR)"
        ) from error
    return Text(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)


def copy_tokenizer(directory: Path, to: Path) -> None:
    """Copy a model's tokenizer beside a model that was made from it."""
    for name in (TOKENIZER, "tokenizer_config.json"):
        if (directory / name).exists():
            shutil.copyfile(directory / name, to / name)


@dataclass
class LanguageModel:
    """A causal language model as a ``Scorer``.

    Attributes:
        model: any causal LM of transformers; for the domain's writing, one whose first tokens are the vocabulary's
            words.
        name: its name in answers and reports.
        limit: most tokens of a window.
        writing: how words become its tokens.
    """

    model: Any
    name: str
    limit: int
    writing: Writing = DOMAIN
    _cache: DynamicCache = field(default_factory=DynamicCache)
    _read: int = 0

    def take_tokens(self) -> int:
        """Tokens that were read since the last call."""
        read, self._read = self._read, 0
        return read

    def begin(self) -> None:
        self._cache = DynamicCache()

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """Run the tokens through the model, and score what follows at ``positions``."""
        self._read += len(tokens)
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.tensor([list(tokens)]),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=torch.tensor(list(positions), dtype=torch.long),
            )
        return output.logits[0][:, self.writing.columns].float().numpy().astype(np.float32, copy=False)

    def cut(self, length: int) -> None:
        surplus = self._cache.get_seq_length() - length
        if surplus > 0:
            self._cache.crop(-surplus)


# Torch on one thread, for as long as a small model is asked: with more, they would wait longer than they work.


@contextlib.contextmanager
def one_thread() -> Generator[None, None, None]:
    """For the block; whoever else uses Torch in this process has as many threads afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
