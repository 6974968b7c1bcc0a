"""The frame that LLVM lays out behind the phase, and the registers that it takes or moves for it (13.1, 13.4).

Sources: LLVM, SIFrameLowering.cpp; SIMachineFunctionInfo's constructor; AMDGPUBaseInfo.cpp, isEntryFunctionCC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import mul

from smt_verifier.checker.assembly import asm_operands
from smt_verifier.checker.behind import reads_condition
from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.joined import near_blocks
from smt_verifier.checker.lanes import Lanes, declared_units, led_to, predecessors
from smt_verifier.checker.limits import Limits, arguments, decimal
from smt_verifier.checker.model import Function, Instruction, Kind
from smt_verifier.checker.moves import Moves
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Processor, Tables
from smt_verifier.checker.threads import writes_exec

_INFO = "machineFunctionInfo."
_FRAME = ("stackPtrOffsetReg", "frameOffsetReg", "scratchRSrcReg")
_FRAME_INFO = "frameInfo."
_NO_POINTER = frozenset({_FRAME_INFO + "isCalleeSavedInfoValid", _FRAME_INFO + "hasOpaqueSPAdjustment"})
"""Flags that ask for no frame pointer; the second says that assembly clobbers the stack pointer."""
_ENTRIES = frozenset(
    ["amdgpu_kernel", "spir_kernel", "amdgpu_cs", "amdgpu_es", "amdgpu_gs", "amdgpu_hs", "amdgpu_ls", "amdgpu_ps",
     "amdgpu_vs"]
)  # fmt: skip
"""Conventions of functions that nobody calls."""
_DESCRIPTOR, _CHAIN_DESCRIPTOR = "'$sgpr0_sgpr1_sgpr2_sgpr3'", "'$sgpr48_sgpr49_sgpr50_sgpr51'"
"""Where a called function, and one of a chain, is given the scratch descriptor."""
_GIVEN_FIRST = f"privateSegmentBuffer: {{ reg: {_DESCRIPTOR} }}"
_ABSENT, BASE_POINTER = "", "$sgpr34"
_OVERWRITTEN = ("scc", "m0")
"""What LLVM overwrites where it saves and restores (M0 with ``block-vgpr-csr``)."""
_AT_EDGES, _OF_SPILLED = 8, 3
"""SGPRs that LLVM may need while it saves: two pairs for EXEC, frame and base pointer, an address; and while it keeps
scalars in memory: a pair for EXEC, and an address.
"""
_NEAR = 1024
"""Bytes of stack objects that instructions reach by immediates, beside all that LLVM may save."""
_SCALARS = 106
"""SGPRs that have a number on some processor (gfx10 and later; before, the last may not be allocated)."""
_OF_BRANCHES, _OF_EXEC = _INFO + "longBranchReservedReg", _INFO + "sgprForEXECCopy"
_PAIRS, _REACHED = 4, 100_000
"""Pairs of SGPRs that nothing names: two for the scratch descriptor, or one for frame and base pointer; for EXEC; for a
branch. How many bytes of 128 KB need none.
"""
_BYTES = (64, 12, 20, 24)
"""The most that an instruction, a lane of an operand of a move, a character of assembly, a register saved makes."""


def frame_units(lanes: Lanes) -> frozenset[int]:
    """Units that slots are addressed with: scratch descriptor, FLAT_SCRATCH, the frame pointer of an entry function,
    the stack pointer of another, which names no frame pointer if it has one (6, 13.4).
    """
    fields = lanes.function.fields
    is_entry = fields.get(_INFO + "isEntryFunction") == "true"
    named = [name for name in _FRAME if name != _FRAME[0 if is_entry else 1]]
    return units_named(lanes, " ".join(["$flat_scr", *(fields.get(_INFO + name, "") for name in named)]))


def check_frame(p: Function, q: Function, convention: str, tables: Tables) -> None:
    """LLVM lays out what Q adds to the frame, saved registers too, as the header says: what LLVM's would (13.1).

    Raises:
        Refused: it does not.
    """
    is_entry, enters = p.fields.get(_INFO + "isEntryFunction", "false") == "true", convention in _ENTRIES
    if not enters and any(name.startswith(_OVERWRITTEN) for block in q.blocks[:1] for name, _ in block.liveins):
        raise Refused("header", "LLVM's prologue may overwrite SCC and M0, one of which the first block declares")
    if is_entry != enters:
        raise Refused("header", f"isEntryFunction is {is_entry}, of a function whose convention is {convention}")
    _check_places(p, {"frameOffsetReg": ("'$sgpr33'", "'$fp_reg'", _ABSENT)})
    code = [tables.opcode(i.opcode) for block in q.blocks for i in block.instructions]
    more, traits = len(q.stack) > len(p.stack), [o.traits for o in code if o is not None]
    calls = any("call" in of and (more or not (is_entry or "returns" in of)) for of in traits)
    if calls and q.fields.get("frameInfo.hasCalls") != "true":
        raise Refused("header", "it calls, and hasCalls is not true")


def check_scratch(p: Function, q: Lanes, processor: Processor, strings: Mapping[str, str]) -> None:
    """Where Q has stack objects, an entry function without scratch of its own accord is given the descriptor and the
    wave's offset, and these are where the machine has them: behind all other SGPRs that it is given. It keeps the
    descriptor where nothing else is given (SIMachineFunctionInfo's constructor;
    SIFrameLowering::emitEntryFunctionPrologue).

    Raises:
        Refused: they are elsewhere.
    """
    is_entry = p.fields.get(_INFO + "isEntryFunction") == "true"
    if processor.architected_flat_scratch or not is_entry or not _in_memory(q.function):
        return
    text = p.fields.get(_INFO + "argumentInfo", "")
    given = arguments(text)
    last = sum(given.values()) - 1 + decimal(p.fields.get(_INFO + "numKernargPreloadSGPRs", "0"))
    wanted = (_GIVEN_FIRST, f"privateSegmentWaveByteOffset: {{ reg: '$sgpr{last}' }}")
    asked = [axis for axis in "XYZ" if axis == "X" or f"amdgpu-no-workgroup-id-{axis.lower()}" not in strings]
    of_groups = {name for name in given if name.startswith("workGroup") or name == "LDSKernelId"}
    if not all(one in text for one in wanted) or of_groups != {f"workGroupID{axis}" for axis in asked}:
        raise Refused("header", "the scratch descriptor or the wave's offset is not where the machine has it")
    kept = units_named(q, p.fields.get(_INFO + _FRAME[2], ""))
    if kept.isdisjoint(q.tables.units("s")) or not kept.isdisjoint(declared_units(q, 0)):
        raise Refused("header", "there is no place for the scratch descriptor")


def check_given(p: Function, lanes: Lanes, bounds: Limits, convention: str, processor: Processor) -> None:
    """A called function with a frame has its header's stack pointer and scratch descriptor where LLVM has them, an
    object for all that it is given on the stack (it may pass that on; LLVM's frame begins behind the objects), and
    leaves it SGPRs where it begins and ends: LLVM keeps EXEC, the frame and base pointer there while it saves vector
    registers of all threads, and makes the address of a slot in a VGPR if no other one is free (13.1, 13.4).

    Raises:
        Refused: one is elsewhere, or too few are free.
    """
    descriptor = _CHAIN_DESCRIPTOR if "chain" in convention else _DESCRIPTOR
    given = (descriptor, *(("'$private_rsrc_reg'", _ABSENT) if processor.architected_flat_scratch else ()))
    _check_places(p, {"stackPtrOffsetReg": ("'$sgpr32'",), "scratchRSrcReg": given})
    ends = [int(row.get("offset", "0")) + int(row.get("size", "0")) for row in p.fixed_stack.values()]
    if decimal(p.fields.get(_INFO + "bytesInStackArgArea", "0")) > max(ends, default=0):
        raise Refused("header", "no object has all of the stack arguments, and LLVM's frame begins behind the objects")
    usable = _numbers({*lanes.tables.units("s")} & (bounds.allocatable - bounds.callee_saved))
    if any(len(usable - _numbers(live)) < _AT_EDGES for live in edges(lanes)):
        raise Refused("not-followed", f"fewer than {_AT_EDGES} SGPRs are free where LLVM saves or restores")


def edges(after: Lanes) -> list[frozenset[int]]:
    """Units that are live where LLVM's prologue begins, and where each epilogue ends."""
    blocks = after.function.blocks
    at = [frozenset(u for name, _ in blocks[0].liveins for u in after.register(name).units)]
    for last in (block.instructions[-1] for block in blocks if block.instructions and not block.successors):
        names = {after.name(o, last) for o in last.operands if o.reads and o.vreg < 0} - {"noreg", ""}
        at.append(frozenset(u for name in names for u in after.register(name).units))
    return at


def _numbers(units: Iterable[int]) -> set[int]:
    """Registers of 32 bits that have these units."""
    return {unit // 2 for unit in units}


def check_stays(p: Function, lanes: Lanes, *, is_entry: bool, framed: bool) -> None:
    """Nothing in Q writes where the frame is: LLVM's spill code would write elsewhere, it restores by that what a
    called function has saved, and callees begin behind what Q adds (13.4). Beside an object of unknown size LLVM has a
    frame pointer.

    Raises:
        Refused: some instruction does.
    """
    q = lanes.function
    code = [(i, opcode.traits) for b in q.blocks for i in b.instructions if (opcode := lanes.tables.opcode(i.opcode))]
    grows = len(q.stack) > len(p.stack) and any("call" in traits for _, traits in code)
    pointer = units_named(lanes, q.fields.get(_INFO + "stackPtrOffsetReg", ""))
    base: frozenset[int] = frozenset()
    if _in_memory(q):
        base = frame_units(lanes)
    elif framed:
        base = units_named(lanes, "$flat_scr") | pointer
    base = base - pointer if _is_dynamic(q) else base | pointer if is_entry and grows else base
    if moving := [i for i, traits in code if moves_frame(i, traits, lanes, base)]:
        raise Refused("reserved-register", f"{moving[0].opcode} moves the frame that Q has", f"line {moving[0].line}")


def _in_memory(function: Function) -> bool:
    """Whether it has a stack object that does not become lanes of vector registers."""
    return any(row.get("stack-id") != "sgpr-spill" for row in function.stack.values())


def moves_frame(i: Instruction, traits: Set[str], lanes: Lanes, base: Set[int]) -> bool:
    """Whether it writes one of the units ``base``, by which a frame is addressed (6, 13.4): calls and adjustments of
    the frame give that back, assembly leaves it alone whatever it clobbers (14).
    """
    if base.isdisjoint(lanes.operand_keys(i).defined) or not traits.isdisjoint(("frame-adjust", "call")):
        return False
    clobbers = {o.number for o in asm_operands(i) if o.clobber} if "asm" in traits else ()
    written = [o for n, o in enumerate(i.operands) if o.is_register and o.is_def and n not in clobbers]
    return any(not base.isdisjoint(lanes.keys(o, i)) for o in written)


def wants_frame_pointer(function: Function, strings: Mapping[str, str]) -> bool:
    """A called function has a frame pointer whatever is in its frame (SIFrameLowering::hasFPImpl; what is realigned has
    a base pointer, too).
    """
    fields = function.fields
    flags = [value for path, value in fields.items() if path.startswith(_FRAME_INFO) and path not in _NO_POINTER]
    policies = {strings.get("frame-pointer", "none"), fields.get(_FRAME_INFO + "framePointerPolicy", "none")}
    return "true" in flags or policies != {"none"} or _is_dynamic(function)


def _is_dynamic(function: Function) -> bool:
    return any(row.get("type") == "variable-sized" for row in function.stack.values())


def _check_places(p: Function, places: Mapping[str, tuple[str, ...]]) -> None:
    if wrong := [name for name, of in places.items() if p.fields.get(_INFO + name, _ABSENT) not in of]:
        raise Refused("header", f"{wrong[0]} is not the register in which LLVM has it")


def check_taken(p: Lanes, lanes: Lanes, moves: Moves, bounds: Limits, *, has_pointer: bool, is_entry: bool) -> None:
    """No instruction of either text names the frame pointer of a called function that has one (``has_pointer``), by
    which LLVM addresses slots and saves vector registers, or the base pointer that is kept, from which it restores the
    stack pointer (6, 13.4). None of Q reads what is kept for long branches; nor
    what keeps EXEC, but to write EXEC where no scalars are still to be spilled to lanes: LLVM moves it, wherever an
    operand is that very register. ``p``, ``lanes``: of P and Q.

    Raises:
        Refused: some instruction does.
    """
    q = lanes.function
    frame = q.fields.get(_INFO + "frameOffsetReg", "") if has_pointer and not is_entry else ""
    if has_pointer and not is_entry and frame != "'$sgpr33'":
        raise Refused("header", "LLVM has no register for the frame pointer that it wants")
    taken = units_named(lanes, frame) | units_named(lanes, BASE_POINTER) & bounds.kept
    if not taken.isdisjoint(p.named | lanes.named):
        raise Refused("reserved-register", "the frame or base pointer is named, which LLVM takes")
    spills = "S" in moves.kinds.values() and any(k >= VIRTUAL for k in lanes.named)
    names = [q.fields.get(_INFO + name, "") for name in ("sgprForEXECCopy", "longBranchReservedReg")]
    # Where few registers are left, the first has that of the stack pointer, which all spill code names, in it.
    pointer = units_named(lanes, q.fields.get(_INFO + "stackPtrOffsetReg", ""))
    mask, branches = (units_named(lanes, name) - pointer for name in names)
    restored = in_parts = False
    blocks = () if lanes.named.isdisjoint(mask | branches) else q.blocks
    for i in [i for block in blocks for i in block.instructions]:
        opcode = lanes.tables.opcode(i.opcode)
        restores = not spills and opcode is not None and writes_exec(i, opcode)
        for o in [o for o in i.operands if o.is_register]:
            units, whole = frozenset(lanes.keys(o, i)), f"'${o.register}'" == names[0]
            if o.reads and not units.isdisjoint(branches if restores and whole else mask | branches):
                raise Refused("reserved-register", f"{i.opcode} reads what LLVM keeps for itself", f"line {i.line}")
            restored |= o.reads and not units.isdisjoint(mask)
            in_parts |= o.is_def and not whole and not units.isdisjoint(mask)
    if restored and in_parts:
        raise Refused("reserved-register", f"{names[0]} is written in parts, and LLVM moves the whole")
    if any(not mask.isdisjoint(declared_units(lanes, number)) for number in range(len(q.blocks)) if mask):
        raise Refused("reserved-register", f"{names[0]} is live at a block's entry, and LLVM moves it")


def check_moved(lanes: Lanes, propagated: Sequence[Lanes], bounds: Limits, *, is_entry: bool) -> None:
    """What LLVM reserved it moves to lower registers that nothing names (SIFrameLowering.cpp): a vector register of
    whole-wave code, wherever an operand or a live-in is that very register; the pair of a called function's long
    branches, which is not saved then. ``propagated``: what MachineCopyPropagation makes of Q, which names less.

    Raises:
        Refused: something names a part of the first, or that pair is a saved one.
    """
    fields = lanes.function.fields
    reserved, units = _moved_vectors(lanes)
    if reserved and not any(k >= VIRTUAL for k in lanes.named):
        q = lanes.function
        operands = {o.register for b in q.blocks for i in b.instructions for o in i.operands if o.is_register}
        names = (operands | {name for b in q.blocks for name, _ in b.liveins}).difference(reserved)
        if parts := [name for name in names if not units.isdisjoint(lanes.register(name).units)]:
            raise Refused("reserved-register", f"${min(parts)} is named, of which LLVM may move a part elsewhere")
    branches = units_named(lanes, fields.get(_OF_BRANCHES, ""))
    if is_entry or not branches:
        return
    unused = kept_by_calls(lanes, bounds.allocatable)
    for text in (lanes, *propagated):
        if not bounds.callee_saved.isdisjoint([*_unnamed_pairs(text, unused), branches][0]):
            raise Refused("reserved-register", "LLVM makes long branches by a pair of scalars that nobody saves")


def check_branches(lanes: Lanes, bounds: Limits, *, is_entry: bool, obscure: bool, promised: bool) -> None:
    """Where Q has no virtual register and LLVM reserved no pair of SGPRs for long branches, it is too little code for
    one, or enough pairs are named nowhere: else LLVM may save one by a slot made after all are laid out, over the
    others (13.4; BranchRelaxation.cpp, SIInstrInfo::insertIndirectBranch). It takes whatever is dead, ``promised``
    to callers or not (9).

    Raises:
        Refused: too few are.
    """
    fields, branches = lanes.function.fields, any(lanes.successors(n) for n in range(len(lanes.parts)))
    if not branches or units_named(lanes, fields.get(_OF_BRANCHES, "")) or any(k >= VIRTUAL for k in lanes.named):
        return
    live = {u for b in lanes.function.blocks for name, _ in b.liveins for u in lanes.register(name).units}
    usable = bounds.allocatable - bounds.callee_saved - units_named(lanes, fields.get(_OF_EXEC, "")) - live
    few = promised or len(_unnamed_pairs(lanes, usable)) < _PAIRS
    if few and _may_branch_far(lanes, bounds, is_entry=is_entry, obscure=obscure):
        why = "LLVM may make a long branch, and too few SGPRs are named nowhere: it may save some over slots"
        raise Refused("far-branch", why)


def _may_branch_far(lanes: Lanes, bounds: Limits, *, is_entry: bool, obscure: bool) -> bool:
    """Whether Q may be more code than a branch reaches: waits, spill code and what LLVM expects of assembly are counted
    (TargetInstrInfo::getInlineAsmLength), where a called function saves and restores registers, and the copies that
    TailDuplicator may make of COPYs in each block.
    """
    q, tables = lanes.function, lanes.tables
    code = [i for block in q.blocks for i in block.instructions]
    characters = sum([len(o.text) for i in code for o in i.operands if o.kind is Kind.ASM_STRING])
    moved = sum([_lanes_moved(i, lanes) for i in code if _is_by_lanes(i, tables)])
    copied = sum([_lanes_moved(i, lanes) for i in code if i.opcode == "COPY"]) * len(q.blocks)
    ends = 1 + sum(bool(lanes.code(n)) and not lanes.successors(n) for n in range(len(q.blocks)))
    saved = frozenset[int]() if is_entry else bounds.callee_saved | _moved_vectors(lanes)[1]
    size = sum(map(mul, (len(code), moved + copied, characters, ends * len(_numbers(saved))), _BYTES))
    is_whole = q.fields.get(_INFO + "isWholeWaveFunction") == "true"
    is_aligned = any("align " in b.attributes for b in q.blocks)
    return is_whole or is_aligned or size > _REACHED or (obscure and characters > 0)


def _moved_vectors(lanes: Lanes) -> tuple[list[str], frozenset[int]]:
    """Vector registers that LLVM reserved for whole-wave code, and their units."""
    fields = lanes.function.fields
    listed = " ".join(fields.get(_INFO + name, "") for name in ("wwmReservedRegs", "spillPhysVGPRs"))
    return re.findall(r"\$(\w+)", listed), units_named(lanes, listed)


def _unnamed_pairs(lanes: Lanes, usable: frozenset[int]) -> list[tuple[int, ...]]:
    """Pairs of ``usable`` SGPRs that nothing names, the lowest first."""
    pairs = [lanes.register(f"sgpr{n}_sgpr{n + 1}").units for n in range(0, _SCALARS, 2)]
    return [pair for pair in pairs if usable.issuperset(pair) and lanes.named.isdisjoint(pair)]


def kept_by_calls(lanes: Lanes, units: frozenset[int]) -> frozenset[int]:
    """Those of ``units`` that every call leaves alone: LLVM counts the others as used."""
    operands = (o for block in lanes.function.blocks for i in block.instructions for o in i.operands)
    masks = {o.text for o in operands if o.kind is Kind.REGMASK}
    return units.intersection(*(lanes.tables.mask(mask) or () for mask in masks))


def _lanes_moved(i: Instruction, lanes: Lanes) -> int:
    return sum([len(lanes.keys(o, i)) for o in i.operands if o.is_register])


def _is_by_lanes(i: Instruction, tables: Tables) -> bool:
    """A copy, or spill code: LLVM makes an instruction or two of each lane."""
    opcode = tables.opcode(i.opcode)
    return opcode is None or "copy" in opcode.traits or bool(opcode.value("spill"))


def check_free(lanes: Lanes, bounds: Limits, *, by_register: bool, saved_later: bool) -> None:
    """Where an instruction names stack objects, as many SGPRs are free, named nowhere near: without one LLVM adds to
    the frame register itself, and takes that back where SCC is live, or too early; in whole waves it takes a VGPR, and
    gives it back to fewer threads. That is so also where EXEC is written and no VGPR is free, or SCC is live and the
    frame is addressed by a register (``by_register``), which LLVM adds to over SCC, or in a VGPR
    (SIRegisterInfo::eliminateFrameIndex, buildSpillLoadStore).

    Raises:
        Refused: too few are, or one does.
    """
    if any(k >= VIRTUAL for k in lanes.named):
        return
    # Spill code that asks for no SGPR, or whose VGPR LLVM gives back; scalars go to lanes behind their phase.
    objects = (*lanes.function.stack.values(), *lanes.function.fixed_stack.values())
    near = sum(int(row.get(key, "0")) for row in objects for key in ("size", "alignment")) < _NEAR
    quiet = ("V", "A", *("SW" if near else "S" * saved_later))
    blocks = lanes.function.blocks
    unsaved = bounds.callee_saved - lanes.defined_units
    scalars = _numbers({*lanes.tables.units("s")} & (bounds.allocatable - unsaved))
    ahead = [{place for place, _ in block.successors} for block in blocks]
    before = predecessors(ahead)
    busy: dict[int, set[int]] = {}
    for number in range(len(blocks)):
        rows = [(at, i, lanes.tables.opcode(i.opcode)) for at, i in enumerate(lanes.code_of(number))]
        asks = [
            (at, i, opcode)
            for at, i, opcode in rows
            if opcode is not None
            and lanes.operand_keys(i).of_frame
            and (opcode.value("spill")[:1] not in quiet or any(o.register == "scc" for o in i.operands))
        ]
        for at, i, opcode in asks:
            scc = {o.is_def for o in i.operands if o.register == "scc"}
            if len(scc) == 2 or (by_register and reads_condition(lanes, number, at - 1)):
                raise Refused("not-followed", f"{i.opcode} names an object where SCC is live", f"line {i.line}")
            if writes_exec(i, opcode):
                raise Refused("not-followed", f"{i.opcode} names an object and writes EXEC", f"line {i.line}")
        if not asks:
            continue
        # MachineCopyPropagation and MachineLICM, which run before, make what is named there live longer.
        if number not in busy:
            around = {number, *(led_to(ahead, number) & led_to(before, number))}
            code = [i for n in around for i in lanes.code_of(n)]
            of_code = {k for i in code for o in i.operands if o.is_register for k in lanes.keys(o, i)}
            busy.update(dict.fromkeys(around, of_code))
        live = busy[number].union(*(declared_units(lanes, n) for n in (number, *ahead[number])))
        free = scalars - _numbers(live)
        for _, i, opcode in asks:
            count = sum(o.kind in (Kind.FRAME_INDEX, Kind.FIXED_FRAME) for o in i.operands)
            if len(free) < (_OF_SPILLED if opcode.value("spill").startswith("S") else count):
                message = f"too few SGPRs are free where {i.opcode} names an object"
                raise Refused("not-followed", message, f"line {i.line}")


def check_restored(lanes: Lanes, bounds: Limits, *, saved_later: bool) -> None:
    """No terminator of a block that returns names what LLVM restores before the first of them: vector registers that
    the convention preserves and some instruction defines, and, ``saved_later``, scalar ones (SILowerSGPRSpills.cpp,
    restoreCalleeSavedRegs; PrologEpilogInserter.cpp). Nor does one read what that overwrites.

    Raises:
        Refused: one does.
    """
    restored = {u for u in bounds.callee_saved & lanes.defined_units if saved_later or lanes.is_vector(u)}
    for block in lanes.function.blocks if bounds.callee_saved else ():
        rows = [(i, opcode.traits) for i in block.instructions if (opcode := lanes.tables.opcode(i.opcode)) is not None]
        returns = any("returns" in traits for _, traits in rows)
        for i, traits in [row for row in rows if returns and "terminator" in row[1]]:
            named = [o for o in i.operands if o.reads or o.is_def]
            overwritten = "branch" not in traits and any(o.reads and o.register.startswith(_OVERWRITTEN) for o in named)
            if overwritten or any(not restored.isdisjoint(lanes.keys(o, i)) for o in named):
                raise Refused("callee-saved", f"{i.opcode} names what LLVM has restored", f"line {i.line}")


def check_slots(lanes: Lanes, processor: Processor) -> None:
    """Spill code of a slot names registers of one vector file, or EXEC is not written between two such instructions of
    one block, or of blocks that LLVM may bring together, nor in one that it may be hoisted into (10.11).

    LLVM may keep the slot in registers of the other file (SIFrameLowering, SpillVGPRToAGPR); of the same file, saves
    and reloads become COPYs that ask for no EXEC.

    Raises:
        Refused: it names both.
    """
    files: dict[int, set[str]] = {}
    rows = [_accesses(lanes, number, files) for number in range(len(lanes.parts) if processor.has_agprs else 0)]
    mixed = {slot for slot, letters in files.items() if len(letters) > 1}
    if not mixed:
        return
    near = near_blocks(lanes)
    left: list[dict[int, bool]] = [{} for _ in rows]
    """Slots that were named in a block, or near it, and whether EXEC was written since one of the times."""
    changed = True
    while changed:
        changed = False
        for number, row in enumerate(rows):
            named: dict[int, bool] = {}
            blocks, stop = near[number]
            for slot, old in (item for block in blocks for item in left[block].items()):
                named[slot] = old or named.get(slot, False)
            parting = [block for block in blocks if len(set(lanes.successors(block))) > 1]
            hoisted = any(of < 0 for block in parting for of, _ in rows[block])
            for slot, at in row:
                if slot < 0:
                    named = dict.fromkeys(named, True)
                elif hoisted and at < stop and slot in mixed:
                    raise Refused("spill-slot", f"%stack.{slot} is of both vector files, and may be hoisted over EXEC")
                elif named.setdefault(slot, False) and slot in mixed:
                    raise Refused("spill-slot", f"%stack.{slot} is of both vector files where EXEC is written")
            changed = changed or named != left[number]
            left[number] = named


def _accesses(lanes: Lanes, number: int, files: dict[int, set[str]]) -> list[tuple[int, int]]:
    """Slots that spill code of a block names, in order, -1 for a write of EXEC, and at which instruction; ``files``:
    letters of their registers' vector files, which are added to.
    """
    row: list[tuple[int, int]] = []
    for at, i in enumerate(lanes.code(number)):
        opcode = lanes.tables.opcode(i.opcode)
        if opcode is not None and writes_exec(i, opcode):
            row.append((-1, at))
        if opcode is None or not opcode.value("spill"):
            continue
        letters = {lanes.register(o.register).file for o in i.operands if o.register not in ("", "noreg")} & {"v", "a"}
        for slot in (o.number for o in i.operands if o.kind is Kind.FRAME_INDEX):
            files.setdefault(slot, set()).update(letters)
            row.append((slot, at))
    return row


def units_named(lanes: Lanes, names: str) -> frozenset[int]:
    """Units of the registers in a list of the header."""
    return frozenset(u for name in re.findall(r"\$(\w+)", names) for u in lanes.register(name).units)
