"""Buffers and arguments: the same bytes everywhere, values that harm nothing, and the notation of both."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from measure_support import gemm

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.measure.arguments import Element, arguments_of, bind, filling, interface_of, kernarg, words_of
from verilocc_mlir.toolchain.descriptor import KernelMetadata, read_code_object


def test_floats_lie_between_minus_one_and_one() -> None:
    for name, layout in (("f32", "f"), ("f64", "d"), ("f16", "e")):
        data = filling(f"1000x{name}").data
        values = struct.unpack(f"<1000{layout}", data)
        assert max(map(abs, values)) <= 1
        assert min(values) < -0.9
        assert max(values) > 0.9
    halves = filling("1000xbf16").data
    assert max(abs(struct.unpack("<f", b"\0\0" + halves[i : i + 2])[0]) for i in range(0, 2000, 2)) <= 1


@pytest.mark.parametrize("name", ["f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"])
def test_eight_bit_floats_are_no_nan(name: str) -> None:
    """Exponents with their highest bit clear: at most 1.875; 0x80 is NaN in the fnuz types."""
    data = filling(f"5000x{name}").data
    assert not any(byte & 0x40 for byte in data)
    assert 0x80 not in data
    assert len(set(data)) > 100


def test_integers_are_small_enough_for_indices() -> None:
    assert set(filling("5000xi8").data) == set(range(16))
    assert {*struct.unpack("<5000q", filling("5000xi64").data)} == set(range(16))
    assert set(filling("100xi1").data) == {0, 1}
    assert filling("7xsi32").data == filling("7xui32").data == filling("7xi32").data


def test_the_filling_is_the_same_on_every_machine() -> None:
    """The journal's digests of work depend on it."""
    digests = [hashlib.sha256(filling(text).data).hexdigest()[:16] for text in ("70000xf16", "3x5xi32", "9xf8E4M3FN")]
    assert digests == ["cfcaf77791645389", "6fe82a650fd6faa2", "8e947b92ce38f68a"]
    long = filling("140000xf16").data
    assert long[: 65521 * 2] == long[65521 * 2 : 65521 * 4]
    assert len(long) == 280000


def test_values_and_files(tmp_path: Path) -> None:
    assert filling("3xf32=0.5").data == struct.pack("<3f", 0.5, 0.5, 0.5)
    assert filling("2x2xi16=-1").data == b"\xff" * 8
    assert filling("f32").data == filling("1xf32").data
    assert filling("2xf8E4M3FN=0").data == b"\0\0"
    path = tmp_path / "values.bin"
    path.write_bytes(b"12345678")
    assert filling(f"2xf32=@{path}").data == b"12345678"
    with pytest.raises(InputError, match="has 8 bytes, 3xf32 has 12"):
        filling(f"3xf32=@{path}")
    with pytest.raises(InputError, match="cannot be read"):
        filling(f"3xf32=@{tmp_path / 'none'}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no buffer"),
        ("4x", "is no buffer"),
        ("?x4xf32", "is no buffer"),
        ("4xf12", "f12 is no type of elements"),
        ("4xf32=one", "'one' is no value of type f32"),
        ("4xi32=0.5", "'0.5' is no value of type i32"),
        ("9999999x999999xf32", "more than 64 GiB"),
        ("2xf8E4M3FN=1", "is no value of type"),
    ],
)
def test_what_is_no_buffer_is_said(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        filling(text)


def kernel(*entries: dict[str, object], name: str = "k") -> KernelMetadata:
    return KernelMetadata(name, 1, 0, 1, 0, 0, 0, 0, 256, 64, {".args": list(entries)})


POINTER = {".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".name": "x", ".address_space": "global"}
COUNT = {".offset": 8, ".size": 4, ".value_kind": "by_value", ".name": "n"}
FACTOR = {".offset": 12, ".size": 4, ".value_kind": "by_value"}
HIDDEN = {".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"}


def test_arguments_lie_where_the_metadata_say() -> None:
    mixed = kernel(POINTER, COUNT, FACTOR, HIDDEN)
    bound = bind(arguments_of(mixed), ["2=f32:0.5", "x=4xf32", "n=70000"], "k")
    assert kernarg(bound, {0: 0x1122334455667788}) == (
        bytes.fromhex("8877665544332211") + (70000).to_bytes(4, "little") + struct.pack("<f", 0.5)
    )
    assert words_of(bound) == "4xf32, 0x00011170, 0x3f000000"


def test_a_buffer_may_be_none() -> None:
    bound = bind(arguments_of(kernel(POINTER, COUNT)), ["x=null", "n=1"], "k")
    assert kernarg(bound, {}) == bytes(8) + (1).to_bytes(4, "little")


def test_hidden_arguments_are_no_part_of_the_interface() -> None:
    assert interface_of(kernel(POINTER, COUNT)) == interface_of(kernel(POINTER, COUNT, {**HIDDEN, ".offset": 24}))
    assert interface_of(kernel(POINTER, COUNT)) != interface_of(kernel(POINTER, {**COUNT, ".size": 8}))


def test_a_real_code_object_has_three_buffers() -> None:
    metadata = read_code_object(gemm()).kernels["gemm"]
    assert [(a.offset, a.size, a.pointer) for a in arguments_of(metadata)] == [
        (0, 8, True),
        (8, 8, True),
        (16, 8, True),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["n=4"], r"argument 0 \(x\), a buffer, is not given"),
        (["x=4xf32"], r"argument 1 \(n\), a value of 4 bytes, is not given"),
        (["x=4xf32", "n=one"], "'one' is no value of type i32"),
        (["x=4xf32", "n=f64:1"], "f64:1 has 8 bytes for 4"),
        (["x=4xf32", "n=4", "m=4"], "--arg=m=4 is for no argument of k"),
        (["x=4xf32", "n"], "--arg=n is for no argument of k"),
    ],
)
def test_what_does_not_suit_an_argument_is_said(given: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bind(arguments_of(kernel(POINTER, COUNT)), given, "k")


def test_images_and_queues_cannot_be_made() -> None:
    with pytest.raises(UnsupportedError, match="argument 1 is image"):
        arguments_of(kernel(POINTER, {**COUNT, ".value_kind": "image"}))


def test_elements_have_sizes() -> None:
    assert [Element.of(n).size for n in ("f64", "f32", "bf16", "f8E5M2", "i1", "si8", "ui16")] == [8, 4, 2, 1, 1, 1, 2]
