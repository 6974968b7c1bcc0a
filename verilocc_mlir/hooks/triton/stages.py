"""The two stages that are replaced: LLVM IR to assembly (``amdgcn``), assembly to code object (``hsaco``).

Both belong to one compilation, so they share one object. Triton may put other assembly between them (an override by
the user): then the second stage is Triton's again, because what was proved is the code object of our own text.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from msgspec import structs

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.hooks.baseline import Code, MeasuredCodes, Replace, compare_code
from verilocc_mlir.hooks.kernels import native_verdict
from verilocc_mlir.hooks.triton.native import as_code_generated, kernel_names, triton_kernel
from verilocc_mlir.hooks.triton.plan_tuner import THEIRS, plan_in
from verilocc_mlir.hooks.triton.records import KernelRecord, Kind, add_record
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import REQUIRED, Emit, Settings
from verilocc_mlir.results.compile import Report

# What Triton asks of its own LLVM beside the IR, and what of it another LLVM can be asked for.
#
# Source: ``make_amdgcn``, ``make_hsaco`` and ``get_llvm_flags`` in triton/backends/amd/compiler.py of Triton 3.9.
# Most options need nothing here, because they are in the IR when it arrives: ``waves_per_eu``, ``allow_flush_denorm``,
# ``num_warps``, ``llvm_fn_attrs``, ``wgp_cu_mode``, kernel arguments in registers, linked device libraries.


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


logger = logging.getLogger("verilocc_mlir.hooks.triton")

Stage = Callable[[Any, MutableMapping[str, Any]], Any]
_KINDS: tuple[tuple[type[VeriloccError], Kind], ...] = (
    (PassThrough, "option"),
    (UnsupportedError, "unsupported"),
    (InputError, "input"),
)


@dataclass(frozen=True)
class Theirs:
    """Triton's own stages."""

    amdgcn: Stage
    hsaco: Stage


class KernelStages:
    """``amdgcn`` and ``hsaco`` of one compilation; each falls back to the stage of Triton that it replaces."""

    def __init__(
        self,
        settings: Settings,
        policy: Replace,
        knobs: Any,
        backend: Any,
        options: Any,
        theirs: Theirs,
        measured: MeasuredCodes | None = None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._knobs = knobs
        self._backend = backend
        self._options = options
        self._theirs = theirs
        self._measured = measured
        self._ours: Code | None = None

    def amdgcn(self, src: Any, metadata: MutableMapping[str, Any]) -> Any:
        """LLVM IR to assembly text; sets ``metadata["name"]`` as Triton's stage does."""
        names = kernel_names(src) if isinstance(src, str) else []
        record, self._ours = self._compile(src, names, str(metadata.get("hash", "")))
        own: Any = None
        if self._ours is not None and self._policy is not Replace.ALWAYS and not plan_in(src):
            record, own = self._compared(record, src, metadata, self._ours)
        try:
            if self._ours is None:
                own = self._theirs.amdgcn(src, metadata) if own is None else own
                record = self._audited(record, src, own)
        finally:
            logger.log(logging.INFO if record.proved else logging.WARNING, "%s", record)
            add_record(record)
        metadata["verilocc"] = record.summary()
        if self._ours is None:
            return own
        metadata["name"] = record.name
        if self._knobs.amd.dump_amdgcn:
            print("// -----// AMDGCN Dump //----- //")
            print(self._ours.assembly)
        return self._ours.assembly

    def hsaco(self, src: Any, metadata: MutableMapping[str, Any]) -> Any:
        if self._ours is None:
            return self._theirs.hsaco(src, metadata)
        if src == self._ours.assembly:
            return self._ours.code_object
        message = "other assembly was put in the place of the proved one (an override): Triton assembles it, unproved"
        logger.warning("%s: %s", metadata.get("name"), message)
        metadata["verilocc"] = {**metadata["verilocc"], "kind": "option", "reason": message}
        return self._theirs.hsaco(src, metadata)

    def _compared(
        self, record: KernelRecord, src: Any, metadata: MutableMapping[str, Any], ours: Code
    ) -> tuple[KernelRecord, Any]:
        """The record with Triton's own kernel beside ours; and where that one stays, its assembly."""
        their_metadata = dict(metadata)
        own = self._theirs.amdgcn(src, their_metadata)
        theirs = Code(self._theirs.hsaco(own, dict(their_metadata)), own)
        comparison = compare_code(ours, theirs, record.target, self._settings, str(src).encode())
        record = replace(record, comparison=comparison)
        measured = self._measured.decide(ours.code_object, theirs.code_object) if self._measured else None
        declined = measured.declined if measured else comparison.worse
        if measured:
            record = replace(record, notes=(*record.notes, measured.said))
        if self._policy is Replace.NEVER:
            declined = "replace=never"
        if not declined:
            return record, None
        if comparison.tied and not measured and self._policy is not Replace.NEVER:
            record = self._audited(record, src, own)
            if record.native is not None and not record.native.proved:
                return replace(record, native=None), None
        self._ours = None
        metadata.update(their_metadata)
        return replace(record, kind="declined", reason=f"ours is proved, but: {declined}"), own

    def _audited(self, record: KernelRecord, src: Any, assembly: Any) -> KernelRecord:
        """The record with the verdict on Triton's own allocation, which stays."""
        if record.native is not None or not isinstance(src, str) or not isinstance(assembly, str):
            return record
        if plan_in(src) == THEIRS:
            return record  # It is to be timed, and may not be chosen.
        fused = bool(getattr(self._options, "enable_fp_fusion", True))
        made = partial(triton_kernel, record.name, src, assembly, record.target, self._settings, fp_fusion=fused)
        return replace(record, native=native_verdict(made, self._settings))

    def _compile(self, src: Any, names: list[str], key: str) -> tuple[KernelRecord, Code | None]:
        name = names[0] if names else "?"
        record = KernelRecord(name, str(self._options.arch), key, "internal")
        try:
            if len(names) != 1:
                raise UnsupportedError(f"the IR defines {len(names)} kernels, not one")
            return self._prove(src, record)
        except ToolchainError as error:
            if self._settings.server_required and REQUIRED in error.what:
                raise
            return replace(record, kind="toolchain", reason=error.without_hint), None
        except VeriloccError as error:
            kind = next((kind for cls, kind in _KINDS if isinstance(error, cls)), "internal")
            return replace(record, kind=kind, reason=error.without_hint), None
        except Exception as error:
            # A fault of ours must not stop the user's program: Triton can still compile the kernel.
            logger.exception("%s for %s: a fault in verilocc, please report it", name, record.target)
            return replace(record, reason=f"{type(error).__name__}: {error}"), None

    def _prove(self, src: str, record: KernelRecord) -> tuple[KernelRecord, Code | None]:
        plan = plan_in(src) or self._settings.plan
        if plan == THEIRS:
            raise PassThrough("its configuration asks for Triton's own code")
        triton_options = wanted(self._backend, self._options, self._knobs)
        settings = structs.replace(
            self._settings,
            cpu=triton_options.target,
            plan=plan,
            emit=Emit.HSACO,
            also=(Emit.ASM,),
            llc_options=triton_options.llc_options,
        )
        text = as_code_generated(src, fp_fusion=triton_options.fp_fusion)
        compiled = compile_module(text.encode(), record.name, settings)
        report = compiled.report
        record = replace(
            record,
            phases={phase.phase: phase.allocator for f in report.functions for phase in f.phases},
            fallbacks={p.phase: p.fallback_reason for f in report.functions for p in f.phases if p.fallback},
            notes=(
                *_of_server(report),
                *(f"model {p.line()}" for p in report.models),
                *report.notes,
                *(f"mended: {field}" for field in report.mended),
            ),
            report=report,
        )
        if report.outcome is not Outcome.PROVED or compiled.data is None:
            return replace(record, kind="not proved", reason=_why(report)), None
        sizes = next((f for f in report.functions if f.name == record.name), report.functions[0])
        proved = replace(record, kind="proved", registers=sizes.resources, greedy=sizes.greedy)
        return proved, _ours(compiled, compiled.data)


def _of_server(report: Report) -> tuple[str, ...]:
    """A note, which the logger says too, where a server that was named had not its part."""
    if not report.server:
        return ()
    note = f"the allocation server had not its part: {report.server}"
    logger.warning("%s: %s", report.input, note)
    return (note,)


def _ours(compiled: Compiled, code_object: bytes) -> Code:
    return Code(code_object, compiled.also[Emit.ASM].decode())


def _why(report: Report) -> str:
    """The first phase that is not proved, each of its attempts with its reason."""
    for function in report.functions:
        for phase in function.phases:
            if phase.outcome is not Outcome.PROVED:
                attempts = "; ".join(f"{a.allocator}: {a.outcome}: {a.reason}" for a in phase.attempts)
                return f"{function.name}, {phase.phase.upper()}: {attempts}"
    return f"the run ended {report.outcome}"
