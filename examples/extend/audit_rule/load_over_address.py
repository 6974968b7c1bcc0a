"""An audit rule: a vector load must not load over its own address, so that it can be repeated after a page fault.

No GPU of today asks for it. It stands for a rule of a machine to come, or of an erratum. Run it on a kernel:

    python examples/extend/audit_rule/load_over_address.py examples/kernels/gemm_mma_lds.gfx942.opt.ll gfx942
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from smt_verifier.audit.core import report, rules
from smt_verifier.audit.core.rules import Complaint, MachineRules
from verilocc_mlir.mir.model import Instruction
from verilocc_mlir.pipeline.audit import audit_llvm
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.audit import RULE_TEXTS, RuleText

RULE = "load-over-address"


def load_over_address(side: MachineRules, _pre: Instruction, post: Instruction) -> Iterator[Complaint]:
    """One complaint for each address register of a load that its result overwrites."""
    if not post.opcode.startswith("GLOBAL_LOAD_"):
        return
    # Keys are the 16-bit parts of registers: two operands share a register if they share a key.
    loaded = {key for op in post.defs if op.is_reg for key in side.post.keys(op)}
    for number, op in enumerate(post.all_operands):
        if op.is_reg and op.is_use and not op.implicit and not loaded.isdisjoint(side.post.keys(op)):
            yield Complaint(RULE, f"{op} is overwritten by the load that reads it", number)


def install() -> None:
    """The three places a rule stands at: the check, the kind of fault, the words of reports."""
    rules.PAIR_RULES = (*rules.PAIR_RULES, load_over_address)
    report.FAULTS[RULE] = report.Fault.RULE
    RULE_TEXTS[RULE] = RuleText("A load does not overwrite its own address.", "Give its result other registers.")


def main(path: str, cpu: str) -> int:
    """Audit LLVM's own allocation of a kernel, this rule included."""
    install()
    run = audit_llvm(Path(path).read_bytes(), path, Settings(cpu=cpu))
    for pair in run.pairs:
        findings = [finding for function in pair.report.functions for finding in function.findings]
        print(f"{pair.phase}: {pair.report.outcome}, {len(findings)} findings")
        for finding in findings:
            print(f"  {finding.rule}: {finding.message}: {finding.instruction}")
    return int(run.exit_code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
