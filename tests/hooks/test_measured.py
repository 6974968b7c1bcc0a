"""``replace=measured``: the clock decides where codes were timed, the model where they were not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from measure_support import MATMUL, gemm, gemm_that_is, stand_in_hip
from msgspec.structs import replace
from support import few

from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks import iree_measured
from verilocc_mlir.hooks.baseline import MeasuredCodes, decision
from verilocc_mlir.hooks.iree import compile_mlir
from verilocc_mlir.hooks.iree_result import IreeResult
from verilocc_mlir.measure.device import NoDeviceError, Subject, Work, digest
from verilocc_mlir.measure.hip import Hip, HipDevice, Launch
from verilocc_mlir.measure.journal import VARIABLE, Journal, read_measurements
from verilocc_mlir.measure.runner import Turns, measure
from verilocc_mlir.results.measure import Clocks, DeviceAbout, MeasuredKernel, Measurement, Verdict

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed (Python 3.11 on Linux x86-64 has it)")

LAUNCH = Launch((1, 1, 1), arguments=("0=64xi8", "1=64xi8", "2=64xi8=0"))
ADD = """
func.func @add(%a: tensor<?xf32>) -> tensor<?xf32> {
  %r = arith.addf %a, %a : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""
PLAIN, SLOW, WRONG = gemm(), gemm_that_is("SLOW"), gemm_that_is("WRONG")


def measured(base: bytes, candidate: bytes) -> Measurement:
    library = stand_in_hip()
    device = HipDevice(LAUNCH, open_hip=lambda number: Hip(number, library))
    return measure(device, Subject("base", base), Subject("candidate", candidate), Turns())


@pytest.fixture(name="journal")
def _journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "measured.jsonl"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def keep(path: Path, *measurements: Measurement) -> None:
    with Journal(path) as journal:
        for one in measurements:
            journal.add(one)


def test_ours_is_declined_where_it_was_measured_slower(journal: Path) -> None:
    keep(journal, measured(PLAIN, SLOW), measured(PLAIN, WRONG))
    known = MeasuredCodes.of_environment()
    slower = known.decide(ours=SLOW, theirs=PLAIN)
    assert slower is not None
    assert slower.declined.startswith("measured at 1.99")
    assert "of its time on Stand-in" in slower.declined
    wrong = known.decide(ours=WRONG, theirs=PLAIN)
    assert wrong is not None
    assert wrong.declined.startswith("results differ, as measured on Stand-in")
    # The same line, the other way round: ours is the one that is faster.
    faster = known.decide(ours=PLAIN, theirs=SLOW)
    assert faster is not None
    assert faster.declined == ""
    assert faster.said.startswith("measured at 0.50")
    assert known.decide(ours=SLOW, theirs=WRONG) is None


def test_what_was_not_decided_decides_nothing() -> None:
    alike = measured(PLAIN, PLAIN)
    assert alike.verdict is Verdict.ALIKE
    found = decision(alike)
    assert found is not None
    assert found.declined == ""
    assert decision(replace(alike, verdict=Verdict.UNDECIDED)) is None


def test_the_last_line_of_a_pair_counts(journal: Path) -> None:
    slower = measured(PLAIN, SLOW)
    keep(journal, slower, replace(slower, verdict=Verdict.FASTER))
    last = MeasuredCodes.of_environment().decide(ours=SLOW, theirs=PLAIN)
    assert last is not None
    assert last.declined == ""
    keep(journal, slower)
    assert MeasuredCodes.of_environment().digest not in ("", MeasuredCodes.of(None).digest)


def test_no_journal_is_no_fault_and_a_directory_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert MeasuredCodes.of_environment() == MeasuredCodes()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.jsonl"))
    assert MeasuredCodes.of_environment() == MeasuredCodes()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="the journal cannot be read"):
        MeasuredCodes.of_environment()


@dataclass
class Timed:
    """A module of the device below."""

    ms: float

    def results(self) -> str:
        return "there is no device"

    def times(self, count: int) -> list[float]:
        return [self.ms] * count

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class GpuThatIsNot:
    """A GPU for which IREE's benchmarks are made; a module takes as long as is said of the code object within."""

    ms: dict[bytes, float]
    seen: list[bytes] = field(default_factory=list)
    about: DeviceAbout = field(default_factory=lambda: DeviceAbout("iree", "no GPU", "", ""))
    caveat: str = "not to be believed"

    def subject(self, text: str) -> Subject:
        raise AssertionError

    def kernel(self, subject: Subject) -> MeasuredKernel:
        return MeasuredKernel(subject.name, digest(b"interface"))

    def work(self, subject: Subject) -> Work:
        return Work("a benchmark", digest(b"a benchmark"))

    def load(self, subject: Subject) -> Timed:
        (code,) = [code for code in self.ms if code in subject.data]
        self.seen.append(code)
        return Timed(self.ms[code])

    def clocks(self) -> Clocks:
        return Clocks()

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(scope="module")
def always() -> IreeResult:
    return compile_mlir(MATMUL, target="gfx942", replace="always")


@pytest.fixture(name="said")
def _said() -> list[str]:
    return []


@pytest.mark.long
def test_without_a_gpu_the_model_decides_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, said: list[str], always: IreeResult
) -> None:
    def none() -> GpuThatIsNot:
        raise NoDeviceError("IREE has no device hip")

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(iree_measured, "_gpu", none)
    found = compile_mlir(MATMUL, target="gfx942", replace="measured", progress=said.append)
    better = compile_mlir(MATMUL, target="gfx942", replace="better")
    assert [k.code_object for k in found.kernels] == [k.code_object for k in better.kernels]
    assert [k.reason for k in found.kernels] == [k.reason for k in better.kernels]
    assert "nothing is measured: IREE has no device hip" in said
    assert f"{always.kernels[0].executable}: the model decides" in said
    assert [kernel["measured"] for kernel in found.report["kernels"]] == [None]


TIMES = [(0.9, 1.0, "proved"), (1.0, 1.0, "proved"), (1.2, 1.0, "native, proved")]


@pytest.mark.long
@pytest.mark.parametrize(("ours", "theirs", "status"), few(TIMES[2:], TIMES))
def test_a_kernel_is_timed_in_iree_s_own_benchmark_of_it(
    monkeypatch: pytest.MonkeyPatch,
    journal: Path,
    said: list[str],
    always: IreeResult,
    ours: float,
    theirs: float,
    status: str,
) -> None:
    """iree-compile makes both modules for a gfx942, each with its code object byte for byte; the times are given."""
    (kernel,) = always.kernels
    gpu = GpuThatIsNot({kernel.code_object: ours, kernel.own: theirs})
    monkeypatch.setattr(iree_measured, "_gpu", lambda: gpu)
    (found,) = compile_mlir(MATMUL, target="gfx942", replace="measured", progress=said.append).kernels
    assert gpu.seen == [kernel.own, kernel.code_object]
    assert found.status == status
    assert said.count("note: not to be believed") == 1
    assert found.measured.startswith(f"measured at {ours / theirs:.3f} ")
    if status == "native, proved":
        assert found.reason.startswith("ours is proved, and measured at 1.200 [1.200, 1.200] of its time on no GPU")
        assert found.code_object == kernel.own
    else:
        assert found.code_object == kernel.code_object
    (line,), _ = read_measurements(journal)
    assert (line.base.sha256, line.candidate.sha256) == (digest(kernel.own), digest(kernel.code_object))
    assert kernel.source is not None
    assert line.kernel.ir == hashlib.sha256(kernel.source.ir).hexdigest()
    # The second time the journal decides, and nothing is measured.
    gpu.seen.clear()
    (again,) = compile_mlir(MATMUL, target="gfx942", replace="measured").kernels
    assert (again.status, again.reason, gpu.seen) == (found.status, found.reason, [])


@pytest.mark.long
def test_sizes_that_are_not_known_leave_it_to_the_model(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """Of a kernel whose sizes the program decides at run time iree-compile writes no benchmark."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(iree_measured, "_gpu", lambda: GpuThatIsNot({}))
    found = compile_mlir(ADD, target="gfx942", replace="measured", progress=said.append)
    name = found.kernels[0].executable
    assert f"{name}: not measured: iree-compile wrote no benchmark of it" in said
    assert f"{name}: the model decides" in said


@pytest.mark.long
def test_the_command_takes_it(
    tmp_path: Path, journal: Path, capsys: pytest.CaptureFixture[str], always: IreeResult
) -> None:
    (tmp_path / "m.mlir").write_text(MATMUL)
    (kernel,) = always.kernels
    slower = replace(
        measured(PLAIN, SLOW),
        base=replace(measured(PLAIN, SLOW).base, sha256=digest(kernel.own)),
        candidate=replace(measured(PLAIN, SLOW).candidate, sha256=digest(kernel.code_object)),
    )
    keep(journal, slower)
    arguments = ["--iree-rocm-target=gfx942", "-o", str(tmp_path / "m.vmfb"), "--replace=measured"]
    assert run(["iree", str(tmp_path / "m.mlir"), *arguments]) == 0
    out, err = capsys.readouterr()
    assert "measured at 1.99" in out + err
    assert kernel.own in (tmp_path / "m.vmfb").read_bytes()
