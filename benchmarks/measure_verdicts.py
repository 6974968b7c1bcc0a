"""How often ``verilocc measure`` is wrong, on times that hardware took: one code against itself.

    .venv/bin/python benchmarks/measure_verdicts.py --hub DIR

DIR is Kernel Tuner's public benchmark hub (AutoTuningAssociation/benchmark_hub, MIT licence) or its ``cachefiles``; of
it the caches of convolution and dedispersion on an MI250X and a W7800 are read. Each configuration has 32 times in the
order in which they were taken. They are split in two ways into a base and a candidate, which are then the same code, so
that "faster" and "slower" are wrong:

* in turns: of each four times two are the base's and two the candidate's, as rounds of ``verilocc measure`` are taken;
* one after the other: the first sixteen are the base's, the last sixteen the candidate's, as two runs of a tool are.

Nothing of the hub is kept but the counts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import REPOSITORY, options, tree, write

sys.path[:0] = [str(REPOSITORY)]

from verilocc_mlir.measure.device import read_recording  # noqa: E402
from verilocc_mlir.measure.runner import compare  # noqa: E402
from verilocc_mlir.results.measure import Round  # noqa: E402

SETS = [f"{kernel}_milo/{gpu}" for kernel in ("convolution", "dedispersion") for gpu in ("MI250X", "W7800")]
TIES = (0.0, 0.01)
_TIMES, _CONFIDENCE = 32, 0.95


def in_turns(times: Sequence[float]) -> list[Round]:
    """Eight rounds of two and two; who begins changes."""
    rounds: list[Round] = []
    for at in range(0, _TIMES, 4):
        a, b, c, d = times[at : at + 4]
        rounds.append(Round((a, b), (c, d)) if at % 8 == 0 else Round((c, d), (a, b)))
    return rounds


def one_after_the_other(times: Sequence[float]) -> list[Round]:
    """Eight rounds too, of the first half and the second."""
    half = _TIMES // 2
    return [Round(tuple(times[at : at + 2]), tuple(times[half + at : half + at + 2])) for at in range(0, half, 2)]


def recordings(hub: Path) -> Iterator[tuple[str, list[tuple[float, ...]]]]:
    """The times of each configuration that has them all, by set."""
    for name in SETS:
        path = next((p for p in (hub / "cachefiles" / f"{name}.json.gz", hub / f"{name}.json.gz") if p.exists()), None)
        if path is None:
            raise SystemExit(f"{hub} has no {name}.json.gz")
        yield name, [times for times in read_recording(path).times.values() if len(times) >= _TIMES]


def counted(configurations: Sequence[Sequence[float]]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for split in (in_turns, one_after_the_other):
        for tie in TIES:
            counter = counts.setdefault(f"{split.__name__.replace('_', ' ')}, tie {tie:g}", Counter())
            for times in configurations:
                counter[compare(split(times), confidence=_CONFIDENCE, tie=tie).verdict.value] += 1
    return {name: dict(sorted(counter.items())) for name, counter in counts.items()}


def main() -> None:
    parser = options(__doc__, "measure_verdicts.json")
    parser.add_argument("--hub", type=Path, required=True, help="The hub, or its cachefiles.")
    given = parser.parse_args()
    sets = {name: {"configurations": len(times), **counted(times)} for name, times in recordings(given.hub)}
    write(given.out, {"command": "benchmarks/measure_verdicts.py --hub DIR", "tree": tree(), "sets": sets})
    print(json.dumps(sets, indent=1))


if __name__ == "__main__":
    main()
