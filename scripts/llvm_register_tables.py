"""LLVM's own register and class tables, read out of the libLLVM that an llc is linked with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass

# Layouts of llvm::Target, MCRegisterInfo, MCRegisterDesc and MCRegisterClass in LLVM 22 on a 64-bit machine.
_DUMP = r"""
import ctypes as C, json, sys
lib = C.CDLL(sys.argv[1])
for part in ("TargetInfo", "Target", "TargetMC"):
    getattr(lib, "LLVMInitializeAMDGPU" + part)()
lib.LLVMGetTargetFromName.restype = C.c_void_p
target = (C.c_uint64 * 16).from_address(lib.LLVMGetTargetFromName(b"amdgcn"))
triple = C.create_string_buffer(256)
info = (C.c_uint64 * 16).from_address(C.CFUNCTYPE(C.c_void_p, C.c_void_p)(target[10])(C.addressof(triple)))
desc, classes, diffs, strings, class_strings = info[1], info[4], info[7], info[9], info[10]
names, units = [], {}
for k in range(info[2] & 0xFFFFFFFF):
    row = (C.c_uint32 * 6).from_address(desc + 24 * k)
    name = C.string_at(strings + row[0]).decode().lower()
    names.append(name)
    if k == 0:
        continue
    unit, at, found = row[4] & 4095, diffs + 2 * (row[4] >> 12), []
    while True:
        found.append(unit)
        step = C.c_int16.from_address(at).value
        at += 2
        if step == 0:
            break
        unit += step
    units[name] = found
table = {}
for k in range(info[5] & 0xFFFFFFFF):
    row = classes + 32 * k
    size, _, _, bits = (C.c_uint16 * 4).from_address(row + 20)
    members = (C.c_uint16 * size).from_address(C.c_uint64.from_address(row).value)
    name = C.string_at(class_strings + C.c_uint32.from_address(row + 16).value).decode().lower()
    table[name] = [bits, bool(C.c_uint8.from_address(row + 29).value), [names[m] for m in members]]
json.dump({"registers": units, "classes": table}, sys.stdout)
"""

_ENCODED = re.compile(r"_(ci|vi|gfxpre11|gfx11plus|gfx9plus)(_|\Z)")
"""Names of the encoder, not of MIR."""


@dataclass(frozen=True)
class ClassRow:
    """Width in bits, whether LLVM allocates from it, and the members of one class."""

    bits: int
    allocatable: bool
    members: frozenset[str]


@dataclass(frozen=True)
class RegisterTables:
    """LLVM's register units by register, and its classes, names as in MIR."""

    units: dict[str, tuple[int, ...]]
    classes: dict[str, ClassRow]


def register_tables_of(llc: str) -> RegisterTables | None:
    """The tables of the LLVM that ``llc`` is; None where it is not version 22 with a shared libLLVM.

    Raises:
        RuntimeError: the tables in it are not laid out as those of LLVM 22.
    """
    version = subprocess.run([llc, "--version"], capture_output=True, text=True, check=True).stdout
    linked = subprocess.run(["ldd", llc], capture_output=True, text=True, check=False).stdout
    library = re.search(r"libLLVM\S* => (\S+)", linked)
    if "LLVM version 22." not in version or library is None:
        return None
    # In a process of its own: a wrong layout is a crash.
    done = subprocess.run([sys.executable, "-c", _DUMP, library[1]], capture_output=True, text=True, check=False)
    raw = json.loads(done.stdout) if done.returncode == 0 else {"registers": {}, "classes": {}}
    if len(raw["registers"]) <= 20000 or len(raw["registers"]["vgpr4_vgpr5"]) != 4:
        raise RuntimeError(f"the layout of LLVM's register tables is not the expected one: {done.stderr}")
    return RegisterTables(
        {name: tuple(units) for name, units in raw["registers"].items() if not _ENCODED.search(name)},
        {name: ClassRow(row[0], row[1], frozenset(row[2])) for name, row in raw["classes"].items()},
    )
