"""Whether LLVM makes long branches in allocated code, which it alone knows (BranchRelaxation.cpp)."""

from __future__ import annotations

import re
from collections.abc import Callable

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.run import DEFAULT_TIMEOUT
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler

_FUNCTION = re.compile(r"^name: +(?P<name>.+)$", re.MULTILINE)
_PLAIN = re.compile(r"(?P<quote>['\"]?)(?P<name>[\w.$]+)(?P=quote)")
"""A name that is written so and in no other way."""
_LONG = re.compile(r"^ +S_SETPC_B64 ", re.MULTILINE)
"""The end of a long branch, but for gfx1250's ``S_ADD_PC_I64``, which takes no register. The texts' own jumps by a
register count as one: they may be gone, or two may have become one.
"""


def near_branches(
    text: str, compiler: Callable[[], StagedCompiler], done: LlvmPhase = LlvmPhase.VGPR
) -> Callable[[str], bool]:
    """Whether LLVM makes no long branch in a function of that name in ``text``, in which the phase ``done`` is
    rewritten: behind the one of scalars it saves some of them.

    LLVM is asked once, at the first question. False, too, of what it cannot compile, and of a name with anything but
    letters, digits, ``_``, ``.`` and ``$``, which LLVM may write in several ways.
    """
    near: dict[str, bool] = {}

    def is_near(name: str) -> bool:
        if not near:
            try:
                near.update(_near(compiler().relaxed(text, done)))
            except VeriloccError:
                near[""] = False
        return near.get(name, False)

    return is_near


def near_branches_on(
    text: str, cpu: str, seconds: float = DEFAULT_TIMEOUT, *, done: LlvmPhase = LlvmPhase.VGPR
) -> Callable[[str], bool]:
    """Likewise, by the LLVM at hand, which may take so long."""
    options = CompileOptions(cpu, verify=False, tool_seconds=min(seconds, DEFAULT_TIMEOUT))
    return near_branches(text, lambda: StagedCompiler(choose_tools(), options), done)


def near_branches_in(assembly: str) -> Callable[[str], bool]:
    """Likewise, by the assembly that its own compiler made of all functions; ``""``: it is not at hand."""
    is_near = bool(assembly) and not has_long_branch(assembly.encode())
    return lambda _name: is_near


def has_long_branch(assembly: bytes) -> bool:
    """Whether LLVM made one in a file: it has a label for each (SIInstrInfo::insertIndirectBranch)."""
    return b"post_getpc" in assembly


def _near(relaxed: str) -> dict[str, bool]:
    """Whether there is none in a function, by its name."""
    _, *rows = _FUNCTION.split(relaxed)
    names = (_PLAIN.fullmatch(name) for name in rows[::2])
    return {name["name"]: not _LONG.search(body) for name, body in zip(names, rows[1::2], strict=True) if name}
