"""The generator of MLIR kernels: what it computes, how much there is of it, and that the spine proves it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from mlir_support import lowering_bindings, small
from support import REPOSITORY, long

from examples.mlir_kernels import KINDS, TARGETS, Gemm, instructions, kernels, sample, space
from examples.mlir_kernels.__main__ import main
from smt_verifier.outcome import Outcome
from verilocc_mlir.hooks.mlir_compile import compile_ir
from verilocc_mlir.hooks.mlir_target import RocdlTarget

needs_bindings = pytest.mark.parametrize("package", lowering_bindings()[:1])


@pytest.mark.long
def test_the_space_is_large_and_every_name_is_of_one_configuration() -> None:
    for target in TARGETS:
        for kind in KINDS:
            first = list(islice(space(target, kind), 5_000))
            assert len(first) >= 5_000
            assert len({config.name for config in first}) == len(set(first)) == len(first)
            assert all(config.target == target for config in first)


@pytest.mark.long
def test_samples_are_reproducible_distinct_and_spread() -> None:
    configs = list(sample(500, 7))
    assert configs == list(sample(500, 7))
    assert configs != list(sample(500, 8))
    assert len({(config.target, config.name) for config in configs}) == 500
    for target in TARGETS:
        assert sum(config.target == target for config in configs) == 100
    assert sum(isinstance(config, Gemm) for config in configs) == 250
    texts = {hashlib.sha256(config.mlir().encode()).digest() for config in configs}
    assert len(texts) == 500
    assert next(iter(list(sample(3, 1)))).mlir() == next(sample(3, 1)).mlir()


def test_every_shape_of_every_target_is_drawn() -> None:
    for target in TARGETS:
        drawn = {(c.instruction.name, c.element) for c in sample(400, 1, [target], ["gemm"])}
        assert drawn == {(shape.name, e) for e in ("f16", "bf16", "f32", "i8") for shape in instructions(target, e)}


def test_wrong_arguments_are_errors() -> None:
    for wrong in (("gfx900",), ("",)):
        with pytest.raises(ValueError, match="no kernels for"):
            next(sample(1, targets=wrong))
    with pytest.raises(ValueError, match="no kernels of the kind conv"):
        next(sample(1, kinds=["conv"]))
    with pytest.raises(ValueError, match="no further configuration"):
        next(sample(1, accept=lambda config: False))


@needs_bindings
def test_ir_is_distinct_and_has_matrix_instructions(package: str) -> None:
    seen = set()
    for config, ir in kernels(20, 2, accept=small):
        intrinsic = "llvm.amdgcn.mfma" if config.instruction.op == "amdgpu.mfma" else "llvm.amdgcn.wmma"
        assert intrinsic in ir
        assert f"define amdgpu_kernel void @{config.name}(" in ir
        assert "__ocml" not in ir
        seen.add(re.sub(re.escape(config.name), "kernel", ir))
    assert len(seen) == 20


@pytest.mark.long
@needs_bindings
@pytest.mark.parametrize("target", ["gfx942", *long(*(t for t in TARGETS if t != "gfx942"))])
def test_the_spine_proves_them_with_our_allocation(package: str, target: str) -> None:
    """LLVM's allocation may stand where it is as cheap and spills less, but not in all."""
    allocators: set[str] = set()
    for config, ir in kernels(2, 6, [target], accept=lambda c: small(c) and not getattr(c, "guarded", False)):
        report = compile_ir(ir, RocdlTarget(target, opt_level=3), where=config.name).report
        assert report.outcome is Outcome.PROVED
        of_kernel = {p.allocator for f in report.functions for p in f.phases}
        assert of_kernel == {"deterministic"} or any("LLVM's is as cheap as ours" in note for note in report.notes)
        allocators |= of_kernel
    assert "deterministic" in allocators


@needs_bindings
def test_the_command_line_writes_files(package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "gfx1100", "--kind", "gemm", "--count", "2", "--out", str(tmp_path)]) == 0
    names = [Path(line) for line in capsys.readouterr().out.split()]
    assert [path.suffix for path in names] == [".ll", ".ll"]
    assert all(path.name.endswith(".gfx1100.ll") and "amdgpu_kernel" in path.read_text() for path in names)
    assert main(["--count", "1", "--form", "mlir", "--out", str(tmp_path)]) == 0
    assert "amdgpu.mfma" in next(tmp_path.glob("*.mlir")).read_text()


def test_the_command_line_without_bindings_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch_mlir', 'mlir', 'iree']));"
        f"from examples.mlir_kernels.__main__ import main; sys.exit(main(['--out', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 2
    assert "pip install 'verilocc-mlir[mlir]'" in done.stderr
