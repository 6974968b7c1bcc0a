"""The part that models had in a compilation: which were asked, how often, and how often they were refuted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from smt_verifier.outcome import Outcome

if TYPE_CHECKING:
    from verilocc_mlir.allocators.protocol import ModelUse
    from verilocc_mlir.results.compile import Attempt, FunctionReport


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One model, with one adapter or none, here or behind a server.

    Attributes:
        adapter: that was applied; ``""`` for none.
        server: its address; ``""`` for a model of this process.
        tries: answers that it was asked for.
        refuted: those of them that the proof refuted.
        tokens: that it read.
        seconds: wall time of its answers.
        note: see ``ModelUse``.
    """

    model: str
    adapter: str
    server: str
    tries: int
    refuted: int
    tokens: int
    seconds: float
    note: str

    def line(self) -> str:
        """For people."""
        adapter = f"adapter {self.adapter}" if self.adapter else "no adapter"
        where = f" of {self.server}" if self.server else ""
        count = f"{self.tries} {'try' if self.tries == 1 else 'tries'}, {self.refuted} refuted"
        note = f"; {self.note}" if self.note else ""
        return f"{self.model}, {adapter}{where}: {count}, {self.tokens} tokens, {self.seconds:.2f} s{note}"


def model_parts(functions: Iterable[FunctionReport]) -> tuple[ModelPart, ...]:
    """Of all functions together, in the order in which they were first asked."""
    attempts = (attempt for function in functions for phase in function.phases for attempt in phase.attempts)
    return together(part for attempt in attempts for part in _parts(attempt))


def of_documents(reports: Iterable[Mapping[str, Any]]) -> tuple[ModelPart, ...]:
    """Of several compilations, from their JSON documents."""
    rows: Iterable[Mapping[str, Any]] = (row for report in reports for row in report.get("models", ()))
    return together(
        ModelPart(
            row["model"], row["adapter"] or "", row["server"] or "", row["tries"], row["refuted"], row["tokens"],
            row["seconds"], row["note"] or "",
        )
        for row in rows
    )  # fmt: skip


def together(parts: Iterable[ModelPart]) -> tuple[ModelPart, ...]:
    """Added up by model, adapter and server."""
    sums: dict[tuple[str, ...], ModelPart] = {}
    for part in parts:
        key = part.model, part.adapter, part.server, part.note
        if known := sums.get(key):
            part = replace(
                part,
                tries=known.tries + part.tries,
                refuted=known.refuted + part.refuted,
                tokens=known.tokens + part.tokens,
                seconds=known.seconds + part.seconds,
            )
        sums[key] = part
    return tuple(sums.values())


def _parts(attempt: Attempt) -> Iterable[ModelPart]:
    if attempt.model is not None:
        yield _part(attempt.model, "", attempt.outcome is Outcome.REFUTED)
    for one in attempt.tries:
        if one.model is not None:
            yield _part(one.model, attempt.server, one.outcome == str(Outcome.REFUTED))


def _part(use: ModelUse, server: str, refuted: bool) -> ModelPart:
    return ModelPart(use.model, use.adapter, server, 1, int(refuted), use.tokens, use.seconds, use.note)
