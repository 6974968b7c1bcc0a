"""The order of instructions before and behind allocation: list schedulers of our own, proved by both checkers."""
