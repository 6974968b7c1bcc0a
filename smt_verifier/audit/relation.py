"""What is claimed to hold at a block's entry: the relation between pre-RA lanes and post-RA places.

Inference makes claims; ``Claims.state`` turns them into hypotheses, ``entails`` says what a predecessor must show for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from smt_verifier.audit.execute import Executor
from smt_verifier.audit.lanes import GHOST, STACK
from smt_verifier.audit.liveness import Reads
from smt_verifier.audit.masks import Variable
from smt_verifier.audit.state import EXEC, OUTSIDE, UNDEFINED, Atom, Expression, Mask, Signature, State, Terms

_UNITED_ABOVE = 8
"""Classes of threads that are cheap enough to be followed each on its own from the start."""
Fact = tuple[str, int, int, tuple[int, ...]]
"""``(operation, index, key, argument keys)``: the lane ``key`` holds that result of the operation on those lanes,
now.
"""

Results = dict[int, list[Expression]]
"""What terms are the result of, by term."""


@dataclass(slots=True)
class Relation:
    """Claims about scalar lanes, or about the vector lanes of a class of threads.

    Attributes:
        places: post-RA keys that hold what a pre-RA key holds.
        maybe: keys of ``places`` that are undefined on some paths (there, the places hold anything).
        undefined: keys that are undefined on every path.
        facts: lanes known to hold the result of a pure operation.
    """

    places: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    maybe: set[int] = field(default_factory=set[int])
    undefined: set[int] = field(default_factory=set[int])
    facts: frozenset[Fact] = frozenset()

    def meet(self, other: Relation) -> Relation:
        """What both claim; a lane that is undefined on one side keeps the other side's places."""
        result = Relation(facts=self.facts & other.facts)
        both: dict[tuple[int, int], frozenset[int]] = {}
        for key, places in self.places.items():
            if key in other.undefined:
                result.places[key] = places
                result.maybe.add(key)
            elif (theirs := other.places.get(key)) is not None:
                # Lanes that hold the same share the object.
                common = both.get((id(places), id(theirs)))
                if common is None:
                    common = both[id(places), id(theirs)] = places & theirs
                if not common:
                    continue
                result.places[key] = common
                if key in self.maybe or key in other.maybe:
                    result.maybe.add(key)
        for key in self.undefined:
            if key in other.undefined:
                result.undefined.add(key)
            elif (places := other.places.get(key)) is not None:
                result.places[key] = places
                result.maybe.add(key)
        return result


@dataclass(slots=True)
class Claims:
    """Everything claimed at a block's entry: scalars, each class of threads by signature, and the masks known
    exactly, or only bounded (``State``), by the pre-RA keys that hold them. Classes of which the same is claimed share
    the object.
    """

    scalar: Relation
    classes: dict[Signature, Relation]
    masks: frozenset[Variable]
    bounded: frozenset[Variable] = frozenset()

    def meet(self, other: Claims) -> Claims:
        """What both claim; masks known on one side only are forgotten and the classes they told apart merge."""
        masks = self.masks & other.masks
        keep = masks | _FLAGS
        classes = _joined((s & keep, r) for claims in (self, other) for s, r in claims.classes.items())
        bounded = (self.masks | self.bounded) & (other.masks | other.bounded)
        return Claims(self.scalar.meet(other.scalar), classes, masks, bounded - masks)

    def united(self) -> Claims:
        """What is claimed of all active classes, and of all frozen ones, where there are many; else these claims."""
        if len(self.classes) <= _UNITED_ABOVE:
            return self
        by_flags: dict[Signature, dict[int, Relation]] = {}
        for signature, relation in self.classes.items():
            by_flags.setdefault(signature & _FLAGS, {})[id(relation)] = relation
        met = {flags: reduce(Relation.meet, relations.values()) for flags, relations in by_flags.items()}
        return replace(self, classes={signature: met[signature & _FLAGS] for signature in self.classes})

    def state(self, executor: Executor, assume: Callable[[int, int], None]) -> State:
        """A state in which exactly the claims hold; ``assume(pre term, post term)`` receives each hypothesis."""
        scalar_pre, scalar_post = _tables(self.scalar, executor, assume)
        names: dict[Mask, Mask] = {**self.names(self.masks, executor, scalar_pre)}
        grouped = self._grouped()
        atoms = [
            Atom({frozenset(names.get(m, m) for m in s) for s in signatures}, *_tables(relation, executor, assume))
            for signatures, relation in grouped
        ]
        bounded = set(self.names(self.bounded, executor, scalar_pre).values())
        state = State(scalar_pre, scalar_post, atoms, set(names.values()), bounded)
        for table, relation in [
            (None, self.scalar),
            *((a, r) for a, (_, r) in zip(atoms, grouped, strict=True)),
        ]:
            for operation, index, key, keys in sorted(relation.facts):
                terms = [pre_term(executor, state, table, k) for k in (key, *keys)]
                executor.note(Expression(operation, index, tuple(terms[1:]), terms[0]), (key, keys))
        return state

    def masks_hold(self, executor: Executor, state: State) -> bool:
        """Whether the masks that are claimed to be known or bounded are so."""
        known, bounded = (self.names(v, executor, state.pre).values() for v in (self.masks, self.bounded))
        return state.masks.issuperset(known) and (state.masks | state.bounded).issuperset(bounded)

    @staticmethod
    def names(masks: frozenset[Variable], executor: Executor, scalar_pre: dict[int, int]) -> dict[Variable, Mask]:
        """For each mask, the terms of its keys in a state."""
        return {variable: tuple(executor.read(k, scalar_pre) for k in variable) for variable in masks}

    def _grouped(self) -> list[tuple[list[Signature], Relation]]:
        """Classes that are one atom: the same is claimed of them, and all are active, or all frozen."""
        found: dict[tuple[int, Signature], tuple[list[Signature], Relation]] = {}
        for signature, relation in self.classes.items():
            found.setdefault((id(relation), signature & _FLAGS), ([], relation))[0].append(signature)
        return list(found.values())


def projected(signature: Signature, names: Mapping[Variable, Mask]) -> Signature:
    """The class, as claims with masks of these names tell them apart, that the threads of a class belong to."""
    return frozenset(v for v, name in names.items() if name in signature) | signature & _FLAGS


def pre_term(executor: Executor, state: State, atom: Atom | None, key: int) -> int:
    """Term of a pre-RA lane, for the threads of ``atom`` where it is a vector lane."""
    vector = executor.pre_lanes.is_vector(key)
    table = atom.pre if vector and atom is not None else state.pre
    return executor.read(key, table)


def _tables(
    relation: Relation, executor: Executor, assume: Callable[[int, int], None]
) -> tuple[dict[int, int], dict[int, int]]:
    """Terms of the lanes of which something is claimed, by side. Lanes of which the same places are claimed have one
    term, unless they may be undefined.
    """
    pre: dict[int, int] = dict.fromkeys(relation.undefined, UNDEFINED)
    post: dict[int, int] = {}
    shared: dict[frozenset[int], int] = {}
    terms = executor.terms
    for key, places in relation.places.items():
        defined = key not in relation.maybe
        if defined and places in shared:
            pre[key] = shared[places]
            continue
        term = terms.fresh("the value of {} at the block's start", key)
        pre[key] = term
        if defined:
            shared[places] = term
        else:
            terms.maybe_undefined.add(term)
        for place in places:
            other = post.get(place)
            if other is None:
                other = terms.fresh("what {} held at the block's start", place)
                post[place] = other
            assume(term, other)
    return pre, post


_FLAGS: frozenset[Mask] = frozenset({EXEC, OUTSIDE})


def _joined(claimed: Iterable[tuple[Signature, Relation]]) -> dict[Signature, Relation]:
    """What is claimed of each class, by all who claim something of it; equal claims are one object."""
    # The pair is kept beside what both claim, so that their ids stay theirs.
    met: dict[tuple[int, int], tuple[Relation, Relation, Relation]] = {}
    found: dict[Signature, Relation] = {}
    for signature, relation in claimed:
        mine = found.get(signature)
        if mine is None or mine is relation:
            found[signature] = relation
            continue
        pair = id(mine), id(relation)
        if pair not in met:
            met[pair] = mine, relation, mine.meet(relation)
        found[signature] = met[pair][2]
    distinct: dict[int, Relation] = {}
    for relation in found.values():
        if id(relation) not in distinct:
            distinct[id(relation)] = next((r for r in distinct.values() if r == relation), relation)
    return {signature: distinct[id(relation)] for signature, relation in found.items()}


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
    live, later = reads.live[block], reads.later[block]
    scalar = _relation(state.pre, state.post, live, terms)
    scalar.facts = _facts(executor, state, None, expressions[False], live)
    masks = executor.masks.live_masks(state, block)
    classes: list[tuple[Signature, Relation]] = []
    for atom in state.atoms:
        wanted = live if atom.active else later
        relation = _relation(atom.pre, atom.post, wanted, terms)
        relation.facts = _facts(executor, state, atom, expressions[True], wanted)
        classes += [(projected(signature, masks), relation) for signature in atom.signatures]
    known = frozenset(v for v, name in masks.items() if name in state.masks)
    return Claims(scalar, _joined(classes), known, frozenset(masks) - known)


def _relation(pre: dict[int, int], post: dict[int, int], live: set[int], terms: Terms) -> Relation:
    holders: dict[int, list[int]] = {}
    for key, term in post.items():
        holders.setdefault(term, []).append(key)
    relation = Relation()
    by_term: dict[int, frozenset[int]] = {}
    found: dict[int, list[int]] = {}
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
                if id(equal) not in found:
                    found[id(equal)] = [place for other in equal for place in holders.get(other, ())]
                row += found[id(equal)]
            places = by_term[term] = frozenset(row)
        if places:
            relation.places[key] = places
            if term in terms.maybe_undefined:
                relation.maybe.add(key)
    return relation


def _facts(
    executor: Executor, state: State, atom: Atom | None, expressions: Results, live: set[int]
) -> frozenset[Fact]:
    """Lanes that hold the result of an operation on lanes: that which it was made in, and copies of it. What remembers
    an argument of a repeated operation may be the result of another one.
    """
    table = atom.pre if atom is not None else state.pre
    holders: dict[int, list[int]] = {}
    for key, term in table.items():
        if term in expressions:
            holders.setdefault(term, []).append(key)
    found: set[Fact] = set()
    for term, keys in holders.items():
        copies = [k for k in keys if k >= GHOST or (k < STACK and k in live)]
        seen: set[tuple[str, int, tuple[int, ...]]] = set()
        for e in expressions[term]:
            assert e.key is not None
            if [pre_term(executor, state, atom, k) for k in e.argument_keys] != list(e.arguments):
                continue
            if table.get(e.key) == term:
                found.add((e.operation, e.index, e.key, e.argument_keys))
            if (result := (e.operation, e.index, e.argument_keys)) not in seen:
                seen.add(result)
                found.update((e.operation, e.index, key, e.argument_keys) for key in copies)
    return frozenset(found)
