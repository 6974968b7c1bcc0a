"""The symbolic state of both sides at one point: which term each lane holds, for each class of threads.

A *term* is an integer that stands for one value. ``UNDEFINED`` is the term of a lane that the pre-RA side leaves
undefined. Scalar lanes hold one term for the whole wave. Vector lanes hold one for each *class* of threads: those that
the mask registers tracked so far cannot tell apart (``masks.py``). The classes in EXEC are active; the others are
frozen, because ordinary vector instructions do not touch them. Classes that hold the same terms in all lanes, and are
all active or all frozen, form one *atom*: an instruction is executed once for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from smt_verifier.audit.core.lanes import key_name

UNDEFINED = 0
EXEC = -1
"""Name of EXEC among the masks."""
OUTSIDE = -2
"""Marks the class of threads that were not active at function entry, where those are followed."""

Mask = int | tuple[int, ...]
"""``EXEC``, ``OUTSIDE``, or the terms of the scalar lanes that hold a mask (their keys, between blocks)."""
Signature = int
"""The masks that the threads of a class are in, as the bits that ``MaskBits`` gives them."""
IN_EXEC = 1
IN_OUTSIDE = 2
FLAGS = IN_EXEC | IN_OUTSIDE
Classes = frozenset[Signature]
Tables = tuple[dict[int, int], dict[int, int]]
"""Terms of lanes before allocation, and of places after it."""
ByClass = frozenset[tuple[Signature, int]]
"""The term that a vector lane holds, for each active class."""


class Trait(Enum):
    """What may be known of a mask, or of a scalar (``masks.py``)."""

    NOT_EMPTY = "not empty"
    PART_OF_EXEC = "part of EXEC"
    ACTIVE_THREAD = "the number of an active thread"
    FIRST_THREAD = "holds the first active thread"

    __hash__ = object.__hash__  # an enumeration's own is a function of Python's, and facts are kept in sets


Known = tuple[Trait, Mask]


class MaskBits:
    """The bit of each mask in signatures: a bit is given once, and never to another mask.

    Signatures in a state and signatures in claims are two worlds, each with bits of its own. Those of a state begin as
    the bits of the claims at its block's entry, so that a mask that a block leaves alone keeps its bit
    (``Claims.state``).
    """

    def __init__(self, taken: int = 2) -> None:
        """``taken``: so many bits, the lowest ones, are not given to other masks."""
        self._bits: dict[Mask, int] = {EXEC: IN_EXEC, OUTSIDE: IN_OUTSIDE}
        self.taken = max(taken, 2)

    def of(self, mask: Mask) -> int:
        """The bit of a mask, a new one where it has none."""
        bit = self._bits.get(mask)
        if bit is None:
            bit = self._bits[mask] = 1 << self.taken
            self.taken += 1
        return bit

    def known(self, mask: Mask) -> int:
        """The bit of a mask; 0 where it has none, so that no class is in it."""
        return self._bits.get(mask, 0)

    def adopt(self, mask: Mask, bit: int) -> int:
        """The bit of a mask, which is ``bit``, one of those that were taken, where it has none."""
        return self._bits.setdefault(mask, bit)


class Untouched:
    """Vector lanes as the claims at the block's entry have them. Their terms are made where the first lane is asked
    for: most classes of threads that wait pass through a block as they came.

    ``claimed`` is what was claimed of them, for ``check.py``, which knows its type.
    """

    __slots__ = ("_make", "_tables", "claimed")

    def __init__(self, claimed: object, make: Callable[[], Tables]) -> None:
        self.claimed = claimed
        self._make = make
        self._tables: Tables | None = None

    def tables(self) -> Tables:
        """Copies of the tables of both sides; all copies hold the same terms."""
        if self._tables is None:
            self._tables = self._make()
        pre, post = self._tables
        return dict(pre), dict(post)


class Atom:
    """Classes of threads that hold the same in all vector lanes. The threads of a class are in exactly the masks that
    its signature names; either all classes of an atom are in EXEC, or none; likewise in ``OUTSIDE``.

    Attributes:
        active: whether these threads are in EXEC.
        outside: whether these threads were not active at function entry.
        missed: pre-RA lanes last defined, in this block, while these threads were not active.
        untouched: where no lane was asked for since the block's entry.
    """

    __slots__ = ("_post", "_pre", "_signatures", "active", "missed", "outside", "untouched")

    def __init__(
        self,
        signatures: set[Signature],
        pre: dict[int, int],
        post: dict[int, int],
        missed: Iterable[int] = (),
        untouched: Untouched | None = None,
    ) -> None:
        self.signatures = signatures
        self._pre = pre
        self._post = post
        self.missed = set(missed)
        self.untouched = untouched

    @property
    def pre(self) -> dict[int, int]:
        """The table of pre-RA lanes."""
        if self.untouched is not None:
            self._touch(self.untouched)
        return self._pre

    @property
    def post(self) -> dict[int, int]:
        """The table of post-RA lanes."""
        if self.untouched is not None:
            self._touch(self.untouched)
        return self._post

    def keep_in(self, pre: dict[int, int], post: dict[int, int]) -> None:
        """Have these tables hold what its lanes hold."""
        self._pre, self._post, self.untouched = pre, post, None

    def _touch(self, untouched: Untouched) -> None:
        self._pre, self._post = untouched.tables()
        self.untouched = None

    @property
    def signatures(self) -> set[Signature]:
        """One for each class."""
        return self._signatures

    @signatures.setter
    def signatures(self, signatures: set[Signature]) -> None:
        self._signatures = signatures
        flags = next(iter(signatures))
        self.active = bool(flags & IN_EXEC)
        self.outside = bool(flags & IN_OUTSIDE)

    def reached(self, everywhere: bool) -> bool:
        """Whether an instruction touches these threads; ``everywhere``: it does not ask EXEC.

        Of threads that were not active at function entry nothing is claimed until whole-wave code makes them active.
        """
        return self.active or (everywhere and not self.outside)

    def split(self, signatures: set[Signature]) -> Atom:
        """A copy for other classes."""
        if self.untouched is not None:
            return Atom(signatures, {}, {}, self.missed, self.untouched)
        return Atom(signatures, dict(self._pre), dict(self._post), self.missed)


@dataclass(slots=True)
class Expression:
    """``term`` is lane ``index`` of the result of the pure operation ``operation`` on ``arguments``.

    ``key`` and ``argument_keys`` say which pre-RA lanes held result and arguments then; None for a post-RA expression.
    """

    operation: str
    index: int
    arguments: tuple[int, ...]
    term: int
    key: int | None = None
    argument_keys: tuple[int, ...] = ()


@dataclass(slots=True)
class State:
    """Both sides at one point.

    Attributes:
        pre: scalar pre-RA lanes by key.
        post: scalar post-RA lanes by key.
        atoms: classes of threads with their vector lanes.
        masks: masks whose value is known exactly as a union of classes.
        bounded: masks of which it is only known that they hold no thread outside all classes.
        known_traits: what else is known of masks and of numbers of threads (``masks.py``).
        inhabited: sets of classes that hold at least one thread together.
        first: for scalars that V_READFIRSTLANE made in this block, what it read, class by class.
        tests: for terms that SCC has held in this block, the mask that is not empty where they are 1.
        bits: of the masks that the signatures name.
    """

    pre: dict[int, int]
    post: dict[int, int]
    atoms: list[Atom]
    masks: set[Mask] = field(default_factory=set[Mask])
    bounded: set[Mask] = field(default_factory=set[Mask])
    known_traits: set[Known] = field(default_factory=set[Known])
    inhabited: set[Classes] = field(default_factory=set[Classes])
    first: dict[int, ByClass] = field(default_factory=dict[int, ByClass])
    tests: dict[int, Mask] = field(default_factory=dict[int, Mask])
    bits: MaskBits = field(default_factory=MaskBits)

    @property
    def entered(self) -> bool:
        """Whether some thread is known to be active."""
        return any(all(signature & IN_EXEC for signature in classes) for classes in self.inhabited)


class Side(Enum):
    """One of the two texts: before allocation, or after it."""

    PRE = "pre"
    POST = "post"

    def scalars(self, state: State) -> dict[int, int]:
        """The table of scalar lanes."""
        return state.pre if self is Side.PRE else state.post

    def threads(self, atom: Atom) -> dict[int, int]:
        """The table of vector lanes of a class of threads."""
        return atom.pre if self is Side.PRE else atom.post


class Result:
    """A result of an instruction, as the origin of terms: its words are made where they are asked for."""

    __slots__ = ("_instruction", "_number")

    def __init__(self, number: int, instruction: object) -> None:
        self._number = number
        self._instruction = instruction

    def __str__(self) -> str:
        return f"result {self._number} of {self._instruction}"


Origin = str | tuple[str, int] | Result
"""Words, or words with ``{}`` for the name of a lane, and the lane."""


@dataclass(slots=True)
class Terms:
    """Makes terms and remembers where each came from, for messages.

    ``maybe_undefined`` holds pre-RA terms of lanes that are undefined on some paths; each has a Boolean of its own in
    the solver. The rest serves inference alone: ``alternatives``, post-RA terms that a pre-RA term is believed equal
    to; ``results``, for the result of a pure operation, all results of it on arguments believed equal; ``shared``, for
    a post-RA term, such sets, by ``id``, of pre-RA terms believed equal to it.
    """

    grain: int = 2
    origin: list[Origin] = field(default_factory=lambda: ["undefined"])
    _rows: list[range] = field(default_factory=list[range])
    maybe_undefined: set[int] = field(default_factory=set[int])
    alternatives: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    results: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    shared: dict[int, dict[int, set[int]]] = field(default_factory=dict[int, dict[int, set[int]]])

    def fresh(self, origin: str, key: int | None = None) -> int:
        """A new term; ``{}`` in ``origin`` stands for the lane ``key``."""
        # Names are made where they are asked for: there are millions of terms, and few are ever shown.
        self.origin.append(origin if key is None else (origin, key))
        return len(self.origin) - 1

    def fresh_result(self, number: int, instruction: object, count: int) -> range:
        """``count`` new terms for the lanes of a result."""
        return self._fresh_row(Result(number, instruction), count)

    def fresh_many(self, origin: str, count: int) -> range:
        """``count`` new terms of one origin."""
        return self._fresh_row(origin, count)

    def _fresh_row(self, origin: Origin, count: int) -> range:
        first = len(self.origin)
        self.origin.extend([origin] * count)
        if count > 1:
            self._rows.append(range(first, first + count))
        return range(first, first + count)

    def describe(self, term: int) -> str:
        """Where a term came from, with its lane where the origin made several."""
        origin = self.origin[term]
        if isinstance(origin, tuple):
            return origin[0].format(key_name(origin[1], self.grain))
        at = bisect_right(self._rows, term, key=lambda row: row.start) - 1
        if at >= 0 and term in self._rows[at]:
            return f"lane {term - self._rows[at].start} of {origin}"
        return str(origin)

    def equals(self, pre: int) -> Iterator[set[int]]:
        """Sets of other terms that inference takes a pre-RA term to be equal to."""
        if pre in self.results:
            yield self.results[pre]
        alternatives = self.alternatives.get(pre)
        if alternatives is not None:
            yield alternatives
            if self.shared:
                # What a lane of another register with the same value is the result of, this one is.
                for post in alternatives:
                    if post in self.shared:
                        yield from self.shared[post].values()

    def believe(self, pre: int, post: int) -> None:
        """Inference takes them to be equal."""
        self.alternatives.setdefault(pre, set()).add(post)
        if pre in self.results:
            self._share(pre, (post,))

    def believe_result(self, term: int, results: set[int]) -> None:
        """Inference takes ``term`` to be equal to all of ``results``."""
        if self.results.get(term) is results:
            return
        self.results[term] = results
        self._share(term, self.alternatives.get(term, ()))

    def _share(self, pre: int, alternatives: Iterable[int]) -> None:
        if pre not in self.maybe_undefined:
            results = self.results[pre]
            for post in alternatives:
                self.shared.setdefault(post, {})[id(results)] = results

    def alike(self, one: int, other: int) -> bool:
        """Whether inference takes two terms to be equal, whichever side each is of."""
        return one == other or any(other in s for s in self.equals(one)) or any(one in s for s in self.equals(other))
