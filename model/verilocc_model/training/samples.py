"""Sampled answers of a model to one problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_model.decoding.decoder import Decoded, Sampling, decode
from verilocc_model.decoding.scorer import Scorer
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.table import Table

ScorerFor = Callable[[str], Scorer]
"""The scorer for a GPU."""


@dataclass(frozen=True)
class Asking:
    """How answers are drawn.

    Attributes:
        samples: answers to each problem.
        temperature: temperature of the samples.
        seconds: wall time for one answer, and for one proof.
        seed: seed of the samples.
    """

    samples: int = 2
    temperature: float = 0.7
    seconds: float = 60.0
    seed: int = 0

    def draw(self, number: int, factor: float = 1.0) -> Sampling:
        """How sample ``number`` is drawn, at ``factor`` times the temperature."""
        return Sampling(self.temperature * factor, self.seed * 1000 + number, self.seconds)


def sampled(
    table: Table, scorer: Scorer, draws: Iterable[Sampling], *, mask: bool = True
) -> Iterator[tuple[Episode, Decoded] | None]:
    """An answer for each of ``draws``, not proved yet; None where there is none.

    Args:
        draws: how each answer is drawn.
        mask: as for ``Episode``.
    """
    for draw in draws:
        episode = Episode(table, mask=mask)
        try:
            table.check_pressure()
            decoded = decode(episode, scorer, draw)
        except AllocationFailure:
            yield None
        else:
            yield episode, decoded
