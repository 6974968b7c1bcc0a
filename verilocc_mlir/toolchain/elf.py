"""AMDGPU ELF files: machine, notes, symbols, and where a symbol's bytes are in the file.

Sources: the System V ABI, chapters 4 and 5, for 64-bit little-endian files; LLVM's AMDGPUUsage, "ELF Code Object". The
tests compare with pyelftools, which knows every format and takes 60 ms of CPU to load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from verilocc_mlir.errors import ToolchainError
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


class ElfSymbol(Struct, frozen=True):
    """A symbol; ``offset`` is where its bytes are in the file, -1 where undefined or without bytes."""

    name: str
    offset: int
    address: int
    size: int
    kind: str
    defined: bool


class ElfImage(Struct, frozen=True):
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
