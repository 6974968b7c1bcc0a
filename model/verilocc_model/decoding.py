"""Asking a scorer every question of an episode.

One token at a time would cost a forward pass for each decision. So the episode drafts: its witness answers a chunk of
questions, and the scorer sees them all in one pass. The answers stand up to the first one that the scorer would have
given differently. There the scorer's answer is taken, if the mask allows it, and the draft goes on after it. The result
is that of one token at a time, up to rounding in the matrix products (speculative decoding, Leviathan et al. 2023, with
an algorithm as the draft model).
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.vocabulary import (
    APART,
    FIRST,
    JOIN,
    POINTERS,
    VOCABULARY,
    Domain,
    Question,
    Text,
    Trie,
    Writing,
)

# Scorers rank the possible answers: a language model, and the trivial policies that it is compared with.


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

    def begin(self) -> None:
        """Forget the context: a window starts."""
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
    writing: Writing = Domain()

    def begin(self) -> None:
        pass

    def cut(self, length: int) -> None:
        pass


class FirstFit(_Stateless):
    """Textbook first fit: ranges one by one, the lowest free register, regardless of copies."""

    name = "first-fit"

    def __init__(self) -> None:
        vocabulary = VOCABULARY
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
        vocabulary = VOCABULARY
        self._generator = np.random.default_rng(seed)
        self._pointers = [vocabulary.ids[word] for word in POINTERS]

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        """Noise; pointers come last."""
        scores = self._generator.random((len(positions), len(VOCABULARY.words)), np.float32)
        scores[:, self._pointers] = -1.0
        return scores


def gumbel(seed: int, number: int, size: int, place: str = "") -> Scores:
    """Noise that turns the best score into a sample; only seed, number of the question and ``place`` decide it."""
    digest = hashlib.blake2b(f"{seed}/{number}{place}".encode(), digest_size=8).digest()
    uniform = np.random.default_rng(int.from_bytes(digest, "big")).random(size, np.float32)
    return -np.log(-np.log(np.clip(uniform, 1e-9, 1.0 - 1e-7)))


FIRST_CHUNK = 24
LEAST_CHUNK, MOST_CHUNK = 8, 96


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        temperature: 0 takes the answer with the best score; else scores are divided by it and sampled.
        seed: seed of the samples.
        seconds: wall time allowed; None: no limit.
    """

    temperature: float = 0.0
    seed: int = 0
    seconds: float | None = None


@dataclass
class Decoded:
    """The result of decoding.

    Attributes:
        registers: a register for each range of the canonical problem, ``""`` where none was given.
        questions: decisions made.
        agreed: how many of these were answered as drafted.
        refused: answers that the scorer preferred and the mask forbade.
        passes: calls of the scorer.
        tokens: tokens that the scorer read.
    """

    registers: tuple[str, ...] = ()
    questions: int = 0
    agreed: int = 0
    refused: int = 0
    passes: int = 0
    tokens: int = 0


class OutOfTime(AllocationFailure):
    """Decoding took longer than it may."""

    def __init__(self, seconds: float, function: str) -> None:
        super().__init__(
            f"decoding took more than {seconds:.3g} s", reason="fragmentation", where=f"function {function}"
        )


def decode(episode: Episode, scorer: Scorer, sampling: Sampling | None = None) -> Decoded:
    """Answer every question.

    Raises:
        AllocationFailure: the mask allows no answer (without look-ahead), or time is up.
    """
    return _Decoder(episode, scorer, sampling or Sampling()).run()


class _Decoder:
    def __init__(self, episode: Episode, scorer: Scorer, sampling: Sampling) -> None:
        self.episode = episode
        self.scorer = scorer
        self.sampling = sampling
        self.result = Decoded()
        self._begun = False
        self._length = 0
        self._chunk = FIRST_CHUNK
        self._pending: list[int] = []
        self._stop = None if sampling.seconds is None else time.monotonic() + sampling.seconds
        self._writing = scorer.writing
        self._choice = choice_of(self._writing, sampling.temperature, sampling.seed)

    def run(self) -> Decoded:
        while (question := self.episode.question()) is not None:
            self._check_time()
            facts = self._writing.facts(question.facts)
            self._open(facts)
            if question.known:
                self._state(question, facts)
            elif question.draft and not question.final:
                self._drafted(question)
            else:
                self._single(question, facts)
        self.result.registers = self.episode.registers()
        return self.result

    def _check_time(self) -> None:
        if self._stop is not None and time.monotonic() > self._stop:
            raise OutOfTime(self.sampling.seconds or 0.0, self.episode.table.problem.function)

    def _open(self, facts: list[int]) -> None:
        size = len(facts) + self._writing.longest
        if not self._begun or self._length + len(self._pending) + size > self.scorer.limit:
            self._begun = True
            header = self._writing.header(self.episode.header())
            self.scorer.begin()
            self._length, self._pending = 0, header

    def _state(self, question: Question, facts: list[int]) -> None:
        """A question whose answer is known: the scorer only reads both."""
        self._pending = [*self._pending, *facts, *self._writing.answer(question.draft)]
        if not self.episode.answer(question.draft):
            raise AssertionError(f"the known answer {question.draft!r} is not allowed")

    def _single(self, question: Question, facts: list[int]) -> None:
        tokens = [*self._pending, *facts]
        scores = self._ask(tokens, [len(tokens) - 1])
        self._take([((), scores[0])], question)

    def _drafted(self, question: Question) -> None:
        """Answer questions from here on with the draft, then score them all in one pass."""
        episode, writing = self.episode, self._writing
        tokens = list(self._pending)
        pending: list[tuple[Question, int, int, tuple[int, ...]]] = []
        current: Question | None = question
        while current is not None and current.draft and not current.final and len(pending) < self._chunk:
            facts, answer = writing.facts(current.facts), writing.answer(current.draft)
            if pending and self._length + len(tokens) + len(facts) + writing.longest > self.scorer.limit:
                break
            tokens += facts
            pending.append((current, episode.mark(), len(tokens) - 1, answer))
            tokens += answer
            if not episode.answer(current.draft):
                raise AssertionError(f"the draft {current.draft!r} is not allowed")
            current = episode.question()
        base = self._length
        scores = self._ask(tokens, [at + k for _, _, at, answer in pending for k in range(len(answer))])
        row = 0
        for number, (drafted, mark, position, answer) in enumerate(pending):
            scored = [(answer[:k], scores[row + k]) for k in range(len(answer))]
            row += len(answer)
            if self._choice.stands(scored, drafted.draft, self.result.questions):
                self.result.questions += 1
                self.result.agreed += 1
                continue
            # The scorer prefers another answer; it is taken if the mask allows it.
            episode.rewind(mark)
            self._cut(base + position + 1)
            self._take(scored, drafted)
            self._chunk = max(LEAST_CHUNK, min(self._chunk, 2 * (number + 1)))
            return
        self._pending = []
        self._chunk = min(MOST_CHUNK, 2 * self._chunk)

    def _ask(self, tokens: list[int], positions: list[int]) -> Scores:
        self.result.passes += 1
        self.result.tokens += len(tokens)
        scores = self.scorer.extend(tokens, positions)
        self._length += len(tokens)
        return scores

    def _cut(self, length: int) -> None:
        self._length = length
        self.scorer.cut(length)

    def _look(self, tokens: tuple[int, ...]) -> Scores:
        """Scores of the tokens that follow ``tokens`` of an answer; the scorer's context stays as it was."""
        self._check_time()
        length = self._length
        scores = self._ask(list(tokens), [len(tokens) - 1])[0]
        self._cut(length)
        return scores

    def _take(self, scored: ScoredPaths, question: Question) -> None:
        """Answer with the best-scored word that the episode takes.

        Raises:
            AllocationFailure: the episode takes no word: a dead end.
        """
        options = self.episode.options() if self.episode.masked else None
        for word in self._choice.ranked(scored, self.result.questions, options, self._look):
            if self.episode.answer(word):
                self.result.questions += 1
                self.result.agreed += word == question.draft
                self._pending = list(self._writing.answer(word))
                return
            self.result.refused += 1
        raise AllocationFailure(
            f"no answer is left: {' '.join(question.facts)}",
            reason="fragmentation",
            where=f"function {self.episode.table.problem.function}",
        )


# The ranking of answers by a model's scores: answers of one token, or words of several tokens.


Look = Callable[[tuple[int, ...]], Scores]
"""Gives the scores of the tokens that may follow some tokens of an answer, of shape (columns,)."""

ScoredPaths = Sequence[tuple[tuple[int, ...], Scores]]
"""The known scores, each with the tokens of an answer that they follow; the first follow no token."""


def choice_of(writing: Writing, temperature: float, seed: int) -> _OfTokens | _OfText:
    """The choice for a writing: the best answer at temperature 0, else a sample."""
    if isinstance(writing, Text):
        return _OfText(writing, temperature, seed)
    return _OfTokens(temperature, seed)


class _OfTokens:
    """The choice for a vocabulary with a token for each word.

    The ``number`` of a question and the seed decide the noise that turns the best answer into a sample.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._seed = seed
        self._known = VOCABULARY

    def stands(self, scored: ScoredPaths, draft: str, number: int) -> bool:
        """Whether the known scores show that the draft is the best answer."""
        return int(self._noisy(scored[0][1], number).argmax()) == self._known.ids[draft]

    def ranked(self, scored: ScoredPaths, number: int, options: Iterable[str] | None, look: Look) -> Iterator[str]:
        """Answers, best score first; at least all of ``options``, if given. ``look`` gets further scores.

        Here all words, because sorting them is faster than listing the options.
        """
        return (self._known.words[token] for token in np.argsort(-self._noisy(scored[0][1], number), kind="stable"))

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
