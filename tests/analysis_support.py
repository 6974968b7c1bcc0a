"""Shared by the analysis and problem tests: small machine functions from a body, and random ones."""

from __future__ import annotations

import random

from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand
from verilocc_mlir.target.classes import RegisterClass
from verilocc_mlir.target.registers import lane_list, physical_register, subregister_lanes

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


BASIC = ("-sgpr-regalloc=basic", "-wwm-regalloc=basic", "-vgpr-regalloc=basic")


class NotComparable(Exception):
    """LLVM spilled or inserted something, so that registers do not map one to one."""


def align(
    pre: MachineFunction, post: MachineFunction, classes: dict[int, RegisterClass], scalar: bool
) -> dict[int, tuple[int, ...]]:
    """Units that LLVM gave to each virtual register of one kind, by walking both texts."""
    placed: dict[int, tuple[int, ...]] = {}
    dropped: list[Instruction] = []
    if len(pre.blocks) != len(post.blocks):
        raise NotComparable("blocks")
    for a, b in zip(pre.blocks, post.blocks, strict=True):
        rest = list(b.instructions)
        at = 0
        for instruction in a.instructions:
            other = rest[at] if at < len(rest) else None
            if other is not None and _same(instruction, other, placed, classes, scalar):
                at += 1
            elif instruction.opcode == "COPY":
                dropped.append(instruction)
            else:
                raise NotComparable(f"{instruction} / {other}")
        if at != len(rest):
            raise NotComparable(f"extra {rest[at]}")
    for copy in dropped:
        ends = [_units(op, placed) for op in copy.all_operands[:2]]
        if ends[0] != ends[1] and not copy.operands[0].undef:
            raise NotComparable(f"vanished {copy}")
    return placed


def _units(operand: Operand, placed: dict[int, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Units an operand covers after allocation; None for a register that is not placed yet."""
    if operand.phys:
        return physical_register(operand.phys).units
    whole = placed.get(operand.vreg)
    if whole is None:
        return None
    return tuple(whole[k] for k in lane_list(subregister_lanes(operand.sub))) if operand.sub else whole


def _same(
    a: Instruction,
    b: Instruction,
    placed: dict[int, tuple[int, ...]],
    classes: dict[int, RegisterClass],
    scalar: bool,
) -> bool:
    """Whether ``b`` is ``a`` after allocation; if so, what it places is added to ``placed``."""
    if a.opcode != b.opcode and not (a.opcode == "COPY" and b.opcode == "KILL"):
        return False
    found: dict[int, tuple[int, ...]] = {}
    if len(a.all_operands) > len(b.all_operands):
        return False
    for x, y in zip(a.all_operands, b.all_operands, strict=False):
        if x.vreg < 0:
            if x.phys != y.phys and (x.phys, y.phys) not in {("vcc", "vcc_lo"), ("vcc_lo", "vcc")}:
                return False
            if not x.phys and x.kind is not y.kind:
                return False
            continue
        if classes[x.vreg].is_scalar is not scalar or not y.phys:
            continue
        lanes = lane_list(subregister_lanes(x.sub)) if x.sub else tuple(range(classes[x.vreg].lanes))
        units = physical_register(y.phys).units
        if len(units) != len(lanes):
            return False
        if x.vreg in placed:
            if tuple(placed[x.vreg][k] for k in lanes) != units:
                return False
        else:
            first = units[0] - lanes[0]
            whole = tuple(range(first, first + classes[x.vreg].lanes))
            if tuple(whole[k] for k in lanes) != units:
                return False
            found[x.vreg] = whole
    placed.update(found)
    return True
