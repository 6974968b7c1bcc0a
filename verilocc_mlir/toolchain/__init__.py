"""Finding and driving LLVM: discovery, subprocesses, the staged run, and the traps.

Every tool runs in a process of its own, because malformed MIR aborts llc. docs/design/target.md has the commands,
the traps and the checks.
"""
