"""Straight-line code: which values there are, how a template's operands are chosen, and what defines new ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from random_mir.code import Block, Instruction, Operand, Register
from random_mir.features import Features
from random_mir.machine import WIDTHS, Machine, subregister
from random_mir.templates import Template, available

_SLOT = re.compile(r"\{([^{}]*)\}")
_BANKS = {
    "s": ("s",),
    "z": ("s",),
    "v": ("v",),
    "a": ("a",),
    "w": ("v", "a", "av"),
    "av": ("v", "a", "av"),
    "h": ("h", "v"),
}


@dataclass
class Writer:
    """Writes instructions to ``block``; ``scopes`` holds the values defined wherever the code now written runs."""

    seed: random.Random
    machine: Machine
    features: Features
    block: Block = field(default_factory=Block)
    blocks: list[Block] = field(default_factory=list[Block])
    scopes: list[list[Register]] = field(default_factory=lambda: [[]])
    variables: list[Register] = field(default_factory=list[Register])
    """Registers that any block may define anew."""
    narrowed: int = 0
    """How many divergent regions enclose the code now written."""

    def __post_init__(self) -> None:
        self.blocks.append(self.block)

    # -- emission ---------------------------------------------------------------------------------

    def emit(self, text: str, *operands: Operand) -> Instruction:
        instruction = Instruction(text, list(operands))
        self.block.instructions.append(instruction)
        return instruction

    def chance(self, probability: float) -> bool:
        return self.seed.random() < probability

    def new(self, bank: str, width: int, strict: bool = True, whole: bool = True) -> Register:
        name = self.machine.register_class(bank, width)
        if bank == "s" and not strict and width <= 2:
            name = name.replace("sgpr", "sreg")
        return Register(name, bank, width, strict or width > 2, frozenset(range(width)) if whole else frozenset())

    def known(self, register: Register) -> Register:
        if not any(register is r for scope in self.scopes for r in scope):
            self.scopes[-1].append(register)
        return register

    # -- uses -------------------------------------------------------------------------------------

    def use(self, spec: str, scalars: list[Register] | None = None) -> Operand | str:
        """An operand that fits ``spec``, or a constant; ``scalars`` are those the instruction reads already."""
        bank, width = self._bank(spec)
        if bank == "x":
            if self.chance(0.2):
                return str(self.seed.randint(0, 64))
            bank = "s" if not scalars and self.chance(0.35) else "v"
            if bank == "s" and scalars is not None:
                operand = self.read(bank, width, strict=False)
                scalars.append(operand.register)
                return operand
        return self.read(bank, width, strict=spec[0] in "zm")

    def read(self, bank: str, width: int, strict: bool) -> Operand:
        if self.features.undef and self.chance(0.03):
            return Operand(self.new("v" if bank == "w" else "s" if bank == "z" else bank, width), undef=True)
        found = self._candidates(bank, width, strict)
        if not found or self.chance(0.04):
            return self.made(bank, width, strict)
        # Mostly recent values, sometimes any: long and short live ranges.
        recent = found[-6:] if self.chance(0.6) else found
        register, sub = self.seed.choice(recent)
        return Operand(register, sub)

    def address(self, bank: str, width: int, strict: bool = False) -> Operand:
        """A value that is defined: to access memory at an undefined address is no behaviour that anything must keep."""
        operand = self.read(bank, width, strict)
        return self.made(bank, width, strict) if operand.undef else operand

    def _candidates(self, bank: str, width: int, strict: bool) -> list[tuple[Register, str]]:
        found: list[tuple[Register, str]] = []
        for register in (r for scope in self.scopes for r in scope):
            if register.bank not in _BANKS[bank] or (strict and not register.strict):
                continue
            if bank == "h" and register.bank == "v":
                if register.width == 1 and register.lanes:
                    found.append((register, self.seed.choice(["lo16", "hi16"])))
                continue
            if register.width == width:
                # What may be repeated does not read lanes that nothing defines: the audit does not decide such code.
                if len(register.lanes) >= width or bank in ("h", "m"):
                    found.append((register, ""))
            elif register.width > width and (self.features.tuples or register.bank == "s"):
                offsets = [
                    o
                    for o in self.machine.offsets(register.bank, register.width, width)
                    if register.lanes & set(range(o, o + width))
                ]
                if offsets:
                    found.append((register, subregister(self.seed.choice(offsets), width)))
        return found

    def made(self, bank: str, width: int, strict: bool) -> Operand:
        """A new register, made here."""
        if bank == "w":
            choices = ["v", "a", "av"] if self.features.agprs and self.machine.matrix_core else ["v"]
            bank = self.seed.choice(choices)
        bank = {"z": "s"}.get(bank, bank)
        register = self.new(bank, width, strict or self.chance(0.5), whole=width == 1)
        if bank == "h":
            self.emit("<0> = V_MOV_B16_t16_e64 0, 0, 0, implicit $exec", Operand(register, is_def=True))
        elif width == 1:
            self.emit(f"<0> = {self._constant(bank)}", Operand(register, is_def=True))
        else:
            self._fill(register)
        return Operand(self.known(register))

    def _constant(self, bank: str) -> str:
        value = self.seed.randint(0, 64) if bank in ("a", "av") else self.seed.randint(-99999, 99999)
        return {
            "s": f"S_MOV_B32 {value}",
            "v": f"V_MOV_B32_e32 {value}, implicit $exec",
            "a": f"V_ACCVGPR_WRITE_B32_e64 {value}, implicit $exec",
            "av": f"AV_MOV_B32_IMM_PSEUDO {value}, implicit $exec",
        }[bank]

    def _fill(self, register: Register) -> None:
        """Defines a tuple by parts, in some order, perhaps not all of it."""
        part = self.seed.choice(
            [w for w in WIDTHS if w < register.width and w in (1, 2, 4) and register.width % w == 0]
        )
        if register.width >= 8 and part == 1:
            part = 4
        parts = [(o, part) for o in range(0, register.width, part)]
        self.seed.shuffle(parts)
        skip = self.features.undef and self.chance(0.25)
        kept = parts[: self.seed.randint(1, len(parts))] if skip else parts
        for number, (offset, width) in enumerate(kept):
            source = self._part(register.bank, width)
            target = Operand(register, subregister(offset, width), is_def=True, undef=number == 0)
            if source is None:
                self.emit(f"<0> = {self._constant(register.bank)}", target)
            else:
                self.emit("<0> = COPY <1>", target, source)
            known = set(range(width)) if source is None or source.sub else source.register.lanes
            register.lanes |= {offset + lane for lane in known}

    def _part(self, bank: str, width: int) -> Operand | None:
        """A value to copy to a part, or None for a constant."""
        found = self._candidates(bank, width, strict=False)
        if width > 1 and not found:
            return self.made(bank, width, strict=True)
        return Operand(*self.seed.choice(found)) if found and (width > 1 or self.chance(0.5)) else None

    # -- definitions ------------------------------------------------------------------------------

    def define(self, spec: str, early: bool, fresh: bool) -> Operand:
        """A register to define: new, some lanes of a new tuple, or a variable anew."""
        bank, width = self._bank(spec)
        strict = bank != "s" or spec[0] in "zm" or self.chance(0.6)
        if bank == "w":
            choices = ["v", "v", "a", "av"] if self.features.agprs and self.machine.matrix_core else ["v"]
            bank = self.seed.choice(choices)
        bank = "s" if bank == "z" else bank
        if not fresh and self.chance(0.2):
            same = [r for r in self.variables if r.bank == bank and r.width == width and (r.strict or not strict)]
            if same:
                return Operand(self.seed.choice(same), is_def=True, early_clobber=early)
        whole = fresh or (early and not self.features.early_lanes)
        if not whole and self.features.tuples and bank != "h" and self.chance(0.15):
            wider = [w for w in (2, 3, 4, 8) if w > width and self.machine.offsets(bank, w, width)]
            if wider:
                register = self.new(bank, self.seed.choice(wider), strict, whole=False)
                offset = self.seed.choice(self.machine.offsets(bank, register.width, width))
                register.lanes = frozenset(range(offset, offset + width))
                return Operand(register, subregister(offset, width), is_def=True, undef=True, early_clobber=early)
        return Operand(self.new(bank, width, strict), is_def=True, early_clobber=early)

    def _bank(self, spec: str) -> tuple[str, int]:
        if spec == "m":
            return "s", self.machine.mask
        if spec == "h":
            return "h", 1
        return spec[0], int(spec[1:])

    # -- templates --------------------------------------------------------------------------------

    def any_instruction(self, without: Callable[[Template], bool] = lambda template: False) -> None:
        choices = [t for t in available(self.machine, self.features) if not without(t) and self._harmless(t)]
        (template,) = self.seed.choices(choices, [t.weight for t in choices])
        self.write(template)

    def _harmless(self, template: Template) -> bool:
        """LLVM does not keep inactive threads' registers from what writes them, so no such code where they matter."""
        return not self.narrowed or not template.reach or (template.reach == "reads" and self.features.inactive)

    def write(self, template: Template) -> None:
        """One template; ``{0}`` in a later line is what the first definition of an earlier line defined."""
        masks: list[Register] = []
        for line in template.text.split("\n"):
            if line == "{*}":
                for _ in range(self.seed.randint(0, 2)):
                    self.any_instruction(without=lambda t: not quiet(t))
            else:
                self._line(line, masks)

    def _line(self, line: str, results: list[Register]) -> None:
        names = {"VCC": self.machine.vcc, "EXEC": self.machine.exec, "MASK": self.machine.suffix}
        line = re.sub(r"\b(VCC|EXEC|MASK)\b", lambda m: names[m[0]], line)
        slots = _SLOT.findall(line)
        several = len(line.split("\n")) > 1 or sum(s[0] in "det" for s in slots) > 1
        chosen: list[Operand | str] = []
        scalars: list[Register] = []
        tied = next((self.tied(s.split()[1]) for s in slots if "t" in s.split()[0]), None)
        for slot in slots:
            chosen.append(self._choose(slot, tied, scalars, results, several))
            if " :: (" in line and slot.startswith("u ") and not slot.startswith("u w"):
                chosen[-1] = self._defined(chosen[-1], slot.split()[1])
        chosen = [self._apart(item, chosen, tied) for item in chosen]
        operands: list[Operand] = []
        text = ""
        position = 0
        for match, item in zip(_SLOT.finditer(line), chosen, strict=True):
            text += line[position : match.start()]
            position = match.end()
            text += item if isinstance(item, str) else f"<{len(operands)}>"
            if isinstance(item, Operand):
                operands.append(item)
        self.emit(text + line[position:], *operands)
        if "= COPY <1>" in text + line[position:] and not operands[0].sub and not operands[1].sub:
            # A copy of a tuple with lanes that nothing defined has them too.
            operands[0].register.lanes &= operands[1].register.lanes
        for number, operand in enumerate(operands):
            if operand.is_def and f"dead <{number}>" not in text:
                results.append(operand.register)
                self.known(operand.register)

    def _defined(self, item: Operand | str, spec: str) -> Operand | str:
        """An operand of an address, which is not undefined."""
        if isinstance(item, str) or not item.undef:
            return item
        bank, width = self._bank(spec)
        return self.made("v" if bank == "x" else bank, width, strict=spec[0] in "zm")

    def _apart(self, item: Operand | str, others: list[Operand | str], tied: Register | None) -> Operand | str:
        """An early-clobber result, in a register that the instruction does not read: no compiler makes the other, which
        LLVM's live ranges cannot express. What is tied is meant to be read.
        """
        if isinstance(item, str) or not item.early_clobber or item.register is tied:
            return item
        register = item.register
        if all(isinstance(o, str) or o.is_def or o.register is not register for o in others):
            return item
        return Operand(self.new(register.bank, register.width, register.strict), is_def=True, early_clobber=True)

    def _choose(
        self, slot: str, tied: Register | None, scalars: list[Register], results: list[Register], several: bool
    ) -> Operand | str:
        kind, _, spec = slot.partition(" ")
        if kind == "i":
            return str(self.seed.randint(0, 30))
        if kind == "k":
            return str(self.seed.randint(-2000000, 2000000))
        if kind == "o":
            return str(4 * self.seed.randint(0, 60))
        if kind.isdigit():
            return Operand(results[int(kind)])
        if kind == "u":
            return self.use(spec, scalars)
        if "t" in kind:
            assert tied is not None
            return Operand(tied, is_def=True, early_clobber="e" in kind)
        if kind == "=":
            assert tied is not None
            return Operand(tied)
        return self.define(spec, early=kind == "e", fresh=several or spec == "m")

    def tied(self, spec: str) -> Register:
        """A register to update: a variable, or a copy of a value."""
        bank, width = self._bank(spec)
        same = [r for r in self.variables if r.bank == bank and r.width == width]
        if same and self.chance(0.4):
            return self.seed.choice(same)
        source = self.read(bank, width, strict=False)
        register = self.new(bank, width)
        if source.undef:
            self.emit("<0> = IMPLICIT_DEF", Operand(register, is_def=True))
        else:
            self.emit("<0> = COPY <1>", Operand(register, is_def=True), source)
        return self.known(register)


def quiet(template: Template) -> bool:
    """Whether it leaves VCC, SCC and M0 alone."""
    return "$scc" not in template.text and "VCC" not in template.text and "$m0" not in template.text
