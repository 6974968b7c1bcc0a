"""What each checker at hand says of a function in another order of instructions (docs/trust/spec.md, section 16)."""

from __future__ import annotations

from smt_verifier.certificate.second import second_checker
from smt_verifier.certificate.verdict import FIRST, SECOND, Answer
from smt_verifier.checker.order import check_order
from smt_verifier.checker.outcome import Refused


def order_answers(before: str, after: str, certificate: str, function: str, processor: str) -> tuple[Answer, ...]:
    """The answers, the first checker's first; one alone where the second checker is not at hand, or the first refuses.
    ``operands`` of an answer: how many instructions stand elsewhere.
    """
    try:
        moved = check_order(before, after, certificate, processor, function)
    except Refused as error:
        return (Answer(FIRST, accepted=False, rule=error.rule, message=error.message, where=error.where),)
    first = Answer(FIRST, accepted=True, operands=moved)
    second = second_checker(before, after, certificate, processor, function, order=True)
    return (first,) if second is None else (first, Answer(SECOND, *second))
