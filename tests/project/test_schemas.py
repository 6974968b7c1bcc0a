"""The JSON schemas in the repository are those of the types."""

from __future__ import annotations

import sys

import pytest
from jsonschema import Draft202012Validator
from support import REPOSITORY

sys.path.append(str(REPOSITORY / "scripts"))
from generate_schemas import SCHEMAS, text  # pyright: ignore[reportMissingImports, reportUnknownVariableType]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_file_is_what_the_types_say(name: str) -> None:
    """Where this fails, ``python scripts/generate_schemas.py`` writes the file."""
    schema = SCHEMAS[name]()
    Draft202012Validator.check_schema(schema)
    assert (REPOSITORY / name).read_text(encoding="utf-8") == text(schema)


def test_no_schema_is_written_by_hand() -> None:
    files = {
        str(path.relative_to(REPOSITORY))
        for package in ("verilocc_mlir", "smt_verifier", "model")
        for path in (REPOSITORY / package).rglob("*.schema.json")
    }
    assert files == set(SCHEMAS)
