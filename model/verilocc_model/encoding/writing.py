"""How the words of an episode are written as tokens, with the domain's vocabulary or with other tokenizers.

Questions, facts, answers and mask are the same for all writings. A model's card says which writing it was trained with:
``words``, one token for each word, or ``text`` (``encoding.text``), the tokens of a pretrained model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from verilocc_model.encoding.vocabulary import VOCABULARY_VERSION, words

WORDS, TEXT = "words", "text"
WRITINGS = (WORDS, TEXT)


class Writing(Protocol):
    """Words as tokens of a model.

    A window is a header, then facts and an answer for each question. No answer's tokens begin with another's.
    """

    @property
    def kind(self) -> str:
        """One of ``WRITINGS``."""
        ...

    @property
    def key(self) -> str:
        """Changes whenever the tokens can."""
        ...

    @property
    def longest(self) -> int:
        """Most tokens of an answer."""
        ...

    @property
    def columns(self) -> slice | list[int]:
        """The tokens that occur in answers: the columns of a model's scores, in this order."""
        ...

    def header(self, words: Iterable[str]) -> list[int]:
        """The tokens that a window begins with."""
        ...

    def facts(self, words: Sequence[str]) -> list[int]:
        """The tokens before an answer."""
        ...

    def answer(self, word: str) -> tuple[int, ...]:
        """The tokens of an answer; KeyError where the word is no answer."""
        ...

    def planned(self, tokens: Sequence[int], answers: Sequence[int]) -> frozenset[int]:
        """The positions among ``answers`` that belong to answers of the planning stage."""
        ...


def is_plan(word: str) -> bool:
    """Whether a word answers a question of the planning stage."""
    return word.startswith(("order", "grant", "split"))


class Domain:
    """The writing with one token for each word of the vocabulary."""

    kind = WORDS
    key = str(VOCABULARY_VERSION)
    longest = 1

    def __init__(self) -> None:
        self._known = words()
        self.columns = slice(0, len(self._known.words))
        self._plans = frozenset(k for word, k in self._known.ids.items() if is_plan(word))

    def header(self, words: Iterable[str]) -> list[int]:
        """A token a word."""
        return self._known.encode(words)

    def facts(self, words: Sequence[str]) -> list[int]:
        """A token a word."""
        return self._known.encode(words)

    def answer(self, word: str) -> tuple[int, ...]:
        """One token."""
        return (self._known.ids[word],)

    def planned(self, tokens: Sequence[int], answers: Sequence[int]) -> frozenset[int]:
        return frozenset(at for at in answers if tokens[at] in self._plans)


@lru_cache(maxsize=1)
def domain() -> Domain:
    """The domain's writing."""
    return Domain()
