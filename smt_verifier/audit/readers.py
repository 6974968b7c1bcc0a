"""Which instruction makes a liveness flag or a block's live-ins wrong: the first read of the register after it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from smt_verifier.audit.core.flags import Place
from smt_verifier.audit.core.lanes import key_name, other_half
from smt_verifier.audit.core.opcodes import DEBUG, NO_CODE
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.report import Fact, Finding, Site, Value
from verilocc_mlir.mir.model import Instruction


def explain_faults(product: Product, faults: dict[Place, Finding]) -> list[Finding]:
    """One finding for each flagged instruction and each block, with all its registers and the read that matters."""
    groups: dict[tuple[str, int], list[int]] = {}
    first: dict[tuple[str, int], Finding] = {}
    for (rule, where, key), finding in faults.items():
        groups.setdefault((rule, where), []).append(key)
        first.setdefault((rule, where), finding)
    reads = _Reads(product)
    return [_explained(product, first[place], keys, place[1], reads) for place, keys in groups.items()]


def _explained(product: Product, finding: Finding, keys: list[int], where: int, reads: _Reads) -> Finding:
    grain = product.post_lanes.grain
    names = list(dict.fromkeys(key_name(k, 2 if other_half(k) in keys else grain) for k in sorted(keys, reverse=True)))
    _, verb, predicate = finding.message.partition(" is ")
    message = f"{', '.join(names)} {'are' if len(names) > 1 else verb.strip()} {predicate}"
    first_read = reads.after(finding.block, -1 if finding.rule == "live-in" else where, keys[0])
    if first_read is None:
        return replace(finding, message=message)
    site, path = first_read
    value = Value(names[0], (Fact(f"{key_name(keys[0], 2)} is read by", site),))
    return replace(finding, message=message, found=value, path=path)


class _Reads:
    """Reads of the post-RA side; what the pre-RA side leaves undefined does not count as read."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._real = product.real_reads()

    def after(self, block: int, instruction: int, key: int) -> tuple[Site, tuple[str, ...]] | None:
        """The first read of ``key`` after an instruction (by ``id``; -1: from the start), and the path to it."""
        blocks = self._product.post.blocks
        row = blocks[block].instructions
        start = next((n + 1 for n, i in enumerate(row) if id(i) == instruction), 0)
        queue = deque[tuple[int, int, tuple[str, ...]]]([(block, start, (f"bb.{blocks[block].number}",))])
        visited: set[int] = set()
        while queue:
            here, start, path = queue.popleft()
            reader, ended = self._scan(blocks[here].instructions[start:], key)
            label = f"bb.{blocks[here].number}"
            if reader is not None:
                return Site("post", here, label, reader.line, str(reader).partition(" :: ")[0]), path
            for successor in () if ended else self._product.successors[here]:
                if successor not in visited:
                    visited.add(successor)
                    queue.append((successor, 0, (*path, f"bb.{blocks[successor].number}")))
        return None

    def _scan(self, instructions: tuple[Instruction, ...], key: int) -> tuple[Instruction | None, bool]:
        """The first read, and whether the register is written before it."""
        keys = self._product.post_lanes.keys
        for instruction in instructions:
            if instruction.opcode in DEBUG or instruction.opcode == "BUNDLE":
                continue
            real = self._real.get(id(instruction))
            is_read = (
                any(key == k for k, _ in real)
                if real is not None
                else any(op.is_use and not op.undef and key in keys(op) for op in instruction.all_operands)
            )
            if is_read and instruction.opcode not in NO_CODE:
                return instruction, True
            if any(op.is_def and op.is_reg and key in keys(op) for op in instruction.all_operands):
                return None, True
        return None, False
