"""What a device is to the rest: something that makes a code ready to run, runs it, and says how long that took."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.measure.journal import read_measurements
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredCode, MeasuredKernel


class NoDeviceError(VeriloccError):
    """What a measurement needs is not here: a GPU, its driver, or the driver's tools."""


@dataclass(frozen=True)
class Subject:
    """A code that is to be run.

    Attributes:
        name: as the user gave it.
        data: its bytes; of a recording the configuration's name.
    """

    name: str
    data: bytes

    @property
    def code(self) -> MeasuredCode:
        return MeasuredCode(self.name, digest(self.data))


@dataclass(frozen=True)
class Work:
    """What a code is run on, the same for both: launch and inputs, in words and as a digest of their values."""

    words: str
    sha256: str


class Loaded(Protocol):
    """A code that is ready to run. Every run begins from the same inputs."""

    def results(self) -> tuple[bytes, ...] | str:
        """Run it once and take all that it may have written; or say why this device cannot tell.

        Raises:
            VeriloccError: it fails.
        """
        ...

    def times(self, count: int) -> list[float]:
        """Milliseconds of each of ``count`` runs; fewer where a recording has no more.

        Raises:
            VeriloccError: it fails.
        """
        ...

    def close(self) -> None: ...


class Device(Protocol):
    """One device, with what codes are run on.

    ``caveat`` is what whoever reads its figures must know; ``""`` where there is nothing.
    """

    @property
    def about(self) -> DeviceAbout: ...

    @property
    def caveat(self) -> str: ...

    def subject(self, text: str) -> Subject:
        """The code that a word of the command line names.

        Raises:
            InputError: there is none.
        """
        ...

    def kernel(self, subject: Subject) -> MeasuredKernel:
        """What it is a code of.

        Raises:
            VeriloccError: it cannot be read, or does not say which kernel is meant.
        """
        ...

    def work(self, subject: Subject) -> Work:
        """What it will be run on.

        Raises:
            InputError: that does not suit it.
        """
        ...

    def load(self, subject: Subject) -> Loaded:
        """Make it ready.

        Raises:
            VeriloccError: the device rejects it.
        """
        ...

    def clocks(self) -> Clocks: ...

    def close(self) -> None: ...


OpenDevice = Callable[[], Device]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_subject(text: str) -> Subject:
    """A file as a code: ``FILE``, or ``NAME=FILE``, which calls it so.

    Raises:
        InputError: it cannot be read.
    """
    name, _, path = ("", "", text) if Path(text).exists() else text.rpartition("=")
    try:
        return Subject(name or path, Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from error


# Clocks of an AMD GPU, as the kernel's driver states them.
#
# Source: the Linux kernel's documentation of amdgpu, "HWMON Interfaces": ``freq1_input`` is the compute clock and
# ``freq2_input`` the memory clock, in hertz.


_DEVICES = Path("/sys/bus/pci/devices")
_HERTZ = 1e6


def clocks_of(bus: str, devices: Path = _DEVICES) -> Clocks:
    """What they are now; None for what cannot be read.

    Args:
        bus: the GPU's place on the PCI bus, ``0000:03:00.0``.
    """
    return Clocks(_megahertz(devices / bus, "freq1_input"), _megahertz(devices / bus, "freq2_input"))


def _megahertz(device: Path, name: str) -> float | None:
    for path in sorted(device.glob(f"hwmon/hwmon*/{name}")):
        try:
            return int(path.read_text()) / _HERTZ
        except (OSError, ValueError):
            continue
    return None


# A device that was recorded: times are read from a file, and nothing is run.
#
# Two kinds of files are read. A cache of Kernel Tuner (https://kerneltuner.github.io), as it writes them and as in its
# public benchmark hub, has the times of each configuration; a configuration is named by its values, ``16,1,4,2``. A
# journal of ``verilocc measure`` has codes, which are named by the first digits of their SHA-256.
#
# What was recorded one after the other was not measured side by side: what drifted in between does not cancel.


CAVEAT = "replayed from a recording: nothing was run here"
_NO_RESULTS = "a recording has no results"
_LEAST_DIGITS = 8


@dataclass(frozen=True)
class Recording:
    """Times of codes, in milliseconds, by name.

    Attributes:
        device: that they were taken on.
        kernel: what they are codes of.
        work: what it was run on, in words.
        times: in the order in which they were taken.
    """

    device: DeviceAbout
    kernel: str
    work: str
    times: Mapping[str, tuple[float, ...]]


class ReplayDevice:
    """See the module.

    Raises:
        InputError: the file is no recording.
    """

    caveat = CAVEAT

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recording = read_recording(path)
        recorded = self._recording.device
        self.about = DeviceAbout("replay", recorded.name, recorded.architecture, recorded.software)

    def subject(self, text: str) -> Subject:
        times = self._recording.times
        found = [text] if text in times else [name for name in times if self._may_shorten(name, text)]
        if len(found) == 1:
            return Subject(found[0], found[0].encode())
        what = f"{text} is recorded {len(found)} times" if found else f"{text} is not recorded"
        hint = f"there are {len(times)} codes, {', '.join([*times][:3])} among them"
        raise InputError(what, where=str(self._path), hint=hint)

    def kernel(self, subject: Subject) -> MeasuredKernel:
        return MeasuredKernel(self._recording.kernel, digest(self._recording.kernel.encode()))

    def work(self, subject: Subject) -> Work:
        return Work(self._recording.work, digest(self._recording.work.encode()))

    def load(self, subject: Subject) -> ReplayLoaded:
        return ReplayLoaded(self._recording.times[subject.name])

    def clocks(self) -> Clocks:
        return Clocks()

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _may_shorten(name: str, text: str) -> bool:
        return len(text) >= _LEAST_DIGITS and len(name) == 64 and name.startswith(text)


@dataclass
class ReplayLoaded:
    """The times of one code, each given once, in order."""

    recorded: Sequence[float]
    _taken: int = field(default=0)

    def results(self) -> str:
        return _NO_RESULTS

    def times(self, count: int) -> list[float]:
        taken = list(self.recorded[self._taken : self._taken + count])
        self._taken += len(taken)
        return taken

    def close(self) -> None:
        """Nothing is held."""


def read_recording(path: Path) -> Recording:
    """A cache of Kernel Tuner, compressed or not, or a journal.

    Raises:
        InputError: it is neither.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"the recording cannot be read: {error}", where=str(path)) from error
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    if isinstance(content, dict) and "cache" in content:
        return _of_kernel_tuner(cast("dict[str, Any]", content), path)
    return _of_journal(path)


def _of_kernel_tuner(content: dict[str, Any], path: Path) -> Recording:
    """A configuration that failed has a text for a time, and is left out."""
    try:
        times = {
            str(name): tuple(float(time) for time in row["times"])
            for name, row in content["cache"].items()
            if isinstance(row.get("time"), (int, float)) and row.get("times")
        }
        size = content.get("problem_size", "")
        shape = "x".join(map(str, cast("list[object]", size))) if isinstance(size, list) else str(size)
        recording = Recording(
            DeviceAbout("replay", str(content["device_name"])), str(content["kernel_name"]), shape, times
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"this is no cache of Kernel Tuner: {error!r}", where=str(path)) from error
    return _with_times(recording, path)


def _of_journal(path: Path) -> Recording:
    """All of one kernel, device and work: those of the last line."""
    measurements, _ = read_measurements(path)
    if not measurements:
        raise InputError(
            "this is no recording",
            where=str(path),
            hint="give a cache of Kernel Tuner, or a journal of verilocc measure",
        )
    last = measurements[-1]
    same = [m for m in measurements if (m.kernel, m.device, m.work) == (last.kernel, last.device, last.work)]
    times: dict[str, tuple[float, ...]] = {}
    for one in same:
        for side, code in (("base", one.base), ("candidate", one.candidate)):
            taken = tuple(time for turn in one.rounds for time in getattr(turn, side))
            times[code.sha256] = times.get(code.sha256, ()) + taken
    return _with_times(Recording(last.device, last.kernel.name, last.workload, times), path)


def _with_times(recording: Recording, path: Path) -> Recording:
    if not any(recording.times.values()):
        raise InputError("no time is recorded", where=str(path))
    return recording
