"""``verilocc torch``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.frontend import cache_of, check, finish, frontend_options, progress_of, settings_taken
from verilocc_mlir.cli.help import HELP, Command
from verilocc_mlir.cli.signals import end_on_sigterm
from verilocc_mlir.errors import InputError, VeriloccError

_FORM = (
    "give FILE.py:factory, where factory() returns (module, example_inputs) or (module, example_inputs, dynamic_shapes)"
)


@click.command("torch", cls=Command, context_settings=HELP)
@click.argument("source", metavar="FILE.py:factory")
@click.option("--target", required=True, metavar="TARGET", help="gfx942, mi300x, …: as --iree-rocm-target.")
@frontend_options
def torch_command(source: str, target: str, **options: Any) -> int:
    """Compile a Torch module through IREE, its GPU kernels with register assignments that are proved.

    factory() returns (module, example_inputs), or (module, example_inputs, dynamic_shapes) as torch.export takes them.
    The exit codes are those of verilocc iree.
    """
    file, _, factory = source.rpartition(":")
    if not file or not factory.isidentifier():
        raise InputError(f"{source!r} does not name a factory", hint=_FORM)
    check(options, file)

    from verilocc_mlir.hooks.iree_compiler import find_iree_compile
    from verilocc_mlir.hooks.iree_target import check_target
    from verilocc_mlir.hooks.torch import compile
    from verilocc_mlir.hooks.torch_import import front_end
    from verilocc_mlir.pipeline.checked_settings import check_settings

    settings = settings_taken(options)
    check_settings(settings)
    iree = find_iree_compile(options["iree_path"])
    check_target(iree, target, options["flags"])
    front_end("torch")
    program = _made(Path(file), factory)
    end_on_sigterm()
    compiled = compile(
        program[0],
        program[1],
        target=target,
        dynamic_shapes=program[2] if len(program) > 2 else None,
        flags=options["flags"],
        settings=settings,
        jobs=options["jobs"],
        replace=options["replace"],
        cache=cache_of(options),
        iree=iree,
        progress=progress_of(options),
    )
    return finish(compiled.result, options, settings)


def _made(file: Path, factory: str) -> tuple[Any, ...]:
    if not file.is_file():
        raise InputError("no such file", where=str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError("this is no Python file", where=str(file), hint=_FORM)
    module = importlib.util.module_from_spec(spec)
    # As for a script: its own directory comes first, and it can be found by name (dataclasses, pickle).
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, factory):
            raise InputError(f"it has no {factory}", where=str(file), hint=_FORM)
        returned = getattr(module, factory)()
    except VeriloccError:
        raise
    except Exception as error:
        raise InputError(f"it raised {type(error).__name__}: {error}", where=_place(file, error)) from error
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):  # pyright: ignore[reportUnknownArgumentType]
        raise InputError(f"{factory}() did not return two or three things", where=str(file), hint=_FORM)
    return returned  # pyright: ignore[reportUnknownVariableType]


def _place(file: Path, error: BaseException) -> str:
    """The line of the user's file that raised it."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{file}:{line}" if line else str(file)
