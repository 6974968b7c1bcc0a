"""Turns: who runs when, what is compared, and what refuses to be timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from measure_support import ALSO_MIDDLE, BEST, MIDDLE, RECORDING, WORST

from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.device import ReplayDevice, Subject, Work, digest
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel, Sameness, Verdict


@dataclass
class Counted:
    """A code of the device below: it writes down that it was run."""

    name: str
    calls: list[str]
    ms: float

    def results(self) -> tuple[bytes, ...]:
        self.calls.append(f"{self.name} results")
        return (b"same",)

    def times(self, count: int) -> list[float]:
        self.calls.append(f"{self.name} {count}")
        return [self.ms] * count

    def close(self) -> None:
        self.calls.append(f"{self.name} closed")


@dataclass
class CountedDevice:
    """A device whose clock goes down from one look to the next."""

    calls: list[str] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=lambda: iter(range(2000, 0, -100)))
    about: DeviceAbout = field(default_factory=lambda: DeviceAbout("counted", "counted"))
    caveat: str = ""

    def subject(self, text: str) -> Subject:
        return Subject(text, text.encode())

    def kernel(self, subject: Subject) -> MeasuredKernel:
        return MeasuredKernel("k", digest(subject.name[:1].encode()))

    def work(self, subject: Subject) -> Work:
        return Work("work", digest(b"work"))

    def load(self, subject: Subject) -> Counted:
        return Counted(subject.name, self.calls, 1.0 + len(subject.name))

    def clocks(self) -> Clocks:
        return Clocks(float(next(self.clock)))

    def close(self) -> None:
        """Nothing."""


def test_both_take_turns_and_who_begins_changes() -> None:
    device = CountedDevice()
    found = measure(device, device.subject("k"), device.subject("kk"), Turns(rounds=3, runs=4, warm_up=2))
    assert device.calls == [
        "k results", "k results", "kk results",
        "k 2", "kk 2",
        "k 4", "kk 4", "kk 4", "k 4", "k 4", "kk 4",
        "kk closed", "k closed",
    ]  # fmt: skip
    assert [(len(one.base), len(one.candidate)) for one in found.rounds] == [(4, 4)] * 3
    assert (found.before.core_mhz, found.after.core_mhz) == (1900.0, 1800.0)
    assert found.ratio is not None
    assert found.ratio.median == 1.5


def test_codes_of_two_kernels_are_refused_before_anything_runs() -> None:
    device = CountedDevice()
    with pytest.raises(InputError, match="their interfaces differ"):
        measure(device, device.subject("k"), device.subject("other"), Turns())
    assert not device.calls


def test_results_are_compared_unless_that_is_not_wanted() -> None:
    device = CountedDevice()
    found = measure(device, device.subject("k"), device.subject("kk"), Turns(rounds=6, compared=False))
    assert (found.sameness, found.why) == (Sameness.NOT_COMPARED, "it was not asked for")
    assert not any("results" in call for call in device.calls)


@pytest.mark.parametrize(
    ("base", "candidate", "verdict"),
    [
        (MIDDLE, BEST, Verdict.FASTER),
        (BEST, MIDDLE, Verdict.SLOWER),
        (MIDDLE, WORST, Verdict.SLOWER),
        (MIDDLE, ALSO_MIDDLE, Verdict.UNDECIDED),
        (MIDDLE, MIDDLE, Verdict.ALIKE),
    ],
)
def test_recorded_hardware_is_judged_as_its_medians_say(base: str, candidate: str, verdict: Verdict) -> None:
    """0.816, 6.420, 6.425 and 84.6 ms on a W7800: the third differs from the second by less than their spread."""
    device = ReplayDevice(RECORDING)
    turns = Turns(runs=4, warm_up=0)
    found = measure(device, device.subject(base), device.subject(candidate), turns)
    assert found.verdict is verdict
    assert found.sameness is Sameness.NOT_COMPARED
    assert len(found.rounds) == 8  # 32 recorded times
