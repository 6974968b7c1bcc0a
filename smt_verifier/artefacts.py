"""Obligations as files: what was asked, one SMT-LIB2 file each, and a manifest that ties them to their inputs.

``manifest.json`` (version ``MANIFEST_VERSION``) has ``inputs``: name and SHA-256 of each text that was verified, and
``obligations``: name, file, logic, number of goals, SHA-256 of the file, and the verdict that was reached.
``recheck`` replays the files with any of three solvers and says where a verdict differs, a file was changed, or one
is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Solver, Verdict, default_solver, to_smtlib, without_sorts
from smt_verifier.smt.processes import replay
from verilocc_mlir.errors import InputError

MANIFEST_VERSION = 1
_STATUS = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat"}


@dataclass
class RecordingSolver:
    """A solver that keeps what it was asked and what it answered."""

    inner: Solver = field(default_factory=default_solver)
    asked: list[tuple[Obligation, Verdict]] = field(default_factory=list[tuple[Obligation, Verdict]])

    def check(
        self, obligation: Obligation, timeout_s: float = 30.0, *, exhaustive: bool = False, consistent: bool = False
    ) -> Verdict:
        """See ``smt_verifier.smt.Solver``."""
        verdict = self.inner.check(obligation, timeout_s, exhaustive=exhaustive, consistent=consistent)
        self.asked.append((obligation, verdict))
        return verdict


def write_artefacts(
    directory: Path, inputs: Mapping[str, bytes], asked: Sequence[tuple[Obligation, Verdict]]
) -> tuple[str, ...]:
    """Write one file an obligation, then the manifest, each under a temporary name first.

    Args:
        directory: made if it is missing; a manifest that is there already is replaced last of all.
        inputs: the texts that were verified, by name.
        asked: obligations with their verdicts, in order.

    Returns:
        The name of each obligation's file in the directory.

    Raises:
        InputError: the directory cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, object]] = []
        for number, (obligation, verdict) in enumerate(asked):
            name = f"{number:04d}.smt2"
            data = to_smtlib(obligation, _STATUS.get(verdict.outcome, "unknown")).encode()
            _write(directory / name, data)
            rows.append(
                {
                    "name": obligation.name,
                    "file": name,
                    "logic": obligation.logic,
                    "goals": len(obligation.goals),
                    "sha256": _hash(data),
                    "outcome": verdict.outcome.value,
                }
            )
        manifest = {
            "version": MANIFEST_VERSION,
            "inputs": [{"name": n, "sha256": _hash(d)} for n, d in inputs.items()],
            "obligations": rows,
        }
        _write(directory / "manifest.json", (json.dumps(manifest, indent=1) + "\n").encode())
        return tuple(str(row["file"]) for row in rows)
    except OSError as error:
        raise InputError(f"cannot write obligations: {error.strerror}", where=str(directory)) from error


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One obligation, replayed; it agrees if the file is the recorded one and its verdict was reached again."""

    name: str
    recorded: str
    outcome: Outcome
    reason: str

    @property
    def agrees(self) -> bool:
        """Whether nothing is left to explain."""
        return self.outcome.value == self.recorded


def recheck(
    directory: Path,
    solver: str,
    *,
    timeout_s: float = 60.0,
    memory_mib: int = 4096,
    progress: Callable[[Rechecked], None] = lambda _: None,
) -> tuple[Rechecked, ...]:
    """Replay every obligation of a directory with ``z3``, ``cvc5`` or ``bitwuzla``.

    A file whose hash is not the manifest's is INVALID; a limit or a crash is UNKNOWN.

    Raises:
        InputError: there is no manifest of this version.
    """
    rows = _manifest(directory)
    done: list[Rechecked] = []
    for row in rows:
        result = _recheck_one(directory, row, solver, timeout_s, memory_mib)
        progress(result)
        done.append(result)
    return tuple(done)


def _recheck_one(directory: Path, row: dict[str, Any], solver: str, timeout_s: float, memory_mib: int) -> Rechecked:
    name, recorded = str(row["name"]), str(row["outcome"])
    file = directory / Path(str(row["file"])).name
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        return Rechecked(name, recorded, Outcome.INVALID, f"{file.name!r}: {error}")
    if _hash(data) != row["sha256"]:
        return Rechecked(name, recorded, Outcome.INVALID, f"{file.name} is not the file that was recorded")
    text = data.decode(errors="replace")
    if solver == "bitwuzla":
        text = _over_vectors(text)
    answer = replay(text, solver, timeout_s=timeout_s, memory_mib=memory_mib)
    return Rechecked(name, recorded, answer.outcome, answer.reason)


def _over_vectors(text: str) -> str:
    """The script over bit-vectors, for bitwuzla; ``without_sorts`` says why that asks the same."""
    changed = without_sorts(Obligation("", "QF_UF", text, ()))
    return changed.script.replace("(set-logic QF_UF)", "(set-logic QF_UFBV)") if changed.logic != "QF_UF" else text


def _manifest(directory: Path) -> list[dict[str, Any]]:
    path = directory / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        rows: list[object] = manifest["obligations"]
        if manifest["version"] != MANIFEST_VERSION:
            raise InputError(
                f"manifest version {manifest['version']}", where=str(path), hint="use the version that wrote it"
            )
        found = [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]
        if len(found) < len(rows) or not all({"name", "file", "sha256", "outcome"} <= set(row) for row in found):
            raise InputError("an obligation without name, file, sha256 or outcome", where=str(path))
        return found
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), hint="verilocc audit --smt-dir"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("not a manifest of obligations", where=str(path)) from error


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
