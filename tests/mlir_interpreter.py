"""Runs the generator's kernels in numpy, a work-group at a time, all its threads in step.

An oracle of its own for the generated MLIR: element layouts of matrix instructions are written down here again from
the ISA manuals, every access is checked against its buffer, LDS starts as NaN, and gfx11's two halves of a wave must
hold the same operands. Threads in step hide missing barriers; nothing here is about the compiled code.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_NUMPY = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "i8": np.int8, "i32": np.int32}


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, to nearest even; kept as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def rounded(values: np.ndarray, element: str) -> np.ndarray:
    return bf16(values) if element == "bf16" else np.asarray(values).astype(_NUMPY[element])


def _element(kind: str) -> str:
    """Element type of a scalar, vector or memref type."""
    return re.sub(r".*[<x](?=[a-z])", "", kind.split(",")[0].rstrip(">"))


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return match[1]


def _shape(kind: str) -> int:
    match = re.match(r"vector<(\d+)x", kind)
    return int(match[1]) if match else 0


class Kernel:
    """One kernel of a parsed module; ``run`` executes a grid."""

    def __init__(self, module: Any) -> None:
        self.module = module  # owns the operations
        gpu_module = next(op for op in module.body.operations if op.operation.name == "gpu.module")
        target = str(gpu_module.operation.attributes["targets"])
        self.chip = _find(r'chip = "(\w+)"', target)
        self.wave = 32 if re.match(r"gfx1[12]", self.chip) else 64
        function = next(op for op in gpu_module.regions[0].blocks[0].operations if op.operation.name == "gpu.func")
        self.block = function.regions[0].blocks[0]
        size = str(function.operation.attributes["known_block_size"])
        self.threads = int(_find(r"i32: (\d+)", size))

    def run(self, grid: tuple[int, int, int], arguments: list[Any]) -> None:
        """``arguments``: arrays for the buffers (written in place), numbers for the rest, in the kernel's order."""
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    _Group(self, (x, y, z)).run(arguments)


class _Group:
    def __init__(self, kernel: Kernel, block: tuple[int, int, int]) -> None:
        self.kernel = kernel
        self.ids = dict(zip("xyz", block, strict=True))
        self.n = kernel.threads
        self.values: dict[Any, Any] = {}
        self.mask = np.ones(self.n, bool)

    def run(self, arguments: list[Any]) -> None:
        given = list(arguments)
        for argument in self.kernel.block.arguments:
            kind = str(argument.type)
            if "address_space<workgroup>" in kind:
                element = _element(kind)
                size = int(_find(r"memref<(\d+)x", kind))
                fill = np.nan if element != "i8" else 77
                self.values[argument] = np.full(size, fill, _NUMPY[element])
                continue
            value = given.pop(0)
            self.values[argument] = value if kind.startswith("memref") else self._splat(value, kind)
        assert not given
        self._block(self.kernel.block)

    def _splat(self, value: Any, kind: str) -> np.ndarray:
        return np.full(self.n, value, np.int64 if kind == "index" else _NUMPY[kind])

    def _block(self, block: Any) -> list[Any]:
        for op in block.operations:
            operation = op.operation
            if operation.name in ("scf.yield", "gpu.return"):
                return [self.values[value] for value in operation.operands]
            getattr(self, "_" + operation.name.replace(".", "_"), self._simple)(operation)
        return []

    def _set(self, operation: Any, value: Any, position: int = 0) -> None:
        self.values[operation.results[position]] = value

    def _get(self, operation: Any) -> list[Any]:
        return [self.values[value] for value in operation.operands]

    def _scf_for(self, operation: Any) -> None:
        low, high, step, *carried = self._get(operation)
        for bound in (low, high, step):
            assert (bound == bound[0]).all(), "a loop bound differs between threads"
        block = operation.regions[0].blocks[0]
        for index in range(int(low[0]), int(high[0]), int(step[0])):
            for argument, value in zip(block.arguments, [self._splat(index, "index"), *carried], strict=True):
                self.values[argument] = value
            carried = self._block(block)
        for position, value in enumerate(carried):
            self._set(operation, value, position)

    def _scf_if(self, operation: Any) -> None:
        (condition,) = self._get(operation)
        before, self.mask = self.mask, self.mask & condition
        self._block(operation.regions[0].blocks[0])
        self.mask = before

    def _arith_constant(self, operation: Any) -> None:
        kind = str(operation.results[0].type)
        text = str(operation.attributes["value"]).split(" : ")[0].removeprefix("dense<").rstrip(">")
        count, element = _shape(kind), _element(kind)
        dtype = np.int64 if element == "index" else _NUMPY[element]
        self._set(operation, np.full((self.n, count) if count else self.n, float(text)).astype(dtype))

    def _gpu_thread_id(self, operation: Any) -> None:
        self._set(operation, np.arange(self.n, dtype=np.int64))

    def _gpu_block_id(self, operation: Any) -> None:
        name = _find(r"dim (\w)", str(operation.attributes["dimension"]))
        self._set(operation, self._splat(self.ids[name], "index"))

    def _gpu_barrier(self, operation: Any) -> None:
        assert self.mask.all(), "a barrier that not all threads reach"

    def _gpu_shuffle(self, operation: Any) -> None:
        value, offset, width = self._get(operation)
        assert (width == self.kernel.wave).all()
        self._set(operation, value[np.arange(self.n) ^ offset])

    def _places(self, memory: np.ndarray, start: np.ndarray, count: int) -> np.ndarray:
        at = start[:, None] + np.arange(max(count, 1)) if count else start
        used = at[self.mask]
        assert used.size == 0 or (used.min() >= 0 and used.max() < memory.size), "an access outside the buffer"
        return np.clip(at, 0, memory.size - 1)

    def _memref_load(self, operation: Any) -> None:
        memory, start = self._get(operation)
        self._set(operation, memory[self._places(memory, start, _shape(str(operation.results[0].type)))])

    _vector_load = _memref_load

    def _memref_store(self, operation: Any) -> None:
        value, memory, start = self._get(operation)
        at = self._places(memory, start, value.shape[1] if value.ndim == 2 else 0)
        memory[at[self.mask]] = value[self.mask]

    _vector_store = _memref_store

    def _vector_from_elements(self, operation: Any) -> None:
        self._set(operation, np.stack(self._get(operation), axis=1))

    def _vector_extract(self, operation: Any) -> None:
        position = int(_find(r"(\d+)", str(operation.attributes["static_position"]).split(":")[1]))
        self._set(operation, self._get(operation)[0][:, position])

    def _vector_broadcast(self, operation: Any) -> None:
        count = _shape(str(operation.results[0].type))
        self._set(operation, np.repeat(self._get(operation)[0][:, None], count, axis=1))

    def _matrix(self, operation: Any) -> None:
        a, b, c = (value if value.ndim == 2 else value[:, None] for value in self._get(operation))
        m, k = (int(str(operation.attributes[name]).split()[0]) for name in "mk")
        wide = np.int32 if c.dtype == np.int32 else np.float32
        result = np.empty_like(c)
        for first in range(0, self.n, self.kernel.wave):
            lanes = slice(first, first + self.kernel.wave)
            product = self._operand(a[lanes], m, k).astype(wide) @ self._operand(b[lanes], m, k).astype(wide).T
            rows, columns = self._c_places(m, c.shape[1])
            result[lanes] = c[lanes] + product[rows, columns]
        self._set(operation, result)

    _amdgpu_mfma = _amdgpu_wmma = _matrix

    def _operand(self, lanes: np.ndarray, m: int, k: int) -> np.ndarray:
        """The m x k operand that the lanes of a wave hold (A; B transposed)."""
        matrix = np.empty((m, k), lanes.dtype)
        count = lanes.shape[1]
        if self.kernel.chip == "gfx1100":
            assert (lanes[:16] == lanes[16:]).all(), "gfx11 needs the operands twice"
            return lanes[:16]
        for lane in range(lanes.shape[0]):
            start = lane // m * count
            matrix[lane % m, start : start + count] = lanes[lane]
        return matrix

    def _c_places(self, m: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        lane, element = np.meshgrid(np.arange(self.kernel.wave), np.arange(count), indexing="ij")
        group = lane // m
        if self.kernel.chip == "gfx1100":
            rows = 2 * element + group
        elif self.kernel.chip == "gfx1201":
            rows = 8 * group + element
        else:
            rows = element // 4 * (256 // m) + 4 * group + element % 4
        return rows, lane % m

    def _simple(self, operation: Any) -> None:
        """Element by element: operands with one result."""
        operands = self._get(operation)
        kind = _element(str(operation.results[0].type))
        with np.errstate(over="ignore", under="ignore", invalid="raise", divide="raise"):
            self._set(operation, _SIMPLE[operation.name](operation, kind, *operands))


def _compare(operation: Any, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # arith.cmpi predicates: eq 0, ule 7, ult 6.
    predicate = int(str(operation.attributes["predicate"]).split()[0])
    return {0: np.equal, 6: np.less, 7: np.less_equal}[predicate](a, b)


_SIMPLE = {
    "arith.addi": lambda op, kind, a, b: a + b,
    "arith.subi": lambda op, kind, a, b: a - b,
    "arith.muli": lambda op, kind, a, b: a * b,
    "arith.divui": lambda op, kind, a, b: a // b,
    "arith.remui": lambda op, kind, a, b: a % b,
    "arith.minui": lambda op, kind, a, b: np.minimum(a, b),
    "arith.andi": lambda op, kind, a, b: a & b,
    "arith.cmpi": _compare,
    "arith.select": lambda op, kind, c, a, b: np.where(c, a, b),
    "arith.addf": lambda op, kind, a, b: a + b,
    "arith.subf": lambda op, kind, a, b: a - b,
    "arith.mulf": lambda op, kind, a, b: a * b,
    "arith.divf": lambda op, kind, a, b: a / b,
    "arith.maximumf": lambda op, kind, a, b: np.maximum(a, b),
    "arith.truncf": lambda op, kind, a: rounded(a, kind),
    "arith.extf": lambda op, kind, a: a.astype(np.float32),
    "arith.sitofp": lambda op, kind, a: a.astype(np.float32),
    "arith.fptosi": lambda op, kind, a: a.astype(np.int32),
    "math.exp2": lambda op, kind, a: np.exp2(a),
    "math.log2": lambda op, kind, a: np.log2(a),
}
