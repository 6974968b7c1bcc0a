"""The LLVM that a compilation uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.toolchain import TOOLCHAIN_VARIABLE, ToolchainChoice
from verilocc_mlir.toolchain.find import LlvmTools, find_toolchain

_NAMED = ("VERILOCC_LLC", "VERILOCC_LLVM")


def choose_tools(
    choice: ToolchainChoice = ToolchainChoice.AUTO,
    llvm: str | Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> LlvmTools:
    """The LLVM that the user chose.

    Args:
        choice: the option. With ``AUTO``, ``$VERILOCC_TOOLCHAIN`` decides where it is set.
        llvm: an llc or its directory that the user named; no other LLVM is taken then.
        env: environment to search in; the process's own by default.

    Raises:
        ToolchainError: there is none.
        InputError: the choices contradict each other.
    """
    environment = os.environ if env is None else env
    chosen = _chosen(choice, environment)
    if chosen is ToolchainChoice.TRITON:
        if llvm is not None:
            raise InputError(f"--llvm={llvm} names an llc, --toolchain=triton another LLVM", hint="leave one out")
        return _tritons()
    try:
        return find_toolchain(llvm, env=env)
    except ToolchainError as missing:
        if chosen is ToolchainChoice.LLC or llvm is not None or any(environment.get(name) for name in _NAMED):
            raise
        try:
            return _tritons()
        except ToolchainError as unusable:
            what = f"{missing.what}\n  nor can Triton's LLVM be used: {unusable.what}"
            raise ToolchainError(what, hint=f"{missing.hint}; or {unusable.hint}") from missing


def with_own_llvm(
    choice: ToolchainChoice, llvm: str | Path | None, *, env: Mapping[str, str] | None = None
) -> ToolchainChoice:
    """The choice in a process of Triton's, whose own LLVM comes first: the kernel that ours is compared with is its.

    Any LLVM that the user names is taken instead, by option or variable, and the usual choice where Triton's cannot be.
    """
    environment = os.environ if env is None else env
    named = llvm is not None or any(environment.get(name) for name in (TOOLCHAIN_VARIABLE, *_NAMED))
    if choice is not ToolchainChoice.AUTO or named:
        return choice
    try:
        _tritons()
    except ToolchainError:
        return choice
    return ToolchainChoice.TRITON


def _chosen(choice: ToolchainChoice, environment: Mapping[str, str]) -> ToolchainChoice:
    variable = environment.get(TOOLCHAIN_VARIABLE, "")
    if choice is not ToolchainChoice.AUTO or not variable:
        return choice
    try:
        return ToolchainChoice(variable)
    except ValueError as error:
        raise InputError(f"{TOOLCHAIN_VARIABLE}={variable} is not auto, llc or triton") from error


def _tritons() -> LlvmTools:
    from verilocc_mlir.toolchain.drivers.triton_probe import find_triton

    return find_triton()
