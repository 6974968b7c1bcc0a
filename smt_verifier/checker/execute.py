"""Executing the steps of a block: what each step must show, and in which order it changes the state (specification 5,
6, 8 to 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smt_verifier.checker.certificate import SLOT, VIRTUAL, Key, write_key
from smt_verifier.checker.effects import Both, Effects, Place
from smt_verifier.checker.forms import Pair
from smt_verifier.checker.frame import moves_frame
from smt_verifier.checker.lanes import declared_units
from smt_verifier.checker.liveins import leave_undeclared, note_undeclared, undefine_undeclared
from smt_verifier.checker.model import Instruction, Kind
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.purity import is_dropped
from smt_verifier.checker.state import NONE, State, ThreadClass
from smt_verifier.checker.tables import Opcode
from smt_verifier.checker.threads import EXEC_NAMES, Masks, writes_exec

_NOT_FOLLOWED = frozenset({"vskip", "vgpr-msb", "indexed-mode", "indexed-on", "indexed-off"})
_MODE = 1
"""Number of the hardware register MODE (SIDefines.h, hwreg)."""
_WRITABLE = frozenset({_MODE, 3})
"""That one and TRAPSTS: others move scratch, or take registers away, or checks of what is not ready (SIDefines.h)."""
_STATE_PRIV = 4
_DEALLOC_VGPRS = 3
"""Number of the message by which a wave gives its VGPRs back (SIDefines.h, SendMsg; RDNA 3 ISA)."""
_OWN = frozenset({2, 3, 27, 28})
"""Its bits that round halves and doubles, which LLVM sets anew for what it knows to read them (SIModeRegister.cpp), and
GPR_IDX_EN and VSKIP (Vega and CDNA ISA manuals, "Mode register").
"""
_UNSAID = frozenset({2, 3, 5, 17, 18})
"""STATUS, with SCC and VCCZ, TRAPSTS, GPR_ALLOC and since gfx12 what says which exceptions there were (a conversion may
round, for LLVM's table without one): no operand says that they are read. Since gfx12 STATE_PRIV, 4, has SCC."""
_UPPER = frozenset(range(12, 20))
"""Its bits that are upper bits of the numbers of VGPRs, where there are more than 256 (SIDefines.h, DST_VGPR_MSB)."""
_PLAIN = frozenset({"copy", "lane-save", "lane-restore"})
"""Moves that need no register but their own (11.2)."""
_NO_UNITS: frozenset[int] = frozenset()
_DEBUG = ("debug-location ", "debug-instr-number ")


class Execution(Effects):
    """Runs the steps of one block.

    Args:
        splits: numbers of the instructions of P by whose result classes are split.
        taken: masks below this number have a meaning already.
    """

    def __init__(self, both: Both, state: State, block: int, splits: Iterable[int], taken: int) -> None:
        super().__init__(both, state, block)
        self.splits = set(splits)
        """Those that are still to come."""
        self._masks = Masks(both.before, state, taken)
        self._bundle: Instruction | None = None
        self._killed_by_moves: set[int] = set()
        self._specials = both.before.register("vcc").units[0]
        self._scc = both.before.register("scc").units

    def _is_split(self, number: int) -> bool:
        split = number in self.splits
        self.splits.discard(number)
        return split

    # Steps.

    def pair(self, a: Instruction, b: Instruction, number: int) -> None:
        """Instruction ``number`` of P together with one of Q."""
        opcode = self.both.forms.opcode(a)
        if "no-code" in opcode.traits or self.both.moves[False].read(a, opcode) is not None:
            raise Refused("instruction-sequence", f"{a.opcode} moves a value, or has no code, and never pairs")
        pair = self.both.forms.pair(a, b)
        if "bundle" in opcode.traits:
            self._open_bundle(b, pair)
            return
        self._require_followed(a, opcode)
        before, after = self.both.before.operand_keys(a), self.both.after.operand_keys(b)
        expands = "call" in opcode.traits or after.of_frame
        if expands:
            self.let_die()
        reads, writes, lost = self._runs_for(a, opcode)
        self._spare_callers(b, everywhere=bool(lost))
        for operand, use in pair.uses.items():
            early = frozenset[int]() if operand in pair.tied else pair.early
            readers = self._selected(a, opcode, operand, reads) if opcode.value("blend") else reads
            for name, place in zip(use.names, use.places, strict=True):
                overwritten = place in early and (name, place) not in pair.own
                self.read(name, place, readers, b, undef=use.undef, early=overwritten)
        definitions = pair.definitions
        if pair.high.rows and not all(
            self._agrees(*row, reads, early=row[1] in pair.early, undef=pair.high.undef) for row in pair.high.rows
        ):
            definitions = pair.without_high()
        sources = self._masks.facts(a, opcode)
        self.state.scc = -1 if self._writes_scc(a) else self.state.scc
        self._remember(number)
        given = self._given(after.killed, before.killed_scalars)
        calls = "call" in opcode.traits or any(o.kind is Kind.REGMASK for o in a.operands)
        if calls:
            self._call(a)
        self._access(b, expands=expands)
        for place in pair.spoiled:
            self.spoil(place, writes)
        self.define(a, definitions, writes, lost)
        if before.dead_scalars:
            given |= self._given(after.dead & self.both.limits.allocatable, before.dead_scalars)
        self._heed_flags(b)
        if b.closes_bundle and self._bundle is not None:
            self._heed_flags(self._bundle)
        self.state.given |= _NO_UNITS if calls else given
        self._killed_by_moves.clear()
        self.remember_result(number)
        self._spoil_frame(a, opcode, after=False)
        self._masks.follow(a, opcode, sources, split=self._is_split(number))
        if writes_exec(a, opcode):
            self.let_die()

    def before_alone(self, a: Instruction, number: int) -> None:
        """Instruction ``number`` of P, which Q does not have (5.1)."""
        opcode = self.both.forms.opcode(a)
        self._check_alone(a, opcode)
        if any("symbol " in t for t in a.tail):
            raise Refused("instruction-sequence", f"{a.opcode} says where a symbol is", f"line {a.line} before")
        move = self.both.moves[False].read(a, opcode)
        sources = self._masks.facts(a, opcode)
        self.state.scc = -1 if self._writes_scc(a) else self.state.scc
        self._spoil_frame(a, opcode, after=False)
        if move is not None:
            if self.both.is_counted and opcode.value("spill") and move.vector[0]:
                raise Refused("instruction-sequence", f"{a.opcode}: accesses are counted", f"line {a.line} before")
            self._killed_by_moves |= self.both.before.operand_keys(a).killed_scalars
            self.move_names(a, move)
            if sources and sources[0].exec:
                self._masks.follow(a, opcode, sources, split=False)
        elif "no-code" in opcode.traits:
            self.without_code(a, undefined="undefines" in opcode.traits)
        elif is_dropped(a, opcode, self.both.before, is_counted=self.both.is_counted):
            self._remember(number)
            self.drop(a)
            self.remember_result(number)
            self._masks.follow(a, opcode, sources, split=self._is_split(number))
        else:
            raise Refused("instruction-sequence", f"{a.opcode} is missing after allocation", f"line {a.line} before")
        self._killed_by_moves -= self.both.before.operand_keys(a).defined

    def after_alone(self, b: Instruction, original: Place | None) -> None:
        """An instruction that P does not have (5.1); ``original``: the one of P that it repeats."""
        opcode = self.both.forms.opcode(b)
        self._check_alone(b, opcode)
        quiet = not b.flags or b.opcode == "KILL" or original is not None
        split = "copy" in opcode.traits and b.flags == frozenset({"lr-split"})
        if not (quiet or split) or any(not t.startswith(_DEBUG) for t in b.tail):
            raise Refused("instruction-flags", f"{b.opcode} was added with flags or attributes", f"line {b.line}")
        self._check_written(b, opcode, repeats=original is not None)
        self._check_classes(b, opcode)
        move = self.both.moves[True].read(b, opcode)
        given = self._given(self.both.after.operand_keys(b).killed, self._killed_by_moves)
        self.let_die()
        plain = not _PLAIN.isdisjoint(opcode.traits)
        if not plain and original is None:
            self.state.given.clear()
        self._spare_callers(b, everywhere=move is not None and move.everywhere)
        self._access(b, expands=True, copies="copy" in opcode.traits)
        if move is not None and move.everywhere and opcode.value("spill"):
            self.state.danger_for_all = self.state.steps
        if original is not None:
            if move is not None or original not in self.both.originals:
                raise Refused("certificate", f"{b.opcode} repeats nothing", f"line {b.line}")
            self._repeat(b, opcode, original)
        elif move is not None:
            self.both.forms.compared += len(b.operands)
            self._spoil_frame(b, opcode, after=True)
            self.move_places(b, move)
        elif "no-code" in opcode.traits:
            self.both.forms.compared += len(b.operands)
            used = [o for o in b.operands if o.is_use and "undef" not in o.flags]
            read = {k for o in used for k in self.both.after.keys(o, b)}
            partly = [o.vreg for o in b.operands if o.is_def and o.is_register and o.vreg >= 0 and "undef" in o.flags]
            others = {k for vreg in partly for k in self.both.after.all_lanes(vreg)}
            for place in (self.both.after.operand_keys(b).defined | others) - read:
                self.spoil(place, self.state.running())
        else:
            raise Refused("instruction-sequence", f"{b.opcode} was not there before allocation", f"line {b.line}")
        self._heed_flags(b)
        if plain:
            self.state.given |= given

    def _repeat(self, b: Instruction, opcode: Opcode, place: Place) -> None:
        original = self.both.originals[place]
        a = original.instruction
        pair = self.both.forms.pair(a, b, repeats=True)
        if pair.high.rows:
            raise Refused("certificate", f"{b.opcode} repeats what is not wholly compared", f"line {b.line}")
        if any(pair.uses[n].undef for n in original.first if n in pair.uses) or not original.is_defined:
            raise Refused("undef-flag", f"{b.opcode} repeats what read nothing", f"line {b.line}")
        for number, y in enumerate(b.operands):
            x = a.operands[number] if number < len(a.operands) else None
            if y.is_use and "undef" in y.flags and (x is None or "undef" not in x.flags):
                raise Refused("undef-flag", f"{b.opcode} is repeated and says that it does not read", f"line {b.line}")
        running = self.state.running()
        for number, first in original.first.items():
            if first < original.execs:
                if not self._masks.is_exec(self._saved_exec(place)):
                    raise Refused("value", f"{b.opcode} is repeated for other threads", f"line {b.line}")
                continue
            use = pair.uses.get(number)
            if use is None:  # a register without storage
                continue
            early = frozenset[int]() if number in pair.tied else pair.early
            for part, key in zip(use.lanes, use.places, strict=True):
                name: Key = ("@", *place, first + part)
                vector = self.both.is_vector(name, after=False)
                for cls in [c for c in running if c.kind != "P"] if vector else (None,):
                    if name in (self.state.scalars if cls is None else cls.part).doubtful:
                        raise Refused("value", f"{b.opcode} repeats what may be undefined", f"line {b.line}")
                self.read(name, key, running, b, undef=False, early=key in early)
        self.repeat(b, place, pair)

    def _remember(self, number: int) -> None:
        """An original is about to be executed (8.3)."""
        self.remember_reads(number)
        original = self.both.originals.get((self.block, number)) if self.both.originals else None
        if original is not None and original.execs:
            self._masks.remember_exec(self._saved_exec((self.block, number)))

    def _saved_exec(self, place: Place) -> list[Key]:
        """Names of the parts of EXEC that an original read: those that cover the wave."""
        width = self.both.before.wave // (16 * self.both.before.grain)
        return [("@", *place, k) for k in range(min(width, self.both.originals[place].execs))]

    def _writes_scc(self, a: Instruction) -> bool:
        return any(o.is_def and o.register == "scc" for o in a.operands)

    def _open_bundle(self, b: Instruction, pair: Pair) -> None:
        """The head of a bundle sums up what its members read and write; later passes read it alone (6)."""
        self._bundle = b
        for use in pair.uses.values():
            for name, place in zip(use.names, use.places, strict=True):
                self.read(name, place, self.state.running(), b, undef=use.undef, early=False)

    # What may stand where.

    def _check_alone(self, instruction: Instruction, opcode: Opcode) -> None:
        if instruction.in_bundle or instruction.opens_bundle:
            raise Refused("bundle", f"{instruction.opcode} stands alone in a bundle")
        if writes_exec(instruction, opcode):
            raise Refused("instruction-sequence", f"{instruction.opcode} writes EXEC on one side alone")

    def _require_followed(self, a: Instruction, opcode: Opcode) -> None:
        """No whole-wave code, no mode in which opcodes mean something else, nothing that takes registers away (6)."""
        is_not_followed = False
        has_upper = self.both.processor.addressable_vgprs > 256
        if not opcode.traits.isdisjoint(("setreg", "getreg")):
            place = [o for o in a.operands if not o.is_implicit][-1].number & 0xFFFF
            bits = range(place >> 6 & 31, (place >> 6 & 31) + (place >> 11 & 31) + 1)
            number, writes = place & 63, "setreg" in opcode.traits
            odd = (_OWN if writes else _NO_UNITS) | (_UPPER if has_upper else _NO_UNITS)
            is_not_followed = number == _MODE and not odd.isdisjoint(bits)
            unsaid = number in _UNSAID or (number == _STATE_PRIV and self.both.processor.major > 11)
            is_not_followed |= number not in _WRITABLE if writes else unsaid
        if has_upper and ("low-vgprs" in opcode.traits or ("asm" in opcode.traits and self._leaves_upper(a))):
            is_not_followed |= not self.both.named_after.isdisjoint(self.both.after.tables.units("v")[512:])
        if has_upper and "may-load" in opcode.traits:
            results = a.operands[: a.definitions if self.both.before.grain == 1 else 0]
            is_not_followed |= any(len(self.both.before.keys(o, a)) == 1 for o in results)
        if "message" in opcode.traits and any(
            o.number & 0xFF == _DEALLOC_VGPRS for o in a.operands if not o.is_implicit
        ):
            is_not_followed = True
        if is_not_followed or not _NOT_FOLLOWED.isdisjoint(opcode.traits):
            raise Refused("not-followed", f"{opcode.name} is not followed", f"line {a.line} before")

    def _leaves_upper(self, a: Instruction) -> bool:
        """Whether LLVM finds no VGPR in assembly that has one: it looks no further than to the first implicit register
        (SIInstrInfo::hasVGPRUses), and does not set the upper bits of the numbers to 0.
        """
        before = self.both.before
        registers = [o for o in a.operands if o.is_register]
        vectors = [any(before.is_vector(key) for key in before.keys(o, a)) for o in registers]
        seen = next((number for number, o in enumerate(registers) if o.is_implicit), len(registers))
        return any(vectors) and not any(vectors[:seen])

    def _runs_for(
        self, a: Instruction, opcode: Opcode
    ) -> tuple[Sequence[ThreadClass], Sequence[ThreadClass], Sequence[ThreadClass]]:
        """The classes for which a pair reads, for which it writes, and in which its results are lost (5.4)."""
        state, reach = self.state, opcode.value("reach")
        running = state.running()
        if reach == "unclear" or ("asm" in opcode.traits and self._hints_at_others(a)):
            if any(c.kind == "T" and not c.active for c in state.classes):
                raise Refused("inactive-lanes", f"{a.opcode} while some threads wait", f"line {a.line} before")
            return running, running, [c for c in state.classes if not c.active]
        if reach == "first":
            if not state.some and any(o.is_use and not o.is_implicit and "undef" not in o.flags for o in a.operands):
                raise Refused("inactive-lanes", f"{a.opcode} where no thread may be active", f"line {a.line} before")
        elif reach in ("reads", "writes") and not self._masks.names_active_thread(a, opcode):
            every = [c for c in state.classes if c.active or c.kind != "O"]
            waiting = [c for c in state.classes if not c.active and c.kind == "O"]
            return (every, every, waiting) if reach == "writes" else (every, running, ())
        return running, running, ()

    def _hints_at_others(self, a: Instruction) -> bool:
        if self.both.is_obscure:
            return True
        text = next((o.text.lower() for o in a.operands if o.kind is Kind.ASM_STRING), "")
        words = self.both.before.tables.assembly
        return any(word in text.replace(unless, "") if unless else word in text for word, unless in words)

    def _check_written(self, b: Instruction, opcode: Opcode, *, repeats: bool) -> None:
        """Who may write what (13.6)."""
        both = self.both
        for o in b.operands:
            if not o.is_register or o.vreg >= 0 or not o.is_def:
                continue
            units = both.after.register(o.register).units
            restores = "lane-restore" in opcode.traits or opcode.value("spill").endswith(",restore")
            allowed = both.fixed | (both.restored if restores else _NO_UNITS)
            if both.limits.allocatable.issuperset(units) or (
                not repeats and "renamable" not in o.flags and allowed.issuperset(units)
            ):
                continue
            orders = o.register in EXEC_NAMES and "copy" in opcode.traits and b.operands[1].register == o.register
            if not (o.is_implicit and ((repeats and o.register == "scc") or orders)):
                message = f"{b.opcode} writes ${o.register}, which must not be allocated"
                raise Refused("reserved-register", message, f"line {b.line}")

    def _agrees(self, name: int, place: int, classes: Sequence[ThreadClass], *, early: bool, undef: bool) -> bool:
        """Whether Q's place holds a vector name in all of these classes, or the name is undefined."""
        may = not (early or undef) and place not in self.state.dying
        return all(name in c.part.undefined or (may and name in self.state.held(place, True, c)) for c in classes)

    def _selected(
        self, a: Instruction, opcode: Opcode, operand: int, classes: Sequence[ThreadClass]
    ) -> Sequence[ThreadClass]:
        """The classes for which an operand of V_SET_INACTIVE is read: one in a mask, one out of it (5.4)."""
        if not opcode.value("blend"):
            return classes
        inside, outside, mask = (a.definitions + number for number in opcode.numbers("blend"))
        source = self._masks.source(a.operands[mask], a)
        unread = {inside: False, outside: True}.get(operand)
        return [c for c in classes if c.kind == "P" or unread is None or source.of(c) is not unread]

    def _spare_callers(self, b: Instruction, *, everywhere: bool) -> None:
        """A called function writes vector registers of its caller's waiting threads only where it saves them (9.1)."""
        both = self.both
        if (
            both.is_entry
            or not both.is_last
            or not (everywhere or any(c.kind == "O" and c.active for c in self.state.classes))
        ):
            return
        if "no-code" in both.forms.opcode(b).traits:
            return
        kind, _, way = both.forms.opcode(b).value("spill").partition(",")
        keys = both.after.operand_keys(b)
        # LLVM may keep the slot in accumulators, or make the object's address in any register that is free (13.4).
        if keys.of_frame and (not kind.startswith("WWM_") or (both.spills_to_registers and way.endswith(",save"))):
            raise Refused("callee-saved", f"for {b.opcode} LLVM may write registers in threads that wait in the caller")
        for key in keys.defined:
            if key < VIRTUAL and both.after.is_vector(key) and key not in both.reserved_after:
                message = (
                    f"{b.opcode} writes a register in threads that wait in the caller, and is not in wwmReservedRegs"
                )
                raise Refused("callee-saved", message, f"line {b.line}")

    def _check_classes(self, b: Instruction, opcode: Opcode) -> None:
        """Explicit registers of what Q adds are of the class that the table gives the operand (13.6)."""
        both = self.both
        for o, row in zip(b.operands, opcode.operands, strict=False):
            name = row.classes[both.processor.mode] if o.is_register and o.vreg < 0 and not o.is_implicit else ""
            cls = both.after.tables.register_class(name) if name else None
            if name and (cls is None or not cls.contains(both.after.register(o.register))):
                raise Refused("register-class", f"{b.opcode} takes {name}, not ${o.register}", f"line {b.line}")

    # Reading and writing.

    def read(
        self, name: Key, place: int, classes: Sequence[ThreadClass], b: Instruction, *, undef: bool, early: bool
    ) -> None:
        """Q reads ``place`` where P reads ``name`` (5.5, 5.6)."""
        vector = self.both.is_vector(name, after=False)
        if not vector and self.both.is_vector(place, after=True):
            raise Refused("value", f"{b.opcode} reads a vector register for a scalar", f"line {b.line}")
        for cls in classes if vector else (None,):
            part = self.state.scalars if cls is None else cls.part
            if name in part.undefined:
                continue
            if early:
                raise Refused("early-clobber", f"{b.opcode} overwrites a register before it reads it", f"line {b.line}")
            if undef:
                raise Refused("undef-flag", f"{b.opcode} says that it reads nothing", f"line {b.line}")
            if name == place and place in self.state.given:
                continue
            held = part.holds.get(place, NONE) if cls is None else self.state.held(place, True, cls)
            if name not in held or place in self.state.dying:
                of = f"{b.opcode} reads {write_key(place)}, which need not hold {write_key(name)}"
                raise Refused("value", of + (f" in threads of class {cls.kind}" if cls else ""), f"line {b.line}")

    def _given(self, killed: set[int], killed_before: set[int]) -> set[int]:
        """Of the places that Q kills, those that P kills as well, and that hold what P has there (11.2)."""
        if not killed or not killed_before:
            return set[int]()
        holds = self.state.scalars.holds
        return {u for u in killed & killed_before if u in self.state.given or u in holds.get(u, NONE)}

    def _heed_flags(self, b: Instruction) -> None:
        """Kill and dead flags of Q are heeded, for the scalars and the active classes (11)."""
        keys = self.both.after.operand_keys(b)
        dead = keys.dead
        if not keys.killed and not dead:
            return
        running = self.state.running()
        for key in keys.killed | dead:
            if key >= VIRTUAL or key < self._specials or key in self.both.limits.allocatable or key in self._scc:
                dies = key not in dead and self.both.is_vector(key, after=True)
                self.expire(key, [c for c in running if c.kind == "P"] if dies else running)
                if dies:
                    self.state.dying.add(key)

    def end_block(self) -> None:
        """Behind the last step."""
        both = self.both
        if both.before.joints:
            self.go_on(len(both.before.code(self.block)), len(both.after.code(self.block)))
        self._end_part()
        self.state.end_block(both.copied.read[self.block])
        successors = both.before.successors(self.block)
        live = {p for s in successors for p in (*declared_units(both.after, s), *both.live_after[s])}
        held = {p for cls in self.state.classes if not cls.active for p in cls.part.holds if isinstance(p, int)}
        self.state.abandon(p for p in held - live if VIRTUAL <= p < SLOT or p in both.limits.allocatable)

    def go_on(self, before: int | None, after: int | None) -> None:
        """The next instructions of P and of Q, by number, or neither: what begins before them is entered (4.5)."""
        both, state = self.both, self.state
        for part in both.before.joints.get((self.block, before), ()) if before is not None else ():
            undefine_undeclared(both, state, part)
        for part in both.after.joints.get((self.block, after), ()) if after is not None else ():
            self._end_part()
            state.given.clear()
            self._killed_by_moves.clear()
            declared = declared_units(both.after, part)
            held = {p for cls in state.classes if not cls.active for p in cls.part.holds if isinstance(p, int)}
            state.abandon(p for p in held - declared if p in both.limits.allocatable)
            leave_undeclared(both, state.scalars, declared, every=True)
            for cls in state.classes:
                leave_undeclared(both, cls.part, declared, every=cls.active)
            note_undeclared(both, state, declared)

    def _end_part(self) -> None:
        """At the end of one of LLVM's blocks what P reads on is there where it is declared (11.2), and nothing in what
        active classes could not claim at its entry (4.3).
        """
        self.let_die()
        for cls in self.state.running() if self.state.undeclared else ():
            for place in self.state.undeclared & cls.part.holds.keys():
                cls.part.write(place, NONE)
        for unit in self.state.given:
            self.state.scalars.add(unit, (unit,))

    def _access(self, b: Instruction, *, expands: bool, copies: bool = False) -> None:
        """Q reads vector places and is about to write some: those that it only writes held nothing for the path (11.3).

        Args:
            expands: LLVM may write a dead register where it expands the instruction; a virtual register that is defined
                may yet become one.
            copies: it is a COPY, which LLVM may delete if nothing reads its target.
        """
        state, keys = self.state, self.both.after.operand_keys(b)
        state.steps += 1
        state.undeclared -= keys.written
        read, written = keys.read, keys.written
        if expands or (written and max(written) >= VIRTUAL):
            state.dangers[state.epoch] = state.steps
        allocatable = self.both.limits.allocatable
        state.abandon([p for p in written if p not in read and (p >= VIRTUAL or p in allocatable)])
        accessed, steps = state.accessed, state.steps
        for place in written:
            accessed[place] = steps - copies
        forwarded: set[Key] = set()
        if not state.copies.keys().isdisjoint(read):
            reads = [o for o in b.operands if o.reads and (o.is_implicit or "renamable" not in o.flags)]
            stays = {k for o in reads for k in self.both.after.keys(o, b)}
            forwarded = state.copies.keys() - stays
        for place in read:
            if place not in forwarded:  # Else LLVM may have the source read there, and delete the copy.
                accessed[place] = steps

    def let_die(self) -> None:
        """What was killed may be overwritten from now on by the threads that are active (11.1)."""
        running = self.state.running()
        for key in sorted(self.state.dying):
            self.expire(key, running)
        self.state.dying.clear()

    def _call(self, a: Instruction) -> None:
        """What a call does not preserve (9)."""
        both, state = self.both, self.state
        masks = [both.before.tables.mask(o.text) for o in a.operands if o.kind is Kind.REGMASK]
        if not masks or any(m is None for m in masks):
            raise Refused("call-mask", f"{a.opcode} has no register mask that is known", f"line {a.line} before")
        kept = both.limits.kept.union(masks[0] or ()).intersection(*(both.limits.kept.union(m or ()) for m in masks))
        active = state.running()
        state.scc = -1
        state.given.clear()
        parts = [state.scalars, *(c.part for c in state.classes)]
        for place in {p for part in parts for p in part.holds if _is_lost(p, kept)}:
            self.spoil(place, active)
        for name in {n for part in parts for n in (*part.where, *part.undefined) if _is_lost(n, kept)}:
            self.renew(name, active, undefined=True)
        for name in [n for n in state.masks if _is_lost(n, kept)]:
            del state.masks[name]
        for registry, lose in ((state.cells, self.spoil), (state.name_cells, self.renew)):
            for key in [k for register, cells in registry.items() if _is_lost(register, kept) for k in cells]:
                lose(key, ())

    def _spoil_frame(self, written: Instruction, opcode: Opcode, *, after: bool) -> None:
        """A write of what slots are addressed with (6)."""
        lanes, base = (self.both.after if after else self.both.before), self.both.frames[after]
        if not moves_frame(written, opcode.traits, lanes, base):
            return
        for part in [self.state.scalars, *(c.part for c in self.state.classes)]:
            for place in [p for p in part.holds if self._is_in_memory(p, after=True)]:
                self.spoil(place, self.state.classes)
            for name in [n for n in (*part.where, *part.undefined) if self._is_in_memory(n, after=False)]:
                self.renew(name, self.state.classes)
        for registry, lose in ((self.state.cells, self.spoil), (self.state.name_cells, self.renew)):
            for key in [k for slot, cells in registry.items() if isinstance(slot, int) and slot >= SLOT for k in cells]:
                lose(key, ())

    def _is_in_memory(self, key: Key, *, after: bool) -> bool:
        """Whether it is of a slot; of a scalar's only where that does not become a lane any more."""
        is_slot = isinstance(key, int) and key >= SLOT
        return is_slot and (self.both.is_last or self.both.is_vector(key, after=after))


def _is_lost(key: Key, kept: frozenset[int]) -> bool:
    """Whether it is of a physical register, and not among those that are kept."""
    return isinstance(key, int) and key < VIRTUAL and key not in kept
