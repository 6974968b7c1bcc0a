"""LLVM's passes run once where they would run twice, or would do nothing: the same code comes of it."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from support import cpu_of, each_kernel
from toolchain_support import compiler, source, tools

from verilocc_mlir.pipeline.plans import DEFAULT, planned
from verilocc_mlir.pipeline.runs import OURS
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.elf import read_elf
from verilocc_mlir.toolchain.loaded_tools import LIBRARY
from verilocc_mlir.toolchain.staged import LlvmPhase, StagedCompiler, goes_on_as_it_is


def sections(obj: bytes) -> dict[str, bytes]:
    """What a code object takes of it: code, descriptors, data, metadata; their relocations by symbol."""
    elf = ELFFile(io.BytesIO(obj))
    wanted = {s.name: s.data() for s in elf.iter_sections() if s.header.sh_type in ("SHT_PROGBITS", "SHT_NOTE")}
    symbols: Any = elf.get_section_by_name(".symtab")
    section: Any
    for section in elf.iter_sections():
        if section.header.sh_type == "SHT_RELA":
            rows = [
                (r["r_offset"], r["r_info_type"], r["r_addend"], symbols.get_symbol(r["r_info_sym"]).name)
                for r in section.iter_relocations()
            ]
            wanted[section.name] = repr(rows).encode()
    # Resource counts of a module, empty as sections: LLVM writes one of the two, its assembler both.
    return {name: data for name, data in wanted.items() if not name.startswith(".AMDGPU.")}


def assembling(cpu: str) -> StagedCompiler:
    """A compiler; ROCm's llc, for one, may come without llvm-mc."""
    if tools().mc is None:
        pytest.skip("no llvm-mc beside llc")
    return compiler(cpu)


@pytest.mark.parametrize("path", each_kernel())
def test_the_assembled_object_is_llvms_own(path: Path) -> None:
    staged = assembling(cpu_of(path))
    ir = path.read_text()
    assembled = staged.assemble(staged.direct(ir, "asm"))
    assert assembled is not None
    own = staged.direct(ir)
    assert sections(assembled) == sections(own)
    assert ".text" in sections(own)
    functions = [s.name for s in read_elf(own).symbols.values() if s.kind == "STT_FUNC"]
    assert functions == [s.name for s in read_elf(assembled).symbols.values() if s.kind == "STT_FUNC"]


def test_the_passes_run_once_for_assembly_and_object() -> None:
    staged = assembling("gfx942")
    done = staged.direct_after(source("abi.ll"), LlvmPhase.VGPR)
    own = staged.finish(done)
    staged.runs.clear()
    staged.finish(done, "asm", verify=False)
    assert sections(staged.finish(done, verify=False)) == sections(own)
    assert staged.finish(done, "asm", verify=False)
    assert [run.stage for run in staged.runs] == ["finish", "assemble"]
    staged.finish(done)  # with the verifier: in LLVM's own passes
    assert [run.stage for run in staged.runs] == ["finish", "assemble", "finish"]


def test_a_name_that_the_assembler_does_not_read_is_left_to_llvm() -> None:
    staged = compiler("gfx942")
    assembly = staged.direct(source("dynamic_lds.ll"), "asm")
    assert staged.assemble(assembly) is None
    done = staged.direct_after(source("dynamic_lds.ll"), LlvmPhase.VGPR)
    staged.finish(done, "asm", verify=False)
    assert staged.finish(done, verify=False).startswith(b"\x7fELF")


@pytest.mark.parametrize("path", each_kernel())
def test_llvm_changes_no_code_between_the_phases_where_it_is_left_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = planned(path.read_bytes(), path.name, Settings(cpu=cpu_of(path)))
    runs = given.runs(DEFAULT)
    draft = runs.draft(OURS)
    if draft is None or not goes_on_as_it_is(draft.replace("SI_SPILL_V", "").replace("SI_SPILL_A", "")):
        pytest.skip("not ours, or LLVM has something to do")
    monkeypatch.setattr("verilocc_mlir.toolchain.staged.goes_on_as_it_is", lambda _: False)
    resumed = planned(path.read_bytes(), path.name, Settings(cpu=cpu_of(path)))
    other = resumed.runs(DEFAULT).draft(OURS)
    assert other is not None
    assert "resume-vgpr" in [run.stage for run in resumed.work.compiler.runs]
    assert "resume-vgpr" not in [run.stage for run in given.work.compiler.runs]
    assert code(given.work.compiler, draft) == code(resumed.work.compiler, other)


def code(staged: StagedCompiler, text: str) -> list[str]:
    """The instructions of the final code."""
    assembly = staged.finish(text, "asm", verify=False).decode()
    return re.findall(r"^\t[a-z]\w+.*?(?=;|$)", assembly, re.MULTILINE)


@pytest.mark.parametrize("name", ["sgpr_spills.ll", "wwm.ll", "callee_saved.ll"])
def test_llvm_runs_where_it_has_something_to_do(name: str) -> None:
    """Spilled scalars, whole-wave code, functions that are called."""
    staged = compiler("gfx942")
    assert not goes_on_as_it_is(staged.direct_after(source(name), LlvmPhase.SGPR))


def test_header_fields_that_are_left_out_are_not_taken_for_an_entry_function() -> None:
    staged = compiler("gfx942")
    text = staged.direct_after(source("abi.ll").replace("@callee", "@other"), LlvmPhase.SGPR)
    kernel = re.sub(r"^  isEntryFunction: true\n", "", text, flags=re.MULTILINE)
    assert not goes_on_as_it_is(kernel)


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler")
def test_the_library_is_built_where_there_is_a_c_compiler() -> None:
    assert LIBRARY.is_file()
