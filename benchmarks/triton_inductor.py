"""The Triton kernels that Torch's Inductor writes for an AMD GPU, on a machine without one.

Inductor runs as for ``torch.compile(mode="max-autotune")`` on tensors without data. What it would ask the device is
answered here; of a template's configurations, which it would time, some are taken in turn.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from triton_signatures import Call

CONFIGURATIONS = 6
"""Configurations of a template that are taken, evenly over all."""

_TEMPLATE_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")

_DEVICE = {
    "type": "hip", "index": 0, "multi_processor_count": 304, "cc": "gfx942", "major": 9,
    "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048, "warp_size": 64,
}  # fmt: skip
"""An MI300X, as ``DeviceProperties`` has it."""


def _properties() -> SimpleNamespace:
    """As ``torch.cuda.get_device_properties`` has them."""
    names = {"multi_processor_count": 304, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048}
    return SimpleNamespace(gcnArchName="gfx942", major=9, minor=4, warp_size=64, total_memory=192 << 30, **names)


def _programs(torch: Any) -> Iterator[tuple[str, Callable[..., Any], list[tuple[int, ...]]]]:
    """Name, program, shapes of its arguments."""
    nn = torch.nn.functional
    yield "bmm", lambda a, b, c: torch.relu(torch.bmm(a, b) + c), [(16, 512, 256), (16, 256, 384), (16, 512, 384)]
    yield "bmm, odd sizes", torch.bmm, [(6, 197, 70), (6, 70, 131)]
    yield "mm", lambda a, b, c: nn.gelu(a @ b + c), [(512, 1024), (1024, 768), (768,)]
    yield "softmax", lambda x: torch.softmax(x * 0.125, -1), [(2048, 1000)]
    yield "layer norm", lambda x, w, b: nn.layer_norm(x, (4096,), w, b), [(1024, 4096), (4096,), (4096,)]
    yield "pointwise", lambda x, y: nn.silu(x) * y, [(1024, 4096), (1024, 4096)]


def calls() -> Iterator[tuple[str, Call]]:
    """Each kernel that Inductor writes, with a name."""
    torch = importlib.import_module("torch")
    with patch.object(torch.version, "hip", "6.4"):  # Inductor looks when it is loaded
        yield from _calls(torch)


def _calls(torch: Any) -> Iterator[tuple[str, Call]]:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for name, program, shapes in _programs(torch):
            turns = CONFIGURATIONS if "mm" in name else 1
            for turn in range(turns):
                for number, call in enumerate(_kernels(_written(torch, program, shapes, dtype, turn / turns))):
                    label = f"configuration {turn}" if turns > 1 else f"kernel {number}"
                    yield f"{name} {str(dtype).removeprefix('torch.')}, {label}", call


def _written(torch: Any, program: Any, shapes: list[tuple[int, ...]], dtype: Any, part: float) -> str:
    """The Python text that Inductor generates; ``part``, from 0 to 1, says which of a template's configurations."""
    algorithms: Any = importlib.import_module("torch._inductor.select_algorithm")
    hints: Any = importlib.import_module("torch._inductor.runtime.hints")
    graphs = importlib.import_module("torch._inductor.graph")
    interfaces: Any = importlib.import_module("torch._dynamo.device_interface")
    virtualized = importlib.import_module("torch._inductor.virtualized").V
    debug = importlib.import_module("torch._inductor.debug").DebugContext
    proxy = importlib.import_module("torch.fx.experimental.proxy_tensor")
    decompositions = importlib.import_module("torch._inductor.decomposition").select_decomp_table
    properties = hints.DeviceProperties(**_DEVICE)

    def choose(_cache: Any, _name: str, choices: list[Any], *_: Any, **__: Any) -> tuple[Any, Any]:
        templates = [c for c in choices if isinstance(c, algorithms.TritonTemplateCaller)]
        choice = templates[int(part * len(templates))]
        return choice.output_node(), choice

    def answer(value: Any) -> Any:
        return staticmethod(lambda *_: value)  # type: ignore[reportUnknownLambdaType]

    answers = {
        "is_available": answer(True),
        "is_triton_capable": answer(True),
        "raise_if_triton_unavailable": answer(None),
        "get_compute_capability": answer(_DEVICE["cc"]),
        "device_count": answer(1),
        "get_device_properties": answer(_properties()),
    }
    worker = type("Worker", (interfaces.CudaInterface.Worker,), answers)
    absent_gpu = type("AbsentGpu", (interfaces.CudaInterface,), {**answers, "Worker": worker})

    def interface(device: Any) -> Any:
        return absent_gpu if str(device).startswith("cuda") else interfaces.CpuInterface

    config = importlib.import_module("torch._inductor.config")
    with ExitStack() as stack:
        changes: list[Any] = [
            config.patch(max_autotune=True, max_autotune_gemm_backends="TRITON", compile_threads=1),
            patch.object(torch.cuda, "is_available", answer(True)),
            patch.object(torch.cuda, "current_device", answer(0)),
            patch.object(torch.cuda, "get_device_properties", answer(_properties())),
            patch.object(torch.cuda, "get_device_capability", answer((9, 4))),
            patch.object(torch.cuda, "is_tf32_supported", answer(False)),
            patch.object(torch.cuda, "_lazy_init", answer(None)),
            patch.object(interfaces, "get_interface_for_device", interface),
            patch.object(hints.DeviceProperties, "create", answer(properties)),
            patch.object(algorithms.AlgorithmSelectorCache, "__call__", choose),
        ]
        for change in changes:
            stack.enter_context(change)
        fake = stack.enter_context(importlib.import_module("torch._subclasses").FakeTensorMode())
        arguments = [torch.empty(shape, dtype=dtype, device="cuda") for shape in shapes]
        traced = proxy.make_fx(program, decomposition_table=decompositions())(*arguments)
        graph = graphs.GraphLowering(traced, example_inputs=arguments)
        for context in (virtualized.set_fake_mode(fake), virtualized.set_graph_handler(graph), debug()):
            stack.enter_context(context)
        graph.run(*arguments)
        return graph.codegen()[0].value


def _kernels(program: str) -> Iterator[Call]:
    """The kernels in Inductor's text, each with the first of the configurations that Inductor would try."""
    heuristics = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    for text in re.findall(r"async_compile\.triton\([^,]*, '''(.*?)'''", program, re.DOTALL):
        configured: list[tuple[Any, dict[str, Any], Any]] = []

        def capture(_sizes: Any, configs: list[Any], triton_meta: dict[str, Any], **_: Any) -> Callable[[Any], Any]:
            return lambda kernel: configured.append((configs[0], triton_meta, kernel))  # noqa: B023

        with patch.object(heuristics, "cached_autotune", capture):
            _load(text.replace("triton_helpers.set_driver_to_gpu()", ""))
        for config, meta, kernel in configured:
            constants = {**meta.get("constants", {}), **config.kwargs}
            options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
            options.update(
                {name: meta[name] for name in ("matrix_instr_nonkdim", "waves_per_eu", "kpack") if name in meta}
            )
            aligned = [index for (index,), facts in meta["configs"][0].items() if ["tt.divisibility", 16] in facts]
            names = list(meta["signature"])
            yield Call(kernel, meta["signature"], constants, options, tuple(names[i] for i in aligned))


def _load(text: str) -> ModuleType:
    """The text as a module with a file, which is where Triton reads a kernel's source."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="inductor_", delete=False) as stream:
        stream.write(text)
    spec = importlib.util.spec_from_file_location(Path(stream.name).stem, stream.name)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    Path(stream.name).unlink()
    return module
