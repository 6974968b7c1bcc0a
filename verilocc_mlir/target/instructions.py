"""What LLVM knows about an opcode of AMDGPU machine IR: operands, ties, implicit registers, properties.

The facts are LLVM's own (llvm/MC/MCInstrDesc.h), in ``instructions.dat`` beside this file, which
scripts/generate_instruction_tables.py writes and describes. They are those of LLVM 22 and of LLVM 24 together: what
either forbids is forbidden, what both allow is allowed. An opcode that neither has, or that only the
encoder uses, is None: whoever asks must then answer that it does not know. docs/design/target.md says what the
tables leave out.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from verilocc_mlir.errors import UnsupportedError


class OperandDescription(Struct, frozen=True):
    """One explicit operand, in LLVM's numbering: definitions first.

    Attributes:
        kind: ``"register"``, ``"register-or-immediate"`` (immediates here may be globals and frame indices too),
            ``"immediate"``, ``"branch-target"``, ``"generic"`` (``G_`` opcodes), ``"any"`` (COPY, a callee).
        register_class: class the register must be of, as MIR spells it; ``""`` where none is prescribed.
        tied_to: number of the definition whose register it must be, or -1.
        early_clobber: this definition is written before all sources are read.
    """

    kind: str
    register_class: str
    tied_to: int
    early_clobber: bool


class InstructionDescription(Struct, frozen=True):
    """One opcode.

    Attributes:
        definitions: how many of the operands are definitions.
        operands: the explicit operands; a ``variadic`` opcode may have more behind them.
        implicit_uses: registers read, without ``$``; ``vcc`` stands for ``vcc_lo`` on wave32 targets.
        implicit_definitions: registers written, likewise.
        properties: MCInstrDesc's flags: ``"may-load"``, ``"may-store"``, ``"side-effects"`` (unmodelled ones),
            ``"convergent"``, ``"rematerialisable"``, ``"variadic"``, ``"call"``, ``"return"``, ``"terminator"``,
            ``"branch"``, ``"indirect-branch"``, ``"barrier"``, ``"commutable"``, ``"pseudo"``, ``"meta"`` …
        format: AMDGPU's flags by LLVM's names (SIDefines.h, SIInstrFlags): ``"SALU"``, ``"VOP3"``, ``"DPP"`` …
        counts: how many explicit operands an instruction may have. Where LLVM 24 has more than LLVM 22, the further
            ones stand behind, and ``operands`` has them.
        not_described: how many it has in LLVM 24, where that form differs otherwise. Nothing is known of it here.
    """

    name: str
    definitions: int
    operands: tuple[OperandDescription, ...]
    implicit_uses: tuple[str, ...]
    implicit_definitions: tuple[str, ...]
    properties: frozenset[str]
    format: frozenset[str]
    counts: tuple[int, ...]
    not_described: tuple[int, ...]


class _Tables(Struct, frozen=True):
    versions: tuple[str, ...]
    modes: dict[str, int]
    operands: list[str]
    words: list[str]
    shapes: list[str]
    names: list[str]
    numbers: list[str]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    data = zlib.decompress(Path(__file__).with_name("instructions.dat").read_bytes())
    head, operands, words, shapes, names, numbers = data.decode("ascii").split("\n\n")
    versions, processors = (line.split(" ")[1:] for line in head.split("\n"))
    modes = {name: int(mode) for name, _, mode in (processor.partition(":") for processor in processors)}
    lists = (text.split("\n") for text in (operands, words, shapes, names, numbers))
    return _Tables(tuple(versions), modes, *lists)


def _shape(opcode: str, tables: _Tables) -> str | None:
    """The shape of an opcode; None for one that LLVM does not have."""
    # Names are in alphabetical order; a row of them begins with the first.
    row = bisect_right(tables.names, opcode, key=lambda row: row.partition(" ")[0]) - 1
    names = tables.names[row].split(" ")
    return tables.shapes[int(tables.numbers[row].split(" ")[names.index(opcode)])] if opcode in names else None


def llvm_versions() -> tuple[str, ...]:
    """Versions of the LLVMs that the tables are of, e.g. ``("22.1.8", "24.0.0git")``."""
    return _tables().versions


def opcodes() -> Collection[str]:
    """All opcodes that LLVM has for AMDGPU, in its order."""
    return [opcode for row in _tables().names for opcode in row.split(" ")]


def _operand(number: str, mode: int) -> OperandDescription:
    kind, tied_to, early_clobber, classes = _tables().operands[int(number)].split("\t")
    of_mode = classes.split("/")
    return OperandDescription(kind, of_mode[mode if len(of_mode) > 1 else 0], int(tied_to), early_clobber == "1")


@lru_cache(maxsize=None)
def instruction(opcode: str, processor: str = "gfx900") -> InstructionDescription | None:
    """What LLVM knows about an opcode; None for one it does not have.

    Only register classes depend on the processor (aligned tuples, accumulators, lane masks of 32 or 64 bits): give one
    to ask about them. That LLVM has an opcode does not say that the processor has the instruction.

    Raises:
        UnsupportedError: LLVM has no such processor.
    """
    tables = _tables()
    if processor not in tables.modes:
        raise UnsupportedError(f"LLVM {tables.versions[0]} has no processor {processor}")
    shape = _shape(opcode, tables)
    if shape is None:
        return None
    definitions, operands, *sets, counts, other = shape.split("\t")
    uses, defines, properties, form = (tables.words[int(number)].split() for number in sets)
    return InstructionDescription(
        opcode,
        int(definitions),
        tuple(_operand(number, tables.modes[processor]) for number in operands.split()),
        tuple(uses),
        tuple(defines),
        frozenset(properties),
        frozenset(form),
        *(tuple(map(int, numbers.split())) for numbers in (counts, other)),
    )
