"""Finding and driving LLVM: discovery, subprocesses, the staged run, and one module for each LLVM quirk.

Nothing here links LLVM: every tool runs in a process of its own, because malformed MIR aborts llc
(docs/design/toolchain.md has the commands, the traps and what is checked).
"""
