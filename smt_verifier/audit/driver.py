"""The audit of a file, function by function: the search for a proof, with every error turned into an outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from smt_verifier.audit.core.report import (
    AuditReport,
    Finding,
    FunctionAudit,
    MoveCounts,
    moves_between,
)
from smt_verifier.certificate.disagreement import keep_disagreement
from smt_verifier.certificate.verdict import LARGE, Certification, certify_texts
from smt_verifier.checker.tables import tables
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Solver, default_solver
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.mir.model import MachineFunction, MirFile, OperandKind
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.target.targets import Target


def audit(
    pre: MirFile,
    post: MirFile,
    target: Target,
    *,
    timeout_s: float = 60.0,
    solver: Solver | None = None,
    saved_later: bool = False,
    near_branches: Callable[[str], bool] | None = None,
    third: bool = False,
) -> AuditReport:
    """Audit every function of a file.

    Args:
        pre: text before the phase (stopped before ``greedy,N``), as the allocator read it.
        post: text after it (as after ``virtregrewriter,N``), as LLVM will read it.
        timeout_s: seconds the solver may take for one block; UNKNOWN after that.
        solver: Z3 in a worker process where none is given.
        saved_later: ``post`` is a text of the scalar phase, behind which LLVM saves callee-saved scalars.
        near_branches: whether LLVM makes no long branch in the function of this name; asked where a proof needs it.
        third: the search with the solver is asked too where both checkers accept, and must prove it as well.

    Functions are matched by name; one that is missing or added makes the outcome INVALID.
    """
    from smt_verifier.audit.search import with_module

    added = {f.name: f for f in post.functions}
    audits: list[FunctionAudit] = []
    for function in pre.functions:
        partner = added.pop(function.name, None)
        if partner is None:
            audits.append(_single(function.name, Outcome.INVALID, "header", "the function is missing after allocation"))
        else:
            function_audit = audit_function(
                pre,
                function,
                partner,
                target,
                timeout_s=timeout_s,
                solver=solver,
                saved_later=saved_later,
                near_branches=near_branches,
                third=third,
                after=post,
            )
            audits.append(with_module(function_audit, pre, post, target))
    audits += [_single(n, Outcome.INVALID, "header", "the function was not there before allocation") for n in added]
    return AuditReport(tuple(audits))


def audit_function(
    file: MirFile,
    pre: MachineFunction,
    post: MachineFunction,
    target: Target,
    *,
    timeout_s: float = 60.0,
    solver: Solver | None = None,
    saved_later: bool = False,
    near_branches: Callable[[str], bool] | None = None,
    third: bool = False,
    after: MirFile | None = None,
) -> FunctionAudit:
    """Audit one function; ``file`` is the pre-RA file, whose preamble holds the function's IR attributes.

    ``after`` is the file of ``post``, if it is another one: the checkers then read its module too.

    A proof needs two that know nothing of each other. These are the two checkers of one certificate, where both are at
    hand. Where there is one only, where ``solver`` is not the default one, or where somebody added a rule, they are the
    checkers at hand and a search that finds no fault and has all its goals decided by the solver. Of a processor that
    was added, which no checker knows, the search decides alone. Where the checkers disagree, nothing is proved. For the
    rest see ``audit``.
    """
    texts = _alone(file, pre, pre), _alone(after, post, post) if after is not None else _alone(file, pre, post)
    certification = certify_texts(*texts, pre.name, target.name, saved_later=saved_later)
    is_near = certification.may_branch_far and near_branches is not None and near_branches(pre.name)
    if is_near:
        certification = certify_texts(*texts, pre.name, target.name, saved_later=saved_later, near_branches=True)
    premises = (*["saved-later"] * saved_later, *["near-branches"] * is_near)
    only_checkers = not third and solver in (None, default_solver()) and not _has_added_rules()
    if certification.accepted and len(certification.answers) > 1 and only_checkers:
        proved = FunctionAudit(pre.name, Outcome.PROVED, 0, (), moves_between(pre, post, certification.repeats))
        return _with_certificate(proved, certification, premises)
    kept = ""
    size = sum(len(block.instructions) for block in post.blocks)
    if size > LARGE and only_checkers and certification.answers and not any(a.accepted for a in certification.answers):
        why = "; ".join(map(str, certification.answers))
        left_out = f"what is wrong is not searched for in {size:,} instructions but with `verilocc audit --third=z3`"
        return _single(pre.name, Outcome.UNKNOWN, "certificate", f"no certificate is accepted: {why} ({left_out})")
    if certification.disagree:
        kept = keep_disagreement(*texts, pre.name, target.name, certification, premises)
    # Half of what an audit loads, and most audits end with the checkers.
    from smt_verifier.audit.search import search_proof

    try:
        asked = solver or default_solver()
        searched = search_proof(file, pre, post, target, timeout_s, asked, saved_later=saved_later)
    except UnsupportedError as error:
        return _single(pre.name, Outcome.UNKNOWN, "unsupported", str(error))
    except VeriloccError as error:
        return _single(pre.name, Outcome.INVALID, "header", str(error))
    if searched.outcome is not Outcome.PROVED or tables().processor(target.name) is None:
        return searched
    agreed = _with_certificate(searched, certification, premises)
    if certification.accepted:
        return agreed
    why = "; ".join(str(a) for a in certification.answers if not (kept and a.accepted))
    message = f"proved by the search, but no certificate of it is accepted: {why}"
    if kept:
        message = f"the checkers disagree, one of them has a fault, please report it ({kept}): {why}"
    return replace(agreed, outcome=Outcome.UNKNOWN, findings=(Finding("certificate", Outcome.UNKNOWN, message),))


def _has_added_rules() -> bool:
    """Whether a program added a rule of pairs: it can only have done so to a module that is loaded."""
    rules = sys.modules.get("smt_verifier.audit.core.rules")
    return rules is not None and rules.PAIR_RULES != rules.OWN_PAIR_RULES


def _with_certificate(
    searched: FunctionAudit, certification: Certification, premises: tuple[str, ...]
) -> FunctionAudit:
    """A verdict with what the checkers at hand say."""
    answers = certification.answers
    operands, claims = (max(getattr(a, name) for a in answers) for name in ("operands", "claims"))
    return replace(
        searched,
        obligations=searched.obligations + operands + claims,
        checkers=tuple(a.checker for a in answers if a.accepted),
        operands=operands,
        certificate=certification.text,
        premises=premises,
    )


def _alone(file: MirFile, own: MachineFunction, function: MachineFunction) -> str:
    """A text of the file with ``function`` in the place of its ``own``; of other functions, only if calls of them may
    say what this one must leave alone (``checker/promises.py``).
    """
    others = any(mask.startswith("CustomRegMask") for f in file.functions for mask in _masks(f))
    functions = tuple(function if f is own else f for f in file.functions) if others else (function,)
    return print_mir(replace(file, functions=functions))


def _masks(function: MachineFunction) -> Iterator[str]:
    """Register masks of a function's calls."""
    return (op.text for op in function.distinct_operands if op.kind is OperandKind.REGMASK)


def _single(function: str, outcome: Outcome, rule: str, message: str) -> FunctionAudit:
    return FunctionAudit(function, outcome, 1, (Finding(rule, outcome, message),), MoveCounts())
