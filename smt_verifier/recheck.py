"""Recorded obligations, checked again. Nothing in the folder is trusted, whoever wrote it.

A folder alone can show that its files are what its manifest lists, that in each the goals follow from the hypotheses,
and that the hypotheses do not contradict each other. It cannot show that the questions are about any program: whoever
writes the folder can write another question. With the texts that were audited, the questions are made again from them
and compared with the files, character for character; then a solver of the caller's choice answers exactly what the
audit asks of these texts. The machine's rules are no questions to a solver: that they hold, only the audit says.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from smt_verifier.artefacts import MANIFEST, MANIFEST_VERSION, STATUS, file_name, rows_digest, sha256
from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, to_smtlib, without_sorts
from smt_verifier.smt.processes import Replayer
from verilocc_mlir.errors import InputError

_MAX_BYTES = 1 << 30
_ROW = {"name": str, "file": str, "logic": str, "goals": int, "sha256": str, "outcome": str}
_INPUT = {"name": str, "sha256": str}
_PAIR = re.compile(r"((?:(?:sgpr|wwm|vgpr|all)/)?)(before|after)")
_LOGICS = ("QF_UF", "QF_BV")
_HYPOTHESES = ("declare-sort", "declare-fun", "declare-const", "define-fun", "assert")

Ask = Callable[[bytes, bytes], Sequence[Obligation]]
"""From both texts of a pair to what the audit asks of them, in order."""


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One obligation, replayed; it agrees if the file is the recorded one and its verdict was reached again.

    A verdict is PROVED or REFUTED: what nobody could decide agrees with nothing.
    """

    name: str
    recorded: str
    outcome: Outcome
    reason: str

    @property
    def agrees(self) -> bool:
        """Whether the verdict was decided and is the recorded one."""
        return self.outcome in (Outcome.PROVED, Outcome.REFUTED) and self.outcome.value == self.recorded


def recheck(
    directory: Path,
    solver: str,
    *,
    texts: Sequence[bytes] = (),
    ask: Ask | None = None,
    timeout_s: float = 60.0,
    memory_mib: int = 4096,
    progress: Callable[[Rechecked], None] = lambda _: None,
) -> tuple[Rechecked, ...]:
    """Replay every obligation of a directory with ``z3``, ``cvc5`` or ``bitwuzla``.

    Args:
        directory: what ``write_artefacts`` wrote; it holds nothing else.
        texts: the texts that were audited, before and after in turn, in the manifest's order; none: the files are
            replayed, and nothing says that they belong to any program.
        ask: what the audit asks of a pair of texts; goes with ``texts``.
        timeout_s: seconds for one question.
        memory_mib: of a solver's process.

    Returns:
        One row an obligation. A file that is not the recorded one, is no regular file, has another form or other goals
        than the manifest says, contradicts itself, or is not what is asked of ``texts``, is INVALID; a limit or a
        crash is UNKNOWN.

    Raises:
        InputError: there is no manifest of this version, its list is empty, shortened or not of ``texts``, or the
            directory holds files that it does not list.
    """
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(directory)) from error
    try:
        rows, expected = _rows_and_expected(directory, folder, texts, ask)
        results: list[Rechecked] = []
        with closing(Replayer(solver, memory_mib)) as replayer:
            files = _Files(folder, replayer, timeout_s)
            for number, row in enumerate(rows):
                results.append(files.row(number, row, expected[number] if expected is not None else None))
                progress(results[-1])
        return tuple(results)
    finally:
        os.close(folder)


def _rows_and_expected(
    directory: Path, folder: int, texts: Sequence[bytes], ask: Ask | None
) -> tuple[list[dict[str, Any]], list[Obligation] | None]:
    """The manifest's rows, and what is asked of the texts where there are any; both of one length."""
    where = str(directory / MANIFEST)
    inputs, rows = _manifest(where, folder)
    unlisted = set(os.listdir(folder)) - {MANIFEST} - {file_name(n) for n in range(len(rows))}
    if unlisted:
        raise InputError(
            f"files that the manifest does not list: {_printable(', '.join(sorted(unlisted)))}", where=where
        )
    if ask is None:
        return rows, None
    expected: list[Obligation] = []
    for prefix, before, after in _pairs(where, inputs, texts):
        expected += [
            Obligation(prefix + obligation.name, obligation.logic, obligation.script, obligation.goals)
            for obligation in ask(before, after)
        ]
    if len(expected) != len(rows):
        raise InputError(f"{len(rows)} obligations, but the audit asks {len(expected)} of these texts", where=where)
    return rows, expected


def _pairs(where: str, inputs: list[dict[str, Any]], texts: Sequence[bytes]) -> Iterator[tuple[str, bytes, bytes]]:
    """The texts in pairs, with what goes before the names of their obligations."""
    names = [_PAIR.fullmatch(row["name"]) for row in inputs]
    sides = [(match[1], match[2]) for match in names if match]
    expected = [(prefix, side) for prefix, _ in sides[::2] for side in ("before", "after")]
    if not sides or len(sides) < len(names) or sides != expected:
        raise InputError("its inputs are not the texts of an audit", where=where, hint="recheck it without texts")
    if len(texts) != len(inputs):
        raise InputError(f"the manifest lists {len(inputs)} texts, but {len(texts)} were given", where=where)
    for row, text in zip(inputs, texts, strict=True):
        if sha256(text) != row["sha256"]:
            raise InputError(
                f"the text given as {_printable(row['name'])} is not the one that was recorded", where=where
            )
    for (prefix, _), before, after in zip(sides[::2], texts[::2], texts[1::2], strict=True):
        yield prefix, before, after


def _manifest(where: str, folder: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs and obligations, every field of its type."""
    try:
        manifest: dict[str, Any] = json.loads(_read(folder, MANIFEST))
        if manifest["version"] != MANIFEST_VERSION:
            raise InputError(
                f"manifest version {_printable(str(manifest['version']))}",
                where=where,
                hint="use the version that wrote it",
            )
        inputs, rows = _typed(manifest["inputs"], _INPUT), _typed(manifest["obligations"], _ROW)
        if inputs is None or rows is None:
            raise InputError(f"an input or obligation without {', '.join(_ROW)}", where=where)
        if manifest["digest"] != rows_digest(inputs, rows):
            raise InputError("the list is not the one that was recorded: its digest differs", where=where)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=where, hint="verilocc audit --smt-dir"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("not a manifest of obligations", where=where) from error
    if not rows:
        raise InputError("the manifest lists no obligations: nothing was asked, so nothing can be checked", where=where)
    return inputs, rows


def _typed(rows: object, fields: dict[str, type]) -> list[dict[str, Any]] | None:
    """The rows, if each has exactly these fields with values of these types."""
    listed = cast("list[object]", rows) if isinstance(rows, list) else [None]
    typed = [cast("dict[str, Any]", row) for row in listed if isinstance(row, dict)]
    all_typed = len(typed) == len(listed) and all(
        row.keys() == fields.keys() and all(type(row[name]) is kind for name, kind in fields.items()) for row in typed
    )
    return typed if all_typed else None


def _read(folder: int, name: str) -> bytes:
    """A regular file of the folder itself: no link, no device, nothing that waits for a writer.

    Raises:
        OSError: it is something else, or too large.
    """
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("no regular file")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError("too large")
    return data


@dataclass(frozen=True, slots=True)
class _Script:
    """A file in the form that ``to_smtlib`` gives it: hypotheses, and the negated goals."""

    logic: str
    hypotheses: str
    negated_goals: str

    def text(self, *, goals: bool) -> str:
        """The script, with or without its goals, and without anything that asserts nothing."""
        asserted = f"{self.hypotheses}\n{self.negated_goals}" if goals else self.hypotheses
        return f"(set-logic {self.logic})\n{asserted}\n(check-sat)\n"


class _FormError(Exception):
    """A file is not in the form it must have."""


def _script(text: str, row: dict[str, Any]) -> _Script:
    """Read one file.

    Only declarations, definitions and assertions may stand before the goals, and one ``check-sat`` behind them: a
    solver that sees no more than these cannot be told to print, to forget or to end.

    Raises:
        _FormError: it has another form than ``to_smtlib`` gives, or another header or number of goals than the
            manifest's row.
    """
    status = STATUS.get(next((o for o in Outcome if o.value == row["outcome"]), Outcome.INVALID))
    if status is None or row["logic"] not in _LOGICS:
        raise _FormError("the manifest names no outcome or logic that an obligation has")
    header = to_smtlib(Obligation(row["name"], row["logic"], "", ()), status).rpartition("\n\n")[0] + "\n"
    if not text.startswith(header):
        raise _FormError("its name, status or logic is not the manifest's")
    body = re.sub(r";[^\n]*", "", text[len(header) :])
    if not re.fullmatch(r"[\n !#-\[\]-{}~]*", body):
        raise _FormError("it has characters that no obligation has")
    forms = list(_forms(body))
    heads = [re.match(r"\(\s*([a-z-]+)", form) for form in forms]
    names = [head[1] if head else "" for head in heads]
    if names[-2:] != ["assert", "check-sat"] or not set(names[:-2]) <= set(_HYPOTHESES):
        raise _FormError("it is not declarations and hypotheses, then the negated goals, then one check-sat")
    if _goals(forms[-2], row["goals"]) != row["goals"]:
        raise _FormError(f"it has not the {row['goals']} goals of the manifest")
    return _Script(row["logic"], "\n".join(forms[:-2]), forms[-2])


def _forms(text: str) -> Iterator[str]:
    """The outermost parenthesised forms.

    Raises:
        _FormError: parentheses do not match, or something stands between the forms.
    """
    depth = start = end = 0
    for mark in re.finditer(r"[()]", text):
        if mark[0] == "(":
            if depth == 0:
                start = mark.start()
                if text[end:start].strip():
                    break
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                break
            if depth == 0:
                end = mark.end()
                yield text[start:end]
    if depth or text[end:].strip():
        raise _FormError("its parentheses do not match")


def _goals(negated: str, listed: int) -> int:
    """How many goals ``(assert (not …))`` negates; one alone may be a conjunction itself. -1: another form."""
    match = re.fullmatch(r"\(assert \(not (.*)\)\)", negated, re.DOTALL)
    if match is None:
        return -1
    term = match[1]
    if _terms(term) != 1:
        return -1
    if term == "true":
        return 0
    if listed == 1:
        return 1
    conjunction = re.fullmatch(r"\(and\s(.*)\)", term, re.DOTALL)
    return _terms(conjunction[1]) if conjunction else 1


def _terms(text: str) -> int:
    """How many terms stand side by side, symbols or parenthesised; -1: parentheses do not match."""
    terms = depth = 0
    for token in re.finditer(r"[()]|[^\s()]+", text):
        terms += depth == 0
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0:
            return -1
    return terms


@dataclass(frozen=True, slots=True)
class _Files:
    folder: int
    replayer: Replayer
    timeout_s: float

    def row(self, number: int, row: dict[str, Any], expected: Obligation | None) -> Rechecked:
        """Check one file and ask the solver about it."""
        outcome, reason = self._checked(number, row, expected)
        return Rechecked(_printable(row["name"]), _printable(row["outcome"]), outcome, reason)

    def _checked(self, number: int, row: dict[str, Any], expected: Obligation | None) -> tuple[Outcome, str]:
        name = file_name(number)
        if row["file"] != name:
            return Outcome.INVALID, f"{_printable(row['file'])!r} is not {name}, the file of obligation {number}"
        try:
            data = _read(self.folder, name)
            text = data.decode()
        except (OSError, ValueError) as error:
            return Outcome.INVALID, f"{name}: {error}"
        if sha256(data) != row["sha256"]:
            return Outcome.INVALID, f"{name} is not the file that was recorded"
        try:
            script = _script(text, row)
        except _FormError as error:
            return Outcome.INVALID, f"{name}: {error}"
        if expected is not None and text != to_smtlib(expected, STATUS[Outcome(row["outcome"])]):
            return Outcome.INVALID, f"{name} is not what the audit asks of these texts"
        return self._answered(name, script)

    def _answered(self, name: str, script: _Script) -> tuple[Outcome, str]:
        answer = self._ask(script.text(goals=True))
        if answer[0] is not Outcome.PROVED:
            return answer
        alone = self._ask(script.text(goals=False))
        if alone[0] is Outcome.REFUTED:
            return answer
        if alone[0] is Outcome.PROVED:
            return Outcome.INVALID, f"{name}: its hypotheses contradict each other"
        return Outcome.UNKNOWN, f"whether its hypotheses contradict each other: {alone[1]}"

    def _ask(self, text: str) -> tuple[Outcome, str]:
        if self.replayer.solver == "bitwuzla":
            text = _over_vectors(text)
        answer = self.replayer.ask(text, self.timeout_s)
        return answer.outcome, answer.reason


def _over_vectors(text: str) -> str:
    """The script over bit-vectors, for bitwuzla; ``without_sorts`` says why that asks the same."""
    changed = without_sorts(Obligation("", "QF_UF", text, ()))
    return changed.script.replace("(set-logic QF_UF)", "(set-logic QF_UFBV)") if changed.logic != "QF_UF" else text


def _printable(text: str) -> str:
    """What a folder says, as a terminal can be shown it."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]
