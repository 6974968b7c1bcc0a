"""What the search with Z3 proves, and what the two checkers accept, on corpora at the size that people use.

    .venv/bin/python benchmarks/checker_corpora.py PART … [--kernels DIR] [--files DIR] [--random N] [--seed S]
        [--every N] [--allocators greedy,basic] [--models NAME,…] [--jobs N] [--seconds S] [--no-search]
        [--gaps DIR] [--log FILE.jsonl] [--out FILE.json] [--so-far]

Parts: ``kernels`` and ``files`` (LLVM IR or machine IR in ``--kernels`` and ``--files``, the target in each file's
name or text), ``random-mir`` and ``random-ir`` (``N`` functions of tests/random_mir and tests/random_ir, with calls,
device functions and special instructions), ``iree`` and ``triton`` (the dispatches of examples/models.py and the
kernels of benchmarks/triton_suites.py, as those compilers' own LLVM allocates them). All others are allocated by
LLVM 22, phase by phase, and from the first text to the last.

A row for each phase of each function: what the search says, whether a certificate is made, what each checker says, and
the CPU seconds of each step. What is refused is grouped by checker, rule and the message without numbers and names;
``--gaps`` keeps the texts of the smallest pair of each group. Every row is a line of the log at once; the same command
goes on from there, if the code is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from common import REPOSITORY, Log, Row, command, cpu_seconds, kernel_directory, machine, options, tree, write

sys.path += [str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "examples")]

from smt_verifier.audit.search import search_proof
from smt_verifier.certificate.produce import certify
from smt_verifier.certificate.second import second_checker
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.check import check, prepare
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read
from smt_verifier.outcome import Outcome
from smt_verifier.smt import default_solver
from verilocc_mlir.errors import UnsupportedError, VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.audit import llvm_phases, open_kernel
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.long_branches import near_branches_on

PARTS = ("kernels", "files", "random-mir", "random-ir", "iree", "triton")
_FIRST_SCALAR = 8192
"""Units of registers from here on are no vector registers (``smt_verifier/checker/data/target.txt``)."""
_IR_TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")


class TooLong(Exception):
    """A step took longer than ``--seconds``."""


@dataclass(frozen=True)
class Task:
    """One source: a file, the seed of a random function, or a model or kernel by name."""

    part: str
    source: str
    cpu: str
    allocator: str

    @property
    def name(self) -> str:
        return f"{self.part} {Path(self.source).name} {self.cpu} {self.allocator}"

    def pairs(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Name, processor, phase, and the texts before and after it."""
        if self.part == "iree":
            yield from _iree(self.source, self.cpu)
        elif self.part == "triton":
            yield from _triton(self.source, self.cpu)
        else:
            data, path = self._data()
            # A file that names a processor in its text is for that one.
            settings = Settings(cpu="" if re.search(rb'"target-cpu"="gfx', data) else self.cpu)
            staged = open_kernel(data, path, settings)
            cpu = staged.kernel.cpu
            for phase, before, after in llvm_phases(staged.compiler, staged.pre, self.allocator):  # type: ignore[arg-type]
                yield self.name, cpu, phase, before, after

    def _data(self) -> tuple[bytes, str]:
        if self.part == "random-mir":
            generator = importlib.import_module("random_mir")
            seed = int(self.source)
            return generator.random_mir(seed, self.cpu, generator.random_features(seed)).encode(), f"{seed}.mir"
        if self.part == "random-ir":
            generator, support = importlib.import_module("random_ir"), importlib.import_module("support")
            seed = int(self.source)
            special = self.cpu if seed % 2 else ""
            features = generator.Features(calls=seed % 3 == 0, device_function=seed % 4 == 1, special=special)
            return support.run_opt(generator.random_ir(seed, features), self.cpu, "-O2").encode(), f"{seed}.ll"
        return Path(self.source).read_bytes(), self.source


def _iree(name: str, cpu: str) -> Iterator[tuple[str, str, str, str, str]]:
    models, torch = importlib.import_module("models"), importlib.import_module("torch")
    hooks = importlib.import_module("verilocc_mlir.hooks.torch_import")
    native = importlib.import_module("verilocc_mlir.hooks.iree_compiler")
    finder = importlib.import_module("verilocc_mlir.hooks.iree_compiler")
    model, dtype = name.split(":")
    module, arguments = models.factories()[model](getattr(torch, models.DTYPES[dtype]), False, 1)[:2]
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        source = Path(directory) / "model.mlirbc"
        source.write_bytes(hooks.import_module(module, arguments).mlir)
        kernels = native.iree_kernels(source, cpu, finder.find_iree_compile(), flags=hooks.IREE_FLAGS)
    seen: set[str] = set()
    for kernel in kernels:
        for sides in kernel.phases:
            digest = _digest(re.sub(r"[\w$]*dispatch_\d+", "dispatch", sides.before.text))
            if digest not in seen:
                seen.add(digest)
                yield kernel.name, kernel.target, sides.phase, sides.before.text, sides.after.text


def _triton(name: str, cpu: str) -> Iterator[tuple[str, str, str, str, str]]:
    suites = importlib.import_module("triton_suites")
    device = importlib.import_module("triton_no_device")
    native = importlib.import_module("verilocc_mlir.hooks.triton.native")
    triton = importlib.import_module("triton")
    warnings.simplefilter("ignore")
    triton.runtime.driver.set_active(device.NoDevice(cpu))
    suite, _, kernel = name.partition(":")
    call, gpu = suites.kernels_of(suite)[kernel], device.gpu_target(cpu)
    own = triton.compile(call.source(), target=gpu, options=dict(call.options))
    given = {"target": {"backend": "hip", "arch": cpu}, "enable_fp_fusion": own.metadata.enable_fp_fusion}
    with tempfile.TemporaryDirectory() as folder:
        for suffix, text in (("llir", own.asm["llir"]), ("amdgcn", own.asm["amdgcn"]), ("json", json.dumps(given))):
            Path(folder, f"{own.name}.{suffix}").write_text(text)
        for found in native.triton_kernels(native.cached_kernels(Path(folder)), Settings()):
            for sides in found.phases:
                yield found.name, found.target, sides.phase, sides.before.text, sides.after.text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def judge(task: Task, seconds: int, with_search: bool, gaps: Path | None) -> list[Row]:
    """A row for each function of each phase; one row with ``error`` where there is nothing to judge."""
    rows: list[Row] = []
    kept = {"task": task.name, "part": task.part, "allocator": task.allocator}
    try:
        for name, cpu, phase, before, after in task.pairs():
            for function, outcome, cpu_search, findings in _searched(before, after, cpu, phase, with_search):
                row: Row = {**kept, "name": name, "cpu": cpu, "phase": phase, "function": function}
                row |= {"search": outcome, "findings": findings, "lines": after.count("\n")}
                row |= certified(before, after, function, cpu, seconds, saved_later=phase == "sgpr")
                row["cpu_s"]["search"] = cpu_search
                rows.append(row)
                if gaps is not None and group(row):
                    _keep(gaps, row, before, after)
    except (VeriloccError, AssertionError, Refused) as error:
        rows.append({**kept, "error": " ".join(str(error).split())[:300]})
    except Exception as error:  # whatever a compiler or a library does
        rows.append({**kept, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
    return rows


def _searched(
    before: str, after: str, cpu: str, phase: str, wanted: bool
) -> Iterator[tuple[str, str, float, list[str]]]:
    """Of each function: its name, what the search with Z3 says, CPU seconds, and what it finds."""
    pre, post = parse_mir(before), parse_mir(after)
    partners = {function.name: function for function in post.functions}
    solver = default_solver()
    for function in pre.functions:
        if not wanted:
            yield function.name, "", 0.0, []
            continue
        start = time.process_time() + solver.cpu_seconds
        try:
            done = search_proof(
                pre, function, partners[function.name], target(cpu), 30.0, solver, saved_later=phase == "sgpr"
            )
            outcome, findings = done.outcome.value, [f for f in done.findings if f.outcome is not Outcome.PROVED]
        except UnsupportedError as error:
            outcome, findings = f"unsupported: {error}", []
        spent = round(time.process_time() + solver.cpu_seconds - start, 3)
        yield function.name, outcome, spent, [f"{f.rule}: {f.message}" for f in findings[:2]]


def certified(
    before: str, after: str, function: str, cpu: str, seconds: int, *, saved_later: bool, near_branches: bool = False
) -> Row:
    """Whether a certificate is made, and what each checker says of it; told that there is no long branch, if LLVM says
    so where it matters.
    """
    premises = {"saved_later": saved_later, "near_branches": near_branches}
    spent: dict[str, float] = {}
    row: Row = {"cpu_s": spent, "made": True, "python": "", "rust": "", "bytes": 0}
    start = cpu_seconds()
    try:
        with _Alarm(seconds):
            both = prepare(read(before), read(after), function, cpu, **premises)
            done = certify(both)
            text = write_certificate(done.certificate, both.before.grain)
    except Refused as error:
        if error.rule == "far-branch" and not near_branches and near_branches_on(after, cpu)(function):
            return certified(before, after, function, cpu, seconds, saved_later=saved_later, near_branches=True)
        return {**row, "made": False, "python": _said(error), "cpu_s": {"make": round(cpu_seconds() - start, 3)}}
    except TooLong:
        return {**row, "made": False, "python": f"time: more than {seconds} s", "cpu_s": {"make": float(seconds)}}
    except Exception as error:
        message = f"crash: {type(error).__name__}: {str(error)[:200]}"
        return {**row, "made": False, "python": message, "cpu_s": {"make": round(cpu_seconds() - start, 3)}}
    spent["make"] = round(cpu_seconds() - start, 3)
    row["bytes"] = len(text)
    start = cpu_seconds()
    try:
        check(before, after, text, cpu, **premises)
        row["python"] = "accepted"
    except Refused as error:
        row["python"] = _said(error)
    spent["python"] = round(cpu_seconds() - start, 3)
    start = cpu_seconds()
    said = second_checker(before, after, text, cpu, function, **premises)
    spent["rust"] = round(cpu_seconds() - start, 3)
    if said is not None:
        row["rust"] = "accepted" if said[0] else f"{said[2]}: {said[3]} ({said[4]})"
    return row


def _said(error: Refused) -> str:
    return f"{error.rule}: {error.message} ({error.where})"


class _Alarm:
    """Raises ``TooLong`` in the main thread after so many CPU seconds."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGPROF, self._ring)
        signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _ring(self, *_: object) -> None:
        raise TooLong


def shape(message: str) -> str:
    """A message without what is of one function alone."""
    message = re.sub(r"\((?:block|bb|in block|instruction|step)[^()]*\)", "", message)
    message = re.sub(r"(?<!\^)\$(\d+)", lambda unit: "SCALAR" if int(unit[1]) >= _FIRST_SCALAR else "VECTOR", message)
    message = re.sub(r"[%$@!^#&][\w.:]+", "R", message)
    message = re.sub(r"\b(?:[A-Z]{1,3}_[A-Z0-9_a-z]+|INLINEASM|COPY|IMPLICIT_DEF)\b", "OP", message)
    return re.sub(r"\d+", "N", message)[:110].strip()


def group(row: Row) -> str:
    """What a refusal of a pair that may be right is counted under; ``""`` where both checkers accept."""
    if "error" in row or (row["python"] == "accepted" and row["rust"] in ("accepted", "")):
        return ""
    if row["python"] != "accepted":
        return f"{'' if row['made'] else 'none made: '}{shape(row['python'])}"
    return f"rust: {shape(row['rust'])}"


def _keep(gaps: Path, row: Row, before: str, after: str) -> None:
    """The texts of the smallest pair of its group, with what was said."""
    folder = gaps / _digest(group(row))[:8]
    note = folder / "row.json"
    if note.exists() and json.loads(note.read_text())["lines"] <= row["lines"]:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "before.mir").write_text(before)
    (folder / "after.mir").write_text(after)
    note.write_text(json.dumps({"group": group(row), **row}, indent=1))


def tasks(given: argparse.Namespace) -> Iterator[Task]:
    """All that the parts ask for; of files and kernels each ``--every``-th."""
    allocators: Sequence[str] = given.allocators.split(",")
    for part in given.parts:
        if part in ("kernels", "files"):
            folder: Path = given.kernels if part == "kernels" else given.files
            paths = sorted(p for p in folder.rglob("*") if p.suffix in (".ll", ".mir"))
            for path in paths[:: given.every]:
                named = re.search(r"gfx[0-9a-f]+", path.name)
                for allocator in allocators:
                    yield Task(part, str(path), named[0] if named else "gfx942", allocator)
        elif part.startswith("random"):
            every = importlib.import_module("random_mir").TARGETS if part == "random-mir" else _IR_TARGETS
            for seed in range(given.seed, given.seed + given.random):
                allocator = allocators[seed // len(every) % len(allocators)]
                yield Task(part, str(seed), every[seed % len(every)], allocator)
        elif part == "iree":
            for model in given.models.split(","):
                for cpu in given.targets.split(","):
                    yield Task(part, model if ":" in model else f"{model}:f16", cpu, "greedy")
        else:
            suites = importlib.import_module("triton_suites")
            importlib.import_module("triton").runtime.driver.set_active(
                importlib.import_module("triton_no_device").NoDevice("gfx942")
            )
            for suite in given.suites.split(","):
                for kernel in sorted(suites.kernels_of(suite))[:: given.every]:
                    for cpu in given.targets.split(","):
                        yield Task(part, f"{suite}:{kernel}", cpu, "greedy")


def summary(rows: Sequence[Row]) -> Row:
    """Counts by part and phase, CPU seconds by step, and what is refused though the search proves it."""
    counts: dict[str, Counter[str]] = {}
    spent: dict[str, Counter[str]] = {}
    groups: dict[str, Counter[str]] = {}
    other: Counter[str] = Counter()
    for row in rows:
        of = counts.setdefault(row["part"], Counter())
        if "error" in row:
            of["no pair"] += 1
            continue
        proved = row["search"] in ("proved", "")
        accepted = not group(row)
        of["functions"] += 1
        of["search proves"] += row["search"] == "proved"
        of["certificate made"] += row["made"]
        of["python accepts"] += row["python"] == "accepted"
        of["rust accepts"] += row["rust"] == "accepted"
        of["both accept"] += accepted
        of["search proves, not both accept"] += proved and not accepted
        of["both accept, search does not prove"] += accepted and not proved
        spent.setdefault(row["part"], Counter()).update(row["cpu_s"])
        if not accepted:
            if proved:
                groups.setdefault(group(row), Counter())[row["part"]] += 1
            else:
                other[f"search {row['search']}; {group(row)}"] += 1
    ordered = sorted(groups.items(), key=lambda item: (-item[1].total(), item[0]))
    return {
        "counts": {part: dict(found) for part, found in sorted(counts.items())},
        "cpu_s": {part: {k: round(v, 1) for k, v in found.items()} for part, found in sorted(spent.items())},
        "refused though proved": {name: {"gap": _digest(name)[:8], **found} for name, found in ordered},
        "not proved, not accepted": dict(other.most_common()),
        "accepted though not proved": [
            f"{r['name']} {r['phase']} {r['function']}: {r['findings']}"
            for r in rows
            if "error" not in r and not group(r) and r["search"] not in ("proved", "")
        ],
    }


def fingerprint() -> str:
    """Of all code that decides an answer."""
    digest = hashlib.sha256()
    for path in sorted((REPOSITORY / "smt_verifier").rglob("*")):
        if path.suffix in (".py", ".rs", ".txt") and "target" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Run what the log does not hold yet; exit code 1 if anything that is proved is refused."""
    parser = options(__doc__, "checker_corpora.json", kernels=kernel_directory(), jobs=1)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--files", type=Path, default=REPOSITORY / "tests" / "data")
    parser.add_argument("--random", type=int, default=300, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--allocators", default="greedy,basic")
    parser.add_argument("--models", default="bert")
    parser.add_argument("--suites", default="tutorials")
    parser.add_argument("--targets", default="gfx90a,gfx942,gfx950,gfx1100,gfx1201")
    parser.add_argument("--seconds", type=int, default=120, help="CPU seconds for one certificate")
    parser.add_argument("--no-search", action="store_true", help="make certificates alone")
    parser.add_argument("--gaps", type=Path)
    parser.add_argument("--log", type=Path, default=REPOSITORY / "out" / "checker_corpora.jsonl")
    parser.add_argument("--any-code", action="store_true", help="rows of other code count as well")
    parser.add_argument("--so-far", action="store_true", help="run nothing: write what the log has")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {sorted(unknown)}")
    code = fingerprint()
    log = Log(given.log)
    rows = [row for row in log.rows() if given.any_code or given.so_far or row["code"] == code]
    done = {row["task"] for row in rows}
    left = [] if given.so_far else [task for task in tasks(given) if task.name not in done]
    print(f"{len(left)} sources to do, {len(done)} in the log", file=sys.stderr)
    with ProcessPoolExecutor(given.jobs) as pool:
        futures = {pool.submit(judge, task, given.seconds, not given.no_search, given.gaps): task for task in left}
        for number, future in enumerate(as_completed(futures), 1):
            for row in future.result():
                row["code"] = code
                rows.append(row)
                log.add(row)
                if row.get("error") or group(row):
                    what = row.get("error") or f"{row['phase']} {row['function']}: search {row['search']}; {group(row)}"
                    print(f"[{number}/{len(left)}] {row['task']}: {what}", file=sys.stderr, flush=True)
    result = {"command": command(), "tree": tree(), "machine": machine(), **summary(rows)}
    write(given.out, result)
    print(json.dumps(result["counts"], indent=1))
    return 1 if result["refused though proved"] else 0


if __name__ == "__main__":
    sys.exit(main())
