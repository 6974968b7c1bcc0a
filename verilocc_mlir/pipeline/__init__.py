"""From LLVM IR or pre-RA MIR to a proved code object: each phase allocated, proved, rewritten, audited, resumed."""
