"""What ``iree-compile`` leaves of each dispatch: its LLVM IR, how IREE compiled that, and IREE's own code object.

IREE names the files ``<module>_<executable>_<variant>.<kind>`` (dumpDataToPath in its TargetBackend.cpp); the
executable is the ModuleID of the IR. The first lines of the ``.rocmasm`` say which processor and features the IR was
compiled for (ROCMTarget.cpp). They leave out that IREE's target machine also contracts multiplications and additions
(``AllowFPOpFusion = Fast``), so that is added here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from verilocc_mlir.hooks.kernels import KernelSource

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


def read_dispatches(directory: Path, llvm_major: int) -> tuple[Dispatch, ...]:
    """Every dispatch that has a code object, in the order of their names, numbers by value.

    Args:
        llvm_major: version of the llc that will compile them. LLVM 22 has a feature for what later ones read from the
            module flag ``amdgpu.buffer.oob.mode``.
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
