"""The serialised form: round trips, canonical text, the JSON Schema, and what is turned away."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import problem_of_body

import verilocc_mlir.problem.schema as schema_module
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.problem.schema import json_schema, problem_from_json, proposal_from_json, to_json

BODY = """
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr0

    %0:vgpr_32 = COPY $vgpr0

  bb.1:
    undef %1.sub0:vreg_64_align2 = COPY %0
    early-clobber %1.sub1:vreg_64_align2 = COPY %0
    S_ENDPGM 0, implicit %1
"""


@pytest.fixture(name="problem")
def _problem() -> AllocationProblem:
    return problem_of_body(BODY)


def test_round_trip(problem: AllocationProblem) -> None:
    text = to_json(problem)
    assert problem_from_json(text) == problem
    assert to_json(problem_from_json(text)) == text
    proposal = Proposal(1, "greedy", ("vgpr0", "", "vgpr2_vgpr3"))
    assert proposal_from_json(to_json(proposal)) == proposal


def test_text_is_canonical(problem: AllocationProblem) -> None:
    text = to_json(problem)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert text.isascii()
    assert '"weight":1}' in text, "whole weights are integers, so that no reader sees 1.0 and 1 as different"
    shuffled = json.dumps(dict(reversed(json.loads(text).items())), indent=2)
    assert to_json(problem_from_json(shuffled)) == text


def test_schema_file_is_what_the_code_says() -> None:
    path = Path(schema_module.__file__).with_name("allocation.schema.json")
    assert json.loads(path.read_text()) == json_schema()


def test_schema_accepts_what_is_written(problem: AllocationProblem) -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator.validate(json.loads(to_json(problem)))
    validator.validate(json.loads(to_json(Proposal(1, "x", ("vgpr0",)))))


Edit = Callable[[Any], object]


def _set(*path: str | int, to: object) -> Edit:
    def edit(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = to

    return edit


STRUCTURAL: list[tuple[Edit, str]] = [
    (_set("version", to=2), "$.version"),
    (_set("version", to=True), "$.version"),
    (_set("slots", to="16"), "$.slots"),
    (_set("slots", to=1.5), "$.slots"),
    (_set("slots", to=-4), "$.slots"),
    (_set("phase", to="agpr"), "$.phase"),
    (_set("ranges", to={}), "$.ranges"),
    (_set("ranges", 0, to=None), "$.ranges[0]"),
    (_set("ranges", 1, "banks", to=["vgpr", "mgpr"]), "$.ranges[1].banks[1]"),
    (_set("ranges", 1, "groups", 0, "segments", 0, to=[1, 2, 3]), "$.ranges[1].groups[0].segments[0]"),
    (_set("ranges", 0, "points", 0, "kind", to="read"), "$.ranges[0].points[0].kind"),
    (_set("ranges", 0, "weight", to=-1), "$.ranges[0].weight"),
    (_set("ranges", 0, "colour", to=1), "$.ranges[0]"),
    (lambda d: d["ranges"][0].pop("align"), "$.ranges[0]"),
    (_set("occupancy", "unified", to=1), "$.occupancy.unified"),
    (_set("affinities", 0, "b", to=-2), "$.affinities[0].b"),
]
SEMANTIC: list[tuple[Edit, str]] = [
    (_set("ranges", 1, "id", to=0), "$.ranges[1].id"),
    (_set("ranges", 0, "width", to=2), "$.ranges[0].width"),
    (_set("ranges", 0, "align", to=0), "$.ranges[0].align"),
    (_set("ranges", 0, "groups", 0, "lanes", to=4), "$.ranges[0].groups[0].lanes"),
    (_set("ranges", 0, "groups", 0, "segments", to=[]), "$.ranges[0].groups[0].segments"),
    (_set("ranges", 0, "groups", 0, "segments", to=[[2, 4], [4, 6]]), "$.ranges[0].groups[0].segments[1]"),
    (_set("ranges", 0, "groups", 0, "segments", to=[[2, 400]]), "$.ranges[0].groups[0].segments[0]"),
    (_set("ranges", 0, "points", 0, "slot", to=400), "$.ranges[0].points[0].slot"),
    (_set("ranges", 0, "points", 0, "lanes", to=0), "$.ranges[0].points[0].lanes"),
    (_set("affinities", 0, "a", to=9), "$.affinities[0].a"),
    (_set("affinities", 0, "a_lane", to=1), "$.affinities[0].a_lane"),
    (_set("affinities", 0, "fixed", to=""), "$.affinities[0].fixed"),
    (_set("fixed", 0, "segments", to=[[4, 2]]), "$.fixed[0].segments[0]"),
    (_set("block_depths", to=[0]), "$.block_depths"),
    (_set("block_starts", to=[4, 0]), "$.block_starts"),
    (_set("budgets", 0, "registers", to=[1, 0]), "$.budgets[0].registers"),
    (_set("budgets", 0, "expensive", to=[999]), "$.budgets[0].expensive"),
]


@pytest.mark.parametrize(("edit", "path"), STRUCTURAL + SEMANTIC)
def test_bad_documents_are_named_by_path(problem: AllocationProblem, edit: Edit, path: str) -> None:
    document = json.loads(to_json(problem))
    edit(document)
    with pytest.raises(InputError) as caught:
        problem_from_json(json.dumps(document))
    assert caught.value.where == path


@pytest.mark.parametrize(("edit", "path"), STRUCTURAL)
def test_schema_turns_away_the_same_shapes(problem: AllocationProblem, edit: Edit, path: str) -> None:
    document = copy.deepcopy(json.loads(to_json(problem)))
    edit(document)
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(document)), path


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "nul", '{"version":1,"version":1}', '{"version":NaN}', "[" * 5000 + "]" * 5000, "3"]
)
def test_what_is_no_document(text: str) -> None:
    for read in (problem_from_json, proposal_from_json):
        with pytest.raises(InputError):
            read(text)


def test_proposals_are_checked() -> None:
    with pytest.raises(InputError) as caught:
        proposal_from_json('{"version":1,"allocator":"x","registers":["vgpr0",3]}')
    assert caught.value.where == "$.registers[1]"
