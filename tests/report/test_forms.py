"""The report's JSON form, table and exit code, on a report made by hand."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest
from msgspec.structs import replace

from smt_verifier.outcome import Outcome
from verilocc_mlir.report.text import render
from verilocc_mlir.results.compile import (
    Attempt,
    CheckFinding,
    CheckResult,
    FunctionReport,
    Moves,
    PhaseReport,
    Report,
    Resources,
    TimedStep,
)
from verilocc_mlir.results.compile_document import schema, to_data, to_json

jsonschema = pytest.importorskip("jsonschema")

PROVED = CheckResult(Outcome.PROVED, 40)
REFUTED = CheckResult(Outcome.REFUTED, 40, (CheckFinding("interference", Outcome.REFUTED, "%3 and %5 share v7"),))
OURS = Attempt("deterministic", "audit", "", PROVED, PROVED)


def phase(*attempts: Attempt, name: str = "vgpr", fallback: bool = False) -> PhaseReport:
    reason = attempts[0].reason if fallback else ""
    return PhaseReport(name, attempts, fallback, reason, Moves(9, 2, 0, 0, 1), {"audit": 0.25})


def report(*phases: PhaseReport) -> Report:
    resources = Resources(30, 64, 8, 0, 0, 0, 8)
    function = FunctionReport("gemm", True, 120, phases, resources, replace(resources, vgprs=72, waves=7))
    return Report(
        version="0.1.0",
        llvm="LLVM version 22.1.8",
        input="k.ll",
        input_sha256="0" * 64,
        target="gfx942",
        features="",
        allocator="deterministic",
        emit="hsaco",
        functions=(function,),
        mended=(),
        notes=(),
        steps=(TimedStep("parse", 0.5), TimedStep("llc finish", 0.25)),
        wall_seconds=1.0,
    )


PROVED_REPORT = report(phase(OURS, name="sgpr"), phase(OURS))
FALLBACK = report(
    phase(OURS, name="sgpr"),
    phase(
        Attempt("deterministic", "allocate", "peak pressure 300 exceeds 256 VGPRs"),
        Attempt("llvm", "audit", audit=PROVED),
        fallback=True,
    ),
)
BROKEN = report(phase(OURS, name="sgpr"), phase(Attempt("deterministic", "prove", "interference", REFUTED)))


@pytest.mark.parametrize(
    "one", [PROVED_REPORT, FALLBACK, BROKEN, report()], ids=["proved", "fallback", "broken", "none"]
)
def test_json_obeys_its_schema(one: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(to_json(one)), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("outcome",), "true"),
        (("functions", 0, "phases", 0, "attempts"), []),
        (("functions", 0, "phases", 0, "obligations"), -1),
        (("extra",), 1),
    ],
)
def test_the_schema_refuses_other_forms(path: tuple[Any, ...], value: object) -> None:
    data: Any = to_data(PROVED_REPORT)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("one", "outcome", "code"),
    [
        (PROVED_REPORT, Outcome.PROVED, 0),
        (FALLBACK, Outcome.PROVED, 0),
        (BROKEN, Outcome.REFUTED, 1),
        (report(phase(Attempt("deterministic", "allocate", "no place"))), Outcome.UNKNOWN, 3),
        (report(phase(Attempt("llvm", "audit", audit=CheckResult(Outcome.UNKNOWN, 3)))), Outcome.UNKNOWN, 3),
        (report(phase(Attempt("llvm", "audit", audit=CheckResult(Outcome.INVALID, 0)))), Outcome.INVALID, 2),
        (report(phase(OURS, name="sgpr")), Outcome.UNKNOWN, 3),
        (report(), Outcome.UNKNOWN, 3),
        (replace(PROVED_REPORT, functions=()), Outcome.UNKNOWN, 3),
    ],
)
def test_outcome_and_exit_code(one: Report, outcome: Outcome, code: int) -> None:
    assert one.outcome is outcome
    assert one.exit_code == code


def test_an_allocation_without_audit_is_never_proved() -> None:
    assert Attempt("deterministic", "rewrite", "", PROVED).outcome is Outcome.UNKNOWN


def test_the_table_names_fallback_and_reason() -> None:
    text = click.unstyle(render(FALLBACK))
    assert "llvm (fallback)" in text
    assert "peak pressure 300 exceeds 256 VGPRs" in text
    assert "64 V [8 A] (72 V [8 A])" in text
    assert text.endswith("proved; nothing was written")


def test_the_table_is_aligned_and_a_name_that_is_too_long_is_folded() -> None:
    function = PROVED_REPORT.functions[0]
    lines = click.unstyle(render(replace(PROVED_REPORT, functions=(replace(function, name="n" * 150),)))).splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith(" ---"))
    heads, row = lines[rule - 1], lines[rule + 1]
    assert all(len(line) <= 132 for line in lines[1:rule])
    assert row.index(" proved") == heads.index(" verdict")
    assert "".join(re.findall(r"^ (n+)", "\n".join(lines), re.MULTILINE)) == "n" * 150


def test_the_table_shows_what_is_violated() -> None:
    text = render(BROKEN)
    assert "interference: %3 and %5 share v7" in text
    assert "refuted" in text


def test_obligations_are_those_of_the_text_that_was_used() -> None:
    assert FALLBACK.functions[0].phases[1].obligations == 40
    assert PROVED_REPORT.functions[0].phases[1].obligations == 80
