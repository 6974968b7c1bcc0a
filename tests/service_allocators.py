"""Allocators that err on purpose, and the terms of a server that has them: ``service_allocators:TERMS``."""

from __future__ import annotations

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from verilocc_mlir.allocators import AllocationFailure, Allocator, Refutation, allocator
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.service.jobs import Terms

DIRECTORY = "VERILOCC_TEST_DIRECTORY"
"""Where ``waits`` and ``spawns`` write their process ids (``pids``, ``children``), and wait for ``go``."""


def right(problem: AllocationProblem) -> Proposal:
    return allocator("deterministic").allocate(problem)


def spoilt(problem: AllocationProblem) -> Proposal:
    """The right answer, but all ranges of a class have the register of the first of them."""
    proposal = right(problem)
    first: dict[str, str] = {}
    registers = (first.setdefault(r.register_class, proposal.registers[r.id]) for r in problem.ranges)
    return replace(proposal, registers=tuple(registers))


@dataclass(frozen=True)
class Does:
    """Asked once; what it does instead of an answer, or with it."""

    name: str
    does: Callable[[AllocationProblem], Proposal]
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return self.does(problem)


@dataclass(frozen=True)
class Stubborn:
    """Wrong however often it is asked."""

    name: str = "stubborn"
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return spoilt(problem)

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        return spoilt(problem)


@dataclass(frozen=True)
class Trips:
    """Wrong, and then it has a defect of its own."""

    name: str = "trips"
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        return spoilt(problem)

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        raise IndexError(problem.function)


@dataclass(frozen=True)
class Learns:
    """Wrong twice, then right: everything it knows by then, it has from the counterexamples."""

    name: str = "learns"
    version: str = "1"

    def allocate(self, problem: AllocationProblem) -> Proposal:
        registers = list(right(problem).registers)
        for one, other in self.pairs(problem):
            registers[one] = registers[other]
        return Proposal(1, self.name, tuple(registers))

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        """Move back one of the two ranges that were displaced, the one that a counterexample names."""
        last = refuted[-1]
        assert len(refuted) in (1, 2), "asked again after it was right"
        assert last.counterexamples, "refuted without a counterexample"
        assert len(last.proposal.registers) == len(problem.ranges)
        assert refuted[0].proposal == self.allocate(problem)
        named = {i for c in last.counterexamples for i in c.ranges}
        displaced = {one for one, _ in self.pairs(problem)}
        meant = right(problem).registers
        wrong = sorted(i for i in named & displaced if last.proposal.registers[i] != meant[i])
        assert wrong, f"the counterexamples name {named}, and {displaced} were displaced"
        registers = list(last.proposal.registers)
        registers[wrong[0]] = meant[wrong[0]]
        return Proposal(1, self.name, tuple(registers))

    def pairs(self, problem: AllocationProblem) -> list[tuple[int, int]]:
        """Two pairs of ranges that are live together, in registers of the same class."""
        found: list[tuple[int, int]] = []
        taken: set[int] = set()
        for one in problem.ranges:
            for other in problem.ranges[one.id + 1 :]:
                free = not {one.id, other.id} & taken
                if free and one.register_class == other.register_class and _meet(problem, one.id, other.id):
                    found.append((one.id, other.id))
                    taken |= {one.id, other.id}
        assert len(found) >= 2, "choose a problem with more ranges"
        return found[:2]


@dataclass(frozen=True)
class Follows(Learns):
    """Wrong once, then what the verifier says is the nearest valid assignment."""

    name: str = "follows"

    def regenerate(self, problem: AllocationProblem, refuted: tuple[Refutation, ...]) -> Proposal:
        (last,) = refuted
        nearest = dict(last.nearest)
        assert nearest, "refuted without an assignment that is near"
        assert nearest.keys() <= {i for c in last.counterexamples for i in c.ranges}
        registers = (nearest.get(i, name) for i, name in enumerate(last.proposal.registers))
        return Proposal(1, self.name, tuple(registers))


def _meet(problem: AllocationProblem, one: int, other: int) -> bool:
    slots = [{s for g in problem.ranges[i].groups for a, b in g.segments for s in range(a, b)} for i in (one, other)]
    return bool(slots[0] & slots[1])


def _directory() -> Path:
    return Path(os.environ[DIRECTORY])


def _note(name: str, pid: int) -> None:
    with (_directory() / name).open("a") as file:
        file.write(f"{pid}\n")


def waits(problem: AllocationProblem) -> Proposal:
    """Right, when it is told to go on."""
    _note("pids", os.getpid())
    while not (_directory() / "go").exists():
        time.sleep(0.01)
    return right(problem)


def hangs(_problem: AllocationProblem) -> Proposal:
    _note("pids", os.getpid())
    while True:
        time.sleep(60)


def deaf(_problem: AllocationProblem) -> Proposal:
    """Hears no signal that can be kept from it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    return hangs(_problem)


def spins(_problem: AllocationProblem) -> Proposal:
    _note("pids", os.getpid())
    while True:
        pass


def spawns(_problem: AllocationProblem) -> Proposal:
    """Starts processes, one of them in a session of its own, and waits for them."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    _note("children", child.pid)
    _note("children", other.pid)
    _note("pids", os.getpid())
    child.wait()
    raise AssertionError("the child ended")


def eats(_problem: AllocationProblem) -> Proposal:
    kept: list[bytearray] = []
    while True:
        kept.append(bytearray(64 << 20))


def eats_natively(_problem: AllocationProblem) -> Proposal:
    kept: list[mmap.mmap] = []
    while True:
        kept.append(mmap.mmap(-1, 64 << 20))


def exits(_problem: AllocationProblem) -> Proposal:
    os._exit(0)


def crashes(_problem: AllocationProblem) -> Proposal:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def raises(problem: AllocationProblem) -> Proposal:
    raise ValueError(problem.function)


def recurses(problem: AllocationProblem) -> Proposal:
    return recurses(problem)


def gives_up(_problem: AllocationProblem) -> Proposal:
    raise AllocationFailure("not today", reason="fragmentation")


def quits(_problem: AllocationProblem) -> Proposal:
    sys.exit(3)


def interrupts(_problem: AllocationProblem) -> Proposal:
    raise KeyboardInterrupt


def wrong_sizes(problem: AllocationProblem) -> Proposal:
    return replace(right(problem), registers=tuple("vgpr0_vgpr1_vgpr2" for _ in problem.ranges))


def other_spelling(problem: AllocationProblem) -> Proposal:
    """The right registers, as LLVM does not write them."""
    names = (re.sub(r"(?<=gpr)(?=[0-9])", "0", name) for name in right(problem).registers)
    return replace(right(problem), registers=tuple(names))


def endless_number(problem: AllocationProblem) -> Proposal:
    return replace(right(problem), registers=tuple(f"sgpr{'9' * 5000}" for _ in problem.ranges))


def no_tuple(problem: AllocationProblem) -> Proposal:
    return replace(right(problem), registers=None)  # pyright: ignore[reportArgumentType]


def none(_problem: AllocationProblem) -> Proposal:
    return None  # pyright: ignore[reportReturnType]


def too_few(problem: AllocationProblem) -> Proposal:
    proposal = right(problem)
    return replace(proposal, registers=proposal.registers[1:])


def unknown_registers(problem: AllocationProblem) -> Proposal:
    return replace(right(problem), registers=tuple("x99" for _ in problem.ranges))


def numbers(problem: AllocationProblem) -> Proposal:
    return replace(right(problem), registers=tuple(range(len(problem.ranges))))  # pyright: ignore[reportArgumentType]


def prints(problem: AllocationProblem) -> Proposal:
    print("not an answer")
    print("not a log line either", file=sys.stderr)
    os.write(1, b"\0\0\0\1\0\0\0\1xx\n")
    return right(problem)


_ACTIONS = (
    spoilt, waits, hangs, deaf, spins, spawns, eats, eats_natively, exits, crashes, raises, recurses, gives_up, quits,
    interrupts, none, too_few, unknown_registers, wrong_sizes, other_spelling, endless_number, numbers, no_tuple,
    prints,
)  # fmt: skip
_OFFERED: dict[str, Allocator] = {
    "deterministic": allocator("deterministic"),
    "learns": Learns(),
    "follows": Follows(),
    "stubborn": Stubborn(),
    "trips": Trips(),
    **{action.__name__.replace("_", "-"): Does(action.__name__.replace("_", "-"), action) for action in _ACTIONS},
}
TERMS = Terms(allocators=tuple(_OFFERED), factory=_OFFERED.__getitem__)
