"""What llc compiles, ``compile`` compiles and proves: small modules by kind (``small_ir.py``)."""

from __future__ import annotations

from itertools import product

import pytest
from small_ir import modules
from support import few

from smt_verifier.outcome import Outcome
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings

_ALL = {name: ir for _, name, ir in modules()}
_SAMPLE = [(name, cpu) for end, cpu in (("-0", "gfx942"), ("-7", "gfx1100")) for name in _ALL if name.endswith(end)]
"""Of each kind two modules, each for another GPU."""


@pytest.mark.parametrize(("name", "cpu"), few(_SAMPLE, product(_ALL, ["gfx942", "gfx1100"])))
def test_it_is_proved(name: str, cpu: str) -> None:
    done = compile_module(_ALL[name].encode(), "k.ll", Settings(cpu, emit=Emit.OBJ))
    assert done.report.outcome is Outcome.PROVED, done.report.notes
    assert not done.report.left_out
