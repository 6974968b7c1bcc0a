"""C = A B, as a matrix-core kernel: tiles, staging, layouts and an epilogue by configuration.

A is M x K with K consecutive. B is N x K (``nk``) or K x N (``kn``). Each wave computes ``tiles_m`` x ``tiles_n``
instruction tiles, a work-group ``waves_m`` x ``waves_n`` waves. The K loop advances ``unroll`` instructions a turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from .emit import Body, Index, Memory, accumulator_type, kernel, vector, zero
from .instructions import BITS, Instruction, lds_bytes

STAGINGS = ("registers", "lds", "pipelined")
"""Operands straight from global memory; through LDS; through LDS with the next tile loaded while this one is used."""

EPILOGUES = ("none", "bias", "bias_relu", "silu", "residual")


@dataclass(frozen=True, order=True)
class Gemm:
    """One GEMM kernel.

    Attributes:
        element: ``f16``, ``bf16``, ``f32`` or ``i8``; accumulators are f32, i32 for i8.
        tiles_m, tiles_n: instruction tiles of a wave.
        waves_m, waves_n: waves of a work-group.
        unroll: instructions along K in one turn of the loop.
        layout: of B.
        swapped: multiply the transposes, so that a lane's results are consecutive in C.
        narrow: store C in the element type (dequantised f16 for i8).
        guarded: M and N need not be multiples of the tile.
        batched: a third grid dimension over independent problems.
    """

    target: str
    instruction: Instruction
    element: str
    tiles_m: int
    tiles_n: int
    waves_m: int
    waves_n: int
    unroll: int
    staging: str
    layout: str
    epilogue: str
    swapped: bool
    narrow: bool
    guarded: bool
    batched: bool

    @property
    def name(self) -> str:
        """A symbol name that tells configurations apart."""
        i = self.instruction
        flags = "".join(
            letter
            for letter, on in zip("tngb", (self.swapped, self.narrow, self.guarded, self.batched), strict=True)
            if on
        )
        return (
            f"gemm_{self.element}_{i.name}_t{self.tiles_m}x{self.tiles_n}_w{self.waves_m}x{self.waves_n}_u{self.unroll}"
            f"_{self.staging}_{self.layout}_{self.epilogue}{'_' if flags else ''}{flags}"
        )

    @property
    def threads(self) -> int:
        return self.instruction.wave * self.waves_m * self.waves_n

    @property
    def block(self) -> tuple[int, int, int]:
        """M, N and K of a work-group's tile."""
        i = self.instruction
        return self.waves_m * self.tiles_m * i.m, self.waves_n * self.tiles_n * i.m, self.unroll * i.k

    @property
    def accumulators(self) -> int:
        """32-bit registers of a lane that hold C."""
        return self.tiles_m * self.tiles_n * self.instruction.cn

    def valid(self) -> bool:
        """Whether it can be generated: tiles divide among the threads, LDS suffices, registers are not absurd."""
        if self.accumulators > 256 or (self.element == "i8" and self.epilogue in ("silu", "residual")):
            return False
        if self.staging == "registers":
            return True
        bm, bn, bk = self.block
        if not self.chunk(bm * bk, bk) or not self.chunk(bn * bk, bk if self.layout == "nk" else bn):
            return False
        return (self.lds_size("a") + self.lds_size("b")) * BITS[self.element] // 8 <= lds_bytes(self.target)

    def chunk(self, elements: int, row: int) -> int:
        """Consecutive elements that a thread moves at a time, 16 bytes at most; 0 if the tile does not divide."""
        size = 128 // BITS[self.element]
        while size and (row % size or elements % (size * self.threads)):
            size //= 2
        return size

    def pitch(self, operand: str) -> int:
        """Elements from row to row in LDS; padded against bank conflicts."""
        bm, bn, bk = self.block
        del bm
        row = bn if operand == "b" and self.layout == "kn" else bk
        return row + 128 // BITS[self.element]

    def lds_size(self, operand: str) -> int:
        """Elements of LDS for an operand's tile."""
        bm, bn, bk = self.block
        rows = bm if operand == "a" else (bn if self.layout == "nk" else bk)
        return rows * self.pitch(operand)

    def mlir(self) -> str:
        """The kernel as MLIR, in the gpu, scf, arith, vector, memref and amdgpu dialects."""
        return _Writer(self).write()


class _Writer:
    def __init__(self, config: Gemm) -> None:
        self.c = config
        self.i = config.instruction
        self.body = Body()
        e = config.element
        self.acc = accumulator_type(e)
        self.out = ("f16" if e == "i8" else e) if config.narrow else self.acc
        self.A, self.B = Memory("%A", e), Memory("%B", e)
        self.C = Memory("%C", self.out)
        self.extra = Memory("%D", "f32" if config.epilogue.startswith("bias") or e == "i8" else self.out)
        self.lds = (
            {} if config.staging == "registers" else {o: Memory(f"%lds_{o}", e, config.lds_size(o)) for o in ("a", "b")}
        )

    def write(self) -> str:
        b, c, i = self.body, self.c, self.i
        bm, bn, _ = c.block
        self.thread = b.value("gpu.thread_id x")
        lane, wave = b.rem(self.thread, i.wave), b.div(self.thread, i.wave)
        self.lane_row = b.rem(lane, i.m)
        self.group = b.div(lane, i.m)
        self.block_row = b.mul(b.value("gpu.block_id y"), bm)
        self.block_column = b.mul(b.value("gpu.block_id x"), bn)
        self.wave_row = b.mul(b.div(wave, c.waves_n), c.tiles_m * i.m)
        self.wave_column = b.mul(b.rem(wave, c.waves_n), c.tiles_n * i.m)
        self.base = {"a": 0, "b": 0, "c": 0}
        if c.batched:
            z = b.value("gpu.block_id z")
            sizes = {"a": ("%M", "%K"), "b": ("%N", "%K"), "c": ("%M", "%N")}
            self.base = {name: b.mul(z, b.mul(x, y)) for name, (x, y) in sizes.items()}
        tiles = c.tiles_m * c.tiles_n
        start = [(zero(b, self.acc, i.cn), vector(self.acc, i.cn))] * tiles
        results = {"registers": self._direct, "lds": self._staged, "pipelined": self._pipelined}[c.staging](start)
        self._epilogue(results)
        buffers = [self.A, self.B, self.C, *([self.extra] if c.epilogue != "none" else []), *self.lds.values()]
        scalars = [("%M", "index"), ("%N", "index"), ("%K", "index")]
        if c.element == "i8" and c.narrow:
            scalars.append(("%scale", "f32"))
        return kernel(c.name, c.target, buffers, scalars, c.threads, b)

    def _direct(self, start: list[tuple[str, str]]) -> list[str]:
        """Every lane loads its own fragments from global memory."""
        b = self.body
        rows = self._tile_rows("a", self.block_row)
        columns = self._tile_rows("b", self.block_column)
        with b.loop(0, "%K", self.c.block[2], start) as loop:
            values = loop.values
            for step in range(self.c.unroll):
                k = b.add(loop.index, step * self.i.k, b.mul(self._k_group(), self.i.kpl))
                a = [self._global_fragment("a", row, k) for row in rows]
                w = [self._global_fragment("b", column, k) for column in columns]
                values = self._multiply(values, a, w)
            loop.next = values
        return loop.results

    def _staged(self, start: list[tuple[str, str]]) -> list[str]:
        b = self.body
        with b.loop(0, "%K", self.c.block[2], start) as loop:
            self._write_lds(self._read_tiles(loop.index))
            b.do("gpu.barrier")
            loop.next = self._multiply_lds(loop.values)
            b.do("gpu.barrier")
        return loop.results

    def _pipelined(self, start: list[tuple[str, str]]) -> list[str]:
        """The next tile travels through registers while the one in LDS is used; the last turn loads its own again."""
        b, bk = self.body, self.c.block[2]
        first = self._read_tiles(0)
        kinds = [vector(self.c.element, count) for *_, count in self._chunks()]
        last = b.value(f"arith.subi %K, {b.index(bk)} : index")
        with b.loop(0, "%K", bk, [*start, *zip(first, kinds, strict=True)]) as loop:
            tiles = len(start)
            self._write_lds(loop.values[tiles:])
            b.do("gpu.barrier")
            following = self._read_tiles(b.minimum(b.add(loop.index, bk), last))
            loop.next = [*self._multiply_lds(loop.values[:tiles]), *following]
            b.do("gpu.barrier")
        return loop.results[: len(start)]

    def _multiply_lds(self, values: list[str]) -> list[str]:
        b, c, i = self.body, self.c, self.i
        for step in range(c.unroll):
            k = b.add(step * i.k, b.mul(self._k_group(), i.kpl))
            a = [self._lds_fragment("a", t, k) for t in range(c.tiles_m)]
            w = [self._lds_fragment("b", t, k) for t in range(c.tiles_n)]
            values = self._multiply(values, a, w)
        return values

    def _multiply(self, values: list[str], a: list[str], w: list[str]) -> list[str]:
        c = self.c
        done: list[str] = []
        for m in range(c.tiles_m):
            for n in range(c.tiles_n):
                x, y = (w[n], a[m]) if c.swapped else (a[m], w[n])
                done.append(self.body.matrix(self.i, c.element, x, y, values[m * c.tiles_n + n]))
        return done

    def _k_group(self) -> Index:
        return 0 if self.i.duplicated else self.group

    def _tile_rows(self, operand: str, block: Index) -> list[Index]:
        """The lane's row of A (column of B) in each of its tiles, inside the matrix."""
        b, c = self.body, self.c
        wave, tiles, size = (self.wave_row, c.tiles_m, "%M") if operand == "a" else (self.wave_column, c.tiles_n, "%N")
        first = b.add(block, wave, self.lane_row)
        return [self._inside(b.add(first, t * self.i.m), size) for t in range(tiles)]

    def _inside(self, position: Index, size: str) -> Index:
        """Clamped to the last one: what is read there is multiplied into results that are not stored."""
        if not self.c.guarded:
            return position
        return self.body.minimum(position, self.body.value(f"arith.subi {size}, {self.body.index(1)} : index"))

    def _global_fragment(self, operand: str, row: Index, k: Index) -> str:
        b, i = self.body, self.i
        memory, base = (self.A, self.base["a"]) if operand == "a" else (self.B, self.base["b"])
        if operand == "a" or self.c.layout == "nk":
            return b.load(memory, b.add(base, b.mul(row, "%K"), k), i.kpl)
        first = b.add(base, b.mul(k, "%N"), row)
        parts: list[str] = []
        for _ in range(i.kpl):
            parts.append(b.load(memory, first))
            first = b.add(first, "%N")
        return b.pack(parts, self.c.element)

    def _lds_fragment(self, operand: str, tile: int, k: Index) -> str:
        b, i, memory, pitch = self.body, self.i, self.lds[operand], self.c.pitch(operand)
        wave = self.wave_row if operand == "a" else self.wave_column
        row = b.add(wave, self.lane_row, tile * i.m)
        if operand == "a" or self.c.layout == "nk":
            return b.load(memory, b.add(b.mul(row, pitch), k), i.kpl)
        first = b.add(b.mul(k, pitch), row)
        return b.pack([b.load(memory, b.add(first, j * pitch)) for j in range(i.kpl)], self.c.element)

    def _chunks(self) -> list[tuple[str, int, int, int]]:
        """What a thread moves into LDS: (operand, turn, elements of a row, consecutive elements), A before B."""
        bm, bn, bk = self.c.block
        found: list[tuple[str, int, int, int]] = []
        for operand, rows, row in (("a", bm, bk), ("b", bn, bk) if self.c.layout == "nk" else ("b", bk, bn)):
            size = self.c.chunk(rows * row, row)
            turns = rows * row // (size * self.c.threads)
            found += [(operand, turn, row, size) for turn in range(turns)]
        return found

    def _place(self, turn: int, row: int, size: int) -> tuple[Index, Index]:
        """Row and column in the tile of a thread's chunk."""
        b = self.body
        chunk = b.add(self.thread, turn * self.c.threads)
        return b.div(chunk, row // size), b.mul(b.rem(chunk, row // size), size)

    def _read_tiles(self, k: Index) -> list[str]:
        b = self.body
        values: list[str] = []
        for operand, turn, row, size in self._chunks():
            r, column = self._place(turn, row, size)
            if operand == "b" and self.c.layout == "kn":
                n = self._inside(b.add(self.block_column, column), "%N")
                at = b.add(self.base["b"], b.mul(b.add(k, r), "%N"), n)
                values.append(b.load(self.B, at, size))
                continue
            block, limit = (self.block_row, "%M") if operand == "a" else (self.block_column, "%N")
            at = b.add(b.mul(self._inside(b.add(block, r), limit), "%K"), k, column)
            memory = self.A if operand == "a" else self.B
            values.append(b.load(memory, b.add(self.base[operand], at), size))
        return values

    def _write_lds(self, values: list[str]) -> None:
        b = self.body
        for value, (operand, turn, row, size) in zip(values, self._chunks(), strict=True):
            r, column = self._place(turn, row, size)
            b.store(self.lds[operand], b.add(b.mul(r, self.c.pitch(operand)), column), value, size)

    def _epilogue(self, results: list[str]) -> None:
        b, c, i = self.body, self.c, self.i
        for m in range(c.tiles_m):
            for n in range(c.tiles_n):
                value = results[m * c.tiles_n + n]
                row0 = b.add(self.block_row, self.wave_row, m * i.m)
                column0 = b.add(self.block_column, self.wave_column, n * i.m)
                for element in range(0, i.cn, self._together()):
                    constant, factor = i.c_row(element)
                    along = b.add(b.mul(self.group, factor), constant)
                    row, column = (
                        (b.add(row0, self.lane_row), b.add(column0, along))
                        if c.swapped
                        else (b.add(row0, along), b.add(column0, self.lane_row))
                    )
                    self._store(row, column, value, element)

    def _together(self) -> int:
        """Elements stored at once: a lane's rows are consecutive in C only if the product is transposed."""
        return self.i.run() if self.c.swapped and not self.c.guarded else 1

    def _store(self, row: Index, column: Index, value: str, element: int) -> None:
        b, c = self.body, self.c
        at = b.add(self.base["c"], b.mul(row, "%N"), column)

        def write() -> None:
            parts = [
                self._finish(b.extract(value, element + j, self.acc, self.i.cn), b.add(at, j), b.add(column, j))
                for j in range(self._together())
            ]
            b.store(self.C, at, b.pack(parts, self.out), len(parts))

        if not c.guarded:
            write()
            return
        inside = [
            b.value(f"arith.cmpi ult, {b.index(p)}, {limit} : index") for p, limit in ((row, "%M"), (column, "%N"))
        ]
        with b.when(b.value(f"arith.andi {inside[0]}, {inside[1]} : i1")):
            write()

    def _finish(self, x: str, at: Index, column: Index) -> str:
        """The epilogue of one element, and its conversion."""
        b, c = self.body, self.c
        if self.acc == "i32":
            if not c.narrow and c.epilogue == "none":
                return x
            x = b.value(f"arith.sitofp {x} : i32 to f32")
            if c.narrow:
                x = b.value(f"arith.mulf {x}, %scale : f32")
        if c.epilogue.startswith("bias"):
            x = b.value(f"arith.addf {x}, {b.load(self.extra, column)} : f32")
        if c.epilogue == "bias_relu":
            x = b.value(f"arith.maximumf {x}, {b.constant('0.0', 'f32')} : f32")
        if c.epilogue == "silu":
            # x / (1 + exp(-x)), gated by D.
            scaled = b.value(f"arith.mulf {x}, {b.constant('-1.44269502', 'f32')} : f32")
            grown = b.value(f"arith.addf {b.value(f'math.exp2 {scaled} : f32')}, {b.constant('1.0', 'f32')} : f32")
            x = b.value(f"arith.divf {x}, {grown} : f32")
            x = b.value(f"arith.mulf {x}, {self._wide(b.load(self.extra, at))} : f32")
        if c.epilogue == "residual":
            x = b.value(f"arith.addf {x}, {self._wide(b.load(self.extra, at))} : f32")
        if self.out == "i32":
            return b.value(f"arith.fptosi {x} : f32 to i32")
        return x if self.out == "f32" else b.value(f"arith.truncf {x} : f32 to {self.out}")

    def _wide(self, value: str) -> str:
        return value if self.out == "f32" else self.body.value(f"arith.extf {value} : {self.out} to f32")
