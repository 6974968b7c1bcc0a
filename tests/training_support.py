"""Shared by the tests of training: labelled problems of real kernels, and a small model that has learned from some."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from model_support import answered
from support import late

from verilocc_mlir.problem.schema import to_json
from verilocc_model.training.config import TrainConfig

training = late("verilocc_model.training.run")

SMALL = TrainConfig(
    hidden=64, layers=2, heads=2, kv_heads=2, inner=128, window=512, batch_tokens=2048, learning_rate=3e-3, warmup=10,
    tokens=250_000, hold_out=0.0, advice_rate=0.0, threads=1,
)  # fmt: skip
LEARNED_FROM = ("gemm_mma_lds.gfx942", "gemm_mma_lds.gfx90a", "attn_d64.gfx942")
PHASES: tuple[Any, ...] = ("sgpr", "vgpr")


def write_labelled(directory: Path, name: str, phase: Any) -> Path:
    problem, proposal = answered(name, phase)
    row = {
        "name": name, "source": "test", "family": "gemm", "target": problem.target, "phase": phase,
        "problem": json.loads(to_json(problem)), "registers": list(proposal.registers),
    }  # fmt: skip
    path = directory / f"test.{name.replace('.', '_')}.{problem.target}.{phase}.0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    return path


def train_small(data: Path, out: Path) -> None:
    """A small base from scratch; ``out`` is the directory of its run."""
    data.mkdir()
    for name in LEARNED_FROM:
        for phase in PHASES:
            write_labelled(data, name, phase)
    assert training.train_base([data], SMALL, out, lambda line: None)
