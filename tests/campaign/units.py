"""Pieces of the campaign: a row of a coverage table each, with what came of its mutants."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from campaign import certificates, headers, moves, texts
from campaign.groups import groups
from campaign.judge import Answers, Judge
from campaign.replacements import mutants as operand_mutants
from campaign.shapes import Skipped, processors_for, shaped
from campaign.subject import Mutant, Subject

_WRONG = 4
"""Wrong texts that changed certificates are offered with, of each row."""
_SHOWN = 3
"""Texts that are kept of a row's faults."""
Candidates: TypeAlias = "Iterator[tuple[Subject, Callable[[], Iterable[Mutant]]]]"


@dataclass(slots=True)
class Row:
    """What came of one row.

    Attributes:
        cells: by column: mutants, those refused by all, those accepted that are equivalent.
        faults: accepted although not equivalent, and crashes.
        disagreements: by column.
        skipped: why there is no subject; ``""`` where there is.
    """

    part: str
    name: str
    turn: int
    subject: str = ""
    cells: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    faults: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    disagreements: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    skipped: str = ""


def _of_operands(name: str, turn: int, _: Judge) -> Candidates:
    shapes = groups()[int(name)]
    for shape in shapes[turn % len(shapes) :] + shapes[: turn % len(shapes)]:
        for processor in processors_for(shape + turn):
            try:
                found = shaped(shape, processor)
            except Skipped as error:
                yield Subject(str(error), "", "", ""), list
                continue
            yield found.subject, lambda found=found: operand_mutants(found)


def _of_moves(name: str, turn: int, _: Judge) -> Candidates:
    subjects = list(moves.candidates(name, turn))
    for subject, mutants in subjects[turn // 2 % max(1, len(subjects)) :]:
        yield subject, lambda mutants=mutants: mutants


def _of_texts(name: str, turn: int, _: Judge) -> Candidates:
    for subject, mutants in texts.candidates(name, turn):
        yield subject, lambda mutants=mutants: mutants


def _of_headers(name: str, turn: int, _: Judge) -> Candidates:
    for subject, mutants in headers.candidates(name, turn):
        yield subject, lambda mutants=mutants: mutants


_others: list[str] = []


def _of_certificates(name: str, turn: int, judge: Judge) -> Candidates:
    for subject, of_moves in moves.candidates(name, turn):

        def made(subject: Subject = subject, of_moves: list[Mutant] = of_moves) -> list[Mutant]:
            own = judge.certificate
            other = next((c for c in reversed(_others) if c != own), own)
            _others.append(own)
            del _others[:-8]
            # Wrong texts that are machine IR: their certificates are looked at.
            wrong = [m for m in of_moves if not m.equivalent and not m.column.startswith("live-in")]
            random.Random(f"{name} {turn}").shuffle(wrong)
            kept: list[Mutant] = []
            for mutant in wrong:
                if len(kept) < _WRONG and judge.is_looked_at(mutant.after):
                    kept.append(mutant)
            return list(certificates.mutants(subject, own, other, kept))

        yield subject, made


PARTS: dict[str, tuple[Callable[[], list[str]], Callable[[str, int, Judge], Candidates]]] = {
    "operands": (lambda: [str(n) for n in range(len(groups()))], _of_operands),
    "moves": (moves.rows, _of_moves),
    "header": (headers.rows, _of_headers),
    "texts": (texts.rows, _of_texts),
    "certificate": (certificates.rows, _of_certificates),
}
"""By name: the rows of the table, and the subjects that a row may have: the first one that both accept is taken."""


def run(part: str, name: str, turn: int, judge: Judge, *, most: int, seed: int) -> Row:
    """Judge mutants of a row: in turn 0 one of each column, else up to ``most`` of all."""
    row = Row(part, name, turn)
    rng = random.Random(f"{part} {name} {turn} {seed}")
    reasons: list[str] = []
    for subject, mutants in PARTS[part][1](name, turn, judge):
        if not subject.processor:
            reasons.append(subject.row)
            continue
        base = judge.take(subject)
        if not base.by or any(said != "accepted" for said in base.by.values()):
            reasons.append(", ".join(f"{checker}: {said}" for checker, said in base.by.items()))
            continue
        row.subject = subject.row
        chosen = _chosen(list(mutants()), turn, most, rng)
        # Certificates of one text come one after the other: it is read once.
        chosen.sort(key=lambda mutant: (bool(mutant.certificate), mutant.after))
        for mutant, answers in zip(chosen, judge.ask(chosen), strict=True):
            _judge(row, subject, mutant, answers)
        return row
    row.skipped = reasons[0] if reasons else "there is none"
    return row


def _chosen(mutants: list[Mutant], turn: int, most: int, rng: random.Random) -> list[Mutant]:
    rng.shuffle(mutants)
    if turn or (mutants and mutants[0].equivalent == texts.ASK):
        return mutants[:most]
    by_column: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_column[mutant.column].append(mutant)
    return [column[0] for column in by_column.values()]


def _judge(row: Row, subject: Subject, mutant: Mutant, answers: Answers) -> None:
    shown = ""
    if mutant.equivalent == texts.ASK and not answers.refused_by_all:
        shown = texts.difference(subject, mutant.after)
        cannot = "the oracle cannot run it"
        mutant = replace(mutant, equivalent=cannot if shown == "?" else "" if shown else texts.ASK)
    cell = row.cells.setdefault(mutant.column, [0, 0, 0])
    cell[0] += 1
    cell[1] += answers.refused_by_all
    crashed = any("crash" in said for said in answers.by.values())
    accepted = not answers.refused_by_all
    cell[2] += accepted and bool(mutant.equivalent)
    said: dict[str, Any] = {
        "column": mutant.column,
        "what": mutant.what,
        "equivalent": mutant.equivalent,
        "answers": answers.by,
    }
    if shown and not mutant.equivalent:
        said["shown"] = shown
    if (accepted and not mutant.equivalent) or crashed:
        pair = {"before": subject.before, "after": mutant.after, "certificate": answers.certificate}
        row.faults.append({**said, **(pair if len(row.faults) < _SHOWN else {}), "processor": subject.processor})
    if answers.disagree:
        row.disagreements.append(said)
