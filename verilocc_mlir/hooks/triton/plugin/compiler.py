"""The backend that supports no target; see the package."""

from __future__ import annotations

import importlib
from typing import Any

from verilocc_mlir.hooks.triton.plugin import start

_base: Any = importlib.import_module("triton.backends.compiler")


def _never(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("verilocc has no backend of its own in Triton, it hooks into the one for AMD GPUs")


def _supports(_: Any) -> bool:
    return False


# All abstract methods of this version of Triton, whichever they are.
_methods: dict[str, Any] = dict.fromkeys(_base.BaseBackend.__abstractmethods__, _never)
_methods["supports_target"] = staticmethod(_supports)

VeriloccBackend: Any = type("VeriloccBackend", (_base.BaseBackend,), _methods)

start()
