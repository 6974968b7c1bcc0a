"""Without the front ends everything else works, and using one names the extra to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

_BLOCKED = """
import sys
from pathlib import Path
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('iree', 'torch', 'torch_mlir', 'triton', 'mlir', 'ray'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Block())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BLOCKED + code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def test_every_module_imports_without_the_front_ends() -> None:
    code = """
import importlib, pkgutil, verilocc_mlir, smt_verifier
for package in (verilocc_mlir, smt_verifier):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):
        # Triton loads its plugin's modules itself.
        if not module.name.startswith('verilocc_mlir.hooks.triton.plugin.'):
            importlib.import_module(module.name)
print('all of them')
"""
    done = python(code)
    assert done.stdout == "all of them\n", done.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("verilocc_mlir.compile(None, (), target='gfx942')", "torch"),
        ("importlib.import_module('verilocc_mlir.hooks.iree_runtime').Session(b'')", "iree"),
    ],
)
def test_using_a_front_end_names_its_extra(call: str, extra: str) -> None:
    done = python(
        "import importlib, verilocc_mlir\nfrom verilocc_mlir.errors import ToolchainError\n"
        f"try:\n    {call}\nexcept ToolchainError as error:\n    print(error.hint)\n"
    )
    assert f"pip install 'verilocc-mlir[{extra}]'" in done.stdout, done.stderr


def test_the_package_loads_no_front_end() -> None:
    code = (
        "import sys, verilocc_mlir, verilocc_mlir.cli.main\n"
        "print([n for n in ('torch', 'torch_mlir', 'iree', 'triton', 'mlir') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_the_demo_without_the_front_ends_says_so_and_compiles_kernels(tmp_path: Path) -> None:
    code = (
        f"import runpy, sys\nsys.argv = ['demo.py', '--out', {str(tmp_path)!r}]\n"
        f"sys.path.insert(0, {str(REPOSITORY / 'examples')!r})\n"
        f"runpy.run_path({str(REPOSITORY / 'examples' / 'demo.py')!r}, run_name='__main__')\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "torch, iree.compiler not installed" in done.stderr
    assert "10 of 10 kernels proved" in done.stdout
