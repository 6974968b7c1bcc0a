"""``verilocc adapt``: a model for a GPU that its base has not seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from verilocc_mlir.files import write_whole
from verilocc_mlir.target.targets import target as known_target
from verilocc_model.allocator import ADAPTERS, family_of
from verilocc_model.card import CARD, read_card
from verilocc_model.training.config import TrainConfig
from verilocc_model.training.run import train_adapter

ADAPTATION = TrainConfig(
    batch_tokens=2048, learning_rate=5e-4, warmup=20, tokens=1_500_000, minutes=30.0, hold_out=0.1, advice_rate=0.1,
    threads=0,
)  # fmt: skip
"""The default configuration of ``adapt``; it trains for half an hour at most."""


def adapt(
    target: str,
    base: Path,
    directories: Sequence[Path],
    out: Path,
    say: Callable[[str], None],
    *,
    config: TrainConfig = ADAPTATION,
    kernels: int = 0,
) -> Path:
    """Train an adapter for a GPU's family, and put base and adapters together.

    Args:
        target: the GPU; only problems for it are trained on.
        base: a model, with or without adapters for other families.
        out: directory of the run (``out/FAMILY``, which can be resumed) and of the model (``out/model``).
        config: configuration of the run; its targets are replaced.
        kernels: most kernels to train on; 0: all.

    Returns:
        The directory of the model.

    Raises:
        InputError: there is no such GPU, no base, or nothing to train on.
    """
    known_target(target)
    family = family_of(target)
    run = out / family
    # Running out of time is no failure here.
    train_adapter(
        base, directories, replace(config, targets=(target,), decay_minutes=config.minutes), run, say, kernels=kernels
    )
    partial, model = out / "model.partial", out / "model"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(base, partial)
    if not (partial / CARD).exists():
        # A pretrained model of others has no card, so it gets one.
        write_whole(partial / CARD, json.dumps({**read_card(base), "window": config.window}, indent=1).encode())
    shutil.rmtree(partial / ADAPTERS / family, ignore_errors=True)
    shutil.copytree(run / "model", partial / ADAPTERS / family)
    shutil.rmtree(model, ignore_errors=True)
    partial.rename(model)
    return model
