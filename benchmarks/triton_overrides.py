"""What is given by hand for kernels whose source does not say what they are called with."""

from __future__ import annotations

from triton_signatures import Override

OVERRIDES: dict[str, Override] = {}
"""By the kernel's name in ``triton_suites.py``: module below the package, and function."""
