"""``verilocc train`` and ``verilocc eval``: thin, the work is in verilocc_model, which is loaded when it is needed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.given import HELP, POSITIVE, Command, Group, needs_language_model
from verilocc_mlir.errors import ExitCode

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _commands() -> Any:
    needs_language_model()
    return importlib.import_module("verilocc_model.commands")


def _resumable(out: Path, work: Callable[[], int]) -> int:
    """The exit code of what keeps each part as it is done."""
    try:
        return int(work())
    except KeyboardInterrupt:
        _say(f"interrupted; what is done is kept in {out}, and the same command goes on from there")
        return ExitCode.INTERRUPTED


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` as settings; a value is JSON, or a text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set {pair}: NAME=VALUE is wanted")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


@click.group("train", cls=Group, context_settings=HELP)
def train_command() -> None:
    """Train the model. Interrupted runs go on where they were when the same command is given again."""


def _options(command: Any) -> Any:
    for option in (
        click.option("--config", type=_FILE, default=None, metavar="FILE.json", help="Settings (docs/guide/model.md)."),
        click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="One setting."),
        click.option("--out", required=True, type=_DIRECTORY, metavar="DIR", help="Checkpoints, metrics, the model."),
        click.argument("data", metavar="DIR...", nargs=-1, required=True, type=_DIRECTORY),
    ):  # fmt: skip
        command = option(command)
    return command


@train_command.command("base", cls=Command, context_settings=HELP)
@_options
def train_base_command(data: tuple[Path, ...], out: Path, config: Path | None, pairs: tuple[str, ...]) -> int:
    """Train a base model from scratch on the labelled problems in DIR."""
    code = _commands().train(data, out, config=config, settings=_settings(pairs), base=None, say=_say)
    return int(code)


@train_command.command("adapter", cls=Command, context_settings=HELP)
@click.option("--base", required=True, type=_DIRECTORY, metavar="DIR", help="The model to adapt.")
@_options
def train_adapter_command(
    data: tuple[Path, ...], out: Path, config: Path | None, pairs: tuple[str, ...], base: Path
) -> int:
    """Train a LoRA adapter for one architecture family on a base model."""
    code = _commands().train(data, out, config=config, settings=_settings(pairs), base=base, say=_say)
    return int(code)


@train_command.command("feedback", cls=Command, context_settings=HELP)
@click.option("--model", required=True, type=_DIRECTORY, metavar="DIR", help="The model that is asked.")
@click.option("--samples", type=click.IntRange(1), default=2, show_default=True, help="Answers to each problem.")
@click.option("--temperature", type=POSITIVE, default=0.7, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--seconds", type=POSITIVE, default=60.0, show_default=True, help="An answer.")
@click.option("--target", "targets", multiple=True, metavar="GPU", help="Only these; one held out has to be named.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Problems. [all]")
@click.option("--out", required=True, type=_DIRECTORY, metavar="DIR", help="What is found.")
@click.argument("data", metavar="DIR...", nargs=-1, required=True, type=_DIRECTORY)
def feedback_command(
    data: tuple[Path, ...], out: Path, model: Path, targets: tuple[str, ...], limit: int, **asking: Any
) -> int:
    """Collect unmasked answers to the problems in DIR that the verifier refutes, with its counterexamples.

    Train on DIR and OUT next: the model learns to answer after a refutation.
    """
    commands = _commands()
    settings = commands.Asking(**asking)
    return _resumable(
        out,
        lambda: commands.collect_command(
            data, out, model=model, targets=targets, limit=limit, asking=settings, say=_say
        ),
    )


@train_command.command("plans", cls=Command, context_settings=HELP)
@click.option("--out", required=True, type=_DIRECTORY, metavar="DIR", help="The model.")
@click.argument("data", metavar="DIR...", nargs=-1, required=True, type=_DIRECTORY)
def plans_command(data: tuple[Path, ...], out: Path) -> int:
    """Fit what states a plan by the facts of a kernel, to the labels of verilocc corpus plans in DIR."""
    commands = _commands()
    return int(commands.train_plans(commands.Nearest, data, out, everything=False, say=_say))


@train_command.command("critic", cls=Command, context_settings=HELP)
@click.option("--all", "everything", is_flag=True, help="Also on what is held out: for use, not for measuring.")
@click.option("--out", required=True, type=_DIRECTORY, metavar="DIR", help="The critic.")
@click.argument("data", metavar="DIR...", nargs=-1, required=True, type=_DIRECTORY)
def critic_command(data: tuple[Path, ...], out: Path, everything: bool) -> int:
    """Train what ranks plans by their texts, on the labels of verilocc corpus plans in DIR."""
    commands = _commands()
    return int(commands.train_plans(commands.Critic, data, out, everything=everything, say=_say))


@click.command("adapt", cls=Command, context_settings=HELP)
@click.option("--target", default="", metavar="GPU", help="gfx1201, for example. [the journal's, with --measured]")
@click.option("--measured", type=_FILE, default=None, metavar="JOURNAL", help="Times that verilocc measure took.")
@click.option("--base", type=_DIRECTORY, default=None, metavar="DIR", help="The model to adapt.")
@click.option("--minutes", type=POSITIVE, default=30.0, show_default=True, help="At most.")
@click.option("--kernels", type=click.IntRange(1), default=None, help="Train on this many at most. [all]")
@click.option(
    "--out",
    type=_DIRECTORY,
    default=None,
    metavar="DIR",
    help="OUT/model is the adapted model. [JOURNAL.adapted, with --measured]",
)
@click.argument("data", metavar="[DIR|FILE]...", nargs=-1, type=click.Path(path_type=Path))
def adapt_command(
    target: str,
    measured: Path | None,
    base: Path | None,
    minutes: float,
    kernels: int | None,
    out: Path | None,
    data: tuple[Path, ...],
) -> int:
    """Adapt a model to a GPU that it has not seen, with the labelled problems for it in DIR.

    With --measured, learn from times what a GPU adds to the cost model, and say whether it helps on codes kept aside.
    DIR and FILE are then the measured codes [the journal's folder]; those not measured are put in order.
    """
    if measured is not None:
        if base is not None or kernels is not None:
            raise click.UsageError("--measured needs no base, and does not take --kernels")
        there = out or measured.with_name(f"{measured.name}.adapted")
        return _resumable(
            there,
            lambda: _commands().adapt_to_measured(measured, data or (measured.parent,), there, target=target, say=_say),
        )
    if not target or base is None or out is None or not data:
        raise click.UsageError("--target, --base, --out and DIR are wanted, or --measured")
    code = _commands().adapt_command(target, base, data, out, minutes=minutes, kernels=kernels or 0, say=_say)
    return int(code)


@click.command("eval", cls=Command, context_settings=HELP)
@click.argument("data", metavar="DIR...", nargs=-1, required=True, type=_DIRECTORY)
@click.option(
    "--model", type=_DIRECTORY, default=None, metavar="DIR", help="The model. [default: trivial policies only]"
)
@click.option(
    "--plans", is_flag=True, help="DIR has labels of plans (verilocc corpus plans): compare what chooses one."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(["masked", "mask-only", "unmasked"]), help="[all]")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(["model", "draft", "meets", "first-fit", "random", "exact", "improved"]),
    help="[all but exact and improved]",
)
@click.option("--samples", type=click.IntRange(0, 1000), default=0, show_default=True, help="For pass@k.")
@click.option("--feedback", is_flag=True, help="A second attempt after a refutation, told why.")
@click.option("--temperature", type=POSITIVE, default=0.7, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--seconds", type=POSITIVE, default=60.0, show_default=True, help="An answer.")
@click.option(
    "--exact-seconds",
    type=POSITIVE,
    default=20.0,
    show_default=True,
    help="The exact allocator's time for an answer.",
)
@click.option("--at-most", type=click.IntRange(0), default=0, help="Only problems of so many live ranges. [any]")
@click.option("--all", "everything", is_flag=True, help="Also what the base was trained on.")
@click.option("--limit", type=click.IntRange(0), default=0, help="Problems. [all]")
@click.option("--out", type=_FILE, default=None, metavar="FILE.json", help="Every answer, configuration and commit.")
def eval_command(
    data: tuple[Path, ...],
    model: Path | None,
    plans: bool,
    modes: tuple[str, ...],
    policies: tuple[str, ...],
    everything: bool,
    at_most: int,
    limit: int,
    out: Path | None,
    **measured: Any,
) -> int:
    """Measure the model and the trivial policies on the problems in DIR; every answer is proved.

    With --plans nothing is compiled: each kernel of DIR has what every plan costs on it.
    """
    commands = _commands()
    if plans:
        return int(commands.evaluate_plans_command(data, model=model, out=out, say=_say))
    chosen = {k: v for k, v in (("modes", modes), ("policies", policies)) if v}
    config = commands.EvalConfig(**chosen, **measured)

    def work() -> int:
        return commands.evaluate_command(
            data, model=model, config=config, everything=everything, at_most=at_most, limit=limit, out=out, say=_say
        )

    # Without a file nothing is kept.
    return work() if out is None else _resumable(out.with_name(f"{out.name}.partial"), work)
