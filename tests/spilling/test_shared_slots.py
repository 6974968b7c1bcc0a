"""Slots that several values share: never at once, in all spill code, and proved."""

from __future__ import annotations

import re

import pytest
from allocation import Pair
from builders import kernel, loads, loop, stores, waiting
from msgspec.structs import replace
from spilling_support import Allocated, allocate, before_phase, is_save, object_of, proved, with_slots_shared
from support import few, long
from toolchain_support import tritons

from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.plans import DEFAULT, planned
from verilocc_mlir.pipeline.runs import OURS
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.spilling.code import with_shared_slots
from verilocc_mlir.toolchain import ToolchainChoice

TWICE = [
    *loads(24),
    *loop(stores(waiting(5))),
    *stores(waiting(24)),
    *loads(24, "w", 24),
    *loop(stores([f"%w{k}" for k in range(5)]), label="again", came_from="loopx"),
    *stores([f"%w{k}" for k in range(24)]),
]
"""24 values wait around a loop, then 24 others around another one."""


def twice(cpu: str) -> Allocated:
    return allocate(before_phase(kernel(TWICE, 8 if cpu.startswith("gfx9") else 16), cpu), cpu)


def slots(function: MachineFunction) -> set[int]:
    return {number for number, row in function.stack.items() if row.type == "spill-slot"}


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1100"), ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")))
def test_values_that_wait_one_after_the_other_share_slots(cpu: str) -> None:
    done = twice(cpu)
    fewer = with_slots_shared(done)
    assert len(slots(done.function)) >= 20
    assert len(slots(fewer.function)) <= len(slots(done.function)) * 0.6
    assert {int(n) for n in re.findall(r"%stack\.(\d+)", fewer.after)} == slots(fewer.function)
    proved(fewer)
    before, after = (int(re.findall(r"ScratchSize: (\d+)", object_of(one))[0]) for one in (done, fewer))
    assert after < 0.7 * before


def test_values_that_wait_at_the_same_time_do_not() -> None:
    body = [*loads(24), *loop(stores(waiting(5))), *stores(waiting(24))]
    done = allocate(before_phase(kernel(body, 16), "gfx1100"), "gfx1100")
    fewer = with_shared_slots(done.function)
    # 16 registers hold 16 of the 24 at most.
    assert 24 - 16 <= len(slots(fewer)) <= len(slots(done.function))
    assert with_shared_slots(fewer) is fewer


def test_two_that_wait_at_the_same_time_in_one_slot_are_refuted() -> None:
    fewer = with_slots_shared(twice("gfx1100"))
    first, second = sorted(slots(fewer.function))[:2]
    wrong = re.sub(rf"%stack\.{second}(?!\d)", f"%stack.{first}", fewer.after)
    assert Pair(fewer.cpu, fewer.before, wrong).audit().outcome is Outcome.REFUTED


def test_what_else_names_a_slot_keeps_it() -> None:
    done = twice("gfx1100")
    at = done.function.header_lines.index("machineFunctionInfo:") + 1
    lines = done.function.header_lines
    header = (*lines[:at], "  scavengeFI:      '%stack.0'", *lines[at:])
    alone = with_shared_slots(replace(done.function, header_lines=header))
    saves = [i for block in alone.blocks for i in block.instructions if is_save(i) and i.operands[1].text == "%stack.0"]
    assert len(saves) == 1
    assert len(slots(alone)) < len(slots(done.function))


def test_numbers_have_no_gaps_and_where_they_would_nothing_is_shared() -> None:
    """Triton's LLVM reads them as other numbers."""
    done = twice("gfx1100")
    assert slots(with_shared_slots(done.function)) == {*range(len(slots(with_shared_slots(done.function))))}
    last = max(done.function.stack)
    row = replace(done.function.stack[last], id=last + 1, type="default")
    other = replace(done.function, stack={**done.function.stack, last + 1: row})
    assert with_shared_slots(other) is other


@pytest.mark.parametrize("toolchain", [ToolchainChoice.LLC, *long(ToolchainChoice.TRITON)])
def test_a_compilation_takes_less_private_memory_and_llvms_no_more_than_its_own(toolchain: ToolchainChoice) -> None:
    if toolchain is ToolchainChoice.TRITON:
        tritons()
    ir, settings = kernel(TWICE, 16), Settings("gfx1100", toolchain=toolchain, emit=Emit.MIR)
    done = compile_module(ir.encode(), "k.ll", settings)
    assert done.report.outcome is Outcome.PROVED
    assert done.data is not None
    (function,) = parse_mir(done.data.decode()).functions
    assert with_shared_slots(function) is function
    given = planned(ir.encode(), "k.ll", settings)
    ours, llvms, direct = (
        int(re.findall(r"ScratchSize: (\d+)", assembly.decode())[0])
        for assembly in (
            given.work.compiler.finish(given.runs(DEFAULT).draft(OURS) or "", "asm"),
            given.work.compiler.finish(given.runs(DEFAULT).plain_text(), "asm"),
            given.work.compiler.direct(given.ir, "asm"),
        )
    )
    assert 0 < ours < 24 * 4
    assert 0 < llvms <= direct
