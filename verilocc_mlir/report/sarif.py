"""What every SARIF 2.1.0 log of this project shares (OASIS, sarif-v2.1.0-os)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def log(version: str, rules: Sequence[dict[str, Any]], exit_code: int, **run: Any) -> dict[str, Any]:
    """A log of one run; ``run`` has its further properties, ``results`` among them."""
    driver = {"name": "verilocc", "version": version, "rules": rules}
    invocations = [{"executionSuccessful": True, "exitCode": exit_code}]
    return {
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": invocations, **run}],
    }


def uri(path: str) -> str:
    pure = Path(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())


def as_text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
