"""``verilocc measure``: codes of one kernel run in turns, and which of them is faster."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import Command, given_as, grouped_help
from verilocc_mlir.cli.output import check_writable, read
from verilocc_mlir.errors import InputError
from verilocc_mlir.measure.device import Device, OpenDevice, ReplayDevice, Subject, digest
from verilocc_mlir.measure.hip import HipDevice, Launch
from verilocc_mlir.measure.iree import Executable, IreeDevice
from verilocc_mlir.measure.journal import Journal
from verilocc_mlir.measure.runner import Turns, asked, measure, measure_apart
from verilocc_mlir.report.tables import console, print_measurements
from verilocc_mlir.results.measure import Measurement, MeasureRun, to_json
from verilocc_mlir.version import __version__

_GROUPS: dict[str, Any] = {
    "verilocc measure": [
        {"name": "Where", "options": ["--device"]},
        {"name": "What is run", "options": ["--kernel", "--grid", "--block", "--lds", "--arg", "--input"]},
        {"name": "Executables of IREE", "options": ["--executable", "--entry", "--constant"]},
        {"name": "How often", "options": ["--rounds", "--runs", "--confidence", "--tie", "--no-compare"]},
        {"name": "Journal", "options": ["--journal", "--again", "--ir"]},
        {"name": "Result", "options": ["--json", "--quiet"]},
    ]
}
_MOST = 1 << 31
_SUITED = {
    "hip": {"kernel", "grid", "block", "lds", "arguments"},
    "iree": {"kernel", "inputs", "executable", "entry", "constants", "grid"},
    "replay": set[str](),
}
"""What says on what a code is run, by the kind of the device."""
_FLAGS = {"arguments": "arg", "inputs": "input", "constants": "constant"}


class _Dimensions(click.ParamType["tuple[int, int, int]"]):
    """``X``, ``X,Y`` or ``X,Y,Z``."""

    name = "X,Y,Z"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value  # pyright: ignore[reportUnknownVariableType]
        sizes = [int(part) for part in re.split("[,x]", value)] if re.fullmatch(r"\d+([,x]\d+){0,2}", value) else []
        if not sizes or not all(0 < size < _MOST for size in sizes):
            self.fail(f"{value!r} is no X,Y,Z of whole numbers above 0", param, ctx)
        return (*sizes, 1, 1)[:3]


@dataclass(frozen=True)
class _MeasureGiven:
    base: str
    candidates: tuple[str, ...]
    device: str
    rounds: int
    runs: int
    confidence: float
    tie: float
    no_compare: bool
    journal: str
    again: bool
    ir: str
    as_json: bool
    quiet: bool
    launch: dict[str, Any]


@click.command("measure", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("base", metavar="BASE")
@click.argument("candidates", metavar="CANDIDATE...", nargs=-1, required=True)
@click.option(
    "--device", default="hip", show_default=True, metavar="DEVICE",
    help="hip, hip:N: code objects by themselves; iree:hip, iree:local-sync: modules of IREE; replay:FILE.",
)  # fmt: skip
@click.option("--kernel", default="", metavar="NAME", help="Kernel, or function of a module. [default: the only one]")
@click.option("--grid", type=_Dimensions(), default=None, help="Work-groups.")
@click.option(
    "--block", type=_Dimensions(), default=None, help="Work-items of one. [default: what the kernel requires]"
)
@click.option("--lds", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic LDS.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="WHICH=WHAT",
    help="An argument by number or name: 4096x64xf16, filled; 64xf32=0; 64xf32=@FILE; a value, 4096 or f32:0.5.",
)  # fmt: skip
@click.option(
    "--input", "inputs", multiple=True, metavar="WHAT",
    help="An input of a module, or a binding of an executable, in order. [default: by the types]",
)  # fmt: skip
@click.option("--executable", default="", metavar="FORMAT", help="Files are executables: rocm-hsaco-fb, for example.")
@click.option("--entry", type=click.IntRange(0), default=0, metavar="N", help="Ordinal of its entry point.")
@click.option("--constant", "constants", multiple=True, type=int, metavar="N", help="A constant of it, in order.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=12, show_default=True, help="Turns of each.")
@click.option("--runs", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Runs of each in a turn.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.95, show_default=True, help="Of intervals.")
@click.option(
    "--tie", type=click.FloatRange(0, 0.5), default=0.01, show_default=True, help="A difference that is none."
)
@click.option("--no-compare", is_flag=True, help="Time codes whose results nobody compared.")
@click.option("--journal", default="", metavar="FILE", help="Append each measurement there; do none of it again.")
@click.option("--again", is_flag=True, help="Measure what the journal has, too.")
@click.option("--ir", default="", metavar="FILE.ll", help="The kernel's IR; its digest goes into the journal.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@given_as(_MeasureGiven, rest="launch")
def measure_command(given: _MeasureGiven) -> int:
    """Run BASE and each CANDIDATE in turns on one device, on the same inputs, and say which is faster.

    Results are compared bit for bit first. What has other results is not timed. NAME=FILE calls a code so; with a plan
    for a NAME, and --ir, the journal has labels of plans.

    Exit codes: 0 measured, whoever is faster; 1 results differ; 2 no device, bad input, or a run that failed.
    No GPU was at hand when this was written: the ways through HIP and IREE's HIP driver were never run on one.
    """
    if given.journal:
        check_writable(given.journal)
    ir_sha256 = digest(read(given.ir)) if given.ir else ""
    turns = Turns(
        given.rounds,
        given.runs,
        0 if given.device.startswith("replay:") else 3,
        given.confidence,
        given.tie,
        not given.no_compare,
    )
    say: Callable[[str], None] = (lambda _: None) if given.quiet else (lambda line: click.echo(line, err=True))
    with ExitStack() as stack:
        opened, apart = _open(given.device, given.launch)
        stack.enter_context(closing(opened))
        subjects = [opened.subject(text) for text in (given.base, *given.candidates)]
        # What cannot be measured leaves no journal behind.
        for subject in subjects[1:]:
            asked(opened, subjects[0], subject, turns)
        kept = stack.enter_context(Journal(Path(given.journal))) if given.journal else None
        run = _measured(opened, apart, kept, subjects, turns, ir_sha256, given.again, say)
    if given.as_json:
        click.echo(to_json(run, __version__), nl=False)
    else:
        print_measurements(run, console())
    return int(run.exit_code)


def _open(device: str, launch: dict[str, Any]) -> tuple[Device, OpenDevice | None]:
    """The device that a word names; and how another process opens it, where a fault of it ends a process.

    Raises:
        NoDeviceError: it is not there. UsageError: there is no such word, or an option is missing.
    """
    kind, _, which = device.partition(":")
    for name in launch:
        if kind in _SUITED and name not in _SUITED[kind] and launch[name] not in (None, "", 0, ()):
            raise click.UsageError(f"--{_FLAGS.get(name, name)} is not for --device={kind}")
    if kind == "replay" and which:
        return ReplayDevice(Path(which)), None
    if kind == "iree" and which:
        executable = None
        if launch["executable"]:
            if launch["grid"] is None:
                raise click.UsageError("--executable needs --grid: the work-groups")
            executable = Executable(launch["executable"], launch["grid"], launch["entry"], launch["constants"])
        return IreeDevice(which, function=launch["kernel"], inputs=launch["inputs"], executable=executable), None
    if kind == "hip" and (not which or which.isdecimal()):
        grid = launch["grid"]
        how = Launch(grid or (1, 1, 1), launch["kernel"], launch["block"], launch["lds"], launch["arguments"])
        again = partial(HipDevice, how, int(which or 0))
        opened = again()
        if grid is None:
            raise click.UsageError("a code object by itself needs --grid: how many work-groups are launched")
        return opened, again
    raise click.UsageError(f"--device={device} is none of hip, hip:N, iree:DEVICE, replay:FILE")


def _measured(
    device: Device,
    apart: OpenDevice | None,
    journal: Journal | None,
    subjects: Sequence[Subject],
    turns: Turns,
    ir: str,
    again: bool,
    say: Callable[[str], None],
) -> MeasureRun:
    """Every candidate beside the first subject, the base; what is measured is kept before the next one begins."""
    first, *others = subjects
    measurements: list[Measurement] = []
    known: set[str] = set()
    for subject in others:
        key = asked(device, first, subject, turns, ir=ir)
        found = journal.find(key) if journal is not None and not again else None
        if found is not None:
            known.add(key)
            say(f"{subject.name}: in the journal")
        else:
            say(f"{subject.name}: beside {first.name} on {device.about.name}")
            if apart is not None:
                found = measure_apart(apart, first, subject, turns, ir=ir)
            else:
                found = measure(device, first, subject, turns, ir=ir, progress=say)
            if journal is not None:
                _keep(journal, found)
        measurements.append(found)
    notes = [device.caveat] if device.caveat else []
    if few := [len(one.rounds) for one in measurements if one.ratio and one.ratio.confidence < turns.confidence]:
        notes.append(f"{min(few)} rounds are too few for an interval of {turns.confidence:.4g}: they decide nothing")
    if journal is not None and journal.passed_over:
        notes.append(f"lines of the journal that do not count, cut off or of another version: {journal.passed_over}")
    return MeasureRun(tuple(measurements), frozenset(known), tuple(notes))


def _keep(journal: Journal, one: Any) -> None:
    try:
        journal.add(one)
    except OSError as error:
        hint = "free some space; what was measured before is kept"
        raise InputError(f"the journal cannot be written: {error.strerror}", hint=hint) from error
