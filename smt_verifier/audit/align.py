"""Pairing the instructions of both sides of a block.

The pairing is a guess that the rest of the audit checks: any pairing under which everything is proved is a proof.
Copies, spill code and instructions without code never pair; each acts on its own side. Mandatory instructions pair in
order, pure ones by longest common subsequence between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from smt_verifier.audit.core.opcodes import DEBUG, facts
from smt_verifier.audit.core.pairs import Step
from smt_verifier.audit.core.semantics import (
    acts_alone,
    explicit_shape,
    is_pure,
)
from smt_verifier.certificate.matching import common_subsequence
from verilocc_mlir.mir.model import Instruction, OperandKind

Key = tuple[object, ...]


def anchor_key(instruction: Instruction) -> Key:
    return (facts(instruction.opcode).canonical, len(instruction.defs), explicit_shape(instruction.operands))


def _same_key(pre: Instruction, post: Instruction) -> bool:
    """Whether two instructions have the same key: mostly the operands that are no registers are shared objects."""
    if (
        pre.opcode == post.opcode
        and len(pre.defs) == len(post.defs)
        and len(pre.operands) == len(post.operands)
        and all(
            a is b or (a.kind is b.kind is OperandKind.REGISTER and a.implicit is b.implicit)
            for a, b in zip(pre.operands, post.operands, strict=True)
        )
    ):
        return True
    return anchor_key(pre) == anchor_key(post)


def align(
    pre: tuple[Instruction, ...], post: tuple[Instruction, ...], later: Mapping[int, int] | None = None
) -> list[Step]:
    """Steps in an order that keeps the order of each side. Unpaired mandatory instructions come out as steps of one
    side.

    Args:
        later: for lines of pure pre-RA instructions, how many instructions like their partner to pass over, where there
            are so many before the next pair.
    """
    pre_code = [i for i in pre if i.opcode not in DEBUG]
    post_code = [i for i in post if i.opcode not in DEBUG]
    pre_at = [k for k, i in enumerate(pre_code) if not acts_alone(i)]
    post_at = [k for k, i in enumerate(post_code) if not acts_alone(i)]
    if len(pre_at) == len(post_at) and all(
        _same_key(pre_code[a], post_code[b]) for a, b in zip(pre_at, post_at, strict=True)
    ):
        pairs = list(zip(pre_at, post_at, strict=True))
    else:
        pre_keys = [anchor_key(pre_code[k]) for k in pre_at]
        post_keys = [anchor_key(post_code[k]) for k in post_at]
        pairs = _common(pre_code, post_code, pre_at, post_at, pre_keys, post_keys)
        if later:
            pairs = _moved(pairs, pre_code, post_code, later)
    steps: list[Step] = []
    i = j = 0
    for a, b in [*pairs, (len(pre_code), len(post_code))]:
        steps += [Step(x, None) for x in pre_code[i:a]]
        steps += [Step(None, y) for y in post_code[j:b]]
        if a < len(pre_code):
            steps.append(Step(pre_code[a], post_code[b]))
        i, j = a + 1, b + 1
    return steps


def _common(
    pre: list[Instruction],
    post: list[Instruction],
    pre_at: list[int],
    post_at: list[int],
    pre_keys: list[Key],
    post_keys: list[Key],
) -> list[tuple[int, int]]:
    """Pair mandatory instructions first, then pure ones between two neighbouring mandatory pairs."""
    # What depends on the active threads is seldom repeated: where it stands as often on both sides, it is an anchor.
    times, other_times = Counter(pre_keys), Counter(post_keys)
    steady = {key for key, number in times.items() if other_times[key] == number}

    def is_fixed(instruction: Instruction, key: Key) -> bool:
        return not is_pure(instruction) or (facts(instruction.opcode).asks_exec and key in steady)

    pre_fixed = [n for n, k in enumerate(pre_at) if is_fixed(pre[k], pre_keys[n])]
    post_fixed = [n for n, k in enumerate(post_at) if is_fixed(post[k], post_keys[n])]
    anchors = common_subsequence([pre_keys[n] for n in pre_fixed], [post_keys[n] for n in post_fixed])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    ends = [*((pre_fixed[a], post_fixed[b]) for a, b in anchors), (len(pre_keys), len(post_keys))]
    for a, b in ends:
        # A mandatory instruction inside the gap has no partner and must not get one: it is reported as missing or
        # added.
        pre_gap = [n for n in range(i, a) if not is_fixed(pre[pre_at[n]], pre_keys[n])]
        post_gap = [n for n in range(j, b) if not is_fixed(post[post_at[n]], post_keys[n])]
        for x, y in common_subsequence([pre_keys[n] for n in pre_gap], [post_keys[n] for n in post_gap]):
            pairs.append((pre_at[pre_gap[x]], post_at[post_gap[y]]))
        if a < len(pre_keys):
            pairs.append((pre_at[a], post_at[b]))
        i, j = a + 1, b + 1
    return pairs


def _moved(
    pairs: list[tuple[int, int]], pre: list[Instruction], post: list[Instruction], later: Mapping[int, int]
) -> list[tuple[int, int]]:
    """The pairs, with other partners for some instructions."""
    moved: list[tuple[int, int]] = []
    end = len(post)
    for a, b in reversed(pairs):
        alike = [n for n in range(b, end) if anchor_key(post[n]) == anchor_key(pre[a])]
        end = alike[min(later.get(pre[a].line, 0), len(alike) - 1)]
        moved.append((a, end))
    return moved[::-1]
