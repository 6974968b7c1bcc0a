"""IREE's own programs that run and time modules and executables, and what a module says of its functions.

Source: ``iree-benchmark-module --help``, ``iree-benchmark-executable --help`` and ``iree-run-module --help`` of IREE
3.13. The two that time are Google Benchmark programs: ``--benchmark_format=json`` has a row for each repetition.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.device import NoDeviceError
from verilocc_mlir.toolchain.run import ToolFailure, run_tool

EXTRA_HINT = "pip install 'verilocc-mlir[iree]'"
DEFAULT_SECONDS = 600.0
_LISTED = "iree-run-module --list_devices lists those that there are"
_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*[a-zA-Z]\w*)>")
_DECLARATION = re.compile(r"\((?P<inputs>.*)\) -> \((?P<results>.*)\)")
_PLACE = re.compile(r"^.*?\S+\.c(?:c|pp)?:\d+: ")
_SCHEME = re.compile(r"^[\w-]+")
_ASYNC = "$async"


@dataclass(frozen=True)
class Function:
    """A function that a module exports.

    Attributes:
        inputs: types of its arguments, ``"64x64xf32"``; what is no tensor begins with ``!``; None where the module does
            not say.
        results: how many it returns; likewise.
        declaration: as the module has it, ``""`` where it has none.
        dispatch: it is a benchmark of one kernel: it takes how often to launch it, and returns nothing.
    """

    name: str
    inputs: tuple[str, ...] | None
    results: int | None
    declaration: str
    dispatch: bool


def functions_of(vmfb: bytes, where: str) -> list[Function]:
    """What a module exports, but for what belongs to the runtime.

    Raises:
        ToolchainError: IREE's runtime is not installed. InputError: it is no module.
    """
    try:
        runtime: Any = importlib.import_module("iree.runtime")
    except ImportError as error:
        raise NoDeviceError(f"iree.runtime cannot be imported: {error}", hint=EXTRA_HINT) from error
    try:
        module: Any = runtime.VmModule.copy_buffer(runtime.VmInstance(), vmfb)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"this is no module of IREE: {_line(str(error))}", where=where) from error
    names = [str(name) for name in module.function_names if not str(name).startswith("__")]
    plain = [name for name in names if not name.endswith(_ASYNC)] or names
    return [_function(name, dict(module.lookup_function(name).reflection)) for name in plain]


def _function(name: str, reflection: dict[str, str]) -> Function:
    declaration = reflection.get("iree.abi.declaration", "")
    match = _DECLARATION.search(declaration)
    is_dispatch = reflection.get("iree.benchmark") == "dispatch"
    if match is None:
        return Function(name, None, None, declaration, is_dispatch)
    inputs, results = _split(match["inputs"]), _split(match["results"])
    return Function(name, tuple(_type(text) for text in inputs), len(results), declaration, is_dispatch)


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<({") - (character in ">)}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _type(text: str) -> str:
    """``%input0: tensor<64x64xf32> {…}`` as ``64x64xf32``, ``%input1: i32`` as ``!i32``."""
    match = _TENSOR.search(text)
    return match[1] if match else f"!{text.partition(':')[2].strip().lstrip('!') or text}"


@dataclass(frozen=True)
class IreeTools:
    """IREE's programs, a device of theirs, and how long one run may take in seconds."""

    directory: Path
    device: str
    seconds: float = DEFAULT_SECONDS

    @classmethod
    def find(cls, device: str) -> IreeTools:
        """Those of this Python's packages, else those on PATH.

        Raises:
            NoDeviceError: there are none.
        """
        program = "iree-benchmark-module"
        for directory in _packaged():
            if os.access(directory / program, os.X_OK):
                return cls(directory, device)
        on_path = shutil.which(program)
        if on_path is None:
            raise NoDeviceError(f"{program} was not found", hint=EXTRA_HINT)
        return cls(Path(on_path).parent, device)

    def check_device(self) -> None:
        """
        Raises:
            NoDeviceError: the device's driver is not there, or sees no device.
        """
        scheme = _SCHEME.match(self.device)
        command = [self.directory / "iree-run-module", f"--list_devices={scheme[0] if scheme else self.device}"]
        try:
            seen = run_tool(command, timeout=self.seconds, stage="list devices").stdout.split()
        except ToolFailure as failure:
            raise NoDeviceError(f"IREE has no device {self.device}: {_line(failure.stderr)}", hint=_LISTED) from failure
        if not seen:
            raise NoDeviceError(f"IREE's driver sees no device {self.device}", hint=_LISTED)

    def times(self, program: str, flags: Sequence[str], count: int, where: str) -> list[float]:
        """Milliseconds of an iteration in each of ``count`` repetitions.

        Raises:
            ToolchainError: the program fails.
        """
        out = self.run(program, [*flags, "--benchmark_format=json", f"--benchmark_repetitions={count}"], where)
        try:
            # What other libraries print stands before it.
            rows = json.loads(out[out.index(b"{\n") :])["benchmarks"]
            taken = [row for row in rows if row.get("run_type") == "iteration"]
            failed = [str(row["error_message"]) for row in taken if row.get("error_occurred")]
            if failed:
                raise ToolchainError(f"{program}: {failed[0]}", where=where)
            return [float(row["real_time"]) * _UNITS[row["time_unit"]] for row in taken]
        except (ValueError, KeyError, TypeError) as error:
            raise ToolchainError(f"{program} printed no times: {error!r}", where=where) from error

    def run(self, program: str, flags: Sequence[str], where: str) -> bytes:
        """Its standard output.

        Raises:
            As ``times``.
        """
        command = [self.directory / program, f"--device={self.device}", *flags]
        try:
            return run_tool(command, timeout=self.seconds, stage=program, where=where).stdout
        except ToolFailure as failure:
            raise ToolchainError(f"{program}: {_line(failure.stderr)}", where=where) from failure


def _packaged() -> list[Path]:
    try:
        spec = importlib.util.find_spec("iree._runtime_libs")
    except ModuleNotFoundError:
        return []
    return [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]


def _line(text: str) -> str:
    """The first line of a message of IREE's, without the place in its sources."""
    lines = (line for line in text.splitlines() if line.strip() and "FLAGS ERROR" not in line)
    line = next(lines, "it failed without a message")
    return _PLACE.sub("", line).strip().rstrip(": ")
