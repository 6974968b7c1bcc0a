"""``#rocdl.target`` as text: what is read, what is refused, and the constants it stands for."""

from __future__ import annotations

import pytest

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.hooks.mlir_compile import with_abi
from verilocc_mlir.hooks.mlir_target import RocdlTarget, isa_version


def test_every_parameter_is_read() -> None:
    text = (
        '#rocdl.target<O = 3, triple = "amdgcn--amdhsa", chip = "gfx90a", features = "+sramecc,-xnack", abi = "500", '
        'flags = {daz, "unsafe_sqrt", finite_only = unit}, link = ["a b.bc", "quo\\22te.bc"]>'
    )
    assert RocdlTarget.parse(text) == RocdlTarget(
        chip="gfx90a",
        features="+sramecc,-xnack",
        opt_level=3,
        triple="amdgcn--amdhsa",
        abi="500",
        flags=frozenset({"daz", "unsafe_sqrt", "finite_only"}),
        link=("a b.bc", 'quo"te.bc'),
    )


@pytest.mark.parametrize("text", ["#rocdl.target", "#rocdl.target<>"])
def test_defaults_are_those_of_the_dialect(text: str) -> None:
    assert RocdlTarget.parse(text) == RocdlTarget("gfx900", "", 2, "amdgcn-amd-amdhsa", "600")


@pytest.mark.parametrize("text", ["#rocdl.target<speed = 3>", "#rocdl.target<flags = {fast = 0 : i32}>"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        RocdlTarget.parse(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (RocdlTarget("gfx900"), "unknown target gfx900"),
        (RocdlTarget("gfx942", abi="300"), "abi = '300'"),
        (RocdlTarget("gfx942", opt_level=0), "O = 0"),
        (RocdlTarget("gfx942", triple="nvptx64"), "triple = 'nvptx64'"),
        (RocdlTarget("gfx942", flags=frozenset({"a", "fast", "b"})), "unknown flags in #rocdl.target: a, b"),
        (RocdlTarget("gfx1100", flags=frozenset({"wave64"})), "flag wave64, but code for gfx1100 has waves of 32"),
        (RocdlTarget("gfx1100", features="-wavefrontsize32"), "gfx1100 with waves of 64 lanes"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: RocdlTarget, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        given.check()


def test_flags_set_the_libraries_constants() -> None:
    plain = RocdlTarget("gfx942").control_constants()
    assert plain["__oclc_correctly_rounded_sqrt32"] == ("i8", 1)
    assert {plain[f"__oclc_{name}"][1] for name in ("finite_only_opt", "unsafe_math_opt", "daz_opt")} == {0}
    assert (plain["__oclc_wavefrontsize64"][1], plain["__oclc_wavefrontsize_log2"][1]) == (1, 6)
    fast = RocdlTarget("gfx1100", flags=frozenset({"fast"})).control_constants()
    assert fast["__oclc_correctly_rounded_sqrt32"] == ("i8", 0)
    assert {fast[f"__oclc_{name}"][1] for name in ("finite_only_opt", "unsafe_math_opt", "daz_opt")} == {1}
    assert (fast["__oclc_wavefrontsize64"][1], fast["__oclc_wavefrontsize_log2"][1]) == (0, 5)
    one = RocdlTarget("gfx942", flags=frozenset({"daz"}), abi="500").control_constants()
    assert (one["__oclc_daz_opt"][1], one["__oclc_unsafe_math_opt"][1], one["__oclc_ABI_version"]) == (
        1,
        0,
        ("i32", 500),
    )


def test_isa_versions() -> None:
    # The names of ROCm's oclc_isa_version_*.bc and the values in them.
    assert [isa_version(chip) for chip in ("gfx900", "gfx90a", "gfx942", "gfx1100", "gfx1201")] == [
        9000,
        9010,
        9402,
        11000,
        12001,
    ]


def test_the_abi_becomes_a_module_flag_once() -> None:
    ir = '!llvm.module.flags = !{!0}\n!0 = !{i32 2, !"Debug Info Version", i32 3}\n'
    flagged = with_abi(ir, "500")
    assert '!1 = !{i32 1, !"amdhsa_code_object_version", i32 500}' in flagged
    assert with_abi(flagged, "500") == flagged
    with pytest.raises(UnsupportedError, match="code-object version 500, the target's abi is 600"):
        with_abi(flagged, "600")
