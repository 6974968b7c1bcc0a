"""``replace=measured``: whose kernel is taken, decided by the clock where two code objects were timed side by side.

The journal that ``$VERILOCC_MEASURED`` names (``verilocc measure --journal=FILE``) is asked first. Ours is not taken
where it was measured slower, or left other results. Where nothing was measured, or nothing could be decided, the cost
model decides, as with ``replace=better``.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from verilocc_mlir.measure.journal import VARIABLE, read_measurements
from verilocc_mlir.results.measure import Interval, Measurement, Verdict

_OTHER_WAY = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


@dataclass(frozen=True)
class MeasuredDecision:
    """What was measured of ours beside theirs.

    Attributes:
        declined: why ours is not taken; ``""`` where it is.
        said: the measurement in words.
    """

    declined: str
    said: str


@dataclass(frozen=True)
class MeasuredCodes:
    """What a journal says of pairs of code objects; the last line of a pair counts.

    Attributes:
        digest: of the journal, for what is kept by content; ``""`` without one.
    """

    pairs: dict[tuple[str, str], Measurement] = field(default_factory=dict[tuple[str, str], Measurement])
    digest: str = ""

    @classmethod
    def of(cls, path: Path | None) -> MeasuredCodes:
        """
        Args:
            path: the journal; None for none.

        Raises:
            InputError: it cannot be read.
        """
        if path is None:
            return cls()
        measurements, _ = read_measurements(path)
        pairs = {(one.base.sha256, one.candidate.sha256): one for one in measurements}
        return cls(pairs, hashlib.sha256(repr([*pairs.values()]).encode()).hexdigest())

    @classmethod
    def of_environment(cls) -> MeasuredCodes:
        """That of ``$VERILOCC_MEASURED``.

        Raises:
            InputError: it cannot be read.
        """
        named = journal_of_environment()
        return cls.of(named if named is not None and named.exists() else None)

    def decide(self, ours: bytes, theirs: bytes) -> MeasuredDecision | None:
        """None where nothing was measured, or nothing could be decided."""
        a, b = (hashlib.sha256(code).hexdigest() for code in (ours, theirs))
        if (b, a) in self.pairs:
            return decision(self.pairs[b, a])
        return decision(self.pairs[a, b], reverse=True) if (a, b) in self.pairs else None


def journal_of_environment() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def decision(one: Measurement, *, reverse: bool = False) -> MeasuredDecision | None:
    """What a measurement decides; None where that is nothing.

    Args:
        reverse: ours is its base, not its candidate.
    """
    verdict = _OTHER_WAY.get(one.verdict, one.verdict) if reverse else one.verdict
    where = f"{one.device.name}, {one.at}"
    if verdict is Verdict.DIFFERENT:
        said = f"results differ, as measured on {where}: {one.why}"
        return MeasuredDecision(said, said)
    if verdict is Verdict.UNDECIDED or one.ratio is None:
        return None
    ratio = one.ratio
    if reverse:
        ratio = Interval(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.confidence)
    said = f"measured at {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of its time on {where}"
    return MeasuredDecision(said if verdict is Verdict.SLOWER else "", said)
