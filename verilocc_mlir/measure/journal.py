"""Measurements kept: one line of JSON for each (``results/documents/measure.schema.json``), appended when it is there.

A line that is cut, or of another version, does not count, so a journal may end anywhere. What is in it is not measured
again, so an interrupted run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from verilocc_mlir.errors import InputError
from verilocc_mlir.files import JsonLines, records_in
from verilocc_mlir.results.measure import Measurement, measurement_data, measurement_from_data

VARIABLE = "VERILOCC_MEASURED"
"""Environment variable: the journal that ``replace=measured`` decides by."""


class Journal:
    """A journal that is written, locked against other runs until it is closed.

    Attributes:
        passed_over: lines that do not count.

    Raises:
        InputError: it cannot be opened, or another run has it.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)
        measurements, unread = _read(self._lines.records)
        self.passed_over = unread + self._lines.unread
        self._by_asked = {one.asked: one for one in measurements}

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def find(self, asked: str) -> Measurement | None:
        """What was measured when the same was asked; the last one counts."""
        return self._by_asked.get(asked)

    def add(self, one: Measurement) -> None:
        """Append it; the disk has it when this returns.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        self._lines.add(measurement_data(one))
        self._by_asked[one.asked] = one


def read_measurements(path: Path) -> tuple[list[Measurement], int]:
    """Every measurement of a journal in order, and how many lines do not count. Whoever writes it may go on.

    Raises:
        InputError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the journal cannot be read: {error.strerror}", where=str(path)) from error
    records, cut = records_in(data)
    measurements, unread = _read(records)
    return measurements, unread + cut


def _read(records: Iterable[dict[str, Any]]) -> tuple[list[Measurement], int]:
    measurements: list[Measurement] = []
    unread = 0
    for record in records:
        try:
            measurements.append(measurement_from_data(record))
        except ValueError:
            unread += 1
    return measurements, unread
