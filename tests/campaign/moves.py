"""Every form of move in every context.

A value is *moved out* of where it lies to a place, *moved back* from there, and read. The three stand at positions of
a context, with instructions between that narrow EXEC, call, write a mode or the stack pointer. Which positions are
right is argued here, per context and kind of value, and not by what a checker knows:

* A move at a position that some path to the reader does not pass is wrong.
* A vector move that runs for the active threads is wrong if threads read its result that were not active at it.
* A place that a call does not preserve is wrong over a call, a slot over a write of the stack pointer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from campaign.subject import Mutant, Subject, text


@dataclass(frozen=True, slots=True)
class Form:
    """A way to move a value. ``{s}`` is its register, ``{r}`` that in which it is read, both of ``bits`` bits.

    Attributes:
        out: Q's lines that move it to a place; without ``back`` the place is ``{r}``.
        back: Q's lines that move it to ``{r}``.
        define: P's line that gives ``%1`` the value.
        vector: it has one value a thread, and its moves run for active threads only.
        place: what a call or a write of the stack pointer may destroy: ``registers``, ``kept``, ``slot``.
        again: ``out`` computes the value anew, from nothing that changes.
    """

    name: str
    cls: str
    source: str
    result: str
    out: tuple[str, ...]
    back: tuple[str, ...] = ()
    define: str = "%1:{cls} = COPY ${s}"
    first: tuple[str, ...] = ()
    vector: bool = True
    place: str = "kept"
    again: bool = False
    stack: tuple[str, ...] = ()
    spilled: bool = False
    processors: tuple[str, ...] = ("gfx942", "gfx1201")


def _slot(size: int) -> tuple[str, ...]:
    return (
        f"  - {{ id: 0, name: '', type: spill-slot, offset: 0, size: {size}, alignment: 4 }}",
        f"  - {{ id: 1, name: '', type: spill-slot, offset: 0, size: {size}, alignment: 4 }}",
    )


def _spill(kind: str, bits: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    align = "" if bits == 32 else ", align 4"
    rest = "implicit $exec, implicit $sgpr32" if kind == "S" else "$sgpr32, 0, implicit $exec"
    store = f":: (store (s{bits}) into %stack.0{align}, addrspace 5)"
    load = f":: (load (s{bits}) from %stack.0{align}, addrspace 5)"
    return (
        (f"SI_SPILL_{kind}{bits}_SAVE ${{s}}, %stack.0, {rest} {store}",),
        (f"renamable ${{r}} = SI_SPILL_{kind}{bits}_RESTORE %stack.0, {rest} {load}",),
    )


def _spills() -> Iterator[Form]:
    for kind, bits, cls, source, result, processors in (
        ("V", 32, "vgpr_32", "vgpr0", "vgpr40", ("gfx1201",)),
        ("V", 64, "vreg_64_align2", "vgpr0_vgpr1", "vgpr40_vgpr41", ("gfx942",)),
        ("V", 128, "vreg_128_align2", "vgpr0_vgpr1_vgpr2_vgpr3", "vgpr40_vgpr41_vgpr42_vgpr43", ("gfx942", "gfx1201")),
        ("AV", 32, "av_32", "vgpr0", "vgpr40", ("gfx942",)),
        ("AV", 64, "av_64_align2", "agpr0_agpr1", "vgpr40_vgpr41", ("gfx942",)),
        ("A", 32, "agpr_32", "agpr0", "agpr40", ("gfx942",)),
        ("S", 32, "sreg_32", "sgpr0", "sgpr40", ("gfx942", "gfx1201")),
        ("S", 64, "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41", ("gfx942", "gfx1201")),
        ("S", 64, "sreg_64", "sgpr0_sgpr1", "vcc", ("gfx942",)),
        ("S", 128, "sgpr_128", "sgpr0_sgpr1_sgpr2_sgpr3", "sgpr40_sgpr41_sgpr42_sgpr43", ("gfx942", "gfx1201")),
    ):  # fmt: skip
        out, back = _spill(kind, bits)
        of = "" if result != "vcc" else " into vcc"
        yield Form(
            f"spill {kind}{bits}{of}", cls, source, result, out, back, vector=kind != "S", place="slot",
            stack=_slot(bits // 8), spilled=kind == "S", processors=processors,
        )  # fmt: skip


FORMS: tuple[Form, ...] = (
    Form("COPY v to v", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = COPY ${s}",)),
    Form("COPY v to v, renamable", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = COPY renamable ${s}",)),
    Form("COPY v to v, 64", "vreg_64_align2", "vgpr0_vgpr1", "vgpr40_vgpr41", ("renamable ${r} = COPY ${s}",)),
    Form("COPY v to v, 96", "vreg_96_align2", "vgpr0_vgpr1_vgpr2", "vgpr40_vgpr41_vgpr42", ("renamable ${r} = COPY ${s}",)),
    Form("COPY v to v, halves", "vgpr_16", "vgpr0_lo16", "vgpr40_hi16", ("renamable ${r} = COPY ${s}",), processors=("gfx1201",)),
    Form("COPY v to v by parts", "vreg_64_align2", "vgpr0_vgpr1", "vgpr40_vgpr41",
         ("renamable $vgpr40 = COPY $vgpr0, implicit-def ${r}", "renamable $vgpr41 = COPY $vgpr1, implicit ${s}")),
    Form("COPY v to a and back", "vgpr_32", "vgpr0", "vgpr40", ("$agpr40 = COPY ${s}",), ("renamable ${r} = COPY $agpr40",),
         processors=("gfx942",)),
    Form("COPY v to a", "av_32", "vgpr0", "agpr40", ("renamable ${r} = COPY ${s}",), processors=("gfx942",)),
    Form("COPY a to v", "av_32", "agpr0", "vgpr40", ("renamable ${r} = COPY ${s}",), processors=("gfx942",)),
    Form("COPY a to a, 64", "areg_64_align2", "agpr0_agpr1", "agpr40_agpr41", ("renamable ${r} = COPY ${s}",), processors=("gfx942",)),
    Form("COPY v to v, round", "vgpr_32", "vgpr0", "vgpr41", ("$vgpr40 = COPY ${s}",), ("renamable ${r} = COPY $vgpr40",)),
    Form("COPY s to v", "vgpr_32", "sgpr0", "vgpr40", ("renamable ${r} = COPY ${s}",)),
    Form("COPY s to v, 64", "vreg_64_align2", "sgpr0_sgpr1", "vgpr40_vgpr41", ("renamable ${r} = COPY ${s}",)),
    Form("COPY s to s", "sreg_32", "sgpr0", "sgpr40", ("renamable ${r} = COPY ${s}",), vector=False),
    Form("COPY s to s, 64", "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41", ("renamable ${r} = COPY ${s}",), vector=False),
    Form("COPY s to s, 256", "sgpr_256", "sgpr0_sgpr1_sgpr2_sgpr3_sgpr4_sgpr5_sgpr6_sgpr7",
         "sgpr40_sgpr41_sgpr42_sgpr43_sgpr44_sgpr45_sgpr46_sgpr47", ("renamable ${r} = COPY ${s}",), vector=False),
    Form("COPY s to vcc", "sreg_64", "sgpr0_sgpr1", "vcc", ("renamable ${r} = COPY ${s}",), vector=False, place="registers",
         processors=("gfx942",)),
    Form("COPY s to vcc and back", "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41", ("$vcc = COPY ${s}",),
         ("renamable ${r} = COPY $vcc",), vector=False, place="registers", processors=("gfx942",)),
    Form("COPY v, lr-split", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = lr-split COPY ${s}",)),
    *_spills(),
    Form("spill WWM_V32", "vgpr_32", "vgpr0", "vgpr40", *_spill("WWM_V", 32), place="slot", stack=_slot(4), processors=("gfx1201",),
         vector=False),
    Form("spill WWM_AV32", "vgpr_32", "vgpr0", "vgpr40", *_spill("WWM_AV", 32), place="slot", stack=_slot(4), processors=("gfx942",),
         vector=False),
    Form("WWM_COPY", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = WWM_COPY ${s}",), vector=False),
    Form("lane", "sreg_32", "sgpr0", "sgpr40",
         ("renamable $vgpr44 = SI_SPILL_S32_TO_VGPR ${s}, 3, killed $vgpr44(tied-def 0)",),
         ("${r} = SI_RESTORE_S32_FROM_VGPR $vgpr44, 3",), vector=False, first=("renamable $vgpr44 = IMPLICIT_DEF",)),
    Form("two lanes", "sreg_64", "sgpr0_sgpr1", "sgpr40_sgpr41",
         ("renamable $vgpr44 = SI_SPILL_S32_TO_VGPR $sgpr0, 3, killed $vgpr44(tied-def 0), implicit-def ${s}, implicit ${s}",
          "renamable $vgpr44 = SI_SPILL_S32_TO_VGPR $sgpr1, 4, killed $vgpr44(tied-def 0), implicit ${s}"),
         ("$sgpr40 = SI_RESTORE_S32_FROM_VGPR $vgpr44, 3, implicit-def ${r}",
          "$sgpr41 = SI_RESTORE_S32_FROM_VGPR $vgpr44, 4"), vector=False, first=("renamable $vgpr44 = IMPLICIT_DEF",)),
    Form("V_MOV again", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = V_MOV_B32_e32 7, implicit $exec",),
         define="%1:{cls} = V_MOV_B32_e32 7, implicit $exec", again=True),
    Form("S_MOV again", "sreg_32", "sgpr0", "sgpr40", ("renamable ${r} = S_MOV_B32 7",),
         define="%1:{cls} = S_MOV_B32 7", vector=False, again=True),
    Form("V_LSHL_ADD again", "vgpr_32", "vgpr0", "vgpr40", ("renamable ${r} = V_LSHL_ADD_U32_e64 ${s}, 7, ${s}, implicit $exec",),
         define="%1:{cls} = V_LSHL_ADD_U32_e64 ${s}, 7, ${s}, implicit $exec", place="source"),
    Form("S_BFM again", "sreg_32", "sgpr0", "sgpr40", ("renamable ${r} = S_BFM_B32 ${s}, 7",),
         define="%1:{cls} = S_BFM_B32 ${s}, 7", vector=False, place="source"),
    Form("V_MOV of a scalar again", "vgpr_32", "sgpr0", "vgpr40", ("renamable ${r} = V_MOV_B32_e32 ${s}, implicit $exec",),
         define="%1:{cls} = V_MOV_B32_e32 ${s}, implicit $exec", place="source"),
    Form("S_LOAD again", "sreg_32_xm0_xexec", "sgpr0_sgpr1", "sgpr40",
         ("renamable ${r} = S_LOAD_DWORD_IMM ${s}, 4, 0 :: (dereferenceable invariant load (s32) from %ir.p, addrspace 4)",),
         define="%1:{cls} = S_LOAD_DWORD_IMM ${s}, 4, 0 :: (dereferenceable invariant load (s32) from %ir.p, addrspace 4)",
         vector=False, place="source"),
)  # fmt: skip
"""By name: each pair of files and width of COPY, spill code of each kind, lanes, whole-wave moves, and repeats."""


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
CONTEXTS: tuple[Context, ...] = (
    Context("straight", {"A": "A"}, {"A": "A"}, ("bb.0:", "@L", "@A", "S_ENDPGM 0")),
    Context(
        "if",
        {"A": "A", "B": "AB", "C": "AC", "D": "ACD"},
        {"A": "A", "B": "AB", "C": "AC", "D": "AD"},
        ("bb.0:", "successors: %bb.1, %bb.2", "@L", "@A", _SAVE, "S_CBRANCH_EXECZ %bb.2, implicit $exec",
         "bb.1:", "successors: %bb.2", "@L", "@B",
         "bb.2:", "@L", "@C", _RESTORE, "@D", "S_ENDPGM 0"),
    ),
    Context(
        "if and else",
        {"A": "A", "B": "AB", "E": "AE", "D": "AD"},
        {"A": "A", "B": "AB", "E": "AE", "D": "AD"},
        ("bb.0:", "successors: %bb.1, %bb.2", "@L", "@A", _SAVE,
         "$sgpr60_sgpr61 = S_XOR_B64 $exec, $sgpr60_sgpr61, implicit-def $scc", "S_CBRANCH_EXECZ %bb.2, implicit $exec",
         "bb.1:", "successors: %bb.2", "@L", "@B",
         "bb.2:", "successors: %bb.3, %bb.4", "@L",
         "$sgpr60_sgpr61 = S_OR_SAVEEXEC_B64 $sgpr60_sgpr61, implicit-def $exec, implicit-def $scc, implicit $exec",
         "$exec = S_XOR_B64 $exec, $sgpr60_sgpr61, implicit-def $scc", "S_CBRANCH_EXECZ %bb.4, implicit $exec",
         "bb.3:", "successors: %bb.4", "@L", "@E",
         "bb.4:", "@L", _RESTORE, "@D", "S_ENDPGM 0"),
    ),
    Context(
        "loop",
        {"A": "A", "B": "AB", "C": "ABC", "D": "ABCD"},
        {"A": "A", "B": "AB", "C": "ABC", "D": "ABD"},
        ("bb.0:", "successors: %bb.1", "@L", "$sgpr60_sgpr61 = S_MOV_B64 $exec", "@A",
         "bb.1:", "successors: %bb.1, %bb.2", "@L", "@B", _LESS, "@C", "S_CBRANCH_EXECNZ %bb.1, implicit $exec",
         "bb.2:", "@L", _RESTORE, "@D", "S_ENDPGM 0"),
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
        ("bb.0:", "successors: %bb.1, %bb.2", "@L", "@A", "S_CMP_EQ_U32 $sgpr62, 0, implicit-def $scc",
         "S_CBRANCH_SCC1 %bb.2, implicit $scc", "S_BRANCH %bb.1",
         "bb.1:", "successors: %bb.3", "@L", "@B", "S_BRANCH %bb.3",
         "bb.2:", "successors: %bb.3", "@L", "@C",
         "bb.3:", "@L", "@D", "S_ENDPGM 0"),
    ),
    Context(
        "write of MODE",
        {"A": "A", "D": "AD"}, {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "S_SETREG_IMM32_B32 3, 2049, implicit-def $mode, implicit $mode", "@D", "S_ENDPGM 0"),
    ),
    Context(
        "call",
        {"A": "A", "D": "AD"}, {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "dead $sgpr30_sgpr31 = SI_CALL $sgpr64_sgpr65, 0, csr_amdgpu", "@D", "S_ENDPGM 0"), "call",
    ),
    Context(
        "write of the stack pointer",
        {"A": "A", "D": "AD"}, {"A": "A", "D": "AD"},
        ("bb.0:", "@L", "@A", "$sgpr32 = S_ADD_I32 $sgpr32, 64, implicit-def $scc", "@D", "S_ENDPGM 0"), "stack",
    ),
    Context(
        "another block",
        {"A": "A", "D": "AD"}, {"A": "A", "D": "AD"},
        ("bb.0:", "successors: %bb.1", "@L", "@A", "bb.1:", "@L", "@D", "S_ENDPGM 0"),
    ),
)  # fmt: skip
_NOT_LIVE = "not live"


def _wave32(line: str) -> str:
    """A line for wave32."""
    for old, new in (
        ("$sgpr60_sgpr61", "$sgpr60"), ("$sgpr62_sgpr63", "$sgpr62"), ("SAVEEXEC_B64", "SAVEEXEC_B32"), ("S_MOV_B64", "S_MOV_B32"),
        ("S_OR_B64", "S_OR_B32"), ("S_XOR_B64", "S_XOR_B32"), ("S_ANDN2_B64", "S_ANDN2_B32"), ("$exec =", "$exec_lo ="),
        ("B32 $exec", "B32 $exec_lo"),
    ):  # fmt: skip
        line = line.replace(old, new)
    return line


def _form_for(form: Form, processor: str) -> Form:
    """A form with the names of a processor: on wave32 LLVM allocates VCC_LO for 32 bits, so VCC is a pair there too."""
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
        f = _form_for(self.form, self.processor)
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
        before = text(self.processor, lines[False], registers={1: f.cls}, virtual=True)
        after = text(self.processor, lines[True], stack=f.stack, spilled=f.spilled)
        return before, after

    def _liveins(self, f: Form, first: bool, is_after: bool, drop: str) -> list[str]:
        masks = ["$sgpr60_sgpr61", "$sgpr62_sgpr63", "$sgpr64_sgpr65"]
        mine = [f"${f.source}"]
        if is_after and not first:
            mine.append(f"${f.result}")
            mine += [
                f"${name}"
                for name in ("vgpr40", "vgpr44", "agpr40", "vcc")
                if any(name in i for i in (*f.out, *f.first))
            ]
        return [name for name in dict.fromkeys([*mine, *masks]) if name != f"${drop}"]

    def right(self) -> bool:
        """Whether the value is there where it is read; see the head of the module."""
        f, c = self.form, self.context
        places = (c.vector if f.vector else c.scalar)[self.read]
        if self.out not in places or (f.back and self.back not in places):
            return False
        if f.again or not c.over:
            return True
        crossed = self.out == "A" and (self.back if f.back else self.read) != "A"
        if c.over == "stack":
            # Slots of scalars become lanes of a vector register (specification, 6 and 14).
            return f.place != "slot" or not crossed or f.spilled
        # What a form takes its value from is destroyed by the call, and so is what it names "registers".
        if self.out != "A":
            return False
        return f.place not in ("registers",) or not crossed


def rows() -> list[str]:
    """Form, context and processor."""
    return [f"{f.name} / {c.name} / {p}" for f in FORMS for c in CONTEXTS for p in f.processors]


def placed(name: str) -> Iterator[Placed]:
    """All positions of a row."""
    form_name, context_name, processor = name.split(" / ")
    form = next(f for f in FORMS if f.name == form_name)
    context = next(c for c in CONTEXTS if c.name == context_name)
    positions = list(dict.fromkeys(i[1] for i in context.body if i.startswith("@") and i != "@L"))
    for out, back, read in combinations_with_replacement(positions, 3):
        if form.back or out == back:
            yield Placed(form, context, processor, out, back, read)


def candidates(name: str) -> Iterator[tuple[Subject, list[Mutant]]]:
    """Right positions of a row, each with its mutants: other positions, and other moves."""
    everything = list(placed(name))
    right = [p for p in everything if p.right()]
    for p in sorted(right, key=lambda p: (p.out == p.read, p.out)):
        before, after = p.texts()
        yield Subject(name, p.processor, before, after), [*_elsewhere(p, everything), *_changed(p)]


def _elsewhere(base: Placed, everything: list[Placed]) -> Iterator[Mutant]:
    for p in everything:
        if p.read == base.read and p != base:
            why = "the value is there where it is read" if p.right() else ""
            yield Mutant(f"moved out at {p.out}, back at {p.back}", p.texts()[1], "moves at other positions", why)


def _changed(p: Placed) -> Iterator[Mutant]:
    """Other moves in the places of the right ones."""
    f = _form_for(p.form, p.processor)
    after = p.texts()[1]
    for which, lines in (("out", f.out), ("back", f.back)):
        for number, line in enumerate(lines):
            for column, new, why in changes(f, line, which, number, p):
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


def changes(f: Form, line: str, which: str, number: int, p: Placed) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What becomes of one move, the lines in its place, and why they are right."""
    yield "dropped", (), "it has no code" if "IMPLICIT_DEF" in line else ""
    yield "doubled", (line, line), "it moves the same again"
    head, equals, tail = line.partition(" = ")
    if not equals:
        head, tail = "", line
    others = {
        "another vector register": "vgpr9", "another scalar": "sgpr9", "another pair": "vgpr8_vgpr9", "a scalar pair": "sgpr8_sgpr9",
        "an accumulator": "agpr9", "vcc": "vcc", "vcc_lo": "vcc_lo", "exec": "exec", "exec_lo": "exec_lo", "m0": "m0", "scc": "scc",
        "null": "sgpr_null", "flat_scr": "flat_scr", "ttmp4": "ttmp4", "half": "vgpr9_lo16", "noreg": "noreg",
        "the stack pointer": "sgpr32", "src_vccz": "src_vccz", "src_scc": "src_scc", "src_shared_base": "src_shared_base",
        "mode": "mode", "xnack_mask": "xnack_mask", "beyond": "vgpr256",
    }  # fmt: skip
    for column, name in others.items():
        for own in ("{s}", "{r}", "vgpr44", "vgpr40", "agpr40", "vcc", "sgpr0", "sgpr1", "sgpr40", "sgpr41"):
            explicit, comma, implicit = tail.partition(", implicit")
            if f"${own}" in explicit:
                changed = explicit.replace(f"${own}", f"${name}", 1)
                yield f"source {column}", (f"{head}{equals}{changed}{comma}{implicit}",), ""
                break
        for own in ("{r}", "vgpr44", "vgpr40", "agpr40", "vcc", "sgpr40", "sgpr41"):
            if f"${own}" in head:
                yield f"target {column}", (f"{head.replace(f'${own}', f'${name}', 1)}{equals}{tail}",), ""
                break
    if "${s}" in tail.partition(", implicit")[0]:
        yield "source undef", (line.replace("${s}", "undef ${s}", 1),), ""
        yield "source killed", (line.replace("${s}", "killed ${s}", 1),), "nothing else reads it"
        yield "source virtual", (line.replace("${s}", "%1", 1),), ""
    if "renamable ${r}" in head:
        yield "target dead", (line.replace("renamable ${r}", "dead renamable ${r}", 1),), ""
        yield (
            "target not renamable",
            (line.replace("renamable ${r}", "${r}", 1),),
            "it only allows that others are chosen",
        )
        yield (
            "target undef",
            (line.replace("renamable ${r}", "undef renamable ${r}", 1),),
            "nothing else of it is undefined",
        )
        yield (
            "target early-clobber",
            (line.replace("renamable", "early-clobber renamable", 1),),
            "source and target are two",
        )
    for column, flag in (
        ("nofpexcept", "nofpexcept "),
        ("nuw", "nuw "),
        ("frame-setup", "frame-setup "),
        ("lr-split", "lr-split "),
    ):
        code = tail if not tail.startswith("lr-split") else tail.removeprefix("lr-split ")
        why = "it is the mark of a copy that splits a live range" if column == "lr-split" and "COPY" in line else ""
        yield f"flag {column}", (f"{head}{equals}{flag}{code}",), why
    memory = " :: " in tail
    code, _, rest = tail.partition(" :: ")

    def with_operand(operand: str) -> str:
        return f"{head}{equals}{code}, {operand}" + (f" :: {rest}" if memory else "")

    if ", implicit ${s}" in tail:
        why = "" if "implicit-def ${s}" in tail else "it is only said to be live"
        yield "implicit use dropped", (line.replace(", implicit ${s}", ""),), why
    # Behind the first of several moves that each write a part, it says that the other parts are written too.
    rest_lost = number > 0 and (which == "back" or not f.back)
    yield "implicit-def of the target", (with_operand("implicit-def ${r}"),), "" if rest_lost else _WRITES
    yield "implicit-def of the source", (with_operand("implicit-def ${s}"),), "nothing reads the source any more"
    yield "implicit use of the source", (with_operand("implicit ${s}"),), "it is only said to be live"
    yield "implicit-def of another", (with_operand("implicit-def $vgpr200"),), "nothing reads it"
    yield "implicit-def of the stack pointer", (with_operand("implicit-def $sgpr32"),), ""
    yield "implicit-def of exec", (with_operand("implicit-def $exec"),), ""
    yield "implicit-def of m0", (with_operand("implicit-def $m0"),), ""
    yield "explicit operand added", (f"{head}{equals}{code}, 0" + (f" :: {rest}" if memory else ""),), ""
    yield "attribute", (with_operand("post-instr-symbol <mcsymbol a>"),), ""
    yield "in a bundle", ("BUNDLE {{", f"  {line}", "}}"), ""
    yield "KILL of the target behind it", (line, "KILL killed ${r}"), _HIDES if which == "out" and f.back else ""
    yield "IMPLICIT_DEF behind it", (line, "renamable ${r} = IMPLICIT_DEF"), _HIDES if which == "out" and f.back else ""
    yield "IMPLICIT_DEF of another behind it", (line, "renamable $vgpr200 = IMPLICIT_DEF"), "nothing reads it"
    if memory:
        for column, old, new in (
            ("volatile", "(store", "(volatile store"), ("volatile load", "(load", "(volatile load"), ("size", "(s", "(s1"),
            ("object", "into %stack.0", "into %stack.1"), ("object of a load", "from %stack.0", "from %stack.1"),
            ("offset", "%stack.0,", "%stack.0 + 4,"), ("align", "addrspace", "align 16, addrspace"), ("space", "addrspace 5", "addrspace 3"),
            ("basealign", ", addrspace", ", align 2, basealign 4, addrspace"), ("value", "%stack.0", "%ir.p"),
        ):  # fmt: skip
            if old in rest:
                yield f"memory {column}", (f"{head}{equals}{code} :: {rest.replace(old, new, 1)}",), ""
        yield "memory dropped", (f"{head}{equals}{code}",), ""
        yield "memory doubled", (f"{line}, {rest}",), ""
    if "%stack.0" in code:
        yield "slot", (line.replace("%stack.0", "%stack.1"),), ""
        yield "slot of the operand alone", (line.replace("%stack.0", "%stack.1", 1),), ""
        yield "offset 4", (line.replace("$sgpr32, 0,", "$sgpr32, 4,"),), ""
        yield "offset -4", (line.replace("$sgpr32, 0,", "$sgpr32, -4,"),), ""
        yield "pointer", (line.replace("$sgpr32", "$sgpr33", 1),), ""
        yield "exec missing", (line.replace(", implicit $exec_lo", "").replace(", implicit $exec", ""),), ""
        for old, new in (
            ("AV", "V"),
            ("_V", "_AV"),
            ("_V", "_A"),
            ("_S", "_V"),
            ("_V", "_S"),
            ("32_", "64_"),
            ("64_", "32_"),
            ("128_", "96_"),
            ("WWM_", ""),
            ("SPILL_V", "SPILL_WWM_V"),
            ("SPILL_AV", "SPILL_WWM_AV"),
            ("SPILL_V", "SPILL_S"),
        ):
            if old in code and (changed := code.replace(old, new, 1)) != code:
                yield f"opcode {old} to {new}", (f"{head}{equals}{changed} :: {rest}",), _same_spill(f, old, new, p)
    if "VGPR" in code and ", 3" in code:
        for column, thread in (
            ("lane 4", "4"),
            ("lane 0", "0"),
            ("lane 64", "64"),
            ("lane -1", "-1"),
            ("lane a register", "$sgpr9"),
        ):
            yield column, (line.replace(", 3", f", {thread}"),), ""
        yield "tie dropped", (line.replace("(tied-def 0)", ""),), "the table ties it all the same"
        yield "tied to undef", (line.replace("killed $vgpr44", "undef $vgpr44"),), "no other lane holds anything"
    for old, new in (
        ("COPY", "WWM_COPY"),
        ("WWM_COPY", "COPY"),
        ("COPY", "V_MOV_B32_e32"),
        ("COPY", "S_MOV_B32"),
        ("S_MOV_B32", "S_BREV_B32"),
        ("V_MOV_B32_e32", "V_NOT_B32_e32"),
        ("V_LSHL_ADD_U32_e64", "V_ADD_LSHL_U32_e64"),
        ("S_BFM_B32", "S_LSHL_B32"),
        (" 7", " 8"),
        ("LOAD_DWORD_", "LOAD_DWORDX2_"),
        ("invariant ", ""),
        ("dereferenceable ", ""),
        ("SAVE", "RESTORE"),
        ("%ir.p", "@g"),
        ("4, 0 ::", "8, 0 ::"),
        ("7,", "$vgpr9,"),
    ):
        if old in line and (changed := line.replace(old, new, 1)) != line:
            why = _same_move(f, old, new, p)
            yield f"{old.strip()} to {new.strip() or 'nothing'}", (changed,), why
    if "implicit $exec" in line and " :: " not in line:
        yield "exec missing", (line.replace(", implicit $exec_lo", "").replace(", implicit $exec", ""),), ""
        yield "exec undef", (line.replace("implicit $exec", "implicit undef $exec"),), ""
        yield "exec killed", (line.replace("implicit $exec", "implicit killed $exec"),), ""


_WRITES = "the move writes it, or another one does before it is read"
_HIDES = "another move writes it before it is read"


def _same_spill(f: Form, old: str, new: str, p: Placed) -> str:
    """Spill code of another kind for the same registers moves the same."""
    del f, p
    either = {
        ("AV", "V"),
        ("_V", "_AV"),
        ("WWM_", ""),
        ("SPILL_V", "SPILL_WWM_V"),
        ("SPILL_AV", "SPILL_WWM_AV"),
        ("_V", "_A"),
    }
    return "another opcode for the same bits of the same register" if (old, new) in either else ""


def _same_move(f: Form, old: str, new: str, p: Placed) -> str:
    if (old, new) in (("COPY", "WWM_COPY"), ("WWM_COPY", "COPY")) and "s to s" not in f.name:
        wide = replace(p, form=replace(f, vector=new == "COPY"))
        return "it moves the same for all threads that read it" if wide.right() else ""
    return ""
