"""A small Triton kernel, compiled by Triton without a GPU."""

from __future__ import annotations

import importlib
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget


@triton.jit
def scaled_sum(x_ptr, y_ptr, size, scale, BLOCK: tl.constexpr):  # pyright: ignore[reportInvalidTypeForm]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + offsets) * scale + tl.load(y_ptr + offsets)
    tl.store(y_ptr + offsets, total, mask=offsets < size)


def gpu(target: str) -> Any:
    """A target as Triton names it."""
    return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)


def build_sum(target: str = "gfx942", block: int = 256, **options: Any) -> Any:
    """``scaled_sum`` for a target."""
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "size": "i32", "scale": "fp32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(scaled_sum, signature, {"BLOCK": block})
    return triton.compile(source, target=gpu(target), options=options)


class Device:
    """Triton's driver for a GPU that is not here, with the code objects that were loaded, in order."""

    def __init__(self, target: str) -> None:
        self.driver = importlib.import_module("triton_no_device").NoDevice(target)
        self.loaded: list[bytes] = []
        before = self.driver.utils.load_binary

        def load(name: str, code: bytes, shared: int, device: int) -> Any:
            self.loaded.append(code)
            return before(name, code, shared, device)

        self.driver.utils.load_binary = load
