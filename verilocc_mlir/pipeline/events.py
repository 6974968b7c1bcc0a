"""What a compilation tells while it runs, as one stream of events in their order.

A step tells what it has to say and knows nobody who listens. Reports are made of the stream at the end; a listener, the
recording for the HTML page say, hears each event at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from smt_verifier.certificate.second import programs_cpu_seconds
from smt_verifier.smt import default_solver

if TYPE_CHECKING:
    from verilocc_mlir.results.page import PhaseRecord
    from verilocc_mlir.target.targets import Target


class Event(Struct, frozen=True):
    """Something that was told; those of one kind are a class of their own."""


class Note(Event, frozen=True):
    """For people, in the report: what was left out or done in another way, and why."""

    text: str


class Tried(Event, frozen=True):
    """What is worked on from now on: a candidate, by its name."""

    candidate: str


class Begun(Event, frozen=True):
    """A step of this process that is under way."""

    step: str


class Spent(Event, frozen=True):
    """CPU seconds that a step took; ``by_tool``: of LLVM's tools, else of this process and its solver workers."""

    step: str
    seconds: float
    by_tool: bool = False


class Decided(Event, frozen=True):
    """What the phases of the result were decided on, in their order. Told again, it is of another result."""

    records: tuple[PhaseRecord, ...]


class Assembled(Event, frozen=True):
    """The final code is there: ``ours`` and ``llvms`` give it, and LLVM's of a plain compile, as assembly."""

    path: str
    target: Target
    ours: Callable[[], bytes]
    llvms: Callable[[], bytes]


Listener = Callable[[Event, "Events"], None]
"""Hears of an event, and may tell further ones."""


class Budget:
    """CPU seconds of this process, its solver workers and LLVM's tools, from now on; None: there is no end to them."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = None if seconds is None else cpu_seconds() + seconds

    def take(self, seconds: float) -> None:
        """CPU seconds that a tool took."""
        if self._end is not None:
            self._end -= seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing further is tried: what is proved by then has to do."""
        return self._end is not None and cpu_seconds() > self._end


class Events:
    """The stream of one piece of work, kept from its beginning.

    Any thread may tell: to append to a list is one step.

    Args:
        budget: what all that is measured here may take.
        listeners: hear of each event as it is told.
    """

    def __init__(self, budget: Budget | None = None, listeners: Iterable[Listener] = ()) -> None:
        self.budget = budget or Budget()
        self.listeners = tuple(listeners)
        self.told: list[Event] = []

    def tell(self, *events: Event) -> None:
        self.told.extend(events)
        for listener in self.listeners:
            for event in events:
                listener(event, self)

    def note(self, *texts: str) -> None:
        self.tell(*map(Note, texts))

    def note_once(self, text: str) -> None:
        if text not in self.notes:
            self.note(text)

    @contextmanager
    def measure(self, step: str) -> Generator[None, None, None]:
        """Tell that the block is entered, and at its end what it took."""
        self.tell(Begun(step))
        start = cpu_seconds()
        try:
            yield
        finally:
            self.tell(Spent(step, cpu_seconds() - start))

    @contextmanager
    def measure_rest(self, step: str) -> Generator[None, None, None]:
        """As ``measure``, without what is measured as other steps meanwhile."""
        start, already = cpu_seconds(), len(self.told)
        try:
            yield
        finally:
            others = sum(
                event.seconds for event in self.told[already:] if isinstance(event, Spent) and not event.by_tool
            )
            self.tell(Spent(step, cpu_seconds() - start - others))

    # What reports are made of.

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(event.text for event in self.told if isinstance(event, Note))

    @property
    def seconds(self) -> dict[str, float]:
        """By step: those of this process, then those of tools."""
        seconds: dict[str, float] = {}
        for event in sorted((e for e in self.told if isinstance(e, Spent)), key=lambda spent: spent.by_tool):
            seconds[event.step] = seconds.get(event.step, 0.0) + event.seconds
        return seconds


def cpu_seconds() -> float:
    """CPU seconds of this process, of the solver's and of the checkers' programs so far."""
    return time.process_time() + default_solver().cpu_seconds + programs_cpu_seconds()
