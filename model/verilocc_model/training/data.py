"""Labelled problems as windows of tokens, as batches."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Advice
from verilocc_model.encoding.examples import Window, cells_of, windows_of
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import VOCABULARY_VERSION, words
from verilocc_model.training.entries import Entry, Labelled


def encoded(entry: Entry, window: int, cache: Path | None, advice_rate: float = 0.0) -> list[Window]:
    """The windows of a labelled problem; kept in ``cache``, from where they are read the next time."""
    kept: Path | None = None
    if cache is not None:
        key = f"{VOCABULARY_VERSION}/{window}/{advice_rate}/{entry.key}"
        kept = cache / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.npz"
        if kept.exists():
            return _unpacked(kept)
    found = entry.read()
    if not found.registers:
        return []
    # Few of the examples show refutations: the same ones in every run.
    generator = random.Random(entry.key)
    advice = made_up(found, generator) if generator.random() < advice_rate else None
    windows = windows_of(found.problem, found.registers, limit=window, advice=advice)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _pack(kept, windows)
    return windows


def made_up(found: Labelled, generator: random.Random, share: float = 0.1) -> dict[int, Advice]:
    """Refutations such as an earlier attempt could have met: for some ranges, a register that another one has there.

    The assignment stays the answer, so a model learns to keep away from what was refuted; for half of the ranges the
    register it has is among the free ones.
    """
    form = canonical(found.problem)
    table = Table(form.problem)
    starts = cells_of(table, form.permuted(found.registers))
    advice: dict[int, Advice] = {}
    for number, start in enumerate(starts):
        if generator.random() >= share:
            continue
        other = starts[generator.randrange(len(starts))]
        if other == start or not table.candidates.allows(number, other):
            continue
        free = (start,) if generator.random() < 0.5 else ()
        advice[number] = Advice(refuted=(other,), free=free)
    return advice


@dataclass(frozen=True)
class Batch:
    """Arrays of shape (windows, length): tokens, and the weight of each token as an answer (0: not one)."""

    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def size(self) -> int:
        """Tokens, padding not counted."""
        return int((self.tokens != 0).sum())


def batches(windows: Sequence[Window], batch_tokens: int, planning_weight: float, seed: int) -> Iterator[Batch]:
    """All windows once, in an order that depends on the seed, windows of similar length together."""
    generator = random.Random(seed)
    order = list(range(len(windows)))
    generator.shuffle(order)
    # Alike in length within stretches that are random, so that little is padded.
    stretch = 512
    groups: list[list[int]] = []
    for at in range(0, len(order), stretch):
        group: list[int] = []
        for k in sorted(order[at : at + stretch], key=lambda k: len(windows[k].tokens)):
            if group and (len(group) + 1) * len(windows[k].tokens) > batch_tokens:
                groups.append(group)
                group = []
            group.append(k)
        if group:
            groups.append(group)
    generator.shuffle(groups)
    for group in groups:
        yield _batch([windows[k] for k in group], planning_weight)


def plans(windows: Sequence[Window]) -> list[Window]:
    """The windows that plan, each cut off behind its plan.

    A function has three answers that plan and hundreds that place, and the few decide more: shown apart, they can be
    learned often at little cost.
    """
    planning = _planning_answers()
    found: list[Window] = []
    for window in windows:
        last = max((a for a in window.answers if window.tokens[a] in planning), default=-1)
        if last >= 0:
            found.append(Window(window.tokens[: last + 1], tuple(a for a in window.answers if a <= last)))
    return found


@lru_cache(maxsize=1)
def _planning_answers() -> frozenset[int]:
    """Tokens that answer questions of the planning stage."""
    return frozenset(k for word, k in words().ids.items() if word.startswith(("order", "grant", "split")))


def _batch(windows: list[Window], planning_weight: float) -> Batch:
    length = max(len(w.tokens) for w in windows)
    planning = _planning_answers()
    tokens = np.zeros((len(windows), length), np.int64)
    weights = np.zeros((len(windows), length), np.float32)
    for row, window in enumerate(windows):
        tokens[row, : len(window.tokens)] = window.tokens
        for position in window.answers:
            weights[row, position] = planning_weight if window.tokens[position] in planning else 1.0
    return Batch(tokens, weights)


def _pack(path: Path, windows: list[Window]) -> None:
    lengths = [len(w.tokens) for w in windows]
    counts = [len(w.answers) for w in windows]
    partial = path.with_suffix(f".{random.getrandbits(32):x}.npz")
    np.savez(
        partial,
        tokens=np.array([t for w in windows for t in w.tokens], np.uint16),
        answers=np.array([a for w in windows for a in w.answers], np.uint16),
        lengths=np.array(lengths, np.int32),
        counts=np.array(counts, np.int32),
    )
    partial.replace(path)


def _unpacked(path: Path) -> list[Window]:
    with np.load(path) as data:
        tokens, answers = data["tokens"].tolist(), data["answers"].tolist()
        lengths, counts = data["lengths"].tolist(), data["counts"].tolist()
    found: list[Window] = []
    t = a = 0
    for length, count in zip(lengths, counts, strict=True):
        found.append(Window(tuple(tokens[t : t + length]), tuple(answers[a : a + count])))
        t, a = t + length, a + count
    return found
