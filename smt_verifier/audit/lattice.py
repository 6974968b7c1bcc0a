"""The lattice in which inference looks for claims: what two claims have in common. Untrusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from smt_verifier.audit.core.relation import Claims, Relation
from smt_verifier.audit.core.state import FLAGS, Classes, MaskBits, Signature

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
