"""The driver that is never active; see the package."""

from __future__ import annotations

import importlib
from typing import Any

_base: Any = importlib.import_module("triton.backends.driver")


def _never(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("verilocc drives no device")


def _is_active(_: Any) -> bool:
    return False


_methods: dict[str, Any] = dict.fromkeys(_base.DriverBase.__abstractmethods__, _never)
_methods["is_active"] = classmethod(_is_active)

VeriloccDriver: Any = type("VeriloccDriver", (_base.DriverBase,), _methods)
