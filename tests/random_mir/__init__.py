"""Random machine IR as it enters register allocation (``llc -stop-before=greedy,0``), with a switch per feature.

``random_mir(seed, target, features)`` gives the text of one function ``@k``, the same for the same arguments. The text
around the body is llc's own for an empty function with the same signature and attributes; the body is generated, in the
form SILowerControlFlow, PHI elimination and the coalescer leave: no SSA, no PHIs, one register for each web of
definitions and uses, ``undef`` on the first partial definition of a tuple.

What it cannot make: whole-wave code (WWM, WQM) and image instructions; bundles; stack objects and
dynamic allocas; exception or computed control flow, tail calls, indirect calls, calls that take arguments on the stack;
loops with several exits where threads diverge; EXEC other than by the forms LLVM lowers ``if``, ``else``, loops and
waterfalls to; kill flags and debug values; register hints; more than one function a file; operations on whole tuples of
which some lanes are not defined.
"""

from __future__ import annotations

import random
import re

from random_mir.code import Operand, Register, render
from random_mir.features import Features, random_features, switches
from random_mir.flow import Flow, bank_and_width
from random_mir.machine import Machine
from random_mir.skeleton import Skeleton, skeleton
from random_mir.webs import define_everywhere, split_webs
from random_mir.writer import Writer

__all__ = ["TARGETS", "Features", "random_features", "random_mir", "switches"]

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
SCALAR_BUDGET = 40
_LATER = re.compile(r", (?:assembly|mixed|repeats)=False")
"""Switches that came later: a text without them is what it was."""


def random_mir(
    seed: int, target: str, features: Features | None = None, attributes: dict[str, str] | None = None
) -> str:
    """Pre-RA text of one function.

    Args:
        seed: what to make; the text is a function of all arguments.
        target: one of ``TARGETS``.
        features: what may occur.
        attributes: string attributes of the function, beside those that the pressure switches set.
    """
    features = features or Features()
    machine = Machine(target)
    given = dict(attributes or {})
    if features.vector_pressure:
        # With a unified register file LLVM grants twice the number asked for (GCNSubtarget::getBaseMaxNumVGPRs).
        given.setdefault("amdgpu-num-vgpr", str(_vector_budget(features) // (2 if machine.matrix_core else 1)))
        if not features.agprs:
            given.setdefault("amdgpu-agpr-alloc", "0")
    if features.scalar_pressure:
        given.setdefault("amdgpu-num-sgpr", str(SCALAR_BUDGET))
    around = skeleton(target, features, tuple(sorted(given.items())))
    writer = Writer(random.Random(f"{seed} {target} {_LATER.sub('', str(features))}"), machine, features)
    flow = Flow(writer, around)
    pressed = _begin(writer, around)
    while flow.budget > 0:
        flow.statements(1, 0)
    _end(flow, pressed)
    define_everywhere(writer.blocks)
    split_webs(writer.blocks)
    return around.complete(*render(writer.blocks))


def _vector_budget(features: Features) -> int:
    """Matrix operands of 1024 bits need room."""
    return 96 if features.matrix else 32


def _begin(writer: Writer, around: Skeleton) -> list[Register]:
    writer.block.live_ins = list(around.arguments)
    late: list[tuple[Operand, str]] = []
    for name in around.arguments:
        bank, width = bank_and_width(name)
        register = writer.new(bank, width)
        copy = (Operand(register, is_def=True), name)
        if writer.features.fixed and writer.chance(0.2):
            late.append(copy)
        else:
            writer.emit(f"<0> = COPY {name}", copy[0])
            writer.known(register)
    # Argument registers that stay occupied until after the first instructions.
    for operand, name in late:
        for _ in range(writer.seed.randint(0, 3)):
            writer.any_instruction()
        writer.emit(f"<0> = COPY {name}", operand)
        writer.known(operand.register)
    for spec in ["v1", "v1", "s1", "s1", *(["v2", "s2", "v4"] if writer.features.tuples else [])]:
        value = writer.use(spec)
        assert isinstance(value, Operand)
        register = writer.new(spec[0], int(spec[1:]))
        if value.undef:
            writer.emit("<0> = IMPLICIT_DEF", Operand(register, is_def=True))
        else:
            writer.emit("<0> = COPY <1>", Operand(register, is_def=True), value)
        writer.variables.append(writer.known(register))
    return _press(writer)


def _press(writer: Writer) -> list[Register]:
    """Values that no instruction can make again, alive from here to the end, more than there are registers."""
    features = writer.features
    pressed: list[Register] = []
    vectors, scalars = _vector_budget(features) + 12, SCALAR_BUDGET + 8
    for on, bank, count in ((features.vector_pressure, "v", vectors), (features.scalar_pressure, "s", scalars)):
        for number in range(count if on else 0):
            address = writer.address("v", 1)
            register = writer.new(bank, 1)
            made = "DS_READ_B32_gfx9 <1>, {}, 0, implicit $exec :: (load (s32), addrspace 3)"
            text = made.format(4 * number) if bank == "v" else "V_READFIRSTLANE_B32 <1>, implicit $exec"
            writer.emit(f"<0> = {text}", Operand(register, is_def=True), address)
            pressed.append(register)
    return pressed


def _end(flow: Flow, pressed: list[Register]) -> None:
    """Reads what is left, so that live ranges last, and returns."""
    writer = flow.writer
    kept = [r for scope in writer.scopes for r in scope]
    for register in pressed + kept:
        if register.bank == "v" and register.width == 1 and (register in pressed or writer.chance(0.8)):
            writer.emit(
                "DS_WRITE_B32_gfx9 <0>, <1>, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
                Operand(register),
                Operand(register),
            )
        elif register.bank in ("v", "a", "av") and register.width == 2 and writer.chance(0.6):
            address = writer.address("v", 1)
            writer.emit(
                "DS_WRITE_B64_gfx9 <0>, <1>, 0, 0, implicit $exec :: (store (s64), addrspace 3)",
                address,
                Operand(register),
            )
        elif register.bank == "s" and register.width == 1 and (register in pressed or writer.chance(0.8)):
            result = writer.new("v", 1)
            address = writer.address("v", 1)
            writer.emit("<0> = COPY <1>", Operand(result, is_def=True), Operand(register))
            writer.emit(
                "DS_WRITE_B32_gfx9 <0>, <1>, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
                address,
                Operand(result),
            )
    if writer.features.device:
        value = writer.use("v1")
        assert isinstance(value, Operand)
        writer.emit("$vgpr0 = COPY <0>", value)
        writer.emit("SI_RETURN implicit $vgpr0")
    else:
        writer.emit("S_ENDPGM 0")
