"""Build the programs in Rust: the second checker (``smt_verifier/second``), and the maker of certificates over it
(``smt_verifier/maker``). Neither has dependencies.

    python scripts/build_second_checker.py

Needs cargo. Without it there is no second checker, and reports say that one checker alone was asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

VERIFIER = Path(__file__).resolve().parent.parent / "smt_verifier"
PROGRAMS = {"verilocc-check": ("second",), "verilocc-certify": ("maker", "second")}
"""Of each program the crate that it is built from, and those that this depends on."""


def build() -> list[Path]:
    """The programs, built if they are older than their sources; those that cannot be built are left out."""
    with tempfile.TemporaryDirectory(prefix="verilocc-second-") as target:
        built = [_built(name, crates, Path(target)) for name, crates in PROGRAMS.items()]
    return [program for program in built if program is not None]


def _built(name: str, crates: tuple[str, ...], target: Path) -> Path | None:
    program, manifest = VERIFIER / "bin" / name, VERIFIER / crates[0] / "Cargo.toml"
    patterns = [f"{crate}/{of}" for crate in crates for of in ("Cargo.*", "src/**/*.rs")]
    sources = [source for pattern in (*patterns, "checker/data/*.txt") for source in VERIFIER.glob(pattern)]
    if not manifest.exists():
        return None
    if program.exists() and program.stat().st_mtime_ns >= max(s.stat().st_mtime_ns for s in sources):
        return program
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    command = [cargo, "build", "--release", "--offline", "--locked", "--quiet", "--manifest-path", manifest]
    started = time.time_ns()  # The program's own time would hide a source that was changed while it was built.
    if subprocess.run(command, check=False, env={**os.environ, "CARGO_TARGET_DIR": str(target)}).returncode:
        return None
    program.parent.mkdir(exist_ok=True)
    partial = program.with_suffix(".partial")
    shutil.copy2(target / "release" / name, partial)
    os.utime(partial, ns=(started, started))
    partial.replace(program)
    return program


if __name__ == "__main__":
    print(*(build() or ["no cargo, or the build failed: there is one checker only"]), sep="\n")
