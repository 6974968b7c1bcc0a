"""Turns: base and candidate are compared bit for bit, and then timed side by side, round after round."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from math import comb
from statistics import median
from typing import Any

from msgspec import structs

from verilocc_mlir.crew.serve import Answer, serve
from verilocc_mlir.crew.worker import Late, Worker, WorkerFailure
from verilocc_mlir.errors import InputError, ToolchainError, VeriloccError
from verilocc_mlir.measure.device import Device, Loaded, OpenDevice, Subject
from verilocc_mlir.results.measure import (
    MEASURE_VERSION,
    Clocks,
    Interval,
    MeasuredKernel,
    Measurement,
    Round,
    Sameness,
    Verdict,
    measurement_data,
    measurement_from_data,
)
from verilocc_mlir.version import __version__

Progress = Callable[[str], None]
_SAY_SECONDS = 2.0


@dataclass(frozen=True)
class Turns:
    """How much is run, and what counts as a difference.

    Attributes:
        rounds: in each both are timed; the more, the narrower the interval. 6 are the least that 0.95 needs.
        runs: of each in a round; the round takes their median.
        warm_up: runs of each before the first round, which are not counted.
        confidence: of intervals.
        tie: a ratio as near to 1 as this is no difference.
        compared: whether results are compared first.
    """

    rounds: int = 12
    runs: int = 5
    warm_up: int = 3
    confidence: float = 0.95
    tie: float = 0.01
    compared: bool = True


def measure(
    device: Device,
    base: Subject,
    candidate: Subject,
    turns: Turns,
    *,
    ir: str = "",
    progress: Progress = lambda _: None,
) -> Measurement:
    """Run both on one device.

    Where the results differ, nothing is timed: a code that computes something else is not faster.

    Args:
        ir: SHA-256 of the kernel's LLVM IR, if it is known.

    Raises:
        InputError: they are not codes of one kernel. VeriloccError: the device fails.
    """
    kernel = _one_kernel(device, base, candidate, ir)
    work = device.work(base)
    rounds: list[Round] = []
    sameness, why = Sameness.NOT_COMPARED, "it was not asked for"
    with closing(device.load(base)) as first, closing(device.load(candidate)) as second:
        before = after = device.clocks()
        if turns.compared:
            sameness, why = same_results(first, second)
        if sameness is not Sameness.DIFFERENT:
            rounds, before, after = _take_turns(device, first, second, turns, progress)
    found = compare(rounds, confidence=turns.confidence, tie=turns.tie) if rounds else None
    if found is None and sameness is not Sameness.DIFFERENT:
        raise InputError(f"{base.name} and {candidate.name} have no time in common", hint="take others")
    return Measurement(
        asked=asked(device, base, candidate, turns, ir=ir),
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool=__version__,
        kernel=kernel,
        base=base.code,
        candidate=candidate.code,
        device=device.about,
        work=work.sha256,
        workload=work.words,
        before=before,
        after=after,
        sameness=sameness,
        why=why,
        rounds=tuple(rounds),
        base_ms=found.base if found else None,
        candidate_ms=found.candidate if found else None,
        ratio=found.ratio if found else None,
        tie=turns.tie,
        verdict=found.verdict if found else Verdict.DIFFERENT,
    )


def asked(device: Device, base: Subject, candidate: Subject, turns: Turns, *, ir: str = "") -> str:
    """SHA-256 of all that a measurement depends on but the device's state: the key of its line in a journal."""
    question = {
        "version": MEASURE_VERSION,
        "kernel": structs.asdict(_one_kernel(device, base, candidate, ir)),
        "base": base.code.sha256,
        "candidate": candidate.code.sha256,
        "device": structs.asdict(device.about),
        "work": device.work(base).sha256,
        "turns": asdict(turns),
    }
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


def same_results(base: Loaded, candidate: Loaded) -> tuple[Sameness, str]:
    """Whether both leave the same bytes, and why not. The base runs twice: one that does not repeat itself, as with
    floating-point atomics, says nothing of another.
    """
    expected, again = base.results(), base.results()
    if isinstance(expected, str):
        return Sameness.NOT_COMPARED, expected
    if expected != again:
        return Sameness.UNSTEADY, f"two runs of the base differ: {_first_difference(expected, again)}"
    got = candidate.results()
    if got != expected:
        return Sameness.DIFFERENT, _first_difference(expected, got)
    return Sameness.EQUAL, ""


def _first_difference(a: tuple[bytes, ...], b: tuple[bytes, ...] | str) -> str:
    if isinstance(b, str) or len(a) != len(b):
        return "another number of results"
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        if len(x) != len(y):
            return f"result {number} has {len(y)} bytes for {len(x)}"
        if x != y:
            places = [place for place, (p, q) in enumerate(zip(x, y, strict=True)) if p != q]
            return f"result {number} differs in {len(places)} of {len(x)} bytes, first at byte {places[0]}"
    return ""


def _one_kernel(device: Device, base: Subject, candidate: Subject, ir: str) -> MeasuredKernel:
    kernel, other = device.kernel(base), device.kernel(candidate)
    if kernel.interface != other.interface:
        raise InputError(
            f"{candidate.name} is no code of the kernel that {base.name} is of: their interfaces differ",
            hint=f"{kernel.name} in one, {other.name} in the other; --kernel names one",
        )
    return MeasuredKernel(kernel.name, kernel.interface, ir)


def _take_turns(
    device: Device, base: Loaded, candidate: Loaded, turns: Turns, progress: Progress
) -> tuple[list[Round], Clocks, Clocks]:
    """The rounds. Who begins changes from one to the next, so that being second costs neither more than the other."""
    if turns.warm_up:
        base.times(turns.warm_up)
        candidate.times(turns.warm_up)
    before = device.clocks()
    rounds: list[Round] = []
    said = time.monotonic()
    for number in range(turns.rounds):
        if number % 2:
            others, ours = candidate.times(turns.runs), base.times(turns.runs)
        else:
            ours, others = base.times(turns.runs), candidate.times(turns.runs)
        if not (ours and others):
            break
        rounds.append(Round(tuple(ours), tuple(others)))
        if time.monotonic() > said + _SAY_SECONDS:
            said = time.monotonic()
            progress(f"round {number + 1} of {turns.rounds}")
    return rounds, before, device.clocks()


# Medians, their intervals, and when one code is faster than another. Nothing here assumes a distribution of times.
#
# Interval of a median: for n independent values and their order x(1) ≤ … ≤ x(n), the true median lies below x(k) only
# if fewer than k values fall below it, which has the probability P(B < k) with B binomial in n and 1/2. So [x(k),
# x(n+1-k)] holds it with probability 1 - 2·P(B ≤ k-1) (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
#
# Times of one process follow one another, so they are not independent: clocks and temperature drift. Rounds are taken
# instead, in each of which both codes run side by side; a round has one ratio, in which what drifts slowly cancels.


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides and their ratio; the ratio's interval is that of the rounds' ratios."""

    base: Interval
    candidate: Interval
    ratio: Interval
    verdict: Verdict


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """The narrowest interval of order statistics that holds the median with ``confidence``; else the whole range.

    Args:
        values: at least one.
        confidence: between 0 and 1. With fewer than 6 values 0.95 cannot be had; ``Interval.confidence`` says what can.
    """
    if not values:
        raise ValueError("no values")
    ordered, count = sorted(values), len(values)
    rank = max((k for k in range(1, (count + 1) // 2 + 1) if _held(k, count) >= confidence), default=1)
    return Interval(median(ordered), ordered[rank - 1], ordered[count - rank], _held(rank, count))


def _held(rank: int, count: int) -> float:
    """Probability that the median lies between the order statistics ``rank`` and ``count + 1 - rank``."""
    below = sum(comb(count, k) for k in range(rank))
    return 1 - 2 * below / 2**count if 2 * rank <= count + 1 and count > 1 else 0.0


def compare(rounds: Sequence[Round], *, confidence: float, tie: float) -> Comparison:
    """What the rounds say of the candidate.

    Args:
        rounds: at least one; each has a time of either.
        tie: a ratio within 1 - tie and 1 + tie is no difference.
    """
    ratios = [median(one.candidate) / median(one.base) for one in rounds]
    ratio = median_interval(ratios, confidence)
    return Comparison(
        median_interval([time for one in rounds for time in one.base], confidence),
        median_interval([time for one in rounds for time in one.candidate], confidence),
        ratio,
        verdict_of(ratio, confidence=confidence, tie=tie),
    )


def verdict_of(ratio: Interval, *, confidence: float, tie: float) -> Verdict:
    """FASTER or SLOWER where the whole interval lies beyond the tie, ALIKE where it lies within; else UNDECIDED."""
    if ratio.confidence < confidence:
        return Verdict.UNDECIDED
    if ratio.high < 1 - tie:
        return Verdict.FASTER
    if ratio.low > 1 + tie:
        return Verdict.SLOWER
    return Verdict.ALIKE if ratio.low >= 1 - tie and ratio.high <= 1 + tie else Verdict.UNDECIDED


# A measurement in a process of its own.
#
# A kernel that is given wrong sizes writes where it must not, and then AMD's runtime ends the process that launched it.
# That is one measurement which failed, not the end of those that follow, nor of what is to be said about it.


_START_SECONDS = 120.0
_HINT = "a fault of the GPU, most likely: look at --grid, --block and the sizes in --arg"


def measure_apart(
    open_device: OpenDevice, base: Subject, candidate: Subject, turns: Turns, *, ir: str = "", run_seconds: float = 60.0
) -> Measurement:
    """As ``runner.measure``, on a device that another process opens.

    Args:
        open_device: a function of a module, or a ``partial`` of one, which can be pickled.
        run_seconds: for one run of a code, so that the whole has a limit too.

    Raises:
        VeriloccError: what ``measure`` raises there. ToolchainError: that process ended, or did not answer.
    """
    runs = 2 * (turns.warm_up + turns.rounds * turns.runs) + 3
    question = {
        "base": base.name,
        "candidate": candidate.name,
        "size": len(base.data),
        "turns": asdict(turns),
        "ir": ir,
    }
    try:
        worker = Worker(partial(_work, open_device), "process that measures")
        try:
            answer, data = worker.ask(question, _START_SECONDS + runs * run_seconds, base.data + candidate.data)
        finally:
            worker.kill()
            worker.close()
    except Late as error:
        raise ToolchainError(f"the process that measures gave {error}", where=candidate.name) from error
    except WorkerFailure as error:
        raise ToolchainError(str(error), where=candidate.name, hint=_HINT) from error
    failure: Mapping[str, str] | None = answer.get("failure")
    if failure is not None:
        raise ToolchainError(failure["what"], where=failure["where"], hint=failure["hint"])
    return measurement_from_data(json.loads(data))


def _work(open_device: OpenDevice) -> None:
    """What that process does."""
    serve(partial(_answerer, open_device), 0, ready=False)


def _answerer(open_device: OpenDevice) -> Answer:
    return partial(_answer, open_device)


def _answer(
    open_device: Callable[[], Any], question: dict[str, Any], data: bytes
) -> tuple[Mapping[str, object], bytes]:
    size = question["size"]
    base, candidate = Subject(question["base"], data[:size]), Subject(question["candidate"], data[size:])
    try:
        with closing(open_device()) as device:
            found = measure(device, base, candidate, Turns(**question["turns"]), ir=question["ir"])
    except VeriloccError as error:
        return {"failure": {"what": error.what, "where": error.where, "hint": error.hint}, "last": True}, b""
    return {"last": True}, json.dumps(measurement_data(found)).encode()
