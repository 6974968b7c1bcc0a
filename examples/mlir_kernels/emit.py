"""MLIR text, one operation a line, with constants kept at the top of the function and index arithmetic folded."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from .instructions import Instruction

Index = int | str
"""An index: a number known here, or the name of a value."""

_LONG = 1 << 30
"""Elements of a buffer argument: bare pointers need a static shape, and no bound is checked against it."""


class Body:
    """The operations of one function."""

    def __init__(self) -> None:
        self._constants: dict[tuple[str, str], str] = {}
        self._lines: list[str] = []
        self._count = 0
        self._depth = 2

    def text(self) -> str:
        """Constants first, then the operations."""
        head = [f"    {name} = arith.constant {value} : {kind}" for (value, kind), name in self._constants.items()]
        return "\n".join([*head, *self._lines])

    def do(self, operation: str) -> None:
        """An operation without a result."""
        self._lines.append("  " * self._depth + operation)

    def value(self, operation: str, results: int = 1) -> str:
        """An operation with a result; returns its name, the first one's where there are several."""
        name = self._new()
        self.do(f"{name}{f':{results}' if results > 1 else ''} = {operation}")
        return name if results == 1 else f"{name}#0"

    def constant(self, value: str, kind: str) -> str:
        key = (value, kind)
        if key not in self._constants:
            self._constants[key] = f"%k{len(self._constants)}"
        return self._constants[key]

    def index(self, value: Index) -> str:
        return self.constant(str(value), "index") if isinstance(value, int) else value

    def add(self, *terms: Index) -> Index:
        known = sum(term for term in terms if isinstance(term, int))
        names = [term for term in terms if isinstance(term, str)]
        if known or not names:
            names.append(self.index(known) if names else "")
        if not names[-1]:
            return known
        total = names[0]
        for name in names[1:]:
            total = self.value(f"arith.addi {total}, {name} overflow<nsw, nuw> : index")
        return total

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if 0 in (a, b):
            return 0
        if 1 in (a, b):
            return b if a == 1 else a
        return self.value(f"arith.muli {self.index(a)}, {self.index(b)} overflow<nsw, nuw> : index")

    def div(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.value(f"arith.divui {a}, {self.index(b)} : index")

    def rem(self, a: Index, b: int) -> Index:
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.value(f"arith.remui {a}, {self.index(b)} : index")

    def minimum(self, a: Index, b: Index) -> Index:
        return self.value(f"arith.minui {self.index(a)}, {self.index(b)} : index")

    def load(self, memory: Memory, at: Index, count: int = 1) -> str:
        """One element, or a vector of consecutive ones."""
        if count == 1:
            return self.value(f"memref.load {memory.name}[{self.index(at)}] : {memory.kind}")
        return self.value(
            f"vector.load {memory.name}[{self.index(at)}] : {memory.kind}, {vector(memory.element, count)}"
        )

    def store(self, memory: Memory, at: Index, value: str, count: int = 1) -> None:
        if count == 1:
            self.do(f"memref.store {value}, {memory.name}[{self.index(at)}] : {memory.kind}")
        else:
            of = vector(memory.element, count)
            self.do(f"vector.store {value}, {memory.name}[{self.index(at)}] : {memory.kind}, {of}")

    def pack(self, values: Sequence[str], element: str) -> str:
        """A vector of scalars; the scalar itself if it is one."""
        if len(values) == 1:
            return values[0]
        return self.value(f"vector.from_elements {', '.join(values)} : {vector(element, len(values))}")

    def extract(self, value: str, position: int, element: str, count: int) -> str:
        return self.value(f"vector.extract {value}[{position}] : {element} from {vector(element, count)}")

    def splat(self, value: str, element: str, count: int) -> str:
        return self.value(f"vector.broadcast {value} : {element} to {vector(element, count)}")

    def matrix(self, instruction: Instruction, element: str, a: str, b: str, c: str) -> str:
        """C + A * B in one matrix instruction; generic form, which all versions of the dialect read."""
        i = instruction
        accumulator = accumulator_type(element)
        shape = {"m": i.m, "n": i.m, "k": i.k} | ({"blocks": 1} if i.op == "amdgpu.mfma" else {})
        attributes = ", ".join(f"{name} = {value} : i32" for name, value in shape.items())
        operand, result = vector(element, i.kpl), vector(accumulator, i.cn)
        types = f"({operand}, {operand}, {result}) -> {result}"
        return self.value(f'"{i.op}"({a}, {b}, {c}) <{{{attributes}}}> : {types}')

    @contextmanager
    def loop(
        self, start: Index, stop: Index, step: Index, carried: Sequence[tuple[str, str]]
    ) -> Generator[Loop, None, None]:
        """``scf.for``; ``carried`` are (initial value, type). Set ``Loop.next`` before the block ends."""
        loop = Loop(self._new(), [self._new() for _ in carried], [])
        header = f"scf.for {loop.index} = {self.index(start)} to {self.index(stop)} step {self.index(step)}"
        types = ", ".join(kind for _, kind in carried)
        if carried:
            result = self._new()
            pairs = ", ".join(f"{n} = {v}" for n, (v, _) in zip(loop.values, carried, strict=True))
            self.do(f"{result}:{len(carried)} = {header} iter_args({pairs}) -> ({types}) {{")
            loop.results = [f"{result}#{position}" for position in range(len(carried))]
        else:
            self.do(f"{header} {{")
        self._depth += 1
        yield loop
        if carried:
            assert len(loop.next) == len(carried)
            self.do(f"scf.yield {', '.join(loop.next)} : {types}")
        self._depth -= 1
        self.do("}")

    @contextmanager
    def when(self, condition: str) -> Generator[None, None, None]:
        """``scf.if`` without results."""
        self.do(f"scf.if {condition} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.do("}")

    def _new(self) -> str:
        self._count += 1
        return f"%v{self._count}"


class Loop:
    """An open loop: its index, the carried values inside, and the results after it."""

    def __init__(self, index: str, values: list[str], results: list[str]) -> None:
        self.index = index
        self.values = values
        self.results = results
        self.next: list[str] = []


class Memory:
    """A one-dimensional buffer: an argument in global memory, or LDS of ``size`` elements."""

    def __init__(self, name: str, element: str, size: int = 0) -> None:
        self.name = name
        self.element = element
        self.size = size
        space = "workgroup" if size else "global"
        self.kind = f"memref<{size or _LONG}x{element}, #gpu.address_space<{space}>>"


def vector(element: str, count: int) -> str:
    """The type of ``count`` elements; a scalar's if it is one."""
    return element if count == 1 else f"vector<{count}x{element}>"


def accumulator_type(element: str) -> str:
    return "i32" if element == "i8" else "f32"


def zero(body: Body, element: str, count: int) -> str:
    literal = "0" if element.startswith("i") else "0.0"
    return body.constant(f"dense<{literal}>" if count > 1 else literal, vector(element, count))


def kernel(
    name: str, target: str, buffers: Sequence[Memory], scalars: Sequence[tuple[str, str]], threads: int, body: Body
) -> str:
    """A module with one kernel: buffers in global memory and scalars as arguments, the rest of ``buffers`` in LDS."""
    given = [f"{m.name}: {m.kind}" for m in buffers if not m.size] + [f"{n}: {kind}" for n, kind in scalars]
    shared = [f"{m.name}: {m.kind}" for m in buffers if m.size]
    workgroup = f" workgroup({', '.join(shared)})" if shared else ""
    return f"""module attributes {{gpu.container_module}} {{
  gpu.module @kernels [#rocdl.target<O = 3, chip = "{target}">] {{
  gpu.func @{name}({", ".join(given)}){workgroup} kernel
      attributes {{known_block_size = array<i32: {threads}, 1, 1>}} {{
{body.text()}
    gpu.return
  }}
  }}
}}
"""
