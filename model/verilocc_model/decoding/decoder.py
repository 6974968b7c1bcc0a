"""Asking a scorer every question of an episode.

One token at a time would cost a forward pass for each decision. So the episode drafts: as many questions as a chunk
holds are answered by its witness, the scorer sees them all in one pass, and the answers stand up to the first that it
would have given differently. There its own answer is taken, if the mask allows it, and the draft goes on behind it. The
result is what one token at a time would give, up to rounding in the matrix products (speculative decoding, Leviathan et
al. 2023, with an algorithm as the draft model).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_model.decoding.scorer import Scorer, Scores, gumbel
from verilocc_model.encoding.episode import Episode, Question
from verilocc_model.encoding.vocabulary import words

FIRST_CHUNK = 24
LEAST_CHUNK, MOST_CHUNK = 8, 96


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        temperature: 0 takes the best-scored; else scores are divided by it and sampled.
        seed: of the samples.
        seconds: wall time allowed; None: no limit.
    """

    temperature: float = 0.0
    seed: int = 0
    seconds: float | None = None


@dataclass
class Decoded:
    """What decoding did.

    Attributes:
        registers: a register for each range of the canonical problem, ``""`` where none was given.
        questions: decisions made.
        agreed: of these, answered as drafted.
        refused: answers the scorer preferred and the mask forbade.
        passes: calls of the scorer.
        tokens: tokens it read.
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
        super().__init__(f"decoding took more than {seconds:g} s", reason="fragmentation", where=f"function {function}")


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
        self._known = words()

    def run(self) -> Decoded:
        while (question := self.episode.question()) is not None:
            if self._stop is not None and time.monotonic() > self._stop:
                raise OutOfTime(self.sampling.seconds or 0.0, self.episode.table.problem.function)
            self._open(question)
            if question.draft and not question.final:
                self._drafted(question)
            else:
                self._single(question)
        self.result.registers = self.episode.registers()
        return self.result

    def _open(self, question: Question) -> None:
        """Begin a window if there is none or it is full."""
        size = len(question.facts) + 1
        if not self._begun or self._length + len(self._pending) + size > self.scorer.limit:
            self._begun = True
            header = self._known.encode(self.episode.header())
            self.scorer.begin(())
            self._length, self._pending = 0, header

    def _single(self, question: Question) -> None:
        tokens = [*self._pending, *self._known.encode(question.facts)]
        scores = self._ask(tokens, [len(tokens) - 1])
        word = self._settle(scores[0], question)
        self._pending = [self._known.ids[word]]

    def _drafted(self, question: Question) -> None:
        """Questions from here on, answered by the draft; then what the scorer thinks of each."""
        episode = self.episode
        tokens = list(self._pending)
        asked: list[tuple[Question, int, int]] = []
        current: Question | None = question
        while current is not None and current.draft and not current.final and len(asked) < self._chunk:
            size = len(current.facts) + 1
            if asked and self._length + len(tokens) + size > self.scorer.limit:
                break
            tokens += self._known.encode(current.facts)
            asked.append((current, episode.mark(), len(tokens) - 1))
            tokens.append(self._known.ids[current.draft])
            if not episode.answer(current.draft):
                raise AssertionError(f"the draft {current.draft!r} is not allowed")
            current = episode.question()
        base = self._length
        scores = self._ask(tokens, [position for _, _, position in asked])
        for row, (drafted, mark, position) in enumerate(asked):
            ranked = self._noisy(scores[row], self.result.questions)
            if int(ranked.argmax()) == self._known.ids[drafted.draft]:
                self.result.questions += 1
                self.result.agreed += 1
                continue
            # The scorer prefers another answer; it is taken if the mask allows it.
            episode.rewind(mark)
            word = self._best(ranked, drafted)
            self.result.questions += 1
            self._length = base + position + 1
            self.scorer.cut(self._length)
            self._pending = [self._known.ids[word]]
            self.result.agreed += word == drafted.draft
            self._chunk = max(LEAST_CHUNK, min(self._chunk, 2 * (row + 1)))
            return
        self._pending = []
        self._chunk = min(MOST_CHUNK, 2 * self._chunk)

    def _ask(self, tokens: list[int], positions: list[int]) -> Scores:
        self.result.passes += 1
        self.result.tokens += len(tokens)
        scores = self.scorer.extend(tokens, positions)
        self._length += len(tokens)
        return scores

    def _settle(self, scores: Scores, question: Question) -> str:
        word = self._best(self._noisy(scores, self.result.questions), question)
        self.result.questions += 1
        self.result.agreed += word == question.draft
        return word

    def _noisy(self, scores: Scores, number: int) -> Scores:
        if not self.sampling.temperature:
            return scores
        return scores / self.sampling.temperature + gumbel(self.sampling.seed, number, len(scores))

    def _best(self, scores: Scores, question: Question) -> str:
        """The best-scored word that the episode takes as an answer; the episode has then taken it.

        Raises:
            AllocationFailure: it takes none: a dead end.
        """
        for token in _descending(scores):
            word = self._known.words[token]
            if self.episode.answer(word):
                return word
            self.result.refused += 1
        raise AllocationFailure(
            f"no answer is left: {' '.join(question.facts)}",
            reason="fragmentation",
            where=f"function {self.episode.table.problem.function}",
        )


def _descending(scores: Scores):  # type: ignore[no-untyped-def]
    """Tokens by falling score; the first few without sorting all."""
    few = min(16, len(scores))
    top = np.argpartition(-scores, few - 1)[:few]
    top = top[np.argsort(-scores[top], kind="stable")]
    yield from (int(t) for t in top)
    seen = set(top.tolist())
    for token in np.argsort(-scores, kind="stable"):
        if int(token) not in seen:
            yield int(token)
