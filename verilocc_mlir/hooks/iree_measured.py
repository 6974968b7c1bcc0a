"""``replace=measured`` with IREE: kernels that no journal knows are timed, where there is a GPU.

iree-compile writes a benchmark of each kernel: its launch alone, with the sizes that the program has. Compiled once
with IREE's code object and once with ours, both go through ``iree-benchmark-module`` in turns. What is measured becomes
a line of the journal that ``$VERILOCC_MEASURED`` names, if it names one, with the digests of the code objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.hooks.baseline import MeasuredCodes, MeasuredDecision, decision, journal_of_environment
from verilocc_mlir.hooks.iree_compiler import LINK, IreeCompiler
from verilocc_mlir.measure.device import NoDeviceError, OpenDevice, Subject
from verilocc_mlir.measure.iree import IreeDevice
from verilocc_mlir.measure.journal import Journal
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import MeasuredCode, Measurement


def _gpu() -> IreeDevice:
    return IreeDevice("hip")


@dataclass
class MeasuredKernels:
    """Decides by what was measured, and measures what was not.

    Attributes:
        flags: of iree-compile, for every module.
        directory: where files of it may lie.
        say: is told what decides.
        missing: why nothing is measured here; ``""`` until that is known.
    """

    iree: IreeCompiler
    flags: Sequence[str]
    directory: Path
    say: Callable[[str], None]
    known: MeasuredCodes = field(default_factory=MeasuredCodes.of_environment)
    open_device: OpenDevice = field(default_factory=lambda: _gpu)
    turns: Turns = field(default_factory=Turns)
    missing: str = ""
    warned: bool = False

    @property
    def dump_flags(self) -> tuple[str, ...]:
        """What makes iree-compile write the benchmarks."""
        return (f"--iree-hal-dump-executable-benchmarks-to={self._benchmarks}",)

    def decide(self, executable: str, ours: bytes, theirs: bytes, ir: bytes) -> MeasuredDecision | None:
        """By the journal, else by a measurement; None where neither decides."""
        found = self.known.decide(ours, theirs)
        if found is None:
            one = self._measured(executable, ours, theirs, ir)
            found = decision(one) if one is not None else None
        self.say(f"{executable}: {found.said if found else 'the model decides'}")
        return found

    def modules(self, executable: str, ours: bytes, theirs: bytes) -> tuple[bytes, bytes]:
        """The kernel's benchmark with IREE's code object, and with ours.

        Raises:
            InputError: iree-compile wrote no benchmark of it. ToolchainError: it failed.
        """
        source = self._benchmark(executable)
        objects = self.directory / "measured-objects"
        objects.mkdir(exist_ok=True)
        made: list[bytes] = []
        for name, code in (("theirs", theirs), ("ours", ours)):
            (objects / f"{name}.hsaco").write_bytes(code)
            output = self.directory / f"measured-{name}.vmfb"
            flags = [
                *self.flags,
                LINK,
                f"--iree-hal-executable-object-search-path={objects}",
                f"--iree-hal-substitute-executable-object={executable}={name}.hsaco",
            ]
            self.iree.run(source, output, flags, stage="benchmark", shown_as=executable)
            made.append(output.read_bytes())
        return made[0], made[1]

    @property
    def _benchmarks(self) -> Path:
        return self.directory / "benchmarks"

    def _benchmark(self, executable: str) -> Path:
        wanted = re.compile(rf'^ *hal\.executable private @"?{re.escape(executable)}"? \{{', re.MULTILINE)
        for path in sorted(self._benchmarks.glob("*_benchmark.mlir")):
            if wanted.search(path.read_text("utf-8", "replace")):
                return path
        raise InputError("iree-compile wrote no benchmark of it", where=executable)

    def _measured(self, executable: str, ours: bytes, theirs: bytes, ir: bytes) -> Measurement | None:
        if self.missing:
            return None
        try:
            with closing(self.open_device()) as device:
                base, candidate = (Subject(executable, data) for data in self.modules(executable, ours, theirs))
                one = measure(device, base, candidate, self.turns, ir=_digest(ir))
                self._warn(device.caveat)
            one = replace(
                one, base=MeasuredCode("IREE's", _digest(theirs)), candidate=MeasuredCode("ours", _digest(ours))
            )
            self._keep(one)
        except NoDeviceError as error:
            self.missing = error.what
            self.say(f"nothing is measured: {error.what}")
            return None
        except VeriloccError as error:
            self.say(f"{executable}: not measured: {error.what}")
            return None
        return one

    def _warn(self, caveat: str) -> None:
        """Say once what whoever reads the figures must know."""
        if caveat and not self.warned:
            self.say(f"note: {caveat}")
        self.warned = True

    def _keep(self, one: Measurement) -> None:
        path = journal_of_environment()
        if path is None:
            return
        try:
            with Journal(path) as journal:
                journal.add(one)
        except OSError as error:
            raise InputError(f"the journal cannot be written: {error.strerror}", where=str(path)) from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
