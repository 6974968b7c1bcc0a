"""The allocator behind a server, and its model of plans.

Whatever goes wrong is an ``AllocationFailure``, so that a local allocator, or the model here, follows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import plan_service_pb2 as planning
from verilocc.v1 import verdict_pb2
from verilocc_mlir.allocators.protocol import UNKNOWN_VERSION, AllocationFailure
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.remote import wire
from verilocc_mlir.remote.client import Client, RemoteError, printable
from verilocc_mlir.remote.plans import RankedPlans
from verilocc_mlir.target.registers import physical_register

DEFAULT_REST_SECONDS = 30.0
"""How long a server that was not there is not asked again."""

_VERSION_SECONDS = 5.0
_NOT_THERE = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED)
_SHOWN = 60
_MAX_NAME = 512
_PLAN_SECONDS = 10.0
_MAX_PLANS = 256


class RemoteAllocator:
    """Asks a server for each problem; its answer is checked for its form here, and proved by whoever takes it.

    After a server was unreachable or too slow, no request is sent for a while: every problem fails at once.

    Args:
        allocator: which of the server's allocators; ``""`` for its default.
        rest_seconds: how long it is left alone.
    """

    def __init__(self, client: Client, *, allocator: str = "", rest_seconds: float = DEFAULT_REST_SECONDS) -> None:
        self.address = client.shown
        self.name = f"remote({self.address})"
        self._client = client
        self._allocator = allocator
        self._rest_seconds = rest_seconds
        self._version = ""
        self._listed = not allocator
        self._down_until = 0.0
        self._down = ""

    @property
    def version(self) -> str:
        """Name and version of the server's allocator, ``"unknown"`` as long as it has not said them."""
        if not self._version and time.monotonic() >= self._down_until:
            try:
                capabilities = self._client.capabilities(min(self._client.access.seconds, _VERSION_SECONDS))
            except RemoteError as error:
                self._noted(error)
            else:
                offered = {a.name: a.version for a in capabilities.allocators}
                name = self._allocator or (capabilities.allocators[0].name if capabilities.allocators else "")
                self._version = printable(f"{name} {offered.get(name, '')}")
                if name not in offered:
                    listed = printable(", ".join(offered)) or "none"
                    self._version = ""
                    self._rest(f"it has no allocator called {name!r}; it has: {listed}")
                self._listed = name in offered
        return self._version or UNKNOWN_VERSION

    def allocate(self, problem: AllocationProblem) -> Proposal:
        """The server's proposal.

        Raises:
            AllocationFailure: ``reason`` is ``"declined"``: the server has no assignment; ``"remote"``: it is down,
                late or refuses, or what it says is no answer to this problem.
        """
        if time.monotonic() < self._down_until:
            raise self._failure(f"{self._down}; not asked again for a while")
        # The server's list of allocators is read once. Where it gives none, the request itself shows what it has.
        if not self._listed and self.version == UNKNOWN_VERSION and time.monotonic() < self._down_until:
            raise self._failure(self._down)
        request = allocation.AllocateRequest(problem=wire.problem_message(problem), allocator=self._allocator)
        try:
            answer = self._client.allocate(request)
        except RemoteError as error:
            self._noted(error)
            raise self._failure(error.what) from error
        self._version = printable(answer.versions.allocator) or self._version
        return Proposal(PROBLEM_VERSION, self.name, self._registers(problem, answer.functions))

    def rank_plans(self, target: str, facts: Mapping[str, float]) -> RankedPlans:
        """What the server's model of plans says of a kernel with these facts: its first 256 answers.

        Raises:
            AllocationFailure: it has no model, is down, late, or refuses; ``reason`` is ``"remote"``.
        """
        if time.monotonic() < self._down_until:
            raise self._failure(f"{self._down}; not asked again for a while")
        request = planning.RankPlansRequest(target=target, facts=facts)
        try:
            answer = self._client.rank_plans(request, min(self._client.access.seconds, _PLAN_SECONDS))
        except RemoteError as error:
            self._noted(error)
            # A server of before PlanService does not know the method.
            none = error.reason == "NO_PLAN_MODEL" or error.status is StatusCode.UNIMPLEMENTED
            raise self._failure("it has no model of plans" if none else error.what) from error
        answers = tuple(map(printable, answer.answers[:_MAX_PLANS]))
        return RankedPlans(printable(answer.model), printable(answer.version), answers)

    def _noted(self, error: RemoteError) -> None:
        if error.status in _NOT_THERE:
            self._rest(error.what)

    def _rest(self, why: str) -> None:
        self._down_until = time.monotonic() + self._rest_seconds
        self._down = why

    def _registers(
        self, problem: AllocationProblem, functions: Sequence[allocation.FunctionAllocation]
    ) -> tuple[str, ...]:
        """A register for each range, in the order of their ids."""
        if len(functions) != 1:
            raise self._failure(f"it answered one problem with {len(functions)}")
        answer = functions[0]
        if answer.outcome != verdict_pb2.OUTCOME_PROVED:
            why = printable(answer.reason) or "it does not say why"
            raise self._failure(f"no allocation: {why}", reason="declined")
        registers: dict[int, str] = {}
        for assignment in answer.assignments:
            if not 0 <= assignment.range < len(problem.ranges) or assignment.range in registers:
                raise self._failure(f"it answered twice, or what was not asked: range {assignment.range}")
            if not _is_register(assignment.physical_register):
                name = printable(assignment.physical_register)[:_SHOWN]
                raise self._failure(f"it gave range {assignment.range} a register that there is not: {name!r}")
            registers[assignment.range] = assignment.physical_register
        if len(registers) < len(problem.ranges):
            raise self._failure(f"it gave {len(registers)} of {len(problem.ranges)} ranges a register")
        return tuple(registers[number] for number in range(len(problem.ranges)))

    def _failure(self, what: str, *, reason: str = "remote") -> AllocationFailure:
        return AllocationFailure(f"{self.address}: {what}", reason=reason)


def _is_register(name: str) -> bool:
    if len(name) > _MAX_NAME:
        return False
    try:
        physical_register(name)
    except UnsupportedError:
        return False
    return True
