"""An independent judge of register allocations: both sides are *run*, side by side, on concrete values.

The oracle shares nothing with ``smt_verifier``: no solver, no relation, no inference. It imports the MIR reader and the
names of registers and classes, and has its own lists of opcodes. A function before and after an allocation phase runs
in lock step on the same random machine state and the same path; it is a *difference* when an instruction that the
allocator may neither repeat nor drop reads another value on one side than on the other in a lane that the pre-RA side
defines.

What it cannot see, by construction: rules that no execution breaks (alignment, reserved registers, kill flags,
live-ins). What "no difference in N runs" means: no more than that; it is evidence, not proof. That is the point: the
audit proves, the oracle tries to contradict it.
"""

from __future__ import annotations

from oracle.lockstep import Answer, Oracle

__all__ = ["Answer", "Oracle"]
