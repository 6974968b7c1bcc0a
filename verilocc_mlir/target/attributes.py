"""What the IR module in a MIR file says about a function: calling convention, string attributes, LDS.

The preamble of a ``.mir`` file is the IR module, indented. Its syntax is regular enough to read line by line: one
``define`` line a function, one ``attributes #N`` line a group (llvm/lib/IR/AsmWriter.cpp prints both on one line).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from verilocc_mlir.errors import InputError

_DEFINE = re.compile(r"^[ \t]*define\b(?P<head>[^@\n]*)@(?P<name>\"(?:[^\"]|\\\")*\"|[-\w.$]+)\(", re.MULTILINE)
_GROUP = re.compile(r"^[ \t]*attributes #(\d+) = \{([^\n]*)\}[ \t]*$", re.MULTILINE)
_STRING = re.compile(r'"([^"]*)"(?:\s*=\s*"([^"]*)")?')
_NO_MODULE = re.compile(r"(?:#.*\n| *\n)*\Z")
_GROUP_USE = re.compile(r"#(\d+)")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")
_CC_NUMBER = re.compile(r"\bcc ?(\d+)\b")

CALLING_CONVENTIONS = frozenset({
    "fastcc", "coldcc", "amdgpu_kernel", "spir_kernel", "spir_func", "amdgpu_gfx", "amdgpu_gfx_whole_wave",
    "amdgpu_vs", "amdgpu_ls", "amdgpu_hs", "amdgpu_es", "amdgpu_gs", "amdgpu_ps", "amdgpu_cs",
    "amdgpu_cs_chain", "amdgpu_cs_chain_preserve",
})  # fmt: skip
KERNELS = frozenset({"amdgpu_kernel", "spir_kernel"})
GRAPHICS = frozenset({"amdgpu_vs", "amdgpu_ls", "amdgpu_hs", "amdgpu_es", "amdgpu_gs", "amdgpu_ps"})
_NUMBERED = {
    87: "amdgpu_vs", 88: "amdgpu_gs", 89: "amdgpu_ps", 90: "amdgpu_cs", 91: "amdgpu_kernel", 93: "amdgpu_hs",
    95: "amdgpu_ls", 96: "amdgpu_es", 100: "amdgpu_gfx", 104: "amdgpu_cs_chain", 105: "amdgpu_cs_chain_preserve",
    8: "fastcc", 9: "coldcc", 75: "spir_func", 76: "spir_kernel",
}  # fmt: skip


class FunctionAttributes(Struct, frozen=True):
    """Attributes of one function as the IR states them.

    Attributes:
        calling_convention: ``"ccc"`` where none is written, else the IR keyword (``"amdgpu_kernel"``, ``"fastcc"`` …).
        strings: string attributes by name, attribute groups resolved; the value is ``""`` for a bare one.
        words: keyword attributes of the groups and of the ``define`` line (``"noinline"``, ``"naked"`` …).
        is_local: no other module sees it, so that no linker puts another in its place (``internal``, ``private``).
    """

    name: str
    calling_convention: str
    strings: Mapping[str, str]
    words: frozenset[str]
    is_local: bool = False

    @property
    def target_cpu(self) -> str:
        """``"target-cpu"``, or ``""``."""
        return self.strings.get("target-cpu", "")

    @property
    def target_features(self) -> frozenset[str]:
        """``"target-features"`` split, signs kept (``"+xnack"``)."""
        return frozenset(f for f in self.strings.get("target-features", "").split(",") if f)

    @property
    def is_kernel(self) -> bool:
        return self.calling_convention in KERNELS

    @property
    def is_entry(self) -> bool:
        """Not called: a kernel or a shader (AMDGPU::isEntryFunctionCC)."""
        return self.is_kernel or self.calling_convention in GRAPHICS or self.calling_convention == "amdgpu_cs"

    @property
    def lds_bytes(self) -> int:
        """Least LDS allocation stated by ``amdgpu-lds-size``, bytes; 0 where it is not stated."""
        pair = self.integer_pair("amdgpu-lds-size", only_first_required=True)
        return pair[0] if pair else 0

    def integer(self, key: str) -> int | None:
        """An integer attribute; None where absent (Function::getFnAttributeAsParsedInteger).

        Raises:
            InputError: LLVM refuses the value.
        """
        text = self.strings.get(key)
        return self._parsed(key, text) if text is not None else None

    def integer_pair(self, key: str, *, only_first_required: bool = False) -> tuple[int, int | None] | None:
        """``"a,b"`` as two integers (AMDGPU::getIntegerPairAttribute); None for a second that may be and is absent.

        Raises:
            InputError: LLVM refuses the value.
        """
        text = self.strings.get(key)
        if text is None:
            return None
        first, _, second = text.partition(",")
        low = self._parsed(key, first.strip(_BLANKS))
        if only_first_required and not second.strip(_BLANKS):
            return low, None
        return low, self._parsed(key, second.strip(_BLANKS))

    def _parsed(self, key: str, text: str) -> int:
        number = _integer(text)
        if number is None:
            raise InputError(f'"{key}"="{self.strings[key]}" of {self.name} is not a number that LLVM takes')
        return number


_BLANKS = " \t\n\v\f\r"
_BASES = ((16, "0[xX]([0-9a-fA-F]+)"), (2, "0[bB]([01]+)"), (8, "0o([0-7]+)"), (8, "0([0-7]+)"), (10, "([0-9]+)"))


def _integer(text: str) -> int | None:
    """A number of 32 bits as StringRef::getAsInteger reads it where the base is not given (getAutoSenseRadix)."""
    for base, form in _BASES:
        if match := re.fullmatch(form, text):
            number = int(match[1], base)
            return number if number < 1 << 32 else None
    return None


def unquote(name: str) -> str:
    """An IR name as the string it stands for: quotes removed, ``\\22`` decoded as LLVM does (UTF-8 bytes)."""
    if not name.startswith('"'):
        return name
    if "\\" not in name:
        return name[1:-1]
    raw = re.sub(
        rb"\\([0-9A-Fa-f]{2})|\\\\",
        lambda m: bytes([int(m[1], 16)]) if m[1] else b"\\",
        name[1:-1].encode("utf-8"),
    )
    return raw.decode("utf-8", "surrogateescape")


def _calling_convention(head: str) -> str:
    for word in head.split():
        if word in CALLING_CONVENTIONS:
            return word
    match = _CC_NUMBER.search(head)
    return _NUMBERED.get(int(match[1]), f"cc{match[1]}") if match else "ccc"


def _after_parameters(line: str, start: int) -> str:
    """The rest of a ``define`` line after the parenthesis that closes the parameter list opened before ``start``."""
    depth, quoted = 1, False
    for k in range(start, len(line)):
        ch = line[k]
        if ch == '"':
            quoted = not quoted
        elif not quoted:
            depth += (ch == "(") - (ch == ")")
            if depth == 0:
                return line[k + 1 :]
    return ""


def _split(text: str) -> tuple[dict[str, str], set[str]]:
    strings = {unquote(f'"{m[1]}"'): unquote(f'"{m[2] or ""}"') for m in _STRING.finditer(text)}
    return strings, set(_STRING.sub(" ", text).split())


@lru_cache(maxsize=16)
def _module(preamble: str) -> dict[str, FunctionAttributes]:
    groups: dict[str, tuple[dict[str, str], set[str]]] = {}
    for group in _GROUP.finditer(preamble):
        # LLParser adds a second group of a number to the first one.
        group_strings, group_words = groups.setdefault(group[1], ({}, set()))
        more_strings, more_words = _split(group[2])
        group_strings.update(more_strings)
        group_words.update(more_words)
    functions: dict[str, FunctionAttributes] = {}
    for match in _DEFINE.finditer(preamble):
        end = preamble.find("\n", match.end())
        line = preamble[match.start() : end if end >= 0 else len(preamble)]
        tail = _after_parameters(line, match.end() - match.start())
        name = unquote(match["name"])
        # Attributes end where the body, or a constant before it, begins; a comment there is nothing LLVM prints.
        blotted = _STRING.sub(lambda m: "_" * len(m[0]), tail)
        head = tail[: max(blotted.find("{"), 0)]
        if "{" not in blotted or ";" in blotted[: len(head)]:
            raise InputError(f"the definition of {name} is not laid out as LLVM prints it, on one line up to its '{{'")
        strings: dict[str, str] = {}
        words: set[str] = set()
        # Comdat, section and metadata come after the attributes and may hold a '#' only inside strings.
        for use in _GROUP_USE.finditer(_STRING.sub(" ", head)):
            if use[1] not in groups:
                raise InputError(
                    f"the attributes #{use[1]} of {name} are not in the module, on one line as LLVM prints them"
                )
            strings.update(groups[use[1]][0])
            words.update(groups[use[1]][1])
        own, own_words = _split(head)
        own.pop("", None)
        strings.update(own)
        words.update(w for w in own_words if not w.startswith(("#", "!")))
        functions[name] = FunctionAttributes(
            name,
            _calling_convention(match["head"]),
            MappingProxyType(strings),
            frozenset(words),
            not {"internal", "private"}.isdisjoint(match["head"].split()),
        )
    return functions


def function_attributes(preamble: str, name: str) -> FunctionAttributes:
    """Attributes of function ``name`` in the IR module ``preamble``; linear in the module, once per module.

    Where there is no IR module, LLVM makes a function ``void ()`` without attributes for each machine function
    (MIRParser.cpp, createDummyFunction).

    Raises:
        InputError: the module defines no such function, or is not laid out as LLVM prints it.
    """
    module = _module(preamble)
    if name in module:
        return module[name]
    if _NO_MODULE.match(preamble):
        return FunctionAttributes(name, "ccc", MappingProxyType({}), frozenset())
    raise InputError(
        f"the IR module in the MIR file defines no function {name}",
        hint="give MIR as llc writes it, with its embedded IR module: register budgets depend on function attributes",
    )
