"""``verilocc allocate``."""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from verilocc_mlir.cli.given import Command, grouped_help
from verilocc_mlir.cli.output import STDIO, check_writable, make_directory, read, write, written_last
from verilocc_mlir.cli.server import ACCESS_OPTIONS, NONE, access_options, access_taken, client_of
from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import stop_before
from verilocc_mlir.report.tables import console, print_allocated
from verilocc_mlir.results.allocate import AllocatedFile, AllocateReport, to_json
from verilocc_mlir.version import __version__

_GROUPS: dict[str, Any] = {
    "verilocc allocate": [
        {"name": "Allocation", "options": ["--phase", "--mcpu", "--allocator", "--attempts"]},
        {"name": "Result", "options": ["--output", "--report", "--quiet"]},
        {"name": "Server", "options": ["--server", *ACCESS_OPTIONS]},
    ]
}
_HELP = f"""Have a server allocate machine IR (llc {stop_before(0)} for sgpr, greedy,2 for vgpr), and audit it here.

A text is written only if the audit here proves all of its functions. Exit code of several files: the gravest, 1
before 2 before 3 before 0; 3 also where the server is not there.
"""


@click.command("allocate", cls=Command, help=_HELP, context_settings=grouped_help(_GROUPS))
@click.argument("sources", metavar="FILE.mir...", nargs=-1, required=True)
@click.option("--server", required=True, metavar="ADDR", help="HOST:PORT, unix:PATH, local: one in this process.")
@click.option("--phase", type=click.Choice(["sgpr", "vgpr"]), required=True, help="Which registers.")
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the IR's target-cpu]")
@click.option("--allocator", default="", metavar="NAME", help="One of the server's. [default: the server's default]")
@click.option(
    "--attempts", type=click.IntRange(1, 32), metavar="N", help="Proposals before fallback. [default: the server's]"
)
@click.option("-o", "--output", default="", metavar="OUT", help="OUT.mir, or - ; a directory for several files.")
@click.option("--report", "report_path", default="", metavar="FILE.json", help="Write the report as JSON; - is stdout.")
@click.option("-q", "--quiet", is_flag=True, help="No table.")
@access_options
def allocate_command(
    sources: tuple[str, ...],
    server: str,
    phase: str,
    cpu: str,
    allocator: str,
    attempts: int | None,
    output: str,
    report_path: str,
    quiet: bool,
    **options: Any,
) -> int:
    if server == NONE:
        raise click.UsageError("--server=none: this command is for servers; verilocc compile allocates here")
    if report_path == output == STDIO:
        raise InputError("the text and the report cannot both go to standard output", hint="give one a file name")
    outputs = _outputs(sources, output)
    for path in filter(None, (*outputs, report_path)):
        check_writable(path)
    access = access_taken(options)
    data = [read(source) for source in sources]

    with client_of(server, access) as client:
        from verilocc_mlir.service.audited_answers import judge, question, server_version

        start = time.monotonic()
        chosen = "sgpr" if phase == "sgpr" else "vgpr"
        questions = [question(text, source, cpu, chosen) for text, source in zip(data, sources, strict=True)]
        answers = client.allocate_all([q.request(allocator, attempts or 0) for q in questions])
        files: list[AllocatedFile] = []
        texts: list[tuple[str, bytes]] = []
        for question_asked, answer, path in zip(questions, answers, outputs, strict=True):
            judgement = judge(question_asked, answer)
            if judgement.text is not None and path:
                texts.append((path, judgement.text))
                judgement = dataclasses.replace(judgement, report=replace(judgement.report, output=path))
            files.append(judgement.report)
        version = server_version(answers)
    report = AllocateReport(__version__, server, version, phase, tuple(files), time.monotonic() - start)
    with ExitStack() as last:
        for path, text in texts:
            last.enter_context(written_last(path, text))
        if report_path:
            write(report_path, to_json(report).encode())
        if not quiet:
            print_allocated(report, console(stderr=STDIO in (output, report_path)))
    return int(report.exit_code)


def _outputs(sources: tuple[str, ...], output: str) -> list[str]:
    """Where each result goes; ``""`` for nowhere.

    Raises:
        InputError: two would have the same name, or one that of an input.
    """
    if len(sources) == 1 or not output:
        outputs = [output] * len(sources)
    elif output == STDIO:
        raise InputError("several texts cannot go to standard output", hint="give a directory with -o")
    else:
        make_directory(output)
        outputs = [str(Path(output) / Path(source).name) for source in sources]
    files = [path for path in outputs if path not in ("", STDIO)]
    for path in files:
        if files.count(path) > 1:
            raise InputError("two results would have this name", where=path, hint="allocate them one by one")
        if Path(path).resolve() in {Path(source).resolve() for source in sources if source != STDIO}:
            raise InputError("the result would overwrite an input", where=path, hint="give another name with -o")
    return outputs
