"""The order of instructions behind allocation: a list scheduler of our own, whose result both checkers prove."""
