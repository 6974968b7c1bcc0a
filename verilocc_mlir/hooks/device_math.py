"""Calls into ROCm's device libraries, and LLVM's intrinsics: which name can stand for which.

MLIR lowers math operations to ``llvm.*`` intrinsics or to ``__ocml_*`` functions, more or less by history. The AMDGPU
back end selects some intrinsics itself, with full range and about the library's accuracy; others it has no code for
("no libcall available"). So:

* an ``__ocml_*`` call with an intrinsic that is selected with the library's accuracy becomes that intrinsic;
* an intrinsic that is not selected becomes the ``__ocml_*`` call, to be linked.

``__ocml_sin``/``cos`` are *not* renamed: the back end's ``llvm.sin`` reduces the argument in one multiplication and is
inaccurate for large ones. What LLVM 22 selects was tried for each name and type (tests/hooks/test_mlir_math.py).
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.toolchain.find import LlvmTools
from verilocc_mlir.toolchain.run import ToolFailure, run_tool

_TYPES = {"f16": "half", "f32": "float", "f64": "double"}
_HALF_AND_SINGLE = ("f16", "f32")
_ALL = ("f16", "f32", "f64")

SELECTED: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "exp": ("exp", 1, _HALF_AND_SINGLE),
    "exp2": ("exp2", 1, _HALF_AND_SINGLE),
    "exp10": ("exp10", 1, _HALF_AND_SINGLE),
    "log": ("log", 1, _HALF_AND_SINGLE),
    "log2": ("log2", 1, _HALF_AND_SINGLE),
    "log10": ("log10", 1, _HALF_AND_SINGLE),
    "sqrt": ("sqrt", 1, _ALL),
    "fabs": ("fabs", 1, _ALL),
    "floor": ("floor", 1, _ALL),
    "ceil": ("ceil", 1, _ALL),
    "trunc": ("trunc", 1, _ALL),
    "rint": ("rint", 1, _ALL),
    "nearbyint": ("nearbyint", 1, _ALL),
    "round": ("round", 1, _ALL),
    "copysign": ("copysign", 2, _ALL),
    "fmax": ("maxnum", 2, _ALL),
    "fmin": ("minnum", 2, _ALL),
    "fma": ("fma", 3, _ALL),
}
"""Suffix of ``__ocml_``: (intrinsic, operands, types for which the back end's own code may stand for the library's)."""

UNSELECTED: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos"), (1, ("f64",))),
    **dict.fromkeys(("tan", "tanh", "sinh", "cosh", "asin", "acos", "atan"), (1, _ALL)),
    "atan2": (2, _ALL),
    "pow": (2, ("f64",)),
}
"""Intrinsic: (operands, types for which the back end has no code); the library has a function of the same name."""

_FUNCTION = re.compile(
    r"^(?:declare|define)\b(?P<head>[^@\n]*)@(?P<name>\"[^\"]+\"|[\w.$-]+)\((?P<arguments>[^\n]*?)\)[^()\n]*$",
    re.MULTILINE,
)
_DECLARE = re.compile(r"^declare\b[^@\n]*@(?P<name>\"[^\"]+\"|[\w.$-]+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Renamed:
    """The IR after renaming, and what became what: ``"__ocml_exp_f32 -> llvm.exp.f32"``."""

    text: str
    changes: tuple[str, ...]


def rename_math(ir: str, *, library: bool) -> Renamed:
    """Rename math functions so that each is selected by the back end or found in ``ocml.bc``.

    Args:
        library: whether ``ocml.bc`` will be linked; without it no intrinsic is turned into a call.

    Raises:
        UnsupportedError: a name of the library is declared with another signature than the library's.
    """
    text, changes = ir, list[str]()
    for name in external_functions(ir):
        new, operands, kind = _counterpart(name, library)
        if not new:
            continue
        _check_signature(ir, name, _TYPES[kind], operands)
        # Both may be there already; a module may declare a function once only.
        if re.search(rf"^declare\b[^\n]*@{re.escape(new)}\(", text, re.MULTILINE):
            text = re.sub(rf"^declare\b[^\n]*@{re.escape(name)}\([^\n]*\n", "", text, flags=re.MULTILINE)
        text = re.sub(rf"@{re.escape(name)}(?![\w.$-])", f"@{new}", text)
        changes.append(f"{name} -> {new}")
    return Renamed(text, tuple(changes))


def unselected_intrinsics(ir: str) -> tuple[str, ...]:
    """Math intrinsics of ``ir`` that the back end has no code for; llc stops at them."""
    intrinsics: list[str] = []
    for name in external_functions(ir):
        match = re.fullmatch(r"llvm\.([a-z0-9]+)\.(?:v\d+)?(f16|f32|f64)", name)
        if match and match[1] in UNSELECTED and match[2] in UNSELECTED[match[1]][1]:
            intrinsics.append(name)
    return tuple(intrinsics)


def external_functions(ir: str) -> tuple[str, ...]:
    """Names that are declared, in order; intrinsics included."""
    return tuple(dict.fromkeys(name.strip('"') for name in _DECLARE.findall(ir)))


def external_calls(ir: str) -> tuple[str, ...]:
    """Functions that are declared and no intrinsics: each must be linked, or the module cannot be compiled alone."""
    return tuple(name for name in external_functions(ir) if not name.startswith("llvm."))


def _counterpart(name: str, library: bool) -> tuple[str, int, str]:
    """(new name or ``""``, operands, type)."""
    ocml = re.fullmatch(r"__ocml_(?:native_)?([a-z0-9]+)_(f16|f32|f64)", name)
    if ocml and ocml[1] in SELECTED and "native" not in name:
        intrinsic, operands, kinds = SELECTED[ocml[1]]
        if ocml[2] in kinds:
            return f"llvm.{intrinsic}.{ocml[2]}", operands, ocml[2]
    intrinsic = re.fullmatch(r"llvm\.([a-z0-9]+)\.(f16|f32|f64)", name)
    if library and intrinsic and intrinsic[1] in UNSELECTED:
        operands, kinds = UNSELECTED[intrinsic[1]]
        if intrinsic[2] in kinds:
            return f"__ocml_{intrinsic[1]}_{intrinsic[2]}", operands, intrinsic[2]
    return "", 0, ""


def _check_signature(ir: str, name: str, kind: str, operands: int) -> None:
    for function in _FUNCTION.finditer(ir):
        if function["name"].strip('"') != name:
            continue
        argument_types = [part.split()[0] for part in function["arguments"].split(",") if part.strip()]
        result = function["head"].split()[-1]
        if result != kind or argument_types != [kind] * operands:
            raise UnsupportedError(
                f"{name} is declared as {result} ({', '.join(argument_types)}), "
                f"the device library has {kind} ({', '.join([kind] * operands)})"
            )


# Find and link bitcode libraries: ROCm's ``ocml.bc`` and ``ockl.bc``, and files that a target attribute names.
#
# ROCm installs the libraries in ``amdgcn/bitcode``; the triton and iree-base-compiler wheels carry copies.


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
