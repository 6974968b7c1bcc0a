"""An adapter is applied for the families of the GPUs that it was trained on, wherever it lies, and that is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from model_support import answered
from support import late

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators.protocol import model_behind
from verilocc_mlir.errors import InputError
from verilocc_mlir.target.targets import TARGETS
from verilocc_model.card import CARD, read_card

answering = late("verilocc_model.allocator")
lora = late("lora_support")
NAME = "lora"
STRONG = 0.3
"""Deviation of an adapter's weights that makes its answers another model's."""
TOKENS: Sequence[int] = (0, 5, 7, 11)


def scores(allocator: Any, target: str) -> list[list[float]]:
    """What the model scores for a GPU, on some words."""
    scorer = allocator.scorer(target)
    scorer.begin()
    return scorer.extend(TOKENS, range(len(TOKENS))).tolist()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter trained on gfx942, as a directory of its own whose name peft would not take."""
    return lora.write_adapter(tmp_path_factory.mktemp("own") / "run.2", NAME, ("gfx942",), strength=STRONG)


def test_one_of_its_own_is_applied_for_its_family_alone(alone: Path) -> None:
    found, base = answering.ModelAllocator(alone), answering.ModelAllocator(lora.BASE)
    for target in ("gfx942", "gfx950"):
        assert scores(found, target) != scores(base, target)
    for target in ("gfx1100", "gfx90a", "gfx1250"):
        assert scores(found, target) == scores(base, target)
    assert scores(found, "gfx942") != scores(base, "gfx942")
    (facts,) = found.adapters
    assert (facts.name, facts.targets, facts.trained_on) == (NAME, ("gfx942", "gfx950", "gfx9-4-generic"), ("gfx942",))
    base_name = read_card(lora.BASE)["name"]
    assert model_behind(found, "gfx942") == f"{base_name}+{NAME}"
    assert model_behind(found, "gfx1100") == base_name


def test_the_answer_says_which_adapter_was_applied_and_why_none_was(alone: Path) -> None:
    found = answering.ModelAllocator(alone)
    base_name = read_card(lora.BASE)["name"]
    registers: dict[str, tuple[tuple[str, ...], ...]] = {}
    for name, applied in (("gemm_mma_lds.gfx942", NAME), ("gemm_mma_lds.gfx1100", "")):
        problem, _ = answered(name, "sgpr")
        proposal = found.allocate(problem)
        assert prove(problem, proposal).outcome is Outcome.PROVED
        assert (proposal.use.model, proposal.use.adapter) == (base_name, applied)
        assert proposal.use.tokens > 0
        note = "" if applied else f"no adapter is applied for gfx1100: {NAME} is for gfx942, gfx950, gfx9-4-generic"
        assert proposal.use.note == note
        registers[applied] = proposal.registers, answering.ModelAllocator(lora.BASE).allocate(problem).registers
    assert registers[""][0] == registers[""][1]


def test_the_card_decides_and_not_the_directory(tmp_path: Path) -> None:
    found = answering.ModelAllocator(lora.write_model(tmp_path / "m", "rdna3", NAME, ("gfx942",), strength=STRONG))
    assert found.adapters[0].targets == ("gfx942", "gfx950", "gfx9-4-generic")
    assert scores(found, "gfx1100") == scores(answering.ModelAllocator(lora.BASE), "gfx1100")
    # A card that names no GPU: the directory says the family, and without one the adapter is for all.
    silent = answering.ModelAllocator(lora.write_model(tmp_path / "silent", "rdna3", NAME, ()))
    assert silent.adapters[0].targets == tuple(name for name in TARGETS if name.startswith("gfx11"))
    everywhere = answering.ModelAllocator(lora.write_adapter(tmp_path / "all", NAME, ()))
    assert everywhere.adapters[0].targets == tuple(TARGETS)


def test_an_adapter_without_its_base_is_refused(alone: Path, tmp_path: Path) -> None:
    for change, message in (
        ({"base_model_name_or_path": str(tmp_path / "gone")}, "the adapter's base is not where it was"),
        ({"base_model_name_or_path": None}, "the adapter's base is not where it was"),
    ):
        moved = tmp_path / f"moved{len(list(tmp_path.iterdir()))}"
        moved.mkdir()
        config = json.loads((alone / "adapter_config.json").read_text())
        (moved / "adapter_config.json").write_text(json.dumps({**config, **change}))
        (moved / CARD).write_text((alone / CARD).read_text())
        with pytest.raises(InputError, match=message):
            answering.ModelAllocator(moved)
