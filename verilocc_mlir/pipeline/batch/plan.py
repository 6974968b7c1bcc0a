"""Which inputs there are, and where their results go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import Emit

PATTERNS = ("*.ll", "*.bc", "*.mir")


@dataclass(frozen=True)
class BatchInput:
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
