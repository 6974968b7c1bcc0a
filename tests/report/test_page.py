"""The HTML page: what it says is what was decided, it needs nothing else, and nothing from the input is markup."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from msgspec.structs import replace
from page_support import Page, assigned_cells, box_cells, read_page, shown_cells
from pressure_oracle import peak_pressure
from support import REPOSITORY, llc, long

from smt_verifier.outcome import Outcome
from smt_verifier.smt import Obligation, Verdict
from verilocc_mlir.analysis.lanes import virtual_classes
from verilocc_mlir.analysis.liveness import LaneSegments
from verilocc_mlir.cli.main import run
from verilocc_mlir.cost.model import cost_of_assembly
from verilocc_mlir.explain.boxes import assigned_boxes, at, demand, in_use, loops, peak, wave_steps
from verilocc_mlir.explain.follow import follow
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.recording import Recording
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.report.page.html import MAX_MOVES, asked, safe_json, to_html
from verilocc_mlir.results.page import Action, CostRow, PageInput, PhaseRecord
from verilocc_mlir.target.occupancy import waves_by_sgprs, waves_by_vectors
from verilocc_mlir.target.targets import TARGETS, target

# What is compiled for several tests is compiled once.
KERNELS = REPOSITORY / "examples" / "kernels"
HOSTILE = "k<script>alert(1)</script>&amp;'</style>-->"
SMALL = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @"%NAME%"(ptr addrspace(1) %p, i32 %n) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %id
  %v = load i32, ptr addrspace(1) %q
  %w = call i32 @helper(i32 %v, i32 %n)
  store i32 %w, ptr addrspace(1) %q
  ret void
}
define i32 @helper(i32 %a, i32 %b) noinline {
  %r = mul i32 %a, %b
  ret i32 %r
}
"""
EMPTY = 'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @nothing() {\n  ret void\n}\n'


def compiled(text: str, cpu: str, **options: object) -> tuple[Compiled, Recording]:
    recording = Recording()
    settings = Settings.from_data({"cpu": cpu, **options})
    return compile_module(text.encode(), "dir/k.ll", settings, recording=recording), recording


def page_of(done: Compiled, recording: Recording, **more: object) -> Page:
    given = PageInput(target(done.report.target), tuple(recording.phases), **more)  # type: ignore[arg-type]
    page = read_page(to_html(done.report, given))
    assert page.faults == []
    return page


@lru_cache(maxsize=None)
def kernel(name: str) -> tuple[Compiled, Recording]:
    return compiled((KERNELS / f"{name}.opt.ll").read_text(), name.split(".")[1])


def tight_text() -> str:
    """Eight waves leave 64 VGPRs, and this kernel needs more at once."""
    agprs = '"amdgpu-agpr-alloc"="0"'
    text = (KERNELS / "attn_d64.gfx942.opt.ll").read_text()
    assert agprs in text
    return text.replace(agprs, f'{agprs} "amdgpu-waves-per-eu"="8,8"')


@lru_cache(maxsize=1)
def tight() -> tuple[Compiled, Recording]:
    """LLVM's allocation of it, which spills."""
    return compiled(tight_text(), "gfx942", spill=False)


@pytest.mark.parametrize("name", ["gemm_mma_lds.gfx942", *long("attn_d64.gfx1100")])
def test_the_picture_is_the_assignment(name: str) -> None:
    done, recording = kernel(name)
    pictures = page_of(done, recording).data()
    assert [d["phase"] for d in pictures] == ["sgpr", "vgpr"]
    for data, record in zip(pictures, recording.phases, strict=True):
        assert record.problem is not None
        assert record.proposal is not None
        assert [p["used"] for p in data["placements"]] == [True, False]
        cells = assigned_cells(record.problem, record.proposal)
        assert shown_cells(data, 0) == cells
        assert data["slots"] == record.problem.slots
        assert len(data["instructions"]) == record.before.instruction_count
        for live, row in zip(record.problem.ranges, data["ranges"], strict=True):
            defined = {p.slot // 4 for p in live.points if p.kind != "use"}
            used = {p.slot // 4 for p in live.points if p.kind == "use"}
            assert (row[0], row[1], row[2]) == (live.name, live.register_class, live.width)
            assert (set(row[4]), set(row[5])) == (defined, used)
            for index in defined | used:
                assert re.search(rf"{live.name}\b", data["instructions"][index])
        # A page about another assignment would be seen.
        other = replace(record.proposal, registers=(record.proposal.registers[1], *record.proposal.registers[1:]))
        if other.registers[0] != record.proposal.registers[0] and record.problem.ranges[0].lanes == 2:
            assert assigned_cells(record.problem, other) != cells


@pytest.mark.parametrize("name", ["gemm_mma_lds.gfx942", *long("attn_d64.gfx1100")])
def test_what_is_read_off_the_text_is_what_was_assigned(name: str) -> None:
    """The follower has only texts; on ours its answer is known."""
    _, recording = kernel(name)
    for record in recording.phases:
        assert record.problem is not None
        assert record.proposal is not None
        assert record.after is not None
        followed = follow(record.before, record.after, record.problem)
        assert followed is not None
        found, known = box_cells(followed.boxes), box_cells(assigned_boxes(record.problem, record.proposal))
        assert found <= known
        # Where a copy became nothing, its source's last slots may count as its target's.
        assert len(known - found) <= len(known) // 1000
    # Two registers of one class exchanged in the text: seen.
    record = recording.phases[-1]
    assert record.problem is not None
    assert record.after is not None
    assert record.llvm is not None
    theirs = follow(record.before, record.llvm, record.problem)
    assert theirs is not None
    assert box_cells(theirs.boxes) != box_cells(assigned_boxes(record.problem, record.proposal))  # type: ignore[arg-type]


@pytest.mark.long
def test_llvms_placement_names_the_registers_of_its_text() -> None:
    """Every virtual operand of a paired instruction is in the register that LLVM wrote there."""
    _, recording = tight()
    record = recording.phases[-1]
    assert record.problem is not None
    assert record.llvm is not None
    assert record.after is record.llvm
    followed = follow(record.before, record.llvm, record.problem)
    assert followed is not None
    rows = {(b.owner, slot) for b in followed.boxes for slot in range(b.start, b.end)}
    defined = [(live.id, p.slot) for live in record.problem.ranges for p in live.points if p.kind == "def"]
    assert defined
    dead = {
        (live.id, g[0]) for live in record.problem.ranges for s in live.groups for g in s.segments if g[1] - g[0] < 2
    }
    assert all(point in rows for point in defined if point not in dead)


@pytest.mark.long
def test_moves_are_those_of_the_text() -> None:
    done, recording = tight()
    record = recording.phases[-1]
    assert record.after is not None
    assert record.problem is not None
    followed = follow(record.before, record.after, record.problem)
    assert followed is not None
    texts = [str(i) for b in record.after.blocks for i in b.instructions]
    for kind, pattern in (("spill", r"SI_SPILL_\w+_SAVE"), ("reload", r"SI_SPILL_\w+_RESTORE")):
        wanted = [t for t in texts if re.match(pattern, t) or re.search(f" = {pattern} ", t)]
        found = [m for m in followed.moves if m.kind == kind]
        assert wanted
        assert sorted(m.text for m in found) == sorted(wanted)
        assert all(re.fullmatch(r"%\d+", m.name) for m in found)
    copies = [m for m in followed.moves if m.kind in ("copy", "split")]
    assert len(copies) == sum(" COPY " in t for t in texts)
    moves = done.report.functions[0].phases[-1].moves
    assert moves.saves == sum(m.kind == "spill" for m in followed.moves)
    assert moves.copies_left == len(copies)
    known = virtual_classes(record.before)
    assert all(int(m.name[1:]) in known for m in followed.moves if m.name)
    page = page_of(done, recording)
    assert "LLVM's allocation was taken instead." in page.text
    assert "VGPRs are needed at once" in page.text
    items = [e.text for e in page.of("li") if "spilled" in e.text]
    assert len(items) == min(moves.saves, MAX_MOVES)
    assert all("registers are wanted here" in text for text in items)


def test_pressure_is_that_of_the_analysis() -> None:
    _, recording = tight()
    for record in recording.phases:
        assert record.problem is not None
        ranges = [tuple(LaneSegments(g.lanes, g.segments) for g in r.groups) for r in record.problem.ranges]
        value, slot = peak(demand(record.problem))
        found = peak_pressure(ranges)
        assert (value, slot) == (found.registers, found.slot)
        if record.proposal is not None:
            use = in_use(assigned_boxes(record.problem, record.proposal))
            assert peak(use)[0] == value
            assert all(at(use, s) == at(demand(record.problem), s) for s in range(record.problem.slots))


@pytest.mark.parametrize("cpu", TARGETS)
def test_steps_are_where_waves_are_lost(cpu: str) -> None:
    machine = target(cpu)
    for phase, count in (("vgpr", waves_by_vectors), ("sgpr", waves_by_sgprs)):
        steps = dict(wave_steps(machine, phase, 200))
        for n in range(1, 200):
            lost = count(machine, n + 1) < count(machine, n)
            assert (n in steps) == lost
            if lost:
                assert steps[n] == count(machine, n)


def test_loops_are_marked() -> None:
    _, recording = kernel("gemm_mma_lds.gfx942")
    record = recording.phases[-1]
    assert record.problem is not None
    marked = loops(record.before)
    assert marked
    starts = [start // 4 for start in record.problem.block_starts] + [record.problem.slots // 4]
    for block, depth in enumerate(record.problem.block_depths):
        inside = [d for first, end, d in marked if first <= starts[block] and starts[block + 1] <= end]
        assert len(inside) == depth


def test_the_page_needs_nothing_else() -> None:
    done, recording = kernel("gemm_mma_lds.gfx942")
    page = page_of(done, recording)
    for element in page.elements:
        assert not {"src", "srcset", "action", "data", "poster", "background"} & set(element.attributes), element
        assert element.tag not in ("iframe", "object", "embed", "base", "img")
        href = element.attributes.get("href", "#")
        assert href.startswith("#") or href == "data:,"
        assert not any(name.startswith("on") for name in element.attributes)
    (style,) = page.of("style")
    assert not re.search(r"@import|url\(|https?:", style.text)
    script = next(e.text for e in page.of("script") if "type" not in e.attributes)
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|https?:|innerHTML|insertAdjacentHTML|eval\(", script)
    policy = next(e.attributes["content"] for e in page.of("meta") if "http-equiv" in e.attributes)
    assert "default-src 'none'" in policy
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {e.attributes["href"][1:] for e in page.of("a")} <= set(ids)
    assert {e.attributes["data-for"] for e in page.of("div") if "data-for" in e.attributes} <= set(ids)


def test_both_themes_and_print_are_there() -> None:
    done, recording = kernel("gemm_mma_lds.gfx942")
    (style,) = page_of(done, recording).of("style")
    dark = style.text.partition("prefers-color-scheme: dark")[2].partition("} }")[0]
    light = style.text.partition("@media")[0]
    names = set(re.findall(r"(--[\w-]+):", light))
    assert names == set(re.findall(r"(--[\w-]+):", dark))
    assert "color-scheme: light dark" in light
    assert "@media print" in style.text
    used = set(re.findall(r"var\((--[\w-]+)\)", style.text))
    assert used <= names


def test_text_from_the_input_is_never_markup() -> None:
    llc()
    done, recording = compiled(SMALL.replace("%NAME%", HOSTILE), "gfx942")
    assert done.report.outcome is Outcome.PROVED
    plain = page_of(*compiled(SMALL.replace("%NAME%", "k"), "gfx942"))
    hostile = replace(
        done.report, input="dir/<img src=x onerror=alert(1)>.ll", notes=("<b>note</b>", "a \"quoted\" 'one'")
    )
    action = Action("<i>kind</i>", "%1<u>", 1, '"><svg onload=alert(1)>', 10.0)
    phases = tuple(replace(r, actions=(action,)) for r in recording.phases)
    costs = {HOSTILE: (CostRow("<p>cost", 1, 2, "<em>"),)}
    html = to_html(hostile, PageInput(target("gfx942"), phases, costs=costs))
    page = read_page(html)
    assert page.faults == []
    assert "k<script>alert(1)</script>" not in html
    tags = {e.tag for e in plain.elements}
    assert {e.tag for e in page.elements} - tags <= {"button", "ol", "li", "ul", "h3"}
    assert len(page.of("script")) == len(plain.of("script"))
    assert not any(name.startswith("on") for e in page.elements for name in e.attributes)
    assert {d["function"] for d in page.data()} == {HOSTILE, "helper"}
    for text in (HOSTILE, "<img src=x onerror=alert(1)>.ll", "<b>note</b>", "<i>kind</i>", '"><svg onload', "<p>cost"):
        assert text in page.text
    assert not re.search(r"[<>&]", safe_json({"x": "</script><!--&\u2028"}))


def test_two_functions_and_a_device_function() -> None:
    llc()
    done, recording = compiled(SMALL.replace("%NAME%", "k"), "gfx1100")
    page = page_of(done, recording)
    assert {e.text.split()[0] for e in page.of("h2")} > {"k", "helper"}
    assert "Device function" in page.text
    assert len(page.data()) == len([r for r in recording.phases if r.problem is not None])
    clobbers = {reason for d in page.data() for reason in d["reasons"]}
    assert any("call" in reason for reason in clobbers)


def test_a_kernel_without_registers_has_a_page() -> None:
    done, recording = compiled(EMPTY, "gfx942")
    page = page_of(done, recording)
    assert done.report.outcome is Outcome.PROVED
    for data in page.data():
        assert data["placements"][0]["boxes"] == []


@pytest.mark.long
def test_without_an_allocation_there_is_the_demand() -> None:
    done, recording = compiled(tight_text(), "gfx942", fallback=False, spill=False)
    assert done.report.outcome is Outcome.UNKNOWN
    page = page_of(done, recording)
    data = page.data()[-1]
    assert max(value for _, value in data["demand"]) > data["budget"]
    assert [(p["name"], p["used"]) for p in data["placements"]] == [("llvm", False)]
    assert "unknown" in page.of("h1")[0].text


@pytest.mark.long
def test_actions_and_costs_given_in_are_shown() -> None:
    done, recording = kernel("gemm_mma_lds.gfx942")
    *before, last = recording.phases
    assert last.problem is not None
    action = Action("spill", last.problem.ranges[3].name, 4 * 100 + 2, "next used in 812 instructions", 10.0)
    given = Recording([*before, replace(last, actions=(action,))])
    page = page_of(done, given, costs={"gemm": (CostRow("VALU issue", 1200, 1500.5, "cycles"), CostRow("LDS", 3))})
    assert "next used in 812 instructions" in page.text
    assert [m for m in page.data()[-1]["moves"] if m == [400, "spill"]]
    rows = [e.text for e in page.of("tr")]
    assert any(re.search(r"VALU issue.*1,200 cycles.*1,500.5 cycles", row) for row in rows)
    assert any(re.search(r"LDS.*3.*\?", row) for row in rows)
    assert "not measured on a GPU" in page.text


@pytest.mark.long
def test_costs_are_those_of_the_code() -> None:
    done, recording = compiled((KERNELS / "gemm_mma_lds.gfx942.opt.ll").read_text(), "gfx942", also=("asm",))
    (name,) = (f.name for f in done.report.functions)
    cost = cost_of_assembly(done.also[Emit.ASM].decode(), target("gfx942"))[name]
    rows = {row.component: row for row in recording.costs[name]}
    assert (rows["total"].ours, rows["LDS"].ours, rows["matrix unit"].ours) == (cost.cycles, cost.lds, cost.mfma)
    assert rows["total"].llvm is not None
    page = page_of(done, recording, costs=recording.costs)
    assert any(re.search(rf"total.*{cost.cycles:,.0f} cycles", e.text) for e in page.of("tr"))


@pytest.mark.long
def test_our_spills_say_why() -> None:
    done, recording = compiled(tight_text(), "gfx942", effort="fast")
    phase = done.report.functions[0].phases[-1]
    assert (phase.fallback, phase.outcome) == (False, Outcome.PROVED)
    assert phase.spills
    page = page_of(done, recording)
    for action in recording.phases[-1].actions:
        assert action.reason in page.text


def record_with(*questions: tuple[Obligation, Verdict]) -> PhaseRecord:
    _, recording = kernel("gemm_mma_lds.gfx942")
    return replace(recording.phases[-1], asked=questions)


def test_verdicts_name_every_rule_and_block() -> None:
    llc()
    done, recording = kernel("gemm_mma_lds.gfx942")
    for record, phase in zip(recording.phases, done.report.functions[0].phases, strict=True):
        groups = asked(record, ())
        assert [g.title for g in groups] == ["proof of the proposal", "audit of the text"]
        attempt = phase.attempts[-1]
        assert attempt.proof is not None
        assert attempt.audit is not None
        assert groups[0].goals == attempt.proof.obligations
        assert 0 < groups[1].goals <= attempt.audit.obligations
        assert {r.what for r in groups[0].rows} >= {"complete", "interference", "class-membership", "fixed"}
        assert [r.what for r in groups[1].rows] == ["values in all blocks"]
        assert all(r.outcome is Outcome.PROVED for g in groups for r in g.rows)


def test_a_refuted_rule_is_told_from_the_others() -> None:
    goals = (("width/0", "true"), ("interference/0/1", "false"), ("interference/1/2", "true"))
    refuted = (Obligation("prove/k/vgpr", "QF_BV", "", goals), Verdict(Outcome.REFUTED, ("interference/0/1",)))
    block = Obligation("k/block-0", "QF_UF", "", (("g0", "true"),))
    again = (block, Verdict(Outcome.PROVED)), (block, Verdict(Outcome.UNKNOWN, reason="time"))
    first, second, third = asked(record_with(refuted, *again), ("a", "b", "c"))
    assert [(r.what, r.goals, r.false, r.outcome, r.link) for r in first.rows] == [
        ("width", 1, 0, None, "a"),
        ("interference", 2, 1, Outcome.REFUTED, "a"),
    ]
    assert (first.outcome, second.outcome, third.outcome) == (Outcome.REFUTED, Outcome.PROVED, Outcome.UNKNOWN)


def test_the_command_writes_a_page_and_its_obligations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llc()
    source = tmp_path / "in put" / "k.ll"
    source.parent.mkdir()
    source.write_text(SMALL.replace("%NAME%", HOSTILE))
    smt = tmp_path / "smt #1?"
    assert run(["report", str(source), "-mcpu=gfx942", f"--smt-dir={smt}"]) == 0
    assert sorted(p.name for p in source.parent.iterdir()) == ["k.html", "k.ll"]
    assert "k.html" in capsys.readouterr().out
    page = read_page((source.parent / "k.html").read_text())
    links = [e.attributes["href"] for e in page.of("a") if not e.attributes["href"].startswith("#")]
    assert links
    for link in links:
        assert not re.search(r"[:#?]", link)
        assert (source.parent / unquote(link)).resolve().parent == smt.resolve()
        assert (source.parent / unquote(link)).is_file()
    assert {unquote(link).rpartition("/")[2] for link in links} == {p.name for p in smt.glob("*.smt2")}
    assert run(["recheck", str(smt)]) == 0


def test_compile_writes_the_page_beside_the_result(tmp_path: Path) -> None:
    llc()
    source, html, out = tmp_path / "k.ll", tmp_path / "p.html", tmp_path / "k.o"
    source.write_text(SMALL.replace("%NAME%", "k"))
    command = ["compile", str(source), "-mcpu=gfx942", "--emit=obj", "-o", str(out), "-q"]
    assert run(command) == 0
    plain = out.read_bytes()
    assert run([*command, f"--html={html}"]) == 0
    assert out.read_bytes() == plain
    assert len(read_page(html.read_text()).data()) > 2


@pytest.mark.parametrize(
    ("text", "options", "code", "written"),
    [
        (SMALL.replace("%NAME%", "k")[:-20], "-mcpu=gfx942", 2, False),
        (SMALL.replace("%NAME%", "k"), "-mcpu=gfx1", 2, False),
        (SMALL.replace("%NAME%", "k"), "-mcpu=gfx942 -o {source}", 2, False),
        (SMALL.replace("%NAME%", "k"), "-mcpu=gfx942 -o {source}/no/p.html", 2, False),
        (tight_text(), "-mcpu=gfx942 --no-fallback --no-spill", 3, True),
    ],
    ids=["no IR", "no target", "over its input", "no directory", "not allocated"],
)
def test_exit_codes_are_those_of_compile(text: str, options: str, code: int, written: bool, tmp_path: Path) -> None:
    source = tmp_path / "k.ll"
    source.write_text(text)
    assert run(["report", str(source), "-q", *options.format(source=source).split()]) == code
    assert source.read_text() == text
    assert [p.name for p in tmp_path.iterdir() if p != source] == (["k.html"] if written else [])


@pytest.mark.parametrize("option", ["--html={out}", "--html={report}", "--html=-", "--html={source}"])
def test_a_page_over_another_file_is_one_error(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out, report = tmp_path / "k.ll", tmp_path / "k.o", tmp_path / "r.json"
    source.write_text(SMALL.replace("%NAME%", "k"))
    where = "-" if option == "--html=-" else str(out)
    extra = option.format(out=where, report=report, source=source)
    assert run(["compile", str(source), "-mcpu=gfx942", "-o", where, f"--report={report}", extra]) == 2
    assert len(re.findall("^verilocc: error: ", capsys.readouterr().err, re.MULTILINE)) == 1
    assert [p for p in tmp_path.iterdir() if p != source] == []


def test_the_page_goes_to_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    source = tmp_path / "k.ll"
    source.write_text(EMPTY)
    assert run(["report", str(source), "-mcpu=gfx942", "-o", "-", "-q"]) == 0
    assert read_page(capfdbinary.readouterr().out.decode()).faults == []
    assert os.listdir(tmp_path) == ["k.ll"]
