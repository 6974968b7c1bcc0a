"""Ours beside what the user had: the code object that the front end's own compiler made.

Both are read in the same way, from their machine code where there is an llvm-objdump, else from their assembly. They
are costed together, so that a loop runs equally often in both (``verilocc_mlir.cost.together``), and judged as ours
and LLVM's are (``pipeline/guard.py``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from verilocc_mlir.cost.assembly import Function
from verilocc_mlir.cost.compare import Ground, judge, more, spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.read import ReadOptions, loops_of_ir, read_functions
from verilocc_mlir.cost.together import Pair, costs_together
from verilocc_mlir.cost.trips import IrLoop
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.measure.journal import VARIABLE, read_measurements
from verilocc_mlir.pipeline.guard import cycles_beside, shortfalls
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.measure import Interval, Measurement, Verdict
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.drivers.job import split_target_id


class Replace(Enum):
    """Which of the front end's kernels are replaced by ours, of those that are proved.

    ``BETTER``: where ours does not stand worse (``Decision``). ``NEVER`` only looks.
    """

    ALWAYS = "always"
    BETTER = "better"
    MEASURED = "measured"
    """Where it was not measured slower; as ``BETTER`` where nothing was measured."""
    NEVER = "never"


DEFAULT_REPLACE = Replace.BETTER


@dataclass(frozen=True)
class Standing:
    """What one kernel takes.

    Attributes:
        vgprs, sgprs: registers of a wave, accumulators included where they share the file.
        scratch_bytes: private memory of a work-item.
        waves: per SIMD.
        spills: 32-bit registers stored to and reloaded from memory or lanes, by estimated executions.
        cycles: of a wave, by the model.
    """

    vgprs: int
    sgprs: int
    scratch_bytes: int
    waves: int
    spills: float
    cycles: float

    def to_data(self) -> dict[str, Any]:
        return {**asdict(self), "spills": round(self.spills, 2), "cycles": round(self.cycles, 1)}


@dataclass(frozen=True)
class Code:
    """What a compiler made of a kernel; ``assembly`` is ``""`` where there is none."""

    code_object: bytes
    assembly: str = ""


@dataclass(frozen=True)
class Decision:
    """Whether one kernel of ours may stand in the place of theirs.

    Attributes:
        worse: in what ours stands worse, in a line; ``""`` where it does not.
        by: what that was decided by.
        problem: why their cycles do not compare, with the loops that differ; ``""`` where they do.
    """

    worse: str
    by: str
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """Ours beside theirs, kernel by kernel; ``reason`` says why there is nothing to compare, ``""`` where there is."""

    ours: Mapping[str, Standing]
    theirs: Mapping[str, Standing]
    reason: str = ""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])

    @property
    def worse(self) -> str:
        """In what ours stands worse than theirs, in a line; ``""`` where it does not. What cannot be read does."""
        if self.reason:
            return self.reason
        return "; ".join(f"{name} {made.worse}" for name, made in sorted(self.decisions.items()) if made.worse)

    @property
    def tied(self) -> bool:
        """Whether ours stands worse by no more than modelled cycles below the error bar: a proof outweighs those."""
        worse = [made for made in self.decisions.values() if made.worse]
        return not self.reason and all(made.by == Ground.NOTHING.value for made in worse)

    def to_data(self) -> dict[str, Any]:
        return {
            "theirs": {name: standing.to_data() for name, standing in self.theirs.items()},
            "ours": {name: standing.to_data() for name, standing in self.ours.items()},
            "decided": {name: asdict(made) for name, made in self.decisions.items()},
            "reason": self.reason or None,
        }


def compare_code(ours: Code | None, theirs: Code, cpu: str, settings: Settings, ir: bytes = b"") -> Comparison:
    """Both by the model; what cannot be read has no standing.

    Args:
        ours: None where there is none; then theirs stands alone.
        cpu: the processor that both are for.
        settings: where LLVM is, and how long it may take.
        ir: LLVM IR that both come from, for the trip counts of its loops; empty where it is not at hand.
    """
    try:
        gpu = target(split_target_id(cpu)[0])
        their_code = _functions(theirs, cpu, settings)
        our_code = () if ours is None else _functions(ours, cpu, settings)
        pairs = costs_together(their_code, our_code, gpu, _loops(ir, settings))
    except VeriloccError as error:
        return Comparison({}, {}, f"not modelled: {error.what}")
    return Comparison(
        {name: _standing(pair.second) for name, pair in pairs.items() if pair.second is not None},
        {name: _standing(pair.first) for name, pair in pairs.items() if pair.first is not None},
        decisions={name: made for name, pair in pairs.items() if (made := decide(pair)) is not None},
    )


def decide(pair: Pair) -> Decision | None:
    """Whether ours, the second, may stand in the place of theirs; None where one of them is missing.

    Where nothing tells them apart, ours takes no more cycles by the model either: theirs is there already.
    Where their cycles do not compare, what needs no count of iterations decides: registers spilled in the code, private
    memory and waves.
    """
    theirs, ours = pair.first, pair.second
    if theirs is None or ours is None:
        return None
    if not pair.problem:
        judged = judge(ours, theirs)
        short = shortfalls(ours, theirs)
        if not judged.order and not short and more(ours.cycles, theirs.cycles):
            short = [f"takes {cycles_beside(ours, theirs)}, and nothing else tells them apart"]
        return Decision(" and ".join(short), judged.ground.value)
    found: list[str] = []
    if ours.spills.static > theirs.spills.static:
        found.append(f"spills more: {ours.spills.static} stores and reloads in the code for {theirs.spills.static}")
    if ours.scratch_bytes > theirs.scratch_bytes:
        found.append(f"takes {ours.scratch_bytes} bytes of private memory for {theirs.scratch_bytes}")
    if ours.occupancy < theirs.occupancy:
        found.append(f"has {ours.occupancy} waves for {theirs.occupancy}")
    return Decision(" and ".join(found), "spills in the code, private memory and waves", pair.problem)


def _functions(code: Code, cpu: str, settings: Settings) -> tuple[Function, ...]:
    options = ReadOptions(cpu=cpu, llvm=settings.llvm, toolchain=settings.toolchain, timeout=settings.tool_seconds)
    if code.assembly and choose_tools(settings.toolchain, settings.llvm).objdump is None:
        file = read_functions(code.assembly.encode(), "assembly", options)
    else:
        file = read_functions(code.code_object, "code object", options)
    kernels = read_code_object(code.code_object).kernels
    return tuple(function for function in file if function.name in kernels)


def _loops(ir: bytes, settings: Settings) -> Mapping[str, Sequence[IrLoop]]:
    """The loops of the IR; nothing where no tool at hand reads it: then they are matched in the code alone."""
    if not ir:
        return {}
    try:
        toolchain = choose_tools(settings.toolchain, settings.llvm)
        return loops_of_ir(ir, toolchain, where="the IR", timeout=settings.tool_seconds)
    except VeriloccError:
        return {}


def _standing(cost: KernelCost) -> Standing:
    return Standing(
        vgprs=cost.vectors,
        sgprs=cost.sgprs,
        scratch_bytes=cost.scratch_bytes,
        waves=cost.occupancy,
        spills=spill_traffic(cost),
        cycles=cost.cycles,
    )


# ``replace=measured``: whose kernel is taken, decided by the clock where two code objects were timed side by side.
#
# The journal that ``$VERILOCC_MEASURED`` names (``verilocc measure --journal=FILE``) is asked first. Ours is not taken
# where it was measured slower, or left other results. Where nothing was measured, or nothing could be decided, the cost
# model decides, as with ``replace=better``.


_OTHER_WAY = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


@dataclass(frozen=True)
class MeasuredDecision:
    """What was measured of ours beside theirs.

    Attributes:
        declined: why ours is not taken; ``""`` where it is.
        said: the measurement in words.
    """

    declined: str
    said: str


@dataclass(frozen=True)
class MeasuredCodes:
    """What a journal says of pairs of code objects; the last line of a pair counts.

    Attributes:
        digest: of the journal, for what is kept by content; ``""`` without one.
    """

    pairs: dict[tuple[str, str], Measurement] = field(default_factory=dict[tuple[str, str], Measurement])
    digest: str = ""

    @classmethod
    def of(cls, path: Path | None) -> MeasuredCodes:
        """
        Args:
            path: the journal; None for none.

        Raises:
            InputError: it cannot be read.
        """
        if path is None:
            return cls()
        measurements, _ = read_measurements(path)
        pairs = {(one.base.sha256, one.candidate.sha256): one for one in measurements}
        return cls(pairs, hashlib.sha256(repr([*pairs.values()]).encode()).hexdigest())

    @classmethod
    def of_environment(cls) -> MeasuredCodes:
        """That of ``$VERILOCC_MEASURED``.

        Raises:
            InputError: it cannot be read.
        """
        named = journal_of_environment()
        return cls.of(named if named is not None and named.exists() else None)

    def decide(self, ours: bytes, theirs: bytes) -> MeasuredDecision | None:
        """None where nothing was measured, or nothing could be decided."""
        a, b = (hashlib.sha256(code).hexdigest() for code in (ours, theirs))
        if (b, a) in self.pairs:
            return decision(self.pairs[b, a])
        return decision(self.pairs[a, b], reverse=True) if (a, b) in self.pairs else None


def journal_of_environment() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def decision(one: Measurement, *, reverse: bool = False) -> MeasuredDecision | None:
    """What a measurement decides; None where that is nothing.

    Args:
        reverse: ours is its base, not its candidate.
    """
    verdict = _OTHER_WAY.get(one.verdict, one.verdict) if reverse else one.verdict
    where = f"{one.device.name}, {one.at}"
    if verdict is Verdict.DIFFERENT:
        said = f"results differ, as measured on {where}: {one.why}"
        return MeasuredDecision(said, said)
    if verdict is Verdict.UNDECIDED or one.ratio is None:
        return None
    ratio = one.ratio
    if reverse:
        ratio = Interval(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.confidence)
    said = f"measured at {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of its time on {where}"
    return MeasuredDecision(said if verdict is Verdict.SLOWER else "", said)
