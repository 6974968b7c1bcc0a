"""Parts of a range are counted as sets, with the results of counting them one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from verilocc_mlir.splitting.parts import Cover, Cut, Links, Parts

_BITS = 60


@st.composite
def ranges(draw: st.DrawFn) -> Parts:
    """Parts in a row, as in straight code, with some cuts across, and some parts in several stretches of time."""
    count = draw(st.integers(2, 14))
    ends = sorted(draw(st.sets(st.integers(1, _BITS - 1), min_size=count - 1, max_size=count - 1)))
    times = [
        (1 << stop) - (1 << start) & ~draw(st.sampled_from([0, 0, 0, draw(st.integers(0, (1 << _BITS) - 1))]))
        for start, stop in zip([0, *ends], [*ends, _BITS], strict=True)
    ]
    number = st.integers(0, count - 1)
    pairs = [(k, k + 1) for k in range(count - 1) if draw(st.integers(0, 5))]
    pairs += [pair for pair in draw(st.lists(st.tuples(number, number), max_size=6)) if pair[0] != pair[1]]
    cuts = [Cut(0, 0, 0, draw(st.sampled_from([1.0, 2.0, 10.0, 40.0])), a, b, 1) for a, b in pairs]
    return Parts(tuple(times), tuple(cuts), {})


def members(parts: int) -> set[int]:
    return {number for number in range(parts.bit_length()) if parts >> number & 1}


def weight(range_: Parts, among: set[int], some: set[int]) -> float:
    """Of the cuts among these parts with one end in ``some``, by the definition."""
    inside = [c for c in range_.cuts if {c.left, c.right} <= among]
    return sum(c.weight for c in inside if (c.left in some) != (c.right in some))


def connected(range_: Parts, parts: set[int]) -> list[set[int]]:
    groups = [{part} for part in sorted(parts)]
    for cut in range_.cuts:
        touched = [group for group in groups if group & {cut.left, cut.right}]
        if {cut.left, cut.right} <= parts and len(touched) == 2:
            touched[0] |= touched[1]
            groups.remove(touched[1])
    return groups


@settings(max_examples=200, deadline=None)
@given(ranges(), st.data())
def test_sets_of_parts_are_what_counting_one_by_one_gives(range_: Parts, data: st.DataObject) -> None:
    links = Links(range_)
    every = (1 << len(range_.times)) - 1
    wanted = data.draw(st.integers(0, every))
    some = wanted & data.draw(st.integers(0, every))
    assert links.weight(links.inside(wanted), some) == weight(range_, members(wanted), members(some))
    assert [members(group) for group in links.groups(wanted)] == connected(range_, members(wanted))
    assert links.area(wanted) == sum(range_.times[part].bit_count() for part in members(wanted))
    taken = data.draw(st.integers(0, (1 << _BITS) - 1))
    assert members(links.blocked(taken)) == {part for part, times in enumerate(range_.times) if times & taken}
    assert bool(links.times & taken) == bool(links.blocked(taken))


@settings(max_examples=100, deadline=None)
@given(ranges(), st.lists(st.integers(0, (1 << _BITS) - 1), min_size=1, max_size=6))
def test_each_part_is_covered_by_a_start_that_is_free(range_: Parts, busy: list[int]) -> None:
    # Few stretches, as registers have them.
    taken = {start: times & (times << 3) & (times >> 3) for start, times in enumerate(busy)}
    starts = Cover(Links(range_), taken).run()
    if starts is not None:
        assert sorted(starts) == [*range(len(range_.times))]
        assert not any(range_.times[part] & taken[start] for part, start in starts.items())
