"""Random functions for one wave, random registers for them, and what their assembly does, run thread by thread."""
