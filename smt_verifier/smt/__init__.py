"""Obligations as SMT-LIB2 text, and the solver that discharges them. Nothing else in the project imports z3."""

from smt_verifier.smt.processes import ProcessSolver, default_solver
from smt_verifier.smt.solver import (
    Obligation,
    Solver,
    Verdict,
    Z3Solver,
    conjunction,
    to_smtlib,
    without_sorts,
)

__all__ = [
    "Obligation",
    "ProcessSolver",
    "Solver",
    "Verdict",
    "Z3Solver",
    "conjunction",
    "default_solver",
    "to_smtlib",
    "without_sorts",
]
