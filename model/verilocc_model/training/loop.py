"""The training loop: batches, loss on answers only, checkpoints, metrics. It can be interrupted at every step."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from verilocc_mlir.errors import InputError
from verilocc_model.encoding.examples import Window
from verilocc_model.encoding.vocabulary import DOMAIN, Writing
from verilocc_model.training.config import TrainConfig
from verilocc_model.training.data import Batch, batches, plans

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Measured:
    """Loss, and the part of the answers that the model ranks first."""

    loss: float
    accuracy: float


@dataclass
class Trainer:
    """Trains one model (or an adapter on it) on windows.

    Attributes:
        model: a causal LM of transformers, or one that peft has wrapped.
        directory: directory of checkpoints and metrics.
        writing: how words are tokens.
    """

    model: Any
    config: TrainConfig
    directory: Path
    say: Callable[[str], None]
    writing: Writing = DOMAIN

    def __post_init__(self) -> None:
        config = self.config
        self.progress = Progress()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        if config.threads:
            torch.set_num_threads(config.threads)

    def resume(self, directory: Path) -> None:
        """Continue from a checkpoint; the model already has its weights. Nothing but tensors is unpickled.

        Raises:
            InputError: the directory is no checkpoint.
        """
        try:
            self.progress = Progress(**json.loads((directory / "progress.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"is no checkpoint: {error}", where=str(directory)) from error
        self.optimizer.load_state_dict(torch.load(directory / "optimizer.pt", weights_only=True))

    def run(self, data: Callable[[], tuple[Sequence[Window], Sequence[Window]]]) -> bool:
        """Train until the tokens are used up; False if the run was interrupted or out of time before.

        Args:
            data: gives the windows to train on and to validate on. It is called before each pass, so new data is used.
        """
        config, progress = self.config, self.progress
        self.directory.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        earlier = progress.seconds
        saved = start
        seen_loss, seen_answers, seen_tokens, seen_at = 0.0, 0.0, 0, start
        with _interruptible() as interrupted:
            while progress.tokens < config.tokens:
                training, validation = data()
                seed = config.seed * 1000 + progress.epoch
                windows = [*training, *plans(training, config.planning_repeats, seed, self.writing)]
                for batch in batches(windows, config.batch_tokens, config.planning_weight, seed, self.writing):
                    loss, count = self._step(batch)
                    progress.step += 1
                    progress.tokens += batch.size
                    progress.seconds = earlier + time.monotonic() - start
                    seen_loss += loss * count
                    seen_answers += count
                    seen_tokens += batch.size
                    time_now = time.monotonic()
                    out_of_time = bool(config.minutes) and time_now - start > 60 * config.minutes
                    is_last = interrupted() or out_of_time or progress.tokens >= config.tokens
                    if time_now - saved > 60 * config.checkpoint_minutes or is_last:
                        measured = self.validate(validation)
                        self._note(
                            measured, seen_loss / max(seen_answers, 1), seen_tokens / max(time_now - seen_at, 1e-9)
                        )
                        save(self.directory, self.model, self.optimizer, progress)
                        saved = seen_at = time.monotonic()
                        seen_loss, seen_answers, seen_tokens = 0.0, 0.0, 0
                    if is_last:
                        return progress.tokens >= config.tokens
                progress.epoch += 1
        return True

    def validate(self, windows: Sequence[Window], limit: int = 64) -> dict[str, Measured]:
        """Loss and accuracy by stage on at most ``limit`` batches."""
        totals: dict[str, list[float]] = {}
        self.model.eval()
        with torch.inference_mode():
            for number, batch in enumerate(batches(windows, self.config.batch_tokens, 2.0, 0, self.writing)):
                if number >= limit:
                    break
                answers = answers_of(self.model, batch, bf16=self.config.bf16)
                for stage, chosen in {
                    "planning": answers.weights > 1.0,
                    "others": answers.weights == 1.0,
                }.items():
                    if chosen.any():
                        entry = totals.setdefault(stage, [0.0, 0.0, 0.0])
                        entry[0] += float(answers.losses[chosen].sum())
                        entry[1] += float(answers.right[chosen].sum())
                        entry[2] += float(chosen.sum())
        self.model.train()
        return {stage: Measured(loss / n, right / n) for stage, (loss, right, n) in totals.items()}

    def _step(self, batch: Batch) -> tuple[float, float]:
        config, progress = self.config, self.progress
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * _schedule(progress, config)
        answers = answers_of(self.model, batch, bf16=self.config.bf16)
        loss = (answers.losses * answers.weights).sum() / answers.weights.sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach()), float(len(answers.losses))

    def _note(self, measured: dict[str, Measured], loss: float, rate: float) -> None:
        progress = self.progress
        row = {
            **asdict(progress),
            "loss": round(loss, 5),
            "tokens_per_second": round(rate, 1),
            "validation": {stage: asdict(figures) for stage, figures in measured.items()},
        }
        with (self.directory / METRICS).open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        summary = ", ".join(f"{s} {m.loss:.3f} {100 * m.accuracy:.1f} %" for s, m in measured.items())
        self.say(
            f"step {progress.step}, {progress.tokens:,} tokens, {rate:,.0f}/s: loss {loss:.4f}; held out: {summary}"
        )


def _schedule(progress: Progress, config: TrainConfig) -> float:
    """The learning rate as a part of its peak: warmed up, then a cosine down to a tenth."""
    warm = min(1.0, (progress.step + 1) / max(config.warmup, 1))
    progressed = progress.tokens / max(config.tokens, 1)
    if config.decay_minutes:
        progressed = max(progressed, progress.seconds / 60 / config.decay_minutes)
    return warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(progressed, 1.0))))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """With this, Ctrl-C and SIGTERM end the run after the current step, with a checkpoint."""
    heard: list[int] = []
    before: list[tuple[int, Any]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            before.append((number, signal.signal(number, lambda n, _: heard.append(n))))
        except ValueError:
            # Signals can be handled in the main thread only.
            break
    try:
        yield lambda: bool(heard)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


# Checkpoints from which a run can be continued.


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


# The loss of each answer in a batch.


@dataclass(frozen=True)
class Answers:
    """The answers of a batch, each tensor of shape (answers,).

    Attributes:
        losses: negative log-likelihood in nats.
        right: whether the answer is ranked first.
        weights: weights above 0.
    """

    losses: Tensor
    right: Tensor
    weights: Tensor


def answers_of(model: Any, batch: Batch, *, bf16: bool) -> Answers:
    """The losses of a causal language model on a batch.

    Args:
        model: a model of transformers, with or without an adapter.
        bf16: compute in bfloat16 where that is safe.
    """
    tokens, every = torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights)
    rows, columns = torch.nonzero(every[:, 1:], as_tuple=True)
    scores = _scores(model, tokens, rows, columns, bf16)
    expected = tokens[rows, columns + 1]
    losses = functional.cross_entropy(scores, expected, reduction="none")
    return Answers(losses, scores.argmax(-1) == expected, every[rows, columns + 1])


def _scores(model: Any, tokens: Tensor, rows: Tensor, columns: Tensor, bf16: bool) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        states = inner.base_model(input_ids=tokens).last_hidden_state
        # Only positions before an answer are scored, because the head is a large part of a small model.
        return inner.get_output_embeddings()(states[rows, columns]).float()
