"""What inference believes to hold on entering a block: the strongest claims about lanes still read. Untrusted."""

from __future__ import annotations

from collections.abc import Container

from smt_verifier.audit.core.execute import Executor
from smt_verifier.audit.core.lanes import GHOST, STACK
from smt_verifier.audit.core.relation import Claims, Fact, Relation, pre_term, projection
from smt_verifier.audit.core.state import UNDEFINED, Atom, Expression, Signature, State, Terms
from smt_verifier.audit.lattice import joined, smallest
from smt_verifier.audit.reads import Reads

Results = dict[int, list[Expression]]
"""What terms are the result of, by term."""


def observe(executor: Executor, state: State, block: int, reads: Reads) -> Claims:
    """The strongest claims about lanes still read that, as far as inference believes, hold in ``state`` on entering
    ``block``.

    What is dead for the wave may still be needed by a thread that waits: frozen threads keep whatever is read later.
    """
    terms = executor.terms
    expressions: tuple[Results, Results] = {}, {}
    for e in executor.expressions:
        if e.key is not None:
            expressions[executor.pre_lanes.is_vector(e.key)].setdefault(e.term, []).append(e)
    live, later = reads.live[block], reads.later[block].members()
    scalar = _relation(state.pre, state.post, live, terms)
    scalar.facts = _facts(executor, state, None, expressions[False], live)
    masks = executor.masks.holders(state.masks | state.bounded, state, block)
    every = projection(masks, executor, state).only
    classes: list[tuple[Signature, Relation]] = []
    for atom in state.atoms:
        keys_read = live if atom.active else later
        if atom.untouched is not None and isinstance(claimed := atom.untouched.claimed, Relation):
            relation = _of_lanes(claimed, keys_read)
        else:
            relation = _relation(atom.pre, atom.post, keys_read, terms)
            relation.facts = _facts(executor, state, atom, expressions[True], keys_read)
        classes += [(every(signature), relation) for signature in atom.signatures]
    claimed = frozenset(v for v, name in masks.items() if name in state.masks)
    trait_holders = executor.masks.holders({name for _, name in state.known_traits}, state, block)
    traits = frozenset(
        (trait, v) for trait, name in state.known_traits for v, mask in trait_holders.items() if mask == name
    )
    certain = projection({variable: masks[variable] for variable in claimed}, executor, state).only
    inhabited = smallest(frozenset(map(certain, group)) for group in state.inhabited)
    return Claims(scalar, joined(classes), claimed, frozenset(masks) - claimed, traits, inhabited)


def _of_lanes(claimed: Relation, lanes: Container[int]) -> Relation:
    """What it claims of these lanes; itself where that is all."""
    places = {key: places for key, places in claimed.places.items() if key in lanes}
    undefined = {key for key in claimed.undefined if key in lanes}
    if len(places) == len(claimed.places) and len(undefined) == len(claimed.undefined):
        return claimed
    return Relation(places, claimed.maybe & places.keys(), undefined)


def _relation(pre: dict[int, int], post: dict[int, int], live: Container[int], terms: Terms) -> Relation:
    holders: dict[int, list[int]] = {}
    for key, term in post.items():
        row = holders.get(term)
        if row is None:
            holders[term] = [key]
        else:
            row.append(key)
    relation = Relation()
    by_term: dict[int, frozenset[int]] = {}
    equal_places: dict[int, list[int]] = {}
    for key, term in pre.items():
        if key not in live:
            continue
        if term == UNDEFINED:
            relation.undefined.add(key)
            continue
        places = by_term.get(term)
        if places is None:
            row = list(holders.get(term, ()))
            for equal in terms.equals(term):
                if id(equal) not in equal_places:
                    equal_places[id(equal)] = [place for equal_term in equal for place in holders.get(equal_term, ())]
                row += equal_places[id(equal)]
            places = by_term[term] = frozenset(row)
        if places:
            relation.places[key] = places
            if term in terms.maybe_undefined:
                relation.maybe.add(key)
    return relation


def _facts(
    executor: Executor, state: State, atom: Atom | None, expressions: Results, live: Container[int]
) -> frozenset[Fact]:
    """Lanes that hold the result of an operation on other lanes: the lane it was computed in, and copies of that lane.
    A ghost lane, which remembers an argument of a repeated operation, may hold the result of another operation too.
    """
    table = atom.pre if atom is not None else state.pre
    holders: dict[int, list[int]] = {}
    results = executor.terms.results
    for key, term in table.items():
        if term in expressions:
            holders.setdefault(term, []).append(key)
        elif key >= GHOST:
            # The partner of what is repeated may have read a repetition in its turn.
            for equal in results.get(term, ()):
                if equal in expressions:
                    holders.setdefault(equal, []).append(key)
    facts: set[Fact] = set()
    for term, keys in holders.items():
        copies = [k for k in keys if k >= GHOST or (k < STACK and k in live)]
        distinct_results: set[tuple[str, int, tuple[int, ...]]] = set()
        for e in expressions[term]:
            assert e.key is not None
            if [pre_term(executor, state, atom, k) for k in e.argument_keys] != list(e.arguments):
                continue
            if table.get(e.key) == term:
                facts.add((e.operation, e.index, e.key, e.argument_keys))
            if (result := (e.operation, e.index, e.argument_keys)) not in distinct_results:
                distinct_results.add(result)
                facts.update((e.operation, e.index, key, e.argument_keys) for key in copies)
    return frozenset(facts)
