"""Torch models through IREE and the spine: which of their kernels are proved, and by whose allocation.

    python benchmarks/torch_models.py [--out FILE.json] [--only linear,mlp] [--targets gfx942]

Every model is compiled in f16 and f32, with static shapes and with dynamic ones (the batch; for attention by itself
the sequence), for five targets. Results are written after each compilation; what is in the file already is not compiled
again, unless it failed. Each entry was made by ``verilocc_mlir.compile``, which also checks that every code object is
in the .vmfb byte for byte. Times are not measured here.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import earlier, options, write

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.torch import compile

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
MODELS = ("block", "linear", "mlp", "mha", "sdpa", "sdpa_causal")
DTYPES = ("float16", "float32")
WIDTH, HEADS, BATCH, LENGTH = 128, 2, 2, 64


@dataclass(frozen=True)
class Case:
    """One compilation."""

    model: str
    dtype: str
    dynamic: bool
    target: str

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.model} {self.dtype} {'dynamic' if self.dynamic else 'static'} {self.target}"


def make(case: Case) -> tuple[Any, tuple[Any, ...], Any]:
    """Module, example inputs, and dynamic shapes or None."""
    torch = importlib.import_module("torch")
    nn, functional, dim = torch.nn, torch.nn.functional, torch.export.Dim
    torch.manual_seed(0)
    dtype = getattr(torch, case.dtype)
    batch = {0: dim("batch", min=1, max=1024)}
    rows = torch.randn(BATCH * LENGTH, WIDTH, dtype=dtype)
    tokens = torch.randn(BATCH, LENGTH, WIDTH, dtype=dtype)
    if case.model in ("sdpa", "sdpa_causal"):
        causal = case.model == "sdpa_causal"
        heads = tuple(torch.randn(BATCH, HEADS, LENGTH, WIDTH // HEADS, dtype=dtype) for _ in range(3))
        sequence = {2: dim("sequence", min=2, max=4096)}

        def attention(query: Any, key: Any, value: Any) -> Any:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

        return attention, heads, (sequence, sequence, sequence) if case.dynamic else None
    if case.model == "mha":

        class SelfAttention(nn.Module):
            def forward(self, x: Any) -> Any:
                return self.attention(x, x, x, need_weights=False)[0]

        module = SelfAttention()
        module.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        return module.to(dtype).eval(), (tokens,), (batch,) if case.dynamic else None
    if case.model == "block":
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
        block = importlib.import_module("torch_block").Block(width=WIDTH, heads=HEADS)
        return block.to(dtype).eval(), (tokens,), (batch,) if case.dynamic else None
    layers = {
        "linear": [nn.Linear(WIDTH, 2 * WIDTH)],
        "mlp": [nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)],
    }[case.model]
    return nn.Sequential(*layers).to(dtype).eval(), (rows,), (batch,) if case.dynamic else None


def run(case: Case, jobs: int) -> dict[str, Any]:
    """Counts, and each kernel that is not proved by our allocation alone, with the reason."""
    module, inputs, shapes = make(case)
    try:
        result = compile(module, inputs, target=case.target, dynamic_shapes=shapes, jobs=jobs).result
    except VeriloccError as error:
        return {"error": error.what}
    return {
        "counts": result.counts(),
        "obligations": sum(phase["obligations"] for kernel in result.kernels for phase in kernel.phases),
        "fallbacks": [reason for kernel in result.kernels for reason in kernel.fallbacks],
        "left": {kernel.executable: kernel.reason for kernel in result.kernels if not kernel.ours},
    }


def cases(models: list[str], targets: list[str]) -> Iterator[Case]:
    """All of them, the quick ones first."""
    for model in sorted(models, key=lambda name: (name == "block", name)):
        for dynamic in (False, True):
            for dtype in DTYPES:
                for target in targets:
                    yield Case(model, dtype, dynamic, target)


def total(entries: dict[str, Any]) -> dict[str, Any]:
    """Sums over all compilations."""
    done = [entry for entry in entries.values() if "counts" in entry]
    names = ("kernels", "proved", "ours", "with_fallback", "left")
    return {
        "compilations": len(entries),
        "failed": len(entries) - len(done),
        **{name: sum(entry["counts"][name] for entry in done) for name in names},
        "obligations": sum(entry["obligations"] for entry in done),
    }


def main() -> int:
    """Exit code 0 if every compilation succeeded and every kernel is proved."""
    parser = options(__doc__, "torch_models.json")
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=0, help="kernels at once; 0: one a core")
    given = parser.parse_args()
    wanted = list(cases(given.only.split(","), given.targets.split(",")))
    entries: dict[str, Any] = earlier(given.out).get("compilations", {})
    for number, case in enumerate(wanted, 1):
        if "counts" not in entries.get(case.key, {}):
            entries[case.key] = run(case, given.jobs)
            sums = total(entries)
            write(given.out, {"command": "python benchmarks/torch_models.py", "total": sums, "compilations": entries})
        print(
            f"[{number}/{len(wanted)}] {case.key}: {entries[case.key].get('counts') or entries[case.key]['error']}",
            file=sys.stderr,
        )
    print(json.dumps(total(entries)))
    return 0 if total(entries)["failed"] == total(entries)["left"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
