"""Torch programs of real size through IREE: what ``replace=better`` takes, and by what each kernel is decided.

    python benchmarks/real_size.py [--only attention,convolution] [--targets gfx942] [--out FILE.json]

Seven programs in f16, five targets. A row is one program for one target: each kernel's status, both sides by the model,
what decided, and why the two did not compare where they did not. What is in the file already is not compiled again,
unless it failed. Times are not measured here.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from common import Row, command, earlier, options, tree, write

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.iree_result import IreeKernel
from verilocc_mlir.hooks.torch import compile

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
HEADS, LENGTH, WIDTH, FEATURES = 16, 2048, 128, 4096


def programs() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    """A module or function and its inputs, by name."""
    torch = importlib.import_module("torch")
    functional = importlib.import_module("torch.nn.functional")
    attend: Callable[..., Any] = functional.scaled_dot_product_attention
    half = torch.float16

    def zeros(*shape: int) -> Any:
        return torch.zeros(*shape, dtype=half)

    def attention(**flags: Any) -> tuple[Any, tuple[Any, ...]]:
        def program(q: Any, k: Any, v: Any) -> Any:
            return attend(q, k, v, **flags)

        return program, tuple(zeros(1, HEADS, LENGTH, WIDTH) for _ in range(3))

    def grouped() -> tuple[Any, tuple[Any, ...]]:
        def program(q: Any, k: Any, v: Any) -> Any:
            return attend(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))

        return program, (zeros(1, 32, 1024, WIDTH), zeros(1, 8, 1024, WIDTH), zeros(1, 8, 1024, WIDTH))

    def linear(rows: int, width: int, out: int) -> tuple[Any, tuple[Any, ...]]:
        return torch.nn.Linear(width, out, dtype=half).eval(), (zeros(rows, width),)

    def norm() -> tuple[Any, tuple[Any, ...]]:
        layers = torch.nn.LayerNorm(FEATURES, dtype=half), torch.nn.Linear(FEATURES, FEATURES, dtype=half)
        return torch.nn.Sequential(*layers).eval(), (zeros(512, FEATURES),)

    def convolution() -> tuple[Any, tuple[Any, ...]]:
        return torch.nn.Conv2d(128, 128, 3, padding=1, dtype=half).eval(), (zeros(8, 128, 56, 56),)

    return {
        "attention": attention,
        "attention causal": lambda: attention(is_causal=True),
        "linear 4096": lambda: linear(FEATURES, FEATURES, FEATURES),
        "linear odd": lambda: linear(513, 1000, 777),
        "norm linear": norm,
        "convolution": convolution,
        "grouped attention": grouped,
    }


def kernel_row(kernel: IreeKernel) -> list[Row]:
    """A line for each function of an executable."""
    made = kernel.comparison
    lines: list[Row] = []
    for name, theirs in made.theirs.items():
        ours, decision = made.ours.get(name), made.decisions.get(name)
        line: Row = {"kernel": name.rpartition("$")[2], "status": kernel.status, "reason": kernel.reason or None}
        if ours is not None and decision is not None:
            line |= {
                "cycles_over_theirs": round(ours.cycles / theirs.cycles, 4) if theirs.cycles else None,
                "waves": [ours.waves, theirs.waves],
                "spills": [round(ours.spills, 1), round(theirs.spills, 1)],
                "by": decision.by,
                "worse": decision.worse or None,
                "problem": decision.problem or None,
            }
        lines.append(line)
    return lines


def summary(rows: Iterable[Row]) -> Row:
    """How many kernels there are, what was decided by what, and how many did not compare."""
    kernels = [kernel for row in rows for kernel in row.get("kernels", ())]
    matrix = [k for k in kernels if any(word in k["kernel"] for word in ("attention", "matmul", "conv_"))]
    return {
        name: {
            "kernels": len(of),
            "taken": sum(k["status"] == "proved" for k in of),
            "declined": sum(k["status"] == "declined" for k in of),
            "not comparable": sum(bool(k.get("problem")) for k in of),
            "by": dict(Counter(k["by"] for k in of if "by" in k)),
        }
        for name, of in (("all", kernels), ("matrix", matrix))
    }


def main() -> None:
    """Compile what is not in the file yet, and write it after each program."""
    parser = options(__doc__, "real_size.json")
    parser.add_argument("--only", default="")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    known = programs()
    wanted = [name for name in known if name in given.only.split(",") or not given.only]
    rows: list[Row] = [row for row in earlier(given.out).get("rows", []) if "error" not in row]
    done = {(row["program"], row["target"]) for row in rows}
    for target in given.targets.split(","):
        for name in wanted:
            if (name, target) in done:
                continue
            row: Row = {"program": name, "target": target, "tree": tree()}
            try:
                module, inputs = known[name]()
                result = compile(module, inputs, target=target, jobs=given.jobs, cache=False).result
                row["kernels"] = [line for kernel in result.kernels for line in kernel_row(kernel)]
            except VeriloccError as error:
                row["error"] = str(error)[:300]
            rows.append(row)
            print(name, target, row.get("error") or len(row["kernels"]), file=sys.stderr, flush=True)
            write(given.out, {"command": command(), "summary": summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
