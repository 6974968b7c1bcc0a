"""The second checker, a program of its own (``smt_verifier/second``): found where it was built, asked through files."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

PROGRAM = "verilocc-check"
ENVIRONMENT = "VERILOCC_SECOND_CHECKER"
"""Names the program; empty: none is asked."""
_SECONDS = 120.0
_ACCEPTED = re.compile(r"accepted: (\d+) (?:operands compared|instructions in another place)\n\Z")
_REFUSED = re.compile(r"refused: ([a-z-]+): (.*?)(?: \(([^()]*)\))?\n\Z", re.DOTALL)
_Said = tuple[bool, int, str, str, str]


@lru_cache(maxsize=1)
def second_program() -> Path | None:
    """The program, or None where it was not built."""
    named = os.environ.get(ENVIRONMENT)
    if named is not None:
        return Path(named) if named else None
    package = Path(__file__).resolve().parent.parent
    places = (package / "bin" / PROGRAM, package / "second" / "target" / "release" / PROGRAM)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def second_checker(
    before: str,
    after: str,
    certificate: str,
    processor: str,
    function: str,
    *,
    saved_later: bool = False,
    order: bool = False,
) -> _Said | None:
    """Whether it accepts, operands compared, rule, message and place; None where there is no second checker.

    ``order``: the certificate is of another order of instructions, and the count is of those that stand elsewhere.

    A program that ends otherwise than it should, or not in time, has refused.
    """
    program = second_program()
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="verilocc-") as directory:
        names = [str(Path(directory) / name) for name in ("before.mir", "after.mir", "certificate")]
        for name, text in zip(names, (before, after, certificate), strict=True):
            Path(name).write_text(text, encoding="utf-8", newline="")
        try:
            run = subprocess.run(
                [
                    *(program, *names, f"--mcpu={processor}", f"--function={function}"),
                    *["--saved-later"] * saved_later,
                    *["--order"] * order,
                ],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return False, 0, "checker", f"the second checker did not answer: {error}", ""
    if run.returncode == 0 and (match := _ACCEPTED.fullmatch(run.stdout)):
        return True, int(match[1]), "", "", ""
    if match := _REFUSED.fullmatch(run.stdout):
        return False, 0, match[1], match[2], match[3] or ""
    return (
        False,
        0,
        "checker",
        f"the second checker ended with {run.returncode}: {(run.stdout + run.stderr)[:200]!r}",
        "",
    )
