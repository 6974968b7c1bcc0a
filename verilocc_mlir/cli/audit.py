"""``verilocc audit``: a register allocation before against after, anyone's or LLVM's own; and ``verilocc recheck``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from smt_verifier.artefacts import RecordingSolver, write_artefacts
from smt_verifier.outcome import Outcome, combine
from smt_verifier.recheck import Rechecked, recheck
from smt_verifier.smt import Obligation, Solver
from smt_verifier.smt.worker import installed
from verilocc_mlir.cli.given import HELP, POSITIVE, Command, given_as, grouped_help, solver_limits
from verilocc_mlir.cli.output import STDIO, check_writable, make_directory, read, write
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.iree_compiler import find_iree_compile, iree_kernels
from verilocc_mlir.hooks.triton.native import cached_kernels, triton_kernels
from verilocc_mlir.mir.model import STOP_BEFORE_ALLOCATION
from verilocc_mlir.pipeline.audit import Sides, SolverLimits, audit_llvm, audit_texts
from verilocc_mlir.pipeline.native import NativeKernel, audit_native, llc_kernel
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.audit import to_html, to_text
from verilocc_mlir.report.sarif import audit_sarif
from verilocc_mlir.results.audit import AuditRun, Listing, to_json
from verilocc_mlir.results.compile import EXIT_CODES
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.inputs import decode

_RENDERERS: dict[str, Callable[[AuditRun], str]] = {
    "text": to_text,
    "json": to_json,
    "sarif": audit_sarif,
    "html": to_html,
}
_SUFFIXES = {".txt": "text", ".json": "json", ".sarif": "sarif", ".html": "html", ".htm": "html"}
_GROUPS: dict[str, Any] = {
    "verilocc audit": [
        {"name": "Target", "options": ["--mcpu", "--mattr"]},
        {
            "name": "LLVM's own allocation",
            "options": ["--llvm", "--regalloc", "--phases", "--save-temps", "-O", "--llc"],
        },
        {"name": "What a compiler ships", "options": ["--native"]},
        {"name": "Report", "options": ["--report", "--format", "--quiet", "--smt-dir", "--certificate"]},
        {"name": "Proof", "options": ["--third"]},
        {"name": "Limits", "options": ["--solver-seconds", "--solver-memory", "--tool-seconds"]},
    ]
}
_HELP = f"""Prove that AFTER computes what BEFORE does, or show where it does not.

BEFORE is machine IR from llc {STOP_BEFORE_ALLOCATION},N, AFTER the same file after virtregrewriter,N, whoever
allocated. With --llvm both are made here by LLVM itself: before its first phase, and after its last. With --native they
are what a compiler prints on the way to the code that it ships.
"""


@dataclass(frozen=True)
class _AuditGiven:
    texts: tuple[str, ...]
    cpu: str
    features: str
    kernel: str
    native: str
    regalloc: RegAlloc
    each_phase: bool
    save_temps: Path | None
    opt_level: int
    llc: Path | None
    report: str
    form: str | None
    quiet: bool
    smt_dir: Path | None
    certificate: Path | None
    third: str | None
    solver_seconds: float
    solver_memory: int
    tool_seconds: float


@click.command("audit", cls=Command, help=_HELP, context_settings=grouped_help(_GROUPS))
@click.argument("texts", nargs=-1, type=click.UNPROCESSED, metavar="[BEFORE.mir AFTER.mir] [-- IREE-COMPILE-FLAGS]")
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the IR's target-cpu]")
@click.option("--mattr", "features", default="", metavar="LIST", help="With --llvm: target features, as for llc.")
@click.option(
    "--llvm", "kernel", default="", metavar="KERNEL", help="Audit what LLVM makes of KERNEL (.ll, .bc, pre-RA .mir)."
)
@click.option(
    "--native",
    default="",
    metavar="PATH",
    help="Audit what ships: of a Triton cache folder, a module (.mlir: IREE's compiler), or a file (.ll, .bc: llc).",
)
@click.option(
    "--regalloc",
    type=click.Choice(["greedy", "basic", "fast"]),
    default="greedy",
    show_default=True,
    help="With --llvm: which of LLVM's allocators.",
)
@click.option(
    "--phases",
    "each_phase",
    is_flag=True,
    help="With --llvm: each phase by itself too. [default: where all at once are not proved]",
)
@click.option(
    "--save-temps", type=click.Path(path_type=Path), metavar="DIR", help="With --llvm: keep both texts of each audit."
)
@click.option("-O", "opt_level", type=click.IntRange(1, 3), default=3, show_default=True, help="llc's level.")
@click.option("--llc", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
@click.option("--report", default="", metavar="FILE", help="Write the report; - is standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice([*_RENDERERS]),
    help="Of the report; without --report, of standard output. [default: by FILE's suffix, else text]",
)
@click.option("-q", "--quiet", is_flag=True, help="With --report: say nothing else.")
@click.option("--smt-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write every obligation as SMT-LIB2.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the certificate of what is proved; of more than one function or phase to FILE with their names in it.",
)
@click.option(
    "--third",
    type=click.Choice(["z3"]),
    help="A third opinion: the search with Z3 must prove what both checkers accept.",
)
@solver_limits
@click.option("--tool-seconds", type=POSITIVE, default=300.0, show_default=True, help="For one llc.")
@given_as(_AuditGiven)
def audit_command(given: _AuditGiven) -> int:
    if bool(given.kernel) + bool(given.native) + (len(given.texts) == 2 and not given.native) != 1 or (
        given.texts and given.kernel
    ):
        raise click.UsageError("give either BEFORE.mir and AFTER.mir, or --llvm KERNEL, or --native PATH")
    if given.each_phase and not given.kernel:
        raise click.UsageError("--phases goes with --llvm")
    for option, value in (("--save-temps", given.save_temps), ("--mattr", given.features)):
        if value and not (given.kernel or given.native):
            raise click.UsageError(f"{option} goes with --llvm or --native")
    chosen = given.form or _form_of(given.report)
    if given.report:
        check_writable(given.report)

    recorders: dict[str, RecordingSolver] = {}

    def record(phase: str, solver: Solver) -> Solver:
        return recorders.setdefault(phase, RecordingSolver(solver)) if given.smt_dir is not None else solver

    limits = SolverLimits(given.solver_seconds, given.solver_memory, given.third is not None)
    if given.kernel:
        settings = Settings(
            cpu=given.cpu,
            features=given.features,
            opt_level=given.opt_level,
            tool_seconds=given.tool_seconds,
            llvm=given.llc,
        )
        keep = _Temps(given.save_temps, given.kernel)
        run = audit_llvm(
            read(given.kernel),
            given.kernel,
            settings,
            regalloc=given.regalloc,
            name=keep.name,
            limits=limits,
            record=record,
            made=keep.write,
            each_phase=given.each_phase,
        )
    elif given.native:
        settings = Settings(
            cpu=given.cpu,
            features=given.features,
            opt_level=given.opt_level,
            tool_seconds=given.tool_seconds,
            llvm=given.llc,
        )
        kernels = native_kernels(given.native, settings, given.texts, progress=lambda text: click.echo(text, err=True))
        if given.smt_dir is not None and len(kernels) > 1:
            raise click.UsageError(f"--smt-dir is for one kernel; {given.native} has {len(kernels)}")
        keep = _Temps(given.save_temps, given.native)
        for sides in (sides for each in kernels for sides in each.phases):
            keep.write(sides)
        run = audit_native(kernels, limits=limits, record=record)
    else:
        before, after = map(listing, given.texts)
        run = audit_texts(before, after, given.cpu, limits=limits, record=record)
    if given.smt_dir is not None:
        _write_obligations(given.smt_dir, run, recorders)
    if given.certificate is not None:
        _write_certificates(given.certificate, run)
    render = _RENDERERS[chosen]
    if given.report:
        write(given.report, render(run).encode())
    if not given.report or not (given.quiet or given.report == STDIO):
        click.echo((_RENDERERS["text"] if given.report else render)(run), nl=False)
    return int(run.exit_code)


def _write_certificates(path: Path, run: AuditRun) -> None:
    """The certificate of each function that is proved."""
    rows = [(pair.phase, f) for pair in run.pairs for f in pair.report.functions if f.certificate and f.checkers]
    for phase, function in rows:
        names = [name for name in (phase, function.function) if name] if len(rows) > 1 else []
        write(str(path.with_name(".".join([path.stem, *names]) + path.suffix)), function.certificate.encode())


def _form_of(report: str) -> str:
    """The form that a report's file name asks for; text for standard output."""
    if report in ("", STDIO):
        return "text"
    suffix = Path(report).suffix.lower()
    if suffix not in _SUFFIXES:
        raise click.UsageError(f"{report}: give --format, or one of the suffixes {', '.join(_SUFFIXES)}")
    return "sarif" if report.lower().endswith(".sarif.json") else _SUFFIXES[suffix]


class _Temps:
    """Names of the texts that LLVM makes, and the files themselves where they are to be kept."""

    def __init__(self, directory: Path | None, kernel: str) -> None:
        self._directory = directory
        self._stem = Path(kernel).stem if kernel != STDIO else "stdin"
        if directory is not None:
            make_directory(str(directory))

    def name(self, phase: str, side: str) -> str:
        file = f"{self._stem}.{phase}.{side}.mir"
        return str(self._directory / file) if self._directory is not None else file

    def write(self, sides: Sides) -> None:
        if self._directory is not None:
            for listing in (sides.before, sides.after):
                write(str(self._directory / Path(listing.path).name), listing.text.encode())


def _write_obligations(directory: Path, run: AuditRun, recorders: dict[str, RecordingSolver]) -> None:
    """Every obligation of the run; where there are phases, their names go before those of inputs and obligations."""
    inputs: dict[str, bytes] = {}
    for pair in run.pairs:
        prefix = f"{pair.phase}/" if pair.phase else ""
        inputs[f"{prefix}before"], inputs[f"{prefix}after"] = pair.before.text.encode(), pair.after.text.encode()
    rows = [
        (replace(obligation, name=f"{phase}/{obligation.name}") if phase else obligation, verdict)
        for phase, recorder in recorders.items()
        for obligation, verdict in recorder.answers
    ]
    write_artefacts(directory, inputs, rows)


def listing(path: str) -> Listing:
    return Listing(path, decode(read(path), path))


# ``verilocc audit --native``: which compiler a path belongs to, and what that compiler prints.


def native_kernels(
    path: str, settings: Settings, flags: Sequence[str], *, progress: Callable[[str], None]
) -> Sequence[NativeKernel]:
    """Every kernel of ``path``, with what its compiler prints before and after each phase.

    Raises:
        InputError: it is none of what a compiler here takes. ToolchainError: the compiler is missing or failed.
    """
    source = Path(path)
    if source.suffix in (".mlir", ".mlirbc"):
        if not source.is_file():
            raise InputError("no such file", where=path)
        if not settings.cpu:
            raise click.UsageError("a module needs its target: -mcpu=gfx942")
        return iree_kernels(source, settings.cpu, find_iree_compile(), flags=flags, progress=progress)
    if flags:
        raise click.UsageError("flags after -- are for iree-compile: they go with a .mlir file")
    if source.is_dir():
        return _of_triton(source, settings, progress)
    try:
        return [llc_kernel(source.read_bytes(), path, settings)]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from error


def _of_triton(folder: Path, settings: Settings, progress: Callable[[str], None]) -> Sequence[NativeKernel]:
    kernels = cached_kernels(folder)
    processors = sorted({kernel.cpu for kernel in kernels})
    if not settings.cpu and len(processors) > 1:
        raise click.UsageError(f"{folder} has kernels for {', '.join(processors)}: choose with -mcpu")
    chosen = tuple(kernel for kernel in kernels if kernel.cpu == (settings.cpu or processors[0]))
    if not chosen:
        raise InputError(f"its kernels are for {', '.join(processors)}, not for {settings.cpu}", where=str(folder))
    return tuple(triton_kernels(chosen, settings, progress=progress))


# ``verilocc recheck``: recorded obligations, compared with the texts they are of, and replayed with any solver.


@click.command("recheck", cls=Command, context_settings=HELP)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("texts", nargs=-1, type=click.Path(path_type=Path), metavar="[BEFORE.mir AFTER.mir]...")
@click.option("--solver", type=click.Choice(["z3", "cvc5", "bitwuzla"]), default="z3", show_default=True)
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="With texts: as for audit.")
@solver_limits
def recheck_command(
    directory: Path, texts: tuple[Path, ...], solver: str, cpu: str, solver_seconds: float, solver_memory: int
) -> int:
    """Replay the obligations that verilocc audit --smt-dir=DIR wrote.

    With the texts that were audited (of several phases in the order of the phases), they are audited again, and the
    files must be what the audit asks. Without them the files are replayed; that they belong to any program is not
    checked.

    Exit codes: 0 every file is the recorded one and its verdict is reached again, and the texts given are proved; 1 a
    verdict differs, or the texts are refuted; 2 the folder is not what it says, or not of these texts; 3 a limit was
    hit, or the audit cannot decide.
    """
    if not installed(solver):
        raise InputError(f"{solver} is not installed", hint="pip install 'verilocc-mlir[solvers]'")
    if len(texts) % 2:
        raise click.UsageError("give both texts of each pair, BEFORE.mir and AFTER.mir")
    if cpu and not texts:
        raise click.UsageError("--mcpu goes with BEFORE.mir and AFTER.mir")

    def show(row: Rechecked) -> None:
        if not row.agrees:
            click.echo(f"{row.name}: recorded {row.recorded}, {solver} says {row.outcome} {row.reason}".rstrip())

    again = _Again(texts, cpu, solver_seconds, solver_memory)
    rows = recheck(
        directory,
        solver,
        texts=again.data,
        ask=again.ask if texts else None,
        timeout_s=solver_seconds,
        memory_mib=solver_memory,
        progress=show,
    )
    agreed = sum(1 for row in rows if row.agrees)
    click.echo(f"{solver}: {agreed} of {len(rows)} obligations as recorded")
    if texts:
        click.echo(f"the audit of these texts says: {combine(again.outcomes)}")
    else:
        click.echo("files only: whether they belong to any program was not checked; for that give BEFORE.mir AFTER.mir")
    wrong = [
        Outcome.REFUTED if row.outcome in (Outcome.PROVED, Outcome.REFUTED) else row.outcome
        for row in rows
        if not row.agrees
    ]
    return int(EXIT_CODES[combine([*wrong, *again.outcomes])])


class _Again:
    """Audits given texts once more and keeps what is asked."""

    def __init__(self, texts: Sequence[Path], cpu: str, seconds: float, memory_mib: int) -> None:

        self._listings = [listing(str(path)) for path in texts]
        self._cpu = cpu
        self._seconds = seconds
        self._memory_mib = memory_mib
        self._asked = 0
        self.data = [one.text.encode() for one in self._listings]
        self.outcomes: list[Outcome] = []

    def ask(self, _before: bytes, _after: bytes) -> list[Obligation]:
        """What the audit asks of the next pair."""
        recorders: list[RecordingSolver] = []

        def record(_phase: str, solver: Solver) -> Solver:
            recorders.append(RecordingSolver(solver))
            return recorders[-1]

        before, after = self._listings[self._asked : self._asked + 2]
        self._asked += 2
        limits = SolverLimits(self._seconds, self._memory_mib)
        self.outcomes.append(audit_texts(before, after, self._cpu, limits=limits, record=record).outcome)
        return [obligation for recorder in recorders for obligation, _ in recorder.answers]
