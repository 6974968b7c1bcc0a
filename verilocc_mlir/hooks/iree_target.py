"""What is wrong with a GPU or with flags of iree-compile whatever the module: said before any work."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.iree_compiler import FlagError, IreeCompiler
from verilocc_mlir.target.targets import TARGETS

_ARCHITECTURE = re.compile(r'#iree_gpu\.target<arch = "(?P<name>[^"]+)"')
_UNKNOWN = re.compile(r"Unknown ROCM target|ROCM target not set")
_EMPTY = "module {}\n"
_UP_TO = "--compile-to=preprocessing"
"""As far as IREE says in the module what GPU it is for."""


def check_target(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> None:
    """Have iree-compile read them, with a module that has nothing in it: a tenth of a second.

    Args:
        target: as ``--iree-rocm-target`` takes it.
        flags: further flags of iree-compile.

    Raises:
        InputError: IREE does not know the GPU, or no allocation for it can be proved here; IREE does not take a flag.
        ToolchainError: iree-compile cannot be run.
    """
    name = _architecture(iree, target, flags)
    if name is None:
        raise InputError(f"IREE knows no GPU {target!r}", hint=_known(iree))
    if name and name not in TARGETS:
        shown = name if name == target else f"{target} ({name})"
        raise InputError(f"no allocation for {shown} can be proved here", hint=_known(iree))


def _architecture(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> str | None:
    """``"gfx942"`` for ``"mi300x"``; None where IREE does not know it, ``""`` where it does not say."""
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        source, output = Path(temporary, "empty.mlir"), Path(temporary, "out.mlir")
        source.write_text(_EMPTY)
        all_flags = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags, _UP_TO]
        try:
            iree.run(source, output, all_flags, stage="target", shown_as=target)
        except FlagError:
            raise
        except InputError as error:  # of the empty module with these flags: what there is to say, the module's own says
            return None if _UNKNOWN.search(error.what) else ""
        match = _ARCHITECTURE.search(output.read_text("utf-8", "replace"))
    return match["name"] if match else ""


def _known(iree: IreeCompiler) -> str:
    there = ", ".join(name for name in TARGETS if _architecture(iree, name) == name)
    return f"give one of {there}, or a product of these, such as mi300x"
