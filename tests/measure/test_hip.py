"""The way through HIP, on a stand-in for its library: what is called with what, and what is made of the answers.

No GPU was at hand. The stand-in shows that arguments arrive as the metadata say and that nothing is left behind; it
shows nothing of a GPU.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from measure_support import gemm, gemm_that_is, stand_in_hip

from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.measure.device import NoDeviceError, Subject, clocks_of
from verilocc_mlir.measure.hip import VARIABLE, Hip, HipDevice, HipError, Launch
from verilocc_mlir.measure.runner import Turns, asked, measure
from verilocc_mlir.results.measure import Clocks, Sameness, Verdict

ARGUMENTS = ("0=16x16xf16", "1=16x16xf16=1", "2=16x16xf16=0")


class Opened:
    """A device of the stand-in, with what it saw."""

    def __init__(self, launch: Launch, seconds: float = 60.0) -> None:
        path = stand_in_hip()
        self.library = ctypes.CDLL(str(path))
        self.device = HipDevice(launch, open_hip=lambda number: Hip(number, path, seconds=seconds))

    @property
    def launched(self) -> list[int]:
        return list((ctypes.c_uint * 7).in_dll(self.library, "launched"))

    @property
    def held(self) -> int:
        """Buffers, modules and events that were not given back."""
        return ctypes.c_int.in_dll(self.library, "held").value


def opened(*arguments: str, seconds: float = 60.0) -> Opened:
    return Opened(Launch((4, 2, 1), arguments=arguments or ARGUMENTS), seconds)


def code(word: str = "") -> Subject:
    return Subject(f"{word or 'plain'}.hsaco", gemm_that_is(word) if word else gemm())


def test_the_slower_of_two_equal_codes_is_named() -> None:
    stand_in = opened()
    found = measure(stand_in.device, code(), code("SLOW"), Turns())
    assert (found.verdict, found.sameness, found.why) == (Verdict.SLOWER, Sameness.EQUAL, "")
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(2, rel=0.01)
    # Filling buffers and overwriting the caches, 20 ms in the stand-in's time, is not counted.
    assert found.base_ms is not None
    assert found.base_ms.median == pytest.approx(1, rel=0.01)
    assert len(found.rounds) == 12
    assert found.kernel.name == "gemm"
    assert (found.device.name, found.device.architecture, found.device.software) == (
        "Stand-in",
        "gfx942",
        "HIP 60443483",
    )
    assert stand_in.launched == [4, 2, 1, 256, 1, 1, 0]
    assert stand_in.held == 0


def test_other_results_are_refused_and_not_timed() -> None:
    stand_in = opened()
    found = measure(stand_in.device, code(), code("WRONG"), Turns())
    assert (found.verdict, found.sameness) == (Verdict.DIFFERENT, Sameness.DIFFERENT)
    assert found.why == "result 2 differs in 1 of 512 bytes, first at byte 511"
    assert not found.rounds
    assert found.ratio is found.base_ms is found.candidate_ms is None
    assert stand_in.held == 0


def test_a_base_that_does_not_repeat_itself_refutes_nobody() -> None:
    found = measure(opened().device, code("UNSTEADY"), code(), Turns())
    assert (found.verdict, found.sameness) == (Verdict.ALIKE, Sameness.UNSTEADY)
    assert found.why.startswith("two runs of the base differ: result 2")


def test_an_endless_kernel_is_given_up() -> None:
    with pytest.raises(ToolchainError, match=r"did not finish within 0\.05 s"):
        measure(opened(seconds=0.05).device, code("ENDLESS"), code(), Turns())


def test_a_fault_is_one_error_and_nothing_is_asked_after_it() -> None:
    """What is said is the first error, not that freeing fails too."""
    with pytest.raises(HipError, match="hipEventQuery failed") as failed:
        measure(opened().device, code("FAULTY"), code(), Turns())
    assert failed.value.code == 719
    assert "answers nothing more in this process" in failed.value.hint


def test_code_for_another_gpu_is_refused_by_the_runtime() -> None:
    stand_in = opened()
    with pytest.raises(HipError, match="hipErrorNoBinaryForGpu") as refused:
        measure(stand_in.device, code(), code("FOREIGN"), Turns())
    assert "another GPU" in refused.value.hint
    assert stand_in.held == 0


def test_arguments_are_asked_for_by_their_metadata() -> None:
    with pytest.raises(InputError, match="argument 1, a buffer, is not given") as missing:
        measure(opened("0=16xf16").device, code(), code(), Turns())
    assert "--arg=1=4096x4096xf16" in missing.value.hint
    with pytest.raises(InputError, match="--arg=3=4 is for no argument of gemm"):
        measure(opened(*ARGUMENTS, "3=4").device, code(), code(), Turns())
    with pytest.raises(InputError, match="f17 is no type of elements"):
        measure(opened("0=16xf17", *ARGUMENTS[1:]).device, code(), code(), Turns())


def test_work_groups_are_those_that_the_kernel_requires() -> None:
    other = Opened(Launch((1, 1, 1), block=(64, 1, 1), arguments=ARGUMENTS)).device
    with pytest.raises(InputError, match="requires work-groups of 256x1x1"):
        measure(other, code(), code(), Turns())
    named = Opened(Launch((1, 1, 1), kernel="attn", arguments=ARGUMENTS)).device
    with pytest.raises(InputError, match="it has no kernel attn") as none:
        measure(named, code(), code(), Turns())
    assert "gemm" in none.value.hint


def test_what_is_asked_depends_on_codes_work_and_settings() -> None:
    base, other = code(), code("SLOW")
    device = opened().device
    key = asked(device, base, other, Turns())
    assert key == asked(opened().device, base, other, Turns())
    assert key == measure(device, base, other, Turns()).asked
    others = [
        asked(device, other, base, Turns()),
        asked(device, base, other, Turns(rounds=13)),
        asked(device, base, other, Turns(), ir="0" * 64),
        asked(opened("0=16x16xf16=1", *ARGUMENTS[1:]).device, base, other, Turns()),
        asked(Opened(Launch((1, 1, 1), arguments=ARGUMENTS)).device, base, other, Turns()),
    ]
    assert len({key, *others}) == 6


def test_no_library_and_no_gpu_are_one_error_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "libamdhip64.so"))
    with pytest.raises(NoDeviceError, match="HIP's runtime cannot be loaded"):
        Hip()
    monkeypatch.setenv("STAND_IN_NONE", "1")
    with pytest.raises(NoDeviceError, match="hipErrorNoDevice"):
        Hip(library=stand_in_hip())
    monkeypatch.delenv("STAND_IN_NONE")
    with pytest.raises(NoDeviceError, match="there is no GPU 1: HIP finds 1"):
        Hip(1, stand_in_hip())


def test_clocks_are_read_as_the_kernels_driver_states_them(tmp_path: Path) -> None:
    hwmon = tmp_path / "0000:0a:00.0" / "hwmon" / "hwmon3"
    hwmon.mkdir(parents=True)
    (hwmon / "freq1_input").write_text("2100000000\n")
    assert clocks_of("0000:0a:00.0", tmp_path) == Clocks(2100.0, None)
    (hwmon / "freq2_input").write_text("not a number")
    assert clocks_of("0000:0a:00.0", tmp_path) == Clocks(2100.0, None)
    assert clocks_of("0000:0b:00.0", tmp_path) == Clocks(None, None)
