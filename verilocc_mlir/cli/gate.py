"""``verilocc gate``: kernels of now against a baseline, or against budgets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import POSITIVE, Command, given_as, grouped_help
from verilocc_mlir.cli.output import check_writable, read, read_file, write
from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.gate import compare, of_no_kernel, read_budgets, read_kernels, read_tolerances
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.sarif import gate_sarif
from verilocc_mlir.report.written import to_markdown, to_text
from verilocc_mlir.results.gate import GateRun, Kernel, Status, from_json, to_json
from verilocc_mlir.toolchain.inputs import decode
from verilocc_mlir.version import __version__

_GROUPS: dict[str, Any] = {
    "verilocc gate": [
        {"name": "Against what", "options": ["--baseline", "--update", "--budgets"]},
        {"name": "What fails", "options": ["--tolerance", "--fail-on", "--disassemble"]},
        {"name": "Result", "options": ["--markdown", "--sarif", "--quiet"]},
        {"name": "LLVM, for LLVM IR and for names", "options": ["--mcpu", "--mattr", "--llvm", "--tool-seconds"]},
    ]
}


@dataclass(frozen=True)
class _GateGiven:
    paths: tuple[Path, ...]
    baseline: str
    budgets_path: str
    update: bool
    disassemble: bool
    tolerances: tuple[str, ...]
    fail_on: tuple[str, ...]
    markdown: str
    sarif: str
    quiet: bool
    cpu: str
    features: str
    llvm: Path | None
    tool_seconds: float


@click.command("gate", cls=Command, context_settings=grouped_help(_GROUPS))
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATHS...")
@click.option("--baseline", default="", metavar="FILE", help="What the kernels took when it was written; JSON.")
@click.option(
    "--budgets",
    "budgets_path",
    default="",
    metavar="FILE",
    help="What the kernels may take: lines such as 'attn_* vgprs<=128 vgpr_spills<=0 waves>=4'.",
)
@click.option("--update", is_flag=True, help="Write the baseline anew, whatever is worse; the exit code is then 0.")
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="LIST",
    help="How much worse is no failure, e.g. vgprs=2,sgprs=5%,agprs=any. [default: not at all]",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["new", "vanished"]),
    help="Kernels that are not in the baseline, or only there, fail too.",
)
@click.option(
    "--disassemble",
    is_flag=True,
    help="Look at the code of code objects too: a kernel that uses registers which it does not declare fails.",
)
@click.option(
    "--markdown", default="", metavar="FILE", help="Write a summary for a pull request; - is standard output."
)
@click.option("--sarif", default="", metavar="FILE", help="Write SARIF 2.1.0, for code scanning.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard output.")
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="For LLVM IR: target. [default: the IR's target-cpu]")
@click.option("--mattr", "features", default="", metavar="LIST", help="For LLVM IR: features, as for llc.")
@click.option("--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc.")
@click.option(
    "--tool-seconds",
    type=POSITIVE,
    default=300.0,
    show_default=True,
    help="For one LLVM tool.",
)
@given_as(_GateGiven)
def gate_command(given: _GateGiven) -> int:
    """Compare what kernels take with a baseline or with budgets: registers, spills, waves, scratch, LDS, and whether
    they are proved.

    PATHS are code objects (.hsaco, .co, .o), bundles and fat binaries of HIP, assembly (.s, .amdgcn, .rocmasm), reports
    of verilocc compile (.json), LLVM IR (.ll, .llir, .bc; compiled by llc), and folders of all but IR, such as a cache
    of Triton's.

    Exit codes: 0 nothing is worse, 4 a kernel is worse than the tolerances allow, 2 bad input or a failed tool.
    """
    if not (given.baseline or given.budgets_path):
        raise click.UsageError("give --baseline=FILE or --budgets=FILE")
    if given.update and not given.baseline:
        raise click.UsageError("--update needs --baseline=FILE")

    allowed = read_tolerances(",".join(given.tolerances))
    for path in filter(None, (given.baseline if given.update else "", given.markdown, given.sarif)):
        check_writable(path)
    budgets = (
        read_budgets(decode(read(given.budgets_path), given.budgets_path), given.budgets_path)
        if given.budgets_path
        else ()
    )
    before = _baseline(given.baseline, given.update) if given.baseline else None
    settings = Settings(cpu=given.cpu, features=given.features, llvm=given.llvm, tool_seconds=given.tool_seconds)
    now = read_kernels(given.paths, settings, read_file, disassemble=given.disassemble)
    failing = frozenset((Status.WORSE, *map(Status, given.fail_on)))
    rows = compare(before, now.kernels, allowed, budgets)
    notes = (*now.notes, *of_no_kernel(budgets, now.kernels))
    run = GateRun(__version__, given.baseline or given.budgets_path, rows, failing, notes, given.update)
    if given.update:
        write(given.baseline, to_json(now.kernels, __version__).encode())
    if given.markdown:
        write(given.markdown, to_markdown(run).encode())
    if given.sarif:
        write(given.sarif, gate_sarif(run).encode())
    if not given.quiet:
        click.echo(to_text(run), nl=False)
    return int(run.exit_code)


def _baseline(path: str, update: bool) -> tuple[Kernel, ...]:
    """The kernels of the baseline; none where one is to be written in the place of nothing, or of something else."""
    try:
        if not Path(path).exists():
            raise InputError("there is no such baseline", where=path, hint="--update writes it")
        return from_json(read(path), path)
    except InputError:
        if update:
            return ()
        raise
