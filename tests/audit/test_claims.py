"""What inference claims at the entry of a block is checked there, whatever it claims; nothing of it is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from allocation import Pair
from audit_support import ALL_USED, COMPARE, HEAD, KEEP, PAIRS, TAIL, USE, VALUE, in_blocks, under, with_value

import smt_verifier.audit.search as auditing
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.relation import Claims, Relation, Renaming
from smt_verifier.audit.core.state import IN_EXEC, MaskBits
from smt_verifier.certificate import verdict
from smt_verifier.outcome import Outcome

Change = Callable[[Claims], Claims]
VGPR1, VGPR9 = (-1 - 2 * n for n in (1, 9))


@pytest.fixture(autouse=True)
def _the_search_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one checker alone is at hand, the search must prove it too."""
    monkeypatch.setattr(verdict, "made_certificate", lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(verdict, "second_checker", lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]


def claimed(monkeypatch: pytest.MonkeyPatch, block: int, change: Change) -> None:
    """Inference claims something else at the entry of a block."""
    right = auditing.infer

    def wrong(product: Product, *, unite: bool = False) -> tuple[list[Claims | None], bool]:
        entries, united = right(product, unite=unite)
        if product.by_path:
            return entries, united
        claims = entries[block]
        assert claims is not None
        return [*entries[:block], change(claims), *entries[block + 1 :]], united

    monkeypatch.setattr(auditing, "infer", wrong)


def kept_by_some() -> Pair:
    """In the third block %0 is in $vgpr9 as well, but for the threads of one mask only."""
    blocks = [[*COMPARE[:2], VALUE], under(PAIRS[0]), [*ALL_USED[:8], USE]]
    before = with_value(in_blocks("$vgpr0", *blocks))
    blocks[1] = under(PAIRS[0], KEEP)
    return Pair("gfx942", before, in_blocks("$vgpr0, $vgpr1, $vgpr9", *blocks))


def places(relation: Relation, other: int = VGPR9) -> Relation:
    """With every lane in ``other`` too that is in $vgpr1."""
    return replace(relation, places={k: p | {other} if VGPR1 in p else p for k, p in relation.places.items()})


def test_the_right_claims_are_enough() -> None:
    assert Pair.audit(kept_by_some()).outcome is Outcome.PROVED


@pytest.mark.parametrize("number", range(4))
def test_a_place_that_one_class_does_not_have(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Claimed of one class of four: true of two."""
    wrong: list[bool] = []

    def change(claims: Claims) -> Claims:
        assert len(claims.classes) == 4
        signature, relation = list(claims.classes.items())[number]
        wrong.append(places(relation) != relation)
        return replace(claims, classes={**claims.classes, signature: places(relation)})

    claimed(monkeypatch, 2, change)
    outcome = kept_by_some().audit().outcome
    assert (outcome is Outcome.PROVED) is not wrong[0]


@pytest.mark.parametrize("number", range(2, 9))
def test_a_place_that_no_class_has(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Beside a right one, whichever of both comes first."""

    def change(claims: Claims) -> Claims:
        return replace(claims, classes={s: places(r, -1 - 2 * number) for s, r in claims.classes.items()})

    claimed(monkeypatch, 2, change)
    assert kept_by_some().audit().outcome is not Outcome.PROVED


def test_a_class_of_which_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed(monkeypatch, 2, lambda claims: replace(claims, classes=dict(list(claims.classes.items())[1:])))
    assert kept_by_some().audit().outcome is Outcome.UNKNOWN


def test_a_mask_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a register holds that is no mask at all."""
    claimed(monkeypatch, 2, lambda claims: replace(claims, masks=claims.masks | {(1, 2)}))
    assert kept_by_some().audit().outcome is not Outcome.PROVED


def test_frozen_threads_that_are_claimed_to_be_active(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = under(PAIRS[0])[1:]
    blocks = [[COMPARE[0], VALUE, "$sgpr2_sgpr3 = COPY $exec", narrow], [], [wide, USE], []]
    live = "$vgpr0, $vgpr1, $vgpr9, $sgpr2_sgpr3"
    pair = Pair("gfx942", with_value(in_blocks("$vgpr0, $sgpr2_sgpr3", *blocks)), in_blocks(live, *blocks))

    def all_active(claims: Claims) -> Claims:
        return replace(claims, classes={signature | IN_EXEC: r for signature, r in claims.classes.items()})

    claimed(monkeypatch, 1, all_active)
    assert pair.audit().outcome is not Outcome.PROVED


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_claim_that_is_handed_on_as_it_was(monkeypatch: pytest.MonkeyPatch, spoilt: bool) -> None:
    """One object is claimed of waiting threads before and behind a block: true unless the block wrote their lane."""
    right = auditing.infer
    handed_on: list[int] = []

    def wrong(product: Product, *, unite: bool = False) -> tuple[list[Claims | None], bool]:
        entries, united = right(product, unite=unite)
        if product.by_path:
            return entries, united
        first, second = entries[1:3]
        assert first is not None
        assert second is not None
        waiting = {s: r for s, r in first.classes.items() if not s & IN_EXEC and r.passes_on and s in second.classes}
        handed_on.append(len(waiting))
        entries[2] = replace(second, classes={**second.classes, **waiting})
        return entries, united

    narrow, wide = under(PAIRS[0])[1:]
    blocks = [[COMPARE[0], VALUE, "$sgpr2_sgpr3 = COPY $exec", narrow], [], [wide, USE]]
    before = with_value(in_blocks("$vgpr0, $sgpr2_sgpr3", *blocks))
    blocks[1] = ["$vgpr1 = WWM_COPY $vgpr0, implicit $exec"] if spoilt else []
    pair = Pair("gfx942", before, in_blocks("$vgpr0, $vgpr1, $sgpr2_sgpr3", *blocks))
    monkeypatch.setattr(auditing, "infer", wrong)
    assert (pair.audit().outcome is Outcome.PROVED) is not spoilt
    assert all(handed_on)


@pytest.mark.parametrize(("of", "only"), [(0b01001, 0b01001), (0b10001, 0b00101), (0b11101, 0b01101)])
def test_masks_get_other_bits_where_their_names_change(of: int, only: int) -> None:
    """Of four masks, the fourth keeps its bit, the fifth becomes the third, and the third is forgotten."""
    assert Renaming([(0b01000, 0b01000), (0b10000, 0b00100)]).only(of) == only


def test_a_mask_never_gets_the_bit_of_another() -> None:
    bits = MaskBits(4)
    assert [bits.of((1,)), bits.of((2,)), bits.of((1,)), bits.known((3,))] == [0b10000, 0b100000, 0b10000, 0]
    assert (bits.adopt((3,), 0b100), bits.adopt((1,), 0b1000), bits.of((4,))) == (0b100, 0b10000, 0b1000000)


JOINED = """  bb.0:
    successors: %bb.1, %bb.2
    liveins: $vgpr0

    S_CMP_EQ_U32 0, 0, implicit-def $scc
    S_CBRANCH_SCC1 %bb.2, implicit $scc

  bb.1:
    successors: %bb.3
    liveins: $vgpr0

    {one} = V_ADD_U32_e32 1, $vgpr0, implicit $exec
    {copied} = COPY {read_one}
    S_BRANCH %bb.3

  bb.2:
    successors: %bb.3
    liveins: $vgpr0

    {other} = V_ADD_U32_e32 2, $vgpr0, implicit $exec
    {spoilt} = COPY $vgpr0

  bb.3:
    liveins: {live}

    DS_WRITE_B32_gfx9 $vgpr0, {first}, 0, 0, implicit $exec :: (store (s32), addrspace 3)
    DS_WRITE_B32_gfx9 $vgpr0, {second}, 0, 0, implicit $exec :: (store (s32), addrspace 3)
"""
"""Two values, each defined on one of two paths, both in $vgpr1; on the first path it is in $vgpr2 as well."""


def joined(second: str) -> Pair:
    """%1 is read from $vgpr1, %2 from ``second``."""
    before = JOINED.format(
        one="%1:vgpr_32", copied="%3:vgpr_32", read_one="%1", other="%2:vgpr_32", spoilt="%4:vgpr_32", live="$vgpr0",
        first="%1", second="%2",
    )  # fmt: skip
    after = JOINED.format(
        one="$vgpr1", copied="$vgpr2", read_one="$vgpr1", other="$vgpr1", spoilt="$vgpr2",
        live="$vgpr0, $vgpr1, $vgpr2", first="$vgpr1", second=second,
    )  # fmt: skip
    row = next(line for line in HEAD.splitlines(keepends=True) if "id: 0" in line)
    rows = "".join(row.replace("id: 0", f"id: {n}") for n in range(1, 5))
    head, tail = HEAD[: HEAD.index("  bb.0")].replace(row, rows), TAIL.replace("$vgpr1", "$vgpr0")
    return Pair("gfx942", head + before + tail, head + after + tail)


def test_values_that_may_be_undefined_are_not_equal_for_being_in_one_place() -> None:
    """On the second path %1 is undefined, and $vgpr2 holds no %2."""
    assert "value" in joined("$vgpr2").rules()
    assert "value" not in joined("$vgpr1").rules()


def test_claims_of_no_place_make_no_lanes_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no goal, so nothing may follow from them."""
    right = auditing.infer
    seen: list[bool] = []

    def look(product: Product, *, unite: bool = False) -> tuple[list[Claims | None], bool]:
        entries, united = right(product, unite=unite)
        claims = entries[2]
        assert claims is not None
        nowhere = replace(claims, scalar=Relation(places={-1: frozenset(), -3: frozenset()}))
        state = nowhere.state(product.executor, lambda _pre, _post: None)
        terms = [product.executor.read(key, state.pre) for key in (-1, -3)]
        seen.append(terms[0] == terms[1])
        return entries, united

    monkeypatch.setattr(auditing, "infer", look)
    kept_by_some().audit()
    assert seen
    assert not any(seen)
