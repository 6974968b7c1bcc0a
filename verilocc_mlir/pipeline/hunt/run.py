"""Many cases: those that the journal has not are tried, and what comes of them is appended to it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from verilocc_mlir.crew.tasks import LocalTasks, as_ready
from verilocc_mlir.errors import InputError
from verilocc_mlir.files import JsonLines
from verilocc_mlir.pipeline.hunt.worker import Doer, Task
from verilocc_mlir.pipeline.key import versions
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.ray_cluster import Lost, Tasks, check_versions, connected, kept
from verilocc_mlir.results.hunt import HUNT_VERSION, Case, Kind, Row, Suspect, Variant, data_of, row_from_data
from verilocc_mlir.toolchain.choose import choose_tools
from verilocc_mlir.toolchain.drivers.job import RegAlloc
from verilocc_mlir.toolchain.inputs import named_processors
from verilocc_mlir.version import __version__

JOURNAL_NAME = "hunt.jsonl"
PATTERNS = (".ll", ".bc", ".mir", ".llir")
_IN_NAME = re.compile(r"gfx[0-9a-f]{3,5}")

Execute = Callable[[Iterable[Task]], Generator[tuple[Task, Any], None, None]]
"""Does tasks, here or elsewhere; gives each with its result, in the order in which they are ready."""


class HuntInput(Struct, frozen=True):
    """A file, and the processor it is for where the file does not say it."""

    path: Path
    cpu: str = ""

    def case(self, data: bytes, variant: Variant) -> Case:
        """Of this input; a file that names no processor is for the one in its name."""
        named = named_processors(data.decode("utf-8", "replace"))
        guess = _IN_NAME.search(self.path.name)
        cpu = self.cpu or ("" if named or not guess else guess[0])
        return Case(str(self.path), cpu or (named[0] if len(named) == 1 else ""), variant)


def inputs_in(paths: Sequence[Path], cpu: str, out: Path) -> tuple[HuntInput, ...]:
    """Files as they are named, and those in folders, sorted; what lies in ``out`` is none.

    Raises:
        InputError: there is no such file, or no input at all.
    """
    inputs: list[HuntInput] = []
    for path in paths:
        if path.is_dir():
            files = (p for p in sorted(path.rglob("*")) if p.suffix in PATTERNS and p.is_file())
            inputs += [HuntInput(p, cpu) for p in files if not p.resolve().is_relative_to(out.resolve())]
        elif path.exists():
            inputs.append(HuntInput(path, cpu))
        else:
            raise InputError("no such file or directory", where=str(path))
    if not inputs:
        raise InputError(f"no file ends with {', '.join(PATTERNS)}", where=", ".join(map(str, paths)))
    return tuple(dict.fromkeys(inputs))


class Hunt:
    """Cases and their journal.

    Args:
        again: try once more what was not proved.
        seconds: elapsed time after which no new case is taken; 0: no limit.
    """

    def __init__(
        self,
        inputs: Sequence[HuntInput],
        variants: Sequence[Variant],
        settings: Settings,
        journal: JsonLines,
        *,
        again: bool = False,
        seconds: float = 0.0,
    ) -> None:
        self._end = time.monotonic() + seconds if seconds else float("inf")
        self._inputs, self._variants, self._journal = inputs, variants, journal
        self.llvm = choose_tools(settings.toolchain, settings.llvm).version_text
        self._same = f"{__version__} {self.llvm} {settings.opt_level} {settings.features}" + " verified" * bool(
            settings.verify
        )
        self._known = {row.key: row for row in _rows(journal) if not (again and row.suspects)}
        self.rows: dict[str, Row] = {}

    @property
    def total(self) -> int:
        return len(self._inputs) * len(self._variants)

    def run(self, execute: Execute) -> Iterator[Row]:
        """Every row, those of the journal too; given up, it leaves a journal with which the next run goes on."""
        with closing(execute(self._tasks())) as results:
            for _, row in results:
                self._journal.add({"hunt": HUNT_VERSION, "row": data_of(row)})
                self.rows[row.key] = row
                yield row

    def _tasks(self) -> Iterator[Task]:
        """What is not in the journal; what is, becomes a row at once."""
        for variant in self._variants:
            for given in self._inputs:
                try:
                    data = given.path.read_bytes()
                except OSError as error:
                    case = Case(str(given.path), given.cpu, variant)
                    unreadable = Suspect(Kind.UNUSABLE, "input", f"cannot be read: {error.strerror}")
                    self.rows[case.name] = Row(case.name, case, suspects=(unreadable,))
                    continue
                case = given.case(data, variant)
                words = f"{self._same} {data_of(variant)} {case.cpu} {hashlib.sha256(data).hexdigest()}"
                key = hashlib.sha256(words.encode()).hexdigest()[:20]
                if key in self._known:
                    self.rows[key] = self._known[key]
                elif key not in self.rows and time.monotonic() < self._end:
                    yield Task(case, key, data)


def _rows(journal: JsonLines) -> Iterator[Row]:
    for record in journal.records:
        with contextlib.suppress(ValueError):
            if record.get("hunt") == HUNT_VERSION:
                yield row_from_data(record["row"])


def here(workers: int, settings: Settings, seconds: float, memory_mib: int) -> Execute:
    """Tasks in worker processes of this machine."""
    at_once = workers or len(os.sched_getaffinity(0))

    def execute(tasks: Iterable[Task]) -> Generator[tuple[Task, Any], None, None]:
        doer = Doer(settings, seconds, memory_mib, forks=at_once > 1)
        yield from as_ready(LocalTasks(doer.do, at_once, doer.stop), tasks, at_once)

    return execute


def on_ray(address: str, workers: int, settings: Settings, seconds: float, memory_mib: int) -> Execute:
    """Tasks of a Ray cluster (``pipeline/batch/executors.py`` does jobs so)."""

    def execute(tasks: Iterable[Task]) -> Generator[tuple[Task, Any], None, None]:
        expected = versions(choose_tools(settings.toolchain, settings.llvm))
        with connected(address, workers or None) as cluster:
            given: Tasks[Task] = Tasks("verilocc hunt", _do, settings, seconds, memory_mib, expected)
            for task, result in as_ready(given, tasks, workers or cluster.cpus):
                lost = Row(task.key, task.case, suspects=(Suspect(Kind.UNKNOWN, "", "the Ray worker was lost"),))
                yield task, (result.reason if task.suspect else lost) if isinstance(result, Lost) else result

    return execute


def _do(task: Task, settings: Settings, seconds: float, memory_mib: int, expected: dict[str, str]) -> Any:
    """One task, in a Ray worker.

    Raises:
        ToolchainError: other versions here, or no worker process starts.
    """
    check_versions(expected, versions(choose_tools(settings.toolchain, settings.llvm)))
    return kept(Doer, settings, seconds, memory_mib).do(task)


# The ways in which a hunt asks LLVM to allocate.


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
