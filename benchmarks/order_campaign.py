"""Orders of instructions before both checkers, each alone: right ones, and ones in which one dependence is broken.

    cargo build --release --example batch            in smt_verifier/second
    .venv/bin/python benchmarks/order_campaign.py [--count 20000] [--seed 1] [--out FILE.json]

The texts are LLVM's, before allocation and before its scheduler behind allocation in turn, of functions of
tests/random_ir.py and of the kernels at hand. Kinds of orders: ``list``, the scheduler's; ``topological``, a random one
that keeps every dependence; ``broken``, one that turns one dependence round; ``swapped``, two instructions exchanged.
What is right is said by an oracle of its own. It executes a block on symbols, and compares what every register holds at
the end and what each instruction read; it compares the order of accesses to memory that may meet (by the scheduler's
rules), and whether something passes what stays. An order that the oracle finds wrong must be refused by each checker.
Of those that it finds right, those that are refused are counted.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from common import REPOSITORY, Row, command, kernel_directory, machine, options, tree, write
from msgspec.structs import replace

sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from campaign.judge import BATCH, Second, batch_program  # noqa: E402
from random_ir import Features, random_ir  # noqa: E402

from smt_verifier.checker.order import check_order  # noqa: E402
from smt_verifier.checker.outcome import Refused  # noqa: E402
from verilocc_mlir.errors import VeriloccError  # noqa: E402
from verilocc_mlir.mir.model import BasicBlock, MirFile  # noqa: E402
from verilocc_mlir.mir.parser import parse_mir  # noqa: E402
from verilocc_mlir.mir.printer import print_mir  # noqa: E402
from verilocc_mlir.ordering.dependences import VIRTUAL, Item, items_of, meet  # noqa: E402
from verilocc_mlir.ordering.schedule import certificate_of, in_order, ordered  # noqa: E402
from verilocc_mlir.target.targets import target  # noqa: E402
from verilocc_mlir.toolchain.find import find_toolchain  # noqa: E402

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
MOST_LINES = 1200
PER_TEXT = 60
STAGES = {"before allocation": "greedy,0", "behind allocation": "si-post-ra-bundler"}


def texts(seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Name, processor, stage and text of LLVM's functions, without end."""
    llc = str(find_toolchain().llc)
    kernels = sorted(kernel_directory().glob("*.opt.ll"))
    for number in range(seed * 1_000_000, (seed + 1) * 1_000_000):
        cpu = TARGETS[number % len(TARGETS)]
        ir = random_ir(number, Features(calls=number % 3 == 0, special=cpu if number % 2 else "")).encode()
        name = f"random_ir:{number}"
        if number % 10 == 9 and kernels:
            path = kernels[number // 10 % len(kernels)]
            cpu, ir, name = re.findall(r"gfx[0-9a-f]+", path.name)[0], path.read_bytes(), f"kernel:{path.name}"
        for stage, stop in STAGES.items():
            command_line = [llc, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", f"-stop-before={stop}", "-", "-o", "-"]
            done = subprocess.run(command_line, input=ir, capture_output=True, check=False)
            text = done.stdout.decode(errors="replace")
            if not done.returncode and text.count("\n") < MOST_LINES:
                yield name, cpu, stage, text


class Oracle:
    """What a block computes, on symbols."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.given = self.run(range(len(items)))

    def run(self, order: Sequence[int]) -> tuple[dict[int, object], dict[int, object]]:
        """What each register holds at the end, and what each instruction read."""
        holds: dict[int, object] = {}
        read: dict[int, object] = {}
        for of in order:
            item = self.items[of]
            values = tuple((register, holds.get(register, register)) for register in sorted(item.reads))
            # Threads that wait keep what a vector register held.
            kept = tuple(
                (register, holds.get(register, register))
                for register in sorted(item.writes)
                if register < 8192 or register >= VIRTUAL
            )
            read[of] = hash((values, kept))
            for register in item.writes:
                holds[register] = hash((of, read[of], register))
        return holds, read

    def is_right(self, order: Sequence[int]) -> bool:
        places = {of: at for at, of in enumerate(order)}
        items = self.items
        for of, item in enumerate(items):
            if item.stays and (places[of] != of or any(places[other] > of for other in range(of))):
                return False
        touching = [item.number for item in items if item.accesses is None or item.accesses]
        turned = (
            (a, b) for n, a in enumerate(touching) for b in touching[n + 1 :] if places[a] > places[b]
        )  # fmt: skip
        return not any(meet(items[a], items[b]) for a, b in turned) and self.run(order) == self.given


def topological(items: Sequence[Item], chance: random.Random, late: tuple[int, int] | None = None) -> list[int] | None:
    """A random order that keeps every dependence; ``late``: but the first of two comes behind the second, if it can."""
    before: dict[int, set[int]] = {}
    last = -1
    for item in items:
        before[item.number] = set(item.before)
        if item.stays:
            before[item.number] = set(range(item.number))
            last = item.number
        elif last >= 0:
            before[item.number].add(last)
    if late is not None:
        before[late[1]].discard(late[0])
        before[late[0]].add(late[1])
    order: list[int] = []
    while before:
        ready = [number for number, of in before.items() if not of]
        if not ready:
            return None
        # Near ones first, so that most of the block stays as it is.
        chosen = ready[min(int(chance.expovariate(0.7)), len(ready) - 1)]
        order.append(chosen)
        del before[chosen]
        for of in before.values():
            of.discard(chosen)
    return order


def orders(
    items: Sequence[Item], of_list: Sequence[int] | None, chance: random.Random
) -> Iterator[tuple[str, Sequence[int]]]:
    if of_list is not None:
        yield "list", of_list
    if (order := topological(items, chance)) is not None:
        yield "topological", order
    dependent = [item for item in items if item.before and not item.stays]
    for item in chance.sample(dependent, min(4, len(dependent))):
        first = chance.choice(sorted(item.before))
        if (order := topological(items, chance, (first, item.number))) is not None:
            yield "broken", order
    if len(items) > 1:
        a, b = sorted(chance.sample(range(len(items)), 2))
        order = list(range(len(items)))
        order[a], order[b] = b, a
        yield "swapped", order


def main() -> int:
    parser = options(__doc__, "order_campaign.json")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    faults: list[Row] = []
    os.environ.setdefault(BATCH, str(batch_program(REPOSITORY) or ""))
    second = Second()
    chance = random.Random(given.seed)
    judged = used = 0
    for name, cpu, stage, text in texts(given.seed):
        if judged >= given.count:
            break
        try:
            file = parse_mir(text, name)
        except VeriloccError:
            continue
        used += 1
        of_text = 0
        function = file.functions[0]
        for number, block in enumerate(function.blocks):
            items = items_of(block.instructions)
            if len(items) < 2 or of_text >= PER_TEXT:
                continue
            oracle = Oracle(items)
            own = ordered(replace(function, blocks=(block,)), target(cpu)).orders.get(0)
            for kind, order in orders(items, own, chance):
                row = counts.setdefault(f"{stage}, {kind}", Counter())
                right = oracle.is_right(order)
                answers = judge(file, number, block, items, order, cpu, text, second)
                judged += 1
                of_text += 1
                row["orders"] += 1
                row["right" if right else "wrong"] += 1
                row["right, refused by both"] += right and "accepted" not in answers
                row["disagreements"] += len(set(answers)) > 1
                if not right and "accepted" in answers:
                    faults.append(
                        {"text": name, "cpu": cpu, "block": number, "kind": kind, "order": order, "answers": answers}
                    )
        if used % 20 == 0:
            print(f"{used} texts, {judged} orders, {len(faults)} faults", flush=True)
    second.close()
    result = {
        "command": command(),
        "tree": tree(),
        "machine": machine(),
        "texts": used,
        "orders": judged,
        "by kind": {kind: dict(row) for kind, row in counts.items()},
        "wrong and accepted by a checker": faults,
    }
    write(given.out, result)
    print(result["by kind"], len(faults))
    return 1 if faults else 0


def judge(
    file: MirFile,
    number: int,
    block: BasicBlock,
    items: Sequence[Item],
    order: Sequence[int],
    cpu: str,
    text: str,
    second: Second,
) -> tuple[str, str]:
    function = file.functions[0]
    blocks = list(function.blocks)
    blocks[number] = replace(block, instructions=in_order(items, order))
    after = print_mir(replace(file, functions=(replace(function, blocks=tuple(blocks)), *file.functions[1:])))
    certificate = certificate_of(function.name, {number: order})
    second.put(text, after, certificate, cpu, function.name)
    try:
        check_order(text, after, certificate, cpu, function.name)
        own = "accepted"
    except Refused as refused:
        own = refused.rule
    return own, second.get()


if __name__ == "__main__":
    sys.exit(main())
