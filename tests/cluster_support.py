"""Shared by the tests of Ray; ``ray_support`` is what the processes of a cluster load."""

from __future__ import annotations

import re
import subprocess

import pytest

from verilocc_mlir.cli.given import has_ray

# One worker of pytest-xdist has all tests of this package, and so there is one cluster.
MARKS = [
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field` is deprecated"),  # of Ray Serve's own
]
needs_ray = pytest.mark.skipif(not has_ray(), reason="Ray is not installed")


def stopped(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str]:
    """The exit code and what was said on standard error."""
    try:
        _, said = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, said


def listening(process: subprocess.Popen[str]) -> str:
    """The address that a server says it listens on."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r'"event": "listening", "address": "(\S+)"', line):
            return found[1]
    raise AssertionError(said)
