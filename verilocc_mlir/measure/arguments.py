"""The arguments of a kernel, laid out as its metadata says.

Source: AMDGPUUsage, "Kernel Argument Metadata": each argument has an offset and a size in the kernarg segment and a
``.value_kind``. ``hidden_*`` arguments are the runtime's own business: it sets them where it is given the others.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.toolchain.descriptor import KernelMetadata

_POINTER = "global_buffer"
_VALUE = "by_value"
_HIDDEN = "hidden_"
_POINTER_BYTES = 8


@dataclass(frozen=True)
class Argument:
    """One that the caller gives.

    Attributes:
        number: its place among them, from 0.
        name: in the source; ``""`` where the metadata does not say.
        offset: bytes in the kernarg segment; ``size`` likewise.
        pointer: whether it is the address of a buffer.
    """

    number: int
    name: str
    offset: int
    size: int
    pointer: bool

    def __str__(self) -> str:
        kind = "a buffer" if self.pointer else f"a value of {self.size} bytes"
        return f"argument {self.number}{f' ({self.name})' if self.name else ''}, {kind}"


@dataclass(frozen=True)
class Bound:
    """An argument with what it is given: a buffer, or the bytes of a value."""

    argument: Argument
    given: Filling | bytes


def arguments_of(kernel: KernelMetadata) -> tuple[Argument, ...]:
    """Those that a caller gives, in order.

    Raises:
        UnsupportedError: one is of a kind that cannot be given here: an image, a queue, dynamic LDS.
    """
    found: list[Argument] = []
    for entry in _entries(kernel):
        kind = str(entry.get(".value_kind", ""))
        if kind.startswith(_HIDDEN):
            continue
        if kind not in (_POINTER, _VALUE):
            raise UnsupportedError(
                f"argument {len(found)} is {kind or '?'}, which cannot be made here", where=kernel.name
            )
        found.append(
            Argument(
                len(found), str(entry.get(".name", "")), int(entry[".offset"]), int(entry[".size"]), kind == _POINTER
            )
        )
    return tuple(found)


def interface_of(kernel: KernelMetadata) -> str:
    """SHA-256 of what a caller sees of the arguments. Codes of one kernel have the same, whoever allocated them."""
    seen = [(a.offset, a.size, a.pointer) for a in arguments_of(kernel)]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def bind(arguments: Sequence[Argument], given: Sequence[str], where: str) -> tuple[Bound, ...]:
    """Each argument with what the command line gives it.

    Args:
        given: ``WHICH=WHAT``; WHICH is a number or a name, WHAT a buffer (``measure.arguments``), ``null``, or a value:
            ``4096``, or with its type ``f32:0.5``.

    Raises:
        InputError: one is missing, is not there, or does not fit.
    """
    said: dict[int, str] = {}
    for text in given:
        which, equals, what = text.partition("=")
        found = [a for a in arguments if which in (str(a.number), a.name) and which]
        if not equals or not found:
            raise InputError(f"--arg={text} is for no argument of {where}", hint=_listed(arguments))
        said[found[0].number] = what
    missing = [a for a in arguments if a.number not in said]
    if missing:
        shape = f"{missing[0].number}=4096x4096xf16" if missing[0].pointer else f"{missing[0].number}=4096"
        listed = _listed(arguments)
        raise InputError(f"{missing[0]}, is not given", where=where, hint=f"--arg={shape}, for example; {listed}")
    return tuple(Bound(a, _given(a, said[a.number], where)) for a in arguments)


def kernarg(bound: Sequence[Bound], addresses: Mapping[int, int]) -> bytes:
    """The bytes of the kernarg segment up to the last argument given; buffers by the addresses of their numbers."""
    block = bytearray(max((b.argument.offset + b.argument.size for b in bound), default=0))
    for one in bound:
        argument = one.argument
        value = (
            one.given if isinstance(one.given, bytes) else addresses[argument.number].to_bytes(_POINTER_BYTES, "little")
        )
        block[argument.offset : argument.offset + argument.size] = value
    return bytes(block)


def words_of(bound: Sequence[Bound]) -> str:
    """What the arguments are, in words."""
    return ", ".join(b.given.words if isinstance(b.given, Filling) else f"0x{b.given[::-1].hex()}" for b in bound)


def _given(argument: Argument, text: str, where: str) -> Filling | bytes:
    place = f"{where}, {argument}"
    if argument.pointer:
        if argument.size != _POINTER_BYTES:
            raise UnsupportedError(f"the address has {argument.size} bytes", where=place)
        if text == "null":
            return bytes(_POINTER_BYTES)
        return filling(text, place)
    kind, colon, value = text.partition(":")
    element = Element.of(kind, place) if colon else Element(f"i{8 * argument.size}")
    if not colon and argument.size not in (1, 2, 4, 8):
        raise InputError(f"a value of {argument.size} bytes cannot be written as a number", where=place)
    data = element.constant(value if colon else text, place)
    if len(data) != argument.size:
        raise InputError(f"{text} has {len(data)} bytes for {argument.size}", where=place)
    return data


def _listed(arguments: Sequence[Argument]) -> str:
    return f"it has {'; '.join(map(str, arguments))}" if arguments else "it has none"


def _entries(kernel: KernelMetadata) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", kernel.raw.get(".args", []))


# Buffers filled the same way on every machine and in every run, and the notation of values.
#
# A buffer is written as IREE's tools write it: ``4096x64xf16``, optionally with a value for all elements
# (``4096x64xf16=0``) or a file with its bytes (``4096x64xf16=@FILE``). Without either it is filled: floats lie between
# -1 and 1, integers between 0 and 15, which is no harm where they are indices.


_PERIOD = 65521
"""Elements after which the filling repeats: a prime, so that rows of no usual length are alike."""
_SEED = 20_250_401
_SHAPED = re.compile(r"(?P<shape>(?:\d+x)*)(?P<element>[a-z]\w*?)(?:=(?P<value>.*))?", re.IGNORECASE)
MOST_BYTES = 1 << 36
"""Of one buffer: 64 GiB."""


def _small(bits: int) -> bytes:
    """An 8-bit float between -1 and 1: the highest bit of the exponent is 0; never 0x80, which is NaN in fnuz types."""
    byte = bits & 0xBF
    return bytes([0 if byte == 0x80 else byte])


def _signed(source: random.Random) -> float:
    """Between -1 and 1. Of Python's generator ``random`` alone is promised to stay the same in later versions."""
    return 2 * source.random() - 1


def _float(layout: str) -> Callable[[random.Random], bytes]:
    return lambda source: struct.pack(layout, _signed(source))


def _integer(size: int, most: int = 15) -> Callable[[random.Random], bytes]:
    return lambda source: int(source.random() * (most + 1)).to_bytes(size, "little")


def _bfloat(source: random.Random) -> bytes:
    return struct.pack("<f", _signed(source))[2:]


def _float8(source: random.Random) -> bytes:
    return _small(int(source.random() * 256))


_RANDOM: dict[str, Callable[[random.Random], bytes]] = {
    "f64": _float("<d"), "f32": _float("<f"), "f16": _float("<e"), "bf16": _bfloat,
    "i1": _integer(1, 1), "i8": _integer(1), "i16": _integer(2), "i32": _integer(4), "i64": _integer(8),
}  # fmt: skip
_LAYOUTS = {"f64": "<d", "f32": "<f", "f16": "<e"}


@dataclass(frozen=True)
class Element:
    """A type of elements: its name in MLIR, such as ``f16``, ``bf16``, ``i32`` or ``f8E4M3FNUZ``."""

    name: str

    @classmethod
    def of(cls, name: str, where: str = "") -> Element:
        """
        Raises:
            InputError: elements of that type cannot be made.
        """
        known = _unsigned(name) in _RANDOM or re.fullmatch(r"f8e[45]m[23](fn|fnuz)?", name.lower())
        if not known:
            types = ", ".join(_RANDOM)
            raise InputError(f"{name} is no type of elements", where=where, hint=f"{types}, f8E4M3FN, f8E5M2 …")
        return cls(name)

    @property
    def size(self) -> int:
        """Bytes of one; ``i1`` has a byte."""
        return len(self._random(random.Random(0)))

    @property
    def is_integer(self) -> bool:
        return _unsigned(self.name).startswith("i")

    def filled(self, count: int) -> bytes:
        """That many, always the same for a type."""
        source = random.Random(f"{_SEED} {_unsigned(self.name).lower()}")
        block = b"".join(self._random(source) for _ in range(min(count, _PERIOD)))
        return (block * (count // _PERIOD + 1))[: count * self.size]

    def constant(self, text: str, where: str = "") -> bytes:
        """One element of the value that ``text`` writes.

        Raises:
            InputError: it is none of this type.
        """
        name = _unsigned(self.name)
        try:
            if self.is_integer:
                size = self.size
                return (int(text, 0) % (1 << 8 * size)).to_bytes(size, "little")
            if name == "bf16":
                return struct.pack("<f", float(text))[2:]
            if name in _LAYOUTS:
                return struct.pack(_LAYOUTS[name], float(text))
            if float(text) == 0:
                return b"\0"
        except (ValueError, OverflowError, struct.error):
            pass
        raise InputError(f"{text!r} is no value of type {self.name}", where=where)

    def _random(self, source: random.Random) -> bytes:
        return _RANDOM.get(_unsigned(self.name), _float8)(source)


def _unsigned(name: str) -> str:
    """``si32`` and ``ui32`` are filled as ``i32``."""
    return re.sub(r"^[su](?=i\d)", "", name)


@dataclass(frozen=True)
class Filling:
    """The contents of a buffer.

    Attributes:
        shape: as it is written, ``"4096x64xf16"``.
        data: its bytes.
        words: what it is filled with.
    """

    shape: str
    data: bytes
    words: str


def filling(text: str, where: str = "") -> Filling:
    """A buffer in the notation of the module.

    Raises:
        InputError: it is none; a file has another size, or cannot be read.
    """
    match = _SHAPED.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no buffer", where=where, hint="write its shape and type: 4096x64xf16")
    element = Element.of(match["element"], where)
    count = prod(int(size) for size in match["shape"].split("x") if size)
    if count * element.size > MOST_BYTES:
        raise InputError(f"{text} has more than {MOST_BYTES >> 30} GiB", where=where)
    shape, value = f"{match['shape']}{match['element']}", match["value"]
    if value is None:
        return Filling(shape, element.filled(count), shape)
    if not value.startswith("@"):
        return Filling(shape, element.constant(value, where) * count, f"{shape}={value}")
    try:
        data = Path(value[1:]).read_bytes()
    except OSError as error:
        raise InputError(f"{value[1:]} cannot be read: {error.strerror}", where=where) from error
    if len(data) != count * element.size:
        raise InputError(f"{value[1:]} has {len(data)} bytes, {shape} has {count * element.size}", where=where)
    return Filling(shape, data, f"{shape} from a file")
