"""The encoding: canonical form, words, and assignments told as answers and heard again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from allocators_support import random_problem, violations
from model_support import answered, disguised, kernel
from msgspec.structs import replace
from support import few, long, pre_ra

from verilocc_mlir.allocators import AllocationFailure, allocator
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_model.decoding import RandomChoice, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import Turn, Window, cells_of, explained_turns, sure_windows, windows_of
from verilocc_model.encoding.table import Price, Table, price_of
from verilocc_model.encoding.vocabulary import FIRST, HINT, JOIN, VOCABULARY

KERNELS: list[tuple[str, Phase]] = [
    ("gemm_mma_lds.gfx942", "sgpr"),
    ("gemm_mma_lds.gfx1100", "vgpr"),
    ("attn_d64.gfx90a", "vgpr"),
    ("attn_d64.gfx1201", "sgpr"),
]


def nameless(problem: AllocationProblem) -> AllocationProblem:
    return replace(problem, ranges=tuple(replace(r, name="") for r in problem.ranges))


def turns_of(problem: AllocationProblem, proposal: Proposal, order: int) -> list[Turn]:
    """An assignment as questions and answers."""
    form = canonical(problem)
    table = Table(form.problem)
    return [turn for _, turn in explained_turns(table, cells_of(table, form.permuted(proposal.registers)), order)]


def replay(problem: AllocationProblem, answers: list[str]) -> tuple[str, ...]:
    """The registers that the answers lead to."""
    form = canonical(problem)
    episode = Episode(Table(form.problem), lookahead=False)
    for answer in answers:
        assert episode.answer(answer)
    assert episode.question() is None
    return form.restored(episode.registers())


@pytest.mark.parametrize(("name", "phase"), KERNELS)
@pytest.mark.parametrize("seed", [1, *long(2)])
def test_names_and_block_order_leave_the_canonical_form(name: str, phase: Phase, seed: int) -> None:
    one, other, _ = disguised(name, phase, seed)
    assert nameless(canonical(one).problem) == nameless(canonical(other).problem)


def test_a_changed_problem_has_another_form() -> None:
    problem, _ = answered("gemm_mma_lds.gfx942")
    first = problem.ranges[0]
    changed = replace(problem, ranges=(replace(first, align=first.align * 2), *problem.ranges[1:]))
    assert nameless(canonical(problem).problem) != nameless(canonical(changed).problem)


@pytest.mark.parametrize(("name", "phase"), few(KERNELS[:2], KERNELS))
def test_an_assignment_is_told_and_heard_again(name: str, phase: Phase) -> None:
    problem, proposal = answered(name, phase)
    for order in range(3):
        answers = [turn.answer for turn in turns_of(problem, proposal, order)]
        assert replay(problem, answers) == proposal.registers


@pytest.mark.parametrize("seed", few(range(2, 27, 5), range(40)))
def test_random_assignments_are_told_and_heard_again(seed: int) -> None:
    problem = random_problem(seed, halves=seed % 2 == 1, phase="sgpr" if seed % 3 == 0 else "vgpr")
    try:
        proposal = allocator("deterministic").allocate(problem)
    except AllocationFailure:
        pytest.skip("does not fit")
    answers = [turn.answer for turn in turns_of(problem, proposal, seed % 3)]
    heard = replay(problem, answers)
    assert heard == proposal.registers
    assert not violations(problem, Proposal(PROBLEM_VERSION, "heard", heard))


def test_an_assignment_that_breaks_a_rule_is_no_label() -> None:
    # Cheaper than any draft, or the draft would be told instead.
    problem, proposal = answered("gemm_mma_lds.gfx1100", "vgpr")
    busy = max(problem.ranges, key=lambda r: sum(e - s for g in r.groups for s, e in g.segments))
    others = [r for r in problem.ranges if r.width == busy.width and r.banks == busy.banks and r.id != busy.id]
    registers = list(proposal.registers)
    for other in others:
        registers[other.id] = registers[busy.id]
    assert violations(problem, Proposal(PROBLEM_VERSION, "poisoned", tuple(registers)))
    with pytest.raises(InputError, match="breaks a rule"):
        windows_of(problem, registers)


@pytest.mark.long
def test_every_window_begins_with_the_header_and_fits() -> None:
    problem, proposal = answered("attn_d64.gfx90a", "vgpr")
    windows = windows_of(problem, proposal.registers, limit=512)
    assert len(windows) > 3
    for window in windows:
        assert len(window.tokens) <= 512
        assert VOCABULARY.words[window.tokens[0]] == "<begin>"
        assert window.answers


@pytest.mark.long
def test_the_encoding_is_a_tenth_of_the_text() -> None:
    # Tokenizers of code models make a token of about two characters of MIR (benchmarks/encoding_size.py).
    for name in ("gemm_mma_lds.gfx942", "attn_d64.gfx1100"):
        tokens = 0
        for phase in ("sgpr", "vgpr"):
            problem, proposal = answered(name, phase)
            tokens += sum(len(w.tokens) for w in windows_of(problem, proposal.registers))
        text = pre_ra(kernel(name))
        assert tokens <= len(text[text.index("\nname:") :]) / 2 / 10


def heard_alone(table: Table, windows: list[Window], refuted: tuple[int, ...] = ()) -> Episode:
    """An episode without mask after the answers of some windows."""
    episode = Episode(table, mask=False, lookahead=False, refuted=refuted)
    for window in windows:
        for answer in window.answers:
            assert episode.answer(VOCABULARY.words[window.tokens[answer]])
    assert episode.stage == "done"
    return episode


@pytest.mark.parametrize(("name", "phase"), KERNELS)
def test_an_answer_that_needs_no_look_ahead_holds_without_a_mask(name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    form = canonical(problem)
    table = Table(form.problem)
    windows = sure_windows(table)
    assert all(VOCABULARY.words[w.tokens[1]] == "alone" for w in windows)
    registers = form.restored(heard_alone(table, windows).registers())
    assert not violations(problem, Proposal(PROBLEM_VERSION, "alone", registers))
    # After a refutation the prompt says how many registers did not do, and the answer takes more.
    plan = plan_of(windows)
    last = len(table.grants) - 1
    refuted = (min(int(plan[1][5:]), last),)
    again = sure_windows(table, refuted=refuted)
    first = VOCABULARY.decode(again[0].tokens)
    assert f"refuted grant{refuted[0]}" in " ".join(first)
    assert int(plan_of(again)[1][5:]) == min(Episode(table, lookahead=False, refuted=refuted).planning.ample(0), last)
    assert int(plan_of(again)[1][5:]) > refuted[0] or refuted[0] == last
    registers = form.restored(heard_alone(table, again, refuted).registers())
    assert not violations(problem, Proposal(PROBLEM_VERSION, "told", registers))


@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("name", ["attn_d64.gfx90a", "gemm_mma_lds.gfx942"])
def test_the_share_that_goes_through_is_named(name: str, lookahead: bool) -> None:
    table = Table(canonical(answered(name, "vgpr")[0]).problem)
    episode = planning(table, lookahead)
    plan = episode.planning.sure_plan()
    assert plan is not None
    assert all(map(episode.answer, plan[:2]))
    question = episode.question()
    assert question is not None
    assert len(episode.planning.shares) > 1
    (named,) = (b for a, b in pairwise(question.facts) if a == "hint")
    assert named == (question.draft if lookahead else plan[2])
    # What each share comes to, with a witness or by first fit alone.
    prices: dict[str, Price] = {}
    for word in episode.options():
        other = planning(table, lookahead)
        if all(map(other.answer, (*plan[:2], word))) and placed(other):
            prices[word] = price_of(table, other.starts)
    assert prices[named] == min(prices.values())


def planning(table: Table, lookahead: bool) -> Episode:
    """An episode with everything joined that can be."""
    episode = Episode(table, lookahead=lookahead)
    while episode.stage == "joining":
        assert episode.answer(JOIN)
    return episode


def placed(episode: Episode) -> bool:
    """Whether all items find places by first fit, with a witness where that says."""
    while (question := episode.question()) is not None:
        word = question.draft or (HINT if "hint" in question.facts else FIRST)
        if not episode.answer(word):
            return False
    return True


def plan_of(windows: list[Window]) -> list[str]:
    """Order, grant and split that were answered."""
    said = [VOCABULARY.words[w.tokens[a]] for w in windows for a in w.answers]
    return [word for word in said if word.startswith(("order", "grant", "split"))]


def test_what_a_search_found_is_said_only_where_one_looks_ahead() -> None:
    form = canonical(answered("attn_d64.gfx90a", "vgpr")[0])
    table = Table(form.problem)
    facts: dict[bool, tuple[str, ...]] = {}
    for alone in (False, True):
        episode = Episode(table, lookahead=not alone)
        assert ("alone" in episode.header()) == alone
        while (question := episode.question()) is not None and question.stage == "joining":
            episode.answer("join")
        assert question is not None
        facts[alone] = question.facts
        assert ("hint" in question.facts) == (not alone)
        # A search with repair goes through with fewer registers than first fit, and is drafted.
        draft = question.draft
        assert draft == ("" if alone else question.facts[-1])
    assert len(facts[False]) == len(facts[True]) + 5


@pytest.mark.parametrize("name", ["gemm_mma_lds.gfx942", *long("attn_d64.gfx90a")])
def test_the_draft_is_the_label_where_it_is_no_dearer(name: str) -> None:
    problem, _ = answered(name, "vgpr")
    form = canonical(problem)
    table = Table(form.problem)
    episode, drafts = Episode(table), []
    while (question := episode.question()) is not None:
        drafts.append(question.draft)
        assert episode.answer(question.draft)
    dearer = form.restored(decode(Episode(table), RandomChoice(1)).registers)
    assert price_of(table, episode.starts) < price_of(table, cells_of(table, form.permuted(dearer)))
    windows = windows_of(problem, dearer)
    assert plan_of(windows) == [word for word in drafts if word.startswith(("order", "grant", "split"))]
    heard = heard_alone(table, windows)
    assert price_of(table, heard.starts) == price_of(table, episode.starts)
    # With facts about an assignment, that assignment is told.
    assert price_of(table, heard_alone(table, windows_of(problem, dearer, advice={})).starts) > price_of(
        table, episode.starts
    )
