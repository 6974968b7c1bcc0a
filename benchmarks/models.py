"""Known models through Torch, IREE and the spine: kernels, proofs, and the processor time beside plain iree-compile.

    python benchmarks/models.py [--only llama,t5] [--targets gfx942] [--dtypes f16] [--shapes static,dynamic]
                                [--layers 1,2] [--stop import|iree|compile] [--out FILE.json]
    python benchmarks/models.py --table [--out FILE.json]

The models are those of examples/models.py. One entry a model, precision, shapes, depth and target; the file is written
after each, and what it has is not measured again, unless it failed or went less far than asked for now. ``--stop``:
``import`` ends with MLIR, ``iree`` adds plain ``iree-compile``, ``compile`` (the default) our own, the first time
and again with what was kept. Processor time is that of this process and of all it started. What IREE rejects is kept,
and the command that shows it is printed. ``--table`` prints what the file has as Markdown.
"""

from __future__ import annotations

import importlib
import itertools
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common import adopt_orphans, cpu_seconds, earlier, options, reap, write

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.iree_compiler import find_iree_compile
from verilocc_mlir.hooks.iree_result import IreeResult
from verilocc_mlir.hooks.torch import iree_command
from verilocc_mlir.hooks.torch_import import IREE_FLAGS, import_module

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
STOPS = ("import", "iree", "compile")
IREE_SECONDS = 600.0
_LAST_BREATH = 0.2
"""Seconds for processes that were told to end."""
"""Linux, prctl(2)."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Case:
    """One compilation."""

    model: str
    dtype: str
    shapes: str
    layers: int
    target: str

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.model} {self.dtype} {self.shapes} {self.layers} {self.target}"


def cpu_seconds_of(work: Callable[[], Value]) -> tuple[Value, float]:
    """What ``work`` returns, and the processor time that it and its processes took.

    Those that outlive who started them (a worker's solver) are waited for: they come to this process (``main``).
    """

    reap(wait=False)
    before = cpu_seconds()
    value = work()
    time.sleep(_LAST_BREATH)
    reap(wait=False)
    return value, round(cpu_seconds() - before, 2)


def factories() -> dict[str, Any]:
    """The models of examples/models.py by name."""
    examples = str(Path(__file__).resolve().parent.parent / "examples")
    sys.path.insert(0, examples)
    # By path: this module has the same name.
    return runpy.run_path(f"{examples}/models.py", run_name="known_models")["MODELS"]


def run(case: Case, factory: Any, stop: str, kept: Path, jobs: int) -> dict[str, Any]:
    """The case's entry; ``error`` says where it ended, if it did, and whose error it is."""
    torch = importlib.import_module("torch")
    made = factory(getattr(torch, DTYPES[case.dtype]), case.shapes == "dynamic", case.layers)
    shapes = made[2] if len(made) > 2 else None
    entry: dict[str, Any] = {"reached": "import"}
    try:
        imported, entry["cpu_import"] = cpu_seconds_of(lambda: import_module(made[0], made[1], dynamic_shapes=shapes))
        if stop == "import":
            return entry
        entry["reached"] = "iree"
        source = kept / f"{case.key.replace(' ', '-')}.mlirbc"
        source.write_bytes(imported.mlir)
        error, entry["cpu_iree"] = cpu_seconds_of(lambda: plain_iree(source, case.target))
        if error:
            return {**entry, "error": f"IREE: {error}"}
        source.unlink()
        if stop == "iree":
            return entry
        entry["reached"] = "compile"
        flags, name = IREE_FLAGS, case.model
        with tempfile.TemporaryDirectory(prefix="verilocc-kept-") as store:

            def compiled() -> IreeResult:
                return compile_mlir(
                    imported.mlir, target=case.target, flags=flags, jobs=jobs, name=name, cache=Path(store)
                )

            result, entry["cpu_ours"] = cpu_seconds_of(compiled)
            _, entry["cpu_again"] = cpu_seconds_of(compiled)
    except VeriloccError as error:
        return {**entry, "error": error.what}
    return {**entry, **summary(result)}


def plain_iree(source: Path, target: str) -> str:
    """Compile by IREE alone; returns its error, and prints the command that shows it, or returns ``""``."""
    command = iree_command(find_iree_compile(), source, target)
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=IREE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done after {IREE_SECONDS:g} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    print(f"IREE rejects it: {command}", file=sys.stderr)
    return lines[0].partition("error: ")[2].partition(": %")[0] if lines else "no message"


def summary(result: IreeResult) -> dict[str, Any]:
    """Counts, each kernel that is not ours in every phase, with the reason, and both sides' sums of cycles."""
    return {
        "counts": result.counts(),
        "fallbacks": [reason for kernel in result.kernels for reason in kernel.fallbacks],
        "left": {k.executable: k.reason for k in result.kernels if k.status == "left"},
        "declined": {k.executable: k.reason for k in result.kernels if k.declined},
        "cycles": {
            side: round(sum(s.cycles for k in result.kernels for s in getattr(k.comparison, side).values()))
            for side in ("ours", "theirs")
        },
    }


def missing(entry: dict[str, Any] | None, stop: str) -> bool:
    """Whether the case is to be measured: it failed, or ended before what is asked for now."""
    return entry is None or "error" in entry or STOPS.index(entry["reached"]) < STOPS.index(stop)


def table(entries: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The entries as Markdown: a row a model, a column a target."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for key, entry in entries.items():
        name, _, target = key.rpartition(" ")
        rows.setdefault(name, {})[target] = entry
    yield f"| model | kernels | {' | '.join(TARGETS)} | CPU over IREE's | the second time | cycles over IREE's |"
    yield f"|---|---|{'---|' * len(TARGETS)}---|---|---|"
    for name, row in rows.items():
        kernels = {str(entry["counts"]["kernels"]) for entry in row.values() if "counts" in entry}
        cells = [_cell(row.get(target)) for target in TARGETS]
        done = [entry for entry in row.values() if "cycles" in entry]
        cpu = sum(e["cpu_ours"] for e in done) / sum(e["cpu_iree"] for e in done) if done else 0
        twice = [entry for entry in done if "cpu_again" in entry]
        again = f"{sum(e['cpu_again'] for e in twice) / sum(e['cpu_iree'] for e in twice):.2f}" if twice else ""
        # A kernel that is not proved has no cycles of ours.
        whole = [entry for entry in done if not entry["counts"]["left"]]
        theirs = sum(e["cycles"]["theirs"] for e in whole)
        cycles = f"{sum(e['cycles']['ours'] for e in whole) / theirs:.3f}" if theirs else ""
        ratio = f"{cpu:.1f}" if done else ""
        yield f"| {name} | {', '.join(sorted(kernels))} | {' | '.join(cells)} | {ratio} | {again} | {cycles} |"


def _cell(entry: dict[str, Any] | None) -> str:
    """Ours in the file, and IREE's own although ours is proved; else where it ended."""
    if entry is None:
        return ""
    if "error" in entry:
        return entry["error"][:60]
    if "counts" not in entry:
        return f"{entry['reached']} only"
    counts = entry["counts"]
    left = f", {counts['left']} not proved" if counts["left"] else ""
    return f"{counts['proved']} + {counts['declined']}{left}"


def main() -> int:
    """Exit code 0 if every case reached what was asked for, and no kernel was left to IREE."""
    parser = options(__doc__, "models.json")
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--shapes", default="static,dynamic")
    parser.add_argument("--layers", default="1", help="depths, separated by commas")
    parser.add_argument("--stop", choices=STOPS, default="compile")
    parser.add_argument("--jobs", type=int, default=0, help="kernels at once; 0: one a core")
    parser.add_argument("--table", action="store_true", help="print what the file has, measure nothing")
    given = parser.parse_args()
    entries: dict[str, dict[str, Any]] = earlier(given.out).get("compilations", {})
    if given.table:
        print("\n".join(table(entries)))
        return 0
    adopt_orphans()
    models = factories()
    wanted = [
        Case(model, dtype, shapes, int(layers), target)
        for model, dtype, shapes, layers, target in itertools.product(
            given.only.split(",") if given.only else models,
            *(text.split(",") for text in (given.dtypes, given.shapes, given.layers, given.targets)),
        )
    ]
    kept = Path(tempfile.mkdtemp(prefix="verilocc-models-"))
    for number, case in enumerate(wanted, 1):
        if missing(entries.get(case.key), given.stop):
            entries[case.key] = run(case, models[case.model], given.stop, kept, given.jobs)
            write(given.out, {"command": "python benchmarks/models.py", "compilations": entries})
        entry = entries[case.key]
        outcome = entry.get("error") or entry.get("counts") or entry["reached"]
        print(f"[{number}/{len(wanted)}] {case.key}: {outcome}", file=sys.stderr)
    if not any(kept.iterdir()):
        kept.rmdir()
    reached = [entries[case.key] for case in wanted]
    return 0 if not any(missing(entry, given.stop) or entry.get("left") for entry in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
