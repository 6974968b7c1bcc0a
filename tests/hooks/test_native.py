"""``verilocc audit --native``: what compilers print on the way to the code that they ship."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import DEMO_KERNELS, REPOSITORY, long

from smt_verifier.outcome import Outcome
from verilocc_mlir.cli.main import run
from verilocc_mlir.hooks.triton.native import compiled
from verilocc_mlir.pipeline.native import NativeKernel, audit_native, llc_kernel
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.toolchain.long_branches import has_long_branch

MATMUL = """
func.func @mm(%a: tensor<64x64xf16>, %b: tensor<64x64xf16>, %c: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<64x64xf16>, tensor<64x64xf16>) outs(%c : tensor<64x64xf32>)
    -> tensor<64x64xf32>
  return %r : tensor<64x64xf32>
}
"""
PATHS = sorted(DEMO_KERNELS.glob("*.ll"))


DIFFERENCE = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @difference(ptr addrspace(1) %p, ptr addrspace(1) %q) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %b = getelementptr i32, ptr addrspace(1) %q, i32 %t
  %x = load i32, ptr addrspace(1) %a
  %y = load i32, ptr addrspace(1) %b
  %d = sub i32 %x, %y
  store i32 %d, ptr addrspace(1) %a
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "target-cpu"="gfx942" }
"""


@pytest.fixture(scope="module")
def kernel() -> NativeKernel:
    """A kernel of llc's."""
    return llc_kernel(DIFFERENCE.encode(), "difference.ll", Settings())


@pytest.mark.parametrize("path", [PATHS[0], *long(*PATHS[1:])], ids=lambda path: path.stem)
def test_llcs_own_allocations_are_proved(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--native", str(path), f"-mcpu={path.name.split('.')[1]}"]) == 0
    shown = capsys.readouterr().out
    assert ", SGPR: proved, " in shown
    assert ", VGPR: proved, " in shown
    assert "LLVM version" in shown.splitlines()[0]


def wrong(kernel: NativeKernel, pattern: str, new: str) -> NativeKernel:
    """With another text after the last phase; allocated again it is right."""
    sides = kernel.phases[-1]
    right = sides.after.text
    text, count = re.subn(pattern, new, right, count=1)
    assert count == 1
    changed = replace(sides, after=replace(sides.after, text=text))
    return replace(kernel, phases=(*kernel.phases[:-1], changed), reallocate=lambda _phase, _before: right)


SWAPPED = (r"(V_SUB_U32_e32) (killed \$vgpr\d+), (killed \$vgpr\d+)", r"\1 \3, \2")


def test_a_wrong_value_is_refuted_only_if_the_printed_text_is_allocated_as_wrongly(kernel: NativeKernel) -> None:
    """What LLVM knew and did not print may make its allocation look wrong."""
    faulty = wrong(kernel, *SWAPPED)
    judged = audit_native([faulty]).pairs[-1].report.functions[0]
    assert judged.outcome is Outcome.UNKNOWN
    assert "the text has lost which lanes are undefined" in judged.findings[0].message
    assert not [f for f in judged.findings if f.outcome is Outcome.REFUTED]

    again = replace(faulty, reallocate=lambda _phase, _before: faulty.phases[-1].after.text)
    assert audit_native([again]).outcome is Outcome.REFUTED

    once = replace(faulty, reallocate=None)
    judged = audit_native([once]).pairs[-1].report.functions[0]
    assert judged.outcome is Outcome.UNKNOWN
    assert "cannot allocate the printed text" in judged.findings[0].message


def test_what_no_lane_explains_is_refuted(kernel: NativeKernel) -> None:
    faulty = wrong(kernel, "hasCalls:        false", "hasCalls:        true")
    assert audit_native([faulty]).outcome is Outcome.REFUTED


@pytest.mark.long
def test_iree_prints_every_dispatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
    module = tmp_path / "mm.mlir"
    module.write_text(MATMUL)
    report, texts = tmp_path / "report.json", tmp_path / "texts"
    command = ["audit", "--native", str(module), "-mcpu=mi300x", f"--report={report}", f"--save-temps={texts}"]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert "gfx942, IREE " in shown.out
    assert "up to greedy,0" in shown.err
    document = json.loads(report.read_text())
    assert [pair["phase"] for pair in document["pairs"]] == ["sgpr", "vgpr"]
    assert {pair["outcome"] for pair in document["pairs"]} == {"proved"}
    assert document["target"] == "gfx942"
    assert len(list(texts.glob("*.mir"))) == 4
    # The texts that were kept are audited as any two texts are.
    before, after = (str(next(texts.glob(f"*.vgpr.{side}.mir"))) for side in ("before", "after"))
    assert run(["audit", before, after, "-mcpu=gfx942"]) == 0


@pytest.mark.long
@pytest.mark.parametrize("target", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
def test_iree_allocates_attention(target: str) -> None:
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
    assert run(["audit", "--native", str(REPOSITORY / "examples" / "iree_attention.mlir"), f"-mcpu={target}"]) == 0


def test_wrong_input_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "bad.mlir"
    module.write_text("func.func @f( {")
    for words, message in (
        ([str(tmp_path / "none.ll")], "cannot be read"),
        ([str(tmp_path / "none.mlir"), "-mcpu=gfx942"], "no such file"),
        ([str(module)], "a module needs its target"),
        ([str(PATHS[0]), "--", "--iree-input-type=torch"], "go with a .mlir file"),
        ([str(PATHS[0]), "--llvm", str(PATHS[0])], "give either"),
    ):
        assert run(["audit", "--native", *words]) == 2
        assert message in capsys.readouterr().err
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
    assert run(["audit", "--native", str(module), "-mcpu=gfx942"]) == 2
    assert f"{module}:1" in capsys.readouterr().err


class TestTriton:
    """Triton's cache folder, filled by Triton alone."""

    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        triton = pytest.importorskip("triton", reason="triton is not installed")
        pytest.importorskip("triton.backends.amd.compiler", reason="this triton has no AMD back end")
        from triton_builders import build_sum

        folder = tmp_path / "cache"
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(folder)
            for target in ("gfx942", "gfx1100"):
                build_sum(target)
        return folder

    def test_what_triton_ships_is_proved_for_the_code_that_it_kept(
        self, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for cpu in ("gfx942", "gfx1100"):
            assert run(["audit", "--native", str(cache), f"-mcpu={cpu}"]) == 0
            shown = capsys.readouterr().out
            assert ", SGPR: proved, " in shown
            assert ", VGPR: proved, " in shown
        assert run(["audit", "--native", str(cache)]) == 2
        assert "choose with -mcpu" in capsys.readouterr().err
        assert run(["audit", "--native", str(cache), "-mcpu=gfx90a"]) == 2
        assert "its kernels are for gfx1100, gfx942, not for gfx90a" in capsys.readouterr().err

    @pytest.mark.long
    def test_code_that_our_hook_made_is_made_and_audited_again(
        self, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from triton_builders import build_sum

        from verilocc_mlir.hooks import triton as hook

        triton = importlib.import_module("triton")
        ours = cache.with_name("ours")
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(ours)
            hook.install(replace="always")
            try:
                build_sum("gfx942")
            finally:
                hook.uninstall()
        assert run(["audit", "--native", str(ours)]) == 0
        assert ", all phases: proved, " in capsys.readouterr().out
        for path in ours.rglob("*.amdgcn"):
            path.write_text(path.read_text().replace("s_endpgm", "s_nop 0\n\ts_endpgm"))
        assert run(["audit", "--native", str(ours)]) == 3
        assert "our hook made this code with other options" in capsys.readouterr().out

    def test_other_code_in_the_folder_is_not_what_was_audited(
        self, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for path in cache.rglob("*.amdgcn"):
            path.write_text(path.read_text().replace("s_endpgm", "s_nop 0\n\ts_endpgm"))
        assert run(["audit", "--native", str(cache), "-mcpu=gfx942"]) == 3
        assert "what was audited is not the code that Triton has" in capsys.readouterr().out

    def test_an_llvm_that_ends_is_one_error_and_the_next_one_works(
        self, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kernel = next(cache.rglob("*.llir"))
        text = kernel.read_text()
        kernel.write_text(text.replace("ret void", "ret i32 nothing"))
        cpu = json.loads(kernel.with_suffix(".json").read_text())["target"]["arch"]
        command = ["audit", "--native", str(kernel.parent), f"-mcpu={cpu}"]
        assert run(command) == 2
        assert "Triton's compiler" in capsys.readouterr().err
        kernel.write_text(text)
        assert run(command) == 0

    def test_a_bad_cache_is_one_error(self, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        options = next(cache.rglob("*.llir")).with_suffix(".json")
        for text in ("{", "[]", '{"target": {}}', ""):
            options.write_text(text)
            assert run(["audit", "--native", str(cache), "-mcpu=gfx942"]) == 2
            assert f"{options}: not a kernel's options" in capsys.readouterr().err
        (tmp_path / "empty").mkdir()
        assert run(["audit", "--native", str(tmp_path / "empty")]) == 2
        assert "no kernel of Triton's" in capsys.readouterr().err


@pytest.mark.parametrize("cpu", ["gfx942", "gfx1100", "gfx1250"])
def test_tritons_llvm_has_a_label_for_each_long_branch(cpu: str) -> None:
    """What tells that there is none, in the assembly that ships (specification 13.4)."""
    pytest.importorskip("triton.backends.amd.compiler", reason="there is no Triton with an AMD back end")

    def assembly(statements: int) -> str:
        code = "s_nop 0\\0A" * statements
        ir = LONG.format(cpu=cpu, code=code)
        return compiled(ir, cpu, (), fp_fusion=True, seconds=60, where="f")

    assert [has_long_branch(assembly(n).encode()) for n in (1, 40_000)] == [False, True]


LONG = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @f(ptr addrspace(1) %p, i32 inreg %c) "target-cpu"="{cpu}" {{
  %b = icmp eq i32 %c, 0
  br i1 %b, label %x, label %y
x:
  call void asm sideeffect "{code}", ""()
  store volatile i32 1, ptr addrspace(1) %p
  br label %y
y:
  call void asm sideeffect "{code}", ""()
  store volatile i32 2, ptr addrspace(1) %p
  ret void
}}
"""
