"""What a store gives back is a result only if report, form, machine and registers go together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from batch_support import CPU, kernel
from msgspec.structs import replace

from verilocc_mlir.forms import to_json
from verilocc_mlir.pipeline.batch.executors import LocalExecutor
from verilocc_mlir.pipeline.batch.jobs import REPORT, RESULT, Job, fault_of
from verilocc_mlir.pipeline.settings import Emit, Settings

_TEXT = kernel(3)
_DIGEST = hashlib.sha256(_TEXT.encode()).hexdigest()
_Parts = Mapping[str, bytes]


@pytest.fixture(scope="module")
def kept() -> dict[Emit, _Parts]:
    """The entry of one kernel in each form."""
    jobs = [Job(n, "k.ll", _TEXT.encode(), Settings(cpu=CPU, emit=form)) for n, form in enumerate(Emit)]
    results = {r.number: r for r in LocalExecutor(1, 600).run(jobs)}
    return {
        form: {RESULT: results[n].data or b"", REPORT: to_json(results[n].report or {}).encode()}
        for n, form in enumerate(Emit)
    }


def _reported(parts: _Parts, **changes: Any) -> _Parts:
    return {**parts, REPORT: json.dumps({**json.loads(parts[REPORT]), **changes}).encode()}


def _more_registers(parts: _Parts) -> _Parts:
    functions = json.loads(parts[REPORT])["functions"]
    functions[0]["resources"]["vgprs"] += 1
    return _reported(parts, functions=functions)


def _refuted_phase(parts: _Parts) -> _Parts:
    functions = json.loads(parts[REPORT])["functions"]
    functions[0]["phases"][0]["outcome"] = "refuted"
    return _reported(parts, functions=functions)


def _renamed(parts: _Parts) -> _Parts:
    return {**parts, REPORT: parts[REPORT].replace(b'"name": "times3"', b'"name": "times4"')}


def _of_gfx90a(parts: _Parts) -> _Parts:
    elf = parts[RESULT]
    return {**parts, RESULT: elf[:48] + bytes([0x3F]) + elf[49:]}  # e_flags


def test_each_form_of_a_result_is_one(kept: dict[Emit, _Parts]) -> None:
    for form, parts in kept.items():
        assert fault_of(parts, _DIGEST, Settings(cpu=CPU, emit=form)) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: {**p, RESULT: b"\x7fELF and no more"}, "not a readable ELF file"),
        (lambda p: {**p, RESULT: b"text"}, "not a readable ELF file"),
        (lambda p: {RESULT: p[RESULT]}, "no result with its report"),
        (lambda p: {REPORT: p[REPORT]}, "no result with its report"),
        (lambda p: {**p, REPORT: b"null"}, "no result with its report"),
        (lambda p: {**p, REPORT: b"[["}, "no result with its report"),
        (lambda p: _reported(p, emit="obj"), "it is obj, not hsaco"),
        (lambda p: _reported(p, outcome="refuted"), "does not say that it is proved"),
        (lambda p: _reported(p, functions=[]), "does not say that it is proved"),
        (_refuted_phase, "does not say that it is proved"),
        (_more_registers, "takes other registers"),
        (_renamed, "times4 is not in it"),
        (_of_gfx90a, "for gfx90a"),
    ],
)
def test_what_does_not_go_together_is_none(kept: dict[Emit, _Parts], change: Any, why: str) -> None:
    assert why in fault_of(change(kept[Emit.HSACO]), _DIGEST, Settings(cpu=CPU))


def test_a_result_of_another_input_or_form_is_none(kept: dict[Emit, _Parts]) -> None:
    settings = Settings(cpu=CPU)
    assert "another input" in fault_of(kept[Emit.HSACO], "0" * 64, settings)
    for form in (Emit.OBJ, Emit.ASM, Emit.MIR):
        assert fault_of(kept[Emit.HSACO], _DIGEST, replace(settings, emit=form))
        as_code = {**_reported(kept[form], emit="hsaco"), RESULT: kept[form][RESULT]}
        assert fault_of(as_code, _DIGEST, settings)
    assert "times4" in fault_of(_renamed(kept[Emit.MIR]), _DIGEST, replace(settings, emit=Emit.MIR))
