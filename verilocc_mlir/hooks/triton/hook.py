"""Put the hook into Triton and take it out again."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from enum import Enum
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from msgspec.structs import replace as replace_in

import verilocc_mlir
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.hooks.baseline import DEFAULT_REPLACE, MeasuredCodes, Replace
from verilocc_mlir.hooks.triton.stages import KernelStages, Theirs
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.key import allocator_versions, file_stats, source_digest
from verilocc_mlir.pipeline.options import member, options_in, with_options
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import target as find_target
from verilocc_mlir.toolchain.choose import choose_tools, with_own_llvm
from verilocc_mlir.toolchain.find import LlvmTools

# What the result of a compilation depends on beside Triton's own inputs: its part of Triton's cache key.


def cache_key(settings: Settings, toolchain: LlvmTools, targets: tuple[str, ...], policy: Replace) -> str:
    """One line that names this project's code, the allocator, the verifier's solver, LLVM and the settings.

    Development versions of this project and of LLVM change without a new number: the sources are hashed, and LLVM is
    told apart by size and time as well.
    """
    parts = [
        f"verilocc {verilocc_mlir.__version__} {source_digest()[:16]}",
        f"allocator {settings.allocator} {allocator_versions(settings)}",
        f"z3 {metadata.version('z3-solver')}",
        f"llvm {toolchain.version_text} {file_stats(toolchain)}",
        f"settings {settings}",
        f"targets {','.join(targets)}",
        f"replace {policy.value}",
    ]
    return "; ".join(parts)


# What the autotuner compiles only to time it: Triton's own, unless ours is asked for.
#
# An autotuner compiles every configuration, runs each, and keeps one. Allocating and proving all of them costs several
# times what Triton's own compilations cost, for code of which one in fifty is kept. So, by default, configurations are
# timed as Triton compiles them, and the chosen one goes through this project's pipeline when it is launched. What is
# timed is then not what ships: with ``replace=better`` what ships is Triton's, or is modelled no dearer than that.
# ``autotune="ours"`` has every configuration allocated and proved before it is timed.
#
# Triton says nowhere that it is timing, so the stack is looked at for ``Autotuner._bench`` (Triton 3.9; with a Triton
# that has none ours are timed). Nothing of Triton's is wrapped: a program that is asked to by its environment installs
# the hook while Triton is being imported, before there is an autotuner.


_DEEPEST = 40
"""Frames between a launch and the autotuner that times it, at most: benchmarkers, heuristics, the compiler's own."""


class Autotune(Enum):
    """Whose code is timed while configurations are compared."""

    THEIRS = "theirs"
    OURS = "ours"


DEFAULT_AUTOTUNE = Autotune.THEIRS


def is_timing() -> bool:
    """Whether an autotuner has called, to time a configuration."""
    autotuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    bench = getattr(getattr(autotuner, "_bench", None), "__code__", None)
    frame = inspect.currentframe() if bench is not None else None
    for _ in range(_DEEPEST):
        if frame is None or frame.f_code is bench:
            return frame is not None
        frame = frame.f_back
    return False


VARIABLE = "VERILOCC_TRITON"
"""Environment variable: ``1`` for every AMD GPU, or targets by name with commas between; ``0`` or empty for none.
Options may follow, with blanks between: ``gfx942,gfx1100 effort=best replace=always``; alone, they are for every AMD
GPU.
"""

_REPLACE, _AUTOTUNE = "replace", "autotune"

_ONLY_TIMED = "verilocc: Triton's own, to be timed"
"""The part of Triton's cache keys of what an autotuner compares."""

OLDEST = (3, 9)
"""The version of Triton whose stages and options this hook knows; newer ones are tried."""

_lock = threading.Lock()
_active: Hook | None = None


class Hook:
    """A ``triton.knobs.runtime.add_stages_inspection_hook``.

    Triton calls it in two ways: with nothing, for a (key, hash) pair that becomes part of its cache keys, at every
    launch of a kernel; and with a backend's stages, to change them.
    """

    def __init__(
        self,
        settings: Settings,
        targets: tuple[str, ...],
        knobs: Any,
        policy: Replace = DEFAULT_REPLACE,
        autotune: Autotune = DEFAULT_AUTOTUNE,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.autotune = autotune
        self.targets = targets
        self.knobs = knobs
        self.before: Any = knobs.runtime.add_stages_inspection_hook
        self.measured = MeasuredCodes.of_environment() if policy is Replace.MEASURED else None
        key = cache_key(settings, choose_tools(settings.toolchain, settings.llvm), targets, policy)
        self._key = f"{key}; measured {self.measured.digest}" if self.measured else key
        self._hash = hashlib.sha256(self._key.encode()).hexdigest()

    def __call__(
        self,
        backend: Any = None,
        stages: MutableMapping[str, Any] | None = None,
        options: Any = None,
        language: Any = None,
        capability: Any = None,
    ) -> Any:
        """See the class; a hook that was there before is called first."""
        only_timed = self.autotune is Autotune.THEIRS and is_timing()
        if stages is None:
            our_stages, its_hash = (_ONLY_TIMED, _ONLY_TIMED) if only_timed else (self._key, self._hash)
            if self.before is None:
                return our_stages, its_hash
            key, digest = self.before()
            return f"{key}; {our_stages}", hashlib.sha256(f"{digest}{its_hash}".encode()).hexdigest()
        if self.before is not None:
            self.before(backend, stages, options, language, capability)
        if not only_timed and self._handles(backend, stages, options):
            their_stages = Theirs(stages["amdgcn"], stages["hsaco"])
            our_stages = KernelStages(
                self.settings, self.policy, self.knobs, backend, options, their_stages, self.measured
            )
            stages["amdgcn"] = our_stages.amdgcn
            stages["hsaco"] = our_stages.hsaco
        return None

    def _handles(self, backend: Any, stages: Mapping[str, Any], options: Any) -> bool:
        if getattr(getattr(backend, "target", None), "backend", "") != "hip":
            return False
        arch = getattr(options, "arch", "")
        return "amdgcn" in stages and "hsaco" in stages and (not self.targets or arch in self.targets)


def install(
    target: str | Sequence[str] | None = None,
    *,
    settings: Settings | None = None,
    replace: Replace | str = DEFAULT_REPLACE,
    autotune: Autotune | str = DEFAULT_AUTOTUNE,
    **options: Any,
) -> None:
    """Send the kernels that Triton compiles from now on through this project's pipeline. A second call replaces the
    settings of the first.

    Args:
        target: ``"gfx942"``, or several; None for every AMD GPU. Kernels for others are left alone.
        settings: how kernels are allocated and proved; target, flags and form of the result come from Triton. So does
            the LLVM, unless ``toolchain``, ``llvm`` or an environment variable names another.
        replace: which of Triton's kernels ours replace: ``"always"``, ``"better"`` (where ours is no worse by the
            model), ``"measured"`` (where the journal of ``$VERILOCC_MEASURED`` does not say that it is slower) or
            ``"never"``.
        autotune: whose code Triton's autotuner times: ``"theirs"``, Triton's own, and only the configuration that is
            chosen is allocated and proved; or ``"ours"``, for each.
        options: of ``pipeline.options``, by name, for example ``effort="best"``; they go before ``settings``.

    Raises:
        UnsupportedError: Triton is not installed, or too old.
        InputError: no such target, or as ``check_settings``.
        ToolchainError: no LLVM with AMDGPU of a sufficient version.
    """
    global _active
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    for name in targets:
        find_target(name)
    chosen = with_options(settings, options)
    knobs = _knobs()
    chosen = replace_in(chosen, toolchain=with_own_llvm(chosen.toolchain, chosen.llvm))
    check_settings(chosen)
    policy = member(Replace, replace, "replace")
    timed = member(Autotune, autotune, "autotune")
    with _lock:
        _remove()
        _active = Hook(chosen, targets, knobs, policy, timed)
        knobs.runtime.add_stages_inspection_hook = _active


def uninstall() -> None:
    """Take the hook out; the one that was there before is back. Does nothing if it is not installed."""
    with _lock:
        _remove()


def installed() -> bool:
    return _active is not None


def times_ours() -> bool:
    """Whether it is installed, and an autotuner times our code."""
    return _active is not None and _active.autotune is Autotune.OURS


def install_from_environment(env: Mapping[str, str] = os.environ) -> bool:
    """Install as ``VERILOCC_TRITON`` says; whether it does.

    Raises:
        As ``install``.
    """
    value = env.get(VARIABLE, "").strip()
    which, words = "1", value.split()
    if words and "=" not in words[0]:
        which, *words = words
    if not value or which.lower() in ("0", "off", "false", "no"):
        return False
    names = [] if which.lower() in ("1", "on", "true", "yes") else [name for name in which.split(",") if name]
    bad = [name for name in names if not name.startswith("gfx")]
    if bad:
        raise InputError(f"{VARIABLE}={value}: {bad[0]!r} is no target", hint="1, 0, or for example gfx942,gfx1100")
    try:
        settings_given, own_options = options_in(words, (_REPLACE, _AUTOTUNE))
        install(names, **own_options, **settings_given)
    except InputError as error:
        raise InputError(f"{VARIABLE}={value}: {error.what}", hint=error.hint) from error
    return True


def _remove() -> None:
    global _active
    if _active is not None:
        runtime = _active.knobs.runtime
        if runtime.add_stages_inspection_hook is not _active:
            raise UnsupportedError(
                "another hook was put over this one in triton.knobs.runtime.add_stages_inspection_hook",
                hint="take that one out first",
            )
        runtime.add_stages_inspection_hook = _active.before
        _active = None


def _knobs() -> Any:
    if find_spec("triton") is None:
        raise UnsupportedError(
            "Triton is not installed", hint="pip install 'verilocc-mlir[triton]' (Python 3.10 or newer, Linux)"
        )
    triton: ModuleType = importlib.import_module("triton")
    match = re.match(r"(\d+)\.(\d+)", str(getattr(triton, "__version__", "")))
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise UnsupportedError(
            f"Triton {getattr(triton, '__version__', '?')} is older than {'.'.join(map(str, OLDEST))}",
            hint="pip install 'verilocc-mlir[triton]'",
        )
    return importlib.import_module("triton.knobs")
