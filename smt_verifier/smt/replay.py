"""Replay an SMT-LIB2 file in a process of its own, with z3, cvc5 or bitwuzla.

A solver that crashes, hangs or eats the memory costs one answer, ``unknown``, and nothing else. Run as a module
(``python -m smt_verifier.smt.replay SOLVER``) it reads a script from standard input and prints ``sat``, ``unsat`` or
``unknown``.
"""

from __future__ import annotations

import importlib
import importlib.util
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smt_verifier.outcome import Outcome

_OUTCOMES = {"unsat": Outcome.PROVED, "sat": Outcome.REFUTED}


@dataclass(frozen=True, slots=True)
class Replay:
    """A solver's answer: PROVED for ``unsat``, REFUTED for ``sat``, else UNKNOWN with the reason."""

    outcome: Outcome
    reason: str = ""


def installed(solver: str) -> bool:
    """Whether the Python package of a solver is there."""
    return importlib.util.find_spec(solver) is not None


def replay(text: str, solver: str, *, timeout_s: float, memory_mib: int) -> Replay:
    """Ask ``solver`` (a key of ``SOLVERS``) about a whole script.

    Args:
        text: an SMT-LIB2 script with one ``check-sat``.
        solver: ``z3``, ``cvc5`` or ``bitwuzla``.
        timeout_s: seconds of wall time.
        memory_mib: address space of the worker.
    """
    command = [sys.executable, "-m", "smt_verifier.smt.replay", solver]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))

    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return Replay(Outcome.UNKNOWN, f"no answer within {timeout_s:g} s")
    answer = done.stdout.strip()
    if done.returncode == 0 and answer in _OUTCOMES:
        return Replay(_OUTCOMES[answer])
    last = (done.stderr.strip().splitlines() or [answer or "no output"])[-1]
    return Replay(Outcome.UNKNOWN, f"{solver} ended with {done.returncode}: {last[:200]}")


def _z3(text: str) -> str:
    z3: Any = importlib.import_module("z3")
    solver = z3.Solver()
    solver.from_string(text)
    return str(solver.check())


def _cvc5(text: str) -> str:
    cvc5: Any = importlib.import_module("cvc5")
    solver = cvc5.Solver()
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    printed: list[str] = []
    while not (command := parser.nextCommand()).isNull():
        printed.append(str(command.invoke(solver, parser.getSymbolManager())))
    return "".join(printed).strip()


def _bitwuzla(text: str) -> str:
    bitwuzla: Any = importlib.import_module("bitwuzla")
    parser = bitwuzla.Parser(bitwuzla.TermManager(), bitwuzla.Options())
    parser.parse(text, True, False)
    return str(parser.bitwuzla().check_sat()).rpartition(".")[2].lower()


SOLVERS: dict[str, Callable[[str], str]] = {"z3": _z3, "cvc5": _cvc5, "bitwuzla": _bitwuzla}


if __name__ == "__main__":
    print(SOLVERS[sys.argv[1]](sys.stdin.read()))
