"""``opt`` on IR that no optimiser has seen, for example MLIR's translation.

llc does not make it unnecessary. Only the inter-procedural passes of ``opt -O3`` infer the attribute
``"amdgpu-agpr-alloc"="0"`` on kernels that need no AGPRs. Without it LLVM 22 copies every accumulator of a matrix loop
between VGPRs and AGPRs in every iteration.
"""

from __future__ import annotations

from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.toolchain.drivers.job import TRIPLE
from verilocc_mlir.toolchain.find import INSTALL_HINT, LlvmTools
from verilocc_mlir.toolchain.ir_compat import Downgraded, downgrade
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT, ToolFailure, run_tool


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
