"""The HTML page of a compilation and the obligations it links to: shared by ``compile --html`` and ``report``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from verilocc_mlir.cli.output import STDIO, write
from verilocc_mlir.target.targets import target

if TYPE_CHECKING:
    from verilocc_mlir.pipeline.recording import Recording
    from verilocc_mlir.results.compile import Report


smt_dir_option = click.option(
    "--smt-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every obligation as SMT-LIB2.",
)


def new_recording() -> Recording:
    from verilocc_mlir.pipeline.recording import Recording

    return Recording()


def write_recorded(path: str, report: Report, recording: Recording, directory: Path | None) -> None:
    """The obligations into ``directory``, then the page, which links to them; either may be left out.

    Raises:
        InputError: something cannot be written.
    """
    files = write_obligations(directory, recording) if directory is not None else ()
    if path:
        write_page(path, report, recording, directory, files)


def write_obligations(directory: Path, recording: Recording) -> tuple[str, ...]:
    """Every obligation of the run as SMT-LIB, with a manifest; file names in the order of the run.

    Raises:
        InputError: the directory cannot be made or written.
    """

    from smt_verifier.artefacts import write_artefacts

    answers = [
        (replace(obligation, name=f"{record.phase}/{obligation.name}"), verdict)
        for record in recording.phases
        for obligation, verdict in record.asked
    ]
    return write_artefacts(directory, recording.texts(), answers)


def write_page(
    path: str,
    report: Report,
    recording: Recording,
    obligations: Path | None = None,
    files: tuple[str, ...] = (),
) -> None:
    """Write the page as a whole.

    Args:
        path: where to; ``-`` is standard output.
        obligations: directory of the obligations; None where none were written.
        files: their names, as ``write_obligations`` gives them.

    Raises:
        InputError: the file cannot be written.
    """
    from verilocc_mlir.report.page.html import to_html

    links: tuple[str, ...] = ()
    if obligations is not None:
        start = Path.cwd() if path == STDIO else Path(path).resolve().parent
        directory = Path(os.path.relpath(obligations.resolve(), start)).as_posix()
        links = tuple(f"{quote(directory)}/{name}" for name in files)
    write(path, to_html(report, recording.page(target(report.target), links)).encode())
