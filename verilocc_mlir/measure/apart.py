"""A measurement in a process of its own.

A kernel that is given wrong sizes writes where it must not, and then AMD's runtime ends the process that launched it.
That is one measurement which failed, not the end of those that follow, nor of what is to be said about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

from verilocc_mlir.crew.serve import Answer, serve
from verilocc_mlir.crew.worker import Late, Worker, WorkerFailure
from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.measure.device import OpenDevice, Subject
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.documents.measure import measurement_data, measurement_from_data
from verilocc_mlir.results.measure import Measurement

_START_SECONDS = 120.0
_HINT = "a fault of the GPU, most likely: look at --grid, --block and the sizes in --arg"


def measure_apart(
    open_device: OpenDevice, base: Subject, candidate: Subject, turns: Turns, *, ir: str = "", run_seconds: float = 60.0
) -> Measurement:
    """As ``runner.measure``, on a device that another process opens.

    Args:
        open_device: a function of a module, or a ``partial`` of one, which can be pickled.
        run_seconds: for one run of a code, so that the whole has a limit too.

    Raises:
        VeriloccError: what ``measure`` raises there. ToolchainError: that process ended, or did not answer.
    """
    runs = 2 * (turns.warm_up + turns.rounds * turns.runs) + 3
    question = {
        "base": base.name,
        "candidate": candidate.name,
        "size": len(base.data),
        "turns": asdict(turns),
        "ir": ir,
    }
    try:
        worker = Worker(partial(_work, open_device), "process that measures")
        try:
            answer, data = worker.ask(question, _START_SECONDS + runs * run_seconds, base.data + candidate.data)
        finally:
            worker.kill()
            worker.close()
    except Late as error:
        raise ToolchainError(f"the process that measures gave {error}", where=candidate.name) from error
    except WorkerFailure as error:
        raise ToolchainError(str(error), where=candidate.name, hint=_HINT) from error
    failure: Mapping[str, str] | None = answer.get("failure")
    if failure is not None:
        raise ToolchainError(failure["what"], where=failure["where"], hint=failure["hint"])
    return measurement_from_data(json.loads(data))


def _work(open_device: OpenDevice) -> None:
    """What that process does."""
    serve(partial(_answerer, open_device), 0, ready=False)


def _answerer(open_device: OpenDevice) -> Answer:
    return partial(_answer, open_device)


def _answer(
    open_device: Callable[[], Any], question: dict[str, Any], data: bytes
) -> tuple[Mapping[str, object], bytes]:
    size = question["size"]
    base, candidate = Subject(question["base"], data[:size]), Subject(question["candidate"], data[size:])
    try:
        with closing(open_device()) as device:
            found = measure(device, base, candidate, Turns(**question["turns"]), ir=question["ir"])
    except VeriloccError as error:
        return {"failure": {"what": error.what, "where": error.where, "hint": error.hint}, "last": True}, b""
    return {"last": True}, json.dumps(measurement_data(found)).encode()
