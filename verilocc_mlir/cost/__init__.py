"""What a register allocation costs, modelled over final machine code: never measured, used to rank.

``cost_of_assembly`` reads what llc writes last (or llvm-objdump shows) and needs no tool; ``read`` drives llc and
llvm-objdump where a file has to become that text. docs/design/cost.md lists every rule, its source and its default.
"""
