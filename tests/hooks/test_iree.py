"""``verilocc iree`` with the real iree-compile: proved objects in the .vmfb, kernels left alone, wrong input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from process_support import gone, lines_of
from support import HEARING, REPOSITORY, llc, long

import verilocc_mlir
from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.hooks import iree as hook
from verilocc_mlir.hooks.iree import compile_mlir, interface_differences
from verilocc_mlir.hooks.iree_compiler import VARIABLE, IreeCompiler, dump_flags, find_iree_compile, read_dispatches
from verilocc_mlir.hooks.iree_result import IreeResult, accounted
from verilocc_mlir.pipeline import native
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.store import Store
from verilocc_mlir.toolchain.descriptor import read_code_object

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed (Python 3.11 on Linux x86-64 has it)")

# What is compiled for all of them is compiled once.
EXAMPLE = REPOSITORY / "examples" / "iree_attention.mlir"
ADD = """
func.func @add(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %r = arith.addf %a, %b : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""
TWO = ADD + ADD.replace("@add", "@mul").replace("addf", "mulf").replace("f32", "f16")


@pytest.fixture(scope="module", params=["gfx942", *long("gfx1100")])
def example(request: pytest.FixtureRequest) -> IreeResult:
    """The example for one target of each family."""
    return compile_mlir(EXAMPLE, target=request.param, replace="always")


def test_every_kernel_of_the_example_is_proved_and_in_the_file(example: IreeResult) -> None:
    assert example.proved
    assert example.exit_code == 0
    assert len(example.kernels) == 2
    assert any("attention" in name for kernel in example.kernels for name in kernel.functions)
    for kernel in example.kernels:
        assert example.vmfb.count(kernel.code_object) == 1
        assert kernel.own not in example.vmfb
        assert read_code_object(kernel.code_object).machine == example.target
        assert interface_differences(kernel.code_object, kernel.own) == []
        assert "$vgpr" in kernel.after
        assert kernel.before
        assert kernel.before != kernel.after


def test_the_report_says_what_is_in_the_file(example: IreeResult) -> None:
    """LLVM's allocation of the same IR is taken where it is as cheap and spills less: that is a fallback."""
    data = json.loads(example.to_json())
    counts = data["counts"]
    assert counts.pop("ours") + counts.pop("with_fallback") == 2
    assert counts == {"kernels": 2, "proved": 2, "native": 0, "left": 0, "declined": 0}
    assert data["tool"]["iree"].startswith("3.")
    for kernel in data["kernels"]:
        assert kernel["status"] == "proved"
        assert kernel["obligations"] > 0
        assert kernel["report"]["input"]["path"] == kernel["executable"]
        assert next(iter(kernel["iree"].values()))["vgprs"] > 0


def test_the_kernels_are_compiled_as_iree_compiles_them(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(ADD)
    dump = tmp_path / "dump"
    flags = ["--iree-hal-target-device=hip", "--iree-rocm-target=gfx942", *dump_flags(dump)]
    find_iree_compile().run(tmp_path / "m.mlir", tmp_path / "m.vmfb", flags, stage="dump")
    (dispatch,) = read_dispatches(dump, 22)
    assert dispatch.source is not None
    assert dispatch.source.cpu == "gfx942"
    # The first is IREE's; the second is how LLVM 22 is told what later ones read from the module.
    assert dispatch.source.features == "-fma-mix-insts,+relaxed-buffer-oob-mode"
    assert dispatch.source.llc_options == ("-fp-contract=fast",)
    assert dispatch.source.opt_level == 3
    (newer,) = read_dispatches(dump, 24)
    assert newer.source is not None
    assert newer.source.features == "-fma-mix-insts"


@pytest.mark.long
def test_a_target_by_its_product_name_is_iree_s_business() -> None:
    result = compile_mlir(ADD, target="mi300x")
    assert result.proved
    assert read_code_object(result.kernels[0].code_object).machine == "gfx942"


@pytest.mark.long
def test_substituting_iree_s_own_objects_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what differs in our files are the code objects, and only they."""
    plain = tmp_path / "plain.vmfb"
    source = tmp_path / "module.mlir"
    source.write_text(TWO)
    flags = ["--iree-hal-target-device=hip", "--iree-rocm-target=gfx1201", "--iree-hal-link-executables=false"]
    find_iree_compile().run(source, plain, flags, stage="plain")
    unchanged = hook._kernel

    def own(dispatch: hook.Dispatch, result: hook.KernelResult | None, run: hook._Run) -> hook.IreeKernel:
        return replace(unchanged(dispatch, result, run), code_object=dispatch.own)

    monkeypatch.setattr(hook, "_kernel", own)
    assert compile_mlir(source, target="gfx1201").vmfb == plain.read_bytes()


@pytest.mark.long
def test_a_kernel_that_fails_is_left_as_iree_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(directory: Path, major: int) -> Sequence[hook.Dispatch]:
        first, second = read_dispatches(directory, major)
        assert first.source is not None
        # An intrinsic of a newer LLVM, as far as the llc at hand is concerned.
        text = (
            first.source.ir.replace(
                b"  ret void\n",
                b"  call void @llvm.amdgcn.verilocc.unheard.of()\n  ret void\n",
            )
            + b"\ndeclare void @llvm.amdgcn.verilocc.unheard.of()\n"
        )
        return replace(first, source=replace(first.source, ir=text)), second

    monkeypatch.setattr(hook, "read_dispatches", read)
    result = compile_mlir(TWO, target="gfx942")
    left, proved = result.kernels
    assert (left.ours, left.status) == (False, "native, proved")
    assert "does not know llvm.amdgcn.verilocc.unheard.of" in left.reason
    assert left.code_object == left.own
    assert left.own in result.vmfb
    assert proved.ours
    assert proved.code_object in result.vmfb
    assert result.exit_code == 0
    assert result.counts() == {
        "kernels": 2, "proved": 2, "ours": 1, "with_fallback": 0, "native": 1, "left": 0, "declined": 0,
    }  # fmt: skip


@pytest.mark.long
def test_a_call_that_leaves_the_kernel_is_left_as_iree_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(directory: Path, major: int) -> Sequence[hook.Dispatch]:
        (only,) = read_dispatches(directory, major)
        assert only.source is not None
        text = only.source.ir.replace(b"  ret void\n", b"  call void @elsewhere()\n  ret void\n")
        return (replace(only, source=replace(only.source, ir=text + b"\ndeclare void @elsewhere()\n")),)

    monkeypatch.setattr(hook, "read_dispatches", read)
    result = compile_mlir(ADD, target="gfx942")
    assert not result.kernels[0].ours
    assert "elsewhere" in result.kernels[0].reason
    assert result.kernels[0].own in result.vmfb


@pytest.mark.long
def test_a_kernel_with_another_interface_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(directory: Path, major: int) -> Sequence[hook.Dispatch]:
        (only,) = read_dispatches(directory, major)
        assert only.source is not None
        text = re.sub(
            rb'"amdgpu-flat-work-group-size"="\d+,\d+"', b'"amdgpu-flat-work-group-size"="32,32"', only.source.ir
        )
        text = re.sub(rb"!reqd_work_group_size !\d+", b"", text)
        return (replace(only, source=replace(only.source, ir=text)),)

    monkeypatch.setattr(hook, "read_dispatches", read)
    (kernel,) = compile_mlir(ADD, target="gfx942").kernels
    assert not kernel.ours
    assert "max_flat_workgroup_size" in kernel.reason


def test_an_executable_without_ir_is_left_alone(tmp_path: Path, example: IreeResult) -> None:
    (tmp_path / "module_main_dispatch_0_rocm_hsaco_fb.hsaco").write_bytes(example.kernels[0].own)
    (dispatch,) = read_dispatches(tmp_path, 22)
    assert dispatch.executable == "main_dispatch_0"
    assert dispatch.source is None
    assert "no LLVM IR" in dispatch.reason


def test_a_code_object_that_is_missing_or_foreign_is_noticed(example: IreeResult) -> None:
    wanted = {kernel.executable: kernel.code_object for kernel in example.kernels}
    assert accounted(example.vmfb, wanted) == []
    first = next(iter(wanted))
    flipped = bytearray(example.vmfb)
    flipped[example.vmfb.index(wanted[first]) + 700] ^= 1
    faults = accounted(bytes(flipped), wanted)
    assert faults[0] == f"the code object of {first} is not in the file"
    assert "is none of those that belong there" in faults[1]
    del wanted[first]
    assert len(accounted(example.vmfb, wanted)) == 1


@pytest.mark.long
def test_the_file_is_checked_before_it_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_substitute", lambda run, sources, kernels: b"no code object in here")
    with pytest.raises(ToolchainError, match="is not in the file"):
        compile_mlir(ADD, target="gfx942")


def test_a_module_without_kernels_has_nothing_to_prove() -> None:
    result = compile_mlir(
        "func.func @same(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }", target="gfx942"
    )
    assert result.kernels == ()
    assert result.exit_code == 0
    assert result.vmfb


@pytest.mark.long
def test_command_line_writes_file_report_and_temporaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out, report, temps = (tmp_path / name for name in ("add.mlir", "add.vmfb", "add.json", "temps"))
    source.write_text(ADD)
    code = run([
        "iree", str(source), "--iree-rocm-target=gfx90a", "-o", str(out), f"--report={report}", f"--save-temps={temps}",
        "--jobs=1", "--", "--iree-opt-level=O3",
    ])  # fmt: skip
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "1 of 1 kernels proved: 1 ours, found in the .vmfb byte for byte" in shown.out
    assert "[1/1] add_dispatch_0: proved" in shown.err
    assert json.loads(report.read_text())["flags"] == ["--iree-opt-level=O3"]
    assert {path.name for path in temps.iterdir()} == {
        f"add_dispatch_0.{suffix}" for suffix in ("hsaco", "iree.hsaco", "before.mir", "after.mir")
    }
    assert (temps / "add_dispatch_0.hsaco").read_bytes() in out.read_bytes()


@pytest.mark.long
def test_only_proved_writes_nothing_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tmp_path / "add.mlir", tmp_path / "add.vmfb"
    source.write_text(ADD)

    def refused(*_: object) -> NoReturn:
        raise ToolchainError("seeded")

    # IREE's own kernel, which stays, is not proved.
    monkeypatch.setattr(hook, "stopped_kernels", refused)
    command = ["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(out), "--replace=never", "--no-cache"]
    assert run([*command, "--only-proved"]) == 3
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("func.func @f() -> i32 {", [], "m.mlir:1:"),
        ("not MLIR", [], "iree-compile: custom op 'not' is unknown"),
        (ADD, ["--", "--iree-no-such-flag"], "iree-compile does not know --iree-no-such-flag"),
        (ADD, ["--", "--iree-hal-link-executables=true"], "--iree-hal-link-executables is set by verilocc itself"),
        (ADD, ["--iree=/no/such/program"], "/no/such/program is no program that can be run"),
    ],
)
def test_wrong_input_is_one_error(
    text: str, flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "m.mlir", tmp_path / "m.vmfb"
    source.write_text(text)
    assert run(["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(out), "-q", *flags]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("error:") == 1
    assert not out.exists()


def test_an_unknown_target_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gfx666"):
        compile_mlir(ADD, target="gfx666")
    with pytest.raises(InputError, match="no such file"):
        compile_mlir(tmp_path / "none.mlir", target="gfx942")


@pytest.mark.long
def test_what_stays_is_proved_as_iree_allocated_it() -> None:
    """And is no reason for another exit code than 0: the report has the verdict on it."""
    result = compile_mlir(ADD, target="gfx942", replace="never")
    (kernel,) = result.kernels
    assert (kernel.ours, kernel.status, result.exit_code) == (False, "native, proved", 0)
    assert kernel.code_object == kernel.own
    (row,) = json.loads(result.to_json())["kernels"]
    assert row["native"] == {"outcome": "proved", "phases": 2, "obligations": row["obligations"], "reason": ""}
    assert row["obligations"] > 0


@pytest.mark.long
def test_what_nobody_proves_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise ToolchainError("seeded")

    monkeypatch.setattr(hook, "stopped_kernels", refused)
    result = compile_mlir(ADD, target="gfx942", replace="never", cache=False)
    assert (result.kernels[0].status, result.exit_code) == ("declined", 3)
    assert str(result.kernels[0].native) == "native, unknown: seeded"


SUM = """
func.func @sum(%a: tensor<64x4096xf16>) -> tensor<64xf16> {
  %zero = arith.constant 0.0 : f16
  %empty = tensor.empty() : tensor<64xf16>
  %init = linalg.fill ins(%zero : f16) outs(%empty : tensor<64xf16>) -> tensor<64xf16>
  %r = linalg.reduce { arith.addf } ins(%a : tensor<64x4096xf16>) outs(%init : tensor<64xf16>) dimensions = [1]
  return %r : tensor<64xf16>
}
"""


@pytest.mark.long
def test_irees_16_bit_registers_on_gfx12_are_stated_in_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies a scalar into half of a VGPR: what that writes depends on a feature that IREE's LLVM has by default."""
    result = compile_mlir(SUM, target="gfx1201", replace="never", cache=False)
    assert (result.kernels[0].status, result.exit_code) == ("native, proved", 0)
    monkeypatch.setattr(native, "has_true16", lambda _: False)
    unstated = compile_mlir(SUM, target="gfx1201", replace="never", cache=False)
    assert (unstated.kernels[0].status, unstated.exit_code) == ("declined", 3)
    assert "registers of different width" in str(unstated.kernels[0].native)


def test_without_iree_the_error_names_the_extra(tmp_path: Path) -> None:
    blocked = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('iree', 'torch', 'torch_mlir', 'triton', 'mlir'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from verilocc_mlir.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    (tmp_path / "m.mlir").write_text(ADD)
    command = [sys.executable, "-c", blocked, "iree", "m.mlir", "--iree-rocm-target=gfx942", "-o", "m.vmfb"]
    environment = {k: v for k, v in os.environ.items() if k != VARIABLE} | {
        "PATH": "/usr/lib/llvm-22/bin",
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'verilocc-mlir[iree]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_slow_iree_compile_is_timed_out(tmp_path: Path) -> None:
    slow = tmp_path / "iree-compile"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(ToolchainError, match="did not finish within"):
        compile_mlir(ADD, target="gfx942", iree=IreeCompiler(slow, seconds=0.2))


@pytest.mark.parametrize("stage", long("iree-compile", "llc"))
def test_interruption_leaves_nothing(stage: str, tmp_path: Path) -> None:
    started, out = tmp_path / "started", tmp_path / "out"
    out.mkdir()
    slow = tmp_path / "tool" / stage
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) exec {_real(stage)} "$@";; esac\necho $$ >> {started}\nexec sleep 600\n'
    )
    slow.chmod(0o755)
    variable = VARIABLE if stage == "iree-compile" else "VERILOCC_LLC"
    (tmp_path / "m.mlir").write_text(TWO)
    running = subprocess.Popen(
        [*HEARING, sys.executable, "-m", "verilocc_mlir.cli.main", "iree", str(tmp_path / "m.mlir"),
         "--iree-rocm-target=gfx942", "-o", str(out / "m.vmfb"), "--jobs=2"],
        cwd=REPOSITORY,
        env={**os.environ, variable: str(slow), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    lines_of(started)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(out.iterdir()) == []
    assert not list(tmp_path.glob("verilocc-*"))
    for process in started.read_text().split():
        assert gone(int(process))


def _real(stage: str) -> str:

    return str(find_iree_compile().path) if stage == "iree-compile" else llc()


@pytest.mark.long
def test_settings_reach_the_kernels() -> None:
    result = compile_mlir(ADD, target="gfx942", settings=Settings(allocator="llvm"))
    assert {phase["allocator"] for kernel in result.kernels for phase in kernel.phases} == {"llvm"}


@pytest.mark.long
def test_the_second_time_a_module_is_known_and_what_is_damaged_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, source = tmp_path / "cache", tmp_path / "two.mlir"
    source.write_text(TWO)
    first = compile_mlir(source, target="gfx942", cache=cache, replace="always")
    runs: list[str] = []
    run_unchanged = IreeCompiler.run

    def counted(self: IreeCompiler, *args: Any, stage: str, **more: Any) -> Any:
        runs.append(stage)
        return run_unchanged(self, *args, stage=stage, **more)

    monkeypatch.setattr(IreeCompiler, "run", counted)
    again = compile_mlir(source, target="gfx942", cache=cache, replace="always")
    assert runs == []
    assert again.vmfb == first.vmfb
    assert again.kernels == first.kernels
    # Another policy is another result; its kernels are known all the same.
    lines: list[str] = []
    never = compile_mlir(source, target="gfx942", cache=cache, replace="never", progress=lines.append)
    assert [k.status for k in never.kernels] == ["native, proved", "native, proved"]
    assert compile_mlir(source, target="gfx942", cache=cache, replace="never").kernels == never.kernels
    assert sum("known" in line for line in lines) == 2
    # Not one byte of what is kept may change unnoticed.
    for path in (p for p in cache.rglob("*") if p.is_file()):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert compile_mlir(source, target="gfx942", cache=cache, replace="always").vmfb == first.vmfb
    assert runs.count("dump") == 2


@pytest.mark.long
def test_an_entry_with_other_content_is_as_good_as_none(tmp_path: Path) -> None:
    source, cache = tmp_path / "add.mlir", tmp_path / "cache"
    source.write_text(ADD)
    first = compile_mlir(source, target="gfx942", cache=cache)
    store = Store(cache)
    keys = [path.name for path in cache.rglob("*") if path.is_file()]
    assert len(keys) == 2  # the kernel and the module
    for key in keys:
        for parts in ({}, {"module.vmfb": b"", "kernels.json": b"[{}]"}, {"result": b"", "report.json": b"{"}):
            store.put(key, parts)
            assert compile_mlir(source, target="gfx942", cache=cache).vmfb == first.vmfb


@pytest.mark.long
def test_nothing_is_kept_if_nobody_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_mlir(ADD, target="gfx942", cache=False)
    kept = [path.relative_to(tmp_path / "verilocc") for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in kept if path.parts[0] != "tools"] == []  # what llc printed for --version is no result


@pytest.mark.long
def test_the_sources_give_the_file_that_one_run_gives(tmp_path: Path) -> None:
    """iree-compile's work in two parts: the same bytes, weights in f16 included."""
    weights = (
        """func.func @f(%a: tensor<8x32xf16>) -> tensor<8x32xf16> {
  %w = arith.constant dense_resource<w> : tensor<8x32xf16>
  %r = arith.addf %a, %w : tensor<8x32xf16>
  return %r : tensor<8x32xf16>
}
{-# dialect_resources: { builtin: { w: "0x02000000"""
        + "003C" * 256
        + """" } } #-}
"""
    )
    source = tmp_path / "module.mlir"
    source.write_text(weights)
    flags = ["--iree-hal-target-device=hip", "--iree-rocm-target=gfx942"]
    iree = find_iree_compile()
    iree.run(source, tmp_path / "plain.vmfb", [*flags, hook.LINK], stage="plain")
    iree.run(source, tmp_path / "sources.mlir", [*flags, *hook.CONFIGURED], stage="configured")
    iree.run(
        tmp_path / "sources.mlir", tmp_path / "parts.vmfb", [*flags, *hook.FROM_CONFIGURED, hook.LINK], stage="rest"
    )
    assert (tmp_path / "parts.vmfb").read_bytes() == (tmp_path / "plain.vmfb").read_bytes()


@pytest.mark.long
def test_pages_of_the_module_and_its_kernels(tmp_path: Path) -> None:
    source = tmp_path / "two.mlir"
    source.write_text(TWO)
    pages = tmp_path / "pages"
    arguments = ["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(tmp_path / "m.vmfb"), f"--html={pages}"]
    assert run([*arguments, "--replace=always", "-q"]) == 0
    index = (pages / "index.html").read_text()
    links = re.findall(r'href="(kernel-\d+\.html)"', index)
    assert links == ["kernel-0.html", "kernel-1.html"]
    assert index.count("ours, proved") == 2
    assert all("<!DOCTYPE html>" in (pages / link).read_text() for link in links)
    # From the cache the pages are the same but for the time that was spent.
    assert run([*arguments, "--replace=always", "-q"]) == 0
    assert re.findall(r'href="(kernel-\d+\.html)"', (pages / "index.html").read_text()) == links


@pytest.mark.long
def test_what_the_llc_at_hand_does_not_read_tritons_llvm_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix products for gfx950 copy asynchronously, by intrinsics that LLVM 22 lacks."""
    pytest.importorskip("triton", reason="Triton is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    linear = torch.nn.Linear(4096, 4096).half().eval()

    def compiled(**more: Any) -> hook.IreeKernel:
        inputs = (torch.zeros(64, 4096).half(),)
        (only,) = verilocc_mlir.compile(linear, inputs, target="gfx950", replace="always", cache=False, **more).kernels
        return only

    said: list[str] = []
    kernel = compiled(progress=said.append)
    assert kernel.ours
    assert "of Triton" in kernel.report["tool"]["llvm"]
    assert any(line.startswith("1 again by LLVM version 24") for line in said)
    monkeypatch.setenv("VERILOCC_LLVM", str(Path(llc()).resolve().parent))
    named = compiled()
    assert (named.ours, named.status) == (False, "native, proved")
