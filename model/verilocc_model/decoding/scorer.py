"""Scorers rank the possible answers: a language model, and the trivial policies that it is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verilocc_model.encoding.vocabulary import APART, FIRST, JOIN, POINTERS, Writing, domain, words

Scores = NDArray[np.float32]


class Scorer(Protocol):
    """Scores next words, given all words so far.

    The context is a window of tokens that grows and can be cut back. Scores are unnormalised log probabilities, of
    shape (positions, columns of the writing).
    """

    @property
    def writing(self) -> Writing:
        """How words become its tokens."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def limit(self) -> int:
        """Most tokens of a window."""
        ...

    def begin(self, tokens: Sequence[int]) -> None:
        """Forget the context and start a window."""
        ...

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """Append tokens; for each of ``positions`` in ``tokens``, score the tokens that may follow there."""
        ...

    def cut(self, length: int) -> None:
        """Keep the first ``length`` tokens."""
        ...


class _Stateless:
    """A policy that does not look at the context."""

    limit = 1 << 30
    writing: Writing = domain()

    def begin(self, tokens: Sequence[int]) -> None:
        pass

    def cut(self, length: int) -> None:
        pass


class FirstFit(_Stateless):
    """Textbook first fit: ranges one by one, the lowest free register, regardless of copies."""

    name = "first-fit"

    def __init__(self) -> None:
        vocabulary = words()
        self._row = np.zeros(len(vocabulary.words), np.float32)
        for word, score in ((APART, 2.0), (JOIN, 1.0), (FIRST, 3.0), ("order0", 2.0), ("split0", 2.0)):
            self._row[vocabulary.ids[word]] = score
        for word, number in vocabulary.ids.items():
            if word.startswith("grant"):
                self._row[number] = 1.0 + 0.01 * int(word[5:])

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """The same for every position."""
        return np.repeat(self._row[None, :], len(positions), axis=0)


class RandomChoice(_Stateless):
    """Any legal answer with equal probability; registers are named by number, not by pointers."""

    name = "random"

    def __init__(self, seed: int) -> None:
        vocabulary = words()
        self._generator = np.random.default_rng(seed)
        self._pointers = [vocabulary.ids[word] for word in POINTERS]

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """Noise; pointers come last."""
        scores = self._generator.random((len(positions), len(words().words)), np.float32)
        scores[:, self._pointers] = -1.0
        return scores


def gumbel(seed: int, number: int, size: int, place: str = "") -> Scores:
    """Noise that turns the best score into a sample; only seed, number of the question and ``place`` decide it."""
    digest = hashlib.blake2b(f"{seed}/{number}{place}".encode(), digest_size=8).digest()
    uniform = np.random.default_rng(int.from_bytes(digest, "big")).random(size, np.float32)
    return -np.log(-np.log(np.clip(uniform, 1e-9, 1.0 - 1e-7)))
