"""The order of instructions before and behind allocation: list schedulers of our own, whose results both checkers prove."""
