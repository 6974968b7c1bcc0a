"""Which threads are active: EXEC and the scalar values that are thread masks, followed exactly.

The threads of a wave are partitioned into classes; each known mask is a union of classes. Boolean operations on known
masks give known masks; an operation with an unknown operand (a comparison) splits classes in two. That follows the
code that SILowerControlFlow.cpp and SIOptimizeExecMasking.cpp make for divergent branches and loops, and nothing
cleverer: an EXEC value that cannot be followed makes the audit answer UNKNOWN.

A mask is named by the terms of the scalar lanes that hold it, so copies, spills and reloads of any kind carry it
along by carrying the terms. Between blocks it is named by the lanes.

Threads that were not active at function entry are outside every class, or a class of their own, marked ``OUTSIDE``:
that is so where EXEC may come to hold them (ENTER_STRICT_WWM, S_OR_SAVEEXEC -1, a scalar that is live at entry). Both
sides start in one machine state, in these threads too: physical registers hold the same, virtual ones nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice, product

from smt_verifier.audit.core.lanes import LaneMap
from smt_verifier.audit.core.moves import cell_threads, really_written, scalar_moves
from smt_verifier.audit.core.opcodes import EXEC_NAMES, facts
from smt_verifier.audit.core.state import (
    EXEC,
    FLAGS,
    IN_EXEC,
    UNDEFINED,
    Atom,
    ByClass,
    Known,
    Mask,
    MaskBits,
    Signature,
    State,
    Trait,
)
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, MachineFunction, Operand, OperandKind

# What is known of thread masks besides which classes are in them, and of scalars that number threads.
#
# V_READLANE and V_WRITELANE do not ask EXEC (ISA manuals). AMDGPUAtomicOptimizer.cpp gives them the first set bit of a
# copy of EXEC as their lane, or of what a loop has left of that copy: then they touch an active thread, and no other.
# V_READFIRSTLANE takes lane 0, active or not, where EXEC is 0.
#
# These facts are followed: a mask is not empty, a mask is part of EXEC, a mask holds the first active thread, a scalar
# is the number of an active thread. A mask or number is named by the terms that hold it. The value of a term never
# changes, so "not empty" stays true. The others speak of EXEC as it is now: they are forgotten where EXEC is written,
# unless all threads in it stay in it (the first of them may be another one then).
#
# The first set bit of a mask that is part of EXEC and not empty numbers an active thread; of an empty one it is -1.
# Where V_CMP_EQ compares a register with what V_READFIRSTLANE took from it, the first active thread finds them equal:
# waterfall loops are never without a thread (SIInstrInfo::legalizeOperands).
#
# Assumed: a function is entered with some thread active. A wave starts so, and LLVM branches around calls where no
# thread is active (SIInstrInfo::hasUnwantedEffectsWhenEXECEmpty).


LANE_OPERAND = 1
"""Number of the lane among the operands of V_READLANE and V_WRITELANE."""

Truth = bool | None
"""Membership of a class in a mask: in, out, or not known."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an operand holds before its instruction writes: a constant mask, a named one (known or not), or neither."""

    constant: Truth = None
    name: Mask | None = None

    def has(self, fact: Trait, known: set[Known]) -> bool:
        """Whether a fact about this operand is known."""
        if self.constant is not None:
            return fact is (Trait.NOT_EMPTY if self.constant else Trait.PART_OF_EXEC)
        return (fact is Trait.PART_OF_EXEC and self.name == EXEC) or (fact, self.name) in known


def facts_of_result(operation: str, sources: list[Source], known: set[Known]) -> set[Trait]:
    """Facts about the result of a mask operation. Threads in ``a AND b`` are in both, in ``a ANDN2 b`` in ``a``, in
    ``a OR b`` and ``a XOR b`` in one of them. Nothing is known of other operations.
    """
    in_exec = [s.has(Trait.PART_OF_EXEC, known) for s in sources]
    not_empty = [s.has(Trait.NOT_EMPTY, known) for s in sources]
    with_first = [s.has(Trait.FIRST_THREAD, known) for s in sources]
    facts: set[Trait] = set()
    part_of_exec = {"AND": any(in_exec), "ANDN2": in_exec[0], "OR": all(in_exec), "XOR": all(in_exec)}
    if part_of_exec.get(operation, False):
        facts.add(Trait.PART_OF_EXEC)
    if operation == "OR" and any(not_empty):
        facts.add(Trait.NOT_EMPTY)
    if (operation == "AND" and all(with_first)) or (operation == "OR" and any(with_first)):
        facts.add(Trait.FIRST_THREAD)
    return facts


def facts_of_move(source: Source, known: set[Known]) -> set[Trait]:
    """A copy of a mask has its facts."""
    return {f for f in (Trait.NOT_EMPTY, Trait.PART_OF_EXEC, Trait.FIRST_THREAD) if source.has(f, known)}


def after_exec_changed(known: Iterable[Known], *, grown: bool) -> set[Known]:
    """What is still known where EXEC has got another value; ``grown``: all threads that were in it still are."""
    lasting = {Trait.NOT_EMPTY, Trait.PART_OF_EXEC, Trait.ACTIVE_THREAD} if grown else {Trait.NOT_EMPTY}
    return {k for k in known if k[0] in lasting}


QUICK_WORK = 100_000
MAX_WORK = 1_000_000
"""Classes that are changed, asked about or handed on, each time counted: a second's worth, and half a minute's."""
_TIDY_ABOVE = 8
_MANY_CLASSES = 8
_MAX_HOLDERS = 4
_ENTER_WHOLE_WAVE = "ENTER_STRICT_WWM"

Variable = tuple[int, ...]
"""Scalar pre-RA keys that hold a mask, lowest lane first."""


def _and(a: Truth, b: Truth) -> Truth:
    return False if a is False or b is False else None if a is None or b is None else True


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _or(a: Truth, b: Truth) -> Truth:
    return _not(_and(_not(a), _not(b)))


def _xor(a: Truth, b: Truth) -> Truth:
    return None if a is None or b is None else a != b


_OPERATIONS: dict[str, Callable[[Truth, Truth], Truth]] = {
    "AND": _and,
    "OR": _or,
    "XOR": _xor,
    "ANDN2": lambda a, b: _and(a, _not(b)),
    "ORN2": lambda a, b: _or(a, _not(b)),
    "ANDN1": lambda a, b: _and(_not(a), b),
    "ORN1": lambda a, b: _or(_not(a), b),
    "NAND": lambda a, b: _not(_and(a, b)),
    "NOR": lambda a, b: _not(_or(a, b)),
    "XNOR": lambda a, b: _not(_xor(a, b)),
}


_Value = Callable[[Signature | None], Truth]


def defines_exec(instruction: Instruction) -> bool:
    """Whether the instruction writes EXEC; ``implicit-def $exec`` on a copy only orders it and writes nothing."""
    for op in instruction.all_operands:
        if op.is_def and op.phys in EXEC_NAMES and not (op.implicit and instruction.opcode == "COPY"):
            return True
    return False


class Precision(Enum):
    """How finely threads are told apart."""

    QUICK = "by every comparison, while that is little work"
    COARSE = "by few comparisons; the others are taken as not known"
    FINE = "by every comparison"


class TooManyClassesError(UnsupportedError):
    """More work with classes of threads than is spent."""


class OutsideError(UnsupportedError):
    """EXEC may come to hold threads that were not active at function entry, and those are not followed."""


class MaskTracker:
    """Follows masks through the pre-RA side of one function.

    Args:
        precision: how finely threads are told apart.
        remembered: keys of masks that ``remember_exec`` makes.
        by_path: EXEC is followed nowhere: all threads count as active throughout.
    """

    def __init__(
        self,
        function: MachineFunction,
        lanes: LaneMap,
        precision: Precision,
        remembered: frozenset[int] = frozenset(),
        *,
        by_path: bool = False,
    ) -> None:
        self.lanes = lanes
        self.precision = precision
        self.variables = MaskBits()
        """Bits of the masks that signatures in claims name."""
        self.missed_outside = False
        """Whether a mask was not followed because it holds threads outside all classes."""
        self._work = 0
        self.entry: list[frozenset[int]] = [remembered for _ in function.blocks]
        """For each block, the scalar keys whose values at its entry may reach EXEC, or the lane of a V_READLANE, and
        those of remembered masks.
        """
        self._scc = lanes.register_keys("scc")[0]
        self._flowing = self._followed = frozenset[int]()
        if by_path:
            return
        self._flowing = self._flow_into(function, defines_exec)
        self._followed = self._flowing | (
            self._flow_into(function, lambda i: facts(i.opcode).takes_lane)
            if any(facts(opcode).takes_lane for opcode in function.opcodes)
            else frozenset[int]()
        )

    def _flow_into(self, function: MachineFunction, reaches: Callable[[Instruction], bool]) -> frozenset[int]:
        """Identities of the instructions whose scalar result may reach one of those, through mask operations and moves.

        Only those that reach EXEC split threads into classes: a comparison that selects between two values is not
        followed, even if its register held a mask before. What is left out is merely not known, so this decides
        precision alone.
        """
        if not any(reaches(i) for b in function.blocks for i in b.instructions):
            return frozenset()
        threads = cell_threads(function)
        flows = [[(i, *self._flow(i, threads)) for i in reversed(b.instructions)] for b in function.blocks]
        position = {b.number: n for n, b in enumerate(function.blocks)}
        flowing: set[int] = set()
        entry: list[frozenset[int]] = [frozenset() for _ in function.blocks]
        changed = True
        while changed:
            changed = False
            for n in range(len(function.blocks) - 1, -1, -1):
                needed: set[int] = {k for s, _ in function.blocks[n].successors for k in entry[position[s]]}
                for instruction, pairs, written in flows[n]:
                    into = reaches(instruction)
                    if not into and needed.isdisjoint(written):
                        continue
                    flowing.add(id(instruction))
                    sources = {k for to, of in pairs for k in of if into or not needed.isdisjoint(to)}
                    needed = (needed - written) | sources
                if frozenset(needed) != entry[n]:
                    entry[n] = frozenset(needed)
                    changed = True
        self.entry = [one | other for one, other in zip(self.entry, entry, strict=True)]
        return frozenset(flowing)

    def _flow(
        self, instruction: Instruction, threads: frozenset[int]
    ) -> tuple[list[tuple[frozenset[int], frozenset[int]]], frozenset[int]]:
        """Pairs of scalar keys, where a mask may go from the second to the first, and all scalar keys written."""
        written = frozenset(k for op in really_written(instruction) for k in self._scalar_keys(op))
        moves = scalar_moves(instruction, self.lanes, threads)
        if moves is not None:
            pairs = [(frozenset({to}), frozenset({of})) for to, of in moves]
            return pairs, written.union(to for to, _ in moves)
        opcode = instruction.opcode
        if facts(opcode).takes_lane:
            return [(written, frozenset(self._scalar_keys(instruction.operands[LANE_OPERAND])))], written
        form = facts(opcode).mask
        if not (form.binary or form.save or form.moves or form.finds_first_bit):
            return [], written
        sources = frozenset(k for op in instruction.operands if op.is_use for k in self._scalar_keys(op))
        return [(written, sources)], written

    def _scalar_keys(self, operand: Operand) -> tuple[int, ...]:
        keys = self.lanes.keys(operand) if operand.is_reg else ()
        return () if not keys or self.lanes.is_vector(keys[0]) else keys

    def follows(self, instruction: Instruction) -> bool:
        """Whether an instruction may make a mask that is followed."""
        return id(instruction) in self._followed

    def read(self, instruction: Instruction, state: State) -> list[Source]:
        """Masks that the explicit operands hold, to be asked for before the instruction writes; empty where no mask is
        followed. For a comparison that the first active thread finds true, EXEC stands for that thread.
        """
        if id(instruction) not in self._followed:
            return []
        if facts(instruction.opcode).mask.compares:
            return [Source(name=EXEC if self._equals_first(instruction, state) else None)]
        return [self._source(op, state) for op in instruction.operands[:2]]

    def _source(self, operand: Operand, state: State) -> Source:
        if operand.kind is OperandKind.IMMEDIATE:
            number = operand.text.split()[0]
            return Source(constant={"0": False, "-1": True}.get(number))
        readable = operand.is_reg and not operand.is_def and not operand.undef
        return Source(name=self._name(operand, state)) if readable else Source()

    def _name(self, operand: Operand, state: State) -> Mask | None:
        if operand.phys in EXEC_NAMES:
            whole = operand.phys == ("exec" if self.lanes.wave_size == 64 else "exec_lo")
            return EXEC if whole else None
        keys = self._scalar_keys(operand)
        if len(keys) * self.lanes.grain * 16 != self.lanes.wave_size:
            return None
        name = tuple(state.pre.get(k, UNDEFINED) for k in keys)
        return None if UNDEFINED in name else name

    def transfer(self, instruction: Instruction, sources: list[Source], state: State) -> None:
        """Update the classes for one pre-RA instruction that has written its results.

        Raises:
            UnsupportedError: EXEC gets a value that cannot be followed.
        """
        if id(instruction) not in self._followed:
            return
        writes_exec = defines_exec(instruction)
        opcode = instruction.opcode
        defined = next(iter(instruction.defs), None)
        target = None if defined is None else self._name(defined, state)
        still_inhabited = self._learn(instruction, sources, target, state)
        if id(instruction) not in self._flowing:
            return
        form = facts(opcode).mask
        if form.save:
            self._save_exec(opcode, _OPERATIONS[form.save], sources[0], target, state)
        elif opcode == _ENTER_WHOLE_WAVE:
            self._save_exec(opcode, lambda _a, _b: True, Source(), target, state)
        elif form.binary and target is not None:
            a, b, operation = sources[0], sources[1], _OPERATIONS[form.binary]
            in_a, in_b = _membership(a, state), _membership(b, state)
            self._assign_or_bound(target, lambda of: operation(in_a(of), in_b(of)), state)
        elif form.moves and target is not None:
            if opcode != "COPY" or EXEC in (target, sources[0].name):
                self._assign(target, _membership(sources[0], state), state)
        elif form.compares and target is not None and not writes_exec:
            self._assign_or_bound(target, _compared, state)
        elif opcode.startswith("V_CMPX_"):
            self._assign(EXEC, _compared, state)
        elif writes_exec:
            raise UnsupportedError(f"{opcode} sets EXEC in a way the audit does not follow")
        if still_inhabited:
            state.inhabited.add(frozenset(s for a in state.atoms if a.active for s in a.signatures))

    def _learn(self, instruction: Instruction, sources: list[Source], target: Mask | None, state: State) -> bool:
        """What an instruction lets one know of its result; see above.

        Returns:
            Whether it writes EXEC, and some thread that was active still is.
        """
        form, known_traits = facts(instruction.opcode).mask, state.known_traits
        if state.entered:
            known_traits = known_traits | {(Trait.NOT_EMPTY, EXEC), (Trait.FIRST_THREAD, EXEC)}
        traits: set[Trait] = set()
        saves, grown = False, False
        if form.finds_first_bit:
            if all(sources[0].has(f, known_traits) for f in (Trait.NOT_EMPTY, Trait.PART_OF_EXEC)):
                state.known_traits.add((Trait.ACTIVE_THREAD, self._scalar(instruction.defs[0], state)))
            return False
        if form.moves:
            traits = facts_of_move(sources[0], known_traits)
        elif form.compares:
            traits = {Trait.PART_OF_EXEC} | (facts_of_move(sources[0], known_traits) & {Trait.FIRST_THREAD})
        elif operation := form.binary or form.save:
            saves = not form.binary
            operands = [sources[0], Source(name=EXEC)] if saves else sources
            traits = facts_of_result(operation, operands, known_traits)
            grown = operation == "OR" and any(s.name == EXEC for s in operands)
        elif instruction.opcode == _ENTER_WHOLE_WAVE:
            saves, grown = True, True
        if not defines_exec(instruction):
            state.known_traits |= {(f, target) for f in traits if target is not None}
            tests = form.binary and any(op.is_def and op.phys == "scc" for op in instruction.operands)
            if target is not None and tests:
                state.tests[state.pre[self._scc]] = target
            return False
        state.first = {}
        state.known_traits = after_exec_changed(state.known_traits, grown=grown)
        if saves and target is not None and target != EXEC:
            state.known_traits |= {(Trait.NOT_EMPTY, target)} if state.entered else set()
            state.known_traits |= {(Trait.PART_OF_EXEC, target)} if grown else set()
        return state.entered and Trait.FIRST_THREAD in traits

    def note_first(self, instruction: Instruction, state: State, maybe_undefined: Container[int]) -> None:
        """V_READFIRSTLANE has read a register: remember what, unless it may be undefined."""
        if facts(instruction.opcode).reads_first_lane and instruction.defs and not instruction.operands[0].undef:
            to, of = (self.lanes.keys(op) for op in (instruction.defs[0], instruction.operands[0]))
            for scalar, lane in zip(to, of, strict=False):
                by_class = _by_class(lane, state)
                if not any(term == UNDEFINED or term in maybe_undefined for _, term in by_class):
                    state.first[state.pre[scalar]] = by_class

    def _equals_first(self, instruction: Instruction, state: State) -> bool:
        """Whether a comparison asks where a register holds what it holds in the first active thread."""
        if not facts(instruction.opcode).mask.compares_equal:
            return False
        scalar, vector = instruction.operands[:2]
        if not (scalar.is_reg and vector.is_reg) or scalar.undef or vector.undef:
            return False
        pairs = list(zip(self._scalar_keys(scalar), self.lanes.keys(vector), strict=False))
        return bool(pairs) and all(
            state.first.get(state.pre.get(s, UNDEFINED)) == _by_class(v, state) for s, v in pairs
        )

    def tested(self, state: State) -> Mask | None:
        """The mask of which SCC says now whether it is not empty (ISA manuals: bitwise operations set SCC so)."""
        return state.tests.get(state.pre.get(self._scc, UNDEFINED))

    def touches_active_only(self, instruction: Instruction, state: State) -> bool:
        """Whether the lane of a V_READLANE or V_WRITELANE is known to be that of an active thread."""
        if not facts(instruction.opcode).takes_lane:
            return False
        operand = instruction.operands[LANE_OPERAND]
        readable = operand.is_reg and not operand.undef
        return readable and (Trait.ACTIVE_THREAD, self._scalar(operand, state)) in state.known_traits

    def _scalar(self, operand: Operand, state: State) -> Mask:
        return tuple(state.pre.get(k, UNDEFINED) for k in self._scalar_keys(operand))

    def includes(self, operand: Operand, signature: Signature, state: State) -> Truth:
        """Whether the threads of a class are in the mask that a scalar operand holds now."""
        return _membership(Source(name=self._name(operand, state)), state)(signature)

    def remember_exec(self, name: Mask, state: State) -> None:
        """A mask of this name holds the active threads from here on."""
        self._assign(name, lambda signature: signature is not None and bool(signature & IN_EXEC), state)

    def is_exec(self, name: Mask, state: State) -> bool:
        """Whether the threads of a mask are known to be those that are active now."""
        bit = state.bits.known(name)
        return name in state.masks and all(
            bool(s & bit) is bool(s & IN_EXEC) for a in state.atoms for s in a.signatures
        )

    def holders(self, masks: Iterable[Mask], state: State, block: int) -> dict[Variable, Mask]:
        """Keys that hold masks, of those that may reach EXEC or a lane from the entry of the block at this position."""
        names = [m for m in masks if not isinstance(m, int)]
        if not names:
            return {}
        holders: dict[int, list[int]] = {t: [] for name in names for t in name}
        for key in self.entry[block]:
            row = holders.get(state.pre.get(key, UNDEFINED))
            if row is not None:
                row.append(key)
        variables: dict[Variable, Mask] = {}
        for name in names:
            rows = [sorted(holders[t], key=abs) for t in name]
            variables.update((variable, name) for variable in islice(product(*rows), _MAX_HOLDERS))
        return variables

    def _save_exec(
        self,
        opcode: str,
        operation: Callable[[Truth, Truth], Truth],
        source: Source,
        target: Mask | None,
        state: State,
    ) -> None:
        """``D = EXEC; EXEC = S0 operation EXEC`` (ISA manual, SOP1); ENTER_STRICT_WWM makes EXEC all threads."""
        if target is None or target == EXEC:
            raise UnsupportedError(f"{opcode} without a destination that can be followed")
        inside = _membership(source, state)
        if not _has_outside(state) and operation(inside(None), False) is not False:
            raise OutsideError("EXEC may come to hold threads that were not active at function entry")

        bit = state.bits.of(target)

        def saved(signature: Signature) -> tuple[Signature, ...]:
            old = bool(signature & IN_EXEC)
            new = operation(inside(signature), old)
            return _placed(signature & ~(bit | IN_EXEC) | bit * old, IN_EXEC, new)

        state.masks.add(target)
        self._install(saved, state)

    def _assign(self, target: Mask, value: _Value, state: State) -> None:
        if not _has_outside(state) and value(None) is not False:
            if target == EXEC:
                raise OutsideError("EXEC may come to hold threads that were not active at function entry")
            self.missed_outside |= value(None) is True
            return
        if target != EXEC:
            state.masks.add(target)
        bit = state.bits.of(target)
        self._install(lambda signature: _placed(signature & ~bit, bit, value(signature)), state)

    def _assign_or_bound(self, target: Mask, value: _Value, state: State) -> None:
        """As ``_assign``; where there are many classes, a mask that would split them is not known.

        Known comparisons tell apart as many classes as they have combinations. One that is not known splits where it
        reaches EXEC; only how several uses of it go together is lost.
        """
        coarse = self.precision is Precision.COARSE and target != EXEC and _classes(state) >= _MANY_CLASSES
        if not coarse or all(value(s) is not None for a in state.atoms for s in a.signatures):
            self._assign(target, value, state)
        elif value(None) is False:
            state.bounded.add(target)

    def _install(self, change: Callable[[Signature], tuple[Signature, ...]], state: State) -> None:
        """Every class becomes what ``change`` says."""
        changed = {s: change(s) for a in state.atoms for s in a.signatures}
        changed |= {s: change(s) for classes in state.inhabited for s in classes if s not in changed}
        state.inhabited = {frozenset(new for s in classes for new in changed[s]) for classes in state.inhabited}
        state.atoms = _merged(_each(changed, state))
        if _classes(state) > _TIDY_ABOVE:
            self._tidy(state)
        self.spend(_classes(state))

    def spend(self, classes: int) -> None:
        """Count work.

        Raises:
            TooManyClassesError: it is too much in all.
        """
        self._work += classes
        if self._work > (min(QUICK_WORK, MAX_WORK) if self.precision is Precision.QUICK else MAX_WORK):
            raise TooManyClassesError("too many classes of threads to tell apart")

    @staticmethod
    def _tidy(state: State) -> None:
        """Forget masks that no lane holds any more, and merge the classes that only they told apart."""
        live_terms = set(state.pre.values())
        state.masks = {m for m in state.masks if isinstance(m, int) or live_terms.issuperset(m)}
        keep = FLAGS
        for mask in state.masks:
            keep |= state.bits.known(mask)
        for atom in state.atoms:
            atom.signatures = {signature & keep for signature in atom.signatures}
        state.inhabited = {frozenset(signature & keep for signature in classes) for classes in state.inhabited}


def _by_class(lane: int, state: State) -> ByClass:
    """What a vector lane holds in each active class."""
    return frozenset((s, a.pre.get(lane, UNDEFINED)) for a in state.atoms if a.active for s in a.signatures)


def _has_outside(state: State) -> bool:
    return any(a.outside for a in state.atoms)


def _classes(state: State) -> int:
    return sum(len(a.signatures) for a in state.atoms)


def _membership(source: Source, state: State) -> _Value:
    """Membership of a class (None: threads outside all classes) in what an operand holds now."""
    if source.constant is not None:
        return lambda _: source.constant
    if source.name is not None and (source.name == EXEC or source.name in state.masks):
        bit = state.bits.known(source.name)
        return lambda signature: signature is not None and signature & bit != 0
    bounded = source.name in state.bounded
    return lambda signature: False if signature is None and bounded else None


def _compared(signature: Signature | None) -> Truth:
    """A comparison gives 0 for inactive threads and is not known for active ones (ISA manual, VOPC)."""
    return None if signature is not None and signature & IN_EXEC else False


def _placed(rest: Signature, bit: int, truth: Truth) -> tuple[Signature, ...]:
    """A class with the mask of ``bit`` added to ``rest`` as ``truth`` says; not known makes two of it."""
    return (rest, rest | bit) if truth is None else (rest | bit,) if truth else (rest,)


def _each(changed_to: dict[Signature, tuple[Signature, ...]], state: State) -> list[Atom]:
    """Every class as ``changed_to`` says; an atom of which some classes are active then, and some not, is two."""
    atoms: list[Atom] = []
    for atom in state.atoms:
        changed = {new for signature in atom.signatures for new in changed_to[signature]}
        active = {s for s in changed if s & IN_EXEC}
        if active and len(active) < len(changed):
            atoms.append(atom.split(active))
            changed -= active
        atom.signatures = changed
        atoms.append(atom)
    return atoms


def _merged(atoms: list[Atom]) -> list[Atom]:
    """One atom for the classes that hold the same in all lanes, and are all active or all frozen."""
    result: list[Atom] = []
    waiting: dict[tuple[int, int], Atom] = {}
    touched: dict[int, list[Atom]] = {}
    for atom in atoms:
        flags = next(iter(atom.signatures)) & FLAGS
        if atom.untouched is not None:
            # Its terms are in no tables but in copies of its own, and those were touched for a reason.
            same = waiting.setdefault((flags, id(atom.untouched)), atom)
        else:
            row = touched.setdefault(flags, [])
            same = next((a for a in row if atom.pre == a.pre and atom.post == a.post), atom)
            if same is atom:
                row.append(atom)
        if same is atom:
            result.append(atom)
        else:
            same.signatures |= atom.signatures
            same.missed &= atom.missed
    return result
