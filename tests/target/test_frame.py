"""What LLVM takes for a frame behind allocation, against what it does take."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolchain_support import compiler

from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.callingconv import callee_saved
from verilocc_mlir.target.frame import file_units, is_framed, spared_by_frame, written
from verilocc_mlir.target.registers import BANK_BASE, Bank
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import target

CASES = Path(__file__).resolve().parent.parent / "cases"
# A long branch is not the frame's, and is printed with symbols that LLVM itself does not read.
TEXTS = sorted(path for path in CASES.glob("calls_promise_*.after.mir") if "long_branch" not in path.name)
ACCUMULATOR = BANK_BASE[Bank.AGPR]


def spared(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """What the frame of ``f`` is said to leave alone, and what LLVM's code of it writes that the text does not."""
    gpu, staged = target("gfx942"), compiler("gfx942")
    file = parse_mir(text)
    (function,) = (f for f in file.functions if f.name == "f")
    (late,) = (f for f in parse_mir(staged.late(text)).functions if f.name == "f")
    attributes = function_attributes(file.preamble, "f")
    saved = callee_saved(attributes.calling_convention, gpu)
    free = allocatable(function, file.preamble, gpu)
    numbers = {Bank.SGPR: free.sgprs, Bank.VGPR: free.vgprs}
    usable = frozenset(BANK_BASE[bank] + 2 * n + half for bank, of in numbers.items() for n in of for half in (0, 1))
    assert is_framed(function, attributes, saved)
    return spared_by_frame(function, usable - saved, saved), written(late) - written(function) - saved


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name.partition(".")[0])
def test_llvm_takes_nothing_else(path: Path) -> None:
    left, taken = spared(path.read_text())
    assert taken
    assert taken.isdisjoint(left)


@pytest.mark.parametrize(
    ("name", "is_spared"),
    [("of_an_accumulator_beside_a_call", True), ("broken_by_a_save_beside_a_call", False)],
)
def test_accumulators_are_left_alone_where_no_vector_register_is_saved(name: str, is_spared: bool) -> None:
    left, taken = spared((CASES / f"calls_promise_{name}.after.mir").read_text())
    assert (ACCUMULATOR in left) is is_spared
    assert (ACCUMULATOR in taken) is not is_spared
    assert left.intersection(file_units(Bank.VGPR))
