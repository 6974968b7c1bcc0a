"""The audit sees each way in which spill code can go wrong: proved text is broken at one place, and refuted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from allocation import Pair, edited
from builders import kernel, loads, loop, machine_code, reads, stores, uses
from spilling_support import (
    CONSTANTS,
    PRESSED,
    Allocated,
    allocate,
    before_phase,
    in_narrow_exec,
    proved,
    with_slots_shared,
)

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.attempt import SpillLimits

CPU = "gfx1100"
PI, E = "1078530011", "1076754516"
"""The constants of ``CONSTANTS``."""
SAVE = r"^    SI_SPILL_V32_SAVE [^\n]*\n"
RESTORE = r"SI_SPILL_V\d+_RESTORE"


def around() -> Allocated:
    """24 values wait around a loop."""
    names = [f"%v{k}" for k in range(24)]
    body = [*loads(24), *loop(stores(names[:5])), *stores(names)]
    return allocate(before_phase(kernel(body, 16), CPU), CPU)


def constants() -> Allocated:
    """Two constants computed anew."""
    return allocate(machine_code(CONSTANTS, 7), CPU)


def masked() -> Allocated:
    """Values loaded for some threads, and again for all."""
    return allocate(machine_code(in_narrow_exec(f"{PRESSED}\n{uses(range(1, 9))}", uses(range(1, 9))), 9), CPU)


def carried() -> Allocated:
    """A loop makes six values where five have room, and reads them in the same order; one register stays free."""
    body = f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 3))}

  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
    %1:vgpr_32 = V_ADD_U32_e64 %1, %2, 0, implicit $exec
{reads(range(3, 9))}
{uses(range(3, 9))}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
{uses([1, 2])}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 8), CPU, spills=SpillLimits(spare=(1,), load_ahead=False))


def turning() -> Allocated:
    """Register 1 is changed in every turn of a loop, and waits in memory up to the next."""
    body = f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads([1])}

  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
    %1:vgpr_32 = V_ADD_U32_e64 %1, %0, 0, implicit $exec
{reads(range(3, 9))}
{uses(range(3, 9))}
{uses(range(3, 9))}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
{uses([1])}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 7), CPU)


def tuples() -> Allocated:
    """A tuple of four waits; its parts are needed one by one, so that each load has an offset."""
    tuple_read = "    %1:vreg_128 = DS_READ_B128_gfx9 %0, 64, 0, implicit $exec :: (load (s128), addrspace 3)"
    body = f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{tuple_read}
{reads(range(2, 8))}
{uses(range(2, 8))}
{uses(["%1.sub2"])}
{reads(range(8, 14))}
{uses(range(8, 14))}
{uses(["%1.sub1"])}
{reads(range(14, 20))}
{uses(range(14, 20))}
{uses(["%1.sub0", "%1.sub3"])}
    S_ENDPGM 0
"""
    return allocate(machine_code(body, 8), CPU)


@pytest.mark.parametrize("example", [around, carried, constants, masked, tuples, turning])
def test_all_of_it_is_proved_with_shared_slots(example: Callable[[], Allocated]) -> None:
    proved(with_slots_shared(example()))


def _slot(done: Allocated, to: Callable[[int], int]) -> Pair:
    """The first reload from another slot."""

    def other(match: re.Match[str]) -> str:
        number = int(match[2])
        return f"{match[1]}%stack.{to(number)}{match[3]}%stack.{to(number)}"

    return edited(done.pair, rf"({RESTORE} )%stack\.(\d+)(.*)%stack\.\d+", other)


def _moved_behind(done: Allocated, what: str, behind: Callable[[re.Match[str]], str]) -> Pair:
    """The first line that is ``what`` put behind the next one of which ``behind`` gives the pattern."""
    at = done.after.index("body:")
    body = done.after[at:]
    for line in re.finditer(what, body, re.M):
        rest = body[line.end() :]
        block = rest[: m.start()] if (m := re.search(r"^  bb\.", rest, re.M)) else rest
        target = re.search(behind(line), block, re.M)
        if target:
            moved = rest[: target.end()] + line[0] + rest[target.end() :]
            return Pair(done.cpu, done.before, done.after[:at] + body[: line.start()] + moved)
    raise AssertionError(f"no place for {what}")


def _line_writing(match: re.Match[str]) -> str:
    register = re.search(r"\$(vgpr\d+)", match[0])
    assert register
    return rf"^    renamable \${register[1]}(?:_vgpr\d+)? = [^\n]*\n"


def _loaded_early(*, behind: bool) -> Pair:
    """The loop's store of its own value and the load of it side by side: the load ``behind`` the store, or before it.

    The load goes into a register that nothing else has.
    """
    done = carried()
    assert "$vgpr7" not in done.after
    at = done.after.index("  bb.1:")
    text = done.after[at:]
    save = re.search(SAVE, text, re.M)
    assert save
    slot = re.search(r"%stack\.\d+", save[0])
    assert slot
    restore = re.search(rf"^    renamable \$(vgpr\d+) = {RESTORE} {re.escape(slot[0])}, [^\n]*\n([^\n]*\n)", text, re.M)
    assert restore
    use = restore[2]
    assert f"${restore[1]}," in use
    load = restore[0].removesuffix(use).replace(f"${restore[1]} ", "$vgpr7 ")
    text = text.replace(restore[0], use.replace(f"${restore[1]},", "$vgpr7,"), 1)
    text = text.replace(save[0], save[0] + load if behind else load + save[0], 1)
    return Pair(done.cpu, done.before, done.after[:at] + text)


def _last_turn() -> Pair:
    """The store of what a loop changes, put before the change: it stores what the turn before left."""
    done = turning()
    change = r"^    renamable \$vgpr\d+ = V_ADD_U32_e64 [^\n]*\n"
    at = done.after.index("  bb.1:")
    text = done.after[at:]
    save, add = re.search(SAVE, text, re.M), re.search(change, text, re.M)
    assert save
    assert add
    assert add.end() <= save.start()
    moved = text[: add.start()] + save[0] + text[add.start() : save.start()] + text[save.end() :]
    return Pair(done.cpu, done.before, done.after[:at] + moved)


def _narrow_only() -> Pair:
    """All threads go on with what the narrow block loaded: the reload behind it is gone, its register kept."""
    done = masked()
    at = done.after.index("  bb.2:")
    behind = done.after[at:]
    again = re.search(rf"^    renamable \$(vgpr\d+) = {RESTORE} (%stack\.\d+)[^\n]*\n", behind, re.M)
    assert again
    inside = done.after[:at]
    first = re.search(rf"renamable \$(vgpr\d+) = {RESTORE} {re.escape(again[2])},", inside)
    assert first
    # Both the same register, and nothing writes it in between: only EXEC is wrong.
    last = inside[first.end() :]
    assert not re.search(rf"\${first[1]} = ", last), "choose another register"
    text = inside + behind.replace(again[0], "", 1).replace(f"${again[1]},", f"${first[1]},")
    live = re.sub(r"(bb\.2:\n(?:.*\n)??    liveins: )", rf"\1${first[1]}, ", text)
    return Pair(done.cpu, done.before, live)


CASES: list[tuple[str, Callable[[], Allocated], Callable[[], Pair], set[str]]] = [
    ("reload from another slot", around, lambda: _slot(around(), lambda n: n + 1), {"value"}),
    ("store dropped", around, lambda: edited(around().pair, SAVE, ""), {"value"}),
    (
        "reload dropped",
        around,
        lambda: edited(around().pair, rf"^    renamable \S+ = {RESTORE} [^\n]*\n", ""),
        {"value", "live-in"},
    ),
    (
        "store behind the redefinition of its register",
        around,
        lambda: _moved_behind(around(), SAVE, _line_writing),
        {"value"},
    ),
    (
        "two registers in one slot",
        around,
        lambda: edited(around().pair, r"(_SAVE .*)%stack\.1,(.*)%stack\.1,", r"\1%stack.0,\2%stack.0,"),
        {"value"},
    ),
    (
        "store of another register",
        around,
        lambda: edited(around().pair, r"(_V32_SAVE renamable )\$vgpr\d+", r"\1$vgpr0"),
        {"value"},
    ),
    (
        "reload into another register",
        around,
        lambda: edited(around().pair, rf"\$vgpr\d+( = {RESTORE})", r"$vgpr15\1"),
        {"value", "live-in"},
    ),
    ("reload under a narrower EXEC", masked, _narrow_only, {"value"}),
    (
        "store under a narrower EXEC",
        masked,
        lambda: _moved_behind(masked(), SAVE, lambda _: r"S_AND_SAVEEXEC_B32[^\n]*\n"),
        {"value"},
    ),
    (
        "constant altered",
        constants,
        lambda: edited(constants().pair, "1078530011", "1078530012"),
        {"instruction-sequence"},
    ),
    (
        "constants exchanged",
        constants,
        lambda: edited(constants().pair, f"(MOV_B32_e32 ){PI}(.*\n(?:.*\n)*?.*MOV_B32_e32 ){E}", rf"\g<1>{E}\g<2>{PI}"),
        {"value"},
    ),
    ("constant not computed anew", constants, lambda: edited(constants().pair, r"^.*1078530011.*\n", ""), {"value"}),
    ("load before the store in a loop", carried, lambda: _loaded_early(behind=False), {"value"}),
    ("store of what the turn before left", turning, _last_turn, {"value"}),
    (
        "offset of a part",
        tuples,
        lambda: edited(tuples().pair, rf"({RESTORE} %stack\.\d+, \$sgpr32, )8(, .*%stack\.\d+ \+ )8", r"\g<1>4\g<2>4"),
        {"value"},
    ),
    (
        "offset of a stored part",
        tuples,
        lambda: edited(
            tuples().pair, r"(V128_SAVE \S+ \S+ %stack\.\d+, \$sgpr32, )0(.*%stack\.\d+)", r"\g<1>4\g<2> + 4"
        ),
        {"value", "spill-slot"},
    ),
]


@pytest.mark.parametrize(("good", "broken", "rules"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_broken_spill_code_is_refuted(
    good: Callable[[], Allocated], broken: Callable[[], Pair], rules: set[str]
) -> None:
    assert good().candidate.spills
    assert good().pair.audit().outcome is Outcome.PROVED
    wrong = broken()
    assert wrong.post != good().after
    report = wrong.audit()
    assert report.outcome is Outcome.REFUTED
    assert wrong.rules() == rules


def test_the_load_behind_the_store_is_no_fault() -> None:
    """What makes the loop's case wrong is the order alone."""
    assert _loaded_early(behind=True).audit().outcome is Outcome.PROVED


def test_parts_are_loaded_alone() -> None:
    assert re.search(rf"{RESTORE} %stack\.\d+, \$sgpr32, (4|8|12)", tuples().after)
