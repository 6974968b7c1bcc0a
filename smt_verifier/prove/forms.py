"""A diagnosis as JSON, for programs, and as text, for people."""

from __future__ import annotations

from typing import Annotated, Any

from smt_verifier.outcome import Outcome
from smt_verifier.prove.case import Violation
from smt_verifier.prove.constraints import RULES
from smt_verifier.prove.diagnosis import STAGES, Blocked, Diagnosis, Relocation, lanes_text
from verilocc_mlir import forms
from verilocc_mlir.forms import Form, Whole, about, filled
from verilocc_mlir.problem.model import Phase

DIAGNOSIS_VERSION = 2
_SHOWN = 6

Segment = Annotated[list[Whole], about("slots [start, end)", minItems=2, maxItems=2)]


class PointForm(Form):
    """A program point."""

    slot: Whole
    block: Annotated[int, about("layout position", minimum=0)]
    instruction: Annotated[int, about("in its block", minimum=0)]
    stage: Annotated[str, about("what happens there", enum=list(STAGES))]


class Involved(Form):
    """A live range that a violation is about."""

    id: Whole
    name: Annotated[str, about("in the MIR")]
    register: Annotated[str, about("proposed")]
    lanes: Annotated[int, about("mask of the 16-bit lanes involved", minimum=0)]
    subregister: Annotated[str, about("the same as LLVM's subregister index; empty: all")]
    segments: Annotated[list[Segment], about("when these lanes are kept")]


class ViolationForm(Form):
    """One violated constraint."""

    name: Annotated[str, about("stable: the rule, and the ids of the live ranges")]
    rule: Annotated[str, about("the constraint's name", enum=[constraint.rule for constraint in RULES])]
    message: str
    point: Annotated[PointForm | None, about("the first point at which the rule is broken; null: everywhere")]
    ranges: Annotated[
        list[Involved], about("the live ranges involved, the one cheaper to move first", minItems=1, maxItems=2)
    ]
    free: Annotated[
        list[str], about("registers the first live range could have, every other one staying; the first few")
    ]


class BlockedForm(Form):
    """Why no register is free."""

    candidates: Annotated[int, about("registers that class, alignment, budget and reservation leave", minimum=0)]
    fixed: Annotated[int, about("of these, held by something fixed", minimum=0)]
    core: Annotated[list[Whole], about("live ranges that block all others; without any one of them a register is free")]
    cheapest: Annotated[str, about("the register freed most cheaply")]
    evict: Annotated[list[Whole], about("the live ranges to move for that")]


class RelocationForm(Form):
    """A live range that must move."""

    id: Whole
    name: str
    register: str
    because: Annotated[list[str], about("names of violations")]
    free: Annotated[list[str], about("registers it could have, those that need not move staying; the first few")]
    blocked: BlockedForm | None


class MoveForm(Form):
    """A live range that has another register than was proposed."""

    id: Whole
    name: Annotated[str, about("in the MIR")]
    register: str


class NearestForm(Form):
    """A proved assignment near a refuted proposal."""

    moves: Annotated[list[MoveForm], about("what differs from the proposal; empty: none is known")]
    fewest: Annotated[bool, about("none with the same ranges free moves fewer")]
    reason: Annotated[str | None, about("why none is known; null where one is")]


class DiagnosisForm(Form):
    """A refutation, explained."""

    version: Annotated[int, about("of this form", const=DIAGNOSIS_VERSION)]
    function: str
    phase: Phase
    outcome: Outcome
    obligations: Annotated[int, about("named constraints that were asked", minimum=0)]
    reason: Annotated[str, about("why, for unknown and invalid")]
    truncated: Annotated[bool, about("there are more violations than were looked at")]
    violations: Annotated[list[ViolationForm], about("minimal: no other violation implies one of these")]
    implied: Annotated[list[str], about("names of violations that follow from those listed")]
    moves: Annotated[
        list[RelocationForm],
        about("a minimal correction set: all other live ranges can stay, none of these can"),
    ]
    nearest: Annotated[NearestForm | None, about("what the next attempt starts from; null for what is not refuted")]


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that ``to_json`` obeys."""
    return forms.json_schema(DiagnosisForm, title=f"Diagnosis of a proposal, version {DIAGNOSIS_VERSION}")


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON values; ``smt_verifier/prove/diagnosis.schema.json`` describes them."""
    return forms.to_data(
        filled(
            DiagnosisForm,
            diagnosis.result,
            version=DIAGNOSIS_VERSION,
            function=diagnosis.problem.function,
            phase=diagnosis.problem.phase,
            violations=[_violation(diagnosis, violation) for violation in diagnosis.core],
            implied=diagnosis.implied,
            moves=[_relocation(diagnosis, move) for move in diagnosis.moves],
            nearest=diagnosis.nearest,
        )
    )


def to_text(diagnosis: Diagnosis) -> str:
    result, problem = diagnosis.result, diagnosis.problem
    head = f"{problem.function}, phase {problem.phase}: {result.outcome}, {result.obligations} constraints"
    lines = [f"{head}: {result.reason}" if result.reason else head]
    for violation in diagnosis.core:
        point = diagnosis.point(violation.slot)
        where = f" at instruction {point.instruction} of block {point.block} ({point.stage})" if point else ""
        lines.append(f"  {violation.name}{where}: {violation.message}")
        for row in _ranges(diagnosis, violation):
            times = ", ".join(f"[{start}, {end})" for start, end in row.segments[:_SHOWN])
            lines.append(f"    {_place(row)}: kept during {times or 'nothing'}{_more(row.segments)}")
    if diagnosis.implied:
        lines.append(f"  {len(diagnosis.implied)} more follow from these")
    if result.truncated:
        lines.append("  and there are more that are not listed")
    for move in diagnosis.moves:
        name = problem.ranges[move.range_id].name
        lines.append(
            f"  move {name} from {f'${move.register}' if move.register else 'nowhere'}: {_advice(diagnosis, move)}"
        )
    if diagnosis.nearest is not None:
        lines.append(f"  {diagnosis.nearest}")
    return "\n".join(lines)


def _violation(diagnosis: Diagnosis, violation: Violation) -> ViolationForm:
    point, ranges = diagnosis.point(violation.slot), _ranges(diagnosis, violation)
    return filled(ViolationForm, violation, point=point, ranges=ranges)


def _ranges(diagnosis: Diagnosis, violation: Violation) -> list[Involved]:
    columns = zip(
        violation.ranges, violation.names, violation.registers, violation.lanes, violation.segments, strict=True
    )
    return [
        filled(
            Involved,
            id=range_id,
            name=name,
            register=register,
            lanes=lanes,
            subregister=lanes_text(lanes, diagnosis.problem.ranges[range_id].lanes),
            segments=segments,
        )
        for range_id, name, register, lanes, segments in columns
    ]


def _relocation(diagnosis: Diagnosis, move: Relocation) -> RelocationForm:
    return filled(RelocationForm, move, id=move.range_id, name=diagnosis.problem.ranges[move.range_id].name)


def _place(row: Involved) -> str:
    part = f".{row.subregister}" if row.subregister else ""
    return f"{row.name}{part} in ${row.register}" if row.register else f"{row.name}{part}"


def _advice(diagnosis: Diagnosis, move: Relocation) -> str:
    if move.free:
        return f"free are {', '.join(f'${name}' for name in move.free[:_SHOWN])}{_more(move.free)}"
    blocked = move.blocked
    if blocked is None or not blocked.candidates:
        return "no register of its class is handed out in this function"
    if not blocked.cheapest:
        return f"all {blocked.candidates} registers it could have are held by something fixed"
    owners = _names(diagnosis, blocked.core)
    return f"none is free: {owners} block {_blocked_registers(blocked)}; {_room(diagnosis, blocked)}"


def _blocked_registers(blocked: Blocked) -> str:
    fixed = f", {blocked.fixed} more are held by something fixed" if blocked.fixed else ""
    return f"{blocked.candidates - blocked.fixed} registers{fixed}"


def _room(diagnosis: Diagnosis, blocked: Blocked) -> str:
    return f"moving {_names(diagnosis, blocked.evict)} as well would free ${blocked.cheapest}"


def _names(diagnosis: Diagnosis, ids: tuple[int, ...]) -> str:
    return ", ".join(diagnosis.problem.ranges[i].name for i in ids[:_SHOWN]) + _more(ids)


def _more(values: tuple[Any, ...] | list[Any]) -> str:
    return f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
