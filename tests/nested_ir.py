"""Random LLVM IR of one kernel: many values that live through nested branches of threads, with scalars between them."""

from __future__ import annotations

import random

_HEAD = (
    'target triple = "amdgcn-amd-amdhsa"\n'
    "define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n, [16 x i32] %c) {\n"
    "entry:\n  %id = call i32 @llvm.amdgcn.workitem.id.x()"
)
_DEPTH = 3
_Values = dict[str, str]
"""From a variable to the name that has its value now."""


def nested_ir(seed: int, vectors: int, scalars: int) -> str:
    """The kernel; the same for the same arguments.

    Args:
        vectors: values that differ between threads, each loaded at the start and stored at the end.
        scalars: values that all threads share, at most 16.
    """
    return _Writer(seed, vectors, scalars).text()


class _Writer:
    def __init__(self, seed: int, vectors: int, scalars: int) -> None:
        self._random = random.Random(seed)
        self._vectors = [f"%v{n}" for n in range(vectors)]
        self._scalars = [f"%s{n}" for n in range(scalars)]
        self._all = self._vectors + self._scalars
        self._lines = [_HEAD]
        self._block = "entry"
        self._names = 0

    def text(self) -> str:
        for number, name in enumerate(self._vectors):
            self._lines.append(f"  {name} = load volatile i32, ptr addrspace(1) {self._address(number * 64)}")
        self._lines += [f"  {name} = extractvalue [16 x i32] %c, {n}" for n, name in enumerate(self._scalars)]
        values = {name: name for name in self._all}
        self._body(values, 0)
        for number, name in enumerate(self._all):
            address = self._address(4096 + number * 64)
            self._lines.append(f"  store volatile i32 {values[name]}, ptr addrspace(1) {address}")
        return "\n".join([*self._lines, "  ret void\n}\ndeclare i32 @llvm.amdgcn.workitem.id.x()"]) + "\n"

    def _address(self, offset: int) -> str:
        row, address = self._new("%h"), self._new("%g")
        self._lines.append(f"  {row} = getelementptr i32, ptr addrspace(1) %p, i32 {offset}")
        self._lines.append(f"  {address} = getelementptr i32, ptr addrspace(1) {row}, i32 %id")
        return address

    def _new(self, prefix: str = "%x") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _operations(self, values: _Values, count: int) -> None:
        for _ in range(count):
            self._operation(values, self._vectors, self._all, ["add", "xor", "mul", "sub", "and", "or"])
            if self._random.random() < 0.25:
                self._operation(values, self._scalars, self._scalars, ["add"])

    def _operation(self, values: _Values, names: list[str], others: list[str], opcodes: list[str]) -> None:
        name, other, opcode = map(self._random.choice, (names, others, opcodes))
        result = self._new()
        self._lines.append(f"  {result} = {opcode} i32 {values[name]}, {values[other]}")
        values[name] = result

    def _branch(self, values: _Values, depth: int) -> None:
        condition, name, other = self._new("%c"), self._random.choice(self._vectors), self._random.choice(self._all)
        relation = self._random.choice(["slt", "eq", "ugt"])
        self._lines.append(f"  {condition} = icmp {relation} i32 {values[name]}, {values[other]}")
        taken, other_way, join = self._new("t"), self._new("e"), self._new("j")
        both = self._random.random() < 0.5
        self._lines.append(f"  br i1 {condition}, label %{taken}, label %{other_way if both else join}")
        ends = [] if both else [(dict(values), self._block)]
        for block in (taken, other_way) if both else (taken,):
            self._lines.append(f"{block}:")
            self._block, inside = block, dict(values)
            self._body(inside, depth + 1)
            ends.append((inside, self._block))
            self._lines.append(f"  br label %{join}")
        self._lines.append(f"{join}:")
        self._block = join
        for name in self._all:
            if len({end[name] for end, _ in ends}) > 1:
                result = self._new("%phi")
                ways = ", ".join(f"[{end[name]}, %{block}]" for end, block in ends)
                self._lines.append(f"  {result} = phi i32 {ways}")
                values[name] = result

    def _body(self, values: _Values, depth: int) -> None:
        self._operations(values, self._random.randint(1, 6))
        for _ in range(self._random.randint(1, 2)):
            if depth < _DEPTH and self._random.random() < 0.8:
                self._branch(values, depth)
            self._operations(values, self._random.randint(1, 5))
        if self._random.random() < 0.3:
            self._lines.append('  call void asm sideeffect "; clobber", "~{v0},~{v1},~{v2},~{v3}"()')
