"""Making certificates: pairing of instructions and inference of claims. Untrusted: a checker judges the result."""

from smt_verifier.checker import COMPILED

if COMPILED is not None:
    __path__.insert(0, str(COMPILED / "smt_verifier" / "certificate"))
