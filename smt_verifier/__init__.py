"""Proofs about register allocations: ``prove`` (a proposal satisfies its problem) and ``audit`` (post-RA MIR computes
what pre-RA MIR computes). Only ``smt_verifier.smt`` touches a solver."""
