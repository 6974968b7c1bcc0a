"""Obligations as SMT-LIB text, and Z3 behind a small interface.

How it is called was measured (z3 5.4, one core). 1.8 MB of ``QF_UF`` text with 30,000 goals: the default solver parses
in 0.12 s and decides in 0.1 s; ``SolverFor("QF_UF")`` and ``SimpleSolver`` are within a factor of 1.5. 4.2 MB of
``QF_BV`` with 31,000 goals over 7,000 constants of known value: 0.3 s and 0.2 s; ``SimpleSolver`` decides in 1.0 s.
Naming each goal by a Boolean doubles both figures, so goals are named only once an obligation has failed. A context
costs half of the 2 ms that the question of a small block takes: obligations share one, each with a solver object of its
own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from smt_verifier.smt import library
from smt_verifier.smt.library import Context, Z3Error

# A proof obligation is text in SMT-LIB 2.6, so that any solver can be asked, and a person can read what was asked.


class Obligation(Struct, frozen=True):
    """Show that every goal follows from the hypotheses.

    Attributes:
        name: stable, unique in its proof; it names the file when the obligation is written out.
        logic: SMT-LIB logic that the script stays within (``QF_UF``, ``QF_LIA`` …).
        script: declarations, definitions and ``assert``s of the hypotheses; no ``set-logic``, no ``check-sat``.
        goals: ``(name, Boolean term)``; names are unique. No goals: nothing to show, PROVED.
        rlimit: Z3's deterministic resource limit for each question; 0: that of the solver.
    """

    name: str
    logic: str
    script: str
    goals: tuple[tuple[str, str], ...]
    rlimit: int = 0


class Verdict(Struct, frozen=True):
    """The answer to one obligation.

    Attributes:
        outcome: PROVED (hypotheses and negated goals unsatisfiable), REFUTED (a model makes a goal false), UNKNOWN
            (limit or solver failure), INVALID (the text does not parse, or its hypotheses contradict each other).
        violated: names of the goals that are false in one counterexample, in the obligation's order.
        reason: why, for UNKNOWN and INVALID; else empty.
    """

    outcome: Outcome
    violated: tuple[str, ...] = ()
    reason: str = ""


def conjunction(terms: Sequence[str]) -> str:
    """The conjunction of any number of terms (SMT-LIB's ``and`` wants two or more)."""
    if len(terms) > 1:
        return "(and\n " + "\n ".join(terms) + ")"
    return terms[0] if terms else "true"


def negated_goals(obligation: Obligation) -> str:
    """The one assertion that turns validity of the goals into unsatisfiability."""
    return f"(assert (not {conjunction([term for _, term in obligation.goals])}))\n"


def to_smtlib(obligation: Obligation, expected: str = "unsat") -> str:
    """A file on its own: ``unsat`` means proved. cvc5 reads it as it is, bitwuzla too where it is of bit-vectors.

    Args:
        expected: ``unsat``, ``sat`` or ``unknown``; cvc5 reports an error where its answer is another.
    """
    goals = (
        "".join(f"; goal {' '.join(name.split())}\n" for name, _ in obligation.goals)
        if len(obligation.goals) <= 64
        else ""
    )
    return (
        "(set-info :smt-lib-version 2.6)\n"
        f'(set-info :source "VeriLocc-MLIR obligation {obligation.name.replace(chr(34), chr(39))}")\n'
        f"(set-info :status {expected})\n"
        f"(set-logic {obligation.logic})\n"
        f"{obligation.script.rstrip()}\n{goals}{negated_goals(obligation)}(check-sat)\n"
    )


_SORT = re.compile(r"\(declare-sort (\S+) 0\)")


def without_sorts(obligation: Obligation) -> Obligation:
    """The same obligation over 32-bit vectors instead of uninterpreted sorts: bitwuzla has no equality on those.

    Equisatisfiable: a model over bit-vectors is a model; and a quantifier-free formula of uninterpreted functions and
    equality with a model has one in which a sort has no more elements than the formula has terms, fewer than 2**32.
    """
    script, count = _SORT.subn(r"(define-sort \1 () (_ BitVec 32))", obligation.script)
    return replace(obligation, logic="QF_UFBV", script=script) if count else obligation


class Solver(Protocol):
    """Something that decides obligations."""

    def check(
        self,
        obligation: Obligation,
        timeout_s: float = 30.0,
        *,
        consistent: bool = False,
    ) -> Verdict:
        """Decide one obligation; never raises for what the obligation says.

        Args:
            timeout_s: seconds for each of the three questions an obligation can take (are the hypotheses consistent,
                do the goals follow, which of them do not); UNKNOWN after that.
            consistent: first require that the hypotheses have a model, so that nothing is proved from a contradiction
                (INVALID if they have none).
        """
        ...


class Z3Solver:
    """Z3 through its C interface; instances may be shared by threads.

    The first question about an obligation is asked in a context that the thread keeps (``_Contexts``), of a solver
    object of its own. What failed is asked about again in a fresh context, so that which goals are named does not
    depend on what was asked before.

    Args:
        rlimit: Z3's deterministic resource limit for each question; 0 for none. Unlike a time-out it gives the same
            verdict on every machine.
    """

    def __init__(self, rlimit: int = 0) -> None:
        self._rlimit = rlimit
        self._contexts = _Contexts()

    def check(
        self,
        obligation: Obligation,
        timeout_s: float = 30.0,
        *,
        consistent: bool = False,
    ) -> Verdict:
        if len({name for name, _ in obligation.goals}) != len(obligation.goals):
            return Verdict(Outcome.INVALID, reason="two goals have the same name")
        rlimit = obligation.rlimit or self._rlimit
        question = _Question(timeout_s, rlimit, _Contexts() if rlimit else self._contexts)
        if consistent:
            verdict = question.ask(obligation.script)
            if verdict is not Outcome.REFUTED:
                contradiction = Verdict(Outcome.INVALID, reason="the hypotheses contradict each other")
                return contradiction if verdict is Outcome.PROVED else Verdict(verdict, reason=question.reason)
        if not obligation.goals:
            return Verdict(Outcome.PROVED)
        outcome = question.ask(obligation.script + "\n" + negated_goals(obligation))
        if outcome is Outcome.REFUTED:
            return self._name_violations(obligation, timeout_s)
        return Verdict(outcome, reason=question.reason)

    def _name_violations(self, obligation: Obligation, timeout_s: float) -> Verdict:
        """Ask again with a Boolean for each goal and read which are false in the model."""
        question = _Question(timeout_s, obligation.rlimit or self._rlimit, _Contexts())
        names = [f"goal!{k}" for k in range(len(obligation.goals))]
        definitions = "".join(
            f"(declare-const {name} Bool)\n(assert (= {name} {term}))\n"
            for name, (_, term) in zip(names, obligation.goals, strict=True)
        )
        clause = "".join(f" (not {name})" for name in names)
        outcome = question.ask(f"{obligation.script}\n{definitions}(assert (or false{clause}))\n")
        false = question.false_constants() if outcome is Outcome.REFUTED else frozenset[str]()
        violated = tuple(goal for name, (goal, _) in zip(names, obligation.goals, strict=True) if name in false)
        # The first question found a counterexample. This one, by a limit or a defect, may not.
        reason = "" if violated else f"counterexample found, but not its goals: {question.reason}"
        return Verdict(Outcome.REFUTED, violated, reason)


class _Contexts(threading.local):
    """Each thread's Z3 context, which is a manager of terms: what is asserted belongs to a solver object in it.

    Two questions that declare the same name with the same type share the symbol, and nothing that is assumed of it,
    since each has a solver object, with its own assertions and its own parser. A context in which a question did not
    come to an answer (a limit, no memory) is not used again, nor one after ``_MOST_QUESTIONS``.
    """

    def __init__(self) -> None:
        self._context: Context | None = None
        self._questions_left = 0

    def get(self) -> Context:
        """The context for the next question."""
        if self._context is None or self._questions_left <= 0:
            self._context, self._questions_left = Context(), _MOST_QUESTIONS
        self._questions_left -= 1
        return self._context

    def drop(self) -> None:
        """Have the next question asked in a fresh one."""
        self._context = None


_MOST_QUESTIONS = 1000


class _Question:
    """One satisfiability question: PROVED here means unsatisfiable, REFUTED satisfiable."""

    def __init__(self, timeout_s: float, rlimit: int, contexts: _Contexts) -> None:
        self._contexts = contexts
        # z3 wants at least a millisecond.
        self._timeout_ms = min(max(1, int(timeout_s * 1000)), 2**31 - 1)
        self._rlimit = rlimit
        self._solver: library.Solver | None = None
        self.reason = ""

    def ask(self, script: str) -> Outcome:
        outcome = Outcome.UNKNOWN
        try:
            outcome = self._ask(script)
        finally:
            if outcome not in (Outcome.PROVED, Outcome.REFUTED):
                self._contexts.drop()
        return outcome

    def _ask(self, script: str) -> Outcome:
        self.reason = ""
        limits = {"timeout": self._timeout_ms, **({"rlimit": self._rlimit} if self._rlimit else {})}
        solver = self._solver = library.Solver(self._contexts.get(), **limits)
        try:
            solver.read(script)
        except Z3Error as error:
            self.reason = f"the obligation does not parse: {error}"
            return Outcome.INVALID
        try:
            result = solver.check()
            if result == library.UNSAT:
                return Outcome.PROVED
            if result == library.SAT:
                return Outcome.REFUTED
            self.reason = solver.reason_unknown()
        except Z3Error as error:
            self.reason = f"solver failure: {error}"
        return Outcome.UNKNOWN

    def false_constants(self) -> frozenset[str]:
        """Names of the Boolean constants that are false in the model of the last question."""
        # The printed model: reading it through z3's objects takes ten times as long.
        return frozenset(_FALSE.findall(self._solver.model_text() if self._solver else ""))


_FALSE = re.compile(r"\(define-fun (\S+) \(\) Bool\s+false\)")
