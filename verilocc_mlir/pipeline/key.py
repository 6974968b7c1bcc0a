"""What a result depends on, as one digest: the name under which ``verilocc_mlir.store`` keeps it.

Development versions of this project and of LLVM change without a new number: the sources are hashed, and LLVM's tools
are told apart by size and time as well.
"""

from __future__ import annotations

import functools
import hashlib
import json
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smt_verifier import outcome
from verilocc_mlir import version
from verilocc_mlir.allocators import Allocator, allocator
from verilocc_mlir.allocators.registry import MODEL, model_is_there, plugin_called
from verilocc_mlir.pipeline.chosen_allocators import checked_allocator
from verilocc_mlir.pipeline.learned import model_version
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.toolchain.find import LlvmTools

_NOT_IN_THE_RESULT = ("tool_seconds", "toolchain", "llvm", "access", "server_required")
"""A tool that runs out of time fails, and failures are not kept; the tools are named by what they are, not by where. A
server that does not let us in has no part in a result, and such results have no key (``Result.keyed``)."""


class Keys:
    """Keys of compilations with the same settings.

    Args:
        settings: what is asked for; every field counts but the place of the tools and their time limit.
        toolchain: the tools that it is asked of.
        server_version: what allocates behind ``settings.server``, ``""`` where there is none.

    Raises:
        InputError: there is no such allocator, triple or processor.
    """

    def __init__(self, settings: Settings, toolchain: LlvmTools, server_version: str = "") -> None:
        self.server_version = server_version
        values = {k: v for k, v in settings.to_data().items() if k not in _NOT_IN_THE_RESULT}
        self._parts: dict[str, Any] = {
            "settings": {**values, "verify": settings.verifies},
            "allocators": allocator_versions(settings),
            "server_version": server_version,
            "verilocc": {"version": version.__version__, "sources": source_digest()},
            "llvm": {"version": toolchain.version_text, "tools": file_stats(toolchain)},
            "z3": metadata.version("z3-solver"),
        }

    def of(self, input_sha256: str, server_version: str = "") -> str:
        """The key of one input, given the SHA-256 of its bytes: 64 hexadecimal digits.

        Args:
            input_sha256: of the input.
            server_version: what really allocated behind the server; ``""`` for what was said to at the start.
        """
        parts = {**self._parts, "server_version": server_version} if server_version else self._parts
        text = json.dumps({**parts, "input": input_sha256}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def allocator_versions(settings: Settings) -> dict[str, str]:
    """Versions of all that may allocate here, by name: of what is asked for, and of the language model and the exact
    allocator where they are installed and ``Effort.BEST`` tries them too.

    Raises:
        InputError, UnsupportedError: as for ``checked_allocator``.
    """
    chosen = checked_allocator(settings)
    if chosen is None:
        return {}
    versions = {chosen.name: _version(settings.allocator, chosen)}
    # Whether a server's model was asked, or the one here, is not known before: such results are not kept.
    if settings.effort is Effort.LEARNED and not settings.server:
        versions["plans"] = model_version(settings.plan_model)
    best = settings.effort is Effort.BEST
    if best and not settings.server and chosen.name != MODEL and model_is_there():
        versions[MODEL] = allocator(MODEL, samples=settings.model_samples).version
    if (best or chosen.name == "exact") and find_spec("ortools") is not None:
        versions["exact"] = f"{allocator('exact').version}, OR-Tools {metadata.version('ortools')}"
    return versions


def _version(name: str, allocator: Allocator) -> str:
    """The version of the allocator called ``name``; of one of another package, with what tells it from all others: the
    package, its version, and its sources, which change under development without a new number.
    """
    plugin = plugin_called(name)
    if plugin is None:
        return allocator.version
    sources = plugin.sources
    digest = python_digest(sources) if sources is not None else ""
    return f"{allocator.version}, {plugin.place} of {plugin.package}, sources {digest}"


def versions(toolchain: LlvmTools) -> dict[str, str]:
    """What must be equal on two machines for their results to be: versions of this project, Z3 and LLVM, by name."""
    return {
        "verilocc": f"{version.__version__}, sources {source_digest()[:16]}",
        "z3": metadata.version("z3-solver"),
        "LLVM": toolchain.version_text,
    }


@functools.lru_cache(maxsize=1)
def source_digest() -> str:
    """SHA-256 over the sources of both packages; what this process first sees of them, 64 hexadecimal digits."""
    return python_digest(*(Path(str(module.__file__)).parent for module in (version, outcome)))


def python_digest(*places: Path) -> str:
    """SHA-256 over Python files, and those of directories and all below them, 64 hexadecimal digits; where they are is
    no part of it.
    """
    digest = hashlib.sha256()
    for root in places:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else (root,):
            data = path.read_bytes()
            digest.update(f"{root.name}/{path.relative_to(root)}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()


def file_stats(toolchain: LlvmTools) -> dict[str, list[int]]:
    """Size in bytes and time in nanoseconds of each file of LLVM that has a part in a result, by name."""
    stats = {name: path.stat() for name, path in toolchain.files.items()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
