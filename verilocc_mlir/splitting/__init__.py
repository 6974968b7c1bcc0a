"""Live ranges split by copies, where registers are free at every point but none for the whole of a range.

An allocator that found no place for some ranges says where it put the others (``Partial``). Each range that waits is
laid over several registers, one after the other, with a copy at each change; so are those that it drives out, where it
needs unbroken room. What comes out is another text and a complete assignment for it, proved like any other.
"""
