"""Shared by the tests of spilling: functions with few registers, what our allocation makes of them, and its proof."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from allocation import Pair
from allocators_support import as_read
from analysis_support import mir_text
from support import readable, run_llc

from verilocc_mlir.allocators import allocator
from verilocc_mlir.mir.model import Instruction, MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.attempt import AttemptLimits, Candidate, SpillLimits, try_allocators
from verilocc_mlir.pipeline.clock import Clock
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.target.targets import target

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
NOTHING_SPILLED = SpillLimits(spare=())


@dataclass(frozen=True)
class Allocated:
    """One phase of a file: the text before it, what was tried for each function, and the text after it."""

    cpu: str
    phase: Phase
    before: str
    candidates: tuple[Candidate, ...]
    after: str

    @property
    def pair(self) -> Pair:
        return Pair(self.cpu, self.before, self.after)

    @property
    def candidate(self) -> Candidate:
        (candidate,) = self.candidates
        return candidate

    @property
    def function(self) -> MachineFunction:
        (function,) = parse_mir(self.after).functions
        return function


@lru_cache(maxsize=None)
def allocate(before: str, cpu: str, phase: Phase = "vgpr", spills: SpillLimits | None = None) -> Allocated:
    """Our allocation of one phase of a text; ``after`` is ``""`` where a function got none."""
    text = as_read(before, cpu)
    file = parse_mir(text, "before.mir")
    limits = AttemptLimits(60.0, spills=spills or SpillLimits())
    found = tuple(
        try_allocators((allocator("deterministic"),), file, f, target(cpu), phase, Clock(), limits)
        for f in file.functions
    )
    done = [c.function for c in found if c.function is not None]
    after = print_mir(replace(file, functions=tuple(done))) if len(done) == len(found) else ""
    return Allocated(cpu, phase, text, found, after)


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


def kernel(body: Sequence[str], registers: int, *, convention: str = "amdgpu_kernel void", scalars: int = 0) -> str:
    """IR of ``@k(p, o, n)`` with ``%t`` the thread's number, and only so many vector registers.

    With a unified file ``amdgpu-num-vgpr`` counts half of them.
    """
    limits = f'"amdgpu-num-vgpr"="{registers}" ' if registers else ""
    limits += f'"amdgpu-num-sgpr"="{scalars}" ' if scalars else ""
    return "\n".join(
        [
            'target triple = "amdgcn-amd-amdhsa"',
            "declare i32 @llvm.amdgcn.workitem.id.x()",
            f"define {convention} @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n) {limits}{{",
            "entry:",
            "  %t = call i32 @llvm.amdgcn.workitem.id.x()",
            *body,
            "  ret void",
            "}",
            "",
        ]
    )  # fmt: skip


def loads(count: int, name: str = "v", first: int = 0) -> list[str]:
    """Values that no instruction can make again: ``%v0``, ``%v1`` … from memory, one for each thread."""
    lines: list[str] = []
    for k in range(count):
        lines.append(f"  %{name}i{k} = add i32 %t, {1000 * (first + k)}")
        lines.append(f"  %{name}p{k} = getelementptr i32, ptr addrspace(1) %p, i32 %{name}i{k}")
        lines.append(f"  %{name}{k} = load volatile i32, ptr addrspace(1) %{name}p{k}")
    return lines


def stores(names: Sequence[str]) -> list[str]:
    """Each of these values is stored."""
    return [f"  store volatile i32 {name}, ptr addrspace(1) %o" for name in names]


def loop(body: Sequence[str], *, label: str = "loop", came_from: str = "entry", bound: str = "%n") -> list[str]:
    """A loop around ``body``; it has the counter ``%{label}i`` and ends in block ``{label}x``."""
    return [
        f"  br label %{label}",
        f"{label}:",
        f"  %{label}i = phi i32 [0, %{came_from}], [%{label}j, %{label}]",
        *body,
        f"  %{label}j = add i32 %{label}i, 1",
        f"  %{label}c = icmp ult i32 %{label}j, {bound}",
        f"  br i1 %{label}c, label %{label}, label %{label}x",
        f"{label}x:",
    ]


_PREAMBLE = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @f() {limits} {{
    unreachable
  }}
...
"""


MFMA = "\n".join(
    [
        "  bb.0:",
        "    liveins: $vgpr0, $vgpr1",
        "    %0:vgpr_32 = COPY $vgpr0",
        "    %1:vreg_512_align2 = IMPLICIT_DEF",
        "    early-clobber %2:vreg_512_align2 = V_MFMA_F32_32X32X2F32_vgprcd_e64 %0, %0, %1, 0, 0, 0, "
        "implicit $mode, implicit $exec",
        "    DS_WRITE_B32_gfx9 %0, %2.sub5, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
        "    S_ENDPGM 0",
    ]
)
"""Body of a function in which one MFMA reads and writes 16 registers each."""


def machine_code(body: str, registers: int, *, registers_of: dict[int, str] | None = None) -> str:
    """MIR of a kernel ``@f`` with this body and so many registers of each kind."""
    limits = f'"amdgpu-num-vgpr"="{registers}" "amdgpu-num-sgpr"="{registers}"'
    return _PREAMBLE.format(limits=limits) + mir_text(body, registers=registers_of)


def reads(names: Sequence[int], address: str = "%0") -> str:
    """Values from memory, one vector register each."""
    return "\n".join(
        f"    %{k}:vgpr_32 = DS_READ_B32_gfx9 {address}, {4 * k}, 0, implicit $exec :: (load (s32), addrspace 3)"
        for k in names
    )


def uses(names: Sequence[int | str], address: str = "%0") -> str:
    """Each value is written to memory."""
    return "\n".join(
        f"    DS_WRITE_B32_gfx9 {address}, {n if isinstance(n, str) else f'%{n}'}, 0, 0, implicit $exec "
        ":: (store (s32), addrspace 3)"
        for n in names
    )


def change(done: Allocated, old: str, new: str | Callable[[re.Match[str]], str]) -> Pair:
    """The text after allocation with the first match of ``old`` in the body replaced."""
    at = done.after.index("body:")
    text, count = re.subn(old, new, done.after[at:], count=1, flags=re.MULTILINE)
    assert count == 1, f"{old} is not in the text:\n{done.after[at:]}"
    return Pair(done.cpu, done.before, done.after[:at] + text)


def many_scalars() -> str:
    """60 values around a loop that are the same in all threads, and that no instruction can make again."""
    lines: list[str] = []
    for k in range(60):
        lines.append(f"  %up{k} = getelementptr i32, ptr addrspace(1) %p, i32 {300 * k}")
        lines.append(f"  %ul{k} = load volatile i32, ptr addrspace(1) %up{k}")
        lines.append(f"  %u{k} = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %ul{k})")
    body = [*lines, *loop(stores(["%u3", "%u5"])), *stores([f"%u{k}" for k in range(60)])]
    return kernel(body, 0, scalars=40) + "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n"
