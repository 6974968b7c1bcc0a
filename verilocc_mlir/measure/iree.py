"""Modules and executables through IREE's own programs, on a GPU (``hip``) or on this machine's CPU (``local-sync``).

A module (.vmfb) is run by ``iree-run-module``, which hands over its results, and timed by ``iree-benchmark-module``;
what is timed is a whole call, with what the host does for it. A benchmark of one kernel, as ``iree-compile
--iree-hal-dump-executable-benchmarks-to=DIR`` writes them, and an executable by itself have no results that could be
compared: only their times are taken.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError, VeriloccError
from verilocc_mlir.measure.arguments import Filling, filling
from verilocc_mlir.measure.device import NoDeviceError, Subject, Work, clocks_of, digest, file_subject
from verilocc_mlir.measure.hip import Hip
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel
from verilocc_mlir.toolchain.run import ToolFailure, run_tool

CPU = "local-"
"""How devices begin that are this machine's CPU."""
CAVEAT = "the way through IREE was run on its CPU driver only, never on a GPU: check the first figures by hand"
CPU_CAVEAT = "timed on this machine's CPU: it says nothing of a GPU"
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?")
_LAUNCHES = 32
"""Of a kernel in one command buffer, where its benchmark is timed: what the host does is shared among them."""
_LEAST_SECONDS = 0.02
"""Of a repetition: Google Benchmark takes as many iterations as that needs."""


@dataclass(frozen=True)
class Executable:
    """What ``iree-benchmark-executable`` must be told.

    Attributes:
        format: ``"rocm-hsaco-fb"``, ``"embedded-elf-x86_64"``.
        grid: work-groups.
        entry: ordinal of the entry point.
        constants: 32-bit values; bindings are the buffers.
    """

    format: str
    grid: tuple[int, int, int]
    entry: int = 0
    constants: tuple[int, ...] = ()


class IreeDevice:
    """See the module.

    Args:
        device: as IREE's tools take it.
        function: of a module; ``""`` where it exports one only.
        inputs: of a function, or bindings of an executable (``measure.arguments``); none: what the types say.
        executable: files are executables, not modules.

    Raises:
        NoDeviceError: IREE's tools are not installed, or have no such device.
    """

    def __init__(
        self,
        device: str,
        *,
        function: str = "",
        inputs: Sequence[str] = (),
        executable: Executable | None = None,
        tools: IreeTools | None = None,
    ) -> None:
        self._tools = tools or IreeTools.find(device)
        self._tools.check_device()
        self._function = function
        self._given = tuple(inputs)
        self._executable = executable
        self._directory = Path(tempfile.mkdtemp(prefix="verilocc-measure-"))
        self._files = 0
        self._known: dict[str, list[Function]] = {}
        self._gpu = None if device.startswith(CPU) else _gpu_of(device)
        name = f"{device}: {self._gpu.name()}" if self._gpu else device
        self.about = DeviceAbout("iree", name, "", f"IREE {_version()}")
        self.caveat = CPU_CAVEAT if device.startswith(CPU) else CAVEAT

    def subject(self, text: str) -> Subject:
        return file_subject(text)

    def kernel(self, subject: Subject) -> MeasuredKernel:
        if self._executable is not None:
            return MeasuredKernel(f"entry point {self._executable.entry}", digest(self._executable.format.encode()))
        function = self._chosen(subject)
        return MeasuredKernel(function.name, digest(f"{function.inputs} {function.results}".encode()))

    def work(self, subject: Subject) -> Work:
        inputs = self._inputs(subject)
        words = f"{self.kernel(subject).name}({', '.join(one.words for one in inputs)})"
        if self._executable is not None:
            grid, constants = self._executable.grid, ", ".join(map(str, self._executable.constants))
            words += f", {'x'.join(map(str, grid))} work-groups" + (f", constants {constants}" if constants else "")
        hashed = hashlib.sha256(words.encode())
        for one in inputs:
            hashed.update(len(one.data).to_bytes(8, "little") + one.data)
        return Work(words, hashed.hexdigest())

    def load(self, subject: Subject) -> IreeLoaded:
        # The tools take files: under a name of ours, so that none can be taken for a flag.
        path, inputs = self._written(subject.data), self._inputs(subject)
        flags = [f"{one.shape}=@{self._written(one.data)}" if one.data else one.shape for one in inputs]
        if self._executable is not None:
            return IreeLoaded(self._tools, subject.name, *_of_executable(self._executable, path, flags))
        function = self._chosen(subject)
        if function.dispatch:
            only = f"--benchmark_filter=^BM_{re.escape(function.name)}/"
            launches = [f"--module={path}", f"--batch_size={_LAUNCHES}", only]
            why = "a benchmark of one kernel has no results"
            return IreeLoaded(self._tools, subject.name, "iree-benchmark-module", launches, None, why)
        call = [f"--module={path}", f"--function={function.name}", *(f"--input={flag}" for flag in flags)]
        if function.results is None:
            return IreeLoaded(
                self._tools,
                subject.name,
                "iree-benchmark-module",
                call,
                None,
                "the module does not say what it returns",
            )
        outputs = [Path(f"{path}.{number}.bin") for number in range(function.results)]
        return IreeLoaded(self._tools, subject.name, "iree-benchmark-module", call, outputs, "")

    def clocks(self) -> Clocks:
        return clocks_of(self._gpu.bus()) if self._gpu else Clocks()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _chosen(self, subject: Subject) -> Function:
        key = subject.code.sha256
        if key not in self._known:
            self._known[key] = functions_of(subject.data, subject.name)
        functions = self._known[key]
        named = [one for one in functions if one.name == self._function] if self._function else functions
        if len(named) == 1:
            return named[0]
        what = f"it exports no function {self._function}" if self._function else f"it exports {len(named)} functions"
        there = ", ".join(one.name for one in functions) or "none"
        raise InputError(what, where=subject.name, hint=f"--kernel names one of: {there}")

    def _inputs(self, subject: Subject) -> list[Filling]:
        if self._executable is not None:
            return [filling(text, subject.name) for text in self._given]
        function = self._chosen(subject)
        if function.dispatch:
            return []
        if not self._given and function.inputs is None:
            raise InputError(f"{function.name} does not say what it takes", where=subject.name, hint="--input")
        if not self._given and any("?" in one or "!" in one for one in function.inputs or ()):
            raise InputError(
                f"{function.name} takes numbers, or inputs of any size", where=subject.name,
                hint=f"--input for each of: {', '.join(function.inputs or ())}; 8x64xf16 or 5, for example",
            )  # fmt: skip
        if self._given and function.inputs is not None and len(self._given) != len(function.inputs):
            what = f"{function.name} takes {len(function.inputs)} inputs, not {len(self._given)}"
            raise InputError(what, where=subject.name, hint=f"its types: {', '.join(function.inputs)}")
        return [_input(text, subject.name) for text in self._given or function.inputs or ()]

    def _written(self, data: bytes) -> Path:
        self._files += 1
        path = self._directory / f"{self._files}.bin"
        path.write_bytes(data)
        return path


@dataclass
class IreeLoaded:
    """A module or an executable in a file, with the flags that say what it is called with.

    Attributes:
        program: what times it.
        outputs: files that ``iree-run-module`` writes results to; None where it has none, and ``why`` says so.
    """

    tools: IreeTools
    name: str
    program: str
    flags: list[str]
    outputs: list[Path] | None
    why: str

    def results(self) -> tuple[bytes, ...] | str:
        if self.outputs is None:
            return self.why
        self.tools.run("iree-run-module", [*self.flags, *(f"--output=@{path}" for path in self.outputs)], self.name)
        return tuple(path.read_bytes() for path in self.outputs)

    def times(self, count: int) -> list[float]:
        return self.tools.times(
            self.program, [*self.flags, f"--benchmark_min_time={_LEAST_SECONDS}s"], count, self.name
        )

    def close(self) -> None:
        """Its files go with the device."""


def _input(text: str, where: str) -> Filling:
    """A buffer, or a number as it is."""
    return Filling(text, b"", text) if _NUMBER.fullmatch(text) else filling(text, where)


def _of_executable(how: Executable, path: Path, bindings: Sequence[str]) -> tuple[str, list[str], None, str]:
    flags = [
        f"--executable_format={how.format}",
        f"--executable_file={path}",
        f"--entry_point={how.entry}",
        f"--workgroup_count={','.join(map(str, how.grid))}",
        *(f"--constant={value}" for value in how.constants),
        *(f"--binding={binding}" for binding in bindings),
    ]
    return "iree-benchmark-executable", flags, None, "IREE's tools do not hand over what an executable writes"


def _gpu_of(device: str) -> Hip | None:
    """The GPU that IREE's HIP driver takes where no other is named; None where it cannot be told."""
    try:
        return Hip() if device in ("hip", "hip://") else None
    except VeriloccError:
        return None


def _version() -> str:
    try:
        return metadata.version("iree-base-runtime")
    except metadata.PackageNotFoundError:
        return "of unknown version"


# IREE's own programs that run and time modules and executables, and what a module says of its functions.
#
# Source: ``iree-benchmark-module --help``, ``iree-benchmark-executable --help`` and ``iree-run-module --help`` of IREE
# 3.13. The two that time are Google Benchmark programs: ``--benchmark_format=json`` has a row for each repetition.


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
