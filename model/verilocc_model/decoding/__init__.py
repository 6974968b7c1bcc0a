"""From a scorer of words to a proposal: with or without a mask, drafted ahead, deterministic for a seed."""
