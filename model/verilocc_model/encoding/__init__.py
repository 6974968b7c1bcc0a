"""``AllocationProblem`` to tokens, and decisions back to registers."""
