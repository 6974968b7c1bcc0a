"""Whether LLVM makes long branches in allocated code, which it alone knows (BranchRelaxation.cpp)."""

from __future__ import annotations

import re
from collections.abc import Callable

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT
from verilocc_mlir.toolchain.staged import StagedCompiler

_FUNCTION = re.compile(r"^name: +(?P<name>.+)$", re.MULTILINE)
_LONG = re.compile(r"^ +S_SETPC_B64 ", re.MULTILINE)
"""The end of a long branch, but for gfx1250's ``S_ADD_PC_I64``, which takes no register."""


def near_branches(text: str, compiler: Callable[[], StagedCompiler]) -> Callable[[str], bool]:
    """Whether LLVM makes no long branch in a function of that name in ``text``, with VGPRs rewritten.

    LLVM is asked once, at the first question. What it cannot compile has no answer: False.
    """
    near: dict[str, bool] = {}

    def is_near(name: str) -> bool:
        if not near:
            try:
                counts = _counts(compiler().relaxed(text))
            except VeriloccError:
                counts = {}
            near.update({of: counts.get(of, before + 1) <= before for of, before in _counts(text).items()})
        return near.get(name, False)

    return is_near


def near_branches_on(text: str, cpu: str, seconds: float = DEFAULT_TIMEOUT) -> Callable[[str], bool]:
    """Likewise, by the LLVM at hand, which may take so long."""
    options = CompileOptions(cpu, verify=False, tool_seconds=min(seconds, DEFAULT_TIMEOUT))
    return near_branches(text, lambda: StagedCompiler(choose_tools(), options))


def _counts(text: str) -> dict[str, int]:
    """How often each function, by its name, jumps by a register."""
    _, *rows = _FUNCTION.split(text)
    names = (name.strip("'\"") for name in rows[::2])
    return {name: len(_LONG.findall(body)) for name, body in zip(names, rows[1::2], strict=True)}
