"""Pairing the instructions of both sides of a block.

The pairing is a guess that the rest of the audit checks: any pairing under which everything is proved is a proof. Copies,
spill code and instructions without code never pair; each acts on its own side. Mandatory instructions pair in order, pure ones
by longest common subsequence between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from smt_verifier.audit.semantics import COPIES, DEBUG, NO_CODE, canonical_opcode, explicit_shape, is_pure, spill
from verilocc_mlir.mir.model import Instruction


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the product of both sides: a pair, or an instruction of one side alone."""

    pre: Instruction | None
    post: Instruction | None


Key = tuple[object, ...]


def anchor_key(instruction: Instruction) -> Key:
    """What two instructions must share to be paired."""
    return (canonical_opcode(instruction.opcode), len(instruction.defs), explicit_shape(instruction.operands))


def acts_alone(instruction: Instruction) -> bool:
    """Copies, spill code and instructions that emit nothing."""
    opcode = instruction.opcode
    return opcode in COPIES or opcode in NO_CODE or spill(opcode) is not None


def align(pre: tuple[Instruction, ...], post: tuple[Instruction, ...]) -> list[Step]:
    """Steps in an order that keeps the order of each side. Unpaired mandatory instructions come out as steps of one side."""
    left = [i for i in pre if i.opcode not in DEBUG]
    right = [i for i in post if i.opcode not in DEBUG]
    left_at = [k for k, i in enumerate(left) if not acts_alone(i)]
    right_at = [k for k, i in enumerate(right) if not acts_alone(i)]
    left_keys = [anchor_key(left[k]) for k in left_at]
    right_keys = [anchor_key(right[k]) for k in right_at]
    if left_keys == right_keys:
        pairs = list(zip(left_at, right_at, strict=True))
    else:
        pairs = _common(left, right, left_at, right_at, left_keys, right_keys)
    steps: list[Step] = []
    i = j = 0
    for a, b in [*pairs, (len(left), len(right))]:
        steps += [Step(x, None) for x in left[i:a]]
        steps += [Step(None, y) for y in right[j:b]]
        if a < len(left):
            steps.append(Step(left[a], right[b]))
        i, j = a + 1, b + 1
    return steps


def _common(
    left: list[Instruction],
    right: list[Instruction],
    left_at: list[int],
    right_at: list[int],
    left_keys: list[Key],
    right_keys: list[Key],
) -> list[tuple[int, int]]:
    """Pair mandatory instructions in order, then pure ones between two neighbouring mandatory pairs."""
    left_fixed = [n for n, k in enumerate(left_at) if not is_pure(left[k])]
    right_fixed = [n for n, k in enumerate(right_at) if not is_pure(right[k])]
    pairs: list[tuple[int, int]] = []
    start = (0, 0)
    ends = [*zip(left_fixed, right_fixed, strict=False), (len(left_keys), len(right_keys))]
    for a, b in ends:
        matcher = SequenceMatcher(None, left_keys[start[0] : a], right_keys[start[1] : b], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs += [(left_at[start[0] + block.a + n], right_at[start[1] + block.b + n]) for n in range(block.size)]
        if a < len(left_keys) and b < len(right_keys):
            pairs.append((left_at[a], right_at[b]))
        start = (a + 1, b + 1)
    return pairs
