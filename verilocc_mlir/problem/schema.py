"""AllocationProblem and Proposal as JSON: one canonical text for each, checked on the way in.

The layout follows the classes of ``model.py``: an object has exactly their fields, tuples are arrays, segments are
``[start, end]``. Canonical text has sorted keys, no blanks, ASCII only, and integers where a weight is whole, so equal
problems give equal bytes. ``allocation.schema.json`` beside this module is the same as JSON Schema (2020-12), made by
``json_schema``; a test keeps the two together.
"""

from __future__ import annotations

import json
import math
import types
import typing
from itertools import pairwise
from typing import Any, TypeVar

from msgspec import Struct

from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import (
    PHASES,
    PROBLEM_VERSION,
    Affinity,
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Point,
    Preference,
    Proposal,
    Relation,
    Segment,
)

_T = TypeVar("_T")

BANKS = ("agpr", "sgpr", "special", "vgpr")
POINT_KINDS = ("def", "early-def", "use")
PREFERENCE_KINDS = ("mfma-chain", "vopd")
_ENUMS: dict[tuple[str, str], tuple[str, ...]] = {
    ("AllocationProblem", "phase"): PHASES,
    ("BankBudget", "bank"): BANKS,
    ("LiveRange", "banks"): BANKS,
    ("Point", "kind"): POINT_KINDS,
    ("Preference", "kind"): PREFERENCE_KINDS,
}
_MAY_BE_MISSING = frozenset({("AllocationProblem", "preferences")})
"""Fields that came later: documents without them are older, not wrong."""
_MAY_BE_NEGATIVE = frozenset({("Affinity", "b")})


def to_json(value: AllocationProblem | Proposal) -> str:
    """Canonical JSON text, without a line break at the end."""
    return json.dumps(_encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def problem_from_json(text: str) -> AllocationProblem:
    """Read a problem.

    Raises:
        InputError: not JSON, another version, or something out of shape; ``where`` is the JSON path
            (``$.ranges[3].align``).
    """
    problem = _decode(AllocationProblem, _load(text), "$")
    _check_problem(problem)
    return problem


def proposal_from_json(text: str) -> Proposal:
    """Read a proposal.

    Raises:
        InputError: as for ``problem_from_json``.
    """
    proposal = _decode(Proposal, _load(text), "$")
    _check_version(proposal.version)
    return proposal


def json_schema() -> dict[str, Any]:
    """JSON Schema of both documents, under ``$defs``."""
    definitions: dict[str, Any] = {}
    for cls in (AllocationProblem, Proposal):
        _define(cls, definitions)
    definitions["AllocationProblem"]["properties"]["version"] = {"const": PROBLEM_VERSION}
    definitions["Proposal"]["properties"]["version"] = {"const": PROBLEM_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "verilocc allocation problem or proposal",
        "anyOf": [{"$ref": "#/$defs/AllocationProblem"}, {"$ref": "#/$defs/Proposal"}],
        "$defs": dict(sorted(definitions.items())),
    }


def _encode(value: object) -> object:
    if isinstance(value, Struct):
        return {name: _encode(getattr(value, name)) for name in _FIELDS[type(value)]}
    if isinstance(value, tuple):
        return [_encode(item) for item in typing.cast("tuple[object, ...]", value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _fields_of(cls: type[Struct]) -> dict[str, Any]:
    """Field names and resolved types."""
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in cls.__struct_fields__}


_OF_A_PROBLEM = (Affinity, BankBudget, FixedOccupation, LaneGroup, LiveRange, Occupancy, Point, Preference, Relation)
_FIELDS: dict[type[Struct], dict[str, Any]] = {
    cls: _fields_of(cls) for cls in (AllocationProblem, Proposal, *_OF_A_PROBLEM)
}


def _load(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", where="$", hint="the document may be truncated") from error


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a key twice")
    return members


def _decode(kind: type[_T], value: object, path: str) -> _T:
    return typing.cast("_T", _as(kind, value, path, ("", "")))


def _as(kind: Any, value: object, path: str, field: tuple[str, str]) -> object:
    if kind in _FIELDS:
        return _object(typing.cast("type", kind), value, path)
    if typing.get_origin(kind) is tuple:
        return _array(typing.get_args(kind), value, path, field)
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong("a number", value, path)
        try:
            weight = float(value)
        except OverflowError:
            weight = math.inf
        if not math.isfinite(weight) or weight < 0:
            raise InputError(f"{weight} is not a weight", where=path)
        return weight
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong("an integer", value, path)
        if value < 0 and not (field in _MAY_BE_NEGATIVE and value == -1):
            raise InputError(f"{value} is negative", where=path)
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong("true or false", value, path)
        return value
    if not isinstance(value, str):
        raise _wrong("a string", value, path)
    if field in _ENUMS and value not in _ENUMS[field]:
        raise InputError(f"{value!r} is none of {', '.join(_ENUMS[field])}", where=path)
    return value


def _object(kind: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise _wrong("an object", value, path)
    members = typing.cast("dict[str, object]", value)
    fields = _FIELDS[kind]
    if "version" in fields and "version" in members and members["version"] != PROBLEM_VERSION:
        _check_version(members["version"])
    for name in members:
        if name not in fields:
            raise InputError(f"unknown field {name!r}", where=path)
    for name in fields:
        if name not in members and (kind.__name__, name) not in _MAY_BE_MISSING:
            raise InputError(f"field {name!r} is missing", where=path)
    return kind(**{n: _as(t, members[n], f"{path}.{n}", (kind.__name__, n)) for n, t in fields.items() if n in members})


def _array(items: tuple[Any, ...], value: object, path: str, field: tuple[str, str]) -> object:
    if not isinstance(value, list):
        raise _wrong("an array", value, path)
    elements = typing.cast("list[object]", value)
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_as(items[0], v, f"{path}[{k}]", field) for k, v in enumerate(elements))
    if len(elements) != len(items):
        raise InputError(f"expected {len(items)} items, found {len(elements)}", where=path)
    return tuple(_as(t, v, f"{path}[{k}]", field) for k, (t, v) in enumerate(zip(items, elements, strict=True)))


def _wrong(expected: str, value: object, path: str) -> InputError:
    names: dict[type, str] = {
        dict: "an object", list: "an array", str: "a string", bool: "a truth value", int: "an integer",
        float: "a number", types.NoneType: "null",
    }  # fmt: skip
    return InputError(f"expected {expected}, found {names.get(type(value), 'something else')}", where=path)


def _check_version(version: object) -> None:
    if version != PROBLEM_VERSION or isinstance(version, bool):
        raise InputError(
            f"version {version!r} is not {PROBLEM_VERSION}",
            where="$.version",
            hint="it was written by another version of verilocc: build the problem again",
        )


def _check_problem(problem: AllocationProblem) -> None:
    """What types do not say: numbering, order, and references within the document."""
    _check_version(problem.version)
    if len(problem.block_starts) != len(problem.block_depths):
        raise InputError("not one depth for each block start", where="$.block_depths")
    if any(a > b for a, b in pairwise(problem.block_starts)):
        raise InputError("block starts are not ascending", where="$.block_starts")
    for k, live_range in enumerate(problem.ranges):
        _check_range(live_range, k, problem.slots)
    for k, affinity in enumerate(problem.affinities):
        path = f"$.affinities[{k}]"
        for name, end, lane in (("a", affinity.a, affinity.a_lane), ("b", affinity.b, affinity.b_lane)):
            if end == -1 and name == "b":
                continue
            if end >= len(problem.ranges):
                raise InputError(f"there is no range {end}", where=f"{path}.{name}")
            if lane + affinity.lanes > problem.ranges[end].lanes:
                raise InputError(f"range {end} has no such lanes", where=f"{path}.{name}_lane")
        if (affinity.b == -1) != bool(affinity.fixed):
            raise InputError("needs either a second range or a fixed register", where=f"{path}.fixed")
    for k, preference in enumerate(problem.preferences):
        for j, relation in enumerate(preference.relations):
            path = f"$.preferences[{k}].relations[{j}]"
            for name, end, lane in (("a", relation.a, relation.a_lane), ("b", relation.b, relation.b_lane)):
                if end >= len(problem.ranges):
                    raise InputError(f"there is no range {end}", where=f"{path}.{name}")
                if lane >= problem.ranges[end].lanes or lane % 2:
                    raise InputError(f"no register of range {end} starts there", where=f"{path}.{name}_lane")
    for k, fixed in enumerate(problem.fixed):
        _check_segments(fixed.segments, f"$.fixed[{k}].segments", problem.slots)
    for k, budget in enumerate(problem.budgets):
        for name, numbers in (("registers", budget.registers), ("expensive", budget.expensive)):
            if any(a >= b for a, b in pairwise(numbers)):
                raise InputError("register numbers are not ascending", where=f"$.budgets[{k}].{name}")
        if not set(budget.expensive) <= set(budget.registers):
            raise InputError("not a subset of the registers", where=f"$.budgets[{k}].expensive")


def _check_range(live_range: LiveRange, number: int, slots: int) -> None:
    path = f"$.ranges[{number}]"
    if live_range.id != number:
        raise InputError(f"range number {number} calls itself {live_range.id}", where=f"{path}.id")
    if live_range.width < 1 or (live_range.lanes + 1) // 2 != live_range.width:
        raise InputError(f"{live_range.lanes} lanes do not make {live_range.width} registers", where=f"{path}.width")
    if live_range.align < 1:
        raise InputError("must be positive", where=f"{path}.align")
    full = (1 << live_range.lanes) - 1
    grouped = 0
    for k, group in enumerate(live_range.groups):
        if not group.lanes or group.lanes & ~full or group.lanes & grouped:
            raise InputError(
                "lanes are none, outside of the register or in two groups", where=f"{path}.groups[{k}].lanes"
            )
        grouped |= group.lanes
        _check_segments(group.segments, f"{path}.groups[{k}].segments", slots)
    for k, point in enumerate(live_range.points):
        if point.slot >= slots:
            raise InputError(f"slot {point.slot} is past the end", where=f"{path}.points[{k}].slot")
        if not point.lanes or point.lanes & ~full:
            raise InputError("lanes are none or outside of the register", where=f"{path}.points[{k}].lanes")


def _check_segments(segments: tuple[Segment, ...], path: str, slots: int) -> None:
    if not segments:
        raise InputError("no segments", where=path)
    end = -1
    for k, (start, stop) in enumerate(segments):
        if start >= stop or stop > slots:
            raise InputError(f"[{start}, {stop}) is empty or past the end", where=f"{path}[{k}]")
        if start <= end:
            raise InputError("segments overlap, touch or are out of order", where=f"{path}[{k}]")
        end = stop


def _define(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Add ``cls`` and what it is made of to ``definitions``; returns a reference to it."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        fields = _FIELDS[cls]
        definitions[cls.__name__] = {
            "type": "object",
            "properties": {n: _schema_of(t, (cls.__name__, n), definitions) for n, t in fields.items()},
            "required": sorted(n for n in fields if (cls.__name__, n) not in _MAY_BE_MISSING),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _schema_of(kind: Any, field: tuple[str, str], definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _FIELDS:
        return _define(typing.cast("type", kind), definitions)
    if typing.get_origin(kind) is tuple:
        items = typing.get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return {"type": "array", "items": _schema_of(items[0], field, definitions)}
        return {
            "type": "array",
            "prefixItems": [_schema_of(t, field, definitions) for t in items],
            "minItems": len(items),
            "maxItems": len(items),
        }
    if kind is float:
        return {"type": "number", "minimum": 0}
    if kind is int:
        return {"type": "integer", "minimum": -1 if field in _MAY_BE_NEGATIVE else 0}
    if kind is bool:
        return {"type": "boolean"}
    return {"type": "string", "enum": list(_ENUMS[field])} if field in _ENUMS else {"type": "string"}
