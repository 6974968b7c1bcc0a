"""Whether the LLVM of the installed Triton can do the staged run: it does one.

Triton does not promise that its interface to LLVM is stable, so a version number does not tell. The result is kept in
the user's cache as long as the library is the same.
"""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from pathlib import Path

from verilocc_mlir.errors import ToolchainError, VeriloccError
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.drivers.triton import TritonTools, output_of
from verilocc_mlir.toolchain.find import MINIMUM_VERSION, kept
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

_PROBE = "triton driver, probe 1: "
"""Part of the name under which the result is kept. Change it when the probe changes."""

_CPU = next(iter(PROCESSORS))
_INSTALL = "pip install 'triton>=3.9'"
_KERNEL = """
define amdgpu_kernel void @probe(ptr addrspace(1) %p, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr addrspace(1) %p, i32 %i
  %far = getelementptr float, ptr addrspace(1) %at, i32 512
  %v = load float, ptr addrspace(1) %at
  %s = fmul float %v, 3.0
  %w = load float, ptr addrspace(1) %far
  %r = fadd float %s, %w
  store float %r, ptr addrspace(1) %at
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def find_triton() -> TritonTools:
    """The LLVM of the Triton that is installed here.

    Raises:
        ToolchainError: there is no Triton, or its LLVM cannot be used; says why.
    """
    library = _library()
    try:
        library.stat()
    except OSError as error:
        raise ToolchainError(f"{library} cannot be read: {error.strerror}", hint=_INSTALL) from error
    answer = kept(library, _PROBE, _probe)
    if answer.startswith("!"):
        raise ToolchainError(
            f"the LLVM of Triton {_triton_version()} cannot be driven: {answer[1:]}",
            hint="Triton 3.9 is known to work; or use an llc",
        )
    return _tools(library, answer)


def _library() -> Path:
    spec = importlib.util.find_spec("triton")  # which does not load it
    for place in spec.submodule_search_locations or () if spec else ():
        for library in sorted(Path(place, "_C").glob("libtriton*.so")):
            return library
    raise ToolchainError("Triton is not installed in this Python", hint=_INSTALL)


def _triton_version() -> str:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return "(of no known version)"


def _probe(library: Path) -> str:
    """The version of its LLVM, or ``"!"`` and what it cannot do."""
    try:
        match = re.search(r"LLVM version (\d+\.\d+\.\d+\S*)", output_of(str(library), ["-version"]))
        if not match:
            return "!it does not say which LLVM it has"
        tools = _tools(library, match[1])
        if tools.version < MINIMUM_VERSION:
            return f"!LLVM {match[1]} is too old, {MINIMUM_VERSION[0]} or newer is needed"
        return _staged_run(tools) or match[1]
    except VeriloccError as error:
        return f"!{error.what}"


def _staged_run(tools: TritonTools) -> str:
    """What goes wrong in the staged run of a kernel; ``""`` where nothing does."""
    compiler = StagedCompiler(tools, CompileOptions(_CPU, tool_seconds=60.0))
    scalar = compiler.llvm_allocate(compiler.to_pre_ra(_KERNEL), LlvmPhase.SGPR)
    vector = compiler.resume(scalar, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR)
    done = compiler.llvm_allocate(vector, LlvmPhase.VGPR)
    compiler.link(compiler.finish(done))
    resumed = compiler.finish(compiler.direct_after(_KERNEL, LlvmPhase.VGPR), "asm")
    if _instructions(resumed) != _instructions(compiler.direct(_KERNEL, "asm")):
        return "!finished from text, a kernel is not that of a compile in one go"
    return ""


def _instructions(assembly: bytes) -> list[str]:
    return re.findall(r"^\t[a-z]\w+.*?(?=;|$)", assembly.decode(), re.MULTILINE)


def _tools(library: Path, version: str) -> TritonTools:
    major, minor, patch = (int(number) for number in re.findall(r"\d+", version)[:3])
    text = f"LLVM version {version} of Triton {_triton_version()}"
    return TritonTools(version=(major, minor, patch), version_text=text, source="Triton's package", library=library)
