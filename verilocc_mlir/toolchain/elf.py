"""AMDGPU ELF files: machine, notes, symbols, where a symbol's bytes are in the file; and the bundles that hold some.

Sources: the System V ABI, chapters 4 and 5, for 64-bit little-endian files; LLVM's AMDGPUUsage, "ELF Code Object". The
tests compare with pyelftools, which knows every format and takes 60 ms of CPU to load.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.target.processors import PROCESSORS

EM_AMDGPU = 224
NT_AMDGPU_METADATA = 32
_MACHINE_MASK = 0xFF

_MAGIC = b"\x7fELF\2\1"
_ET_DYN = 3
_SHT_SYMTAB, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 2, 7, 8, 11
_SHN_UNDEF = 0
_HEADER = struct.Struct("<6s10xHH4x8x8xQI2x2x2xHH2x")
_SECTION = struct.Struct("<4xI8xQQQI4x8x8x")
_SYMBOL = struct.Struct("<IBBHQQ")
_KINDS = ("STT_NOTYPE", "STT_OBJECT", "STT_FUNC", "STT_SECTION", "STT_FILE", "STT_COMMON", "STT_TLS")
_NAMES = {processor.elf_mach: processor.name for processor in PROCESSORS.values()}


@dataclass(frozen=True)
class ElfSymbol:
    """A symbol; ``offset`` is where its bytes are in the file, -1 where undefined or without bytes."""

    name: str
    offset: int
    address: int
    size: int
    kind: str
    defined: bool


@dataclass(frozen=True)
class ElfImage:
    """An AMDGPU object file or code object.

    Attributes:
        machine: processor name of ``e_flags``, or ``"0x…"`` where it is not known.
        symbols: by name; section and file symbols left out.
        notes: (owner, type, description) of every note, in order.
    """

    data: bytes
    e_flags: int
    machine: str
    shared: bool
    symbols: dict[str, ElfSymbol]
    notes: tuple[tuple[str, int, bytes], ...]

    @property
    def undefined(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, symbol in self.symbols.items() if not symbol.defined))


class _Header(NamedTuple):
    magic: bytes
    kind: int
    machine: int
    sections: int
    flags: int
    section_size: int
    section_count: int


class _Section(NamedTuple):
    kind: int
    address: int
    offset: int
    size: int
    link: int

    def bytes_in(self, data: bytes) -> bytes:
        """Its bytes, all of which must be there."""
        if self.offset + self.size > len(data):
            raise ValueError("a section goes beyond the end")
        return data[self.offset : self.offset + self.size]


def read_elf(data: bytes) -> ElfImage:
    """Parse an AMDGPU ELF file.

    Raises:
        ToolchainError: no ELF file, or one for another machine.
    """
    try:
        return _read(data)
    except (struct.error, OverflowError, ValueError, IndexError) as error:
        raise ToolchainError(f"not a readable ELF file: {error}") from error


def _read(data: bytes) -> ElfImage:
    header = _Header(*_HEADER.unpack_from(data))
    if header.magic != _MAGIC:
        raise ValueError("the magic number is not that of a 64-bit little-endian one")
    if header.machine != EM_AMDGPU:
        raise ToolchainError(f"the ELF file is for machine {header.machine}, not for AMDGPU")
    shared = header.kind == _ET_DYN
    sections = [
        _Section(*_SECTION.unpack_from(data, header.sections + number * header.section_size))
        for number in range(header.section_count)
    ]
    notes: list[tuple[str, int, bytes]] = []
    symbols: dict[str, ElfSymbol] = {}
    for section in sections:
        if section.kind == _SHT_NOTE:
            notes += _notes(section.bytes_in(data))
        elif section.kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            names = sections[section.link].bytes_in(data)
            for symbol in _symbols(section.bytes_in(data), names, sections, shared):
                symbols[symbol.name] = symbol
    number = header.flags & _MACHINE_MASK
    return ElfImage(data, header.flags, _NAMES.get(number, f"0x{number:02x}"), shared, symbols, tuple(notes))


def _symbols(table: bytes, names: bytes, sections: Sequence[_Section], shared: bool) -> Iterator[ElfSymbol]:
    """The symbols of a table, those of sections and files left out."""
    for name_at, info, _, index, value, size in _SYMBOL.iter_unpack(table):
        number = int(info) & 0xF
        kind = _KINDS[number] if number < len(_KINDS) else str(number)
        name = names[name_at : names.index(b"\0", name_at)].decode()
        if not name or kind in ("STT_SECTION", "STT_FILE"):
            continue
        home = sections[int(index)] if _SHN_UNDEF < index < len(sections) else None
        offset = -1
        if home is not None and home.kind != _SHT_NOBITS:
            offset = home.offset + value - (home.address if shared else 0)
        yield ElfSymbol(name, offset, value, size, kind, index != _SHN_UNDEF)


def _notes(data: bytes) -> list[tuple[str, int, bytes]]:
    notes: list[tuple[str, int, bytes]] = []
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, position)
        position += 12
        name = data[position : position + name_size].rstrip(b"\0").decode("ascii", "replace")
        position += -(-name_size // 4) * 4
        notes.append((name, kind, data[position : position + size]))
        position += -(-size // 4) * 4
    return notes


# Code objects in clang's offload bundles, compressed (zlib, zstd) or not, and in HIP's fat binaries, which hold these.
#
# A bundle begins with its magic and the number of its entries; of each it has offset, size and the length of its name,
# 64 bits each, and the name, ``hipv4-amdgcn-amd-amdhsa--gfx942`` (clang/docs/ClangOffloadBundler.rst). A compressed one
# begins with ``CCOB``. In a host's ELF file bundles stand in the section ``.hip_fatbin``, one behind the other.


_BUNDLE_MAGIC, _COMPRESSED, _ELF = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x7fELF"
_BUNDLE_SECTION = ".hip_fatbin"
_AMDGPU = 224
_HEADERS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
"""Of a compressed bundle, by version: magic, version, method, from version 2 on the size of all, then the size
unpacked, and a hash (clang/lib/Driver/OffloadBundler.cpp)."""
_ZLIB, _ZSTD = 0, 1


def is_bundle(data: bytes) -> bool:
    """Whether it is a bundle, or a host's ELF file with bundles in it."""
    return data.startswith((_BUNDLE_MAGIC, _COMPRESSED)) or _fat_section(data) is not None


def unbundled(data: bytes, path: str) -> tuple[bytes, ...]:
    """The code objects for AMD GPUs in a bundle or a fat binary; the data itself where it is neither.

    Raises:
        InputError: it is cut off, is compressed in a way that is not known here, or has none for an AMD GPU.
    """
    section = _fat_section(data)
    if section is None and not data.startswith((_BUNDLE_MAGIC, _COMPRESSED)):
        return (data,)
    try:
        objects = tuple(_objects(data if section is None else section, path))
    except (struct.error, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"the bundle is damaged: {error}", where=path) from error
    if not objects:
        raise InputError("the bundle has no code object for an AMD GPU", where=path)
    return objects


def _objects(data: bytes, path: str) -> Iterator[bytes]:
    at = 0
    while (found := _next(data, at)) is not None:
        at = found
        if data.startswith(_COMPRESSED, at):
            bundle, size = _unpacked(data[at:], path)
            yield from _entries(bundle, path)
            at += size
        else:
            yield from _entries(data[at:], path)
            at += len(_BUNDLE_MAGIC)


def _next(data: bytes, start: int) -> int | None:
    places = [place for magic in (_BUNDLE_MAGIC, _COMPRESSED) if (place := data.find(magic, start)) >= 0]
    return min(places, default=None)


def _entries(bundle: bytes, path: str) -> Iterator[bytes]:
    (count,) = struct.unpack_from("<Q", bundle, len(_BUNDLE_MAGIC))
    at = len(_BUNDLE_MAGIC) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if "amdgcn" not in name or not size:
            continue
        code = bundle[offset : offset + size]
        if len(code) < size:
            raise InputError(f"the bundle is cut off in {name}", where=path)
        if code.startswith(_ELF):
            yield code


def _unpacked(data: bytes, path: str) -> tuple[bytes, int]:
    """A compressed bundle, unpacked, and the bytes that it took."""
    _, version = struct.unpack_from("<4sH", data)
    header = _HEADERS.get(version)
    if header is None:
        raise InputError(f"this compressed bundle has version {version}, which is not known here", where=path)
    fields = header.unpack_from(data)
    method, size, unpacked = fields[2], fields[3] if version > 1 else len(data), fields[-2]
    if method == _ZLIB:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data[header.size : size])
    elif method == _ZSTD:
        import zstandard  # here: what is costed is seldom a bundle

        unpacker = zstandard.ZstdDecompressor().decompressobj()
        try:
            text = unpacker.decompress(data[header.size : size])
        except zstandard.ZstdError as error:
            raise InputError(f"the bundle is damaged: {error}", where=path) from error
    else:
        raise InputError(f"this bundle is compressed by method {method}, which is not known here", where=path)
    if len(text) != unpacked:
        raise InputError(f"the bundle is damaged: {len(text)} of {unpacked} bytes came of it", where=path)
    return text, min(size, len(data)) - len(unpacker.unused_data)


def _fat_section(data: bytes) -> bytes | None:
    """The section of a host's ELF file; None where it is no ELF file, or has no such section."""
    if (
        not data.startswith(_ELF)
        or data[18:20] == _AMDGPU.to_bytes(2, "little")
        or _BUNDLE_SECTION.encode() not in data
    ):
        return None
    try:
        section = ELFFile(io.BytesIO(data)).get_section_by_name(_BUNDLE_SECTION)
    except (ELFError, ValueError):
        return None
    return None if section is None else section.data()
