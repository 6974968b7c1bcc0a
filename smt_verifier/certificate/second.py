"""The programs in Rust, found where they were built and asked through files: the second checker
(``smt_verifier/second``), and the maker of certificates over it (``smt_verifier/maker``), which is not trusted.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from verilocc_mlir.crew.worker import program_environment

PROGRAM = "verilocc-check"
ENVIRONMENT = "VERILOCC_SECOND_CHECKER"
MAKER = "verilocc-certify"
MAKER_ENVIRONMENT = "VERILOCC_CERTIFY"
"""Each names a program; empty: none is asked. The maker is else looked for beside the second checker."""
_SECONDS = 120.0
_ACCEPTED = re.compile(r"accepted: (\d+) (?:operands compared|instructions in another place)\n\Z")
_REFUSED = re.compile(r"refused: ([a-z-]+): (.*?)(?: \(([^()]*)\))?\n\Z", re.DOTALL)
_Said = tuple[bool, int, str, str, str]
_spent = [0.0]
"""CPU seconds of the programs so far."""


@lru_cache(maxsize=1)
def second_program() -> Path | None:
    """The program, or None where it was not built."""
    named = os.environ.get(ENVIRONMENT)
    if named is not None:
        return Path(named) if named else None
    package = Path(__file__).resolve().parent.parent
    places = (package / "bin" / PROGRAM, package / "second" / "target" / "release" / PROGRAM)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def maker_program() -> Path | None:
    """The maker of certificates, or None where it was not built, or there is no second checker."""
    checker, named = second_program(), os.environ.get(MAKER_ENVIRONMENT)
    if checker is None or named is not None:
        return Path(named) if named and checker is not None else None
    places = [checker.with_name(MAKER)]
    if ENVIRONMENT not in os.environ:
        places.append(Path(__file__).resolve().parent.parent / "maker" / "target" / "release" / MAKER)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def made_certificate(
    before: str, after: str, processor: str, function: str, *, saved_later: bool = False, near_branches: bool = False
) -> tuple[str, _Said] | None:
    """A certificate by the maker as text (``""``: it made none), and what the second checker says of it, as
    ``second_checker`` does; None where no maker is at hand.
    """
    program = maker_program()
    if program is None:
        return None
    options = _options(processor, function, saved_later=saved_later, near_branches=near_branches)
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        out = Path(directory) / "made"
        run = _ask(program, directory, (before, after), out, *options)
        text = out.read_text(encoding="utf-8") if out.is_file() else ""
    said = _said(run) if not isinstance(run, Exception) else None
    if said is None or (said[0] and not text):
        why = f"within {_SECONDS:.0f} s" if isinstance(run, subprocess.TimeoutExpired) else f"as it should: {run}"[:300]
        return "", (False, 0, "checker", f"the maker of certificates did not answer {why}", "")
    return text, said


def second_checker(
    before: str,
    after: str,
    certificate: str,
    processor: str,
    function: str,
    *,
    saved_later: bool = False,
    near_branches: bool = False,
    order: bool = False,
) -> _Said | None:
    """Whether it accepts, operands compared, rule, message and place; None where there is no second checker.

    ``order``: the certificate is of another order of instructions, and the count is of those that stand elsewhere.

    A program that ends otherwise than it should, or not in time, has refused.
    """
    program = second_program()
    if program is None:
        return None
    options = _options(processor, function, saved_later=saved_later, near_branches=near_branches, order=order)
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        run = _ask(program, directory, (before, after, certificate), *options)
    if isinstance(run, Exception):
        return False, 0, "checker", f"the second checker did not answer: {run}", ""
    ended = f"the second checker ended with {run.returncode}: {(run.stdout + run.stderr)[:200]!r}"
    return _said(run) or (False, 0, "checker", ended, "")


def _options(processor: str, function: str, **asked: bool) -> list[str]:
    names = [name.replace("_", "-") for name, is_asked in asked.items() if is_asked]
    return [f"--mcpu={processor}", f"--function={function}", *(f"--{name}" for name in names)]


def _said(run: subprocess.CompletedProcess[str]) -> _Said | None:
    """What a program has printed, if it is what one of these prints."""
    if run.returncode == 0 and (match := _ACCEPTED.fullmatch(run.stdout)):
        return True, int(match[1]), "", "", ""
    match = _REFUSED.fullmatch(run.stdout)
    return (False, 0, match[1], match[2], match[3] or "") if match else None


def _ask(
    program: Path, directory: str, texts: Sequence[str], *more: Path | str
) -> subprocess.CompletedProcess[str] | OSError | subprocess.TimeoutExpired:
    """What a program says of texts, as files in a directory, or why it says nothing."""
    names = [Path(directory) / str(number) for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        name.write_text(text, encoding="utf-8", newline="")
    before = _children_cpu_seconds()
    try:
        return subprocess.run(
            [program, *names, *more],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env=program_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return error
    finally:
        _spent[0] += _children_cpu_seconds() - before


def programs_cpu_seconds() -> float:
    """CPU seconds of all these programs so far; of whatever else this process waited for meanwhile, too."""
    return _spent[0]


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
