"""Run a .vmfb through IREE's runtime: on an AMD GPU by its HIP driver, in the tests on a CPU."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from verilocc_mlir.errors import ToolchainError, VeriloccError

DEVICE = "hip"
EXTRA_HINT = "pip install 'verilocc-mlir[iree]'"


class NoGpuError(VeriloccError):
    """There is no ROCm GPU, or no HIP runtime, to run on."""


class Session:
    """A loaded module on a device.

    Args:
        device: an IREE device, ``"hip"`` or ``"hip://…"``.

    Raises:
        NoGpuError: the device is not there. ToolchainError: iree.runtime is not installed, or rejects the module.
    """

    def __init__(self, vmfb: bytes, device: str = DEVICE) -> None:
        self._runtime = _runtime()
        self._device = _device(self._runtime, device)
        try:
            config = self._runtime.Config(device=self._device)
            module = self._runtime.VmModule.copy_buffer(config.vm_instance, vmfb)
            self._module = self._runtime.load_vm_module(module, config)
        except (RuntimeError, ValueError) as error:
            raise ToolchainError(f"IREE's runtime cannot load the module: {_line(error)}") from error

    def call(self, function: str, values: Sequence[Any]) -> list[Any]:
        """Call ``function`` with torch tensors and numbers; returns CPU tensors and numbers, in order.

        Raises:
            ToolchainError: the call fails: wrong shapes or types, a fault of the device.
        """
        try:
            arguments = [self._given(value) for value in values]
            output: Any = self._module[function](*arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            raise ToolchainError(f"IREE's runtime: {_line(error)}", where=function) from error
        several = isinstance(output, (tuple, list))
        results: list[Any] = [*output] if several else [] if output is None else [output]
        return [self._taken(result) for result in results]

    def _given(self, value: Any) -> Any:
        torch = importlib.import_module("torch")
        if not isinstance(value, torch.Tensor):
            return value
        tensor = value.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:
            array = tensor.view(torch.int16).numpy().view(importlib.import_module("ml_dtypes").bfloat16)
        else:
            array = tensor.numpy()
        return self._runtime.asdevicearray(self._device, array)

    def _taken(self, result: Any) -> Any:
        torch = importlib.import_module("torch")
        if not hasattr(result, "to_host"):
            return result
        # A copy: the array may be the device's own memory.
        array = result.to_host().copy()
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
        return torch.from_numpy(array)


def gpu_missing() -> str:
    """Why no ROCm GPU can be used here; ``""`` if one can."""
    try:
        _device(_runtime(), DEVICE)
    except VeriloccError as error:
        return error.what
    return ""


def _runtime() -> ModuleType:
    try:
        return importlib.import_module("iree.runtime")
    except ImportError as error:
        raise ToolchainError(f"iree.runtime cannot be imported: {error}", hint=EXTRA_HINT) from error


def _device(runtime: ModuleType, uri: str) -> Any:
    try:
        return runtime.get_device(uri)
    except (RuntimeError, ValueError) as error:
        raise NoGpuError(
            f"no ROCm GPU can be used here: {_line(error)}",
            hint="the compiled module runs where there is one; save its .vmfb and take it there",
        ) from error


def _line(error: Exception) -> str:
    """The first line of IREE's message, without the place in its sources."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"^.*?\S+\.c:\d+: ", "", line).rstrip(": ")
