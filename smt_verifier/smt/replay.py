"""A whole SMT-LIB2 script, asked of z3, cvc5 or bitwuzla as any user of them would ask it.

:func:`answer` runs in this process; ``smt_verifier.smt.processes.replay`` asks a worker, so that a solver that crashes,
hangs or eats the memory costs one answer and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def installed(solver: str) -> bool:
    return importlib.util.find_spec(solver) is not None


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


def answer(text: str, solver: str) -> str:
    """What ``solver`` (a key of ``SOLVERS``) says: ``sat``, ``unsat``, ``unknown``, or a message of its own."""
    return SOLVERS[solver](text)
