"""For every shape of operands in LLVM's tables: an instruction of that shape in a small right pair of texts.

Before allocation each register operand is a virtual register that was copied from a live-in register, afterwards it is
that register; results go to others. An ``S_NOP`` behind it reads all of them. Registers that nothing else uses are
live-in too (``spare``), or not (``free``): those hold nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from campaign.subject import PROCESSORS, Subject, text
from smt_verifier.checker import DATA
from smt_verifier.checker.limits import limits
from smt_verifier.checker.tables import Opcode, Processor, Register, RegisterClass, tables

ORDER = ("implicit-def", "implicit", "internal", "dead", "killed", "undef", "early-clobber", "renamable")
"""Flags as LLVM prints them."""
_NAMES = {"v": "vgpr", "a": "agpr", "s": "sgpr", "t": "ttmp"}
_WIDE = {
    "vs_16": "vgpr_16",
    "vs_32": "vgpr_32",
    "vs_64": "vreg_64",
    "vs_64_align2": "vreg_64_align2",
    "vs_128": "vreg_128",
    "vs_16_lo128": "vgpr_16_lo128",
    "vs_32_lo128": "vgpr_32_lo128",
    "vs_32_lo256": "vgpr_32_lo256",
    "vs_64_lo256": "vreg_64_lo256_align2",
    "vregorlds_32": "vgpr_32",
    "sregorlds_32": "sreg_32",
}
"""Classes of operands of either file, and the classes that virtual registers of them have here."""
_STRINGS = {"amdgpu-flat-work-group-size": "1,64", "amdgpu-waves-per-eu": "1,1"}
_HEADER = {
    "machineFunctionInfo.isEntryFunction": "true",
    "machineFunctionInfo.scratchRSrcReg": "'$sgpr96_sgpr97_sgpr98_sgpr99'",
    "machineFunctionInfo.stackPtrOffsetReg": "'$sgpr32'",
    "machineFunctionInfo.sgprForEXECCopy": "'$sgpr100'",
}


class Skipped(Exception):
    """There is no subject of this shape; says why."""


@dataclass(frozen=True, slots=True)
class Op:
    """An operand: ``before`` and ``name`` (register without ``$``, or other text) are what the two texts have.

    Attributes:
        role: ``def``, ``use``, ``imm``, ``implicit``, ``implicit-def`` or ``mask``.
        cls: the class of the register before allocation; None for other operands.
    """

    role: str
    before: str
    name: str
    flags: frozenset[str] = frozenset()
    tied: int = -1
    cls: RegisterClass | None = None

    @property
    def is_register(self) -> bool:
        return self.role not in ("imm", "mask")

    def printed(self, *, after: bool) -> str:
        if not self.is_register:
            return self.name
        words = [w for w in ORDER if w in self.flags and (after or self.cls is None or w != "renamable")]
        if self.name.startswith("\0"):
            return " ".join([*(w for w in words if w != "renamable"), self.name[1:]])
        tied = f"(tied-def {self.tied})" if self.tied >= 0 else ""
        return " ".join([*words, ("$" + self.name if after else self.before) + tied])


@dataclass(frozen=True, slots=True)
class Instruction:
    """The instruction under attack; ``rest`` stands behind its operands (memory operands)."""

    opcode: str
    ops: tuple[Op, ...]
    flags: tuple[str, ...] = ()
    rest: str = ""

    def printed(self, *, after: bool) -> str:
        left = [op.printed(after=after) for op in self.ops if op.role == "def"]
        right = [op.printed(after=after) for op in self.ops if op.role != "def"]
        head = " ".join([*self.flags, self.opcode])
        equals = ", ".join(left) + " = " if left else ""
        return "    " + equals + head + (" " + ", ".join(right) if right else "") + self.rest


@dataclass(frozen=True, slots=True)
class Shaped:
    """A subject, and what a mutation of its instruction needs."""

    subject: Subject
    shape: int
    opcode: Opcode
    processor: Processor
    instruction: Instruction
    spare: dict[int, str]
    """By the number of an operand: a live-in register like its own, which holds something else."""
    free: dict[int, str]
    """Likewise one that holds nothing."""
    units: frozenset[int]
    """Units of the registers that the texts name."""
    read_later: bool
    """Whether ``S_NOP`` reads everything afterwards."""

    def mutated(self, instruction: Instruction) -> str:
        """The text after allocation with another instruction in its place."""
        return self.with_line(instruction.printed(after=True))

    def with_line(self, line: str) -> str:
        old = self.instruction.printed(after=True)
        return self.subject.after.replace(old + "\n", line + "\n", 1)


@lru_cache(maxsize=1)
def opcodes_by_shape() -> dict[int, tuple[str, ...]]:
    """The names of each shape's opcodes; shapes are numbered as in ``target.txt``."""
    found: dict[int, list[str]] = {}
    section = ""
    for line in (DATA / "target.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            section = line
        elif section == "[opcodes]" and not line.startswith("#"):
            name, shape = line.split("\t")
            found.setdefault(int(shape), []).append(name)
    return {shape: tuple(names) for shape, names in found.items()}


@lru_cache(maxsize=None)
def _allocatable(processor: str) -> frozenset[int]:
    strings = {**_STRINGS, "target-cpu": processor}
    return limits(processor, "amdgpu_kernel", strings, (), _HEADER).allocatable


def register_name(file: str, first: int, width: int) -> str:
    """``vgpr4_vgpr5``; ``width`` in 32-bit registers."""
    return "_".join(f"{_NAMES[file]}{n}" for n in range(first, first + width))


def _members(cls: RegisterClass) -> Iterator[Register]:
    for run in sorted(cls.runs, key=lambda r: "vsat".index(r.file)):
        for first in run.firsts:
            name = register_name(run.file, first, max(1, cls.bits // 32))
            if cls.bits == 16:
                part = run.parts[0]
                name += "" if part == "w" else f"_{part}16"
            register = tables().register(name)
            if register is not None:
                yield register
    for name in sorted(cls.specials):
        register = tables().register(name)
        if register is not None and register.units:
            yield register


class _Registers:
    """Hands out registers that do not overlap."""

    def __init__(self, processor: str) -> None:
        self.allocatable = _allocatable(processor)
        self.taken: set[int] = set()

    def new(self, cls: RegisterClass, *row: RegisterClass) -> str | None:
        for register in _members(cls):
            units = set(register.units)
            whole = {u - u % 2 for u in units} | {u - u % 2 + 1 for u in units}
            if (
                self.allocatable.issuperset(units)
                and self.taken.isdisjoint(whole)
                and all(r.contains(register) for r in row)
            ):
                self.taken |= whole
                return register.name
        return None


def _class(name: str) -> RegisterClass:
    cls = tables().register_class(_WIDE.get(name, name))
    if cls is None:
        raise Skipped(f"no registers of class {name} are known")
    return cls


def shaped(shape: int, processor: str, *, opcode_name: str = "") -> Shaped:
    """A subject for a shape.

    Raises:
        Skipped: there is none for this processor.
    """
    data = tables()
    names = opcodes_by_shape().get(shape, ())
    if not names:
        raise Skipped("no opcode has it")
    name = opcode_name or names[0]
    opcode = data.opcode(name)
    target = data.processor(processor)
    assert opcode is not None
    assert target is not None
    for trait in ("generic", "debug", "bundle", "asm-goto", "asm"):
        if trait in opcode.traits:
            raise Skipped(f"{trait} instructions stand in no such text")
    if not opcode.traits.isdisjoint(("no-code", "copy", "wwm-copy", "lane-save", "lane-restore")) or opcode.value(
        "spill"
    ):
        raise Skipped("it is a move: the part moves has it")
    registers = _Registers(processor)
    ops: list[Op] = []
    vregs: dict[int, tuple[str, str]] = {}
    rows = opcode.operands[: max((c for c in opcode.counts if c <= len(opcode.operands)), default=len(opcode.operands))]
    for number, row in enumerate(rows):
        role = "def" if number < opcode.definitions else "use"
        cls_name = row.classes[target.mode]
        early = frozenset({"early-clobber"} if row.early_clobber else ())
        if cls_name == "-":
            raise Skipped("the mode has no such operand")
        if row.kind == "branch-target":
            ops.append(Op("imm", "%bb.1", "%bb.1"))
            continue
        if row.tied_to >= 0 and row.kind in ("register", "register-or-immediate", "any"):
            tied = ops[row.tied_to]
            ops.append(Op("use", tied.before, tied.name, frozenset({"renamable"}), row.tied_to, tied.cls))
            continue
        if row.kind == "immediate" or (row.kind in ("any", "generic") and role == "use" and not cls_name):
            value = "8" if "packed-f32" in opcode.traits else "0"
            ops.append(Op("imm", value, value))
            continue
        cls = _class(cls_name or "vgpr_32")
        table = data.register_class(cls_name) if cls_name else None
        chosen = registers.new(cls, *([table] if table and table is not cls else []))
        if chosen is None:
            raise Skipped(f"no register of class {cls_name} may be allocated")
        vreg = len(vregs)
        vregs[vreg] = cls.name, chosen
        ops.append(Op(role, f"%{vreg}", chosen, early | {"renamable"}, cls=cls))
    if "call" in opcode.traits:
        ops.append(Op("mask", "csr_amdgpu", "csr_amdgpu"))
    wave32 = {"vcc": "vcc_lo"} if target.wave_size == 32 else {}
    fixed: list[str] = []
    for uses, role in ((opcode.implicit_definitions, "implicit-def"), (opcode.implicit_uses, "implicit")):
        for implicit in uses:
            implicit = wave32.get(implicit, implicit)
            ops.append(Op(role, "$" + implicit, implicit, frozenset({role})))
            fixed.append(implicit)
    for implicit in fixed:
        found = data.register(implicit)
        registers.taken.update(found.units if found else ())
    return _assembled(shape, opcode, target, name, ops, vregs, registers)


def _assembled(
    shape: int,
    opcode: Opcode,
    target: Processor,
    name: str,
    ops: list[Op],
    vregs: dict[int, tuple[str, str]],
    registers: _Registers,
) -> Shaped:
    data = tables()
    spare: dict[int, str] = {}
    free: dict[int, str] = {}
    for number, op in enumerate(ops):
        if op.cls is not None:
            table = opcode.operands[number].classes
            row = data.register_class(table[target.mode])
            more = [row] if row is not None and row is not op.cls else []
            for found in (spare, free):
                chosen = registers.new(op.cls, *more)
                if chosen is not None:
                    found[number] = chosen
    rest = ""
    if not opcode.traits.isdisjoint(("may-load", "may-store")):
        way = {(True, False): "load", (False, True): "store"}.get(
            ("may-load" in opcode.traits, "may-store" in opcode.traits), "load store"
        )
        where = {"load": "from", "store": "into"}.get(way, "on")
        rest = f" :: ({way} (s32) {where} %ir.p, addrspace 1)"
    instruction = Instruction(name, tuple(ops), (), rest)
    used = [o for o in ops if o.cls is not None]
    inputs = [o for o in used if o.role == "use"]
    sources = list(dict.fromkeys(o.name for o in inputs))
    setup: list[str] = []
    implicit = {o.name for o in ops if o.role.startswith("implicit")}
    if "scc" in implicit:
        setup.append("    S_CMP_EQ_U32 0, 0, implicit-def $scc")
    for vcc in sorted(implicit & {"vcc", "vcc_lo", "vcc_hi"}):
        setup.append(f"    ${vcc} = S_MOV_B{64 if vcc == 'vcc' else 32} 0")
    results = list(dict.fromkeys(o.name for o in ops if o.role == "implicit-def"))
    results = [r for r in results if r not in ("exec", "exec_lo", "mode")]
    before, after = list(setup), list(setup)
    done: set[str] = set()
    for o in inputs:
        if o.before not in done:
            done.add(o.before)
            before.append(f"    {o.before}:{vregs[int(o.before[1:])][0]} = COPY ${o.name}")
    line = instruction.printed(after=False)
    for o in used:
        if o.before not in done:
            done.add(o.before)
            line = line.replace(o.before, f"{o.before}:{vregs[int(o.before[1:])][0]}", 1)
    before.append(line)
    after.append(instruction.printed(after=True))
    ends = not opcode.traits.isdisjoint(("return", "returns", "barrier")) and "branch" not in opcode.traits
    follows = "terminator" in opcode.traits and not ends
    fixed_reads = [f"implicit ${r}" for r in results]
    names = {o.before: o.name for o in used}
    reads = {
        False: ["implicit " + v for v in names] + fixed_reads,
        True: [f"implicit renamable ${n}" for n in names.values()] + fixed_reads,
    }
    liveins = [*sources, *spare.values()]
    head = "    liveins: " + ", ".join("$" + n for n in liveins)
    entry = ["  bb.0:", *(["    successors: %bb.1(0x80000000)"] if follows else []), *([head] if liveins else []), ""]
    tails: dict[bool, list[str]] = {}
    for is_after in (False, True):
        tail: list[str] = []
        if follows:
            here = list(dict.fromkeys(n for n in [*names.values(), *results] if n != "scc"))
            tail += ["", "  bb.1:"] + (["    liveins: " + ", ".join("$" + n for n in here)] if here else []) + [""]
        if not ends:
            tail.append(
                "    S_NOP 0" + "".join(", " + r for r in reads[is_after] if not (follows and r.endswith("$scc")))
            )
            tail.append("    S_ENDPGM 0")
        tails[is_after] = tail
    classes = {v: c for v, (c, _) in vregs.items()}
    texts = [
        text(
            target.name, [*entry, *body, *tails[is_after]], registers={} if is_after else classes, virtual=not is_after
        )
        for body, is_after in ((before, False), (after, True))
    ]
    units = {u for n in [*names.values(), *implicit, *spare.values()] if (r := data.register(n)) for u in r.units}
    subject = Subject(f"{shape} {name} {target.name}", target.name, *texts)
    return Shaped(subject, shape, opcode, target, instruction, spare, free, frozenset(units), not ends)


def all_shapes() -> list[int]:
    """Numbers of the shapes."""
    return sorted(opcodes_by_shape())


def processors_for(shape: int) -> tuple[str, ...]:
    """Processors in the order in which this shape tries them."""
    turn = shape % len(PROCESSORS)
    return PROCESSORS[turn:] + PROCESSORS[:turn]
