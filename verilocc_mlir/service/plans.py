"""PlanService: answers of a model of plans, which is asked in a thread beside the event loop, one call at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from grpc import StatusCode

from verilocc.v1 import plan_service_pb2 as planning
from verilocc_mlir.pipeline.learned import PlanModel
from verilocc_mlir.service.status import ServiceError, malformed, read_json, read_message

PLANS = "verilocc.v1.PlanService"
MOST_BYTES = 64 << 10
"""Of a request: the front reads it, so it has to be small. Sixty facts take two KiB, and three as JSON."""
_NAMED = 5
"""Facts that an error names."""
_SHOWN = 60
"""Characters of a name."""


@dataclass
class Plans:
    """See the module.

    Attributes:
        model: None where the server has none.
    """

    model: PlanModel | None = None
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """A question takes a core for some 20 ms, which the workers have otherwise."""

    async def rank(self, data: bytes, *, as_json: bool) -> planning.RankPlansResponse:
        """Answer a request.

        Raises:
            ServiceError: it is none that the model can answer, or there is no model.
        """
        if len(data) > MOST_BYTES:
            message = f"a request of this method has {MOST_BYTES} bytes at most"
            raise ServiceError(StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", message)
        request = (read_json if as_json else read_message)(planning.RankPlansRequest, data)
        if self.model is None:
            raise ServiceError(
                StatusCode.FAILED_PRECONDITION,
                "NO_PLAN_MODEL",
                "this server has no model of plans; it offers one with --plan-model",
            )
        async with self._turn:
            return await asyncio.to_thread(_ranked, self.model, request)


def _ranked(model: PlanModel, request: planning.RankPlansRequest) -> planning.RankPlansResponse:
    if request.count < 0:
        raise malformed("count is not negative", request=True)
    if request.target not in model.targets:
        raise ServiceError(
            StatusCode.INVALID_ARGUMENT,
            "UNKNOWN_TARGET",
            f"there is no target {request.target[:_SHOWN]!r} here; there are: {', '.join(model.targets)}",
        )
    facts, wanted = dict(request.facts), model.facts
    if facts.keys() != wanted:
        raise ServiceError(StatusCode.INVALID_ARGUMENT, "OTHER_FACTS", _other_facts(facts.keys(), wanted))
    if unusable := sorted(name for name, value in facts.items() if not math.isfinite(value)):
        raise malformed(f"facts that are no finite numbers: {_some(unusable)}", request=True)
    stated = model.ranked(request.target, facts)
    answers = stated.answers[: request.count or None]
    return planning.RankPlansResponse(model=stated.model, version=model.version, answers=map(str, answers))


def _other_facts(given: Set[str], wanted: Set[str]) -> str:
    parts = (("missing", sorted(wanted - given)), ("not known", sorted(given - wanted)))
    said = "; ".join(f"{len(names)} {what}: {_some(names)}" for what, names in parts if names)
    return f"the model was trained with {len(wanted)} facts, and these are others ({said})"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:_SHOWN]) for name in names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} …"
