"""``verilocc train``: a base from scratch or an adapter on a base, and the files that describe the result."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import write_whole
from verilocc_mlir.target.targets import target as known_target
from verilocc_mlir.version import __version__
from verilocc_model import lm
from verilocc_model.allocator import ADAPTERS, applied_for, family_of
from verilocc_model.card import CARD, read_card, write_card
from verilocc_model.corpus.shards import split_of
from verilocc_model.encoding.examples import Window
from verilocc_model.encoding.vocabulary import DOMAIN, TEXT, VOCABULARY_VERSION, Writing
from verilocc_model.training import loop
from verilocc_model.training.config import TrainConfig
from verilocc_model.training.data import encoded
from verilocc_model.training.entries import entries
from verilocc_model.training.loop import METRICS, Trainer

ENCODING_SECONDS = 60.0
"""Encoding time before each pass; problems that are not encoded by then are used in a later pass."""

_LIMITS = {"minutes": 0.0, "decay_minutes": 0.0, "tokens": 0, "threads": 0}
"""Settings that may differ when a run is continued."""

Say = Callable[[str], None]


@dataclass
class Data:
    """Windows of the labelled problems that a run may see. Directories are read at each call; a problem is encoded
    once.

    Raises:
        InputError: there are none.
    """

    directories: Sequence[Path]
    config: TrainConfig
    cache: Path
    say: Say
    kernels: int = 0
    writing: Writing = DOMAIN
    kept: dict[str, tuple[bool, list[Window]]] = field(default_factory=dict[str, "tuple[bool, list[Window]]"])

    def __call__(self) -> tuple[list[Window], list[Window]]:
        config = self.config
        chosen_entries = [e for e in entries(self.directories) if e.trains(config.targets)]
        if self.kernels:
            chosen = set(list(dict.fromkeys(e.cell.configuration for e in chosen_entries))[: self.kernels])
            chosen_entries = [e for e in chosen_entries if e.cell.configuration in chosen]
        windows_of = {e.key: self.kept[e.key] for e in chosen_entries if e.key in self.kept}
        stop = time.monotonic() + ENCODING_SECONDS
        for entry in chosen_entries:
            if entry.key in windows_of or (windows_of and time.monotonic() > stop):
                continue
            windows = encoded(entry, config.window, self.cache, config.advice_rate, self.writing)
            windows_of[entry.key] = split_of(entry.cell) == "train", windows
        self.kept = windows_of
        training = [w for train, windows in windows_of.values() if train for w in windows]
        validation = [w for train, windows in windows_of.values() if not train for w in windows]
        if not training:
            raise InputError("there is nothing to train on", where=", ".join(map(str, self.directories)))
        self.say(
            f"{len(self.kept)} of {len(chosen_entries)} problems, "
            f"{sum(len(w.tokens) for w in training):,} tokens to train on, "
            f"{sum(len(w.tokens) for w in validation):,} held out"
        )
        return training, validation or training[:64]


def train(
    directories: Sequence[Path], config: TrainConfig, out: Path, say: Say, *, base: Path | None = None, kernels: int = 0
) -> bool:
    """Train a model in ``out``, from scratch or from ``config.init``, or a LoRA adapter on a base, or continue the run
    there; False if it was interrupted.

    Args:
        base: a base of this project, or a pretrained causal language model with its tokenizer, which then reads and
            writes text.
        kernels: most kernels to train on; 0: all.

    Raises:
        InputError: no data; no base; another configuration was begun in ``out``.
    """
    named = config.init or config.start
    start = base or (Path(named) if named else None)
    card = read_card(start) if start else {}
    _same_run(out, config)
    begun = loop.find(out)
    if base is None:
        model: Any = lm.load_model(begun) if begun else lm.new_model(config)
        about = {"kind": "base", "start": config.start, "parameters": model.num_parameters()}
        if config.init:
            about["init"] = card["name"]
    else:
        # The adapter's files name the base's directory, so it must be absolute.
        frozen = lm.load_model(base.resolve()).float()
        shape = LoraConfig(
            r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules="all-linear",
            task_type="CAUSAL_LM",
        )  # fmt: skip
        model = (
            PeftModel.from_pretrained(frozen, str(begun), is_trainable=True) if begun else get_peft_model(frozen, shape)
        )
        about = {"kind": "adapter", "base": card["name"], "targets": list(config.targets)}
    writing = lm.load_writing(start, card["encoding"]) if start else DOMAIN
    model.train()
    say(f"{model.num_parameters():,} parameters" + (f", going on from {begun}" if begun else ""))
    trainer = Trainer(model, config, out, say, writing)
    if begun:
        trainer.resume(begun)
    finished = trainer.run(Data(directories, config, out / "windows", say, kernels, writing))
    _finish(out, model, config, trainer, about, start)
    return finished


def _same_run(out: Path, config: TrainConfig) -> None:
    """Raises InputError where ``out`` holds a run of another configuration; limits of a run may differ."""
    path = out / "config.json"
    settings = {**config.to_data(), **_LIMITS}
    if path.exists():
        # A setting that was added later had its default value.
        begun = {**TrainConfig().to_data(), **json.loads(path.read_text()), **_LIMITS}
        differing = sorted(k for k in settings if begun.get(k) != settings[k])
        if differing:
            raise InputError(
                f"a run with another {', '.join(differing)} was begun here", where=str(out), hint="choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(config.to_data(), indent=1).encode())


def _finish(
    out: Path, model: Any, config: TrainConfig, trainer: Trainer, about: dict[str, Any], start: Path | None
) -> None:
    """Write the result: weights, card, metrics, and the tokenizer of ``start`` where the model writes text."""
    final = out / "model"
    model.save_pretrained(final, safe_serialization=True)
    if start and trainer.writing.kind == TEXT:
        lm.copy_tokenizer(start, final)
    rows = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    card = {
        "name": f"{out.name}-{trainer.progress.tokens // 1000}k",
        "vocabulary": VOCABULARY_VERSION,
        "encoding": trainer.writing.kind,
        "window": config.window,
        **about,
        "verilocc": __version__,
        "commit": commit(),
        "tokens": trainer.progress.tokens,
        "seconds": round(trainer.progress.seconds),
        "seed": config.seed,
        "validation": rows[-1]["validation"] if rows else {},
    }
    write_card(final, card, config, applied_for(config.targets))
    write_whole(out / "metrics.json", json.dumps({"config": config.to_data(), "rows": rows}, indent=1).encode())


def commit() -> str:
    """The commit that this runs from; ``""`` where it is not known."""
    here = Path(__file__).resolve().parent
    try:
        git = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""


# ``verilocc adapt``: a model for a GPU that its base has not seen.


ADAPTATION = TrainConfig(batch_tokens=2048, learning_rate=5e-4, warmup=20, tokens=1_500_000, minutes=30.0)
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
    config = replace(config, targets=(target,), decay_minutes=config.minutes)
    train(directories, config, run, say, base=base, kernels=kernels)
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
