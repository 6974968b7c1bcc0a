"""The IR module of a text: it is the same before and after, and says what is asked of a function
(specification 13.5).

Later passes read globals, attributes and metadata from it, and memory operands name values of it. Between two runs of
llc only these change (seen on all phases of all kernels at hand): comments, the numbers of attribute groups,
``"target-cpu"``, which a function without one gets from the command line, and ``"target-features"``, to which every run
adds those of its ``-mattr`` (CommandFlags.cpp, setFunctionAttributes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import zip_longest
from typing import NamedTuple

from smt_verifier.checker.operands import WORD
from smt_verifier.checker.outcome import Refused

_STRING = r'"[^"\n]*"'
_C_COMMENT = re.compile(rf'({_STRING})|/\*[^*/;"\n]*\*/ ?')
_CODE = re.compile(rf"((?:[^\";/]|{_STRING}|/(?!\*))*)(?:;.*)?\Z")
_PARENTHESES = rf"\((?:[^()\"]|{_STRING}|\((?:[^()\"]|{_STRING})*\))*\)"
_ATTRIBUTE = rf"(?:{_STRING}(?:={_STRING})?|[a-z_][a-z0-9_]*(?:=[0-9]+|{_PARENTHESES})?)"
_GROUP = re.compile(rf"attributes #([0-9]+) = \{{((?: {_ATTRIBUTE})*) \}}")
_ITEM = re.compile(_ATTRIBUTE)
_GROUP_USE = re.compile(rf"{_STRING}| ?#([0-9]+)\b")
_STATEMENT = re.compile(rf"{_STRING}|(?<![\w@%$.!#-])(define|attributes)(?![\w.$-])", re.ASCII)
_TARGET = re.compile(
    r'target (?:datalayout = "[^"]*"|triple = "amd(?:gcn|gpu[0-9a-f.]*)-[a-z]*-amdhsa(?:-[a-z0-9]*)?")'
)
_INTRINSIC = re.compile(r"declare [^@]*@llvm\.")
_CONVENTION = (
    "ccc|fastcc|coldcc|amdgpu_kernel|spir_kernel|spir_func|amdgpu_gfx_whole_wave|amdgpu_gfx|amdgpu_vs|amdgpu_ls"
    "|amdgpu_hs|amdgpu_es|amdgpu_gs|amdgpu_ps|amdgpu_cs_chain_preserve|amdgpu_cs_chain|amdgpu_cs"
)
_NUMBERED = {
    8: "fastcc", 9: "coldcc", 75: "spir_func", 76: "spir_kernel", 87: "amdgpu_vs", 88: "amdgpu_gs", 89: "amdgpu_ps",
    90: "amdgpu_cs", 91: "amdgpu_kernel", 93: "amdgpu_hs", 95: "amdgpu_ls", 96: "amdgpu_es", 100: "amdgpu_gfx",
    104: "amdgpu_cs_chain", 105: "amdgpu_cs_chain_preserve",
}  # fmt: skip
_RESULT = (
    rf"(?:(?:noundef|noalias|nonnull|signext|zeroext|inreg|align [0-9]+|[a-z_]+{_PARENTHESES}) )*"
    rf"(?:void|i[0-9]+|half|bfloat|float|double|ptr(?: addrspace\([0-9]+\))?|%(?:{WORD}|{_STRING})"
    rf"|[<{{\[](?:[^@\"]|{_STRING})*[>}}\]])"
)
_DEFINE = re.compile(
    r"define (?P<linkage>(?:private|internal|available_externally|linkonce|weak|common|appending|extern_weak"
    r"|linkonce_odr|weak_odr|external) )?(?:dso_local |dso_preemptable )?(?:(?:default|hidden|protected) )?"
    rf"(?:(?:(?P<word>{_CONVENTION})|cc ?(?P<number>[0-9]{{1,9}})) )?{_RESULT} "
    rf"@(?P<name>{WORD}|{_STRING})\((?P<parameters>(?:[^()\"]|{_STRING}|{_PARENTHESES})*)\)"
    r"(?: (?:local_)?unnamed_addr)?(?: addrspace\([0-9]+\))?"
    rf"(?P<attributes>(?: (?:#[0-9]+|(?!align |section |partition |comdat|gc ){_ATTRIBUTE}))*)"
    rf"(?: section {_STRING})?(?: comdat(?:\(\$(?:{WORD}|{_STRING})\))?)?(?: align [0-9]+)?(?: ![\w.]+ ![0-9]+)* \{{",
    re.ASCII,
)
"""AsmWriter.cpp, ``printFunction``."""
_NAME = re.compile(rf"define (?:[^@\"]|{_STRING})*@({WORD}|{_STRING})\(", re.ASCII)


class Attributes(NamedTuple):
    """What a module says of a function.

    Attributes:
        calling_convention: its keyword; ``"ccc"`` where none is written, ``"cc123"`` for one without a keyword.
        strings: string attributes by name; the value is ``""`` for a bare one.
        words: the other attributes, as printed (``"noinline"``, ``"memory(none)"``).
        is_local: no other module sees the function.
    """

    calling_convention: str
    strings: Mapping[str, str]
    words: frozenset[str]
    is_local: bool


def attributes(module: str, function: str) -> Attributes:
    """What ``module`` says of ``function``.

    Raises:
        Refused: the module does not define it, or says of it what is not read here as LLVM reads it.
    """
    lines = _code(module)
    for line in lines:
        # Other systems have other budgets of registers, and other prologues.
        if "target" in re.sub(_STRING, '""', line).split() and not _TARGET.fullmatch(line):
            raise Refused("module", f"a target that is not followed: {line!r}")
    groups = _groups(lines)
    found = [line for line in lines if (m := _NAME.match(line)) and m[1].strip('"') == function]
    if len(found) != 1:
        raise Refused("module", f"the IR module defines {len(found)} functions {function}")
    match = _DEFINE.match(found[0])
    if match is None:
        raise Refused("module", f"the definition of {function} is not as LLVM prints it: {found[0]!r}")
    items: list[str] = []
    for item in re.findall(rf"#[0-9]+|{_ATTRIBUTE}", match["attributes"]):
        if item.startswith("#") and item[1:] not in groups:
            raise Refused("module", f"there is no group of attributes {item}")
        items += groups[item[1:]] if item.startswith("#") else (item,)
    strings = [item.partition("=") for item in items if item.startswith('"')]
    by_name = {name[1:-1]: value[1:-1] for name, _, value in strings}
    if len(by_name) != len(strings) or any("\\" in item for item in items):
        raise Refused("module", f"an attribute of {function} is given twice, or has an escape")
    convention = _NUMBERED.get(int(match["number"]), f"cc{int(match['number'])}") if match["number"] else match["word"]
    words = frozenset(item for item in items if not item.startswith('"'))
    return Attributes(convention or "ccc", by_name, words, match["linkage"] in ("internal ", "private "))


def compare_modules(before: str, after: str, processor: str) -> None:
    """The modules are the same but for what llc changes.

    Raises:
        Refused: they differ, or one is not as LLVM prints it.
    """
    if before == after:
        return
    for old, new in zip_longest(_meaning(before, processor), _meaning(after, processor), fillvalue=""):
        if old != new:
            at = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
            part = slice(max(at - 40, 0), at + 40)
            raise Refused("module", f"the IR module changed: {old[part].strip()!r} became {new[part].strip()!r}")


@lru_cache(maxsize=8)
def _code(module: str) -> tuple[str, ...]:
    """Lines without comments and without blanks at their ends. Functions and groups begin where a line begins.

    LLVM 24 writes what an argument of an intrinsic means as ``/* (inf) */`` before it (AsmWriter.cpp).
    """
    lines: list[str] = []
    for number, line in enumerate(module.split("\n"), 1):
        match = _CODE.match(_C_COMMENT.sub(lambda found: found[1] or "", line))
        if match is None:
            raise Refused(
                "module", "a string over several lines, or a comment that LLVM does not print", f"line {number}"
            )
        code = match[1].rstrip(" ")
        for statement in _STATEMENT.finditer(code):
            if statement[1] and statement.start() > 0:
                raise Refused("module", f"'{statement[1]}' within a line of the IR module", f"line {number}")
        lines += [code] if code else []
    return tuple(lines)


def _groups(lines: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Attributes by the number of their group."""
    groups: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if line.startswith("attributes "):
            match = _GROUP.fullmatch(line)
            if match is None or match[1] in groups:
                raise Refused(
                    "module", f"a group of attributes that is not as LLVM prints it, or a second one: {line!r}"
                )
            groups[match[1]] = tuple(_ITEM.findall(match[2]))
    return groups


@lru_cache(maxsize=8)
def _meaning(module: str, processor: str) -> tuple[str, ...]:
    """Lines that mean something, attribute groups written out where they are used."""
    lines = _code(module)
    groups = {
        number: "".join(f" {_once(item)}" for item in items if item != f'"target-cpu"="{processor}"')
        for number, items in _groups(lines).items()
    }
    return tuple(_plain(line, groups) for line in lines if not line.startswith("attributes "))


def _plain(line: str, groups: Mapping[str, str]) -> str:
    text = _GROUP_USE.sub(partial(_written_out, groups), line)
    # An intrinsic is not called: nobody asks which features it is for.
    return re.sub(r' "target-features"="[^"]*"', "", text) if _INTRINSIC.match(line) else text


def _written_out(groups: Mapping[str, str], match: re.Match[str]) -> str:
    return groups.get(match[1], match[0]) if match[1] else match[0]


def _once(item: str) -> str:
    """A list of features without the repetition at its end; that changes nothing, the last word on a feature counts."""
    if not item.startswith('"target-features"="'):
        return item
    features = item[19:-1].split(",")
    for length in range(1, len(features) // 2 + 1):
        while len(features) >= 2 * length and features[-length:] == features[-2 * length : -length]:
            del features[-length:]
    return f'"target-features"="{",".join(features)}"'
