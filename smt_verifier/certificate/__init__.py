"""Making certificates: pairing of instructions and inference of claims. Untrusted: a checker judges the result."""
