"""What is asked of a compilation: the options that ``verilocc compile`` and ``verilocc compile-many`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from verilocc_mlir.allocators.registry import MODEL, MOST_SAMPLES
from verilocc_mlir.cli.extras import needs_ray
from verilocc_mlir.pipeline.settings import (
    DEFAULT_ALLOCATOR,
    DEFAULT_ALLOCATOR_SECONDS,
    DEFAULT_SOLVER_SECONDS,
    DEFAULT_TOOL_SECONDS,
    Effort,
    Emit,
    Settings,
)

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SECONDS = click.FloatRange(0, min_open=True)

TARGET_OPTIONS = ["--mcpu", "--mattr", "--mtriple", "-O"]
PROOF_OPTIONS = [
    "--allocator", "--model", "--model-samples", "--allocator-seconds", "--spill", "--fallback", "--solver-seconds",
]  # fmt: skip
LLVM_OPTIONS = ["--llvm", "--llc", "--verify", "--tool-seconds"]
RAY_OPTIONS = ["--ray", "--ray-address"]
"""Their names, in groups for the help."""

_EFFORTS = [e.value for e in Effort]


def _checked_levels(_context: click.Context, _parameter: click.Parameter, levels: tuple[str, ...]) -> tuple[str, ...]:
    """``-O3`` and ``-O=best`` alike: a short option keeps the sign."""
    found = tuple(level.removeprefix("=") for level in levels)
    for level in found:
        if level not in ("1", "2", "3", *_EFFORTS):
            raise click.BadParameter(f"{level!r} is none of 1, 2, 3, {', '.join(_EFFORTS)}")
    return found


_OPTIONS = (
    click.option(
        "--mcpu", "cpu", default="", metavar="CPU", help="Target, e.g. gfx942. [default: the IR's target-cpu]"
    ),
    click.option("--mattr", "features", default="", metavar="LIST", help="Target features, as llc takes them."),
    click.option("--mtriple", "triple", default="", metavar="TRIPLE", help="Checked only: must be an AMDGPU's."),
    click.option(
        "-O",
        "levels",
        multiple=True,
        metavar="LEVEL",
        callback=_checked_levels,
        help="1, 2, 3: llc's level [default: 3]; fast, balanced, best: how many allocations are tried [default: fast].",
    ),
    click.option("--emit", type=click.Choice([e.value for e in Emit]), default=Emit.HSACO.value, show_default=True),
    click.option(
        "--allocator",
        default="",
        metavar="NAME",
        help=f"deterministic; exact: the fewest waves lost, then copies, by CP-SAT; llvm: LLVM's, audited. "
        f"[default: {DEFAULT_ALLOCATOR}; with --server the server's]",
    ),
    click.option(
        "--model",
        type=click.Path(path_type=Path),
        default=None,
        metavar="DIR",
        help="Ask the language model there, then the deterministic allocator.",
    ),
    click.option(
        "--model-samples",
        type=click.IntRange(1, MOST_SAMPLES),
        default=None,
        metavar="N",
        help="Answers of the model that are compared; the cheapest is proved and kept. [default: 1]",
    ),
    click.option(
        "--allocator-seconds",
        type=_SECONDS,
        default=DEFAULT_ALLOCATOR_SECONDS,
        show_default=True,
        help="For one phase of a function, with exact or a model.",
    ),
    click.option("--spill/--no-spill", default=True, help="Spill where registers do not suffice. [default: on]"),
    click.option(
        "--fallback/--no-fallback", default=True, help="Take LLVM's allocation where ours fails. [default: on]"
    ),
    click.option(
        "--llvm", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Directory of llc, or llc."
    ),
    click.option(
        "--llc", "llc_options", multiple=True, metavar="FLAG", help="Hand a flag to llc, e.g. -fp-contract=fast."
    ),
    click.option("--verify/--no-verify", "verify", default=True, help="Run llc's machine verifier too. [default: on]"),
    click.option(
        "--solver-seconds",
        type=_SECONDS,
        default=DEFAULT_SOLVER_SECONDS,
        show_default=True,
        help="For one question; then UNKNOWN.",
    ),
    click.option(
        "--tool-seconds",
        type=_SECONDS,
        default=DEFAULT_TOOL_SECONDS,
        show_default=True,
        help="For one run of llc or ld.lld.",
    ),
)


def ray_options(command: _Command) -> _Command:
    """Add ``--ray`` and ``--ray-address``; the command gets them as ``ray`` and ``ray_address``, "" without one."""
    for option in (
        click.option(
            "--ray-address", default="", metavar="ADDR",
            help="local: one of this machine, for this command alone; auto: the one this machine is in; HOST:PORT. "
            "[default: local]",
        ),
        click.option("--ray", is_flag=True, help="Work on a Ray cluster."),
    ):  # fmt: skip
        command = option(command)
    return command


def cluster_address(ray: bool, ray_address: str) -> str | None:
    """Address of the cluster that the options of ``ray_options`` ask for; None without ``--ray``.

    Raises:
        UsageError: an address without ``--ray``. UnsupportedError: Ray is not installed.
    """
    if ray:
        needs_ray()
        return ray_address or "local"
    if ray_address:
        raise click.UsageError("--ray-address needs --ray")
    return None


def compile_options(command: _Command) -> _Command:
    """Add the options; the command gets them as the keyword arguments that ``settings_of`` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(options: Mapping[str, Any]) -> Settings:
    """What the options ask for.

    Raises:
        click.UsageError: a model and another allocator.
    """
    given: dict[str, Any] = {**options, "allocator": options["allocator"] or DEFAULT_ALLOCATOR}
    model: Path | None = given.pop("model", None)
    if model is not None:
        if options["allocator"]:
            raise click.UsageError("--model: leave --allocator out, or name the model there: --allocator=model:DIR")
        given["allocator"] = f"{MODEL}:{model}"
    for level in given.pop("levels"):
        if level.isdigit():
            given["opt_level"] = int(level)
        else:
            given["effort"] = level
    return Settings.from_data(given)
