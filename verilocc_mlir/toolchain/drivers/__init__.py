"""The drivers that have LLVM do a piece of the staged run: ``llc``, and ``triton`` for the LLVM inside Triton's wheel.

``job`` says what a piece of work is. A driver turns it into a ``ToolRun``.
"""
