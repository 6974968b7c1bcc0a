"""Ours is taken where only ours is proved, and nothing but cycles below the error bar tells the two kernels apart."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NoReturn

import pytest

from verilocc_mlir.cost.compare import Ground
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.hooks import iree
from verilocc_mlir.hooks.baseline import Comparison, Decision
from verilocc_mlir.hooks.kernels import NativeVerdict

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")]
ADD = """
func.func @add(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %r = arith.addf %a, %b : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


def dearer(ground: Ground) -> Comparison:
    """Ours takes a little more modelled cycles; ``ground``: by what that was decided."""
    return Comparison({}, {}, decisions={"k": Decision("takes 1.01 of its modelled cycles", ground.value)})


@pytest.mark.parametrize(
    ("ground", "policy", "status", "exit_code"),
    [
        (Ground.NOTHING, "better", "proved", 0),
        (Ground.WAVES, "better", "declined", 3),
        (Ground.NOTHING, "never", "declined", 3),
    ],
)
def test_in_a_module_of_iree(
    ground: Ground, policy: str, status: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

    def refused(*_: object) -> NoReturn:
        raise ToolchainError("seeded")

    monkeypatch.setattr(iree, "compare_code", lambda *_: dearer(ground))
    theirs = iree.compile_mlir(ADD, target="gfx942", replace=policy, cache=False)
    assert (theirs.kernels[0].status, theirs.exit_code) == ("native, proved", 0)
    monkeypatch.setattr(iree, "stopped_kernels", refused)
    result = iree.compile_mlir(ADD, target="gfx942", replace=policy, cache=False)
    (kernel,) = result.kernels
    assert (kernel.status, result.exit_code) == (status, exit_code)
    assert (kernel.code_object == kernel.own) == (status == "declined")


@pytest.mark.parametrize(
    ("ground", "is_proved", "kind"),
    [(Ground.NOTHING, False, "proved"), (Ground.NOTHING, True, "declined"), (Ground.WAVES, False, "declined")],
)
def test_in_a_kernel_of_triton(
    ground: Ground, is_proved: bool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'verilocc-mlir[triton]'")
    triton, stages, builders = map(
        importlib.import_module, ("verilocc_mlir.hooks.triton", "verilocc_mlir.hooks.triton.stages", "triton_builders")
    )
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    plain = builders.build_sum("gfx942", 128)
    verdict = NativeVerdict("proved" if is_proved else "unknown", 2, 3, "" if is_proved else "seeded")
    monkeypatch.setattr(stages, "compare_code", lambda *_: dearer(ground))
    monkeypatch.setattr(stages, "native_verdict", lambda *_: verdict)
    try:
        triton.install()
        built = builders.build_sum("gfx942", 128)
    finally:
        triton.uninstall()
    assert built.metadata.verilocc["kind"] == kind
    assert (built.asm["hsaco"] == plain.asm["hsaco"]) == (kind == "declined")
