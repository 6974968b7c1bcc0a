"""A model of what a register allocation costs, over final machine code. It ranks allocations; nothing is measured.

``cost_of_assembly`` reads llc's assembly (or what llvm-objdump prints) and needs no tool. ``read`` drives llc and
llvm-objdump where a file has to become that text. docs/design/cost.md has the formula, and the
figures with their sources.
"""
