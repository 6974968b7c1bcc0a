"""Shared by the tests of spilling: functions with few registers, what our allocation makes of them, and its proof."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import lru_cache

from allocation import Pair
from allocators_support import as_read
from builders import reads, uses
from msgspec.structs import replace
from support import readable, run_llc

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.mir.model import Instruction, MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import Attempted, AttemptLimits, SpillLimits, try_allocators
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.spilling.code import with_shared_slots
from verilocc_mlir.target.targets import target

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
NOTHING_SPILLED = SpillLimits(spare=())


@dataclass(frozen=True)
class Allocated:
    """One phase of a file: the text before it, what was tried for each function, and the text after it."""

    cpu: str
    phase: Phase
    before: str
    candidates: tuple[Attempted, ...]
    after: str

    @property
    def pair(self) -> Pair:
        return Pair(self.cpu, self.before, self.after)

    @property
    def candidate(self) -> Attempted:
        (candidate,) = self.candidates
        return candidate

    @property
    def function(self) -> MachineFunction:
        (function,) = parse_mir(self.after).functions
        return function


@lru_cache(maxsize=None)
def allocate(before: str, cpu: str, phase: Phase = "vgpr", spills: SpillLimits | None = None) -> Allocated:
    """Our allocation of one phase of a text; ``after`` is ``""`` where a function got none.

    Registers are packed, as the edits of the tests take them to be: a value that waits in a slot loses its register.
    """
    text = as_read(before, cpu)
    file = parse_mir(text, "before.mir")
    limits = AttemptLimits(60.0, spills=spills or SpillLimits())
    found = tuple(
        try_allocators((DeterministicAllocator(packed=True),), file, f, target(cpu), phase, Events(), limits)
        for f in file.functions
    )
    done = [c.function for c in found if c.function is not None]
    after = print_mir(replace(file, functions=tuple(done))) if len(done) == len(found) else ""
    return Allocated(cpu, phase, text, found, after)


def with_slots_shared(done: Allocated) -> Allocated:
    """The same where values that do not wait at once share slots."""
    file = parse_mir(done.after)
    functions = tuple(map(with_shared_slots, file.functions))
    return dataclasses.replace(done, after=print_mir(replace(file, functions=functions)))


@lru_cache(maxsize=None)
def before_phase(ir: str, cpu: str, phase: Phase = "vgpr") -> str:
    """The text of IR before a phase; LLVM allocates the phases before."""
    pre = run_llc(ir, cpu, "-stop-before=greedy,0", "-enable-ipra=0", mir=False)
    if phase == "sgpr":
        return pre
    return run_llc(readable(pre), cpu, "-start-before=greedy,0", "-stop-before=greedy,2", "-enable-ipra=0")


def object_of(done: Allocated) -> str:
    """Assembly that llc makes of a text whose VGPR phase is done, its machine verifier on."""
    return run_llc(as_read(done.after, done.cpu), done.cpu, "-verify-machineinstrs", "-start-after=virtregrewriter,2")


def is_save(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("SI_SPILL_") and instruction.opcode.endswith("_SAVE")


def is_reload(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("SI_SPILL_") and instruction.opcode.endswith("_RESTORE")


def blocks_with(function: MachineFunction, kind: str) -> dict[int, int]:
    """How many instructions with ``kind`` in their opcode each block has, by number; blocks without any left out."""
    counts = {b.number: sum(kind in i.opcode for i in b.instructions) for b in function.blocks}
    return {number: count for number, count in counts.items() if count}


_KNOWN_ON_GFX90A = re.compile("must hold the address of spill slot|there are more findings")
"""Of random machine IR: it overwrites the scratch descriptor (s0 to s3), which spill code reads."""


def is_proved(done: Allocated) -> bool:
    """Whether the audit proves it. What it does not prove, no certificate is accepted for; on gfx90a it is refuted for
    the known reason, and for no other.
    """
    report = done.pair.audit()
    findings = [f for function in report.functions for f in function.findings if f.rule != "certificate"]
    known = _KNOWN_ON_GFX90A if done.cpu == "gfx90a" else re.compile("(?!)")
    assert [text for text in map(render, findings) if not known.search(text)] == []
    return report.outcome is Outcome.PROVED


def proved(done: Allocated) -> None:
    report = done.pair.audit()
    assert [render(f) for found in report.functions for f in found.findings] == []
    assert report.outcome is Outcome.PROVED


CONSTANTS = f"""
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
    %1:vgpr_32 = V_MOV_B32_e32 1078530011, implicit $exec
    %2:vgpr_32 = V_MOV_B32_e32 1076754516, implicit $exec
{reads(range(3, 9))}

  bb.1:
    successors: %bb.1(0x7c000000), %bb.2(0x04000000)
{uses(range(3, 9))}
    S_CBRANCH_SCC0 %bb.1, implicit undef $scc
    S_BRANCH %bb.2

  bb.2:
{uses([*range(3, 9), 1, 2])}
    S_ENDPGM 0
"""


def in_narrow_exec(inside: str, after: str) -> str:
    """1 to 8 are there before a branch that narrows EXEC; ``inside`` runs for some threads, ``after`` for all again."""
    return f"""
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    liveins: $vgpr0, $sgpr0
    %0:vgpr_32 = COPY $vgpr0
{reads(range(1, 9))}
    renamable $sgpr1 = S_AND_SAVEEXEC_B32 renamable $sgpr0, implicit-def $exec, implicit-def dead $scc, implicit $exec
    S_CBRANCH_EXECZ %bb.2, implicit $exec

  bb.1:
    successors: %bb.2(0x80000000)
    liveins: $sgpr1
{inside}

  bb.2:
    liveins: $sgpr1
    $exec_lo = S_OR_B32 $exec_lo, killed renamable $sgpr1, implicit-def dead $scc
{after}
    S_ENDPGM 0
"""


PRESSED = f"{reads(range(9, 13))}\n{uses(range(9, 13))}"
"""Four more values for a while."""
