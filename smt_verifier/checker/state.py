"""The state between two steps: which place holds which name (specification 4).

Of each pair ``(name, place)`` in ``holds`` it is true that the name is undefined in P, or the place of Q holds its
value. All changes below keep that so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smt_verifier.checker.certificate import Key

Names = frozenset[Key]
NONE: Names = frozenset()


class Part:
    """What is known of the scalars, or of one class of threads."""

    __slots__ = ("doubtful", "holds", "undefined", "unwritten", "where")

    def __init__(self) -> None:
        self.holds: dict[Key, Names] = {}
        self.where: dict[Key, set[Key]] = {}
        """For each name, the places that hold it: ``holds`` the other way round."""
        self.undefined: set[Key] = set()
        self.doubtful: set[Key] = set()
        self.unwritten: set[Key] = set()
        """Targets of copies that LLVM deletes (10.13), and that hold something else then."""

    def copy(self) -> Part:
        """A part of its own that says the same."""
        part = Part()
        part.holds = dict(self.holds)
        part.where = {name: set(places) for name, places in self.where.items()}
        part.undefined = set(self.undefined)
        part.doubtful = set(self.doubtful)
        part.unwritten = set(self.unwritten)
        return part

    def write(self, place: Key, names: Names) -> None:
        """The place holds exactly these."""
        self.unwritten.discard(place)
        held = self.holds.pop(place, None)
        if held is not None:
            for name in held:
                self.where[name].discard(place)
        if names:
            self.holds[place] = names
            for name in names:
                self.where.setdefault(name, set()).add(place)

    def hold(self, name: Key, place: Key) -> None:
        """The place holds the name too."""
        held = self.holds.get(place)
        self.holds[place] = frozenset((name,)) if held is None else held | {name}
        places = self.where.get(name)
        if places is None:
            self.where[name] = {place}
        else:
            places.add(place)

    def add(self, name: Key, places: Iterable[Key]) -> None:
        """These places hold the name too."""
        for place in places:
            self.hold(name, place)

    def forget(self, name: Key) -> None:
        """No place holds the name, and it is not undefined."""
        places = self.where.pop(name, None)
        if places is not None:
            for place in places:
                held = self.holds[place]
                if len(held) > 1:
                    self.holds[place] = held - {name}
                else:
                    del self.holds[place]
        self.undefined.discard(name)
        self.doubtful.discard(name)

    def undefine(self, name: Key) -> None:
        """P leaves the name undefined."""
        self.forget(name)
        self.undefined.add(name)
        self.doubtful.add(name)


class ThreadClass:
    """A class of threads (3.6): its kind, whether it is active, and its vector lanes.

    ``within`` and ``without``: the masks that it is in, and out of, one bit each. ``missed``: targets of copies that it
    waited at, as long as 10.6 asks for them. ``was_active``: whether it was, for each epoch of the block.
    """

    __slots__ = ("active", "kind", "missed", "part", "was_active", "within", "without")

    def __init__(self, kind: str, active: bool, part: Part, within: int = 0, without: int = 0) -> None:
        self.kind = kind
        self.active = active
        self.part = part
        self.within, self.without = within, without
        self.missed: set[Key] = set()
        self.was_active = [active]

    def split(self) -> ThreadClass:
        """A class of its own of which the same is known."""
        other = ThreadClass(self.kind, self.active, self.part.copy(), self.within, self.without)
        other.missed, other.was_active = set(self.missed), list(self.was_active)
        return other

    def is_in(self, mask: int) -> bool | None:
        """Whether its threads are in a mask, where that is known."""
        return True if self.within >> mask & 1 else False if self.without >> mask & 1 else None

    def put(self, mask: int, *, inside: bool) -> None:
        """Its threads are in a mask, or out of it."""
        if inside:
            self.within |= 1 << mask
        else:
            self.without |= 1 << mask


class State:
    """Scalars, classes of threads, and what is known of masks.

    Attributes:
        masks: of which mask a scalar name is which part (10.1).
        nonempty: masks that hold some thread.
        some: some thread is active (10.5).
        firsts: masks that hold the first active thread (10.7).
        first_of: scalar names that hold what the first active thread has in the vector name (10.7).
        numbers: scalar names that number an active thread (10.8).
        scc: the mask that is not empty where SCC is 1, or -1 (10.9).
        beside: masks of each of which it is known that some thread is active or in it (10.10).
        copies: target and source of the vector copies of this block whose registers were not written since (10.6).
        narrowed: targets of copies of which it is not known whether they or their sources are read.
        written: when a vector place was written in this block, counted in writes of EXEC.
        accessed: when Q last read or wrote one, counted in its steps; a COPY counts only once it is read (11.3).
        dangers: per epoch, Q's last step at which LLVM may write a register that nothing reads.
        danger_for_all: the last one that runs for all threads.
        steps: steps of Q so far.
        epoch: writes of EXEC in this block.
        given: units of scalar registers that both texts killed where P reads on (11.2).
        dying: vector places whose last read was marked, in classes that may wait soon (11.1).
        undeclared: vector registers that classes held while they waited where the block, or its part, began, which does
            not declare them, and that Q has not defined since (4.3).
        cells: cells in each register or slot of Q that has had one, by its first lane; ``name_cells``: of P.
    """

    def __init__(self, scalars: Part, classes: list[ThreadClass]) -> None:
        self.scalars, self.classes = scalars, classes
        self.masks: dict[Key, tuple[int, int]] = {}
        self.nonempty: set[int] = set()
        self.some = False
        self.firsts: set[int] = set()
        self.first_of: dict[Key, Key] = {}
        self.numbers: set[Key] = set()
        self.scc = -1
        self.beside: set[int] = set()
        self.copies: dict[Key, Key] = {}
        self.narrowed: set[Key] = set()
        self.written: dict[Key, int] = {}
        self.accessed: dict[Key, int] = {}
        self.dangers: dict[int, int] = {}
        self.danger_for_all = 0
        self.steps = 0
        self.epoch = 0
        self.given: set[int] = set()
        self.dying: set[int] = set()
        self.undeclared: set[int] = set()
        self.cells: dict[Key, set[Key]] = {}
        self.name_cells: dict[Key, set[Key]] = {}

    def running(self, *, everywhere: bool = False) -> list[ThreadClass]:
        """The classes for which a vector instruction runs: the active ones (5.4); ``everywhere``: all (7.5)."""
        return self.classes if everywhere else [c for c in self.classes if c.active]

    # Names: what P does.

    def forget_scalar(self, name: Key) -> None:
        """A scalar name is forgotten in every part, and of what it knew of masks."""
        self.scalars.forget(name)
        for cls in self.classes:
            if name in cls.part.where:
                cls.part.forget(name)
        self.masks.pop(name, None)
        self.first_of.pop(name, None)
        self.numbers.discard(name)
        if isinstance(name, int):
            self.given.discard(name)

    def _forget_vector(self, name: Key) -> None:
        """A vector name gets another value in some class: what was read off it is not that any more."""
        for scalar in [s for s, v in self.first_of.items() if v == name] if self.first_of else ():
            del self.first_of[scalar]

    def undefine(self, name: Key, vector: bool, classes: Sequence[ThreadClass]) -> None:
        """A name becomes undefined; a vector one in these classes."""
        if vector:
            self._forget_vector(name)
            for cls in classes:
                cls.part.undefine(name)
        else:
            self.forget_scalar(name)
            self.scalars.undefine(name)

    def define(self, name: Key, vector: bool, classes: Sequence[ThreadClass]) -> None:
        """A name gets a new value, which no place holds."""
        if vector:
            self._forget_vector(name)
            for cls in classes:
                cls.part.forget(name)
        else:
            self.forget_scalar(name)

    def copy_names(
        self, to: Sequence[Key], of: Sequence[Key], vector: tuple[bool, bool], classes: Sequence[ThreadClass]
    ) -> None:
        """Names become copies of others, lane by lane; ``vector``: whether the first are of vectors, and the others."""
        to_vector, of_vector = vector
        if not to_vector:
            self._copy_scalar_names(to, of)
            return
        rows: list[tuple[Part, Key, set[Key], bool, bool]] = []
        for cls in classes:
            part = cls.part
            for name, source in zip(to, of, strict=True):
                known = part if of_vector else self.scalars
                places = set(part.where.get(source, ()))
                if not of_vector:
                    places |= self.scalars.where.get(source, set())
                rows.append((part, name, places, source in known.undefined, source in known.doubtful))
        for name in to if self.first_of else ():
            self._forget_vector(name)
        for part, name, _, _, _ in rows:
            part.forget(name)
        for row in rows:
            _settle(*row)

    def _copy_scalar_names(self, to: Sequence[Key], of: Sequence[Key]) -> None:
        parts = [self.scalars, *(c.part for c in self.classes)]
        rows: list[tuple[Part, Key, set[Key], bool, bool]] = []
        masks = [self.masks.get(source) for source in of]
        numbers = {name for name, source in zip(to, of, strict=True) if source in self.numbers}
        first_of = {name: self.first_of[s] for name, s in zip(to, of, strict=True) if s in self.first_of}
        for part in parts:
            for name, source in zip(to, of, strict=True):
                undefined, doubtful = source in part.undefined, source in part.doubtful
                rows.append((part, name, set(part.where.get(source, ())), undefined, doubtful))
        for name in to:
            self.forget_scalar(name)
        for row in rows:
            _settle(*row)
        self.masks.update((name, mask) for name, mask in zip(to, masks, strict=True) if mask is not None)
        self.numbers |= numbers
        self.first_of |= first_of

    # Places: what Q does.

    def write(self, place: Key, vector: bool, names: Names, classes: Sequence[ThreadClass]) -> None:
        """A place holds these names and no others; a vector one in these classes."""
        if vector:
            self._touch(place)
            for cls in classes:
                cls.part.write(place, names)
        else:
            self._touch_scalar(place)
            self.scalars.write(place, names)
            for cls in self.classes:
                if place in cls.part.holds:
                    cls.part.write(place, NONE)

    def spoil(self, place: Key, vector: bool, classes: Sequence[ThreadClass]) -> None:
        """A place holds nothing."""
        self.write(place, vector, NONE, classes)

    def expire(self, place: Key, vector: bool, classes: Sequence[ThreadClass]) -> None:
        """A place was read for the last time: it holds nothing, and copies of it and into it go on, for nothing has
        written it (10.6, 11).
        """
        if not vector:
            self.write(place, vector, NONE, classes)
            return
        for cls in classes:
            cls.part.write(place, NONE)
            if place in self.narrowed:
                cls.part.write(_behind(place), NONE)

    def held(self, place: Key, vector: bool, cls: ThreadClass) -> Names:
        """All names that a place holds in a class: of a scalar one those of the scalar part too; of one that was
        copied while the class waits, those that its source holds as well (10.6). If nobody declares it, none in an
        active class (4.3).
        """
        if cls.active and place in self.undeclared:
            return NONE
        names, source = cls.part.holds.get(place, NONE), place
        for _ in self.copies:  # One may be the source of the next one; a register may be its own.
            if cls.active or source not in cls.missed or source not in self.copies:
                break
            source = self.copies[source]
            names &= cls.part.holds.get(source, NONE) | self.scalars.holds.get(source, NONE)
        return names if vector else names | self.scalars.holds.get(place, NONE)

    def copy_places(
        self, to: Sequence[Key], of: Sequence[Key], vector: tuple[bool, bool], classes: Sequence[ThreadClass]
    ) -> None:
        """Places become copies of others, lane by lane."""
        to_vector, of_vector = vector
        if to_vector:
            rows = [[(cls, self.held(s, of_vector, cls)) for cls in classes] for s in of]
            for place, row in zip(to, rows, strict=True):
                self._touch(place)
                for cls, names in row:
                    cls.part.write(place, names)
            return
        scalars = [self.scalars.holds.get(s, NONE) for s in of]
        others = [(cls, [cls.part.holds.get(s, NONE) for s in of]) for cls in self.classes]
        for place, names in zip(to, scalars, strict=True):
            self._touch_scalar(place)
            self.scalars.write(place, names)
        for cls, row in others:
            for place, names in zip(to, row, strict=True):
                if names or place in cls.part.holds:
                    cls.part.write(place, names)

    def held_by(self, places: Sequence[Key]) -> list[tuple[Part, Key, Names]]:
        """What places hold now, of scalars and in each class."""
        parts = [self.scalars, *(cls.part for cls in self.classes)]
        return [(part, place, part.holds.get(place, NONE)) for part in parts for place in places]

    def _touch_scalar(self, place: Key) -> None:
        """A scalar place is written: it is not what P reads on."""
        if isinstance(place, int):
            self.given.discard(place)

    def _touch(self, place: Key) -> None:
        """A vector place is written in some class: copies of and into it are over (10.6)."""
        self.written[place] = self.epoch
        if isinstance(place, int):
            self.dying.discard(place)
        if place in self.narrowed:
            for cls in self.classes:
                cls.part.write(_behind(place), NONE)
        if self.copies:
            self.copies.pop(place, None)
            for target in [t for t, s in self.copies.items() if s == place]:
                del self.copies[target]

    def remember_copy(
        self, target: Key, source: Key, before: Sequence[tuple[ThreadClass, Names]], written: int, *, again: bool
    ) -> None:
        """A vector lane was copied by Q alone (10.6).

        Args:
            before: what the target held in each class before.
            written: the epoch in which the source was written in this block, or -1.
            again: the same copy stands before, and neither register was written since: this one may be deleted.
        """
        across = 0 <= written < self.epoch
        for cls, names in before:
            if cls.kind == "P":
                continue
            if not cls.active:
                cls.missed.add(target)
            elif not again:
                cls.missed.discard(target)
            elif target in cls.missed:
                cls.part.write(target, names & cls.part.holds.get(target, NONE))
            if across and cls.active is not cls.was_active[written]:
                copied = cls.part.holds.get(target if cls.active else source, NONE)
                cls.part.write(target, names & copied)
        self.copies[target] = source

    def wake(self, cls: ThreadClass) -> None:
        """A class becomes active: what it missed may have been forwarded (10.6)."""
        for target in cls.missed:
            source = self.copies.get(target)
            if source is not None:
                names = cls.part.holds.get(target, NONE)
                self.narrowed.add(target)
                cls.part.write(_behind(target), names | cls.part.holds.get(_behind(target), NONE))
                cls.part.write(target, names & self.held(source, False, cls))

    def held_behind(self, target: Key, cls: ThreadClass) -> Names:
        """What a place holds in a class for who is behind the block (10.6)."""
        return cls.part.holds.get(target, NONE) | cls.part.holds.get(_behind(target), NONE)

    def abandon(self, places: Iterable[Key]) -> None:
        """Nothing on the path reads any more what these vector places hold: a class that waits may have lost it while
        it was active (11.3).
        """
        waiting = [cls for cls in self.classes if not cls.active]
        for place in places if self.dangers and waiting else ():
            since = self.accessed.get(place, 0)
            everyone = self.danger_for_all > since
            epochs = [epoch for epoch, step in self.dangers.items() if step > since]
            for cls in waiting if epochs else ():
                if place in cls.part.holds and (everyone or any(cls.was_active[epoch] for epoch in epochs)):
                    cls.part.write(place, NONE)

    def end_block(self, read: frozenset[int]) -> None:
        """Copies are propagated no further: what the targets hold themselves is read from now on (10.6).

        Args:
            read: but for these, which may be read near, and hold no more than what may be read for them (10.11).
        """
        for part in (self.scalars, *(cls.part for cls in self.classes)):
            for place in tuple(part.unwritten):
                part.write(place, NONE)
        for cls in self.classes if read else ():
            for target in cls.missed & self.copies.keys() & read:
                cls.part.write(target, self.held(target, True, cls))
        for target in self.narrowed:
            for cls in self.classes:
                if target not in read:
                    cls.part.write(target, self.held_behind(target, cls))
                cls.part.write(_behind(target), NONE)
        self.narrowed.clear()


def _behind(target: Key) -> Key:
    """A place for what the target of a copy holds itself, while its source may be read for it."""
    assert isinstance(target, int)
    return ("~", target, 0, 0)


def _settle(part: Part, name: Key, places: set[Key], undefined: bool, doubtful: bool) -> None:
    """What is known of a name that is a copy."""
    part.add(name, places)
    if undefined:
        part.undefined.add(name)
    if doubtful:
        part.doubtful.add(name)
