"""``#rocdl.target``: what it asks for, and which of it can be honoured.

Parameters and their defaults are those of ROCDL_TargetAttr (mlir/Dialect/LLVMIR/ROCDLOps.td); what each of them does is
taken from mlir/lib/Target/LLVM/ROCDL/Target.cpp and ModuleToObject.cpp: ``O`` is the level of both LLVM's optimiser and
its code generator, ``flags`` set the control constants of the ROCm device libraries and nothing else, ``abi`` is the
code-object version times 100.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.target.targets import TARGETS, target

DEFAULT_CHIP = "gfx900"
DEFAULT_TRIPLE = "amdgcn-amd-amdhsa"
CODE_OBJECT_VERSIONS = ("400", "500", "600")
KNOWN_FLAGS = frozenset(
    {"fast", "daz", "finite_only", "unsafe_math", "unsafe_sqrt", "wave64", "no_wave64"},
)
_ATTRIBUTE = re.compile(r"#rocdl\.target(?:<(?P<body>.*)>)?\s*$", re.DOTALL)
_PARAMETER = re.compile(
    r'(?P<key>\w+) *= *(?P<value>"(?:[^"\\]|\\.)*"|\{[^{}]*\}|\[[^\[\]]*\]|\d+)(?: *: *i\d+)?(?:, *|\s*$)'
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


@dataclass(frozen=True)
class RocdlTarget:
    """A ``#rocdl.target`` as parsed.

    Attributes:
        opt_level: 0 to 3.
        abi: code-object version times 100, ``"600"`` for version 6.
        link: bitcode files to link before optimising, in order.
    """

    chip: str = DEFAULT_CHIP
    features: str = ""
    opt_level: int = 2
    triple: str = DEFAULT_TRIPLE
    abi: str = "600"
    flags: frozenset[str] = frozenset()
    link: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> RocdlTarget:
        """From the attribute's printed form.

        Raises:
            UnsupportedError: it has a parameter that is not known here, or a flag with a value.
        """
        match = _ATTRIBUTE.match(text)
        if match is None:
            raise ValueError(f"{text!r} is no #rocdl.target")
        values: dict[str, str] = {}
        body = (match["body"] or "").strip()
        position = 0
        while position < len(body):
            parameter = _PARAMETER.match(body, position)
            if parameter is None or parameter["key"] not in _KEYS:
                raise UnsupportedError(f"#rocdl.target has a parameter that is not known here: {body[position:]}")
            values[parameter["key"]] = parameter["value"]
            position = parameter.end()
        return cls(
            chip=_string(values, "chip", cls.chip),
            features=_string(values, "features", cls.features),
            opt_level=int(values.get("O", cls.opt_level)),
            triple=_string(values, "triple", cls.triple),
            abi=_string(values, "abi", cls.abi),
            flags=_flags(values.get("flags", "{}")),
            link=tuple(_unescape(name) for name in _STRING.findall(values.get("link", ""))),
        )

    @property
    def wave64(self) -> bool:
        """Whether waves have 64 lanes: the chip's default, or what ``features`` says."""
        sizes = {name: sign for sign, name in re.findall(r"([+-])(wavefrontsize(?:32|64))", self.features)}
        if sizes.get("wavefrontsize64"):
            return sizes["wavefrontsize64"] == "+"
        if sizes.get("wavefrontsize32"):
            return sizes["wavefrontsize32"] == "-"
        return target(self.chip).wave_size == 64

    def check(self) -> None:
        """Raise what keeps this target from being compiled as it asks.

        Raises:
            UnsupportedError: a chip, flag, ABI, level or triple that cannot be honoured.
        """
        if not re.fullmatch(r"amdgcn-(?:amd|unknown)?-amdhsa", self.triple):
            raise UnsupportedError(f"triple = {self.triple!r}: only {DEFAULT_TRIPLE} is supported")
        try:
            target(self.chip)
        except InputError as error:
            # Another AMD GPU is somebody's valid input, only not ours.
            raise UnsupportedError(error.what, hint=f"handled: {', '.join(sorted(TARGETS))}") from error
        unknown = sorted(self.flags - KNOWN_FLAGS)
        if unknown:
            raise UnsupportedError(f"unknown flags in #rocdl.target: {', '.join(unknown)}")
        if self.abi not in CODE_OBJECT_VERSIONS:
            raise UnsupportedError(f"abi = {self.abi!r}: only {', '.join(CODE_OBJECT_VERSIONS)} are supported")
        if not 1 <= self.opt_level <= 3:
            raise UnsupportedError(
                f"O = {self.opt_level}: LLVM has no separate allocation phases at that level",
                hint="give #rocdl.target<O = 1> or more",
            )
        if self.wave64 != (target(self.chip).wave_size == 64):
            raise UnsupportedError(f"{self.chip} with waves of {64 if self.wave64 else 32} lanes is not supported")
        for flag, is_wave64 in (("wave64", True), ("no_wave64", False)):
            if flag in self.flags and self.wave64 != is_wave64:
                size = 64 if self.wave64 else 32
                raise UnsupportedError(f"flag {flag}, but code for {self.chip} has waves of {size} lanes")

    def control_constants(self) -> dict[str, tuple[str, int]]:
        """What the ROCm device libraries read: name to (type, value), as Target.cpp's addControlVariables sets them.

        The wave size is that of the code; upstream says 64 unless ``no_wave64`` is given, whatever the code.
        """
        fast = "fast" in self.flags
        return {
            "__oclc_finite_only_opt": ("i8", int(fast or "finite_only" in self.flags)),
            "__oclc_unsafe_math_opt": ("i8", int(fast or "unsafe_math" in self.flags)),
            "__oclc_daz_opt": ("i8", int(fast or "daz" in self.flags)),
            "__oclc_correctly_rounded_sqrt32": ("i8", int(not fast and "unsafe_sqrt" not in self.flags)),
            "__oclc_wavefrontsize64": ("i8", int(self.wave64)),
            "__oclc_wavefrontsize_log2": ("i32", 6 if self.wave64 else 5),
            "__oclc_ISA_version": ("i32", isa_version(self.chip)),
            "__oclc_ABI_version": ("i32", int(self.abi)),
        }


_KEYS = frozenset({"O", "triple", "chip", "features", "abi", "flags", "link"})


def isa_version(chip: str) -> int:
    """``__oclc_ISA_version``: major * 1000 + minor * 100 + stepping (ROCm device libraries, oclc_isa_version_*.bc)."""
    match = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", chip)
    if match is None:
        raise UnsupportedError(f"{chip} has no ISA version for the device libraries")
    return int(match[1]) * 1000 + int(match[2], 16) * 100 + int(match[3], 16)


def _string(values: dict[str, str], key: str, default: str) -> str:
    return _unescape(values[key][1:-1]) if key in values else default


def _unescape(text: str) -> str:
    """MLIR's string escapes: ``\\\\``, ``\\"``, ``\\n``, ``\\t`` and two hexadecimal digits."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)

    return _ESCAPE.sub(one, text)


def _flags(text: str) -> frozenset[str]:
    names: set[str] = set()
    for part in text.strip("{} ").split(","):
        name, equals, value = part.strip().partition("=")
        if not name:
            continue
        if equals and value.strip() != "unit":
            raise UnsupportedError(f"flag {name.strip()} of #rocdl.target has a value ({value.strip()})")
        names.add(name.strip().strip('"'))
    return frozenset(names)
