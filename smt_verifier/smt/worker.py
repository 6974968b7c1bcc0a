"""The process that solves.

A question has ``kind``, ``seconds`` and what its kind needs. Its answer has ``cpu_s``, what it cost, ``grown_mib``,
the memory that the process has taken since it began, and ``last``, whether memory ran out, after which it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from smt_verifier.outcome import Outcome
from smt_verifier.smt import library
from smt_verifier.smt.solver import Obligation, Z3Solver
from verilocc_mlir.crew.serve import Answer, serve

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BLOCK_BYTES, _KEPT_BYTES = 32 << 20, 256 << 20


def solve(memory_mib: int) -> None:
    """Answer questions until the pipe ends.

    Args:
        memory_mib: limit of this process's address space, in MiB.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _keep_memory()

    def load() -> Answer:
        library.load()
        return partial(_answer, Z3Solver(), _resident_mib())

    serve(load, memory_mib, ready=False)


def _keep_memory() -> None:
    """Have malloc keep what is freed, where it can be told so (glibc): a question of a small block takes 2 ms then.

    Z3 takes and frees megabytes for each question. In pages that come fresh from the kernel each time they cost 6 ms
    more, until glibc's own threshold has grown.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _resident_mib() -> int:
    """Memory of this process, where the system says it; what it shares with one that it is a copy of included."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20
    return 0


def _answer(solver: Z3Solver, first_mib: int, question: dict[str, Any], _: bytes) -> tuple[dict[str, object], bytes]:
    start = time.process_time()
    result: dict[str, object]
    try:
        result = _KINDS[question["kind"]](question, solver)
    except Exception as error:
        reason = "out of memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {error}"
        result = {"outcome": Outcome.UNKNOWN.value, "reason": reason[:500]}
    cost = {"cpu_s": time.process_time() - start, "grown_mib": _resident_mib() - first_mib}
    return {**result, **cost, "last": "memory" in str(result["reason"])}, b""


def _check(question: dict[str, Any], solver: Z3Solver) -> dict[str, object]:
    """``solver`` keeps a context for all questions but those with a limit, each of which has one of its own."""
    name, logic, script, goals = question["obligation"]
    obligation = Obligation(name, logic, script, tuple((str(goal), str(term)) for goal, term in goals))
    rlimit: int = question["rlimit"]
    verdict = (Z3Solver(rlimit) if rlimit else solver).check(obligation, **question["options"])
    return {"outcome": verdict.outcome.value, "violated": verdict.violated, "reason": verdict.reason}


def _replay(question: dict[str, Any], _: Z3Solver) -> dict[str, object]:
    reply = answer(question["text"], question["solver"])
    known = {"unsat": Outcome.PROVED, "sat": Outcome.REFUTED}
    return {"outcome": known.get(reply, Outcome.UNKNOWN).value, "reason": "" if reply in known else reply[:200]}


_KINDS: dict[str, Callable[[dict[str, Any], Z3Solver], dict[str, object]]] = {"check": _check, "replay": _replay}


# A whole SMT-LIB2 script, asked of z3, cvc5 or bitwuzla as any user of them would ask it.
#
# ``answer`` runs in this process; ``Replayer`` asks a worker, so that a solver that crashes, hangs or eats the memory
# costs one answer and nothing else.


def installed(solver: str) -> bool:
    return importlib.util.find_spec(solver) is not None


def _z3(text: str) -> str:
    z3: Any = importlib.import_module("z3")
    solver = z3.Solver()
    solver.from_string(text)
    return str(solver.check())


def _cvc5(text: str) -> str:
    cvc5: Any = importlib.import_module("cvc5")
    solver = cvc5.Solver()
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    printed: list[str] = []
    while not (command := parser.nextCommand()).isNull():
        printed.append(str(command.invoke(solver, parser.getSymbolManager())))
    return "".join(printed).strip()


def _bitwuzla(text: str) -> str:
    bitwuzla: Any = importlib.import_module("bitwuzla")
    parser = bitwuzla.Parser(bitwuzla.TermManager(), bitwuzla.Options())
    parser.parse(text, True, False)
    return str(parser.bitwuzla().check_sat()).rpartition(".")[2].lower()


SOLVERS: dict[str, Callable[[str], str]] = {"z3": _z3, "cvc5": _cvc5, "bitwuzla": _bitwuzla}


def answer(text: str, solver: str) -> str:
    """What ``solver`` (a key of ``SOLVERS``) says: ``sat``, ``unsat``, ``unknown``, or a message of its own."""
    return SOLVERS[solver](text)
