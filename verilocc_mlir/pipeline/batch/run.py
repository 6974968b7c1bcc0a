"""The run: what is done already is left alone, what the store has is written, the rest goes to an executor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.allocators import UNKNOWN_VERSION
from verilocc_mlir.errors import InputError
from verilocc_mlir.files import JsonLines, write_whole
from verilocc_mlir.forms import to_json
from verilocc_mlir.pipeline.batch.jobs import REPORT, REST, RESULT, Executor, Job, Result, fault_of
from verilocc_mlir.pipeline.key import Keys
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.batch import BATCH_VERSION, BatchItem, Origin, item_data, item_from_data
from verilocc_mlir.store import Store


class BatchOptions(Struct, frozen=True):
    """How a batch is run.

    Attributes:
        store: where results are kept; None keeps none.
        reports: write the report of each input too.
        retry: try again what an earlier run did not prove.
        warn: told of what goes wrong beside the results, each kind once.
        keys_for: for inputs that have a processor of their own, by that.
    """

    settings: Settings
    keys: Keys
    store: Store | None = None
    reports: bool = False
    retry: bool = False
    warn: Callable[[str], None] = lambda _: None
    keys_for: Mapping[str, Keys] = field(default_factory=dict[str, Keys])

    def keys_of(self, one: BatchInput) -> Keys:
        return self.keys_for[one.cpu] if one.cpu else self.keys

    def settings_of(self, one: BatchInput) -> Settings:
        return replace(self.settings, cpu=one.cpu) if one.cpu else self.settings


def compile_batch(
    inputs: Sequence[BatchInput], executor: Executor, options: BatchOptions
) -> Generator[BatchItem, None, None]:
    """Compile every input and write its result; one item for each, as it is ready.

    Results appear whole under their names, only if they are proved, without the functions that nobody proves. They are
    then noted in the journal of their directory. Closing the generator, or an exception in it, ends all that is still
    running before it returns.

    Raises:
        InputError: a journal cannot be opened, or another run has it. Whatever else the executor raises.
    """
    with contextlib.ExitStack() as stack:
        roots = {i.root for i in inputs}
        journals = {root: stack.enter_context(BatchJournal(root)) for root in sorted(roots)}
        yield from _Run(executor, options, journals).items(inputs)


class _Todo(Struct, frozen=True):
    """An input that was read."""

    given: BatchInput
    digest: str
    key: str


class _Run:
    def __init__(self, executor: Executor, options: BatchOptions, journals: Mapping[Path, BatchJournal]) -> None:
        self._executor = executor
        self._options = options
        self._journals = journals
        self._warned: set[str] = set()

    def items(self, inputs: Sequence[BatchInput]) -> Iterator[BatchItem]:
        todo: list[_Todo] = []
        for source in inputs:
            data = _read(source)
            if isinstance(data, BatchItem):
                yield data
                continue
            one = self._todo(source, data)
            item = self._done_before(one) or self._from_store(one)
            if item is None:
                todo.append(one)
            else:
                yield item
        ready: deque[BatchItem] = deque()
        with contextlib.closing(self._executor.run(self._jobs(todo, ready))) as results:
            for result in results:
                yield from _drain(ready)
                yield self._finish(todo[result.number], result)
        yield from _drain(ready)

    def _todo(self, given: BatchInput, data: bytes) -> _Todo:
        digest = hashlib.sha256(data).hexdigest()
        return _Todo(given, digest, self._options.keys_of(given).of(digest))

    def _jobs(self, todo: Sequence[_Todo], ready: deque[BatchItem]) -> Iterator[Job]:
        """A job for each; what needs none after all goes to ``ready``."""
        for number, one in enumerate(todo):
            # Another input of the same content, or another run, may have got there first.
            item = self._from_store(one)
            data = _read(one.given)
            if item is not None:
                ready.append(item)
            elif isinstance(data, BatchItem):
                ready.append(data)
            elif self._todo(one.given, data) != one:
                ready.append(_failed(one, "it changed during the run; run again"))
            else:
                yield Job(number, shown(one.given.source), data, self._options.settings_of(one.given))

    def _done_before(self, one: _Todo) -> BatchItem | None:
        """What the journal says, if that still holds."""
        entry = self._journals[one.given.root].find(shown(one.given.name))
        if entry is None or entry.key != one.key:
            return None
        if entry.outcome is not Outcome.PROVED and (self._options.retry or not entry.final):
            return None
        has_output = entry.outcome is Outcome.PROVED or bool(entry.output)
        if has_output and _digest(one.given.output) != entry.output_sha256:
            return None
        has_report = bool(entry.report) and _digest(one.given.report) == entry.report_sha256
        if self._options.reports and not has_report and entry.outcome is not Outcome.INVALID:
            return None
        return replace(
            entry,
            input=shown(one.given.source),
            origin=Origin.JOURNAL,
            output=shown(one.given.output) if entry.output else "",
            report=shown(one.given.report) if has_report else "",
            report_sha256=entry.report_sha256 if has_report else "",
            seconds=0.0,
        )

    def _from_store(self, one: _Todo) -> BatchItem | None:
        store = self._options.store
        parts = None if store is None else store.get(one.key)
        if store is None or parts is None:
            return None
        if fault := fault_of(parts, one.digest, self._options.settings_of(one.given)):
            store.refuse(one.key, fault)
            return None
        item = BatchItem(shown(one.given.source), one.digest, one.key, Outcome.PROVED, Origin.CACHE)
        return self._deliver(one, item, parts[RESULT], json.loads(parts[REPORT]))

    def _finish(self, one: _Todo, result: Result) -> BatchItem:
        key = self._key(one, result)
        item = BatchItem(
            shown(one.given.source),
            one.digest,
            key,
            result.outcome,
            seconds=result.seconds,
            message=result.message,
            final=result.final,
        )
        if missed := (result.report or {}).get("server"):
            self._warn("server", f"the allocation server had not its part: {shown(one.given.source)}: {missed}")
        store = self._options.store
        if store is not None and key and result.data is not None and result.report is not None:
            parts = {RESULT: result.data, REPORT: to_json(result.report).encode()}
            try:
                store.put(key, parts)
            except OSError as error:
                self._warn("store", f"results are not kept in {shown(store.directory)}: {error.strerror}")
        data = result.parts.get(REST) if result.data is None else result.data
        return self._deliver(one, item, data, result.report)

    def _key(self, one: _Todo, result: Result) -> str:
        """The key for whoever really allocated: a server may come, or be replaced, during the run. ``""``: no key."""
        keys = self._options.keys_of(one.given)
        if not result.keyed or (not result.server_version and keys.server_version == UNKNOWN_VERSION):
            return ""
        return keys.of(one.digest, result.server_version)

    def _deliver(self, one: _Todo, item: BatchItem, data: bytes | None, report: Mapping[str, Any] | None) -> BatchItem:
        """Write the files, then the journal's line."""
        source = one.given
        if report is not None:
            item = replace(item, target=str(report["target"]))
        output = "" if data is None else shown(source.output)
        try:
            source.output.parent.mkdir(parents=True, exist_ok=True)
            if data is not None:
                write_whole(source.output, data)
                item = replace(item, output=output, output_sha256=hashlib.sha256(data).hexdigest())
            if self._options.reports and report is not None:
                named = {"path": shown(source.source), "sha256": one.digest}
                text = to_json({**report, "input": named, "output": output or None}).encode()
                write_whole(source.report, text)
                item = replace(item, report=shown(source.report), report_sha256=hashlib.sha256(text).hexdigest())
        except OSError as error:
            return replace(_failed(one, f"cannot be written: {error.strerror}"), origin=item.origin)
        try:
            self._journals[source.root].add(shown(source.name), item)
        except OSError as error:
            self._warn("journal", f"the journal in {shown(source.root)} cannot be written: {error.strerror}")
        return item

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._options.warn(message)


def _read(given: BatchInput) -> bytes | BatchItem:
    try:
        return given.source.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return BatchItem(shown(given.source), "", "", Outcome.INVALID, message=message, final=False)


def _failed(one: _Todo, message: str) -> BatchItem:
    return BatchItem(shown(one.given.source), one.digest, one.key, Outcome.INVALID, message=message, final=False)


def _digest(path: Path) -> str:
    """SHA-256 of a file's bytes, ``""`` where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _drain(ready: deque[BatchItem]) -> Iterator[BatchItem]:
    while ready:
        yield ready.popleft()


# What earlier runs finished: one line of JSON for each result, appended when it is there.
#
# A line is an input as in the batch report (``results/documents/batch.schema.json``), with ``journal``, the version,
# and ``name``, the result's path from the journal's directory. The last line of a name counts. Lines that are cut or of
# another version do not count, so a journal may end anywhere.


JOURNAL_NAME = "verilocc-batch.jsonl"


class BatchJournal:
    """The journal of one directory, locked against other runs until it is closed.

    Raises:
        InputError: it cannot be opened, or another run has it.
    """

    def __init__(self, directory: Path) -> None:
        self._lines = JsonLines(directory / JOURNAL_NAME)
        self._items: dict[str, BatchItem] = {}
        for record in self._lines.records:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if record["journal"] == BATCH_VERSION:
                    self._items[str(record["name"])] = item_from_data(record)

    def __enter__(self) -> BatchJournal:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def find(self, name: str) -> BatchItem | None:
        """What became of the result ``name`` last; None if nothing is known."""
        return self._items.get(name)

    def add(self, name: str, item: BatchItem) -> None:
        """Append what became of the result ``name``; the disk has it when this returns.

        Raises:
            OSError: it cannot be written, as on a full disk.
        """
        self._lines.add({"journal": BATCH_VERSION, "name": name, **item_data(item)})
        self._items[name] = item


# Which inputs there are, and where their results go.


PATTERNS = ("*.ll", "*.bc", "*.mir")


class BatchInput(Struct, frozen=True):
    """One input.

    Attributes:
        root: the directory that the result's name is relative to; the journal is there.
        name: of the result, from ``root``.
        cpu: the processor for this one; ``""``: as for all.
    """

    source: Path
    root: Path
    name: Path
    cpu: str = ""

    @property
    def output(self) -> Path:
        return self.root / self.name

    @property
    def report(self) -> Path:
        return self.output.with_suffix(".report.json")


def shown(path: Path) -> str:
    """A path as text that every terminal and JSON file takes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def plan(
    sources: Sequence[Path],
    out: Path | None,
    emit: Emit,
    patterns: Sequence[str] = PATTERNS,
    processors: Sequence[tuple[str, str]] = (),
) -> tuple[BatchInput, ...]:
    """The inputs in ``sources`` (files as they are named, directories sorted, with all below them), each file once.

    Args:
        out: directory that has the tree of each source directory again; None puts results beside their inputs. What
            lies in it is no input.
        patterns: shell patterns; in directories, a file is an input if one of them fits the end of its path.
        processors: a pattern and a processor each; the first one that fits the end of an input's path is for it.

    Raises:
        InputError: there is no such file, no input at all, or two results would go to the same file or over an input.
    """
    by_path: dict[Path, BatchInput] = {}
    for source in sources:
        if source.is_dir():
            root = out or source
            pairs = [(path, root, path.relative_to(source)) for path in _files(source, out, patterns)]
        elif source.exists():
            pairs = [(source, out or source.parent, Path(source.name))]
        else:
            raise InputError("no such file or directory", where=shown(source))
        for path, root, name in pairs:
            cpu = next((cpu for pattern, cpu in processors if path.match(pattern)), "")
            one = BatchInput(path, root, name.with_suffix(emit.suffix), cpu)
            by_path.setdefault(Path(os.path.abspath(path)), one)
    if not by_path:
        where = ", ".join(shown(source) for source in sources)
        raise InputError(f"no file is called {', '.join(patterns)}", where=where, hint="see --glob")
    inputs = tuple(by_path.values())
    _check_apart(inputs, emit)
    return inputs


def _files(directory: Path, out: Path | None, patterns: Sequence[str]) -> list[Path]:
    results = None if out is None or out.resolve() == directory.resolve() else out.resolve()
    files: list[Path] = []
    for place, below, names in os.walk(directory, onerror=_refuse):
        below[:] = [name for name in below if (Path(place) / name).resolve() != results]
        paths = (Path(place) / name for name in names)
        files += [path for path in paths if path.is_file() and any(path.match(pattern) for pattern in patterns)]
    return sorted(files)


def _refuse(error: OSError) -> NoReturn:
    raise InputError(f"cannot be read: {error.strerror}", where=str(error.filename)) from error


def _check_apart(inputs: tuple[BatchInput, ...], emit: Emit) -> None:
    sources = {Path(os.path.abspath(i.source)) for i in inputs}
    by_output: dict[Path, BatchInput] = {}
    for i in inputs:
        output = Path(os.path.abspath(i.output))
        if output in sources:
            raise InputError(
                "a result would overwrite an input", where=shown(i.output), hint="give a directory with -o"
            )
        if emit is Emit.MIR and output.parent == Path(os.path.abspath(i.source.parent)):
            # The next run would take it for an input.
            raise InputError("machine IR beside its input", where=shown(i.output), hint="give a directory with -o")
        other = by_output.setdefault(output, i)
        if other is not i:
            raise InputError(
                f"{shown(other.source)} and {shown(i.source)} have the same result, {shown(i.output)}",
                hint="compile them apart, or name the files of one kind with --glob",
            )
