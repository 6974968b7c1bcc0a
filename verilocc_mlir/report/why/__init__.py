"""Where a function is full of registers, as text."""
