"""An episode as text under the tokenizer of a pretrained model, which keeps its tokens and their embeddings.

A question is a line: its facts, an arrow, the answer. The words are those of ``vocabulary``. Each is encoded on its
own, so that it has the same tokens wherever it stands::

    allocate vgpr shared-file needs 50 of 512 8 113 wave-at grant1 placing order2 grant0 split0
    v4/2 ~8.1 valu>store +4.0 first 0 -> =first
    v4/2 ~3.1 mfma>mfma +4.0 hint 40 first 12 -> =hint

An answer ends with its line, so that ``1`` differs from ``12``. The answers are the leaves of a trie of tokens
(``Trie``); ``decoding.choice`` reads a model's scores in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from verilocc_mlir.errors import InputError
from verilocc_model.encoding.vocabulary import (
    AGPRS,
    APART,
    BEGIN,
    GRANTS,
    HALVES,
    JOIN,
    NUMBERS,
    ORDERS,
    POINTERS,
    SPECIALS,
    SPLITS,
    TEXT,
    VOCABULARY_VERSION,
    is_plan,
    words,
)

BEGINNING, ARROW, END = "allocate", " ->", "\n"

Encode = Callable[[str], Sequence[int]]


ANSWERS = (
    JOIN,
    APART,
    *(f"order{k}" for k in range(ORDERS)),
    *(f"grant{k}" for k in range(GRANTS)),
    *(f"split{k}" for k in range(SPLITS)),
    *POINTERS,
    *(str(k) for k in range(NUMBERS)),
    *(f"a{k}" for k in range(AGPRS)),
    *(f"{k}h" for k in range(HALVES)),
    *(f"x{k}" for k in range(SPECIALS)),
)


class Trie:
    """A node of the tree of all answers.

    Attributes:
        word: the answer that ends here; ``""`` for an inner node.
        children: the next nodes, by column of the scores.
    """

    __slots__ = ("children", "word")

    def __init__(self) -> None:
        self.word = ""
        self.children: dict[int, Trie] = {}


class Text:
    """Words under a tokenizer.

    Args:
        encode: gives the tokens of a text, without any added before or after it.

    Raises:
        InputError: the tokenizer cannot tell two answers apart.
    """

    kind = TEXT

    def __init__(self, encode: Encode) -> None:
        self._encode = lru_cache(maxsize=None)(lambda text: tuple(int(t) for t in encode(text)))
        end = self._encode(END)
        self._answers = {word: self._encode(f" {word}") + end for word in ANSWERS}
        self._plans = frozenset(tokens for word, tokens in self._answers.items() if is_plan(word))
        self._lengths = sorted({len(tokens) for tokens in self._plans})
        self.longest = max(map(len, self._answers.values()))
        self.columns = sorted({t for tokens in self._answers.values() for t in tokens})
        self._column = {token: k for k, token in enumerate(self.columns)}
        self.trie = self._trie()
        tokenized = repr(
            [self._encode(text) for w in (BEGINNING, *words().words) for text in (w, f" {w}")] + [ARROW, END]
        )
        self.key = f"{TEXT}-{VOCABULARY_VERSION}-{hashlib.blake2b(tokenized.encode(), digest_size=6).hexdigest()}"

    def _trie(self) -> Trie:
        root = Trie()
        for word, tokens in self._answers.items():
            node = root
            for column in self.column_path(tokens):
                node = node.children.setdefault(column, Trie())
                if node.word:
                    raise self._alike(word, node.word)
            if node.children:
                raise self._alike(word, "a longer answer")
            node.word = word
        return root

    @staticmethod
    def _alike(one: str, other: str) -> InputError:
        return InputError(
            f"the tokenizer cannot tell {one!r} from {other!r}", hint="a byte-level tokenizer can: Qwen2's, SmolLM2's"
        )

    def writes(self, word: str) -> bool:
        return word in self._answers

    def column_path(self, tokens: Iterable[int]) -> tuple[int, ...]:
        return tuple(self._column[t] for t in tokens)

    def header(self, words: Iterable[str]) -> list[int]:
        return [*self._line([BEGINNING if word == BEGIN else word for word in words]), *self._encode(END)]

    def facts(self, words: Sequence[str]) -> list[int]:
        """A line up to its arrow."""
        return [*self._line(words), *self._encode(ARROW)]

    def answer(self, word: str) -> tuple[int, ...]:
        return self._answers[word]

    def planned(self, tokens: Sequence[int], answers: Sequence[int]) -> frozenset[int]:
        positions: list[int] = []
        for at in answers:
            for length in self._lengths:
                if tuple(tokens[at : at + length]) in self._plans:
                    positions += range(at, at + length)
        return frozenset(positions)

    def _line(self, words: Sequence[str]) -> list[int]:
        return [t for k, word in enumerate(words) for t in self._encode(f" {word}" if k else word)]
