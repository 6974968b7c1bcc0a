"""Where functions are full of registers, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verilocc_mlir.problem.build import frequency
from verilocc_mlir.results.why import FilePressure, LiveValue, Moved, Site, WhyFunction, WhyRun

_NUMBERS = ("registers", "live for", "idle")
_PLACES = 3
"""Named of one value's stores or loads."""


def print_why(run: WhyRun, to: Console, most_values: int) -> None:
    """Each function: its files with the values that are live at the worst point, then what the allocation added."""
    to.print(Text(f"{run.input} for {run.target}, {run.llvm}"))
    for function in run.functions:
        to.print()
        to.print(Text(_title(function)))
        for line in _cap(function):
            to.print(Text(line))
        for file in function.files:
            for line in _file(file):
                to.print(Text(line))
            if not (file.most > file.available or file.fewer_waves or file.more_waves):
                to.print(Text("  it costs neither waves nor spills"))
                continue
            to.print(_table(file.values[:most_values]))
            if len(file.values) > most_values:
                to.print(Text(f" … {len(file.values) - most_values} more: --values"))
            for line in _plan(file, most_values):
                to.print(Text(line))
        for line in _allocated(run, function, most_values):
            to.print(Text(line))
    for note in run.notes:
        to.print(Text(f"note: {note}"))


def _title(function: WhyFunction) -> str:
    kind = "kernel" if function.is_kernel else "function"
    return (
        f"{kind} {function.name}: its pressure leaves room for {function.waves} waves per SIMD; "
        f"LDS, work-group size and attributes for {function.other_limit}"
    )


def _cap(function: WhyFunction) -> Iterator[str]:
    """What caps its vector registers, and the cure."""
    cap = function.cap
    if cap is None:
        return
    split = f" ({cap.vgprs} VGPRs and {cap.agprs} AGPRs)" if cap.agprs else ""
    line = f"at most {cap.vgprs + cap.agprs} vector registers{split}, because {cap.because}"
    cure = cap.cure
    if cure is None:
        yield line
        return
    left = f"{cure.vgpr_spills} VGPRs are still spilled" if cure.vgpr_spills else "nothing is spilled"
    fit = "1 wave fits" if cure.waves == 1 else f"{cure.waves} waves fit"
    yield f"{line}; {cure.words} {left} and {fit}: {cure.attribute}"


def _file(file: FilePressure) -> Iterator[str]:
    yield ""
    held = f", {file.held} of them held by physical registers" if file.held else ""
    beside = f" and {file.beside} AGPRs for values that may be in either" if file.beside else ""
    yield f"{file.file}: {file.most} needed at once, {file.available} available{beside}{held}"
    if file.most > file.available + file.beside:
        yield f"  {file.most - file.available - file.beside} too many: something must be spilled"
    if file.fewer_waves:
        yield f"  {file.fewer_waves.registers - file.most} more, and there are {file.fewer_waves.waves} waves"
    if file.more_waves:
        yield f"  {file.most - file.more_waves.registers} fewer, and there are {file.more_waves.waves} waves"
    yield f"  at {_site(file.at)}"
    for site in file.elsewhere:
        yield f"  also at {_site(site)}"


def _site(site: Site) -> str:
    source = f", {site.source}" if site.source else ""
    return f"{site.block}, depth {site.depth}, instruction {site.index}{source}: {_cut(site.instruction)}"


def _cut(instruction: str, width: int = 72) -> str:
    return instruction if len(instruction) <= width else instruction[: width - 1] + "…"


def _table(values: Sequence[LiveValue]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("value", "registers", "live for", "idle", "next use", "defined by", "what might help"):
        table.add_column(head, justify="right" if head in _NUMBERS else "left", overflow="fold")
    for value in values:
        next_use = f"{value.next_use.block} {value.next_use.source or value.next_use.index}" if value.next_use else ""
        definition = "an argument, or nothing"
        if value.defined:
            definition = f"{value.defined.block} {value.defined.source} {_cut(value.defined.instruction)}".replace(
                "  ", " "
            )
        cells = (
            value.name,
            str(value.registers),
            "around a loop" if value.live_for is None else str(value.live_for),
            str(value.idle),
            next_use,
            definition,
            value.hint,
        )
        table.add_row(*map(Text, cells))
    return table


def _plan(file: FilePressure, most: int) -> Iterator[str]:
    goal = file.available if file.most > file.available else file.more_waves.registers if file.more_waves else 0
    if not goal:
        return
    if file.plan == ():
        yield f"  {goal} {file.file}s are enough without spills: values that may be in AGPRs fit there"
        return
    if file.plan is None:
        yield f"  no spill code of this project's brings it down to {goal} {file.file}s"
        return
    registers = sum(action.parts for action in file.plan)
    yield (
        f"  this project's spiller would get along with {goal} {file.file}s by moving {len(file.plan)} values "
        f"({registers} registers); estimated stores and loads: {sum(action.cost for action in file.plan):.0f}"
    )
    for action in file.plan[:most]:
        stored = f"{_times('stored', action.saves)}, " if action.saves else ""
        word = "loaded again" if action.kind == "spill" else "made again"
        yield f"    {action.kind} {action.register} ({action.parts}): {stored}{_times(word, action.reloads)}"
    if len(file.plan) > most:
        yield f"    … {len(file.plan) - most} more"


def _times(word: str, places: Sequence[object]) -> str:
    return f"{word} once" if len(places) == 1 else f"{word} {len(places)} times"


def _allocated(run: WhyRun, function: WhyFunction, most: int) -> Iterator[str]:
    taken = function.resources
    if taken is not None:
        yield ""
        agprs = f" ({taken.agprs} AGPRs among them)" if taken.agprs else ""
        yield (
            f"allocated by {run.allocator}: {taken.vgprs} VGPRs{agprs}, {taken.sgprs} SGPRs, {taken.waves} waves, "
            f"{taken.scratch_bytes} bytes of scratch"
        )
        if taken.waves < function.waves:
            yield "  the pressure leaves room for more waves: the assignment costs them, by alignment and gaps"
    groups = [list(moves) for _, moves in groupby(sorted(function.moved, key=_value), key=_value)]
    groups.sort(key=lambda moves: -sum(frequency(move.site.depth) for move in moves))
    for moves in groups[:most]:
        yield f"  {moves[0].value or 'unknown'} ({moves[0].phase}): {_counts(moves)}{_made(moves[0])}"
    if len(groups) > most:
        yield f"  … {len(groups) - most} more values"


def _value(move: Moved) -> tuple[str, str]:
    return move.phase, move.value


def _counts(moves: Sequence[Moved]) -> str:
    words = {"spill": "stored", "reload": "loaded again", "rematerialised": "made again"}
    parts: list[str] = []
    for kind, word in words.items():
        of_kind = [move for move in moves if move.kind == kind]
        if of_kind:
            places = list(dict.fromkeys(move.site.source or move.site.block for move in of_kind))
            dots = ", …" if len(places) > _PLACES else ""
            parts.append(f"{_times(word, of_kind)} in {', '.join(places[:_PLACES])}{dots}")
    return ", ".join(parts)


def _made(move: Moved) -> str:
    site = move.defined
    return f"; {site.source or site.block}: {_cut(site.instruction, 40)}" if site else ""
