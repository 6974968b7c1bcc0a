"""What is left of a problem once a proposal was refuted: the live ranges that must move, around those that stay.

The verifier names a minimal correction set (``smt_verifier.prove.correction``): without its ranges the rest of the
proposal is proved. So the rest stays, as fixed occupation, and only the set is asked about again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from verilocc_mlir.allocators.protocol import Counterexample, Refutation
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.problem.model import Affinity, AllocationProblem, FixedOccupation, LiveRange
from verilocc_mlir.target.lanes import lane_list
from verilocc_mlir.target.registers import physical_register, register_of_units


@dataclass(frozen=True)
class Remainder:
    """What is asked again, and how an answer to it makes one to the whole problem.

    Attributes:
        problem: its ranges are those that are asked about, numbered anew.
        refuted: what is said of them.
        ids: the id in the whole problem of each of its ranges.
        staying: registers of the whole problem, of which those of ``ids`` mean nothing.
    """

    problem: AllocationProblem
    refuted: tuple[Refutation, ...]
    ids: tuple[int, ...]
    staying: tuple[str, ...]

    def whole(self, registers: Sequence[str]) -> tuple[str, ...]:
        """Registers of all ranges, by id, from those of the ones that were asked about."""
        result = list(self.staying)
        for number, register in zip(self.ids, registers, strict=True):
            result[number] = register
        return tuple(result)


def remainders(problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Iterator[Remainder]:
    """What to ask, one after the other as long as there is no answer: the ranges that must move after the last
    refutation, where it says so, and then all of them.
    """
    if refuted and 0 < len(refuted[-1].moves) < len(problem.ranges):
        yield _moving(problem, refuted[-1])
    everything = tuple(range(len(problem.ranges)))
    yield Remainder(problem, refuted, everything, ("",) * len(everything))


def _moving(problem: AllocationProblem, last: Refutation) -> Remainder:
    new = {old: k for k, old in enumerate(last.moves)}
    registers = last.proposal.registers
    remaining = replace(
        problem,
        ranges=tuple(replace(problem.ranges[old], id=k) for old, k in new.items()),
        affinities=tuple(
            a for affinity in problem.affinities if (a := _affinity(affinity, new, registers)) is not None
        ),
        fixed=(
            *problem.fixed,
            *(f for live in problem.ranges if live.id not in new for f in _held(live, registers[live.id])),
        ),
        # A preference relates ranges; what remains of one that has lost some says nothing.
        preferences=tuple(
            replace(p, relations=tuple(replace(r, a=new[r.a], b=new[r.b]) for r in p.relations))
            for p in problem.preferences
            if all(r.a in new and r.b in new for r in p.relations)
        ),
    )
    refutation = Refutation(
        replace(last.proposal, registers=tuple(registers[old] for old in new)),
        tuple(e for example in last.counterexamples if (e := _example(example, new)) is not None),
        tuple(range(len(new))),
    )
    return Remainder(remaining, (refutation,), tuple(new), registers)


def _held(live: LiveRange, register: str) -> list[FixedOccupation]:
    units = physical_register(register).units
    return [
        FixedOccupation(tuple(units[k] for k in lane_list(group.lanes)), group.segments, f"stays ${register}")
        for group in live.groups
    ]


def _affinity(one: Affinity, new: dict[int, int], registers: Sequence[str]) -> Affinity | None:
    """A copy, if one of its ends moves; the end that stays is a physical register then."""
    if one.b < 0:
        return replace(one, a=new[one.a]) if one.a in new else None
    if one.a in new and one.b in new:
        return replace(one, a=new[one.a], b=new[one.b])
    if one.b in new:
        one = replace(one, a=one.b, a_lane=one.b_lane, b=one.a, b_lane=one.a_lane)
    if one.a not in new:
        return None
    units = physical_register(registers[one.b]).units[one.b_lane : one.b_lane + one.lanes]
    try:
        return replace(one, a=new[one.a], b=-1, b_lane=0, fixed=register_of_units(units))
    except UnsupportedError:
        # Lanes that are no register of their own.
        return None


def _example(example: Counterexample, new: dict[int, int]) -> Counterexample | None:
    """A counterexample with the ranges that move, None where there is none in it."""
    positions = [k for k, number in enumerate(example.ranges) if number in new]
    if not positions:
        return None
    return replace(
        example,
        ranges=tuple(new[example.ranges[k]] for k in positions),
        lanes=tuple(example.lanes[k] for k in positions),
        registers=tuple(example.registers[k] for k in positions),
        # They are those of the first range.
        free=example.free if positions[0] == 0 else (),
    )
