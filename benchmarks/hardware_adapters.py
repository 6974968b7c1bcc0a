"""What learning adds to the ruler where times were measured: weights, trees, and LoRA adapters on a network.

    python benchmarks/hardware_adapters.py

The rows are ``model/data/measured``: 1,063 configurations of a convolution and a dedispersion on MI250X and W7800, each
with the ruler's components of the code that was measured. Every predictor learns from the same rows and is judged on
the same rows that it did not learn from: a fifth of the configurations after the other, or one kernel after the other.

The rows have no machine IR, so the base reads components: a network of three layers that learned the ruler from 200,000
variations of the rows' components, without any time. An adapter (LoRA, rank 8, all layers) learns from one GPU's times.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import Row as Figures
from common import command, machine, options, tree, write

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

from verilocc_mlir.target.targets import target as target_called
from verilocc_model.measured import (
    Array,
    Corrected,
    Judge,
    Predictor,
    Row,
    Ruler,
    centred_times,
    features,
    kept_aside,
    read_rows,
    unseen_kernels,
)

torch: Any = importlib.import_module("torch")
peft: Any = importlib.import_module("peft")
DATA = Path(__file__).resolve().parent.parent / "model" / "data" / "measured" / "rows.jsonl.xz"
GPUS = {"MI250X": "gfx90a", "W7800": "gfx1100"}
VARIATIONS, STEPS, BATCH, WIDTH, RANK, PASSES = 200_000, 6_000, 256, 64, 8, 150


def rows_of(lines: Sequence[Figures]) -> list[Row]:
    """The configurations whose own code was costed by today's ruler."""
    return [
        Row(
            f"{r['kernel'].removesuffix('_kernel')} {r['gpu']}",
            r["key"],
            r["key"],
            r["target"],
            r["cost"],
            r["waves"],
            r["ms"],
        )
        for r in lines
        if r["cost"] is not None
    ]


def inputs(rows: Sequence[Row]) -> Array:
    """What the network reads: the trees' features but for the ruler's own answer, and the size of a wave."""
    waves = np.array([[target_called(row.target).wave_size / 64] for row in rows])
    return np.concatenate([features(rows)[:, :-1], waves], axis=1)


class Base:
    """A network that learned the ruler."""

    def __init__(self, rows: Sequence[Row], seed: int = 0) -> None:
        torch.manual_seed(seed)
        draw = np.random.default_rng(seed)
        varied = [_varied(rows[int(k)], draw) for k in draw.integers(0, len(rows), VARIATIONS)]
        read, answers = inputs(varied), Ruler().log_time(varied)
        self.mean, self.scale = read.mean(axis=0), read.std(axis=0) + 1e-6
        self.middle, self.spread = float(answers.mean()), float(answers.std())
        self.network = torch.nn.Sequential(
            torch.nn.Linear(read.shape[1], WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(),
            torch.nn.Linear(WIDTH, 1),
        )  # fmt: skip
        self.network.train()
        _train(self.network, self.scaled(read), (answers - self.middle) / self.spread, STEPS, 2e-3)
        self.network.eval()

    def scaled(self, read: Array) -> Any:
        return torch.tensor((read - self.mean) / self.scale, dtype=torch.float32)

    def asked(self, network: Any, rows: Sequence[Row]) -> Array:
        with torch.no_grad():
            return network(self.scaled(inputs(rows)))[:, 0].double().numpy() * self.spread + self.middle


def _varied(row: Row, draw: np.random.Generator) -> Row:
    """Each component up to some times more or less, either GPU, any count of waves."""
    cost = {name: value * float(np.exp(draw.normal(0, 0.7))) for name, value in row.cost.items()}
    cost["occupancy"] = float(draw.integers(1, 17))
    cost["unhidden"] = min(cost["unhidden"], cost["latency"])
    cost["lds_bytes"] = row.cost["lds_bytes"]
    return replace(row, cost=cost, target=list(GPUS.values())[draw.integers(2)])


def _train(network: Any, read: Any, answers: Array, steps: int, rate: float) -> None:
    wanted = torch.tensor(answers, dtype=torch.float32)
    own = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        drawn = torch.randint(len(read), (min(BATCH, len(read)),))
        loss = torch.nn.functional.smooth_l1_loss(network(read[drawn])[:, 0], wanted[drawn], beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


class Adapted:
    """The base with the adapter of the GPU whose rows it is fitted to, or without one."""

    def __init__(self, base: Base, *, adapter: bool, on_ruler: bool = False) -> None:
        self._base, self._adapter, self._on_ruler = base, adapter, on_ruler
        self._network: Any = base.network
        self.name = "base with adapter" if adapter else "base without adapter"
        self.name += ", on the ruler itself" if on_ruler else ""

    def fit(self, rows: Sequence[Row]) -> None:
        if not self._adapter:
            return
        torch.manual_seed(0)
        lora = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["0", "2", "4"], lora_dropout=0.05)
        self._network = peft.get_peft_model(copy.deepcopy(self._base.network), lora).train()
        # What the base says, and what the times add to the ruler: the base's own error is not to be learned.
        wanted = self._base.asked(self._base.network, rows) + centred_times(rows)
        read = self._base.scaled(inputs(rows))
        steps = max(PASSES * len(rows) // BATCH, 100)
        _train(self._network, read, (wanted - self._base.middle) / self._base.spread, steps, 5e-3)
        self._network.eval()

    def log_time(self, rows: Sequence[Row]) -> Array:
        said = self._base.asked(self._network, rows)
        if self._on_ruler:
            said += Ruler().log_time(rows) - self._base.asked(self._base.network, rows)
        return said


class Elsewhere:
    """Learns from another GPU's rows whatever it is given: of those, the same configurations."""

    def __init__(self, learner: Predictor, rows: Sequence[Row]) -> None:
        self._learner, self._rows = learner, rows
        self.name = "the other GPU's adapter"

    def fit(self, rows: Sequence[Row]) -> None:
        kernels = {row.group.split()[0] for row in rows}
        self._learner.fit([row for row in self._rows if row.group.split()[0] in kernels])

    def log_time(self, rows: Sequence[Row]) -> Array:
        return self._learner.log_time(rows)


Split = Callable[[Sequence[Row], Callable[[], Predictor]], Array]


def judged(rows: Sequence[Row], learners: Sequence[Callable[[], Predictor]], split: Split) -> list[Figures]:
    """Figures of all predictors on one GPU's rows, over all, for each kernel, and where nothing spills."""
    subsets: dict[str, list[int]] = {"all": list(range(len(rows)))}
    for number, row in enumerate(rows):
        kernel = row.group.split()[0]
        subsets.setdefault(kernel, []).append(number)
        if kernel == "convolution" and not row.cost["spills"]:
            subsets.setdefault("convolution, nothing spilled", []).append(number)
    judges = {name: Judge([rows[k] for k in numbers]) for name, numbers in subsets.items()}
    said = {learner().name: split(rows, learner) for learner in learners}
    result: list[Figures] = []
    for name, times in said.items():
        of_subsets: Figures = {}
        for subset, judge in judges.items():
            numbers = subsets[subset]
            of_subsets[subset] = {"rows": len(numbers), **asdict(judge.judged(times[numbers]))}
            for other in ("the ruler", "base without adapter", "the other GPU's adapter"):
                of_subsets[subset][f"over {other}"] = asdict(judge.gains(times[numbers], said[other][numbers]))
        result.append({"predictor": name, **of_subsets})
        print(split.__name__, rows[0].target, name, of_subsets["all"]["spearman"], flush=True)
    return result


def main() -> None:
    """Train, judge, write."""
    parser = options(__doc__, "hardware_adapters.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = read_rows(DATA)
    rows = rows_of(lines)
    base = Base(rows)
    figures: Figures = {}
    for gpu in GPUS:
        mine = [row for row in rows if row.group.endswith(gpu)]
        others = [row for row in rows if not row.group.endswith(gpu)]
        learners: list[Callable[[], Predictor]] = [
            Ruler,
            Corrected,
            lambda: Adapted(base, adapter=False),
            lambda: Adapted(base, adapter=True),
            lambda: Adapted(base, adapter=True, on_ruler=True),
            lambda others=others: Elsewhere(Adapted(base, adapter=True), others),
        ]
        figures[gpu] = {
            "kept configurations": judged(mine, learners, kept_aside),
            "kernel never seen": judged(mine, learners, unseen_kernels),
        }
    base_error = np.abs(base.asked(base.network, rows) - Ruler().log_time(rows))
    about = {
        "lines": len(lines),
        "rows": len(rows),
        "median error of the base": float(np.median(base_error)),
    }
    write(given.out, {"command": command(), "tree": tree(), "machine": machine(), **about, "gpus": figures})


if __name__ == "__main__":
    main()
