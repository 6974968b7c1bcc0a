"""Triton's LLVM IR as its own code generator sees it: that one adds two things which the text does not have yet.

Source: ``triton_amdgpu_compile`` (third_party/amd of Triton 3.9): with ``enable_fp_fusion`` every ``fadd``, ``fsub``
and ``fmul`` gets the flag ``contract``, and every function that is not ``noinline`` gets ``alwaysinline``.
"""

from __future__ import annotations

import re

_KERNEL = re.compile(r"^define amdgpu_kernel void @([a-zA-Z_][a-zA-Z0-9_]*)", re.MULTILINE)
_ARITHMETIC = re.compile(r"^(\s+%\S+ = f(?:add|sub|mul) )((?:[a-z]+ )*)", re.MULTILINE)
_DEFINE = re.compile(
    r"^(define (?!.*\bamdgpu_kernel\b).*\)(?: (?:local_)?unnamed_addr)?(?: addrspace\(\d+\))?)([^()]*\{)$", re.MULTILINE
)
_GROUP = re.compile(r"^attributes #(\d+) = \{(.*)\}$", re.MULTILINE)
_FLAGS = frozenset(["nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"])


def kernel_names(ir: str) -> list[str]:
    return _KERNEL.findall(ir)


def as_code_generated(ir: str, *, fp_fusion: bool) -> str:
    """``ir`` with what Triton's code generator adds to it."""
    text = _always_inline(ir)
    return _ARITHMETIC.sub(_contract, text) if fp_fusion else text


def _contract(match: re.Match[str]) -> str:
    words = match[2].split()
    flags = [word for word in words if word in _FLAGS]
    if "contract" in flags or "fast" in flags:
        return match[0]
    return f"{match[1]}{' '.join([*flags, 'contract', *words[len(flags) :]])} "


def _always_inline(ir: str) -> str:
    groups = dict(_GROUP.findall(ir))

    def inline(match: re.Match[str]) -> str:
        attributes = match[2] + " ".join(groups.get(number, "") for number in re.findall(r"#(\d+)", match[2]))
        if re.search(r"\b(?:noinline|optnone|alwaysinline)\b", attributes):
            return match[0]
        return f"{match[1]} alwaysinline{match[2]}"

    return _DEFINE.sub(inline, ir)
