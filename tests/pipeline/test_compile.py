"""``compile_module`` as a library: further forms of a result, options for llc, jobs that do not disturb each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from toolchain_support import source

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.pipeline.compile import compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.run import RunningTools, ToolFailure, run_tool

KERNEL = """
define amdgpu_kernel void @k(ptr addrspace(1) %p, float %x) {
  %a = load float, ptr addrspace(1) %p
  %m = fmul float %a, %x
  %s = fadd float %m, 1.0
  store float %s, ptr addrspace(1) %p
  ret void
}
"""


def test_further_forms_are_of_the_same_run() -> None:
    compiled = compile_module(KERNEL.encode(), "k.ll", Settings("gfx1100", also=(Emit.ASM, Emit.MIR)))
    assert compiled.report.outcome is Outcome.PROVED
    assert compiled.data
    assert "k" in read_code_object(compiled.data).kernels
    assert set(compiled.also) == {Emit.ASM, Emit.MIR}
    # gfx11 loses this count in MIR; the text is mended like the object.
    alone = compile_module(KERNEL.encode(), "k.ll", Settings("gfx1100", emit=Emit.ASM))
    assert compiled.also[Emit.ASM] == alone.data
    assert compiled.also[Emit.MIR].startswith(b"---")


def test_options_for_llc_reach_every_stage() -> None:
    fused = compile_module(
        KERNEL.encode(), "k.ll", Settings("gfx942", emit=Emit.ASM, llc_options=("-fp-contract=fast",))
    )
    plain = compile_module(KERNEL.encode(), "k.ll", Settings("gfx942", emit=Emit.ASM))
    assert fused.data
    assert plain.data
    assert b"v_fma" in fused.data
    assert b"v_fma" not in plain.data
    with pytest.raises(InputError, match="no-such-option"):
        compile_module(KERNEL.encode(), "k.ll", Settings("gfx942", llc_options=("-no-such-option",)))


def test_giving_up_one_job_leaves_the_tools_of_another_alone(tmp_path: Path) -> None:
    """The other tool ends when it is told, which is after the first is gone."""
    ours, theirs = RunningTools(), RunningTools()
    ended: dict[str, object] = {}
    go = tmp_path / "go"
    waits = f"until test -e {go}; do sleep 0.02; done"

    def wait(name: str, running: RunningTools) -> None:
        try:
            ended[name] = run_tool(["sh", "-c", waits], running=running)
        except ToolFailure as failure:
            ended[name] = failure

    threads = [threading.Thread(target=wait, args=job) for job in (("ours", ours), ("theirs", theirs))]
    for thread in threads:
        thread.start()
    while "ours" not in ended:
        ours.kill()
    go.touch()
    for thread in threads:
        thread.join()
    assert isinstance(ended["ours"], ToolFailure)
    assert not isinstance(ended["theirs"], ToolFailure)


@pytest.mark.long
def test_a_failing_compilation_does_not_disturb_those_beside_it() -> None:
    refused = source("unknown_intrinsic.ll").encode()
    results: list[object] = []

    def job(data: bytes) -> None:
        try:
            results.append(compile_module(data, "k.ll", Settings("gfx950")).report.outcome)
        except VeriloccError as error:
            results.append(type(error))

    threads = [threading.Thread(target=job, args=(data,)) for data in (KERNEL.encode(), refused) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == sorted([str(Outcome.PROVED)] * 3 + [str(UnsupportedError)] * 3)
