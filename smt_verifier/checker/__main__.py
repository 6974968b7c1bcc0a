"""The checker as a program: ``python -m smt_verifier.checker BEFORE.mir AFTER.mir CERTIFICATE --mcpu=gfx942``.

It prints one line and ends with 0 (accepted), 1 (refused) or 2 (a file cannot be read, or wrong usage).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from smt_verifier.checker.check import check
from smt_verifier.checker.order import check_order
from smt_verifier.checker.outcome import Refused

ACCEPTED, REFUSED, UNUSABLE = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Check a certificate; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m smt_verifier.checker", description=check.__doc__)
    for name in ("before", "after", "certificate"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--mcpu", required=True, help="LLVM's name of the GPU")
    parser.add_argument("--saved-later", action="store_true", help="AFTER is of the scalar phase; saves follow")
    parser.add_argument("--near-branches", action="store_true", help="LLVM makes no long branch of AFTER")
    parser.add_argument("--order", action="store_true", help="AFTER is BEFORE in another order of instructions")
    parser.add_argument("--function", default="", help="with --order: which one, of several")
    options = parser.parse_args(arguments)
    try:
        before, after, certificate = (
            path.read_text(encoding="utf-8") for path in (options.before, options.after, options.certificate)
        )
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNUSABLE
    try:
        if options.order:
            moved = check_order(before, after, certificate, options.mcpu, options.function)
            print(f"accepted: {moved} instructions in another place")
            return ACCEPTED
        premises = {"saved_later": options.saved_later, "near_branches": options.near_branches}
        accepted = check(before, after, certificate, options.mcpu, **premises)
    except Refused as error:
        print(f"refused: {error}")
        return REFUSED
    print(f"accepted: {accepted.operands} operands compared")
    return ACCEPTED


if __name__ == "__main__":
    sys.exit(main())
