"""MIR text to immutable data and back, lossless."""
