"""A tenth of October's labels of plans made again, beside those that are there.

    python benchmarks/relabel.py --cells FILE.json
    verilocc corpus plans --list FILE.json --most-instructions 3000 --kernel-seconds 600 --out DIR
    python benchmarks/relabel.py --again DIR

The tenth is fixed: by the digest of a kernel's name. Nothing is proved. How alike are the orders of answers, how often
is another answer the best one by more than the error bar, and what do the critic's choices bring by either labels?
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from common import REPOSITORY, Row, command, machine, options, tree, write

from verilocc_mlir.cost.compare import ERROR_BARS, Kind
from verilocc_model.corpus.stream import Counts, ListedKernel, write_list
from verilocc_model.plans.critic import Critic
from verilocc_model.plans.data import Labels
from verilocc_model.plans.evaluate import labels_of, scores
from verilocc_model.plans.policies import Rule

DATA = REPOSITORY / "model" / "data" / "plans" / "october"
WEIGHTS = REPOSITORY / "model" / "verilocc_model" / "weights" / "plans"


def chosen(kernels: Iterable[Labels]) -> list[Labels]:
    """A tenth."""
    return [k for k in kernels if int(hashlib.sha256(k.cell.name.encode()).hexdigest(), 16) % 10 == 0]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's; None where all of one side are equal."""
    ranks = [_ranks(values) for values in (first, second)]
    try:
        return statistics.correlation(*ranks)
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]


def row(old: Labels, new: Labels) -> Row:
    """One kernel by both labels."""
    both = sorted(old.plans.keys() & new.plans.keys())
    was, now = ([side.plans[plan]["cycles"] for plan in both] for side in (old, new))
    best = [both[costs.index(min(costs))] for costs in (was, now)]
    spills = old.plans[best[0]]["spills"], new.plans[best[0]]["spills"], new.plans[best[1]]["spills"]
    bar = ERROR_BARS[Kind.SPILLS if len(set(spills[1:])) > 1 else Kind.ORDER].value
    lost = new.plans[best[0]]["cycles"] / new.plans[best[1]]["cycles"]
    return {
        "kernel": old.cell.name,
        "target": old.cell.target,
        "promises": [old.has_promise, new.has_promise],
        "spills": bool(old.llvm["spills"]),
        "answers": len(both),
        "rank_correlation": rank_correlation(was, now) if len(both) > 3 else None,
        "best": best,
        "lost": round(lost, 4),
        "beyond_the_bar": lost > 1 + bar,
        "fast_over_llvm": [round(side.kept(side.fast) / side.llvm["cycles"], 4) for side in (old, new)],
        "best_over_fast": [round(side.kept(side.plans) / side.kept(side.fast), 4) for side in (old, new)],
    }


def summary(rows: Sequence[Row]) -> Row:
    """Of these kernels."""
    known = [r["rank_correlation"] for r in rows if r["rank_correlation"] is not None]
    return {
        "kernels": len(rows),
        "rank_correlation_median": round(statistics.median(known), 3) if known else None,
        "rank_correlation_quartiles": [round(q, 3) for q in statistics.quantiles(known, n=4)] if len(known) > 1 else [],
        "another_best": sum(r["best"][0] != r["best"][1] for r in rows),
        "another_best_beyond_the_bar": sum(r["beyond_the_bar"] for r in rows),
        "old_best_over_new_best": _mean([r["lost"] for r in rows]),
        "fast_over_llvm": [_mean([r["fast_over_llvm"][side] for r in rows]) for side in (0, 1)],
        "best_over_fast": [_mean([r["best_over_fast"][side] for r in rows]) for side in (0, 1)],
    }


def _mean(ratios: Sequence[float]) -> float:
    return round(math.exp(statistics.fmean(map(math.log, ratios))), 4)


def main() -> None:
    """Choose the kernels, or compare."""
    parser = options(__doc__, "relabel.json")
    parser.add_argument("--cells", type=Path, help="write which kernels are to be labelled, and end")
    parser.add_argument("--again", type=Path, help="labels made again")
    given = parser.parse_args()
    old = {k.cell.name: k for k in chosen(labels_of([DATA / "all-sources", DATA / "generated"]))}
    if given.cells:
        # Only the cells are read of it; the other columns are of lists with measured kernels.
        write_list(given.cells, [ListedKernel(k.cell, "", "", 0, Counts(0, 0, 0, 0, 0)) for k in old.values()], {})
        print(f"{len(old)} kernels, {sum(k.has_promise for k in old.values())} of them promise something")
        return
    new = {k.cell.name: k for k in labels_of([given.again])}
    names = [name for name in old if name in new]
    rows = [row(old[name], new[name]) for name in names]
    promising = [name for name in names if old[name].has_promise]
    unseen = [name for name in promising if old[name].split != "train" or old[name].held_out]
    parts = {
        "all": rows,
        "promising": [r for r in rows if r["promises"][0]],
        "where LLVM spills": [r for r in rows if r["spills"]],
    }
    critic = Critic.load(WEIGHTS)
    result = {
        "command": command(),
        "tree": tree(),
        "machine": machine(),
        "summary": {name: summary(of) for name, of in parts.items() if of},
        "critic": {
            f"{which}, {labels}": [asdict(score) for score in scores([Rule(), critic], [side[name] for name in of])]
            for which, of in (("promising", promising), ("promising, not learned from", unseen))
            for labels, side in (("old labels", old), ("new labels", new))
            if of
        },
        "kernels": rows,
    }
    write(given.out, result)
    print(json.dumps([result["summary"], result["critic"]], indent=1))


if __name__ == "__main__":
    sys.exit(main())
