"""What tests are made of: allocation problems, machine functions and kernels, small and by hand.

Problems: ``live`` and ``problem`` give every field by number; ``live_of`` and ``problem_of`` go by register class;
``problem_of_body`` and ``problem_of_text`` build the problem of machine IR. Machine IR: ``mir_text``, ``mir_file``,
``machine_function``, and ``machine_code`` for few registers. LLVM IR: ``kernel`` around ``loads``, ``loop`` and
``stores``.
Random ones are in ``allocators_support``, ``analysis_support``, ``random_ir`` and ``random_mir``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import (
    AllocationProblem,
    BankBudget,
    FixedOccupation,
    LaneGroup,
    LiveRange,
    Occupancy,
    Segment,
)
from verilocc_mlir.target.classes import register_class
from verilocc_mlir.target.targets import target


def live(number: int, *segments: tuple[int, int], width: int = 1, align: int = 1, **other: Any) -> LiveRange:
    """A VGPR range live in all its lanes; ``other`` replaces fields."""
    plain = LiveRange(
        id=number, name=f"%{number}", banks=("vgpr",), width=width, lanes=2 * width, align=align, limit=0,
        register_class="vgpr_32", groups=(LaneGroup((1 << 2 * width) - 1, segments),), points=(), weight=1.0,
    )  # fmt: skip
    return replace(plain, **other)


def problem(*ranges: LiveRange, registers: int = 8, phase: str = "vgpr", **other: Any) -> AllocationProblem:
    """A problem over ``registers`` registers of the phase's file; ``other`` replaces fields."""
    plain = AllocationProblem(
        version=1, target="gfx942", function="f", phase=phase, slots=100, block_starts=(0,), block_depths=(0,),
        ranges=ranges, affinities=(), fixed=(),
        budgets=(BankBudget("sgpr" if phase == "sgpr" else "vgpr", tuple(range(registers))),),
        occupancy=Occupancy(8, 512, 8, True),
    )  # fmt: skip
    return replace(plain, **other)


def live_of(register_class_name: str, *groups: tuple[int, list[Segment]], weight: float = 1.0) -> LiveRange:
    """A live range of a class; its id is set by ``problem_of``. No groups given: all lanes during [2, 10)."""
    cls = register_class(register_class_name)
    banks = {bank.value for bank in cls.banks} & {"vgpr", "agpr", "sgpr"}
    if "vcc" in cls.specials or "vcc_lo" in cls.specials:
        banks.add("special")
    return LiveRange(
        id=-1,
        name="",
        banks=tuple(sorted(banks)),
        width=cls.width,
        lanes=cls.lanes,
        align=max(cls.alignment(bank) for bank in cls.banks),
        limit=cls.limit,
        register_class=register_class_name,
        groups=tuple(LaneGroup(lanes, tuple(s)) for lanes, s in groups or [((1 << cls.lanes) - 1, [(2, 10)])]),
        points=(),
        weight=weight,
    )


def problem_of(
    *ranges: LiveRange,
    fixed: tuple[FixedOccupation, ...] = (),
    vgprs: tuple[int, ...] = tuple(range(16)),
    agprs: tuple[int, ...] = tuple(range(16)),
    sgprs: tuple[int, ...] = tuple(range(16)),
    special: tuple[str, ...] = ("vcc", "vcc_lo", "vcc_hi"),
    slots: int = 40,
) -> AllocationProblem:
    """A problem over registers of all files; the ranges are numbered here."""
    numbered = [replace(r, id=k, name=f"%{k}") for k, r in enumerate(ranges)]
    budgets = (BankBudget("agpr", agprs), BankBudget("sgpr", sgprs), BankBudget("vgpr", vgprs))
    return problem(*numbered, budgets=budgets, fixed=fixed, special=special, slots=slots)


def problem_of_body(body: str, phase: Phase = "vgpr", cpu: str = "gfx942", **registers: str) -> AllocationProblem:
    """The problem of the function with this body; ``v5="vgpr_32"`` for a register whose class no operand carries."""
    file = mir_file(body, registers={int(k[1:]): v for k, v in registers.items()})
    return build_problem(file, file.functions[0], target(cpu), phase)


def problem_of_text(text: str, cpu: str = "gfx942", phase: Phase = "vgpr", number: int = 0) -> AllocationProblem:
    """The problem of one function of machine IR."""
    file = parse_mir(text)
    return build_problem(file, file.functions[number], target(cpu), phase)


_PREAMBLE = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @{name}() {limits}{{
    unreachable
  }}
...
"""


def preamble(name: str = "f", limits: str = "") -> str:
    """The IR document before a MIR document: one kernel, with these attributes."""
    return _PREAMBLE.format(name=name, limits=limits)


def mir_text(body: str, *, name: str = "f", registers: dict[int, str] | None = None) -> str:
    """A MIR document; classes of registers that no operand carries go into ``registers``."""
    rows = dict(registers or {})
    for number, cls in re.findall(r"%(\d+)(?:\.\w+)?:(\w+)", body):
        rows.setdefault(int(number), cls)
    table = "".join(
        f"  - {{ id: {n}, class: {c}, preferred-register: '', flags: [  ] }}\n" for n, c in sorted(rows.items())
    )
    lines = "\n".join(line.rstrip() for line in body.strip("\n").split("\n"))
    return (
        f"---\nname:            {name}\ntracksRegLiveness: true\nnoPhis:          true\nisSSA:           false\n"
        f"registers:\n{table}machineFunctionInfo:\n  isEntryFunction: true\n"
        f"  scratchRSrcReg:  '$private_rsrc_reg'\n  stackPtrOffsetReg: '$sgpr32'\nbody:             |\n{lines}\n...\n"
    )


def mir_file(body: str, *, registers: dict[int, str] | None = None) -> MirFile:
    """A file with one kernel ``f``."""
    return parse_mir(preamble() + mir_text(body, registers=registers))


def machine_function(body: str, *, registers: dict[int, str] | None = None) -> MachineFunction:
    """The function with this body."""
    return mir_file(body, registers=registers).functions[0]


def machine_code(body: str, registers: int, *, registers_of: dict[int, str] | None = None) -> str:
    """MIR of a kernel ``@f`` with this body and so many registers of each kind."""
    limits = f'"amdgpu-num-vgpr"="{registers}" "amdgpu-num-sgpr"="{registers}" '
    return preamble(limits=limits) + mir_text(body, registers=registers_of)


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


def waiting(count: int) -> list[str]:
    """Names of what ``loads`` makes."""
    return [f"%v{k}" for k in range(count)]


def many_scalars() -> str:
    """60 values around a loop that are the same in all threads, and that no instruction can make again."""
    lines: list[str] = []
    for k in range(60):
        lines.append(f"  %up{k} = getelementptr i32, ptr addrspace(1) %p, i32 {300 * k}")
        lines.append(f"  %ul{k} = load volatile i32, ptr addrspace(1) %up{k}")
        lines.append(f"  %u{k} = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %ul{k})")
    body = [*lines, *loop(stores(["%u3", "%u5"])), *stores([f"%u{k}" for k in range(60)])]
    return kernel(body, 0, scalars=40) + "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n"


TWO_FUNCTIONS = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @first(ptr addrspace(1) %p, i32 %n) #0 {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, %n
  %c = icmp ugt i32 %w, 9
  br i1 %c, label %then, label %end
then:
  store i32 %w, ptr addrspace(1) %q
  br label %end
end:
  ret void
}
define amdgpu_kernel void @second(ptr addrspace(1) %p) #0 {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %id
  %v = load <4 x i32>, ptr addrspace(1) %q
  %s = shufflevector <4 x i32> %v, <4 x i32> poison, <4 x i32> <i32 3, i32 2, i32 1, i32 0>
  %w = add <4 x i32> %v, %s
  store <4 x i32> %w, ptr addrspace(1) %q
  ret void
}
attributes #0 = { "target-cpu"="gfx942" }
"""
