"""The arguments of a kernel, laid out as its metadata says.

Source: AMDGPUUsage, "Kernel Argument Metadata": each argument has an offset and a size in the kernarg segment and a
``.value_kind``. ``hidden_*`` arguments are the runtime's own business: it sets them where it is given the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.measure.fill import Element, Filling, filling
from verilocc_mlir.toolchain.metadata import KernelMetadata

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
        given: ``WHICH=WHAT``; WHICH is a number or a name, WHAT a buffer (``measure.fill``), ``null``, or a value:
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
