"""Build the Python modules of the gRPC contract from proto/: messages, services, and type stubs for both.

    python scripts/generate_protos.py [DIRECTORY]

They go into the package ``verilocc.v1`` under DIRECTORY (default: the repository) and are never edited or committed.
The contract itself goes beside them, so that an installed package is an include path for protoc.
``pip install`` runs this through ``build_hook.py``. Needs grpcio-tools and mypy-protobuf; files that would stay the
same are not touched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate(into: Path) -> list[Path]:
    """Write the modules under ``into``; return those that were new or changed.

    Raises:
        RuntimeError: protoc is missing or does not like the files; its message.
    """
    protos = sorted((REPOSITORY / "proto").glob("verilocc/*/*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{REPOSITORY / 'proto'}", f"--python_out={scratch}",
            f"--grpc_python_out={scratch}", f"--mypy_out=quiet:{scratch}",
            f"--mypy_grpc_out=quiet,async_only:{scratch}",
            *(f"--plugin={name}={_plugin(name)}" for name in _PLUGINS), *map(str, protos),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"protoc failed:\n{done.stderr}")
        for proto in protos:
            shutil.copyfile(proto, Path(scratch) / proto.relative_to(REPOSITORY / "proto"))
        return [into / f for f in _taken_over(Path(scratch), into)]


def _plugin(name: str) -> str:
    """The plugin beside this Python, or on the path (as in pip's build environments)."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: pip install mypy-protobuf")
    return found


def _taken_over(scratch: Path, into: Path) -> list[Path]:
    changed: list[Path] = []
    for source in sorted(p for p in scratch.rglob("*") if p.is_file()):
        name = source.relative_to(scratch)
        target = into / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.partial")
            shutil.copyfile(source, partial)
            partial.replace(target)
            changed.append(name)
    return changed


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY):
        print(path)
