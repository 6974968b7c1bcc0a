"""Random LLVM IR with divergent control flow: branches, loops with early exits, memory, and calls.

Every feature has a switch. Limits: 32-bit integers only, one kernel or device function and at most one callee, no
vectors, no whole-wave operations, no indirect branches or irreducible loops.
"""

from __future__ import annotations

import random
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


class _Writer:
    def __init__(self, seed: int, features: Features) -> None:
        self.random = random.Random(seed)
        self.features = features
        self.lines: list[str] = []
        self.names = 0
        self.variables = [f"%a{k}" for k in range(self.random.randint(3, 9))]

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
        if depth < 5:
            choices += [(self.branch, 16)] if features.branches else []
            choices += [(self.loop, 14)] if features.loops else []
        for _ in range(count):
            (statement,) = self.random.choices([c for c, _ in choices], [w for _, w in choices])
            statement(depth)


def random_ir(seed: int, features: Features | None = None) -> str:
    """A module with one function ``@k``; its variables are stack slots, which ``opt`` promotes."""
    writer = _Writer(seed, features or Features())
    writer.emit('target triple = "amdgcn-amd-amdhsa"\ndeclare i32 @llvm.amdgcn.workitem.id.x()')
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
    writer.statements(writer.random.randint(4, 10), 0)
    for name in writer.variables:
        place = writer.address("%t")
        value = writer.result(f"load i32, ptr addrspace(5) {name}")
        writer.emit(f"  store volatile i32 {value}, ptr addrspace(1) {place}")
    writer.emit("  ret void\n}")
    return "\n".join(writer.lines) + "\n"
