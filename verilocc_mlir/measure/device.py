"""What a device is to the rest: something that makes a code ready to run, runs it, and says how long that took."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from verilocc_mlir.errors import InputError, VeriloccError
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
