"""Which comparisons tell threads apart: those that may reach EXEC, whatever their registers hold before or after."""

from __future__ import annotations

import itertools

import pytest
from allocation import Pair
from audit_support import ALL_USED, COMPARE, HEAD, KEEP, PAIRS, TAIL, USE, VALUE, in_blocks, under, with_value
from support import long

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import audit
from smt_verifier.audit.core import masks
from smt_verifier.certificate import verdict
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target


def text(*parts: list[str]) -> str:
    return HEAD + "".join(f"    {line}\n" for part in parts for line in part) + TAIL


SELECT = ["$vgpr1 = V_MOV_B32_e32 0, implicit $exec"] + [
    f"$vgpr1 = V_CNDMASK_B32_e64 0, killed $vgpr1, 0, $vgpr0, {pair}, implicit $exec" for pair in PAIRS
]
BRANCH = [
    line
    for pair, other in itertools.pairwise(PAIRS)
    for line in (
        f"{pair} = COPY $exec",
        f"{other} = V_CMP_GT_I32_e64 3, $vgpr0, implicit $exec",
        f"$exec = S_AND_B64 $exec, {other}, implicit-def dead $scc",
        "S_NOP 0",
        f"$exec = S_OR_B64 $exec, {pair}, implicit-def dead $scc",
    )
]


def test_comparisons_that_only_select_are_not_followed() -> None:
    """Twelve of them at once would make 4096 classes, in registers that hold masks before and after."""
    mir = text(BRANCH, COMPARE, SELECT, BRANCH)
    # Proved by the search; certificates know no way to forget classes of threads inside a block.
    assert Pair("gfx942", mir, mir).rules() == {"certificate"}


def test_a_copy_under_a_mask_is_judged_by_that_mask_whatever_its_register_held_before() -> None:
    narrow = [
        "$sgpr2_sgpr3 = COPY $exec",
        "$sgpr8_sgpr9 = V_CMP_GT_I32_e64 3, $vgpr0, implicit $exec",
        "$exec = S_AND_B64 $exec, $sgpr8_sgpr9, implicit-def dead $scc",
        "S_NOP 0",
        "$exec = S_OR_B64 $exec, $sgpr2_sgpr3, implicit-def dead $scc",
    ]
    copy = "$vgpr9 = COPY $vgpr1"
    before = text(COMPARE, SELECT, narrow).replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")
    under_all = text(COMPARE, SELECT, [copy], narrow).replace("EXP_DONE 0, $vgpr1", "EXP_DONE 0, $vgpr9")
    under_some = text(COMPARE, SELECT, narrow[:3], [copy], narrow[3:]).replace(
        "EXP_DONE 0, $vgpr1", "EXP_DONE 0, $vgpr9"
    )
    assert Pair("gfx942", before, under_all).audit().outcome is Outcome.PROVED
    assert Pair("gfx942", before, under_some).rules() == {"value"}


def union_of(width: int) -> list[str]:
    """EXEC becomes a union of comparisons: each may reach it."""
    union = [f"$sgpr8_sgpr9 = S_OR_B64 $sgpr8_sgpr9, {pair}, implicit-def dead $scc" for pair in PAIRS[1:width]]
    return [
        *union,
        "$sgpr2_sgpr3 = COPY $exec",
        "$exec = S_AND_B64 $exec, $sgpr8_sgpr9, implicit-def dead $scc",
        "S_NOP 0",
        "$exec = S_OR_B64 $exec, $sgpr2_sgpr3, implicit-def dead $scc",
    ]


@pytest.mark.parametrize("width", [9, *long(12)])
def test_too_many_that_do_reach_exec_are_forgotten_for_a_while(width: int) -> None:
    """512 and 4096 classes: comparisons beyond the limit count as not known, which splits again where it matters."""
    mir = text(COMPARE, SELECT, union_of(width))
    assert Pair("gfx942", mir, mir).audit().outcome is Outcome.PROVED
    before = mir.replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")
    under_some = mir.replace("S_NOP 0", "$vgpr9 = COPY $vgpr1").replace("EXP_DONE 0, $vgpr1", "EXP_DONE 0, $vgpr9")
    assert Pair("gfx942", before.replace("    S_NOP 0\n", ""), under_some).rules() == {"value"}


def test_too_many_classes_are_unknown_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "MAX_WORK", 20)
    monkeypatch.setattr(verdict, "made_certificate", lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(verdict, "second_checker", lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]
    mir = text(COMPARE, SELECT, union_of(2))
    assert Pair("gfx942", mir, mir).audit().outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("kept_under_all", [True, False])
def test_conjunctions_of_many_comparisons_are_forgotten_too(
    kept_under_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in bounds and columns in bounds: each pair of comparisons reaches EXEC, as where a tile is stored."""
    monkeypatch.setattr(masks, "MAX_WORK", 8_000)
    both = [f"{PAIRS[n]} = S_AND_B64 {PAIRS[n]}, {PAIRS[n + 1]}, implicit-def dead $scc" for n in range(11)]
    mir = text(
        COMPARE,
        both,
        ["$vgpr1 = V_ADD_U32_e32 1, $vgpr0, implicit $exec"],
        *(under(pair, "S_NOP 0") for pair in PAIRS[:11]),
    )
    before = mir.replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")
    after = mir.replace("EXP_DONE 0, $vgpr1", "EXP_DONE 0, $vgpr9")
    copy = "    $vgpr9 = COPY $vgpr1\n"
    place = "    $sgpr2_sgpr3 = COPY $exec\n" if kept_under_all else "    S_NOP 0\n"
    after = after.replace(place, copy + place if kept_under_all else place + copy, 1)
    # Proved by the search; certificates know no way to forget classes of threads inside a block.
    rules = Pair("gfx942", before, after).rules()
    assert (rules == {"certificate"}) is kept_under_all
    assert rules


@pytest.mark.parametrize(("read_under", "proved"), [(0, True), (1, False)])
def test_what_is_so_for_some_classes_only_is_asked_class_by_class(read_under: int, proved: bool) -> None:
    """A copy is made under one mask and read in another block: by the same threads, or by others."""
    blocks = [[*COMPARE[:4], VALUE], under(PAIRS[0]), under(PAIRS[read_under], USE), ALL_USED]
    before = in_blocks("$vgpr0", *blocks).replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")
    blocks[1] = under(PAIRS[0], KEEP)
    blocks[2] = [line.replace("$vgpr1", "$vgpr9") for line in blocks[2]]
    after = in_blocks("$vgpr0, $vgpr1, $vgpr9", *blocks)
    solver = RecordingSolver()
    report = audit(parse_mir(before), parse_mir(after), target("gfx942"), solver=solver)
    assert {f.rule for f in report.functions[0].findings} == (set() if proved else {"value"})
    united = [verdict.outcome for question, verdict in solver.answers if question.name.endswith("/united")]
    others = ("/united", "/paths")
    each = [verdict.outcome for question, verdict in solver.answers if not question.name.endswith(others)]
    # What all classes share is not enough, and decides nothing.
    assert united == [Outcome.REFUTED]
    assert each[0] is (Outcome.PROVED if proved else Outcome.REFUTED)
    # What is refuted is asked again block by block, to say where.
    assert len(each) == (1 if proved else 1 + len(blocks))


def test_what_is_so_for_all_classes_is_asked_once() -> None:
    """Sixteen classes, each with its own copies or without, and one question for all of them."""
    copies = [under(pair, f"$vgpr{9 + n} = COPY $vgpr1") for n, pair in enumerate(PAIRS[:4])]
    blocks = [[*COMPARE[:4], VALUE], *copies, [USE], ALL_USED]
    kept = ", ".join(f"$vgpr{9 + n}" for n in range(4))
    after = in_blocks(f"$vgpr0, $vgpr1, {kept}", *blocks)
    without = [under(pair) for pair in PAIRS[:4]]
    before = in_blocks("$vgpr0", blocks[0], *without, *blocks[-2:])
    before = before.replace("$vgpr1,", "%0,").replace("$vgpr1 =", "%0:vgpr_32 =")
    solver = RecordingSolver()
    report = audit(parse_mir(before), parse_mir(after), target("gfx942"), solver=solver)
    assert report.outcome is Outcome.PROVED
    assert all(question.name.endswith(("/united", "/paths")) for question, _ in solver.answers)
    reads = next(question for question, _ in solver.answers if question.name == "masks/values/united")
    assert len(reads.goals) < 16


def test_what_active_threads_alone_get_is_not_what_frozen_ones_have() -> None:
    """A block that begins under a mask, where the same is claimed of both."""
    compared = [COMPARE[0], VALUE, "$sgpr2_sgpr3 = COPY $exec"]
    narrow, wide = under(PAIRS[0])[1:]
    live = "$vgpr0, $vgpr1, $vgpr9, $sgpr2_sgpr3"
    read = USE.replace("$vgpr1", "$vgpr9")
    before = with_value(in_blocks(live.replace("$vgpr1, $vgpr9, ", ""), [*compared, narrow], [], [wide, USE], []))
    late = in_blocks(live, [*compared, narrow], [KEEP], [wide, read], [])
    early = in_blocks(live, [*compared, KEEP, narrow], [], [wide, read], [])
    assert "value" in Pair("gfx942", before, late).rules()
    assert "value" not in Pair("gfx942", before, early).rules()


@pytest.mark.parametrize("selected", ["0, $vgpr1, 0, $vgpr0", "0, $vgpr0, 0, $vgpr1"], ids=["inside", "outside"])
def test_a_blend_reads_each_source_for_some_classes(selected: str) -> None:
    """The classes hold the same in all lanes, and only some of them take this source."""
    blend = [f"$vgpr3 = V_SET_INACTIVE_B32 {selected}, {PAIRS[0]}, implicit $exec"]
    mir = text(COMPARE[:1], [VALUE], blend, under(PAIRS[0], "S_NOP 0"))
    wrong = mir.replace(blend[0], blend[0].replace("$vgpr1", "$vgpr0"))
    assert Pair("gfx942", with_value(mir), mir).audit().outcome is Outcome.PROVED
    assert Pair("gfx942", with_value(mir), wrong).rules() == {"value"}


@pytest.mark.long
def test_what_is_copied_and_read_under_one_of_many_masks_is_proved() -> None:
    """4096 classes of the search, two of a certificate."""
    use = "EXP_DONE 0, $vgpr1, undef $vgpr2, undef $vgpr2, undef $vgpr2, 0, 0, 0, implicit $exec"
    last = PAIRS[-1]
    other = PAIRS[-2]
    before = with_value(text(COMPARE, SELECT, under(other), under(last), under(last, use), union_of(12)))
    read = under(last, use.replace("$vgpr1", "$vgpr9"))
    after = text(COMPARE, SELECT, under(other), under(last, KEEP), read, union_of(12))
    under_another = text(COMPARE, SELECT, under(other, KEEP), under(last), read, union_of(12))
    assert Pair("gfx942", before, under_another).rules() == {"value"}
    assert Pair("gfx942", before, after).audit().outcome is Outcome.PROVED
