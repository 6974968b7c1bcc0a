"""Labelled problems as windows of tokens, and windows as batches."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import msgpack
from numpy.typing import NDArray

from verilocc_mlir.files import write_whole
from verilocc_model.corpus.shards import Record
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.examples import Window, cells_of, sure_windows, windows_of
from verilocc_model.encoding.placing import Advice
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import ALONE, DOMAIN, GRANTS, VOCABULARY, WORDS, Writing
from verilocc_model.repair import guidance_of, remainders
from verilocc_model.training.entries import Entry

EXAMPLES_VERSION = 8
"""Version of the windows made from an entry. Windows of other versions in a cache are not used."""

SHOWN = 4
"""One in so many windows of an answer without look-ahead is trained on, of those that only place."""


def encoded(
    entry: Entry, window: int, cache: Path | None, advice_rate: float = 0.0, writing: Writing = DOMAIN
) -> list[Window]:
    """The windows of a labelled problem, read from ``cache`` if they are there."""
    cached: Path | None = None
    if cache is not None:
        key = f"{writing.key}.{EXAMPLES_VERSION}/{window}/{advice_rate}/{entry.key}"
        cached = cache / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.msgpack"
        if cached.exists():
            return msgpack.decode(cached.read_bytes(), type=list[Window])
    record = entry.read()
    windows: list[Window] = []
    if record.registers:
        # A few examples show made-up refutations, the same examples in every run.
        generator = random.Random(entry.key)
        advice = made_up(record, generator) if generator.random() < advice_rate else None
        windows += windows_of(record.problem, record.registers, limit=window, advice=advice, writing=writing)
    if record.registers or record.refuted:
        windows += _alone(record, window, writing)
    if cached is not None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cached, msgpack.encode(windows))
    return windows


def _alone(record: Record, window: int, writing: Writing) -> list[Window]:
    """Windows of answers without look-ahead; if proposals were refuted, of the answers after each refutation."""
    if not record.refuted:
        return _some(sure_windows(Table(canonical(record.problem).problem), limit=window, writing=writing))
    windows: list[Window] = []
    for refutation in record.refuted:
        for part in remainders(record.problem, (refutation,)):
            form = canonical(part.problem)
            table = Table(form.problem)
            guidance = guidance_of(part.refuted, form, table)
            sure = sure_windows(table, limit=window, advice=guidance.advice, refuted=guidance.grants, writing=writing)
            windows += _some(sure)
    return windows


def _some(windows: list[Window]) -> list[Window]:
    """The windows that plan, and a part of the others, which are easy."""
    return windows[:2] + windows[2::SHOWN]


def made_up(record: Record, generator: random.Random, share: float = 0.1) -> dict[int, Advice]:
    """Refutations that an earlier attempt could have met: for some ranges, the register of another range.

    The assignment stays the answer, so a model learns to avoid refuted registers. For half of these ranges, their own
    register is stated as free.
    """
    form = canonical(record.problem)
    table = Table(form.problem)
    starts = cells_of(table, form.permuted(record.registers))
    advice: dict[int, Advice] = {}
    for number, start in enumerate(starts):
        if generator.random() >= share:
            continue
        other_start = starts[generator.randrange(len(starts))]
        if other_start == start or not table.candidates.allows(number, other_start):
            continue
        free = (start,) if generator.random() < 0.5 else ()
        advice[number] = Advice(refuted=(other_start,), free=free)
    return advice


@dataclass(frozen=True)
class Batch:
    """Arrays of shape (windows, length): tokens, and the weight of each token as an answer (0: it is none).

    ``size``: tokens without padding.
    """

    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]
    size: int


def batches(
    windows: Sequence[Window], batch_tokens: int, planning_weight: float, seed: int, writing: Writing = DOMAIN
) -> Iterator[Batch]:
    """All windows once, in an order that depends on the seed, windows of similar length together."""
    generator = random.Random(seed)
    order = list(range(len(windows)))
    generator.shuffle(order)
    # Random stretches are sorted by length, so that there is little padding.
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
        yield _batch([windows[k] for k in group], planning_weight, writing)


def plans(windows: Sequence[Window], repeats: int, seed: int, writing: Writing = DOMAIN) -> list[Window]:
    """The windows that plan, each cut off after its plan, several times.

    A function has three answers that plan and hundreds that place, and the three decide more. Shown separately, they
    can be learned often at little cost. Where nothing looks ahead, the right grant is always one that the facts name.
    So after the first time such windows are shown with other grants, in the same order of size.
    """
    planning: list[Window] = []
    for window in windows:
        last = max(writing.planned(window.tokens, window.answers), default=-1)
        if last >= 0:
            planning.append(Window(window.tokens[: last + 1], tuple(a for a in window.answers if a <= last)))
    if writing.kind != WORDS:
        # In text, a grant is no single token that could be replaced.
        return planning * repeats
    alone_word = VOCABULARY.ids[ALONE]
    generator = random.Random(seed)
    repeated: list[Window] = []
    for repeat in range(repeats):
        repeated += [_regranted(w, generator) if repeat and w.tokens[1] == alone_word else w for w in planning]
    return repeated


def _regranted(window: Window, generator: random.Random) -> Window:
    """The window with other grants, in the same order of size."""
    first = VOCABULARY.ids["grant0"]
    grants = sorted({t for t in window.tokens if first <= t < first + GRANTS})
    substitutes = dict(zip(grants, sorted(generator.sample(range(first, first + GRANTS), len(grants))), strict=True))
    return Window(tuple(substitutes.get(t, t) for t in window.tokens), window.answers)


def _batch(windows: list[Window], planning_weight: float, writing: Writing) -> Batch:
    length = max(len(w.tokens) for w in windows)
    tokens = np.zeros((len(windows), length), np.int64)
    weights = np.zeros((len(windows), length), np.float32)
    for row, window in enumerate(windows):
        tokens[row, : len(window.tokens)] = window.tokens
        planned = writing.planned(window.tokens, window.answers)
        for position in window.answers:
            weights[row, position] = planning_weight if position in planned else 1.0
    return Batch(tokens, weights, sum(len(w.tokens) for w in windows))
