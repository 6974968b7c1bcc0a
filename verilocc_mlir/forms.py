"""JSON documents by their types: what is written is read off other objects, field by field, and so is the schema.

A ``Form`` has the document's fields in their order. ``filled`` takes them from the attributes of a result; ``to_json``
writes them; ``json_schema`` describes them. ``scripts/generate_schemas.py`` keeps the schemas as files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec

_F = TypeVar("_F", bound="Form")


def _meta(**words: object) -> msgspec.Meta:
    """Stands in the schema only: a result that breaks it is still written."""
    return msgspec.Meta(extra_json_schema=words)


Whole = Annotated[int, _meta(minimum=0)]
Positive = Annotated[int, _meta(minimum=1)]
Amount = Annotated[float, _meta(minimum=0)]
Sha256 = Annotated[str, _meta(pattern="^[0-9a-f]{64}$")]
ExitNumber = Literal[0, 1, 2, 3]


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """One JSON object. Of the values it is given, numbers are rounded, and where null is allowed, ``""`` is null."""

    DIGITS: ClassVar[int] = 4

    def __post_init__(self) -> None:
        for name, may_be_null, is_rounded in _traits(type(self)):
            value = getattr(self, name)
            if may_be_null and value == "":
                setattr(self, name, None)
            elif is_rounded and value is not None:
                setattr(self, name, self._rounded(value))

    def _rounded(self, value: float | Mapping[str, float]) -> float | dict[str, float]:
        if isinstance(value, Mapping):
            return {key: round(item, self.DIGITS) for key, item in value.items()}
        return round(value, self.DIGITS)


class Tool(Form, kw_only=True):
    """The program."""

    name: Literal["verilocc"] = "verilocc"
    version: str


class ToolWithLlvm(Tool, kw_only=True):
    """The program, and the version line of the LLVM that it used."""

    llvm: str


def about(description: str, **words: object) -> msgspec.Meta:
    """A field's description, and what else its schema says."""
    return msgspec.Meta(description=description, extra_json_schema=words)


def filled(kind: type[_F], source: object = None, /, **given: object) -> _F:
    """A form with the fields in ``given``, and all others from the attributes of ``source``, forms within it too.

    Raises:
        msgspec.ValidationError: a value has another type, or is none of the words of its field.
    """
    values = {
        field.name: given[field.name] if field.name in given else getattr(source, field.name)
        for field in msgspec.structs.fields(kind)
        if field.name in given or field.required
    }
    return msgspec.convert(values, kind, from_attributes=True)


def to_data(form: Form) -> dict[str, Any]:
    return msgspec.to_builtins(form)


def to_json(form: Form | Mapping[str, Any]) -> str:
    """A form, or what ``to_data`` made of one, as indented JSON with a final line break."""
    data = to_data(form) if isinstance(form, Form) else form
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def json_schema(*kinds: type[Form], title: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of a document that is one of ``kinds``."""
    # Everything is written, defaults too.
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **(references[0] if len(references) == 1 else {"anyOf": list(references)}),
        "$defs": definitions,
    }


@lru_cache(maxsize=None)
def _traits(kind: type[Form]) -> tuple[tuple[str, bool, bool], ...]:
    """For each field its name, whether it may be null, and whether its numbers are rounded."""
    return tuple((f.name, _holds(f.type, type(None)), _holds(f.type, float)) for f in msgspec.structs.fields(kind))


def _holds(kind: Any, wanted: type) -> bool:
    """Whether a field of type ``kind`` has values of a type, alone, in a union or in a table."""
    return kind is wanted or (get_origin(kind) in _SEEN_THROUGH and any(_holds(k, wanted) for k in get_args(kind)))


_SEEN_THROUGH = (Annotated, dict, Union, UnionType)
