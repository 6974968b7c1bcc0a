"""What is read from AMDGPU ELF files: machine, notes, symbols, and where a symbol's bytes are in the file.

Source: LLVM's AMDGPUUsage, "ELF Code Object", and llvm/BinaryFormat/ELF.h for the layouts and the machine numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from verilocc_mlir.errors import ToolchainError

EM_AMDGPU = 224
NT_AMDGPU_METADATA = 32
_MACHINE_MASK = 0xFF
_MAGIC = b"\x7fELF\x02\x01"
"""ELF of 64 bits, least significant byte first."""
_ET_DYN = 3
_SHT_SYMTAB, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 2, 7, 8, 11
_SHN_UNDEF = 0
_SECTION, _FILE = "STT_SECTION", "STT_FILE"
_KINDS = {0: "STT_NOTYPE", 1: "STT_OBJECT", 2: "STT_FUNC", 3: _SECTION, 4: _FILE, 5: "STT_COMMON", 6: "STT_TLS"}
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SYMBOL = struct.Struct("<IBxHQQ")

MACHINES: dict[int, str] = {
    0x2C: "gfx900",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x33: "gfx1010",
    0x36: "gfx1030",
    0x3F: "gfx90a",
    0x41: "gfx1100",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x51: "gfx9-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5F: "gfx9-4-generic",
}
"""EF_AMDGPU_MACH values of the processors this project knows, and their neighbours."""


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
        """Names of undefined symbols, sorted."""
        return tuple(sorted(name for name, symbol in self.symbols.items() if not symbol.defined))


def read_elf(data: bytes) -> ElfImage:
    """Parse an AMDGPU ELF file.

    Raises:
        ToolchainError: no ELF file, or one for another machine.
    """
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise ToolchainError(f"not a readable ELF file: {error}") from error


class _Section(NamedTuple):
    """Elf64_Shdr."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    def bytes_in(self, data: bytes) -> bytes:
        """What is in it."""
        return _part(data, self.offset, self.size)


_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")


class _Symbol(NamedTuple):
    """Elf64_Sym, without ``st_other``."""

    name: int
    info: int
    section: int
    value: int
    size: int


def _read(data: bytes) -> ElfImage:
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as one of 64 bits")
    kind, machine, _, _, _, table, flags, _, _, _, entry_size, count, _ = _HEADER.unpack_from(data)
    if machine != EM_AMDGPU:
        raise ToolchainError(f"the ELF file is for machine {machine}, not for AMDGPU")
    if count and entry_size != _SECTION_HEADER.size:
        raise ValueError("its section headers have another size")
    headers = _part(data, table, count * _SECTION_HEADER.size)
    sections = [_Section._make(fields) for fields in _SECTION_HEADER.iter_unpack(headers)]
    notes: list[tuple[str, int, bytes]] = []
    symbols: dict[str, ElfSymbol] = {}
    for section in sections:
        if section.kind == _SHT_NOTE:
            notes += _notes(section.bytes_in(data))
        elif section.kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            found = _symbols(data, section, sections, shared=kind == _ET_DYN)
            symbols.update((symbol.name, symbol) for symbol in found)
    number = flags & _MACHINE_MASK
    return ElfImage(data, flags, MACHINES.get(number, f"0x{number:02x}"), kind == _ET_DYN, symbols, tuple(notes))


def _part(data: bytes, start: int, size: int) -> bytes:
    """A part of the file.

    Raises:
        ValueError: the file ends before it does.
    """
    if start + size > len(data):
        raise ValueError("it ends in the middle of a section")
    return data[start : start + size]


def _symbols(data: bytes, table: _Section, sections: list[_Section], *, shared: bool) -> list[ElfSymbol]:
    """The named symbols of a table, but for sections and files."""
    names = sections[table.link].bytes_in(data)
    symbols: list[ElfSymbol] = []
    for entry in map(_Symbol._make, _SYMBOL.iter_unpack(table.bytes_in(data))):
        kind = _KINDS.get(entry.info & 0xF, f"STT_{entry.info & 0xF}")
        name = names[entry.name : names.index(b"\0", entry.name)].decode()
        if not name or kind in (_SECTION, _FILE):
            continue
        defined, offset = entry.section != _SHN_UNDEF, -1
        # Numbers above the sections' are special: absolute, common.
        if defined and entry.section < len(sections) and sections[entry.section].kind != _SHT_NOBITS:
            home = sections[entry.section]
            offset = home.offset + entry.value - (home.address if shared else 0)
        symbols.append(ElfSymbol(name, offset, entry.value, entry.size, kind, defined))
    return symbols


def _notes(data: bytes) -> list[tuple[str, int, bytes]]:
    found: list[tuple[str, int, bytes]] = []
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, position)
        position += 12
        name = data[position : position + name_size].rstrip(b"\0").decode("ascii", "replace")
        position += -(-name_size // 4) * 4
        found.append((name, kind, data[position : position + size]))
        position += -(-size // 4) * 4
    return found
