"""A certificate for one function, or of another order of its instructions, and what each checker at hand says of it."""

from __future__ import annotations

from msgspec import Struct

from smt_verifier.certificate.second import made_certificate, second_checker
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.certificate import read_certificate
from smt_verifier.checker.check import check_function, prepare
from smt_verifier.checker.effects import Both
from smt_verifier.checker.order import check_order
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read

FIRST = "python"
SECOND = "rust"
LARGE = 2_000
"""Instructions of a function: above that, where a search in Python would take minutes, none is made for a certificate
that the maker at hand does not make, nor for what is wrong with what both checkers refuse.
"""


class Answer(Struct, frozen=True):
    """What one checker says: how many operands it compared, or the rule that is broken, in words and where.

    ``claims``: how many claims it showed, where it says so.
    """

    checker: str
    accepted: bool
    operands: int = 0
    rule: str = ""
    message: str = ""
    where: str = ""
    claims: int = 0

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.checker}: " + ("accepted" if self.accepted else f"{self.rule}: {self.message}{where}")


class Certification(Struct, frozen=True):
    """A certificate (``""``: none could be made) and the answers of the checkers at hand, the first one's first."""

    text: str
    answers: tuple[Answer, ...]

    @property
    def repeats(self) -> int:
        """How many instructions the text after allocation makes anew."""
        return self.text.count("\nrepeat ")

    @property
    def accepted(self) -> bool:
        """Whether every checker at hand accepts it."""
        return all(answer.accepted for answer in self.answers)

    @property
    def may_branch_far(self) -> bool:
        """Whether a checker must be told that LLVM makes no long branch."""
        return any(answer.rule == "far-branch" for answer in self.answers)

    @property
    def disagree(self) -> bool:
        """Whether one checker accepts what the other refuses: one of the two has a fault."""
        return len({answer.accepted for answer in self.answers}) > 1


def certify_texts(
    before: str,
    after: str,
    function: str,
    processor: str,
    *,
    saved_later: bool = False,
    near_branches: bool = False,
) -> Certification:
    """Make a certificate for a function of two texts, and have it checked by every checker at hand.

    The maker in Rust is asked first, where it is at hand: it says too whether the second checker accepts what it makes.
    The one in Python, whose search is the same, goes on only where the checkers disagree, or the first one made
    nothing; and in a large function never, where it would take minutes.

    ``saved_later``, ``near_branches``: see ``smt_verifier.checker.check``.
    """
    premises = {"saved_later": saved_later, "near_branches": near_branches}
    made = made_certificate(before, after, processor, function, **premises)
    text, second = ("", None) if made is None else (made[0], Answer(SECOND, *made[1]))
    try:
        both = prepare(read(before), read(after), function, processor, **premises)
        if second is not None:
            is_large = sum(len(block.instructions) for block in both.after.function.blocks) > LARGE
            answers = (_first(both, text), second) if text else (second,)
            if is_large or (text and len({answer.accepted for answer in answers}) == 1):
                return Certification(text, answers)
        # The maker in Python is seldom needed, and half of what this loads.
        from smt_verifier.certificate.produce import certify

        certified = certify(both)
    except Refused as error:
        return Certification(text, (_refused(error),) if second is None else (_refused(error), second))
    text = write_certificate(certified.certificate, both.before.grain)
    if certified.refused is not None or certified.accepted is None:
        return Certification(text, (_refused(certified.refused),))
    counts = certified.accepted
    first = Answer(FIRST, accepted=True, operands=counts.operands, claims=counts.claims)
    answer = second_checker(before, after, text, processor, function, **premises)
    return Certification(text, (first,) if answer is None else (first, Answer(SECOND, *answer)))


def order_answers(before: str, after: str, certificate: str, function: str, processor: str) -> tuple[Answer, ...]:
    """What the checkers say of a function in another order of instructions (docs/trust/spec.md, section 16), the first
    one's first; one alone where the second checker is not at hand, or the first refuses. ``operands`` of an answer: how
    many instructions stand elsewhere.
    """
    try:
        moved = check_order(before, after, certificate, processor, function)
    except Refused as error:
        return (_refused(error),)
    first = Answer(FIRST, accepted=True, operands=moved)
    second = second_checker(before, after, certificate, processor, function, order=True)
    return (first,) if second is None else (first, Answer(SECOND, *second))


def _first(both: Both, text: str) -> Answer:
    """The first checker's answer to a certificate that somebody else has made."""
    try:
        counts = check_function(both, read_certificate(text, both.before.grain))
    except Refused as error:
        return _refused(error)
    return Answer(FIRST, accepted=True, operands=counts.operands, claims=counts.claims)


def _refused(error: Refused | None) -> Answer:
    if error is None:
        return Answer(FIRST, accepted=False)
    return Answer(FIRST, accepted=False, rule=error.rule, message=error.message, where=error.where)
