"""Inference of the relation at every block entry: an optimistic forward data flow. Untrusted; ``check.py`` proves
what it says.
"""

from __future__ import annotations

from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.relation import Claims
from smt_verifier.audit.core.semantics import acts_alone
from smt_verifier.audit.lattice import meet, united
from smt_verifier.audit.observe import observe
from smt_verifier.audit.reads import reads_from_entry
from verilocc_mlir.errors import UnsupportedError

_MAX_ROUNDS = 100


def infer(product: Product, *, unite: bool = False) -> tuple[list[Claims | None], bool]:
    """Claims at the entry of every block, in layout order; None for a block that no path reaches.

    The entry block's claims stand for the function's initial state and are not used.

    Args:
        unite: claim the same of all active classes of threads, and of all frozen ones, where there are many: less is
            claimed, in a fraction of the time.

    Returns:
        The claims, and whether less is claimed somewhere than without ``unite``.

    Raises:
        UnsupportedError: the code does something the audit does not follow, or no fixpoint is found.
    """
    executor, reads = product.executor, reads_from_entry(product)
    executor.goals = None
    executor.findings = None
    entries: list[Claims | None] = [None] * len(product.steps)
    pending = {0}
    gave_up = False
    for _ in range(_MAX_ROUNDS):
        if not pending:
            return entries, gave_up
        for block in product.order:
            if block not in pending:
                continue
            pending.discard(block)
            if not product.successors[block] and not _adds_code(product, block):
                # What holds at its end is claimed nowhere, and the check goes through it anyway.
                continue
            executor.reset()
            state = product.entry_state(block, entries[block], executor.terms.believe)
            executor.run(product.steps[block], state)
            for successor in product.successors[block]:
                observed = observe(executor, product.leave(block, successor, state), successor, reads)
                old = entries[successor]
                new = observed if old is None else meet(old, observed, executor.masks.variables)
                if unite and (weaker := united(new)) is not new:
                    new, gave_up = weaker, True
                if new != old:
                    entries[successor] = new
                    pending.add(successor)
    raise UnsupportedError("the relation between both sides did not settle")


def _adds_code(product: Product, block: int) -> bool:
    """Whether the post-RA side has instructions of its own there that compute: ``Machine.repeated`` takes hints."""
    return any(s.pre is None and s.post is not None and not acts_alone(s.post) for s in product.steps[block])
