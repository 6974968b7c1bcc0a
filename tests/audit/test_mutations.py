"""Every rule is refuted by a mutation of a proved allocation, and for the right reason.

Each case edits the post-RA text of LLVM's own allocation at one place. None of the edits gives an equivalent program:
the register written instead is needed, or the one read instead holds something else, by construction of the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from allocation import Pair, edited, phases_of_ir
from audit_support import CALLS, DIVERGENT, MIXED, STRAIGHT, moved_narrow
from support import TEST_DATA, llc, run_llc

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome

DATA = TEST_DATA / "audit"


def straight(phase: int) -> Pair:
    return phases_of_ir(STRAIGHT, "gfx942")[phase]


CASES: list[tuple[str, Callable[[], Pair], set[str]]] = [
    (
        "wrong register read",
        lambda: edited(straight(1), r"(V_SUBREV_U32_e32 .*?)(\$vgpr\d+)(, implicit)", r"\1$vgpr1\3"),
        {"value"},
    ),
    (
        "wrong lane read",
        lambda: edited(
            straight(1),
            r"(GLOBAL_STORE_DWORDX4_SADDR .*?)(\$agpr\d+\S*)(,)",
            lambda m: f"{m[1]}{_shift(m[2], 2)}{m[3]}",
        ),
        {"value"},
    ),
    (
        "misaligned tuple",
        lambda: edited(straight(1), r"\$agpr0_agpr1_agpr2_agpr3 = GLOBAL_LOAD_DWORDX4", lambda m: _shift(m[0], 1)),
        {"register-class"},
    ),
    (
        "swapped operands",
        lambda: edited(straight(1), r"(GLOBAL_STORE_DWORD_SADDR .*?)(\$vgpr\d+)(, .*?)(\$vgpr\d+)", r"\1\4\3\2"),
        {"value"},
    ),
    (
        "changed opcode",
        lambda: edited(straight(1), r"GLOBAL_STORE_DWORD_SADDR", "GLOBAL_STORE_SHORT_SADDR"),
        {"instruction-sequence"},
    ),
    (
        "changed opcode of a pure instruction",
        lambda: edited(straight(1), r"V_MUL_LO_U32_e64", "V_MUL_HI_U32_e64"),
        {"instruction-sequence"},
    ),
    (
        "changed immediate",
        lambda: edited(straight(0), r"(S_LOAD_DWORD\w+ \S+ ?\S*, )0,", r"\g<1>8,"),
        {"instruction-sequence"},
    ),
    (
        "dropped instruction",
        lambda: edited(straight(1), r"^ *GLOBAL_STORE_DWORD_SADDR [^\n]*\n", ""),
        {"instruction-sequence"},
    ),
    (
        "added store",
        lambda: edited(straight(1), r"^( *GLOBAL_STORE_DWORD_SADDR [^\n]*\n)", r"\1\1"),
        {"instruction-sequence"},
    ),
    (
        "reserved register written",
        lambda: edited(straight(0), r"renamable \$sgpr\d+ = S_SUB_I32", "renamable $sgpr32 = S_SUB_I32"),
        {"reserved-register"},
    ),
    (
        "early-clobber overlap",
        lambda: edited(
            straight(1),
            r"(def early-clobber (?:renamable )?)\$vgpr\d+"
            r"(.*reguse:VGPR_32 \*/, )(?:killed )?(?:renamable )?(\$vgpr\d+)",
            r"\1\3\2\3",
        ),
        {"early-clobber"},
    ),
    (
        "early-clobber flag dropped",
        lambda: edited(straight(1), r"def early-clobber ", "def "),
        {"early-clobber"},
    ),
    (
        "fixed register changed",
        lambda: edited(phases_of_ir(CALLS, "gfx942")[1], r"implicit (killed )?\$vgpr31", "implicit $vgpr30"),
        {"fixed-register"},
    ),
    (
        "memory operand changed",
        lambda: edited(straight(1), r"\(store \(s32\)", "(store (s64)"),
        {"memory-operands"},
    ),
    (
        "flag changed",
        lambda: edited(straight(1), r"= V_MUL_LO_U32_e64", "= nofpexcept V_MUL_LO_U32_e64"),
        {"instruction-flags"},
    ),
    (
        "live-in not declared",
        lambda: edited(phases_of_ir(DIVERGENT, "gfx942")[1], r"(bb\.1\.Flow:\n.*\n    liveins: )\$vgpr\d+, ", r"\1"),
        {"live-in"},
    ),
    (
        "used after kill",
        lambda: edited(straight(0), r"(S_SUB_I32 )(?:killed )?(?:renamable )?(\$sgpr\d+), ", r"\1killed \2, "),
        {"kill-flag"},
    ),
    (
        "dead flag on a live result",
        lambda: edited(straight(0), r"renamable (\$sgpr\d+) = S_SUB_I32", r"dead \1 = S_SUB_I32"),
        {"dead-flag"},
    ),
    (
        "undef flag on a defined operand",
        lambda: edited(straight(1), r"(V_MUL_LO_U32_e64 )(?:killed )?(\$vgpr\d+)", r"\1undef \2"),
        {"undef-flag"},
    ),
    (
        "control flow changed",
        lambda: edited(
            phases_of_ir(DIVERGENT, "gfx942")[1], r"successors: %bb\.3(\S*), %bb\.1", r"successors: %bb.1\1, %bb.3"
        ),
        {"control-flow"},
    ),
    (
        "branch target changed",
        lambda: edited(phases_of_ir(DIVERGENT, "gfx942")[1], r"S_BRANCH %bb\.3", "S_BRANCH %bb.1"),
        {"operands"},
    ),
    (
        "argument loaded from another stack object",
        lambda: edited(phases_of_ir(MIXED, "gfx942")[1], r"_SADDR %fixed-stack\.10,", "_SADDR %fixed-stack.9,"),
        {"instruction-sequence", "operands"},
    ),
    (
        "return value in the wrong register",
        lambda: edited(
            phases_of_ir(CALLS, "gfx942")[1], r"\$vgpr0 = COPY killed renamable \$vgpr1", "$vgpr0 = COPY $vgpr2"
        ),
        {"value"},
    ),
    (
        "value kept in a register that the call clobbers",
        lambda: _clobbered_by_call(),
        {"value"},
    ),
]


def _shift(name: str, by: int) -> str:
    return re.sub(r"(vgpr|agpr|sgpr)(\d+)", lambda m: f"{m[1]}{int(m[2]) + by}", name)


def _clobbered_by_call() -> Pair:
    """In the caller the loop's bound lives in a callee-saved SGPR; everywhere put it into one the callee may use."""
    pair = phases_of_ir(CALLS, "gfx942")[0]
    kernel = pair.post.index("name:            k\n")
    body = pair.post[kernel:]
    bound = re.search(r"S_CMP_\w+ \S*\$?\S* ?\$sgpr\d+, (?:renamable )?\$sgpr(\d+)", body)
    assert bound, "no comparison with the loop's bound: choose another site"
    assert int(bound[1]) >= 34
    text = re.sub(rf"\$sgpr{bound[1]}(?!\d|_)", "$sgpr24", body)
    return Pair(pair.cpu, pair.pre, pair.post[:kernel] + text)


@pytest.mark.parametrize(("mutate", "rules"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_mutation_is_refuted_for_the_right_reason(mutate: Callable[[], Pair], rules: set[str]) -> None:
    report = mutate().audit()
    found = {f.rule for done in report.functions for f in done.findings}
    assert report.outcome is Outcome.REFUTED, [render(f) for done in report.functions for f in done.findings]
    assert found & rules, [render(f) for done in report.functions for f in done.findings]


def test_unchanged_sites_are_proved() -> None:
    for text, cpu in ((STRAIGHT, "gfx942"), (DIVERGENT, "gfx942"), (CALLS, "gfx942")):
        for pair in phases_of_ir(text, cpu):
            assert pair.audit().outcome is Outcome.PROVED


def test_missing_and_added_functions_are_invalid() -> None:
    pair = phases_of_ir(CALLS, "gfx942")[0]
    at = pair.post.rindex("---\n")
    assert Pair(pair.cpu, pair.pre, pair.post[:at]).audit().outcome is Outcome.INVALID
    assert Pair(pair.cpu, pair.pre[: pair.pre.rindex("---\n")], pair.post).audit().outcome is Outcome.INVALID


def test_changed_function_attributes_are_refuted() -> None:
    llc()
    pair = straight(1)
    assert '"target-cpu"="gfx942"' in pair.post
    changed = pair.post.replace('"target-cpu"="gfx942"', '"amdgpu-num-vgpr"="8" "target-cpu"="gfx942"')
    report = Pair(pair.cpu, pair.pre, changed).audit()
    assert report.outcome is Outcome.REFUTED
    # The search names the rule; the checkers read the attributes of the second text, which allow no such registers.
    assert "header" in {f.rule for f in report.functions[0].findings} <= {"header", "certificate"}


def test_exec_of_all_threads_is_followed() -> None:
    text = run_llc(STRAIGHT, "gfx942", "-stop-before=greedy,0", mir=False)
    whole = text.replace("    S_ENDPGM 0", "    $exec = S_MOV_B64 -1\n    S_ENDPGM 0")
    assert Pair("gfx942", whole, whole).audit().outcome is Outcome.PROVED


def test_copy_under_the_same_exec_is_proved() -> None:
    copy = "$vgpr9 = COPY $vgpr0"
    assert moved_narrow(copy, "", ", $vgpr9", ", $vgpr9", "$vgpr9").audit().outcome is Outcome.PROVED
    assert moved_narrow("", "", ", $vgpr0", ", $vgpr0", "$vgpr0").audit().outcome is Outcome.PROVED


def test_copy_under_a_narrower_exec_is_refuted() -> None:
    """On the path through bb.1 both blocks hold the copy, but the threads that waited never made theirs."""
    copy = "$vgpr9 = COPY $vgpr0"
    clobber = "$vgpr9 = IMPLICIT_DEF"
    pair = moved_narrow(clobber, copy, ", $vgpr0, $vgpr9", ", $vgpr9", "$vgpr9")
    assert pair.rules() == {"value"}
