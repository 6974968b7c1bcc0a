"""The ways in which a hunt asks LLVM to allocate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verilocc_mlir.errors import InputError
from verilocc_mlir.results.hunt import Variant
from verilocc_mlir.toolchain.drivers.job import RegAlloc

_FEW_VECTORS = (("amdgpu-num-vgpr", "64"), ("amdgpu-agpr-alloc", "0"))

VARIANTS = (
    Variant("default"),
    Variant("stress-3", ("-stress-regalloc=3",)),
    Variant("stress-6", ("-stress-regalloc=6",)),
    Variant("stress-12", ("-stress-regalloc=12",)),
    Variant("few-vgprs", attributes=_FEW_VECTORS),
    Variant("few-sgprs", attributes=(("amdgpu-num-sgpr", "32"),)),
    Variant("many-waves", attributes=(("amdgpu-flat-work-group-size", "1,64"), ("amdgpu-waves-per-eu", "8"))),
    Variant("basic", regalloc="basic"),
    Variant("basic-stress-6", ("-stress-regalloc=6",), regalloc="basic"),
    Variant("fast", regalloc="fast"),
    Variant("max-ilp", ("-amdgpu-sched-strategy=max-ilp",)),
    Variant("max-memory-clause", ("-amdgpu-sched-strategy=max-memory-clause",)),
    Variant("iterative-minreg", ("-misched=gcn-iterative-minreg",)),
    Variant("few-vgprs-max-ilp", ("-amdgpu-sched-strategy=max-ilp",), _FEW_VECTORS),
    Variant("split-for-size", ("-split-spill-mode=size", "-stress-regalloc=8")),
    Variant("split-for-speed", ("-split-spill-mode=speed", "-stress-regalloc=8")),
    Variant("reverse-local", ("-greedy-reverse-local-assignment", "-stress-regalloc=8")),
    Variant("local-reassign", ("-enable-local-reassign", "-stress-regalloc=8")),
    Variant("early-intervals", ("-early-live-intervals",)),
    Variant("scalar-spill-registers", ("-amdgpu-prealloc-sgpr-spill-vgprs", "-stress-regalloc=4")),
    Variant("mfma-in-vgprs", ("-amdgpu-mfma-vgpr-form",), _FEW_VECTORS),
)
"""In the order in which they are tried."""

_REGALLOC = re.compile(r"^-(?:(?:sgpr|wwm|vgpr)-)?regalloc=(greedy|basic|fast)$")


def chosen_variants(names: Sequence[str], added: Sequence[str] = ()) -> tuple[Variant, ...]:
    """Those of the names, or all; and one more for each string of LLVM's options.

    Raises:
        InputError: there is no such name.
    """
    known = {variant.name: variant for variant in VARIANTS}
    for name in names:
        if name not in known:
            raise InputError(f"no variant is called {name!r}", hint=f"there are {', '.join(known)}")
    base = tuple(known[name] for name in names) if names or added else VARIANTS
    return (*base, *map(_variant, added))


def _variant(options: str) -> Variant:
    """``"-regalloc=basic -stress-regalloc=5"``."""
    regalloc: RegAlloc = "greedy"
    others: list[str] = []
    for option in options.split():
        match = _REGALLOC.match(option)
        if match:
            regalloc = "basic" if match[1] == "basic" else "fast" if match[1] == "fast" else "greedy"
        elif option.startswith("-"):
            others.append(option)
        else:
            raise InputError(f"{option!r} is no option of LLVM", hint='for example --options="-stress-regalloc=5"')
    return Variant(" ".join(options.split()), tuple(others), (), regalloc)
