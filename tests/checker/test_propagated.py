"""Copies as LLVM's MachineCopyPropagation leaves them (specification 10.13), against LLVM's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import llc_at_hand, run_llc

from smt_verifier.checker.lanes import Lanes, parts_of
from smt_verifier.checker.limits import limits
from smt_verifier.checker.model import Function
from smt_verifier.checker.module import attributes
from smt_verifier.checker.propagated import Propagated
from smt_verifier.checker.tables import tables
from smt_verifier.checker.text import read

DATA = Path(__file__).resolve().parent.parent / "data" / "copies"
PROCESSORS = ("gfx942", "gfx1100", "gfx90a")


def words(function: Function) -> list[list[str]]:
    """What the instructions of each block say, flags too."""
    return [
        [" ".join([i.opcode, *(f"{sorted(o.flags)}{o.text}" for o in i.operands)]) for i in block.instructions]
        for block in function.blocks
    ]


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_checker_leaves_what_llvm_leaves(processor: str) -> None:
    before, after = (read((DATA / f"{processor}.{way}.mir").read_text()) for way in ("before", "after"))
    target = tables().processor(processor)
    assert target is not None
    changed = 0
    for p, q in zip(before.functions, after.functions, strict=True):
        own = attributes(before.module, p.name)
        bounds = limits(processor, own.calling_convention, own.strings, own.words, p.fields)
        lanes = Lanes(p, parts_of(p), tables(), 1, target.wave_size)
        texts = Propagated(lanes, target, bounds.allocatable).texts
        assert words(texts[0].function if texts else p) == words(q), p.name
        changed += words(p) != words(q)
    assert changed > len(before.functions) / 2


@pytest.mark.skipif(not llc_at_hand(), reason="no llc")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_llvm_of_today_leaves_the_same(processor: str) -> None:
    before, after = (read((DATA / f"{processor}.{way}.mir").read_text()) for way in ("before", "after"))
    answer = read(run_llc((DATA / f"{processor}.before.mir").read_text(), processor, "-run-pass=machine-cp"))
    assert len(before.functions) == len(answer.functions)
    assert [words(f) for f in answer.functions] == [words(f) for f in after.functions]
