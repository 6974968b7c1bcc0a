"""Rows as they are measured, so that an interrupted evaluation can be continued."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_model.evaluation.evaluate import Row
from verilocc_model.price import Price


class EvaluationJournal:
    """A file of lines: first model and configuration, then the rows of each problem.

    Args:
        path: made if it does not exist.
        about: model and configuration.

    Raises:
        InputError: the file is of another model or configuration.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        self._rows: dict[str, list[Row]] = {}
        head = json.dumps(about, sort_keys=True)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(head + "\n")
            return
        text = path.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        if not lines or lines[0] != head:
            raise InputError(
                "an evaluation of another model, configuration or commit was begun here",
                where=str(path),
                hint="remove it, or choose another --out",
            )
        # A last line that was cut off is removed.
        path.write_text("".join(f"{line}\n" for line in lines))
        for line in lines[1:]:
            data = json.loads(line)
            self._rows[data["key"]] = [_row(row) for row in data["rows"]]

    def rows_of(self, key: str) -> list[Row] | None:
        """The rows of a problem; None where it was not measured."""
        return self._rows.get(key)

    def add(self, key: str, rows: Sequence[Row]) -> None:
        with self._path.open("a") as stream:
            stream.write(json.dumps({"key": key, "rows": [asdict(row) for row in rows]}) + "\n")

    def end(self) -> None:
        """Remove the file, because everything is measured."""
        self._path.unlink()


def _row(data: dict[str, Any]) -> Row:
    prices = {k: Price(*data[k]) if data[k] is not None else None for k in ("price", "deterministic", "greedy")}
    return Row(**{**data, **prices})
