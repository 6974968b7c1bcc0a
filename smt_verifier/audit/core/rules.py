"""Machine rules of one pair of instructions, and of code the allocator added: everything that is not about values.

Each rule is one function; its name is the finding's rule. Values, undefined operands and early-clobber results are
goals of ``execute.py``; kill flags, dead flags and block live-ins are checked in ``flags.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smt_verifier.audit.core.lanes import LaneMap, key_name
from smt_verifier.audit.core.moves import lane_move
from smt_verifier.audit.core.opcodes import COPIES, EXEC_NAMES, INLINE_ASSEMBLY, facts
from smt_verifier.audit.core.pairs import Step, operation_name
from smt_verifier.audit.core.report import Finding, OperandPair
from smt_verifier.audit.core.semantics import (
    acts_alone,
    early_clobbers,
    either_file_operands,
    is_plain_load,
    is_pure,
    may_be_tied,
    reads_matrices,
    spill_slot,
    ties,
)
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.model import Instruction, Operand, OperandKind
from verilocc_mlir.mir.operands import split_top_level
from verilocc_mlir.target.classes import RegisterClass, contains, register_class
from verilocc_mlir.target.instructions import instruction
from verilocc_mlir.target.registers import (
    Bank,
    PhysicalRegister,
    lane_list,
    physical_register,
    subregister_lanes,
    tuple_name,
    unit_name,
)


class Complaint(NamedTuple):
    """What is wrong, and with which operand (LLVM's number; -1: with no single one)."""

    rule: str
    message: str
    operand: int = -1


_SPLIT = ("lr-split",)
"""What LLVM 24 writes on the copies of a live range that it splits (SplitKit.cpp); only allocation asks for it."""
_WITH_NAMES = (OperandKind.REGISTER, OperandKind.BLOCK)
"""Operands with names of one side; all others are compared as text."""
_SCC = frozenset(physical_register("scc").units)
"""Never allocated, and not reserved either."""
_OF_REGISTERS = frozenset({"register-class", "tied-operand", "width", "fixed-register"})


@dataclass(frozen=True, slots=True)
class MachineRules:
    """The rules for one function.

    Attributes:
        pre: lanes of the pre-RA side, which knows the classes.
        blocks: post-RA block number for each pre-RA one, by layout position.
        allocatable: units that an allocator may hand out in this function.
        fixed_targets: units that pre-RA moves write; moves stand on both sides and never pair.
        restored: units that must hold at each return what they held at entry, where that is asked for.
        in_brackets: units that whole-wave brackets leave undefined (``brackets.py``).
        processor: the target's name, by which LLVM's table gives register classes.
        has_agprs: whether the target has one vector register file for VGPRs and AGPRs.
        originals: pre-RA instructions of the pure operations that stand on one side alone somewhere.
    """

    pre: LaneMap
    post: LaneMap
    blocks: dict[int, int]
    allocatable: frozenset[int]
    fixed_targets: frozenset[int]
    restored: frozenset[int]
    in_brackets: frozenset[int]
    processor: str
    has_agprs: bool
    originals: Mapping[str, Sequence[Instruction]]
    _of_pairs: dict[tuple[int, int], tuple[Complaint, ...]] = field(
        default_factory=dict[tuple[int, int], tuple[Complaint, ...]]
    )
    """Complaints of pairs of instructions, by ``id``: both are asked about twice."""
    _agreeing: dict[tuple[str, str, bool, bool, bool], bool] = field(
        default_factory=dict[tuple[str, str, bool, bool, bool], bool]
    )
    """Whether two operands agree wherever they stand, by what they are made of, and whether of either file."""
    _either: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    """Operands that may be of either file, by opcode."""
    _alike_flags: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = field(
        default_factory=dict[tuple[tuple[str, ...], tuple[str, ...]], bool]
    )
    """Whether operands with two such lists of flags are the same to an instruction."""
    _suiting: dict[tuple[str, str, str, bool, bool], bool] = field(
        default_factory=dict[tuple[str, str, str, bool, bool], bool]
    )
    """Whether a register suits a class: the class, the part of it, the register, whether that is implicit, and whether
    it may be of either file.
    """

    def misfits(self, step: Step) -> bool:
        """Whether a pair of pure instructions has registers that do not go together."""
        if step.pre is None or step.post is None:
            return False
        complaints = self._of_pair(step.pre, step.post)
        return any(c.rule in _OF_REGISTERS for c in complaints) and is_pure(step.pre) and is_pure(step.post)

    def repeats(self, post: Instruction, originals: Sequence[Instruction]) -> bool:
        """Whether an instruction may be a repetition of one of those of its operation."""
        return any(self._fits(original, post) for original in originals)

    def check(self, step: Step) -> list[Finding]:
        if step.post is None:
            complaints = self._dropped(step.pre) if step.pre is not None else ()
        else:
            complaints = self._added(step.post) if step.pre is None else self._of_pair(step.pre, step.post)
            if not complaints:
                return []
        return [
            Finding(
                complaint.rule,
                Outcome.REFUTED,
                complaint.message,
                pre_line=step.pre.line if step.pre else 0,
                post_line=step.post.line if step.post else 0,
                instruction=str(step.post or step.pre),
                operand=_operand_pair(step, complaint.operand),
            )
            for complaint in complaints
        ]

    def _of_pair(self, pre: Instruction, post: Instruction) -> tuple[Complaint, ...]:
        complaints = self._of_pairs.get((id(pre), id(post)))
        if complaints is None:
            complaints = self._of_pairs[id(pre), id(post)] = tuple(self._pair(pre, post))
        return complaints

    def _pair(self, pre: Instruction, post: Instruction) -> Iterator[Complaint]:
        if pre.opcode != post.opcode and facts(pre.opcode).canonical != facts(post.opcode).canonical:
            yield Complaint("instruction-sequence", f"{pre.opcode} became {post.opcode}")
            return
        if pre.flags != post.flags and set(pre.flags) != set(post.flags):
            yield Complaint("instruction-flags", f"flags {sorted(pre.flags)} became {sorted(post.flags)}")
        if pre.memory != post.memory:
            yield Complaint("memory-operands", "the memory operands differ")
        if (
            pre.tail != post.tail
            and marks(pre) != marks(post)
            and marks(post) != [m for m in marks(pre) if not m.startswith("mmra ")]
        ):
            yield Complaint("instruction-flags", f"{pre.tail or 'nothing'} behind it became {post.tail or 'nothing'}")
        if (pre.bundled, pre.opens_bundle, pre.closes_bundle) != (post.bundled, post.opens_bundle, post.closes_bundle):
            yield Complaint("bundle", "bundle boundaries differ")
        pre_operands, post_operands = pre.all_operands, post.all_operands
        if len(pre.defs) != len(post.defs) or len(post_operands) < len(pre_operands):
            yield Complaint("operands", f"{len(pre_operands)} operands became {len(post_operands)}")
            return
        for extra in post_operands[len(pre_operands) :]:
            if not self._may_be_added(extra, post_operands[: len(pre_operands)]):
                yield Complaint("operands", f"operand {extra} was added")
            elif extra.is_def and extra.phys:
                yield from self._reserved(physical_register(extra.phys))
        either = self._in_either_file(pre)
        for number, (a, b) in enumerate(zip(pre_operands, post_operands, strict=False)):
            if (a is b or (a.text == b.text and a.kind is b.kind)) and a.kind not in _WITH_NAMES:
                continue
            if a.vreg >= 0 and b.phys and self._alike(a, b):
                if self._suits(a, b, either_file=number in either):
                    continue
            elif self._agree(a, b, either_file=number in either):
                continue
            for complaint in self._operand(a, b, either_file=number in either, place=(post.opcode, number)):
                yield complaint._replace(operand=number)
        for rule in PAIR_RULES:
            yield from rule(self, pre, post)

    def _in_either_file(self, pre: Instruction) -> frozenset[int]:
        """Numbers of the operands that may be VGPRs or AGPRs whatever the text's class says: what is loaded or stored,
        matrices, moved constants.

        LLVM widens the class of a live range so where all its operands allow it (recomputeRegClass); its table has
        an ``av_`` class for them, and for C and D of an MFMA that of the form at hand (``mfma_form``).
        """
        if not self.has_agprs:
            return frozenset()
        either = self._either.get(pre.opcode)
        if either is None:
            either = self._either[pre.opcode] = either_file_operands(pre.opcode)
        return either

    def _alike(self, pre: Operand, post: Operand) -> bool:
        """Whether two operands differ, if at all, in the register, its part, and how long it lives."""
        if pre.is_def is not post.is_def or pre.tied != post.tied:
            return False
        flags = pre.flags, post.flags
        alike = self._alike_flags.get(flags)
        if alike is None:
            same_clobber = ("early-clobber" in pre.flags) is ("early-clobber" in post.flags)
            alike = self._alike_flags[flags] = same_clobber and _kind_flags(pre.flags) == _kind_flags(post.flags)
        return alike

    def _suits(self, pre: Operand, post: Operand, *, either_file: bool) -> bool:
        """Whether a physical register suits, in any instruction, a virtual one that is ``_alike``.

        Of the two operands ``_register`` looks at nothing else then: the classes of registers are few.
        """
        key = self.pre.class_of(pre.vreg).name, pre.sub, post.phys, post.implicit, either_file
        answer = self._suiting.get(key)
        if answer is None:
            anywhere = self._register(pre, post, either_file=either_file, place=None)
            answer = self._suiting[key] = next(anywhere, None) is None
        return answer

    def _agree(self, pre: Operand, post: Operand, *, either_file: bool) -> bool:
        """Whether nothing is wrong with two operands, whichever instruction they stand in."""
        key = pre.text, post.text, pre.is_def, post.is_def, either_file
        answer = self._agreeing.get(key)
        if answer is None:
            anywhere = self._operand(pre, post, either_file=either_file, place=None)
            answer = self._agreeing[key] = next(anywhere, None) is None
        return answer

    def _operand(
        self, pre: Operand, post: Operand, *, either_file: bool, place: tuple[str, int] | None
    ) -> Iterator[Complaint]:
        if pre.kind is not post.kind:
            yield Complaint("operands", f"operand {pre} became {post}")
        elif pre.kind is OperandKind.BLOCK:
            if self._block(pre) != post.text:
                yield Complaint("operands", f"branch target {pre} became {post}")
        elif pre.kind is not OperandKind.REGISTER:
            if pre.text != post.text:
                yield Complaint("operands", f"operand {pre} became {post}")
        else:
            yield from self._register(pre, post, either_file=either_file, place=place)

    def _encodable(self, register: PhysicalRegister, place: tuple[str, int] | None) -> bool:
        """Whether the class that LLVM's table gives an operand, by opcode and number, has the register.

        The class of a live range is what all its operands have in common. LLVM widens it where splitting or
        rematerialisation has taken operands away (recomputeRegClass), so that VCC may stand where the text says
        ``sgpr_64``; a physical register only has to suit the instruction it stands in.
        """
        cls = None if place is None else operand_class(*place, self.processor)
        return cls is not None and contains(cls, register)

    def _may_be_added(self, extra: Operand, operands: Sequence[Operand]) -> bool:
        """Whether an implicit operand is one that the rewriter adds (VirtRegRewriter.cpp): a use orders the parts of a
        tuple, so it covers an explicit operand, or repeats one that is there; what it defines is lost (``execute.py``).
        """
        if not extra.implicit or not extra.is_reg:
            return False
        if extra.is_def:
            return True
        keys = set(self.post.keys(extra))
        return any(
            op.text == extra.text or (not op.implicit and keys >= set(self.post.keys(op)))
            for op in operands
            if op.is_reg
        )

    def _block(self, operand: Operand) -> str:
        head, _, number = operand.text.rpartition("%bb.")
        digits = number.split(".")[0]
        return f"{head}%bb.{self.blocks[int(digits)]}{number[len(digits) :]}"

    def _register(
        self, pre: Operand, post: Operand, *, either_file: bool, place: tuple[str, int] | None
    ) -> Iterator[Complaint]:
        if pre.is_def != post.is_def or _kind_flags(pre.flags) != _kind_flags(post.flags):
            yield Complaint("operands", f"operand {pre} became {post}")
            return
        if post.renamable and not pre.renamable and pre.phys:
            yield Complaint("fixed-register", f"the fixed register ${pre.phys} is marked renamable")
        if pre.early_clobber != post.early_clobber:
            yield Complaint("early-clobber", f"the early-clobber flag of {pre} became that of {post}")
        if pre.tied != post.tied:
            yield Complaint("tied-operand", f"the tie of {pre} became that of {post}")
        if not pre.is_reg or not post.is_reg:
            if pre.phys != post.phys:
                yield Complaint("operands", f"operand {pre} became {post}")
            return
        if pre.phys:
            if pre.phys != post.phys:
                yield Complaint("fixed-register", f"fixed register ${pre.phys} became {post}")
            elif post.dead and not pre.dead:
                yield from self._wrongly_dead(post)
            return
        pre_keys, post_keys = self.pre.keys(pre), self.post.keys(post)
        if len(pre_keys) != len(post_keys):
            yield Complaint("width", f"{pre} and {post} differ in width")
            return
        cls = self.pre.class_of(pre.vreg)
        if [*map(self.pre.is_vector, pre_keys)] != [*map(self.post.is_vector, post_keys)]:
            # Whatever an encoding takes, an allocator never moves a value of threads to a value of the wave, or back.
            yield Complaint("register-class", f"{post} is of another register file than {pre}, of class {cls.name}")
            return
        if post.vreg >= 0:
            if self.post.class_of(post.vreg) != cls or self.post.flags_of(post.vreg) != self.pre.flags_of(pre.vreg):
                yield Complaint("register-class", f"%{post.vreg} is not of class {cls.name}")
            return
        register = physical_register(post.phys)
        wide = in_either_file(cls) if either_file else cls
        if not is_part_of_member(register, wide, pre.sub) and not self._encodable(register, place):
            yield Complaint(
                "register-class", f"${post.phys} is not {pre.sub + ' of ' if pre.sub else ''}a member of {cls.name}"
            )
        yield from self._reserved(register)

    def _reserved(self, register: PhysicalRegister) -> Iterator[Complaint]:
        if not self.allocatable.issuperset(register.units):
            unavailable = [u for u in register.units if u not in self.allocatable]
            yield Complaint(
                "reserved-register",
                f"${register.name} covers {unit_name(unavailable[0])}, which this function must not allocate",
            )

    def _wrongly_dead(self, op: Operand) -> Iterator[Complaint]:
        """What a reserved register holds may be read where no operand says so: by calls and assembly, behind a return,
        by every instruction in the case of MODE. LLVM follows no life of them (MachineRegisterInfo::isReserved).
        """
        units = physical_register(op.phys).units
        if not self.allocatable.union(_SCC).issuperset(units):
            yield Complaint("dead-flag", f"the reserved register ${op.phys} was marked dead")

    def _dropped(self, pre: Instruction) -> Iterator[Complaint]:
        """Only what moves values, computes or loads and does nothing else, or emits no code may be left out."""
        if not (acts_alone(pre) or is_pure(pre) or is_plain_load(pre)):
            yield Complaint("instruction-sequence", f"{pre} is missing after allocation")

    def _added(self, post: Instruction) -> Iterator[Complaint]:
        """Code the allocator added takes registers that LLVM's table allows, and writes only what it may hand out."""
        for number, op in enumerate(post.all_operands):
            cls = operand_class(post.opcode, number, self.processor) if op.is_reg and not op.implicit else None
            if cls is not None and op.phys and not contains(cls, physical_register(op.phys)):
                yield Complaint("register-class", f"{post.opcode} takes {cls.name}, of which ${op.phys} is no member")
        slot = spill_slot(post)
        if slot is not None and _is_special(slot.register):
            # The lowering of scalar spills uses M0 and EXEC itself (SIRegisterInfo::spillSGPR).
            yield Complaint("register-class", f"{slot.register} is no register that is spilled")
        # A dead instruction becomes KILL with its operands and flags, which emits no code (LiveRangeEdit.cpp).
        flags = () if post.opcode == "KILL" or (post.opcode == "COPY" and post.flags == _SPLIT) else post.flags
        if (flags and acts_alone(post)) or marks(post):
            yield Complaint("instruction-flags", f"{post} was added with flags or marks")
        if not acts_alone(post):
            originals = self.originals.get(operation_name(post, self.post), ()) if is_pure(post) else ()
            if not originals:
                yield Complaint("instruction-sequence", f"{post} was not there before allocation")
                return
            if not self.repeats(post, originals):
                # A phase does not repeat instructions whose results already have physical registers.
                if all(d.vreg < 0 for original in originals for d in original.defs):
                    yield Complaint("instruction-sequence", f"{post} was not there before allocation")
                    return
                yield Complaint("register-class", f"{post.opcode} does not take these registers")
            yield from self._overwritten(post)
        move = lane_move(post)
        if move is not None and move.tied is not None and not _same_register(move.register, move.tied):
            yield Complaint("tied-operand", f"{move.register} must be the register of {move.tied}")
        for op in post.all_operands:
            if op.dead and op.phys:
                yield from self._wrongly_dead(op)
            if not (op.is_reg and op.phys and (op.is_def or op.renamable)) or self._may_define(op, post):
                continue
            yield from self._reserved(physical_register(op.phys))

    def _may_define(self, op: Operand, post: Instruction) -> bool:
        """Whether an added instruction may define a register that is not handed out.

        A move may write what some pre-RA move writes, in parts too; a reload may give back what a caller relies on. A
        pure scalar operation may clobber SCC. A copy of EXEC is printed with ``implicit-def $exec``, which only orders
        it (SILowerControlFlow.cpp). The values of all these registers are followed, so no value is lost unnoticed.
        """
        if acts_alone(post) and not op.renamable:
            allowed = self.fixed_targets | self.restored if facts(post.opcode).restores_scalar else self.fixed_targets
            if allowed.issuperset(physical_register(op.phys).units):
                return True
        if post.opcode == "IMPLICIT_DEF" and self.in_brackets.issuperset(physical_register(op.phys).units):
            return True
        if not op.implicit:
            return False
        if op.phys == "scc":
            return is_pure(post)
        return op.phys in EXEC_NAMES and post.opcode in COPIES and post.operands[0].phys == op.phys

    def _overwritten(self, post: Instruction) -> Iterator[Complaint]:
        """An early-clobber result of a repeated instruction must not lie over what it reads."""
        written = {k for n in early_clobbers(post) for k in self.post.keys(post.all_operands[n])}
        tied = ties(post)
        for number, op in enumerate(post.all_operands):
            if number in tied or not op.is_use or op.undef:
                continue
            if not written.isdisjoint(self.post.keys(op)):
                yield Complaint("early-clobber", f"{op} is overwritten by an early-clobber result before it is read")

    def _fits(self, original: Instruction, post: Instruction) -> bool:
        """Whether a repeated instruction has registers of the kinds that the original has."""
        if any(True for _ in self.tied(original, post)):
            return False
        either = self._in_either_file(original)
        for number, (a, b) in enumerate(zip(original.all_operands, post.all_operands, strict=False)):
            if a.is_reg and a.phys and not a.implicit and a.phys != b.phys:
                return False
            if a.vreg < 0 or not b.is_reg:
                continue
            cls = self.pre.class_of(a.vreg)
            if len(self.pre.keys(a)) != len(self.post.keys(b)):
                return False
            if b.vreg >= 0:
                if self.post.class_of(b.vreg).banks != cls.banks:
                    return False
                continue
            wide = in_either_file(cls) if number in either else cls
            register = physical_register(b.phys)
            if any(self._reserved(register)):
                return False
            # A part of a tuple may be repeated into a register of its own, which need not be where the part would be.
            fits = _like_part(register, wide) if a.sub else is_part_of_member(register, wide, "")
            if not fits and not self._encodable(register, (post.opcode, number)):
                return False
        return True

    def mfma_form(self, _pre: Instruction, post: Instruction) -> Iterable[Complaint]:
        """The AGPR form of an MFMA has C and D in AGPRs, the ``_vgprcd`` form in VGPRs (VOP3PInstructions.td)."""
        return self._wrong_file(post) if self.has_agprs and reads_matrices(post.opcode) else ()

    def _wrong_file(self, post: Instruction) -> Iterator[Complaint]:
        bank = Bank.VGPR if "_vgprcd" in post.opcode else Bank.AGPR
        registers = [op for op in (*post.defs, *post.operands) if op.is_reg and not op.implicit]
        for op in (registers[0], registers[3] if len(registers) > 3 else None):
            if op is not None and op.phys and physical_register(op.phys).bank is not bank:
                yield Complaint("register-class", f"{post.opcode} needs {op} in {bank.value}s")

    def tied(self, pre: Instruction, post: Instruction) -> Iterable[Complaint]:
        """What LLVM ties is one register, lanes that nothing defined included."""
        return (
            self._untied({**ties(pre), **ties(post)}, post.all_operands)
            if may_be_tied(pre) or may_be_tied(post)
            else ()
        )

    def _untied(self, tied: Mapping[int, int], operands: Sequence[Operand]) -> Iterator[Complaint]:
        for number, definition in tied.items():
            if max(number, definition) >= len(operands) or not operands[definition].is_def:
                yield Complaint("tied-operand", f"operand {number} is tied to operand {definition}, which is no result")
            elif operands[number].is_reg and not _same_register(operands[number], operands[definition]):
                message = f"{operands[definition]} must be the register of {operands[number]}"
                yield Complaint("tied-operand", message, number)

    def overlap(self, _pre: Instruction, post: Instruction) -> Iterable[Complaint]:
        """No register is defined twice at once."""
        asm = post.opcode in INLINE_ASSEMBLY
        return self._defined_twice(post, asm) if asm or len(post.defs) > 1 else ()

    def _defined_twice(self, post: Instruction, asm: bool) -> Iterator[Complaint]:
        written: set[int] = set()
        for op in post.all_operands if asm else post.defs:
            # What assembly clobbers is printed as an early-clobber implicit definition; others order parts of a tuple.
            if op.is_reg and op.is_def and (op.early_clobber or not op.implicit):
                keys = self.post.keys(op)
                for key in keys:
                    if key in written:
                        yield Complaint(
                            "overlapping-definitions", f"{key_name(key, self.post.grain)} is defined twice at once"
                        )
                        break
                written.update(keys)

    def printable(self, pre: Instruction, post: Instruction) -> Iterable[Complaint]:
        """Inline assembly prints v300 as v44: an operand beyond v255 says nothing of its upper bits (gfx1250)."""
        return self._beyond_bytes(pre, post) if post.opcode in INLINE_ASSEMBLY else ()

    def _beyond_bytes(self, pre: Instruction, post: Instruction) -> Iterator[Complaint]:
        for number, (a, b) in enumerate(zip(pre.all_operands, post.all_operands, strict=False)):
            register = physical_register(b.phys) if a.vreg >= 0 and b.is_reg and b.phys else None
            if register is not None and register.bank is Bank.VGPR and register.units[-1] // 2 > _GREATEST_PRINTED:
                yield Complaint("register-class", f"inline assembly cannot name ${register.name}", number)


_GREATEST_PRINTED = 255
PairRule = Callable[[MachineRules, Instruction, Instruction], Iterable[Complaint]]
PAIR_RULES: tuple[PairRule, ...] = (
    MachineRules.mfma_form,
    MachineRules.tied,
    MachineRules.overlap,
    MachineRules.printable,
)
"""Rules of an instruction before and after allocation that agree in opcode, flags and operands, in order."""
OWN_PAIR_RULES = PAIR_RULES
"""Those of this project, all of which the specification has."""


def _operand_pair(step: Step, number: int) -> OperandPair | None:
    if number < 0 or step.pre is None or step.post is None:
        return None
    return OperandPair(number, step.pre.all_operands[number].text, step.post.all_operands[number].text)


def operand_class(opcode: str, number: int, processor: str) -> RegisterClass | None:
    """The class of an explicit operand in LLVM's table; None where it prescribes none."""
    table = instruction(opcode, processor)
    if table is None or number >= len(table.operands) or not table.operands[number].register_class:
        return None
    return register_class(table.operands[number].register_class)


def _kind_flags(flags: tuple[str, ...]) -> frozenset[str]:
    """What an operand is to the instruction, whatever register it is and how long that lives."""
    return frozenset(flags) - {"dead", "killed", "undef", "renamable", "early-clobber"}


def marks(marked: Instruction) -> list[str]:
    """Attributes behind the operands that later passes heed: symbols, memory models (mmra), sections, types.

    Debug locations say nothing of what is executed. An mmra only ever allows more orders (LLVM's MemoryModelRelaxation
    document), so one may be dropped, never added.
    """
    if not marked.tail:
        return []
    tail = marked.tail.lstrip(", ")
    rows = [part.strip() for part in split_top_level(tail, tail)]
    return [row for row in rows if not row.startswith(("debug-location ", "debug-instr-number "))]


def _is_special(op: Operand) -> bool:
    return bool(op.phys) and not op.phys.startswith("vcc") and physical_register(op.phys).bank is Bank.SPECIAL


def _same_register(a: Operand, b: Operand) -> bool:
    return (a.phys, a.vreg, a.sub) == (b.phys, b.vreg, b.sub)


def _like_part(register: PhysicalRegister, cls: RegisterClass) -> bool:
    """Whether a register could be a tuple of its own of the class's files, aligned as tuples of that width are."""
    width = len(register.units) // 2
    if register.bank not in cls.banks or width < 2:
        return register.bank in cls.banks
    if register.bank is Bank.SGPR:
        return register.first % (2 if width == 2 else 4) == 0
    return register.first % cls.alignment(register.bank) == 0


def in_either_file(cls: RegisterClass) -> RegisterClass:
    """The class with the same width and alignment of VGPRs and AGPRs together (``av_64_align2``)."""
    return register_class(_ONE_FILE.sub("av_", cls.name)) if _ONE_FILE.match(cls.name) else cls


_ONE_FILE = re.compile(r"(?:vgpr|vreg|agpr|areg)_(?=\d+(?:_align2)?\Z)")


def is_part_of_member(register: PhysicalRegister, cls: RegisterClass, sub: str) -> bool:
    """Whether ``register`` is subregister ``sub`` (``""``: the whole) of some member of ``cls``."""
    if not sub:
        return contains(cls, register)
    first = lane_list(subregister_lanes(sub))[0]
    if register.bank is Bank.SPECIAL:
        pair = register.name.removesuffix("_lo").removesuffix("_hi")
        return (register.name, first) in ((f"{pair}_lo", 0), (f"{pair}_hi", 2)) and _contains(cls, pair)
    start = register.first - first // 2
    if start < 0 or (register.units[0] - first) % 2:
        return False
    return _contains(cls, tuple_name(register.bank, start, cls.width))


def _contains(cls: RegisterClass, name: str) -> bool:
    try:
        return contains(cls, physical_register(name))
    except UnsupportedError:
        return False
