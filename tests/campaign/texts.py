"""Changes of bodies of right texts, whose sense nobody argues: the oracle of ``tests/oracle`` runs what is accepted.

Subjects are the right pairs of ``tests/cases``: loops, calls, brackets, lanes, repeats. An accepted change is a fault
where a run on concrete values, or one that believes the flags, tells it from the text before.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import lru_cache

from oracle import Oracle

from campaign.headers import subjects
from campaign.subject import Mutant, Subject
from smt_verifier.checker.tables import tables
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import target

ASK = "no run tells it from the right one"
"""Why such a mutant is equivalent, once the oracle was asked."""
_REGISTER = re.compile(r"\$[a-z][a-z0-9_]*")
_IMMEDIATE = re.compile(r"(?<=[ (])-?\d+(?=[,) ]|$)")
_FLAGGED = re.compile(r"((?:implicit |implicit-def )?)((?:dead |killed |undef |renamable )*)(\$[a-z][a-z0-9_]*)")
_RUNS = 24
_WAYS = 3
"""Registers that are tried in the place of one."""


def rows() -> list[str]:
    """Names of cases."""
    return list(subjects())


def candidates(name: str, turn: int) -> Iterator[tuple[Subject, list[Mutant]]]:
    """The case, with its mutants; none where the oracle takes issue with the right text."""
    subject = subjects()[name]
    if difference(subject, subject.after):
        yield Subject("the oracle cannot run it, or tells the right text from the one before", "", "", ""), []
        return
    yield subject, list(_mutants(subject, random.Random(f"{name} {turn}")))


def _mutants(subject: Subject, rng: random.Random) -> Iterator[Mutant]:
    lines = subject.after.split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("body:"))
    numbers = [
        n
        for n in range(start, len(lines))
        if lines[n].startswith("    ") and lines[n].strip() and ": $" not in lines[n]
    ]
    numbers = [n for n in numbers if "successors:" not in lines[n]]
    names = sorted({m[0] for n in numbers for m in _REGISTER.finditer(lines[n])})
    for n in numbers:
        line = lines[n]
        for column, new in _lines(line, names, rng):
            if new != line:
                kept = [] if new is None else [new]
                after = "\n".join([*lines[:n], *kept, *lines[n + 1 :]])
                yield Mutant(column, after, f"{line.strip()} became {(new or 'nothing').strip()}", ASK)
        for other in numbers:
            if other > n and (other == n + 1 or rng.random() < 2 / len(numbers)):
                swapped = [*lines]
                swapped[n], swapped[other] = lines[other], lines[n]
                column = "swapped with the next" if other == n + 1 else "swapped with another"
                yield Mutant(column, "\n".join(swapped), f"lines {n} and {other} swapped", ASK)


def _lines(line: str, names: list[str], rng: random.Random) -> Iterator[tuple[str, str | None]]:
    yield "dropped", None
    yield "doubled", f"{line}\n{line}"
    for match in _REGISTER.finditer(line):
        own = tables().register(match[0][1:])
        alike: list[str] = []
        others: list[str] = []
        for name in names:
            register = tables().register(name[1:])
            if own is None or register is None or name == match[0]:
                continue
            (alike if (register.file, len(register.units)) == (own.file, len(own.units)) else others).append(name)
        for column, some in (("a register like it", alike), ("a register unlike it", others)):
            for name in rng.sample(some, min(_WAYS, len(some))):
                yield column, line[: match.start()] + name + line[match.end() :]
    for match in _FLAGGED.finditer(line):
        implicit, flags, name = match.groups()
        for flag in ("dead", "killed", "undef"):
            words = [w for w in flags.split() if w != flag]
            if f"{flag} " not in flags:
                words.append(flag)
            words.sort(key=("dead", "killed", "undef", "renamable").index)
            yield f"flag {flag}", line[: match.start()] + implicit + " ".join([*words, name]) + line[match.end() :]
    for match in _IMMEDIATE.finditer(line):
        for value in (int(match[0]) + 1, int(match[0]) + 4, -1):
            yield "immediate", line[: match.start()] + str(value) + line[match.end() :]


@lru_cache(maxsize=4)
def _oracle(before: str, function: str, processor: str) -> Oracle | None:
    try:
        file = parse_mir(before)
        pre = next(f for f in file.functions if f.name == function)
        known = target(processor)
        return Oracle(pre, known.wave_size, allocatable(pre, file.preamble, known).reserved_units)
    except VeriloccError:
        return None


def difference(subject: Subject, after: str) -> str:
    """What a run shows of a text; ``""``: no difference; ``"?"``: the oracle cannot run it."""
    oracle = _oracle(subject.before, subject.function, subject.processor)
    try:
        post = next(f for f in parse_mir(after).functions if f.name == subject.function)
    except VeriloccError:
        return "?"
    if oracle is None:
        return "?"
    for flags in (False, True):
        answer = oracle.compare(post, _RUNS, 1, flags=flags)
        if not answer.supported:
            return "?"
        if answer.differs and not (flags and _own_flags_tell(subject)) and not _undefined(subject, answer.where):
            return answer.where
    return ""


def _undefined(subject: Subject, where: str) -> bool:
    """Whether the oracle misses the read of a register that nothing but IMPLICIT_DEF writes: it need not be read."""
    name, missed, _ = where.partition(" is no longer read")
    writes = [
        line
        for line in subject.before.split("\n")
        if re.search(rf"(?:\A *|-def ){re.escape(name)}\b.* = |-def {re.escape(name)}\b", line)
    ]
    return bool(missed) and bool(writes) and all("IMPLICIT_DEF" in line for line in writes)


@lru_cache(maxsize=4)
def _own_flags_tell(subject: Subject) -> bool:
    """Whether runs that believe flags tell even the right text from the one before: then they show nothing."""
    oracle = _oracle(subject.before, subject.function, subject.processor)
    post = next(f for f in parse_mir(subject.after).functions if f.name == subject.function)
    return oracle is None or oracle.compare(post, _RUNS, 1, flags=True).differs
