"""Kernels read from what compilers write, and compared with a baseline."""
