"""Kernel descriptors and metadata: decoded as LLVM's own disassembler does, compared, mended; corruption is caught."""

from __future__ import annotations

import contextlib
import io
import re
from functools import lru_cache

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection
from msgspec.structs import replace
from toolchain_support import TARGETS, compiler, source, tools

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.target.processors import PROCESSORS
from verilocc_mlir.toolchain.checked import check_object, first_system_sgprs, mend_asm, padded_count
from verilocc_mlir.toolchain.descriptor import (
    Cause,
    FieldDifference,
    compare,
    compare_metadata,
    decode,
    generation,
    parse_descriptors,
    read_code_object,
    set_field,
)
from verilocc_mlir.toolchain.elf import read_elf
from verilocc_mlir.toolchain.run import run_tool
from verilocc_mlir.toolchain.staged import LlvmPhase


@lru_cache(maxsize=16)
def built(cpu: str) -> tuple[str, bytes, bytes]:
    """Pre-RA text, staged object and direct object of the ABI kernels."""
    staged = compiler(cpu)
    pre = staged.to_pre_ra(source("abi.ll"))
    return pre, staged.finish_from(pre, LlvmPhase.SGPR), staged.direct(source("abi.ll"))


def directives(asm: str) -> dict[str, dict[str, int]]:
    """``.amdhsa_*`` of every kernel in assembly text that give plain numbers."""
    found: dict[str, dict[str, int]] = {}
    for piece in re.split(r"^\s*\.amdhsa_kernel ", asm, flags=re.MULTILINE)[1:]:
        name, body = piece.split("\n", 1)
        rows = re.findall(r"^\s*\.amdhsa_(\w+) (\d+)$", body.split(".end_amdhsa_kernel")[0], re.MULTILINE)
        found[name.strip()] = {key: int(value) for key, value in rows}
    return found


# The assembler's names for fields (AMDGPUUsage, "AMDHSA Kernel Assembler Directives").
SPELLED = {
    "user_sgpr_count": "user_sgpr_count",
    "group_segment_fixed_size": "group_segment_fixed_size",
    "private_segment_fixed_size": "private_segment_fixed_size",
    "kernarg_size": "kernarg_size",
    "enable_sgpr_kernarg_segment_ptr": "user_sgpr_kernarg_segment_ptr",
    "enable_sgpr_dispatch_ptr": "user_sgpr_dispatch_ptr",
    "enable_sgpr_queue_ptr": "user_sgpr_queue_ptr",
    "enable_sgpr_dispatch_id": "user_sgpr_dispatch_id",
    "enable_sgpr_private_segment_buffer": "user_sgpr_private_segment_buffer",
    "enable_sgpr_flat_scratch_init": "user_sgpr_flat_scratch_init",
    "kernarg_preload_length": "user_sgpr_kernarg_preload_length",
    "kernarg_preload_offset": "user_sgpr_kernarg_preload_offset",
    "enable_sgpr_workgroup_id_x": "system_sgpr_workgroup_id_x",
    "enable_sgpr_workgroup_id_y": "system_sgpr_workgroup_id_y",
    "enable_sgpr_workgroup_id_z": "system_sgpr_workgroup_id_z",
    "enable_vgpr_workitem_id": "system_vgpr_workitem_id",
    "enable_wavefront_size32": "wavefront_size32",
    "uses_dynamic_stack": "uses_dynamic_stack",
    "float_round_mode_32": "float_round_mode_32",
    "float_denorm_mode_32": "float_denorm_mode_32",
    "float_denorm_mode_16_64": "float_denorm_mode_16_64",
    "enable_dx10_clamp": "dx10_clamp",
    "enable_ieee_mode": "ieee_mode",
    "fp16_ovfl": "fp16_overflow",
    "tg_split": "tg_split",
    "wgp_mode": "workgroup_processor_mode",
    "mem_ordered": "memory_ordered",
    "fwd_progress": "forward_progress",
    "inst_pref_size": "inst_pref_size",
    "enable_wg_rr_en": "round_robin_scheduling",
}


@pytest.mark.parametrize("cpu", TARGETS)
def test_fields_are_what_the_assembler_was_told(cpu: str) -> None:
    asm = directives(compiler(cpu).direct(source("abi.ll"), "asm").decode())
    descriptors = parse_descriptors(built(cpu)[2])
    assert descriptors.keys() == asm.keys() == {"ids", "calls", "preload", "indirect", "empty"}
    checked = 0
    for kernel, descriptor in descriptors.items():
        for field, directive in SPELLED.items():
            if field in descriptor.fields and directive in asm[kernel]:
                assert descriptor.fields[field] == asm[kernel][directive], (kernel, field)
                checked += 1
        if "accum_offset" in descriptor.fields and "accum_offset" in asm[kernel]:
            assert (descriptor.fields["accum_offset"] + 1) * 4 == asm[kernel]["accum_offset"]
    assert checked >= 5 * 20


@pytest.mark.parametrize("cpu", TARGETS)
def test_every_bit_of_a_descriptor_belongs_to_one_field(cpu: str) -> None:
    seen: dict[str, int] = {}
    for bit in range(512):
        if 128 <= bit < 192:
            continue  # the offset of the code
        raw = (1 << bit).to_bytes(64, "little")
        named = [name for name, value in decode(raw, cpu).fields.items() if value]
        assert len(named) == 1, bit
        seen[named[0]] = seen.get(named[0], 0) + 1
    assert seen["granulated_workitem_vgpr_count"] == 6
    assert seen["user_sgpr_count"] == (6 if cpu == "gfx1250" else 5)
    assert ("accum_offset" in seen) == (cpu in ("gfx90a", "gfx942", "gfx950"))


@pytest.mark.parametrize("cpu", TARGETS)
def test_only_user_sgprs_on_gfx11_are_lost_through_mir(cpu: str) -> None:
    pre, staged, direct = built(cpu)
    differences = compare(parse_descriptors(staged), parse_descriptors(direct))
    lost = {difference.field for difference in differences if difference.cause is Cause.LOST}
    assert lost == ({"user_sgpr_count"} if cpu == "gfx1100" else set())
    assert not [difference for difference in differences if difference.cause is Cause.UNEXPLAINED]
    checked = check_object(staged, mir=pre, cpu=cpu, reference=direct)
    assert checked.compared
    after = compare(parse_descriptors(checked.data), parse_descriptors(direct))
    assert {difference.cause for difference in after} <= {Cause.REGISTERS, Cause.STACK, Cause.CODE_SIZE}
    assert check_object(staged, mir=pre, cpu=cpu).data == checked.data


def test_gfx11_reads_its_work_group_ids_where_the_mended_descriptor_puts_them() -> None:
    pre, staged, direct = built("gfx1100")
    expected = {kernel: first_system_sgprs(pre)[kernel] for kernel in parse_descriptors(staged)}
    assert set(expected.values()) == {13}
    for kernel, descriptor in parse_descriptors(staged).items():
        assert descriptor.fields["user_sgpr_count"] == 8
        assert padded_count(descriptor, "gfx1100") == expected[kernel]
        assert padded_count(descriptor, "gfx1101") == 8, "gfx1101 has no padding"
    # The unmended object contradicts its own machine code; were the reference wrong too, that would still be seen.
    wrong = direct
    for kernel in expected:
        wrong = set_field(wrong, kernel, "user_sgpr_count", 8)
    with pytest.raises(ToolchainError, match="reads its first work-group id from s13, but the descriptor has 8"):
        check_object(staged, mir=pre, cpu="gfx1100", reference=wrong)


def test_mended_assembly_assembles_to_the_mended_object() -> None:
    staged = compiler("gfx1100")
    pre, obj, direct = built("gfx1100")
    checked = check_object(obj, mir=pre, cpu="gfx1100", reference=direct)
    asm = staged.finish_from(pre, LlvmPhase.SGPR, "asm")
    mended = checked.mended_asm(asm)
    assert mended != asm
    assert tools().mc is not None
    command = [str(tools().mc), "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-filetype=obj", "-o", "-"]
    again = run_tool(command, stdin=mended).stdout
    assert compare(parse_descriptors(again), parse_descriptors(checked.data)) == ()
    assert "USER_SGPR: 13" in mended.decode()
    assert "USER_SGPR: 8" not in mended.decode()
    assert mend_asm(asm.decode(), {}) == asm.decode()


CORRUPTIONS = [
    "enable_sgpr_workgroup_id_y",
    "enable_vgpr_workitem_id",
    "float_denorm_mode_32",
    "kernarg_preload_length",
    "uses_dynamic_stack",
    "enable_sgpr_kernarg_segment_ptr",
    "enable_sgpr_dispatch_ptr",
    "group_segment_fixed_size",
    "kernarg_size",
    "reserved1_0",
    "granulated_lds_size",
    "enable_wavefront_size32",
]


@pytest.mark.parametrize("field", CORRUPTIONS)
@pytest.mark.parametrize("cpu", ["gfx942", "gfx1100", "gfx1201"])
def test_any_other_wrong_field_is_refused(cpu: str, field: str) -> None:
    pre, staged, direct = built(cpu)
    value = parse_descriptors(staged)["ids"].fields[field]
    wrong = set_field(staged, "ids", field, value ^ 1)
    with pytest.raises(ToolchainError, match=r"the staged object is wrong: .*ids: "):
        check_object(wrong, mir=pre, cpu=cpu, reference=direct)


def test_scratch_must_agree_within_the_object() -> None:
    pre, staged, direct = built("gfx942")
    wrong = set_field(staged, "calls", "private_segment_fixed_size", 4)
    with pytest.raises(ToolchainError, match="calls: 4 bytes of scratch, but "):
        check_object(wrong, mir=pre, cpu="gfx942", reference=direct)
    wrong = set_field(staged, "calls", "enable_private_segment", 0)
    with pytest.raises(ToolchainError, match="calls: uses scratch, but it is not enabled"):
        check_object(wrong, mir=pre, cpu="gfx942", reference=direct)


def test_a_missing_kernel_and_another_target_are_refused() -> None:
    pre, staged, direct = built("gfx942")
    with pytest.raises(ToolchainError, match="descriptor is present, a direct compile has absent"):
        check_object(staged, mir=pre, cpu="gfx942", reference=compiler("gfx942").direct(source("wwm.ll")))
    with pytest.raises(ToolchainError, match="the object is for gfx942, not for gfx950"):
        check_object(staged, mir=pre, cpu="gfx950", reference=direct)
    other = read_code_object(built("gfx950")[2])
    fields = {difference.field for difference in compare_metadata(read_code_object(staged), other)}
    assert {"e_flags", "amdhsa.target"} <= fields


def test_metadata_is_read_in_full() -> None:
    code = read_code_object(built("gfx942")[2])
    assert (code.machine, code.target) == ("gfx942", "amdgcn-amd-amdhsa--gfx942")
    ids = code.kernels["ids"]
    assert (ids.raw[".kernarg_segment_size"], ids.raw[".kernarg_segment_align"], ids.wavefront_size) == (272, 8, 64)
    assert ids.vgpr_count > 0
    assert ids.sgpr_count > 0
    assert code.kernels["calls"].group_segment_fixed_size == 256
    assert code.kernels["calls"].private_segment_fixed_size >= 128
    assert code.kernels["indirect"].raw[".uses_dynamic_stack"]
    assert compare_metadata(code, code) == ()


@pytest.mark.parametrize("cpu", sorted(PROCESSORS))
def test_machine_numbers_are_llvms(cpu: str) -> None:
    kernel = "define amdgpu_kernel void @k() {\n  ret void\n}\n"
    image = read_elf(compiler(cpu).direct(kernel))
    assert image.machine == cpu
    assert generation(cpu) == parse_descriptors(image)["k"].generation


def test_elf_files_are_read_as_pyelftools_reads_them() -> None:
    objects = [data for cpu in TARGETS for data in built(cpu)[1:]]
    for data in [*objects, compiler("gfx942").link(objects[0])]:
        elf = ELFFile(io.BytesIO(data))
        tables = [section for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
        symbols = [symbol for table in tables for symbol in table.iter_symbols()]
        expected = {
            symbol.name: (
                symbol["st_value"],
                symbol["st_size"],
                symbol["st_info"]["type"],
                symbol["st_shndx"] != "SHN_UNDEF",
            )
            for symbol in symbols
            if symbol.name and symbol["st_info"]["type"] not in ("STT_SECTION", "STT_FILE")
        }
        image = read_elf(data)
        assert {s.name: (s.address, s.size, s.kind, s.defined) for s in image.symbols.values()} == expected
        assert image.shared == (elf.header["e_type"] == "ET_DYN")
        assert image.e_flags == elf.header["e_flags"]
        notes = [
            note for section in elf.iter_sections() if isinstance(section, NoteSection) for note in section.iter_notes()
        ]
        assert [(owner, description) for owner, _, description in image.notes] == [
            (note["n_name"], note["n_descdata"]) for note in notes
        ]


def test_a_damaged_elf_file_is_refused_or_read() -> None:
    data = built("gfx942")[1]
    for end in range(0, len(data), 97):
        with pytest.raises(ToolchainError):
            read_elf(data[:end])
    for place in range(0, 64):
        damaged = data[:place] + b"\xff" * 8 + data[place + 8 :]
        with contextlib.suppress(ToolchainError):
            read_elf(damaged)


def test_the_code_offset_points_at_the_kernel_once_linked() -> None:
    staged = compiler("gfx942")
    image = read_elf(staged.link(built("gfx942")[1]))
    assert image.shared
    for kernel, descriptor in parse_descriptors(image).items():
        assert image.symbols[kernel + ".kd"].address + descriptor.entry_offset == image.symbols[kernel].address


def test_what_is_no_amdgpu_object_is_refused() -> None:
    with pytest.raises(ToolchainError, match="not a readable ELF file"):
        read_elf(b"hello")
    assert tools().opt is not None
    with pytest.raises(ToolchainError, match="not for AMDGPU"):
        read_elf(tools().llc.resolve().read_bytes())
    with pytest.raises(ToolchainError):
        read_elf(built("gfx942")[2][:200])
    with pytest.raises(ToolchainError, match="has 3 bytes, not 64"):
        decode(b"abc", "gfx942", "k")
    with pytest.raises(ToolchainError, match="is not known"):
        generation("gfx803")
    with pytest.raises(ToolchainError, match="cannot set"):
        set_field(built("gfx942")[2], "ids", "user_sgpr_count", 99)


def test_a_difference_deep_in_the_metadata_is_named_where_it_is() -> None:
    code = read_code_object(built("gfx942")[2])
    ids = code.kernels["ids"]
    arguments = list(ids.raw[".args"])
    shifted = [*arguments[:-1], {**arguments[-1], ".size": 99}]
    offset = arguments[-1][".offset"]

    def differences(**changed: object) -> list[str]:
        kernel = replace(ids, raw={**ids.raw, **{f".{key}": value for key, value in changed.items()}})
        other = replace(code, kernels={**code.kernels, "ids": kernel})
        return [f"{d.field}: {d.ours} / {d.reference}" for d in compare_metadata(other, code)]

    size = arguments[-1][".size"]
    assert differences(args=shifted) == [f".args at offset {offset}.size: 99 / {size}"]
    assert differences(args=arguments[:-1]) == [f".args at offset {offset}: absent / {arguments[-1]}"]
    assert differences(reqd_workgroup_size=[64, 1, 1]) == [".reqd_workgroup_size: [64, 1, 1] / absent"]
    # The same arguments in another order are a difference without a place of its own.
    (turned,) = differences(args=arguments[::-1])
    assert turned.startswith(".args: [")


def test_a_message_shows_a_few_short_differences() -> None:
    pre, staged, direct = built("gfx942")
    wrong = staged
    for field in CORRUPTIONS[:3]:
        for kernel, descriptor in parse_descriptors(staged).items():
            wrong = set_field(wrong, kernel, field, descriptor.fields[field] ^ 1)
    with pytest.raises(ToolchainError, match=r"a direct compile has .*; and 9 more\n") as refused:
        check_object(wrong, mir=pre, cpu="gfx942", reference=direct)
    assert len(refused.value.what) < 1000
    assert len(str(FieldDifference("k", ".args", list(range(1000)), "absent", Cause.UNEXPLAINED))) < 250
