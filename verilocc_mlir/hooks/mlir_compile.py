"""One translated ``gpu.module`` through the spine: names settled, libraries linked, optimised, allocated and proved.

The order of steps is that of MLIR's own serialisation (mlir/lib/Target/LLVM/ModuleToObject.cpp): control constants and
libraries, then the optimiser at the target's level, then the code generator at the same level.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import TRIPLE
from verilocc_mlir.toolchain.find import INSTALL_HINT, LlvmTools
from verilocc_mlir.toolchain.ir_compat import Downgraded, downgrade
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, ToolFailure, run_tool

# Calls into ROCm's device libraries, and LLVM's intrinsics: which name can stand for which.
#
# MLIR lowers math operations to ``llvm.*`` intrinsics or to ``__ocml_*`` functions, more or less by history. The AMDGPU
# back end selects some intrinsics itself, with full range and about the library's accuracy; others it has no code for
# ("no libcall available"). So:
#
# * an ``__ocml_*`` call with an intrinsic that is selected with the library's accuracy becomes that intrinsic;
# * an intrinsic that is not selected becomes the ``__ocml_*`` call, to be linked.
#
# ``__ocml_sin``/``cos`` are *not* renamed: the back end's ``llvm.sin`` reduces the argument in one multiplication and
# is inaccurate for large ones. What LLVM 22 selects was tried for each name and type (tests/hooks/test_mlir_math.py).


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


ABI_FLAG = "amdhsa_code_object_version"
_FLAG_VALUE = re.compile(rf'!"{ABI_FLAG}", i32 (\d+)')

OptMode = Literal["auto", "never", "always"]


@dataclass(frozen=True)
class IrOptions:
    """How translated IR is prepared.

    Attributes:
        opt: run LLVM's optimiser: ``auto`` where it is found beside llc, ``always`` or an error, ``never``.
        device_libs: directory of ``ocml.bc``; None searches (ROCm, the triton and iree wheels).
    """

    opt: OptMode = "auto"
    device_libs: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """IR for the spine, and what was done to it, a phrase each."""

    ir: str
    notes: tuple[str, ...]


def compile_ir(
    ir: str, target: RocdlTarget, *, where: str, settings: Settings | None = None, options: IrOptions | None = None
) -> Compiled:
    """Compile what MLIR translated, as the target attribute asks.

    Args:
        where: the module's name in messages.
        settings: everything but processor, features, level and form of the result, which the target decides.

    Raises:
        UnsupportedError: the target asks for what cannot be honoured; an external call remains.
        InputError, ToolchainError: as ``compile_module``.
    """
    target.check()
    chosen = replace(
        settings or Settings(),
        cpu=target.chip,
        features=target.features,
        triple="",
        opt_level=target.opt_level,
        emit=Emit.HSACO,
    )
    prepared = prepare(
        ir, target, choose_tools(chosen.toolchain, chosen.llvm), options or IrOptions(), chosen.tool_seconds, where
    )
    compiled = compile_module(prepared.ir.encode(), where, chosen)
    return Compiled(compiled.data, replace(compiled.report, notes=(*prepared.notes, *compiled.report.notes)))


def prepare(
    ir: str, target: RocdlTarget, toolchain: LlvmTools, options: IrOptions, timeout: float, where: str
) -> Prepared:
    """Everything before the spine.

    Raises:
        UnsupportedError: an external call remains; names which library would have it.
    """
    notes: list[str] = []
    text = with_abi(ir, target.abi)
    directory = options.device_libs or find_device_libraries()
    renamed = rename_math(text, library=directory is not None)
    if renamed.changes:
        notes.append(f"math functions renamed: {', '.join(renamed.changes)}")
    text = renamed.text
    libraries = [Path(name) for name in target.link]
    if directory is not None:
        library_files = [
            file for prefix, file in LIBRARIES.items() if any(n.startswith(prefix) for n in external_calls(text))
        ]
        libraries += [directory / file for file in library_files]
    if libraries:
        lowered = downgrade(text, where=where).text
        text = link_bitcode(toolchain, lowered, libraries, target.control_constants(), timeout=timeout, where=where)
        notes.append(f"linked: {', '.join(str(library) for library in libraries)}")
    _refuse_external(text, where, directory)
    if options.opt == "never":
        return Prepared(text, (*notes, "not optimised: opt is switched off"))
    if options.opt == "auto" and toolchain.opt is None:
        return Prepared(text, (*notes, f"not optimised: opt was not found {toolchain.place}"))
    optimised = optimise(
        toolchain,
        text,
        cpu=target.chip,
        features=target.features,
        level=target.opt_level,
        timeout=timeout,
        where=where,
    )
    notes.append(f"optimised: opt -O{target.opt_level}")
    if optimised.changes:
        notes.append(f"IR of a newer LLVM; rewritten for this one: {', '.join(optimised.changes)}")
    return Prepared(optimised.text, tuple(notes))


def with_abi(ir: str, abi: str) -> str:
    """``ir`` with the code-object version that the target asks for, as a module flag.

    Raises:
        UnsupportedError: the module has the flag already, with another value.
    """
    flag = _FLAG_VALUE.search(ir)
    if flag is None:
        unused = 1 + max((int(number) for number in re.findall(r"^!(\d+) =", ir, re.MULTILINE)), default=0)
        # LLVM appends a second definition of named metadata to the first.
        return f'{ir}\n!llvm.module.flags = !{{!{unused}}}\n!{unused} = !{{i32 1, !"{ABI_FLAG}", i32 {abi}}}\n'
    if flag[1] != abi:
        raise UnsupportedError(f"the module is for code-object version {flag[1]}, the target's abi is {abi}")
    return ir


def _refuse_external(ir: str, where: str, directory: Path | None) -> None:
    names = (*external_calls(ir), *unselected_intrinsics(ir))
    if not names:
        return
    hint = 'name the bitcode that defines it in #rocdl.target<link = ["…"]>'
    if directory is None and any(name.startswith((*LIBRARIES, "llvm.")) for name in names):
        hint = f"the device libraries were not found: set {VARIABLE} or ROCM_PATH, or install the triton or iree extra"
    raise UnsupportedError(f"no code for the external function {', '.join(names)}", where=where, hint=hint)


# ``opt`` on IR that no optimiser has seen, for example MLIR's translation.
#
# llc does not make it unnecessary. Only the inter-procedural passes of ``opt -O3`` infer the attribute
# ``"amdgpu-agpr-alloc"="0"`` on kernels that need no AGPRs. Without it LLVM 22 copies every accumulator of a matrix
# loop between VGPRs and AGPRs in every iteration.


def optimise(
    toolchain: LlvmTools,
    ir: str,
    *,
    cpu: str,
    features: str = "",
    level: int = 3,
    timeout: float = DEFAULT_TIMEOUT,
    where: str = "",
) -> Downgraded:
    """``opt -O<level>`` for ``cpu``; if opt rejects the IR, once more with the IR rewritten for this LLVM.

    Returns:
        the optimised text, and what had to be rewritten.

    Raises:
        ToolchainError: opt is missing, crashes or times out.
        InputError: opt rejects the IR.
        UnsupportedError: the IR is of a newer LLVM, and opt rejects it even after the rewrite.
    """
    if toolchain.opt is None:
        raise ToolchainError(f"opt was not found {toolchain.place}", where=where, hint=INSTALL_HINT)
    command: list[str | Path] = [toolchain.opt, f"-mtriple={TRIPLE}", f"-mcpu={cpu}"]
    if features:
        command.append(f"-mattr={features}")
    command += [f"-O{level}", "-S", "-o", "-", "-"]

    def run(text: str) -> str:
        return run_tool(command, stdin=text.encode(), timeout=timeout, stage="opt", where=where).stdout.decode()

    try:
        return Downgraded(run(ir), ())
    except ToolFailure as failure:
        if failure.status < 0:
            raise
        lowered = downgrade(ir, where=where)
        if not lowered.changes:
            raise InputError(f"opt rejects it: {failure.line}", where=failure.where, hint=failure.hint) from failure
        try:
            return Downgraded(run(lowered.text), lowered.changes)
        except ToolFailure as second:
            rewritten = ", ".join(lowered.changes)
            raise UnsupportedError(
                f"the IR is of a newer LLVM ({failure.line}); with {rewritten} rewritten, {second.line}",
                where=where,
                hint="use the LLVM that wrote it (VERILOCC_LLVM=DIR, for example ROCm's llvm/bin)",
            ) from second
