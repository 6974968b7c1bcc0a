"""Random registers for a function of ``texts.py``: Q, with moves of its own, and not always rightly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from wave.run import Line, is_kept
from wave.texts import ROW, SLOT, Block, Code, Writer, lines_of, text_of

_CLASSES = {"s": "sreg_32", "v": "vgpr_32", "q": "vreg_128_align2"}
Pair = tuple[str, str, list[Line]]
"""P, Q, and P as it is run."""


class Live:
    """What is live where. ``waits``: a write of a vector leaves something in threads that wait, so it lives on."""

    def __init__(self, blocks: Sequence[Block], *, waits: bool) -> None:
        self.blocks, self._waits = blocks, waits
        self._given = [set[str]() for _ in blocks]
        self.entry = [set[str]() for _ in blocks]
        for _ in blocks:
            for given, block in zip(self._given, blocks, strict=True):
                own = given.union(*(code.to for code in block.code))
                for successor in block.successors:
                    self._given[successor] |= own
        for _ in blocks:
            for number in reversed(range(len(blocks))):
                self.entry[number] = self._walk(number)[0]

    def behind(self, number: int) -> list[set[str]]:
        """What is live behind each instruction of a block."""
        return self._walk(number)[1]

    def _walk(self, number: int) -> tuple[set[str], list[set[str]]]:
        live = set[str]().union(*(self.entry[successor] for successor in self.blocks[number].successors))
        behind: list[set[str]] = []
        for code in reversed(self.blocks[number].code):
            behind.append(set(live))
            lives_on = {name for name in code.to if name[0] in "vq" and self._waits and name in self._given[number]}
            live = (live - {*code.to}) | {*code.of} | lives_on
        return live, behind[::-1]


def random_pair(chance: random.Random, wave: int, convention: str, *, scalar: bool) -> Pair:
    """``scalar``: only scalars and masks have registers; vectors wait for a later phase."""
    called = convention.replace("amdgpu_kernel", "")
    writer = Writer(chance, wave, called=called, single=scalar)
    given = [f"${file}gpr{number}" for _, keys in writer.inputs() for file, number in keys]
    writer = Writer(chance, wave, called=called, single=scalar)
    blocks = writer.function()
    own = [replace(block, code=list(block.code)) for block in blocks]
    waits = chance.random() < 0.7
    for _ in range(chance.choice([0, 0, 1, 2])):
        _split(own, writer, Live(own, waits=waits))
    slots: list[str] = []
    for _ in range(chance.choice([0, 1, 2, 3] if scalar else [0, 0, 0, 1, 2])):
        slots += _spilled(own, writer, Live(own, waits=waits), len(slots))
    every = list(dict.fromkeys(name for block in (*blocks, *own) for code in block.code for name in code.to))
    rows = {name: ROW.format(id=n, kind=_CLASSES.get(name[0], f"sreg_{wave}")) for n, name in enumerate(every)}
    names = {name: f"%{n}" for n, name in enumerate(every)}
    calls = any(code.line.name in ("call", "tail") for block in blocks for code in block.code)
    head = {
        "calls": str(calls).lower(),
        "convention": "" if convention == "ccc" else f"{convention} ",
        "is_entry": str(not called).lower(),
    }
    known = {name for block in blocks for code in block.code for name in code.to}
    entry = [[*given, "$vgpr40_vgpr41"], *[["$vgpr40_vgpr41"]] * (len(blocks) - 1)]
    plain = [replace(block, code=[replace(c, form=c.form.format(**names)) for c in block.code]) for block in blocks]
    p = text_of(plain, entry, {**head, "registers": "".join(row for name, row in rows.items() if name in known)})

    live = Live(own, waits=waits)
    # An amdgpu_gfx function leaves alone the scalars that it is given.
    base = 36 if convention == "amdgpu_gfx" else 8
    units = _units(live, chance, wave, chance.choice([0, 0.05, 0.15, 0.4]), base)
    files = {"v": "v", "q": chance.choice("va")}
    kept = {register for register in given if convention == "amdgpu_gfx" and register[1] == "s"}
    each = {
        name: [f"{files.get(name[0], 's')}gpr{unit + k}" for k in range(len(writer.keys(name)))]
        for name, unit in units.items()
        if not (scalar and name[0] in "vq")
    }
    registers = {**names, **{name: "$" + "_".join(row) for name, row in each.items()}}
    mark, kills = chance.choice([("", False), ("renamable ", False), ("renamable ", True)])
    text = [
        replace(block, code=_in_registers(block.code, live.behind(number), registers, mark, kills=kills))
        for number, block in enumerate(own)
    ]
    declared = [
        sorted({f"${unit}" for name in block for unit in each.get(name, ())} | kept | {"$vgpr40_vgpr41"})
        for block in live.entry
    ]
    if scalar:
        head["registers"] = "".join(row for name, row in rows.items() if name[0] in "vq")
    if slots:
        head |= {"stack": "".join(slots), "spilled": f"  hasSpilled{'S' if scalar else 'V'}GPRs: true\n"}
    return p, text_of(text, [entry[0], *declared[1:]], head), lines_of(blocks)


def _split(blocks: list[Block], writer: Writer, live: Live) -> None:
    """A variable gets a register of its own in one block."""
    number = writer.chance.randrange(1, len(blocks))
    own = sorted(name for name in live.entry[number] if not (writer.single and name[0] in "vq"))
    if not own:
        return
    old = writer.chance.choice(own)
    new = writer.new(old[0])
    code = [_copy(new, old)]
    is_written = any(old in one.to for one in blocks[number].code)
    for one in blocks[number].code:
        if one.ends and is_written:
            code.append(_copy(old, new))
            is_written = False
        code.append(one.renamed(old, new))
    blocks[number].code = code


def _copy(to: str, of: str) -> Code:
    return Code(f"{{{to}}} = COPY {{{of}}}", Line("copy"), (to,), (of,))


def _spilled(blocks: list[Block], writer: Writer, live: Live, slot: int) -> list[str]:
    """A value waits in a slot, from the first block or a block's entry to somewhere in that block; the slot's row."""
    chance, number = writer.chance, writer.chance.randrange(1, len(blocks))
    own = sorted(name for name in live.entry[number] if name[0] != "q" and (name[0] == "v") != writer.single)
    if not own:
        return []
    old = chance.choice(own)
    new = writer.new(old[0])
    bits = 32 * len(writer.keys(old))
    kind = f"SI_SPILL_{'S' if writer.single else 'V'}{bits}"
    rest = "implicit $exec, implicit $sgpr32" if writer.single else "$sgpr32, 0, implicit $exec"
    place = f"%stack.{slot}, {{}}addrspace 5)".format("align 4, " * (bits > 32))
    save = f"{kind}_SAVE {{{old}}}, %stack.{slot}, {rest} :: (store (s{bits}) into {place}"
    restore = f"{{{new}}} = {kind}_RESTORE %stack.{slot}, {rest} :: (load (s{bits}) from {place}"
    code = blocks[number].code
    at = chance.randint(0, next((n for n, one in enumerate(code) if one.ends), len(code)))
    late = [one.renamed(old, new) for one in code[at:]]
    blocks[number].code = [*code[:at], Code(restore, Line("restore"), (new,)), *late]
    first = any(old in one.to for one in blocks[0].code) and chance.random() < 0.5
    head = blocks[0 if first else number].code
    end = next((n for n, one in enumerate(head) if one.ends or one.form.startswith("S_CMP")), len(head))
    head.insert(end if first else 0, Code(save, Line("save"), (), (old,)))
    return [SLOT.format(id=slot, size=bits // 8, stack="sgpr-spill" if writer.single else "default")]


def _units(live: Live, chance: random.Random, wave: int, forgotten: float, base: int) -> dict[str, int]:
    """The first register of each variable; a share of the interferences is forgotten."""
    apart: dict[str, set[str]] = {}
    across = set[str]()
    for number, block in enumerate(live.blocks):
        for code, behind in zip(block.code, live.behind(number), strict=True):
            across |= behind if code.line.name == "call" and chance.random() >= forgotten else set()
            for name in code.to:
                for other in sorted(behind - {name}):
                    if chance.random() >= forgotten:
                        apart.setdefault(name, set()).add(other)
                        apart.setdefault(other, set()).add(name)
    names = sorted({name for block in live.blocks for code in block.code for name in (*code.to, *code.of)})
    chance.shuffle(names)
    first = chance.choice([2, 2, 38])
    scalars = [unit for unit in range(base, 100) if not 30 <= unit < 36]
    vectors = [unit for unit in range(first, 100) if unit not in (40, 41)]
    found: dict[str, int] = {}

    def width_of(name: str) -> int:
        return {"m": wave // 32, "q": 4}.get(name[0], 1)

    def taken(name: str) -> set[int]:
        return {found[name] + k for k in range(width_of(name))}

    for name in names:
        width = width_of(name)
        near = [other for other in apart.get(name, ()) if other in found and (other[0] in "vq") == (name[0] in "vq")]
        busy = set[int]().union(*map(taken, near))
        every = scalars if name[0] in "sm" else vectors
        free = [
            unit
            for unit in every[::width]
            if {*range(unit, unit + width)} <= {*every} - busy
            and (name not in across or all(is_kept(name[0].replace("m", "s"), unit + k) for k in range(width)))
        ] or every[:1]
        found[name] = free[min(int(chance.expovariate(0.8)), len(free) - 1)]
    return found


def _in_registers(
    code: Sequence[Code], behind: Sequence[set[str]], registers: dict[str, str], mark: str, *, kills: bool
) -> list[Code]:
    """Instructions with registers, without copies of a register to itself."""
    result: list[Code] = []
    marked = {name: mark * (register[0] == "$") + register for name, register in registers.items()}
    for one, after in zip(code, behind, strict=True):
        is_copy = one.line.name == "copy" and len(one.of) == 1
        if is_copy and one.to and registers[one.of[0]] == registers[one.to[0]]:
            continue
        to, equals, of = one.form.rpartition(" = ")
        dies = {name for name in one.of if kills and name not in after and name not in one.to}
        read = {name: "killed " * (name in dies) + register for name, register in marked.items()}
        form = to.format(**marked) + equals + of.format(**read)
        result.append(replace(one, form=form.replace("_vgprcd", "") if "agpr" in form else form))
    return result
