"""String attributes of functions, set in the text of IR."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def with_attributes(text: str, attributes: Sequence[tuple[str, str]]) -> str:
    """IR, or machine IR with its IR, whose functions have these string attributes in place of those of that name."""
    if not attributes:
        return text
    for name, _ in attributes:
        text = re.sub(rf'"{name}"="[^"]*" ?', "", text)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes)
    return re.sub(r"^( *define .*\))((?: (?:local_unnamed_addr|unnamed_addr))?)", rf"\1\2 {added}", text, flags=re.M)


def without_features(text: str, features: Collection[str]) -> str:
    """IR, or machine IR with its IR, whose functions do not name these features (``+name``, ``-name``)."""

    def rest(match: re.Match[str]) -> str:
        return f'"target-features"="{",".join(f for f in match[1].split(",") if f not in features)}"'

    return re.sub(r'"target-features"="([^"]*)"', rest, text)
