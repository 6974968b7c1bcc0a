"""Which opcodes look at threads that are not active: what each entry of the reviewed list matches in the tables."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from support import TEST_DATA

from smt_verifier.audit.core.opcodes import REVIEWED, Reach, facts, reach
from smt_verifier.audit.core.semantics import exec_unclear
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.target.instructions import instruction, opcodes

PINNED = TEST_DATA / "audit" / "inactive_opcodes.txt"
PINNED_EXEC = TEST_DATA / "audit" / "exec_opcodes.txt"
_OF_ONE_GPU = re.compile(r"_(?:gfx\w+|vi|si|ci)\Z")


def families() -> str:
    """Machine IR's opcodes that each entry is the first to match, numbers in names blanked."""
    matched: dict[str, set[str]] = defaultdict(set)
    for opcode in opcodes():
        entry = next((e for e in REVIEWED if re.match(e.opcodes, opcode)), None)
        if entry is not None and not _OF_ONE_GPU.search(opcode):
            matched[entry.opcodes].add(re.sub(r"\d+", "#", opcode))
    rows = [
        f"{e.opcodes}: {e.reach.value}\n" + "".join(f"  {n}\n" for n in sorted(matched[e.opcodes])) for e in REVIEWED
    ]
    return "".join(rows)


def test_each_entry_matches_the_opcodes_that_were_reviewed() -> None:
    assert families() == PINNED.read_text()


def test_the_opcodes_whose_result_depends_on_the_active_threads_were_reviewed() -> None:
    asking = {re.sub(r"\d+", "#", o) for o in opcodes() if facts(o).asks_exec and not _OF_ONE_GPU.search(o)}
    assert "".join(f"{name}\n" for name in sorted(asking)) == PINNED_EXEC.read_text()


def test_a_convergent_vector_instruction_that_is_not_reviewed_reads_inactive_threads() -> None:
    """Today barriers in LDS of gfx1250: every other convergent opcode has an entry, but for scalar ones and calls."""
    rest = {
        o
        for o in opcodes()
        if "convergent" in getattr(instruction(o), "properties", ())
        and not any(re.match(e.opcodes, o) for e in REVIEWED)
        and not o.startswith(("S_", "SI_", "G_"))
        and not _OF_ONE_GPU.search(o)
    }
    expected = {"CONVERGENCECTRL_ANCHOR", "CONVERGENCECTRL_ENTRY", "CONVERGENCECTRL_GLUE", "CONVERGENCECTRL_LOOP"}
    expected |= {"IGLP_OPT", "SCHED_BARRIER", "SCHED_GROUP_BARRIER", "WAVE_BARRIER"}
    barriers = {f"DS_ATOMIC_{name}" for name in ("ASYNC_BARRIER_ARRIVE_B64", "BARRIER_ARRIVE_RTN_B64")}
    assert rest == expected | barriers | {"DS_ATOMIC_BARRIER_ARRIVE_RTN_B64_agpr"}
    assert all(reach(opcode) is Reach.READS for opcode in barriers)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("DS_BPERMUTE_FI_B32", Reach.READS),
        ("DS_BPERMUTE_B32", Reach.ACTIVE),
        ("V_MOV_B32_dpp", Reach.ACTIVE),
        ("V_MOV_B32_dpp8_gfx10", Reach.READS),
        ("V_READFIRSTLANE_B32", Reach.FIRST),
        ("V_READLANE_B32", Reach.READS),
        ("V_WRITELANE_B32", Reach.WRITES),
        ("DS_READ_B64_TR_B16", Reach.UNCLEAR),
        ("V_OF_A_LATER_LLVM", Reach.UNCLEAR),
        ("V_ADD_U32_e64", None),
    ],
)
def test_what_an_opcode_does_in_threads_that_are_not_active(opcode: str, expected: Reach | None) -> None:
    assert facts(opcode).reach is expected
    assert facts(opcode).ignores_exec is (expected is Reach.WRITES)
    assert facts(opcode).reads_inactive_lanes is (expected in (Reach.READS, Reach.WRITES))


@pytest.mark.parametrize(
    ("words", "unclear"),
    [
        ("V_PERM_B32 $0, $1, $2, $3;", False),
        ("v_perm_b32_e64 $0, $1, $2, $3", False),
        ("v_permlane16_b32 $0, $1, $2, $3", True),
        ("ds_permute_b32 $0, $1, $2", True),
        ("ds_bpermute_b32 $0, $1, $2", True),
        ("s_mov_b64 exec, -1", True),
        ("v_mov_b32_e32 $0, $1", False),
    ],
)
def test_which_words_of_inline_assembly_hint_at_other_threads(words: str, unclear: bool) -> None:
    """V_PERM_B32 permutes the bytes of its own thread's operands (ISA manuals)."""
    assembly = Instruction("INLINEASM", (), (Operand(f'&"{words}"', OperandKind.OTHER),))
    assert exec_unclear(assembly) is unclear
