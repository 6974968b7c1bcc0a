"""Registers for the parts of one live range, so that few copies are executed."""

from __future__ import annotations

from collections.abc import Mapping

from verilocc_mlir.splitting.parts import Parts, Union, join, root

_DEPTH = 3
"""Parts of parts: how often what does not fit in one register is divided again."""

_TRIED = 2
"""Registers tried for the greater part of a range."""


class Cover:
    """A start for each part, so that few copies are executed.

    Args:
        taken: for each start, the times of the range at which something else is there.
    """

    def __init__(self, parts: Parts, taken: Mapping[int, int]) -> None:
        self._times = parts.times
        self._cuts = parts.cuts
        self._taken = taken

    def run(self) -> dict[int, int] | None:
        found = self._cover(frozenset(range(len(self._times))), _DEPTH)
        return found and found[1]

    def _cover(self, wanted: frozenset[int], depth: int) -> tuple[float, dict[int, int]] | None:
        """The weight of the copies among the parts ``wanted``, and a start for each of them."""
        union = 0
        for part in wanted:
            union |= self._times[part]
        for start, taken in self._taken.items():
            if not taken & union:
                return 0.0, dict.fromkeys(wanted, start)
        if not depth or len(wanted) == 1:
            return None
        ranked: list[tuple[float, int, int, frozenset[int]]] = []
        for start, taken in self._taken.items():
            blocked = taken & union
            missing = frozenset(p for p in wanted if self._times[p] & blocked)
            if len(missing) < len(wanted):
                price = sum(
                    c.weight
                    for c in self._cuts
                    if c.left in wanted and c.right in wanted and (c.left in missing) != (c.right in missing)
                )
                area = sum(self._times[p].bit_count() for p in missing)
                ranked.append((price, area, start, missing))
        best: tuple[float, dict[int, int]] | None = None
        for price, _, start, missing in sorted(ranked, key=lambda r: r[:3])[:_TRIED]:
            if best is not None and price >= best[0]:
                continue
            total, starts = price, dict.fromkeys(wanted - missing, start)
            for group in self._groups(missing):
                inner = self._cover(group, depth - 1)
                if inner is None:
                    break
                total += inner[0]
                starts |= inner[1]
            else:
                if best is None or total < best[0]:
                    best = total, starts
        return best

    def _groups(self, wanted: frozenset[int]) -> list[frozenset[int]]:
        """The parts that cuts connect with one another."""
        union: Union = {part: part for part in wanted}
        for cut in self._cuts:
            if cut.left in wanted and cut.right in wanted:
                join(union, cut.left, cut.right)
        groups: dict[object, set[int]] = {}
        for part in sorted(wanted):
            groups.setdefault(root(union, part), set()).add(part)
        return [frozenset(group) for group in groups.values()]
