"""Modules and executables through IREE's own programs, run on this machine's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measure_support import MATMUL

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.device import NoDeviceError
from verilocc_mlir.measure.iree import Executable, IreeDevice, IreeTools, functions_of
from verilocc_mlir.measure.runner import Turns, compare, measure
from verilocc_mlir.results.measure import Sameness, Verdict
from verilocc_mlir.toolchain.run import run_tool

pytest.importorskip("iree.runtime", reason="the extra iree is not installed")
compiler = pytest.importorskip("verilocc_mlir.hooks.iree_compiler")
pytest.importorskip("iree.compiler")

CPU = "local-sync"
FEW = Turns(rounds=6, runs=2, warm_up=1)
NATIVE = ("--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=generic")
INTERPRETED = ("--iree-hal-local-target-device-backends=vmvx",)
WRONG = MATMUL.replace("return %out", "%two = arith.addf %out, %out : tensor<32x32xf32>\n  return %two")
ANY_SIZE = """
func.func @double(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = arith.addf %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @same(%x: tensor<4xf16>, %n: i32) -> (tensor<4xf16>, i32) {
  return %x, %n : tensor<4xf16>, i32
}
"""


class Modules:
    """Files of modules, each compiled once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._iree = compiler.find_iree_compile()

    def __call__(self, name: str, text: str, *flags: str) -> str:
        path = self.directory / f"{name}.vmfb"
        if not path.exists():
            source = path.with_suffix(".mlir")
            source.write_text(text)
            self._iree.run(source, path, ["--iree-hal-target-device=local", *flags], stage="test")
        return str(path)

    @property
    def native(self) -> str:
        return self("native", MATMUL, *NATIVE, f"--iree-hal-dump-executable-binaries-to={self.directory / 'binaries'}")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Modules:
    return Modules(tmp_path_factory.mktemp("modules"))


def measured(device: IreeDevice, base: str, candidate: str) -> Any:
    try:
        return measure(device, device.subject(base), device.subject(candidate), FEW)
    finally:
        device.close()


def test_two_compilations_of_one_module_have_equal_results_and_are_timed(modules: Modules) -> None:
    """The same matmul as machine code and as VMVX, which interprets it. Who is faster is this machine's business: the
    verdict is what the times say.
    """
    found = measured(IreeDevice(CPU), modules.native, modules("interpreted", MATMUL, *INTERPRETED))
    assert (found.sameness, found.why) == (Sameness.EQUAL, "")
    assert found.kernel.name == "mm"
    assert found.workload == "mm(32x32xf32, 32x32xf32)"
    assert [(len(one.base), len(one.candidate)) for one in found.rounds] == [(2, 2)] * 6
    assert all(time > 0 for one in found.rounds for time in (*one.base, *one.candidate))
    again = compare(found.rounds, confidence=FEW.confidence, tie=FEW.tie)
    assert (found.verdict, found.ratio) == (again.verdict, again.ratio)


def test_a_module_that_computes_something_else_is_not_timed(modules: Modules) -> None:
    found = measured(IreeDevice(CPU), modules.native, modules("wrong", WRONG, *NATIVE))
    assert (found.verdict, found.sameness) == (Verdict.DIFFERENT, Sameness.DIFFERENT)
    assert found.why.startswith("result 0 differs in ")
    assert found.why.endswith(" of 4096 bytes, first at byte 2")
    assert not found.rounds


@pytest.mark.long
def test_an_executable_is_timed_by_itself(modules: Modules) -> None:
    assert modules.native
    (path,) = (modules.directory / "binaries").glob("*.so")
    how = Executable("embedded-elf-x86_64", (1, 1, 1))
    device = IreeDevice(CPU, inputs=("32x32xf32", "32x32xf32=2", "32x32xf32=0"), executable=how)
    found = measured(device, str(path), str(path))
    assert found.sameness is Sameness.NOT_COMPARED
    assert found.verdict is not Verdict.DIFFERENT
    assert "do not hand over" in found.why
    assert found.workload == "entry point 0(32x32xf32, 32x32xf32=2, 32x32xf32=0), 1x1x1 work-groups"
    assert all(time > 0 for one in found.rounds for time in (*one.base, *one.candidate))


@pytest.mark.long
def test_a_benchmark_of_one_kernel_needs_no_inputs(modules: Modules) -> None:
    """What iree-compile writes for each kernel: the launch of it alone, with its sizes."""
    benchmarks = modules.directory / "benchmarks"
    modules("dumped", MATMUL, *NATIVE, f"--iree-hal-dump-executable-benchmarks-to={benchmarks}")
    (path,) = benchmarks.glob("*.mlir")
    benchmark = modules("benchmark", path.read_text(), *NATIVE)
    found = measured(IreeDevice(CPU), benchmark, benchmark)
    assert (found.sameness, found.why) == (Sameness.NOT_COMPARED, "a benchmark of one kernel has no results")
    assert found.kernel.name.endswith("matmul_32x32x32_f32")
    assert [(len(one.base), len(one.candidate)) for one in found.rounds] == [(2, 2)] * 6


@pytest.mark.long
def test_a_benchmark_is_named_like_a_function(modules: Modules) -> None:
    """A program of two kernels has two, in files of their own."""
    benchmarks = modules.directory / "two"
    two = ANY_SIZE.replace("?", "64").partition("func.func @same")[0] + MATMUL
    modules("two", two, *NATIVE, f"--iree-hal-dump-executable-benchmarks-to={benchmarks}")
    texts = [path.read_text().strip().splitlines() for path in sorted(benchmarks.glob("*.mlir"))]
    first, second = (modules(f"benchmark-{n}", "\n".join(text), *NATIVE) for n, text in enumerate(texts))
    names = [one.name for path in (first, second) for one in functions_of(Path(path).read_bytes(), path)]
    assert len(names) == 2
    found = measured(IreeDevice(CPU, function=names[1]), second, second)
    assert found.kernel.name == names[1]
    with pytest.raises(InputError, match="it exports no function"):
        measured(IreeDevice(CPU, function=names[0]), second, second)


def test_what_a_module_exports(modules: Modules) -> None:
    path = Path(modules("sizes", ANY_SIZE, *INTERPRETED))
    functions = {one.name: one for one in functions_of(path.read_bytes(), "sizes.vmfb")}
    assert {name: (one.inputs, one.results) for name, one in functions.items()} == {
        "double": (("?xf32",), 1),
        "same": (("4xf16", "!i32"), 2),
    }


@pytest.mark.long
def test_inputs_are_asked_for_where_the_types_leave_them_open(modules: Modules) -> None:
    path = modules("sizes", ANY_SIZE, *INTERPRETED)
    with pytest.raises(InputError, match="it exports 2 functions") as several:
        measured(IreeDevice(CPU), path, path)
    assert several.value.hint == "--kernel names one of: double, same"
    with pytest.raises(InputError, match="double takes numbers, or inputs of any size"):
        measured(IreeDevice(CPU, function="double"), path, path)
    with pytest.raises(InputError, match="double takes 1 inputs, not 2"):
        measured(IreeDevice(CPU, function="double", inputs=("4xf32", "4xf32")), path, path)
    with pytest.raises(ToolchainError, match="iree-run-module"):
        measured(IreeDevice(CPU, function="double", inputs=("4x4xf32",)), path, path)
    with pytest.raises(InputError, match="same takes numbers") as number:
        measured(IreeDevice(CPU, function="same"), path, path)
    assert "4xf16, !i32" in number.value.hint
    for function, inputs in (("double", ("4096xf32",)), ("same", ("4xf16", "-5"))):
        found = measured(IreeDevice(CPU, function=function, inputs=inputs), path, path)
        assert found.sameness is Sameness.EQUAL
        assert found.workload == f"{function}({', '.join(inputs)})"


def test_codes_of_two_functions_are_refused(modules: Modules) -> None:
    with pytest.raises(InputError, match="their interfaces differ"):
        measured(IreeDevice(CPU), modules.native, modules("single", ANY_SIZE.partition("func.func @same")[0], *NATIVE))


def test_a_file_that_is_no_module_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.vmfb"
    path.write_bytes(b"no module at all")
    with pytest.raises(InputError, match="this is no module of IREE"):
        measured(IreeDevice(CPU), str(path), str(path))
    with pytest.raises(InputError, match="cannot be read"):
        measured(IreeDevice(CPU), str(tmp_path / "none.vmfb"), str(path))


@pytest.mark.parametrize("device", ["hip", "nonesuch"])
def test_a_device_that_is_not_there_is_one_error(device: str) -> None:
    tools = IreeTools.find(device)
    if device == "hip" and b"hip://" in run_tool([tools.directory / "iree-run-module", "--list_devices"]).stdout:
        pytest.skip("there is a GPU here")
    with pytest.raises(NoDeviceError, match=f"IREE has no device {device}"):
        IreeDevice(device)


def test_no_file_is_left_behind(modules: Modules) -> None:
    device = IreeDevice(CPU)
    loaded = device.load(device.subject(modules.native))
    directory = Path(loaded.flags[0].removeprefix("--module=")).parent
    assert len(list(directory.iterdir())) == 3
    device.close()
    assert not directory.exists()
