"""The tables of LLVM's instructions: what is known of some, that MIR texts agree with them, and how they are made."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support import REPOSITORY, allocated_by_llvm, cpu_of, each_kernel, llc, pre_ra, run_llc

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.classes import contains, register_class
from verilocc_mlir.target.instructions import InstructionDescription, instruction, llvm_versions
from verilocc_mlir.target.registers import physical_register

GENERATOR = REPOSITORY / "scripts" / "generate_instruction_tables.py"
TEXTS = sorted(p for p in (REPOSITORY / "tests" / "data").rglob("*.mir") if p.parent.name != "copies")
"""But for texts with flags at random (scripts/generate_copies.py)."""
GREEDY = (0, 2)


def known(opcode: str, cpu: str = "gfx942") -> InstructionDescription:
    description = instruction(opcode, cpu)
    assert description is not None, f"{opcode} is unknown"
    return description


def ties(opcode: str) -> dict[int, int]:
    return {k: o.tied_to for k, o in enumerate(known(opcode).operands) if o.tied_to >= 0}


def early(opcode: str) -> list[int]:
    return [k for k, o in enumerate(known(opcode).operands) if o.early_clobber]


def test_a_mixed_precision_instruction_keeps_the_other_half_of_its_result() -> None:
    mix = known("V_FMA_MIXHI_F16")
    assert mix.definitions == 1
    assert ties("V_FMA_MIXHI_F16") == {8: 0}
    assert mix.implicit_uses == ("mode", "exec")
    assert {"VALU", "VOP3", "VOP3P", "ClampHi"} <= mix.format
    assert not mix.properties & {"side-effects", "may-load", "may-store", "rematerialisable"}


def test_opcodes_that_differ_by_a_suffix_differ_in_their_properties() -> None:
    plain, volatile = known("S_MOV_B32"), known("S_MOV_B32_sideeffects")
    assert "rematerialisable" in plain.properties
    assert "side-effects" not in plain.properties
    assert "rematerialisable" not in volatile.properties
    assert "side-effects" in volatile.properties


def test_early_clobbers_are_told() -> None:
    assert early("V_QSAD_PK_U16_U8_e64") == [0]
    assert early("V_MFMA_F32_32X32X8F16_e64") == [0]
    assert early("V_ADD_F32_e64") == []


def test_what_reads_other_lanes_is_convergent() -> None:
    permute = known("DS_BPERMUTE_FI_B32")
    assert "convergent" in permute.properties
    assert permute.implicit_uses == ("m0", "exec")
    for opcode in ("V_READFIRSTLANE_B32", "V_READLANE_B32", "V_MOV_B32_dpp", "V_MFMA_F32_32X32X8F16_e64"):
        assert "convergent" in known(opcode).properties, opcode
    # Scalar registers of a lane's number are read, so EXEC is not.
    assert known("V_WRITELANE_B32").implicit_uses == ()
    assert ties("V_WRITELANE_B32") == {3: 0}


def test_a_load_into_half_a_register_does_not_say_that_its_tied_source_is_read() -> None:
    assert ties("GLOBAL_LOAD_SHORT_D16_HI_SADDR") == {5: 0}
    assert "TiedSourceNotRead" in known("DS_READ_U8_D16").format
    assert "TiedSourceNotRead" not in known("V_FMAC_F32_e32").format


def test_two_results_may_be_tied() -> None:
    assert ties("IMAGE_BVH_DUAL_INTERSECT_RAY_gfx12") == {5: 1, 6: 2}


def test_memory_control_flow_and_calls() -> None:
    assert known("GLOBAL_LOAD_DWORD").properties >= {"may-load"}
    assert known("GLOBAL_STORE_DWORD").properties >= {"may-store"}
    assert known("GLOBAL_ATOMIC_ADD_RTN").properties >= {"may-load", "may-store"}
    assert known("S_ENDPGM").properties >= {"return", "terminator", "barrier"}
    assert known("S_CBRANCH_SCC1").properties >= {"branch", "terminator"}
    assert "barrier" not in known("S_CBRANCH_SCC1").properties
    assert known("S_CBRANCH_SCC1").implicit_uses == ("scc",)
    assert known("S_CBRANCH_SCC1").operands[0].kind == "branch-target"
    assert known("SI_CALL").properties >= {"call", "side-effects"}
    assert known("S_SETPC_B64_return").properties >= {"return"}
    assert known("S_ADD_U32").implicit_definitions == ("scc",)
    assert known("S_SETREG_B32").properties >= {"side-effects"}


@pytest.mark.parametrize("opcode", ["INLINEASM", "KILL", "BUNDLE", "PHI", "REG_SEQUENCE", "DBG_VALUE", "INLINEASM_BR"])
def test_generic_opcodes_of_any_number_of_operands(opcode: str) -> None:
    assert "variadic" in known(opcode).properties


def test_a_copy_takes_any_register() -> None:
    copy = known("COPY")
    assert [(o.kind, o.register_class) for o in copy.operands] == [("any", ""), ("any", "")]
    assert copy.implicit_uses == ()
    assert "meta" in known("IMPLICIT_DEF").properties


@pytest.mark.parametrize(
    ("cpu", "classes"),
    [
        ("gfx900", ["vreg_64", "vs_64", "vs_64"]),
        ("gfx90a", ["vreg_64_align2", "vs_64_align2", "vs_64_align2"]),
        ("gfx942", ["vreg_64_align2", "vs_64_align2", "vs_64_align2"]),
        ("gfx1100", ["vreg_64", "vs_64", "vs_64"]),
        ("gfx1250", ["vreg_64_align2", "vs_64_align2", "vs_64_align2"]),
    ],
)
def test_register_classes_are_those_of_the_processor(cpu: str, classes: list[str]) -> None:
    operands = known("V_ADD_F64_e64", cpu).operands
    assert [o.register_class for o in operands if o.register_class] == classes
    wave = "sreg_32" if cpu in ("gfx1100", "gfx1250") else "sreg_64"
    assert known("V_CMP_EQ_U32_e64", cpu).operands[0].register_class == wave


def test_without_a_processor_classes_are_those_of_gfx900() -> None:
    assert instruction("V_ADD_F64_e64") == instruction("V_ADD_F64_e64", "gfx900")


@pytest.mark.parametrize("opcode", ["", "V_ADD", "v_add_f32_e32", "COPY ", "V_ADD_F32_e32_gfx11", "V_ADD_F32_e32_vi"])
def test_unknown_opcodes_and_those_of_the_encoder_are_none(opcode: str) -> None:
    assert instruction(opcode, "gfx942") is None


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no processor gfx942x"):
        instruction("COPY", "gfx942x")


def test_the_version_is_that_of_the_llvm_at_hand() -> None:
    printed = subprocess.run([llc(), "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"LLVM version (\d+)", printed)
    assert match
    assert llvm_versions()[0].split(".")[0] == match[1]


def test_importing_reads_nothing() -> None:
    program = (
        "import verilocc_mlir.target.instructions as i\n"
        "assert i._tables.cache_info().currsize == 0\n"
        "i.instruction('COPY'); assert i._tables.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)


# --- two LLVMs in one table ---


def test_opcodes_of_llvm_24_are_known() -> None:
    mark = known("ASYNCMARK")
    assert "side-effects" in mark.properties
    assert mark.operands == ()
    assert llvm_versions()[1].startswith("24.")


def test_what_one_llvm_forbids_is_forbidden() -> None:
    # LLVM 24 knows that these write their result before they have read everything; LLVM 22 does not.
    assert early("V_CVT_SCALEF32_2XPK16_BF6_F32_e64") == [0]
    assert "side-effects" in known("GLOBAL_PREFETCH_B8").properties
    # LLVM 24 alone takes comparisons for rematerialisable, LLVM 22 alone takes this for commutable.
    assert "rematerialisable" not in known("V_CMP_EQ_F32_e64").properties
    assert "commutable" not in known("V_PK_MOV_B32").properties


def test_an_operand_that_llvm_24_has_added_may_stand_there() -> None:
    load = known("BUFFER_LOAD_DWORDX4_LDS_OFFEN")
    assert load.counts == (6, 7)
    assert len(load.operands) == 7
    assert load.not_described == ()


def test_a_form_that_llvm_24_has_changed_is_not_described() -> None:
    product = known("V_WMMA_F32_16X16X32_BF16_w32_twoaddr")
    assert (product.counts, product.not_described) == ((11,), (9,))


def test_the_layouts_of_llvm_24_are_checked() -> None:
    generator()
    module = sys.modules["instruction_tables_of_triton"]
    with pytest.raises(SystemExit, match="another layout"):
        module.check({0: "PHI", 1: "COPY"}, {0: 0, 1: 20})
    with pytest.raises(SystemExit, match="names"):
        module.check({0: "P\x01I"}, {0: 0})


# --- the tables and the texts that llc prints ---


def complaints(text: str, cpu: str) -> Iterator[str]:
    for function in parse_mir(text).functions:
        for block in function.blocks:
            for one in block.instructions:
                description = instruction(one.opcode, cpu)
                if description is None:
                    yield f"unknown opcode: {one}"
                else:
                    for fault in faults(one, description):
                        yield f"{fault}: {one}"


def faults(one: Instruction, description: InstructionDescription) -> Iterator[str]:
    # Register masks of calls stand between the explicit and the implicit operands.
    explicit = [o for o in one.all_operands if not o.implicit and o.kind is not OperandKind.REGMASK]
    if "variadic" not in description.properties:
        if len(explicit) != len(description.operands):
            yield f"has {len(explicit)} explicit operands, the table {len(description.operands)}"
        if sum(o.is_def for o in explicit) != description.definitions:
            yield f"the table has {description.definitions} definitions"
        yield from operand_faults(one, explicit, description)
    read = {o.phys for o in one.operands if o.implicit and not o.is_def}
    written = {o.phys for o in one.operands if o.implicit and o.is_def}
    for registers, printed in ((description.implicit_uses, read), (description.implicit_definitions, written)):
        if missing := [r for r in registers if not {r, f"{r}_lo"} & printed]:
            yield f"lacks the implicit operands {missing}"


def operand_faults(one: Instruction, explicit: list[Operand], description: InstructionDescription) -> Iterator[str]:
    # LLVM prints ties only where one differs from the table, and then all (MachineInstr::hasComplexRegisterTies).
    ties_are_printed = any(o.tied >= 0 for o in one.operands)
    for number, (operand, described) in enumerate(zip(explicit, description.operands, strict=False)):
        if operand.tied != (described.tied_to if ties_are_printed else -1):
            yield f"the table ties operand {number} to {described.tied_to}"
        if described.tied_to >= 0 and operand.phys and operand.phys != explicit[described.tied_to].phys:
            yield f"operand {number} is not the register it is tied to"
        if operand.early_clobber != described.early_clobber:
            yield f"the table says early clobber of operand {number}: {described.early_clobber}"
        if operand.is_reg and described.kind in ("immediate", "branch-target"):
            yield f"operand {number} is a register"
        if operand.phys not in ("", "noreg") and described.register_class:
            register = physical_register(operand.phys)
            if not contains(register_class(described.register_class), register):
                yield f"operand {number} is not in {described.register_class}"
        if not operand.is_reg and operand.phys != "noreg" and described.kind == "register":
            yield f"operand {number} is no register"


@pytest.mark.parametrize("path", each_kernel())
def test_llvm_s_texts_of_the_kernels_agree_with_the_tables(path: Path) -> None:
    pre, cpu = pre_ra(path), cpu_of(path)
    for text in (pre, *(allocated_by_llvm(pre, cpu, 0, last) for last in GREEDY)):
        assert list(complaints(text, cpu)) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_the_texts_of_the_tests_agree_with_the_tables(path: Path) -> None:
    text = path.read_text()
    match = re.search(r"gfx[0-9a-f]+", path.name) or re.search(r"gfx[0-9a-f]+", text)
    assert list(complaints(text, match[0] if match else "gfx942")) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("$vgpr0 = V_ADD_U32_e32 $vgpr0, implicit $exec", "2 explicit operands, the table 3"),
        ("V_ADD_U32_e32 $vgpr0, $vgpr0, $vgpr0, implicit $exec", "1 definitions"),
        ("$vgpr0 = V_ADD_U32_e32 $vgpr0, $vgpr0", "lacks the implicit operands ['exec']"),
        ("early-clobber $vgpr1 = V_ADD_U32_e32 $vgpr0, $vgpr0, implicit $exec", "early clobber of operand 0: False"),
        ("$vgpr0 = V_ADD_U32_e32 $vgpr0(tied-def 0), $vgpr0, implicit $exec", "ties operand 1 to -1"),
        ("$vgpr0 = V_FMAC_F32_e32 $vgpr0, $vgpr0, $vgpr1, implicit $mode, implicit $exec", "it is tied to"),
        ("$vgpr1_vgpr2 = V_MOV_B64_e32 0, implicit $exec", "not in vreg_64_align2"),
        ("$vgpr0 = V_NO_SUCH_e32 $vgpr0, implicit $exec", "unknown opcode"),
    ],
)
def test_the_comparison_notices_what_differs(line: str, fault: str) -> None:
    text = f"---\nname: f\nbody: |\n  bb.0:\n    {line}\n...\n"
    assert any(fault in complaint for complaint in complaints(text, "gfx942"))


# --- what LLVM's parser adds to a text ---

ONE = """---
name: f
tracksRegLiveness: true
body: |
  bb.0:
    liveins: $vgpr0, $vgpr1, $vgpr2, $vgpr3, $vgpr4, $vgpr5, $vgpr6, $vgpr7
    {line}
    S_ENDPGM 0
...
"""


def refusal(line: str) -> str:
    """What llc says about a text that it does not take; it verifies each function that it has parsed."""
    command = [llc(), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-x", "mir", "-run-pass=none", "-o", "-", "-"]
    done = subprocess.run(command, input=ONE.replace("{line}", line), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def test_llvm_s_parser_ties_what_the_table_ties() -> None:
    line = "$vgpr3 = V_FMAC_F32_e32 $vgpr0, $vgpr1, {use}, implicit $mode, implicit $exec"
    said_so, silent = (line.replace("{use}", use) for use in ("$vgpr3(tied-def 0)", "$vgpr3"))
    assert silent in run_llc(ONE.replace("{line}", said_so), "gfx942", "-run-pass=none")
    message = refusal(line.replace("{use}", "$vgpr2"))
    assert "Tied physical registers must match" in message
    assert "$vgpr2(tied-def 0)" in message


def test_llvm_s_parser_adds_the_table_s_early_clobbers() -> None:
    line = "$vgpr4_vgpr5 = V_QSAD_PK_U16_U8_e64 $vgpr0_vgpr1, $vgpr2, $vgpr6_vgpr7, 0, implicit $exec"
    assert f"early-clobber {line}" in run_llc(ONE.replace("{line}", line), "gfx942", "-run-pass=none")


def test_llvm_s_parser_demands_the_table_s_implicit_operands() -> None:
    assert "missing implicit register operand 'implicit $exec'" in refusal("$vgpr3 = V_MOV_B32_e32 $vgpr0")


def test_llvm_s_parser_takes_an_early_clobbered_source() -> None:
    line = "$vgpr0_vgpr1 = V_QSAD_PK_U16_U8_e64 $vgpr0_vgpr1, $vgpr2, $vgpr6_vgpr7, 0, implicit $exec"
    assert f"early-clobber {line}" in run_llc(ONE.replace("{line}", line), "gfx942", "-run-pass=none")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("$vgpr0 = V_ADD_U32_e32 $vgpr0, $vgpr1, $vgpr2, implicit $exec", "Extra explicit operand on non-variadic"),
        ("V_ADD_U32_e32 $vgpr0, $vgpr1, $vgpr2, implicit $exec", "Explicit definition marked as use"),
        ("$vgpr3 = V_ADD_U32_e32 $vgpr0(tied-def 0), $vgpr1, implicit $exec", "Explicit operand should not be tied"),
    ],
)
def test_llvm_verifies_what_its_parser_has_read(line: str, message: str) -> None:
    assert message in refusal(line)


# --- how they are made ---


def generator() -> ModuleType:
    sys.path.append(str(GENERATOR.parent))
    spec = importlib.util.spec_from_file_location("generate_instruction_tables", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    sys.path.remove(str(GENERATOR.parent))
    return module


def printed_row(name: str, properties: str, flags: str) -> str:
    return "\t".join(("opcode", name, "1", properties, flags, "exec", "", "2:-1:0:vgpr_32 13:-1:0:vs_32"))


def test_only_encodings_of_a_pseudo_opcode_are_left_out() -> None:
    names = {
        "V_A_e32": "pseudo",
        "V_A_e32_gfx11": "",
        "V_A_e32_gfx6_gfx7": "",
        "IMAGE_LOAD_V1_V1_gfx10": "",
        "S_vi": "",
    }
    rows = generator().rows_of("\n".join(printed_row(name, words, "0") for name, words in names.items()))
    assert list(generator().of_machine_ir(rows)) == ["IMAGE_LOAD_V1_V1_gfx10", "S_vi", "V_A_e32"]


def test_a_flag_without_a_name_stops_the_generator() -> None:
    with pytest.raises(SystemExit, match=r"target flags that FORMAT_BITS has no name for: \[11\]"):
        generator().rows_of(printed_row("V_A_e32", "pseudo", "802"))


@pytest.mark.long
def test_generating_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if not shutil.which("llvm-config-22") or not shutil.which("g++"):
        pytest.skip("generating needs llvm-22-dev (llvm-config-22, the headers) and g++")
    config = subprocess.run(["llvm-config-22", "--version", "--includedir"], capture_output=True, text=True, check=True)
    version, headers = config.stdout.split()
    if version != llvm_versions()[0] or not (Path(headers) / "llvm" / "MC" / "MCInstrDesc.h").exists():
        pytest.skip(f"the tables are of LLVM {llvm_versions()[0]}; at hand is {version}, or its headers are missing")
    again = tmp_path / "instructions.dat"
    subprocess.run([sys.executable, str(GENERATOR), str(again)], check=True)
    committed = REPOSITORY / "verilocc_mlir" / "target" / "instructions.dat"
    assert again.read_bytes() == committed.read_bytes()
