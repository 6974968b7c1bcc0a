"""Candidates: ways to compile one file, each a plan and a way to allocate its text, and what their final code costs.

Answers state them in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.pipeline.attempt import SPARE_REGISTERS, SpillForWaves, SpillLimits
from verilocc_mlir.pipeline.effort import BESIDE, packing
from verilocc_mlir.pipeline.events import cpu_seconds
from verilocc_mlir.pipeline.plans import BY_NAME, DEFAULT, Plan, Planned
from verilocc_mlir.pipeline.runs import OURS, Variant, as_given


class Candidate(Struct, frozen=True):
    """One way to compile a file."""

    plan: Plan
    variant: Variant = OURS

    @property
    def name(self) -> str:
        if self.plan == DEFAULT:
            return self.variant.name
        return self.plan.name if self.variant == OURS else f"{self.plan.name} + {self.variant.name}"


class CandidateCost(Struct, frozen=True):
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
    alike = replace(variant, name=OURS.name, spills=OURS.spills) == OURS
    if not alike or variant == OURS or isinstance(variant.spills, SpillForWaves):
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
    return cpu_seconds() + sum(run.cpu_seconds for run in given.work.compiler.runs)


# Answers: how a function is to be compiled, in a few words, one for each decision that a search or a model makes.
#
# A slot is one decision; its words are the settings that differ from what is done anyway (``as it is``). An answer is
# at most one word a slot, so any choice of words is well-formed, and ``candidate`` executes it: the words of the
# schedule make a plan (``plans.py``), those of the registers a way to allocate its text (``effort.Variant``).


AS_IT_IS = "as it is"

SCHEDULE: Mapping[str, tuple[str, ...]] = {
    "order": (
        "max-ilp", "max-memory-clause", "iterative-ilp", "iterative-minreg", "iterative-max-occupancy", "coexec"
    ),
    "count": ("trackers",),
    "sink": ("sinking", "no-sinking"),
    "weigh": ("latency-first", "occupancy-first", "relaxed-occupancy"),
    "cluster": ("no-clusters",),
    "direction": ("top-down", "bottom-up"),
    "waves": ("two-waves", "four-waves"),
    "matrices": ("no-accumulators", "matrices-in-vgprs"),
}  # fmt: skip
"""Decisions that LLVM executes before allocation; each word is the plan of that name."""

REGISTERS: Mapping[str, tuple[str, ...]] = {
    "place": ("packed",),
    "reload": ("beside",),
    "save": ("to-memory",),
    "room": ("spare-8", "spare-24"),
}
"""Decisions that our allocator executes: take few registers instead of spreading them; load what was spilled beside its
use; save to memory and never to AGPRs; leave that many registers free at every point when spilling."""

SLOTS: Mapping[str, tuple[str, ...]] = {**SCHEDULE, **REGISTERS}

_SLOT_OF = {word: slot for slot, words in SLOTS.items() for word in words}


class Answer(Struct, frozen=True):
    """Words in the order of ``SLOTS``, at most one of each slot; none: everything as it is."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> Answer:
        """
        Raises:
            InputError: a word is none, or two are of one slot.
        """
        by_slot: dict[str, str] = {}
        for word in words:
            slot = _SLOT_OF.get(word)
            if slot is None:
                raise InputError(f"there is no word {word!r} of a plan", hint=f"choose of: {', '.join(_SLOT_OF)}")
            if by_slot.setdefault(slot, word) != word:
                raise InputError(f"{by_slot[slot]!r} and {word!r} answer one question", hint="keep one of them")
        return cls(tuple(by_slot[slot] for slot in SLOTS if slot in by_slot))

    @classmethod
    def parse(cls, text: str) -> Answer:
        """What ``str`` gave.

        Raises:
            InputError: as ``of``.
        """
        return cls() if text == DEFAULT.name else cls.of(text.split(" + "))

    def __str__(self) -> str:
        return " + ".join(self.words) or DEFAULT.name

    @property
    def by_slot(self) -> dict[str, str]:
        """The word of every slot, ``AS_IT_IS`` where the answer has none."""
        mine = {_SLOT_OF[word]: word for word in self.words}
        return {slot: mine.get(slot, AS_IT_IS) for slot in SLOTS}

    @property
    def plan(self) -> Plan:
        """The plan of the schedule's words together."""
        parts = [BY_NAME[word] for word in self.words if _SLOT_OF[word] in SCHEDULE]
        if len(parts) < 2:
            return parts[0] if parts else DEFAULT
        return Plan(
            " + ".join(part.name for part in parts),
            tuple(option for part in parts for option in part.options),
            tuple(attribute for part in parts for attribute in part.attributes),
            any(part.accumulators for part in parts),
            (max(part.llvm[0] for part in parts), min(part.llvm[1] for part in parts)),
        )

    @property
    def variant(self) -> Variant:
        """The way to allocate that the registers' words say."""
        words = [word for word in self.words if _SLOT_OF[word] in REGISTERS]
        if not words:
            return OURS
        if words == ["beside"]:
            return BESIDE
        least = max((int(word.removeprefix("spare-")) for word in words if word.startswith("spare-")), default=0)
        spills = SpillLimits(
            spare=tuple(spare for spare in SPARE_REGISTERS if spare >= least),
            load_ahead="beside" not in words,
            accumulators="to-memory" not in words,
        )
        return Variant(" + ".join(words), packing if "packed" in words else as_given, spills)

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.plan, self.variant)


LABELLED = (
    Answer(),
    *(Answer.of((word,)) for words in SCHEDULE.values() for word in words),
    *(Answer.of((word,)) for word in ("packed", "beside", "to-memory", "spare-8")),
    Answer.of(("trackers", "beside")),
)
"""Those that a data set labels first: 24 with LLVM 22, 25 with LLVM 24."""
