"""A proved assignment as the answers that lead to it. A model is trained on these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode, draft
from verilocc_model.encoding.placing import Advice
from verilocc_model.encoding.table import Table, price_of
from verilocc_model.encoding.vocabulary import APART, DOMAIN, FIRST, HINT, JOIN, POINTERS, Writing
from verilocc_model.encoding.witnesses import STRATEGIES, Prospects

DEFAULT_WINDOW = 1024


@dataclass(frozen=True)
class Window:
    """A training sequence: tokens, and the positions of all tokens of its answers."""

    tokens: tuple[int, ...]
    answers: tuple[int, ...]


@dataclass(frozen=True)
class Turn:
    """A question as it was asked and its answer: stage, facts, answer."""

    stage: str
    facts: tuple[str, ...]
    answer: str


def windows_of(
    problem: AllocationProblem,
    registers: Sequence[str],
    *,
    limit: int = DEFAULT_WINDOW,
    advice: Mapping[int, Advice] | None = None,
    writing: Writing = DOMAIN,
) -> list[Window]:
    """The training windows of a problem with an assignment, in the order of placing that explains it best.

    If the draft costs no more than the assignment, the windows show the draft and its plan, which the facts point to:
    an equally good answer that ignores the facts would teach the model to ignore them. If the draft with all places
    that meet more is cheaper than the draft alone, it is shown instead. With ``advice``, which is about this
    assignment, the assignment itself is shown.

    Args:
        problem: as it was built, or canonical.
        registers: a register for each range, by id.
        limit: tokens of a window at most.
        advice: by canonical range id, as ``Episode`` takes it.
        writing: how words become tokens.

    Raises:
        InputError: the assignment breaks a rule that the mask enforces; it cannot have been proved.
    """
    form = canonical(problem)
    table = Table(form.problem)
    starts = cells_of(table, form.permuted(tuple(registers)))
    drafts = (
        [candidate for meets in (False, True) if (candidate := _draft(table, meets)) is not None]
        if advice is None
        else []
    )
    # Of drafts that cost the same, the plain one.
    drafted = min(drafts, key=lambda candidate: price_of(table, candidate[0]), default=None)
    if drafted is not None and price_of(table, drafted[0]) <= price_of(table, starts):
        return _cut(explained_turns(table, drafted[0], 0, plan=drafted[1]), limit, writing)
    turns: list[tuple[tuple[str, ...], Turn]] = []
    prospects = Prospects()
    least: tuple[int, bool] | None = None
    for order in range(len(STRATEGIES)):
        explained = explained_turns(table, starts, order, advice=advice, prospects=prospects)
        odd = sum(t.answer not in POINTERS for _, t in explained if t.stage == "placing")
        # Of orders that explain it equally well, the one that the facts point to.
        rank = (odd, order != prospects.order)
        if least is None or rank < least:
            turns, least = explained, rank
        if rank == (0, False) or (not odd and prospects.order in range(order)):
            break
    return _cut(turns, limit, writing)


def _draft(table: Table, meets: bool) -> tuple[list[int], list[str]] | None:
    """First cells and plan of a draft; None if there is none."""
    try:
        episode = Episode(table)
        answers = draft(episode, meets=meets)
    except AllocationFailure:
        return None
    return episode.starts, [word for question, word in answers if question.stage == "planning"]


def sure_windows(
    table: Table,
    *,
    limit: int = DEFAULT_WINDOW,
    advice: Mapping[int, Advice] | None = None,
    refuted: Sequence[int] = (),
    writing: Writing = DOMAIN,
) -> list[Window]:
    """The training windows of an answer that needs no look-ahead: first fit, with as many registers as that takes.

    All copies that can be joined are joined. If first fit then goes through in no order, none is joined. If that does
    not help either, there are no windows. Where grants were refuted, the answer has registers to spare.

    Args:
        table: the problem, in canonical form.
        limit: tokens of a window at most.
        advice, refuted: as ``Episode`` takes them.
        writing: how words become tokens.
    """
    for joining in (JOIN, APART):
        turns = _sure(table, joining, advice or {}, refuted)
        if turns is not None:
            return _cut(turns, limit, writing)
    return []


def _sure(
    table: Table, joining: str, advice: Mapping[int, Advice], refuted: Sequence[int]
) -> list[tuple[tuple[str, ...], Turn]] | None:
    episode = Episode(table, lookahead=False, advice=advice, refuted=refuted)
    turns: list[tuple[tuple[str, ...], Turn]] = []
    plan: Iterator[str] | None = None
    while (question := episode.question()) is not None:
        header = episode.header()
        if question.stage == "joining":
            answer = joining
        elif question.stage == "planning":
            if plan is None:
                chosen = episode.planning.sure_plan()
                if chosen is None:
                    return None
                plan = iter(chosen)
            answer = next(plan)
        else:
            answer = HINT if "hint" in question.facts else FIRST
        if not episode.answer(answer):
            return None
        turns.append((header, Turn(question.stage, question.facts, answer)))
    return turns


def _cut(turns: Iterable[tuple[tuple[str, ...], Turn]], limit: int, writing: Writing) -> list[Window]:
    """Turns cut into windows, each of which begins with its first turn's header."""
    windows: list[Window] = []
    tokens: list[int] = []
    answers: list[int] = []
    for header, turn in turns:
        facts, answer = writing.facts(turn.facts), writing.answer(turn.answer)
        if answers and len(tokens) + len(facts) + len(answer) > limit:
            windows.append(Window(tuple(tokens), tuple(answers)))
            answers = []
        if not answers:
            tokens = writing.header(header)
        tokens += facts
        answers += range(len(tokens), len(tokens) + len(answer))
        tokens += answer
    return [*windows, Window(tuple(tokens), tuple(answers))] if answers else windows


def explained_turns(
    table: Table,
    starts: list[int],
    order: int,
    *,
    advice: Mapping[int, Advice] | None = None,
    prospects: Prospects | None = None,
    plan: Sequence[str] = (),
) -> list[tuple[tuple[str, ...], Turn]]:
    """Header and turn for every question, answered so that range *i* starts at cell ``starts[i]``.

    Args:
        order: the order of placing.
        prospects: as for ``Episode``.
        plan: the order, grant and split to answer, instead of those that explain the assignment.
    """
    episode = Episode(table, lookahead=False, advice=advice, alone=False, prospects=prospects)
    turns: list[tuple[tuple[str, ...], Turn]] = []
    planned = iter(plan)
    while (question := episode.question()) is not None:
        header = episode.header()
        answer = next(planned) if plan and question.stage == "planning" else _answer(episode, starts, order)
        if not episode.answer(answer):
            raise InputError(
                f"the assignment breaks a rule: {answer!r} is not allowed",
                where=f"function {table.problem.function}, {question.stage}",
                hint="only proved assignments can be labels",
            )
        turns.append((header, Turn(question.stage, question.facts, answer)))
    return turns


def cells_of(table: Table, registers: Sequence[str]) -> list[int]:
    """The first cell of each range's register.

    Raises:
        InputError: a register is missing or in no file of the problem.
    """
    starts: list[int] = []
    for live_range, register in zip(table.problem.ranges, registers, strict=True):
        cells = table.cells.cells_of(register) if register else ()
        if not cells:
            raise InputError(f"{live_range.name} has no register of the problem: {register!r}")
        starts.append(cells[0])
    return starts


def _answer(episode: Episode, starts: list[int], order: int) -> str:
    if episode.stage == "joining":
        joint = episode.table.joints[episode.joining.joint]
        return JOIN if starts[joint.b] == starts[joint.a] + joint.distance else APART
    if episode.placing is not None:
        member, offset = episode.placing.current().members[0]
        return episode.placing.word_at(starts[member] - offset)
    options = list(episode.options())
    kind = options[0][:5]
    if kind == "order":
        return f"order{order}"
    highest = episode.table.cost.highest(starts)
    if kind == "grant":
        total = episode.table.cost.registers(highest)
        fitting = (
            k
            for k, grant in enumerate(episode.table.grants)
            if grant >= total and any(_within(highest, c) for c in episode.table.shares(grant))
        )
        return f"grant{next(fitting, len(episode.table.grants) - 1)}"
    shares = episode.planning.shares
    return f"split{next((k for k, c in enumerate(shares) if _within(highest, c)), 0)}"


def _within(highest: dict[str, int], ceiling: dict[str, int]) -> bool:
    return all(highest[bank] <= count for bank, count in ceiling.items())
