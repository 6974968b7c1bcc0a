"""What is kept where one checker accepts a certificate that the other refuses: one of the two has a fault."""

from __future__ import annotations

import logging
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from smt_verifier import checker
from smt_verifier.certificate.second import PROGRAM
from smt_verifier.certificate.verdict import Certification

KEEP = "VERILOCC_KEEP"
"""Names the folder that what is to be looked at later is kept in; without it, the system's for temporary files."""
_LOG = logging.getLogger(__name__)


def keep_disagreement(
    before: str, after: str, function: str, processor: str, certification: Certification, premises: Sequence[str]
) -> str:
    """Write both texts, the certificate and the commands that show the disagreement to a new folder, and log it.

    ``premises``: what the checkers were told, as their options.

    Returns:
        The folder, or why there is none.
    """
    asked = f"--mcpu={processor} --function={shlex.quote(function)}{''.join(f' --{name}' for name in premises)}"
    commands = [
        f"{program} before.mir after.mir certificate {asked}" for program in (f"python -m {checker.__name__}", PROGRAM)
    ]
    answers = [str(answer) for answer in certification.answers]
    files = {
        "before.mir": before,
        "after.mir": after,
        "certificate": certification.text,
        "answers.txt": "\n".join([*answers, "", *commands, ""]),
    }
    try:
        folder = Path(tempfile.mkdtemp(prefix="verilocc-disagreement-", dir=os.environ.get(KEEP)))
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        kept = f"nothing was kept: {error}"
    else:
        kept = str(folder)
    _LOG.error("the checkers disagree about %s: %s (%s)", function, "; ".join(answers), kept)
    return kept
