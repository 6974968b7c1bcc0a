"""What instruction_tables.cpp prints, of the LLVM 24 inside Triton's wheel: read from its library's symbols.

There are no headers of that LLVM to build against. TableGen writes the tables as constant arrays; their layouts are
those of llvm/MC/MCInstrDesc.h and llvm/MC/MCRegisterInfo.h of that time. `check` stops where a layout is another one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from elftools.elf.elffile import ELFFile

_VERSION = re.compile(rb"LLVM version (\d+\.\d+\.\d+\w*)")
_SYMBOL = re.compile(r"_ZN4llvm\d+(AMDGPU[A-Za-z]+)E")
_DESCRIPTION = struct.Struct("<IHBBHBBHHQQ")
"""MCInstrDesc: opcode, operands, definitions, size, scheduling class, implicit uses and definitions, where its operands
and its implicit registers stand behind the descriptions, flags, target's flags."""
_OPERAND = struct.Struct("<hBBH")
"""MCOperandInfo: register class, flags, type, constraints."""
_REGISTER_SIZE, _CLASS_SIZE, _CLASS_NAME = 24, 64, 8
_MODES = 5
_BY_MODE, _PREDICATE_OR_OPTIONAL = 0b1, 0b110


def library() -> Path:
    """Triton's library of AMDGPU's code generator.

    Raises:
        SystemExit: there is no Triton.
    """
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise SystemExit("the tables of LLVM 24 come from Triton's wheel: pip install triton==3.9.0")
    return Path(spec.origin).parent / "backends" / "amd" / "lib" / "libtriton_amd_codegen.so"


def _arrays(path: Path) -> tuple[str, Mapping[str, bytes]]:
    """LLVM's version, and the constant arrays of namespace llvm whose name begins with AMDGPU."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        rodata, symbols = elf.get_section_by_name(".rodata"), elf.get_section_by_name(".symtab")
        data, start = rodata.data(), rodata["sh_addr"]
        named = {match[1]: s for s in symbols.iter_symbols() if (match := _SYMBOL.fullmatch(s.name))}
        arrays = {
            name: data[symbol["st_value"] - start :][: symbol["st_size"]]
            for name, symbol in named.items()
            if symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_value"] >= start
        }
    version = _VERSION.search(data)
    if version is None:
        raise SystemExit(f"{path} names no version of LLVM")
    return version[1].decode(), arrays


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("ascii")


class _Tables:
    def __init__(self, arrays: Mapping[str, bytes]) -> None:
        self._arrays = arrays
        self._names = arrays["AMDGPUInstrNameIndices"]
        self.count = len(self._names) // 4
        modes = memoryview(arrays["AMDGPURegClassByHwModeTables"]).cast("h")
        self._modes = [modes[mode * len(modes) // _MODES :][: len(modes) // _MODES] for mode in range(_MODES)]

    def name(self, opcode: int) -> str:
        return _string(self._arrays["AMDGPUInstrNameData"], struct.unpack_from("<I", self._names, 4 * opcode)[0])

    def description(self, opcode: int) -> tuple[int, ...]:
        # The descriptions stand in falling order of opcodes.
        return _DESCRIPTION.unpack_from(self._arrays["AMDGPUDescs"], _DESCRIPTION.size * (self.count - 1 - opcode))

    def _behind(self, offset: int, form: str) -> tuple[int, ...]:
        return struct.unpack_from(form, self._arrays["AMDGPUDescs"], _DESCRIPTION.size * self.count + offset)

    def registers(self, at: int, count: int) -> list[str]:
        return [self._register(number) for number in self._behind(2 * at, f"<{count}H")]

    def _register(self, number: int) -> str:
        (at,) = struct.unpack_from("<I", self._arrays["AMDGPURegDesc"], _REGISTER_SIZE * number)
        return _string(self._arrays["AMDGPURegStrings"], at).lower()

    def _class(self, number: int) -> str:
        # A mode without this class, accumulators where there are none: no register fits.
        if number < 0:
            return "-"
        storage = self._arrays["AMDGPUMCRegisterClassStorage"]
        (at,) = struct.unpack_from("<I", storage, _CLASS_SIZE * number + _CLASS_NAME)
        return _string(self._arrays["AMDGPURegClassStrings"], at).lower()

    def operand(self, at: int) -> str:
        number, flags, kind, constraints = self._behind(_OPERAND.size * at, _OPERAND.format)
        if flags & _PREDICATE_OR_OPTIONAL:
            raise SystemExit("optional definitions and predicates are not expected")
        tied = constraints >> 4 & 0xF if constraints & 1 else -1
        if number < 0:
            classes = "-"
        elif flags & _BY_MODE:
            classes = "/".join(self._class(mode[number]) for mode in self._modes)
        else:
            classes = self._class(number)
        return f"{kind}:{tied}:{constraints >> 1 & 1}:{classes}"


def check(names_of: Mapping[int, str], opcodes: Mapping[int, int]) -> None:
    """Stop if a description is not of the opcode at whose place it stands, or a name is no name."""
    if any(number != opcode for number, opcode in opcodes.items()):
        raise SystemExit("MCInstrDesc has another layout here")
    if not all(re.fullmatch(r"\w+", name) for name in names_of.values()):
        raise SystemExit("the names of the opcodes are laid out otherwise here")


def printed(flag_names: list[str]) -> str:
    """The text of instruction_tables.cpp, without processors. ``flag_names``: MCID::Flag in order, by its words."""
    version, arrays = _arrays(library())
    tables = _Tables(arrays)
    check(
        {number: tables.name(number) for number in range(tables.count)},
        {number: tables.description(number)[0] for number in range(tables.count)},
    )
    return "\n".join((f"llvm\t{version}", *_opcodes(tables, flag_names)))


def _opcodes(tables: _Tables, flag_names: list[str]) -> Iterator[str]:
    for number in range(tables.count):
        _, operands, definitions, _, _, uses, defines, first, implicit, flags, target = tables.description(number)
        registers = tables.registers(implicit, uses + defines)
        yield "\t".join(
            (
                "opcode", tables.name(number), str(definitions),
                " ".join(flag_names[bit] for bit in range(flags.bit_length()) if flags >> bit & 1),
                f"{target:X}", " ".join(registers[:uses]), " ".join(registers[uses:]),
                " ".join(tables.operand(first + operand) for operand in range(operands)),
            )
        )  # fmt: skip
