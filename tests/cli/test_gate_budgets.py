"""Budgets in place of a baseline, bundles read as they are, and registers that a kernel does not declare."""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import pytest
import zstandard
from support import TEST_DATA, llc
from toolchain_support import compiler

from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import ExitCode, InputError
from verilocc_mlir.toolchain.bundle import is_bundle, unbundled

KERNELS = """
define amdgpu_kernel void @attn_small(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @gemm(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
"""
TOO_FEW = TEST_DATA / "inputs" / "declares_too_few_vgprs.s"
_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


@lru_cache(maxsize=None)
def code(cpu: str) -> bytes:
    staged = compiler(cpu)
    return staged.link(staged.direct(KERNELS))


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.hsaco"
    path.write_bytes(code("gfx942"))
    return path


def gate(paths: list[Path], budgets: str, *more: str) -> int:
    file = paths[0].with_name("budgets.txt")
    file.write_text(budgets)
    return run(["gate", *map(str, paths), f"--budgets={file}", *more])


@pytest.mark.parametrize(
    ("budgets", "status", "said"),
    [
        ("* vgprs<=64 vgpr_spills<=0 waves>=4\n", 0, "2 kernels: 2 same"),
        ("attn_* vgprs<=1\ngemm waves>=1", 4, "attn_small for gfx942: VGPRs 2, the budget is at most 1 (worse)"),
        ("# attention\n\nattn_*@gfx942 waves>=9", 4, "attn_small for gfx942: waves 8, the budget is at least 9"),
        ("attn_*@gfx1100 waves>=9", 0, "budgets.txt:1: no kernel is called attn_* for gfx1100"),
        ("* proved", 4, "gemm for gfx942: verdict not stated, the budget is proved"),
        ("* vgprs<=64\nge* vgprs<=1", 4, "2 kernels: 1 worse, 1 same"),
    ],
)
def test_every_line_that_is_of_a_kernel_counts(
    kernels: Path, budgets: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate([kernels], budgets) == status
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        ("# none", "there is no budget in it"),
        ("*", "budgets.txt:1: * has no limit"),
        ("* vgprs>=3", "'vgprs>=3' is no limit"),
        ("\n* waves<=3", "budgets.txt:2: 'waves<=3' is no limit"),
        ("* speed<=3", "'speed<=3' is no limit"),
    ],
)
def test_a_line_that_is_none_is_one_error(
    kernels: Path, budgets: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate([kernels], budgets) == ExitCode.BAD_INPUT
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("error:") == 1


def test_budgets_and_a_baseline_go_together(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = f"--baseline={kernels.with_name('base.json')}"
    assert gate([kernels], "* vgprs<=64", baseline, "--update") == 0
    assert gate([kernels], "* vgprs<=64", baseline) == 0
    assert gate([kernels], "gemm vgprs<=1", baseline) == 4
    capsys.readouterr()
    assert run(["gate", str(kernels)]) == ExitCode.BAD_INPUT
    assert "give --baseline=FILE or --budgets=FILE" in capsys.readouterr().err


def test_the_summaries_have_what_exceeds_a_budget(kernels: Path, tmp_path: Path) -> None:
    markdown, sarif = tmp_path / "s.md", tmp_path / "s.sarif"
    assert gate([kernels], "gemm vgprs<=1", f"--markdown={markdown}", f"--sarif={sarif}", "-q") == 4
    assert "**at most 1 → 2**" in markdown.read_text()
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["message"]["text"] == "gemm for gfx942: VGPRs 2, the budget is at most 1"
    assert result["level"] == "error"


def test_registers_that_are_not_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A descriptor that is too small faults or corrupts on hardware."""
    source = tmp_path / TOO_FEW.name
    source.write_text(TOO_FEW.read_text())
    assert gate([source], "* vgprs<=64") == 4
    assert "v8 to v16 are used, and 8 VGPRs declared" in capsys.readouterr().out
    assert run(["cost", str(source)]) == 0
    assert "note: " in (shown := capsys.readouterr().out)
    assert "k: v8 to v16 are used, and 8 VGPRs declared" in " ".join(shown.split())
    # As LLVM declares them there is nothing to say, nor in a code object whose code is looked at.
    right = TOO_FEW.read_text().replace("vgpr_count: 8", "vgpr_count: 17")
    source.write_text(right)
    kernels = tmp_path / "k.hsaco"
    kernels.write_bytes(code("gfx942"))
    assert gate([source, kernels], "* vgprs<=64", "--disassemble") == 0


def bundle(*entries: tuple[str, bytes]) -> bytes:
    """As clang-offload-bundler writes it."""
    at = len(_MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    head, body = _MAGIC + struct.pack("<Q", len(entries)), b""
    for name, data in entries:
        head += struct.pack("<QQQ", at + len(body), len(data), len(name)) + name.encode()
        body += data
    return head + body


def of_two() -> bytes:
    host, name = ("host-x86_64-unknown-linux-gnu-", b""), "hipv4-amdgcn-amd-amdhsa--"
    return bundle(host, *((name + cpu, code(cpu)) for cpu in ("gfx942", "gfx1100")))


def compressed(version: int, method: str = "zlib") -> bytes:
    """As clang writes it where it is told to; with zstd, which ROCm's does by itself."""
    data = of_two()
    packed = zlib.compress(data) if method == "zlib" else zstandard.ZstdCompressor().compress(data)
    number = ("zlib", "zstd").index(method)
    if version == 1:
        return struct.pack("<4sHHIQ", b"CCOB", 1, number, len(data), 0) + packed
    form = {2: "<4sHHIIQ", 3: "<4sHHQQQ"}[version]
    return struct.pack(form, b"CCOB", version, number, struct.calcsize(form) + len(packed), len(data), 0) + packed


def fat() -> bytes:
    """A host's object file with bundles in its section, all but the first compressed."""
    content = of_two() + bytes(100) + compressed(3) + bytes(100) + compressed(2, "zstd") + compressed(1, "zstd")
    text = "".join(f"\\{byte:02X}" for byte in content)
    ir = f'@b = constant [{len(content)} x i8] c"{text}", section ".hip_fatbin"\n'
    command = [llc(), "-mtriple=x86_64-linux-gnu", "-filetype=obj", "-o", "-", "-"]
    return subprocess.run(command, input=ir.encode(), capture_output=True, check=True).stdout


KINDS: dict[str, Callable[[], bytes]] = {
    "plain": of_two,
    **{f"{m} {v}": partial(compressed, v, m) for v in (1, 2, 3) for m in ("zlib", "zstd")},
    "fat": fat,
}


@pytest.mark.parametrize("kind", KINDS)
def test_bundles_are_read_as_they_are(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = KINDS[kind]()
    assert is_bundle(data)
    objects = unbundled(data, "k")
    assert objects == (code("gfx942"), code("gfx1100")) * (4 if kind == "fat" else 1)
    path = tmp_path / ("k.o" if kind == "fat" else "k.hipfb")
    path.write_bytes(data)
    assert gate([path], "* vgprs<=64\n*@gfx1100 waves>=17") == 4
    assert "attn_small for gfx1100: waves 16, the budget is at least 17" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: of_two()[:5000], "is cut off"),
        (lambda: of_two()[:60], "is damaged"),
        (lambda: compressed(2)[:200], "is damaged"),
        (lambda: bundle(("host-x86_64", b"")), "no code object for an AMD GPU"),
        (lambda: compressed(2, "zstd")[:200], "is damaged"),
        (lambda: compressed(3, "zstd")[:31] + bytes(99), "is damaged"),
        (lambda: compressed(1, "zstd")[:-1], "is damaged"),
        (lambda: struct.pack("<4sHHIIQ", b"CCOB", 2, 2, 40, 9, 0) + bytes(16), "compressed by method 2"),
        (lambda: struct.pack("<4sHH", b"CCOB", 9, 1), "version 9"),
    ],
)
def test_a_bundle_that_cannot_be_read_is_one_error(data: Callable[[], bytes], said: str) -> None:
    with pytest.raises(InputError, match=said):
        unbundled(data(), "k")


def test_what_is_no_bundle_is_left_as_it_is() -> None:
    assert unbundled(code("gfx942"), "k") == (code("gfx942"),)
    assert not is_bundle(code("gfx942"))


def test_cost_takes_the_code_object_that_is_named_out_of_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.hipfb"
    path.write_bytes(compressed(3, "zstd"))
    assert run(["cost", str(path), "--mcpu=gfx1100"]) == 0
    assert "attn_small" in capsys.readouterr().out
    for options, said in (
        ([], "several code objects: gfx942, gfx1100"),
        (["--mcpu=gfx950"], "no code object for gfx950"),
    ):
        assert run(["cost", str(path), *options]) == ExitCode.BAD_INPUT
        assert said in capsys.readouterr().err
    path.write_bytes(bundle(("hipv4-amdgcn-amd-amdhsa--gfx942", code("gfx942"))))
    assert run(["compare", str(path), str(path)]) == 0
