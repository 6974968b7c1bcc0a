"""What a verifier said of earlier answers, as facts for the next one."""

from __future__ import annotations

from collections.abc import Sequence

from verilocc_mlir.allocators.protocol import Counterexample
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.target.registers import physical_register
from verilocc_model.encoding.canonical import Canonical
from verilocc_model.encoding.episode import Advice
from verilocc_model.encoding.table import Table


def advice_of(found: Sequence[Counterexample], form: Canonical, table: Table) -> dict[int, Advice]:
    """Counterexamples as the facts that an episode states about ranges."""
    new = {old: k for k, old in enumerate(form.original)}
    refuted: dict[int, list[int]] = {}
    free: dict[int, list[int]] = {}
    for example in found:
        if not example.ranges:
            continue
        number = new[example.ranges[0]]
        refuted.setdefault(number, []).extend(_cells(table, example.registers[:1]))
        free.setdefault(number, []).extend(_cells(table, example.free))
    return {n: Advice(tuple(dict.fromkeys(refuted[n])), tuple(dict.fromkeys(free.get(n, ())))) for n in refuted}


def _cells(table: Table, registers: tuple[str, ...]) -> list[int]:
    """First cells of registers; those that are none of the problem's are left out."""
    found: list[int] = []
    for name in registers:
        try:
            physical_register(name)
        except UnsupportedError:
            continue
        found += table.cells.cells_of(name)[:1]
    return found
