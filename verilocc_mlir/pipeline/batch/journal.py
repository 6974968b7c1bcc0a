"""What earlier runs finished: one line of JSON for each result, appended when it is there.

A line is an input as in the batch report (``results/documents/batch.schema.json``), with ``journal``, the version, and
``name``, the result's path from the journal's directory. The last line of a name counts. Lines that are cut or of
another version do not count, so a journal may end anywhere.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

from verilocc_mlir.pipeline.lines import JsonLines
from verilocc_mlir.results.batch import BATCH_VERSION, BatchItem
from verilocc_mlir.results.documents.batch import item_data, item_from_data

JOURNAL_NAME = "verilocc-batch.jsonl"


class BatchJournal:
    """The journal of one directory, locked against other runs until it is closed.

    Raises:
        InputError: it cannot be opened, or another run has it.
    """

    def __init__(self, directory: Path) -> None:
        self._lines = JsonLines(directory / JOURNAL_NAME)
        self._items: dict[str, BatchItem] = {}
        for record in self._lines.records:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if record["journal"] == BATCH_VERSION:
                    self._items[str(record["name"])] = item_from_data(record)

    def __enter__(self) -> BatchJournal:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def find(self, name: str) -> BatchItem | None:
        """What became of the result ``name`` last; None if nothing is known."""
        return self._items.get(name)

    def add(self, name: str, item: BatchItem) -> None:
        """Append what became of the result ``name``; the disk has it when this returns.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        self._lines.add({"journal": BATCH_VERSION, "name": name, **item_data(item)})
        self._items[name] = item
