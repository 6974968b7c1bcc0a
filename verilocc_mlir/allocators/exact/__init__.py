"""Exact allocation with CP-SAT of OR-Tools: the fewest registers, then the fewest copies, with proof.

A live range is a set of rectangles, time across and registers up; they must not overlap. ``frame.py`` leaves out the
points in time that decide nothing, and says what a position is. ``bound.py`` has lower bounds and the packing,
``allocator.py`` and ``copies.py`` the two objectives.
OR-Tools is loaded when an ``ExactAllocator`` is made, not before.
"""

from verilocc_mlir.allocators.exact.allocator import ExactAllocator, ExactResult, Order
from verilocc_mlir.allocators.exact.frame import available

__all__ = ["ExactAllocator", "ExactResult", "Order", "available"]
