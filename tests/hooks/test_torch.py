"""Torch through IREE and the spine: ``verilocc_mlir.compile``, ``torch.compile``, ``verilocc torch``."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, long

import verilocc_mlir
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.hooks import torch_dynamo
from verilocc_mlir.hooks.iree_compiler import find_iree_compile
from verilocc_mlir.hooks.iree_runtime import NoGpuError, gpu_missing
from verilocc_mlir.hooks.torch import TorchModule
from verilocc_mlir.hooks.torch_import import IREE_FLAGS, import_module

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
for _name in ("iree.compiler", "iree.runtime"):
    pytest.importorskip(_name, reason=f"{_name} is not installed")

without_gpu = pytest.mark.skipif(not gpu_missing(), reason="there is a ROCm GPU here")
Dim = torch.export.Dim


def linear(dtype: Any = torch.float16) -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    return torch.nn.Linear(32, 48).to(dtype).eval(), (torch.randn(16, 32, dtype=dtype),)


def attention(query: Any, key: Any, value: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value)


@pytest.fixture(scope="module")
def compiled() -> TorchModule:
    """A linear layer, and with it what every result has."""
    module, inputs = linear()
    return verilocc_mlir.compile(module, inputs, target="gfx942")


def on_cpu(some: TorchModule, module: Any, inputs: tuple[Any, ...], tmp_path: Path, **more: Any) -> TorchModule:
    """The module compiled by IREE for this CPU, to run it; all but the file is some other module's."""
    imported = import_module(module, inputs, **more)
    source, out = tmp_path / "cpu.mlir", tmp_path / "cpu.vmfb"
    source.write_bytes(imported.mlir)
    flags = [*IREE_FLAGS, "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    find_iree_compile().run(source, out, flags, stage="cpu")
    return TorchModule(replace(some.result, vmfb=out.read_bytes()), imported.signature)


def test_a_linear_layer_is_proved(compiled: TorchModule, tmp_path: Path) -> None:
    assert compiled.proved
    assert compiled.report["counts"]["left"] == 0
    for kernel in compiled.kernels:
        assert kernel.code_object in compiled.vmfb
        assert kernel.before
        assert "$vgpr" in kernel.after
    compiled.save(tmp_path / "linear.vmfb")
    assert (tmp_path / "linear.vmfb").read_bytes() == compiled.vmfb
    assert [path.name for path in tmp_path.iterdir()] == ["linear.vmfb"]


@without_gpu
def test_without_a_gpu_running_says_so(compiled: TorchModule) -> None:
    with pytest.raises(NoGpuError, match="no ROCm GPU can be used here") as raised:
        compiled.run(*linear()[1])
    assert "where there is one" in raised.value.hint


@pytest.mark.parametrize("dtype", long("bool", "float16", "float32", "bfloat16", "int64"))
def test_results_come_back_as_torch_has_them(dtype: str, tmp_path: Path, compiled: TorchModule) -> None:
    """IREE's runtime through the same calls as for a GPU, on this CPU."""

    def flipped(x: Any) -> Any:
        return x.t().contiguous()

    inputs = (torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)),)
    got = on_cpu(compiled, flipped, inputs, tmp_path).run(*inputs, device="local-task")
    assert got.dtype == inputs[0].dtype
    assert torch.equal(got, flipped(*inputs))


@pytest.mark.long
def test_nested_arguments_and_results_keep_their_form(tmp_path: Path, compiled: TorchModule) -> None:
    def both(pair: tuple[Any, Any], scale: Any) -> dict[str, Any]:
        return {"sum": pair[0] + pair[1], "scaled": [pair[0] * scale]}

    inputs = ((torch.ones(4), torch.arange(4.0)), torch.tensor(3.0))
    got = on_cpu(compiled, both, inputs, tmp_path).run(*inputs, device="local-task")
    assert got["sum"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert got["scaled"][0].tolist() == [3.0] * 4


def test_other_arguments_than_compiled_for_are_refused(compiled: TorchModule) -> None:
    with pytest.raises(InputError, match="it was compiled for"):
        compiled.run(torch.ones(1), torch.ones(1))


@pytest.mark.parametrize("target", long("gfx1201", "gfx950"))
def test_attention_stays_one_kernel(target: str) -> None:
    inputs = tuple(torch.randn(1, 2, 64, 64, dtype=torch.float16) for _ in range(3))
    result = verilocc_mlir.compile(attention, inputs, target=target)
    assert result.proved
    assert [name for kernel in result.kernels for name in kernel.functions if "attention" in name]
    assert len(result.kernels) == 1


@pytest.mark.long
def test_a_dynamic_batch() -> None:
    module, inputs = linear()
    result = verilocc_mlir.compile(module, inputs, target="gfx1100", dynamic_shapes=({0: Dim("rows", min=1, max=512)},))
    assert result.proved
    assert any("Dx48" in name for kernel in result.kernels for name in kernel.functions)


@pytest.mark.long
def test_attention_over_a_dynamic_sequence_gets_a_mask_and_computes_the_same(
    tmp_path: Path, compiled: TorchModule
) -> None:
    inputs = tuple(torch.randn(1, 2, 24, 32) for _ in range(3))
    sequence = {2: Dim("sequence", min=2, max=512)}
    shapes = dict.fromkeys(("query", "key", "value"), sequence)
    result = verilocc_mlir.compile(attention, inputs, target="gfx942", dynamic_shapes=shapes)
    assert result.proved
    assert any("attention" in name for kernel in result.kernels for name in kernel.functions)
    longer = tuple(torch.randn(1, 2, 40, 32) for _ in range(3))
    got = on_cpu(compiled, attention, inputs, tmp_path, dynamic_shapes=shapes).run(*longer, device="local-task")
    torch.testing.assert_close(got, attention(*longer), rtol=1e-3, atol=1e-3)


@pytest.mark.long
@without_gpu
def test_torch_compile_without_a_gpu_compiles_and_runs_eagerly() -> None:
    module, inputs = linear()
    torch._dynamo.reset()
    known = len(torch_dynamo.compiled_graphs())
    fast = torch.compile(module, backend="verilocc", options={"target": "gfx942"})
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="compiled for gfx942, but no ROCm GPU"):
        got = fast(*inputs)
    assert torch.equal(got, module(*inputs))
    (graph,) = torch_dynamo.compiled_graphs()[known:]
    assert graph.proved
    assert graph.kernels


@pytest.mark.long
@without_gpu
def test_torch_compile_may_refuse_to_run_without_a_gpu() -> None:
    module, inputs = linear()
    torch._dynamo.reset()
    fast = torch.compile(module, backend="verilocc", options={"target": "gfx942", "without_gpu": "error"})
    with torch.no_grad(), pytest.raises(NoGpuError):
        fast(*inputs)


def test_on_a_gpu_each_set_of_sizes_is_compiled_once() -> None:
    """What torch.compile returns where there is a GPU, with a module in its place that needs none."""
    made: list[Any] = []

    class Doubling:
        def run(self, x: Any) -> Any:
            return 2 * x

    def compiled_for(values: Any) -> Any:
        made.append(values)
        return Doubling()

    call = torch_dynamo._OnGpu(torch, compiled_for, [2, torch.ones(2)], Doubling())  # type: ignore[arg-type]
    assert call(2, torch.ones(2)).tolist() == [2, 2]
    assert made == []
    assert call(3, torch.ones(3)).tolist() == [2, 2, 2]
    assert call(3, torch.ones(3)).tolist() == [2, 2, 2]
    assert len(made) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no target is named"),
        ({"target": "gfx942", "tagret": 1}, "there is no option 'tagret'"),
        ({"target": "gfx942", "without_gpu": "cpu"}, "without_gpu is 'cpu'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(torch_dynamo.VARIABLE, raising=False)
    with pytest.raises(InputError, match=message):
        torch_dynamo.backend(None, [], options=options)


def test_gradients_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="gradients"):
        torch_dynamo.backend(None, [torch.ones(1, requires_grad=True)], options={"target": "gfx942"})


def test_training_mode_is_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    with pytest.raises(UnsupportedError, match="training mode"):
        verilocc_mlir.compile(module, (torch.ones(2, 4),), target="gfx942")


@without_gpu
def test_torch_compile_refuses_a_part_in_training() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).eval()
    module[1].train()
    torch._dynamo.reset()
    fast = torch.compile(module, backend="verilocc", options={"target": "gfx942"})
    with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="is in training mode"):
        fast(torch.ones(2, 4))


def test_what_cannot_be_traced_is_named() -> None:
    def branching(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(InputError, match="cannot trace it"):
        verilocc_mlir.compile(branching, (torch.ones(2),), target="gfx942")
    with pytest.raises(InputError, match="example_inputs is not a tuple"):
        verilocc_mlir.compile(branching, torch.ones(2), target="gfx942")


@pytest.mark.long
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "mine.py", tmp_path / "mine.vmfb"
    source.write_text(
        "import torch\n"
        "def small():\n    return torch.nn.ReLU().eval(), (torch.ones(64),)\n"
        "def dynamic():\n    return (*small(), ({0: torch.export.Dim('n')},))\n"
        "def broken():\n    raise ValueError('no such model')\n"
        "def alone():\n    return torch.nn.ReLU()\n"
    )
    for factory in ("small", "dynamic"):
        assert run(["torch", f"{source}:{factory}", "--target=gfx1100", "--replace=always", "-o", str(out)]) == 0
        assert "1 of 1 kernels proved" in capsys.readouterr().out
    out.unlink()
    for factory, message in (
        ("broken", f"{source}:7: it raised ValueError: no such model"),
        ("alone", "alone() did not return two or three things"),
        ("absent", "it has no absent"),
        ("", "does not name a factory"),
    ):
        assert run(["torch", f"{source}:{factory}", "--target=gfx1100", "-o", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_the_block_of_the_demo_is_proved(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    from torch_block import dynamic  # type: ignore[import-not-found]

    module, inputs, shapes = dynamic()
    for given in (None, shapes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert verilocc_mlir.compile(module, inputs, target=target, dynamic_shapes=given).proved


def test_a_gpu_that_iree_does_not_know_is_one_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError, match="IREE knows no GPU 'gfx666'") as error:
        verilocc_mlir.compile(torch.nn.ReLU(), (torch.ones(4),), target="gfx666")
    assert "gfx942" in error.value.hint
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".mlirbc"]
