"""What is fuzzed: each target takes any bytes, and nothing but a VeriloccError may come out of the code under test.

``SEEDS`` gives each target real inputs to start from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from builders import problem_of_text
from fuzz_mutate import mutate
from msgspec.structs import replace
from support import TEST_DATA, allocated_by_llvm, kernel_paths, pre_ra, run_llc

from smt_verifier.artefacts import RecordingSolver, write_artefacts
from smt_verifier.audit import audit
from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from smt_verifier.prove import diagnose, prove
from smt_verifier.prove.forms import to_json as diagnosis_json
from smt_verifier.prove.forms import to_text
from smt_verifier.recheck import recheck
from verilocc_mlir.allocators import allocator
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.header import header_field
from verilocc_mlir.mir.model import BasicBlock, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.problem.build import build_problem
from verilocc_mlir.problem.schema import problem_from_json, proposal_from_json, to_json
from verilocc_mlir.target.attributes import function_attributes
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.inputs import load_input

SECONDS = 20
"""For one input, at most 64 KiB: the largest that are made take a tenth of a second."""
_CPU = "gfx942"

_KERNEL = (TEST_DATA / "fuzz.ll").read_text()
"""A function with calls, stack and inline assembly, and a loop."""
MAX_BYTES = 1 << 16


def damaged(seeds: tuple[bytes, ...], seed: int) -> bytes:
    """Input number ``seed``."""
    chance = random.Random(seed)
    return mutate(chance.choice(seeds), chance.choice(seeds), chance, chance.choice((1, 1, 2, 4, 16)))[:MAX_BYTES]


class Hang(Exception):
    """An input took longer than ``SECONDS``."""


def _expired(_number: int, _frame: object) -> None:
    raise Hang


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Raise ``Hang`` in a body that takes too long."""
    previous = signal.signal(signal.SIGALRM, _expired)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def fuzz_mir(data: bytes) -> None:
    """The parser; what it reads is printed and read again as the same."""
    text = data.decode(errors="replace")
    try:
        file = parse_mir(text, "fuzz.mir")
    except VeriloccError:
        return
    printed = print_mir(file)
    printed.encode(errors="surrogatepass")
    again = parse_mir(printed, "fuzz.mir")
    assert _said(again) == _said(file)
    for function in file.functions:
        header_field(function, "frameOffsetReg")
        with contextlib.suppress(VeriloccError):
            function_attributes(file.preamble, function.name)


def _said(file: MirFile) -> list[tuple[BasicBlock, ...]]:
    """What a file says, wherever it stands: an empty ``liveins:`` is not printed again."""
    return [
        tuple(replace(b, instructions=tuple(replace(i, line=0) for i in b.instructions)) for b in f.blocks)
        for f in file.functions
    ]


def fuzz_audit(data: bytes) -> None:
    """The audit of a real function against damaged text, either way round."""
    pre, post = machine_ir_pair()
    try:
        damaged = parse_mir(data.decode(errors="replace"), "fuzz.mir")
    except VeriloccError:
        return
    for before, after in ((pre, damaged), (damaged, post), (damaged, damaged)):
        report = audit(parse_mir(before, "pre") if isinstance(before, str) else before,
                       parse_mir(after, "post") if isinstance(after, str) else after, target(_CPU))  # fmt: skip
        for function in report.functions:
            assert function.outcome is Outcome.PROVED or function.findings
            for finding in function.findings:
                render(finding)


def fuzz_build(data: bytes) -> None:
    """From damaged machine IR to an allocation problem."""
    with contextlib.suppress(VeriloccError):
        file = parse_mir(data.decode(errors="replace"), "fuzz.mir")
        for function in file.functions:
            with contextlib.suppress(VeriloccError):
                build_problem(file, function, target(_CPU), "vgpr")


def fuzz_problem(data: bytes) -> None:
    """The reader of problems; what it accepts is proved or refuted, and explained."""
    with contextlib.suppress(VeriloccError):
        problem = problem_from_json(data.decode(errors="replace"))
        assert problem_from_json(to_json(problem)) == problem
        answer = proposal_from_json(_documents()[1])
        result = prove(problem, answer)
        found = diagnose(problem, answer, result)
        json.dumps(diagnosis_json(found))
        to_text(found)


def fuzz_proposal(data: bytes) -> None:
    """The reader of proposals."""
    with contextlib.suppress(VeriloccError):
        answer = proposal_from_json(data.decode(errors="replace"))
        problem = problem_from_json(_documents()[0])
        result = prove(problem, answer)
        to_text(diagnose(problem, answer, result))


def fuzz_manifest(data: bytes) -> None:
    """The reader of recorded obligations."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "manifest.json").write_bytes(data)
        (Path(directory) / "0000.smt2").write_bytes(b"(check-sat)")
        with contextlib.suppress(VeriloccError):
            for row in recheck(Path(directory), "z3", timeout_s=5):
                assert row.outcome is not Outcome.PROVED or row.recorded != "refuted"


def fuzz_input(data: bytes) -> None:
    """The first look at what a user gives: IR, machine IR, or neither."""
    for cpu in (None, _CPU):
        with contextlib.suppress(VeriloccError):
            load_input(data, path="fuzz", cpu=cpu)


@lru_cache(maxsize=1)
def machine_ir_pair() -> tuple[str, str]:
    """Machine IR of a function with calls, stack and inline assembly, and of a loop, before and after LLVM's SGPR
    allocation.
    """
    pre = run_llc(_KERNEL, _CPU, "-stop-before=greedy,0", mir=False)
    return pre, allocated_by_llvm(pre, _CPU, 0, 0)


@lru_cache(maxsize=1)
def _documents() -> tuple[str, str]:
    """A problem and a proposal."""
    problem = problem_of_text(machine_ir_pair()[0], _CPU, number=1)
    return to_json(problem), to_json(allocator("deterministic").allocate(problem))


@lru_cache(maxsize=1)
def _manifest() -> bytes:
    pre, post = machine_ir_pair()
    solver = RecordingSolver()
    audit(parse_mir(pre), parse_mir(post), target(_CPU), solver=solver)
    with tempfile.TemporaryDirectory() as directory:
        write_artefacts(Path(directory), {"before": pre.encode()}, solver.answers[:3])
        data = (Path(directory) / "manifest.json").read_bytes()
    manifest = json.loads(data)
    manifest["obligations"][0]["sha256"] = hashlib.sha256(b"(check-sat)").hexdigest()
    return json.dumps(manifest).encode()


def _mir_seeds() -> tuple[bytes, ...]:
    return tuple(text.encode() for text in machine_ir_pair())


def _real_mir_seeds() -> tuple[bytes, ...]:
    smallest = min(kernel_paths(), key=lambda path: path.stat().st_size)
    return (*_mir_seeds(), pre_ra(smallest).encode())


Target = Callable[[bytes], None]

TARGETS: dict[str, tuple[Target, Callable[[], tuple[bytes, ...]]]] = {
    "mir": (fuzz_mir, _real_mir_seeds),
    "audit": (fuzz_audit, _mir_seeds),
    "build": (fuzz_build, _mir_seeds),
    "problem": (fuzz_problem, lambda: (_documents()[0].encode(), _documents()[1].encode())),
    "proposal": (fuzz_proposal, lambda: (_documents()[1].encode(), _documents()[0].encode())),
    "manifest": (fuzz_manifest, lambda: (_manifest(), b"{}")),
    "input": (fuzz_input, lambda: (_KERNEL.encode(), *_mir_seeds())),
}
"""Name to target and its real inputs."""
