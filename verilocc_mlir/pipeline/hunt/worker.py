"""The process that tries cases and makes examples small. Its question is a task, with the input's bytes."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from verilocc_mlir.crew.descendants import serve_jobs
from verilocc_mlir.crew.jobs import JobCrew
from verilocc_mlir.crew.serve import Answer
from verilocc_mlir.crew.worker import Late, WorkerFailure
from verilocc_mlir.errors import VeriloccError, is_out_of_memory
from verilocc_mlir.own_process import look_for_garbage_seldom
from verilocc_mlir.pipeline.hunt.example import reduce_example
from verilocc_mlir.pipeline.hunt.work import hunt_case
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.hunt import Case, Kind, Reduced, Row, Suspect, data_of, row_from_data

_MAX_TASKS = 200
"""A worker is replaced after so many: what they left behind in it (memory) goes with it."""
_SLACK_S = 120.0
"""What a reduction may take beyond its time: its last step, and what follows it."""


@dataclass(frozen=True)
class Task:
    """A case to be tried, or, where there is a suspect, one to be made small within ``seconds``."""

    case: Case
    key: str
    data: bytes
    suspect: Suspect | None = None
    seconds: float = 0.0


class Doer:
    """Does tasks in workers of this process; as many as are done at once.

    Args:
        settings: of LLVM and the audit.
        seconds: elapsed time that a case may take; then it is unknown.
        memory_mib: address space of a worker, and of each tool that it starts.
        forks: as for ``JobCrew``.
    """

    def __init__(self, settings: Settings, seconds: float, memory_mib: int, *, forks: bool = False) -> None:
        self._settings = settings.to_data()
        self._seconds = seconds
        self._crew = JobCrew(partial(_work, memory_mib), forks=forks)
        self.stop = self._crew.stop

    def do(self, task: Task) -> Row | Reduced | str:
        """A row, or a reduced example, or why there is none.

        Raises:
            ToolchainError: no worker starts, or the run is over.
        """
        question = {
            "case": data_of(task.case),
            "key": task.key,
            "suspect": data_of(task.suspect),
            "seconds_to_reduce": task.seconds,
            "settings": self._settings,
        }
        seconds = task.seconds + _SLACK_S if task.suspect else self._seconds
        reason = ""
        for _ in range(2):
            try:
                with self._crew.worker() as worker:
                    answer, _ = worker.ask(question, seconds, task.data)
                    worker.last |= worker.answered >= _MAX_TASKS
                return _result(task, answer)
            except Late:
                reason = f"not finished within {seconds:g} s"
                break
            except WorkerFailure as failure:
                reason = f"{failure}, twice"
        return _unknown(task, reason)


def _result(task: Task, answer: Mapping[str, Any]) -> Row | Reduced | str:
    if answer["reason"]:
        return _unknown(task, answer["reason"])
    return msgspec.convert(answer["result"], Reduced) if task.suspect else row_from_data(answer["result"])


def _unknown(task: Task, reason: str) -> Row | str:
    return reason if task.suspect else Row(task.key, task.case, suspects=(Suspect(Kind.UNKNOWN, "", reason),))


def _work(memory_mib: int) -> None:
    def load() -> Answer:
        os.environ["LLVM_DISABLE_SYMBOLIZATION"] = (
            "1"  # reduced texts crash often, and names of functions take a second
        )
        look_for_garbage_seldom()
        return partial(_answer, memory_mib)

    serve_jobs(load, memory_mib)


def _answer(memory_mib: int, question: dict[str, Any], data: bytes) -> tuple[Mapping[str, object], bytes]:
    last, reason, result = False, "", None
    try:
        result = data_of(_done(question, data)())
    except VeriloccError as error:
        reason = error.what
    except Exception as error:
        last = is_out_of_memory(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        memory = f"out of memory: a worker has {memory_mib} MiB"
        reason = memory if last else f"a defect of verilocc: {type(error).__name__} at {where}: {error}"
    return {"result": result, "reason": " ".join(reason.split()), "last": last}, b""


def _done(question: dict[str, Any], data: bytes) -> Callable[[], Row | Reduced]:
    case = msgspec.convert(question["case"], Case)
    settings = Settings.from_data(question["settings"])
    if question["suspect"] is None:
        return partial(hunt_case, data, case, settings, question["key"])
    suspect = msgspec.convert(question["suspect"], Suspect)
    return partial(reduce_example, data, case, suspect, settings, question["seconds_to_reduce"])
