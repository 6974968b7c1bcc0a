"""A driver for Triton that has a target and no device: kernels are compiled as for a launch, and none is run."""

from __future__ import annotations

import importlib
from typing import Any


class _Utils:
    """What Triton asks before it launches."""

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {"max_shared_mem": 65536, "multiprocessor_count": 304}

    def load_binary(self, _name: str, _code: bytes, _shared: int, _device: int) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, 1024  # module, function, registers, spills, threads

    def unload_module(self, _module: int) -> None:
        pass


class _Launcher:
    """Launches nothing."""

    def __init__(self, _source: Any, _metadata: Any) -> None:
        pass

    def __call__(self, *_: Any) -> None:
        pass


class NoDevice:
    """An AMD GPU of the given processor; to be given to ``triton.runtime.driver.set_active``."""

    launcher_cls = _Launcher

    def __init__(self, target: str) -> None:
        self._target = gpu_target(target)
        self.utils = _Utils()

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, *_: Any) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return importlib.import_module("torch").device("cpu")


def gpu_target(name: str) -> Any:
    """Triton's description of a processor."""
    wave = 64 if name.startswith("gfx9") else 32
    return importlib.import_module("triton.backends.compiler").GPUTarget("hip", name, wave)
