"""The rules, one module each. ``RULES`` is the order in which they are asked and reported."""

from smt_verifier.prove.constraints.alignment import Alignment
from smt_verifier.prove.constraints.base import Constraint, Goal
from smt_verifier.prove.constraints.budget import Budget
from smt_verifier.prove.constraints.class_membership import ClassMembership
from smt_verifier.prove.constraints.complete import Complete
from smt_verifier.prove.constraints.fixed import Fixed
from smt_verifier.prove.constraints.interference import Interference
from smt_verifier.prove.constraints.reserved import Reserved
from smt_verifier.prove.constraints.well_formed import WellFormed
from smt_verifier.prove.constraints.width import Width

RULES: tuple[Constraint, ...] = (
    Complete(),
    WellFormed(),
    Width(),
    ClassMembership(),
    Alignment(),
    Reserved(),
    Budget(),
    Interference(),
    Fixed(),
)

__all__ = ["RULES", "Constraint", "Goal"]
