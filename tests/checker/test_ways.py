"""``benchmarks/ways_campaign.py``: what llc makes of proved texts does what was written, and it sees what does not."""

from __future__ import annotations

import random
import sys
from collections import Counter

from support import REPOSITORY, llc

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import ways_campaign

from smt_verifier.certificate.verdict import certify_texts
from verilocc_mlir.toolchain import ToolchainChoice
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.staged import driver_of

SHARE = 0.3


def test_what_both_checkers_accept_runs_as_it_was_written() -> None:
    llc()
    driver = driver_of(choose_tools(ToolchainChoice.LLC))
    said = Counter(ways_campaign.summary(ways_campaign.judged(n, 1, driver, SHARE)) for n in range(25))
    assert said["same"] > 3
    assert not said["fault"]
    assert not said["disagree"]


def test_wrong_registers_are_seen_and_refused() -> None:
    llc()
    driver = driver_of(choose_tools(ToolchainChoice.LLC))
    for number in (0, 3, 12, 19):
        chance = random.Random(1_000_000 + number)
        pair = ways_campaign.question(chance, SHARE)
        said = certify_texts(pair.before, pair.after, "f", pair.cpu, saved_later=pair.scalar)
        assert not said.accepted
        assert ways_campaign.run_by(driver, pair, chance).startswith("fault")
