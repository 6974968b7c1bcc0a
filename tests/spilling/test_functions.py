"""Whole functions that do not fit: kernels, device functions, scalars, several in a file, and what cannot be helped."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from allocation import with_attributes
from allocators_support import as_read
from builders import MFMA, kernel, loads, loop, machine_code, many_scalars, reads, stores, uses
from random_ir import Features as IrFeatures
from random_ir import random_ir
from random_mir import random_mir
from random_mir.features import random_features
from spilling_support import (
    NOTHING_SPILLED,
    TARGETS,
    allocate,
    before_phase,
    blocks_with,
    is_proved,
    is_reload,
    is_save,
    object_of,
    proved,
)
from support import DEMO_KERNELS, cpu_of, few, run_llc, run_opt
from toolchain_support import compiler

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import allocator
from verilocc_mlir.pipeline.attempt import SpillLimits
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import PhaseRunner
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import target

KERNELS = DEMO_KERNELS


@pytest.mark.parametrize(
    ("name", "registers"),
    [("attn_d64.gfx942", 32),
     *(pytest.param(f"attn_d64.{cpu}", count, marks=pytest.mark.long)
       for cpu, count in (("gfx1100", 128), ("gfx1201", 128), ("gfx90a", 32)))],
)  # fmt: skip
def test_a_kernel_in_too_few_registers(name: str, registers: int) -> None:
    """The allocator alone fails; with spill code it is proved, and llc makes an object of it."""
    path = KERNELS / f"{name}.opt.ll"
    limits = {"amdgpu-num-vgpr": str(registers), "amdgpu-agpr-alloc": "0"}
    text = before_phase(with_attributes(path.read_text(), limits), cpu_of(path))
    alone = allocate(text, cpu_of(path), spills=NOTHING_SPILLED)
    assert alone.candidate.function is None
    assert "are needed at once" in alone.candidate.attempts[-1].reason
    done = allocate(text, cpu_of(path))
    assert done.candidate.spills
    for action in done.candidate.spills:
        assert action.register
        assert action.reason
        assert action.cost > 0
        assert action.point >= 0
        assert action.reloads
    proved(done)
    assert "scratch_" in object_of(done) or "accvgpr" in object_of(done) or "buffer_" in object_of(done)


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950"])
def test_where_accumulators_are_free_llvm_keeps_what_is_spilled_there(cpu: str) -> None:
    """Eleven VGPRs are wanted, there are eight, and eight accumulators that nothing else can use."""
    body = f"""
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 11))}
{uses(range(1, 11))}
    S_ENDPGM 0
"""
    text = machine_code(body, 8)
    copied = allocate(text, cpu)
    proved(copied)
    assert {action.kind for action in copied.candidate.spills} == {"accumulate"}
    assert "SI_SPILL" not in copied.after
    assert "; ScratchSize: 0" in object_of(copied)
    first, second = re.findall(r"\$vgpr\d+ = COPY renamable \$(agpr\d+)", copied.after)[:2]
    broken = copied.after.replace(f"COPY renamable ${first}", f"COPY renamable ${second}", 1)
    assert replace(copied, after=broken).pair.rules() == {"value"}
    # Without our own copies everything stays in memory, unless the mark lets LLVM make them after the phase.
    done = allocate(text, cpu, spills=SpillLimits(accumulators=False))
    proved(done)
    assert {action.kind for action in done.candidate.spills} == {"spill"}
    assert "accvgpr" not in object_of(done)
    assert "; ScratchSize: 0" not in object_of(done)
    marked = done.after.replace("machineFunctionInfo:\n", "machineFunctionInfo:\n  hasSpilledVGPRs: true\n")
    assert marked != done.after
    lowered = object_of(replace(done, after=marked))
    assert "v_accvgpr_write" in lowered
    assert "v_accvgpr_read" in lowered
    assert "; ScratchSize: 0" in lowered


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1201"), TARGETS))
def test_scalars_wait_in_slots_of_their_own(cpu: str) -> None:
    done = allocate(before_phase(many_scalars(), cpu, "sgpr"), cpu, "sgpr")
    assert len(done.candidate.spills) > 20
    proved(done)
    assert set(blocks_with(done.function, "SI_SPILL_S")) == {0, 2}
    rows = [s.text for s in done.function.stack.values() if s.type == "spill-slot"]
    assert rows
    assert all("stack-id: sgpr-spill" in row for row in rows)
    # LLVM lowers them to lanes of vector registers and goes on.
    lowered = run_llc(
        as_read(done.after, cpu), cpu, "-verify-machineinstrs", "-enable-ipra=0",
        "-start-before=virtregrewriter,0", "-stop-before=greedy,2",
    )  # fmt: skip
    assert "SI_SPILL_S32_TO_VGPR" in lowered
    assert "SI_SPILL_S32_SAVE" not in lowered


@pytest.mark.parametrize("cpu", few(("gfx1250",), ("gfx942", "gfx1250")))
def test_a_device_function_saves_what_a_call_destroys(cpu: str) -> None:
    """60 values live across a call: callee-saved registers hold some, the others wait in memory."""
    names = [f"%v{k}" for k in range(60)]
    body = [*loads(60), "  %r = call i32 @other(i32 %t)", *stores([*names, "%r"])]
    text = before_phase(kernel(body, 0, convention="void") + "declare i32 @other(i32)\n", cpu)
    done = allocate(text, cpu)
    proved(done)
    assert done.candidate.spills
    waiting = {a.register for a in done.candidate.spills}
    assert len(waiting) < 60
    assert object_of(done)
    (block,) = done.function.blocks
    call = next(k for k, i in enumerate(block.instructions) if i.opcode == "SI_CALL")
    saved = [k for k, i in enumerate(block.instructions) if is_save(i)]
    loaded = [k for k, i in enumerate(block.instructions) if is_reload(i) and "fixed-stack" not in str(i)]
    assert max(saved) < call
    assert sum(k > call for k in loaded) >= len(waiting)


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1201"), TARGETS))
def test_a_call_that_destroys_every_register(cpu: str) -> None:
    """All that lives on is in memory meanwhile. Some of the registers it destroys hold its arguments: counted once."""
    names = [f"%v{k}" for k in range(5)]
    body = [*loads(5), "  %r = call i32 @other(i32 %t)", *stores([*names, "%r"])]
    text = before_phase(kernel(body, 20 if cpu in TARGETS[:3] else 36) + "declare i32 @other(i32)\n", cpu)
    done = allocate(text, cpu)
    proved(done)
    assert {a.kind for a in done.candidate.spills} >= {"spill"}
    assert object_of(done)


@pytest.mark.parametrize("cpu", few(("gfx942", "gfx1201"), TARGETS))
def test_a_device_function_in_few_registers(cpu: str) -> None:
    names = [f"%v{k}" for k in range(40)]
    registers = 8 if cpu in TARGETS[:3] else 16
    body = [*loads(40), *loop(stores(names[:5])), *stores(names)]
    done = allocate(before_phase(kernel(body, registers, convention="void"), cpu), cpu)
    assert done.candidate.spills
    proved(done)
    assert object_of(done)


def two(cpu: str) -> str:
    """``@k`` needs more registers than it has, ``@small`` does not."""
    names = [f"%v{k}" for k in range(24)]
    small = kernel([*loads(2), *stores(["%v0", "%v1"])], 16).replace("@k(", "@small(")
    definition = small[small.index("define") :]
    return before_phase(kernel([*loads(24), *stores(names)], 16) + definition, cpu)


def runner(cpu: str, *, fallback: bool = True, spills: SpillLimits | None = None) -> PhaseRunner:
    work = Work("two.mir", Settings(cpu, fallback=fallback), compiler(cpu), target(cpu), (allocator("deterministic"),))
    return PhaseRunner(work, spills or SpillLimits())


def test_of_two_functions_the_one_that_must_spills() -> None:
    done = runner("gfx1100").run(as_read(two("gfx1100"), "gfx1100"), "vgpr")
    big, small = done.reports["k"], done.reports["small"]
    for report in (big, small):
        assert (report.outcome, report.fallback) == (Outcome.PROVED, False)
    assert big.spills
    assert big.moves.saves >= len([s for s in big.spills if s.kind == "spill"])
    assert big.moves.reloads >= big.moves.saves
    assert [a.ended for a in big.attempts] == ["allocate", "audit"]
    assert small.spills == ()
    assert small.moves.saves == 0
    assert [a.ended for a in small.attempts] == ["audit"]
    assert run_llc(done.text or "", "gfx1100", "-verify-machineinstrs", "-start-after=virtregrewriter,2")


def test_without_spilling_that_one_is_llvms() -> None:
    done = runner("gfx1100", spills=NOTHING_SPILLED).run(as_read(two("gfx1100"), "gfx1100"), "vgpr")
    assert done.reports["k"].fallback
    assert done.reports["k"].fallback_reason.endswith("VGPRs are needed at once, 16 are free there")
    assert done.reports["k"].spills == ()
    assert not done.reports["small"].fallback
    alone = runner("gfx1100", spills=NOTHING_SPILLED, fallback=False)
    assert alone.run(as_read(two("gfx1100"), "gfx1100"), "vgpr").text is None


HALVES = "\n".join(
    f"    %{k}:vgpr_16 = V_MOV_B16_t16_e64 0, {k}, 0, implicit $exec" for k in range(1, 40)
)  # fmt: skip
HALVES_USED = "\n".join(
    f"    %{k + 50}:vgpr_16 = V_ADD_NC_U16_t16_e64 0, %{k}, 0, %{k}, 0, 0, implicit $exec\n"
    f"    $vgpr0_lo16 = COPY %{k + 50}"
    for k in range(1, 40)
)


def test_halves_are_not_spilled_and_llvm_gets_the_function() -> None:
    """39 halves in eight registers: what is not a whole 32-bit register stays, and that does not suffice here."""
    text = machine_code(f"\n  bb.0:\n    liveins: $vgpr0\n{HALVES}\n{HALVES_USED}\n    S_ENDPGM 0\n", 8)
    done = allocate(text, "gfx1100")
    assert done.candidate.function is None
    assert done.candidate.spills == ()
    assert "are needed at once, 8 are free there" in done.candidate.attempts[-1].reason


def test_an_instruction_that_needs_more_than_the_file_ends_in_the_reason() -> None:
    """One MFMA reads and writes 16 registers each; there are 16 in all."""
    done = allocate(machine_code(f"\n{MFMA}\n", 8), "gfx942")
    assert done.candidate.function is None
    assert done.candidate.lacks_room
    assert done.candidate.attempts[-1].ended == "allocate"
    assert "at once" in done.candidate.attempts[-1].reason


def random_kernel(seed: int, cpu: str) -> str:
    """Random control flow in few registers; no calls, for which LLVM itself does not find enough then."""
    features = IrFeatures(calls=False, device_function=seed % 4 == 1)
    registers = 6 if cpu in TARGETS[:3] else 10
    ir = run_opt(random_ir(seed, features), cpu, "-passes=sroa,simplifycfg")
    return with_attributes(ir, {"amdgpu-num-vgpr": str(registers)})


@pytest.mark.parametrize("seed", few((1, 2), range(6)))
def test_random_control_flow_is_proved(seed: int) -> None:
    """Where it is answered, with spill code or without, the audit proves it."""
    assert _random_control_flow(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(6, 114, 12))
def test_more_random_control_flow_is_proved_but_for_one_in_twelve(first: int) -> None:
    assert sum(map(_random_control_flow, range(first, first + 12))) >= 11


def _random_control_flow(seed: int) -> bool:
    """Whether it is proved, or not answered."""
    cpu = TARGETS[seed % len(TARGETS)]
    done = allocate(before_phase(random_kernel(seed, cpu), cpu), cpu)
    if not done.after:
        return True
    assert object_of(done)
    return is_proved(done)


def random_machine_code(seed: int, cpu: str) -> str:
    """Tuples, halves, AGPRs, matrix instructions, fixed registers and divergent branches, in few registers."""
    features = replace(random_features(seed), scalar_pressure=False, vector_pressure=False)
    features = replace(features, assembly=False, mixed=False, repeats=False)
    registers = (10, 16, 24)[seed % 3]
    return random_mir(seed, cpu, features, attributes={"amdgpu-num-vgpr": str(registers)})


def _random_machine_code(seed: int) -> bool:
    """Whether something was spilled, and that is proved."""
    cpu = TARGETS[seed % len(TARGETS)]
    pre = as_read(random_machine_code(seed, cpu), cpu)
    text = run_llc(pre, cpu, "-start-before=greedy,0", "-stop-before=greedy,2", "-enable-ipra=0")
    done = allocate(text, cpu)
    return bool(done.after) and is_proved(done) and bool(done.candidate.spills)


@pytest.mark.long
def test_random_machine_code_is_proved() -> None:
    assert sum(map(_random_machine_code, range(12))) >= 4


@pytest.mark.long
def test_parts_from_an_odd_register_on_wait_in_slots_of_their_own() -> None:
    """LLVM may keep a slot in AGPRs and knows no offset there; where tuples begin at even registers, three parts are
    moved by two instructions.
    """
    assert _random_machine_code(150)


@pytest.mark.long
@pytest.mark.parametrize("first", range(12, 300, 24))
def test_more_random_machine_code_is_proved(first: int) -> None:
    assert sum(map(_random_machine_code, range(first, first + 24))) >= 1


@pytest.mark.long
def test_random_scalar_pressure_is_proved() -> None:
    spilled = 0
    for seed in range(6):
        cpu = TARGETS[seed]
        features = replace(random_features(seed), scalar_pressure=True, vector_pressure=False, calls=False)
        done = allocate(as_read(random_mir(seed, cpu, features), cpu), cpu, "sgpr")
        if done.after:
            proved(done)
            spilled += bool(done.candidate.spills)
    assert spilled >= 4
