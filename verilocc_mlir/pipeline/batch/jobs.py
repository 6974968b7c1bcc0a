"""A job, its result, and what an executor is."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.settings import Settings

BEFORE = "before"
"""Name of the part that is the machine IR as it entered allocation; it comes with ``Emit.MIR``."""
REST = "rest"
"""Name of the part that is the result without the functions that nobody proves (``Report.left_out``)."""


@dataclass(frozen=True)
class Job:
    """One compilation.

    Attributes:
        number: tells it apart from the others of a run; the result has it too.
        path: the input's name, for messages.
    """

    number: int
    path: str
    data: bytes
    settings: Settings


@dataclass(frozen=True)
class Result:
    """What came of a job.

    Attributes:
        number: the job's.
        outcome: INVALID for bad input or a tool that failed.
        data: the result in the form asked for; None unless it is proved.
        report: the report as ``results.documents.compile.to_data`` has it, None where it did not come to one.
        message: why it is not proved, in a line.
        final: the job would end the same way again, as far as can be told.
        seconds: elapsed time of the work itself.
        keyed: it is what was asked for. A local result where a server was to allocate is delivered, but neither kept
            nor taken for done.
        server_version: what allocated behind the server, as it said then; ``""`` where no server took part.
        parts: the further forms that the settings ask for (``Settings.also``), by ``Emit.value``, and ``BEFORE``; they
            may be unproved. ``REST`` where functions are left out: what is left is proved.
    """

    number: int
    outcome: Outcome
    data: bytes | None = None
    report: Mapping[str, Any] | None = None
    message: str = ""
    final: bool = True
    seconds: float = 0.0
    keyed: bool = True
    server_version: str = ""
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class Executor(Protocol):
    """Does jobs, here or elsewhere."""

    def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
        """One result for each job, in the order in which they are ready.

        Jobs are taken as there is room for them, never all at once. Closing the generator, or an exception in it,
        ends all that is still running before it returns. A job that fails is a result; what is raised ends the run.
        """
        ...
