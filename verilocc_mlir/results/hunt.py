"""What a hunt has seen, as frozen data: a row for each case, groups of what was not proved, and a reduced example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from verilocc_mlir.errors import ExitCode
from verilocc_mlir.toolchain.drivers.job import RegAlloc

HUNT_VERSION = 1
"""Version of the journal's lines and of ``hunt.json``."""


class Kind(Enum):
    """What is wrong with one phase of a case.

    ``REFUTED``: LLVM's allocation, by the audit. ``REJECTED``: LLVM's own text, by LLVM, as it is read again.
    ``CRASH``: LLVM ended. ``GAVE_UP``: LLVM says that registers do not suffice, which under a small budget is no fault.
    ``UNKNOWN``: the audit cannot tell, or time was over. ``UNUSABLE``: the input or an option is not for this LLVM.
    """

    REFUTED = "refuted"
    REJECTED = "rejected"
    CRASH = "crash"
    GAVE_UP = "gave-up"
    UNKNOWN = "unknown"
    UNUSABLE = "unusable"


FAULTS = (Kind.REFUTED, Kind.REJECTED, Kind.CRASH)
"""Kinds that are grouped and reduced; the others are counted by reason."""


class Variant(Struct, frozen=True):
    """How LLVM is asked to allocate.

    Attributes:
        options: further options of LLVM.
        attributes: string attributes that every function gets: register budgets.
    """

    name: str
    options: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    regalloc: RegAlloc = "greedy"

    @property
    def size(self) -> int:
        """How far it is from the default."""
        return len(self.options) + len(self.attributes) + (self.regalloc != "greedy")


class Case(Struct, frozen=True):
    """One input under one variant, for one processor."""

    path: str
    cpu: str
    variant: Variant

    @property
    def name(self) -> str:
        return f"{self.path} {self.cpu} {self.variant.name}"


class Suspect(Struct, frozen=True):
    """What is wrong with one phase.

    Attributes:
        cause: the rule or LLVM's words, and the shape of the instruction; no names and numbers of one kernel.
        function: ``""`` where LLVM does not say it.
        message: the first finding, or LLVM's line.
    """

    kind: Kind
    phase: str
    cause: str
    function: str = ""
    message: str = ""


class Row(Struct, frozen=True):
    """One case that was tried.

    Attributes:
        key: says when it need not be tried again.
        lines: of the text before the first phase.
        phases: how many were audited, and how many of them are proved.
    """

    key: str
    case: Case
    lines: int = 0
    phases: int = 0
    proved: int = 0
    suspects: tuple[Suspect, ...] = ()
    cpu_seconds: float = 0.0


class Group(Struct, frozen=True):
    """Suspects of one cause; ``example`` is the smallest row of them."""

    kind: Kind
    regalloc: RegAlloc
    cause: str
    example: Row
    suspect: Suspect
    cases: int
    variants: tuple[tuple[str, int], ...]
    targets: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        return f"{self.kind.value} {self.regalloc} {self.cause}"


class Reduced(Struct, frozen=True):
    """The example of a group, made small.

    Attributes:
        given: the text before the phase; ``printed``: the same as LLVM prints it, which is what is audited.
        after: what LLVM makes of it, ``""`` where it makes nothing.
        original: the text before the phase as it was, ``original_after`` likewise.
        variant: the smallest that still brings it.
        command: of llc, on the reduced text; ``""`` with another tool chain.
        verifier: what LLVM's ``-verify-machineinstrs`` says of the allocation; ``""`` where it sees nothing.
        plainly: what a compile of the input in one go shows, nothing stopped or resumed.
        report: the audit's words about the reduced text, or LLVM's.
        steps: texts that were tried.
    """

    given: str
    printed: str
    after: str
    original: str
    original_after: str
    variant: Variant
    command: str
    verifier: str
    plainly: str
    report: str
    steps: int
    cpu_seconds: float


class HuntReport(Struct, frozen=True):
    """One hunt so far."""

    version: str
    llvm: str
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    waiting: int = 0

    def counts(self) -> dict[str, Any]:
        """Sums over the rows."""
        reasons = Counter(f"{s.kind.value}: {s.cause}" for r in self.rows for s in r.suspects if s.kind not in FAULTS)
        return {
            "cases": len(self.rows),
            "inputs": len({row.case.path for row in self.rows}),
            "phases": sum(row.phases for row in self.rows),
            "proved": sum(row.proved for row in self.rows),
            "cpu_hours": round(sum(row.cpu_seconds for row in self.rows) / 3600, 2),
            "by_kind": dict(Counter(s.kind.value for r in self.rows for s in r.suspects)),
            "by_reason": dict(reasons.most_common()),
        }

    @property
    def exit_code(self) -> ExitCode:
        """1 where an allocation is wrong, 2 where no input is usable, 3 where something is undecided."""
        kinds = {s.kind for row in self.rows for s in row.suspects}
        if kinds & {Kind.REFUTED, Kind.REJECTED}:
            return ExitCode.REFUTED
        if not any(row.phases for row in self.rows):
            return ExitCode.BAD_INPUT
        return ExitCode.UNKNOWN if kinds & {Kind.CRASH, Kind.UNKNOWN} else ExitCode.PROVED


def group(rows: Iterable[Row]) -> tuple[Group, ...]:
    """Faults by kind, allocator and cause, the graver and the more frequent first."""
    members: dict[tuple[Kind, RegAlloc, str], list[tuple[Row, Suspect]]] = {}
    for row in rows:
        seen: set[tuple[Kind, RegAlloc, str]] = set()
        for suspect in row.suspects:
            key = (suspect.kind, row.case.variant.regalloc, suspect.cause)
            if suspect.kind in FAULTS and key not in seen:
                seen.add(key)
                members.setdefault(key, []).append((row, suspect))
    groups = [_group(*key, pairs) for key, pairs in members.items()]
    return tuple(sorted(groups, key=lambda g: (FAULTS.index(g.kind), -g.cases, g.key)))


def _group(kind: Kind, regalloc: RegAlloc, cause: str, pairs: list[tuple[Row, Suspect]]) -> Group:
    example, suspect = min(pairs, key=lambda pair: (pair[0].case.variant.size, pair[0].lines, pair[0].case.name))
    variants = Counter(row.case.variant.name for row, _ in pairs)
    targets = Counter(row.case.cpu for row, _ in pairs)
    return Group(
        kind, regalloc, cause, example, suspect, len(pairs), tuple(variants.most_common()), tuple(targets.most_common())
    )


def data_of(value: object) -> Any:
    """Any of these as JSON values."""
    return msgspec.to_builtins(value)


def row_from_data(data: object) -> Row:
    """What ``data_of`` made of a row.

    Raises:
        ValueError: it is none.
    """
    return msgspec.convert(data, Row)
