"""Torch on one thread, for as long as a small model is asked: with more, they would wait longer than they work."""

from __future__ import annotations

import contextlib
from collections.abc import Generator


@contextlib.contextmanager
def one_thread() -> Generator[None, None, None]:
    """For the block; whoever else uses Torch in this process has as many threads afterwards as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
