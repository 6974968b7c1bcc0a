"""The training loop: batches, loss on answers only, checkpoints, metrics. It can be interrupted at every step."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from verilocc_mlir.errors import InputError
from verilocc_model.encoding.examples import Window
from verilocc_model.encoding.writing import Writing, domain
from verilocc_model.training import checkpoint
from verilocc_model.training.config import TrainConfig
from verilocc_model.training.data import Batch, batches, plans
from verilocc_model.training.losses import Answers, answers_of

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Measured:
    """Loss, and the part of the answers that the model ranks first."""

    loss: float
    accuracy: float


class Trainer:
    """Trains one model (or an adapter on it) on windows.

    Args:
        model: a causal LM of transformers, or one that peft has wrapped.
        directory: directory of checkpoints and metrics.
        writing: how words are tokens; None: the domain's writing.
        reference: loads the model as it was before training, for preferences; None: there was none.
    """

    def __init__(
        self, model: Any, config: TrainConfig, directory: Path, say: Callable[[str], None],
        writing: Writing | None = None, reference: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self._load_reference = reference
        self._reference: Any = None
        self.writing = writing or domain()
        self.config = config
        self.directory = directory
        self.say = say
        self.progress = checkpoint.Progress()
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        if config.threads:
            torch.set_num_threads(config.threads)

    def resume(self, directory: Path) -> None:
        """Continue from a checkpoint; the model already has its weights."""
        self.progress = checkpoint.read_progress(directory)
        checkpoint.restore(directory, self.optimizer)

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
                        checkpoint.save(self.directory, self.model, self.optimizer, progress)
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
                answers = self._answers(batch)
                labelled = ~answers.preferences
                for stage, chosen in {
                    "planning": labelled & (answers.weights > 1.0),
                    "others": labelled & (answers.weights == 1.0),
                    "preferences": answers.preferences,
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
        answers = self._answers(batch)
        loss = (answers.losses * answers.weights).sum() / answers.weights.sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach()), float(len(answers.losses))

    def _answers(self, batch: Batch) -> Answers:
        config = self.config
        return answers_of(
            self.model, batch, bf16=config.bf16, beta=config.preference_beta, reference=self._before_training
        )

    def _before_training(self) -> Any:
        """The model that preferences are measured against."""
        if self._reference is None:
            if self._load_reference is None:
                raise InputError("preferences are for a model that is there already", hint="--set init=DIR names it")
            self._reference = self._load_reference()
        return self._reference

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


def _schedule(progress: checkpoint.Progress, config: TrainConfig) -> float:
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
