"""Shared by the analysis and problem tests: small machine functions from a body, and random ones."""

from __future__ import annotations

import random
import re

from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir

PREAMBLE = """--- |
  target triple = "amdgcn-amd-amdhsa"
  define amdgpu_kernel void @{name}() {{
    unreachable
  }}
...
"""


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
    return parse_mir(PREAMBLE.format(name="f") + mir_text(body, registers=registers))


def machine_function(body: str, *, registers: dict[int, str] | None = None) -> MachineFunction:
    """The function with this body."""
    return mir_file(body, registers=registers).functions[0]


_SHAPES = {"vgpr_32": 1, "vreg_64": 2, "vreg_128": 4, "sreg_32": 1, "sreg_64": 2, "sgpr_128": 4}


def random_body(seed: int, *, blocks: int = 6, registers: int = 6, length: int = 5) -> str:
    """A random function body: any control flow, partial definitions, ``undef``, IMPLICIT_DEF, early-clobber, copies.

    Every register is (partly) defined in the entry block, as LLVM's LiveIntervals require.
    """
    rng = random.Random(seed)
    classes = [rng.choice(list(_SHAPES)) for _ in range(registers)]
    lines: list[str] = []
    edges: list[set[int]] = [set() for _ in range(blocks)]
    for number in range(1, blocks):
        edges[rng.randrange(number)].add(number)  # every block is reachable
    for number in range(blocks):
        edges[number].update(rng.sample(range(1, blocks), rng.choice((0, 0, 1, 1))))
    for number in range(blocks):
        targets = sorted(edges[number])
        lines.append(f"  bb.{number}:")
        listed = ", ".join(f"%bb.{t}(0x40000000)" for t in targets)
        lines.append(f"    successors: {listed}\n" if targets else "")
        if number == 0:
            lines += [_start(rng, r, cls) for r, cls in enumerate(classes)]
        for _ in range(rng.randrange(length + 1)):
            lines.append(_random_instruction(rng, classes))
        for target in targets[1:]:
            lines.append(f"    S_CBRANCH_SCC0 %bb.{target}, implicit undef $scc")
        if targets and targets[0] != number + 1:
            lines.append(f"    S_BRANCH %bb.{targets[0]}")
        elif not targets:
            lines.append("    S_ENDPGM 0")
    return "\n".join(lines)


def _start(rng: random.Random, number: int, cls: str) -> str:
    if _SHAPES[cls] > 1 and rng.random() < 0.5:
        return _write(rng, number, cls, undef=True)
    return f"    %{number}:{cls} = IMPLICIT_DEF" if rng.random() < 0.4 else _write(rng, number, cls, undef=None)


def _write(rng: random.Random, number: int, cls: str, *, undef: bool | None) -> str:
    """A definition: of the whole register for ``undef`` None, else of a part."""
    move = "S_MOV_B32 0" if cls.startswith("s") else "V_MOV_B32_e32 0, implicit $exec"
    if undef is None or _SHAPES[cls] == 1:
        if _SHAPES[cls] == 1:
            return f"    %{number}:{cls} = {move}"
        early = "early-clobber " if rng.random() < 0.5 else ""
        return f"    S_NOP 0, implicit-def {early}%{number}:{cls}"
    sub = f"sub{rng.randrange(_SHAPES[cls])}"
    return f"    {'undef ' if undef else ''}%{number}.{sub}:{cls} = {move}"


def _random_instruction(rng: random.Random, classes: list[str]) -> str:
    number = rng.randrange(len(classes))
    cls = classes[number]
    kind = rng.random()
    if kind < 0.2:
        return _write(rng, number, cls, undef=None)
    if kind < 0.45:
        return _write(rng, number, cls, undef=rng.random() < 0.4)
    if kind < 0.5:
        return f"    %{number}:{cls} = IMPLICIT_DEF"
    width = _SHAPES[cls]
    low = rng.randrange(width)
    high = rng.randrange(low, width)
    if cls.startswith("s") and low % 2:
        high = low  # scalar parts of several registers are aligned
    whole = (low, high) == (0, width - 1)
    sub = "" if whole or rng.random() < 0.3 else "." + "_".join(f"sub{k}" for k in range(low, high + 1))
    undef = "undef " if rng.random() < 0.1 else ""
    return f"    S_NOP 0, implicit {undef}%{number}{sub}"
