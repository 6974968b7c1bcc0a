"""gRPC without words of its own: it writes failures of handshakes and name look-ups to standard error, and our error
messages say the same once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

_VERBOSITY = "GRPC_VERBOSITY"


@contextlib.contextmanager
def quiet_grpc() -> Generator[None, None, None]:
    """For the block in which gRPC is loaded and a channel made: it reads this then. The environment stays as it was."""
    was_there = _VERBOSITY in os.environ
    os.environ.setdefault(_VERBOSITY, "NONE")
    try:
        yield
    finally:
        if not was_there:
            os.environ.pop(_VERBOSITY, None)
