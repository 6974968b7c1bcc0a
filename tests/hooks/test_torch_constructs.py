"""What ordinary Torch programs are made of: imported, computed by IREE on this CPU as Torch does, and compiled."""

from __future__ import annotations

import copy
import importlib
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, long

import verilocc_mlir
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.hooks.iree_compiler import find_iree_compile
from verilocc_mlir.hooks.iree_runtime import Session
from verilocc_mlir.hooks.torch_import import FUNCTION, IREE_FLAGS, Imported, import_module

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
for _name in ("iree.compiler", "iree.runtime"):
    pytest.importorskip(_name, reason=f"{_name} is not installed")

nn, functional, Dim = torch.nn, torch.nn.functional, torch.export.Dim
_CPU = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")


def text(imported: Imported) -> str:
    """The module's operations, its weights left out."""
    ir: Any = importlib.import_module("iree.compiler.ir")
    return ir.Module.parse(imported.mlir, ir.Context()).operation.get_asm(large_elements_limit=16)


def session(imported: Imported, tmp_path: Path) -> Session:
    """The imported module, compiled by IREE for this CPU and loaded."""
    source, out = tmp_path / "cpu.mlirbc", tmp_path / "cpu.vmfb"
    source.write_bytes(imported.mlir)
    find_iree_compile().run(source, out, [*IREE_FLAGS, *_CPU], stage="cpu")
    return Session(out.read_bytes(), "local-task")


def computes_the_same(module: Any, inputs: tuple[Any, ...], tmp_path: Path, **more: Any) -> Imported:
    """Import the module, run it, and compare its results, and its arguments afterwards, with Torch's own."""
    calls = more.pop("calls", [inputs])
    imported = import_module(module, inputs, **more)
    loaded = session(imported, tmp_path)
    for given in calls:
        ours, theirs = copy.deepcopy(given), copy.deepcopy(given)
        got = imported.signature.call(lambda flat: loaded.call(FUNCTION, flat), ours, {})
        with torch.no_grad():
            wanted = module(*theirs)
        torch.testing.assert_close((got, ours), (wanted, theirs), rtol=1e-4, atol=1e-4)
    return imported


class InPlace(nn.Module):
    """Operations in place, and slices that are assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(8, 8), nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.linear(x))
        y += x
        y[:, 0] = 1
        y[1:3, 2:4] *= 2
        return y.clamp_(max=2)


class Diff(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.diff(x), torch.diff(x, n=2, dim=0), torch.diff(x, prepend=x[:, :1])


class Buffers(nn.Module):
    """Buffers that are not persistent, as rotary tables are, and a tensor that is none."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("small", torch.arange(8.0), persistent=False)
        self.register_buffer("large", torch.randn(64, 64), persistent=False)
        self.plain = torch.ones(8) * 3

    def forward(self, x: Any) -> Any:
        return x * self.small + self.plain + self.large[0, :8]


class Outputs(nn.Module):
    """A result that is no tensor, as nn.MultiheadAttention has, and an argument that is none."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any, number: int) -> Any:
        return self.attention(x, x, x, need_weights=False), number + 1, {"sum": x + number}


class Masks(nn.Module):
    """Masks that are made of constants and comparisons, joined by & and |."""

    def forward(self, x: Any) -> Any:
        positions = torch.arange(x.shape[-1])
        causal = positions[None, :] <= positions[:, None]
        mask = causal & x.new_ones((), dtype=torch.bool) & (torch.ones(4, 8, 8) > 0)
        return torch.where(mask | ((x > 1)[:, None, :] ^ causal), x[:, None, :], -1.0)


CONSTRUCTS = {
    "in place": (InPlace, (4, 8)),
    "diff": (Diff, (4, 8)),
    "LSTM": (lambda: nn.LSTM(8, 8, num_layers=2, batch_first=True), (2, 4, 8)),
    "LSTM, both directions": (lambda: nn.LSTM(8, 8, bidirectional=True), (4, 2, 8)),
    "GRU": (lambda: nn.GRU(8, 8, num_layers=2), (4, 2, 8)),
    "RNN": (lambda: nn.RNN(8, 8), (4, 2, 8)),
    "buffers": (Buffers, (4, 8)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 8, 8)),
    "masks": (Masks, (4, 8)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_computes_what_torch_computes(name: str, tmp_path: Path) -> None:
    make, shape = CONSTRUCTS[name]
    torch.manual_seed(0)
    computes_the_same(make().eval(), (torch.randn(shape),), tmp_path)


@pytest.mark.parametrize("name", long("in place", "GRU"))
def test_a_construct_is_proved(name: str) -> None:
    make, shape = CONSTRUCTS[name]
    compiled = verilocc_mlir.compile(make().eval(), (torch.randn(shape),), target="gfx942")
    assert compiled.kernels
    assert compiled.proved


@pytest.mark.long
def test_what_is_no_tensor_comes_back(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 4, 8), 3)
    module = Outputs().eval()
    imported = computes_the_same(module, inputs, tmp_path)
    with pytest.raises(verilocc_mlir.errors.InputError, match="argument 1 is 4, but it was compiled for 3"):
        imported.signature.call(list, (inputs[0], 4), {})


@pytest.mark.long
def test_an_argument_that_is_changed_is_changed_in_the_caller(tmp_path: Path) -> None:
    def changing(x: Any, y: Any) -> Any:
        y.relu_()
        x[:, 1] += y[:, 0]
        return x + y

    imported = computes_the_same(changing, (torch.randn(4, 8), torch.randn(4, 8)), tmp_path)
    assert sorted(imported.signature.changed_arguments) == [0, 1]


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", *long("bool", "bfloat16", "int64")])
def test_a_buffer_that_the_call_changes_is_kept_for_the_next(dtype: str, tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", (torch.arange(9) % 2).to(getattr(torch, dtype)))

        def forward(self, x: Any) -> Any:
            self.seen.copy_(self.seen.logical_not() if dtype == "bool" else self.seen + 2)
            return x + self.seen

    inputs = (torch.zeros(9),)
    module = Counter().eval()
    computes_the_same(module, inputs, tmp_path, calls=[inputs] * 3)
    # Only Torch's own three calls have changed it.
    assert module.seen[:2].tolist() == ([True, False] if dtype == "bool" else [6, 7])


@pytest.mark.long
@pytest.mark.parametrize("operator", ["lt", *long("eq", "gt", "ge", "le", "ne")])
def test_comparing_constant_floats_with_an_integer(operator: str, tmp_path: Path) -> None:
    """IREE 3.13 folds some of these to the wrong answer."""

    def compared(x: Any) -> Any:
        return x + getattr(torch, operator)(torch.ones(4), 1), x + getattr(torch, operator)(torch.ones(4), 0)

    computes_the_same(compared, (torch.randn(4),), tmp_path)


def attention_mask(kind: str, query: Any, key: Any) -> Any:
    causal = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return {
        "two dimensions": causal,
        "four": causal[None, None],
        "added": torch.zeros(1, 1, query.shape[-2], key.shape[-2]).masked_fill(~causal, float("-inf")),
        "of keys": (torch.arange(key.shape[-2]) < 7)[None, None, None],
    }.get(kind)


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [False, *long(True)])
@pytest.mark.parametrize("kind", ["causal", *long("grouped", "none", "two dimensions", "four", "added", "of keys")])
def test_attention_is_one_operation_and_computes_the_same(kind: str, dynamic: bool, tmp_path: Path) -> None:
    class Attention(nn.Module):
        def forward(self, query: Any, key: Any, value: Any) -> Any:
            if kind == "grouped":
                key, value = key[:, :1], value[:, :1]
            mask = attention_mask(kind, query, key)
            return functional.scaled_dot_product_attention(
                query, key, value, mask, is_causal=kind == "causal", enable_gqa=kind == "grouped"
            )

    inputs = tuple(torch.randn(1, 2, 16, 16) for _ in range(3))
    longer = tuple(torch.randn(1, 2, 24, 16) for _ in range(3))
    more = {"dynamic_shapes": ({2: Dim("length", min=2, max=64)},) * 3, "calls": [longer]} if dynamic else {}
    imported = computes_the_same(Attention(), inputs, tmp_path, **more)
    assert text(imported).count("torch.aten.scaled_dot_product_attention ") == 1


class Parts(nn.Module):
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        return self.parts(x)


@pytest.mark.parametrize(
    "part", [nn.Dropout(0.5), nn.BatchNorm1d(4), nn.LSTM(4, 4, num_layers=2, dropout=0.5), nn.RReLU()], ids=repr
)
def test_a_part_in_training_is_refused_whatever_is_around_it(part: Any) -> None:
    module = Parts(nn.Linear(4, 4), part).eval()
    part.train()
    with pytest.raises(UnsupportedError, match=r"parts\.1 is in training mode"):
        import_module(module, (torch.ones(2, 4),))
    exported = torch.export.export(module, (torch.ones(2, 4),))
    with pytest.raises(UnsupportedError, match="is in training mode"):
        import_module(exported, (torch.ones(2, 4),))


def test_a_function_that_drops_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"it is in training mode \(aten\.dropout\.default"):
        import_module(lambda x: functional.dropout(x, 0.5), (torch.ones(2, 4),))

    def attention(x: Any) -> Any:
        return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

    with pytest.raises(UnsupportedError, match="is in training mode"):
        import_module(attention, (torch.ones(1, 2, 4, 4),))


@pytest.mark.parametrize(
    "part", [nn.Dropout(0.0), *long(nn.Dropout(0.5).eval(), nn.BatchNorm1d(4).eval(), nn.LayerNorm(4))], ids=repr
)
def test_a_wrapper_in_training_around_evaluated_parts_is_taken(part: Any) -> None:
    module = Parts(nn.Linear(4, 4))
    module.parts.append(part)
    assert module.training
    import_module(module, (torch.ones(2, 4),))
    assert module.training


def state(module: Any) -> Any:
    """All of a module that compiling could change."""
    return (
        {name: (id(value), value.requires_grad, value.clone()) for name, value in module.named_parameters()},
        {name: (id(value), value.clone()) for name, value in module.named_buffers()},
        {name: (part.training, set(part._non_persistent_buffers_set)) for name, part in module.named_modules()},
        sorted(vars(module)),
    )


def test_the_module_is_left_as_it_was() -> None:
    module = Parts(nn.Linear(8, 8), nn.BatchNorm1d(8), Buffers(), InPlace()).eval()
    module.parts[0].weight.requires_grad_(False)
    module.train(False)
    before = state(module)
    import_module(module, (torch.randn(4, 8),))
    assert json.dumps(state(module), default=str) == json.dumps(before, default=str)


@pytest.mark.long
def test_the_exported_program_is_left_as_it_was() -> None:
    exported = torch.export.export(Parts(InPlace(), Buffers(), Diff()).eval(), (torch.randn(4, 8),))

    def seen() -> Any:
        tensors = {**exported.state_dict, **exported.constants}
        return (
            str(exported.graph),
            str(exported.graph_signature),
            exported.graph_module.code,
            {name: (id(value), value.requires_grad, str(value)) for name, value in tensors.items()},
        )

    before = seen()
    first = import_module(exported, ())
    assert seen() == before
    assert text(import_module(exported, ())) == text(first)


@pytest.mark.long
def test_what_iree_cannot_compile_is_named_as_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution with a stride and one pixel left: IREE 3.13 makes a linalg operation of it that does not verify."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module, inputs = nn.Conv2d(16, 16, 3, stride=2, padding=1).eval(), (torch.randn(2, 16, 2, 2),)
    with pytest.raises(UnsupportedError, match="IREE cannot compile the imported module") as raised:
        verilocc_mlir.compile(module, inputs, target="gfx942")
    (kept,) = tmp_path.iterdir()
    command = shlex.split(raised.value.hint.partition(": ")[2])
    assert str(kept) in command
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert raised.value.what.rpartition(": ")[2] in again.stderr


MODELS = (
    "llama",
    "gpt2",
    "gemma",
    "bert",
    "qwen2",
    "qwen3",
    "t5",
    "vit",
    "whisper",
    "clip",
    "dit",
    "unet",
    "resnet18",
    "lstm",
    "mamba",
)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The factories of examples/models.py."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    return importlib.import_module("models").MODELS


@pytest.mark.long
def test_every_model_is_tested(models: dict[str, Any]) -> None:
    assert {*MODELS} == models.keys()


@pytest.mark.parametrize("name", long(*MODELS))
def test_a_model_computes_what_torch_computes(name: str, tmp_path: Path, models: dict[str, Any]) -> None:
    module, inputs = models[name](torch.float32)
    computes_the_same(module, inputs, tmp_path)


@pytest.mark.parametrize("name", long("lstm", "llama"))
def test_a_model_in_bf16_with_a_dynamic_batch_is_imported(name: str, models: dict[str, Any]) -> None:
    module, inputs, shapes = models[name](torch.bfloat16, dynamic=True)
    imported = import_module(module, inputs, dynamic_shapes=shapes)
    assert "!torch.vtensor<[?,16" in text(imported)


@pytest.mark.long
def test_a_model_is_proved(models: dict[str, Any]) -> None:
    module, inputs = models["gpt2"](torch.float16)
    compiled = verilocc_mlir.compile(module, inputs, target="gfx942")
    assert compiled.proved
    assert any("attention" in name for kernel in compiled.kernels for name in kernel.functions)
