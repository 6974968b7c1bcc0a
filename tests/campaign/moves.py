"""Every form of move in every context.

A value is *moved out* of where it lies to a place, *moved back* from there, and read. The three stand at positions of
a context, with instructions between that narrow EXEC, call, write a mode or the scratch descriptor. Which positions are
right is argued here, per context and kind of value, and not by what a checker knows:

* A move at a position that some path to the reader does not pass is wrong.
* A vector move that runs for the active threads is wrong if threads read its result that were not active at it.
* A place that a call does not preserve is wrong over a call, a slot over a write of the scratch descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from campaign.move_changes import changes
from campaign.move_forms import FORMS, Form
from campaign.subject import Mutant, Subject, text


@dataclass(frozen=True, slots=True)
class Context:
    """Blocks with positions ``@A``, ``@B``… on lines of their own.

    Attributes:
        scalar: by position of the reader: where moves of scalars, and whole-wave moves, are right.
        vector: where moves for active threads are.
        over: what happens between ``@A`` and the other positions: ``call``, ``stack`` or ``""``.
        body: lines of the blocks; both texts have them.
    """

    name: str
    scalar: dict[str, str]
    vector: dict[str, str]
    body: tuple[str, ...]
    over: str = ""


_SAVE = "$sgpr60_sgpr61 = S_AND_SAVEEXEC_B64 $sgpr62_sgpr63, implicit-def $exec, implicit-def $scc, implicit $exec"
_RESTORE = "$exec = S_OR_B64 $exec, $sgpr60_sgpr61, implicit-def $scc"
_LESS = "$exec = S_ANDN2_B64 $exec, $sgpr62_sgpr63, implicit-def $scc"
_ENTER = "$sgpr60_sgpr61 = ENTER_STRICT_WWM -1, implicit-def $exec, implicit-def $scc, implicit $exec"
_INDEX_ON = "S_SET_GPR_IDX_ON $sgpr62, 1, implicit-def $m0, implicit-def $mode, implicit $m0, implicit $mode"
_EXIT = "$exec = EXIT_STRICT_WWM $sgpr60_sgpr61"
CONTEXTS: tuple[Context, ...] = (
    Context("straight", {"A": "A"}, {"A": "A"}, ("bb.0:", "@L", "@A", "S_ENDPGM 0")),
    Context(
        "if",
        {"A": "A", "B": "AB", "C": "AC", "D": "ACD"},
        {"A": "A", "B": "AB", "C": "AC", "D": "AD"},
        (
            "bb.0:",
            "successors: %bb.1, %bb.2",
            "@L",
            "@A",
            _SAVE,
            "S_CBRANCH_EXECZ %bb.2, implicit $exec",
            "bb.1:",
            "successors: %bb.2",
            "@L",
            "@B",
            "bb.2:",
            "@L",
            "@C",
            _RESTORE,
            "@D",
            "S_ENDPGM 0",
        ),
    ),
    Context(
        "if and else",
        {"A": "A", "B": "AB", "E": "AE", "D": "AD"},
        {"A": "A", "B": "AB", "E": "AE", "D": "AD"},
        (
            "bb.0:",
            "successors: %bb.1, %bb.2",
            "@L",
            "@A",
            _SAVE,
            "$sgpr60_sgpr61 = S_XOR_B64 $exec, $sgpr60_sgpr61, implicit-def $scc",
            "S_CBRANCH_EXECZ %bb.2, implicit $exec",
            "bb.1:",
            "successors: %bb.2",
            "@L",
            "@B",
            "bb.2:",
            "successors: %bb.3, %bb.4",
            "@L",
            "$sgpr60_sgpr61 = S_OR_SAVEEXEC_B64 $sgpr60_sgpr61, implicit-def $exec, implicit-def $scc, implicit $exec",
            "$exec = S_XOR_B64 $exec, $sgpr60_sgpr61, implicit-def $scc",
            "S_CBRANCH_EXECZ %bb.4, implicit $exec",
            "bb.3:",
            "successors: %bb.4",
            "@L",
            "@E",
            "bb.4:",
            "@L",
            _RESTORE,
            "@D",
            "S_ENDPGM 0",
        ),
    ),
    Context(
        "loop",
        {"A": "A", "B": "AB", "C": "ABC", "D": "ABCD"},
        {"A": "A", "B": "AB", "C": "ABC", "D": "ABD"},
        (
            "bb.0:",
            "successors: %bb.1",
            "@L",
            "$sgpr60_sgpr61 = S_MOV_B64 $exec",
            "@A",
            "bb.1:",
            "successors: %bb.1, %bb.2",
            "@L",
            "@B",
            _LESS,
            "@C",
            "S_CBRANCH_EXECNZ %bb.1, implicit $exec",
            "bb.2:",
            "@L",
            _RESTORE,
            "@D",
            "S_ENDPGM 0",
        ),
    ),
    Context(
        "narrowed in one block",
        {"A": "A", "C": "AC", "D": "ACD"},
        {"A": "A", "C": "AC", "D": "AD"},
        ("bb.0:", "@L", "@A", _SAVE, "@C", _RESTORE, "@D", "S_ENDPGM 0"),
    ),
    Context(
        "two branches by SCC",
        {"A": "A", "B": "AB", "C": "AC", "D": "AD"},
        {"A": "A", "B": "AB", "C": "AC", "D": "AD"},
        (
            "bb.0:",
            "successors: %bb.1, %bb.2",
            "@L",
            "@A",
            "S_CMP_EQ_U32 $sgpr62, 0, implicit-def $scc",
            "S_CBRANCH_SCC1 %bb.2, implicit $scc",
            "S_BRANCH %bb.1",
            "bb.1:",
            "successors: %bb.3",
            "@L",
            "@B",
            "S_BRANCH %bb.3",
            "bb.2:",
            "successors: %bb.3",
            "@L",
            "@C",
            "bb.3:",
            "@L",
            "@D",
            "S_ENDPGM 0",
        ),
    ),
    Context(
        "write of MODE",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "S_SETREG_IMM32_B32 3, 2049, implicit-def $mode, implicit $mode", "@D", "S_ENDPGM 0"),
    ),
    Context(
        "call",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "dead $sgpr30_sgpr31 = SI_CALL $sgpr64_sgpr65, 0, csr_amdgpu", "@D", "S_ENDPGM 0"),
        "call",
    ),
    Context(
        "write of the scratch descriptor",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "$sgpr96 = S_ADD_I32 $sgpr96, 64, implicit-def $scc", "@D", "S_ENDPGM 0"),
        "stack",
    ),
    Context(
        "another block",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "successors: %bb.1", "@L", "@A", "bb.1:", "@L", "@D", "S_ENDPGM 0"),
    ),
    Context(
        "whole-wave bracket",
        {"A": "A", "B": "AB", "D": "ABD"},
        {"A": "A", "B": "AB", "D": "ABD"},
        ("bb.0:", "@L", "@A", _ENTER, "@B", _EXIT, "@D", "S_ENDPGM 0"),
    ),
    Context(
        "two whole-wave brackets",
        {"A": "A", "C": "AC", "B": "ACB", "D": "ACBD"},
        {"A": "A", "C": "AC", "B": "AB", "D": "ACBD"},
        ("bb.0:", "@L", _ENTER, "@A", _EXIT, "@C", _ENTER, "@B", _EXIT, "@D", "S_ENDPGM 0"),
    ),
    Context(
        "called function",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "S_NOP 0", "@D", "SI_RETURN"),
        "called",
    ),
    Context(
        "between marks of indexing",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        (
            "bb.0:",
            "@L",
            _INDEX_ON,
            "@A",
            "S_NOP 0",
            "@D",
            "S_SET_GPR_IDX_OFF implicit-def $mode, implicit $mode",
            "S_ENDPGM 0",
        ),
    ),
    Context(
        "in SETVSKIP",
        {"A": "A", "D": "AD"},
        {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "S_SETVSKIP 0, 0, implicit-def $scc", "@A", "S_NOP 0", "@D", "S_ENDPGM 0"),
    ),
)
_LOW = re.compile(r"([vsa]gpr)4(\d)")
_RESERVED = "  wwmReservedRegs:\n    - '$vgpr14'\n"
_NOT_LIVE = "not live"


def _wave32(line: str) -> str:
    """A line for wave32."""
    for old, new in (
        ("$sgpr60_sgpr61", "$sgpr60"),
        ("$sgpr62_sgpr63", "$sgpr62"),
        ("SAVEEXEC_B64", "SAVEEXEC_B32"),
        ("S_MOV_B64", "S_MOV_B32"),
        ("S_OR_B64", "S_OR_B32"),
        ("S_XOR_B64", "S_XOR_B32"),
        ("S_ANDN2_B64", "S_ANDN2_B32"),
        ("$exec =", "$exec_lo ="),
        ("B32 $exec", "B32 $exec_lo"),
    ):
        line = line.replace(old, new)
    return line


def _form_for(form: Form, context: Context, processor: str) -> Form:
    """A form with the names of a processor: on wave32 LLVM allocates VCC_LO for 32 bits, so VCC is a pair there too."""
    if context.over == "called":
        # What a function need not restore.
        low = {name: _LOW.sub(r"\g<1>1\2", getattr(form, name)) for name in ("source", "result", "define")}
        lists = {
            name: tuple(_LOW.sub(r"\g<1>1\2", i) for i in getattr(form, name)) for name in ("out", "back", "first")
        }
        form = replace(form, **low, **lists)
    if processor == "gfx942":
        return form
    cls = form.cls.replace("_align2", "") if form.vector or "WWM" in form.name else form.cls
    lines = [tuple(_wave32(line) for line in lines) for lines in (form.out, form.back)]
    return replace(form, cls=cls, out=lines[0], back=lines[1], define=_wave32(form.define))


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the moves and the reader of a form stand in a context."""

    form: Form
    context: Context
    processor: str
    out: str
    back: str
    read: str

    def texts(
        self, out: tuple[str, ...] | None = None, back: tuple[str, ...] | None = None, drop: str = ""
    ) -> tuple[str, str]:
        """Before and after; ``out``, ``back``: other moves; ``drop``: a register that no block declares."""
        f = _form_for(self.form, self.context, self.processor)
        words = {"s": f.source, "r": f.result, "cls": f.cls}
        out = f.out if out is None else out
        back = f.back if back is None else back
        lines: dict[bool, list[str]] = {False: [], True: []}
        for line in self.context.body:
            line = line if self.processor == "gfx942" else _wave32(line)
            if line.startswith("bb."):
                for side in lines.values():
                    side.append(f"  {line}")
            elif line == "@L":
                for is_after, side in lines.items():
                    first = len([s for s in side if s.startswith("  bb.")]) == 1
                    side.append("    liveins: " + ", ".join(self._liveins(f, first, is_after, drop)))
            elif line.startswith("@"):
                at = line[1]
                if at == "A":
                    lines[False].append("    " + f.define.format(**words))
                    lines[True] += ["    " + i.format(**words) for i in f.first]
                for position, moves in ((self.out, out), (self.back, back)):
                    if at == position:
                        lines[True] += ["    " + i.format(**words) for i in moves]
                if at == self.read:
                    lines[False].append("    S_NOP 0, implicit %1")
                    lines[True].append(f"    S_NOP 0, implicit renamable ${f.result}")
            else:
                for side in lines.values():
                    side.append("    " + line)
        entry = self.context.over != "called"
        before = text(self.processor, lines[False], registers={1: f.cls}, virtual=True, entry=entry)
        info = _RESERVED if f.first and not entry else ""
        after = text(self.processor, lines[True], stack=f.stack, spilled=f.spilled, entry=entry, info=info)
        return before, after

    def _liveins(self, f: Form, first: bool, is_after: bool, drop: str) -> list[str]:
        masks = ["$sgpr60_sgpr61", "$sgpr62_sgpr63", "$sgpr64_sgpr65"]
        mine = [f"${f.source}"]
        if is_after and not first:
            mine.append(f"${f.result}")
            mine += [
                f"${name}"
                for name in ("vgpr40", "vgpr44", "agpr40", "vcc", "vgpr10", "vgpr14", "agpr10")
                if any(name in i for i in (*f.out, *f.first))
            ]
        return [name for name in dict.fromkeys([*mine, *masks]) if name != f"${drop}"]

    def again(self, which: str) -> bool:
        """Whether the value is moved out of its register again after a move ``out`` or ``back``."""
        return self.context.name == "loop" and self.out in "BC" and (which == "out" or self.back in "BC")

    def right(self) -> bool:
        """Whether the value is there where it is read; see the head of the module."""
        f, c = self.form, self.context
        places = (c.vector if f.vector else c.scalar)[self.read]
        if self.out not in places or (f.back and self.back not in places):
            return False
        if f.again or c.over not in ("call", "stack"):
            return True
        crossed = self.out == "A" and (self.back if f.back else self.read) != "A"
        if c.over == "stack":
            return f.place != "slot" or not crossed
        # What a form takes its value from is destroyed by the call, and so is what it names "registers".
        if self.out != "A":
            return False
        return f.place not in ("registers",) or not crossed


def rows() -> list[str]:
    """Form and context."""
    return [f"{f.name} / {c.name}" for f in FORMS for c in CONTEXTS]


def placed(name: str, turn: int = 0) -> Iterator[Placed]:
    """All positions of a row, on its processors; ``turn`` says on which first."""
    form_name, context_name = name.split(" / ")
    form = next(f for f in FORMS if f.name == form_name)
    context = next(c for c in CONTEXTS if c.name == context_name)
    positions = list(dict.fromkeys(i[1] for i in context.body if i.startswith("@") and i != "@L"))
    first = turn % len(form.processors)
    for processor in form.processors[first:] + form.processors[:first]:
        for out, back, read in combinations_with_replacement(positions, 3):
            if form.back or out == back:
                yield Placed(form, context, processor, out, back, read)


def candidates(name: str, turn: int = 0) -> Iterator[tuple[Subject, list[Mutant]]]:
    """Right positions of a row, each with its mutants: other positions, and other moves."""
    everything = list(placed(name, turn))
    right = [p for p in everything if p.right()]
    for p in sorted(right, key=lambda p: (p.processor != everything[0].processor, p.out == p.read, p.out)):
        before, after = p.texts()
        yield Subject(f"{name} / {p.processor}", p.processor, before, after), [*_elsewhere(p, everything), *_changed(p)]


def _elsewhere(base: Placed, everything: list[Placed]) -> Iterator[Mutant]:
    for p in everything:
        if p.read == base.read and p.processor == base.processor and p != base:
            why = "the value is there where it is read" if p.right() else ""
            yield Mutant(f"moved out at {p.out}, back at {p.back}", p.texts()[1], "moves at other positions", why)


def _changed(p: Placed) -> Iterator[Mutant]:
    """Other moves in the places of the right ones."""
    f = _form_for(p.form, p.context, p.processor)
    after = p.texts()[1]
    for which, lines in (("out", f.out), ("back", f.back)):
        for number, line in enumerate(lines):
            for column, new, why in changes(f, line, which, number, again=p.again(which)):
                new_lines = (*lines[:number], *new, *lines[number + 1 :])
                changed = p.texts(out=new_lines)[1] if which == "out" else p.texts(back=new_lines)[1]
                if changed != after:
                    yield Mutant(f"{which}: {column}", changed, f"{line} became {' and '.join(new) or 'nothing'}", why)
    if len({i for i in p.context.body if i.startswith("bb.")}) > 1 and p.out != p.read:
        for name in dict.fromkeys([f.result, "vgpr44"]):
            without = p.texts(drop=name)[1]
            if without != after:
                at_block = next(k for k, i in enumerate(p.context.body) if i == f"@{p.read}")
                crosses = any(
                    i.startswith("bb.") for i in p.context.body[_at(p, p.back if f.back else p.out) : at_block]
                )
                apart = any(i.startswith("bb.") for i in p.context.body[_at(p, p.out) : _at(p, p.back)])
                holds = crosses if name == f.result else bool(f.first) and apart
                yield Mutant(f"live-in ${name} dropped", without, "no block declares it", "" if holds else _NOT_LIVE)


def _at(p: Placed, position: str) -> int:
    return p.context.body.index(f"@{position}")
