"""A verifier's verdicts on earlier answers, as facts for the next answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verilocc_mlir.allocators.protocol import Refutation
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import physical_register
from verilocc_model.encoding.canonical import Canonical
from verilocc_model.encoding.placing import Advice
from verilocc_model.encoding.table import Table


@dataclass(frozen=True)
class Guidance:
    """Facts for ``Episode``: the advice for each canonical range id, and the grants of the refuted proposals."""

    advice: Mapping[int, Advice] = field(default_factory=dict)
    grants: tuple[int, ...] = ()


def guidance_of(refuted: Sequence[Refutation], form: Canonical, table: Table) -> Guidance:
    """Refuted proposals as the facts that an episode states, about single ranges and about register totals."""
    new = {old: k for k, old in enumerate(form.original)}
    cells: dict[int, list[int]] = {}
    free: dict[int, list[int]] = {}
    for example in (c for r in refuted for c in r.counterexamples):
        if not example.ranges:
            continue
        number = new[example.ranges[0]]
        cells.setdefault(number, []).extend(_cells(table, example.registers[:1]))
        free.setdefault(number, []).extend(_cells(table, example.free))
    advice = {n: Advice(tuple(dict.fromkeys(cells[n])), tuple(dict.fromkeys(free.get(n, ())))) for n in cells}
    return Guidance(advice, tuple(_grant(table, r.proposal.registers) for r in refuted))


def _grant(table: Table, registers: Sequence[str]) -> int:
    """The smallest grant, as an index, that holds all registers of a proposal."""
    highest = {"sgpr": 0, "vgpr": 0, "agpr": 0}
    for cell in (c for name in registers for c in _cells_of(table, name)[-1:]):
        bank, number = table.cells.register_of(cell)
        if cell < table.cells.stop[bank]:
            highest[bank] = max(highest[bank], number + 1)
    total = table.cost.registers(highest)
    return next((k for k, grant in enumerate(table.grants) if grant >= total), len(table.grants) - 1)


def _cells(table: Table, registers: tuple[str, ...]) -> list[int]:
    """First cells of registers; registers that the problem does not have are left out."""
    return [cell for name in registers for cell in _cells_of(table, name)[:1]]


def _cells_of(table: Table, name: str) -> tuple[int, ...]:
    """All cells of a register; none where the problem has no such register."""
    try:
        physical_register(name)
    except UnsupportedError:
        return ()
    return tuple(table.cells.cells_of(name))
