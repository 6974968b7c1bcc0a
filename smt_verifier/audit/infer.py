"""Inference of the relation at every block entry: an optimistic forward data flow. Untrusted; ``check.py`` proves
what it says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from functools import reduce

from smt_verifier.audit.core.execute import Executor
from smt_verifier.audit.core.lanes import GHOST, STACK
from smt_verifier.audit.core.product import Product
from smt_verifier.audit.core.relation import Claims, Fact, Relation, pre_term, projection
from smt_verifier.audit.core.semantics import acts_alone
from smt_verifier.audit.core.state import FLAGS, UNDEFINED, Atom, Classes, Expression, MaskBits, Signature, State, Terms
from smt_verifier.audit.reads import Reads, reads_from_entry
from verilocc_mlir.errors import UnsupportedError

# What inference believes to hold on entering a block: the strongest claims about lanes still read. Untrusted.


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


# The lattice in which inference looks for claims: what two claims have in common. Untrusted.


_MAX_INHABITED = 4
_UNITED_ABOVE = 8
"""Classes of threads that are cheap enough to be followed each on its own from the start."""


def meet_relations(one: Relation, other: Relation) -> Relation:
    """What both claim; a lane that is undefined on one side keeps the other side's places."""
    if one is other or one == other:
        return one
    result = Relation(facts=one.facts & other.facts)
    both: dict[tuple[int, int], frozenset[int]] = {}
    for key, places in one.places.items():
        if key in other.undefined:
            result.places[key] = places
            result.maybe.add(key)
        elif (other_places := other.places.get(key)) is not None:
            # Lanes that hold the same share the object.
            common = both.get((id(places), id(other_places)))
            if common is None:
                common = both[id(places), id(other_places)] = places & other_places
            if not common:
                continue
            result.places[key] = common
            if key in one.maybe or key in other.maybe:
                result.maybe.add(key)
    for key in one.undefined:
        if key in other.undefined:
            result.undefined.add(key)
        elif (places := other.places.get(key)) is not None:
            result.places[key] = places
            result.maybe.add(key)
    return result


def meet(one: Claims, other: Claims, variables: MaskBits) -> Claims:
    """What both claim; masks known on one side only are forgotten and the classes they told apart merge."""
    masks = one.masks & other.masks
    keep = FLAGS | sum(map(variables.known, masks))
    classes = joined((s & keep, r) for claims in (one, other) for s, r in claims.classes.items())
    inhabited = smallest(frozenset(s & keep for s in a | b) for a in one.inhabited for b in other.inhabited)
    bounded = (one.masks | one.bounded) & (other.masks | other.bounded)
    scalar = meet_relations(one.scalar, other.scalar)
    return Claims(scalar, classes, masks, bounded - masks, one.known & other.known, inhabited)


def smallest(groups: Iterable[Classes]) -> frozenset[Classes]:
    """The smallest few of these sets of classes, each of which holds some thread; none that contains another one."""
    chosen: list[Classes] = []
    for group in sorted(set(groups), key=lambda group: (len(group), sorted(group))):
        if len(chosen) < _MAX_INHABITED and not any(other <= group for other in chosen):
            chosen.append(group)
    return frozenset(chosen)


def united(claims: Claims) -> Claims:
    """What is claimed of all active classes, and of all frozen ones, where there are many; else these claims."""
    if len(claims.classes) <= _UNITED_ABOVE:
        return claims
    by_flags: dict[Signature, dict[int, Relation]] = {}
    for signature, relation in claims.classes.items():
        by_flags.setdefault(signature & FLAGS, {})[id(relation)] = relation
    met = {flags: reduce(meet_relations, relations.values()) for flags, relations in by_flags.items()}
    return replace(claims, classes={signature: met[signature & FLAGS] for signature in claims.classes})


def joined(claimed: Iterable[tuple[Signature, Relation]]) -> dict[Signature, Relation]:
    """For each class, the meet of all claims about it; equal claims share one object."""
    # The pair is kept beside what both claim, so that their ids stay theirs.
    met: dict[tuple[int, int], tuple[Relation, Relation, Relation]] = {}
    by_class: dict[Signature, Relation] = {}
    for signature, relation in claimed:
        earlier = by_class.get(signature)
        if earlier is None or earlier is relation:
            by_class[signature] = relation
            continue
        pair = id(earlier), id(relation)
        if pair not in met:
            met[pair] = earlier, relation, meet_relations(earlier, relation)
        by_class[signature] = met[pair][2]
    distinct: dict[int, Relation] = {}
    for relation in by_class.values():
        if id(relation) not in distinct:
            distinct[id(relation)] = next((r for r in distinct.values() if r == relation), relation)
    return {signature: distinct[id(relation)] for signature, relation in by_class.items()}


_MAX_ROUNDS = 100


def infer(product: Product, *, unite: bool = False) -> tuple[list[Claims | None], bool]:
    """Claims at the entry of every block, in layout order; None for a block that no path reaches.

    The entry block's claims stand for the function's initial state and are not used.

    Args:
        unite: claim the same of all active classes of threads, and of all frozen ones, where there are many: less is
            claimed, in a fraction of the time.

    Returns:
        The claims, and whether less is claimed somewhere than without ``unite``.

    Raises:
        UnsupportedError: the code does something the audit does not follow, or no fixpoint is found.
    """
    executor, reads = product.executor, reads_from_entry(product)
    executor.goals = None
    executor.findings = None
    entries: list[Claims | None] = [None] * len(product.steps)
    pending = {0}
    gave_up = False
    for _ in range(_MAX_ROUNDS):
        if not pending:
            return entries, gave_up
        for block in product.order:
            if block not in pending:
                continue
            pending.discard(block)
            if not product.successors[block] and not _adds_code(product, block):
                # What holds at its end is claimed nowhere, and the check goes through it anyway.
                continue
            executor.reset()
            state = product.entry_state(block, entries[block], executor.terms.believe)
            executor.run(product.steps[block], state)
            for successor in product.successors[block]:
                observed = observe(executor, product.leave(block, successor, state), successor, reads)
                old = entries[successor]
                new = observed if old is None else meet(old, observed, executor.masks.variables)
                if unite and (weaker := united(new)) is not new:
                    new, gave_up = weaker, True
                if new != old:
                    entries[successor] = new
                    pending.add(successor)
    raise UnsupportedError("the relation between both sides did not settle")


def _adds_code(product: Product, block: int) -> bool:
    """Whether the post-RA side has instructions of its own there that compute: ``Machine.repeated`` takes hints."""
    return any(s.pre is None and s.post is not None and not acts_alone(s.post) for s in product.steps[block])
