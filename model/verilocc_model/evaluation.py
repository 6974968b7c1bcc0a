"""``verilocc eval``: the model and the trivial policies on the same problems, under the same mask, every answer proved.

Policies: ``model``; ``draft``, the episode's own answers, which need no model; ``meets``, the draft with every place
that meets more; ``first-fit`` and ``random``, under the same mask; ``exact``, the exact allocator, which loses the
fewest waves; ``improved``, the deterministic allocator followed by local moves. An answer of ``exact`` counts only if
it is proved that no other loses fewer waves, and none in as many waves leaves fewer copies.

Modes: ``masked`` (mask and look-ahead), ``mask-only`` (no look-ahead, so there are dead ends), ``unmasked`` (no
legality check: the word that the model ranks first is taken; the prompt says that nothing looks ahead, and does not
state the results of searches). An answer *passes* if ``smt_verifier`` proves it; nothing is repaired and no other
allocator takes over.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import convert

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.exact import ExactAllocator
from verilocc_mlir.allocators.protocol import AllocationFailure, Refutation
from verilocc_mlir.errors import InputError
from verilocc_mlir.files import JsonLines
from verilocc_mlir.pipeline.attempt import refutation_of
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_model.corpus.labels import IMPROVED, improving
from verilocc_model.corpus.shards import Record
from verilocc_model.decoding import Decoded, FirstFit, RandomChoice, Sampling, Scorer, decode
from verilocc_model.encoding.canonical import Canonical, canonical
from verilocc_model.encoding.episode import Episode, draft
from verilocc_model.encoding.examples import cells_of
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.repair import Remainder, guidance_of, remainders

MODES = ("masked", "mask-only", "unmasked")
MEETING = "meets"
DRAFTS = ("draft", MEETING)
POLICIES = ("model", *DRAFTS, "first-fit", "random")
EXACT = "exact"
ALGORITHMS = (EXACT, IMPROVED)
FIRST, TOLD = "first", "told"


@dataclass(frozen=True)
class EvalConfig:
    """What is measured.

    Attributes:
        modes: of ``MODES``.
        policies: of ``POLICIES`` and ``ALGORITHMS``.
        samples: further, sampled answers of the model in each mode, for pass@k and the best of n.
        feedback: make a second attempt after each unmasked answer of the model that is refuted. It is told what was
            refuted, keeps what need not move, and takes the best-ranked answer.
        temperature: temperature of the samples.
        seed: seed of the samples and of the random policy.
        seconds: wall time for one answer.
        exact_seconds: wall time for one answer of the exact allocator.
    """

    modes: tuple[str, ...] = MODES
    policies: tuple[str, ...] = POLICIES
    samples: int = 0
    feedback: bool = False
    temperature: float = 0.7
    seed: int = 0
    seconds: float = 60.0
    exact_seconds: float = 20.0


@dataclass(frozen=True)
class Row:
    """One answer to one problem.

    Attributes:
        sample: -1 for the answer that is not sampled.
        attempt: ``FIRST``; or a second attempt after the answer of the same ``sample`` was refuted, ``TOLD`` what was
            refuted.
        price, deterministic, greedy: the prices of this answer and of the other allocators' answers; None without one.
        decode_seconds: CPU time of building tables and decoding.
        wall_seconds: wall time of building tables, decoding and the proof.
    """

    name: str
    source: str
    family: str
    target: str
    phase: str
    ranges: int
    policy: str
    mode: str
    sample: int
    attempt: str
    outcome: str
    reason: str
    price: Price | None
    deterministic: Price | None
    greedy: Price | None
    questions: int
    agreed: int
    refused: int
    passes: int
    tokens: int
    decode_seconds: float
    wall_seconds: float

    @property
    def proved(self) -> bool:
        return self.outcome == "proved"


def evaluate(problems: Iterable[Record], model: Callable[[str], Scorer] | None, config: EvalConfig) -> Iterator[Row]:
    """Rows for each problem, as they are measured.

    Args:
        problems: the problems; their labels are not used.
        model: the scorer for a target; None leaves the model out.
    """
    for problem in problems:
        yield from _of_problem(problem, model, config)


def _of_problem(record: Record, model: Callable[[str], Scorer] | None, config: EvalConfig) -> Iterator[Row]:
    rivals = _rivals(record)
    for policy in config.policies:
        for mode in config.modes:
            if (policy in (*DRAFTS, *ALGORITHMS) and mode != "masked") or (policy == "model" and model is None):
                continue
            scorer = _scorer(policy, record.cell.target, model, config.seed)
            asked = partial(_answered, record, rivals, scorer, policy, mode, config)
            for sample in range(-1, config.samples if policy == "model" else 0):
                row, refuted = asked(sample, FIRST, ())
                yield row
                if policy == "model" and mode == "unmasked" and config.feedback and refuted:
                    yield asked(sample, TOLD, refuted)[0]


def _rivals(record: Record) -> tuple[Price | None, Price | None]:
    """The prices of the deterministic allocator's answer and of LLVM's greedy one."""
    deterministic: Price | None = None
    with contextlib.suppress(AllocationFailure):
        deterministic = _price(record, DeterministicAllocator(packed=True).allocate(record.problem).registers)
    return deterministic, _price(record, record.greedy) if record.greedy else None


def _scorer(policy: str, target: str, model: Callable[[str], Scorer] | None, seed: int) -> Scorer | None:
    if policy == "model" and model is not None:
        return model(target)
    trivial: dict[str, Callable[[], Scorer]] = {"first-fit": FirstFit, "random": lambda: RandomChoice(seed)}
    return trivial[policy]() if policy in trivial else None


def _answered(
    record: Record,
    rivals: tuple[Price | None, Price | None],
    scorer: Scorer | None,
    policy: str,
    mode: str,
    config: EvalConfig,
    sample: int,
    attempt: str,
    refuted: tuple[Refutation, ...],
) -> tuple[Row, tuple[Refutation, ...]]:
    # A prompt that says what was refuted differs from the first, so the best-ranked answer does too.
    temperature = 0.0 if attempt == TOLD or sample < 0 else config.temperature
    sampling = Sampling(temperature, config.seed * 1000 + sample, config.seconds)
    start, cpu = time.perf_counter(), time.process_time()
    decoded = Decoded()
    outcome, reason = "failed", ""
    price: Price | None = None
    refutations: tuple[Refutation, ...] = ()
    try:
        if policy in ALGORITHMS:
            proposal, reason = {EXACT: _exactly, IMPROVED: _improved}[policy](record.problem, config)
        else:
            part, form, table = _asked_about(record.problem, refuted)
            table.check_pressure()
            guidance = guidance_of(part.refuted, form, table)
            episode = Episode(
                table,
                mask=mode != "unmasked",
                lookahead=mode == "masked",
                advice=guidance.advice,
                refuted=guidance.grants,
                sure=len(part.ids) < len(record.problem.ranges),
            )
            decoded = decode(episode, scorer, sampling) if scorer else _drafted(episode, policy == MEETING)
            proposal = Proposal(PROBLEM_VERSION, policy, part.whole(form.restored(decoded.registers)))
        cpu = time.process_time() - cpu
        proof = prove(record.problem, proposal, timeout_s=config.seconds)
        outcome = str(proof.outcome).lower()
        if proof.violations:
            refutations = (refutation_of(record.problem, proposal, proof),)
            reason = proof.violations[0].rule
        elif proof.outcome is Outcome.PROVED and not reason:
            price = _price(record, proposal.registers)
    except AllocationFailure as failure:
        cpu = time.process_time() - cpu
        reason = failure.reason
    wall = time.perf_counter() - start
    cell, problem = record.cell, record.problem
    row = Row(
        cell.name, cell.source, cell.family, cell.target, problem.phase, len(problem.ranges), policy, mode,
        sample, attempt, outcome, reason, price, *rivals, decoded.questions, decoded.agreed,
        decoded.refused, decoded.passes, decoded.tokens, round(cpu, 4), round(wall, 4),
    )  # fmt: skip
    return row, refutations


def _asked_about(problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> tuple[Remainder, Canonical, Table]:
    """The part that must move, if the rest leaves room for it; else the whole problem."""
    *smaller, everything = remainders(problem, refuted)
    for part in smaller:
        form = canonical(part.problem)
        table = Table(form.problem)
        with contextlib.suppress(AllocationFailure):
            table.check_pressure()
            return part, form, table
    form = canonical(everything.problem)
    return everything, form, Table(form.problem)


def _price(record: Record, registers: tuple[str, ...]) -> Price:
    form = canonical(record.problem)
    table = Table(form.problem)
    return price_of(table, cells_of(table, form.permuted(registers)))


def _exactly(problem: AllocationProblem, config: EvalConfig) -> tuple[Proposal, str]:
    """The exact allocator's answer; with ``open`` where it is not proved that nothing is cheaper."""
    result = ExactAllocator(config.exact_seconds, order="waves").solve(problem)
    table = Table(canonical(problem).problem)
    fewest_waves_lost = table.waves(result.registers) >= table.waves(result.registers_bound)
    return result.proposal, "" if fewest_waves_lost and result.copies_optimal else "open"


def _improved(problem: AllocationProblem, config: EvalConfig) -> tuple[Proposal, str]:
    """The deterministic allocator's answer after as many local moves as ``-O=best`` makes."""
    return improving(config.seconds).allocate(problem), ""


def _drafted(episode: Episode, meets: bool) -> Decoded:
    answers = draft(episode, meets=meets)
    agreed = sum(word == question.draft for question, word in answers)
    return Decoded(episode.registers(), questions=len(answers), agreed=agreed)


def pass_at(k: int, right: int, samples: int) -> float:
    """Chance that one of ``k`` samples passes, where ``right`` of ``samples`` did (Chen et al. 2021, unbiased)."""
    if samples - right < k:
        return 1.0
    return 1.0 - math.prod((samples - right - i) / (samples - i) for i in range(k))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Shares of problems, for each cell (target, family, source), policy and mode.

    Problems whose peak pressure exceeds the file are counted separately (``do_not_fit``): they have no assignment.
    """
    entries: list[dict[str, Any]] = []
    keys = sorted({(r.target, r.family, r.source, r.policy, r.mode) for r in rows})
    for key in keys:
        own_rows = [r for r in rows if (r.target, r.family, r.source, r.policy, r.mode) == key]
        first = [r for r in own_rows if r.sample < 0 and r.attempt == FIRST]
        fitting = [r for r in first if r.reason != "pressure"]
        proved = [r for r in fitting if r.proved]
        entry: dict[str, Any] = {
            **dict(zip(("target", "family", "source", "policy", "mode"), key, strict=True)),
            "problems": len(first),
            "do_not_fit": len(first) - len(fitting),
            "pass@1": _share(len(proved), len(fitting)),
            **_against("deterministic", [(r.price, r.deterministic) for r in proved]),
            **_against("greedy", [(r.price, r.greedy) for r in proved]),
            "tokens": sum(r.tokens for r in first),
            "decode_seconds": round(sum(r.decode_seconds for r in first), 2),
            "slowest_seconds": max((r.wall_seconds for r in first), default=0.0),
        }
        entry.update(_sampled(own_rows, {r.name + r.phase for r in fitting}))
        entries.append(entry)
    return entries


def _against(name: str, pairs: Iterable[tuple[Price | None, Price | None]]) -> dict[str, Any]:
    """Shares of the problems to which both have an answer."""
    both = [(price, rival_price) for price, rival_price in pairs if price is not None and rival_price is not None]
    return {
        f"compared_to_{name}": len(both),
        f"no_worse_than_{name}": _share(sum(price <= rival_price for price, rival_price in both), len(both)),
        f"better_than_{name}": _share(sum(price < rival_price for price, rival_price in both), len(both)),
    }


def _sampled(rows: list[Row], fitting: set[str]) -> dict[str, Any]:
    """pass@k of the samples, and second attempts."""
    result: dict[str, Any] = {}
    told_rows = [r for r in rows if r.attempt == TOLD]
    if told_rows:
        result["refuted_at_first"] = len(told_rows)
        result["second_attempt_told"] = _share(sum(r.proved for r in told_rows), len(told_rows))
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.attempt == FIRST and row.name + row.phase in fitting:
            groups.setdefault(row.name + row.phase, []).append(row)
    samples = min((sum(r.sample >= 0 for r in g) for g in groups.values()), default=0)
    if not samples:
        return result
    result["samples"] = samples
    for k in (1, 10, 100):
        if k <= samples:
            drawn = [[r.proved for r in g if r.sample >= 0] for g in groups.values()]
            rates = [pass_at(k, sum(outcomes), len(outcomes)) for outcomes in drawn]
            result[f"sampled_pass@{k}"] = round(sum(rates) / len(rates), 4)
    return result


def report(rows: Sequence[Row], config: EvalConfig, about: dict[str, Any]) -> dict[str, Any]:
    """The report of a run; ``rows`` have their values in the order of ``columns``."""
    return {
        **about,
        "config": asdict(config),
        "cells": summary(rows),
        "columns": [field.name for field in fields(Row)],
        "rows": [list(asdict(row).values()) for row in rows],
    }


def written(summed: dict[str, Any]) -> str:
    """A report as JSON, one answer a line."""
    head = {k: v for k, v in summed.items() if k != "rows"}
    rows = ",\n".join(json.dumps(row) for row in summed["rows"])
    return f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


# Rows as they are measured, so that an interrupted evaluation can be continued.


class EvaluationJournal(JsonLines):
    """A file of lines: first model and configuration, then the rows of each problem.

    Attributes:
        rows: by the key of a problem.

    Raises:
        InputError: the file is of another model or configuration.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path)
        head = json.loads(json.dumps(about))
        if not self.records:
            self.add(head)
        elif self.records[0] != head:
            self.close()
            raise InputError(
                "an evaluation of another model, configuration or commit was begun here",
                where=str(path),
                hint="remove it, or choose another --out",
            )
        self.rows = {one["key"]: convert(one["rows"], list[Row]) for one in self.records[1:]}

    def note(self, key: str, rows: Sequence[Row]) -> None:
        """Keep the rows of a problem."""
        self.add({"key": key, "rows": [asdict(row) for row in rows]})
