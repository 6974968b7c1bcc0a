"""What an allocator may use: against today's port, and against LLVM's own reserved registers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from support import REPOSITORY, allocated_by_llvm, cpu_of, each_kernel, few, long, pre_ra, run_llc
from target_oracles import all_registers, reserved_by_llvm

from smt_verifier.audit.core import judge
from smt_verifier.checker.limits import Limits, limits
from smt_verifier.checker.module import attributes
from smt_verifier.checker.outcome import Refused
from smt_verifier.checker.tables import tables
from smt_verifier.checker.text import read
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.header import section
from verilocc_mlir.mir.model import MachineFunction, MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.target.attributes import CALLING_CONVENTIONS, function_attributes
from verilocc_mlir.target.callingconv import callee_saved
from verilocc_mlir.target.registers import physical_register
from verilocc_mlir.target.reserved import allocatable
from verilocc_mlir.target.targets import TARGETS, target

TRIPLE = 'target triple = "amdgcn-amd-amdhsa"\n'
QUICK = ("gfx1100", "gfx942")
SOME = [*QUICK, *long(*(t for t in TARGETS if t not in QUICK))]


def fields_of(function: MachineFunction) -> Mapping[str, str]:
    """The header's fields by path, as the checker's reader has them."""
    fields: dict[str, str] = {}
    for part in ("machineFunctionInfo", "frameInfo"):
        path = ""
        for line in section(function.header_lines, part):
            key, _, value = line.strip().partition(":")
            if line.startswith("    "):
                item = line.strip().removeprefix("- ") if line.strip().startswith("- ") else f"{key}: {value.strip()}"
                fields[path] += f", {item}" if fields[path] else item
            else:
                path = f"{part}.{key}"
                fields[path] = value.strip()
    objects = (o.alignment for o in function.stack.values() if "stack-id: sgpr-spill" not in o.text)
    said = fields.get("frameInfo.maxAlignment", "1")
    if said.isdigit():  # The checker counts the objects that are listed (check.py).
        fields["frameInfo.maxAlignment"] = str(max(int(said), *objects, 1))
    return fields


def limits_of(file: MirFile, function: MachineFunction, cpu: str, **strings: str) -> Limits:
    attributes = function_attributes(file.preamble, function.name)
    every = {**attributes.strings, **{key.replace("_", "-"): value for key, value in strings.items()}}
    words = [word for word in attributes.words if word.startswith("alignstack")]  # The others change no limit.
    return limits(cpu, attributes.calling_convention, every, words, fields_of(function))


def assert_as_today(file: MirFile, function: MachineFunction, cpu: str) -> None:
    own, known = limits_of(file, function, cpu), allocatable(function, file.preamble, target(cpu))
    assert own.allocatable == judge._allocatable_units(known)
    assert own.kept == known.kept_units
    given_back = own.callee_saved.intersection(judge._given_back(function))  # The checker adds these (check.py).
    assert own.saved | given_back == judge._saved_by_callee(file, function, function, known, target(cpu))
    convention = function_attributes(file.preamble, function.name).calling_convention
    assert own.callee_saved == callee_saved(convention, target(cpu))


@pytest.mark.parametrize("path", each_kernel())
def test_kernels(path: Path) -> None:
    for text in (pre_ra(path), allocated_by_llvm(pre_ra(path), cpu_of(path), 0, 2)):
        file = parse_mir(text)
        for function in file.functions:
            assert_as_today(file, function, cpu_of(path))
            words = attributes(read(text).module, function.name).words
            limits(cpu_of(path), "amdgpu_kernel", {}, words, {})  # Each is known.


def texts() -> Iterator[Path]:
    yield from sorted((REPOSITORY / "tests" / "data" / "mutants").glob("*.mir"))
    yield from sorted((REPOSITORY / "tests" / "cases").glob("*.mir"))


@pytest.mark.parametrize("every", [3, *long(1)])
def test_texts_of_the_tests(every: int) -> None:
    """Each text on every processor that its attributes allow."""
    seen = refused = 0
    for path in [*texts()][::every]:
        try:
            file = parse_mir(path.read_text())
            for function in file.functions:
                function_attributes(file.preamble, function.name)
        except VeriloccError:
            continue  # no text of LLVM's
        for function in file.functions:
            asked = function_attributes(file.preamble, function.name).target_cpu
            for cpu in TARGETS if not asked else [cpu for cpu in TARGETS if cpu == asked]:
                try:
                    allocatable(function, file.preamble, target(cpu))
                except VeriloccError:
                    with pytest.raises(Refused):
                        limits_of(file, function, cpu)
                    refused += 1
                else:
                    assert_as_today(file, function, cpu)
                    seen += 1
    assert seen > 800 // every
    assert refused < seen // 10


CHOICES: tuple[tuple[float, str, tuple[str, ...]], ...] = (
    (0.6, "amdgpu-flat-work-group-size", ("1,64", "64,64", "64,256", "128,700", "256,1024", "300,200", "1,2000")),
    (0.6, "amdgpu-waves-per-eu", ("1", "2", "3,5", "4,4", "5,10", "8,8", "10", "10,2", "12,16", "16,20", "2,8")),
    (0.4, "amdgpu-num-vgpr", ("0", "1", "8", "24", "40", "64", "100", "128", "200", "256", "512", "600")),
    (0.4, "amdgpu-num-sgpr", ("0", "3", "6", "8", "16", "32", "64", "96", "100", "102", "104", "108", "110", "120")),
    (0.5, "amdgpu-agpr-alloc", ("0", "4", "5", "64", "128", "0,0", "0,256", "3,17", "256", "32,64", "300")),
    (0.3, "amdgpu-lds-size", ("1000", "4096", "16384", "32768", "65536", "70000", "200000")),
    (0.2, "no-realign-stack", ("",)),
    (0.2, "target-features", ("-xnack", "+xnack", "+cumode", "-cumode", "-sramecc", "+enable-flat-scratch")),
)
HEADERS: tuple[tuple[float, str, tuple[str, ...]], ...] = (
    (0.5, "machineFunctionInfo.scratchRSrcReg", ("'$private_rsrc_reg'", "'$sgpr0_sgpr1_sgpr2_sgpr3'")),
    (0.5, "machineFunctionInfo.stackPtrOffsetReg", ("'$sp_reg'", "'$sgpr32'")),
    (0.5, "machineFunctionInfo.frameOffsetReg", ("'$fp_reg'", "'$sgpr33'", "'$sgpr40'")),
    (0.3, "machineFunctionInfo.sgprForEXECCopy", ("''", "'$sgpr100_sgpr101'")),
    (0.3, "machineFunctionInfo.isEntryFunction", ("true", "false")),
    (0.3, "machineFunctionInfo.wwmReservedRegs", ("[]", "'$vgpr255', '$vgpr7'")),
    (0.3, "machineFunctionInfo.numKernargPreloadSGPRs", ("0", "7")),
    (0.4, "frameInfo.maxAlignment", ("1", "16", "32")),
    (0.4, "machineFunctionInfo.argumentInfo",
     ("dispatchPtr: { reg: '$sgpr4_sgpr5' }",
      "flatScratchInit: { reg: '$sgpr4_sgpr5' }, workGroupIDX: { reg: '$sgpr9' }",
      "workItemIDX: { reg: '$vgpr0', mask: 1023 }, queuePtr: { reg: '$sgpr0_sgpr1' }")),
)  # fmt: skip


def drawn(rng: random.Random, choices: tuple[tuple[float, str, tuple[str, ...]], ...]) -> dict[str, str]:
    return {key: rng.choice(values) for chance, key, values in choices if rng.random() < chance}


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("count", [150, *long(4000)])
def test_drawn_functions(cpu: str, count: int) -> None:
    """Attributes and headers, most of them together in no real text."""
    rng = random.Random(f"{cpu}/{count}")
    conventions = sorted(CALLING_CONVENTIONS - {"amdgpu_gfx_whole_wave"} | {"ccc"})
    file, function = template()
    for _ in range(count):
        strings, fields = drawn(rng, CHOICES), drawn(rng, HEADERS)
        convention = rng.choice(conventions)
        words = rng.choice(("nounwind", "nounwind alignstack=32"))
        own = limits(cpu, convention, strings, words.split(), fields)
        module, as_text = spelt(convention, strings, words, fields, function)
        known = allocatable(as_text, module, target(cpu))
        case = (convention, strings, words, fields)
        assert own.allocatable == judge._allocatable_units(known), case
        assert own.kept == known.kept_units, case
        changed = MirFile(module, (as_text,))
        assert own.saved == judge._saved_by_callee(changed, as_text, as_text, known, target(cpu)), case
    assert file.functions


def template() -> tuple[MirFile, MachineFunction]:
    file = parse_mir(next(texts()).read_text())
    return file, file.functions[0]


def spelt(
    convention: str, strings: Mapping[str, str], words: str, fields: Mapping[str, str], function: MachineFunction
) -> tuple[str, MachineFunction]:
    """A module and a function that say this."""
    from msgspec.structs import replace

    attributes = " ".join(f'"{key}"="{value}"' for key, value in strings.items())
    module = (
        f"--- |\n  define {'' if convention == 'ccc' else convention} void @{function.name}() #0 {{\n  }}\n"
        f"  attributes #0 = {{ {words} {attributes} }}\n...\n"
    )
    header = [f"name: {function.name}"]
    for part in ("frameInfo", "machineFunctionInfo"):
        header.append(f"{part}:")
        for path, value in fields.items():
            if not path.startswith(f"{part}."):
                continue
            key = path.partition(".")[2]
            if key == "argumentInfo":
                header += [f"  {key}:", *(f"    {entry} }}" for entry in value.removesuffix(" }").split(" }, "))]
            elif key == "wwmReservedRegs" and value != "[]":
                header += [f"  {key}:", *(f"    - {item}" for item in value.split(", "))]
            else:
                header.append(f"  {key}: {value}")
    return module, replace(function, header_lines=tuple(header))


FORMS = (
    ("amdgpu-num-vgpr", "0x18", "24"),
    ("amdgpu-num-vgpr", "0X18", "24"),
    ("amdgpu-num-vgpr", "030", "24"),
    ("amdgpu-num-vgpr", "0o30", "24"),
    ("amdgpu-num-vgpr", "0b11000", "24"),
    ("amdgpu-num-vgpr", "0B11000", "24"),
    ("amdgpu-num-vgpr", "0xFF", "255"),
    ("amdgpu-num-vgpr", "00", "0"),
    ("amdgpu-num-sgpr", "060", "48"),
    ("amdgpu-waves-per-eu", " 0x4 , 04 ", "4,4"),
    ("amdgpu-flat-work-group-size", "0100,0x40", "64,64"),
)


@pytest.mark.parametrize("cpu", SOME)
def test_numbers_are_read_as_llvm_reads_them(cpu: str) -> None:
    """Hexadecimal, octal and binary, as StringRef::getAsInteger(0); LLVM reserves the same."""
    functions = "".join(
        f'define amdgpu_kernel void @f{k}() "{key}"="{text}" {{\n  ret void\n}}\n'
        for k, (key, text, _) in enumerate(FORMS)
    )
    file = parse_mir(run_llc(TRIPLE + functions, cpu, "-stop-before=greedy,0", mir=False))
    for function, (key, text, decimal) in zip(file.functions, FORMS, strict=True):
        own = limits_of(file, function, cpu)
        assert own == limits_of(file, function, cpu, **{key.replace("-", "_"): decimal}), text
        assert_as_llvm(file, function, cpu, own)


NOT_HANDED_OUT = frozenset({"scc", "pc_reg", "sgpr_null", "fp_reg", "sp_reg", "private_rsrc_reg"})


def assert_as_llvm(file: MirFile, function: MachineFunction, cpu: str, own: Limits) -> None:
    """LLVM's reserved registers are those that are not handed out, but for SCC and PC, which are in no class."""
    registers = all_registers(1024 if cpu == "gfx1250" else 264)
    registers = [r for r in registers if r not in NOT_HANDED_OUT]
    ours = {name for name in registers if not own.allocatable.issuperset(physical_register(name).units)}
    assert ours == reserved_by_llvm(file.preamble, function, cpu, registers)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("amdgpu-num-vgpr", ""), ("amdgpu-num-vgpr", "x"), ("amdgpu-num-vgpr", "08"), ("amdgpu-num-vgpr", "-1"),
        ("amdgpu-num-vgpr", "+1"), ("amdgpu-num-vgpr", " 24"), ("amdgpu-num-vgpr", "0x"), ("amdgpu-num-vgpr", "1_0"),
        ("amdgpu-num-vgpr", "٣"),
        ("amdgpu-num-vgpr", "4294967296"), ("amdgpu-num-vgpr", "9" * 5000),
        ("amdgpu-num-vgpr", "0x" + "f" * 5000), ("amdgpu-num-sgpr", "0b2"), ("amdgpu-num-sgpr", "0O30"),
        ("amdgpu-num-vgpr", "0x80000000"),
        ("amdgpu-agpr-alloc", "0xfffffffe"), ("amdgpu-num-sgpr", "0xg"),
        ("amdgpu-waves-per-eu", "4,x"), ("amdgpu-waves-per-eu", ",4"),
        ("amdgpu-flat-work-group-size", "64"), ("amdgpu-flat-work-group-size", "64;64"), ("amdgpu-lds-size", ""),
        ("amdgpu-agpr-alloc", "four"), ("amdgpu-dynamic-vgpr-block-size", "16"),
        ("amdgpu-dynamic-vgpr-block-size", "0x10"),
        ("target-cpu", "gfx90a"), ("target-cpu", ""),
        ("target-features", "+sgpr-init-bug"), ("target-features", "+wavefrontsize32"),
        ("target-features", "-wavefrontsize64"), ("target-features", "-mai-insts"), ("target-features", "xnack"),
        ("target-features", "+xnack,-xnack"), ("target-features", "+no-such-feature"), ("target-features", "+gfx12"),
        ("target-features", "+1024-addressable-vgprs"), ("target-features", "-trap-handler"),
        ("target-features", "+dynamic-vgpr"), ("target-features", " +xnack"),
    ],
)  # fmt: skip
def test_attributes_that_are_refused(key: str, text: str) -> None:
    with pytest.raises(Refused) as refused:
        limits("gfx942", "amdgpu_kernel", {key: text}, (), {})
    assert refused.value.rule == "attribute"


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("machineFunctionInfo.scratchRSrcReg", "'$sgpr0_sgpr2'"),
        ("machineFunctionInfo.stackPtrOffsetReg", "'sgpr32'"),
        ("machineFunctionInfo.wwmReservedRegs", "'%vgpr1'"),
        ("machineFunctionInfo.argumentInfo", "somePtr: { reg: '$sgpr4_sgpr5' }"),
        ("machineFunctionInfo.argumentInfo", "dispatchPtr: '$sgpr4_sgpr5'"),
        ("machineFunctionInfo.argumentInfo", "dispatchPtr: { reg: '$sgpr4_sgpr5'"),
        ("frameInfo.maxAlignment", "0x10"),
        ("frameInfo.maxAlignment", "-1"),
        ("frameInfo.maxAlignment", ""),
    ],
)
def test_headers_that_are_refused(field: str, text: str) -> None:
    with pytest.raises(Refused) as refused:
        limits("gfx942", "ccc", {}, (), {field: text})
    assert refused.value.rule == "header" or text.endswith("'$sgpr4_sgpr5'")


def test_attributes_without_quotes() -> None:
    """Of a closed list: ``naked`` leaves out what saves and restores."""
    known = limits("gfx942", "amdgpu_kernel", {}, ("nounwind", "memory(argmem: readwrite)", "uwtable(sync)"), {})
    assert known == limits("gfx942", "amdgpu_kernel", {}, (), {})
    for word in ("naked", "sspstrong", "no_such_word"):
        with pytest.raises(Refused, match=word):
            limits("gfx942", "amdgpu_kernel", {}, ("nounwind", word), {})


def test_a_second_number_may_be_left_out() -> None:
    """LLVM takes an empty one after a comma for none (AMDGPU::getIntegerPairAttribute)."""
    of = [limits("gfx942", "amdgpu_kernel", {"amdgpu-waves-per-eu": text}, (), {}) for text in ("5", "5,", "5, ")]
    assert of[0] == of[1] == of[2]
    assert of[0] != limits("gfx942", "amdgpu_kernel", {}, (), {})


def test_conventions_and_processors_that_are_refused() -> None:
    for convention in ("amdgpu_gfx_whole_wave", "cc77", "", "kernel"):
        with pytest.raises(Refused, match="calling convention"):
            limits("gfx942", convention, {}, (), {})
    for processor in ("gfx900", "", "gfx942 "):
        with pytest.raises(Refused, match="processor"):
            limits(processor, "amdgpu_kernel", {}, (), {})


@pytest.mark.parametrize(("every", "cpu"), few([(24, QUICK[0])], product((24, 1), TARGETS)))
def test_features_that_change_nothing_change_nothing(cpu: str, every: int) -> None:
    """Features, with either sign: where one is not refused, LLVM reserves what the data say."""
    signed = [f"{sign}{name}" for name in tables().features for sign in "+-"]
    kept: list[str] = []
    for feature in signed:
        try:
            limits(cpu, "amdgpu_kernel", {"target-features": feature}, (), {})
        except Refused:
            continue
        kept.append(feature)
    assert len(kept) > 230
    text = TRIPLE + "".join(
        f'define amdgpu_kernel void @f{k}() "target-features"="{feature}" "amdgpu-lds-size"="40000" {{ ret void }}\n'
        for k, feature in enumerate(kept)
    )
    file = parse_mir(run_llc(text, cpu, "-stop-before=greedy,0", mir=False))
    each = {function.name: limits_of(file, function, cpu) for function in file.functions}
    changed = {own: name for name, own in each.items()}.values()  # One of each that differ.
    for function in file.functions:
        if function.name in changed or int(function.name[1:]) % every == 0:
            assert_as_llvm(file, function, cpu, each[function.name])
