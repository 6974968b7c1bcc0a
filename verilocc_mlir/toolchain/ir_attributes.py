"""String attributes of functions, set in the text of IR."""

from __future__ import annotations

import re
from collections.abc import Sequence


def with_attributes(text: str, attributes: Sequence[tuple[str, str]]) -> str:
    """IR, or machine IR with its IR, whose functions have these string attributes in place of those of that name."""
    if not attributes:
        return text
    for name, _ in attributes:
        text = re.sub(rf'"{name}"="[^"]*" ?', "", text)
    added = " ".join(f'"{name}"="{value}"' for name, value in attributes)
    return re.sub(r"^( *define .*\))((?: (?:local_unnamed_addr|unnamed_addr))?)", rf"\1\2 {added}", text, flags=re.M)
