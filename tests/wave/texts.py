"""Random functions in machine IR: blocks whose branches ask EXEC, VCC and SCC, with scalars, masks and vectors."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from wave.run import Key, Line, Operand

_STATEMENTS = {
    "{v} = V_ADD_U32_e64 {v}, {v}, 0, implicit $exec": 4,
    "{v} = V_XOR_B32_e64 {v}, {v}, implicit $exec": 4,
    "{v} = V_MOV_B32_e32 {s}, implicit $exec": 3,
    "{v} = V_MOV_B32_e32 {n}, implicit $exec": 3,
    "{v} = V_MOV_B32_dpp undef {0}, {v}, 177, 15, 15, 1, implicit $exec": 2,
    "{v} = COPY {v}": 2,
    "{v} = COPY {s}": 4,
    "{s} = COPY {s}": 1,
    "{m} = COPY {m}": 1,
    "{m} = COPY {X}": 3,
    "{m} = S_MOV_{M} {i}": 2,
    "{s} = S_ADD_I32 {s}, {s}, implicit-def dead $scc": 5,
    "{s} = S_MOV_B32 {n}": 5,
    "{s} = V_READFIRSTLANE_B32 {v}, implicit $exec": 1,
    "{s} = V_READLANE_B32 {v}, {n}": 2,
    "{v} = V_WRITELANE_B32 {s}, {n}, {0}": 2,
    "{m} = V_CMP_GT_U32_e64 {v}, {v}, implicit $exec": 4,
    "{m} = S_{W}_{M} {m}, {m}, implicit-def dead $scc": 3,
    "{m} = S_AND_SAVEEXEC_{M} {m}, implicit-def $exec, implicit-def dead $scc, implicit $exec": 3,
    "{X} = S_{W}_{M} {X}, {m}, implicit-def dead $scc": 3,
    "{s} = IMPLICIT_DEF": 1,
    "{v} = IMPLICIT_DEF": 1,
    "{v} = V_CNDMASK_B32_e64 0, {v}, 0, {v}, {m}, implicit $exec": 2,
    "set": 2, "whole": 2, "call": 6, "idiom": 2, "test": 3, "store": 8, "select": 2, "matrix": 3,
}  # fmt: skip
"""Instructions and how often they come; ``{v}`` is a vector, ``{q}`` four, ``{s}`` a scalar, ``{m}`` a mask,
``{0}`` what is written, ``{n}`` a number, ``{i}`` nobody or everybody, ``{X}`` EXEC,
``{M}`` the size of a mask, ``{W}`` a word's operation.
"""
_CALLED = "$sgpr16_sgpr17"
_MATRIX = "{q} = V_MFMA_F32_4X4X1F32_vgprcd_e64 {v}, {v}, %s, 0, 0, 0, implicit $mode, implicit $exec"
_TAIL = {
    "ccc": "SI_TCRETURN $sgpr0_sgpr1, 0, 0, csr_amdgpu, implicit $vgpr0, implicit $sgpr2",
    "amdgpu_gfx": "SI_TCRETURN_GFX $sgpr62_sgpr63, 0, 0, csr_amdgpu_si_gfx, implicit $vgpr0, implicit $sgpr2",
}
_SAVE = "{m} = S_%s_SAVEEXEC_{M} %s, implicit-def $exec, implicit-def dead $scc, implicit $exec"
_NAMES = {
    "GLOBAL_STORE_DWORD": "global_store", "GLOBAL_STORE_DWORDX4": "global_store", "IMPLICIT_DEF": "undefined",
    "V_CMP_GT_U32_e64": "v_cmp_gt_u32", "V_MOV_B32_dpp": "v_mov_dpp",
}  # fmt: skip


@dataclass(frozen=True)
class Code:
    """An instruction: machine IR with names of variables in braces, what it does, and the variables in it.

    ``ends``: it is a branch, or the function's end.
    """

    form: str
    line: Line
    to: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    ends: bool = False

    def renamed(self, old: str, new: str) -> Code:
        to, of = (tuple(new if name == old else name for name in names) for names in (self.to, self.of))
        return Code(self.form.replace(f"{{{old}}}", f"{{{new}}}"), self.line, to, of, self.ends)


@dataclass
class Block:
    code: list[Code] = field(default_factory=list[Code])
    successors: list[int] = field(default_factory=list[int])


class Writer:
    """Writes one function.

    Args:
        called: the convention by which it is called; then threads that wait in its caller never become active. Empty:
            a kernel.
        single: each vector is written by one instruction, so that LLVM's allocator, which asks for no EXEC, and the
            function thread by thread mean the same.
    """

    def __init__(self, chance: random.Random, wave: int, *, called: str, single: bool) -> None:
        # A called function must save its return address: LLVM does it behind the scalar phase.
        self.calls = chance.random() < 0.3 and (single or not called)
        self.chance, self.wave, self.called, self.single = chance, wave, called, single
        self.exec = "$exec" if wave == 64 else "$exec_lo"
        self.vcc = self.exec.replace("exec", "vcc")
        self.home = ""
        self._counts = Counter[str]()

    def keys(self, name: str) -> tuple[Key, ...]:
        """The lanes of a variable, of EXEC or VCC."""
        return tuple((name, n) for n in range(self.width(name[0])))

    def width(self, kind: str) -> int:
        return {"q": 4, "m": self.wave // 32, "$": self.wave // 32}.get(kind, 1)

    def new(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}{self._counts[kind] - 1}"

    def _target(self, kind: str, known: Sequence[str]) -> str:
        own = [name for name in known if name[0] == kind and name != self.home]
        again = own and (self.chance.random() < 0.55 or len(own) > 6) and not (self.single and kind in "vq")
        return self.chance.choice(own) if again else self.new(kind)

    def make(self, form: str, known: list[str], *given: str) -> Code:
        """An instruction; variables that are not ``given`` are chosen. What it writes is known from here on."""
        chance, names = self.chance, list(given)
        word = chance.choice(["AND", "ANDN2"] if self.called else ["AND", "OR", "XOR", "ANDN2"])
        size, number, everybody = f"B{self.wave}", chance.choice([0, 1, 3, 7]), chance.choice([0, -1])
        form = form.replace("{W}", word).replace("{M}", size).replace("{n}", f"{number}").replace("{i}", f"{everybody}")
        left, _, right = form.partition(" = ") if " = " in form else ("", "", form)
        chosen: list[list[str]] = []
        for number, side in enumerate((left, right)):
            chosen.append([])
            for kind in re.findall(r"\{([vsmq])\}", side):
                own = [name for name in known if name[0] == kind]
                picked = names.pop(0) if names else chance.choice(own) if number else self._target(kind, known)
                chosen[number].append(picked)
        to, of = map(tuple, chosen)
        if "WRITELANE" in form:
            to = (chance.choice([name for name in known if name[0] == "v"]),)
            of = (*of, *to)
        for side in (to, of):
            for name in side:
                form = re.sub(r"\{[vsmq]\}", f"{{{name}}}", form, count=1)
        form = form.replace("{0}", f"{{{to[0]}}}" if to else "").replace("{X}", self.exec)
        known += [name for name in to if name not in known]
        return Code(form, self._line(form, to), to, tuple(of))

    def _line(self, form: str, to: Iterable[str]) -> Line:
        """What an instruction does."""
        left, _, right = form.rpartition(" = ")
        opcode, _, rest = right.partition(" :: ")[0].partition(" ")
        name = _NAMES.get(opcode) or re.sub(r"_([BUI](32|64)|DWORD)(?=_|$)|_e(32|64)(?=$)|_term", "", opcode).lower()
        if opcode.startswith("S_CMP"):
            name = opcode.lower()
        words = [word for word in rest.split(", ") if not word.startswith(("implicit", "undef"))]
        operands: list[Operand] = []
        if name == "v_cndmask":
            words = [words[1], *words[3:]]
        for word in words[: 1 if name == "v_mov_dpp" else 3 if name.startswith(("v_mfma", "v_cndmask")) else 2]:
            if word.startswith("{") or word in (self.exec, self.vcc):
                operands.append(self._of(word))
            elif re.fullmatch(r"-?\d+", word):
                operands.append(int(word))
            elif word.startswith("$vgpr40"):
                operands.append(0)
        target = (self._of(left),) if left else ()
        return Line(name, target, tuple(operands), offset=int(words[2]) if name == "global_store" else 0)

    def _of(self, word: str) -> tuple[Key, ...]:
        if word.startswith("$"):
            return tuple((word[1:].removesuffix("_lo"), n) for n in range(self.wave // 32))
        return self.keys(word.strip("{}"))

    def statement(self, known: list[str]) -> list[Code]:
        """Some instructions."""
        (form,) = self.chance.choices([*_STATEMENTS], [*_STATEMENTS.values()])
        if (
            (form == "call" and not self.calls)
            or (form == "whole" and self.called)
            or (form == "matrix" and (self.called or self.wave == 32))
            or ("WRITELANE" in form and self.single)
        ):
            form = "store"
        if form == "store":
            return [self.store(known, self.chance.randrange(0, 40, 8))]
        if form == "matrix":
            own = [name for name in known if name[0] == "q"]
            code = self.make(_MATRIX % (self.chance.choice(["{q}", "0"]) if own else "0"), known)
            return [code, self.store(known, self.chance.randrange(0, 96, 16), four=True)][: self.chance.choice([1, 2])]
        if form == "select":
            test = self.make("S_CMP_EQ_U32 {s}, {n}, implicit-def $scc", known)
            return [test, self.make("{s} = S_CSELECT_B32 {s}, {s}, implicit $scc", known)]
        if form == "call":
            address = Code(f"{_CALLED} = S_MOV_B64 77", Line("label"))
            return [address, Code(f"$sgpr30_sgpr31 = SI_CALL {_CALLED}, 0, csr_amdgpu", Line("call"))]
        if form == "set":
            return self._set(known)
        if form == "test":
            test = self.make("{m} = V_CMP_GT_U32_e64 {v}, {v}, implicit $exec", known, self.new("m"))
            old = self._target("m", known)
            return [test, self.make(_SAVE % ("AND", "{m}"), known, old, test.to[0])]
        if form == "idiom":
            home, new = self.new("m"), self.new("m")
            other = self.chance.choice([name for name in known if name[0] == "m"])
            # The scalar phase is not asked about threads of the caller (9.1): of a mask without EXEC's they would wake.
            first = (self.called and self.single) or self.chance.random() < 0.5
            of = [home, other] if first else [other, home]
            return [
                self.make("{m} = COPY {X}", known, home),
                self.make("{m} = S_{W}_{M} {m}, {m}, implicit-def dead $scc", known, new, *of),
                self.make("{X} = S_MOV_{M} {m}", known, new),
            ]
        if form == "whole":
            old = self.make(_SAVE % ("OR", "-1"), known)
            inside = [self.make("{v} = V_ADD_U32_e64 {v}, {v}, 0, implicit $exec", known)]
            return [old, *inside, self.make("{X} = S_MOV_{M} {m}", known, old.to[0])]
        return [self.make(form, known)]

    def store(self, known: list[str], offset: int, *given: str, four: bool = False) -> Code:
        name, kind, bits = ("DWORDX4", "q", 128) if four else ("DWORD", "v", 32)
        form = f"GLOBAL_STORE_{name} $vgpr40_vgpr41, {{{kind}}}, {offset}, 0, implicit $exec"
        return self.make(f"{form} :: (store (s{bits}), addrspace 1)", known, *given)

    def _set(self, known: list[str], *given: str) -> list[Code]:
        """EXEC is a mask: in a called function, of threads that entered."""
        if not self.called:
            return [self.make("{X} = S_MOV_{M} {m}", known, *given)]
        new = self.new("m")
        other = self.chance.choice([name for name in known if name[0] == "m"])
        narrow = self.make("{m} = S_AND_{M} {m}, {m}, implicit-def dead $scc", known, new, self.home, other)
        return [narrow, self.make("{X} = S_MOV_{M} {m}", known, new)]

    # Blocks.

    def inputs(self) -> list[tuple[str, tuple[Key, ...]]]:
        """Variables that have a value at first, and the registers that it comes in."""
        rows = [(self.new("s"), (("s", 20 + n),)) for n in range(3)]
        rows += [(self.new("v"), (("v", 10 + n),)) for n in range(3)]
        width = self.wave // 32
        return rows + [(self.new("m"), tuple(("s", 24 + n * width + k) for k in range(width))) for n in range(3)]

    def function(self) -> list[Block]:
        """The blocks in the order of the text; the first one defines what all others may read."""
        chance = self.chance
        blocks = [Block() for _ in range(chance.randint(3, 8))]
        for name, keys in self.inputs():
            register = "$" + "_".join(f"{file}gpr{number}" for file, number in keys)
            line = Line("copy", (self.keys(name),), (keys,))
            blocks[0].code.append(Code(f"{{{name}}} = COPY {register}", line, (name,)))
        first = [code.to[0] for code in blocks[0].code]
        if self.called:
            self.home = self.new("m")
            blocks[0].code.append(self.make("{m} = COPY {X}", first, self.home))
        known: list[list[str]] = [first, *([] for _ in blocks[1:])]
        starts: list[set[str]] = []
        for number, block in enumerate(blocks):
            # Where nothing leads, all that the first block defines is known.
            own = list(known[number] or first)
            starts.append({*own})
            twin = blocks[chance.randrange(number)] if number > 1 and chance.random() < 0.2 else blocks[0]
            if twin is not blocks[0] and {name for code in twin.code for name in code.of} <= {*own}:
                block.code += [
                    code for code in twin.code if not code.ends and not (self.single and "v" in str(code.to))
                ]
                own += [name for code in block.code for name in code.to if name not in own]
            else:
                for _ in range(chance.choice([0, 1, 1, 2, 3])):
                    block.code += self.statement(own)
            self._end(blocks, number, own, starts)
            for successor in block.successors:
                if successor > number:
                    before = known[successor]
                    known[successor] = [name for name in before if name in own] if before else list(own)
        return blocks

    def _end(self, blocks: Sequence[Block], number: int, known: list[str], starts: Sequence[set[str]]) -> None:
        """The end of a block: of the function, of a loop, or branches onward."""
        chance, block = self.chance, blocks[number]
        later = range(number + 1, len(blocks))
        back = [n for n in range(1, number + 1) if starts[n] <= {*known}]
        if not later or (number > 1 and chance.random() < 0.1):
            block.code += self._last(known)
        elif back and not self.single and chance.random() < 0.12:
            to = chance.choice(back)
            block.code += self._again(known, to)
            block.successors = [to, number + 1]
        else:
            taken, other = chance.choice(later[1:4] or later), number + 1
            other = chance.choice(later[:3]) if chance.random() < 0.15 else other
            code, both = self._branches(known, taken, other, number + 1)
            block.code += code
            block.successors = [*dict.fromkeys([taken, other] if both else [taken])]

    def _last(self, known: list[str]) -> list[Code]:
        code = self._set(known) if self.chance.random() < 0.8 else []
        for n in range(self.chance.randint(0, 3)):
            given: list[str] = []
            if self.chance.random() < 0.6:
                code.append(self.make("{v} = V_MOV_B32_e32 {s}, implicit $exec", known, self.new("v")))
                given = [*code[-1].to]
            code.append(self.store(known, 64 + 8 * n, *given))
        if self.called:
            code.append(self.make("{X} = S_MOV_{M} {m}", known, self.home))
            if self.chance.random() < 0.4:
                return [*code, *self._tail(known)]
        return [*code, Code("SI_RETURN" if self.called else "S_ENDPGM 0", Line("s_endpgm"), ends=True)]

    def _tail(self, known: list[str]) -> list[Code]:
        """A call instead of a return: what it is given is what counts."""
        given = [("$vgpr0", (("v", 0),), "v"), ("$sgpr2", (("s", 2),), "s")]
        form = _TAIL[self.called]
        code = [Code(f"{form.split()[1].rstrip(',')} = S_MOV_B64 77", Line("label"))]
        for register, keys, kind in given:
            name = self.chance.choice([name for name in known if name[0] == kind])
            code.append(Code(f"{register} = COPY {{{name}}}", Line("copy", (keys,), (self.keys(name),)), (), (name,)))
        return [*code, Code(form, Line("tail"), ends=True)]

    def _again(self, known: list[str], to: int) -> list[Code]:
        """The end of a loop, by a scalar or by threads that leave it."""
        if self.chance.random() < 0.5:
            s = self.chance.choice([name for name in known if name[0] == "s"])
            less = self.make("{s} = S_ADD_I32 {s}, -1, implicit-def dead $scc", known, s, s)
            return [
                less,
                self.make("S_CMP_GT_I32 {s}, 0, implicit-def $scc", known, s),
                self._jump("s_cbranch_scc1", to),
            ]
        leave = self.make("{X} = S_ANDN2_{M} {X}, {m}, implicit-def dead $scc", known)
        return [leave, self._jump("s_cbranch_execnz", to)]

    def _branches(self, known: list[str], taken: int, other: int, following: int) -> tuple[list[Code], bool]:
        """A condition, and branches; whether there are two."""
        chance = self.chance
        kinds = ["execz"] * 10 + ["execnz"] * 3 + ["vccz", "vccnz", "scc0", "scc1"] * 2 + [""]
        kind = chance.choice(kinds)
        if not kind:
            return ([self._jump("s_branch", taken)] if taken != following else []), False
        code: list[Code] = []
        if kind.startswith("exec") and chance.random() < 0.7:
            narrow = chance.random() < 0.5
            code = [self.make(_SAVE % ("AND", "{m}"), known)] if narrow else self._set(known)
        elif kind.startswith("vcc"):
            code = [self.make(f"{self.vcc} = S_AND_{{M}} {{X}}, {{m}}, implicit-def dead $scc", known)]
            if chance.random() < 0.3:
                test = self.make(f"{self.vcc} = V_CMP_GT_U32_e64 {{v}}, {{v}}, implicit $exec", known)
                narrow = f"{self.vcc} = S_AND_{{M}} {{X}}, {self.vcc}, implicit-def dead $scc"
                code = [test, *([self.make(narrow, known)] if chance.random() < 0.5 else [])]
        elif kind.startswith("scc"):
            code = [self.make("S_CMP_EQ_U32 {s}, {n}, implicit-def $scc", known)]
        code.append(self._jump("s_cbranch_" + kind, taken))
        return [*code, *([self._jump("s_branch", other)] if other != following else [])], True

    @staticmethod
    def _jump(name: str, to: int) -> Code:
        asks = re.match(r"s_cbranch_(exec|vcc|scc)", name)
        form = f"{name.upper()} %bb.{to}" + (f", implicit ${asks[1]}" if asks else "")
        return Code(form, Line(name, label=f"bb{to}"), ends=True)


def lines_of(blocks: Sequence[Block]) -> list[Line]:
    """The function as it is run."""
    lines: list[Line] = []
    for number, block in enumerate(blocks):
        lines += [Line("label", label=f"bb{number}"), *(code.line for code in block.code)]
    return lines


ROW = "\n  - {{ id: {id}, class: {kind}, preferred-register: '', flags: [  ] }}"
SLOT = """
  - {{ id: {id}, name: '', type: spill-slot, offset: 0, size: {size}, alignment: 4, stack-id: {stack},
      callee-saved-register: '', callee-saved-restored: true, debug-info-variable: '',
      debug-info-expression: '', debug-info-location: '' }}"""
_HEAD = """--- |
  define {convention}void @f() {{
    ret void
  }}
...
---
name:            f
tracksRegLiveness: true
registers:{registers}
frameInfo:
  maxAlignment:    4
  adjustsStack:    {calls}
  hasCalls:        {calls}
stack:{stack}
machineFunctionInfo:
  isEntryFunction: {is_entry}
{spilled}  scratchRSrcReg:  '$private_rsrc_reg'
  frameOffsetReg:  '$sgpr33'
  stackPtrOffsetReg: '$sgpr32'
body:             |
"""


def text_of(blocks: Sequence[Block], live: Sequence[Iterable[str]], head: Mapping[str, str]) -> str:
    """Machine IR, with the registers that each block declares."""
    lines = [_HEAD.format(**{"registers": " []", "stack": " []", "spilled": "", **head})]
    for number, block in enumerate(blocks):
        lines.append(f"  bb.{number}:\n")
        if block.successors:
            lines.append("    successors: " + ", ".join(f"%bb.{n}" for n in block.successors) + "\n")
        lines.append("    liveins: " + ", ".join(live[number]) + "\n")
        lines += [f"    {code.form}\n" for code in block.code]
        lines.append("\n")
    return "".join([*lines, "...\n"])
