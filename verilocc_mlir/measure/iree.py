"""Modules and executables through IREE's own programs, on a GPU (``hip``) or on this machine's CPU (``local-sync``).

A module (.vmfb) is run by ``iree-run-module``, which hands over its results, and timed by ``iree-benchmark-module``;
what is timed is a whole call, with what the host does for it. A benchmark of one kernel, as ``iree-compile
--iree-hal-dump-executable-benchmarks-to=DIR`` writes them, and an executable by itself have no results that could be
compared: only their times are taken.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.measure.clocks import clocks_of
from verilocc_mlir.measure.device import Subject, Work, digest, file_subject
from verilocc_mlir.measure.fill import Filling, filling
from verilocc_mlir.measure.hip import Hip
from verilocc_mlir.measure.iree_tools import Function, IreeTools, functions_of
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel

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
        inputs: of a function, or bindings of an executable (``measure.fill``); none: what the types say.
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
