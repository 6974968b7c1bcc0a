"""Teaching a causal language model to answer episodes."""
