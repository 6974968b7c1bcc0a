"""One translated ``gpu.module`` through the spine: names settled, libraries linked, optimised, allocated and proved.

The order of steps is that of MLIR's own serialisation (mlir/lib/Target/LLVM/ModuleToObject.cpp): control constants and
libraries, then the optimiser at the target's level, then the code generator at the same level.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.hooks.device_math import (
    LIBRARIES,
    VARIABLE,
    external_calls,
    find_device_libraries,
    link_bitcode,
    rename_math,
    unselected_intrinsics,
)
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import TRIPLE
from verilocc_mlir.toolchain.find import INSTALL_HINT, LlvmTools
from verilocc_mlir.toolchain.ir_compat import Downgraded, downgrade
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, ToolFailure, run_tool

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
