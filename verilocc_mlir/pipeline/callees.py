"""Callees first: what the functions of a module really overwrite, as register masks at the calls of them.

By the calling convention a call overwrites most registers. A local function overwrites those that its code writes; its
callers may keep values in all others. So functions are allocated here before their callers, those that call nothing
first, and finished by LLVM, which needs registers of its own for frames and spills. What their code leaves alone is
written into the masks of the calls, in the text that then goes through all phases as any other.

The masks are a promise that the final code must keep. Each allocator is asked to (``kept_for_callers``), and
``check_promises`` proves it of the code that is shipped. Recursive functions, functions that the linker may replace and
calls of an address keep to the convention.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier import audit
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import Instruction, MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.opened import Work
from verilocc_mlir.pipeline.phase import Draft, Function, PhaseRunner
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.model import CALL_CLOBBERS, AllocationProblem, Phase
from verilocc_mlir.target.attributes import FunctionAttributes, function_attributes
from verilocc_mlir.target.callingconv import Call, callee_saved, calls_in, kept_for_callers, regmask
from verilocc_mlir.target.frame import REGISTERS, file_units, is_framed, spared_by_frame, written
from verilocc_mlir.target.registers import BANK_BASE, Bank, physical_register
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler
from verilocc_mlir.toolchain.verifier import defined_functions, without_functions

_CALL = "SI_CALL"
_CALLS = (_CALL, "SI_TCRETURN")
_WAITS = ("S_NOP", "S_WAIT", "S_DELAY_ALU", "S_CLAUSE")
_SPARE = 16
"""Registers that callers may keep beside those that are live across calls: tuples leave gaps."""
_REGISTERS_A_SPARE_ONE = 8
"""For so many arguments and other registers of its draft a function may take another register: other orders of its
instructions, and what it then may not write, ask for more."""


class Broken(Struct, frozen=True):
    """A promise that the final code does not keep, or of which that could not be shown.

    Attributes:
        why: in a line.
        doubtful: units that a function overwrites, or may, although a mask says that it keeps them, by its name.
    """

    why: str
    doubtful: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])


class Promises(Struct, frozen=True):
    """A module's text whose calls say what their callees keep.

    Attributes:
        kept: units that a callee leaves alone though it need not, by its name.
    """

    text: str
    kept: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])


def callees_first(
    text: str,
    path: str,
    compiler: StagedCompiler,
    target: Target,
    withheld: Mapping[str, frozenset[int]],
) -> Promises:
    """``text``, machine IR before the first phase, with masks of what the local functions in it leave alone.

    The text itself where there is nothing to gain: no direct call of a local function, or a mask that is written out
    already.

    Args:
        withheld: units that no mask of a function may say it keeps, by its name.
    """
    if _CALL not in text:
        return Promises(text)
    file = parse_mir(text, path)
    calls = [call for function in file.functions for call in calls_in(function)]
    if not calls or any(call.is_written_out for call in calls):
        return Promises(text)
    kept: dict[str, frozenset[int]] = {}
    try:
        levels = list(_levels(file, calls))
        handed = _handed(file, frozenset(name for names in levels for name in names))
        draft = _Draft(compiler, target, file, _room(file, target) if levels else {}, handed)
        for number, names in enumerate(levels):
            left_alone = draft.kept(kept, names, len(levels) - number)
            kept |= {name: units - withheld.get(name, frozenset()) for name, units in left_alone.items()}
    except VeriloccError:
        return Promises(text)
    kept = {name: units for name, units in kept.items() if units}
    return Promises(with_masks(file, kept), kept)


def to_withhold(promises: Promises, file: MirFile, unproved: Collection[str]) -> dict[str, frozenset[int]]:
    """What to do without so that functions may be proved: what they promise, or where they promise nothing, what the
    functions do that they call; by name.
    """
    callees = {f.name: {call.callee for call in calls_in(f)} for f in file.functions}
    names = {n for name in unproved for n in ({name} if name in promises.kept else callees.get(name, set[str]()))}
    return {name: frozenset[int]().union(*map(file_units, REGISTERS)) for name in names & promises.kept.keys()}


def check_promises(text: str, obj: bytes, path: str, compiler: StagedCompiler, target: Target) -> Broken | None:
    """Prove that the code of ``obj``, which was made of the allocated ``text``, keeps what the masks in it say.

    Returns:
        What it does not keep; also where the object is not what LLVM prints of the code that was looked at.
    """
    late = compiler.late(text)
    if not compiler.is_of(obj, late, text):
        return Broken("the object is not the one that LLVM makes of the text behind its last pass")
    allocated, code = parse_mir(text, path), parse_mir(late, f"{path} behind the last pass")
    findings = audit.check_calls(allocated, code, target)
    if not findings:
        return None
    file = replace(code, functions=(*allocated.functions, *code.functions))
    lost = {f.name: audit.may_write(f, kept_for_callers(file, f.name, target)) for f in code.functions}
    message = f"{findings[0].message}: {findings[0].instruction}"
    return Broken(message, {name: units for name, units in lost.items() if units})


def _levels(file: MirFile, calls: Iterable[Call]) -> Iterator[list[str]]:
    """Local functions that are called by name, each behind all those that it calls; none that may call itself."""
    defined = {f.name for f in file.functions}
    callees = {f.name: {call.callee for call in calls_in(f)} & defined for f in file.functions}
    called = {call.callee for call in calls if call.instruction.opcode == _CALL} & defined
    waiting = [f.name for f in file.functions if f.name in called]
    waiting = [name for name in waiting if function_attributes(file.preamble, name).is_local]
    done: set[str] = set()
    while ready := [name for name in waiting if callees[name] <= done]:
        yield ready
        done.update(ready)
        waiting = [name for name in waiting if name not in done]


class _Draft(Struct, frozen=True):
    """Allocates and finishes functions to see what they overwrite; nothing of it is kept.

    Attributes:
        handed: registers with arguments at calls of local functions: whoever calls two wants to find them again.
    """

    compiler: StagedCompiler
    target: Target
    file: MirFile
    room: Mapping[Bank, int]
    handed: frozenset[int]

    def kept(
        self, kept: Mapping[str, frozenset[int]], names: Collection[str], callers: int
    ) -> dict[str, frozenset[int]]:
        """What functions leave alone that they need not.

        That is first of all what callers hand them on: it stays there for the next call, where another register does
        for the function itself.

        Args:
            kept: the same of those that they call.
            callers: how many levels of functions may be above these, and theirs counted.
        """
        drafts = self._drafted(kept, names, callers)
        left = parse_mir(with_masks(self.file, kept), self.file.path)
        wanted = {f.name: self._handed_on(f) for f in left.functions if f.name in drafts}
        dearer = set(drafts)
        for banks in ((Bank.SGPR, Bank.VGPR), (Bank.SGPR,)):
            units = frozenset[int]().union(*map(file_units, banks))
            asked = {name: wanted[name] & (units | drafts[name].left) for name in dearer}
            asked = {name: units for name, units in asked.items() if not units <= drafts[name].left}
            others = self._drafted({**kept, **asked}, asked, callers) if asked else {}
            dearer = {name for name in others if not others[name].is_as_cheap_as(drafts[name])}
            drafts |= {name: other for name, other in others.items() if name not in dearer}
        return {name: drafted.left for name, drafted in drafts.items()}

    def _handed_on(self, function: MachineFunction) -> frozenset[int]:
        """Arguments that a function's own instructions leave alone: where they write one, it is a copy of what the
        function was given there.
        """
        saved = callee_saved(function_attributes(self.file.preamble, function.name).calling_convention, self.target)
        free = allocatable(function, self.file.preamble, self.target)
        units = (_given(function) | self.handed) - saved - free.reserved_units
        given = _unchanged(function)
        blocks = tuple(
            replace(block, instructions=tuple(i for i in block.instructions if not _gives_back(i, given)))
            for block in function.blocks
        )
        return units - audit.may_write(replace(function, blocks=blocks), units)

    def _drafted(self, kept: Mapping[str, frozenset[int]], names: Collection[str], callers: int) -> dict[str, _Drafted]:
        """Drafts of functions; what ``kept`` says of them they leave alone."""
        allocated, code = self._texts(with_masks(self.file, kept), names)
        bodies = {f.name: f for f in code.functions}
        stacks = {f.name: f.stack for f in self.file.functions}
        # For new stack objects LLVM takes registers that no text says: the checkers ask that nobody relies on any.
        return {
            f.name: _measured(bodies[f.name], self._left_alone(f, bodies[f.name], callers))
            for f in allocated.functions
            if len(f.stack) <= len(stacks[f.name])
        }

    def _left_alone(self, allocated: MachineFunction, code: MachineFunction, callers: int) -> frozenset[int]:
        """What a function does not overwrite: its arguments, and the first other registers, as many as callers have use
        for. A caller can only pass on what its callees keep, so a function keeps as many for each level above it.

        Nor those that its allocation has, although LLVM drops copies to them: the allocator will want them again.
        """
        attributes = function_attributes(self.file.preamble, code.name)
        saved = callee_saved(attributes.calling_convention, self.target)
        own = _given(code) | _handed(self.file, (code.name,))
        given = (own | self.handed) - saved
        left = self._spared(allocated, attributes, saved) - saved
        left -= audit.may_write(allocated, left) | audit.may_write(code, left)
        taken, units = written(allocated), set[int]()
        for bank, room in self.room.items():
            of_bank = left.intersection(file_units(bank))
            gap = len((taken | own - saved).intersection(file_units(bank))) // (2 * _REGISTERS_A_SPARE_ONE)
            units.update(sorted(of_bank - given)[2 * gap : 2 * (gap + room * callers)], of_bank & given)
        return frozenset(units)

    def _spared(
        self, allocated: MachineFunction, attributes: FunctionAttributes, saved: frozenset[int]
    ) -> frozenset[int]:
        """What LLVM leaves alone behind the allocation (the audit's section 9 asks for that).

        Nothing where a function has a frame for registers that it saves, and for nothing else: the allocator avoids
        that (``problem/build.py``), and could not.
        """
        (before,) = (f for f in self.file.functions if f.name == allocated.name)
        if not is_framed(allocated, attributes, saved):
            return frozenset[int]().union(*map(file_units, REGISTERS))
        if not is_framed(before, attributes, saved):
            return frozenset()
        free = allocatable(allocated, self.file.preamble, self.target)
        numbers = {Bank.SGPR: free.sgprs, Bank.VGPR: free.vgprs}
        usable = frozenset(BANK_BASE[b] + 2 * n + half for b, of in numbers.items() for n in of for half in (0, 1))
        return spared_by_frame(allocated, usable - saved, saved)

    def _texts(self, text: str, names: Collection[str]) -> tuple[MirFile, MirFile]:
        """The functions alone, allocated with as few registers as they need, and behind LLVM's last pass."""
        path, ours = self.file.path, (DeterministicAllocator(packed=True),)
        file = parse_mir(text, path)
        runner = _Alone(Work(path, Settings(), self.compiler, self.target, ours), callers=_callers(file), names=names)
        scalar = runner.draft(_alone(file, names), "sgpr")
        vector = runner.draft(self.compiler.resume(scalar.after, done=LlvmPhase.SGPR, until=LlvmPhase.VGPR), "vgpr")
        if not (scalar.is_ours and vector.is_ours):
            raise UnsupportedError("a callee has no allocation of ours")
        return parse_mir(vector.after, path), parse_mir(self.compiler.late(vector.after), path)


class _Drafted(Struct, frozen=True):
    """A draft of a function.

    Attributes:
        left: what it leaves alone.
        length: instructions of its code that do something.
        vectors: the last VGPR that it writes: callers have the others, and those are what they lack first.
    """

    left: frozenset[int]
    length: int
    vectors: int

    def is_as_cheap_as(self, other: _Drafted) -> bool:
        return self.length <= other.length and self.vectors <= other.vectors


def _measured(code: MachineFunction, left: frozenset[int]) -> _Drafted:
    length = sum(not i.opcode.startswith(_WAITS) for block in code.blocks for i in block.instructions)
    return _Drafted(left, length, max(written(code) & file_units(Bank.VGPR), default=0))


class _Alone(PhaseRunner):
    """Allocates the functions called ``names``, of which the calls in ``callers`` say what they leave alone."""

    callers: Sequence[MachineFunction] = ()
    names: Collection[str] = ()

    def draft(self, text: str, phase: Phase) -> Draft:
        file = self.shared.parsed(text, self.work.path)
        others = (f for f in self.callers if f.name not in self.names)
        self.shared.files[text] = replace(file, functions=(*file.functions, *others))
        return super().draft(text, phase)

    def _functions(self, file: MirFile) -> list[Function]:
        return [function for function in super()._functions(file) if function.before.name in self.names]


def _alone(file: MirFile, names: Collection[str]) -> str:
    """The functions called ``names`` in the module of ``file``, whose other functions LLVM's passes leave alone."""
    others = [name for name in defined_functions(file.preamble) if name not in names]
    functions = tuple(f for f in file.functions if f.name in names)
    return print_mir(replace(file, preamble=without_functions(file.preamble, others), functions=functions))


def _given(function: MachineFunction) -> frozenset[int]:
    """Registers with arguments: the allocator may go on using them for what they hold, or for something else."""
    return frozenset(unit for row in function.blocks[0].liveins for unit in physical_register(row.reg).units)


def _unchanged(function: MachineFunction) -> dict[int, str]:
    """Virtual registers that are nothing but copies of a physical one, with its name."""
    sources: dict[int, set[str]] = {}
    for instruction in (i for block in function.blocks for i in block.instructions):
        for operand in instruction.all_operands:
            if operand.is_def and operand.vreg >= 0:
                whole = instruction.opcode == "COPY" and not operand.sub
                sources.setdefault(operand.vreg, set()).add(instruction.operands[0].phys if whole else "")
    return {vreg: min(names) for vreg, names in sources.items() if len(names) == 1 and "" not in names}


def _gives_back(instruction: Instruction, given: Mapping[int, str]) -> bool:
    """Whether an instruction copies to a register what came from it."""
    if instruction.opcode != "COPY" or not instruction.defs[0].phys:
        return False
    source = instruction.operands[0]
    return not source.sub and given.get(source.vreg) == instruction.defs[0].phys


def _handed(file: MirFile, names: Collection[str]) -> frozenset[int]:
    """Registers with arguments at the calls of some functions, which need not use them."""
    calls = [call.instruction for f in file.functions for call in calls_in(f) if call.callee in names]
    read = {op.phys for call in calls for op in call.operands if op.is_use and op.phys}
    return frozenset(unit for name in read for unit in physical_register(name).units)


def _room(file: MirFile, target: Target) -> dict[Bank, int]:
    """How many registers of each file callers have use for behind a call: those live across one, and some to spare.

    Masks of more registers cost time at each reading.
    """
    room = {Bank.SGPR: _SPARE, Bank.VGPR: _SPARE, Bank.AGPR: 0}
    phases: dict[Bank, Phase] = {Bank.SGPR: "sgpr", Bank.VGPR: "vgpr"}
    for bank, phase in phases.items():
        for function in _callers(file):
            problem = build_problem(file, function, target, phase)
            across, most = _most_live(problem)
            room[bank] = max(room[bank], _SPARE + across)
            # What VGPRs do not suffice for waits in AGPRs.
            count = {budget.bank: len(budget.registers) for budget in problem.budgets}
            if count.get("agpr") and most > count["vgpr"]:
                room[Bank.AGPR] = max(room[Bank.AGPR], _SPARE + most - count["vgpr"])
    return room


def _callers(file: MirFile) -> list[MachineFunction]:
    return [f for f in file.functions if any(calls_in(f))]


def _most_live(problem: AllocationProblem) -> tuple[int, int]:
    """The greatest number of 32-bit registers that are live across a call, and anywhere."""
    events: list[tuple[int, int]] = []
    for live_range in problem.ranges:
        segments = [segment for group in live_range.groups for segment in group.segments]
        if segments:
            events += [
                (min(s for s, _ in segments), live_range.width),
                (max(e for _, e in segments), -live_range.width),
            ]
    calls = {s for f in problem.fixed if f.reason.startswith(CALL_CLOBBERS) for s, _ in f.segments}
    across = most = live = 0
    for slot, change in sorted([*events, *((slot, 0) for slot in calls)]):
        live += change
        most = max(most, live)
        if slot in calls:
            across = max(across, live)
    return across, most


def with_masks(file: MirFile, kept: Mapping[str, frozenset[int]]) -> str:
    """The file, in which the mask of each call by name says what its callee keeps beside what it said before."""
    lines = print_mir(file).split("\n")
    masks: dict[tuple[str, str], str] = {}
    for call in (c for f in file.functions for c in calls_in(f)):
        if not call.instruction.opcode.startswith(_CALLS) or not kept.get(call.callee):
            continue
        (convention,) = call.masks
        key = call.callee, convention
        if key not in masks:
            masks[key] = custom_mask(kept[call.callee] | regmask(convention))
        number = call.instruction.line - 1
        lines[number] = re.sub(rf"\b{convention}\b", masks[key], lines[number], count=1)
    return "\n".join(lines)


def custom_mask(units: frozenset[int]) -> str:
    """A register mask that preserves ``units``, of whole registers, in LLVM's order."""
    names = [
        f"${bank.value}{number}"
        for bank, count in REGISTERS.items()
        for number in range(count)
        if units.issuperset(BANK_BASE[bank] + 2 * number + half for half in (0, 1))
    ]
    return f"CustomRegMask({','.join(names)})"
