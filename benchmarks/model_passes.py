"""What batching several clients' requests could save: the passes' share of an answer's time, and what a pass of several
windows costs beside as many passes of one.

    .venv/bin/python benchmarks/model_passes.py KERNEL.ll... [--model DIR] [--batches 1 2 4] [--out FILE.json]

CPU seconds of one thread. First the answers to the SGPR and VGPR problems of each kernel, with the time in the passes;
then passes over windows of the mean length found, alone and together, in turn, the least of several rounds. ``saving``
is the part of an answer's time that would be gone if every pass had company. Needs the model extra.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "model"), str(REPOSITORY / "tests")]

import torch  # noqa: E402
from allocators_support import compile_phases  # noqa: E402
from support import cpu_of, pre_ra  # noqa: E402

from verilocc_mlir.allocators.protocol import AllocationFailure  # noqa: E402
from verilocc_mlir.problem.model import AllocationProblem  # noqa: E402
from verilocc_model.allocator import ModelAllocator  # noqa: E402
from verilocc_model.decoding import (  # noqa: E402
    Scorer,
    Scores,
    decode,
)
from verilocc_model.encoding.canonical import canonical  # noqa: E402
from verilocc_model.encoding.episode import Episode  # noqa: E402
from verilocc_model.encoding.table import Table  # noqa: E402

WEIGHTS = REPOSITORY / "model" / "verilocc_model" / "weights" / "base"
ROUNDS, REPEATS = 5, 10


class Timed:
    """A scorer, and the CPU seconds, passes and tokens it took."""

    def __init__(self, inner: Scorer) -> None:
        self._inner = inner
        self.name, self.limit, self.writing = inner.name, inner.limit, inner.writing
        self.seconds, self.passes, self.tokens = 0.0, 0, 0

    def begin(self) -> None:
        self._inner.begin()

    def cut(self, length: int) -> None:
        self._inner.cut(length)

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        start = time.process_time()
        found = self._inner.extend(tokens, positions)
        self.seconds += time.process_time() - start
        self.passes += 1
        self.tokens += len(tokens)
        return found


def answered(problem: AllocationProblem, scorer: Timed) -> float:
    """CPU seconds of a masked answer, tables included."""
    start = time.process_time()
    table = Table(canonical(problem).problem)
    decode(Episode(table), scorer)
    return time.process_time() - start


def side_by_side(model: Any, length: int, batches: Sequence[int]) -> dict[int, float]:
    """Milliseconds of a pass over so many windows of ``length`` tokens, by how many."""
    least = dict.fromkeys(batches, float("inf"))
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for count in batches:
                tokens = torch.zeros((count, length), dtype=torch.long)
                start = time.process_time()
                for _ in range(REPEATS):
                    model(input_ids=tokens)
                least[count] = min(least[count], (time.process_time() - start) / REPEATS)
    return {count: round(1000 * seconds, 2) for count, seconds in least.items()}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, default=WEIGHTS)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    allocator = ModelAllocator(arguments.model)
    loaded: Any = allocator.scorer("")
    scorer = Timed(loaded)
    seconds, answers = 0.0, 0
    for path in arguments.kernels:
        compiled = compile_phases(pre_ra(path), cpu_of(path), ("sgpr", "vgpr"))
        for run in (r for runs in compiled.runs.values() for r in runs):
            try:
                seconds += answered(run.problem, scorer)
            except AllocationFailure:
                continue
            answers += 1
    length = round(scorer.tokens / scorer.passes)
    together = side_by_side(loaded.model, length, sorted({1, *arguments.batches}))
    share = scorer.seconds / seconds
    result = {
        "model": allocator.version, "answers": answers, "cpu_seconds": round(seconds, 2), "passes": scorer.passes,
        "tokens_per_pass": length, "share_in_passes": round(share, 3), "milliseconds_by_batch": together,
        "saving": {n: round(share * (1 - ms / (n * together[1])), 3) for n, ms in together.items()},
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
