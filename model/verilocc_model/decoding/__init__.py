"""From a scorer of words to a proposal: masked or not, drafted ahead, deterministic for a seed."""
