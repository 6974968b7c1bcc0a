"""Registers for the parts of one live range, so that few copies are executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verilocc_mlir.splitting.parts import Parts

_DEPTH = 3
"""Parts of parts: how often what does not fit in one register is divided again."""

_TRIED = 2
"""Registers tried for the greater part of a range."""


class Cover:
    """A start for each part, so that few copies are executed. Sets of parts are integers with a bit for each.

    Args:
        taken: for each start, the times of the range at which something else is there.
    """

    def __init__(self, parts: Parts, taken: Mapping[int, int]) -> None:
        self._sizes = [times.bit_count() for times in parts.times]
        self._areas: dict[int, int] = {}
        self._cuts = [(1 << c.left, 1 << c.right, c.weight) for c in parts.cuts]
        numbered = [(1 << number, times) for number, times in enumerate(parts.times)]
        self._blocked = {
            start: sum([bit for bit, times in numbered if times & there]) if there else 0
            for start, there in taken.items()
        }

    def run(self) -> dict[int, int] | None:
        cover = self._cover((1 << len(self._sizes)) - 1, _DEPTH)
        return cover and cover[1]

    def _cover(self, wanted: int, depth: int) -> tuple[float, dict[int, int]] | None:
        """The weight of the copies among the parts ``wanted``, and a start for each of them."""
        starts_of: dict[int, list[int]] = {}
        for start, blocked in self._blocked.items():
            missing = blocked & wanted
            if not missing:
                return 0.0, dict.fromkeys(_numbers(wanted), start)
            starts_of.setdefault(missing, []).append(start)
        if not depth or not wanted & (wanted - 1):
            return None
        inside = [cut for cut in self._cuts if cut[0] & wanted and cut[1] & wanted]
        priced = sorted(
            (sum([weight for left, right, weight in inside if (not left & missing) != (not right & missing)]), missing)
            for missing in starts_of
            if missing != wanted
        )
        ranked: list[tuple[float, int, int, int]] = []
        for price, missing in priced:
            if len(ranked) >= _TRIED and price > ranked[-1][0]:
                break  # Areas decide between equal prices only.
            ranked += [(price, self._area(missing), start, missing) for start in sorted(starts_of[missing])[:_TRIED]]
        best: tuple[float, dict[int, int]] | None = None
        tried: set[int] = set()
        for price, _, start, missing in sorted(ranked)[:_TRIED]:
            if missing in tried or (best is not None and price >= best[0]):
                continue
            tried.add(missing)
            total, starts_of_parts = price, dict.fromkeys(_numbers(wanted & ~missing), start)
            for group in self._groups(missing):
                inner = self._cover(group, depth - 1)
                if inner is None:
                    break
                total += inner[0]
                starts_of_parts |= inner[1]
            else:
                if best is None or total < best[0]:
                    best = total, starts_of_parts
        return best

    def _area(self, wanted: int) -> int:
        if wanted not in self._areas:
            self._areas[wanted] = sum(self._sizes[part] for part in _numbers(wanted))
        return self._areas[wanted]

    def _groups(self, wanted: int) -> Iterator[int]:
        """The parts that cuts connect with one another."""
        inside = [left | right for left, right, _ in self._cuts if left & wanted and right & wanted]
        while wanted:
            group, grown = 0, wanted & -wanted
            while grown != group:
                group = grown
                for ends in inside:
                    if ends & grown:
                        grown |= ends
            yield group
            wanted &= ~group


def _numbers(parts: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while parts:
        lowest = parts & -parts
        yield lowest.bit_length() - 1
        parts ^= lowest
