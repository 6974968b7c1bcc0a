"""The stream of events of a compilation: what is told, who hears it, and what reports are made of."""

from __future__ import annotations

import io

import pytest
from builders import kernel, loads, stores

from verilocc_mlir.cli.output import Progress
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.events import Assembled, Begun, Budget, Decided, Event, Events, Note, Spent, Tried
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Emit, Settings

SMALL = kernel([*loads(2), *stores(["%v0", "%v1"])], 0)


def test_notes_are_in_order_and_some_stand_once() -> None:
    events = Events()
    events.note("one", "two")
    events.note_once("one")
    events.note_once("three")
    assert events.notes == ("one", "two", "three")


def test_seconds_are_added_by_step_and_tools_come_last() -> None:
    events = Events()
    events.tell(Spent("pre-ra", 2.0, by_tool=True), Spent("audit", 1.0), Spent("audit", 0.5), Spent("pre-ra", 4.0))
    assert list(events.seconds.items()) == [("audit", 1.5), ("pre-ra", 6.0)]


def test_what_a_tool_took_is_of_the_budget() -> None:
    budget, endless = Budget(1000.0), Budget()
    assert not budget.is_over
    for each in (budget, endless):
        each.take(1001.0)
    assert budget.is_over
    assert not endless.is_over


def test_the_rest_is_without_what_was_measured_meanwhile() -> None:
    events = Events()
    with events.measure_rest("plans"):
        events.tell(Spent("build", -100.0), Spent("finish", 1000.0, by_tool=True))
    assert events.seconds["plans"] == pytest.approx(100.0, abs=50.0)


def test_a_failed_step_is_told_too() -> None:
    events = Events()
    with pytest.raises(KeyError), events.measure("build"):
        raise KeyError
    assert [*events.seconds] == ["build"]


def test_a_listener_hears_at_once_and_may_tell_more() -> None:
    heard: list[Event] = []

    def hear(event: Event, events: Events) -> None:
        heard.append(event)
        if event == Note("question"):
            events.note("answer")

    events = Events(listeners=[hear])
    events.note("question")
    assert heard == events.told == [Note("question"), Note("answer")]


def test_a_compilation_tells_what_its_report_and_its_page_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = []
    recording = Recording()
    hear = Recording.hear

    def listen(self: Recording, event: Event, events: Events) -> None:
        told.append(event)
        hear(self, event, events)

    monkeypatch.setattr(Recording, "hear", listen)
    done = compile_module(SMALL.encode(), "k.ll", Settings("gfx1100", emit=Emit.ASM), recording=recording)
    assert tuple(e.text for e in told if isinstance(e, Note)) == done.report.notes
    assert {e.step for e in told if isinstance(e, Spent)} == {step.name for step in done.report.steps}
    (decided,) = (e for e in told if isinstance(e, Decided))
    assert [*decided.records] == recording.phases
    assert [e.path for e in told if isinstance(e, Assembled)] == ["k.ll"]
    assert [*recording.costs] == [f.name for f in done.report.functions]


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_a_compilation_is_at_and_nothing_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    with Progress("there/k.ll", terminal, after_s=0.0) as listeners:
        compile_module(SMALL.encode(), "k.mir", Settings("gfx942"), listeners=listeners)
        Events(listeners=listeners).tell(Tried("max-ilp"), Begun("spill"))
    *lines, last = terminal.getvalue().split("\r\x1b[K")
    assert all(len(line) < 40 for line in lines)
    shown = [line.partition(" s  ")[2] for line in lines]
    assert "k.ll: prove" in shown
    assert (shown[-1], last) == ("k.ll: max-ilp: spill", "")


@pytest.mark.parametrize(
    ("stream", "wanted", "after_s", "term"),
    [
        (io.StringIO(), True, 0.0, "xterm"),
        (Terminal(), False, 0.0, "xterm"),
        (Terminal(), True, 1e9, "xterm"),
        (Terminal(), True, 0.0, "dumb"),
    ],
)
def test_elsewhere_nothing_is_shown(
    stream: io.StringIO, wanted: bool, after_s: float, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    with Progress("k.ll", stream, wanted=wanted, after_s=after_s) as listeners:
        events = Events(listeners=listeners)
        with events.measure("audit"):
            pass
    assert stream.getvalue() == ""
