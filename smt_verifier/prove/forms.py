"""A diagnosis as JSON, for programs, and as text, for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from smt_verifier.prove.blocked import Blocked
from smt_verifier.prove.diagnosis import Diagnosis, Move, lanes_text
from smt_verifier.prove.result import Violation

DIAGNOSIS_VERSION = 1
_SHOWN = 6


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON values; ``smt_verifier/prove/diagnosis.schema.json`` describes them."""
    result = diagnosis.result
    return {
        "version": DIAGNOSIS_VERSION,
        "function": diagnosis.problem.function,
        "phase": diagnosis.problem.phase,
        "outcome": result.outcome.value,
        "obligations": result.obligations,
        "reason": result.reason,
        "truncated": result.truncated,
        "violations": [_violation(diagnosis, violation) for violation in diagnosis.core],
        "implied": list(diagnosis.implied),
        "moves": [_move(diagnosis, move) for move in diagnosis.moves],
    }


def to_text(diagnosis: Diagnosis) -> str:
    """The diagnosis for a terminal; several lines."""
    result, problem = diagnosis.result, diagnosis.problem
    head = f"{problem.function}, phase {problem.phase}: {result.outcome}, {result.obligations} constraints"
    lines = [f"{head}: {result.reason}" if result.reason else head]
    for violation in diagnosis.core:
        point = diagnosis.point(violation.slot)
        where = f" at instruction {point.instruction} of block {point.block} ({point.stage})" if point else ""
        lines.append(f"  {violation.name}{where}: {violation.message}")
        for row in _ranges(diagnosis, violation):
            times = ", ".join(f"[{start}, {end})" for start, end in row["segments"][:_SHOWN])
            lines.append(f"    {_place(row)}: kept during {times or 'nothing'}{_more(row['segments'])}")
    if diagnosis.implied:
        lines.append(f"  {len(diagnosis.implied)} more follow from these")
    if result.truncated:
        lines.append("  and there are more that are not listed")
    for move in diagnosis.moves:
        name = problem.ranges[move.range_id].name
        lines.append(
            f"  move {name} from {f'${move.register}' if move.register else 'nowhere'}: {_advice(diagnosis, move)}"
        )
    return "\n".join(lines)


def _violation(diagnosis: Diagnosis, violation: Violation) -> dict[str, Any]:
    point = diagnosis.point(violation.slot)
    return {
        "name": violation.name,
        "rule": violation.rule,
        "message": violation.message,
        "point": asdict(point) if point else None,
        "ranges": _ranges(diagnosis, violation),
        "free": list(violation.free),
    }


def _ranges(diagnosis: Diagnosis, violation: Violation) -> list[dict[str, Any]]:
    columns = zip(
        violation.ranges, violation.names, violation.registers, violation.lanes, violation.segments, strict=True
    )
    return [
        {
            "id": range_id,
            "name": name,
            "register": register,
            "lanes": lanes,
            "subregister": lanes_text(lanes, diagnosis.problem.ranges[range_id].lanes),
            "segments": [list(segment) for segment in segments],
        }
        for range_id, name, register, lanes, segments in columns
    ]


def _move(diagnosis: Diagnosis, move: Move) -> dict[str, Any]:
    return {
        "id": move.range_id,
        "name": diagnosis.problem.ranges[move.range_id].name,
        "register": move.register,
        "because": list(move.because),
        "free": list(move.free),
        "blocked": asdict(move.blocked) if move.blocked else None,
    }


def _place(row: dict[str, Any]) -> str:
    part = f".{row['subregister']}" if row["subregister"] else ""
    return f"{row['name']}{part} in ${row['register']}" if row["register"] else f"{row['name']}{part}"


def _advice(diagnosis: Diagnosis, move: Move) -> str:
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
