"""The ranking of answers by a model's scores: answers of one token, or words of several tokens."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from verilocc_model.decoding.scorer import Scores, gumbel
from verilocc_model.encoding.text import Text, Trie
from verilocc_model.encoding.vocabulary import words
from verilocc_model.encoding.writing import Writing

Look = Callable[[tuple[int, ...]], Scores]
"""Gives the scores of the tokens that may follow some tokens of an answer, of shape (columns,)."""

ScoredPaths = Sequence[tuple[tuple[int, ...], Scores]]
"""The known scores, each with the tokens of an answer that they follow; the first follow no token."""


class Choice(Protocol):
    """Reads answers from scores. The ``number`` of a question and a seed decide the noise that turns the best answer
    into a sample."""

    def stands(self, scored: ScoredPaths, draft: str, number: int) -> bool:
        """Whether the known scores show that the draft is the best answer."""
        ...

    def ranked(self, scored: ScoredPaths, number: int, options: Iterable[str] | None, look: Look) -> Iterator[str]:
        """Answers, best score first; at least all of ``options``, if given. ``look`` gets further scores."""
        ...


def choice_of(writing: Writing, temperature: float, seed: int) -> Choice:
    """The choice for a writing: the best answer at temperature 0, else a sample."""
    if isinstance(writing, Text):
        return _OfText(writing, temperature, seed)
    return _OfTokens(temperature, seed)


class _OfTokens:
    """The choice for a vocabulary with a token for each word."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._seed = seed
        self._known = words()

    def stands(self, scored: ScoredPaths, draft: str, number: int) -> bool:
        return int(self._noisy(scored[0][1], number).argmax()) == self._known.ids[draft]

    def ranked(self, scored: ScoredPaths, number: int, options: Iterable[str] | None, look: Look) -> Iterator[str]:
        """All words, because sorting them is faster than listing the options."""
        return (self._known.words[token] for token in _descending(self._noisy(scored[0][1], number)))

    def _noisy(self, scores: Scores, number: int) -> Scores:
        if not self._temperature:
            return scores
        return scores / self._temperature + gumbel(self._seed, number, len(scores))


class _OfText:
    """The choice for words that are paths in a trie of tokens.

    A word's probability is the product of the probabilities of its tokens, each relative to the tokens that lead to
    some answer. The best words come first: a path is followed only while it may lead to a better word than those known,
    so most questions need only the scores of the draft. Samples are drawn without replacement, top down: the noise of a
    path is that of the best word behind it (Kool, van Hoof and Welling 2019, "Stochastic Beams").
    """

    def __init__(self, writing: Text, temperature: float, seed: int) -> None:
        self._writing = writing
        self._temperature = temperature
        self._seed = seed

    def stands(self, scored: ScoredPaths, draft: str, number: int) -> bool:
        return next(self._search(scored, number, None, None), "") == draft

    def ranked(self, scored: ScoredPaths, number: int, options: Iterable[str] | None, look: Look) -> Iterator[str]:
        return self._search(scored, number, options, look)

    def _search(
        self, scored: ScoredPaths, number: int, options: Iterable[str] | None, look: Look | None
    ) -> Iterator[str]:
        """Words, best score first; without ``look`` it ends where unknown scores are needed."""
        scores_of = {self._writing.column_path(tokens): scores for tokens, scores in scored}
        open_paths = None if options is None else self._paths(options)
        start = float(gumbel(self._seed, number, 1, "/root")[0]) if self._temperature else 0.0
        # Negated value, path, logarithm of the path's probability, node. Paths differ, so nodes are never compared.
        heap: list[tuple[float, tuple[int, ...], float, Trie]] = [(-start, (), 0.0, self._writing.trie)]
        while heap:
            value, path, likely, node = heapq.heappop(heap)
            if node.word:
                yield node.word
                continue
            columns = list(node.children)
            if len(columns) == 1:
                steps, values = [0.0], [-value]
            else:
                scores = scores_of.get(path)
                if scores is None:
                    if look is None:
                        return
                    scores = look(tuple(self._writing.columns[c] for c in path))
                steps, values = self._children(scores[columns].astype(np.float64), -value, likely, number, path)
            for column, step, worth in zip(columns, steps, values, strict=True):
                longer = (*path, column)
                if open_paths is None or longer in open_paths:
                    heapq.heappush(heap, (-worth, longer, likely + step, node.children[column]))

    def _children(
        self, scores: np.ndarray, value: float, likely: float, number: int, path: tuple[int, ...]
    ) -> tuple[list[float], list[float]]:
        """Logarithms of the next tokens' probabilities, and the values of the paths to these tokens."""
        steps = scores / (self._temperature or 1.0)
        steps = steps - steps.max()
        steps = steps - np.log(np.exp(steps).sum())
        if not self._temperature:
            return steps.tolist(), (likely + steps).tolist()
        place = "".join(f"/{column}" for column in path)
        noisy = likely + steps + gumbel(self._seed, number, len(steps), place).astype(np.float64)
        # The best child has its parent's value; the noise puts the others below that.
        with np.errstate(divide="ignore"):
            gap = value - noisy + np.log1p(-np.exp(noisy - noisy.max()))
        return steps.tolist(), (value - np.maximum(0.0, gap) - np.log1p(np.exp(-np.abs(gap)))).tolist()

    def _paths(self, options: Iterable[str]) -> set[tuple[int, ...]]:
        """All prefixes of the words' paths."""
        prefixes: set[tuple[int, ...]] = set()
        for word in options:
            if not self._writing.writes(word):
                continue
            path = self._writing.column_path(self._writing.answer(word))
            prefixes.update(path[:k] for k in range(1, len(path) + 1))
        return prefixes


def _descending(scores: Scores) -> Iterator[int]:
    """Tokens, best score first; the first few without sorting all."""
    few = min(16, len(scores))
    top = np.argpartition(-scores, few - 1)[:few]
    top = top[np.argsort(-scores[top], kind="stable")]
    yield from (int(t) for t in top)
    yielded = set(top.tolist())
    for token in np.argsort(-scores, kind="stable"):
        if int(token) not in yielded:
            yield int(token)
