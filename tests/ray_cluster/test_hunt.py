"""A hunt on a Ray cluster of this machine finds what it finds without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audit_support import LLVM_FAULTS
from cluster_support import MARKS, needs_ray

from verilocc_mlir.cli.main import run
from verilocc_mlir.ray_cluster import Cluster

pytestmark = MARKS


@pytest.mark.long
@needs_ray
def test_groups_and_examples_are_those_made_without_ray(cluster: Cluster, tmp_path: Path) -> None:
    source = LLVM_FAULTS / "early_result_over_own_input.mir"
    for out, options in (("here", []), ("ray", ["--ray"])):
        assert run(["hunt", str(source), f"--out={tmp_path / out}", "--variants=default", "-j1", "-q", *options]) == 1
    here, there = (json.loads((tmp_path / out / "hunt.json").read_text()) for out in ("here", "ray"))
    for report in (here, there):
        report.pop("cpu_hours")
        for group in report["groups"]:
            group["example"].pop("cpu_seconds")
    assert there == here
    name = "refuted-greedy-undef-flag-INLINEASM/before.mir"
    assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
