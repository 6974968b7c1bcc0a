"""A cost rule: how often a wave waits until nothing of a memory counter is under way any more.

llc -mcpu=gfx942 -O3 kernel.ll -o kernel.s
python examples/extend/cost_rule/full_drains.py kernel.s gfx942
"""

from __future__ import annotations

import sys
from pathlib import Path

from verilocc_mlir.cost.assembly import parse_assembly
from verilocc_mlir.cost.instructions import Instruction, Kind
from verilocc_mlir.cost.memory import waits
from verilocc_mlir.cost.model import Count, tally
from verilocc_mlir.target.targets import target


def full_drains(instruction: Instruction) -> int:
    """1 for a wait that lets nothing of some counter stay under way."""
    is_wait = instruction.kind is Kind.WAIT
    return int(is_wait and any(under_way == 0 for _counter, under_way in waits(instruction.text)))


def drains(text: str, cpu: str) -> dict[str, Count]:
    """What the rule counts in each function of an assembly text: in the code, and as executed by a wave."""
    return {function.name: tally(function).of(full_drains) for function in parse_assembly(text, target(cpu))}


def main(path: str, cpu: str) -> int:
    for name, count in drains(Path(path).read_text(), cpu).items():
        print(f"{name}: {count.static} in the code, {count.weighted:.0f} executed by a wave")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
