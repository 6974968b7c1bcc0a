"""Both checkers, each asked alone, with the certificates at hand."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from campaign.subject import Mutant, Subject
from smt_verifier.certificate.produce import certify
from smt_verifier.certificate.second import second_checker, second_program
from smt_verifier.certificate.write import write_certificate
from smt_verifier.checker.certificate import read_certificate
from smt_verifier.checker.check import check_function, prepare
from smt_verifier.checker.effects import Both
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.text import read

BATCH = "VERILOCC_SECOND_BATCH"
"""Names the program that ``smt_verifier/second/examples/batch.rs`` is; without it each question starts a process."""
ACCEPTED = "accepted"
WAITING = 48
"""Questions that may be open."""

_read = lru_cache(maxsize=4)(read)


class Second:
    """The second checker: a queue of questions and answers."""

    def __init__(self) -> None:
        self.batch = os.environ.get(BATCH, "")
        self.there = bool(self.batch) or second_program() is not None
        self._process: Any = None
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._last: list[bytes] = []
        self._answers: list[str] = []

    def put(self, before: str, after: str, certificate: str, processor: str, function: str) -> None:
        """Ask; ``get`` gives the answers in the order of the questions. At most ``WAITING`` may be open."""
        if not self.batch:
            said = second_checker(before, after, certificate, processor, function)
            assert said is not None
            self._answers.append(ACCEPTED if said[0] else said[2])
            return
        if self._process is None:
            self._process = subprocess.Popen([self.batch], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._last = []
            self._lines = SimpleQueue()
            # A pipe holds some answers, and neither side reads while it writes.
            threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True).start()
        texts = [t.encode() for t in (before, after, certificate, processor, function)]
        same = [old == new for old, new in zip(self._last, texts, strict=True)] if self._last else [False] * 5
        head = " ".join("=" if is_same else str(len(t)) for is_same, t in zip(same, texts, strict=True))
        self._process.stdin.write(head.encode() + b"\n")
        for is_same, t in zip(same, texts, strict=True):
            if not is_same:
                self._process.stdin.write(t)
        self._last = texts

    def get(self) -> str:
        """The next answer: ``"accepted"``, or the rule that is broken."""
        if not self.batch:
            return self._answers.pop(0)
        self._process.stdin.flush()
        answer = self._lines.get().decode()
        if not answer:
            self.close()
            return "crashed"
        return ACCEPTED if answer.startswith("accepted") else answer.strip().removeprefix("refused: ").split(":")[0]

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def _read_lines(stream: IO[bytes], lines: SimpleQueue[bytes]) -> None:
    """All lines, and behind the last one an empty one."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


@dataclass(slots=True)
class Answers:
    """What the checkers say: ``"accepted"`` or a rule, by checker and certificate (``python``, ``rust``; ``search``:
    the one made for the mutant, ``given``: the subject's own, or the mutant's).
    """

    by: dict[str, str] = field(default_factory=dict[str, str])
    certificate: str = ""

    def accepts(self, checker: str) -> bool:
        return any(said == ACCEPTED for name, said in self.by.items() if name.startswith(checker))

    @property
    def refused_by_all(self) -> bool:
        return ACCEPTED not in self.by.values()

    @property
    def disagree(self) -> bool:
        """One accepts what the other refuses, with the same certificate."""
        pairs = ((self.by.get(f"python {c}"), self.by.get(f"rust {c}")) for c in ("search", "given"))
        return any(a and b and (a == ACCEPTED) != (b == ACCEPTED) for a, b in pairs)


class Judge:
    """Asks about mutants of one subject after the other."""

    def __init__(self) -> None:
        self.second = Second()
        self.subject: Subject | None = None
        self.certificate = ""
        self.base = Answers()
        self._prepared: tuple[str, Both | str] = "", ""

    def take(self, subject: Subject) -> Answers:
        """Go on to a subject; its own answers, which ought to be ``accepted``."""
        self.subject, self.certificate = subject, ""
        self._prepared = "", ""
        (self.base,) = self._answered([(subject.after, "", True)])
        self.certificate = self.base.certificate
        return self.base

    def ask(self, mutants: Iterable[Mutant]) -> Iterator[Answers]:
        """What both say of mutants of the subject."""
        return self._answered((m.after, m.certificate or self.certificate, not m.certificate) for m in mutants)

    def _answered(self, questions: Iterable[tuple[str, str, bool]]) -> Iterator[Answers]:
        """The second checker works while the first one goes on."""
        waiting: list[tuple[Answers, list[str]]] = []
        for question in questions:
            answers = Answers()
            waiting.append((answers, self._ask(answers, *question)))
            if sum(len(names) for _, names in waiting) > WAITING:
                yield from self._collected(waiting)
                waiting.clear()
        yield from self._collected(waiting)

    def _collected(self, waiting: list[tuple[Answers, list[str]]]) -> Iterator[Answers]:
        for answers, names in waiting:
            for name in names:
                answers.by[name] = self.second.get()
            yield answers

    def is_looked_at(self, after: str) -> bool:
        """Whether a text gets so far that its certificate matters."""
        return self._prepare(after)[0] is not None

    def _ask(self, answers: Answers, after: str, given: str, search: bool) -> list[str]:
        """Ask the first checker, and put questions to the second one; their names."""
        subject = self.subject
        assert subject is not None
        both, rule = self._prepare(after)
        found = ""
        if search:
            answers.by["python search"] = rule
            if both is not None:
                found, answers.by["python search"] = _searched(both)
        if given:
            answers.by["python given"] = rule
            # One certificate is asked about once.
            if both is not None:
                same = found == given
                answers.by["python given"] = answers.by["python search"] if same else _checked(both, given)
        answers.certificate = given or found
        asked = {"rust search": found, "rust given": given if given != found else ""}
        asked = {name: text for name, text in asked.items() if text and self.second.there}
        for text in asked.values():
            self.second.put(subject.before, after, text, subject.processor, subject.function)
        return list(asked)

    def _prepare(self, after: str) -> tuple[Both | None, str]:
        """Both texts, or the rule that they break by themselves; the last text's is kept."""
        subject = self.subject
        assert subject is not None
        if self._prepared[0] != after:
            made: list[Both] = []

            def prepared() -> None:
                made.append(prepare(_read(subject.before), read(after), subject.function, subject.processor))

            rule = _said(prepared)
            self._prepared = after, made[0] if made else rule
        known = self._prepared[1]
        return (None, known) if isinstance(known, str) else (known, "")


def _searched(both: Both) -> tuple[str, str]:
    """The certificate that the search makes (``""``: none), and what the first checker says of it."""
    made: list[str] = []

    def search() -> None:
        certified = certify(both)
        made.append(write_certificate(certified.certificate, both.before.grain))
        if certified.refused is not None:
            raise certified.refused

    rule = _said(search)
    return made[0] if made else "", rule


def _checked(both: Both, certificate: str) -> str:
    return _said(lambda: check_function(both, read_certificate(certificate, both.before.grain)))


def _said(question: Callable[[], object]) -> str:
    try:
        question()
    except Refused as error:
        return error.rule
    except Exception as error:  # a crash is a finding, not the end of the campaign
        return f"crashed: {type(error).__name__}"
    return ACCEPTED


def batch_program(repository: Path) -> Path | None:
    """The second checker's batch program, where it was built (``cargo build --release --example batch``)."""
    path = repository / "smt_verifier" / "second" / "target" / "release" / "examples" / "batch"
    return path if path.exists() else None
