"""Anytime improvement of a placement: local moves, and with OR-Tools exact answers for a part of the program at a time.

``state.py`` holds a placement that can be changed and changed back; ``search.py`` the local moves, the neighbourhoods
that CP-SAT solves, the loop, and an allocator that improves every answer of another one. The result is never worse than
the placement given.
"""

from verilocc_mlir.allocators.improve.search import Improved, Improving, improve

__all__ = ["Improved", "Improving", "improve"]
