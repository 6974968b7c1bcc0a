"""The Triton hook with Triton and the real LLVM: proved kernels, equal metadata, nothing lost where it gives way."""

from __future__ import annotations

import gc
import importlib
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support import REPOSITORY, long

triton: Any = pytest.importorskip("triton", reason="Triton is not installed: pip install 'verilocc-mlir[triton]'")
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION is unset")

sys.path.insert(0, str(REPOSITORY / "examples"))
sys.path.insert(0, str(REPOSITORY / "benchmarks"))
from verilocc_mlir.allocators import registry  # noqa: E402
from verilocc_mlir.errors import InputError, UnsupportedError  # noqa: E402
from verilocc_mlir.hooks import triton as hook  # noqa: E402
from verilocc_mlir.hooks.triton import stages as hook_stages  # noqa: E402
from verilocc_mlir.pipeline.options import with_options  # noqa: E402
from verilocc_mlir.problem.model import AllocationProblem, Proposal  # noqa: E402
from verilocc_mlir.toolchain.descriptor import (  # noqa: E402
    Cause,
    compare_metadata,
    read_code_object,
)

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
backends = importlib.import_module("triton.backends.compiler")
triton_builders = importlib.import_module("triton_builders")
gpu, build_sum, scaled_sum = triton_builders.gpu, triton_builders.build_sum, triton_builders.scaled_sum
triton_kernels = importlib.import_module("triton_kernels")
knobs = triton.knobs
tl: Any = triton.language


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of its own for every test, no hook before and after, and IR that LLVM 22 knows."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "0")
    hook.clear_reports()
    yield
    hook.uninstall()


def smallest(kernel: str) -> Any:
    """The configuration of a kernel that takes the fewest registers."""
    found = [v for v in triton_kernels.variants() if v.kernel.fn.__name__ == kernel]
    sizes = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "HEAD")
    return min(found, key=lambda v: math.prod(v.constants.get(s, 1) for s in sizes) / v.options["num_warps"])


def build(variant: Any, target: str, **options: Any) -> Any:
    return triton.compile(variant.source(), target=gpu(target), options={**variant.options, **options})


def unexplained(ours: Any, theirs: Any) -> list[str]:
    """Differences of two compiled kernels but for register counts, spills and their scratch; the triple's spelling."""
    fields = {*ours.metadata._fields, *theirs.metadata._fields} - {"hash", "verilocc"}
    found = [f for f in fields if getattr(ours.metadata, f) != getattr(theirs.metadata, f)]
    a, b = read_code_object(ours.kernel), read_code_object(theirs.kernel)
    assert [t.rsplit("-", 1)[-1] for t in (a.target, b.target)] == [ours.metadata.target.arch] * 2
    found += [
        str(d)
        for d in compare_metadata(a, b)
        if d.cause not in (Cause.REGISTERS, Cause.STACK) and "amdhsa.target" not in str(d)
    ]
    return found


@pytest.mark.parametrize("target", ["gfx942", *long(*(t for t in TARGETS if t != "gfx942"))])
def test_kernels_are_proved_and_their_metadata_is_tritons(target: str) -> None:
    variant = smallest("matmul")
    theirs = build(variant, target)
    assert not hasattr(theirs.metadata, "verilocc")
    hook.install(replace="always")
    ours = build(variant, target)
    (record,) = hook.reports()
    assert record.proved, record
    assert (record.name, record.target, record.hash) == ("matmul", target, ours.hash)
    assert record.phases == {"sgpr": "deterministic", "vgpr": "deterministic"}
    assert record.fallbacks == {}
    assert ours.hash != theirs.hash
    assert unexplained(ours, theirs) == []
    # The assembly beside it is the one of the code object.
    counts = read_code_object(ours.kernel).kernels["matmul"]
    assert record.registers
    assert record.registers.vgprs == counts.vgpr_count
    assert re.findall(r"\.vgpr_count: +(\d+)", ours.asm["amdgcn"]) == [str(counts.vgpr_count)]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "target"), [("attention_forward", "gfx90a"), ("attention_backward", "gfx1201")])
def test_attention_goes_through_too(kernel: str, target: str) -> None:
    variant = smallest(kernel)
    theirs = build(variant, target)
    hook.install(replace="always")
    ours = build(variant, target)
    (record,) = hook.reports()
    assert record.proved, record
    assert unexplained(ours, theirs) == []


@pytest.mark.long
def test_a_kernel_from_the_cache_still_says_what_it_is() -> None:
    hook.install(replace="always")
    first = build_sum()
    hook.clear_reports()
    again = build_sum()
    assert hook.reports() == ()
    assert again.kernel == first.kernel
    assert again.metadata.verilocc["kind"] == "proved"
    assert again.metadata.verilocc["phases"] == {"sgpr": "deterministic", "vgpr": "deterministic"}


def test_settings_are_part_of_tritons_key() -> None:
    plain = build_sum()
    hook.install(replace="always")
    proved = build_sum()
    hook.install(allocator="llvm")
    audited = build_sum()
    hook.uninstall()
    assert len({plain.hash, proved.hash, audited.hash}) == 3
    assert build_sum().hash == plain.hash
    assert audited.metadata.verilocc["phases"] == {"sgpr": "llvm", "vgpr": "llvm"}
    key, digest = "", ""
    for allocator in ("deterministic", "llvm"):
        hook.install(allocator=allocator)
        assert knobs.runtime.add_stages_inspection_hook() != (key, digest)
        key, digest = knobs.runtime.add_stages_inspection_hook()
        for part in ("verilocc 0.", f"allocator {allocator}", "z3 ", "LLVM version"):
            assert part in key


def test_only_the_targets_asked_for() -> None:
    hook.install(["gfx942", "gfx1100"])
    build_sum("gfx90a")
    assert hook.reports() == ()
    build_sum("gfx1100")
    assert [r.target for r in hook.reports()] == ["gfx1100"]
    with pytest.raises(InputError, match="gfx000"):
        hook.install("gfx000")
    with pytest.raises(InputError, match="no allocator called"):
        hook.install(allocator="nobody")


@pytest.mark.long
def test_an_intrinsic_that_llvm_lacks_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    variant = smallest("matmul")
    plain = build(variant, "gfx950", num_stages=2)
    assert "asyncmark" in plain.asm["llir"]
    hook.install(replace="always", toolchain="llc")
    kernel = build(variant, "gfx950", num_stages=2)
    (record,) = hook.reports()
    assert record.kind in ("unsupported", "input")
    assert "asyncmark" in record.reason
    assert kernel.metadata.verilocc["reason"] == record.reason
    assert kernel.kernel == plain.kernel
    assert kernel.asm["amdgcn"] == plain.asm["amdgcn"]
    # Triton's own LLVM has it, and is what the hook takes where no other is asked for.
    hook.install(replace="always")
    assert build(variant, "gfx950", num_stages=2).metadata.verilocc["kind"] == "proved"


@pytest.mark.parametrize("toolchain", ["auto", *long("llc")])
def test_a_wish_to_tritons_own_allocator_is_no_reason_to_leave_a_kernel_to_it(toolchain: str) -> None:
    """Of the five targets gfx1250 alone has an option that Triton always gives to its LLVM."""
    hook.install(replace="always", toolchain=toolchain)
    assert build_sum("gfx1250").metadata.verilocc["kind"] == "proved"


def test_the_llvm_is_tritons_own_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken() -> str:
        return knobs.runtime.add_stages_inspection_hook.settings.toolchain.value

    hook.install()
    assert taken() == "triton"
    hook.install(toolchain="llc")
    assert taken() == "llc"
    monkeypatch.setenv("VERILOCC_LLVM", "/usr/lib/llvm-22/bin")
    hook.install()
    assert taken() == "auto"


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "value"),
    [("DISABLE_LLVM_OPT", "1"), ("LLVM_IR_ENABLE_DUMP", "1"), ("TRITON_DUMP_MIR", "/nowhere")],
)
def test_options_that_only_tritons_llvm_honours_pass_through(variable: str, value: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import test_triton as t\n"
        "t.hook.install(replace='always')\n"
        "from verilocc_mlir.hooks.triton.stages import wanted\n"
        "backend = t.triton.compiler.make_backend(t.gpu('gfx942'))\n"
        "try:\n"
        "    wanted(backend, backend.parse_options({}), t.knobs)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(Path(__file__).parent), str(REPOSITORY / "tests")],
        env={**os.environ, variable: value},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"PassThrough {variable}")


def test_passes_switched_off_are_switched_off_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hook.install(replace="always")
    monkeypatch.setenv("DISABLE_LLVM_OPT", "disable-lsr")
    build_sum()
    monkeypatch.setenv("DISABLE_LLVM_OPT", "no-such-pass")
    runs: list[Any] = []
    monkeypatch.setattr(hook_stages, "compile_module", lambda *a: runs.append(a) or pytest.fail("stop"))
    with pytest.raises(BaseException, match=r"stop|no-such-pass"):
        build_sum()
    (record,) = [r for r in hook.reports() if r.proved]
    assert record.report
    assert runs[0][2].llc_options == ("-no-such-pass=true",)


@pytest.mark.long
@pytest.mark.parametrize("fusion", [True, False])
def test_fusion_is_as_the_options_say(fusion: bool) -> None:
    hook.install(replace="always")
    kernel = build_sum(enable_fp_fusion=fusion)
    assert kernel.metadata.verilocc["kind"] == "proved"
    assert bool(re.search(r"v_(?:pk_)?fma", kernel.asm["amdgcn"])) == fusion


@pytest.mark.long
def test_attributes_of_the_options_count() -> None:
    hook.install(replace="always")
    build_sum(block=2048, num_warps=1)
    build_sum(block=2048, num_warps=1, waves_per_eu=8)
    free, bound = hook.reports()
    assert free.registers
    assert bound.registers
    assert bound.registers.waves == 8
    assert bound.registers.vgprs <= 64 < free.registers.vgprs


def test_what_cannot_be_proved_is_tritons(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(registry.DeterministicAllocator):
        """Puts everything into the same register."""

        name = "broken"

        def allocate(self, problem: AllocationProblem) -> Proposal:
            right = super().allocate(problem)
            return replace(right, registers=(right.registers[0],) * len(right.registers))

    monkeypatch.setitem(registry._FACTORIES, "broken", lambda seconds: Broken())
    plain = build_sum()
    hook.install(allocator="broken", fallback=False)
    kernel = build_sum()
    (record,) = hook.reports()
    assert record.kind == "not proved"
    assert "broken: refuted" in record.reason
    assert kernel.kernel == plain.kernel
    hook.install(allocator="broken")
    build_sum()
    assert hook.reports()[-1].proved
    assert hook.reports()[-1].phases == {"sgpr": "llvm", "vgpr": "llvm"}
    assert set(hook.reports()[-1].fallbacks or {}) == {"sgpr", "vgpr"}


def test_a_fault_of_ours_does_not_stop_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(*_: Any) -> Any:
        raise AssertionError("out of luck")

    plain = build_sum()
    monkeypatch.setattr(hook_stages, "compile_module", fault)
    hook.install(replace="always")
    kernel = build_sum()
    assert kernel.kernel == plain.kernel
    (record,) = hook.reports()
    assert (record.kind, record.reason) == ("internal", "AssertionError: out of luck")
    assert "please report it" in caplog.text


def test_assembly_put_in_between_is_assembled_by_triton() -> None:
    hook.install(replace="always")
    ours = build_sum()
    backend = triton.compiler.make_backend(gpu("gfx942"))
    stages: dict[str, Any] = {}
    options = backend.parse_options({"enable_fp_fusion": True})
    backend.add_stages(stages, options, backends.Language.TRITON)
    metadata: dict[str, Any] = {"hash": "h"}
    assembly = stages["amdgcn"](ours.asm["llir"], metadata)
    assert metadata["name"] == "scaled_sum"
    assert stages["hsaco"](assembly, metadata) == ours.kernel
    changed = assembly.replace("\ts_endpgm", "\ts_nop 0\n\ts_endpgm")
    assert metadata["verilocc"]["kind"] == "proved"
    other = stages["hsaco"](changed, metadata)
    assert other != ours.kernel
    assert read_code_object(other).kernels["scaled_sum"]
    assert metadata["verilocc"]["kind"] == "option"
    assert "unproved" in metadata["verilocc"]["reason"]


def test_a_module_with_two_kernels_is_left_to_triton() -> None:
    hook.install(replace="always")
    backend = triton.compiler.make_backend(gpu("gfx942"))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options({}), backends.Language.TRITON)
    two = "".join(f"define amdgpu_kernel void @{name}() {{\n  ret void\n}}\n" for name in "ab")
    with pytest.raises(AssertionError):
        stages["amdgcn"](two, {})
    assert "defines 2 kernels" in hook.reports()[0].reason


def test_an_external_call_is_left_to_triton() -> None:
    hook.install(replace="always")
    backend = triton.compiler.make_backend(gpu("gfx942"))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options({}), backends.Language.TRITON)
    source = "declare void @elsewhere()\ndefine amdgpu_kernel void @k() {\n  call void @elsewhere()\n  ret void\n}\n"
    metadata: dict[str, Any] = {}
    assert "elsewhere" in stages["amdgcn"](source, metadata)
    (record,) = hook.reports()
    assert not record.ours
    assert "elsewhere" in record.reason


def test_a_hook_that_was_there_before_still_works() -> None:
    seen: list[str] = []

    def before(_: Any = None, stages: Any = None, *more: Any) -> Any:
        if stages is None:
            return "theirs", "1234"
        seen.extend(stages)
        return None

    knobs.runtime.add_stages_inspection_hook = before
    try:
        hook.install(replace="always")
        key, _ = knobs.runtime.add_stages_inspection_hook()
        assert key.startswith("theirs; verilocc")
        assert build_sum().metadata.verilocc["kind"] == "proved"
        assert "hsaco" in seen
        hook.uninstall()
        assert knobs.runtime.add_stages_inspection_hook is before
        hook.install(replace="always")
        ours = knobs.runtime.add_stages_inspection_hook
        knobs.runtime.add_stages_inspection_hook = before
        with pytest.raises(UnsupportedError, match="another hook"):
            hook.uninstall()
        knobs.runtime.add_stages_inspection_hook = ours
        hook.uninstall()
    finally:
        knobs.runtime.add_stages_inspection_hook = None


@pytest.mark.long
def test_kernels_compile_in_several_threads_and_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    hook.install(replace="always", toolchain="llc")
    # Triton parses a kernel each time, and CPython 3.11 before 3.11.8 must not do so in two threads at once
    # (github.com/python/cpython/issues/106905).
    parse, one_at_a_time = triton.runtime.jit.JITFunction.parse, threading.Lock()

    def parsed(function: Any) -> Any:
        with one_at_a_time:
            return parse(function)

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "parse", parsed)
    failing = smallest("matmul")
    jobs = [lambda: build(failing, "gfx950", num_stages=2)]
    for block in (64, 128, 256, 512):
        jobs.append(lambda block=block: build_sum("gfx942", block))
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(lambda job: job(), jobs))
    assert [k.metadata.verilocc["kind"] == "proved" for k in kernels] == [False, True, True, True, True]
    assert len(hook.reports()) == 5


class FakeDriver:
    """What Triton's launcher asks of a GPU before it compiles; this machine may have none."""

    def __init__(self, target: str) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return gpu(self.target)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.mark.long
def test_autotuning_warms_up_proved_kernels() -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((128, 1), (256, 2), (512, 4))]
    tuned = triton.autotune(configs=configs, key=["size"], do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])(scaled_sum)
    hook.install("gfx1100")
    driver = triton.runtime.driver
    driver.set_active(FakeDriver("gfx1100"))
    try:
        pointer = triton.runtime.jit.MockTensor(tl.float32)
        compiled = tuned.warmup(pointer, pointer, 1000, 2.0, grid=(1,))
    finally:
        driver._active = None
    assert len(compiled) == len(configs)
    assert [k.metadata.num_warps for k in compiled] == [1, 2, 4]
    assert [r.proved for r in hook.reports()] == [True] * 3


def entry_points(site: Path) -> None:
    """What ``pip install`` writes for the project's entry points."""
    project = (REPOSITORY / "pyproject.toml").read_text()
    section = re.search(r'^\[project\.entry-points\."triton\.backends"\]\n((?:\w.*\n)+)', project, re.MULTILINE)
    assert section
    info = site / "verilocc_mlir-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verilocc-mlir\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[triton.backends]\n" + section[1].replace('"', ""))


PROGRAM = """
import triton, triton.language as tl, sys
from triton.backends.compiler import GPUTarget

@triton.jit
def twice(p, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(p + o, tl.load(p + o) * 2)

if __name__ == "__main__":
    source = triton.compiler.ASTSource(twice, {"p": "*fp32", "B": "constexpr"}, {"B": 64})
    kernel = triton.compile(source, target=GPUTarget("hip", "gfx942", 64))
    print(getattr(kernel.metadata, "verilocc", {}).get("kind", "not ours"), *sys.argv[1:])
"""


def run(arguments: list[str], site: Path, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(site), str(REPOSITORY)])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **env},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_the_variable_installs_it_in_any_program(tmp_path: Path) -> None:
    entry_points(tmp_path / "site")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    asked = run([str(script), "a", "b"], tmp_path / "site", VERILOCC_TRITON="1")
    assert asked.stdout == "proved a b\n"


@pytest.mark.long
def test_where_the_variable_does_not_ask_for_it_it_is_not_installed(tmp_path: Path) -> None:
    entry_points(tmp_path / "site")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    assert run([str(script)], tmp_path / "site").stdout == "not ours\n"
    assert run([str(script)], tmp_path / "site", VERILOCC_TRITON="gfx1100").stdout == "not ours\n"
    # Whatever is wrong with it, `import triton` and the program work.
    broken = run([str(script)], tmp_path / "site", VERILOCC_TRITON="1", VERILOCC_LLVM="/nowhere")
    assert broken.stdout == "not ours\n"
    assert "VERILOCC_TRITON is set, but kernels are not proved" in broken.stderr


@pytest.mark.long
def test_a_program_runs_under_the_module(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = run(["-m", "verilocc_mlir.hooks.triton", str(script), "x"], tmp_path / "site")
    assert done.stdout == "proved x\n"
    assert "verilocc: twice for gfx942: proved (SGPR deterministic, VGPR deterministic)" in done.stderr
    assert run(["-m", "verilocc_mlir.hooks.triton"], tmp_path / "site").returncode != 0


@pytest.mark.long
def test_the_example_runs(tmp_path: Path) -> None:
    done = run([str(REPOSITORY / "examples" / "triton_matmul.py"), "gfx90a"], tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("warps: proved" in line and "'vgpr': 'deterministic'" in line for line in lines)


def test_every_option_reaches_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"effort": "best", "spill": False, "solver_seconds": 5, "llc": ["-misched=si"], "server": "unix:/run/s"}
    hook.install("gfx942", replace="never", **given)
    settings = knobs.runtime.add_stages_inspection_hook.settings
    assert settings == with_options(
        None,
        {"effort": "best", "spill": "false", "solver_seconds": "5", "llc": "-misched=si", "server": "unix:/run/s"}
        | {"toolchain": "triton"},
    )
    with pytest.raises(InputError, match="no option 'speed'"):
        hook.install(speed="high")
    with pytest.raises(InputError, match="replace=sometimes"):
        hook.install(replace="sometimes")


@pytest.mark.long
def test_without_always_tritons_own_stays_where_ours_is_worse_or_not_wanted() -> None:
    hook.install(replace="always")
    ours = build_sum("gfx942", 128)
    hook.install(replace="never")
    own = build_sum("gfx942", 128)
    kept = own.metadata.verilocc
    assert (kept["kind"], kept["reason"]) == ("declined", "ours is proved, but: replace=never")
    assert (kept["status"], kept["native"]["phases"]) == ("native, proved", 2)
    assert set(kept["modelled"]["ours"]) == set(kept["modelled"]["theirs"]) == {"scaled_sum"}
    hook.uninstall()
    plain = build_sum("gfx942", 128)
    assert own.asm["hsaco"] == plain.asm["hsaco"] != ours.asm["hsaco"]
    hook.install()
    better = build_sum("gfx942", 128)
    sides = better.metadata.verilocc["modelled"]
    dearer = sides["ours"]["scaled_sum"]["cycles"] > sides["theirs"]["scaled_sum"]["cycles"]
    assert better.asm["hsaco"] == (plain if dearer else ours).asm["hsaco"]
    assert better.metadata.verilocc["kind"] == ("declined" if dearer else "proved")


@pytest.mark.long
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_grouped_matmul_of_addresses_in_memory_is_proved(target: str) -> None:
    """Triton's tutorial 08: its loops and copies were refused for gfx1100 once."""
    call = dict(importlib.import_module("triton_tutorials").calls())["08 grouped matmul 64x64x32"]
    hook.install(replace="always")
    triton.compile(call.source(), target=gpu(target), options=dict(call.options))
    (record,) = hook.reports()
    assert record.proved, record


@pytest.fixture
def device() -> Iterator[Any]:
    before = triton.runtime.driver._active
    there = triton_builders.Device("gfx942")
    triton.runtime.driver.set_active(there.driver)
    yield there
    gc.collect()  # kernels unload what they loaded
    triton.runtime.driver._active = before


def tuned_sum(device: Any) -> list[bytes]:
    """What was loaded, in order, by an autotuner over three blocks of which the second is the fastest, and a launch."""
    torch = pytest.importorskip("torch")
    timings = iter([3.0, 1.0, 2.0])
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]

    def timed(launch: Any, quantiles: Any) -> list[float]:
        launch()
        return [next(timings)] * len(quantiles)

    tuner = triton.autotune(configs, key=["size"], do_bench=timed)(triton.jit(scaled_sum.fn))
    x = torch.empty(1024)
    device.loaded.clear()
    tuner[(4,)](x, x, 1024, 2.0)
    assert tuner.best_config.kwargs == {"BLOCK": 128}
    return device.loaded


@pytest.mark.long
def test_configurations_are_timed_as_tritons_and_the_chosen_one_is_proved(device: Any) -> None:
    alone = tuned_sum(device)[:3]
    hook.install(replace="always")
    loaded = tuned_sum(device)
    assert loaded[:3] == alone
    (record,) = hook.reports()
    assert record.proved
    assert len(loaded) == 4
    assert loaded[3] != alone[1]
    assert list(read_code_object(loaded[3]).kernels) == list(read_code_object(alone[1]).kernels) == ["scaled_sum"]


@pytest.mark.long
def test_autotuning_ours_proves_every_configuration(device: Any) -> None:
    alone = tuned_sum(device)[:3]
    hook.install(replace="always", autotune="ours")
    loaded = tuned_sum(device)
    assert len(loaded) == 3  # the chosen one is the one that was timed
    assert [record.proved for record in hook.reports()] == [True, True, True]
    assert not set(loaded) & set(alone)
    hook.uninstall()
    assert tuned_sum(device)[:3] == alone
    with pytest.raises(InputError, match="autotune=mine"):
        hook.install(autotune="mine")
