"""Every kernel at hand: verdict, who allocated each phase, registers and waves beside LLVM's greedy.

    .venv/bin/python benchmarks/kernel_table.py [--kernels DIR] [--jobs N] [--out benchmarks/results/kernels.json]

Compiles each ``.ll`` of DIR with ``verilocc compile`` in a process of its own and prints a Markdown table with a
summary; the JSON file holds the same rows.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import cores, kernel_directory, options, write

REPOSITORY = Path(__file__).resolve().parent.parent
_NONE = {"vgprs": 0, "agprs": 0, "sgprs": 0, "waves": 0, "vgpr_spills": 0}


def compile_kernel(source: Path) -> dict[str, Any]:
    """The row of one kernel."""
    match = re.search(r"gfx[0-9a-f]+", source.name)
    cpu = match[0] if match else ""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [
            sys.executable, "-m", "verilocc_mlir.cli.main", "compile", str(source), f"-mcpu={cpu}",
            "-o", str(Path(scratch) / "k.hsaco"), f"--report={report}", "--quiet",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        data: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"functions": []}
    functions: list[dict[str, Any]] = data["functions"]
    phases: list[dict[str, Any]] = [p for f in functions for p in f["phases"]]
    return {
        "kernel": source.name,
        "exit_code": done.returncode,
        "error": done.stderr.strip(),
        "instructions": sum(f["instructions"] for f in functions),
        "obligations": sum(p["obligations"] for p in phases),
        "cpu_seconds": data.get("time", {}).get("cpu_seconds", 0.0),
        "phases": [
            {key: p[key] for key in ("phase", "allocator", "outcome", "fallback", "fallback_reason", "moves")}
            for p in phases
        ],
        "ours": functions[0]["resources"] if functions else None,
        "greedy": functions[0]["greedy"] if functions else None,
    }


def line(row: dict[str, Any]) -> str:
    """One row in Markdown."""
    ours, greedy = row["ours"] or _NONE, row["greedy"] or _NONE
    phases = ", ".join(f"{p['phase'].upper()} {p['allocator']}{'*' if p['fallback'] else ''}" for p in row["phases"])
    return (
        f"| {row['kernel'].removesuffix('.ll')} | {row['exit_code']} | {row['instructions']} | {phases} "
        f"| {ours['vgprs']} ({greedy['vgprs']}) | {ours['agprs']} ({greedy['agprs']}) "
        f"| {ours['sgprs']} ({greedy['sgprs']}) | {ours['waves']} ({greedy['waves']}) "
        f"| {ours['vgpr_spills']} ({greedy['vgpr_spills']}) | {row['cpu_seconds']:.1f} |"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Totals, and each reason for a fallback."""
    phases = [p for r in rows for p in r["phases"]]
    own = [p for p in phases if p["allocator"] != "llvm"]
    compared = [r for r in rows if r["ours"] and r["greedy"]]
    no_worse = [r for r in compared if r["ours"]["waves"] >= r["greedy"]["waves"]]
    lines = [
        f"{sum(r['exit_code'] == 0 for r in rows)} of {len(rows)} files with exit code 0; "
        f"{len(own)} of {len(phases)} phases with our allocation, {len(phases) - len(own)} with LLVM's; "
        f"waves no fewer than greedy's on {len(no_worse)} of {len(compared)}",
    ]
    reasons = Counter(f"{p['phase'].upper()}: {p['fallback_reason']}" for p in phases if p["fallback"])
    lines += [f"  {count} x {reason}" for reason, count in reasons.most_common()]
    lines += [f"  {r['kernel']}: {r['error']}" for r in rows if r["error"]]
    return lines


def main() -> int:
    """Exit code 0 if every kernel compiled with exit code 0."""
    parser = options(__doc__, "kernels.json", kernels=kernel_directory(), jobs=cores())
    arguments = parser.parse_args()
    sources = sorted(arguments.kernels.glob("*.ll"))
    if not sources:
        print(f"no .ll files in {arguments.kernels}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(compile_kernel, sources))
    print("ours (LLVM's greedy); * is a fallback to LLVM's allocation, audited like ours\n")
    print("| kernel | exit | instructions | phases | VGPRs | AGPRs | SGPRs | waves | VGPR spills | CPU-s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(line(row))
    print()
    print("\n".join(summary(rows)))
    write(arguments.out, rows)
    return 0 if all(r["exit_code"] == 0 for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
