"""Kill flags that were wrong in the given text already, and what of them is the allocator's own fault."""

from __future__ import annotations

from dataclasses import replace

from allocation import Pair
from builders import machine_code

from smt_verifier.outcome import Outcome

USE = (
    "nofpexcept V_PK_FMA_F32 8, $sgpr4_sgpr5, 8, {0}, 8, {0}, 0, 0, 0, 0, 0, implicit $mode, implicit $exec\n"
    "    DS_WRITE_B64_gfx9 {1}, {2}, 0, 0, implicit $exec :: (store (s64), addrspace 3)\n"
    "    DS_WRITE_B32_gfx9 {1}, {3}, 0, 0, implicit $exec :: (store (s32), addrspace 3)"
)


def body(copies: str, pair: str, address: str, result: str, high: str) -> str:
    """The pair of scalars is read after its high half was copied."""
    define = "%5:vreg_64_align2" if result == "%5" else result
    return f"""
  bb.0:
    liveins: $sgpr4_sgpr5, $vgpr0, $vgpr2_vgpr3
    {pair}
    {address}
    {copies}
    {define} = {USE.format(*(("%1", "%0") if result == "%5" else ("$vgpr2_vgpr3", "$vgpr0")), result, high)}
    S_ENDPGM 0
"""


def killed(given: str, after: str) -> Pair:
    """The copy of the high half, in the given text and after allocation."""
    before = body(given, "%1:vreg_64_align2 = COPY $vgpr2_vgpr3", "%0:vgpr_32 = COPY $vgpr0", "%5", "%6")
    done = body(after, "S_NOP 0", "S_NOP 0", "$vgpr4_vgpr5", "$vgpr6").replace("    S_NOP 0\n", "")
    return Pair("gfx942", machine_code(before, 16), machine_code(done, 16))


def test_what_the_given_text_kills_too_early_is_not_the_allocators_fault() -> None:
    pair = killed("%6:vgpr_32 = COPY killed $sgpr5", "$vgpr6 = COPY killed $sgpr5")
    assert pair.audit().outcome is Outcome.PROVED
    assert killed("%6:vgpr_32 = COPY $sgpr5", "$vgpr6 = COPY $sgpr5").audit().outcome is Outcome.PROVED


def test_a_flag_that_the_given_text_does_not_have_is() -> None:
    assert killed("%6:vgpr_32 = COPY $sgpr5", "$vgpr6 = COPY killed $sgpr5").rules() == {"kill-flag"}


def test_what_is_read_again_between_the_moves_is_not_excused() -> None:
    given = "%6:vgpr_32 = COPY killed $sgpr5"
    again = "$vgpr6 = COPY killed $sgpr5\n    $vgpr6 = COPY $sgpr5"
    assert killed(given, again).rules() == {"kill-flag"}
    before = "$vgpr7 = COPY $sgpr5\n    $vgpr6 = COPY killed $sgpr5"
    assert killed(given, before).audit().outcome is Outcome.PROVED


def test_what_the_allocator_reads_later_is_its_own_fault() -> None:
    """The copy is repeated where the register was said to be dead already."""
    pair = killed("%6:vgpr_32 = COPY killed $sgpr5", "$vgpr6 = COPY killed $sgpr5")
    read = replace(pair, pre=pair.pre.replace("    S_ENDPGM 0", "    S_NOP 0, implicit %6\n    S_ENDPGM 0"))
    later = read.with_post("    S_ENDPGM 0", "    $vgpr9 = COPY $sgpr5\n    S_NOP 0, implicit $vgpr9\n    S_ENDPGM 0")
    assert later.rules() == {"kill-flag"}


def test_nor_behind_another_instruction() -> None:
    load = "DS_READ_B32_gfx9 {}, 0, 0, implicit $exec :: (load (s32), addrspace 3)"
    given = f"%6:vgpr_32 = COPY killed $sgpr5\n    %7:vgpr_32 = {load.format('%0')}"
    after = f"$vgpr7 = {load.format('$vgpr0')}\n    $vgpr6 = COPY killed $sgpr5"
    assert killed(given, after).rules() == {"kill-flag"}
    assert killed(given, "\n    ".join(after.split("\n    ")[::-1])).audit().outcome is Outcome.PROVED
