"""Faults that no run shows: what the text says untruly of the machine function around its instructions.

A short list of the oracle's own, written from what LLVM's later passes believe: PrologEpilogInserter and
SIFrameLowering (calls, alignment, stack objects), alias analysis over memory operands (scheduler, clustering), the
expansion of pseudo instructions (implicit operands). Each function gives the first fault in words, or ``""``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind, StackObject
from verilocc_mlir.target.registers import physical_register

_ALLOCATED = ("registers", "liveins", "stack", "fixedStack", "body", "name")
_MAY_CHANGE = frozenset({
    "noVRegs", "failsVerification", "tracksDebugUserValues", "isSSA", "frameInfo.hasCalls", "frameInfo.adjustsStack",
    "frameInfo.maxAlignment", "frameInfo.isCalleeSavedInfoValid", "machineFunctionInfo.occupancy",
    "machineFunctionInfo.hasSpilledSGPRs", "machineFunctionInfo.hasSpilledVGPRs", "machineFunctionInfo.wwmReservedRegs",
    "machineFunctionInfo.spillPhysVGPRs", "machineFunctionInfo.sgprForEXECCopy", "machineFunctionInfo.vgprForAGPRCopy",
})  # fmt: skip
"""Each has a rule of its own below, or is nothing that later passes rely on."""
_SIZE = re.compile(r"\bsize: \d+, ")
_NOT_OF_THE_MACHINE = re.compile(r"\b(?:id|name|debug-info-\w+): '?[^,}]*'?")
_SPILL = re.compile(r"SI_SPILL_(?:WWM_)?(S|V|A|AV)(\d+)_(SAVE|RESTORE)\Z")
_ACCESS = re.compile(
    r"(?P<flags>(?:[a-z\"-]+ )*?)(?P<way>load|store) \(s(?P<bits>\d+)\) (?:from|into) %stack\.(?P<slot>\d+)(?:\.\w+)?"
    r"(?: \+ (?P<offset>\d+))?(?:, align (?P<align>\d+))?"
    r"(?:, basealign (?P<base>\d+))?(?:, addrspace (?P<space>\d+))?\Z"
)
_HARMLESS_FLAGS = frozenset({"volatile", "dereferenceable", "non-temporal"})
"""A volatile access stays where it is; a slot may be read at any time; neither lets it pass a save of the slot."""
_SPECIAL = frozenset({"exec", "mode", "m0", "scc", "vcc", "flat_scr"})


def header_fault(pre: MachineFunction, post: MachineFunction) -> str:
    """The YAML part."""
    before, after = fields(pre), fields(post)
    for key in sorted(before.keys() | after.keys()):
        if key not in _MAY_CHANGE and before.get(key) != after.get(key):
            return f"header field {key} was {before.get(key)} and is {after.get(key)}"
    body = [i for b in post.blocks for i in b.instructions]
    calls = any(op.kind is OperandKind.REGMASK for i in body for op in i.operands)
    for key, used in (("hasCalls", calls), ("adjustsStack", any("CALLSTACK" in i.opcode for i in body))):
        if used and after.get(f"frameInfo.{key}") == "false":
            return f"frameInfo.{key} is false, but there are calls"
    return (
        _alignment_fault(before, after, post)
        or _objects_fault(pre, post)
        or _reserved_fault(before, after, post)
        or ("the live-in registers changed" if [r.reg for r in pre.liveins] != [r.reg for r in post.liveins] else "")
    )


def fields(function: MachineFunction) -> dict[str, str]:
    """Scalar fields of the header by path; a list is one field."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in function.header_lines:
        depth = len(line) - len(line.lstrip())
        text = line.strip()
        if text.startswith("- ") or not re.match(r"[\w-]+:", text):
            if path:
                found[".".join(k for _, k in path)] = found.get(".".join(k for _, k in path), "") + text
            continue
        while path and path[-1][0] >= depth:
            path.pop()
        key, _, value = text.partition(":")
        path.append((depth, key))
        if path[0][1] not in _ALLOCATED:
            found[".".join(k for _, k in path)] = " ".join(value.split())
    return {k: v for k, v in found.items() if k.split(".")[0] not in _ALLOCATED and v}


def _alignment_fault(before: dict[str, str], after: dict[str, str], post: MachineFunction) -> str:
    objects = [row.alignment for row in (*post.stack.values(), *post.fixed_stack.values()) if row.alignment]
    highest, said = max(objects, default=1), int(after.get("frameInfo.maxAlignment", "1") or 1)
    # Lower does no harm: reading the objects raises it (MIRParserImpl::initializeFrameInfo).
    if said > max(highest, 4, int(before.get("frameInfo.maxAlignment", "1") or 1)):
        return f"maxAlignment is {said}, no object has more than {highest}"
    return ""


def _plain(text: str) -> str:
    return " ".join(_NOT_OF_THE_MACHINE.sub("", text).split())


def _object(row: StackObject) -> str:
    return _SIZE.sub("", _plain(row.text)) if row.type == "spill-slot" else _plain(row.text)


def _objects_fault(pre: MachineFunction, post: MachineFunction) -> str:
    """LLVM numbers objects in the order they are listed, so that is how they correspond. A slot for spills may have
    another size: what is stored outside it is told by the runs.
    """
    left, right = list(pre.stack.values()), list(post.stack.values())
    if [_object(r) for r in left] != [_object(r) for r in right[: len(left)]]:
        return "the stack objects changed"
    fixed = [Counter(_plain(r.text) for r in f.fixed_stack.values()) for f in (pre, post)]
    if fixed[0] != fixed[1]:
        return "the fixed stack objects changed"
    for row in right[len(left) :]:
        if row.type != "spill-slot" or row.alignment < 2 or row.alignment & (row.alignment - 1) or row.size <= 0:
            return f"no slot for spills: {_plain(row.text)}"
        if (
            not re.search(r"stack-id: (?:default|sgpr-spill)\b", row.text)
            or "callee-saved-register: ''" not in row.text
        ):
            return f"no slot for spills: {_plain(row.text)}"
    return ""


def _reserved_fault(before: dict[str, str], after: dict[str, str], post: MachineFunction) -> str:
    named: set[int] | None = None
    for key in ("wwmReservedRegs", "spillPhysVGPRs"):
        lists = [set(re.findall(r"\$\w+", side.get(f"machineFunctionInfo.{key}", ""))) for side in (before, after)]
        if lists[0] - lists[1]:
            return f"{sorted(lists[0] - lists[1])[0]} is no longer in {key}"
    for key in ("sgprForEXECCopy", "vgprForAGPRCopy"):
        said = [side.get(f"machineFunctionInfo.{key}", "''").strip("'$") for side in (before, after)]
        if said[1] and said[1] != said[0]:
            if named is None:
                named = {u for i in _instructions(post) for op in i.all_operands if op.phys and op.is_reg
                         for u in physical_register(op.phys).units}  # fmt: skip
            if named & set(physical_register(said[1]).units):
                return f"{key} is ${said[1]}, which is used"
    return ""


def _instructions(function: MachineFunction) -> Iterator[Instruction]:
    for block in function.blocks:
        yield from block.instructions


def spill_fault(post: MachineFunction) -> str:
    """Memory operands of spill code: alias analysis and the expansion of spills believe the first one."""
    for one in _instructions(post):
        match = _SPILL.match(one.opcode)
        if match is None:
            continue
        fault = _access_fault(post, one, match[1], int(match[2]), match[3] == "SAVE")
        if fault:
            return f"{fault}: {one}"
    return ""


def _access_fault(post: MachineFunction, one: Instruction, kind: str, bits: int, save: bool) -> str:
    if len(one.memory) != 1:
        return f"{len(one.memory)} memory operands"
    access = _ACCESS.match(one.memory[0])
    if access is None:
        return "a memory operand that names no slot"
    frame = next((op for op in one.all_operands if op.kind is OperandKind.FRAME_INDEX), None)
    number = re.match(r"%stack\.(\d+)", frame.text) if frame is not None else None
    row = post.stack.get(int(access["slot"]))
    if number is None or row is None or number[1] != access["slot"]:
        return "the memory operand is of another slot"
    if (access["way"] == "store") != save:
        return "the memory operand moves the other way"
    if set(access["flags"].split()) - _HARMLESS_FLAGS:
        return f"the memory operand is {access['flags'].strip()}"
    place = next((int(op.text) for op in one.operands if op.kind is OperandKind.IMMEDIATE), 0)
    first, size = int(access["offset"] or 0), int(access["bits"]) // 8
    if first > place or first + size < place + bits // 8:
        return "the memory operand does not cover the access"
    if access["space"] != "5":
        return "the memory operand is of another address space"
    natural = size & -size if access["offset"] is None else 1
    if max(int(access["align"] or natural), int(access["base"] or 1)) > max(row.alignment, natural if size <= 4 else 0):
        return "the memory operand is aligned, the slot is not"
    scalar = "stack-id: sgpr-spill" in row.text
    if scalar != (kind == "S"):
        return "a slot of the other register file"
    return ""


def _implicit(operands: Iterable[Operand], *, special: bool) -> Counter[tuple[str, bool, bool]]:
    found: Counter[tuple[str, bool, bool]] = Counter()
    for op in operands:
        if op.implicit and op.is_reg and op.phys:
            name = {"vcc_lo": "vcc", "exec_lo": "exec"}.get(op.phys, op.phys)
            if not special or name in _SPECIAL:
                found[name, op.is_def, op.early_clobber] += 1
    return found


def implicit_fault(pre: Instruction, post: Instruction) -> str:
    """Of a pair that must stand on both sides: what it reads and writes besides is the opcode's business."""
    before, after = (_implicit(i.all_operands, special=False) for i in (pre, post))
    if missing := before - after:
        return f"implicit operand {next(iter(missing))} is missing at {post}"
    live = {op.phys for op in pre.operands if op.implicit and op.is_use and op.phys and not op.undef}
    lost = [op.phys for op in post.operands if op.implicit and op.is_use and op.undef and op.phys in live]
    return f"${lost[0]} is no longer read at {post}" if lost else ""


def repeated_fault(pre: MachineFunction, post: MachineFunction) -> str:
    """Any instruction of an opcode reads and writes the same special registers; so one that is repeated does."""
    known: dict[str, list[tuple[Counter[tuple[str, bool, bool]], tuple[str, ...]]]] = {}
    for one in _instructions(pre):
        known.setdefault(one.opcode, []).append((_implicit(one.all_operands, special=True), _objectless(one)))
    for one in _instructions(post):
        if one.opcode in known and one.opcode not in ("COPY", "KILL", "IMPLICIT_DEF", "INLINEASM", "BUNDLE"):
            own = _implicit(one.all_operands, special=True)
            if all(other - own for other, _ in known[one.opcode]):
                return f"special registers of its opcode are missing at {one}"
            if one.memory and not _SPILL.match(one.opcode) and all(_objectless(one) != m for _, m in known[one.opcode]):
                return f"memory operands of {one} are those of no such instruction"
    return ""


def _objectless(one: Instruction) -> tuple[str, ...]:
    """Memory operands but for the numbers of stack objects, which may differ."""
    return tuple(re.sub(r"%(fixed-)?stack\.\d+", "%stack", m) for m in one.memory)


def edges_fault(pre: MachineFunction, post: MachineFunction) -> str:
    """Successors, in order: the first is where control falls through."""
    if len(pre.blocks) != len(post.blocks):
        return f"{len(pre.blocks)} blocks became {len(post.blocks)}"
    for a, b in zip(pre.blocks, post.blocks, strict=True):
        left, right = {x.number: n for n, x in enumerate(pre.blocks)}, {x.number: n for n, x in enumerate(post.blocks)}
        if [left[s] for s, _ in a.successors] != [right.get(s, -1) for s, _ in b.successors]:
            return f"the successors of bb.{b.number} changed"
    return ""


_GROUP = re.compile(r"(?<=[\s)])#(\d+)(?=[\s{]|\Z)")


def module_fault(before: str, after: str) -> str:
    """The IR module in front of the functions: what it defines and declares, attributes written out.

    Declarations of intrinsics get their attributes anew whenever LLVM reads a module.
    """
    left, right = _module(before), _module(after)
    for side in (left, right):
        for key in [k for k, text in side.items() if k.startswith("@llvm.") and text.startswith("declare")]:
            del side[key]
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            return f"IR module: {key or 'its lines'} differs"
    return ""


def _module(text: str) -> dict[str, str]:
    groups = {m[1]: m[2] for m in re.finditer(r"^ *attributes #(\d+) = \{(.*)\}", text, re.M)}
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith(("attributes #", ";", "source_filename", "---", "...", "!")):
            continue
        line = re.sub(r";.*", "", line)
        line = _GROUP.sub(lambda m: f"{{{groups.get(m[1], '?')}}}", line)
        line = re.sub(r"![\w.]* !\d+", "", line)
        if match := re.match(r"(?:define|declare).* @([\w.$\"-]+)\(", line):
            name = f"@{match[1]}"
        elif match := re.match(r"(@[\w.$\"-]+) =", line):
            name = match[1]
        found[name] = found.get(name, "") + " ".join(line.split()) + "\n"
        if line == "}":
            name = ""
    return found
