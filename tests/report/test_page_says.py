"""What HTML pages say beside the pictures: functions left out, plans, models, tries of a server; how wide they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from page_support import Page, read_page
from support import REPOSITORY, TEST_DATA

from verilocc_mlir.allocators.protocol import ModelUse, ServerAttempt
from verilocc_mlir.cli.main import run
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.report.page.html import to_html
from verilocc_mlir.results.compile import Report
from verilocc_mlir.results.page import PageInput
from verilocc_mlir.target.targets import target

UNPROVED = TEST_DATA / "inputs" / "writes_exec.ll"
KERNEL = """
define amdgpu_kernel void @NAME(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
"""
TWO = """
func.func @add(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %r = arith.addf %a, %b : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
_MEASURE = """<script>addEventListener("load", () => { document.querySelectorAll("details").forEach(d => d.open = true);
setTimeout(() => { const page = document.documentElement; document.title = page.scrollWidth + "/" + page.clientWidth },
200) })</script></body>"""


def compiled(source: str, name: str, **options: object) -> tuple[Compiled, Recording]:
    recording = Recording()
    return compile_module(source.encode(), name, Settings.from_data(options), recording=recording), recording


def page_of(report: Report, recording: Recording) -> Page:
    page = read_page(to_html(report, PageInput(target(report.target), tuple(recording.phases))))
    assert page.faults == []
    return page


@pytest.mark.long
def test_functions_that_are_left_out_and_why() -> None:
    text = UNPROVED.read_text() + "define void @g() {\n  call void @f()\n  ret void\n}\n"
    done, recording = compiled(text, "k.ll", cpu="gfx1100")
    assert done.report.left_out == ("f", "g")
    said = page_of(done.report, recording).text
    assert "Left out of the result, as nobody proves them: f, g." in said
    assert "f unknown It is not in the result. Its phases below say why." in said
    assert "g unknown It is not in the result. it needs f" in said
    assert said.count("unknown left out") == 2
    assert "Plan: default; as it comes." in said


@pytest.mark.long
def test_a_plan_that_is_not_the_default() -> None:
    text = (REPOSITORY / "examples" / "kernels" / "gemm_mma_lds.gfx942.opt.ll").read_text()
    done, recording = compiled(text, "k.ll", cpu="gfx942", plan="max-ilp")
    assert "Plan: max-ilp" in page_of(done.report, recording).text


def test_a_server_that_is_down(tmp_path: Path) -> None:
    done, recording = compiled(KERNEL, "k.ll", cpu="gfx942", server=f"unix:{tmp_path}/nobody")
    said = page_of(done.report, recording).text
    assert f"The allocation server had not its part. unix:{tmp_path}/nobody: UNAVAILABLE" in said


def test_models_and_tries() -> None:
    """As a server with a language model answers: the first answer is refuted, the second one is taken."""
    done, recording = compiled(KERNEL, "k.ll", cpu="gfx942")
    use = ModelUse("base-1", "cdna3", 120, 0.5, "an adapter <is> not applied")
    tries = (
        ServerAttempt(
            "model",
            "7",
            "prove",
            "it is refuted",
            "refuted",
            ("complete: %5 is given no register",),
            use,
            "the nearest valid assignment moves %5 to $vgpr3",
        ),
        ServerAttempt("model", "7", "prove", "", "proved", (), use),
    )
    (function,) = done.report.functions
    first, *others = function.phases
    first = replace(first, attempts=(replace(first.attempts[0], server="unix:s", tries=tries),))
    report = replace(done.report, functions=(replace(function, phases=(first, *others)),))
    page = page_of(report, recording)
    cells = [element.text for element in page.elements if element.tag in ("th", "td")]
    at = cells.index("base-1, adapter cdna3 of unix:san adapter <is> not applied")
    assert cells[at + 1 : at + 5] == ["2", "1", "240", "1.00"]
    assert "Try of the server: model 7 refuted base-1, adapter cdna3: 120 tokens, 0.50 s" in page.text
    assert "complete: %5 is given no register" in page.text
    assert "Nearest: the nearest valid assignment moves %5 to $vgpr3" in page.text


def width(path: Path, html: str) -> tuple[int, int]:
    """Width of what the page has and of the window, in CSS pixels, all details open."""
    assert html.count("</body>") == 1
    allowed = html if "script-src" in html else html.replace("default-src", "script-src 'unsafe-inline'; default-src")
    path.write_text(allowed.replace("</body>", _MEASURE))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900", "--virtual-time-budget=3000"]
    done = subprocess.run(
        [BROWSER, *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    match = re.search(r"<title>(\d+)/(\d+)<", done.stdout)
    assert match is not None
    return int(match[1]), int(match[2])


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")
def test_the_pages_fit_a_window_of_500_pixels(tmp_path: Path) -> None:
    long_name = "_ZN7package24ATemplatedKernelFunctionIfLi256ELi4EEEvPKT_S4_PS2_iiiiffffwithmoreandmoreandmore"
    source = tmp_path / "k.ll"
    source.write_text(KERNEL.replace("NAME", long_name))
    for path in (source, UNPROVED):
        out = tmp_path / "k.html"
        run(["report", str(path), "-mcpu=gfx1100", "-o", str(out), "-q"])
        content, window = width(tmp_path / "measured.html", out.read_text())
        assert content <= window <= 500
    audit = [str(UNPROVED), "-mcpu=gfx1100", "--format=html", f"--report={tmp_path}/audit.html"]
    run(["audit", "--llvm", *audit])
    content, window = width(tmp_path / "measured.html", (tmp_path / "audit.html").read_text())
    assert content <= window <= 500


def page_of_a_module(tmp_path: Path) -> str:
    """Of a module of IREE whose server is not there."""
    pytest.importorskip("iree.compiler", reason="IREE is not installed")
    source, pages = tmp_path / "two.mlir", tmp_path / "pages"
    source.write_text(TWO)
    argv = ["iree", str(source), "--iree-rocm-target=gfx942", "-o", str(tmp_path / "m.vmfb"), f"--html={pages}", "-q"]
    assert run([*argv, f"--server=unix:{tmp_path}/nobody"]) == 0
    return (pages / "index.html").read_text()


@pytest.mark.long
def test_the_page_of_a_module_says_that_its_server_is_missing(tmp_path: Path) -> None:
    html = page_of_a_module(tmp_path)
    assert "The allocation server had not its part</strong> in 1 of 1 kernels: unix:" in html


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")
def test_the_page_of_a_module_fits_it_too(tmp_path: Path) -> None:
    content, window = width(tmp_path / "measured.html", page_of_a_module(tmp_path))
    assert content <= window <= 500
