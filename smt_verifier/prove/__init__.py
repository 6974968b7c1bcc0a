"""``prove``: does a proposal satisfy every constraint of its allocation problem, and if not, which, where and why."""

from smt_verifier.prove.diagnosis import Diagnosis, Relocation, diagnose
from smt_verifier.prove.prover import obligation_for, prove
from smt_verifier.prove.result import ProofResult, Violation

__all__ = ["Diagnosis", "ProofResult", "Relocation", "Violation", "diagnose", "obligation_for", "prove"]
