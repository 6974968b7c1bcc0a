"""What earlier runs finished: one line of JSON for each result, appended when it is there.

A line is an input as in the batch report (``results/documents/batch.schema.json``), with ``journal``, the version, and
``name``, the result's path from the journal's directory. The last line of a name counts. Lines that are cut or of
another version do not count, so a journal may end anywhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from verilocc_mlir.errors import InputError
from verilocc_mlir.results.batch import BATCH_VERSION, BatchItem
from verilocc_mlir.results.documents.batch import item_data, item_from_data

JOURNAL_NAME = "verilocc-batch.jsonl"


class BatchJournal:
    """The journal of one directory, locked against other runs until it is closed.

    Raises:
        InputError: it cannot be opened, or another run has it.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / JOURNAL_NAME
        try:
            self._stream = path.open("a+b", buffering=0)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._stream.close()
            raise InputError("another run is writing here", where=str(path), hint="wait for it") from error
        except OSError:
            # A file system without locks: two runs at once do work twice, but every file is whole.
            pass
        self._stream.seek(0)
        data = self._stream.read()
        self._cut = bool(data) and not data.endswith(b"\n")
        self._items: dict[str, BatchItem] = {}
        for line in data.splitlines():
            self._read(line)

    def __enter__(self) -> BatchJournal:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def find(self, name: str) -> BatchItem | None:
        """What became of the result ``name`` last; None if nothing is known."""
        return self._items.get(name)

    def add(self, name: str, item: BatchItem) -> None:
        """Append what became of the result ``name``; the disk has it when this returns.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        line = json.dumps({"journal": BATCH_VERSION, "name": name, **item_data(item)}).encode() + b"\n"
        if self._cut:
            line = b"\n" + line
        self._cut = True
        unwritten = memoryview(line)
        while unwritten:
            # What fits on a disk that is almost full is written; the next call says that it is full.
            unwritten = unwritten[self._stream.write(unwritten) or 0 :]
        self._cut = False
        os.fsync(self._stream.fileno())
        self._items[name] = item

    def _read(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            if isinstance(record, dict):
                data = cast("dict[str, Any]", record)
                if data["journal"] == BATCH_VERSION:
                    self._items[str(data["name"])] = item_from_data(data)
