"""The problem that is left after a proposal was refuted: the live ranges that move, around those that stay.

The verifier gives the nearest valid assignment (``smt_verifier.prove.nearest``): the next answer starts from it. What
it leaves alone stays, as fixed occupation, and only the ranges that it moves are asked about again; if there is no
answer to that, it is the answer itself. Where none is near, the ranges of a minimal correction set
(``smt_verifier.prove.diagnosis``) are asked about: without them the rest of the proposal is proved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from verilocc_mlir.allocators.protocol import Counterexample, Refutation
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.problem.model import Affinity, AllocationProblem, FixedOccupation, LiveRange
from verilocc_mlir.target.registers import lane_list, physical_register, register_of_units
from verilocc_model.encoding.canonical import Canonical
from verilocc_model.encoding.placing import Advice
from verilocc_model.encoding.table import Table


@dataclass(frozen=True)
class Remainder:
    """A part of a problem that is asked about again.

    Attributes:
        problem: the part; its ranges are numbered anew.
        refuted: the refutations, reduced to these ranges.
        ids: the id in the whole problem of each of its ranges.
        staying: registers of the whole problem; those at ``ids`` have no meaning.
        draft: a proved answer to the whole problem, ``()`` where none is known.
    """

    problem: AllocationProblem
    refuted: tuple[Refutation, ...]
    ids: tuple[int, ...]
    staying: tuple[str, ...]
    draft: tuple[str, ...] = ()

    def whole(self, registers: Sequence[str]) -> tuple[str, ...]:
        """Registers of all ranges of the whole problem, from those of the part."""
        result = list(self.staying)
        for number, register in zip(self.ids, registers, strict=True):
            result[number] = register
        return tuple(result)


def remainders(problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Iterator[Remainder]:
    """The parts to ask about, one after the other until there is an answer: the ranges that the nearest assignment
    moves, or that must move, if the last refutation names them, and then all ranges.
    """
    last = refuted[-1] if refuted else None
    moving = () if last is None else tuple(number for number, _ in last.nearest) or last.moves
    if last is not None and 0 < len(moving) < len(problem.ranges):
        yield _moving(problem, last, moving)
    everything = tuple(range(len(problem.ranges)))
    yield Remainder(problem, refuted, everything, ("",) * len(everything))


def _moving(problem: AllocationProblem, last: Refutation, moving: tuple[int, ...]) -> Remainder:
    new = {old: k for k, old in enumerate(moving)}
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
        # A preference that has lost some of its ranges has no meaning.
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
    nearest = dict(last.nearest)
    draft = tuple(nearest.get(number, name) for number, name in enumerate(registers)) if nearest else ()
    return Remainder(remaining, (refutation,), tuple(new), registers, draft)


def _held(live: LiveRange, register: str) -> list[FixedOccupation]:
    units = physical_register(register).units
    return [
        FixedOccupation(tuple(units[k] for k in lane_list(group.lanes)), group.segments, f"stays ${register}")
        for group in live.groups
    ]


def _affinity(one: Affinity, new: dict[int, int], registers: Sequence[str]) -> Affinity | None:
    """A copy of which an end moves; an end that stays is a physical register then."""
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
        # These lanes are no register of their own.
        return None


def _example(example: Counterexample, new: dict[int, int]) -> Counterexample | None:
    """A counterexample with only the ranges that move; None where it has none of them."""
    positions = [k for k, number in enumerate(example.ranges) if number in new]
    if not positions:
        return None
    return replace(
        example,
        ranges=tuple(new[example.ranges[k]] for k in positions),
        lanes=tuple(example.lanes[k] for k in positions),
        registers=tuple(example.registers[k] for k in positions),
        # The free registers are those of the first range.
        free=example.free if positions[0] == 0 else (),
    )


# A verifier's verdicts on earlier answers, as facts for the next answer.


@dataclass(frozen=True)
class Guidance:
    """Facts for ``Episode``: the advice for each canonical range id, and the grants of the refuted proposals."""

    advice: Mapping[int, Advice] = field(default_factory=dict)
    grants: tuple[int, ...] = ()


def guidance_of(refuted: Sequence[Refutation], form: Canonical, table: Table) -> Guidance:
    """Refuted proposals as the facts that an episode states, about single ranges and about register totals."""
    new = {old: k for k, old in enumerate(form.original)}
    cells: dict[int, list[int]] = {}
    free: dict[int, list[int]] = {}
    for example in (c for r in refuted for c in r.counterexamples):
        if not example.ranges:
            continue
        number = new[example.ranges[0]]
        for known, names in ((cells, example.registers[:1]), (free, example.free)):
            known.setdefault(number, []).extend(c for name in names for c in _cells_of(table, name)[:1])
    advice = {n: Advice(tuple(dict.fromkeys(cells[n])), tuple(dict.fromkeys(free.get(n, ())))) for n in cells}
    return Guidance(advice, tuple(_grant(table, r.proposal.registers) for r in refuted))


def _grant(table: Table, registers: Sequence[str]) -> int:
    """The smallest grant, as an index, that holds all registers of a proposal."""
    highest = {"sgpr": 0, "vgpr": 0, "agpr": 0}
    for cell in (c for name in registers for c in _cells_of(table, name)[-1:]):
        bank, number = table.cells.register_of(cell)
        if cell < table.cells.stop[bank]:
            highest[bank] = max(highest[bank], number + 1)
    total = table.cost.registers(highest)
    return next((k for k, grant in enumerate(table.grants) if grant >= total), len(table.grants) - 1)


def _cells_of(table: Table, name: str) -> tuple[int, ...]:
    """All cells of a register; none where the problem has no such register."""
    with contextlib.suppress(UnsupportedError):
        return table.cells.cells_of(name)
    return ()
