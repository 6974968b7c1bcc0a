"""Triton's autotuner over plans: it chooses among them by time.

    import verilocc_mlir.hooks.triton as verilocc_triton
    verilocc_triton.install("gfx942", autotune="ours")

    @verilocc_triton.autotune_plans(configs=[...], key=["M", "N", "K"], plans=("default", "max-ilp"))
    @triton.jit
    def matmul(...): ...

Each configuration is there once as Triton compiles it and once for each plan. A plan that comes to nothing for a kernel
is Triton's own code, and timed as that.

The times are those of ``triton.testing.do_bench``, one configuration after the other. With ``journal=FILE`` each plan
is a line beside Triton's own code for the same configuration. Results are not compared: Triton's autotuner compares
none. No GPU was at hand when this was written, so none of it was run on one.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.arguments import interface_of
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.results.measure import (
    Clocks,
    DeviceAbout,
    MeasuredCode,
    MeasuredKernel,
    Measurement,
    Round,
    Sameness,
)
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.version import __version__

# Plans as configurations of Triton's autotuner: what says which plan a kernel is compiled by.
#
# It is a string attribute of the kernel (``llvm_fn_attrs``, an option of Triton's AMD back end), so that it is part of
# Triton's own cache key, and the hook finds it in the IR.


ATTRIBUTE = "verilocc-plan"
"""The attribute; its value is an answer of ``pipeline/candidates.py``."""
THEIRS = "triton"
"""As a plan: Triton's own code."""
DEFAULT_PLANS = ("default", "max-ilp", "no-clusters", "four-waves")
_OPTION = "llvm_fn_attrs"
_IN_IR = re.compile(rf'"{ATTRIBUTE}"="([^"]*)"')


def plan_in(ir: object) -> str:
    """The plan that a kernel's IR asks for; ``""`` where it asks for none."""
    match = _IN_IR.search(ir) if isinstance(ir, str) else None
    return match[1] if match else ""


def without_plan(ir: str) -> str:
    """The IR as it would be without one."""
    return _IN_IR.sub("", ir)


def plan_configs(configs: Sequence[Any], plans: Sequence[str] = DEFAULT_PLANS) -> list[Any]:
    """Each configuration with Triton's own code, and with each plan.

    Args:
        configs: ``triton.Config``.
        plans: answers, such as ``"max-ilp"`` or ``"max-ilp + beside"``.

    Raises:
        InputError: there is no such plan.
    """
    words = [THEIRS, *dict.fromkeys(str(Answer.parse(plan)) for plan in plans)]
    return [_with_plan(config, plan) for config in configs for plan in words]


def plan_of(config: Any) -> str:
    """The plan of a configuration; ``""`` where it has none."""
    attributes = str(config.kwargs.get(_OPTION, ""))
    return next((text.partition("=")[2] for text in attributes.split(",") if text.startswith(f"{ATTRIBUTE}=")), "")


def _with_plan(config: Any, plan: str) -> Any:
    made = type(config)({})
    made.__dict__.update(config.__dict__)
    attributes = [text for text in str(config.kwargs.get(_OPTION, "")).split(",") if text]
    made.kwargs = {**config.kwargs, _OPTION: ",".join([*attributes, f"{ATTRIBUTE}={plan}"])}
    return made


_CONFIDENCE, _TIE, _IN_A_ROUND, _ROUNDS = 0.95, 0.01, 5, 6
_NOT_COMPARED = "Triton's autotuner compares no results"

Bench = Callable[[Callable[[], Any]], Sequence[float]]
"""Times a launch: milliseconds of each run."""


def autotune_plans(
    configs: Sequence[Any],
    key: Sequence[str],
    *,
    plans: Sequence[str] = DEFAULT_PLANS,
    journal: Path | str | None = None,
    bench: Bench | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """A decorator like ``triton.autotune``: each configuration is tried with Triton's own code and with each plan.

    Args:
        configs: ``triton.Config``; none: one with Triton's defaults.
        key: as for ``triton.autotune``; ``options`` are its others, but for ``do_bench``.
        plans: answers (``plan_configs``).
        journal: where measurements are kept.
        bench: times a launch; None: ``triton.testing.do_bench``.

    Raises:
        InputError: no such plan. ToolchainError: Triton is not installed.
    """
    triton = _triton()
    every = plan_configs(configs or [triton.Config({})], plans)
    keep = None if journal is None else Path(journal)

    def decorator(function: Any) -> Any:
        named = {"reset_to_zero": None, "restore_value": None, **options}
        return _tuner_class()(
            function, function.arg_names, every, list(key), measured=(bench or _do_bench, keep), **named
        )

    return decorator


@dataclass
class _Taken:
    """What was found out of one configuration."""

    code: MeasuredCode
    kernel: MeasuredKernel
    times: tuple[float, ...] = ()


def _tuner_class() -> Any:
    """Triton's autotuner, which looks at what it times."""
    base: Any = importlib.import_module("triton.runtime.autotuner").Autotuner

    class PlanTuner(base):
        fn: Any

        def __init__(self, *arguments: Any, measured: tuple[Bench, Path | None], **named: Any) -> None:
            self._bench_of, self._journal = measured
            self._now: tuple[float, ...] = ()
            self.taken: dict[Any, _Taken] = {}
            above: Any = super()
            above.__init__(*arguments, do_bench=self._timed, **named)

        def run(self, *arguments: Any, **named: Any) -> Any:
            self.taken = {}
            above: Any = super()
            result: Any = above.run(*arguments, **named)
            if self.taken and self._journal is not None:
                _keep(self._journal, self.taken, _workload(self.fn, arguments, named))
            self.taken = {}
            return result

        def _bench(self, *arguments: Any, config: Any, **meta: Any) -> Any:
            self._now = ()
            above: Any = super()
            answer: Any = above._bench(*arguments, config=config, **meta)
            if self._now:
                # It is compiled already: this looks it up.
                kernel = self.fn.run(*arguments, **{**meta, **config.all_kwargs(), "warmup": True})
                self.taken[config] = _Taken(*_identity(kernel, config), self._now)
            return answer

        def _timed(self, launch: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
            _check_installed()
            self._now = tuple(float(time) for time in self._bench_of(launch))
            return [_quantile(self._now, q) for q in quantiles]

    return PlanTuner


def _do_bench(launch: Callable[[], Any]) -> Sequence[float]:
    return importlib.import_module("triton.testing").do_bench(launch, return_mode="all")


def _check_installed() -> None:
    """Where the hook is not there, or times Triton's own code, no plan is timed.

    Raises:
        InputError: that is so.
    """
    # The hook's module imports this one.
    hook: Any = importlib.import_module("verilocc_mlir.hooks.triton.hook")
    if not hook.times_ours():
        raise InputError(
            "plans are timed where the hook times our code", hint='install(…, autotune="ours") before the first launch'
        )


def _quantile(times: Sequence[float], q: float) -> float:
    ordered = sorted(times)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _identity(kernel: Any, config: Any) -> tuple[MeasuredCode, MeasuredKernel]:
    """The code object, and the kernel with its IR as Triton keeps it: the plan's attribute is no part of that."""
    code, name = bytes(kernel.asm["hsaco"]), str(kernel.metadata.name)
    record: Any = getattr(kernel.metadata, "verilocc", None)
    made = "" if record and record.get("kind") == "proved" else " (Triton's own)"
    ir = hashlib.sha256(without_plan(str(kernel.asm["llir"])).encode()).hexdigest()
    return (
        MeasuredCode(f"{plan_of(config)}{made}", hashlib.sha256(code).hexdigest()),
        MeasuredKernel(name, interface_of(read_code_object(code).kernels[name]), ir),
    )


def _workload(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The arguments in words: shapes and types of tensors, other values as they are."""
    words = [_words(value) for value in (*arguments, *(v for k, v in named.items() if k not in ("grid", "warmup")))]
    grid = named.get("grid")
    return f"{function.__name__}({', '.join(words)})" + (f", grid {grid}" if isinstance(grid, tuple) else "")


def _words(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "x".join([*map(str, value.shape), str(value.dtype).rpartition(".")[2]])
    return str(value)


def _keep(path: Path, taken: Mapping[Any, _Taken], workload: str) -> None:
    """Each plan beside Triton's own code for the same configuration."""
    # It loads msgspec, which takes longer than all of the hook.
    from verilocc_mlir.measure.journal import Journal

    theirs = {_plainly(config): one for config, one in taken.items() if plan_of(config) == THEIRS}
    with Journal(path) as journal:
        for config, one in taken.items():
            base = theirs.get(_plainly(config))
            if base is not None and base is not one:
                journal.add(_measurement(base, one, f"{workload}; {_plainly(config)}"))


def _plainly(config: Any) -> str:
    """The configuration in words, without its plan."""
    return ", ".join(word for word in str(config).split(", ") if ATTRIBUTE not in word)


def _measurement(base: _Taken, candidate: _Taken, workload: str) -> Measurement:
    from verilocc_mlir.measure.runner import compare

    count = min(len(base.times), len(candidate.times))
    size = max(1, min(_IN_A_ROUND, count // _ROUNDS))
    starts = range(0, count - size + 1, size)
    rounds = tuple(Round(base.times[at : at + size], candidate.times[at : at + size]) for at in starts)
    found = compare(rounds, confidence=_CONFIDENCE, tie=_TIE)
    target = _triton().runtime.driver.active.get_current_target()
    work = hashlib.sha256(workload.encode()).hexdigest()
    asked = "\n".join((base.code.sha256, candidate.code.sha256, candidate.kernel.ir, str(target), work))
    return Measurement(
        asked=hashlib.sha256(asked.encode()).hexdigest(),
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool=__version__,
        kernel=candidate.kernel,
        base=base.code,
        candidate=candidate.code,
        device=DeviceAbout("triton", _device_name(), str(target.arch), f"Triton {_triton().__version__}"),
        work=work,
        workload=workload,
        before=Clocks(),
        after=Clocks(),
        sameness=Sameness.NOT_COMPARED,
        why=_NOT_COMPARED,
        rounds=rounds,
        base_ms=found.base,
        candidate_ms=found.candidate,
        ratio=found.ratio,
        tie=_TIE,
        verdict=found.verdict,
    )


def _device_name() -> str:
    torch: Any = importlib.import_module("torch")
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "unknown"


def _triton() -> Any:
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        raise ToolchainError("Triton is not installed", hint="pip install 'verilocc-mlir[triton]'") from error
