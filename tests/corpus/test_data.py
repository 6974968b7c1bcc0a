"""The data set: problems through the pipeline, labels that are proved or do not enter, parts that do not leak."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from corpus_support import first_cell, needs
from msgspec import structs
from support import REPOSITORY, few, llc, long

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.allocators import allocator
from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.tables import Tables
from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.problem.model import PROBLEM_VERSION, AllocationProblem, Proposal
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.drivers.job import CompileOptions
from verilocc_mlir.toolchain.find import find_toolchain
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_model.corpus import build
from verilocc_model.corpus.build import KernelLimits, Recipe, make
from verilocc_model.corpus.greedy import NotExpressible, greedy_proposal
from verilocc_model.corpus.ir import ir, with_attributes
from verilocc_model.corpus.labels import (
    IMPROVED,
    Label,
    Refused,
    Stated,
    admit,
    improving,
    problem_demands,
    ranked,
    stated_problems,
    teach,
    teacher,
)
from verilocc_model.corpus.shards import (
    Record,
    ShardWriter,
    held_out,
    read_journal,
    read_lines,
    read_manifest,
    read_records,
    split_of,
    structure_of,
    summary,
)
from verilocc_model.corpus.sources import SOURCES, TARGETS, Cell
from verilocc_model.corpus.stream import cells

RECIPE = Recipe(4, seed=1, targets=("gfx942", "gfx1100"), sources=("mlir",), families=("conv",))


def compiler_of(cell: Cell) -> StagedCompiler:
    return StagedCompiler(find_toolchain(), CompileOptions(cell.target, verify=False, input_name=cell.name))


@lru_cache(maxsize=8)
def problems_of(cell: Cell, attributes: tuple[tuple[str, str], ...] = ()) -> tuple[Stated, ...]:
    text = with_attributes(ir(cell), dict(attributes))
    return tuple(stated_problems(text, compiler_of(cell), most_instructions=4000, solver_seconds=30))


@pytest.fixture
def vgpr() -> Stated:
    needs("mlir")
    return problems_of(first_cell("mlir", "conv", "gfx942"))[-1]


@pytest.mark.parametrize(
    ("source", "family"), few([("mlir", "conv")], [("mlir", "conv"), ("triton", "softmax"), ("iree", "layernorm")])
)
@pytest.mark.parametrize("cpu", ["gfx1201", *long("gfx90a")])
def test_a_kernel_of_each_source_becomes_problems_with_proved_labels(source: str, family: str, cpu: str) -> None:
    needs(source)
    cell = first_cell(source, family, cpu)
    found = Recipe(1).lines(cell)
    assert [facts["phase"] for _, facts in found] == ["sgpr", "vgpr"]
    for line, facts in found:
        record = Record.from_json(line, "")
        assert record.to_json() == line
        assert (record.cell, record.problem.target) == (cell, cpu)
        assert structure_of(record.problem) == facts["structure"]
        assert record.fits
        assert {label.allocator.partition("/")[0] for label in record.labels} == {"llvm-greedy", "deterministic"}
        for label in record.labels:
            proposal = Proposal(PROBLEM_VERSION, label.allocator, label.registers)
            assert prove(record.problem, proposal).outcome is Outcome.PROVED
        assert record.labels[0].rank == 0
        assert [label.cost for label in record.labels] == sorted(label.cost for label in record.labels)


def test_a_problem_that_does_not_fit_is_recorded_with_its_demand() -> None:
    needs("mlir")
    cell = replace(first_cell("mlir", "conv", "gfx1100"), limits=(("amdgpu-num-vgpr", "16"),))
    (_, (line, facts)) = Recipe(1).lines(cell)
    record = Record.from_json(line, "")
    assert not record.fits
    assert not facts["fits"]
    assert record.labels == ()
    assert any(one.registers > one.available for one in record.demand)
    reasons = {one.allocator: (one.stage, one.reason) for one in record.refused}
    assert reasons["deterministic"] == ("allocate", "pressure")
    assert reasons["llvm-greedy"][0] == "express"


def test_a_poisoned_label_does_not_enter(vgpr: Stated) -> None:
    good = allocator("deterministic").allocate(vgpr.problem)
    assert isinstance(admit(vgpr.problem, good, timeout_s=30), Label)
    names = list(good.registers)
    one, other = next(
        (a, b)
        for a in vgpr.problem.ranges
        for b in vgpr.problem.ranges
        if a.id < b.id and a.register_class == b.register_class and names[a.id] != names[b.id] and _meet(a, b)
    )
    names[one.id] = names[other.id]
    poisoned = structs.replace(good, registers=tuple(names))
    refused = admit(vgpr.problem, poisoned, timeout_s=30)
    assert isinstance(refused, Refused)
    assert refused.stage == "prove"
    assert "refuted" in refused.reason
    labels, without = teach(vgpr, [("liar", lambda _: poisoned), ("honest", lambda _: good)], timeout_s=30)
    assert [label.registers for label in labels] == [good.registers]
    assert [(one.allocator, one.stage) for one in without] == [("liar", "prove")]
    for wrong in (names[:-1], ["" for _ in names], ["no_register" for _ in names]):
        assert isinstance(admit(vgpr.problem, structs.replace(good, registers=tuple(wrong)), timeout_s=30), Refused)


def _meet(a: Any, b: Any) -> bool:
    pairs = ((x, y) for g in a.groups for x in g.segments for h in b.groups for y in h.segments)
    return any(x[0] < y[1] and y[0] < x[1] for x, y in pairs)


def test_labels_are_ranked_by_waves_then_copies_then_registers() -> None:
    costs = {"a": (4, 0.0, 90), "b": (5, 9.0, 80), "c": (5, 1.0, 88), "d": (5, 1.0, 84), "e": (5, 1.0, 84)}
    labels = [Label(name, (), *cost) for name, cost in costs.items()]
    assert [(x.allocator, x.rank) for x in ranked(labels)] == [("d", 0), ("e", 0), ("c", 1), ("b", 2), ("a", 3)]


def test_greedy_is_read_off_llvms_text_and_gives_that_text_again(vgpr: Stated) -> None:
    cell = first_cell("mlir", "conv", "gfx942")
    compiler = compiler_of(cell)
    after = parse_mir(compiler.llvm_allocate(vgpr.text, vgpr.phase), "after").functions[0]
    proposal = greedy_proposal(vgpr.problem, vgpr.function, after, "22")
    assert proposal.allocator == "llvm-greedy/22"
    ours = rewrite_function(vgpr.file, vgpr.function, vgpr.problem, proposal, target(cell.target))
    assert _registers(ours) == _registers(after)
    assert _registers(ours) != _registers(vgpr.function)


def _registers(function: MachineFunction) -> list[tuple[str, list[str]]]:
    """Every instruction's opcode and physical registers, but those that LLVM adds for the machine verifier."""
    return [
        (i.opcode, [op.phys for op in i.all_operands if op.phys and not op.implicit])
        for b in function.blocks
        for i in b.instructions
    ]


def test_a_split_or_a_changed_operand_is_not_taken_for_an_answer(vgpr: Stated) -> None:
    cell = first_cell("mlir", "conv", "gfx942")
    text = compiler_of(cell).llvm_allocate(vgpr.text, vgpr.phase)
    lines = text.split("\n")
    at = next(k for k, line in enumerate(lines) if " = V_FMA" in line or "V_FMAC" in line or "V_PK_FMA" in line)
    changed = re.sub(r"\$vgpr\d+(_vgpr\d+)?", lambda m: "$vgpr250_vgpr251" if m[1] else "$vgpr250", lines[at], count=1)
    assert changed != lines[at]
    for edited in (
        [*lines[:at], changed, *lines[at + 1 :]],
        [*lines[:at], *lines[at + 1 :]],
        [*lines[:at], "    $vgpr250 = COPY $vgpr251", *lines[at:]],
    ):
        after = parse_mir("\n".join(edited), "after").functions[0]
        with pytest.raises(NotExpressible):
            greedy_proposal(vgpr.problem, vgpr.function, after, "22")


def test_an_allocator_of_the_project_is_a_teacher_by_name(vgpr: Stated) -> None:
    compiler = compiler_of(first_cell("mlir", "conv", "gfx942"))
    assert teacher("deterministic", compiler)(vgpr) == DeterministicAllocator(packed=True).allocate(vgpr.problem)
    with pytest.raises(InputError, match="no allocator"):
        teacher("oracle", compiler)


def test_the_deterministic_allocator_and_local_moves_are_a_teacher(vgpr: Stated) -> None:
    compiler = compiler_of(first_cell("mlir", "conv", "gfx942"))
    answer = teacher(IMPROVED, compiler)(vgpr)
    assert isinstance(admit(vgpr.problem, answer, timeout_s=30), Label)
    assert answer.registers == improving().allocate(vgpr.problem).registers
    # A label of its own, whether or not a move was found.
    labels, refused = teach(vgpr, [(n, teacher(n, compiler)) for n in ("deterministic", IMPROVED)], timeout_s=30)
    assert sorted(label.allocator.split("/")[0] for label in labels) == ["deterministic", "deterministic+improve"]
    assert not refused
    tables = Tables(vgpr.problem)
    plain = allocator("deterministic").allocate(vgpr.problem)
    assert tables.cost.of(tables.starts(answer)) <= tables.cost.of(tables.starts(plain))


def test_structure_forgets_names_and_target_but_no_question(vgpr: Stated) -> None:
    problem: AllocationProblem = vgpr.problem
    renamed = structs.replace(problem, function="f", target="gfx950", ranges=tuple(
        structs.replace(live, name=f"%{9000 - live.id}") for live in problem.ranges
    ))  # fmt: skip
    assert structure_of(renamed) == structure_of(problem)
    first = problem.ranges[0]
    others = (structs.replace(first, align=first.align * 2), *problem.ranges[1:])
    assert structure_of(structs.replace(problem, ranges=others)) != structure_of(problem)
    assert structure_of(structs.replace(problem, budgets=problem.budgets[:1])) != structure_of(problem)


def test_demand_is_what_the_deterministic_allocator_counts(vgpr: Stated) -> None:
    (demand,) = [one for one in problem_demands(vgpr.problem) if one.banks == ("vgpr",)]
    label = admit(vgpr.problem, allocator("deterministic").allocate(vgpr.problem), timeout_s=30)
    assert isinstance(label, Label)
    assert demand.registers <= label.total


def test_a_kernel_that_is_too_long_is_refused_not_cut() -> None:
    needs("mlir")
    with pytest.raises(UnsupportedError, match="more than 50"):
        Recipe(1, limits=KernelLimits(instructions=50)).lines(first_cell("mlir", "conv", "gfx942"))


@pytest.mark.long
def test_parts_follow_the_configuration_whatever_the_target_and_the_budget() -> None:
    some = list(islice(cells(0), 5000))
    by_configuration: dict[str, set[str]] = {}
    for cell in some:
        by_configuration.setdefault(cell.configuration, set()).add(split_of(cell))
        for other in (
            replace(cell, target="gfx1250"),
            replace(cell, limits=(("amdgpu-num-vgpr", "64"),)),
        ):
            assert split_of(other) == split_of(cell)
    assert all(len(parts) == 1 for parts in by_configuration.values())
    assert max(Counter(cell.configuration for cell in some).values()) > 2
    count = Counter(split_of(cell) for cell in some)
    assert 0.08 < count["test"] / len(some) < 0.16
    assert 0.02 < count["valid"] / len(some) < 0.08


def test_test_cells_exist_for_gemm_and_attention_of_every_source_and_target() -> None:
    found = {(c.target, c.source, c.family) for c in islice(cells(0), 3000) if split_of(c) == "test"}
    for cpu in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        for source in SOURCES:
            for family in ("gemm", "mha"):
                assert (cpu, source, family) in found


def test_one_source_and_one_target_are_held_out() -> None:
    cell = Cell.of("iree", "gemm", "gfx1201", {}, {})
    assert held_out(cell) == ("source", "target")
    assert held_out(replace(cell, source="triton")) == ("target",)
    assert held_out(replace(cell, target="gfx942")) == ("source",)
    assert held_out(replace(cell, source="mlir", target="gfx1250")) == ()


class Stop(Exception):
    pass


@pytest.mark.long
def test_interrupted_and_continued_with_other_processes_the_data_set_is_the_same(tmp_path: Path) -> None:
    needs("mlir")
    make(RECIPE, tmp_path / "whole", jobs=2)

    def stop_after_one(row: Mapping[str, Any], left: int) -> None:
        if left == 2:
            raise Stop

    with pytest.raises(Stop):
        make(RECIPE, tmp_path / "cut", jobs=1, progress=stop_after_one)
    assert len(list(read_journal(tmp_path / "cut"))) == 2
    # What a crash can leave behind: a shard without its rows, a row that was cut.
    (tmp_path / "cut" / "problems-00001.jsonl.zst").write_bytes(b"half")
    with (tmp_path / "cut" / "journal.jsonl").open("a") as stream:
        stream.write('{"cell": "x", "rec')
    rows = make(RECIPE, tmp_path / "cut", jobs=1)
    assert [row["cell"] for row in rows] == [cell.name for cell in islice(_stream(), 4)]
    assert list(read_lines(tmp_path / "cut")) == list(read_lines(tmp_path / "whole"))
    assert len(list(read_lines(tmp_path / "whole"))) == 8
    # Again: nothing to do.
    assert make(RECIPE, tmp_path / "cut", jobs=1) == rows
    with pytest.raises(InputError, match="other parameters"):
        make(replace(RECIPE, seed=2), tmp_path / "cut")
    assert {split_of(record.cell) for record in read_records(tmp_path / "cut")} <= {"train", "valid", "test"}
    facts = summary(rows)
    assert facts["problems"] == 8
    assert facts["kernels"] == 4
    shard = tmp_path / "cut" / "problems-00000.jsonl.zst"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(InputError, match="not the one"):
        list(read_lines(tmp_path / "cut"))


def _stream() -> Any:
    return cells(RECIPE.seed, targets=RECIPE.targets, sources=RECIPE.sources, families=RECIPE.families)


def test_what_repeats_is_left_out_and_never_crosses_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"a": "train", "b": "train", "c": "test"}
    monkeypatch.setattr(build, "split_of", lambda cell: parts[cell.family])
    a, b, c = (Cell.of("mlir", family, "gfx942", {}, {}) for family in "abc")
    seen = build._EarlierProblems([])
    assert seen.outcome("1", a) == "kept"
    assert seen.outcome("1", b) == "duplicate"
    assert seen.outcome("1", c) == "leak"
    assert seen.outcome("1", replace(b, target="gfx950")) == "kept"
    assert seen.outcome("1", replace(c, target="gfx950")) == "leak"
    assert seen.outcome("2", c) == "kept"
    row = {"split": "test", "target": "gfx942", "records": [{"outcome": "kept", "structure": "2"}]}
    again = build._EarlierProblems([row])
    assert again.outcome("2", c) == "duplicate"
    assert again.outcome("2", a) == "leak"


@pytest.mark.long
def test_make_and_show_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llc()
    needs("triton")
    options = ["--source", "triton", "--family", "elementwise", "--target", "gfx1250", "--kernels", "1"]
    out = tmp_path / "data"
    assert verilocc(["corpus", "make", "--out", str(out), *options]) == 0
    assert "2 problems of 1 kernels" in capsys.readouterr().out
    assert verilocc(["corpus", "show", str(out)]) == 0
    assert "gfx1250" in capsys.readouterr().out
    assert verilocc(["corpus", "show", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 2
    assert read_manifest(out)["parameters"]["families"] == ["elementwise"]
    assert verilocc(["corpus", "make", "--out", str(out), *options, "--seed", "9"]) == 2
    assert "other parameters" in capsys.readouterr().err
    assert verilocc(["corpus", "make", "--out", str(out), "--teacher", "oracle"]) == 2
    assert verilocc(["corpus", "show", str(tmp_path)]) == 2


def test_a_data_set_has_one_writer_at_a_time(tmp_path: Path) -> None:
    first = ShardWriter(tmp_path, {}, {})
    with pytest.raises(InputError, match="another run is writing here"):
        ShardWriter(tmp_path, {}, {})
    del first
    ShardWriter(tmp_path, {}, {})


def test_a_data_set_of_another_version_is_refused(tmp_path: Path) -> None:
    ShardWriter(tmp_path, {}, {})
    (tmp_path / "manifest.json").write_text('{"version": 99}')
    with pytest.raises(InputError, match="version 99"):
        ShardWriter(tmp_path, {}, {})


@pytest.mark.long
def test_the_committed_sample_is_what_its_manifest_says_and_its_labels_are_proved() -> None:
    directory = REPOSITORY / "model" / "data" / "sample"
    assert sum(path.stat().st_size for path in directory.iterdir()) < 4 << 20
    records = list(read_records(directory))
    rows = list(read_journal(directory))
    kept = [one["structure"] for row in rows for one in row["records"] if one["outcome"] == "kept"]
    assert [structure_of(record.problem) for record in records] == kept
    assert len(records) > 100
    assert {record.cell.source for record in records} == set(SOURCES)
    assert {record.cell.target for record in records} == set(TARGETS)
    assert {split_of(record.cell) for record in records} == {"train", "valid", "test"}
    for record in sorted(records, key=lambda one: one.instructions)[::6]:
        for label in record.labels:
            proposal = Proposal(PROBLEM_VERSION, label.allocator, label.registers)
            assert prove(record.problem, proposal).outcome is Outcome.PROVED
    card = (directory.parent / "README.md").read_text()
    assert f"{len(records)} problems" in card
