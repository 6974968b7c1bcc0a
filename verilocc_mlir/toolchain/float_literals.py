"""Floating-point literals of newer LLVM in the forms that LLVM 22 reads.

LLVM 23 and later print the shortest decimal that rounds to the value, ``f0x`` with the bits of the type itself, and
``+inf``, ``-qnan``, ``+nan(0x…)``, ``+snan(0x…)``. LLVM 22 wants a decimal to be exact in its type and a ``float`` as
the bits of the double of equal value, and has no names (LangRef, "Simple Constants"; llvm/lib/AsmParser/LLLexer.cpp).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class _Format:
    """An IEEE binary format: stored significand bits, exponent bits, and LLVM 22's prefix for its literals."""

    fraction: int
    exponent: int
    prefix: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1


_FORMATS = {
    "half": _Format(10, 5, "0xH"),
    "bfloat": _Format(7, 8, "0xR"),
    "float": _Format(23, 8, "0x"),
    "double": _Format(52, 11, "0x"),
}

# Strings, comments and names first, so that nothing inside them is taken for a type or a number.
_TOKEN = re.compile(
    r'"[^"]*"|;[^\n]*|[%@$!][\w.$-]+|'
    r"(?P<type>\b(?:half|bfloat|float|double|fp128|x86_fp80|ppc_fp128)\b)|"
    r"(?P<bits>\bf0x[0-9A-Fa-f]+)|"
    r"(?P<special>[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\)))|"
    r"(?P<decimal>(?<![\w.])[+-]?\d+\.\d*(?:[eE][+-]?\d+)?)"
)


def convert_line(line: str) -> str:
    """One line of IR with its literals in LLVM 22's forms.

    A literal's type is the last floating-point type before it on the line. It stands before the literal, or, in
    arithmetic, comparisons and phis, before the first operand. Literals that LLVM 22 reads are not changed.

    Raises:
        ValueError: a literal has a type that is not handled here (fp128, x86_fp80), or no type.
    """
    kind = ""

    def convert(match: re.Match[str]) -> str:
        nonlocal kind
        if match["type"]:
            kind = match["type"]
        elif match["bits"] or match["special"]:
            return _literal(match[0], kind)
        elif match["decimal"] and kind in ("half", "bfloat", "float"):
            return _decimal(match[0], kind)
        return match[0]

    return _TOKEN.sub(convert, line)


def encode_decimal(text: str, kind: str) -> int:
    """The bits of ``kind`` nearest to a decimal, ties to even."""
    form = _FORMATS[kind]
    sign = 1 << form.bits - 1 if text.startswith("-") else 0
    value = abs(Fraction(text))
    if value == 0:
        return sign
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    exponent = max(exponent, 1 - form.bias)
    units = round(value / Fraction(2) ** (exponent - form.fraction))
    # A subnormal has no hidden bit; a carry into the next binade comes out right by itself.
    encoded = units + (exponent + form.bias - 1 << form.fraction)
    infinity = (1 << form.exponent) - 1 << form.fraction
    return sign | min(encoded, infinity)


def _decimal(text: str, kind: str) -> str:
    bits = encode_decimal(text, kind)
    if _exact(text, bits, kind):
        return text
    return _spell(bits, kind)


def _literal(text: str, kind: str) -> str:
    form = _FORMATS.get(kind)
    if form is None:
        raise ValueError(f"literal {text} of type {kind or 'unknown'}")
    if text.startswith("f0x"):
        bits = int(text[3:], 16)
        if bits >> form.bits:
            raise ValueError(f"literal {text} is too wide for {kind}")
        return _spell(bits, kind)
    sign = 1 << form.bits - 1 if text[0] == "-" else 0
    infinity = (1 << form.exponent) - 1 << form.fraction
    quiet = 1 << form.fraction - 1
    name, _, payload = text[1:].rstrip(")").partition("(")
    if name == "inf":
        return _spell(sign | infinity, kind)
    bits = sign | infinity | (int(payload, 16) if payload else 0)
    return _spell(bits if name == "snan" else bits | quiet, kind)


def _spell(bits: int, kind: str) -> str:
    form = _FORMATS[kind]
    if kind == "float":
        return f"0x{_widen(bits):016X}"
    return f"{form.prefix}{bits:0{form.bits // 4}X}"


def _value(bits: int, kind: str) -> Fraction:
    """The value of a finite encoding, its sign left off."""
    form = _FORMATS[kind]
    exponent = bits >> form.fraction & (1 << form.exponent) - 1
    fraction = bits & (1 << form.fraction) - 1
    if exponent:
        fraction |= 1 << form.fraction
    return Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - form.bias - form.fraction)


def _exact(text: str, bits: int, kind: str) -> bool:
    form = _FORMATS[kind]
    infinity = (1 << form.exponent) - 1
    return bits >> form.fraction & infinity != infinity and _value(bits, kind) == abs(Fraction(text))


def _widen(bits: int) -> int:
    """The double of equal value to a float, NaN payloads shifted along and signalling ones kept."""
    single, double = _FORMATS["float"], _FORMATS["double"]
    sign = bits >> 31 << 63
    exponent = bits >> single.fraction & 0xFF
    fraction = bits & (1 << single.fraction) - 1
    shift = double.fraction - single.fraction
    if exponent == 0xFF:
        return sign | 0x7FF << double.fraction | fraction << shift
    if exponent == 0 and fraction:
        # A float's subnormal is normal as a double.
        lead = fraction.bit_length() - 1
        exponent = lead - single.fraction + 1
        fraction = (fraction << single.fraction - lead) & (1 << single.fraction) - 1
    elif exponent == 0:
        return sign
    return sign | (exponent - single.bias + double.bias) << double.fraction | fraction << shift
