"""The words of cells: numbers within a file, as ``12``, ``a12``, ``12h``, ``x0``."""

from __future__ import annotations

from collections.abc import Collection

from verilocc_mlir.allocators.cells import CellMap
from verilocc_mlir.allocators.items import Item
from verilocc_model.encoding.vocabulary import AGPRS, ENDLESS, HALVES, NONE, SPECIALS, number_word


def place_word(cells: CellMap, item: Item, cell: int) -> str:
    """The word that puts an item at a cell; ``none`` if the cell does not exist."""
    for k, (start, _, width) in enumerate(cells.specials):
        if start == cell and width * cells.halves == item.reach:
            return f"x{min(k, SPECIALS - 1)}"
    if not 0 <= cell < cells.size:
        return NONE
    bank, number = cells.register_of(cell)
    if (cell - cells.base[bank]) % cells.halves:
        return f"{number}h" if number < HALVES else ENDLESS
    if bank == "agpr":
        return f"a{number}" if number < AGPRS else ENDLESS
    return number_word(number)


def place_of(cells: CellMap, banks: Collection[str], word: str) -> int:
    """The cell that a word names for an item that may be in the files ``banks``; -1 where it names none."""
    if word[:1] == "x" and word[1:].isdigit():
        number = int(word[1:])
        return cells.specials[number][0] if number < len(cells.specials) else -1
    if word[:1] == "a" and word[1:].isdigit():
        return _numbered(cells, "agpr", int(word[1:]), 0)
    bank = "sgpr" if "sgpr" in banks else "vgpr"
    if word.isdigit():
        return _numbered(cells, bank, int(word), 0)
    if word[:-1].isdigit() and word[-1:] == "h" and cells.halves == 2:
        return _numbered(cells, bank, int(word[:-1]), 1)
    return -1


def _numbered(cells: CellMap, bank: str, number: int, half: int) -> int:
    cell = cells.base[bank] + number * cells.halves + half
    return cell if cell < cells.stop[bank] else -1
