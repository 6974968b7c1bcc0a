"""Find and link bitcode libraries: ROCm's ``ocml.bc`` and ``ockl.bc``, and files that a target attribute names.

ROCm installs the libraries in ``amdgcn/bitcode``; the triton and iree-base-compiler wheels carry copies.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.toolchain.find import LlvmTools
from verilocc_mlir.toolchain.run import ToolFailure, run_tool

VARIABLE = "VERILOCC_DEVICE_LIBS"
"""Environment variable: the directory of ``ocml.bc`` and ``ockl.bc``; then nothing else is searched."""

LIBRARIES = {"__ocml_": "ocml.bc", "__ockl_": "ockl.bc"}
"""Which library has the functions of a prefix."""

_WHEELS = (
    ("triton", "backends/amd/lib"),
    ("iree.compiler", "_mlir_libs/iree_platform_libs/rocm"),
)


def find_device_libraries(env: Mapping[str, str] | None = None) -> Path | None:
    """The first directory that holds ``ocml.bc``: the environment's, ROCm's, a wheel's; None where there is none."""
    environment = os.environ if env is None else env
    if environment.get(VARIABLE):
        directories = [Path(environment[VARIABLE])]
    else:
        roots = [Path(environment[name]) for name in ("ROCM_PATH", "ROCM_ROOT", "ROCM_HOME") if environment.get(name)]
        directories = [root / "amdgcn/bitcode" for root in (*roots, Path("/opt/rocm"))]
        directories += [directory for package, inside in _WHEELS for directory in _in_package(package, inside)]
    return next((directory for directory in directories if (directory / "ocml.bc").is_file()), None)


def _in_package(package: str, inside: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return []
    if spec is None:
        return []
    return [Path(location) / inside for location in spec.submodule_search_locations or ()]


def link_bitcode(
    toolchain: LlvmTools,
    ir: str,
    libraries: Sequence[Path],
    constants: Mapping[str, tuple[str, int]],
    *,
    timeout: float,
    where: str,
) -> str:
    """``ir`` with what it needs of ``libraries``, made internal.

    Args:
        constants: the libraries' control constants, name to (type, value); those that are needed are defined.

    Raises:
        ToolchainError: llvm-link is missing or fails. InputError: a file does not exist.
    """
    if toolchain.irlink is None:
        raise ToolchainError(f"linking bitcode needs llvm-link, which was not found {toolchain.place}", where=where)
    for library in libraries:
        if not library.is_file():
            raise InputError(f"the bitcode library {library} does not exist", where=where)
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        module, control = Path(directory, "module.ll"), Path(directory, "constants.ll")
        module.write_text(ir)
        control.write_text(
            "".join(
                f"@{name} = hidden local_unnamed_addr addrspace(4) constant {kind} {value}\n"
                for name, (kind, value) in constants.items()
            )
        )
        command = [toolchain.irlink, "-S", "--only-needed", "--internalize", module, *libraries, control, "-o", "-"]
        try:
            return run_tool(command, timeout=timeout, stage="llvm-link", where=where).stdout.decode()
        except ToolFailure as failure:
            raise InputError(f"the bitcode libraries cannot be linked: {failure.line}", where=where) from failure
