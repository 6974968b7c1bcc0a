"""Find and run ``iree-compile``.

It runs as a process: in IREE's Python bindings the options used here are global and can be given once only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verilocc_mlir.errors import InputError, ToolchainError, VeriloccError
from verilocc_mlir.hooks.kernels import KernelSource
from verilocc_mlir.pipeline.audit import Sides
from verilocc_mlir.pipeline.native import NativeKernel, named
from verilocc_mlir.target.targets import TARGETS
from verilocc_mlir.toolchain.run import ToolFailure, ToolRun, run_tool
from verilocc_mlir.toolchain.staged import has_wwm_registers

VARIABLE = "VERILOCC_IREE_COMPILE"
"""Environment variable: the iree-compile to use, before any other."""

EXTRA_HINT = "pip install 'verilocc-mlir[iree]', or name an iree-compile with VERILOCC_IREE_COMPILE=PATH"
DEFAULT_SECONDS = 1800.0

_ERROR = re.compile(r"^(?P<where>\S.*?:\d+:\d+): (?:fatal )?error: (?P<what>.+)$|^.*?\berror: (?P<plain>.+)$")
_UNKNOWN_OPTION = re.compile(r"Unknown command line argument '(?P<option>[^']+)'")
_BAD_FLAG = re.compile(
    r"^iree-compile: (?P<what>for the -.+|Too many positional arguments.*|Not enough positional.*)$", re.MULTILINE
)
"""How LLVM's command line begins what it says of a value; errors of the module have a place, or "error:" before."""
_FLAGS = "iree-compile --help lists its flags"
_VERSION = re.compile(r"compiler version (?P<version>\S+)")


@dataclass(frozen=True)
class IreeCompiler:
    """An iree-compile and how long one run of it may take, in seconds.

    Attributes:
        taken: GPUs and flags that it was asked about and takes.
    """

    path: Path
    seconds: float = DEFAULT_SECONDS
    taken: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]], compare=False)

    def version(self) -> str:
        """Its version, ``"3.13.0rc20261016"``.

        Raises:
            ToolchainError: it cannot be run.
        """
        run = run_tool([self.path, "--version"], timeout=self.seconds, stage="version")
        match = _VERSION.search(run.stdout.decode("utf-8", "replace"))
        return match["version"] if match else "of unknown version"

    def run(self, source: Path, output: Path, flags: Sequence[str], *, stage: str, shown_as: str = "") -> ToolRun:
        """Compile ``source`` to ``output``.

        Args:
            shown_as: what messages call the source.

        Raises:
            InputError: it rejects the module, or a flag. ToolchainError: it crashed or timed out.
        """
        command = [self.path, source, *flags, "-o", output]
        where = shown_as or str(source)
        try:
            run = run_tool(command, timeout=self.seconds, stage=stage, where=where)
        except ToolFailure as failure:
            if failure.status < 0:
                raise
            raise _rejected(failure.stderr, str(source), where) from failure
        if not Path(output).exists():
            lines = run.stdout.decode("utf-8", "replace").splitlines()
            said = next((line for line in lines if line.strip()), "nothing")
            raise FlagError(
                f"{self.path} compiled nothing; it said: {said.strip()}",
                where=where,
                hint="leave out flags that print something, and name an iree-compile",
            )
        return run


def find_iree_compile(path: str | Path | None = None) -> IreeCompiler:
    """The iree-compile named; else $VERILOCC_IREE_COMPILE, the one of this Python's packages, or the one on PATH.

    Raises:
        ToolchainError: there is none.
    """
    named = path or os.environ.get(VARIABLE)
    if named:
        program = shutil.which(str(named))
        if program is None:
            raise ToolchainError(f"{named} is no program that can be run", hint=EXTRA_HINT)
        return IreeCompiler(Path(program))
    candidate = _packaged()
    if candidate is not None:
        return IreeCompiler(candidate)
    on_path = shutil.which("iree-compile")
    if on_path is None:
        raise ToolchainError("iree-compile was not found", hint=EXTRA_HINT)
    return IreeCompiler(Path(on_path))


def _packaged() -> Path | None:
    """The program inside the iree-base-compiler package, without the Python script around it."""
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        return None
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(directory) / "_mlir_libs" / "iree-compile"
        if os.access(path, os.X_OK):
            return path
    return None


class FlagError(InputError):
    """iree-compile rejects a flag, not the module, or a flag has it do something else."""


def _rejected(stderr: str, source: str, shown_as: str) -> InputError:
    option = _UNKNOWN_OPTION.search(stderr)
    if option:
        return FlagError(f"iree-compile does not know {option['option']}", hint=_FLAGS)
    value = _BAD_FLAG.search(stderr)
    if value:
        return FlagError(f"iree-compile does not take its flags: {value['what']}", hint=_FLAGS)
    for line in stderr.splitlines():
        match = _ERROR.match(line)
        if match:
            where = (match["where"] or shown_as).replace(source, shown_as)
            return InputError(f"iree-compile: {match['what'] or match['plain']}", where=where)
    lines = [line for line in stderr.splitlines() if line.strip()]
    return InputError(f"iree-compile: {lines[0] if lines else 'failed without a message'}", where=shown_as)


# What is wrong with a GPU or with flags of iree-compile whatever the module: said before any work.


_ARCHITECTURE = re.compile(r'#iree_gpu\.target<arch = "(?P<name>[^"]+)"')
_UNKNOWN = re.compile(r"Unknown ROCM target|ROCM target not set")
_EMPTY = "module {}\n"
_UP_TO = "--compile-to=preprocessing"
"""As far as IREE says in the module what GPU it is for."""


def check_target(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> None:
    """Have iree-compile read them, with a module that has nothing in it: a tenth of a second.

    Args:
        target: as ``--iree-rocm-target`` takes it.
        flags: further flags of iree-compile.

    Raises:
        InputError: IREE does not know the GPU, or no allocation for it can be proved here; IREE does not take a flag.
        ToolchainError: iree-compile cannot be run.
    """
    if (target, *flags) in iree.taken:
        return
    name = _architecture(iree, target, flags)
    if name is None:
        raise InputError(f"IREE knows no GPU {target!r}", hint=_known(iree))
    if name and name not in TARGETS:
        shown = name if name == target else f"{target} ({name})"
        raise InputError(f"no allocation for {shown} can be proved here", hint=_known(iree))
    iree.taken.add((target, *flags))


def _architecture(iree: IreeCompiler, target: str, flags: Sequence[str] = ()) -> str | None:
    """``"gfx942"`` for ``"mi300x"``; None where IREE does not know it, ``""`` where it does not say."""
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        source, output = Path(temporary, "empty.mlir"), Path(temporary, "out.mlir")
        source.write_text(_EMPTY)
        all_flags = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags, _UP_TO]
        try:
            iree.run(source, output, all_flags, stage="target", shown_as=target)
        except FlagError:
            raise
        except InputError as error:  # of the empty module with these flags: what there is to say, the module's own says
            return None if _UNKNOWN.search(error.what) else ""
        match = _ARCHITECTURE.search(output.read_text("utf-8", "replace"))
    return match["name"] if match else ""


def _known(iree: IreeCompiler) -> str:
    there = ", ".join(name for name in TARGETS if _architecture(iree, name) == name)
    return f"give one of {there}, or a product of these, such as mi300x"


# What ``iree-compile`` leaves of each dispatch: its LLVM IR, how IREE compiled that, and IREE's own code object.
#
# IREE names the files ``<module>_<executable>_<variant>.<kind>`` (dumpDataToPath in its TargetBackend.cpp); the
# executable is the ModuleID of the IR. The first lines of the ``.rocmasm`` say which processor and features the IR was
# compiled for (ROCMTarget.cpp). They leave out that IREE's target machine also contracts multiplications and additions
# (``AllowFPOpFusion = Fast``), so that is added here.


_MODULE_ID = re.compile(r"^ *; ModuleID = '(?P<name>.+)'$", re.MULTILINE)
_COMMAND = re.compile(
    r"^; llc -mtriple=\S+ -mcpu=(?P<cpu>\S+) -mattr='(?P<features>[^']*)' -O(?P<level>\d) ", re.MULTILINE
)
_RELAXED = re.compile(r'^!\d+ = !\{i32 \d+, !"amdgpu\.buffer\.oob\.mode", i32 1\}', re.MULTILINE)
_FLOAT_CONTRACTION = "-fp-contract=fast"
_RELAXED_FEATURE = "+relaxed-buffer-oob-mode"
_HEAD_BYTES = 4096
LINK = "--iree-hal-link-executables=false"
CONFIGURED = ("--compile-to=executable-configurations", "--mlir-print-debuginfo", LINK)
"""The first part of iree-compile's work, which all of it shares: up to how each kernel is to be tiled. As text, since
IREE 3.13's bytecode has lost the data of weights in f16 ("resource data missing in input IR"); with locations, since
they are in the module."""
FROM_CONFIGURED = ("--compile-from=executable-configurations",)


@dataclass(frozen=True)
class Dispatch:
    """One executable of the module.

    Attributes:
        executable: its symbol, as ``--iree-hal-substitute-executable-object`` takes it.
        own: the code object that IREE made.
        source: its IR; None where there is none, with the reason in ``reason``.
        assembly: of that code object; ``""`` where IREE left none.
    """

    executable: str
    own: bytes
    source: KernelSource | None
    reason: str = ""
    assembly: str = ""


@dataclass(frozen=True)
class MachineIrDump:
    """Machine IR that iree-compile wrote where it was stopped: the dispatch's symbol, its processor, and the text."""

    executable: str
    cpu: str
    text: str


def machine_ir_of(path: Path) -> MachineIrDump | None:
    """What stands in a ``.rocmasm``; None where it is no machine IR, or does not say what it is of."""
    text = path.read_text("utf-8", "replace")
    name, command = _MODULE_ID.search(text), _COMMAND.search(text)
    if name is None or command is None or "\n---\nname:" not in text:
        return None
    return MachineIrDump(name["name"], command["cpu"], text)


def dump_flags(directory: Path) -> list[str]:
    """Flags that make iree-compile write what ``read_dispatches`` reads; each dispatch as an executable of its own."""
    return [
        LINK,
        f"--iree-hal-dump-executable-intermediates-to={directory}",
        f"--iree-hal-dump-executable-binaries-to={directory}",
    ]


def read_dispatches(directory: Path, llvm_major: int = 0) -> tuple[Dispatch, ...]:
    """Every dispatch that has a code object, in the order of their names, numbers by value.

    Args:
        llvm_major: version of the llc that will compile them, if one will. LLVM 22 has a feature for what later ones
            read from the module flag ``amdgpu.buffer.oob.mode``.
    """
    if not directory.is_dir():
        return ()
    objects = sorted(directory.glob("*.hsaco"), key=lambda path: _natural(path.name))
    return tuple(_dispatch(path, llvm_major) for path in objects)


def _dispatch(binary: Path, llvm_major: int) -> Dispatch:
    own = binary.read_bytes()
    base = binary.with_suffix("")
    ir, asm = (base.with_name(base.name + suffix) for suffix in (".optimized.ll", ".rocmasm"))
    if not ir.exists() or not asm.exists():
        return Dispatch(_stem(base.name), own, None, "IREE made no LLVM IR of it: it is an object file in the module")
    data = ir.read_bytes()
    name = _MODULE_ID.search(data.decode("utf-8", "replace"))
    executable = name["name"] if name else ""
    if f"_{executable}_" not in base.name:
        return Dispatch(_stem(base.name), own, None, "its LLVM IR does not name it")
    assembly = asm.read_text("utf-8", "replace")
    command = _COMMAND.search(assembly, 0, _HEAD_BYTES)
    if command is None:
        return Dispatch(executable, own, None, "IREE's dump does not say how it was compiled (IREE 3.13's does)")
    features = command["features"]
    if llvm_major == 22 and _RELAXED.search(data.decode("utf-8", "replace")):
        features = ",".join(filter(None, (features, _RELAXED_FEATURE)))
    source = KernelSource(
        executable, data, command["cpu"], features, max(1, int(command["level"])), (_FLOAT_CONTRACTION,)
    )
    return Dispatch(executable, own, source, assembly=assembly)


def _stem(name: str) -> str:
    """The executable's name where nothing but the file's name tells it."""
    return re.sub(r"^[^_]+_", "", re.sub(r"_rocm_hsaco_fb$", "", name))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


# IREE's own register allocation: what iree-compile prints before and after each phase, of every dispatch.
#
# ``--stop-before`` is an option of the LLVM inside iree-compile. With it, iree-compile writes machine IR where it would
# write assembly, under the name ``.rocmasm``, and then ends with an error, because there is no object to link. The
# texts are what it compiles for the module it ships; each dispatch is an executable of its own here.


_STOPS = {
    "sgpr": ("greedy,0", "si-lower-sgpr-spills"),
    "wwm": ("greedy,1", "amdgpu-reserve-wwm-regs"),
    "vgpr": ("greedy,2", "amdgpu-mark-last-scratch-load"),
}
"""The pass before which each phase's texts are printed (AMDGPUTargetMachine.cpp): the first after its rewriter, since
``-stop-after`` is no option of iree-compile."""

Run = Callable[[Path, Path, Sequence[str]], None]
"""iree-compile: a module, the file to write, further flags."""


def iree_kernels(
    source: Path,
    target: str,
    iree: IreeCompiler,
    *,
    flags: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[NativeKernel, ...]:
    """Every dispatch of an MLIR module, as iree-compile itself allocates it.

    Args:
        source: the module.
        target: as ``--iree-rocm-target`` takes it.
        iree: the compiler.
        flags: further flags of iree-compile.
        progress: gets a line for each run.

    Raises:
        InputError: IREE rejects the module, the GPU or a flag, or it has no GPU kernel. ToolchainError: iree-compile
            crashed.
    """
    check_target(iree, target, flags)
    base = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}", *flags]
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        directory = Path(temporary)
        configured = directory / "configured.mlir"
        progress(f"iree-compile {source}")
        iree.run(source, configured, [*base, *CONFIGURED], stage="configured", shown_as=str(source))

        def run(module: Path, output: Path, more: Sequence[str]) -> None:
            iree.run(module, output, [*base, *more], stage="native", shown_as=str(source))

        dump = directory / "dump"
        progress("iree-compile to the end")
        run(configured, directory / "native.vmfb", [*FROM_CONFIGURED, *dump_flags(dump)])
        assemblies = {d.executable: d.assembly for d in read_dispatches(dump)}
        return tuple(
            stopped_kernels(run, configured, directory / "native", iree.version(), assemblies, progress).values()
        )


def stopped_kernels(
    run: Run,
    configured: Path,
    directory: Path,
    version: str,
    assemblies: Mapping[str, str],
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, NativeKernel]:
    """Every dispatch of a module in iree-compile's hands, by its executable.

    Args:
        run: iree-compile, with the flags of the module and more.
        configured: the module with how each kernel is tiled (``CONFIGURED``).
        directory: for what it leaves.
        version: of iree-compile.
        assemblies: what iree-compile makes of each in the end, by its executable.

    Raises:
        InputError: it has no GPU kernel. ToolchainError: iree-compile crashed.
    """
    directory.mkdir(exist_ok=True)

    def dump(stop: str) -> dict[str, MachineIrDump]:
        progress(f"iree-compile up to {stop}")
        return _dumps(run, configured, directory / stop, [*FROM_CONFIGURED, f"--stop-before={stop}"])

    dumps = {phase: [dump(stop) for stop in _STOPS[phase]] for phase in ("sgpr", "vgpr")}
    before_vgpr = dumps["vgpr"][0]
    whole_wave = {name for name, dumped in before_vgpr.items() if has_wwm_registers(dumped.text)}
    if whole_wave:
        dumps["wwm"] = [dump(stop) for stop in _STOPS["wwm"]]
    return {
        name: NativeKernel(
            name,
            dumped.cpu,
            f"IREE {version}",
            "greedy",
            tuple(_phases(name, dumps, name in whole_wave)),
            assemblies.get(name, ""),
        )
        for name, dumped in before_vgpr.items()
    }


def iree_sources(source: Path, target: str, iree: IreeCompiler, directory: Path) -> tuple[Path, ...]:
    """The LLVM IR of every dispatch of an MLIR module, as ``NAME.TARGET.ll`` in ``directory``.

    Raises:
        InputError: IREE rejects the module, or it has no GPU kernel. ToolchainError: iree-compile crashed.
    """
    check_target(iree, target)
    base = ["--iree-hal-target-device=hip", f"--iree-rocm-target={target}"]
    with tempfile.TemporaryDirectory(prefix="verilocc-") as temporary:
        dump = Path(temporary, "dump")
        flags = [*base, *dump_flags(dump)]
        iree.run(source, Path(temporary, "none.vmfb"), flags, stage="dump", shown_as=str(source))
        sources = [dispatch.source for dispatch in read_dispatches(dump, 0) if dispatch.source is not None]
    if not sources:
        raise InputError("it has no GPU kernel", where=str(source))
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{kernel.name}.{kernel.cpu}.ll" for kernel in sources]
    for path, kernel in zip(paths, sources, strict=True):
        path.write_bytes(kernel.ir)
    return tuple(paths)


def _dumps(run: Run, configured: Path, directory: Path, flags: list[str]) -> dict[str, MachineIrDump]:
    """Each dispatch's machine IR by the dispatch's name."""
    directory.mkdir()
    failure: VeriloccError | None = None
    try:
        run(configured, directory / "none.vmfb", [*flags, *dump_flags(directory)])
    except InputError as error:  # expected: there is no object
        failure = error
    dumps = [machine_ir_of(path) for path in sorted(directory.glob("*.rocmasm"))]
    if not dumps or None in dumps:
        raise failure or InputError("it has no GPU kernel")
    return {dumped.executable: dumped for dumped in dumps if dumped is not None}


def _phases(name: str, dumps: dict[str, list[dict[str, MachineIrDump]]], whole_wave: bool) -> Iterator[Sides]:
    for phase in _STOPS:
        if phase != "wwm" or whole_wave:
            before, after = (side[name].text for side in dumps[phase])
            yield named(name, phase, before, after)
