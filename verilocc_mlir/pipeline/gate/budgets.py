"""Budgets of kernels: what each may take, whatever it took before. A file of lines, each with a glob and its limits.

    # kernels of attention, on two targets
    attn_*            vgprs<=128 vgpr_spills<=0 waves>=4
    gemm_*@gfx942     agprs<=128 proved

Every line whose glob is that of a kernel counts. The glob is of the symbol or of the name in the source language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError
from verilocc_mlir.results.gate import FIGURES, LEAST, Change, Kernel

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
