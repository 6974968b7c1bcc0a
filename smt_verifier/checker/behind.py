"""What LLVM's passes behind the phase make of a text after allocation, where they look at less than it says
(specification 10.12).
"""

from __future__ import annotations

from collections.abc import Collection

from smt_verifier.checker.certificate import VIRTUAL
from smt_verifier.checker.forms import Forms
from smt_verifier.checker.lanes import Lanes, declared_units, led_to, nested_loops, predecessors, reachable
from smt_verifier.checker.model import Instruction, Kind, Operand
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import EXEC_NAMES, writes_exec

_VCC_NAMES = frozenset({"vcc", "vcc_lo"})


def check_behind(after: Lanes, forms: Forms, allocatable: Collection[int]) -> None:
    """No pass behind the phase makes something else of Q.

    Raises:
        Refused: one may.
    """
    _reserved_in_loops(after, forms, allocatable)
    for number in range(len(after.parts)):
        _conditions(after, forms, number)
        _taken_for(after, forms, number)
        _hoisted(after, forms, allocatable, number)
        _overwritten(after, forms, number)
    for part in range(len(after.function.blocks)):
        _masked(after, forms, part)


def _refused(i: Instruction, what: str) -> Refused:
    return Refused("not-followed", f"{i.opcode}: {what}", f"line {i.line}")


def _read(after: Lanes, i: Instruction) -> set[int]:
    return {k for o in i.operands if o.reads for k in after.keys(o, i)}


def _conditions(after: Lanes, forms: Forms, number: int) -> None:
    """SCC of an instruction that LLVM replaces whether or not it is read (SIOptimizeExecMasking makes V_CMPX of a
    comparison and S_AND_SAVEEXEC; SIPreEmitPeephole deletes the AND of VCC with EXEC before a branch on VCC).
    """
    scc, vcc = ({*after.register(name).units} for name in ("scc", "vcc"))
    ahead = {u for s in after.successors(number) for u in declared_units(after, s)}
    read, asked = not scc.isdisjoint(ahead), not vcc.isdisjoint(ahead)
    for i in reversed(after.code(number)):
        opcode, keys, reads = forms.opcode(i), after.operand_keys(i), _read(after, i)
        if not scc.isdisjoint(keys.defined):
            if read and (opcode.value("save") == "AND" or (asked and _ands_vcc(i, opcode))):
                raise _refused(i, "LLVM may replace it, and SCC is read")
            read = False
        read = read or not scc.isdisjoint(reads)
        asked = asked and vcc.isdisjoint(keys.defined)
        asked = asked or ("branch" in opcode.traits and not vcc.isdisjoint(reads))


def _ands_vcc(i: Instruction, opcode: Opcode) -> bool:
    names = [o.register for o in i.operands[:3]]
    return opcode.value("mask") == "AND" and _makes_vcc(i, opcode) and not _VCC_NAMES.isdisjoint(names[1:])


def _taken_for(after: Lanes, forms: Forms, number: int) -> None:
    """What LLVM takes for the definition of a mask, because it defines a part of it: a comparison of which
    SIOptimizeExecMasking makes V_CMPX at S_AND_SAVEEXEC, and a move of an immediate ahead of the AND of EXEC to VCC, of
    which SIPreEmitPeephole makes a branch on EXEC (TailDuplicator may have put both into one block before).
    """
    for at, i in enumerate(after.code(number)):
        opcode = forms.opcode(i)
        compares, makes = opcode.value("save") == "AND", _makes_vcc(i, opcode)
        for o in i.operands[1:3] if compares or makes else ():
            if not o.reads or o.vreg >= 0 or o.register in EXEC_NAMES:
                continue
            if makes:
                _check_move(after, (number, at), o)
            else:
                _check_comparison(after, after.code(number)[:at], o)


def _check_comparison(after: Lanes, code: list[Instruction], mask: Operand) -> None:
    names, mode, changes = {*after.register(mask.register).units}, {*after.register("mode").units}, False
    for i in reversed(code):
        defined = after.operand_keys(i).defined
        if not names.isdisjoint(defined):
            late = changes and not mode.isdisjoint(_read(after, i))
            if i.opcode.startswith("V_CMP_") and (late or not _results_in(i, mask)):
                raise _refused(i, f"LLVM takes it for what defines ${mask.register}")
            return
        changes = changes or not mode.isdisjoint(defined)


def _check_move(after: Lanes, behind: tuple[int, int], mask: Operand) -> None:
    """On no way to an instruction a move of an immediate defines a part of a mask last, and not just that mask."""
    names = {*after.register(mask.register).units}
    pending, seen = [behind], set[int]()
    while pending:
        block, end = pending.pop()
        last = next((i for i in reversed(after.code(block)[:end]) if names & after.operand_keys(i).defined), None)
        if last is None:
            ahead = after.predecessors[block] - seen
            seen |= ahead
            pending += [(n, len(after.code(n))) for n in ahead]
        elif _gives_immediate(last) and not _results_in(last, mask):
            raise _refused(last, f"LLVM takes it for what defines ${mask.register}")


def _results_in(i: Instruction, mask: Operand) -> bool:
    return next((o.register for o in i.operands if o.is_def), "") == mask.register


def _makes_vcc(i: Instruction, opcode: Opcode) -> bool:
    names = [o.register for o in i.operands[:3]]
    of_exec = opcode.value("mask") in ("AND", "ANDN2") and not EXEC_NAMES.isdisjoint(names[1:])
    return of_exec and names[0] in _VCC_NAMES


def _gives_immediate(i: Instruction) -> bool:
    return i.definitions == 1 and len(i.operands) > 1 and not i.operands[1].is_register


def _hoisted(after: Lanes, forms: Forms, allocatable: Collection[int], number: int) -> None:
    """MachineLICM moves an instruction out of a loop to before the first terminator of the block before it, of which
    alone it asks what it names, whatever that writes: EXEC, or another register that need not be declared live.
    """
    if not after.parts[number]:
        return
    _copies_hoisted(after, forms, allocatable, number)
    last = [i for i in after.code_of(after.parts[number][-1]) if "terminator" in forms.opcode(i).traits]
    ahead, sets = {*after.successors(number)}, {k for i in last for k in after.operand_keys(i).defined}
    sets = {k for k in sets if k < VIRTUAL and k not in allocatable}
    others = {k for i in last[1:] for o in i.operands if o.is_register for k in after.keys(o, i)}
    if len(ahead) != 1 or not (sets or others):
        return
    sets_exec = any(writes_exec(i, forms.opcode(i)) for i in last)
    code = [i for block in _loop(after, number, ahead.pop()) for i in after.code(block)]
    sets = sets.difference(*(after.operand_keys(i).defined for i in code if "copy" not in forms.opcode(i).traits))
    for i in code:
        opcode, defined = forms.opcode(i), after.operand_keys(i).defined
        changed = any(o.is_use and not sets.isdisjoint(after.keys(o, i)) for o in i.operands)
        changed = changed or (sets_exec and "copy" in opcode.traits and any(map(after.is_vector, defined)))
        changed = changed or not others.isdisjoint(defined)
        if changed and defined and "terminator" not in opcode.traits and _is_fixed(after, i, allocatable):
            raise _refused(i, "LLVM may hoist it over a terminator that names what it does")


def _reserved_in_loops(after: Lanes, forms: Forms, allocatable: Collection[int]) -> None:
    """MachineLICM hoists the only definition of a register in a loop, if nobody declares that live; so it does where
    nobody must (EXEC, M0) and the loop reads what it held before.
    """
    rows: list[tuple[int, Instruction, set[int]]] = []
    for number in range(len(after.parts)):
        for i in after.code(number):
            if i.definitions == 1 and "terminator" not in forms.opcode(i).traits and _is_fixed(after, i, allocatable):
                units = {k for k in after.keys(i.operands[0], i) if k < VIRTUAL and k not in allocatable}
                rows += [(number, i, units)] if units and i.operands[0].register != "scc" else []
    ahead = [set(after.successors(number)) for number in range(len(after.parts))] if rows else []
    for loop, entered in nested_loops(ahead, after.predecessors) if rows else []:
        live = set[int]().union(*(after.live[n] for n in (entered if len(entered) == 1 else loop)))
        defined = [after.operand_keys(b).defined for n in loop for b in after.code(n)]
        for _, i, units in (row for row in rows if row[0] in loop):
            alone = sum(not units.isdisjoint(of) for of in defined) == 1
            if alone and not units.isdisjoint(live) and all(_read(after, i).isdisjoint(of) for of in defined):
                raise _refused(i, "LLVM may hoist it out of a loop that reads what its register held before")


def _is_fixed(after: Lanes, i: Instruction, allocatable: Collection[int]) -> bool:
    """Whether it reads no virtual register and none that may be allocated."""
    known = [o for o in i.operands if o.is_use and "undef" not in o.flags]
    return not any(o.vreg >= 0 or any(k in allocatable for k in after.keys(o, i)) for o in known)


def _copies_hoisted(after: Lanes, forms: Forms, allocatable: Collection[int], number: int) -> None:
    """A COPY has no EXEC operand before SIFixVGPRCopies, so MachineLICM moves it out of a loop that writes EXEC."""
    code = after.code(number)
    copies = [i for i in code if "copy" in forms.opcode(i).traits and _is_fixed(after, i, allocatable)]
    copies = [i for i in copies if any(map(after.is_vector, after.operand_keys(i).defined))]
    if not copies:
        return
    kept = {k for i in code for k in after.operand_keys(i).defined} | {*after.register("exec").units}
    copies = [i for i in copies if (read := _read(after, i)) and read.isdisjoint(kept)]
    ahead = [set(after.successors(n)) for n in range(len(after.parts))] if copies else []
    if not copies or number not in (loop := led_to(ahead, number)):
        return
    loop &= led_to(predecessors(ahead), number)
    if any(writes_exec(i, forms.opcode(i)) for n in loop for i in after.code(n)):
        raise _refused(copies[0], "LLVM may hoist it out of a loop that writes EXEC")


def _loop(after: Lanes, number: int, head: int) -> set[int]:
    """The blocks that come back to a block, but for those that go by way of another one before it."""
    ahead = [set(after.successors(n)) - {number} for n in range(len(after.parts))]
    return led_to(ahead, head) & led_to(predecessors(ahead), head)


def _overwritten(after: Lanes, forms: Forms, number: int) -> None:
    """MachineCopyPropagation has what wrote the source of a COPY write its target, and what reads the target read the
    source: not over what is read last where LLVM does not know of an early clobber (5.6).
    """
    code = after.code(number)
    for at, i in enumerate(code):
        early = forms.early(i, forms.opcode(i))
        early -= {k for o in i.operands if "early-clobber" in o.flags for k in after.keys(o, i)}
        read = {k for o in i.operands if o.is_use and "undef" not in o.flags for k in after.keys(o, i)}
        if not early or not read:
            continue
        _forwarded(after, forms, (number, at), early, read)
        pending: list[tuple[int, int, frozenset[int], frozenset[int]]] = [(number, at + 1, early, frozenset(read))]
        seen: set[tuple[int, frozenset[int], frozenset[int]]] = set()
        while pending:
            block, start, moved, kept = pending.pop()
            for b in after.code(block)[start:]:
                copies = "copy" in forms.opcode(b).traits
                ends = [after.keys(o, b) for o in b.operands[:2] if o.is_register] if copies else []
                targets = {t for t, s in zip(*ends, strict=False) if s in moved} if len(ends) == 2 else set[int]()
                if not targets.isdisjoint(kept):
                    raise _refused(i, "LLVM may have it write what it reads")
                written = after.operand_keys(b).defined
                moved, kept = (moved - written) | targets, kept - written
                if not moved or not kept:
                    break
            else:
                following = [(s, 0, moved, kept) for s in after.successors(block)]
                pending += [row for row in following if (row[0], *row[2:]) not in seen]
                seen.update((row[0], *row[2:]) for row in following)


def _forwarded(after: Lanes, forms: Forms, of: tuple[int, int], early: frozenset[int], read: set[int]) -> None:
    """What an instruction reads is no copy of what it writes early."""
    instruction = after.code(of[0])[of[1]]
    pending: list[tuple[int, int, frozenset[int], frozenset[int]]] = [(*of, frozenset(read), frozenset())]
    seen: set[tuple[int, frozenset[int], frozenset[int]]] = set()
    while pending:
        block, end, names, written = pending.pop()
        for b in reversed(after.code(block)[:end]):
            ends = [after.keys(o, b) for o in b.operands[:2] if o.is_register]
            copies = "copy" in forms.opcode(b).traits and len(ends) == 2
            sources = (
                {s for t, s in zip(*ends, strict=False) if t in names and s not in written} if copies else set[int]()
            )
            if not sources.isdisjoint(early):
                raise _refused(instruction, "LLVM may have it read what it writes")
            defined = after.operand_keys(b).defined
            names, written = (names - defined) | sources, written | defined
            if not names:
                break
        else:
            following = [(n, len(after.code(n)), names, written & early) for n in after.predecessors[block]]
            pending += [row for row in following if (row[0], *row[2:]) not in seen]
            seen.update((row[0], *row[2:]) for row in following)


def _masked(after: Lanes, forms: Forms, part: int) -> None:
    """SIOptimizeExecMasking makes ``C = S_AND_SAVEEXEC Y`` of ``C = EXEC``, ``R = S_AND C, Y`` and ``EXEC = R``, and
    does not look at everything that writes C or reads R.
    """
    code = after.code_of(part)
    exec_ = "exec" if after.wave == 64 else "exec_lo"
    threads = {*after.register(exec_).units}
    nearest = -1
    for end, i in enumerate(code):
        start, nearest = nearest, end if _is_exec(i, forms, exec_) else nearest
        result = i.operands[1].register if _sets_exec(i, forms, exec_) else ""
        if not result:
            continue
        names = set(after.keys(i.operands[1], i))
        copy = {*after.keys(code[start].operands[0], code[start])} if start >= 0 else set[int]()
        middle = -1
        for n in range(start + 1, end) if copy else ():
            b, reads, written = code[n], _read(after, code[n]), after.operand_keys(code[n]).defined
            if middle >= 0 and not threads.isdisjoint(reads):
                middle = -1
                break
            if not written.isdisjoint(names):
                if middle >= 0 or not forms.opcode(b).value("mask") or reads.isdisjoint(copy):
                    middle = -1
                    break
                middle = n
            elif middle < 0 and not reads.isdisjoint(copy):
                break
        if middle < 0:
            continue
        if not _is_exactly(after, code[middle], forms.opcode(code[middle]), result, code[start].operands[0]):
            raise _refused(code[middle], "LLVM takes it for another operation on EXEC")
        if any(writes_exec(b, forms.opcode(b)) for b in code[start + 1 : end]):
            raise _refused(code[middle], "LLVM takes what it reads for EXEC, which is written")
        if any(not forms.opcode(b).traits.isdisjoint(("call", "asm", "bundle")) for b in code[middle + 1 : end]):
            raise _refused(code[middle], "LLVM moves the write of EXEC to it, over a call, assembly or a bundle")
        if forms.opcode(code[middle]).value("mask") == "AND":
            if reads_condition(after, part, middle):
                raise _refused(code[middle], "LLVM may replace it, and SCC is read")
            _check_comparison(after, code[:middle], _other(code[middle], code[start].operands[0]))
        between = [(o, b) for b in code[middle + 1 : end] for o in b.operands if o.reads and o.register != result]
        if any(not after.operand_keys(b).defined.isdisjoint(copy) for b in code[start + 1 : middle]):
            raise _refused(code[middle], "LLVM takes what it reads for EXEC, and it was written since")
        if any(not set(after.keys(o, b)).isdisjoint(names) for o, b in between):
            raise _refused(i, "LLVM deletes what wrote its source, of which a part is read")
        if any(not _read(after, b).isdisjoint(names) for b in code[end + 1 :]):
            raise _refused(i, "LLVM deletes what wrote its source, which is read behind it")
        for successor, _ in after.function.blocks[part].successors:
            exact = any(name == result and mask < 0 for name, mask in after.function.blocks[successor].liveins)
            if not exact and not names.isdisjoint(declared_units(after, successor)):
                raise _refused(i, "LLVM deletes what wrote its source, which is live behind the block")


def _is_exactly(after: Lanes, i: Instruction, opcode: Opcode, result: str, copy: Operand) -> bool:
    """Whether it makes the very result of the very copy of EXEC and another register; LLVM makes Y AND NOT EXEC of EXEC
    AND NOT Y.
    """
    other = _other(i, copy)
    turned = opcode.value("mask") in ("ANDN2", "ORN2") and i.operands[1].register == copy.register
    apart = copy.register in (i.operands[1].register, i.operands[2].register)
    apart = apart and other.is_register and not {*after.keys(copy, i)} & {*after.keys(other, i)}
    return i.operands[0].register == result and apart and not turned


def _other(i: Instruction, copy: Operand) -> Operand:
    """The source that is not the copy of EXEC, which the other one is."""
    return i.operands[2 if i.operands[1].register == copy.register else 1]


def reads_condition(after: Lanes, part: int, number: int) -> bool:
    """Whether SCC is read of what an instruction makes of it."""
    scc = {*after.register("scc").units}
    for i in after.code_of(part)[number + 1 :]:
        if not scc.isdisjoint(_read(after, i)):
            return True
        if not scc.isdisjoint(after.operand_keys(i).defined):
            return False
    return any(not scc.isdisjoint(declared_units(after, s)) for s, _ in after.function.blocks[part].successors)


def _is_exec(i: Instruction, forms: Forms, exec_: str) -> bool:
    """Whether it copies EXEC to a register."""
    return _moves(i, forms) and i.operands[1].register == exec_ and i.operands[0].vreg < 0


def _sets_exec(i: Instruction, forms: Forms, exec_: str) -> bool:
    """Whether it copies a register to EXEC."""
    moves = _moves(i, forms) and i.operands[0].register == exec_
    return moves and i.operands[1].is_register and i.operands[1].vreg < 0 and i.operands[1].register not in EXEC_NAMES


def _moves(i: Instruction, forms: Forms) -> bool:
    return i.definitions == 1 and not forms.opcode(i).traits.isdisjoint(("copy", "mask-move")) and len(i.operands) > 1


def check_kept_in_lanes(after: Lanes, forms: Forms) -> None:
    """SILowerSGPRSpills says that the lanes which slots of scalars become hold nothing before the first access to them:
    at the end of the last block that is on every way to one, or in it. What a loop brings back to there is lost.

    Raises:
        Refused: something is.
    """
    slots: dict[int, dict[int, list[tuple[bool, int]]]] = {}
    for number in range(len(after.parts)):
        for i in after.code(number):
            kind, _, rest = forms.opcode(i).value("spill").partition(",")
            if kind == "S":
                bits, _, way = rest.partition(",")
                for o in i.operands:
                    if o.kind is Kind.FRAME_INDEX:
                        slots.setdefault(o.number, {}).setdefault(number, []).append((way == "save", int(bits)))
    ahead = [set(after.successors(number)) for number in range(len(after.parts))]
    entered = reachable(ahead)
    without: dict[int, set[int]] = {}
    for slot, accesses in slots.items():
        width = max((bits for rows in accesses.values() for saves, bits in rows if not saves), default=0)
        live = _live(
            after.predecessors,
            {n: [saves for saves, b in rows if not saves or b >= width] for n, rows in accesses.items()},
        )
        if 0 not in live:
            continue
        without = without or {number: _without(ahead, number) for number in entered}
        named = entered & accesses.keys()
        common = [n for n in entered if without[n].isdisjoint(named - {n})]
        last = next(n for n in common if all(m in without[n] for m in common if m != n))
        saved = [n for n, rows in accesses.items() if any(saves for saves, _ in rows)]
        lost = last in live if last in accesses else not live.isdisjoint(ahead[last])
        if lost and any(last in led_to(ahead, number) for number in saved):
            raise Refused("spill-slot", f"%stack.{slot} is read before it is written, and again in a loop")


def _live(behind: list[set[int]], accesses: dict[int, list[bool]]) -> set[int]:
    """Blocks at whose entry a slot is read before it is written; ``accesses``: whether they write it, in order."""
    live = {number for number, saves in accesses.items() if saves and not saves[0]}
    pending = list(live)
    while pending:
        more = {n for n in behind[pending.pop()] if not accesses.get(n)} - live
        live |= more
        pending += more
    return live


def _without(ahead: list[set[int]], block: int) -> set[int]:
    """The blocks that the function's entry leads to but for one way: by a block."""
    if block == 0:
        return set()
    others = [places - {block} for places in ahead]
    return reachable(others)
