"""The loss of each answer in a batch."""

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
        losses: negative log-likelihood in nats; for a preference, the loss of DPO.
        right: whether the answer is ranked first; for a preference, above the rejected one.
        weights: weights above 0.
        preferences: whether it is a preference.
    """

    losses: Tensor
    right: Tensor
    weights: Tensor
    preferences: Tensor


def answers_of(model: Any, batch: Batch, *, bf16: bool, beta: float, reference: Callable[[], Any]) -> Answers:
    """The losses of a causal language model on a batch.

    Args:
        model: a model of transformers, with or without an adapter.
        bf16: compute in bfloat16 where that is safe.
        beta: beta of DPO.
        reference: gives the model as it was before training; called only if there are preferences.
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
    """The difference between the log-probabilities of two tokens; the normalisation cancels out."""
    return (scores.gather(1, better[:, None]) - scores.gather(1, worse[:, None]))[:, 0]


def _scores(model: Any, tokens: Tensor, rows: Tensor, columns: Tensor, bf16: bool) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        states = inner.base_model(input_ids=tokens).last_hidden_state
        # Only positions before an answer are scored, because the head is a large part of a small model.
        return inner.get_output_embeddings()(states[rows, columns]).float()
