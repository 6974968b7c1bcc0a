"""Shared by the tests of training: labelled problems of real kernels, and a small model that has learned from some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_support import answered
from support import late

from verilocc_model.corpus.build import journal_row
from verilocc_model.corpus.labels import Label
from verilocc_model.corpus.shards import Record, ShardWriter, split_of
from verilocc_model.corpus.sources import Cell
from verilocc_model.training.config import TrainConfig

training = late("verilocc_model.training.run")

SMALL = TrainConfig(
    hidden=64, layers=2, heads=2, kv_heads=2, inner=128, window=512, batch_tokens=2048, learning_rate=3e-3, warmup=10,
    tokens=250_000, advice_rate=0.0, threads=1,
)  # fmt: skip
LEARNED_FROM = ("gemm_mma_lds.gfx942", "gemm_mma_lds.gfx90a", "attn_d64.gfx942")
PHASES: tuple[Any, ...] = ("sgpr", "vgpr")


def record(name: str, phase: Any, *, labelled: bool = True) -> Record:
    """The problem of a kernel of the train part, with the deterministic allocator's answer."""
    problem, proposal = answered(name, phase)
    found = (Cell.of("test", "gemm", problem.target, {"kernel": name}, {"try": number}) for number in range(100))
    cell = next(cell for cell in found if split_of(cell) == "train")
    labels = (Label(proposal.allocator, proposal.registers, 0, 0.0, 0),) if labelled else ()
    return Record(cell, problem, labels=labels)


def write_labelled(directory: Path, name: str, phase: Any) -> None:
    """Add that problem to a data set."""
    one = record(name, phase)
    writer = ShardWriter(directory, {}, {})
    writer.add([one.to_json()], [journal_row(one.cell, [{**one.facts(), "outcome": "kept"}])])


def train_small(data: Path, out: Path) -> None:
    """A small base from scratch; ``out`` is the directory of its run."""
    data.mkdir()
    for name in LEARNED_FROM:
        for phase in PHASES:
            write_labelled(data, name, phase)
    assert training.train([data], SMALL, out, lambda line: None)
