"""Explanations: broken allocations of real kernels, and what the refutation must show of each.

Every case edits the post-RA text of LLVM's own allocation at one place; what is asserted is what a person needs to mend
it: the operand and lane, the value expected and the one found with where each was written, where it got lost, and the
path of blocks.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from allocation import Pair, edited, phases_of_ir, phases_of_kernel
from audit_support import DIVERGENT
from support import DEMO_KERNELS, TEST_DATA, llc

from smt_verifier.audit import Finding, audit
from smt_verifier.audit.core.report import Value
from smt_verifier.audit.journal import Clock, LaneHistory
from smt_verifier.audit.wording import path_text, render
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Verdict
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.targets import target

KERNELS = DEMO_KERNELS


def gemm() -> Pair:
    return phases_of_kernel(KERNELS / "gemm_mma_lds.gfx942.opt.ll")[1]


@lru_cache(maxsize=1)
def spilling() -> Pair:
    """Attention with a budget of 64 registers: LLVM spills."""
    text = (KERNELS / "attn_d64.gfx942.opt.ll").read_text()
    limit = '"amdgpu-agpr-alloc"="0"'
    assert limit in text
    return phases_of_ir(text.replace(limit, f'{limit} "amdgpu-waves-per-eu"="8,8"'), "gfx942")[1]


def line_of(pair: Pair, text: str, after: str = "body:") -> int:
    """1-based line in the post-RA text."""
    return pair.post.count("\n", 0, pair.post.index(text, pair.post.index(after))) + 1


def findings(pair: Pair, rule: str = "") -> list[Finding]:
    report = pair.audit()
    assert report.outcome is Outcome.REFUTED
    return [f for d in report.functions for f in d.findings if not rule or f.rule == rule]


def sites(value: Value | None) -> list[str]:
    """Opcodes of the instructions that a value came from, oldest first."""
    assert value is not None
    return [re.findall(r"\b[A-Z]+_\w+|\bCOPY\b", fact.site.text)[0] for fact in value.facts if fact.site]


def test_wrong_operand_shows_lanes_both_values_and_the_right_register() -> None:
    read = r"V_MFMA_F32_16X16X16F16_vgprcd_e64 \$vgpr32_vgpr33, \$vgpr36_vgpr37"
    broken = edited(gemm(), read, "V_MFMA_F32_16X16X16F16_vgprcd_e64 $vgpr32_vgpr33, $vgpr38_vgpr39")
    (one,) = findings(broken)
    assert (one.rule, one.outcome) == ("value", Outcome.REFUTED)
    assert one.post_line == line_of(broken, "$vgpr32_vgpr33, $vgpr38_vgpr39,")
    assert one.operand is not None
    assert one.operand.number == 2
    assert one.operand.post == "$vgpr38_vgpr39"
    assert one.operand.pre.endswith(".sub0_sub1")
    assert one.lane == "lanes sub0, sub1"
    assert one.expected is not None
    assert one.expected.place == one.operand.pre.removesuffix("_sub1")
    assert sites(one.expected) == ["DS_READ2_B64_gfx9", "DS_READ2_B64_gfx9"]
    assert one.found is not None
    assert one.found.place == "v38"
    assert one.found.facts[-1].what.endswith(".sub2 before allocation")
    assert one.elsewhere == ("v36",)
    assert one.path == ("bb.1",)
    assert one.more == 0
    assert "v38 must hold" in one.message
    shown = render(one)
    for text in ("operand 2: $vgpr38_vgpr39", "lanes sub0, sub1", "in v36 there", "path: within bb.1"):
        assert text in shown


def test_dropped_copy_shows_the_stale_value_and_who_holds_the_right_one() -> None:
    copy = "    renamable $vgpr1 = COPY renamable $vgpr23\n"
    broken = gemm().with_post(copy, "")
    (one,) = findings(broken, "value")
    assert one.lane == "lane sub1"
    assert one.operand is not None
    assert one.operand.post == "$vgpr0_vgpr1"
    assert sites(one.expected) == ["AV_MOV_B32_IMM_PSEUDO", "AV_MOV_B32_IMM_PSEUDO", "COPY"]
    assert sites(one.found) == ["V_ADD_U32_e32"]
    assert one.lost is not None
    assert one.lost.what.startswith("nothing moves it to v1")
    assert one.elsewhere == ("v23",)
    assert one.path == ("bb.0",)
    assert one.more == 1
    assert render(one).endswith("and 1 more use that this makes wrong")


def test_lost_back_edge_update_names_the_path_around_the_loop() -> None:
    update = r"renamable \$vgpr24_vgpr25 = (V_LSHL_ADD_U64_e64 killed \$vgpr24_vgpr25)"
    broken = edited(gemm(), update, r"renamable $vgpr52_vgpr53 = \1")
    one = findings(broken, "value")[0]
    assert one.path == ("bb.1", "bb.1")
    assert "path: bb.1 -> bb.1" in render(one)
    assert one.operand is not None
    assert one.operand.post == "$vgpr24_vgpr25"
    assert one.elsewhere == ("v52",)
    assert "still holds" in one.message
    assert one.found is not None
    assert one.found.facts[0].site is not None
    assert one.found.facts[0].site.label == "bb.0"
    assert one.expected is not None
    assert [f.site.label for f in one.expected.facts if f.site] == ["bb.1", "bb.1"]


def test_overwritten_value_names_the_instruction_that_overwrote_it() -> None:
    read = r"renamable \$vgpr48_vgpr49 = (DS_READ_B64_gfx9)"
    broken = edited(gemm(), read, r"renamable $vgpr16_vgpr17 = \1")
    one = next(f for f in findings(broken, "value") if f.found and f.found.place == "v17")
    assert one.lost is not None
    assert one.lost.what == "v17 held it until overwritten by"
    assert one.lost.site is not None
    assert one.lost.site.text.startswith("renamable $vgpr16_vgpr17 = DS_READ_B64_gfx9")
    assert one.lost.site.line == line_of(broken, "renamable $vgpr16_vgpr17 = DS_READ_B64_gfx9")
    assert one.elsewhere == ()


def test_the_first_thing_that_goes_wrong_on_the_path_comes_first() -> None:
    read = r"renamable \$vgpr48_vgpr49 = (DS_READ_B64_gfx9)"
    broken = edited(gemm(), read, r"renamable $vgpr16_vgpr17 = \1")
    found = findings(broken, "value")
    lines = [f.post_line for f in found if f.path]
    written = line_of(broken, "renamable $vgpr16_vgpr17 = DS_READ_B64_gfx9")
    assert min(lines) > written
    assert found[0].post_line == min(lines)


def test_mixed_up_spill_slot_names_both_slots() -> None:
    llc()
    reload = r"(renamable \$vgpr52_vgpr53 = SI_SPILL_AV64_RESTORE )%stack\.1(.*)%stack\.1"
    broken = edited(spilling(), reload, r"\1%stack.2\2%stack.2")
    one = findings(broken, "value")[0]
    assert sites(one.found)[-2:] == ["SI_SPILL_AV64_SAVE", "SI_SPILL_AV64_RESTORE"]
    assert one.found is not None
    assert [re.findall(r"spill slot \d", f.what) for f in one.found.facts[1:3]] == [["spill slot 2"], ["spill slot 2"]]
    assert any(place.startswith("spill slot 1") for place in one.elsewhere)
    assert one.path[0] == "bb.0"
    assert one.path[-1] == "bb.1"
    assert one.lost is not None


@pytest.mark.long
def test_dropped_reload_and_dropped_save() -> None:
    reload = r"^ *renamable \$vgpr12_vgpr13 = SI_SPILL_AV64_RESTORE %stack\.0,.*\n"
    one = findings(edited(spilling(), reload, ""), "value")[0]
    assert any(place.startswith("spill slot 0") for place in one.elsewhere)
    save = r"^ *SI_SPILL_AV64_SAVE killed \$vgpr6_vgpr7, %stack\.1,.*\n"
    other = findings(edited(spilling(), save, ""), "value")[0]
    assert other.found is not None
    assert other.found.facts[0].what.startswith("nothing on this path writes spill slot 1")


ADDRESS = "renamable $vgpr0_vgpr1"
STORE = r"GLOBAL_STORE_DWORD killed renamable \$vgpr0_vgpr1,"
COPY = f"    renamable $vgpr10_vgpr11 = COPY {ADDRESS}, implicit $exec\n"


def test_copy_before_exec_is_widened_says_that_waiting_threads_are_left_out() -> None:
    """The copy stands at the start of the join, where the threads of one branch still wait."""
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    widen = "    $exec = S_OR_B64 $exec, killed renamable $sgpr2_sgpr3"
    broken = edited(pair.with_post(widen, COPY + widen), STORE, "GLOBAL_STORE_DWORD $vgpr10_vgpr11,")
    one = findings(broken, "value")[0]
    assert one.lost is not None
    assert "for the threads active there only" in one.lost.what
    assert one.lost.site is not None
    assert one.lost.site.text.startswith("renamable $vgpr10_vgpr11 = COPY")
    assert one.elsewhere == ("v0",)
    assert one.path[-1] == "bb.4"
    wide = broken.with_post(COPY + widen, widen).with_post(
        "GLOBAL_STORE_DWORD $vgpr10", COPY + "    GLOBAL_STORE_DWORD $vgpr10"
    )
    assert {f.rule for d in wide.audit().functions for f in d.findings} == set()


SLOT = """stack:
  - { id: 0, name: '', type: spill-slot, offset: 0, size: 4, alignment: 4,
      stack-id: default, callee-saved-register: '', callee-saved-restored: true,
      debug-info-variable: '', debug-info-expression: '', debug-info-location: '' }"""
OBJECT = "%stack.0, $sgpr32, 0, implicit $exec :: "
SAVE = f"    SI_SPILL_V32_SAVE $vgpr0, {OBJECT}(store (s32) into %stack.0, addrspace 5)\n"
RESTORE = f"    $vgpr0 = SI_SPILL_V32_RESTORE {OBJECT}(load (s32) from %stack.0, addrspace 5)\n"
WIDEN = "    $exec = S_OR_B64 $exec, killed renamable $sgpr2_sgpr3, implicit-def $scc\n"
LOAD = "    renamable $vgpr2 = GLOBAL_LOAD_DWORD renamable $vgpr0_vgpr1, 0, 0, implicit $exec"


def spilled_around_the_join() -> Pair:
    """v0 is stored where the join begins, before EXEC is widened, and loaded after that."""
    pair = phases_of_ir(DIVERGENT, "gfx942")[1].with_post("stack:           []", SLOT)
    pair = pair.with_post("hasSpilledVGPRs: false", "hasSpilledVGPRs: true")
    return pair.with_post(WIDEN, SAVE + WIDEN + RESTORE)


def test_a_slot_stored_for_some_threads_only_is_said_to_be() -> None:
    broken = spilled_around_the_join()
    one = findings(broken, "value")[0]
    assert one.message.endswith(
        f"held before it was stored under a narrower EXEC (bb.4, post line {line_of(broken, SAVE)})"
    )
    assert one.found is not None
    assert one.found.facts[0].what.endswith("is stored under a narrower EXEC only, by")
    assert sites(one.found) == ["SI_SPILL_V32_SAVE", "SI_SPILL_V32_RESTORE"]
    assert one.lost is not None
    assert "for the threads active there only" in one.lost.what
    assert one.lost.site is not None
    assert "SI_SPILL_V32_SAVE" in one.lost.site.text
    wide = broken.with_post(SAVE + WIDEN, WIDEN + SAVE)
    assert {f.rule for d in wide.audit().functions for f in d.findings} == set()


def test_a_slot_stored_on_another_path_only_names_the_store() -> None:
    broken = spilled_around_the_join().with_post(SAVE, "").with_post(LOAD, SAVE + LOAD)
    one = findings(broken, "value")[0]
    assert one.found is not None
    assert one.found.facts[0].what.startswith("nothing on this path writes spill slot 0")
    assert one.found.facts[0].what.endswith("another path does, by")
    assert one.found.facts[0].site is not None
    assert one.found.facts[0].site.label == "bb.3"


def test_a_register_written_for_some_threads_only_is_said_to_be() -> None:
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    broken = edited(pair.with_post(WIDEN, COPY + WIDEN), STORE, "GLOBAL_STORE_DWORD $vgpr10_vgpr11,")
    one = findings(broken, "value")[0]
    assert "but holds what v10 held before it was written under a narrower EXEC (bb.4, post line" in one.message


@pytest.mark.parametrize(
    ("gone", "rule", "message"),
    [
        (
            "    renamable $vgpr3 = COPY renamable $sgpr2, implicit $exec\n",
            "value",
            r"v3 must hold %\d+\.sub0 as it was at the block's start, but holds what it held at the block's start, "
            r"which is not known to equal %\d+\.sub0",
        ),
        (
            "    $sgpr30 = SI_RESTORE_S32_FROM_VGPR $vgpr63, 0\n",
            "callee-saved",
            r"s30 must hold again what it held at function entry, but holds what it held at the block's start, which "
            r"is not known to equal that",
        ),
        (
            "    renamable $sgpr10 = S_LOAD_DWORD_IMM renamable $sgpr4_sgpr5, 8, 0 :: (dereferenceable invariant load "
            "(s32) from %ir.n.kernarg.offset, align 8, addrspace 4)\n",
            "value",
            r"s10 must hold what s10 of the text before allocation held at the block's start, but holds what it held "
            r"at the block's start, which is not known to equal that",
        ),
    ],
)
def test_what_one_block_shows_names_two_values(
    gone: str, rule: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no path is found, the message says what differs, not the same name twice."""
    monkeypatch.setattr("smt_verifier.audit.explain._MAX_CANDIDATES", 0)
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    broken = pair.with_post(gone, "")
    assert any(re.fullmatch(message, f.message) for f in findings(broken, rule)), findings(broken, rule)


def test_copy_in_one_branch_names_it_and_a_path_around_it() -> None:
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    load = "    renamable $vgpr2 = GLOBAL_LOAD_DWORD renamable $vgpr0_vgpr1, 0, 0, implicit $exec"
    broken = edited(pair.with_post(load, COPY + load), STORE, "GLOBAL_STORE_DWORD $vgpr10_vgpr11,")
    one = findings(broken, "value")[0]
    assert one.lost is not None
    assert one.lost.what == "nothing on this path moves it to v10 after that; another path does by"
    assert one.lost.site is not None
    assert one.lost.site.label == "bb.3"
    assert one.path == ("bb.0", "bb.1", "bb.2", "bb.4")


@lru_cache(maxsize=1)
def scalars_in_lanes() -> Pair:
    """The VGPR phase of a kernel whose SGPRs are spilled to lanes of v63."""
    return phases_of_ir((TEST_DATA / "toolchain" / "sgpr_spills.ll").read_text(), "gfx942")[1]


def test_wrong_lane_of_a_scalar_spill_names_the_right_one() -> None:
    llc()
    restore = r"(= SI_RESTORE_S32_FROM_VGPR \$vgpr63, )9$"
    one = findings(edited(scalars_in_lanes(), restore, r"\g<1>8"), "value")[0]
    assert any(place.startswith("thread 9 of v63") for place in one.elsewhere)
    assert one.found is not None
    assert any("thread 8 of v63" in fact.what for fact in one.found.facts)
    assert one.path


def test_overwritten_register_of_scalar_spills() -> None:
    clobber = "    $vgpr63 = COPY $vgpr0, implicit $exec\n"
    broken = edited(scalars_in_lanes(), r"^( *\$sgpr\d+ = SI_RESTORE_S32_FROM_VGPR)", clobber + r"\1")
    one = next(f for f in findings(broken, "value") if f.lost and f.lost.what.startswith("thread"))
    assert one.lost is not None
    assert one.lost.what.endswith("of v63 held it until overwritten by")
    assert one.lost.site is not None
    assert one.lost.site.text == clobber.strip()


def test_undef_flag_and_early_clobber_show_what_must_be_there() -> None:
    flagged = edited(gemm(), r"(DS_WRITE_B128_gfx9 )renamable (\$vgpr17)", r"\1undef renamable \2")
    one = findings(flagged, "undef-flag")[0]
    assert one.message.startswith("v17 is marked undef, but must hold %")
    assert one.expected is not None
    assert one.operand is not None
    assert one.operand.number == 0
    assert one.path


def test_machine_rules_name_the_operand() -> None:
    odd = edited(gemm(), r"renamable \$vgpr48_vgpr49 = (DS_READ_B64_gfx9)", r"renamable $vgpr49_vgpr50 = \1")
    one = findings(odd, "register-class")[0]
    assert one.operand is not None
    assert (one.operand.number, one.operand.post) == (0, "renamable $vgpr49_vgpr50")
    assert ":av_64_align2" in one.operand.pre
    assert "operand 0: renamable $vgpr49_vgpr50, before allocation %" in render(one)
    source = r"(?:killed )?(?!\2,)\$vgpr\d+, "
    fmac = rf"(renamable (\$vgpr\d+) = nofpexcept V_FMAC_F32_e32 {source}{source})(?:killed )?\2,"
    untied = edited(spilling(), fmac, r"\1$vgpr0,")
    other = findings(untied, "tied-operand")[0]
    assert other.operand is not None
    assert (other.operand.number, other.operand.post) == (3, "$vgpr0")


def test_liveness_faults_name_the_read_and_all_registers_at_once() -> None:
    killed = edited(gemm(), r"(GLOBAL_LOAD_DWORDX4 )(renamable \$vgpr44_vgpr45, 0,)", r"\1killed \2")
    (one,) = findings(killed)
    assert (one.rule, one.message) == ("kill-flag", "v44, v45 are marked killed, but read later")
    assert one.found is not None
    assert one.found.facts[0].what == "v44 is read by"
    assert one.found.facts[0].site is not None
    assert "GLOBAL_LOAD_DWORDX4 renamable $vgpr44_vgpr45, 64, 0" in one.found.facts[0].site.text
    assert one.path == ("bb.1",)
    undeclared = edited(gemm(), r"(liveins: )\$vgpr17, ", r"\1", after="bb.1 (")
    (other,) = findings(undeclared)
    assert (other.rule, other.message) == ("live-in", "v17 is read, but not declared live-in")
    assert other.found is not None
    assert other.found.facts[0].site is not None
    assert "DS_WRITE_B128_gfx9 renamable $vgpr17" in other.found.facts[0].site.text


def test_many_causes_are_cut_off_and_said_to_be() -> None:
    """Every read of an LDS address in the loop reads a register of its own that nobody wrote."""
    pair = gemm()
    start = pair.post.index("bb.1 (")
    numbers = iter(range(60, 200))
    body = re.sub(
        r"\b(DS_\w+ )renamable \$vgpr\d+,", lambda m: f"{m[1]}renamable $vgpr{next(numbers)},", pair.post[start:]
    )
    found = findings(Pair(pair.cpu, pair.pre, pair.post[:start] + body), "value")
    assert len(found) == 21
    assert found[-1].message == "there are more findings; fix the ones listed here first"


def test_two_causes_are_two_findings_and_one_cause_is_one() -> None:
    update = r"renamable \$vgpr24_vgpr25 = (V_LSHL_ADD_U64_e64 killed \$vgpr24_vgpr25)"
    first = edited(gemm(), update, r"renamable $vgpr52_vgpr53 = \1")
    both = edited(first, r"renamable \$vgpr26_vgpr27 = (V_LSHL_ADD_U64_e64 killed)", r"renamable $vgpr54_vgpr55 = \1")
    (one,) = findings(first, "value")
    assert one.more > 0
    named = {f.operand.post for f in findings(both, "value") if f.operand}
    assert named == {"$vgpr24_vgpr25", "$vgpr26_vgpr27"}


def test_a_missing_instruction_comes_before_the_values_it_makes_wrong() -> None:
    pair = phases_of_ir(DIVERGENT, "gfx942")[1]
    found = findings(edited(pair, r"^ *renamable \$vgpr2_vgpr3, .*= V_MAD_U64_U32_e64 .*\n", ""))
    assert found[0].rule == "instruction-sequence"
    assert "V_MAD_U64_U32_e64" in found[0].message
    assert {f.rule for f in found[1:]} <= {"value", "kill-flag", "live-in"}


@pytest.mark.long
def test_explanations_are_the_same_every_time() -> None:
    broken = gemm().with_post("    renamable $vgpr1 = COPY renamable $vgpr23\n", "")
    assert broken.audit() == broken.audit()


class _Speechless:
    """A solver that has a counterexample and cannot say to which goals (as Z3 at a limit)."""

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        return Verdict(Outcome.REFUTED, reason="counterexample found, but not its goals: timeout")


def test_a_counterexample_without_goals_is_never_a_proof() -> None:
    pair = gemm()
    report = audit(parse_mir(pair.pre), parse_mir(pair.post), target(pair.cpu), solver=_Speechless())
    assert report.outcome is Outcome.UNKNOWN
    assert {f.rule for d in report.functions for f in d.findings} == {"solver"}


def test_journal_remembers_writes_of_the_class_of_threads_and_of_those_it_split_from() -> None:
    clock = Clock()
    whole = LaneHistory({1: 10}, clock)
    clock.now = 0
    whole[1] = 11
    clock.now = 1
    part = LaneHistory(whole, clock, whole)
    part[1] = 12
    whole.update([(1, 13), (2, 14)])
    assert part.writes(1, 2) == [(-1, 10), (0, 11), (1, 12)]
    assert whole.writes(1, 2) == [(-1, 10), (0, 11), (1, 13)]
    assert part.writes(1, 1) == [(-1, 10), (0, 11)]
    assert part.writes(2, 2) == []
    assert (part[1], whole[1]) == (12, 13)


@pytest.mark.parametrize(("path", "text"), [(("bb.1",), "within bb.1"), (("bb.0", "bb.2"), "bb.0 -> bb.2"), ((), "")])
def test_path_text(path: tuple[str, ...], text: str) -> None:
    assert path_text(path) == text
