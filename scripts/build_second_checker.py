"""Build the second checker of certificates (``smt_verifier/second``, Rust without dependencies).

    python scripts/build_second_checker.py

Needs cargo. Without it there is no second checker, and reports say that one checker alone was asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERIFIER = Path(__file__).resolve().parent.parent / "smt_verifier"
CRATE = VERIFIER / "second"
PROGRAM = VERIFIER / "bin" / "verilocc-check"


def build() -> Path | None:
    """The program, built if it is older than its sources; None where it cannot be built."""
    sources = [*CRATE.glob("Cargo.*"), *CRATE.glob("src/**/*.rs"), *VERIFIER.glob("checker/data/*.txt")]
    if not sources:
        return None
    if PROGRAM.exists() and PROGRAM.stat().st_mtime_ns >= max(s.stat().st_mtime_ns for s in sources):
        return PROGRAM
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    with tempfile.TemporaryDirectory(prefix="verilocc-second-") as target:
        command = [
            cargo,
            "build",
            "--release",
            "--offline",
            "--locked",
            "--quiet",
            "--manifest-path",
            CRATE / "Cargo.toml",
        ]
        environment = {**os.environ, "CARGO_TARGET_DIR": target}
        if subprocess.run(command, check=False, env=environment).returncode:
            return None
        PROGRAM.parent.mkdir(exist_ok=True)
        partial = PROGRAM.with_suffix(".partial")
        shutil.copy2(Path(target) / "release" / PROGRAM.name, partial)
        partial.replace(PROGRAM)
    return PROGRAM


if __name__ == "__main__":
    print(build() or "no cargo, or the build failed: there is one checker only")
