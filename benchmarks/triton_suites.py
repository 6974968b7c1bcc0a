"""Triton's tutorials, Liger-Kernel and flash-linear-attention: every kernel for every target, through the hook.

    .venv/bin/python benchmarks/triton_suites.py [--targets gfx942,gfx950,gfx1100,gfx1201]
        [--suites tutorials,inductor,liger,fla] [--only SUBSTRING] [--seconds N] [--each N] [--again OUTCOMES]
        [--keep DIR] [--native] [--replace better] [--out benchmarks/results/triton_suites.json]

The libraries are looked for as they are installed (``liger-kernel``, and ``flash-linear-attention`` with ``fla-core``
and ``einops``; they are no part of this project's requirements); one that is not there is said and left out. Nobody
calls their kernels here: what each is called with is read off its source (``triton_signatures.py``). Each kernel is
compiled by Triton alone, and again with its registers allocated and proved here (``replace=always``: the worse are
counted too). No GPU is needed. With ``--replace=better`` ours stands only where it is no worse, and each row says by
what that was decided; the results are ``triton_better.json``. With ``--native`` Triton's own allocation is audited
instead, as ``verilocc audit --native`` does it, phase by phase; the results are ``triton_native.json``.

A kernel that Triton itself cannot compile with any of the calls that were tried is Triton's or this table's
(``theirs``), with Triton's message. Every result is a JSON line in a file beside the summary, which is also where an
interrupted run goes on. Each worker is a process of its own, since a fault in Triton's LLVM ends it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common import Log, cpu_seconds, options, write
from msgspec.structs import asdict
from triton_no_device import NoDevice, gpu_target

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.hooks.triton.native import cached_kernels, triton_kernels
from verilocc_mlir.pipeline.native import audit_native
from verilocc_mlir.pipeline.settings import Settings

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
SUITES = {"tutorials": "triton_tutorials", "inductor": "triton_inductor", "liger": "liger_kernel", "fla": "fla"}
"""Any other name is a package's own."""

_GIVEN = ("tutorials", "inductor")
"""Suites whose modules say what each kernel is called with."""

ALWAYS, BETTER, NATIVE = "always", "better", "native"
RESULT = {ALWAYS: "triton_suites.json", BETTER: "triton_better.json", NATIVE: "triton_native.json"}
"""The file of the results, by what is done with each kernel: replaced always, or where ours is no worse, or audited."""

_THEIRS_DONE = "Triton's own compilation is through"

_NOT_HERE = re.compile(r"ascend|cute|cutile|tilelang|flash_qla|\.layers|\.models|\.transformers|chunk_loss")
"""Modules with kernels for other hardware, or without any."""


def kernels_of(suite: str) -> dict[str, Any]:
    """The kernels of a suite by name: jit functions that the module they stand in launches."""
    if suite in _GIVEN:
        sys.path.append(str(EXAMPLES))
        return dict(importlib.import_module(SUITES[suite]).calls())
    package = SUITES.get(suite, suite)
    kernels: dict[str, Any] = {}
    for module in _modules(package):
        source = Path(module.__file__ or "").read_text()
        for name, value in _contents(module).items():
            if type(value).__name__ not in ("JITFunction", "Autotuner", "Heuristics"):
                continue
            function, _, _ = importlib.import_module("triton_signatures").unwrapped(value)
            if re.search(rf"(?<![\w.]){re.escape(name)}\[", source):
                short = function.fn.__module__.removeprefix(package + ".")
                kernels.setdefault(f"{short}.{function.fn.__name__}", value)
    return kernels


def _contents(module: Any) -> dict[str, Any]:
    return dict(module.__dict__)


def _modules(package: str) -> Iterator[Any]:
    (root, *_) = importlib.import_module(package).__path__
    # Files: a folder without __init__.py is no package to pkgutil, and has kernels.
    for source in sorted(Path(root).rglob("*.py")):
        parts = source.relative_to(root).with_suffix("").parts
        name = ".".join((package, *(part for part in parts if part != "__init__")))
        if not _NOT_HERE.search(name):
            try:
                yield importlib.import_module(name)
            except Exception:  # a module for other hardware, or in need of a package that is not there
                continue


def rows_of(
    suite: str, name: str, kernel: Any, targets: Iterable[str], keep: Path | None, mode: str
) -> Iterator[dict[str, Any] | str]:
    """The results of one kernel, target by target; before each, a word when Triton's own compilation is through."""
    signatures = importlib.import_module("triton_signatures")
    triton = importlib.import_module("triton")
    hook = importlib.import_module("verilocc_mlir.hooks.triton")
    if suite in _GIVEN:
        tried = [kernel]
    else:
        table = importlib.import_module("triton_overrides").OVERRIDES
        tried = list(signatures.calls(kernel, table.get(name, signatures.Override())))
    for target in targets:
        row: dict[str, Any] = {"suite": suite, "kernel": name, "target": target}
        gpu = gpu_target(target)
        messages: list[str] = []
        for call in tried:
            hook.uninstall()
            started = cpu_seconds()
            try:
                own = triton.compile(call.source(), target=gpu, options=dict(call.options))
            except Exception as error:
                messages.append(_line(error))
                continue
            theirs = cpu_seconds() - started
            yield _THEIRS_DONE
            yield {
                **row,
                **(_native(own, gpu) if mode == NATIVE else _ours(triton, hook, call, gpu, keep, own, mode)),
                "call": _written(call),
                "cpu_triton": round(theirs, 2),
            }
            tried = [call]
            break
        else:
            yield {**row, "outcome": "theirs", "reason": messages[-1] if messages else "no call", "messages": messages}


def _ours(triton: Any, hook: Any, call: Any, gpu: Any, keep: Path | None, own: Any, mode: str) -> dict[str, Any]:
    ir = own.asm["llir"]
    kept = keep and keep / f"{own.name}.{gpu.arch}.{hashlib.sha256(ir.encode()).hexdigest()[:8]}.ll"
    if kept:
        kept.write_text(ir)
    hook.install(replace=mode)
    hook.clear_reports()
    started = cpu_seconds()
    try:
        triton.compile(call.source(), target=gpu, options=dict(call.options))
    except Exception as error:
        return {"outcome": "failed", "reason": f"exception: {_line(error)}"}
    spent = round(cpu_seconds() - started, 2)
    (record,) = hook.reports()
    outcome, compared = _outcome(record), record.comparison if mode != ALWAYS else None
    if kept and outcome == "proved":
        kept.unlink()
    return {
        "outcome": outcome,
        "kind": record.kind,
        "reason": record.reason,
        "all_ours": record.ours and not record.fallbacks,
        "fallbacks": record.fallbacks,
        "ours": record.registers and asdict(record.registers),
        "cpu_ours": spent,
        **({"decided": [_decided(compared, kernel) for kernel in compared.decisions]} if compared else {}),
    }


def _decided(made: Any, kernel: str) -> dict[str, Any]:
    """By what ours or Triton's own was taken."""
    ours, theirs, decision = made.ours[kernel], made.theirs[kernel], made.decisions[kernel]
    return {
        "cycles_over_theirs": round(ours.cycles / theirs.cycles, 4) if theirs.cycles else None,
        "waves": [ours.waves, theirs.waves],
        "spills": [round(ours.spills, 1), round(theirs.spills, 1)],
        **{"by": decision.by, "worse": decision.worse or None, "problem": decision.problem or None},
    }


def _native(own: Any, gpu: Any) -> dict[str, Any]:
    """What the audit says of Triton's own allocation, made again from the files that Triton keeps of a kernel."""
    started = cpu_seconds()
    options = {"target": {"backend": "hip", "arch": gpu.arch}, "enable_fp_fusion": own.metadata.enable_fp_fusion}
    with tempfile.TemporaryDirectory() as folder:
        for suffix, text in (("llir", own.asm["llir"]), ("amdgcn", own.asm["amdgcn"]), ("json", json.dumps(options))):
            Path(folder, f"{own.name}.{suffix}").write_text(text)
        try:
            kernels = tuple(triton_kernels(cached_kernels(Path(folder)), Settings()))
            pairs = audit_native(kernels).pairs
        except VeriloccError as error:
            return {"outcome": "failed", "reason": _line(error)}
    phases = Counter(pair.report.outcome.value for pair in pairs)
    findings = [f for p in pairs for a in p.report.functions for f in a.findings if a.outcome is not Outcome.PROVED]
    return {
        "outcome": next(name for name in ("refuted", "invalid", "unknown", "proved") if phases[name]),
        "reason": findings[0].message if findings else "",
        "phases": dict(phases),
        "cpu_ours": round(cpu_seconds() - started, 2),
    }


def _outcome(record: Any) -> str:
    if record.ours:
        return "proved"
    if record.kind == "declined":
        return record.kind
    if record.kind == "not proved":
        return "refuted" if "refuted" in record.reason.lower() else "unknown"
    return "failed"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"


def _written(call: Any) -> dict[str, Any]:
    return {
        "signature": dict(call.signature),
        "constants": {name: str(value) for name, value in call.constants.items()},
        "options": {name: str(value) for name, value in call.options.items()},
    }


def _work(pipe: Connection, suites: list[str], keep: str, mode: str) -> None:
    """A worker: names the kernels, then sends the rows of each that it is asked for."""
    warnings.simplefilter("ignore")
    os.setpgid(0, 0)
    importlib.import_module("triton").runtime.driver.set_active(NoDevice("gfx942"))
    suite_kernels: dict[str, dict[str, Any]] = {}
    for suite in suites:
        try:
            suite_kernels[suite] = kernels_of(suite)
        except ModuleNotFoundError as error:
            print(f"{suite}: {error}; left out", file=sys.stderr)
    pipe.send({suite: sorted(kernels) for suite, kernels in suite_kernels.items()})
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        while (job := pipe.recv()) is not None:
            suite, name, targets = job
            kernel = suite_kernels[suite][name]
            for row in rows_of(suite, name, kernel, targets, Path(keep) if keep else None, mode):
                pipe.send(row)
            pipe.send(None)


class _Worker:
    """One process, started anew where it ends or stands still."""

    def __init__(self, suites: list[str], keep: str, seconds: float, mode: str) -> None:
        self._seconds = seconds
        self._arguments = (suites, keep, mode)
        self.start()

    def start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.kernels: dict[str, list[str]] = self.pipe.recv()

    def rows(self, suite: str, name: str, targets: list[str]) -> Iterator[dict[str, Any]]:
        left = list(targets)
        while left:
            self.pipe.send((suite, name, left))
            outcome = "theirs"
            try:
                while self.pipe.poll(self._seconds):
                    row = self.pipe.recv()
                    if row is None:
                        return
                    outcome = "failed" if row == _THEIRS_DONE else "theirs"
                    if row != _THEIRS_DONE:
                        left.remove(row["target"])
                        yield row
                reason = f"not done after {self._seconds:.0f} s"
            except EOFError:
                reason = "the process ended"
            self._end()
            self.start()
            yield {"suite": suite, "kernel": name, "target": left.pop(0), "outcome": outcome, "reason": reason}

    def _end(self) -> None:
        """With the tools that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join(30)


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Counts for each suite and target."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['suite']} {row['target']}", []).append(row)
    return {name: _counts(group) for name, group in sorted(groups.items())}


def _counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    outcomes = Counter(row["outcome"] for row in rows)
    through = [row for row in rows if row["outcome"] != "theirs"]
    timed = [row for row in through if row.get("cpu_ours")]
    return {
        "kernels": len(rows),
        "compiled_by_triton": len(through),
        "proved": outcomes["proved"],
        "phases": dict(Counter(name for row in rows for name, n in row.get("phases", {}).items() for _ in range(n))),
        "all_ours": sum(bool(row.get("all_ours")) for row in rows),
        **{name: outcomes[name] for name in ("declined", "unknown", "refuted", "failed", "theirs")},
        **_decisions([made for row in rows for made in row.get("decided", ())]),
        "reasons": dict(
            Counter(
                f"{row['outcome']}: {row['reason'][:160]}" for row in through if row["outcome"] != "proved"
            ).most_common()
        ),
        "cpu_triton": round(sum(row["cpu_triton"] for row in timed), 1),
        "cpu_ours": round(sum(row["cpu_ours"] for row in timed), 1),
    }


def _decisions(made: list[dict[str, Any]]) -> dict[str, Any]:
    """What was decided by what, and ours over Triton's own where both compare; nothing if nothing was compared."""
    ratios = [m["cycles_over_theirs"] for m in made if not m["problem"] and m["cycles_over_theirs"]]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return (
        {
            "by": dict(Counter(m["by"] for m in made)),
            "not_comparable": sum(bool(m["problem"]) for m in made),
            "cycles_over_theirs": mean and round(mean, 4),
        }
        if made
        else {}
    )


def main() -> int:
    parser = options(__doc__, "triton_suites.json")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--again", default="", help="outcomes that are tried again, for example failed,unknown")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after these, and write what there is")
    parser.add_argument("--each", type=float, default=240.0, help="elapsed seconds for one kernel and target")
    parser.add_argument("--keep", default="", help="folder for the LLVM IR of what is not proved, or not done")
    parser.add_argument("--native", action="store_true", help="audit Triton's own allocation instead")
    parser.add_argument("--replace", choices=(ALWAYS, BETTER), default=ALWAYS)
    given = parser.parse_args()
    mode = NATIVE if given.native else given.replace
    if given.out.name == "triton_suites.json":
        given.out = given.out.with_name(RESULT[mode])
    # As in benchmarks/triton_hook.py: IR that LLVM 22 knows, and nothing from Triton's cache.
    os.environ.setdefault("TRITON_HIP_USE_ASYNC_COPY", "0")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    if given.keep:
        Path(given.keep).mkdir(parents=True, exist_ok=True)
    log = Log(given.out.with_suffix(".jsonl"))
    done = {(row["suite"], row["kernel"], row["target"]): row for row in log.rows()}
    again = set(given.again.split(","))
    done_before = {key for key, row in done.items() if row["outcome"] not in again}
    worker = _Worker(given.suites.split(","), given.keep, given.each, mode)
    # Kernels in an order that says nothing, each on one target before any has a second one: a run that is stopped has
    # seen some of everything.
    kernels = sorted(
        ((s, k) for s, names in worker.kernels.items() for k in names if given.only in k),
        key=lambda job: (job[0] not in _GIVEN, hashlib.sha256(job[1].encode()).digest()),
    )
    targets = given.targets.split(",")
    jobs = [
        (suite, name, targets[(index + turn) % len(targets)])
        for turn in range(len(targets))
        for index, (suite, name) in enumerate(kernels)
    ]
    until = time.monotonic() + (given.seconds or float("inf"))
    for count, (suite, name, target) in enumerate(jobs, 1):
        if time.monotonic() > until:
            break
        for row in worker.rows(suite, name, [target]) if (suite, name, target) not in done_before else ():
            done[suite, name, target] = row
            log.add(row)
            cpu = f"{row.get('cpu_triton', 0)} -> {row.get('cpu_ours', 0)} s"
            told = f"{row['outcome']} {row.get('reason', '')[:150]}"
            print(f"[{count}/{len(jobs)}] {suite} {name} {target}: {cpu} {told}", flush=True)
    worker.close()
    rows = [{k: v for k, v in row.items() if k not in ("call", "messages")} for row in done.values()]
    counts = summary(rows)
    write(given.out, {"summary": counts, "rows": rows})
    for name, group in counts.items():
        print(name, {k: v for k, v in group.items() if k != "reasons"})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
