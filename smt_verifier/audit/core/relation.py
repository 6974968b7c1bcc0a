"""What is claimed to hold at a block's entry: the relation between pre-RA lanes and post-RA places.

Inference makes claims; ``Claims.state`` turns them into hypotheses; ``check.py`` asks each predecessor
for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from smt_verifier.audit.core.execute import Executor
from smt_verifier.audit.core.masks import Variable
from smt_verifier.audit.core.state import (
    FLAGS,
    UNDEFINED,
    Atom,
    Classes,
    Expression,
    Known,
    Mask,
    MaskBits,
    Signature,
    State,
    Tables,
    Trait,
    Untouched,
)

Fact = tuple[str, int, int, tuple[int, ...]]
"""``(operation, index, key, argument keys)``: the lane ``key`` holds that result of the operation on those lanes,
now.
"""


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

    @property
    def passes_on(self) -> bool:
        """Whether, of lanes that a block does not touch, its claim at the exit is its claim at the entry: it is of
        places alone, and says one thing of each lane.
        """
        return bool(self.places) and not self.facts and self.undefined.isdisjoint(self.places)

    @property
    def goals(self) -> int:
        """How many goals it makes of lanes that were not touched since it was assumed: each is a hypothesis."""
        shared = {id(places): len(places) for key, places in self.places.items() if key not in self.maybe}
        return sum(shared.values()) + sum(len(self.places[key]) for key in self.maybe if key in self.places)


@dataclass(slots=True)
class Claims:
    """Everything claimed at a block's entry.

    That is: the scalar lanes; the vector lanes of each class of threads, by signature; and masks, named by the pre-RA
    keys that hold them: those known exactly, those only bounded, and traits (see ``State``). Classes with equal claims
    share one object.
    """

    scalar: Relation
    classes: dict[Signature, Relation]
    masks: frozenset[Variable]
    bounded: frozenset[Variable] = frozenset()
    known: frozenset[tuple[Trait, Variable]] = frozenset()
    inhabited: frozenset[Classes] = frozenset()

    def state(self, executor: Executor, assume: Callable[[int, int], None]) -> State:
        """A state in which exactly the claims hold; ``assume(pre term, post term)`` receives each hypothesis."""
        scalar_pre, scalar_post = _tables(self.scalar, executor, assume)
        bits = MaskBits(executor.masks.variables.taken)
        names = self.names(self.masks, executor, scalar_pre)
        renamed = Renaming(
            (bit := executor.masks.variables.of(variable), bits.adopt(name, bit)) for variable, name in names.items()
        )
        grouped = self._grouped()
        atoms = [
            _atom({renamed.of(s) for s in signatures}, relation, executor, assume) for signatures, relation in grouped
        ]
        bounded = set(self.names(self.bounded, executor, scalar_pre).values())
        known = self._known(executor, scalar_pre)
        inhabited = {frozenset(map(renamed.of, classes)) for classes in self.inhabited}
        state = State(scalar_pre, scalar_post, atoms, set(names.values()), bounded, known, inhabited, bits=bits)
        for table, relation in [
            (None, self.scalar),
            *((a, r) for a, (_, r) in zip(atoms, grouped, strict=True)),
        ]:
            for operation, index, key, keys in sorted(relation.facts):
                terms = [pre_term(executor, state, table, k) for k in (key, *keys)]
                executor.note(Expression(operation, index, tuple(terms[1:]), terms[0]), (key, keys))
        return state

    def masks_hold(self, names: dict[Variable, Mask], projected: Renaming, executor: Executor, state: State) -> bool:
        """Whether all claims about masks hold in ``state``: known, bounded, traits, and classes with a thread.

        Args:
            names: of the known masks, in this state.
            projected: from the bits of the state to those of these masks.
        """
        bounded = self.names(self.bounded, executor, state.pre).values()
        if not state.known_traits >= self._known(executor, state.pre):
            return False
        established = [set(map(projected.only, classes)) for classes in state.inhabited]
        if not all(any(classes <= claimed for classes in established) for claimed in self.inhabited):
            return False
        return state.masks.issuperset(names.values()) and (state.masks | state.bounded).issuperset(bounded)

    def _known(self, executor: Executor, scalar_pre: dict[int, int]) -> set[Known]:
        names = self.names(frozenset(variable for _, variable in self.known), executor, scalar_pre)
        return {(trait, names[variable]) for trait, variable in self.known}

    @staticmethod
    def names(masks: frozenset[Variable], executor: Executor, scalar_pre: dict[int, int]) -> dict[Variable, Mask]:
        """For each mask, the terms of its keys in a state."""
        names: dict[Variable, Mask] = {}
        for variable in masks:
            known = [scalar_pre.get(k) for k in variable]
            terms = zip(variable, known, strict=True)
            names[variable] = tuple([executor.read(k, scalar_pre) if term is None else term for k, term in terms])
        return names

    def _grouped(self) -> list[tuple[list[Signature], Relation]]:
        """Classes that form one atom: equal claims, and all of them active or all frozen."""
        groups: dict[tuple[int, Signature], tuple[list[Signature], Relation]] = {}
        for signature, relation in self.classes.items():
            groups.setdefault((id(relation), signature & FLAGS), ([], relation))[0].append(signature)
        return list(groups.values())


class Renaming:
    """From the bits of one world to those of another: pairs of bits, of which most are the same on both sides."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._same = FLAGS
        self._moved: list[tuple[int, int]] = []
        for of, to in pairs:
            if of == to:
                self._same |= of
            else:
                self._moved.append((of, to))
        self._others = ~sum({of for of, _ in self._moved})

    def of(self, signature: Signature) -> Signature:
        """The signature with the masks renamed; a mask that is in no pair keeps its bit."""
        return self.only(signature) | signature & self._others

    def only(self, signature: Signature) -> Signature:
        """The signature, reduced to the masks that are in a pair, renamed."""
        renamed = signature & self._same
        for of, to in self._moved:
            if signature & of:
                renamed |= to
        return renamed


def projection(names: dict[Variable, Mask], executor: Executor, state: State) -> Renaming:
    """From the bits of ``state`` to those of the variables with these names."""
    variables = executor.masks.variables
    return Renaming((state.bits.known(name), variables.of(variable)) for variable, name in names.items())


def pre_term(executor: Executor, state: State, atom: Atom | None, key: int) -> int:
    """Term of a pre-RA lane, for the threads of ``atom`` where it is a vector lane."""
    vector = executor.pre_lanes.is_vector(key)
    table = atom.pre if vector and atom is not None else state.pre
    return executor.read(key, table)


def _atom(
    signatures: set[Signature], relation: Relation, executor: Executor, assume: Callable[[int, int], None]
) -> Atom:
    if not relation.passes_on:
        return Atom(signatures, *_tables(relation, executor, assume))
    return Atom(signatures, {}, {}, (), Untouched(relation, partial(_tables, relation, executor, assume)))


def _tables(relation: Relation, executor: Executor, assume: Callable[[int, int], None]) -> Tables:
    """Terms of the lanes that have claims, by side. Lanes with equal places share one term, unless they may be
    undefined.
    """
    pre: dict[int, int] = dict.fromkeys(relation.undefined, UNDEFINED)
    post: dict[int, int] = {}
    shared: dict[frozenset[int], int] = {}
    terms = executor.terms
    for key, places in relation.places.items():
        if not places:
            # A claim of no place makes no goal: nothing is known of the lane, and no two such lanes are equal.
            continue
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
            post_term = post.get(place)
            if post_term is None:
                post_term = terms.fresh("what {} held at the block's start", place)
                post[place] = post_term
            assume(term, post_term)
    return pre, post
