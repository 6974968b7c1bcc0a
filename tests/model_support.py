"""Shared by the tests of the model: problems of real kernels, and one problem told in other names and another order."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from allocators_support import run_phase
from msgspec.structs import replace
from support import REPOSITORY, cpu_of, pre_ra

from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.targets import target
from verilocc_model.decoding import Scores
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.vocabulary import Question, Writing


class Hashed:
    """Scores that depend on every token of the context and on nothing else: a model as far as a decoder can tell.

    Args:
        writing: what its tokens are.
        prior: added to the scores, one for each column of the writing: answers it leans to.
        limit: tokens of a window at most.
    """

    name = "hashed"

    def __init__(self, writing: Writing, prior: Scores, limit: int) -> None:
        self.writing = writing
        self.limit = limit
        self._prior = prior
        self._context: list[int] = []

    def begin(self) -> None:
        self._context = []

    def cut(self, length: int) -> None:
        del self._context[length:]

    def extend(self, tokens: Sequence[int], positions: Sequence[int]) -> Scores:
        start = len(self._context)
        self._context += tokens
        rows = [self.row(self._context[: start + position + 1]) for position in positions]
        return np.array(rows, np.float32).reshape(len(positions), -1)

    def row(self, seen: list[int]) -> Scores:
        noise = np.random.default_rng([len(seen), sum(k * t for k, t in enumerate(seen, 1))])
        return self._prior + noise.random(len(self._prior), np.float32)


class OneByOne(Episode):
    """An episode that drafts nothing: each question is asked for itself."""

    def question(self) -> Question | None:
        asked = super().question()
        return None if asked is None else dataclasses.replace(asked, final=True)


def kernel(name: str) -> Path:
    """A kernel of the repository's ten by name, ``gemm_mma_lds.gfx942``."""
    return REPOSITORY / "examples" / "kernels" / f"{name}.opt.ll"


@lru_cache(maxsize=None)
def answered(name: str, phase: Phase = "sgpr") -> tuple[AllocationProblem, Proposal]:
    """The first phases of a kernel with the deterministic allocator's answer; ``vgpr`` without SGPRs rewritten."""
    path = kernel(name)
    _, runs = run_phase(pre_ra(path), cpu_of(path), phase)
    (run,) = runs
    assert run.proposal is not None
    return run.problem, run.proposal


def disguised(name: str, phase: Phase, seed: int) -> tuple[AllocationProblem, AllocationProblem, dict[str, str]]:
    """The problem of a kernel twice: as it is, and with virtual registers renamed and blocks in another order.

    The third result says what each register of the first is called in the second.
    """
    path = kernel(name)
    cpu = cpu_of(path)
    generator = random.Random(seed)
    text = pre_ra(path)
    numbers = sorted({int(n) for n in re.findall(r"%(\d+)\b", text[text.index("registers:") :])})
    shuffled = list(numbers)
    generator.shuffle(shuffled)
    renamed = dict(zip(numbers, shuffled, strict=True))
    head, body = text[: text.index("registers:")], text[text.index("registers:") :]
    body = re.sub(r"%(\d+)\b", lambda m: f"%{renamed[int(m[1])]}", body)
    body = re.sub(r"id: (\d+), class", lambda m: f"id: {renamed.get(int(m[1]), int(m[1]))}, class", body)
    problems: list[AllocationProblem] = []
    for source in (text, head + body):
        file = parse_mir(source, path.name)
        (function,) = file.functions
        if source is not text:
            first, *others = function.blocks
            generator.shuffle(others)
            function = replace(function, blocks=(first, *others))
        problems.append(build_problem(file, function, target(cpu), phase))
    return problems[0], problems[1], {f"%{a}": f"%{b}" for a, b in renamed.items()}
