"""A network in the place of the critic's trees: the share of the oracle's gain that each brings, on kept kernels.

    python benchmarks/plan_network.py [--seeds 3]

Both read the same rows, facts of a kernel, an answer's words and facts of its text (``plans/critic.py``), learn from
the same 235 promising kernels of ``model/data/plans/october``, and are judged on the same kernels as ``verilocc eval
--plans`` judges there ("all of these"). The network has two hidden layers of 128; it learns the same gains, with rows
scaled to a mean of 0 and a spread of 1, and a tenth of the kernels decides when it stops.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from common import command, machine, options, tree, write
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "model"))

from verilocc_model.plans.critic import Critic  # noqa: E402
from verilocc_model.plans.data import Labels  # noqa: E402
from verilocc_model.plans.evaluate import Score, labels_of, scores, to_learn_from  # noqa: E402

torch: Any = importlib.import_module("torch")
DATA = [ROOT / "model" / "data" / "plans" / "october" / name for name in ("all-sources", "generated")]
WIDTH, STEPS, BATCH, KEPT = 128, 4000, 256, 10


class Network:
    """Ranks answers as ``Critic`` does, by a network in the place of its trees."""

    def __init__(self, seed: int) -> None:
        self.name, self._seed, self._critic = f"network of texts, seed {seed}", seed, Critic()

    def reads(self, kernel: Labels) -> list[str]:
        return self._critic.reads(kernel)

    def fit(self, kernels: Sequence[Labels]) -> None:
        """The critic is fitted too: it says which answers are asked about."""
        self._critic.fit(kernels)
        torch.manual_seed(self._seed)
        torch.set_num_threads(1)
        own = [self._critic.labelled_rows([k for i, k in enumerate(kernels) if (i % KEPT == 0) is kept])
               for kept in (False, True)]  # fmt: skip
        (rows, gains), (kept_rows, kept_gains) = own
        self._mean, self._spread = rows.mean(axis=0), rows.std(axis=0) + 1e-6
        linear = torch.nn.Linear
        network = torch.nn.Sequential(
            linear(rows.shape[1], WIDTH), torch.nn.GELU(), torch.nn.Dropout(0.1), linear(WIDTH, WIDTH),
            torch.nn.GELU(), linear(WIDTH, 1),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.1)
        read, wanted = self._scaled(rows), torch.tensor(gains, dtype=torch.float32)
        best = float("inf")
        self._network = network
        for step in range(STEPS):
            drawn = torch.randint(len(read), (BATCH,))
            loss = torch.nn.functional.smooth_l1_loss(network(read[drawn])[:, 0], wanted[drawn], beta=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 49:
                network.eval()
                error = float(np.abs(self._asked(network, kept_rows) - kept_gains).mean())
                if error < best:
                    best, self._network = error, copy.deepcopy(network)
                network.train()
        self._network.eval()

    def expected(self, kernel: Labels) -> Mapping[str, float]:
        plans = list(self._critic.expected(kernel))
        return dict(zip(plans, self._asked(self._network, self._critic.rows(kernel, plans)).tolist(), strict=True))

    def _scaled(self, rows: NDArray[np.float64]) -> Any:
        return torch.tensor((rows - self._mean) / self._spread, dtype=torch.float32).clamp(-5, 5)

    def _asked(self, network: Any, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        with torch.no_grad():
            return network(self._scaled(rows))[:, 0].double().numpy()


def main() -> None:
    """Fit, judge, write."""
    parser = options(__doc__, "plan_network.json")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    kernels = labels_of(DATA)
    train = to_learn_from(kernels, DATA)
    test = [k for k in kernels if k.has_promise and (k.split != "train" or "source" in k.held_out)]
    policies = [Critic(), *map(Network, range(given.seeds))]
    result: list[Score] = []
    for policy in policies:
        policy.fit(train)
        result += scores([policy], test)
        print([(row.policy, row.tried, row.share) for row in result[-4:]], flush=True)
    about = {
        "command": command(),
        "tree": tree(),
        "machine": machine(),
        "learned from": len(train),
        "kernels": len(test),
    }
    write(given.out, {**about, "scores": [asdict(row) for row in result]})


if __name__ == "__main__":
    main()
