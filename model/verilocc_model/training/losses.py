"""What an answer of a batch costs a model in training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from verilocc_model.training.data import Batch


@dataclass(frozen=True)
class Answers:
    """The answers of a batch, each tensor of shape (answers,).

    Attributes:
        losses: negative log-likelihood in nats; of a preference, the loss of DPO.
        right: whether the answer is ranked first; of a preference, above the rejected one.
        weights: above 0.
        preferences: whether it is one.
    """

    losses: Tensor
    right: Tensor
    weights: Tensor
    preferences: Tensor


def answers_of(model: Any, batch: Batch, *, bf16: bool, beta: float, reference: Callable[[], Any]) -> Answers:
    """What a causal language model makes of a batch.

    Args:
        model: of transformers, with an adapter or without.
        bf16: compute in bfloat16 where that is safe.
        beta: of DPO.
        reference: gives the model as it was before training; called where there are preferences.
    """
    tokens, every = torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights)
    rows, columns = torch.nonzero(every[:, 1:], as_tuple=True)
    scores = _scores(model, tokens, rows, columns, bf16)
    expected, rejected = tokens[rows, columns + 1], torch.from_numpy(batch.rejected)[rows]
    losses = functional.cross_entropy(scores, expected, reduction="none")
    right = scores.argmax(-1) == expected
    pairs = rejected >= 0
    if pairs.any():
        preference_rows, row_shown = torch.unique(rows[pairs], return_inverse=True)
        with torch.no_grad():
            before = _scores(reference(), tokens[preference_rows], row_shown, columns[pairs], bf16)
        margin = _margin(scores[pairs], expected[pairs], rejected[pairs])
        shift = margin - _margin(before, expected[pairs], rejected[pairs])
        # Rafailov et al. 2023, equation 7, for one answer.
        losses = losses.masked_scatter(pairs, -functional.logsigmoid(beta * shift))
        right = right.masked_scatter(pairs, margin > 0)
    return Answers(losses, right, every[rows, columns + 1], pairs)


def _margin(scores: Tensor, better: Tensor, worse: Tensor) -> Tensor:
    """By how much one token's log-probability is above another's; what both are divided by cancels out."""
    return (scores.gather(1, better[:, None]) - scores.gather(1, worse[:, None]))[:, 0]


def _scores(model: Any, tokens: Tensor, rows: Tensor, columns: Tensor, bf16: bool) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        states = inner.base_model(input_ids=tokens).last_hidden_state
        # Only what comes before an answer is scored: the head is a good part of a small model.
        return inner.get_output_embeddings()(states[rows, columns]).float()
