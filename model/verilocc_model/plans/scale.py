"""How facts are scaled: counts as logarithms, parts as shares."""

from __future__ import annotations

import math


def log(number: float) -> float:
    """``log2(1 + number)``, for a count."""
    return round(math.log2(1.0 + number), 3)


def share(part: float, whole: float) -> float:
    """Of the whole; 0 of nothing."""
    return round(part / whole, 4) if whole else 0.0
