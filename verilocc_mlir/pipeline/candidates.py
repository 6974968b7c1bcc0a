"""Candidates: ways to compile one file, each a plan and a way to allocate its text, and what their final code costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.clock import cpu_seconds
from verilocc_mlir.pipeline.effort import OURS, Variant
from verilocc_mlir.pipeline.plans import DEFAULT, Plan, Planned


@dataclass(frozen=True)
class Candidate:
    """One way to compile a file."""

    plan: Plan
    variant: Variant = OURS

    @property
    def name(self) -> str:
        if self.plan == DEFAULT:
            return self.variant.name
        return self.plan.name if self.variant == OURS else f"{self.plan.name} + {self.variant.name}"


@dataclass(frozen=True)
class CandidateCost:
    """What came of one candidate.

    Attributes:
        costs: by function; None where there is no allocation, and ``reason`` says why.
        same_as: the first candidate that is allocated alike, ``""`` for one of its own.
        cpu_seconds: of our process and of the tools together.
    """

    candidate: Candidate
    costs: Mapping[str, KernelCost] | None
    reason: str = ""
    same_as: str = ""
    cpu_seconds: float = 0.0

    @property
    def cycles(self) -> float:
        """Modelled, of all functions together; infinite without an allocation."""
        return sum(c.cycles for c in self.costs.values()) if self.costs is not None else float("inf")


def candidate_costs(given: Planned, candidates: Iterable[Candidate]) -> list[CandidateCost]:
    """The cost of the final code of each candidate of ours, without any proof, in their order.

    Plans that LLVM does not have for the input are left out. Equal inputs get equal costs.
    """
    first: dict[tuple[str, Variant], CandidateCost] = {}
    result: list[CandidateCost] = []
    for candidate in candidates:
        if candidate.plan not in given.plans((candidate.plan,)):
            continue
        before = _cpu_seconds(given)
        done = CandidateCost(candidate, None)
        try:
            key = given.pre_ra(candidate.plan), effective(given, candidate)
            if key in first:
                done = replace(first[key], candidate=candidate, same_as=first[key].candidate.name)
            else:
                done = first[key] = _costed(given, candidate)
        except VeriloccError as error:
            done = replace(done, reason=error.what)
        result.append(replace(done, cpu_seconds=_cpu_seconds(given) - before))
    return result


def effective(given: Planned, candidate: Candidate) -> Variant:
    """The variant, or ``OURS`` where it differs from that only in how registers are spilled, and none is."""
    variant = candidate.variant
    alike = replace(variant, name=OURS.name, spills=OURS.spills) == OURS and not variant.spills.always
    if not alike or variant == OURS:
        return variant
    runs = given.runs(candidate.plan)
    return OURS if runs.draft(OURS) is not None and not runs.saves(OURS) else variant


def _costed(given: Planned, candidate: Candidate) -> CandidateCost:
    costs = given.cost(candidate.plan, candidate.variant)
    if costs is None:
        return CandidateCost(candidate, None, "our allocators have no allocation of some function")
    if not given.is_whole(costs):
        return CandidateCost(candidate, None, "the loops of some function are others, so that costs do not compare")
    return CandidateCost(candidate, costs)


def _cpu_seconds(given: Planned) -> float:
    return cpu_seconds() + sum(run.cpu_seconds for run in given.compiler.runs)
