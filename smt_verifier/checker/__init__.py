"""The checker of certificates: small, total, and without anything of the rest of this project.

It reads two texts of machine IR, a certificate and the data in ``data/``, and believes nothing else. Where mypyc has
compiled just these sources (``scripts/compile_checker.py``), the compiled modules are taken: the same code, in less
time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
DATA = _HERE / "data"


def compiled_modules() -> Path:
    """Where modules compiled from these sources for this Python are, if they are: a change of any source is another."""
    digest = hashlib.sha256()
    for source in sorted([*_HERE.glob("*.py"), *_HERE.with_name("certificate").glob("*.py")]):
        digest.update(source.read_bytes())
    return _HERE.with_name("bin") / "compiled" / f"{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def _compiled() -> Path | None:
    place = compiled_modules()
    return place if os.environ.get("VERILOCC_COMPILED_CHECKER") != "" and place.is_dir() else None


COMPILED = _compiled()
"""The directory whose ``checker`` and ``certificate`` come first; None: the sources are interpreted."""
if COMPILED is not None:
    __path__.insert(0, str(COMPILED / "smt_verifier" / "checker"))
