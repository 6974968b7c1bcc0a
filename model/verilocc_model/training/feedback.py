"""A model's mistakes as examples: unmasked answers that were refuted, with the verifier's counterexamples.

A model trained on them learns to answer after a refutation. The prompt says what was refuted; the right answer is one
that needs no look-ahead, with registers to spare (``encoding.examples.sure_windows``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import Refutation
from verilocc_mlir.pipeline.regenerate import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.table import Table
from verilocc_model.training.entries import Entry, Labelled, write_each
from verilocc_model.training.samples import Asking, ScorerFor, sampled

FURTHER = 1.5
"""Factor of the temperature for samples after the first, so that they differ from it."""


def collect(
    chosen: Sequence[Entry], out: Path, model: ScorerFor, asking: Asking, say: Callable[[str], None]
) -> Counter[str]:
    """Write a file for each problem to which an answer is refuted. A file that exists is left as it is.

    Args:
        chosen: the problems; all must be for training.
        out: directory of the files, which ``training.entries`` reads.
        asking: how answers are drawn.

    Returns:
        How many answers were ``proved``, ``refuted``, or neither (``none``).
    """

    def find(labelled: Labelled, counts: Counter[str]) -> dict[str, Any] | None:
        refutations = [
            {
                "registers": list(refutation.proposal.registers),
                "counterexamples": [asdict(c) for c in refutation.counterexamples],
                "moves": list(refutation.moves),
            }
            for refutation in _refuted(labelled, model, asking, counts)
        ]
        return {"refuted": refutations} if refutations else None

    return write_each(chosen, out, find, say)


def _refuted(labelled: Labelled, model: ScorerFor, asking: Asking, counts: Counter[str]) -> Iterator[Refutation]:
    form = canonical(labelled.problem)
    draws = (asking.draw(k, FURTHER if k else 1.0) for k in range(asking.samples))
    for sample in sampled(Table(form.problem), model(labelled.target), draws, mask=False):
        if sample is None:
            counts["none"] += 1
            continue
        proposal = Proposal(PROBLEM_VERSION, "model", form.restored(sample[1].registers))
        proof = prove(labelled.problem, proposal, timeout_s=asking.seconds)
        if proof.outcome is Outcome.PROVED:
            counts["proved"] += 1
        elif proof.violations:
            counts["refuted"] += 1
            yield refutation_of(labelled.problem, proposal, proof)
        else:
            counts["none"] += 1
