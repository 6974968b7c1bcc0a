"""Compile the first checker and the maker of certificates with mypyc: the same code, in 0.62 of the CPU.

    python scripts/compile_checker.py

Needs mypy, setuptools, a C compiler and Python's headers (``pip install mypy setuptools``, Debian's ``python3-dev``);
takes a minute. Without them the sources are interpreted. Compiled modules are taken as long as no source of
``smt_verifier/checker`` or ``smt_verifier/certificate`` changes. ``VERILOCC_COMPILED_CHECKER=`` (empty) leaves them
out. Exit code 1: all that is needed is there, and the build failed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("smt_verifier/checker", "smt_verifier/certificate")
INTERPRETED = ("__init__.py", "__main__.py", "second.py", "disagreement.py", "verdict.py")
"""What starts programs, or looks for files beside its own."""
_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup

out, *modules = sys.argv[1:]
flags = ["--ignore-missing-imports", "--follow-imports=skip", "--allow-redefinition", "--cache-dir=/dev/null"]
# One library for all: the start of a command loads it, and a library for each takes 15 ms longer.
modules = mypycify(
    [*flags, *modules],
    opt_level="1",
    debug_level="0",
    multi_file=True,
    group_name="smt_verifier.checker.all",
    target_dir=out + "/c",
)
arguments = ["-q", "build_ext", "--build-lib", out + "/lib", "--build-temp", out + "/objects"]
setup(name="checker", packages=[], py_modules=[], script_args=arguments, ext_modules=modules)
"""


def missing() -> list[str]:
    """What is needed and not there."""
    there = {
        "mypy": importlib.util.find_spec("mypyc") is not None,
        "setuptools": importlib.util.find_spec("setuptools") is not None,
        "a C compiler": bool(shutil.which("cc") or shutil.which("gcc")),
        "Python's headers": Path(sysconfig.get_path("include"), "Python.h").exists(),
    }
    return [what for what, is_there in there.items() if not is_there]


def build() -> Path | None:
    """The directory of the compiled modules, made if there is none for these sources; None where it cannot be made."""
    os.environ["VERILOCC_COMPILED_CHECKER"] = ""
    sys.path.insert(0, str(REPOSITORY))
    from smt_verifier.checker import compiled_modules

    place = compiled_modules()
    if place.is_dir():
        return place
    if missing():
        return None
    modules = [
        str(source.relative_to(REPOSITORY))
        for package in PACKAGES
        for source in sorted((REPOSITORY / package).glob("*.py"))
        if source.name not in INTERPRETED
    ]
    with tempfile.TemporaryDirectory(prefix="verilocc-compiled-") as out:
        command = [sys.executable, "-c", _SETUP, out, *modules]
        # mypyc names the library's headers without the directory of its package.
        environment = {**os.environ, "CPATH": f"{out}/c/smt_verifier/checker"}
        run = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True)
        if run.returncode:
            print(run.stdout[-2000:], run.stderr[-2000:], sep="\n", file=sys.stderr)
            return None
        for old in place.parent.glob(f"{sys.implementation.cache_tag}-*"):
            shutil.rmtree(old)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(".partial")
        shutil.copytree(Path(out) / "lib", partial)
        partial.replace(place)
    return place


if __name__ == "__main__":
    place = build()
    print(place or f"the sources are interpreted: {', '.join(missing()) or 'the build failed'}")
    sys.exit(place is None and not missing())
