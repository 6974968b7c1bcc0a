"""The allocator behind a server, and its model of plans.

Whatever goes wrong is an ``AllocationFailure``, so that a local allocator, or the model here, follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from grpc import StatusCode

from verilocc.v1 import allocation_service_pb2 as allocation
from verilocc.v1 import plan_service_pb2 as planning
from verilocc.v1 import verdict_pb2
from verilocc_mlir.allocators.protocol import UNKNOWN_VERSION, AllocationFailure, ServedProposal, ServerAttempt
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.remote import RankedPlans, wire
from verilocc_mlir.remote.client import Client, RemoteError
from verilocc_mlir.remote.wire import printable, tries_of
from verilocc_mlir.target.registers import physical_register

DEFAULT_REST_SECONDS = 30.0
"""How long a server that was not there is not asked again."""

_VERSION_SECONDS = 5.0
_NOT_THERE = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED)
_SHOWN = 60
_MAX_NAME = 512
_PLAN_SECONDS = 10.0
_MAX_PLANS = 256
_RangeOf = Callable[[allocation.Assignment], int]


class RemoteAllocator:
    """Asks a server for each function of a phase; its answer is checked for its form here, and proved by whoever takes
    it. Machine IR is sent where there is some (``Reading``), else the problem.

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
        """The server's proposal for a problem that is sent as it is.

        Raises:
            AllocationFailure: ``reason`` is ``"declined"``: the server has no assignment; ``"remote"``: it is down,
                late or refuses, or what it says is no answer to this problem.
        """
        request = allocation.AllocateRequest(problem=wire.problem_message(problem), allocator=self._allocator)
        return self._proposal(request, problem, lambda given: given.range)

    def allocate_text(self, text: str, problem: AllocationProblem) -> Proposal:
        """The server's proposal for machine IR, of which it makes the problem itself; ``problem`` says what has to be
        answered.

        Raises:
            AllocationFailure: as for ``allocate``.
        """
        numbers = {live.name: live.id for live in problem.ranges}
        mir = allocation.MachineIr(
            text=text.encode(), target=problem.target, phase=wire.PHASE_NUMBERS[problem.phase], name=problem.function,
            function=problem.function,
        )  # fmt: skip
        # The text is made and audited here: nothing that a server says of it would be taken.
        request = allocation.AllocateRequest(mir=mir, allocator=self._allocator, assignment_only=True)
        return self._proposal(request, problem, lambda given: numbers.get(given.virtual_register, -1))

    def _proposal(
        self, request: allocation.AllocateRequest, problem: AllocationProblem, range_of: _RangeOf
    ) -> Proposal:
        """The proposal in the answer to a request; ``range_of`` says which range an assignment is for, -1 for none."""
        if time.monotonic() < self._down_until:
            raise self._failure(f"{self._down}; not asked again for a while")
        # The server's list of allocators is read once. Where it gives none, the request itself shows what it has.
        if not self._listed and self.version == UNKNOWN_VERSION and time.monotonic() < self._down_until:
            raise self._failure(self._down)
        try:
            answer = self._client.allocate(request)
        except RemoteError as error:
            self._noted(error)
            raise self._failure(error.what) from error
        self._version = printable(answer.versions.allocator) or self._version
        # A server that does not know MachineIr.function answers for every function of the text.
        wanted = request.mir.function if request.HasField("mir") else ""
        functions = [f for f in answer.functions if not wanted or f.function == wanted]
        if len(functions) != 1:
            raise self._failure(f"it answered one problem with {len(functions)}")
        tries = tries_of(functions[0].attempts)
        registers = self._registers(problem, functions[0], tries, range_of)
        return ServedProposal(PROBLEM_VERSION, self.name, registers, tries)

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
        self,
        problem: AllocationProblem,
        answer: allocation.FunctionAllocation,
        tries: tuple[ServerAttempt, ...],
        range_of: _RangeOf,
    ) -> tuple[str, ...]:
        """A register for each range, in the order of their ids."""
        if answer.outcome != verdict_pb2.OUTCOME_PROVED:
            why = printable(answer.reason) or "it does not say why"
            raise self._failure(f"no allocation: {why}", reason="declined", tries=tries)
        registers: dict[int, str] = {}
        for assignment in answer.assignments:
            number = range_of(assignment)
            if not 0 <= number < len(problem.ranges) or number in registers:
                name = printable(assignment.virtual_register)[:_SHOWN]
                raise self._failure(
                    f"it answered twice, or what was not asked: range {assignment.range} {name}".rstrip()
                )
            if not _is_register(assignment.physical_register):
                name = printable(assignment.physical_register)[:_SHOWN]
                raise self._failure(f"it gave range {number} a register that there is not: {name!r}")
            registers[number] = assignment.physical_register
        if len(registers) < len(problem.ranges):
            raise self._failure(f"it gave {len(registers)} of {len(problem.ranges)} ranges a register")
        return tuple(registers[number] for number in range(len(problem.ranges)))

    def _failure(
        self, what: str, *, reason: str = "remote", tries: tuple[ServerAttempt, ...] = ()
    ) -> AllocationFailure:
        return AllocationFailure(f"{self.address}: {what}", reason=reason, tries=tries)


def _is_register(name: str) -> bool:
    if len(name) > _MAX_NAME:
        return False
    try:
        physical_register(name)
    except UnsupportedError:
        return False
    return True
