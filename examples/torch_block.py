"""A small transformer block, as a user would write it: attention and an MLP with their norms.

    verilocc torch examples/torch_block.py:block --target=gfx942 -o block.vmfb

compiles it without a GPU and proves the register assignment of every kernel. ``dynamic`` is the same with a batch of
any size. In Python it is

    compiled = verilocc_mlir.compile(module, example_inputs, target="gfx942")
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm attention and MLP over (batch, sequence, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


def block(dtype: torch.dtype = torch.float16) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The module and an example input."""
    torch.manual_seed(0)
    return Block(width=64, heads=2).to(dtype).eval(), (torch.randn(2, 64, 64, dtype=dtype),)


def dynamic() -> tuple[nn.Module, tuple[torch.Tensor, ...], Any]:
    """The same for any batch from 1 to 64."""
    module, inputs = block()
    return module, inputs, ({0: torch.export.Dim("batch", min=1, max=64)},)
