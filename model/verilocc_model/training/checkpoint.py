"""Checkpoints from which a run can be continued."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from verilocc_mlir.errors import InputError


@dataclass
class Progress:
    """How far a run is: steps and tokens done, passes over the data begun, seconds spent."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    seconds: float = 0.0


def save(directory: Path, model: Any, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write a checkpoint beside the last one, then replace that, so that one of the two is always complete."""
    partial = directory / "checkpoint.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save_pretrained(partial, safe_serialization=True)
    torch.save(optimizer.state_dict(), partial / "optimizer.pt")
    (partial / "progress.json").write_text(json.dumps(asdict(progress)))
    last = directory / "checkpoint"
    old = directory / "checkpoint.old"
    shutil.rmtree(old, ignore_errors=True)
    if last.exists():
        last.rename(old)
    partial.rename(last)
    shutil.rmtree(old, ignore_errors=True)


def find(directory: Path) -> Path | None:
    """The checkpoint to continue from; None where there is none."""
    for name in ("checkpoint", "checkpoint.old"):
        if (directory / name / "progress.json").exists():
            return directory / name
    return None


def read_progress(checkpoint: Path) -> Progress:
    """The progress at a checkpoint.

    Raises:
        InputError: the directory is no checkpoint.
    """
    try:
        return Progress(**json.loads((checkpoint / "progress.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"is no checkpoint: {error}", where=str(checkpoint)) from error


def restore(checkpoint: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state; nothing but tensors is unpickled."""
    optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
