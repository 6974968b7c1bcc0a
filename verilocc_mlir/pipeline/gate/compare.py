"""Kernels of now against those of a baseline: who is who, and what is worse by more than is tolerated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError
from verilocc_mlir.results.gate import FIGURES, LEAST, Change, Compared, Kernel, Status

_RANK = {Outcome.PROVED: 0, Outcome.UNKNOWN: 1, None: 1, Outcome.INVALID: 2, Outcome.REFUTED: 2}
"""A verdict is worse than one of a lower rank."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much worse a figure may be: ``amount`` of its unit, or of a hundredth of the baseline's figure."""

    amount: float = 0.0
    percent: bool = False

    def allows(self, before: int, worse_by: int) -> bool:
        return worse_by <= (before * self.amount / 100 if self.percent else self.amount)


def read_tolerances(text: str) -> dict[str, Tolerance]:
    """``vgprs=2,sgprs=5%,agprs=any`` by figure.

    Raises:
        InputError: another form, or no such figure.
    """
    tolerances: dict[str, Tolerance] = {}
    for word in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\w+)=(?:(any)|(\d+(?:\.\d+)?)(%?))\s*", word)
        if match is None or match[1] not in FIGURES:
            raise InputError(
                f"{word!r} is no tolerance",
                hint=f"FIGURE=NUMBER, FIGURE=NUMBER% or FIGURE=any, FIGURE one of {', '.join(FIGURES)}",
            )
        tolerances[match[1]] = Tolerance(inf if match[2] else float(match[3]), match[4] == "%")
    return tolerances


def compare(
    baseline: Iterable[Kernel] | None,
    current: Iterable[Kernel],
    tolerances: Mapping[str, Tolerance],
    budgets: Sequence[Budget] = (),
) -> tuple[Compared, ...]:
    """Every kernel of either side, gravest first.

    Args:
        baseline: None where budgets alone count.
    """
    groups: dict[tuple[str, str], tuple[list[Kernel], list[Kernel]]] = {}
    for side, kernels in enumerate((baseline or (), current)):
        for kernel in kernels:
            groups.setdefault((kernel.name, kernel.target), ([], []))[side].append(kernel)
    rows = [
        Compared(before, now, (*_changes(before, now, tolerances), *_of(now, budgets)), alone=baseline is None)
        for old, new in groups.values()
        for before, now in _pairs(old, new)
    ]
    order = list(Status)
    return tuple(sorted(rows, key=lambda row: (order.index(row.status), row.kernel.name, row.kernel.target)))


def _pairs(old: list[Kernel], new: list[Kernel]) -> list[tuple[Kernel | None, Kernel | None]]:
    """Kernels of one name and target, the most alike with each other; None where one is left over.

    Triton compiles a kernel once for each set of constants, and nothing in the code says which is which.
    """
    by_likeness = sorted((_unlike(a, b), i, j) for i, a in enumerate(old) for j, b in enumerate(new))
    old_free, new_free = dict(enumerate(old)), dict(enumerate(new))
    pairs: list[tuple[Kernel | None, Kernel | None]] = []
    for _, i, j in by_likeness:
        if i in old_free and j in new_free:
            pairs.append((old_free.pop(i), new_free.pop(j)))
    return [*pairs, *((a, None) for a in old_free.values()), *((None, b) for b in new_free.values())]


def _unlike(a: Kernel, b: Kernel) -> tuple[bool, int, int]:
    differing = sum(getattr(a, figure) != getattr(b, figure) for figure in FIGURES)
    return a.work_items != b.work_items, differing, abs(a.vgprs - b.vgprs)


def _of(now: Kernel | None, budgets: Sequence[Budget]) -> list[Change]:
    """What is wrong with a kernel by itself."""
    if now is None:
        return []
    changes = exceeded(budgets, now)
    if now.undeclared:
        changes.append(Change("declared", "declared", now.undeclared, worse=True, beyond=True))
    return changes


def _changes(before: Kernel | None, now: Kernel | None, tolerances: Mapping[str, Tolerance]) -> tuple[Change, ...]:
    if before is None or now is None:
        return ()
    changes: list[Change] = []
    for figure in FIGURES:
        was, is_now = getattr(before, figure), getattr(now, figure)
        if was is None or is_now is None or was == is_now:
            continue
        worse_by = was - is_now if figure in LEAST else is_now - was
        beyond = worse_by > 0 and not tolerances.get(figure, Tolerance()).allows(was, worse_by)
        changes.append(Change(figure, str(was), str(is_now), worse_by > 0, beyond))
    if _RANK[before.verdict] != _RANK[now.verdict]:
        worse = _RANK[now.verdict] > _RANK[before.verdict]
        was, is_now = ("not stated" if kernel.verdict is None else str(kernel.verdict) for kernel in (before, now))
        changes.append(Change("verdict", was, is_now, worse, worse))
    return tuple(changes)


# Budgets of kernels: what each may take, whatever it took before. A file of lines, each with a glob and its limits.
#
#     # kernels of attention, on two targets
#     attn_*            vgprs<=128 vgpr_spills<=0 waves>=4
#     gemm_*@gfx942     agprs<=128 proved
#
# Every line whose glob is that of a kernel counts. The glob is of the symbol or of the name in the source language.


_LIMIT = re.compile(r"(?P<figure>\w+)(?P<sign><=|>=)(?P<number>\d+)")
_PROVED = "proved"


@dataclass(frozen=True, slots=True)
class Budget:
    """One line of the file.

    Attributes:
        glob: of names of kernels; ``target``: the one that it is for, ``""`` for all.
        limits: by figure, the most of it, or of ``waves`` the least.
        proved: the allocation must be proved.
        where: file and line.
    """

    glob: str
    target: str
    limits: tuple[tuple[str, int], ...]
    proved: bool
    where: str

    def is_of(self, kernel: Kernel) -> bool:
        names = {kernel.name, kernel.demangled}
        return self.target in ("", kernel.target) and any(fnmatchcase(name, self.glob) for name in names)

    def exceeded(self, kernel: Kernel) -> list[Change]:
        """In what the kernel takes more; a figure that is not known is none that is kept."""
        changes: list[Change] = []
        for figure, limit in self.limits:
            now: int | None = getattr(kernel, figure)
            allowed = f"{'at least' if figure in LEAST else 'at most'} {limit}"
            if now is None:
                changes.append(Change(figure, allowed, "not known", worse=True, beyond=True, budget=True))
            elif now < limit if figure in LEAST else now > limit:
                changes.append(Change(figure, allowed, str(now), worse=True, beyond=True, budget=True))
        if self.proved and kernel.verdict is not Outcome.PROVED:
            now_said = "not stated" if kernel.verdict is None else str(kernel.verdict)
            changes.append(Change("verdict", _PROVED, now_said, worse=True, beyond=True, budget=True))
        return changes


def read_budgets(text: str, path: str) -> tuple[Budget, ...]:
    """The lines of a file.

    Raises:
        InputError: a line of another form, no such figure, or no line.
    """
    budgets = [
        _read(line, f"{path}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not budgets:
        raise InputError("there is no budget in it", where=path, hint="GLOB FIGURE<=NUMBER …, a line each")
    return tuple(budgets)


def _read(line: str, where: str) -> Budget:
    name, *words = line.split()
    glob, _, target = name.partition("@")
    limits: list[tuple[str, int]] = []
    for word in words:
        match = _LIMIT.fullmatch(word)
        fits = (
            match is not None and match["figure"] in FIGURES and (match["figure"] in LEAST) == (match["sign"] == ">=")
        )
        if match is not None and fits:
            limits.append((match["figure"], int(match["number"])))
        elif word != _PROVED:
            most = ", ".join(figure for figure in FIGURES if figure not in LEAST)
            hint = f"FIGURE<=NUMBER for {most}; {', '.join(f'{f}>=NUMBER' for f in LEAST)}; {_PROVED}"
            raise InputError(f"{word!r} is no limit", where=where, hint=hint)
    if not words:
        raise InputError(f"{name} has no limit", where=where, hint="for example vgprs<=128 waves>=4")
    return Budget(glob, target, tuple(limits), _PROVED in words, where)


def exceeded(budgets: Sequence[Budget], kernel: Kernel) -> list[Change]:
    """In what a kernel takes more than any line allows, each figure once."""
    changes = [change for budget in budgets if budget.is_of(kernel) for change in budget.exceeded(kernel)]
    return list({(change.figure, change.before): change for change in changes}.values())


def of_no_kernel(budgets: Sequence[Budget], kernels: Iterable[Kernel]) -> list[str]:
    """A line for each budget that no kernel has."""
    known = list(kernels)
    return [
        f"{budget.where}: no kernel is called {budget.glob}{f' for {budget.target}' * bool(budget.target)}"
        for budget in budgets
        if not any(map(budget.is_of, known))
    ]
