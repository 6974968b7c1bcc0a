"""The IR module in the files: it must be the same before and after, but for how LLVM writes it.

Later passes read globals, attributes and metadata from there, and the memory operands name values of it. Between two
runs of llc only these change (seen on all phases of all kernels at hand): comments, the numbers of attribute groups,
``"target-cpu"``, which a function without one gets from the command line, and ``"target-features"``, to which every run
adds those of its ``-mattr`` (CommandFlags.cpp, setFunctionAttributes).
"""

from __future__ import annotations

import re
from itertools import zip_longest

from verilocc_mlir.errors import InputError

_TOKEN = re.compile(r'"[^"]*"|;[^\n]*|#(\d+)\b')
_COMMENTS_BEFORE = re.compile(r"(?:(?:#[^\n]*)?\n)*")
_GROUP = re.compile(r"^  attributes #(\d+) = \{ ([^\n]*) \}$", re.M)
_FEATURES = re.compile(r'"target-features"="([^"\n]*)"')
_INTRINSIC = re.compile(r"  declare [^\n@]*@llvm\.")


def module_difference(pre: str, post: str, cpu: str) -> str:
    """What differs between two modules as they stand before the machine functions, in words; empty if nothing does.

    Args:
        pre: text of the file before its first machine function.

    Raises:
        InputError: a module that is not as LLVM prints it.
    """
    pre, post = (text[_end_of_comments(text) :] for text in (pre, post))
    if pre == post:
        return ""
    for before, after in zip_longest(_lines(pre, cpu), _lines(post, cpu), fillvalue=""):
        if before != after:
            at = next(
                (k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
            )
            excerpt = slice(max(at - 40, 0), at + 40)
            return f"the IR module changed: {before[excerpt].strip()!r} became {after[excerpt].strip()!r}"
    return ""


def _end_of_comments(text: str) -> int:
    """Where the YAML comments and blank lines end that a file may begin with."""
    match = _COMMENTS_BEFORE.match(text)
    return match.end() if match else 0


def _lines(module: str, cpu: str) -> tuple[str, ...]:
    """Lines that mean something, attribute groups written out where they are used."""
    processor = f'"target-cpu"="{cpu}"'
    numbers = [m[1] for m in _GROUP.finditer(module)]
    if len(set(numbers)) < len(numbers):
        raise InputError("the IR module gives a group of attributes twice")
    groups = {
        m[1]: _FEATURES.sub(_once, m[2].replace(f"{processor} ", "").replace(f" {processor}", ""))
        for m in _GROUP.finditer(module)
    }

    def plain(match: re.Match[str]) -> str:
        text = match[0]
        if text[0] == '"' and "\n" in text:
            raise InputError("the IR module has a string over several lines, which LLVM does not print")
        if text[0] == "#":
            return groups.get(match[1], text)
        return "" if text[0] == ";" else text

    lines = [line.rstrip() for line in _TOKEN.sub(plain, _GROUP.sub("", module)).split("\n")]
    # An intrinsic is not called: nobody asks which features it is for.
    return tuple(_FEATURES.sub("", line).rstrip() if _INTRINSIC.match(line) else line for line in lines if line)


def _once(match: re.Match[str]) -> str:
    """A list of features without the repetition at its end; that changes nothing, the last word on a feature counts."""
    features = match[1].split(",")
    for length in range(1, len(features) // 2 + 1):
        while len(features) >= 2 * length and features[-length:] == features[-2 * length : -length]:
            del features[-length:]
    return f'"target-features"="{",".join(features)}"'
