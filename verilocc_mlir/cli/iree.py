"""``verilocc iree``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verilocc_mlir.cli.frontend import cache_of, check, finish, frontend_options, progress_of, settings_taken
from verilocc_mlir.cli.help import HELP, Command
from verilocc_mlir.cli.server import warn_missed


@click.command("iree", cls=Command, context_settings=HELP)
@click.argument("source", metavar="MODULE.mlir")
@click.option(
    "--iree-rocm-target", "target", required=True, metavar="TARGET", help="gfx942, mi300x, …: as for iree-compile."
)
@frontend_options
def iree_command(source: str, target: str, **options: Any) -> int:
    """Compile an MLIR module with IREE, its GPU kernels with register assignments that are proved.

    A kernel that is not proved stays as IREE made it, and is named. Exit code 0: every kernel in OUT.vmfb is proved;
    1 or 3: it was written, but some are not (see --only-proved); 2: bad input, or a tool is missing or failed.
    """
    check(options, source)

    from verilocc_mlir.hooks.iree import compile_mlir
    from verilocc_mlir.hooks.iree_compiler import find_iree_compile

    settings = settings_taken(options)
    result = compile_mlir(
        Path(source),
        target=target,
        flags=options["flags"],
        settings=settings,
        jobs=options["jobs"],
        replace=options["replace"],
        cache=cache_of(options),
        iree=find_iree_compile(options["iree_path"]),
        progress=progress_of(options),
    )
    if options["quiet"]:
        warn_missed(*result.server)
    return finish(result, options, settings)
