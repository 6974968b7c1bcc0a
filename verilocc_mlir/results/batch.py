"""The result of one ``verilocc compile-many`` as frozen data. Seconds are wall seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ExitCode
from verilocc_mlir.results.compile import EXIT_CODES

BATCH_VERSION = 2
"""Version of the JSON form, the journal's records included; raised whenever ``batch.schema.json`` changes."""


class Origin(Enum):
    """Where a result came from: ``COMPILED`` now, ``CACHE``: the store, ``JOURNAL``: an earlier run wrote it here."""

    COMPILED = "compiled"
    CACHE = "cache"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class BatchItem:
    """What came of one input.

    Attributes:
        input_sha256: of the bytes read; ``""`` where they could not be.
        key: what the result depends on (``verilocc_mlir.pipeline.key``), likewise; ``""`` also where a server was asked
            for and the result is a local one.
        outcome: INVALID is bad input, or a tool that failed.
        origin: where the result came from.
        output: file that has the result, ``""`` where there is none; ``output_sha256`` is that of its bytes. Where it
            is not proved, it is without the functions that nobody proves.
        report: file that has the JSON report of ``verilocc compile``, likewise.
        seconds: elapsed time of this input, its worker's only; 0 where nothing was compiled.
        message: why it is not proved, in a line; ``""`` where it is.
        final: the same input would end the same way again: not a time limit, a crash, or a disk that is full.
        target: the processor; ``""`` where the input did not come to one.
    """

    input: str
    input_sha256: str
    key: str
    outcome: Outcome
    origin: Origin = Origin.COMPILED
    output: str = ""
    output_sha256: str = ""
    report: str = ""
    report_sha256: str = ""
    seconds: float = 0.0
    message: str = ""
    final: bool = True
    target: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """Of this input alone, as ``verilocc compile`` would have it."""
        return EXIT_CODES[self.outcome]


@dataclass(frozen=True)
class BatchReport:
    """One run, to its end.

    Attributes:
        llvm: version line of the LLVM used.
        settings: what was asked for, as ``Settings.to_data`` has it.
        items: in the order in which they were ready.
        warnings: what went wrong beside the results: entries that were not kept.
    """

    version: str
    llvm: str
    settings: dict[str, object]
    items: tuple[BatchItem, ...]
    warnings: tuple[str, ...]
    wall_seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """The gravest: REFUTED before BAD_INPUT before UNKNOWN before PROVED."""
        return min((i.exit_code for i in self.items if i.exit_code), default=ExitCode.PROVED)

    def count(self, outcome: Outcome, origin: Origin | None = None) -> int:
        """Inputs with that outcome, from that origin or any."""
        counts = Counter(i.origin for i in self.items if i.outcome is outcome)
        return counts.total() if origin is None else counts[origin]
