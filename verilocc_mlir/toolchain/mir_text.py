"""Function headers in machine IR text: the part between a function's name and its body."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAME = re.compile(r"^name: +(?:'(?P<quoted>[^']*)'|(?P<plain>\S+)) *$", re.MULTILINE)


def function_headers(mir: str) -> Iterator[tuple[str, str]]:
    """Name and header of each function, in the text's order."""
    heads = list(_NAME.finditer(mir))
    ends = [head.start() for head in heads[1:]] + [len(mir)]
    for head, end in zip(heads, ends, strict=True):
        body = mir.find("\nbody:", head.end(), end)
        yield head["quoted"] or head["plain"], mir[head.end() : body + 1 if body >= 0 else end]
