"""The data of the target that the checkers read: against LLVM, against the tables and lists they were made from."""

from __future__ import annotations

import importlib.util
import random
import re
from functools import lru_cache
from types import ModuleType

import pytest
from support import REPOSITORY, long
from target_oracles import register_tables

from smt_verifier.audit.core import opcodes as opcode_facts
from smt_verifier.audit.core import rules, semantics
from smt_verifier.audit.core.opcodes import facts
from smt_verifier.checker.tables import OperandRow, RegisterClass, Tables, tables
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target import instructions, registers
from verilocc_mlir.target.callingconv import REGMASKS, regmask
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.instructions import InstructionDescription, instruction, opcodes
from verilocc_mlir.target.registers import lane_list, physical_register, subregister_lanes
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import TARGETS

TEXT = (REPOSITORY / "smt_verifier" / "checker" / "data" / "target.txt").read_text(encoding="ascii")
GENERATOR = REPOSITORY / "scripts" / "generate_checker_tables.py"
SCALES = (6, 7)
"""Operands of V_MFMA_SCALE that the audit's own list takes for matrices; they are VGPRs."""
LEFT_OUT = re.compile(
    r"V_DUAL_|(?:EXTRACT_SUBREG|INSERT_SUBREG|REG_SEQUENCE|SUBREG_TO_REG|WWM_COPY)\Z|S_CBRANCH_(?:[GI]_FORK|JOIN)\Z"
    r"|S_RFE_|S_CMOVK?_|V_SWAPREL_|(?:GLOBAL|SCRATCH)_LOAD_BLOCK|SI_BLOCK_SPILL_\w+_RESTORE|SI_CS_CHAIN_TC_"
    r"|SI_TCRETURN_(?:CHAIN|GFX_WholeWave)|SI_WHOLE_WAVE_FUNC_|V_(?:FMA|MAD)_MIX_F32_(?:BF16_)?dpp|V_PK_FMAC_F16_"
    r"|V_CVT_PKACCUM_U8_F32_|V_INTERP_P2_F32_e64|BUFFER_LOAD_FORMAT_D16_HI_X_|S_SCRATCH_LOAD_"
    r"|SCRATCH_LOAD_\w+_D16_(?:HI_)?VE_gfx940$|V_CVT_SCALEF32_SR_PK_FP4_\w+"
    r"|FPTRUNC_ROUND_|S_ROUND_MODE|V_INTERP_(?:P1LL|P1LV|P2)_F16(?:_opsel)?\Z|S_CLAUSE"
    r"|V_MFMA_\w+_(?:vi|acd|vcd)\Z|V_WMMA_SCALE\w+_gfx1250\Z|V_(?:MFMA|WMMA)_LD_SCALE"
)
"""Paired behind allocation, with banks that no table has; made into copies by others; with effects that no table has;
machine opcodes of matrices, or loads of their scales; what has LLVM round otherwise behind it; what keeps a part of its
result and ties nothing to it; or for functions that read what threads hold that never entered the one before."""
OPCODES = [name for name in opcodes() if not LEFT_OUT.match(name)]
IN_PARTS = ("V_MOV_B64_PSEUDO", "V_MOV_B64_DPP_PSEUDO")
"""LLVM expands them into two moves, and so writes the result before all is read."""


@lru_cache(maxsize=1)
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(GENERATOR.stem, GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(name: str, processor: str = "gfx900") -> InstructionDescription:
    table = instruction(name, processor)
    assert table is not None
    return table


def _value(name: str, key: str) -> str:
    opcode = tables().opcode(name)
    assert opcode is not None
    return opcode.value(key)


def test_words_hint_at_what_reaches_other_threads() -> None:
    """In inline assembly: instructions of the processor, not LLVM's pseudo-instructions for whole waves and quads."""
    pseudo = re.compile(r"SI_|V_SET_INACTIVE|S_WQM|\w*(?:WWM|WQM)")
    of_others = ("reads", "writes", "unclear")
    texts = [o.lower() for o in OPCODES if _value(o, "reach") in of_others and not pseudo.match(o)]
    assert len(texts) > 3000
    words = tables().assembly
    assert [t for t in texts if not any(w in (t.replace(u, "") if u else t) for w, u in words)] == []


def test_what_no_table_says_is_not_known() -> None:
    left_out = [name for name in opcodes() if LEFT_OUT.match(name)]
    assert len([name for name in left_out if not name.startswith("V_DUAL_")]) == 394
    assert not set(tables().opcodes) & set(left_out)


@pytest.mark.long
def test_the_file_is_what_the_generator_writes() -> None:
    register_tables()  # skips where there is no LLVM to read
    assert generator().text() == TEXT
    assert len(TEXT) < 4_000_000


MODES = {cpu: instructions._tables().modes[cpu] for cpu in TARGETS}
"""What register classes depend on, and no more of a processor."""


def test_processors_of_one_mode_in_llvm_are_of_one_mode() -> None:
    pairs = {(mode, processor.mode) for cpu, mode in MODES.items() if (processor := tables().processor(cpu))}
    assert {mode for mode, _ in pairs} == {*MODES.values()}
    assert len(pairs) == len({own for _, own in pairs}) == len({*MODES.values()})


@pytest.mark.parametrize("every", [4, *long(1)])
@pytest.mark.parametrize("cpu", {mode: cpu for cpu, mode in reversed(MODES.items())}.values())
def test_operands_of_every_opcode_are_llvms(cpu: str, every: int) -> None:
    """The numbers of operands, their classes on each processor, ties, early clobbers and implicit registers."""
    processor = tables().processor(cpu)
    assert processor is not None
    for name in OPCODES[::every]:
        table, opcode = described(name, cpu), tables().opcode(name)
        assert opcode is not None
        rows = [
            OperandRow(row.kind, row.tied_to, row.early_clobber or (n == 0 and name in IN_PARTS), (row.register_class,))
            for n, row in enumerate(table.operands)
        ]
        own = [
            OperandRow(row.kind, row.tied_to, row.early_clobber, (row.classes[processor.mode],))
            for row in opcode.operands
        ]
        assert own == rows, name
        assert (opcode.definitions, opcode.counts, opcode.not_described) == (
            table.definitions,
            table.counts,
            table.not_described,
        ), name
        assert opcode.implicit_uses == table.implicit_uses, name
        assert opcode.implicit_definitions == table.implicit_definitions, name
    assert len(tables().opcodes) == len(OPCODES) > 37_000
    assert tables().opcode("V_ADD_F32") is None


@pytest.mark.parametrize("every", [4, *long(1)])
def test_llvms_properties_are_traits(every: int) -> None:
    kept = generator().LLVM_PROPERTIES
    for name in OPCODES[::every]:
        opcode, table = tables().opcode(name), described(name)
        assert opcode is not None
        assert opcode.traits & kept == table.properties & kept, name
        for flag, trait in (("VALU", "valu"), ("SALU", "salu"), ("DPP", "dpp"), ("TiedSourceNotRead", "tied-not-read")):
            assert (trait in opcode.traits) is (flag in table.format), (name, trait)
        assert ("may-raise" in opcode.traits) is facts(name).may_raise, name


@pytest.mark.parametrize("every", [4, *long(1)])
def test_traits_of_every_opcode_are_the_reviewed_lists(every: int) -> None:
    for name in OPCODES[::every]:
        opcode = tables().opcode(name)
        assert opcode is not None
        traits, known = opcode.traits, facts(name)
        reach = known.reach
        assert opcode.value("reach") == ("" if reach is None else reach.name.lower()), name
        assert ("pure" in traits) is known.is_pure, name
        assert ("pure-exec" in traits) is known.asks_exec, name
        assert ("indirect" in traits) is bool(opcode_facts.HIDDEN_INPUT.match(name)), name
        assert ("scalar-load" in traits) is known.loads_scalars, name
        assert ("returns" in traits) is known.returns, name
        assert ("packed-f32" in traits or "mixed" in traits) is (known.is_packed or known.is_mixed), name
        assert ("wide-mad" in traits) is known.is_wide_mad, name
        assert ("lane-operand=1" in traits) is known.takes_lane, name
        assert ("no-code" in traits) is (name in opcode_facts.NO_CODE), name
        assert ("debug" in traits) is (name in opcode_facts.DEBUG), name
        assert ("asm" in traits) is (name in opcode_facts.INLINE_ASSEMBLY), name
        assert ("copy" in traits) is (name == "COPY"), name
        lane_moves = (opcode_facts.LANE_SAVE, opcode_facts.LANE_RESTORE)
        assert ("lane-save" in traits, "lane-restore" in traits) == tuple(name == m for m in lane_moves), name
        assert (opcode.value("canon") or name) == known.canonical, name
        assert opcode.numbers("blend") == tuple(opcode_facts.BLENDS.get(name, ())), name
        assert (opcode.value("file") != "") is semantics.reads_matrices(name), name
        spill = known.spill
        found = opcode.value("spill").split(",") if "spill" in opcode.values else None
        assert found == (None if spill is None else [spill[0], str(spill[1]), "save" if spill[2] else "restore"]), name


@pytest.mark.parametrize("every", [4, *long(1)])
def test_masks_of_every_opcode_are_the_reviewed_lists(every: int) -> None:
    for name in OPCODES[::every]:
        opcode, form = tables().opcode(name), facts(name).mask
        assert opcode is not None
        traits = opcode.traits
        assert (opcode.value("mask"), opcode.value("save")) == (form.binary, form.save), name
        assert ("mask-move" in traits) is form.moves, name
        assert ("compare" in traits) is form.compares, name
        assert ("first-bit" in traits) is form.finds_first_bit, name
        assert ("compare-equal" in traits) is form.compares_equal, name
        assert ("cmpx" in traits) is name.startswith("V_CMPX_"), name
        assert ("bracket-open" in traits) is (name in ("S_OR_SAVEEXEC_B32", "S_OR_SAVEEXEC_B64")), name
        assert ("enter-wwm" in traits) is (name == "ENTER_STRICT_WWM"), name


@pytest.mark.parametrize("every", [4, *long(1)])
def test_operands_of_either_file(every: int) -> None:
    """Those of an ``av_`` class, C and D of MFMA, and what is tied to them; scales of an MFMA are not among them."""
    for name in OPCODES[::every]:
        opcode = tables().opcode(name)
        assert opcode is not None
        either = set(opcode.numbers("either"))
        today = set(semantics.either_file_operands(name))
        wrong = SCALES if "MFMA_SCALE" in name else ()
        assert either == today - set(wrong), name
    scaled = tables().opcode("V_MFMA_SCALE_F32_16X16X128_F8F6F4_f4_f4_vgprcd_e64")
    assert scaled is not None
    assert scaled.operands[6].classes[0] == "vgpr_32"
    assert scaled.numbers("either") == (0, 1, 2, 3)
    assert scaled.value("file") == "v"


def test_nothing_with_a_hidden_input_is_pure() -> None:
    for name in OPCODES:
        opcode = tables().opcode(name)
        assert opcode is not None
        if "indirect" in opcode.traits:
            assert opcode.traits.isdisjoint({"pure", "pure-exec"}), name
    assert "indexed-on" in traits_of("S_SET_GPR_IDX_ON")
    assert "vskip" in traits_of("S_SETVSKIP")
    assert {"sets-mode", "setreg"} <= traits_of("S_SETREG_B32_mode")
    low = {name for name in OPCODES if "low-vgprs" in traits_of(name)}
    assert {"EXP_DONE", "S_SETREG_IMM32_B32_mode", "V_MOV_B32_indirect_read"} <= low
    assert low.isdisjoint({"S_SETREG_IMM32_B32", "S_SETREG_B32_mode", "V_MOVRELS_B32_e32", "V_INTERP_P10_F32_inreg"})


def test_what_leaves_a_half_of_its_register_alone_is_not_pure() -> None:
    """The upper half is what the register held before, and another one where the instruction stands again
    (GCNSubtarget::zeroesHigh16BitsOfDest).
    """
    for name in (
        "V_ADD_F16_fake16_e64", "V_ADD_F16_fake16_e32", "V_ADD_F16_fake16_e64_dpp", "V_CVT_F16_F32_fake16_e64",
        "V_MAD_F16_gfx9_e64", "V_FMA_F16_gfx9_e64", "V_MED3_U16_e64", "V_SAT_PK_U8_I16_e64", "V_BITOP3_B16_e64",
        "V_CVT_PK_FP8_F16_e64",
    ):  # fmt: skip
        assert "pure" not in traits_of(name), name
    for name in (
        "V_ADD_F16_e64", "V_CVT_F16_F32_e32", "V_LSHLREV_B16_e64", "V_ADD_F16_t16_e64", "V_FMAC_F16_e64",
        "V_CVT_F32_F16_fake16_e32", "V_MAD_I32_I16_fake16_e64", "V_PACK_B32_F16_fake16_e64", "V_PK_ADD_F16",
        "V_CVT_PKRTZ_F16_F32_e64", "V_SAD_U16_e64", "V_CVT_SCALEF32_PK_F16_FP4_e64", "V_CMP_EQ_F16_fake16_e64",
    ):  # fmt: skip
        assert "pure" in traits_of(name), name


def traits_of(name: str) -> frozenset[str]:
    opcode = tables().opcode(name)
    assert opcode is not None
    return opcode.traits


def test_registers_are_llvms() -> None:
    """All registers of LLVM and no others, and two of them share a unit where they do in LLVM."""
    llvm = register_tables().units
    own = tables()
    for name in llvm:
        register, known = own.register(name), physical_register(name)
        assert register is not None, name
        assert (register.units, register.first) == (known.units, known.first), name
        assert (register.file == "x") is (known.bank is registers.Bank.SPECIAL), name
    rng = random.Random(1)
    names = sorted(llvm)
    for _ in range(20_000):
        a, b = rng.choice(names), rng.choice(names)
        one, other = own.register(a), own.register(b)
        assert one is not None
        assert other is not None
        if one.units and other.units:
            assert set(one.units).isdisjoint(other.units) is set(llvm[a]).isdisjoint(llvm[b]), (a, b)


@pytest.mark.parametrize(
    "name",
    [
        "", "vgpr", "vgpr04", "vgpr1024", "vgpr1023_vgpr1024",
        "agpr256", "sgpr106", "ttmp16", "sgpr1_sgpr2", "vgpr4_vgpr6",
        "sgpr4_sgpr5_sgpr6_sgpr7_sgpr8_sgpr9_sgpr10_sgpr11_sgpr12_sgpr13_sgpr14_sgpr15_sgpr16", "vgpr4_vgpr4",
        "vgpr5_vgpr4", "vgpr4_agpr5", "vgpr4_lo16_hi16", "vgpr4_vgpr5_lo16", "vgpr4_", "_vgpr4", "vgpr-1", "vgpr٣",
        "VGPR4", "vcc_mid", "vgpr²", "vgpr" + "9" * 5000, "x0", "sgpr2_sgpr3_sgpr4",
    ],
)  # fmt: skip
def test_names_of_no_register(name: str) -> None:
    assert tables().register(name) is None


@pytest.mark.parametrize("every", [16, *long(1)])
def test_classes_are_llvms(every: int) -> None:
    """Width, members and nothing but the members of every class."""
    llvm = register_tables().classes
    own = tables()
    assert set(own.classes) == set(llvm)
    everything = [r for name in register_tables().units if (r := own.register(name)) is not None]
    for cls in list(map(own.register_class, sorted(llvm)))[::every]:
        assert cls is not None
        assert cls.bits == llvm[cls.name].bits
        members = {r.name for r in everything if cls.contains(r)}
        assert members == set(llvm[cls.name].members), cls.name


@pytest.mark.parametrize("every", [8, *long(1)])
def test_classes_are_those_of_today(every: int) -> None:
    for name in sorted(tables().classes)[::every]:
        cls, known = tables().register_class(name), register_class(name)
        assert cls is not None
        assert cls.bits == known.bits
        if known.banks != {registers.Bank.SPECIAL}:
            assert cls.is_vector is known.is_vector, name


@pytest.mark.parametrize("every", [8, *long(1)])
def test_either_file_is_that_of_today(every: int) -> None:
    for name in sorted(tables().classes)[::every]:
        cls = class_of(name)
        try:
            known = rules.in_either_file(register_class(name))
        except UnsupportedError:
            assert tables().either_file(cls) == cls
            continue
        assert tables().either_file(cls).name in (known.name, name)
        assert known.name in (tables().either_file(cls).name, "av_16"), name


def class_of(name: str) -> RegisterClass:
    cls = tables().register_class(name)
    assert cls is not None
    return cls


INDICES = ("", "lo16", "hi16", "sub0", "sub1", "sub0_sub1", "sub1_sub2", "sub2_sub3", "sub0_lo16", "sub1_hi16",
           "sub3_hi16", "sub0_hi16_sub1_lo16", "sub4_sub5_sub6_sub7", "sub15", "sub31")  # fmt: skip


TRIED = (
    "vgpr_32 vreg_64 vreg_64_align2 vreg_96 av_128_align2 areg_64 sreg_32 sreg_64 sreg_64_xexec sgpr_64 sgpr_96 "
    "sgpr_128 sgpr_512 ttmp_64 vgpr_16 vs_16 vs_64 sreg_32_xm0_xexec vgpr_32_lo128 scc_class ccr_sgpr_64"
)


def test_parts_of_members_are_those_of_today() -> None:
    names = TRIED.split()
    rng = random.Random(2)
    own = tables()
    all_names = sorted(n for n in register_tables().units if n.count("gpr") < 5)
    inside = 0
    for name in names:
        known, cls = register_class(name), class_of(name)
        for text in rng.sample(all_names, 1500):
            register = own.register(text)
            assert register is not None
            for index in INDICES:
                lanes = own.lanes(index) if index else ()
                assert lanes is not None
                found = own.contains_part(cls, register, lanes)
                inside += found
                if lanes and (len(lanes) != len(register.units) or 16 * (lanes[-1] + 1) > cls.bits):
                    assert not found, (name, text, index)
                elif known.bits >= 32 or not index:
                    today = rules.is_part_of_member(physical_register(text), known, index)
                    # Halves of M0 and its like, and the whole as a part, are taken for none today.
                    more = found and register.file == "x" and (len(lanes) == 1 or 16 * len(lanes) == cls.bits)
                    assert found is today or more, (name, text, index)
    assert inside > 100


def test_subregister_indices() -> None:
    for index in INDICES[1:]:
        assert tables().lanes(index) == lane_list(subregister_lanes(index))
    for index in ("", "sub", "sub32", "sub01", "sub1_sub0", "sub1_sub1", "sub1_", "lo16_hi16", "sub1_lo16_hi16", "hi",
                  "sub1_sub1_lo16", "SUB1"):  # fmt: skip
        assert tables().lanes(index) is None, index


def test_masks() -> None:
    for name in REGMASKS:
        assert tables().mask(name) == regmask(name)
    text = "CustomRegMask($vgpr40,$sgpr30_lo16,$vgpr50_vgpr51,$vcc_lo)"
    assert tables().mask(text) == regmask(text)
    for unknown in ("csr_other", "CustomRegMask", "CustomRegMask()", "CustomRegMask(vgpr40)", "CustomRegMask($v)", ""):
        assert tables().mask(unknown) is None


def test_marks_of_registers_are_those_of_today() -> None:
    from verilocc_mlir.mir.parser import parse_mir

    file = parse_mir(next((REPOSITORY / "tests" / "data" / "mutants").glob("*gfx942.mir")).read_text())
    known = allocatable(file.functions[0], file.preamble, TARGETS["gfx942"])
    for name in register_tables().units:
        register = tables().register(name)
        assert register is not None
        if "reserved" in register.marks:
            assert known.reserved_units.issuperset(register.units), name
        if "kept" in register.marks:
            assert known.kept_units.issuperset(register.units), name
        assert ("alias" in register.marks) is (re.sub("_(lo|hi)16$", "", name) in semantics.ALIASES)
        assert ("input" in register.marks) is bool(semantics._PURE_INPUT.match(name)), name
        assert ("result" in register.marks) is bool(semantics._PURE_RESULT.match(name)), name


def test_words_of_assembly_are_those_of_today() -> None:
    rng = random.Random(3)
    words = [w for row in tables().assembly for w in row if w] + ["v_add_f32", "$0", " ", ", ", "s_nop", "V_PERM"]
    for _ in range(5000):
        text = "".join(rng.choice(words) for _ in range(rng.randrange(5)))
        lower = text.lower()
        own = any(
            word == lower[k : k + len(word)] and not (unless and lower.startswith(unless, k))
            for word, unless in tables().assembly
            for k in range(len(lower))
        )
        assert own is bool(opcode_facts._ASSEMBLY.search(f'INLINEASM &"{text}", 1')), text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[masks]\n", ""),
        ("[masks]\n", "[masks]\n[masks]\n"),
        ("[masks]\n", "[masques]\n"),
        ("[masks]\n", "[masks]\n\n"),
        ("\tvgpr\t0\t", "\tvgpr\t-1\t"),
        ("\tvgpr\t0\t", "\tvgpr\t00\t"),
        ("\tvgpr\t0\t", "\tvgpr\t\t"),
        ("a0..255+1", "a0..255+0"),
        ("a0..255+1", "a255..0+1"),
        ("a0..255+1", "b0..255+1"),
        ("a0..255+1", "a0..255"),
        ("a0..255+1.lo", "a0..255+1.mid"),
        ("\ngfx90a\t1\t", "\ngfx90a\t2\t"),
        ("\nvcc_hi\t", "\nvcc_lo\t"),
        ("=src_private_base", "=src_private"),
        ("immediate\t-1\t0\t", "immediate\t-1\t2\t"),
        ("immediate\t-1\t0\t", "immediate\t-2\t0\t"),
        ("immediate\t-1\t0\t", "immediate\t-1\t0\ta/b"),
        ("immediate\t-1\t0\t", "literal\t-1\t0\t"),
        ("\nCOPY\t", "\nCOPY\t9"),
        ("\nCOPY\t", "\nCOPY\tx"),
        ("\nCOPY\t", "\nKILL\t"),
        ("meta pseudo", "meta  pseudo"),
        ("meta pseudo", "meta meta"),
        ("\tscc\t", "\tscc2\t"),
    ],
)
def test_other_forms_are_refused(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises((ValueError, AssertionError)):
        Tables(TEXT.replace(old, new, 1)).check()


def test_every_row_of_the_file_is_read_and_no_other_name_is_an_opcode() -> None:
    whole = Tables(TEXT)
    whole.check()
    names = whole.opcodes
    for name in (names[0], names[-1]):
        assert whole.opcode(name) is not None
    for name in ("", "#", "# name shape", "COPY\t0", "COPY\n", names[0][:-1], f"{names[-1]}_", "~"):
        assert whole.opcode(name) is None


def test_a_cut_file_is_refused() -> None:
    rng = random.Random(4)
    for end in [rng.randrange(len(TEXT)) for _ in range(3)]:
        if TEXT[end - 1] != "\n" or end < TEXT.index("[opcodes]"):
            with pytest.raises(ValueError, match=r"."):
                Tables(TEXT[:end]).check()


@pytest.mark.parametrize("count", [10, *long(300)])
def test_a_damaged_file_is_read_or_refused(count: int) -> None:
    """A character more, less or another one, in each section: never anything but a ValueError."""
    rng = random.Random(count)
    lines = TEXT.split("\n")
    heads = [number for number, line in enumerate(lines) if line.startswith("[")]
    refused = 0
    for _ in range(count):
        section = rng.randrange(len(heads))
        number = rng.randrange(heads[section], (*heads, len(lines) - 1)[section + 1])
        line = lines[number]
        at, other = rng.randrange(len(line) + 1), rng.choice("\t 0129-=.+abvs/[]#,:x\n²")
        lines[number] = line[:at] + rng.choice((other + line[at:], line[at + 1 :], other + line[at + 1 :]))
        try:
            Tables("\n".join(lines)).check()
        except ValueError:
            refused += 1
        lines[number] = line
    assert refused
