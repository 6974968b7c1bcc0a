"""Where the two values of a failed goal came from, read off an executed path and worded for a compiler engineer."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from smt_verifier.audit.core.lanes import CELL, STACK, key_name, other_half
from smt_verifier.audit.core.report import Fact, Site, Value
from smt_verifier.audit.core.state import UNDEFINED
from smt_verifier.audit.effects import Effects
from smt_verifier.audit.journal import Failure, PathRun

_MAX_MOVES = 12
_MAX_PLACES = 4

Cause = tuple[str, int, int]
"""What made a value wrong: the kind, the ``id`` of the instruction to look at, and the place for a missing move."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Why one lane of one operand is wrong.

    Attributes:
        found: the value that is there; None where the operand says that it reads nothing.
        lost: where they parted.
        cause: equal for failures that one change of the text would mend, as far as can be told.
        first: the event from which on the path matters.
        brief_expected: the expected value in a few words.
        brief_found: likewise the one found.
    """

    expected: Value
    found: Value | None
    lost: Fact | None
    cause: Cause
    first: int
    brief_expected: str
    brief_found: str


@dataclass(frozen=True, slots=True)
class _Chain:
    """Moves of one value back to what made it, latest first.

    ``places`` has each place with the event before which it was read, ``moves`` each place moved to with the event.
    """

    value: Value
    places: tuple[tuple[int, int], ...]
    moves: tuple[tuple[int, int], ...]
    event: int
    brief: str


class Tracer:
    """Reads one executed path."""

    def __init__(self, run: PathRun, effects: Effects) -> None:
        self.run = run
        self.effects = effects
        self.product = run.product
        self._failing = {(f.event, f.goal.pre_key, f.goal.post_key) for f in run.failures}

    def grain(self, failure: Failure) -> int:
        """16-bit lanes a place is named by: whole 32-bit registers where both halves fail together."""
        goal, grain = failure.goal, self.product.pre_lanes.grain
        other = (failure.event, other_half(goal.pre_key), other_half(goal.post_key))
        return 2 if other in self._failing else grain

    def origins(self, failure: Failure) -> Origins:
        goal = failure.goal
        expected = self._chain("pre", goal.pre_key, failure)
        birth = max(self.run.event_of(goal.pre), -1)
        value = Value(
            expected.value.place, (*expected.value.facts[:1], *self._post_definition(birth), *expected.value.facts[1:])
        )
        if goal.post < 0:
            cause: Cause = (goal.rule, id(goal.step), goal.post_key)
            return Origins(value, None, None, cause, birth, expected.brief, "")
        actual = self._chain("post", goal.post_key, failure)
        lost, cause = self._where_lost(failure, actual, birth)
        verb = "still holds " if 0 <= actual.event < birth else "holds "
        pre_lane = self._pre_lane(actual, self.grain(failure))
        pre_lane_fact = (Fact(f"that is the value of {pre_lane} before allocation"),) if pre_lane else ()
        wrong = replace(actual.value, facts=(*actual.value.facts, *pre_lane_fact))
        brief = f"{pre_lane}, {actual.brief}" if pre_lane else actual.brief
        return Origins(value, wrong, lost, cause, birth, expected.brief, verb + brief)

    def _pre_lane(self, actual: _Chain, grain: int) -> str:
        """The lane of a virtual register that got the value found, where it was made; ``""`` if there is none."""
        if actual.event < 0:
            return ""
        effect = self.effects.of(self.run.events[actual.event][1])
        write = effect.written("post", actual.places[-1][0])
        if write is None or write.result is None:
            return ""
        names = (k for k, w in effect.pre.items() if k >= 0 and w.result == write.result)
        return next((key_name(k, grain) for k in names), "")

    def holders(self, failure: Failure) -> tuple[str, ...]:
        """Places of the post-RA side that hold the expected value where the operand is read."""
        goal, names = failure.goal, list[str]()
        for table in {id(t): t for t in (self.run.scalar["post"], failure.vector.get("post"))}.values():
            for key in sorted(table or (), reverse=True):
                if table is None or table is not self.run.table("post", key, failure):
                    continue
                writes = table.writes(key, failure.event)
                if writes and key != goal.post_key and self.run.same(writes[-1][1], goal.pre):
                    names.append(key_name(key, self.grain(failure)))
        return tuple(dict.fromkeys(names))[:_MAX_PLACES]

    def site(self, event: int, side: str) -> Site | None:
        """The instruction of one side that an event executes."""
        visit, step = self.run.events[event]
        instruction = step.pre if side == "pre" else step.post
        if instruction is None:
            return None
        block = self.run.path[visit]
        function = self.product.pre if side == "pre" else self.product.post
        return Site(
            side, block, f"bb.{function.blocks[block].number}", instruction.line, str(instruction).partition(" :: ")[0]
        )

    def _post_definition(self, birth: int) -> tuple[Fact, ...]:
        """Where the post-RA side put the value when it was made."""
        site = self.site(birth, "post") if birth >= 0 else None
        return () if site is None else (Fact("made after allocation by", site),)

    def _chain(self, side: str, key: int, failure: Failure) -> _Chain:
        facts: list[Fact] = []
        places: list[tuple[int, int]] = []
        moves: list[tuple[int, int]] = []
        before, brief = failure.event, "a value moved too often to follow"
        event = before
        grain = self.grain(failure)
        name = start = key_name(key, grain)
        for _ in range(_MAX_MOVES):
            name = key_name(key, grain)
            places.append((key, before))
            writes = self.run.table(side, key, failure).writes(key, before)
            event, term = writes[-1] if writes else (-1, -1)
            if event < 0:
                fact, brief = self._unwritten(side, key, before, failure, at_entry=term > UNDEFINED)
                facts.append(fact)
                break
            site = self.site(event, side)
            write = self.effects.of(self.run.events[event][1]).written(side, key)
            if write is None or site is None:
                event, brief = -1, "nothing that this path wrote"
                facts.append(Fact(f"nothing on this path writes {name}"))
                break
            if write.source is None:
                opcode = site.text.partition(" = ")[2] or site.text
                brief = f"what {_opcode(opcode)} wrote ({site.label}, {side} line {site.line})"
                facts.append(Fact(f"{name} {'is left undefined' if write.undefined else 'is written'} by", site))
                break
            source = key_name(write.source, grain)
            facts.append(Fact(f"{name} gets {source} by", site))
            moves.append((key, event))
            key, before = write.source, event
        return _Chain(Value(start, tuple(reversed(facts))), tuple(places), tuple(moves), event, brief)

    def _unwritten(self, side: str, key: int, before: int, failure: Failure, *, at_entry: bool) -> tuple[Fact, str]:
        """Why a place holds what it held at function entry (``at_entry``), or nothing, with a brief form."""
        name = key_name(key, self.grain(failure))
        masked_event = self._masked_write(key, before, failure) if side == "post" else None
        if masked_event is not None:
            site = self.site(masked_event, "post")
            verb = "stored" if STACK <= key < CELL else "written"
            place = f"{site.label}, post line {site.line}" if site else ""
            brief = f"what {name} held before it was {verb} under a narrower EXEC ({place})"
            return Fact(f"{name} is {verb} under a narrower EXEC only, by", site), brief
        if at_entry:
            return Fact(f"{name} at function entry"), f"the value of {name} at function entry"
        elsewhere = self._move_elsewhere(key) if side == "post" else None
        nothing = f"nothing on this path writes {name}"
        fact = Fact(nothing) if elsewhere is None else Fact(f"{nothing}; another path does, by", elsewhere)
        return fact, "nothing that this path wrote"

    def _where_lost(self, failure: Failure, actual: _Chain, birth: int) -> tuple[Fact | None, Cause]:
        """Where the expected value got lost: overwritten, written for other threads only, or never moved."""
        goal = failure.goal
        grain = self.grain(failure)
        if actual.event < 0 and (masked_event := self._masked_write(*actual.places[-1], failure)) is not None:
            return self._masked_out(actual.places[-1][0], masked_event, grain)
        for key, before in self._suspects(actual, birth):
            writes = self.run.table("post", key, failure).writes(key, before)
            holding = [n for n, (_, term) in enumerate(writes) if self.run.same(term, goal.pre)]
            if holding and holding[-1] + 1 < len(writes):
                event = writes[holding[-1] + 1][0]
                text = f"{key_name(key, grain)} held it until overwritten by"
                return Fact(text, self.site(event, "post")), ("overwritten", self._step(event), 0)
        for key, before in actual.places:
            masked_event = self._masked_write(key, before, failure)
            if masked_event is not None:
                return self._masked_out(key, masked_event, grain)
        place = key_name(goal.post_key, grain)
        later_moves = [(to, event) for to, event in actual.moves if event > birth]
        if later_moves:
            to, event = later_moves[-1]
            text = f"{key_name(to, grain)} gets that other value by"
            return Fact(text, self.site(event, "post")), ("moved", self._step(event), 0)
        cause: Cause = ("missing", self._step(birth), goal.post_key)
        elsewhere = self._move_elsewhere(goal.post_key)
        if elsewhere is not None:
            return Fact(f"nothing on this path moves it to {place} after that; another path does by", elsewhere), cause
        return Fact(f"nothing moves it to {place} between there and here"), cause

    def _masked_out(self, key: int, masked_event: int, grain: int) -> tuple[Fact, Cause]:
        """A place is written, but not for the threads that fail."""
        text = f"{key_name(key, grain)} is written for the threads active there only, by"
        return Fact(text, self.site(masked_event, "post")), ("exec", self._step(masked_event), 0)

    def _move_elsewhere(self, key: int) -> Site | None:
        """A move to a place in a block that is not on the path."""
        for block, steps in enumerate(self.product.steps):
            for step in steps if block not in self.run.path else ():
                write = self.effects.of(step).written("post", key)
                if write is not None and write.source is not None and step.post is not None:
                    label = f"bb.{self.product.post.blocks[block].number}"
                    return Site("post", block, label, step.post.line, str(step.post))
        return None

    @staticmethod
    def _suspects(actual: _Chain, birth: int) -> list[tuple[int, int]]:
        """Places that may have held the value: where the value found was made, and where it entered after that."""
        later_moves = [(to, event + 1) for to, event in actual.moves if event > birth]
        return [actual.places[-1], *later_moves[-1:]]

    def _masked_write(self, key: int, before: int, failure: Failure) -> int | None:
        """An event that writes a place, but not for the threads of the failure."""
        writes = self.run.table("post", key, failure).writes(key, before)
        last = writes[-1][0] if writes else -1
        for event in range(before - 1, last, -1):
            write = self.effects.of(self.run.events[event][1]).written("post", key)
            if write is not None and write.masked:
                return event
        return None

    def _step(self, event: int) -> int:
        return id(self.run.events[event][1]) if event >= 0 else -1


def _opcode(text: str) -> str:
    """The opcode in an instruction's text without its definitions: the first word in capitals."""
    return next((w for w in text.replace(",", " ").split() if w[0].isupper()), text)
