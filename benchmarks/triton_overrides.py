"""What is given by hand for kernels whose source does not say what they are called with."""

from __future__ import annotations

from triton_signatures import Override

OVERRIDES: dict[str, Override] = {
    f"ops.multi_token_attention.{name}": Override(constants={"BLOCK": 32})
    for name in ("_mask_fwd_kernel", "_mask_bwd_kernel")
}
"""By the kernel's name in ``triton_suites.py``: module below the package, and function."""
