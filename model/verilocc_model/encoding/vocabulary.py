"""The domain's words. A model is trained for one ``VOCABULARY_VERSION`` of words and questions; its card says which.

Words are short texts, so that people can read a sequence, and a model with its own tokenizer can take it:

* ``v``, ``a``, ``s`` … with a width and an alignment: an item's shape, ``v4/2``;
* ``~6.1``: how long it lives (power of two of instructions) and the deepest loop in which it is used;
* ``mfma>store``: the families of its first definition and its last use;
* ``+3.1``: registers to spare while it lives (power of two), and whether copies were joined in it;
* ``meets``, ``chain``: comes before the place that meets more than the plain one, and before the facts of a chain;
* ``12``, ``a12``, ``12h``, ``x0``: register numbers within a file: the first file of the shape, AGPRs, high halves,
  special registers;
* decisions: ``join``/``apart``, ``order0``, ``grant3``, ``split1``, ``=hint``, ``=first``, ``=meets``, ``=top``,
  ``=tight``, or a register number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.preferences import FAMILIES

VOCABULARY_VERSION = 4

BANKS = ("v", "a", "va", "s", "sx", "x", "-")
WIDTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Upper ends of the width classes, in registers; 0: a 16-bit half."""
ALIGNMENTS = (1, 2, 4)
LIVES = 13
DEPTHS = 4
SLACKS = 9
ORDERS = 3
GRANTS = 65
SPLITS = 4
WEIGHTS = 8
RELATIONS = ("same", "part", "other")
NUMBERS = 1024
AGPRS = 256
HALVES = 512
SPECIALS = 8

PAD, BEGIN = "<pad>", "<begin>"
HINT, FIRST, MEETS, TOP, TIGHT = "=hint", "=first", "=meets", "=top", "=tight"
POINTERS = (HINT, FIRST, MEETS, TOP, TIGHT)
MEETS_AT = "meets"
"""The fact that comes before the place that ``=meets`` points to."""
JOIN, APART = "join", "apart"
CHAIN = "chain"
"""The fact that a pair is a chain, where a matrix operation continues another's result, and not a copy."""
NONE, ENDLESS = "none", "all"
ALONE = "alone"
"""A window's second word where nothing looks ahead."""


PLANS = tuple(
    f"{kind}{k}" for kind, count in (("order", ORDERS), ("grant", GRANTS), ("split", SPLITS)) for k in range(count)
)
REGISTERS = tuple(
    form.format(k)
    for form, count in (("{}", NUMBERS), ("a{}", AGPRS), ("{}h", HALVES), ("x{}", SPECIALS))
    for k in range(count)
)


class Words(NamedTuple):
    """All words in order, and their numbers."""

    words: tuple[str, ...]
    ids: dict[str, int]

    def encode(self, words: Iterable[str]) -> list[int]:
        return [self.ids[word] for word in words]

    def decode(self, tokens: Iterable[int]) -> list[str]:
        return [self.words[token] for token in tokens]


def _words() -> Words:
    families = (*FAMILIES, NONE)
    vocabulary = [
        PAD, BEGIN, "sgpr", "wwm", "vgpr", "shared-file", "own-files", "needs", "of", "wave-at", "joining", "planning",
        "placing", "hint", "first", "refuted", "free", NONE, ENDLESS, ALONE, MEETS_AT, MEETS, CHAIN,
        JOIN, APART, HINT, FIRST, TOP, TIGHT,
    ]  # fmt: skip
    vocabulary += PLANS
    vocabulary += [shape_word(b, w, a) for b in BANKS for w in WIDTHS for a in ALIGNMENTS]
    vocabulary += [life_word(k, d) for k in range(LIVES) for d in range(DEPTHS)]
    vocabulary += [f"{d}>{u}" for d in families for u in families]
    vocabulary += [f"+{k}.{m}" for k in range(SLACKS) for m in range(2)]
    vocabulary += [f"copy{w}.{r}" for w in range(WEIGHTS) for r in RELATIONS]
    vocabulary += REGISTERS
    ids = {word: k for k, word in enumerate(vocabulary)}
    if len(ids) != len(vocabulary):
        raise AssertionError("the vocabulary has a word twice")
    return Words(tuple(vocabulary), ids)


def shape_word(banks: str, width: int, align: int) -> str:
    """``v4/2``; ``width`` and ``align`` are rounded up to what the vocabulary has."""
    wide = next((w for w in WIDTHS if w >= width), WIDTHS[-1])
    return f"{banks}{wide}/{next((a for a in ALIGNMENTS if a >= align), ALIGNMENTS[-1])}"


def life_word(power: int, depth: int) -> str:
    """``~6.1``."""
    return f"~{min(power, LIVES - 1)}.{min(depth, DEPTHS - 1)}"


VOCABULARY = _words()


def number_word(count: int) -> str:
    """``12``; ``all`` where the vocabulary has no such number."""
    return str(count) if 0 <= count < NUMBERS else ENDLESS


def grant_word(grant: int) -> str:
    """``grant3``; ``none`` for -1."""
    return f"grant{grant}" if grant >= 0 else NONE


def number_after(kind: str, word: str) -> int:
    """3 of ``grant3``; -1 where the word is none of this kind."""
    tail = word[len(kind) :]
    return int(tail) if word.startswith(kind) and tail.isdigit() else -1


# How the words of an episode are written as tokens, with the domain's vocabulary or with other tokenizers.
#
# Questions, facts, answers and mask are the same for all writings. A model's card says which writing it was trained
# with: ``words``, one token for each word, or ``text``, the tokens of a pretrained model's tokenizer.


WORDS, TEXT = "words", "text"
WRITINGS = (WORDS, TEXT)


def is_plan(word: str) -> bool:
    """Whether a word answers a question of the planning stage."""
    return word.startswith(("order", "grant", "split"))


class Domain:
    """The writing with one token for each word of the vocabulary. ``Text`` has the same attributes and methods.

    Attributes:
        kind: one of ``WRITINGS``.
        key: changes whenever the tokens can.
        longest: most tokens of an answer.
        columns: the tokens that occur in answers: the columns of a model's scores, in this order.
    """

    kind = WORDS
    key = str(VOCABULARY_VERSION)
    longest = 1

    def __init__(self) -> None:
        self._known = VOCABULARY
        self.columns = slice(0, len(self._known.words))
        self._plans = frozenset(k for word, k in self._known.ids.items() if is_plan(word))

    def header(self, words: Iterable[str]) -> list[int]:
        """The tokens that a window begins with."""
        return self._known.encode(words)

    def facts(self, words: Sequence[str]) -> list[int]:
        """The tokens before an answer."""
        return self._known.encode(words)

    def answer(self, word: str) -> tuple[int, ...]:
        """The tokens of an answer, none of which begin with another's; KeyError where the word is no answer."""
        return (self._known.ids[word],)

    def planned(self, tokens: Sequence[int], answers: Sequence[int]) -> frozenset[int]:
        """The positions among ``answers`` that belong to answers of the planning stage."""
        return frozenset(at for at in answers if tokens[at] in self._plans)


DOMAIN = Domain()


# The questions of an episode.


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        stage: ``joining``, ``planning`` or ``placing``. facts: words that come before the answer. draft: an allowed
            answer, found without a model: the witness's, or else a free place; ``""`` where none is known. final: the
            next question depends on the answer. known: the draft is the answer; it is stated like a fact.
    """

    stage: str
    facts: tuple[str, ...]
    draft: str
    final: bool = False
    known: bool = False


# An episode as text under the tokenizer of a pretrained model, which keeps its tokens and their embeddings.
#
# A question is a line: its facts, an arrow, the answer. The words are those of ``vocabulary``. Each is encoded on its
# own, so that it has the same tokens wherever it stands::
#
# allocate vgpr shared-file needs 50 of 512 8 113 wave-at grant1 placing order2 grant0 split0 v4/2 ~8.1 valu>store +4.0
# first 0 -> =first v4/2 ~3.1 mfma>mfma +4.0 hint 40 first 12 -> =hint
#
# An answer ends with its line, so that ``1`` differs from ``12``. The answers are the leaves of a trie of tokens
# (``Trie``); ``decoding.choice`` reads a model's scores in it.


BEGINNING, ARROW, END = "allocate", " ->", "\n"

Encode = Callable[[str], Sequence[int]]


ANSWERS = (JOIN, APART, *PLANS, *POINTERS, *REGISTERS)


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
            [self._encode(text) for w in (BEGINNING, *VOCABULARY.words) for text in (w, f" {w}")] + [ARROW, END]
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


Writing = Domain | Text
"""Words as tokens of a model. A window is a header, then facts and an answer for each question."""
