"""Random LLVM IR with divergent control flow: branches, loops with early exits, memory, and calls.

Every feature has a switch. Limits: 32-bit integers only, one kernel or device function and at most one callee, no
vectors, no whole-wave operations, no indirect branches or irreducible loops.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """What may occur."""

    branches: bool = True
    loops: bool = True
    memory: bool = True
    calls: bool = True
    device_function: bool = False
    special: str = ""
    """A target for whose special instructions there are statements: inline assembly, mixed precision, D16, DPP,
    atomics, whole-wave code, volatile registers, constants in memory, lanes of other threads."""


class _Writer:
    def __init__(self, seed: int, features: Features) -> None:
        self.random = random.Random(seed)
        self.features = features
        self.lines: list[str] = []
        self.names = 0
        self.variables = [
            f"%a{k}" for k in range(self.random.randint(2, 5) if features.special else self.random.randint(3, 9))
        ]

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self, prefix: str = "%x") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def result(self, text: str) -> str:
        name = self.fresh()
        self.emit(f"  {name} = {text}")
        return name

    def any_variable(self) -> str:
        return self.random.choice(self.variables)

    def load(self) -> str:
        return self.result(f"load i32, ptr addrspace(5) {self.any_variable()}")

    def store(self, value: str) -> None:
        self.emit(f"  store i32 {value}, ptr addrspace(5) {self.any_variable()}")

    def address(self, value: str) -> str:
        index = self.result(f"and i32 {value}, 4095")
        return self.result(f"getelementptr i32, ptr addrspace(1) %p, i32 {index}")

    def arithmetic(self, _depth: int) -> None:
        operation = self.random.choice(["add", "sub", "mul", "xor", "and", "or"])
        self.store(self.result(f"{operation} i32 {self.load()}, {self.load()}"))

    def read_memory(self, _depth: int) -> None:
        self.store(self.result(f"load volatile i32, ptr addrspace(1) {self.address(self.load())}"))

    def write_memory(self, _depth: int) -> None:
        place = self.address(self.load())
        self.emit(f"  store volatile i32 {self.load()}, ptr addrspace(1) {place}")

    def call(self, _depth: int) -> None:
        self.store(self.result(f"call fastcc i32 @callee(i32 {self.load()}, i32 {self.load()})"))

    def special(self, _depth: int) -> None:
        """One statement of the target's own."""
        cpu = self.features.special
        names = [n for n, without in SPECIAL.items() if cpu not in without]
        lines, result = SPECIAL_TEXT[self.random.choice(names)]
        given = {k: self.fresh("%y") for k in "abcdefghijklmn"}
        given |= {"A": self.load(), "B": self.load(), "C": self.load(), "P": self.address(self.load())}
        given |= {"I": str(self.random.randint(0, 15)), "E": str(self.random.randint(0, 1))}
        for line in lines.split("\n"):
            self.emit("  " + _PLACE.sub(lambda m: given[m[1]], line))
        if result:
            self.store(given[result])

    def branch(self, depth: int) -> None:
        kind = self.random.choice(["slt", "eq", "ugt"])
        bound = self.random.choice(["%m", "%n", self.load()])
        condition = self.result(f"icmp {kind} i32 {self.load()}, {bound}")
        then, other, join = (self.fresh("b") for _ in range(3))
        both = self.random.random() < 0.5
        self.emit(f"  br i1 {condition}, label %{then}, label %{other if both else join}")
        for label in (then, other) if both else (then,):
            self.emit(f"{label}:")
            self.statements(self.random.randint(1, 3), depth + 1)
            self.emit(f"  br label %{join}")
        self.emit(f"{join}:")

    def loop(self, depth: int) -> None:
        head, body, leave = (self.fresh("b") for _ in range(3))
        self.emit(f"  br label %{head}\n{head}:")
        self.statements(self.random.randint(1, 2), depth + 1)
        value = self.load()
        seen = self.result(f"load volatile i32, ptr addrspace(1) {self.address(value)}")
        condition = self.result(f"icmp ult i32 {seen}, {self.random.choice(['%m', value, '%t'])}")
        self.emit(f"  br i1 {condition}, label %{body}, label %{leave}\n{body}:")
        self.statements(self.random.randint(1, 3), depth + 1)
        self.emit(f"  br label %{head}\n{leave}:")

    def statements(self, count: int, depth: int) -> None:
        features = self.features
        choices: list[tuple[Callable[[int], None], int]] = [(self.arithmetic, 45)]
        choices += [(self.read_memory, 13), (self.write_memory, 8)] if features.memory else []
        choices += [(self.call, 4)] if features.calls else []
        choices += [(self.special, 60)] if features.special else []
        if depth < 5:
            choices += [(self.branch, 16)] if features.branches else []
            choices += [(self.loop, 14)] if features.loops else []
        for _ in range(count):
            (statement,) = self.random.choices([c for c, _ in choices], [w for _, w in choices])
            statement(depth)


_PLACE = re.compile(r"<([A-Za-z])>")
_HALF = (
    "<a> = bitcast i32 <A> to <2 x half>\n<b> = extractelement <2 x half> <a>, i32 <E>\n<c> = fpext half <b> to float\n"
)
SPECIAL_TEXT: dict[str, tuple[str, str]] = {
    "asm vector": ('<a> = call i32 asm sideeffect "v_add_u32 $0, $1, $2", "=v,v,v"(i32 <A>, i32 <B>)', "a"),
    "asm early": (
        '<a> = call i32 asm sideeffect "v_mov_b32 $0, $1\\0Av_add_u32 $0, $0, $2", "=&v,v,v"(i32 <A>, i32 <B>)',
        "a",
    ),
    "asm tied": ('<a> = call i32 asm "v_add_u32 $0, $2, $1", "=v,0,v"(i32 <A>, i32 <B>)', "a"),
    "asm two": (
        '<a> = call {i32, i32} asm sideeffect "; $0 $1 $2 $3", "=&v,=v,v,1,~{v7},~{s9},~{vcc}"(i32 <A>, i32 <B>)\n'
        "<b> = extractvalue {i32, i32} <a>, 0\n<c> = extractvalue {i32, i32} <a>, 1\n<d> = xor i32 <b>, <c>",
        "d",
    ),
    "asm scalar": ('<a> = call i32 asm sideeffect "s_mov_b32 $0, $1", "=s,s,~{scc},~{m0}"(i32 %n)', "a"),
    "asm fixed": ('<a> = call i32 asm sideeffect "; $0 $1 $2", "={v3},{v4},s"(i32 <A>, i32 %m)', "a"),
    "mix": (
        _HALF + "<d> = bitcast i32 <B> to float\n"
        "<e> = call contract float @llvm.fma.f32(float <c>, float <d>, float <c>)\n"
        "<f> = fptrunc float <e> to half\n<g> = bitcast i32 <C> to <2 x half>\n"
        "<h> = insertelement <2 x half> <g>, half <f>, i32 <E>\n<i> = bitcast <2 x half> <h> to i32",
        "i",
    ),
    "packed 8 bits": (
        "<a> = bitcast i32 <A> to float\n<b> = bitcast i32 <B> to float\n"
        "<c> = call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float <a>, float <b>, i32 <C>, i1 <E>)",
        "c",
    ),
    "half load": (
        "<a> = load volatile half, ptr addrspace(1) <P>\n<b> = bitcast i32 <A> to <2 x half>\n"
        "<c> = insertelement <2 x half> <b>, half <a>, i32 <E>\n<d> = bitcast <2 x half> <c> to i32",
        "d",
    ),
    "dpp": ("<a> = call i32 @llvm.amdgcn.update.dpp.i32(i32 <A>, i32 <B>, i32 273, i32 15, i32 15, i1 <E>)", "a"),
    "readlane": ("<a> = call i32 @llvm.amdgcn.readlane.i32(i32 <A>, i32 <I>)", "a"),
    "first lane": ("<a> = call i32 @llvm.amdgcn.readfirstlane.i32(i32 <A>)", "a"),
    "writelane": ("<a> = call i32 @llvm.amdgcn.writelane.i32(i32 %n, i32 <I>, i32 <A>)", "a"),
    "bpermute": ("<a> = call i32 @llvm.amdgcn.ds.bpermute(i32 <A>, i32 <B>)", "a"),
    "permlane": (
        "<a> = call i32 @llvm.amdgcn.permlane16.i32(i32 <A>, i32 <B>, i32 %n, i32 %m, i1 false, i1 false)",
        "a",
    ),
    "atomic": ("<a> = atomicrmw add ptr addrspace(1) <P>, i32 <A> monotonic", "a"),
    "exchange": (
        "<a> = cmpxchg ptr addrspace(1) <P>, i32 <A>, i32 <B> seq_cst seq_cst\n<b> = extractvalue {i32, i1} <a>, 0",
        "b",
    ),
    "local atomic": ("<a> = atomicrmw umax ptr addrspace(3) @lds, i32 <A> monotonic", "a"),
    "whole wave": (
        "<a> = call i32 @llvm.amdgcn.set.inactive.i32(i32 <A>, i32 0)\n"
        "<b> = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 <a>, i32 273, i32 15, i32 15, i1 false)\n"
        "<c> = add i32 <a>, <b>\n<d> = call i32 @llvm.amdgcn.strict.wwm.i32(i32 <c>)",
        "d",
    ),
    "cycles": ("<a> = call i64 @llvm.readcyclecounter()\n<b> = trunc i64 <a> to i32\n<c> = xor i32 <b>, <A>", "c"),
    "mode register": ("<a> = call i32 @llvm.amdgcn.s.getreg(i32 2049)\n<b> = add i32 <a>, <A>", "b"),
    "message": ("call void @llvm.amdgcn.s.sendmsg(i32 1, i32 %n)", ""),
    "constant": (
        "<a> = and i32 <A>, 3\n<b> = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 <a>\n"
        "<c> = load i32, ptr addrspace(4) <b>, !invariant.load !0",
        "c",
    ),
    "division": (
        "<a> = bitcast i32 <A> to float\n<b> = bitcast i32 <B> to float\n<c> = fdiv float <a>, <b>\n"
        "<d> = bitcast float <c> to i32",
        "d",
    ),
    "wide": (
        "<a> = zext i32 <A> to i64\n<b> = zext i32 <B> to i64\n<c> = mul i64 <a>, <b>\n<d> = add i64 <c>, <b>\n"
        "<e> = lshr i64 <d>, 13\n<f> = trunc i64 <e> to i32",
        "f",
    ),
    "ballot": (
        "<a> = icmp slt i32 <A>, <B>\n<b> = call i64 @llvm.amdgcn.ballot.i64(i1 <a>)\n<c> = trunc i64 <b> to i32", "c"
    ),
}  # fmt: skip
SPECIAL: dict[str, frozenset[str]] = {
    name: frozenset(
        {
            "packed 8 bits": ("gfx90a", "gfx1100"),
            "permlane": ("gfx90a", "gfx942", "gfx950"),
            "asm vector": ("gfx1100", "gfx1201", "gfx1250"),
            "asm early": ("gfx1100", "gfx1201", "gfx1250"),
            "asm tied": ("gfx1100", "gfx1201", "gfx1250"),
        }.get(name, ())
    )
    for name in SPECIAL_TEXT
}
"""Statements of their own, and the targets that lack them."""
_GLOBALS = """@table = internal addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 5]
@lds = internal addrspace(3) global i32 poison
"""


def random_ir(seed: int, features: Features | None = None) -> str:
    """A module with one function ``@k``; its variables are stack slots, which ``opt`` promotes."""
    writer = _Writer(seed, features or Features())
    writer.emit('target triple = "amdgcn-amd-amdhsa"\ndeclare i32 @llvm.amdgcn.workitem.id.x()')
    if writer.features.special:
        writer.emit(_GLOBALS)
    if writer.features.calls:
        writer.emit("define internal fastcc i32 @callee(i32 %a, i32 %b) noinline {")
        writer.emit("  %c = mul i32 %a, %b\n  %d = xor i32 %c, 77\n  ret i32 %d\n}")
    convention = "void" if writer.features.device_function else "amdgpu_kernel void"
    writer.emit(f"define {convention} @k(ptr addrspace(1) %p, i32 %n, i32 %m) {{\nentry:")
    writer.emit("  %t0 = call i32 @llvm.amdgcn.workitem.id.x()\n  %t = and i32 %t0, 1023")
    for name in writer.variables:
        writer.emit(f"  {name} = alloca i32, addrspace(5)")
    for number, name in enumerate(writer.variables):
        writer.emit(f"  store i32 {'%t' if number % 2 else '%n'}, ptr addrspace(5) {name}")
    writer.statements(writer.random.randint(2, 6) if writer.features.special else writer.random.randint(4, 10), 0)
    for name in writer.variables:
        place = writer.address("%t")
        value = writer.result(f"load i32, ptr addrspace(5) {name}")
        writer.emit(f"  store volatile i32 {value}, ptr addrspace(1) {place}")
    writer.emit("  ret void\n}")
    if writer.features.special:
        writer.emit("!0 = !{}")
    return "\n".join(writer.lines) + "\n"
