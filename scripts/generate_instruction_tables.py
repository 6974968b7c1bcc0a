"""Write what LLVM knows about AMDGPU's instructions as data: verilocc_mlir/target/instructions.dat.

    python scripts/generate_instruction_tables.py [FILE]

Builds instruction_tables.cpp, beside this file, against the LLVM of ``llvm-config-22`` (or of ``$LLVM_CONFIG``) with
g++ (or ``$CXX``), runs it, adds the tables of the LLVM 24 inside Triton's wheel (instruction_tables_of_triton.py,
beside this file), gives the target's flags their names, leaves out opcodes of the encoder, shares equal rows and
compresses. Needs the headers of the first LLVM (Debian and Ubuntu: llvm-22-dev). Equal tables give equal bytes with
the same zlib.
``verilocc_mlir/target/instructions.py`` reads the file.

A text does not say which LLVM has printed it, so there is one row for an opcode (`merged`): what the first LLVM says,
with the restrictions of both and the permissions that both give.

Left out are the opcodes that stand for one encoding of another: not pseudo, and named as a pseudo opcode with a suffix
of an encoding family behind it (``V_ADD_F32_e32_gfx11``, ``V_ADD_F32_e32_vi``; SIInstrInfo.td, getMCOpcodeGen).
AMDGPUMCInstLower puts them in for the pseudo ones when it leaves machine IR. Whatever does not fit this rule is kept:
images and dual-issue instructions are chosen by encoding in machine IR. An opcode left out wrongly is an unknown opcode
to the reader, never one with wrong facts.

The text inside: paragraphs separated by an empty line, fields by tabs.
1. ``llvm VERSION VERSION``; ``processors NAME:MODE …``: the hardware mode that chooses register classes.
2. operands, one a line: kind, tied operand or -1, 1 for early clobber, register classes: one, or one for each mode.
3. sets of words, one a line: registers, properties, flags of the format.
4. shapes, one a line: definitions, numbers of operands (2.), and of the sets (3.) of implicit uses, implicit
   definitions, properties, format; how many operands a text may have; how many it has in the form not described here.
5. names of the opcodes, sorted; 6. the number of each one's shape (4.): both with ``OF_A_ROW`` to a line.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from instruction_tables_of_triton import printed

HERE = Path(__file__).resolve().parent
TABLES = HERE.parent / "verilocc_mlir" / "target" / "instructions.dat"
OF_A_ROW = 256

# Bits of MCInstrDesc::TSFlags: llvm/lib/Target/AMDGPU/SIDefines.h, namespace SIInstrFlags (LLVM 22), a private header.
# Bits 11, 27 and 31 have no name there.
FORMAT_BITS = {
    0: "SALU", 1: "VALU", 2: "SOP1", 3: "SOP2", 4: "SOPC", 5: "SOPK", 6: "SOPP", 7: "VOP1", 8: "VOP2", 9: "VOPC",
    10: "VOP3", 12: "VOP3P", 13: "VINTRP", 14: "SDWA", 15: "DPP", 16: "TRANS", 17: "MUBUF", 18: "MTBUF", 19: "SMRD",
    20: "MIMG", 21: "VIMAGE", 22: "VSAMPLE", 23: "EXP", 24: "FLAT", 25: "DS", 26: "Spill", 28: "LDSDIR",
    29: "VINTERP", 30: "VOPD3", 32: "VM_CNT", 33: "EXP_CNT", 34: "LGKM_CNT", 35: "WQM", 36: "DisableWQM",
    37: "Gather4", 38: "TENSOR_CNT", 39: "SCALAR_STORE", 40: "FIXED_SIZE", 41: "ASYNC_CNT", 42: "VOP3_OPSEL",
    43: "maybeAtomic", 44: "renamedInGFX9", 45: "FPClamp", 46: "IntClamp", 47: "ClampLo", 48: "ClampHi",
    49: "IsPacked", 50: "D16Buf", 51: "FlatGlobal", 52: "FPDPRounding", 53: "FPAtomic", 54: "IsMAI", 55: "IsDOT",
    56: "FlatScratch", 57: "IsAtomicNoRet", 58: "IsAtomicRet", 59: "IsWMMA", 60: "TiedSourceNotRead",
    61: "IsNeverUniform", 62: "GWS", 63: "IsSWMMAC",
}  # fmt: skip

# Every bit is tried on an opcode that has the flag and on one that has not, both beyond doubt from the ISA manuals or
# from what the flag means; a number that moved in another LLVM shows here. Bit 44 is on no opcode of LLVM 22.
CERTAIN = {
    "SALU": ("S_ADD_U32", "V_ADD_F32_e32"), "VALU": ("V_ADD_F32_e32", "S_ADD_U32"),
    "SOP1": ("S_MOV_B32", "S_ADD_U32"), "SOP2": ("S_ADD_U32", "S_MOV_B32"), "SOPC": ("S_CMP_EQ_U32", "S_MOV_B32"),
    "SOPK": ("S_MOVK_I32", "S_MOV_B32"), "SOPP": ("S_BRANCH", "S_MOV_B32"), "VOP1": ("V_MOV_B32_e32", "V_ADD_F32_e32"),
    "VOP2": ("V_ADD_F32_e32", "V_MOV_B32_e32"), "VOPC": ("V_CMP_EQ_U32_e32", "V_ADD_F32_e32"),
    "VOP3": ("V_FMA_F32_e64", "V_ADD_F32_e32"), "VOP3P": ("V_PK_ADD_F16", "V_FMA_F32_e64"),
    "VINTRP": ("V_INTERP_P1_F32", "V_ADD_F32_e32"), "SDWA": ("V_ADD_F32_sdwa", "V_ADD_F32_e32"),
    "DPP": ("V_MOV_B32_dpp", "V_MOV_B32_e32"), "TRANS": ("V_EXP_F32_e32", "V_ADD_F32_e32"),
    "MUBUF": ("BUFFER_LOAD_DWORD_OFFEN", "TBUFFER_LOAD_FORMAT_X_OFFEN"),
    "MTBUF": ("TBUFFER_LOAD_FORMAT_X_OFFEN", "BUFFER_LOAD_DWORD_OFFEN"), "SMRD": ("S_LOAD_DWORD_IMM", "S_MOV_B32"),
    "MIMG": ("IMAGE_LOAD_V4_V2", "GLOBAL_LOAD_DWORD"), "VIMAGE": ("IMAGE_LOAD_V4_V2_gfx12", "IMAGE_LOAD_V4_V2"),
    "VSAMPLE": ("IMAGE_SAMPLE_V4_V2_gfx12", "IMAGE_LOAD_V4_V2_gfx12"), "EXP": ("EXP", "DS_READ_B32"),
    "FLAT": ("GLOBAL_LOAD_DWORD", "DS_READ_B32"), "DS": ("DS_READ_B32", "GLOBAL_LOAD_DWORD"),
    "Spill": ("SI_SPILL_V32_SAVE", "V_MOV_B32_e32"), "LDSDIR": ("LDS_DIRECT_LOAD", "DS_READ_B32"),
    "VINTERP": ("V_INTERP_P10_F32_inreg", "V_INTERP_P1_F32"),
    "VOPD3": ("V_DUAL_ADD_F32_e32_X_ADD_F32_e32_e96_gfx1250", "V_DUAL_ADD_F32_e32_X_ADD_F32_e32_gfx12"),
    "VM_CNT": ("GLOBAL_LOAD_DWORD", "DS_READ_B32"), "EXP_CNT": ("EXP", "DS_READ_B32"),
    "LGKM_CNT": ("DS_READ_B32", "GLOBAL_LOAD_DWORD"), "WQM": ("IMAGE_SAMPLE_V4_V2", "IMAGE_LOAD_V4_V2"),
    "DisableWQM": ("BUFFER_LOAD_DWORD_OFFEN_exact", "BUFFER_LOAD_DWORD_OFFEN"),
    "Gather4": ("IMAGE_GATHER4_V4_V2", "IMAGE_SAMPLE_V4_V2"),
    "TENSOR_CNT": ("TENSOR_LOAD_TO_LDS", "GLOBAL_LOAD_DWORD"),
    "SCALAR_STORE": ("S_STORE_DWORD_IMM", "S_LOAD_DWORD_IMM"), "FIXED_SIZE": ("DS_READ_B32", "V_ADD_F32_e32"),
    "ASYNC_CNT": ("GLOBAL_LOAD_ASYNC_TO_LDS_B128", "GLOBAL_LOAD_DWORD"),
    "VOP3_OPSEL": ("V_ADD_F16_t16_e64", "V_ADD_F32_e64"), "maybeAtomic": ("GLOBAL_ATOMIC_ADD", "S_LOAD_DWORD_IMM"),
    "FPClamp": ("V_ADD_F32_e64", "V_ADD_U32_e64"), "IntClamp": ("V_ADD_U32_e64", "V_ADD_F32_e64"),
    "ClampLo": ("V_FMA_MIXLO_F16", "V_FMA_MIXHI_F16"), "ClampHi": ("V_FMA_MIXHI_F16", "V_FMA_MIXLO_F16"),
    "IsPacked": ("V_PK_FMA_F32", "V_FMA_F32_e64"),
    "D16Buf": ("BUFFER_LOAD_FORMAT_D16_XYZW_OFFEN", "BUFFER_LOAD_DWORD_OFFEN"),
    "FlatGlobal": ("GLOBAL_LOAD_DWORD", "SCRATCH_LOAD_DWORD"), "FPDPRounding": ("V_ADD_F64_e64", "V_ADD_F32_e64"),
    "FPAtomic": ("GLOBAL_ATOMIC_ADD_F32", "GLOBAL_ATOMIC_ADD"), "IsMAI": ("V_MFMA_F32_32X32X8F16_e64", "V_PK_ADD_F16"),
    "IsDOT": ("V_DOT2_F32_F16", "V_PK_ADD_F16"), "FlatScratch": ("SCRATCH_LOAD_DWORD", "GLOBAL_LOAD_DWORD"),
    "IsAtomicNoRet": ("GLOBAL_ATOMIC_ADD", "GLOBAL_ATOMIC_ADD_RTN"),
    "IsAtomicRet": ("GLOBAL_ATOMIC_ADD_RTN", "GLOBAL_ATOMIC_ADD"),
    "IsWMMA": ("V_WMMA_F32_16X16X16_F16_w32_twoaddr", "V_SWMMAC_F32_16X16X32_F16_w32_twoaddr"),
    "TiedSourceNotRead": ("DS_READ_U8_D16", "V_FMA_MIXHI_F16"),
    "IsNeverUniform": ("V_MBCNT_LO_U32_B32_e64", "V_ADD_F32_e64"), "GWS": ("DS_GWS_INIT", "DS_READ_B32"),
    "IsSWMMAC": ("V_SWMMAC_F32_16X16X32_F16_w32_twoaddr", "V_WMMA_F32_16X16X16_F16_w32_twoaddr"),
}  # fmt: skip

RENAMED = {"TENSOR_LOAD_TO_LDS": "TENSOR_LOAD_TO_LDS_d4"}
"""Opcodes of CERTAIN by their names in LLVM 24."""

FLAG_NAMES = re.findall(r'\{MCID::\w+, "([^"]+)"\}', (HERE / "instruction_tables.cpp").read_text())
"""MCInstrDesc's flags in the order of MCID::Flag, as instruction_tables.cpp lists them."""

_ENCODING = re.compile(r"(_(si|ci|vi|gfx[0-9]+[a-z]?))+\Z")

# MCOI::OperandType of llvm/MC/MCInstrDesc.h; numbers from FIRST_TARGET up are the target's own.
_ANY, _IMMEDIATE, _REGISTER, _MEMORY, _BRANCH_TARGET, _FIRST_GENERIC, _GENERIC_IMMEDIATE, _FIRST_TARGET = (
    0, 1, 2, 3, 4, 6, 12, 13,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What LLVM says of one opcode, in the words of the file."""

    definitions: str
    operands: tuple[str, ...]
    uses: str
    defines: str
    properties: str
    format: str
    counts: tuple[int, ...]
    not_described: tuple[int, ...] = ()


@dataclass(slots=True)
class Shared:
    """Values with a number each, by first appearance."""

    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, value: str) -> str:
        """The number of a value, a new one if it is new."""
        return str(self.numbers.setdefault(value, len(self.numbers)))


def llvm_text() -> str:
    """What instruction_tables.cpp prints, built against the LLVM at hand."""
    config = os.environ.get("LLVM_CONFIG", "llvm-config-22")
    flags = [
        shlex.split(subprocess.run([config, *what], capture_output=True, text=True, check=True).stdout)
        for what in (["--cxxflags"], ["--ldflags", "--libs"])
    ]
    with tempfile.TemporaryDirectory() as scratch:
        program = str(Path(scratch) / "instruction_tables")
        source = str(HERE / "instruction_tables.cpp")
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, "-std=c++17", "-fno-rtti", *flags[0], source, "-o", program, *flags[1]], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def _kind(number: int, has_class: bool, is_definition: bool) -> str:
    if is_definition and has_class:
        return "register"
    if _FIRST_GENERIC <= number < _GENERIC_IMMEDIATE:
        return "generic"
    if number >= _GENERIC_IMMEDIATE:
        return "register-or-immediate" if has_class else "immediate"
    kinds = {_ANY: "any", _IMMEDIATE: "immediate", _REGISTER: "register", _BRANCH_TARGET: "branch-target"}
    if number not in kinds or has_class != (number == _REGISTER):
        raise SystemExit(f"an operand of type {number} {'with' if has_class else 'without'} a register class")
    return kinds[number]


def _operand(text: str, is_definition: bool) -> str:
    number, tied, early, classes = text.split(":")
    kind = _kind(int(number), classes != "-", is_definition)
    return f"{kind}\t{tied}\t{early}\t{classes if classes != '-' else ''}"


def _format(name: str, flags: int) -> str:
    unnamed = [bit for bit in range(64) if flags >> bit & 1 and bit not in FORMAT_BITS]
    if unnamed:
        raise SystemExit(f"{name} has target flags that FORMAT_BITS has no name for: {unnamed}")
    return " ".join(word for bit, word in FORMAT_BITS.items() if flags >> bit & 1)


def rows_of(text: str) -> dict[str, Row]:
    """The opcodes of the C++ program's output."""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        record, *fields = line.split("\t")
        if record == "opcode":
            name, definitions, properties, flags, uses, defines, operands = fields
            described = tuple(_operand(o, number < int(definitions)) for number, o in enumerate(operands.split()))
            form = _format(name, int(flags, 16))
            rows[name] = Row(definitions, described, uses, defines, properties, form, (len(described),))
    return rows


PERMISSIONS = frozenset(
    {"rematerialisable", "commutable", "as-cheap-as-move", "move-immediate", "convertible-to-three-address"}
)
"""Properties that allow something. All others forbid, or only describe."""


def merged(first: dict[str, Row], second: dict[str, Row]) -> dict[str, Row]:
    """One row for each opcode that either LLVM has: of both where both have it."""
    both = {name: _of_both(row, second[name]) for name, row in first.items() if name in second}
    return second | first | both


def _of_both(first: Row, second: Row) -> Row:
    """What the first says, with early clobbers and properties of both. A text may have either number of operands where
    one form is the other with operands behind it; where the forms differ otherwise the second is not described."""
    words, others = (frozenset(row.properties.split()) for row in (first, second))
    kept = (words | others) - (PERMISSIONS - (words & others))
    ordered = [word for word in (*first.properties.split(), *second.properties.split()) if word in kept]
    properties = " ".join(dict.fromkeys(ordered))
    shorter, longer = sorted((first.operands, second.operands), key=len)
    alike = all(map(_same_place, first.operands, second.operands)) and first.definitions == second.definitions
    if not alike and len(shorter) != len(longer):
        return replace(first, properties=properties, not_described=(len(second.operands),))
    operands = (*map(_early_in_either, first.operands, second.operands), *longer[len(shorter) :])
    return replace(first, operands=operands, properties=properties, counts=tuple(sorted({len(shorter), len(longer)})))


def _same_place(first: str, second: str) -> bool:
    kind, tied, _, classes = first.split("\t")
    of_second, *rest = second.split("\t")
    return (tied, classes) == (rest[0], rest[2]) and (kind == of_second or (kind, of_second) == ("any", "immediate"))


def _early_in_either(first: str, second: str) -> str:
    kind, tied, early, classes = first.split("\t")
    return "\t".join((kind, tied, str(int(early == "1" or second.split("\t")[2] == "1")), classes))


def check_formats(rows: dict[str, Row]) -> None:
    """Stop if a bit of FORMAT_BITS is not what its name says."""
    for word, (with_it, without) in CERTAIN.items():
        with_it = with_it if with_it in rows else RENAMED[with_it]
        if word not in rows[with_it].format.split() or word in rows[without].format.split():
            raise SystemExit(f"{word}: the bit is another one here, see SIDefines.h of this LLVM")
    untried = [word for word in FORMAT_BITS.values() if word not in CERTAIN and word != "renamedInGFX9"]
    if untried:
        raise SystemExit(f"no opcode is known that has and one that lacks: {untried}")


def check_classes(first: dict[str, Row], second: dict[str, Row]) -> None:
    """Stop if the second LLVM numbers its hardware modes otherwise: register classes are taken in their order."""
    both = [(first[name].operands, second[name].operands) for name in first.keys() & second.keys()]
    by_mode = [_same_place(*pair) for rows in both for pair in zip(*rows, strict=False) if all("/" in o for o in pair)]
    if sum(by_mode) < 0.99 * len(by_mode):
        raise SystemExit(f"of {len(by_mode)} operands with a register class for each mode {sum(by_mode)} are alike")


def of_machine_ir(rows: dict[str, Row]) -> dict[str, Row]:
    """The rows without those of the encoder alone (the module's docstring says which), sorted by name."""
    pseudo = {name for name, row in rows.items() if "pseudo" in row.properties.split()}
    return {
        name: row
        for name, row in sorted(rows.items())
        if name in pseudo or not _ENCODING.search(name) or _ENCODING.sub("", name) not in pseudo
    }


def in_rows(words: list[str]) -> list[str]:
    """Many to a line: whoever looks for one takes one line apart."""
    return [" ".join(words[at : at + OF_A_ROW]) for at in range(0, len(words), OF_A_ROW)]


def table_text(text: str, rows: dict[str, Row]) -> str:
    """The file's text."""
    operands, words, shapes = Shared(), Shared(), Shared()
    numbers = [
        shapes.number(
            "\t".join(
                (
                    row.definitions,
                    " ".join(map(operands.number, row.operands)),
                    *map(words.number, (row.uses, row.defines, row.properties, row.format)),
                    *(" ".join(map(str, counts)) for counts in (row.counts, row.not_described)),
                )
            )
        )
        for row in rows.values()
    ]
    lines = [line.split("\t") for line in text.splitlines()]
    versions = " ".join(fields[1] for fields in lines if fields[0] == "llvm")
    processors = " ".join(f"{fields[1]}:{fields[2]}" for fields in lines if fields[0] == "processor")
    paragraphs = (
        f"llvm {versions}\nprocessors {processors}",
        # A set may be empty; a line may not, lest it end the paragraph.
        "\n".join(operands.numbers), "\n".join(word or " " for word in words.numbers), "\n".join(shapes.numbers),
        "\n".join(in_rows(list(rows))), "\n".join(in_rows(numbers)),
    )  # fmt: skip
    return "\n\n".join(paragraphs)


def main() -> None:
    """Write the file."""
    into = Path(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    texts = (llvm_text(), printed(FLAG_NAMES))
    every = [rows_of(text) for text in texts]
    for rows in every:
        check_formats(rows)
    check_classes(*every)
    rows = dict(sorted(merged(*map(of_machine_ir, every)).items()))
    text = "\n".join(texts)
    data = zlib.compress(table_text(text, rows).encode("ascii"), 9)
    into.write_bytes(data)
    print(f"{into}: {len(rows)} opcodes of {len(every[0])} and {len(every[1])}, {len(data)} bytes")


if __name__ == "__main__":
    main()
