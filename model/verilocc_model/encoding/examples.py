"""A proved assignment as the answers that lead to it: what a model is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verilocc_mlir.allocators.cost import file_total
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import STRATEGIES, Advice, Episode
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import APART, JOIN, POINTERS, words

DEFAULT_WINDOW = 1024


@dataclass(frozen=True)
class Window:
    """A training sequence: tokens, and the positions in it that are answers."""

    tokens: tuple[int, ...]
    answers: tuple[int, ...]


@dataclass(frozen=True)
class Turn:
    """A question as it was asked and its answer: stage, facts, answer."""

    stage: str
    facts: tuple[str, ...]
    answer: str


class Transcript:
    """Turns cut into windows, each beginning with the header."""

    def __init__(self, limit: int = DEFAULT_WINDOW) -> None:
        self._limit = limit
        self._tokens: list[int] = []
        self._answers: list[int] = []
        self.windows: list[Window] = []

    def add(self, header: Iterable[str], turn: Turn) -> None:
        """Append a turn; ``header`` is used if a window begins with it."""
        encode = words().encode
        group = encode((*turn.facts, turn.answer))
        if not self._tokens or len(self._tokens) + len(group) > self._limit:
            self.close()
            self._tokens = encode(header)
        self._tokens += group
        self._answers.append(len(self._tokens) - 1)

    def close(self) -> None:
        """End the window at hand."""
        if self._answers:
            self.windows.append(Window(tuple(self._tokens), tuple(self._answers)))
        self._tokens, self._answers = [], []


def windows_of(
    problem: AllocationProblem,
    registers: Sequence[str],
    *,
    limit: int = DEFAULT_WINDOW,
    advice: Mapping[int, Advice] | None = None,
) -> list[Window]:
    """The training windows of a problem with an assignment, in the order of placing that explains it best.

    Args:
        problem: as it was built, or canonical.
        registers: a register for each range, by id.
        limit: tokens of a window at most.
        advice: by canonical range id, as ``Episode`` takes it.

    Raises:
        InputError: the assignment breaks a rule that the mask enforces; it cannot have been proved.
    """
    form = canonical(problem)
    table = Table(form.problem)
    starts = cells_of(table, form.permuted(tuple(registers)))
    turns: list[tuple[tuple[str, ...], Turn]] = []
    plain: dict[int, int] = {}
    least = -1
    for order in range(len(STRATEGIES)):
        found = told(table, starts, order, advice=advice, plain=plain)
        odd = sum(t.answer not in POINTERS for _, t in found if t.stage == "placing")
        if least < 0 or odd < least:
            turns, least = found, odd
        if not odd:
            break
    transcript = Transcript(limit)
    for header, turn in turns:
        transcript.add(header, turn)
    transcript.close()
    return transcript.windows


def told(
    table: Table,
    starts: list[int],
    order: int,
    *,
    advice: Mapping[int, Advice] | None = None,
    plain: dict[int, int] | None = None,
) -> list[tuple[tuple[str, ...], Turn]]:
    """Header and turn for every question, answered so that range *i* starts at cell ``starts[i]``.

    Items are placed in ``order``; ``plain`` as for ``Episode``.
    """
    episode = Episode(table, lookahead=False, advice=advice, plain=plain)
    found: list[tuple[tuple[str, ...], Turn]] = []
    while (question := episode.question()) is not None:
        header = episode.header()
        answer = _answer(episode, starts, order)
        if not episode.answer(answer):
            raise InputError(
                f"the assignment breaks a rule: {answer!r} is not allowed",
                where=f"function {table.problem.function}, {question.stage}",
                hint="only proved assignments can be labels",
            )
        found.append((header, Turn(question.stage, question.facts, answer)))
    return found


def cells_of(table: Table, registers: Sequence[str]) -> list[int]:
    """The first cell of each range's register.

    Raises:
        InputError: a register is missing or in no file of the problem.
    """
    found: list[int] = []
    for live_range, register in zip(table.problem.ranges, registers, strict=True):
        cells = table.cells.cells_of(register) if register else ()
        if not cells:
            raise InputError(f"{live_range.name} has no register of the problem: {register!r}")
        found.append(cells[0])
    return found


def _answer(episode: Episode, starts: list[int], order: int) -> str:
    if episode.stage == "joining":
        affinity, distance = episode.table.copies[episode.copy]
        return JOIN if starts[affinity.b] == starts[affinity.a] + distance else APART
    if episode.stage == "placing":
        member, offset = episode.current().members[0]
        return episode.word_at(starts[member] - offset)
    options = list(episode.options())
    kind = options[0][:5]
    if kind == "order":
        return f"order{order}"
    highest = _highest(episode.table, starts)
    if kind == "grant":
        total = (
            highest["sgpr"]
            if episode.table.scalar
            else file_total(highest["vgpr"], highest["agpr"], episode.table.problem.occupancy)
        )
        fitting = (
            k
            for k, grant in enumerate(episode.table.grants)
            if grant >= total and any(_within(highest, c) for c in episode.table.shares(grant))
        )
        return f"grant{next(fitting, len(episode.table.grants) - 1)}"
    shares = episode.shares
    return f"split{next((k for k, c in enumerate(shares) if _within(highest, c)), 0)}"


def _within(highest: dict[str, int], ceiling: dict[str, int]) -> bool:
    return all(highest[bank] <= count for bank, count in ceiling.items())


def _highest(table: Table, starts: Sequence[int]) -> dict[str, int]:
    """One past the highest register of each file."""
    cells = table.cells
    found = {"sgpr": 0, "vgpr": 0, "agpr": 0}
    for live_range, start in zip(table.problem.ranges, starts, strict=True):
        span = live_range.lanes if cells.halves == 2 else live_range.width
        bank, number = cells.register_of(start + span - 1)
        if start < cells.stop[bank]:
            found[bank] = max(found[bank], number + 1)
    return found
