"""Shared by the tests: where the kernels are, and their MIR as the real llc makes it, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions, LlvmJob, Point
from verilocc_mlir.toolchain.run import RunningTools
from verilocc_mlir.toolchain.staged import driver_of

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO_KERNELS = REPOSITORY / "examples" / "kernels"
TEST_DATA = REPOSITORY / "tests" / "data"
LLVM_DIRECTORIES = ("/usr/lib/llvm-22/bin", "/opt/rocm/llvm/bin")
CACHE = REPOSITORY / ".pytest_cache" / "mir"


def kernel_directory() -> Path:
    """Directory of the shared kernels: ``$VERILOCC_KERNELS``, else beside the repository, else examples/kernels."""
    for candidate in (
        os.environ.get("VERILOCC_KERNELS", ""),
        str(REPOSITORY.parent / "shared" / "kernels"),
    ):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return DEMO_KERNELS


def kernel_paths() -> list[Path]:
    """Every ``.ll`` kernel at hand, sorted by name."""
    return sorted(kernel_directory().glob("*.ll"))


_QUICK = {
    "attn_d64.gfx950", "gemm_mma_lds.gfx1201.opt", "gemm_mma_lds.gfx942.opt", "gemm_naive.gfx1100.opt",
    "gemm_naive.gfx90a", "torch_linear_f16.k0.gfx1100",
}  # fmt: skip


def quick_kernels() -> list[Path]:
    """One kernel for each target, between them every kind; all that ``make test`` takes where each costs a second."""
    return [path for path in kernel_paths() if path.stem in _QUICK]


def each_kernel(wanted: Callable[[str], bool] = lambda _: True) -> list[ParameterSet]:
    """A parameter for each kernel whose name is wanted; only ``make test-all`` takes those that are not quick."""
    quick = quick_kernels()
    paths = [path for path in kernel_paths() if wanted(path.name)]
    return [pytest.param(path, id=path.stem, marks=() if path in quick else pytest.mark.long) for path in paths]


def long(*values: Any) -> list[ParameterSet]:
    """Parameters of a test that only ``make test-all`` takes."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def few(chosen: Collection[Any], values: Iterable[Any]) -> list[ParameterSet]:
    """Parameters of which ``make test`` takes the chosen ones alone; a tuple is for several names."""
    every = list(values)
    assert all(value in every for value in chosen), "what is chosen is not there"
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=() if value in chosen else pytest.mark.long
        )
        for value in every
    ]


def late(module: str) -> Any:
    """A module that is loaded when a test first uses it: every process of xdist collects all tests."""

    class Late:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # pytest looks at everything in a test module
                raise AttributeError(name)
            return getattr(import_module(module), name)

    return Late()


def cpu_of(path: Path) -> str:
    """Target of a kernel, from its file name: ``gemm_naive.gfx942.opt.ll`` is for gfx942."""
    match = re.search(r"gfx[0-9a-f]+", path.name)
    assert match, f"{path.name} names no target"
    return match[0]


@lru_cache(maxsize=1)
def llc_at_hand() -> str:
    """As ``llc``; ``""`` where there is none."""
    for directory in (os.environ.get("VERILOCC_LLVM", ""), *LLVM_DIRECTORIES):
        if directory and (Path(directory) / "llc").exists():
            return str(Path(directory) / "llc")
    return shutil.which("llc-22") or ""


def llc() -> str:
    """Path of an llc that fits, for making test input; the tests of the finder itself do not use it."""
    if not llc_at_hand():
        pytest.skip("no llc 22 at hand: 'make llvm' installs it", allow_module_level=True)
    return llc_at_hand()


def run_llc(text: str, cpu: str, *arguments: str, mir: bool = True) -> str:
    """Standard output of llc on ``text``; results are cached on disk by content and arguments.

    Without an llc, Triton's LLVM makes it.
    """
    if not llc_at_hand():
        return _of_tritons_llvm(text, cpu, arguments, mir=mir)
    command = [
        llc(),
        "-mtriple=amdgcn-amd-amdhsa",
        f"-mcpu={cpu}",
        "-O3",
        *(["-x", "mir"] if mir else []),
        *arguments,
    ]
    key = hashlib.sha256("\0".join([*command, text]).encode()).hexdigest()
    cached = CACHE / f"{key}.txt"
    if cached.exists():
        return cached.read_text()
    done = subprocess.run(
        [*command, "-o", "-", "-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"llc failed on test input: {done.stderr[:2000]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = cached.with_suffix(f".{os.getpid()}")
    partial.write_text(done.stdout)
    partial.replace(cached)
    return done.stdout


def _of_tritons_llvm(text: str, cpu: str, arguments: Sequence[str], *, mir: bool) -> str:
    points: dict[str, Point] = {}
    extra: list[str] = []
    for argument in arguments:
        match = re.fullmatch(r"-(start|stop)-(before|after)=(.+)", argument)
        if match:
            points[match[1]] = Point("before" if match[2] == "before" else "after", match[3])
        else:
            extra.append(argument)
    options = CompileOptions(cpu, llc_options=tuple(extra), input_name="test input")
    job = LlvmJob("test input", text.encode(), mir, options, points.get("start"), points.get("stop"), kind="asm")
    driver = driver_of(choose_tools(ToolchainChoice.TRITON))
    try:
        return driver.run(job, RunningTools()).stdout.decode()
    except (UnsupportedError, InputError, ToolchainError) as error:
        # A called function, an option of llc's own, text of LLVM 22 with a field that LLVM 24 does not know.
        pytest.skip(f"no llc 22 at hand, and {error.what}: 'make llvm' installs it", allow_module_level=True)


def run_opt(text: str, cpu: str, *arguments: str) -> str:
    """IR after the opt beside that llc."""
    opt = Path(llc()).with_name(Path(llc()).name.replace("llc", "opt"))
    command = [str(opt), "-S", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"opt failed on test input: {done.stderr[:2000]}"
    return done.stdout


HEARING = ("env", "--default-signal=INT")
"""Before a command: a shell that starts a job in the background leaves it deaf to SIGINT, its children too. Not
``preexec_fn``, which forks: the handlers that gRPC has for a fork then run in the child of a process that served.
"""


def readable(mir: str) -> str:
    """Spell implicit ``$vcc_lo`` as llc reads it back on wave32 targets."""
    return re.sub(r"\b(implicit(?:-def)?(?: [a-z-]+)*) \$vcc_lo\b", r"\1 $vcc", mir)


def pre_ra(path: Path) -> str:
    """Pre-RA MIR of a kernel, as llc prints it."""
    return run_llc(path.read_text(), cpu_of(path), "-stop-before=greedy,0", mir=False)


def allocated_by_llvm(mir: str, cpu: str, first: int, last: int, *arguments: str) -> str:
    """LLVM's own allocation of phases ``first`` to ``last`` (0 SGPR, 1 WWM, 2 VGPR) of MIR stopped before
    ``greedy,first``.
    """
    stages = (f"-start-before=greedy,{first}", f"-stop-after=virtregrewriter,{last}")
    return run_llc(readable(mir), cpu, *stages, *arguments)
