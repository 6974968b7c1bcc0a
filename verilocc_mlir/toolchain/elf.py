"""AMDGPU ELF files: machine, notes, symbols, and where a symbol's bytes are in the file.

Source: LLVM's AMDGPUUsage, "ELF Code Object".
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.target.processors import PROCESSORS

EM_AMDGPU = 224
NT_AMDGPU_METADATA = 32
_MACHINE_MASK = 0xFF

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


def read_elf(data: bytes) -> ElfImage:
    """Parse an AMDGPU ELF file.

    Raises:
        ToolchainError: no ELF file, or one for another machine.
    """
    try:
        return _read(data)
    except (ELFError, struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise ToolchainError(f"not a readable ELF file: {error}") from error


def _read(data: bytes) -> ElfImage:
    elf = ELFFile(io.BytesIO(data))
    if elf.header["e_machine"] not in (EM_AMDGPU, "EM_AMDGPU"):
        raise ToolchainError(f"the ELF file is for {elf.header['e_machine']}, not for AMDGPU")
    shared = elf.header["e_type"] == "ET_DYN"
    sections = list(elf.iter_sections())
    notes: list[tuple[str, int, bytes]] = []
    symbols: dict[str, ElfSymbol] = {}
    for section in sections:
        if section["sh_type"] == "SHT_NOTE":
            notes += _notes(section.data())
        if not isinstance(section, SymbolTableSection):
            continue
        for symbol in section.iter_symbols():
            kind = str(symbol["st_info"]["type"])
            name = str(symbol.name)
            index = symbol["st_shndx"]
            if not name or kind in ("STT_SECTION", "STT_FILE"):
                continue
            offset = -1
            if isinstance(index, int) and index < len(sections) and sections[index]["sh_type"] != "SHT_NOBITS":
                home = sections[index]
                offset = home["sh_offset"] + symbol["st_value"] - (home["sh_addr"] if shared else 0)
            symbols[name] = ElfSymbol(name, offset, symbol["st_value"], symbol["st_size"], kind, index != "SHN_UNDEF")
    flags = int(elf.header["e_flags"])
    number = flags & _MACHINE_MASK
    return ElfImage(data, flags, _NAMES.get(number, f"0x{number:02x}"), shared, symbols, tuple(notes))


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
