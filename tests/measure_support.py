"""What tests of measurements share: code objects, a stand-in for HIP, and modules for IREE's CPU driver."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from support import DEMO_KERNELS, TEST_DATA

from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Settings

RECORDING = TEST_DATA / "kernel_tuner_w7800.json"
BEST, LIKE_BEST, MIDDLE, ALSO_MIDDLE, WORST, FAILED = (
    "32,2,1,4,0,0,1,1,15,15", "32,2,2,4,0,0,0,1,15,15", "176,4,1,3,1,1,1,1,15,15", "224,2,3,4,0,0,0,1,15,15",
    "48,16,3,3,0,0,0,1,15,15", "64,16,4,3,0,0,0,1,15,15",
)  # fmt: skip
"""Configurations of the recording: 0.816, 0.837, 6.420, 6.425 and 84.6 ms, and one that did not compile."""

MATMUL = """
func.func @mm(%a: tensor<32x32xf32>, %b: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<32x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x32xf32>) -> tensor<32x32xf32>
  %out = linalg.matmul ins(%a, %b : tensor<32x32xf32>, tensor<32x32xf32>)
                       outs(%init : tensor<32x32xf32>) -> tensor<32x32xf32>
  return %out : tensor<32x32xf32>
}
"""


@lru_cache(maxsize=1)
def gemm() -> bytes:
    """A code object with one kernel of three buffers, and work-groups of 256."""
    path = DEMO_KERNELS / "gemm_mma_lds.gfx942.opt.ll"
    data = compile_module(path.read_bytes(), path.name, Settings()).data
    assert data is not None
    return data


def gemm_that_is(word: str) -> bytes:
    """The same for the stand-in, which does what the word behind the ELF file says."""
    return gemm() + word.encode() + b"\0"


@lru_cache(maxsize=1)
def _stand_in() -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "clang-22"))), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    directory = Path(tempfile.mkdtemp(prefix="verilocc-tests-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library = directory / "libstandin.so"
    source = Path(__file__).parent / "measure" / "stand_in_hip.c"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(source), "-o", str(library)], check=True
    )
    return library


def stand_in_hip() -> Path:
    """The library of ``stand_in_hip.c``, with nothing in it used yet."""
    library = _stand_in()
    # Each test has a copy of its own: a library that is loaded once keeps its state.
    number = len(list(library.parent.iterdir()))
    copy = library.with_name(f"libstandin{number}.so")
    shutil.copy(library, copy)
    return copy
