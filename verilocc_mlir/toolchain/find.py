"""Find llc, ld.lld and their companions, and say why a candidate was rejected.

Search order: the caller's option; else ``VERILOCC_LLC`` (a single tool, with ``VERILOCC_LLD``) and ``VERILOCC_LLVM`` (a
directory); else ``PATH``, Debian's versioned names and directories (newest first), and ROCm (``ROCM_PATH``, then
``/opt/rocm*``). LLVM 22 or newer is needed: older ones have neither AMDGPU's three allocation phases (``greedy,N``) as
this project uses them, nor gfx950 and gfx1250.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.files import write_whole
from verilocc_mlir.store import default_directory
from verilocc_mlir.toolchain.run import run_tool

MINIMUM_VERSION = (22, 0, 0)
INSTALL_HINT = (
    "apt-get install llvm-22 lld-22 (or `make llvm`, which does it); or point VERILOCC_LLVM at an LLVM bin directory"
)
_VARIABLES = ("PATH", "ROCM_PATH", "VERILOCC_LLC", "VERILOCC_LLD", "VERILOCC_LLVM")
_PROBE_TIMEOUT = 30.0
_ELF = b"\x7fELF"
_COMPANIONS = {
    "opt": "opt",
    "objdump": "llvm-objdump",
    "dis": "llvm-dis",
    "readelf": "llvm-readelf",
    "mc": "llvm-mc",
    "irlink": "llvm-link",
    "cxxfilt": "llvm-cxxfilt",
}


class Candidate(Struct, frozen=True):
    """One tool that was looked at; ``reason`` says why it was not accepted, ``version`` is None if it gave none."""

    tool: str
    path: Path
    source: str
    accepted: bool
    reason: str
    version: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        version = "" if self.version is None else f" {'.'.join(map(str, self.version))}"
        return f"{self.tool} {self.path}{version} ({self.source}): {self.reason}"


class LlvmTools(Struct, frozen=True, kw_only=True):
    """An LLVM to use. Links in paths are not resolved; a tool that it does not have is None.

    Attributes:
        version: LLVM's version; ``version_text`` is the line that says it.
        source: where it was found: ``"option"``, ``"VERILOCC_LLVM"``, ``"PATH"``, ``"debian"``, ``"rocm"``…
        rejected: candidates that were looked at first and not taken.
        place: where an optional tool is searched for, in words.
    """

    place: ClassVar[str]
    version: tuple[int, int, int]
    version_text: str
    source: str
    opt: Path | None = None
    objdump: Path | None = None
    dis: Path | None = None
    readelf: Path | None = None
    mc: Path | None = None
    irlink: Path | None = None
    cxxfilt: Path | None = None
    rejected: tuple[Candidate, ...] = ()

    @property
    def files(self) -> dict[str, Path]:
        """The tools that a result depends on, by name."""
        raise NotImplementedError


class Toolchain(LlvmTools, frozen=True, kw_only=True):
    """llc and the tools beside it."""

    place: ClassVar[str] = "beside llc"
    llc: Path
    lld: Path

    @property
    def files(self) -> dict[str, Path]:
        """See ``LlvmTools``."""
        tools = {"llc": self.llc, "lld": self.lld, "opt": self.opt, "dis": self.dis}
        return {name: path for name, path in tools.items() if path is not None}


_ANSWERS: dict[tuple[str | None, ...], tuple[Toolchain, tuple[tuple[int, int, int], ...]]] = {}
"""What was chosen, by the option, the working directory and ``_VARIABLES``, with the state of the places it came from.
A process that stays asks for each kernel."""


def find_toolchain(option: str | Path | None = None, *, env: Mapping[str, str] | None = None) -> Toolchain:
    """The first suitable llc in the search order, with its companions.

    Args:
        option: a bin directory, an LLVM prefix, or an llc binary that the user named; then nothing else is tried.
        env: environment to search in; the process's own by default.

    Raises:
        ToolchainError: there is no suitable llc or ld.lld; it lists what was tried and the command that installs them.
    """
    environment = os.environ if env is None else env
    question = (str(option), os.getcwd(), *map(environment.get, _VARIABLES))
    known = _ANSWERS.get(question)
    if known is not None and known[1] == _state_of(known[0], environment):
        return known[0]
    tools = _searched(option, environment)
    _ANSWERS[question] = tools, _state_of(tools, environment)
    return tools


def _searched(option: str | Path | None, environment: Mapping[str, str]) -> Toolchain:
    candidates: list[Candidate] = []
    for source, path in _llc_candidates(option, environment):
        candidate = _judge("llc", path, source)
        candidates.append(candidate)
        if candidate.accepted:
            return _with_companions(candidate, candidates, environment)
    raise ToolchainError(
        "no suitable llc found (LLVM 22 or newer with the AMDGPU target)" + _listing(candidates), hint=INSTALL_HINT
    )


def _state_of(tools: Toolchain, environment: Mapping[str, str]) -> tuple[tuple[int, int, int], ...]:
    """What changes when a tool is installed, replaced or taken away where tools are searched for."""
    directories = [*environment.get("PATH", os.defpath).split(os.pathsep), "/usr/lib", "/opt"]
    files = [tools.llc, tools.lld, tools.llc.parent, tools.llc.resolve().parent]
    return tuple(_stamp(path or ".") for path in (*directories, *files))


def _stamp(path: str | Path) -> tuple[int, int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return state.st_mtime_ns, state.st_ino, state.st_size


def survey(option: str | Path | None = None, *, env: Mapping[str, str] | None = None) -> tuple[Candidate, ...]:
    """Every llc in the search order, and the linkers, each with the verdict on it. Each is run anew. Never raises."""
    environment = os.environ if env is None else env
    candidates = [_judge("llc", path, source, _printed) for source, path in _llc_candidates(option, environment)]
    for candidate in candidates:
        if candidate.accepted:
            return (*candidates, *_linkers(candidate, environment, _printed))
    return tuple(candidates)


def _llc_candidates(option: str | Path | None, env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(source, path) of every llc to look at, each path once; a path that the user named need not exist."""
    if option is not None:
        yield from (("option", path) for path in _in_directory(Path(option), "llc"))
        return
    yielded: set[Path] = set()
    for source, path in _search(env):
        real = path.resolve()
        if real not in yielded:
            yielded.add(real)
            yield source, path


def _search(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if env.get("VERILOCC_LLC"):
        yield "VERILOCC_LLC", Path(env["VERILOCC_LLC"])
    if env.get("VERILOCC_LLVM"):
        yield from (("VERILOCC_LLVM", path) for path in _in_directory(Path(env["VERILOCC_LLVM"]), "llc"))
    if env.get("VERILOCC_LLC") or env.get("VERILOCC_LLVM"):
        # A user who names an LLVM does not want another one to be taken silently.
        return
    search_path = env.get("PATH", os.defpath)
    on_path = shutil.which("llc", path=search_path)
    if on_path:
        yield "PATH", Path(on_path)
    yield from (("PATH", path) for path in _versioned_on_path("llc", search_path))
    yield from (("debian", path) for path in _existing(_newest_first(Path("/usr/lib"), "llvm-*"), "bin/llc"))
    if env.get("ROCM_PATH"):
        yield "ROCM_PATH", Path(env["ROCM_PATH"]) / "llvm/bin/llc"
    yield from (("rocm", path) for path in _existing(_newest_first(Path("/opt"), "rocm*"), "llvm/bin/llc"))


def _versioned_on_path(tool: str, search_path: str) -> list[Path]:
    """``tool-N`` on PATH, the highest N first."""
    by_version: dict[int, Path] = {}
    pattern = re.compile(re.escape(tool) + r"-(\d+)$")
    for directory in search_path.split(os.pathsep):
        base = Path(directory or ".")
        if not base.is_dir():
            continue
        try:
            names = os.listdir(base)
        except OSError:
            continue
        for name in names:
            if name.startswith(tool) and (match := pattern.match(name)):
                by_version.setdefault(int(match[1]), base / name)
    return [by_version[number] for number in sorted(by_version, reverse=True)]


def _newest_first(base: Path, pattern: str) -> list[Path]:
    def key(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.name)]

    return sorted(base.glob(pattern), key=key, reverse=True) if base.is_dir() else []


def _existing(bases: list[Path], relative: str) -> list[Path]:
    return [base / relative for base in bases if (base / relative).exists()]


def _in_directory(path: Path, tool: str) -> list[Path]:
    """The tool at ``path``: the file itself, or the tool (also as tool-N) in the directory, its ``bin`` or
    ``llvm/bin``."""
    if not path.is_dir():
        return [path]
    paths: list[Path] = []
    for directory in (path, path / "bin", path / "llvm/bin"):
        if (directory / tool).exists():
            paths.append(directory / tool)
        paths += _versioned_on_path(tool, str(directory))
    return paths or [path / tool]


def _judge(tool: str, path: Path, source: str, version_output: Callable[[Path], str] | None = None) -> Candidate:
    """Decide by what the tool prints for ``--version``."""
    rejected = Candidate(tool, path, source, False, "")
    if not path.exists():
        return replace(rejected, reason="does not exist")
    if path.is_dir() or not os.access(path, os.X_OK):
        return replace(rejected, reason="is not an executable file")
    version, reason = _read_version((version_output or _kept_version_output)(path), tool)
    return Candidate(tool, path, source, not reason, reason or "suitable", version)


def _kept_version_output(path: Path) -> str:
    return kept(path, "", _printed)


class _KilledError(Exception):
    """A tool that was killed says nothing of itself: it may be asked again."""


def kept(path: Path, question: str, ask: Callable[[Path], str]) -> str:
    """What ``ask`` says of a program or library, asked once only: the answer is kept in this process and in the user's
    cache.

    It is kept under the question and the real path, time and size. Two answers are not kept in the user's cache: one
    about a script, which may call another program tomorrow, and one that begins with ``"!"``, which is a failure.
    """
    stat = path.stat()
    try:
        return _kept(path, stat.st_mtime_ns, stat.st_size, question, ask)
    except _KilledError as killed:
        return str(killed)


@functools.lru_cache(maxsize=64)
def _kept(path: Path, mtime: int, size: int, question: str, ask: Callable[[Path], str]) -> str:
    cached = _cached_output(path, mtime, size, question)
    if cached is not None:
        with contextlib.suppress(OSError):
            return cached.read_text("utf-8")
    answer = ask(path)
    if answer.startswith("!") and "SIGKILL" in answer:
        raise _KilledError(answer)
    if cached is not None and not answer.startswith("!"):
        with contextlib.suppress(OSError):
            for directory in (cached.parent.parent, cached.parent):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(cached, answer.encode())
    return answer


def _printed(path: Path) -> str:
    """What ``--version`` prints, or ``"!"`` and the failure."""
    try:
        return run_tool([path, "--version"], timeout=_PROBE_TIMEOUT, stage="version").stdout.decode("utf-8", "replace")
    except ToolchainError as error:
        return "!" + error.what


def _cached_output(path: Path, mtime: int, size: int, question: str) -> Path | None:
    """The file that keeps an answer; None for a script, and where there is no home directory."""
    real = os.path.realpath(path)
    try:
        with open(real, "rb") as stream:
            if stream.read(len(_ELF)) != _ELF:
                return None
        digest = hashlib.sha256(f"{question}{mtime} {size} {real}".encode(errors="surrogateescape")).hexdigest()
        return default_directory() / "tools" / digest
    except (OSError, RuntimeError):  # it cannot be read; there is no home directory
        return None


def _read_version(output: str, tool: str) -> tuple[tuple[int, int, int] | None, str]:
    """(version, reason against it or ``""``)."""
    if output.startswith("!"):
        return None, output[1:]
    match = re.search(r"(?:LLVM|LLD|AOMP|LLVM version)\D{0,20}?(\d+)\.(\d+)(?:\.(\d+))?", output)
    if not match:
        return None, "prints no LLVM version"
    version = (int(match[1]), int(match[2]), int(match[3] or 0))
    if version < MINIMUM_VERSION:
        return version, f"LLVM {version[0]} is too old, {MINIMUM_VERSION[0]} or newer is needed"
    if tool == "llc" and not re.search(r"^\s*amdgcn\b", output, re.MULTILINE):
        return version, "is built without the AMDGPU target"
    return version, ""


def _with_companions(llc: Candidate, candidates: list[Candidate], env: Mapping[str, str]) -> Toolchain:
    linker: Path | None = None
    rejected = [candidate for candidate in candidates if not candidate.accepted]
    for candidate in _linkers(llc, env):
        if candidate.accepted:
            linker = candidate.path
            break
        rejected.append(candidate)
    if linker is None:
        raise ToolchainError(
            f"no suitable ld.lld found for {llc.path}" + _listing(rejected),
            hint="apt-get install lld-22 (or `make llvm`, which does it); or set VERILOCC_LLD",
        )
    output = _kept_version_output(llc.path)
    text = next((line.strip() for line in output.splitlines() if "version" in line), "")
    assert llc.version is not None
    return Toolchain(
        llc=llc.path,
        lld=linker,
        version=llc.version,
        version_text=text,
        source=llc.source,
        rejected=tuple(rejected),
        **{name: _beside(llc.path, tool) for name, tool in _COMPANIONS.items()},
    )


def _linkers(
    llc: Candidate, env: Mapping[str, str], version_output: Callable[[Path], str] | None = None
) -> Iterator[Candidate]:
    """ld.lld candidates: the environment's, beside llc, beside llc's real file, of llc's version on PATH, on PATH."""
    yielded: set[Path] = set()
    if env.get("VERILOCC_LLD"):
        yield _judge("ld.lld", Path(env["VERILOCC_LLD"]), "VERILOCC_LLD", version_output)
        return
    beside = _beside(llc.path, "ld.lld")
    search_path = env.get("PATH", os.defpath)
    plain = shutil.which("ld.lld", path=search_path)
    paths = [
        *([beside] if beside else []),
        *_versioned_on_path("ld.lld", search_path),
        *([Path(plain)] if plain else []),
    ]
    paths += _existing(_newest_first(Path("/usr/lib"), "llvm-*"), "bin/ld.lld")
    for path in paths:
        if path.resolve() not in yielded:
            yielded.add(path.resolve())
            yield _judge("ld.lld", path, "beside llc" if path == beside else "PATH", version_output)


def _beside(llc: Path, tool: str) -> Path | None:
    """``tool`` where this llc is: same directory and version suffix, or beside the file that llc links to."""
    suffix = llc.name.removeprefix("llc") if llc.name.startswith("llc") else ""
    for path in (llc.parent / (tool + suffix), llc.resolve().parent / tool):
        if path.exists() and os.access(path, os.X_OK):
            return path
    return None


def _listing(candidates: list[Candidate]) -> str:
    return "".join(f"\n  tried {candidate}" for candidate in candidates)
