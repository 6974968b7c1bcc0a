"""What the post-RA text says about liveness must be true, because later passes rely on it: kill and dead flags,
live-ins.

Liveness here is the wave's, as LLVM's: a lane is live where some path of blocks reads it before writing it. A copy or
spill reads a lane only if the lane it moves it to is live; an operand lane that the pre-RA side leaves undefined is
not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from smt_verifier.audit.lanes import LaneMap, key_name, stack_keys
from smt_verifier.audit.report import Finding
from smt_verifier.audit.semantics import COPIES, DEBUG, NO_CODE, spill_slot
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.model import Instruction, MachineFunction

Carried = dict[int, dict[int, frozenset[int]]]
"""For each reached block and each of its successors, by layout position, the keys that carry a defined value there."""
Place = tuple[str, int, int]
"""Rule, and the instruction's ``id`` or the block's layout position, and the key."""


@dataclass(frozen=True, slots=True)
class FlagCheck:
    """How many flags and blocks were looked at, and what is wrong, by place."""

    checked: int
    faults: dict[Place, Finding]


@dataclass(slots=True)
class _Checker:
    lanes: LaneMap
    real_reads: dict[int, frozenset[int]]
    block: int = -1
    checked: int = 0
    faults: dict[Place, Finding] | None = None

    def step(self, instruction: Instruction, live: set[int]) -> None:
        """Make ``live`` hold before ``instruction`` what it holds after it, and check its flags on the way."""
        opcode = instruction.opcode
        if opcode in DEBUG or opcode == "BUNDLE":
            return
        moves = self._moves(instruction)
        written = {k for op in instruction.all_operands if op.is_def and op.is_reg for k in self.lanes.keys(op)}
        if self.faults is not None:
            for op in instruction.all_operands:
                if op.dead and op.phys and op.is_reg:
                    self._flag("dead-flag", "marked dead, but read later", self.lanes.keys(op), live, instruction)
                elif op.killed and op.phys:
                    self._flag(
                        "kill-flag", "marked killed, but read later", self.lanes.keys(op), live - written, instruction
                    )
        if opcode == "KILL":
            return
        if moves is not None:
            sources = {source for target, source in moves if target in live}
            live.difference_update(written, (target for target, _ in moves))
            live.update(sources)
            return
        live.difference_update(written)
        if opcode not in NO_CODE:
            live.update(self._reads(instruction))

    def _moves(self, instruction: Instruction) -> list[tuple[int, int]] | None:
        """``(written, read)`` lanes of a copy, a save or a reload."""
        if instruction.opcode in COPIES:
            target, source = instruction.defs[0], instruction.operands[0]
            return [] if source.undef else list(zip(self.lanes.keys(target), self.lanes.keys(source), strict=False))
        slot = spill_slot(instruction)
        if slot is None:
            return None
        keys = self.lanes.keys(slot.register)
        cells = stack_keys(slot.number, slot.offset // 2, len(keys), self.lanes.grain)
        if not slot.is_save:
            return list(zip(keys, cells, strict=True))
        return [] if slot.register.undef else list(zip(cells, keys, strict=True))

    def _reads(self, instruction: Instruction) -> Iterable[int]:
        real = self.real_reads.get(id(instruction))
        if real is not None:
            return real
        return [k for op in instruction.operands if op.is_use and not op.undef for k in self.lanes.keys(op)]

    def _flag(self, rule: str, what: str, keys: tuple[int, ...], live: set[int], instruction: Instruction) -> None:
        assert self.faults is not None
        self.checked += 1
        for key in keys:
            if key in live:
                self.faults[rule, id(instruction), key] = Finding(
                    rule,
                    Outcome.REFUTED,
                    f"{key_name(key, self.lanes.grain)} is {what}",
                    self.block,
                    post_line=instruction.line,
                    instruction=str(instruction),
                )


def check_flags(
    function: MachineFunction,
    lanes: LaneMap,
    always_available: Callable[[int], bool],
    real_reads: dict[int, frozenset[int]],
    needed: Carried | None,
) -> FlagCheck:
    """Check kill flags, dead flags and block live-ins of physical registers.

    Args:
        function: the post-RA side, or the pre-RA side to learn what was wrong already.
        lanes: its lanes.
        always_available: units that need no declaration: reserved registers, EXEC, MODE and the like.
        real_reads: lanes that paired instructions read, by ``id``.
        needed: for each reached block, in reverse post-order, and each successor, by layout position: the lanes that
            carry a defined value across that edge. What the pre-RA side leaves undefined need not be kept. None: all
            blocks are reached, and all lanes count.
    """
    position = {b.number: n for n, b in enumerate(function.blocks)}
    successors = [[position[s] for s, _ in b.successors] for b in function.blocks]
    reached = list(range(len(function.blocks)) if needed is None else needed)
    checker = _Checker(lanes, real_reads)
    live_in: list[set[int]] = [set() for _ in function.blocks]

    def before(block: int) -> set[int]:
        live: set[int] = set()
        for successor in successors[block]:
            live |= live_in[successor] if needed is None else live_in[successor] & needed[block][successor]
        for instruction in reversed(function.blocks[block].instructions):
            checker.step(instruction, live)
        return live

    changed = True
    while changed:
        changed = False
        for block in reversed(reached):
            live = before(block)
            changed = changed or live != live_in[block]
            live_in[block] = live
    faults: dict[Place, Finding] = {}
    checker.faults = faults
    for block in reached:
        checker.block = block
        before(block)
        declared = {k for livein in function.blocks[block].liveins for k in lanes.livein_keys(livein)}
        for key in sorted(live_in[block]):
            if key < 0 and key not in declared and not always_available(-1 - key):
                message = f"{key_name(key, lanes.grain)} is read, but not declared live-in"
                faults["live-in", block, key] = Finding("live-in", Outcome.REFUTED, message, block)
    return FlagCheck(checker.checked + len(reached), faults)


def new_faults(after: FlagCheck, before: FlagCheck, partner: dict[int, int]) -> dict[Place, Finding]:
    """Faults of the post-RA text that the pre-RA text does not have already.

    The text an allocator is given may read a physical register that an earlier phase left undefined, and say so by not
    declaring it; that is not the allocator's fault. ``partner`` maps the ``id`` of a paired post-RA instruction to that
    of its pre-RA one.
    """
    return {
        (rule, where, key): finding
        for (rule, where, key), finding in after.faults.items()
        if (rule, where if rule == "live-in" else partner.get(where, -1), key) not in before.faults
    }
