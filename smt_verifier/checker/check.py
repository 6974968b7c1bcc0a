"""Does a certificate show that a text after register allocation computes what the text before it computes?

The specification is docs/trust/spec.md, whose theorem this package decides; each module names its sections. A checker
searches nothing: it goes through each block once, with the claims that the certificate makes of its entry, and asks
that every operand agrees and that the claims of every successor hold. Whatever is not accepted is ``Refused``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from smt_verifier.checker.assembly import counts_accesses, is_obscure
from smt_verifier.checker.behind import check_behind, check_kept_in_lanes
from smt_verifier.checker.certificate import (
    LANES,
    SLOT,
    VIRTUAL,
    BlockCertificate,
    Certificate,
    Claims,
    Entry,
    Key,
    read_certificate,
    write_key,
)
from smt_verifier.checker.effects import Both, Original, Place
from smt_verifier.checker.execute import Execution
from smt_verifier.checker.forms import Forms
from smt_verifier.checker.frame import (
    BASE_POINTER,
    check_branches,
    check_frame,
    check_free,
    check_given,
    check_moved,
    check_restored,
    check_scratch,
    check_slots,
    check_stays,
    check_taken,
    frame_units,
    units_named,
    wants_frame_pointer,
)
from smt_verifier.checker.header import compare_blocks, compare_headers, unreserved_cells
from smt_verifier.checker.joined import copied_blocks
from smt_verifier.checker.lanes import Lanes, declared_units, names_halves, parts_of
from smt_verifier.checker.limits import limits
from smt_verifier.checker.liveins import (
    leave_undeclared,
    live_virtual,
    may_hold,
    note_undeclared,
    reads_are_declared,
    undefine_undeclared,
)
from smt_verifier.checker.model import File, Function, Instruction
from smt_verifier.checker.module import attributes, compare_modules
from smt_verifier.checker.moves import Moves
from smt_verifier.checker.objects import fixed_numbers, object_numbers
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.promises import check_promises, is_framed
from smt_verifier.checker.propagated import Propagated
from smt_verifier.checker.purity import is_pure, pure_reads
from smt_verifier.checker.state import NONE, Names, Part, State, ThreadClass
from smt_verifier.checker.tables import Opcode, tables
from smt_verifier.checker.text import read
from smt_verifier.checker.threads import EXEC_NAMES
from smt_verifier.checker.vccz import check_vccz
from smt_verifier.checker.ways import Ways, test_of
from smt_verifier.checker.wellformed import reads_are_defined, well_formed


class Accepted(NamedTuple):
    """How many operands of the text after allocation were compared, each once, and how many claims were shown."""

    operands: int
    claims: int


def check(
    before: str,
    after: str,
    certificate: str,
    processor: str,
    *,
    saved_later: bool = False,
    near_branches: bool = False,
) -> Accepted:
    """Check a certificate for one function of two texts.

    Args:
        before: machine IR before a register-allocation phase, as LLVM printed it.
        after: machine IR after it.
        certificate: as section 15 of the specification says; it names the function.
        processor: LLVM's name of the GPU.
        saved_later: ``after`` is a text of the scalar phase, behind which LLVM saves callee-saved scalars (12.3).
        near_branches: LLVM makes no long branch of ``after``, as was measured (13.4).

    Raises:
        Refused: it does not show that ``after`` is right.
    """
    files = read(before), read(after)
    name = _function_named(certificate)
    both = prepare(*files, name, processor, saved_later=saved_later, near_branches=near_branches)
    return check_function(both, read_certificate(certificate, both.before.grain))


def _function_named(certificate: str) -> str:
    line = certificate.split("\n", 2)[1:2]
    if not line or not line[0].startswith("function "):
        raise Refused("certificate", "it names no function")
    return line[0].removeprefix("function ")


def prepare(
    before: File, after: File, name: str, processor: str, *, saved_later: bool = False, near_branches: bool = False
) -> Both:
    """Both texts of one function, compared where neither a state nor a certificate is asked for (2.4, 13)."""
    data = tables()
    target = data.processor(processor)
    if target is None:
        raise Refused("processor", f"the processor {processor} is not known")
    p, q = (_one(file, name) for file in (before, after))
    for function in (p, q):
        well_formed(function, data)
    compare_modules(before.module, after.module, processor)
    own = attributes(before.module, name)
    bounds = limits(processor, own.calling_convention, own.strings, own.words, {**p.fields, _ALIGNMENT: _alignment(p)})
    compare_headers(p, q, bounds.allocatable, data)
    check_frame(p, q, own.calling_convention, data)
    unreserved_cells(q, data)
    reads_are_defined(q, data)
    compare_blocks(p, q)
    _enters_once(p)
    grain = 1 if names_halves(p, data) or names_halves(q, data) else 2
    parts = parts_of(p)
    lanes = tuple(Lanes(f, parts, data, grain, target.wave_size) for f in (p, q))
    reads_are_declared(lanes[0], bounds.allocatable)
    features = own.strings.get("target-features", "").split(",")
    target = target._replace(
        half_moves=(target.half_moves or "+real-true16" in features) and "-real-true16" not in features,
        xnack=target.xnack and ("-xnack" not in features or target.major >= 10),
    )
    moves = Moves(lanes[0], target), Moves(lanes[1], target)
    propagated = Propagated(lanes[1], target, bounds.allocatable)
    promised = check_promises(before, lanes[0], lanes[1], propagated.texts, bounds)
    is_entry = p.fields.get(_INFO + "isEntryFunction") == "true"
    framed = not is_entry and is_framed(lanes[1], bounds, own.strings)
    check_scratch(p, lanes[1], target, own.strings)
    if framed:
        check_given(p, lanes[1], bounds, own.calling_convention, target)
    check_stays(p, lanes[1], is_entry=is_entry, framed=framed)
    forms = Forms(lanes[0], lanes[1], target, bounds.allocatable, _objects(p, q))
    is_last = not saved_later and not any(o.vreg >= 0 for b in q.blocks for i in b.instructions for o in i.operands)
    returns = any("returns" in forms.opcode(i).traits for block in q.blocks for i in block.instructions)
    if returns and not (is_entry or bounds.callee_saved.issuperset(units_named(lanes[1], _RETURN_ADDRESS))):
        raise Refused("calling-convention", "it returns, and LLVM saves no return address by its convention")
    has_pointer = wants_frame_pointer(q, own.strings) or not bounds.kept.isdisjoint(units_named(lanes[1], BASE_POINTER))
    check_taken(lanes[0], lanes[1], moves[1], bounds, has_pointer=has_pointer, is_entry=is_entry)
    obscure = is_obscure(before) or is_obscure(after)
    check_moved(lanes[1], propagated.texts, bounds, is_entry=is_entry)
    if not near_branches:
        check_branches(lanes[1], bounds, is_entry=is_entry, obscure=obscure, promised=promised)
    check_free(lanes[1], bounds, by_register=has_pointer or not is_entry, saved_later=saved_later)
    check_restored(lanes[1], bounds, saved_later=saved_later)
    check_slots(lanes[1], target)
    copied = copied_blocks(lanes[1])
    check_behind(lanes[1], forms, bounds.allocatable)
    check_vccz(lanes[1], forms, target.major)
    check_kept_in_lanes(lanes[1], forms)
    for text in propagated.texts:
        check_behind(text, forms, bounds.allocatable)
        check_vccz(text, forms, target.major)
        copied = copied.and_of(copied_blocks(text))
    # Both are the caller's.
    names = " ".join(q.fields.get(_INFO + name, "") for name in ("scratchRSrcReg", "frameOffsetReg") if not is_entry)
    given_back = units_named(lanes[1], names) & lanes[1].defined_units
    restored = bounds.saved | (_restored(lanes[1]) & bounds.callee_saved) | given_back
    reserved = units_named(lanes[1], q.fields.get(_INFO + "wwmReservedRegs", ""))
    return Both(
        lanes[0],
        lanes[1],
        moves,
        forms,
        target,
        bounds,
        _fixed(lanes[0], moves[0]),
        reserved,
        is_last,
        is_entry,
        restored,
        lanes[1].named,
        (frame_units(lanes[0]), frame_units(lanes[1])),
        frozenset(k for k in lanes[0].named & bounds.allocatable if not lanes[0].is_vector(k)),
        live_virtual(lanes[1]),
        copied,
        propagated,
        target.has_agprs,
        obscure,
        counts_accesses(p, obscure=obscure),
    )


def _alignment(p: Function) -> str:
    """The greatest alignment of the frame: LLVM counts the objects that are listed, whatever the field says
    (MachineFrameInfo::CreateStackObject).
    """
    every = (*p.stack.values(), *p.fixed_stack.values())
    rows = (row for row in every if row.get("stack-id", "default") == "default")
    return str(max([int(p.fields.get(_ALIGNMENT, "1")), *(int(row.get("alignment", "1")) for row in rows)]))


def _one(file: File, name: str) -> Function:
    functions = [f for f in file.functions if f.name == name]
    if len(functions) != 1:
        raise Refused("text", f"there is not one function {name}")
    return functions[0]


def _enters_once(p: Function) -> None:
    """No block has the first one as a successor (2.3)."""
    if not p.blocks or any(position == 0 for block in p.blocks for position, _ in block.successors):
        raise Refused("control-flow", "a branch back to the first block is not followed")


def _objects(p: Function, q: Function) -> dict[tuple[str, int], int]:
    """P's number for each stack object of Q (13.3)."""
    ordinary = {("stack", number): known for number, known in object_numbers(p, q).items()}
    return {**ordinary, **{("fixed-stack", number): known for number, known in fixed_numbers(p, q).items()}}


def _restored(lanes: Lanes) -> frozenset[int]:
    """Units of scalar registers that reloads of scalars write (12.3)."""
    units: set[int] = set()
    for instruction in (i for block in lanes.function.blocks for i in block.instructions):
        opcode = lanes.tables.opcode(instruction.opcode)
        if opcode is not None and _reloads(opcode):
            first = instruction.operands[:1]
            units.update(u for o in first if o.register for u in lanes.register(o.register).units)
    return frozenset(units)


def _reloads(opcode: Opcode) -> bool:
    spill = opcode.value("spill")
    return "lane-restore" in opcode.traits or (spill.startswith("S,") and spill.endswith(",restore"))


def _fixed(lanes: Lanes, moves: Moves) -> frozenset[int]:
    """Units that moves and instructions without code of P define (13.6)."""
    units: set[int] = set()
    for number in range(len(lanes.function.blocks)):
        for instruction in lanes.code(number):
            opcode = lanes.tables.opcode(instruction.opcode)
            if opcode is not None and ("no-code" in opcode.traits or moves.read(instruction, opcode) is not None):
                for o in instruction.operands:
                    if o.is_def and o.is_register and o.vreg < 0:
                        units.update(lanes.register(o.register).units)
    return frozenset(units)


def originals_of(both: Both, repeated: Sequence[Place]) -> dict[Place, Original]:
    """The instructions of P that are repeated somewhere (8.3)."""
    known: dict[Place, Original] = {}
    for block, number in repeated:
        if not block < len(both.before.parts):
            raise Refused("certificate", f"there is no block {block}")
        code = both.before.code(block)
        if not number < len(code):
            raise Refused("certificate", f"block {block} has no instruction {number}")
        instruction = code[number]
        opcode = both.forms.opcode(instruction)
        if not is_pure(instruction, opcode, both.before):
            raise Refused(
                "instruction-sequence", f"{instruction.opcode} is repeated", f"line {instruction.line} before"
            )
        reads: list[int] = []
        first: dict[int, int] = {}
        for operand in pure_reads(instruction, opcode):
            first[operand] = len(reads)
            reads += both.before.keys(instruction.operands[operand], instruction)
        defined = all("undef" not in instruction.operands[operand].flags for operand in first)
        of_exec = [o for o in first if instruction.operands[o].register in EXEC_NAMES]
        execs = len(both.before.keys(instruction.operands[of_exec[0]], instruction)) if of_exec else 0
        known[block, number] = Original(instruction, tuple(reads), first, defined, execs)
    return known


def check_function(both: Both, certificate: Certificate) -> Accepted:
    """Check the certificate of one function; see ``check``."""
    blocks = certificate.blocks
    if certificate.function != both.before.function.name or len(blocks) != len(both.before.parts):
        raise Refused("certificate", "it is of another function")
    if blocks[0].entry is not None:
        raise Refused("certificate", "something is claimed of the function's entry")
    both.originals = originals_of(both, [original for block in blocks for original in block.repeats.values()])
    both.forms.compared = 0
    ways = Ways(both)
    expected = claims = 0
    for number, block in enumerate(blocks):
        if number and block.entry is None:
            continue
        state, taken = entry_state(both, block.entry, number) if block.entry else (initial_state(both), 0)
        execution = Execution(both, state, number, block.splits, taken)
        repeats = 0
        for step in steps_of(both, number, block):
            run_step(execution, step, block)
            expected += len(step[1][1].operands) if step[1] is not None else 0
            repeats += step[0] is None and step[1] is not None and step[1][0] in block.repeats
        if execution.splits or repeats < len(block.repeats):
            raise Refused("certificate", "it repeats or splits at an instruction that is none", f"block {number}")
        execution.end_block()
        _check_return(both, number, state)
        for successor in both.before.successors(number):
            claimed = blocks[successor].entry
            if claimed is None:
                raise Refused("relation", f"nothing is claimed of block {successor}", f"block {number}")
            leave(ways, number, successor, state, claimed)
            every = (claimed.scalars, *(cls.claims for cls in claimed.classes))
            claims += sum(len(row) for of in every for row in of.rows)
    if both.forms.compared != expected:
        raise Refused("operands", f"{both.forms.compared} of {expected} operands were compared")
    return Accepted(expected, claims)


_INFO = "machineFunctionInfo."
_RETURN_ADDRESS = "$sgpr30_sgpr31"
_ALIGNMENT = "frameInfo.maxAlignment"
Numbered = tuple[int, Instruction]


def steps_of(both: Both, number: int, block: BlockCertificate) -> Iterator[tuple[Numbered | None, Numbered | None]]:
    """The steps of a block: instructions of both sides, each with its number, all used up once and in order (5)."""
    p, q = both.before.code(number), both.after.code(number)
    i = j = 0
    for kind, count in block.steps:
        of_p, of_q = kind in "=-", kind in "=+"
        for _ in range(count):
            if (of_p and i >= len(p)) or (of_q and j >= len(q)):
                raise Refused("certificate", "it has more steps than there are instructions", f"block {number}")
            yield (i, p[i]) if of_p else None, (j, q[j]) if of_q else None
            i, j = i + of_p, j + of_q
    if i < len(p) or j < len(q):
        raise Refused("certificate", "it leaves instructions out", f"block {number}")


def run_step(execution: Execution, step: tuple[Numbered | None, Numbered | None], block: BlockCertificate) -> None:
    """Execute one step."""
    a, b = step
    if execution.both.before.joints:
        execution.go_on(a[0] if a is not None else None, b[0] if b is not None else None)
    if b is None:
        assert a is not None
        execution.before_alone(a[1], a[0])
    elif a is None:
        execution.after_alone(b[1], block.repeats.get(b[0]))
    else:
        execution.pair(a[1], b[1], a[0])


# Entries.


def initial_state(both: Both) -> State:
    """The function's entry (4.1)."""
    scalars, vectors = Part(), Part()
    declared = declared_units(both.after, 0)
    virtual = {k for vreg in both.before.function.registers for k in both.before.all_lanes(vreg)}
    for key in virtual | both.before.named | {k for k in both.after.named if k < VIRTUAL}:
        part = vectors if both.before.is_vector(key) else scalars
        if key < VIRTUAL:
            part.add(key, (key,))
        else:
            part.undefine(key)
    for unit in both.restored:
        if unit % both.before.grain == 0:
            scalars.add(("^", unit, 0, 0), (unit,))
    for number, kind in both.moves[0].kinds.items():
        size = int(both.before.function.stack[number].get("size", "0"))
        for key in both.before.slot(number, 0, 8 * size):
            (scalars if kind == "S" else vectors).undefine(key)
    cells: dict[Key, set[Key]] = {
        register: set(keys) for register, keys in both.moves[False].cells.items() if register >= VIRTUAL
    }
    for key in (key for keys in cells.values() for key in keys):
        scalars.undefine(key)
    outside = vectors.copy()
    path = vectors.copy()
    for part in (scalars, path, vectors):
        leave_undeclared(both, part, declared, every=True)
    classes = [
        ThreadClass("P", True, path),
        ThreadClass("T", True, vectors),
        ThreadClass("O", False, outside),
    ]
    state = State(scalars, classes)
    state.some, state.name_cells = True, cells
    note_undeclared(both, state, declared)
    undefine_undeclared(both, state, 0)
    return state


def entry_state(both: Both, entry: Entry, number: int) -> tuple[State, int]:
    """The state that is claimed at a block's entry (4.2), and the number of its masks."""
    declared = declared_units(both.after, number)
    paths = [c for c in entry.classes if c.kind == "P"]
    if len(paths) != 1 or not paths[0].active or paths[0].within | paths[0].without:
        raise Refused("certificate", "not one class is the path, active and in no mask", f"block {number}")
    _check_names(both, entry, declared, number)
    alone: dict[Key, Names] = {}
    scalars = _part(entry.scalars, alone)
    classes = [ThreadClass(c.kind, c.active, _part(c.claims, alone), c.within, c.without) for c in entry.classes]
    state = State(scalars, classes)
    state.masks, state.nonempty, state.beside = dict(entry.masks), set(entry.nonempty), set(entry.beside)
    state.some = entry.some
    every = (entry.scalars, *(c.claims for c in entry.classes))
    pairs = [pair for row in _rows_of(every) for pair in row]
    names = {*(name for name, _ in pairs), *entry.masks}.union(*(of for c in every for of in (c.undefined, c.doubtful)))
    for registry, keys in ((state.cells, {place for _, place in pairs}), (state.name_cells, names)):
        for key in keys:
            if isinstance(key, tuple) and key[0] == "&":
                registry.setdefault(key[1], set()).add(key)
    note_undeclared(both, state, declared)
    undefine_undeclared(both, state, number)
    return state, 1 + max((m for m, _ in entry.masks.values()), default=-1)


def _part(claims: Claims, alone: dict[Key, Names]) -> Part:
    """A part of which this is claimed. ``alone``: sets of one name, which parts share."""
    part = Part()
    holds, where = part.holds, part.where
    for row in claims.rows:
        for name, place in row:
            held = holds.get(place)
            if held is None:
                held = alone.get(name)
                if held is None:
                    held = alone[name] = frozenset((name,))
                holds[place] = held
            else:
                holds[place] = held | {name}
            places = where.get(name)
            if places is None:
                where[name] = {place}
            else:
                places.add(place)
    part.undefined.update(claims.undefined)
    part.doubtful.update(claims.undefined, claims.doubtful)
    return part


def _rows_of(claims: Iterable[Claims]) -> list[list[tuple[Key, Key]]]:
    """The rows of all of these, each once: classes share them."""
    return list({id(row): row for of in claims for row in of.rows}.values())


def _check_names(both: Both, entry: Entry, declared: frozenset[int], number: int) -> None:
    """Names and places exist, and are of the part that speaks of them (4). Of a unit that nobody declares nothing is
    claimed but what it was at the function's entry; of a vector register, in classes that are active (4.3).
    """
    active = {id(row) for c in entry.classes if c.active for row in c.claims.rows}
    for in_class, every in ((False, [entry.scalars]), (True, [c.claims for c in entry.classes])):
        for row in _rows_of(every):
            for name, place in row:
                for key, after in ((name, False), (place, True)):
                    _check_exists(both, key, after=after)
                vector = both.is_vector(place, after=True)
                if (vector or both.is_vector(name, after=False)) != in_class:
                    raise Refused("certificate", "a claim stands in another part than its own")
                is_kept = name == ("^", place, 0, 0) and place not in both.named_after
                if (not vector or id(row) in active) and not is_kept and not may_hold(both, place, declared):
                    where = f"block {number}"
                    raise Refused("live-in", f"{write_key(place)} is claimed, but not declared live-in", where)
        for name in set[Key]().union(*(of for c in every for of in (c.undefined, c.doubtful))):
            _check_exists(both, name, after=False)
            if both.is_vector(name, after=False) != in_class:
                raise Refused("certificate", "a claim stands in another part than its own")
    for name in entry.masks:
        _check_exists(both, name, after=False)
    masks: defaultdict[int, list[int]] = defaultdict(list)
    for mask, part in entry.masks.values():
        masks[mask].append(part)
    whole = both.before.wave // (16 * both.before.grain)
    if any(sorted(parts) != list(range(whole)) for parts in masks.values()):
        raise Refused("certificate", "a mask that does not cover the wave")
    is_held = _are_masks(entry, masks) and not any(both.is_vector(n, after=False) for n in entry.masks)
    if not is_held:
        raise Refused("certificate", "a mask that no scalar holds")


def _are_masks(entry: Entry, masks: Iterable[int]) -> bool:
    """Whether all that an entry says of masks is said of these."""
    known = 0
    for mask in masks:
        known |= 1 << mask
    of_classes = all((c.within | c.without) & ~known == 0 for c in entry.classes)
    return of_classes and all(known >> mask & 1 for mask in (*entry.nonempty, *entry.beside))


def _check_exists(both: Both, key: Key, *, after: bool) -> None:
    if isinstance(key, int):
        if key < VIRTUAL or key in both.existing[after]:
            return
        function = (both.after if after else both.before).function
        number = (key - (SLOT if key >= SLOT else VIRTUAL)) // LANES
        lanes = both.after if after else both.before
        known = both.moves[after].kinds if key >= SLOT else function.registers
        if number not in known or (key < SLOT and key not in lanes.all_lanes(number)):
            raise Refused("certificate", f"there is no {write_key(key)}")
        both.existing[after].add(key)
        return
    kind, block, number, part = key
    if kind == "&":
        _check_exists(both, block, after=after)
    elif kind == "^":
        if after or block not in both.restored:
            raise Refused("certificate", f"unit {block} need not be restored")
    elif after is not (kind == "!") or (block, number) not in both.originals:
        raise Refused("certificate", f"instruction {number} of block {block} is not repeated")
    else:
        original = both.originals[block, number]
        lanes = both.before.keys(original.instruction.operands[0], original.instruction) if after else original.reads
        if part >= len(lanes):
            raise Refused("certificate", f"instruction {number} of block {block} has no lane {part}")


# Exits.


def _check_return(both: Both, number: int, state: State) -> None:
    """At a return what must be restored is, once all registers are allocated (12.3)."""
    code = both.before.code(number)
    if not both.is_last or not any("returns" in both.forms.opcode(i).traits for i in code):
        return
    unread = both.copied.unread[number]
    for unit in both.restored:
        stays = unit not in unread or unit in both.limits.kept
        held = state.scalars.holds.get(unit, NONE) if stays else NONE
        if unit % both.before.grain == 0 and ("^", unit, 0, 0) not in held:
            raise Refused("callee-saved", f"unit {unit} is not what it was at the function's entry", f"block {number}")


def leave(ways: Ways, number: int, successor: int, state: State, claimed: Entry) -> None:
    """The claims of a successor hold (12.1)."""
    test = test_of(ways.both, number)
    exec_is_zero = test.is_zero(successor) if test is not None and test.of_exec else None
    nonempty = set(state.nonempty)
    if test is not None and not test.of_exec and not test.is_zero(successor):
        nonempty.add(state.scc)
    if exec_is_zero:
        nonempty |= state.beside
    where = f"from block {number} to block {successor}"
    renamed: dict[int, int] = {}
    for name, (mask, part) in claimed.masks.items():
        known = state.masks.get(name)
        is_known = known is not None and known[1] == part and renamed.setdefault(mask, known[0]) == known[0]
        _require(is_known, "a mask is not known", where)
    if not _are_masks(claimed, renamed):
        raise Refused("certificate", "a mask that no scalar holds", where)
    _require({renamed[m] for m in claimed.nonempty} <= nonempty, "a mask may be empty", where)
    some = state.some if exec_is_zero is None else not exec_is_zero
    _require(some or not claimed.some, "no thread may be active", where)
    beside = nonempty | state.beside
    _require(some or {renamed[m] for m in claimed.beside} <= beside, "no thread may be active, or in a mask", where)
    skipping = ways.of_edge(number, successor)
    for way in skipping:
        reason = ways.breaks_scalars(way, state.scalars, claimed.scalars)
        _require(not reason, reason, where)
    _require_claims(state.scalars, claimed.scalars, None, where)
    scalars = state.scalars, claimed.scalars
    fitting = _Fitting(claimed, renamed)
    for cls in state.classes:
        if exec_is_zero and cls.active and cls.kind != "P":
            continue
        refused = Refused("relation", "a class of threads is not claimed", where)
        for claims in fitting.claims(cls):
            try:
                for way in skipping if cls.kind != "P" else ():
                    reason = way.breaks_threads(cls.part, claims)
                    _require(not reason, reason, where)
                _require_claims(cls.part, claims, scalars, where)
                break
            except Refused as error:
                refused = error
        else:
            raise refused


def _require(holds: bool, message: str, where: str) -> None:
    if not holds:
        raise Refused("relation", message, where)


class _Fitting:
    """What classes that are claimed a class may be: those of its kind, in no mask and out of none but as it is."""

    def __init__(self, claimed: Entry, renamed: dict[int, int]) -> None:
        """``renamed``: the masks that are claimed, by the numbers that they have so far."""
        by_step: dict[int, int] = {}
        for mask, known in renamed.items():
            by_step[known - mask] = by_step.get(known - mask, 0) | 1 << mask
        self._every = _renumbered(-1, by_step)
        self._rows = [
            (c.kind, c.active, _renumbered(c.within, by_step), _renumbered(c.without, by_step), c.claims)
            for c in claimed.classes
        ]
        self._alike: dict[tuple[str, bool, int, int], list[Claims]] = {}
        for kind, active, within, without, claims in self._rows:
            self._alike.setdefault((kind, active, within, without), []).append(claims)

    def claims(self, cls: ThreadClass) -> Iterator[Claims]:
        """Their claims, those of which as much is known of masks first."""
        within, without = cls.within, cls.without
        alike = self._alike.get((cls.kind, cls.active, within & self._every, without & self._every), [])
        yield from alike
        for kind, active, inside, outside, claims in self._rows:
            fits = kind == "P" or (inside & ~within == 0 and outside & ~without == 0)
            if fits and (kind, active) == (cls.kind, cls.active):
                yield claims


def _renumbered(masks: int, by_step: dict[int, int]) -> int:
    """Masks as bits, by their other numbers; ``by_step``: those whose number grows by so much."""
    new = 0
    for step, of_step in by_step.items():
        of_step &= masks
        new |= of_step << step if step >= 0 else of_step >> -step
    return new


def _require_claims(part: Part, claims: Claims, scalars: tuple[Part, Claims] | None, where: str) -> None:
    """All that is claimed of the scalars, or of a class, holds.

    Args:
        scalars: for a class: what is known of scalars, and what is claimed of them.
    """
    scalar_part, scalar_claims = scalars or (part, claims)
    doubtful = (part.doubtful | scalar_part.doubtful).difference(claims.undefined, claims.doubtful)
    doubtful.difference_update(scalar_claims.undefined, scalar_claims.doubtful)
    holds, undefined = part.holds, part.undefined
    for row in claims.rows:
        for name, place in row:
            held = holds.get(place)
            if (held is None or name not in held) and name not in undefined and name not in scalar_part.undefined:
                raise Refused("relation", f"{write_key(place)} does not hold {write_key(name)}", where)
            if doubtful and name in doubtful:
                raise Refused("relation", f"{write_key(name)} may be undefined", where)
    for name in claims.undefined:
        _require(name in undefined, f"{write_key(name)} is not undefined", where)
