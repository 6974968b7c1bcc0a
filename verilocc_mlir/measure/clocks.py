"""Clocks of an AMD GPU, as the kernel's driver states them.

Source: the Linux kernel's documentation of amdgpu, "HWMON Interfaces": ``freq1_input`` is the compute clock and
``freq2_input`` the memory clock, in hertz.
"""

from __future__ import annotations

from pathlib import Path

from verilocc_mlir.results.measure import Clocks

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
