"""Ways to have LLVM do a piece of the staged run: an llc (``llc``), or the LLVM inside Triton's wheel (``triton``).

``job`` says what a piece of work is; each driver makes a ``ToolRun`` of it.
"""
