"""softmax(Q K^T) V in one pass over the keys (flash attention, Dao et al. 2022), as a matrix-core kernel.

Everything is computed transposed: S^T = K Q^T, then O^T = V^T P^T. A lane then holds scores of one query only, so the
softmax runs inside lanes but for one exchange between the groups of a wave, and P^T is in the lanes where the second
product wants it: which key an operand's element stands for is free, as long as V^T is read in the same order.

Q and O have ``queries`` x ``head_dim`` for each head, K and V the keys likewise; several query heads may share a
key head. One work-group takes ``waves`` x ``query_tiles`` instruction tiles of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from .emit import Body, Index, Memory, kernel, vector, zero
from .instructions import BITS, Instruction, lds_bytes

VALUES = ("direct", "lds", "transposed")
"""V read key by key from global memory; through LDS, K as well; given as ``head_dim`` x keys."""

MASKS = ("none", "causal", "window")
_LOW = "-1.0e+30"
"""A masked score. Finite, so that a row that is all masked so far has no infinities to subtract."""


@dataclass(frozen=True, order=True)
class Attention:
    """One attention kernel.

    Attributes:
        element: ``f16`` or ``bf16``; scores and sums are f32.
        head_dim: a multiple of the instruction's shape.
        block: keys of one turn of the loop.
        query_tiles: instruction tiles of queries of a wave.
        waves: of a work-group; they share K and V in LDS.
        mask: ``window`` is causal and reaches ``window`` keys back.
        late_sum: add up the row sums of a wave's groups once after the loop, not in every turn.
        heads_inner: tokens outside heads in memory (``[token, head, head_dim]``), else heads outside.
        wide: O in f32.
        log_sum: store the logarithm of the row sums too, as training needs it.
    """

    target: str
    instruction: Instruction
    element: str
    head_dim: int
    block: int
    query_tiles: int
    waves: int
    values: str
    mask: str
    late_sum: bool
    heads_inner: bool
    wide: bool
    log_sum: bool

    @property
    def name(self) -> str:
        """A symbol name that tells configurations apart."""
        flags = "".join(
            letter
            for letter, on in zip("ahwl", (self.late_sum, self.heads_inner, self.wide, self.log_sum), strict=True)
            if on
        )
        return (
            f"attention_{self.element}_{self.instruction.name}_d{self.head_dim}_b{self.block}_q{self.query_tiles}"
            f"_w{self.waves}_{self.values}_{self.mask}{'_' if flags else ''}{flags}"
        )

    @property
    def threads(self) -> int:
        return self.instruction.wave * self.waves

    @property
    def queries(self) -> int:
        """Queries of a work-group."""
        return self.waves * self.query_tiles * self.instruction.m

    @property
    def pitch(self) -> int:
        """Elements from row to row in LDS."""
        return self.head_dim + 8

    def valid(self) -> bool:
        """Whether it can be generated: shapes divide, LDS suffices, registers are not absurd."""
        i = self.instruction
        weights = self.block // i.m * i.cn * (2 if i.duplicated else 1)
        if self.head_dim % i.m or self.head_dim % i.k or self.block % i.m or weights % i.kpl:
            return False
        registers = self.query_tiles * (self.head_dim + self.block) * i.m // i.wave
        if registers > 320:
            return False
        if self.values != "lds":
            return True
        divides = self.block * self.head_dim % (8 * self.threads) == 0
        return divides and 2 * self.block * self.pitch * BITS[self.element] // 8 <= lds_bytes(self.target)

    def mlir(self) -> str:
        """The kernel as MLIR, in the gpu, scf, arith, vector, memref, math and amdgpu dialects."""
        return _Writer(self).write()


class _Writer:
    def __init__(self, config: Attention) -> None:
        self.c = config
        self.i = config.instruction
        self.body = Body()
        e = config.element
        self.Q, self.K, self.V = (Memory(name, e) for name in ("%Q", "%K", "%V"))
        self.out = "f32" if config.wide else e
        self.O, self.L = Memory("%O", self.out), Memory("%L", "f32")
        size = config.block * config.pitch
        self.lds = [Memory("%lds_k", e, size), Memory("%lds_v", e, size)] if config.values == "lds" else []
        self.groups = self.i.wave // self.i.m
        self.score_tiles = config.block // self.i.m
        self.output_tiles = config.head_dim // self.i.m

    def write(self) -> str:
        b, c, i = self.body, self.c, self.i
        self.thread = b.value("gpu.thread_id x")
        lane, wave = b.rem(self.thread, i.wave), b.div(self.thread, i.wave)
        self.lane_row, self.group = b.rem(lane, i.m), b.div(lane, i.m)
        first_query = b.mul(b.value("gpu.block_id x"), c.queries)
        wave_query = b.add(first_query, b.mul(wave, c.query_tiles * i.m), self.lane_row)
        self.query = [b.add(wave_query, t * i.m) for t in range(c.query_tiles)]
        head = b.value("gpu.block_id y")
        key_head = b.value(f"arith.divui {head}, %group : index")
        key_heads = b.value("arith.divui %heads, %group : index")
        # (start of the head, elements from token to token)
        self.at_query = self._head(head, "%queries", "%heads")
        self.at_key = self._head(key_head, "%keys", key_heads)
        self.at_value = (
            (b.mul(key_head, b.mul("%keys", c.head_dim)), "%keys") if c.values == "transposed" else self.at_key
        )
        queries = [self._query_fragments(query) for query in self.query]
        start, stop = self._range(first_query)
        state = self._initial_state()
        with b.loop(start, stop, c.block, state) as loop:
            loop.next = self._turn(loop.index, queries, loop.values)
        self._finish(loop.results, head)
        buffers = [self.Q, self.K, self.V, self.O, *([self.L] if c.log_sum else []), *self.lds]
        scalars = [(name, "index") for name in ("%queries", "%keys", "%heads", "%group")] + [("%scale", "f32")]
        if c.mask == "window":
            scalars.append(("%window", "index"))
        return kernel(c.name, c.target, buffers, scalars, c.threads, b)

    def _head(self, head: str, tokens: str, heads: str) -> tuple[Index, Index]:
        b, d = self.body, self.c.head_dim
        if self.c.heads_inner:
            return b.mul(head, d), b.mul(heads, d)
        return b.mul(head, b.mul(tokens, d)), d

    def _range(self, first_query: Index) -> tuple[Index, Index]:
        """Keys that any query of the work-group may see."""
        b, c = self.body, self.c
        if c.mask == "none":
            return 0, "%keys"
        stop = b.minimum(b.add(first_query, c.queries), "%keys")
        if c.mask == "causal":
            return 0, stop
        reach = b.minimum(first_query, "%window")
        first = b.value(f"arith.subi {first_query}, {reach} : index")
        return b.mul(b.div(first, c.block), c.block), stop

    def _initial_state(self) -> list[tuple[str, str]]:
        """For each tile of queries: highest score, sum, and the tiles of O^T."""
        b, i = self.body, self.i
        one = [
            (b.constant(_LOW, "f32"), "f32"),
            (b.constant("0.0", "f32"), "f32"),
            *[(zero(b, "f32", i.cn), vector("f32", i.cn))] * self.output_tiles,
        ]
        return one * self.c.query_tiles

    def _query_fragments(self, query: Index) -> list[str]:
        """B operands of S^T = K Q^T, one for each step along the head dimension."""
        b, i = self.body, self.i
        start, pitch = self.at_query
        row = b.add(start, b.mul(query, pitch), b.mul(self._k_group(), i.kpl))
        return [b.load(self.Q, b.add(row, step), i.kpl) for step in range(0, self.c.head_dim, i.k)]

    def _k_group(self) -> Index:
        return 0 if self.i.duplicated else self.group

    def _turn(self, first_key: str, queries: list[list[str]], state: list[str]) -> list[str]:
        b, c = self.body, self.c
        if self.lds:
            b.do("gpu.barrier")
            self._fill_lds(first_key)
            b.do("gpu.barrier")
        keys = [self._key_fragments(first_key, tile) for tile in range(self.score_tiles)]
        size = 2 + self.output_tiles
        done: list[str] = []
        weights: list[list[str]] = []
        for t in range(c.query_tiles):
            highest, total, *output = state[t * size : (t + 1) * size]
            scores = self._scores(first_key, self.query[t], keys, queries[t])
            highest, total, output, weight = self._softmax(scores, highest, total, output)
            done += [highest, total, *output]
            weights.append(weight)
        for step in range(len(weights[0])):
            for tile in range(self.output_tiles):
                values = self._value_fragment(first_key, step, tile)
                for t in range(c.query_tiles):
                    place = t * size + 2 + tile
                    done[place] = b.matrix(self.i, c.element, values, weights[t][step], done[place])
        return done

    def _fill_lds(self, first_key: str) -> None:
        b, c = self.body, self.c
        for turn in range(c.block * c.head_dim // (8 * c.threads)):
            chunk = b.add(self.thread, turn * c.threads)
            key, column = b.div(chunk, c.head_dim // 8), b.mul(b.rem(chunk, c.head_dim // 8), 8)
            start, pitch = self.at_key
            at = b.add(start, b.mul(b.add(first_key, key), pitch), column)
            to = b.add(b.mul(key, c.pitch), column)
            for memory, shared in zip((self.K, self.V), self.lds, strict=True):
                b.store(shared, to, b.load(memory, at, 8), 8)

    def _key_fragments(self, first_key: str, tile: int) -> list[str]:
        """A operands of S^T = K Q^T."""
        b, c, i = self.body, self.c, self.i
        key = b.add(self.lane_row, tile * i.m)
        if self.lds:
            memory, row = self.lds[0], b.mul(key, c.pitch)
        else:
            start, pitch = self.at_key
            memory, row = self.K, b.add(start, b.mul(b.add(first_key, key), pitch))
        row = b.add(row, b.mul(self._k_group(), i.kpl))
        return [b.load(memory, b.add(row, step), i.kpl) for step in range(0, c.head_dim, i.k)]

    def _scores(self, first_key: str, query: Index, keys: list[list[str]], fragments: list[str]) -> list[str]:
        """The lane's scores of one query, scaled to base 2 and masked; element e is key ``_key(e)``."""
        b, c, i = self.body, self.c, self.i
        found: list[str] = []
        for tile in range(self.score_tiles):
            value = zero(b, "f32", i.cn)
            for a, w in zip(keys[tile], fragments, strict=True):
                value = b.matrix(i, c.element, a, w, value)
            for element in range(i.cn):
                score = b.value(f"arith.mulf {b.extract(value, element, 'f32', i.cn)}, %scale : f32")
                found.append(self._masked(score, b.add(first_key, self._key(tile * i.cn + element)), query))
        return found

    def _key(self, element: int) -> Index:
        """The key of a lane's score, from the first of the block on."""
        tile, inside = divmod(element, self.i.cn)
        constant, factor = self.i.c_row(inside)
        return self.body.add(self.body.mul(self.group, factor), tile * self.i.m + constant)

    def _masked(self, score: str, key: Index, query: Index) -> str:
        b, c = self.body, self.c
        if c.mask == "none":
            return score
        seen = b.value(f"arith.cmpi ule, {b.index(key)}, {b.index(query)} : index")
        if c.mask == "window":
            near = b.value(f"arith.cmpi ult, {query}, {b.add(key, '%window')} : index")
            seen = b.value(f"arith.andi {seen}, {near} : i1")
        return b.value(f"arith.select {seen}, {score}, {b.constant(_LOW, 'f32')} : f32")

    def _softmax(
        self, scores: list[str], highest: str, total: str, output: list[str]
    ) -> tuple[str, str, list[str], list[str]]:
        """The running maximum, sum and output, and P^T as B operands."""
        b, i = self.body, self.i
        top = highest
        for score in scores:
            top = b.value(f"arith.maximumf {top}, {score} : f32")
        top = self._across(top, "maximumf")
        shrink = b.value(f"math.exp2 {b.value(f'arith.subf {highest}, {top} : f32')} : f32")
        weights = [b.value(f"math.exp2 {b.value(f'arith.subf {score}, {top} : f32')} : f32") for score in scores]
        added = weights[0]
        for weight in weights[1:]:
            added = b.value(f"arith.addf {added}, {weight} : f32")
        if not self.c.late_sum:
            added = self._across(added, "addf")
        total = b.value(f"arith.addf {b.value(f'arith.mulf {total}, {shrink} : f32')}, {added} : f32")
        factor, kind = b.splat(shrink, "f32", i.cn), vector("f32", i.cn)
        output = [b.value(f"arith.mulf {value}, {factor} : {kind}") for value in output]
        return top, total, output, self._operands(weights)

    def _across(self, value: str, operation: str) -> str:
        """Combine over the groups of a wave, which hold other keys of the same query."""
        b = self.body
        offset = self.i.m
        while offset < self.i.wave:
            value = b.value(f"arith.{operation} {value}, {self._exchange(value, offset)} : f32")
            offset *= 2
        return value

    def _exchange(self, value: str, offset: int) -> str:
        b = self.body
        distance, width = b.constant(str(offset), "i32"), b.constant(str(self.i.wave), "i32")
        # The second result says whether the other lane exists; it does.
        return b.value(f"gpu.shuffle xor {value}, {distance}, {width} : f32", results=2)

    def _operands(self, weights: list[str]) -> list[str]:
        b, c, i = self.body, self.c, self.i
        if i.duplicated:
            # gfx11 wants all keys in both halves of the wave; each half has every other one.
            low = b.value(f"arith.cmpi eq, {self.group}, {b.index(0)} : index")
            spread: list[str] = []
            for weight in weights:
                other = self._exchange(weight, i.m)
                spread.append(b.value(f"arith.select {low}, {weight}, {other} : f32"))
                spread.append(b.value(f"arith.select {low}, {other}, {weight} : f32"))
            weights = spread
        narrow = [b.value(f"arith.truncf {weight} : f32 to {c.element}") for weight in weights]
        return [b.pack(narrow[at : at + i.kpl], c.element) for at in range(0, len(narrow), i.kpl)]

    def _value_fragment(self, first_key: str, step: int, tile: int) -> str:
        """A operand of O^T = V^T P^T: the keys in the order in which ``_operands`` has them."""
        b, c, i = self.body, self.c, self.i
        column = b.add(self.lane_row, tile * i.m)
        keys = (
            [step * i.kpl + j for j in range(i.kpl)]
            if i.duplicated
            else [self._key(step * i.kpl + j) for j in range(i.kpl)]
        )
        if self.lds:
            return b.pack([b.load(self.lds[1], b.add(b.mul(k, c.pitch), column)) for k in keys], c.element)
        start, pitch = self.at_value
        if c.values == "direct":
            rows = [b.mul(b.add(first_key, key), pitch) for key in keys]
            return b.pack([b.load(self.V, b.add(start, row, column)) for row in rows], c.element)
        row = b.add(start, b.mul(column, pitch), first_key)
        run = i.kpl if i.duplicated else min(i.run(), i.kpl)
        parts = [b.load(self.V, b.add(row, keys[at]), run) for at in range(0, i.kpl, run)]
        if len(parts) == 1:
            return parts[0]
        elements = [b.extract(part, j, c.element, run) for part in parts for j in range(run)]
        return b.pack(elements, c.element)

    def _finish(self, results: list[str], head: str) -> None:
        b, c, i = self.body, self.c, self.i
        size = 2 + self.output_tiles
        start, pitch = self.at_query
        for t in range(c.query_tiles):
            highest, total, *output = results[t * size : (t + 1) * size]
            if c.late_sum:
                total = self._across(total, "addf")
            inverse = b.value(f"arith.divf {b.constant('1.0', 'f32')}, {total} : f32")
            row = b.add(start, b.mul(self.query[t], pitch))
            for tile, value in enumerate(output):
                scaled = b.value(f"arith.mulf {value}, {b.splat(inverse, 'f32', i.cn)} : {vector('f32', i.cn)}")
                self._store(scaled, row, tile * i.m)
            if c.log_sum:
                logarithm = b.value(f"math.log2 {total} : f32")
                at = b.add(b.mul(head, "%queries"), self.query[t])
                b.store(self.L, at, b.value(f"arith.addf {highest}, {logarithm} : f32"))

    def _store(self, value: str, row: Index, column: int) -> None:
        b, i = self.body, self.i
        run = i.run()
        for element in range(0, i.cn, run):
            constant, factor = i.c_row(element)
            at = b.add(row, b.mul(self.group, factor), column + constant)
            parts = [b.extract(value, element + j, "f32", i.cn) for j in range(run)]
            if self.out != "f32":
                parts = [b.value(f"arith.truncf {part} : f32 to {self.out}") for part in parts]
            b.store(self.O, at, b.pack(parts, self.out), run)
