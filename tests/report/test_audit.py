"""The audit's reports: JSON and SARIF against their schemas, HTML that needs nothing else, on real refutations."""

from __future__ import annotations

import ast
import json
import re
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any

import pytest
from allocation import phases_of_ir, phases_of_kernel
from case_support import CASES
from support import REPOSITORY, TEST_DATA

from smt_verifier.artefacts import RecordingSolver
from smt_verifier.audit import RULES, AuditReport, Fault, Finding, FunctionAudit, MoveCounts, audit
from smt_verifier.audit.core.report import FAULTS
from smt_verifier.outcome import Outcome
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.audit import audit_texts
from verilocc_mlir.report.audit import RULE_TEXTS, to_html, to_text
from verilocc_mlir.report.sarif import audit_sarif, audit_sarif_data
from verilocc_mlir.results.audit import AuditedPair, AuditRun, Listing, schema, to_data, to_json
from verilocc_mlir.target.targets import target

jsonschema = pytest.importorskip("jsonschema")

DATA = TEST_DATA
KERNELS = REPOSITORY / "examples" / "kernels"
SARIF_SCHEMA = json.loads((DATA / "report" / "sarif-2.1.0-rtm.5.json").read_text())


@lru_cache(maxsize=None)
def proved() -> AuditRun:
    """With the search and its solver: one that records is not the default one."""
    pair = phases_of_ir((DATA / "audit" / "divergent.ll").read_text(), "gfx942")[1]
    sides = Listing("pre.mir", pair.pre), Listing("post.mir", pair.post)
    return audit_texts(*sides, "gfx942", record=lambda _, solver: RecordingSolver(solver))


@lru_cache(maxsize=None)
def refuted() -> AuditRun:
    pair = phases_of_kernel(KERNELS / "gemm_mma_lds.gfx942.opt.ll")[1]
    update = "renamable $vgpr24_vgpr25 = V_LSHL_ADD_U64_e64 killed"
    broken = pair.with_post(update, update.replace("$vgpr24_vgpr25", "$vgpr52_vgpr53"))
    return audit_texts(Listing("a dir/pre.mir", broken.pre), Listing("a dir/post.mir", broken.post), "gfx942")


def made(outcome: Outcome, finding: Finding, name: str = "k") -> AuditRun:
    """A run by hand, for what LLVM's output does not show."""
    report = AuditReport((FunctionAudit(name, outcome, 3, (finding,), MoveCounts()),))
    pair = AuditedPair("vgpr", Listing("pre.mir", "a\nb\n"), Listing("post.mir", "c\nd\n"), report, 0.5)
    return AuditRun("0.1.0", "LLVM version 22.1.8", "gfx942", Listing("k.ll", ""), "greedy", (pair,), ("a note",))


UNKNOWN = made(Outcome.UNKNOWN, Finding("solver", Outcome.UNKNOWN, "k/block-0: no answer within 1 s", 0))
INVALID = made(Outcome.INVALID, Finding("header", Outcome.INVALID, "the function is missing after allocation"))
NOTHING = AuditRun("0.1.0", "", "gfx942", None, "", ())
RUNS = {"proved": proved, "refuted": refuted, "unknown": lambda: UNKNOWN, "invalid": lambda: INVALID}


@pytest.mark.parametrize("name", [*RUNS, "nothing"])
def test_json_obeys_its_schema(name: str) -> None:
    run = RUNS[name]() if name in RUNS else NOTHING
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(to_json(run)), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", [*RUNS, "nothing"])
def test_sarif_obeys_the_official_schema(name: str) -> None:
    run = RUNS[name]() if name in RUNS else NOTHING
    jsonschema.Draft4Validator(SARIF_SCHEMA, format_checker=jsonschema.FormatChecker()).validate(
        json.loads(audit_sarif(run))
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("outcome",), "true"),
        (("pairs", 0, "functions", 0, "findings", 0, "path"), "bb.1"),
        (("pairs", 0, "functions", 0, "obligations"), -1),
        (("pairs", 0, "functions", 0, "findings", 0, "expected", "facts", 0, "site", "side"), "left"),
        (("extra",), 1),
    ],
)
def test_the_schema_refuses_other_forms(path: tuple[Any, ...], value: object) -> None:
    data: Any = json.loads(to_json(refuted()))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema(), cls=jsonschema.Draft202012Validator)


def test_outcome_and_exit_code() -> None:
    for run, outcome, code in (
        (proved(), Outcome.PROVED, 0),
        (refuted(), Outcome.REFUTED, 1),
        (INVALID, Outcome.INVALID, 2),
        (UNKNOWN, Outcome.UNKNOWN, 3),
        (NOTHING, Outcome.UNKNOWN, 3),
    ):
        assert (run.outcome, run.exit_code) == (outcome, code)
        assert (to_data(run)["outcome"], to_data(run)["exit_code"]) == (str(outcome), code)


def test_json_has_the_whole_explanation() -> None:
    finding = to_data(refuted())["pairs"][0]["functions"][0]["findings"][0]
    assert finding["rule"] == "value"
    assert finding["operand"]["post"] == "$vgpr24_vgpr25"
    assert finding["lane"] == "lanes sub0, sub1"
    assert finding["path"] == ["bb.1", "bb.1"]
    assert finding["expected"]["facts"][0]["site"]["side"] == "pre"
    assert finding["found"]["facts"][0]["site"]["label"] == "bb.0"
    assert finding["elsewhere"] == ["v52"]


def test_sarif_has_places_rules_and_the_path() -> None:
    data = audit_sarif_data(refuted())["runs"][0]
    driver = data["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in driver["rules"])
    result = data["results"][0]
    assert (result["ruleId"], result["kind"], result["level"]) == ("value", "fail", "error")
    assert driver["rules"][result["ruleIndex"]]["id"] == "value"
    finding = next(refuted().findings())[2]
    (place,) = result["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "a%20dir/post.mir"
    assert place["physicalLocation"]["region"]["startLine"] == finding.post_line
    assert place["logicalLocations"] == [{"name": "gemm", "kind": "function"}]
    before = result["relatedLocations"][0]
    assert before["physicalLocation"]["artifactLocation"]["uri"] == "a%20dir/pre.mir"
    assert before["physicalLocation"]["region"]["startLine"] == finding.pre_line
    (flow,) = result["codeFlows"]
    assert flow["message"]["text"] == "bb.1 -> bb.1"
    steps = flow["threadFlows"][0]["locations"]
    lines = [s["location"]["physicalLocation"]["region"]["startLine"] for s in steps]
    assert lines[-1] == finding.post_line
    assert len(lines) >= 3
    assert data["properties"]["verdicts"][0]["outcome"] == "refuted"


def test_unknown_is_an_open_question_in_sarif() -> None:
    result = audit_sarif_data(UNKNOWN)["runs"][0]["results"][0]
    assert (result["kind"], result["level"]) == ("open", "none")


def rules_named_in_the_audit() -> set[str]:
    """First arguments of the calls that make findings, goals and complaints in the audit's code."""
    named: set[str] = set()
    for path in (REPOSITORY / "smt_verifier" / "audit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                function = node.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                first = node.args[0]
                if name in ("Finding", "Goal", "Complaint", "refute") and isinstance(first, ast.Constant):
                    named.add(str(first.value))
    return named


def test_every_rule_has_its_kind_of_fault() -> None:
    named = rules_named_in_the_audit()
    assert len(named) > 15
    assert named <= set(FAULTS)
    assert {rule for rule in RULES if FAULTS[rule] is Fault.LIVENESS} == {"kill-flag", "dead-flag", "live-in"}
    for rule in RULES:
        assert Finding(rule, Outcome.UNKNOWN, "").fault is Fault.UNDECIDED
        assert Finding(rule, Outcome.INVALID, "").fault is Fault.INVALID


def test_the_two_kinds_of_fault_are_told_apart_in_every_form() -> None:
    """One operand reads another register; one register is marked killed though it is read later."""
    pair = phases_of_kernel(KERNELS / "gemm_mma_lds.gfx942.opt.ll")[1]
    loads = "GLOBAL_LOAD_DWORDX4 renamable $vgpr44_vgpr45, 0"
    lying = pair.with_post(loads, loads.replace("renamable", "killed renamable"))
    reads = "V_MFMA_F32_16X16X16F16_vgprcd_e64 $vgpr32_vgpr33, $vgpr3"
    both = lying.with_post(f"{reads}6_vgpr37", f"{reads}8_vgpr39")
    for text, kinds in (
        (lying, ["untrue-liveness"]),
        (both, ["computes-otherwise", "untrue-liveness"]),
    ):
        run = audit_texts(Listing("pre.mir", text.pre), Listing("post.mir", text.post), "gfx942")
        assert (run.outcome, run.exit_code) == (Outcome.REFUTED, 1)
        function = to_data(run)["pairs"][0]["functions"][0]
        assert function["faults"] == to_data(run)["pairs"][0]["faults"] == kinds
        assert [f["fault"] for f in function["findings"]] == kinds
        shown = to_text(run)
        assert f"gemm: refuted ({', '.join(kinds)}), " in shown
        assert "post.mir:" in shown
        assert "but read later [untrue-liveness]\n" in shown
        sarif = audit_sarif_data(run)["runs"][0]
        assert [r["properties"]["fault"] for r in sarif["results"]] == kinds
        assert sarif["properties"]["verdicts"][0]["faults"] == kinds
        assert all(kind in page(run).text for kind in kinds)


def test_sarif_rules_are_tagged_with_their_kind_of_fault() -> None:
    rules = {r["id"]: r["properties"]["tags"] for r in audit_sarif_data(NOTHING)["runs"][0]["tool"]["driver"]["rules"]}
    assert rules["kill-flag"] == ["untrue-liveness"]
    assert rules["value"] == ["computes-otherwise"]
    assert rules["register-class"] == ["breaks-rule"]


def test_goals_are_counted_by_what_the_solver_had_to_decide() -> None:
    for run in (proved(), refuted()):
        function = to_data(run)["pairs"][0]["functions"][0]
        goals = function["goals"]
        assert goals["literal"] > goals["decided"] > 0
        assert function["obligations"] == goals["literal"] + goals["decided"] + function["rule_checks"]
        counted = f"{goals['literal']} literal goals, {goals['decided']} decided, {function['rule_checks']} rule checks"
        assert f"{function['obligations']} obligations: {counted}\n" in to_text(run)
        verdict = audit_sarif_data(run)["runs"][0]["properties"]["verdicts"][0]
        assert (verdict["literalGoals"], verdict["decidedGoals"]) == (goals["literal"], goals["decided"])
        assert page(run).text.count(str(goals["literal"])) > 0


def test_the_solver_is_asked_no_literal_goal_and_every_other_one() -> None:
    solver = RecordingSolver()
    pair = phases_of_ir((DATA / "audit" / "divergent.ll").read_text(), "gfx942")[1]
    report = audit(parse_mir(pair.pre), parse_mir(pair.post), target("gfx942"), solver=solver)
    questions = 0
    for asked, _ in solver.answers:
        hypotheses = set(re.findall(r"^\(assert (.*)\)$", asked.script, re.MULTILINE))
        for _, term in asked.goals:
            assert term not in hypotheses
            assert not re.search(r"\(= (t\d+) \1\)", term)
            questions += 1
    assert sum(f.goals.literal for f in report.functions) > 0
    # Goals that only names tell apart are counted each and asked once.
    assert 0 < questions <= sum(f.goals.decided for f in report.functions)


def test_every_rule_has_its_texts() -> None:
    assert set(RULE_TEXTS) == set(RULES)
    assert all(text.summary.endswith(".") and text.help.endswith(".") for text in RULE_TEXTS.values())


class _Page(HTMLParser):
    """Collects tags and checks that they nest."""

    VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        # </p>, </dt> and </dd> are written out everywhere, so every end tag closes the last one opened.
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(run: AuditRun) -> _Page:
    parsed = _Page()
    parsed.feed(to_html(run))
    parsed.close()
    assert parsed.open == []
    return parsed


@pytest.mark.parametrize("name", [*RUNS, "nothing"])
def test_html_is_well_formed_and_needs_nothing_else(name: str) -> None:
    parsed = page(RUNS[name]() if name in RUNS else NOTHING)
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    links = [value for key, value in parsed.attributes if key in ("src", "href")]
    assert all(link and link.startswith("#") for link in links)
    assert "url(" not in to_html(NOTHING)


@pytest.mark.parametrize("name", ["proved", "refuted"])
def test_html_fits_a_narrow_window(name: str) -> None:
    """What is wide scrolls by itself: the table and the texts; no column of the rest is wider than a window."""
    page = to_html(RUNS[name]())
    style = page[page.index("<style>") : page.index("</style>")]
    assert page.count("<table>") == page.count('<div class="wide"><table>') == 1
    assert re.search(r"^\.wide \{ overflow-x: auto; \}", style, re.M)
    assert re.search(r"^pre \{ overflow-x: auto;", style, re.M)
    assert re.findall(r"minmax\((.*?), 1fr\)", style) == ["0", "min(26rem, 100%)"]


def test_html_shows_both_sides_around_the_finding() -> None:
    parsed = page(refuted())
    finding = next(refuted().findings())[2]
    assert finding.message in parsed.text
    assert "before allocation: a dir/pre.mir" in parsed.text
    assert "after allocation: a dir/post.mir" in parsed.text
    classes = [value or "" for key, value in parsed.attributes if key == "class"]
    assert classes.count("line here") >= 2
    assert any(c == "line expected" for c in classes)
    assert f"{finding.post_line:6} " in parsed.text
    assert "bb.1 -> bb.1" in parsed.text


def test_html_escapes_what_the_input_says() -> None:
    hostile = "<script>alert('x')</script>&\"$outcome"
    finding = Finding("value", Outcome.REFUTED, hostile, 0, 1, 1, hostile)
    run = made(Outcome.REFUTED, finding, hostile)
    text = to_html(run)
    assert "<script" not in text
    parsed = page(run)
    assert hostile in parsed.text


def test_text_starts_each_finding_with_file_and_line() -> None:
    finding = next(refuted().findings())[2]
    assert f"\n  a dir/post.mir:{finding.post_line}: refuted: value: " in to_text(refuted())
    assert to_text(refuted()).endswith("\nrefuted\n")
    shown = to_text(UNKNOWN)
    assert shown.startswith(
        "k.ll for gfx942, LLVM version 22.1.8, greedy allocation\nk, VGPR: unknown, 3 obligations\n"
    )
    assert "note: a note" in shown


def test_the_report_says_what_the_checkers_were_told() -> None:
    texts = (CASES / f"right_near_branch_over_duplicated_copies.{side}.mir" for side in ("before", "after"))
    before, after = (Listing(path.name, path.read_text()) for path in texts)
    run = audit_texts(before, after, "gfx942")
    assert "compared, told --near-branches\n" in to_text(run)
    (function,) = json.loads(to_json(run))["pairs"][0]["functions"]
    assert function["premises"] == ["near-branches"]
