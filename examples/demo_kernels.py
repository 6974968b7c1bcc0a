"""``make demo`` where Torch and IREE have no wheels: GEMM and attention for five GPUs, each register assignment proved.

For each kernel of examples/kernels this runs ``verilocc compile`` in a process of its own, as a user would, and then
checks the file that was written: it has the target's ELF machine flags, LLVM's disassembler decodes all of it, and its
metadata name the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.find import find_toolchain

KERNELS = Path(__file__).resolve().parent / "kernels"
_MACH = 0xFF
"""EF_AMDGPU_MACH: the bits of the ELF header's flags that name the GPU (llvm/BinaryFormat/ELF.h)."""


@dataclass(frozen=True)
class Result:
    """One kernel: the report of its compilation, and what is wrong with the code object (``""``: nothing)."""

    source: Path
    cpu: str
    exit_code: int
    report: dict[str, Any]
    fault: str


def compile_and_check(source: Path, out: Path) -> Result:
    """Compile one kernel into ``out`` and look at the result."""
    match = re.search(r"gfx[0-9a-f]+", source.name)
    cpu = match[0] if match else ""
    hsaco, report = out / f"{source.stem}.hsaco", out / f"{source.stem}.json"
    for path in (hsaco, report):
        path.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "verilocc_mlir.cli.main", "compile", str(source),
        f"-mcpu={cpu}", "-o", str(hsaco), f"--report={report}", "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    data: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    if done.returncode != 0:
        fault = done.stderr.strip() or f"verilocc ended with exit code {done.returncode}"
    else:
        fault = faults(hsaco, cpu)
    return Result(source, cpu, done.returncode, data, fault)


def faults(hsaco: Path, cpu: str) -> str:
    """What is wrong with a code object, ``""`` if nothing is."""
    found = read_code_object(hsaco.read_bytes())
    if found.e_flags & _MACH != PROCESSORS[cpu].elf_mach:
        return f"ELF machine flags {found.e_flags:#x} are not {cpu}'s"
    if not found.kernels:
        return "the metadata name no kernel"
    objdump = find_toolchain().objdump
    if objdump is None:
        return "llvm-objdump was not found; run 'verilocc doctor'"
    shown = subprocess.run(
        [str(objdump), "--disassemble", f"--mcpu={cpu}", str(hsaco)], capture_output=True, text=True, check=False
    )
    if shown.returncode != 0:
        return f"llvm-objdump: {shown.stderr.strip()}"
    if "<unknown>" in shown.stdout or "s_endpgm" not in shown.stdout:
        return "llvm-objdump could not decode all instructions"
    return ""


def table(results: list[Result]) -> Table:
    """One line a kernel."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in (
        "kernel",
        "target",
        "instructions",
        "verdict",
        "obligations",
        "allocated by",
        "registers (LLVM's greedy)",
    ):
        made.add_column(name)
    for name in ("waves", "CPU-s", "code object"):
        made.add_column(name, justify="right")
    for result in results:
        made.add_row(*_row(result))
    return made


def _row(result: Result) -> tuple[str, ...]:
    kernel = result.source.name.split(".")[0]
    report = result.report
    checked = "ok" if not result.fault else "see below"
    if not report:
        return (kernel, result.cpu, "", "error", "", "", "", "", "", checked)
    functions = report["functions"]
    phases = [p for f in functions for p in f["phases"]]
    allocated = ", ".join(
        f"{p['phase'].upper()} {p['allocator']}{' (fallback)' if p['fallback'] else ''}" for p in phases
    )
    if len({p["allocator"] for p in phases}) == 1:
        allocated = phases[0]["allocator"] + (" (fallback)" if phases[0]["fallback"] else "")
    ours, greedy = functions[0]["resources"], functions[0]["greedy"]
    registers = waves = "-"
    if ours and greedy:
        registers = f"{ours['vgprs']} V ({greedy['vgprs']}), {ours['sgprs']} S ({greedy['sgprs']})"
        waves = f"{ours['waves']} ({greedy['waves']})"
    return (
        kernel,
        result.cpu,
        str(sum(f["instructions"] for f in functions)),
        report["outcome"],
        str(sum(p["obligations"] for p in phases)),
        allocated,
        registers,
        waves,
        f"{report['time']['cpu_seconds']:.1f}",
        checked,
    )


def main(out: Path) -> int:
    """Exit code 0 if all kernels were proved, written to ``out`` and found well."""
    out.mkdir(parents=True, exist_ok=True)
    order = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
    sources = sorted(
        KERNELS.glob("*.ll"), key=lambda p: (p.name.split(".")[0] != "gemm_mma_lds", order.index(p.name.split(".")[1]))
    )
    start = time.monotonic()
    workers = max(1, (os.cpu_count() or 1))
    print(f"demo: compiling {len(sources)} kernels into {out}/, {workers} at a time", file=sys.stderr)
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(lambda source: compile_and_check(source, out), sources))
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    console.print(table(results))
    failed = [r for r in results if r.fault]
    for result in failed:
        print(f"{result.source.name}: {result.fault}", file=sys.stderr)
    good = len(results) - len(failed)
    print(
        f"{good} of {len(results)} kernels proved, written to {out}/, and accepted by llvm-objdump"
        f" ({time.monotonic() - start:.1f} s)"
    )
    return min(max((r.exit_code for r in failed), default=0) or 1, 3) if failed else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Compile, prove and check the kernels beside this file.")
    arguments.add_argument("--out", type=Path, default=Path("out"))
    sys.exit(main(arguments.parse_args().out))
