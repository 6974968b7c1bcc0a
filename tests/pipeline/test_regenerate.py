"""Allocators that are somebody's: whatever one raises or gives costs its attempt, and the next one is asked."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from batch_support import CPU, kernel
from msgspec.structs import replace
from support import few, long

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import allocator
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.results.compile import PhaseReport

SETTINGS = Settings(cpu=CPU)


@dataclass(frozen=True)
class Does:
    """What it does instead of an answer."""

    does: Callable[[AllocationProblem], Any]
    name: str = "plug-in"
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return self.does(problem)


def raising(error: BaseException) -> Does:
    def does(_: AllocationProblem) -> Proposal:
        raise error

    return Does(does)


def right(problem: AllocationProblem, **changed: Any) -> Proposal:
    return replace(allocator("deterministic").allocate(problem), **changed)


def phases(first: Does) -> list[PhaseReport]:
    """Of a compilation that ends well all the same, with the code that it has without the plug-in."""
    text = kernel(3).encode()
    done = compile_module(text, "k.ll", SETTINGS, allocators=(first, allocator("deterministic")))
    assert done.report.outcome is Outcome.PROVED
    assert done.data == compile_module(text, "k.ll", SETTINGS).data
    (function,) = done.report.functions
    return list(function.phases)


@pytest.mark.parametrize(
    "error", [ValueError("no"), *long(RecursionError(), AssertionError(), OSError(errno.ENOENT, "gone"))]
)
def test_an_exception_ends_the_attempt_and_is_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = phases(raising(error))
    for phase in found:
        first, last = phase.attempts
        assert (first.allocator, first.ended, first.cause) == ("plug-in", "allocate", "defect")
        assert first.reason.startswith(f"a defect of the allocator: {type(error).__name__} at test_regenerate.py")
        assert (last.allocator, last.outcome) == ("deterministic", Outcome.PROVED)
        assert not phase.fallback
    assert len(caplog.records) == len(found)
    for record in caplog.records:
        assert record.getMessage() == "allocator plug-in"
        assert record.exc_info
        assert record.exc_info[1] is error


def test_a_complaint_of_an_allocator_is_its_reason() -> None:
    for phase in phases(raising(InputError("no model here"))):
        assert (phase.attempts[0].reason, phase.attempts[0].ended) == ("no model here", "allocate")


NO_ANSWERS = [
    (lambda _: None, "allocate", "it gave no Proposal: NoneType"),
    (lambda p: right(p, registers=[1]), "allocate", "its registers are no tuple: list"),
    (lambda p: right(p, registers=(b"sgpr4",)), "allocate", "its registers are no names: bytes"),
    (lambda p: right(p, registers=()), "prove", "invalid by prove: the proposal has 0 registers"),
    (lambda p: right(p, version=None), "prove", "invalid by prove: version 1 problem with version None"),
    (lambda p: right(p, registers=("x9",) * len(p.ranges)), "prove", "refuted by well-formed: "),
    (lambda p: right(p, registers=("sgpr04",) * len(p.ranges)), "prove", "refuted by well-formed: "),
    (lambda p: right(p, registers=("vgpr0_vgpr1_vgpr2",) * len(p.ranges)), "prove", "refuted by width: "),
]


@pytest.mark.parametrize(("gives", "ended", "reason"), few(NO_ANSWERS[::4], NO_ANSWERS))
def test_what_is_no_answer_ends_the_attempt(gives: Callable[[Any], Any], ended: str, reason: str) -> None:
    for phase in phases(Does(gives)):
        first = phase.attempts[0]
        assert (first.ended, first.reason[: len(reason)]) == (ended, reason)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), KeyboardInterrupt(), SystemExit(3)]
)
def test_what_is_not_its_own_affair_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        phases(raising(error))
