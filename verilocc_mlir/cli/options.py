"""What is asked of a compilation: the options that ``verilocc compile`` and ``verilocc compile-many`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from verilocc_mlir.allocators.registry import MODEL, MOST_SAMPLES
from verilocc_mlir.cli.given import POSITIVE, needs_ray
from verilocc_mlir.pipeline.options import OPTIONS, Group, Kind, Option
from verilocc_mlir.pipeline.settings import DEFAULT_ALLOCATOR, Effort, Emit, Settings
from verilocc_mlir.toolchain import ToolchainChoice

_Command = TypeVar("_Command", bound=Callable[..., Any])

TARGET_OPTIONS = ["--mcpu", "--mattr", "--mtriple", "-O"]
_BY_GROUP = {group: [o for o in OPTIONS if o.group is group and o.kind is not Kind.EFFORT] for group in Group}
"""Those of ``pipeline.options``; effort is a word of ``-O``."""
_ALLOCATOR, *_PROOF = [f"--{known.word}" for known in _BY_GROUP[Group.PROOF]]
PROOF_OPTIONS = [_ALLOCATOR, "--model", *_PROOF]
LLVM_OPTIONS = [f"--{known.word}" for known in _BY_GROUP[Group.LLVM]]
RAY_OPTIONS = ["--ray", "--ray-address"]
"""Their names, in groups for the help."""

_EFFORTS = [e.value for e in Effort]


def _checked_levels(_context: click.Context, _parameter: click.Parameter, levels: tuple[str, ...]) -> tuple[str, ...]:
    """``-O3`` and ``-O=best`` alike: a short option keeps the sign."""
    bare = tuple(level.removeprefix("=") for level in levels)
    for level in bare:
        if level not in ("1", "2", "3", *_EFFORTS):
            raise click.BadParameter(f"{level!r} is none of 1, 2, 3, {', '.join(_EFFORTS)}")
    return bare


def _checked_efforts(_context: click.Context, _parameter: click.Parameter, levels: tuple[str, ...]) -> tuple[str, ...]:
    """``-O=best`` and ``-Obest`` alike; a front end decides llc's level."""
    efforts = tuple(level.removeprefix("=") for level in levels)
    for effort in efforts:
        if effort not in _EFFORTS:
            raise click.BadParameter(f"{effort!r} is none of {', '.join(_EFFORTS)}")
    return efforts


def click_option(defined: Option) -> Callable[[_Command], _Command]:
    """The option of the command line for one of ``pipeline.options``; its parameter is the field that it sets."""
    flag, default, help_text = f"--{defined.word}", defined.default, defined.help
    if defined.kind is Kind.SWITCH and default is not False:
        return click.option(f"{flag}/--no-{defined.word}", defined.field, default=default, help=help_text)
    if defined.kind is Kind.SWITCH:
        return click.option(flag, defined.name, is_flag=True, help=help_text)
    if defined.name == "allocator":
        # Whether it was given matters: with a server it is the server's.
        help_text, default = f"{help_text} [default: {default}; with --server the server's]", ""
    kinds: dict[Kind, Any] = {
        Kind.SECONDS: POSITIVE,
        Kind.COUNT: click.IntRange(1, MOST_SAMPLES),
        Kind.PATH: click.Path(path_type=Path),
        Kind.TOOLCHAIN: click.Choice([choice.value for choice in ToolchainChoice]),
    }
    if isinstance(default, ToolchainChoice):
        default = default.value
    return click.option(
        flag,
        defined.name if defined.of_access else defined.field,
        type=kinds.get(defined.kind),
        multiple=defined.kind is Kind.FLAGS,
        default=None if defined.kind is Kind.FLAGS else default,
        show_default=defined.kind in (Kind.SECONDS, Kind.TOOLCHAIN),
        metavar=defined.metavar or None,
        help=help_text,
    )


_TARGET = (
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
)
_EFFORT = click.option(
    "-O",
    "levels",
    multiple=True,
    metavar="EFFORT",
    callback=_checked_efforts,
    help="fast, balanced, best: how many allocations are tried. [default: fast]",
)
_ALLOCATION = (
    click.option(
        "--model",
        type=click.Path(path_type=Path),
        default=None,
        metavar="DIR",
        help="Ask the language model there, then the deterministic allocator.",
    ),
    *(click_option(known) for group in (Group.PROOF, Group.LLVM) for known in _BY_GROUP[group]),
)


def ray_options(command: _Command) -> _Command:
    """Add ``--ray`` and ``--ray-address``; the command gets them as ``ray`` and ``ray_address``, "" without one."""
    for decorate in (
        click.option(
            "--ray-address", default="", metavar="ADDR",
            help="local: one of this machine, for this command alone; auto: the one this machine is in; HOST:PORT. "
            "[default: local]",
        ),
        click.option("--ray", is_flag=True, help="Work on a Ray cluster."),
    ):  # fmt: skip
        command = decorate(command)
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
    for decorate in reversed((*_TARGET, *_ALLOCATION)):
        command = decorate(command)
    return command


def kernel_options(command: _Command) -> _Command:
    """The same without those that a front end decides: target, level and form of the result."""
    for decorate in reversed((_EFFORT, *_ALLOCATION)):
        command = decorate(command)
    return command


def asks_for_help(settings: Settings) -> bool:
    """Whether, as llc takes it, ``-mcpu=help`` or ``-mattr=help`` asks what there is."""
    return "help" in (settings.cpu, *settings.features.split(","))


def print_target_help(settings: Settings) -> int:
    """Print llc's processors and features; the exit code.

    Raises:
        ToolchainError: there is no llc.
    """
    from verilocc_mlir.toolchain.find import find_toolchain
    from verilocc_mlir.toolchain.run import run_tool

    llc = find_toolchain(settings.llvm).llc
    listed = run_tool([llc, "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-mattr=help", "-o", "-"], stage="help")
    click.echo(listed.stderr)
    return 0


def settings_of(options: Mapping[str, Any]) -> Settings:
    """What the options ask for.

    Raises:
        click.UsageError: a model and another allocator.
    """
    values: dict[str, Any] = {**options, "allocator": options["allocator"] or DEFAULT_ALLOCATOR}
    model: Path | None = values.pop("model", None)
    if model is not None:
        if options["allocator"]:
            raise click.UsageError("--model: leave --allocator out, or name the model there: --allocator=model:DIR")
        values["allocator"] = f"{MODEL}:{model}"
    for level in values.pop("levels"):
        if level.isdigit():
            values["opt_level"] = int(level)
        else:
            values["effort"] = level
    # click has checked the values; msgspec, which ``Settings.from_data`` needs, takes 5 ms to load.
    for name, kind in (("effort", Effort), ("emit", Emit), ("toolchain", ToolchainChoice)):
        if name in values:
            values[name] = kind(values[name])
    return Settings(**values)
