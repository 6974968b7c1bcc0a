"""Batches without the command line: plans, the journal, workers that crash, hang or lose their parent."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from batch_support import CPU, SETTINGS, faulty_llc, job, kernel, kernels
from msgspec.structs import replace
from process_support import gone, lines_of
from support import REPOSITORY, few

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.pipeline.batch.executors import LocalExecutor
from verilocc_mlir.pipeline.batch.jobs import Job, Result
from verilocc_mlir.pipeline.batch.run import JOURNAL_NAME, PATTERNS, BatchJournal, BatchOptions, compile_batch, plan
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.batch import BatchItem, BatchReport, Origin
from verilocc_mlir.results.compile_document import to_data
from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.find import find_toolchain


class Here:
    """An executor without processes. ``done`` is what it was asked to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
        for one in jobs:
            self.done.append(one.path)
            try:
                compiled = compile_module(one.data, one.path, one.settings)
            except VeriloccError as error:
                yield Result(one.number, Outcome.INVALID, message=error.what)
                continue
            yield Result(one.number, compiled.report.outcome, compiled.data, to_data(compiled.report))


def tree(directory: Path, *names: str) -> Path:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return directory


def names(given: Iterable[Path]) -> list[str]:
    return [str(path) for path in given]


# Plans.


def test_a_plan_mirrors_the_tree(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", "b.ll", "a/z.bc", "a/k.opt.ll", "a/note.txt", "c.mir")
    out = tmp_path / "out"
    found = plan([source], out, Emit.HSACO)
    assert names(i.source.relative_to(source) for i in found) == ["a/k.opt.ll", "a/z.bc", "b.ll", "c.mir"]
    assert names(i.output.relative_to(out) for i in found) == ["a/k.opt.hsaco", "a/z.hsaco", "b.hsaco", "c.hsaco"]
    assert names(i.report.relative_to(out) for i in found[:1]) == ["a/k.opt.report.json"]
    beside = plan([source], None, Emit.ASM)
    assert [i.output for i in beside] == [i.source.with_suffix(".s") for i in beside]


def test_a_plan_takes_files_and_each_but_once(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", "a/k.ll", "a/odd.txt")
    found = plan([source / "a" / "odd.txt", source, source / "a" / "k.ll", source / "."], None, Emit.HSACO)
    assert [i.source for i in found] == [source / "a" / "odd.txt", source / "a" / "k.ll"]
    (one,) = plan([source / "a" / "k.ll"], tmp_path / "out", Emit.HSACO)
    assert one.output == tmp_path / "out" / "k.hsaco"


def test_patterns_choose_in_directories(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", "a/k.ll", "b/k.ll", "b/k.bc")
    assert names(i.source.relative_to(source) for i in plan([source], None, Emit.OBJ, ["b/*.ll"])) == ["b/k.ll"]


def test_results_inside_the_source_are_no_inputs(tmp_path: Path) -> None:
    source = tree(tmp_path, "k.ll", "out/k.mir", "out/deep/k.ll", "output/k.ll")
    found = plan([source], source / "out", Emit.MIR)
    assert names(i.source.relative_to(source) for i in found) == ["k.ll", "output/k.ll"]


@pytest.mark.parametrize(
    ("files", "emit", "out", "message"),
    [
        (["k.ll", "k.bc"], Emit.HSACO, "out", "k.bc and .*k.ll have the same result"),
        (["k.ll", "k.bc"], Emit.HSACO, "", "k.bc and .*k.ll have the same result"),
        (["k.mir"], Emit.MIR, "", "overwrite an input"),
        (["k.ll", "k.mir"], Emit.MIR, "", "overwrite an input"),
        (["k.ll"], Emit.MIR, "", "machine IR beside its input"),
        (["k.ll"], Emit.MIR, "in", "machine IR beside its input"),
        ([], Emit.HSACO, "", r"no file is called \*.ll, \*.bc, \*.mir"),
        (["k.txt"], Emit.HSACO, "", "no file is called"),
    ],
)
def test_plans_that_cannot_work_are_refused(
    files: list[str], emit: Emit, out: str, message: str, tmp_path: Path
) -> None:
    source = tree(tmp_path / "in", *files)
    source.mkdir(exist_ok=True)
    with pytest.raises(InputError, match=message):
        plan([source], tmp_path / out if out else None, emit, PATTERNS)


def test_trees_that_meet_in_one_directory_are_refused(tmp_path: Path) -> None:
    sources = [tree(tmp_path / name, "k.ll") for name in ("a", "b")]
    assert len(plan(sources, None, Emit.HSACO)) == 2
    with pytest.raises(InputError, match="have the same result"):
        plan(sources, tmp_path / "out", Emit.HSACO)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        plan([tmp_path / "absent"], None, Emit.HSACO)


# The journal.

ITEM = BatchItem("in/k.ll", "1" * 64, "2" * 64, Outcome.PROVED, Origin.CACHE, "out/k.o", "3" * 64, seconds=1.5)
FAILED = BatchItem("in/x.ll", "4" * 64, "5" * 64, Outcome.UNKNOWN, message="it was late", final=False)


def test_a_journal_remembers_the_last_of_each_name(tmp_path: Path) -> None:
    with BatchJournal(tmp_path) as journal:
        assert journal.find("k.o") is None
        journal.add("k.o", FAILED)
        journal.add("k.o", ITEM)
        journal.add("x.o", FAILED)
    with BatchJournal(tmp_path) as journal:
        assert journal.find("k.o") == ITEM
        assert journal.find("x.o") == FAILED


@pytest.mark.long
def test_a_journal_may_be_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    with BatchJournal(tmp_path) as journal:
        journal.add("k.o", ITEM)
        journal.add("x.o", FAILED)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with BatchJournal(tmp_path) as journal:
            # A line that lacks only its end is whole.
            assert journal.find("k.o") == (ITEM if length >= first - 1 else None)
            assert journal.find("x.o") == (FAILED if length == len(whole) - 1 else None)
            journal.add("new.o", ITEM)
        with BatchJournal(tmp_path) as journal:
            assert journal.find("new.o") == ITEM


def test_lines_of_other_forms_do_not_count(tmp_path: Path) -> None:
    with BatchJournal(tmp_path) as journal:
        journal.add("k.o", ITEM)
    path = tmp_path / JOURNAL_NAME
    good = json.loads(path.read_text())
    others = [
        {**good, "journal": 1, "name": "version"},
        {**good, "outcome": "fine", "name": "outcome"},
        {key: value for key, value in good.items() if key != "key"},
        [],
        "text",
        {},
    ]
    with path.open("a") as stream:
        stream.writelines(json.dumps(other) + "\n" for other in others)
        stream.write("not JSON\n\n\0\n")
    with BatchJournal(tmp_path) as journal:
        assert journal.find("k.o") == ITEM
        assert journal.find("version") is journal.find("outcome") is None


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    with BatchJournal(tmp_path), pytest.raises(InputError, match="another run is writing"):
        BatchJournal(tmp_path)
    with BatchJournal(tmp_path):
        pass


def test_a_full_disk_costs_the_line_only(tmp_path: Path) -> None:
    def fill(directory: Path) -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with BatchJournal(directory) as journal:
            journal.add("k.o", ITEM)
            size = (directory / JOURNAL_NAME).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
            for _ in range(2):
                with pytest.raises(OSError, match="too large"):
                    journal.add("x.o", FAILED)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            journal.add("new.o", ITEM)

    child = multiprocessing.get_context("fork").Process(target=fill, args=(tmp_path,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    with BatchJournal(tmp_path) as journal:
        assert journal.find("k.o") == journal.find("new.o") == ITEM
        assert journal.find("x.o") is None


# Workers.


@pytest.mark.long
def test_workers_give_what_a_compilation_gives() -> None:
    jobs = [job(0, 3), job(1, 4), Job(2, "bad.ll", b"hello", SETTINGS), Job(3, "none.ll", b"", SETTINGS)]
    results = {r.number: r for r in LocalExecutor(2, 60).run(jobs)}
    for one in jobs[:2]:
        alone = compile_module(one.data, one.path, SETTINGS)
        assert results[one.number].outcome is Outcome.PROVED
        assert results[one.number].data == alone.data
        report = results[one.number].report
        assert report is not None
        assert report["functions"][0]["name"] == to_data(alone.report)["functions"][0]["name"]
    for number, says in ((2, "neither LLVM IR nor machine IR"), (3, "empty")):
        assert results[number].outcome is Outcome.INVALID
        assert results[number].data is None
        assert results[number].final
        assert says in results[number].message


@pytest.mark.long
def test_a_verdict_that_is_not_proved_has_its_reason_and_no_data(demo_kernels: Path) -> None:
    text = (demo_kernels / "attn_d64.gfx942.opt.ll").read_text()
    agprs = '"amdgpu-agpr-alloc"="0"'
    tight = text.replace(agprs, f'{agprs} "amdgpu-waves-per-eu"="8,8"').encode()
    (result,) = LocalExecutor(1, 60).run([Job(0, "tight.ll", tight, Settings(cpu=CPU, fallback=False, spill=False))])
    assert (result.outcome, result.data, result.final) == (Outcome.UNKNOWN, None, True)
    assert "attn, VGPR: " in result.message
    assert "VGPRs are needed at once" in result.message
    assert result.report is not None


@pytest.mark.parametrize(("times", "outcome"), few([(1, Outcome.PROVED)], [(1, Outcome.PROVED), (2, Outcome.UNKNOWN)]))
def test_a_worker_that_is_killed_costs_its_job_a_second_try(
    times: int, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its llc kills it, the first time or always.
    action = f'if [ ! -e "$0.{times}" ]; then mv "$0.1" "$0.2" 2>&- || touch "$0.1"; kill -9 $PPID; exit 1; fi'
    monkeypatch.setenv("VERILOCC_LLC", str(faulty_llc(tmp_path / "llc", "times4", action)))
    results = {r.number: r for r in LocalExecutor(2, 60).run([job(n, 3 + n) for n in range(3)])}
    assert {n: r.outcome for n, r in results.items()} == {0: Outcome.PROVED, 1: outcome, 2: Outcome.PROVED}
    if outcome is Outcome.UNKNOWN:
        assert results[1].message == "the worker process ended with SIGKILL, twice"
        assert not results[1].final


@pytest.mark.long
def test_a_job_over_its_time_ends_with_everything_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # llc is in a process group of its own, what it starts here in yet another.
    action = 'setsid sleep 600 & echo $$ $! $PPID >> "$0.log"; wait'
    slow = faulty_llc(tmp_path / "llc", "times4", action)
    monkeypatch.setenv("VERILOCC_LLC", str(slow))
    results = {r.number: r for r in LocalExecutor(1, 8).run([job(n, 3 + n) for n in range(3)])}
    assert {n: r.outcome for n, r in results.items()} == {0: Outcome.PROVED, 1: Outcome.UNKNOWN, 2: Outcome.PROVED}
    assert results[1].message == "not finished within 8 s"
    assert not results[1].final
    for line in Path(f"{slow}.log").read_text().splitlines():
        assert all(gone(int(pid)) for pid in line.split())


@pytest.mark.long
def test_a_job_over_its_memory_is_unknown_and_the_next_one_is_done() -> None:
    given = [job(n, 3 + n) for n in range(3)]
    results = {r.number: r for r in LocalExecutor(1, 60, "batch_support:hungry", 768).run(given)}
    assert {n: r.outcome for n, r in results.items()} == {0: Outcome.PROVED, 1: Outcome.UNKNOWN, 2: Outcome.PROVED}
    assert results[1].message == "out of memory: a worker has 768 MiB; give more with --memory"
    assert not results[1].final


@pytest.mark.long
def test_closing_ends_what_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    monkeypatch.setenv("VERILOCC_LLC", str(slow))
    taken: list[int] = []

    def jobs() -> Generator[Job, None, None]:
        for number in range(100):
            taken.append(number)
            yield job(number, 4 if number else 3)

    with closing(LocalExecutor(2, 60).run(jobs())) as results:
        assert next(results).number == 0
        log = lines_of(Path(f"{slow}.log"))
    assert len(taken) <= 4
    assert all(gone(int(pid)) for line in log for pid in line.split())


@pytest.mark.long
def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    slow = faulty_llc(tmp_path / "llc", "times4", 'echo $$ $PPID >> "$0.log"; sleep 600')
    code = """
        import sys
        from verilocc_mlir.pipeline.batch.jobs import Job
        from verilocc_mlir.pipeline.batch.executors import LocalExecutor
        from verilocc_mlir.pipeline.settings import Settings
        list(LocalExecutor(1, 600).run([Job(0, "k.ll", sys.argv[1].encode(), Settings(cpu="gfx942"))]))
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), kernel(4)],
        cwd=REPOSITORY,
        env={**os.environ, "VERILOCC_LLC": str(slow)},
    )
    log = lines_of(Path(f"{slow}.log"))
    parent.kill()
    parent.wait()
    assert all(gone(int(pid)) for line in log for pid in line.split())


def test_a_tool_that_fails_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILOCC_LLC", str(faulty_llc(tmp_path / "llc", "times4", "kill -SEGV $$")))
    (result,) = LocalExecutor(1, 60).run([job(0, 4)])
    assert (result.outcome, result.final) == (Outcome.INVALID, False)
    assert "crashed with SIGSEGV" in result.message


# The run.


def options(store: Store | None = None, *, reports: bool = False, retry: bool = False) -> BatchOptions:
    return BatchOptions(SETTINGS, Keys(SETTINGS, find_toolchain()), store, reports, retry)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["proved", "proved"], 0),
        (["proved", "unknown"], 3),
        (["unknown", "invalid", "proved"], 2),
        (["unknown", "invalid", "refuted", "proved"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_gravest(outcomes: list[str], code: int) -> None:
    items = tuple(replace(ITEM, outcome=Outcome(outcome)) for outcome in outcomes)
    assert BatchReport("1", "LLVM", {}, items, (), 1.0).exit_code == code


def test_a_run_takes_any_executor_and_compiles_equal_inputs_once(tmp_path: Path) -> None:
    paths = kernels(tmp_path / "in", 2)
    (tmp_path / "in" / "twin.ll").write_text(kernel(3))
    inputs = plan([tmp_path / "in"], tmp_path, Emit.HSACO)
    executor, store = Here(), Store(tmp_path / "store")
    items = list(compile_batch(inputs, executor, options(store)))
    assert executor.done == [str(path) for path in paths]
    assert {i.input: i.origin for i in items} == {
        str(paths[0]): Origin.COMPILED,
        str(paths[1]): Origin.COMPILED,
        str(tmp_path / "in" / "twin.ll"): Origin.CACHE,
    }
    assert (tmp_path / "twin.hsaco").read_bytes() == (tmp_path / "k3.hsaco").read_bytes()
    assert [i.origin for i in compile_batch(inputs, executor, options(store))] == [Origin.JOURNAL] * 3


def test_an_input_that_changes_during_the_run_is_not_mistaken(tmp_path: Path) -> None:
    paths = kernels(tmp_path / "in", 2)
    inputs = plan([tmp_path / "in"], None, Emit.HSACO)

    class Editing(Here):
        def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
            paths[1].write_text(kernel(9))
            yield from super().run(jobs)

    items = {i.input: i for i in compile_batch(inputs, Editing(), options())}
    assert items[str(paths[0])].outcome is Outcome.PROVED
    assert items[str(paths[1])].outcome is Outcome.INVALID
    assert "changed during the run" in items[str(paths[1])].message
    assert not paths[1].with_suffix(".hsaco").exists()
    assert [i.outcome for i in compile_batch(inputs, Here(), options())] == [Outcome.PROVED] * 2


def test_what_was_not_proved_is_tried_again_on_request_or_if_it_may_end_otherwise(tmp_path: Path) -> None:
    (tmp_path / "bad.ll").write_text("hello")
    inputs = plan([tmp_path], None, Emit.HSACO)

    class Late(Here):
        def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
            for one in jobs:
                self.done.append(one.path)
                yield Result(one.number, Outcome.UNKNOWN, message="late", final=False)

    late, here = Late(), Here()
    for _ in range(2):
        assert [i.message for i in compile_batch(inputs, late, options())] == ["late"]
    assert len(late.done) == 2
    for retry, done in ((False, 1), (False, 1), (True, 2)):
        (item,) = compile_batch(inputs, here, options(retry=retry))
        assert (item.outcome, len(here.done)) == (Outcome.INVALID, done)


def test_reports_that_are_wanted_later_are_made_later(tmp_path: Path) -> None:
    (path,) = kernels(tmp_path, 1)
    inputs = plan([path], None, Emit.HSACO)
    executor, store = Here(), Store(tmp_path / "store")
    list(compile_batch(inputs, executor, options(store)))
    (item,) = compile_batch(inputs, executor, options(store, reports=True))
    assert (item.origin, item.report) == (Origin.CACHE, str(inputs[0].report))
    (item,) = compile_batch(inputs, executor, options(store, reports=True))
    assert item.origin is Origin.JOURNAL
    inputs[0].report.write_text("{}")
    (item,) = compile_batch(inputs, executor, options(store, reports=True))
    assert item.origin is Origin.CACHE
    assert json.loads(inputs[0].report.read_text())["output"] == str(inputs[0].output)
    assert len(executor.done) == 1
