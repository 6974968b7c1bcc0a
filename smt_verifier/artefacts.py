"""Obligations as files: one SMT-LIB2 file each, and a manifest that ties them to their inputs.

``manifest.json`` (version ``MANIFEST_VERSION``) has ``inputs``: name and SHA-256 of each text that was verified;
``obligations``: name, file, logic, number of goals, SHA-256 of the file, and the verdict that was reached, in order;
and ``digest``: SHA-256 over both lists. ``smt_verifier.recheck`` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Solver, Verdict, default_solver, to_smtlib
from verilocc_mlir.errors import InputError

MANIFEST_VERSION = 2
MANIFEST = "manifest.json"
STATUS = {Outcome.PROVED: "unsat", Outcome.REFUTED: "sat", Outcome.UNKNOWN: "unknown"}
"""The ``status`` that a file of each outcome carries; also that of an obligation that the solver could not read is
``unknown``.
"""
_FILE = re.compile(r"\d{4,}\.smt2")


@dataclass
class RecordingSolver:
    """A solver that keeps what it was asked and what it answered."""

    inner: Solver = field(default_factory=default_solver)
    answers: list[tuple[Obligation, Verdict]] = field(default_factory=list[tuple[Obligation, Verdict]])

    def check(self, obligation: Obligation, timeout_s: float = 30.0, *, consistent: bool = False) -> Verdict:
        verdict = self.inner.check(obligation, timeout_s, consistent=consistent)
        self.answers.append((obligation, verdict))
        return verdict


def write_artefacts(
    directory: Path, inputs: Mapping[str, bytes], answers: Sequence[tuple[Obligation, Verdict]]
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
        for number, (obligation, verdict) in enumerate(answers):
            name = file_name(number)
            data = to_smtlib(obligation, STATUS.get(verdict.outcome, "unknown")).encode()
            _write(directory / name, data)
            rows.append(
                {
                    "name": obligation.name,
                    "file": name,
                    "logic": obligation.logic,
                    "goals": len(obligation.goals),
                    "sha256": sha256(data),
                    "outcome": verdict.outcome.value,
                }
            )
        texts = [{"name": n, "sha256": sha256(d)} for n, d in inputs.items()]
        manifest = {
            "version": MANIFEST_VERSION,
            "inputs": texts,
            "obligations": rows,
            "digest": rows_digest(texts, rows),
        }
        replaced = (directory / MANIFEST).exists()
        _write(directory / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
        if replaced:
            _remove_others(directory, {str(row["file"]) for row in rows})
        return tuple(str(row["file"]) for row in rows)
    except OSError as error:
        raise InputError(f"cannot write obligations: {error.strerror}", where=str(directory)) from error


def file_name(number: int) -> str:
    """The file of an obligation, by its place in the manifest."""
    return f"{number:04d}.smt2"


def rows_digest(inputs: object, rows: object) -> str:
    """SHA-256 over all rows of a manifest, so that a missing or moved row is noticed."""
    return sha256(json.dumps([inputs, rows], sort_keys=True, separators=(",", ":")).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _remove_others(directory: Path, files: set[str]) -> None:
    """Files of obligations of the run before this one, which the manifest no longer lists."""
    for path in directory.iterdir():
        if _FILE.fullmatch(path.name) and path.name not in files:
            path.unlink()


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
