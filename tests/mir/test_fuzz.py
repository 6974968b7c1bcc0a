"""Damaged inputs of every kind: nothing but a VeriloccError comes out, and nothing hangs.

A short run of ``fuzz_targets.py``, the same inputs each time; ``fuzz_run.py`` is the long one. Then, what was found.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fuzz_targets import TARGETS, damaged, in_time
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import few

from smt_verifier.artefacts import rows_digest
from smt_verifier.outcome import Outcome
from smt_verifier.recheck import recheck
from verilocc_mlir.errors import InputError, VeriloccError
from verilocc_mlir.mir.header import function_name
from verilocc_mlir.mir.operands import parse_operand
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.schema import problem_from_json
from verilocc_mlir.toolchain.inputs import load_input

INPUTS = {"mir": 400, "build": 250, "problem": 400, "proposal": 200, "manifest": 250, "input": 500, "audit": 60}


@pytest.mark.parametrize("name", few(("mir", "problem", "manifest"), TARGETS))
def test_damaged_inputs(name: str) -> None:
    target, seeds = TARGETS[name]
    real = seeds()
    for data in real:
        target(data)
    for seed in range(INPUTS[name]):
        with in_time():
            target(damaged(real, seed))


def check_bytes(data: bytes) -> None:
    for name in ("mir", "problem", "proposal", "manifest", "input", "build"):
        with in_time():
            TARGETS[name][0](data)


BYTES = st.binary(max_size=2000) | st.text(max_size=2000).map(str.encode)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(BYTES)
@example(b"")
@example(b"---\n")
@example(b"---\nname: f\nbody: |\n...\n")
def test_any_bytes(data: bytes) -> None:
    check_bytes(data)


@pytest.mark.long
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(BYTES)
def test_more_bytes(data: bytes) -> None:
    check_bytes(data)


@pytest.mark.parametrize(
    "filler", [b" ", b"\n", b"\t\n", b"(", b"{", b"[", b'"', b"; ", b"#\n", b"---\n", b"%0, ", b"$"]
)
@pytest.mark.parametrize("name", ["mir", "input", "problem", "manifest"])
def test_a_long_run_of_one_thing_does_not_hang(name: str, filler: bytes) -> None:
    """64 KiB of it, alone, in an instruction, in a preamble and in a JSON array."""
    bulk = (filler * (1 << 16))[: 1 << 16]
    heads = (b"", b"---\nname: f\nbody: |\n  bb.0:\n    $vgpr0 = COPY ", b'target triple = "amdgcn-amd-amdhsa"\n', b"[")
    for head in heads:
        for tail in (b"", b";\n...\n", b"x"):
            with in_time():
                TARGETS[name][0](head + bulk + tail)


@pytest.mark.parametrize(
    "text",
    [
        "%bb.", "%bb.x", "%bb.1 implicit $exec", "%stack.", "%fixed-stack.x", f"%bb.{'9' * 5000}",
        "%0:vgpr_32(tied-def )", "%0(tied-def x)", f"$vgpr0(tied-def {'9' * 5000})",
    ],
)  # fmt: skip
def test_a_number_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        parse_operand(text, is_def=False)


@pytest.mark.parametrize("text", ["%bb.3", "%bb.3.loop", "%stack.0", "%stack.1.a b", "%fixed-stack.12"])
def test_numbered_operands(text: str) -> None:
    assert parse_operand(text, is_def=False).text == text


@pytest.mark.parametrize("number", ["9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}"])
@pytest.mark.parametrize("row", ["  bb.{}:\n", "  bb.0:\n    successors: %bb.{}\n", "  bb.0:\n    S_BRANCH %bb.{}\n"])
def test_block_numbers_are_numbers(row: str, number: str) -> None:
    with pytest.raises(VeriloccError):
        parse_mir(f"---\nname: f\nbody: |\n{row.format(number)}...\n")


def test_an_escape_beyond_unicode_in_a_name() -> None:
    assert function_name(('name: "a\\U00110000b"',), where="") == "a\N{REPLACEMENT CHARACTER}b"


def test_a_weight_too_large_for_a_float() -> None:
    text = TARGETS["problem"][1]()[0].decode()
    problem = json.loads(text)
    problem["ranges"][0]["weight"] = 10**400
    with pytest.raises(InputError, match="is not a weight"):
        problem_from_json(json.dumps(problem))


def test_an_alignment_that_is_no_number() -> None:
    text = TARGETS["build"][1]()[0].decode()
    assert "maxAlignment:" in text
    for wrong in ("x", "9" * 5000):
        TARGETS["build"][0](text.replace("maxAlignment:", f"maxAlignment: {wrong}").encode())


def manifest_row(data: bytes, file: str = "0000.smt2") -> dict[str, object]:
    row = {"name": "x", "file": file, "logic": "QF_UF", "goals": 1, "outcome": "proved"}
    return {**row, "sha256": hashlib.sha256(data).hexdigest()}


def write_manifest(directory: Path, row: dict[str, object]) -> None:
    manifest = {"version": 2, "inputs": [], "obligations": [row], "digest": rows_digest([], [row])}
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["\\ud800", "\\u0000", "", "..", "/"])
def test_a_file_name_in_a_manifest_that_is_none(tmp_path: Path, name: str) -> None:
    row = manifest_row(b"", file=json.loads(f'"{name}"'))
    write_manifest(tmp_path, row)
    (found,) = recheck(tmp_path, "z3")
    assert found.outcome is Outcome.INVALID


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"version": 2, "inputs": [], "obligations": [["name", "file"]], "digest": ""}']
)
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError):
        recheck(tmp_path, "z3")


def test_an_obligation_that_is_not_text(tmp_path: Path) -> None:
    data = b"\xff\xfe(check-sat)"
    (tmp_path / "0000.smt2").write_bytes(data)
    write_manifest(tmp_path, manifest_row(data))
    (found,) = recheck(tmp_path, "z3")
    assert found.outcome is Outcome.INVALID


def test_blank_lines_without_end_are_read_in_time() -> None:
    with in_time(), pytest.raises(InputError):
        load_input(b"\n" * 1_000_000 + b"x")
