"""Allocatable registers, compared register by register with what LLVM reserves in the same function."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import allocated_by_llvm, cpu_of, each_kernel, few, long, pre_ra, readable, run_llc
from target_oracles import all_registers, reserved_by_llvm

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.reserved import Allocatable, allocatable
from verilocc_mlir.target.targets import TARGETS, target

QUICK = ("gfx1100",)
SOME = [*QUICK, *long(*(t for t in TARGETS if t not in QUICK))]

TRIPLE = 'target triple = "amdgcn-amd-amdhsa"\n'


def reserved_by_us(allowed: Allocatable, registers: list[str]) -> set[str]:
    found: set[str] = set()
    for name in registers:
        units = physical_register(name).units
        if not units or not allowed.reserved_units.isdisjoint(units):
            found.add(name)
    return found


def assert_equal(preamble: str, function: MachineFunction, cpu: str) -> None:
    registers = all_registers(1024 if cpu == "gfx1250" else 264)
    allowed = allocatable(function, preamble, target(cpu))
    assert reserved_by_us(allowed, registers) == reserved_by_llvm(preamble, function, cpu, registers)
    free = (
        {f"sgpr{n}" for n in allowed.sgprs} | {f"vgpr{n}" for n in allowed.vgprs} | {f"agpr{n}" for n in allowed.agprs}
    )
    numbered = {r for r in registers if re.match(r"[vas]gpr\d", r)}
    assert free & numbered == numbered - reserved_by_us(allowed, registers)


@pytest.mark.parametrize("path", each_kernel())
def test_shared_kernels(path: Path) -> None:
    file = parse_mir(pre_ra(path))
    for function in file.functions:
        assert_equal(file.preamble, function, cpu_of(path))


CONVENTIONS = ("amdgpu_kernel", "amdgpu_kernel", "amdgpu_kernel", "spir_kernel", "", "fastcc", "coldcc")
CHOICES: tuple[tuple[float, str, tuple[str, ...]], ...] = (
    (
        0.6,
        "amdgpu-flat-work-group-size",
        ("1,64", "64,64", "64,256", "128,700", "100,128", "256,1024", "300,200", "1,2000"),
    ),
    (0.6, "amdgpu-waves-per-eu", ("1", "2", "3,5", "4,4", "5,10", "8,8", "10", "10,2", "12,16", "16,20", "2,8")),
    (0.4, "amdgpu-num-vgpr", ("0", "1", "8", "24", "40", "64", "100", "128", "200", "256", "512", "600")),
    (
        0.4,
        "amdgpu-num-sgpr",
        ("0", "3", "6", "8", "16", "32", "64", "96", "100", "102", "104", "108", "110", "112", "120"),
    ),
    (0.5, "amdgpu-agpr-alloc", ("0", "4", "5", "64", "128", "0,0", "0,256", "3,17", "256", "32,64", "300")),
    (0.3, "amdgpu-lds-size", ("1000", "4096", "16384", "32768", "65536", "70000", "200000")),
    (0.2, "no-realign-stack", ("",)),
    (0.3, "amdgpu-no-flat-scratch-init", ("",)),
    (0.2, "frame-pointer", ("all",)),
)
BODIES = (
    "",
    "call void @outside()",
    "%a = alloca i32, align 64, addrspace(5)\n  store volatile i32 0, ptr addrspace(5) %a",
    "%a = alloca i32, align 4, addrspace(5)\n  store volatile i32 0, ptr addrspace(5) %a",
)


def random_module(rng: random.Random, cpu: str, count: int) -> str:
    text = f"{TRIPLE}declare void @outside()\n"
    groups = ""
    for k in range(count):
        attributes = ['"seed"']
        attributes += [f'"{key}"="{rng.choice(values)}"' for chance, key, values in CHOICES if rng.random() < chance]
        if rng.random() < 0.2:
            attributes.append("alignstack=32")
        if rng.random() < 0.3:
            features = (
                ("+xnack", "-xnack", "+enable-flat-scratch", "-sramecc")
                if cpu.startswith("gfx9")
                else ("+cumode", "-cumode")
            )
            attributes.append(f'"target-features"="{rng.choice(features)}"')
        text += f"define {rng.choice(CONVENTIONS)} void @f{k}() #{k} {{\n  {rng.choice(BODIES)}\n  ret void\n}}\n"
        groups += f"attributes #{k} = {{ {' '.join(attributes)} }}\n"
    return text + groups


def sweep(seed: int, cpu: str, count: int) -> None:
    module = random_module(random.Random(f"{seed}/{cpu}"), cpu, count)
    file = parse_mir(run_llc(module, cpu, "-stop-before=greedy,0", mir=False))
    assert len(file.functions) == count
    for function in file.functions:
        assert_equal(file.preamble, function, cpu)


@pytest.mark.parametrize("count", [4, *long(12)])
@pytest.mark.parametrize("cpu", SOME)
def test_random_attributes(cpu: str, count: int) -> None:
    sweep(1, cpu, count)


@pytest.mark.long
@pytest.mark.parametrize("cpu", TARGETS)
def test_more_random_attributes(cpu: str) -> None:
    sweep(2, cpu, 200)


def many_scalars(count: int, convention: str, attributes: str) -> str:
    """A function with ``count`` scalars alive across a call: spilled to lanes of VGPRs, by whole-wave instructions."""
    lines = [f"define {convention} void @k(ptr addrspace(4) inreg %p) {attributes} {{"]
    for k in range(count):
        lines += [
            f"  %g{k} = getelementptr i32, ptr addrspace(4) %p, i32 {64 * k}",
            f"  %v{k} = load volatile i32, ptr addrspace(4) %g{k}",
            f"  %r{k} = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v{k})",
        ]
    lines.append("  call void @outside()")
    lines += [f'  call void asm sideeffect "", "s"(i32 %r{k})' for k in range(count)]
    return f"{TRIPLE}declare void @outside()\n" + "\n".join(lines) + "\n  ret void\n}\n"


@pytest.mark.parametrize("cpu", SOME)
@pytest.mark.parametrize(
    ("convention", "attributes"),
    few([("", '"amdgpu-num-sgpr"="48"')], [("amdgpu_kernel", ""), ("", '"amdgpu-num-sgpr"="48"')]),
)
def test_every_phase(cpu: str, convention: str, attributes: str) -> None:
    """Between phases LLVM sets registers aside (whole-wave spill registers, saved EXEC): the header tells."""
    pre = run_llc(many_scalars(110, convention, attributes), cpu, "-stop-before=greedy,0", mir=False)
    scalar = allocated_by_llvm(pre, cpu, 0, 0)
    # In one run: llc 22 crashes when it reads MIR with SGPR spills back in between.
    before_vectors = run_llc(readable(pre), cpu, "-start-before=greedy,0", "-stop-before=greedy,2")
    assert "wwmReservedRegs" in before_vectors
    for text in (pre, scalar, before_vectors):
        file = parse_mir(text)
        assert_equal(file.preamble, file.functions[0], cpu)


def test_a_wrong_budget_is_caught() -> None:
    """The comparison sees one register more or less."""
    module = f'{TRIPLE}define amdgpu_kernel void @k() "amdgpu-num-vgpr"="40" {{\n  ret void\n}}\n'
    file = parse_mir(run_llc(module, "gfx1100", "-stop-before=greedy,0", mir=False))
    other = file.preamble.replace('"amdgpu-num-vgpr"="40"', '"amdgpu-num-vgpr"="41"')
    assert other != file.preamble
    registers = all_registers(264)
    ours = reserved_by_us(allocatable(file.functions[0], other, target("gfx1100")), registers)
    assert reserved_by_llvm(file.preamble, file.functions[0], "gfx1100", registers) - ours == {"vgpr40"}


def test_reserved_by_the_header() -> None:
    """A register that the header names is reserved, with its reason; without the name it is free."""
    module = f"{TRIPLE}define void @f() {{\n  ret void\n}}\n"
    file = parse_mir(run_llc(module, "gfx942", "-stop-before=greedy,0", mir=False))
    function = file.functions[0]
    allowed = allocatable(function, file.preamble, target("gfx942"))
    assert allowed.reasons["sgpr32"] == "stack pointer"
    assert allowed.reasons["sgpr33"] == "frame pointer"
    assert 33 not in allowed.sgprs
    moved = tuple(line.replace("$sgpr33", "$sgpr77") for line in function.header_lines)
    allowed = allocatable(replace(function, header_lines=moved), file.preamble, target("gfx942"))
    assert 33 in allowed.sgprs
    assert 77 not in allowed.sgprs


def test_budgets_say_why() -> None:
    module = f'{TRIPLE}define amdgpu_kernel void @k() "amdgpu-waves-per-eu"="4,4" {{\n  ret void\n}}\n'
    file = parse_mir(run_llc(module, "gfx90a", "-stop-before=greedy,0", mir=False))
    allowed = allocatable(file.functions[0], file.preamble, target("gfx90a"))
    assert allowed.waves == (4, 4)
    assert (allowed.budgets["vgpr"].count, allowed.budgets["agpr"].count) == (64, 64)
    assert "4 waves" in allowed.budgets["vgpr"].why
    assert "halved" in allowed.budgets["vgpr"].why


def test_other_wave_size_is_refused() -> None:
    module = f'{TRIPLE}define amdgpu_kernel void @k() "target-features"="+wavefrontsize64" {{\n  ret void\n}}\n'
    file = parse_mir(run_llc(module, "gfx1100", "-stop-before=greedy,0", mir=False))
    with pytest.raises(UnsupportedError, match="wave64"):
        allocatable(file.functions[0], file.preamble, target("gfx1100"))


def test_another_target_cpu_is_refused() -> None:
    module = f'{TRIPLE}define amdgpu_kernel void @k() "target-cpu"="gfx942" {{\n  ret void\n}}\n'
    file = parse_mir(run_llc(module, "gfx90a", "-stop-before=greedy,0", mir=False))
    with pytest.raises(InputError, match="gfx942, not for gfx90a"):
        allocatable(file.functions[0], file.preamble, target("gfx90a"))


def test_dynamic_vgprs_are_refused() -> None:
    module = f'{TRIPLE}define amdgpu_kernel void @k() "amdgpu-dynamic-vgpr-block-size"="16" {{\n  ret void\n}}\n'
    file = parse_mir(run_llc(module, "gfx1201", "-stop-before=greedy,0", mir=False))
    with pytest.raises(UnsupportedError, match="dynamic"):
        allocatable(file.functions[0], file.preamble, target("gfx1201"))


def heavy(attributes: str, count: int) -> str:
    """A kernel with ``count`` vector values alive at once."""
    lines = [f"define amdgpu_kernel void @k() {attributes} {{"]
    lines += [f'  %v{k} = call i32 asm sideeffect "v_mov_b32 $0, {k % 60}", "=v"()' for k in range(count)]
    lines += [f'  call void asm sideeffect "; $0", "v"(i32 %v{k})' for k in range(count)]
    return TRIPLE + "\n".join(lines) + "\n  ret void\n}\n"


@pytest.mark.parametrize(
    ("cpu", "attributes", "most"),
    [
        ("gfx1100", '"amdgpu-waves-per-eu"="12,12" "amdgpu-flat-work-group-size"="32,32"', 120),
        ("gfx1201", '"amdgpu-num-vgpr"="48"', 48),
        ("gfx90a", '"amdgpu-waves-per-eu"="8,8" "amdgpu-agpr-alloc"="0"', 64),
        ("gfx1250", '"amdgpu-waves-per-eu"="4,4" "amdgpu-flat-work-group-size"="32,32"', 256),
    ],
)
def test_llvm_reaches_the_budget_and_never_passes_it(cpu: str, attributes: str, most: int) -> None:
    """Under pressure LLVM's own allocation takes every register that we call allocatable, and no other."""
    file = parse_mir(run_llc(heavy(attributes, most + 20), cpu, "-stop-after=virtregrewriter,2", mir=False))
    allowed = allocatable(file.functions[0], file.preamble, target(cpu))
    assert allowed.budgets["vgpr"].count == most
    body = "\n".join(str(i) for block in file.functions[0].blocks for i in block.instructions)
    used = {int(n) for n in re.findall(r"\$vgpr(\d+)\b", body)}
    assert used == set(range(most))
