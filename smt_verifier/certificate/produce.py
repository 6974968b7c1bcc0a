"""The search for a certificate that the checker accepts.

Pure instructions that look alike may have been paired in the wrong order. Where a value does not agree, those that
define it, and those like them, lose their partners: the text after allocation then repeats them, which shows by itself
what each result is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from smt_verifier.certificate.infer import make_certificate
from smt_verifier.certificate.pairing import operation
from smt_verifier.checker.certificate import Certificate, Key
from smt_verifier.checker.check import Accepted, check_function, entry_state, initial_state, run_step, steps_of
from smt_verifier.checker.effects import Both, Place
from smt_verifier.checker.execute import Execution
from smt_verifier.checker.model import Instruction
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.purity import is_dropped, is_pure
from smt_verifier.checker.state import State, ThreadClass

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate, and what the checker says of it; ``refused`` is None where it accepts."""

    certificate: Certificate
    accepted: Accepted | None
    refused: Refused | None


def certify(both: Both) -> Certified:
    """The first certificate that is accepted, else the first one of all.

    Classes of threads are joined first, which keeps them few, and instructions pair by their readers. Where that is not
    enough, classes are split by what decides whom a mask wakes, instructions pair in order, or classes are told apart
    by every mask: pairing last, if all that is wrong is of threads that may wait, and nothing on the path.

    Raises:
        Refused: there is no certificate to be had, whatever is paired.
    """
    first: Certified | Refused | None = None
    strategies = [_Strategy(), _Strategy(waking_splits=True), _Strategy(in_order=True), _Strategy(joined=False)]
    while strategies:
        strategy = strategies.pop(0)
        try:
            outcome = _certify(both, strategy)
        except _OfThreads as failure:
            strategies.sort(key=lambda left: left.in_order)
            outcome = failure.certified
        except Refused as error:
            outcome = error.with_traceback(None)
        if isinstance(outcome, Certified) and outcome.accepted is not None:
            return outcome
        first = first if isinstance(first, Certified) else first or outcome
    assert first is not None
    if isinstance(first, Refused):
        raise first
    return first


@dataclass(frozen=True, slots=True)
class _Strategy:
    """How classes of threads are joined, and whether instructions pair in order: see ``make_certificate``."""

    joined: bool = True
    waking_splits: bool = False
    in_order: bool = False


class _OfThreads(Exception):
    """A certificate of joined classes in which nothing is wrong on the path."""

    def __init__(self, certified: Certified) -> None:
        super().__init__()
        self.certified = certified


def _certify(both: Both, strategy: _Strategy) -> Certified:
    """By one strategy: the first certificate that is accepted, else the first one.

    Raises:
        Refused: there is none. _OfThreads: another strategy may do better.
    """
    make = partial(
        make_certificate,
        both,
        joined=strategy.joined,
        waking_splits=strategy.waking_splits,
        in_order=strategy.in_order,
    )
    try:
        certificate = make(hasty=True)
        return Certified(certificate, check_function(both, certificate), None)
    except Refused:
        pass  # Why, is to be seen where nothing is left out.
    unpaired: set[Place] = set()
    first: Certified | None = None
    witnesses = False
    for _ in range(_ATTEMPTS):
        try:
            certificate = make(unpaired, witnesses=witnesses)
        except Refused as error:
            if error.rule != "inactive-lanes" or witnesses:
                raise
            witnesses = True
            continue
        try:
            return Certified(certificate, check_function(both, certificate), None)
        except Refused as error:
            # Without its frames, which hold what was compared.
            first = first or Certified(certificate, None, error.with_traceback(None))
        suspects, on_path = _suspects(both, certificate)
        if strategy.joined and not unpaired and not on_path:
            raise _OfThreads(first)
        if suspects <= unpaired:
            break
        unpaired |= suspects
    assert first is not None
    return first


class _Probe(Execution):
    """Executes on where a value does not agree, and notes the instruction and the name; ``on_path``: whether it is the
    path's value, or a scalar.
    """

    at = 0
    on_path = False
    wrong: set[tuple[int, Key]]

    def read(
        self, name: Key, place: int, classes: Sequence[ThreadClass], b: Instruction, *, undef: bool, early: bool
    ) -> None:
        try:
            super().read(name, place, classes, b, undef=undef, early=early)
        except Refused:
            self.wrong.add((self.at, name))
            try:
                path = [cls for cls in classes if cls.kind == "P"]
                super().read(name, place, path, b, undef=undef, early=early)
            except Refused:
                self.on_path = True


def _suspects(both: Both, certificate: Certificate) -> tuple[set[Place], bool]:
    """Pure instructions of P that may be paired with the wrong one, and whether something is wrong on the path."""
    on_path = False
    operations: set[object] = set()
    wrong_names: set[Key] = set()
    for number, block in enumerate(certificate.blocks):
        if number and block.entry is None:
            continue
        try:
            probe = _wrong_reads(both, certificate, number)
        except Refused:
            continue
        on_path |= probe.on_path
        code = both.before.code(number)
        for at, name in probe.wrong:
            wrong_names.add(name)
            if at >= 0 and is_pure(code[at], both.forms.opcode(code[at]), both.before):
                operations.add(operation(code[at], both, after=False))
    found: set[Place] = set()
    rows = [
        ((block, number), i)
        for block in range(len(both.before.parts))
        for number, i in enumerate(both.before.code(block))
    ]
    for _, i in rows:
        defined = {k for o in i.operands if o.is_def and o.is_register for k in both.before.keys(o, i)}
        if not defined.isdisjoint(wrong_names) and is_pure(i, both.forms.opcode(i), both.before):
            operations.add(operation(i, both, after=False))
    for place, i in rows:
        dropped = is_dropped(i, both.forms.opcode(i), both.before, is_counted=both.is_counted)
        if dropped and operation(i, both, after=False) in operations:
            found.add(place)
    return found, on_path


def _wrong_reads(both: Both, certificate: Certificate, number: int) -> _Probe:
    """Reads of a block that do not agree: the instruction of P (-1: none), and the name."""
    block = certificate.blocks[number]
    state: State
    state, taken = entry_state(both, block.entry, number) if block.entry else (initial_state(both), 0)
    probe = _Probe(both, state, number, block.splits, taken)
    probe.wrong = set()
    for step in steps_of(both, number, block):
        probe.at = step[0][0] if step[0] is not None else -1
        run_step(probe, step, block)
    return probe
