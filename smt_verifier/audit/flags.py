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


@dataclass(frozen=True, slots=True)
class FlagCheck:
    """How many flags and blocks were looked at, and what is wrong."""

    checked: int
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Checker:
    lanes: LaneMap
    real_reads: dict[int, frozenset[int]]
    block: int = -1
    checked: int = 0
    findings: list[Finding] | None = None

    def step(self, instruction: Instruction, live: set[int]) -> None:
        """Make ``live`` hold before ``instruction`` what it holds after it, and check its flags on the way."""
        opcode = instruction.opcode
        if opcode in DEBUG or opcode == "BUNDLE":
            return
        moves = self._moves(instruction)
        written = {k for op in instruction.all_operands if op.is_def and op.is_reg for k in self.lanes.keys(op)}
        if self.findings is not None:
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
        assert self.findings is not None
        self.checked += 1
        wrong = next((k for k in keys if k in live), None)
        if wrong is not None:
            message = f"{key_name(wrong, self.lanes.grain)} is {what}"
            self.findings.append(
                Finding(
                    rule, Outcome.REFUTED, message, self.block, post_line=instruction.line, instruction=str(instruction)
                )
            )


def check_flags(
    function: MachineFunction,
    lanes: LaneMap,
    always_available: Callable[[int], bool],
    real_reads: dict[int, frozenset[int]],
    needed: dict[int, dict[int, frozenset[int]]],
) -> FlagCheck:
    """Check kill flags, dead flags and block live-ins of physical registers.

    Args:
        function: the post-RA side.
        lanes: its lanes.
        always_available: units that need no declaration: reserved registers, EXEC, MODE and the like.
        real_reads: lanes that paired instructions read, by ``id``.
        needed: for each reached block, in reverse post-order, and each successor, by layout position: the lanes that
            carry a defined value across that edge. What the pre-RA side leaves undefined need not be kept.
    """
    reached = list(needed)
    checker = _Checker(lanes, real_reads)
    live_in: list[set[int]] = [set() for _ in function.blocks]

    def before(block: int) -> set[int]:
        live: set[int] = set()
        for successor, carried in needed[block].items():
            live |= live_in[successor] & carried
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
    findings: list[Finding] = []
    checker.findings = findings
    for block in reached:
        checker.block = block
        before(block)
        declared = {k for livein in function.blocks[block].liveins for k in lanes.livein_keys(livein)}
        missing = sorted(k for k in live_in[block] if k < 0 and k not in declared and not always_available(-1 - k))
        if missing:
            names = ", ".join(key_name(k, lanes.grain) for k in missing[:4])
            message = f"{names} {'is' if len(missing) == 1 else 'are'} read, but not declared live-in"
            findings.append(Finding("live-in", Outcome.REFUTED, message, block))
    return FlagCheck(checker.checked + len(reached), tuple(findings))
