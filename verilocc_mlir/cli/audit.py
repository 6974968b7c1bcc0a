"""``verilocc audit``: anyone's register allocation, before against after."""

from __future__ import annotations

from pathlib import Path

import click
from rich_click import RichCommand

from verilocc_mlir.errors import InputError


@click.command("audit", cls=RichCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before", type=click.Path(path_type=Path), metavar="BEFORE.mir")
@click.argument("after", type=click.Path(path_type=Path), metavar="AFTER.mir")
@click.option("--mcpu", "cpu", default="", metavar="CPU", help="Target. [default: the IR's target-cpu]")
@click.option("--solver-seconds", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True)
@click.option("--smt-dir", type=click.Path(path_type=Path), metavar="DIR", help="Write every obligation as SMT-LIB2.")
def audit_command(before: Path, after: Path, cpu: str, solver_seconds: float, smt_dir: Path | None) -> int:
    """Prove that AFTER computes what BEFORE does.

    BEFORE is machine IR from llc -stop-before=greedy,N, AFTER the same file after virtregrewriter,N, whoever allocated.
    """
    from smt_verifier.artefacts import RecordingSolver, write_artefacts
    from smt_verifier.audit import audit
    from verilocc_mlir.mir.parser import parse_mir
    from verilocc_mlir.report.model import EXIT_CODES
    from verilocc_mlir.target.targets import target
    from verilocc_mlir.toolchain.inputs import load_input

    texts = {"before": _read(before), "after": _read(after)}
    given = load_input(texts["before"], path=str(before), cpu=cpu or None)
    if given.kind != "mir":
        raise InputError("this is LLVM IR, not machine IR", where=str(before), hint="llc -stop-before=greedy,0")
    pre = parse_mir(given.text, str(before))
    post = parse_mir(texts["after"].decode(errors="replace"), str(after))
    solver = RecordingSolver()
    report = audit(pre, post, target(given.cpu), timeout_s=solver_seconds, solver=solver)
    if smt_dir is not None:
        write_artefacts(smt_dir, texts, solver.asked)
    for function in report.functions:
        click.echo(f"{function.function}: {function.outcome}, {function.obligations} obligations")
        for finding in function.findings:
            click.echo(f"  {finding.outcome}: {finding.render()}")
    click.echo(str(report.outcome))
    return int(EXIT_CODES[report.outcome])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
