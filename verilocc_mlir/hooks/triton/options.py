"""What Triton asks of its own LLVM beside the IR, and what of it another LLVM can be asked for.

Source: ``make_amdgcn``, ``make_hsaco`` and ``get_llvm_flags`` in triton/backends/amd/compiler.py of Triton 3.9.
Most options need nothing here, because they are in the IR when it arrives: ``waves_per_eu``, ``allow_flush_denorm``,
``num_warps``, ``llvm_fn_attrs``, ``wgp_cu_mode``, kernel arguments in registers, linked device libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from verilocc_mlir.errors import VeriloccError

# LLVM options are process-wide in Triton, so these reach its LLVM by environment variables.
_FALSE = ("", "0", "false", "off", "no", "n")
_TRUE = ("1", "true", "on", "yes", "y")
_WATCHED = {
    "LLVM_IR_ENABLE_DUMP": "prints the IR after every pass of Triton's LLVM",
    "LLVM_ENABLE_TIMING": "times the passes of Triton's LLVM",
}


_OF_THE_ALLOCATOR = frozenset({"amdgpu-anti-hints-for-va-vdst"})
"""What Triton asks of the allocator in its LLVM alone, as a wish that no allocation owes (the registers' ``anti-hints``
in machine IR). The allocator is ours here, and other LLVMs do not know the option."""


class PassThrough(VeriloccError):
    """This compilation is Triton's: an option is set that only its own LLVM honours."""


@dataclass(frozen=True)
class Wanted:
    """One compilation as Triton asks for it: what the IR does not say; ``fp_fusion`` is to be put into it."""

    target: str
    fp_fusion: bool
    llc_options: tuple[str, ...]


def wanted(backend: Any, options: Any, knobs: Any, env: Mapping[str, str] = os.environ) -> Wanted:
    """Read Triton's options.

    Raises:
        PassThrough: one of them cannot be honoured here.
    """
    if knobs.compilation.enable_asan:
        raise PassThrough("TRITON_ENABLE_ASAN instruments the kernel and links its own run time")
    for knob, variable in (("swap_mir", "TRITON_SWAP_MIR"), ("dump_mir", "TRITON_DUMP_MIR")):
        if getattr(knobs.amd, knob, None):
            raise PassThrough(f"{variable} works on the machine IR of Triton's LLVM")
    for variable, effect in _WATCHED.items():
        if env.get(variable, "").lower() not in _FALSE:
            raise PassThrough(f"{variable} {effect}")
    flags = (*_llvm_flags(backend, options), *_disabled_passes(env))
    return Wanted(str(options.arch), bool(options.enable_fp_fusion), tuple(f"-{flag}=true" for flag in flags))


def _llvm_flags(backend: Any, options: Any) -> list[str]:
    """What Triton's backend always gives to LLVM for a target."""
    name = type(backend).__module__
    module: ModuleType | None = sys.modules.get(name)
    if module is None or not hasattr(module, "get_llvm_flags"):
        raise PassThrough(f"{name} has no get_llvm_flags: this version of Triton is not known here")
    flags = [str(flag) for flag in module.get_llvm_flags(options.arch)]
    return [flag for flag in flags if flag not in _OF_THE_ALLOCATOR]


def _disabled_passes(env: Mapping[str, str]) -> list[str]:
    """``DISABLE_LLVM_OPT`` is a truth value, or a list of LLVM options such as ``disable-lsr``."""
    value = env.get("DISABLE_LLVM_OPT", "")
    if value.lower() in _TRUE:
        raise PassThrough("DISABLE_LLVM_OPT asks for unoptimised code, which LLVM allocates in another way")
    return [] if value.lower() in _FALSE else [name for name in value.split(",") if name]
