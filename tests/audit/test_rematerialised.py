"""Instructions that LLVM repeats instead of keeping their result: with line numbers, and while threads wait."""

from __future__ import annotations

from allocation import Pair
from audit_support import NARROW

from smt_verifier.outcome import Outcome

LINE = ", debug-location !DILocation(line: 7, scope: !5)"
USE = "EXP_DONE 0, {}, $vgpr0, undef $vgpr1, undef $vgpr1, 0, 0, 1, implicit $exec"


def masked(register: str, constant: int = 15, tail: str = "") -> str:
    return f"{register} = V_AND_B32_e64 {constant}, $vgpr0, implicit $exec{tail}"


def repeated(narrow: str, again: str, define: str = "", use: str = "$vgpr3") -> Pair:
    """A value computed under the full EXEC and used under it; after allocation computed once more on the way."""
    pre = NARROW.format(
        livein="", define=masked("%0:vgpr_32", tail=LINE), wide="S_NOP 0", live=", $vgpr0", narrow="S_NOP 0",
        after=", $vgpr0", use=USE.format("%0"),
    )  # fmt: skip
    post = NARROW.format(
        livein="", define=define or masked("$vgpr2", tail=LINE), wide="S_NOP 0", live=", $vgpr0",
        narrow=f"{narrow}\n    S_NOP 0".strip(), after=", $vgpr0", use=f"{again}\n    {USE.format(use)}".strip(),
    )  # fmt: skip
    return Pair("gfx942", pre, post)


def test_a_repeated_instruction_gives_the_same_value() -> None:
    """Threads that waited in between know it too."""
    assert repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3")).audit().outcome is Outcome.PROVED
    assert repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3", tail=LINE)).audit().outcome is Outcome.PROVED
    assert (
        repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3", tail=", debug-location !9")).audit().outcome
        is Outcome.PROVED
    )


def test_another_instruction_does_not() -> None:
    assert repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3", 14)).rules() == {"instruction-sequence"}


def test_not_where_some_threads_wait() -> None:
    assert "value" in repeated(masked("$vgpr3"), "").rules()


def test_not_after_its_operand_has_changed() -> None:
    """While the threads waited, the others overwrote what it is computed from."""
    pair = repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3"))
    change = "$vgpr0 = V_MOV_B32_e32 1, implicit $exec"
    changed = Pair(
        pair.cpu,
        *(text.replace("    S_NOP 0\n    S_BRANCH", f"    {change}\n    S_BRANCH") for text in (pair.pre, pair.post)),
    )
    assert changed.pre != pair.pre
    assert changed.post != pair.post
    assert changed.rules() == {"value"}


def test_attributes_that_mean_something_make_it_another_instruction() -> None:
    odd = ", pcsections !3"
    pair = repeated("$vgpr2 = IMPLICIT_DEF", masked("$vgpr3", tail=odd))
    assert pair.audit().outcome is Outcome.REFUTED


def test_one_repeated_between_equal_instructions_is_not_taken_for_a_partner() -> None:
    """Six sums in a row; the second one's operand is computed again in between."""
    kept = [f"$vgpr{n + 2} = V_OR_B32_e64 {n}, $vgpr0, implicit $exec" for n in range(6)]
    before = [f"%{n + 1}:vgpr_32 = V_OR_B32_e64 {n}, $vgpr0, implicit $exec" for n in range(6)]
    sums = [f"%{n + 11}:vgpr_32 = V_ADD_U32_e64 $vgpr0, %{n + 1}, 0, implicit $exec" for n in range(6)]
    after = [f"$vgpr{n + 12} = V_ADD_U32_e64 $vgpr0, $vgpr{n + 2}, 0, implicit $exec" for n in range(6)]
    again = [
        after[0],
        "$vgpr3 = IMPLICIT_DEF",
        kept[1].replace("$vgpr3", "$vgpr9"),
        after[1].replace("$vgpr3", "$vgpr9"),
    ]

    def text(values: list[str], results: list[str], places: list[str]) -> str:
        return NARROW.format(
            livein="", define="\n    ".join(values), wide="S_NOP 0", live=", $vgpr0", narrow="S_NOP 0",
            after=", $vgpr0", use="\n    ".join([*results, *map(USE.format, places)]),
        )  # fmt: skip

    pre = text(before, sums, [f"%{n + 11}" for n in range(6)])
    entry = "  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }\n"
    numbers = [*range(1, 7), *range(11, 17)]
    pre = pre.replace(entry, entry + "".join(entry.replace("id: 0", f"id: {n}") for n in numbers))
    post = text(kept, [*again, *after[2:]], [f"$vgpr{n + 12}" for n in range(6)])
    rules = Pair("gfx942", pre, post).rules()
    assert rules <= {"live-in"}
    wrong = post.replace("$vgpr9 = V_OR_B32_e64 1,", "$vgpr9 = V_OR_B32_e64 2,")
    assert "value" in Pair("gfx942", pre, wrong).rules()
