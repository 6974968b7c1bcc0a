"""The corpus' kernels: which there are, that each source makes them, and that a list gives the same files again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from corpus_support import first_cell, hold_once, needs, task
from process_support import gone
from support import REPOSITORY, long, run_llc

from verilocc_mlir.cli.main import run as verilocc
from verilocc_mlir.errors import InputError, ToolchainError
from verilocc_mlir.store import Store
from verilocc_model.corpus.ir import ir, with_attributes, with_features
from verilocc_model.corpus.sources import FAMILIES, SOURCES, TARGETS, Cell
from verilocc_model.corpus.stream import cells, export, read_list, write_list
from verilocc_model.corpus.workers import Done, Pool, in_order, run

LIST = REPOSITORY / "benchmarks" / "kernel_corpus.json"


def test_the_stream_is_the_same_for_a_seed_and_another_for_another() -> None:
    first, again, other = (list(islice(cells(seed), 800)) for seed in (1, 1, 2))
    assert first == again
    assert set(first) != set(other)
    assert len({cell.name for cell in first}) == len(first)


def test_the_stream_has_every_source_target_and_family_from_the_start() -> None:
    some = list(islice(cells(0), 300))
    assert {cell.source for cell in some} == set(SOURCES)
    assert {cell.target for cell in some} == set(TARGETS)
    assert {cell.family for cell in some} == set(FAMILIES)
    count = Counter(cell.family for cell in some)
    assert count["gemm"] > count["conv"]


def test_there_are_thousands_and_pools_end_when_nothing_new_comes() -> None:
    assert len(set(islice(cells(0), 6000))) == 6000
    few = list(cells(0, targets=["gfx942"], sources=["triton"], families=["elementwise"]))
    assert 10 < len(few) < 1000


def test_targets_share_configurations() -> None:
    by_target = [
        {c.configuration for c in islice(cells(0, targets=[t], sources=["triton"], families=["gemm"]), 200)}
        for t in ("gfx942", "gfx950")
    ]
    assert len(by_target[0] & by_target[1]) > 100


def test_a_cell_survives_json_and_its_configuration_forgets_target_and_limits() -> None:
    cell = Cell.of("triton", "gemm", "gfx942", {"element": "f16"}, {"BLOCK_M": 64}, {"amdgpu-num-vgpr": "96"})
    assert Cell.from_data(json.loads(json.dumps(cell.to_data()))) == cell
    other = replace(cell, target="gfx1100", limits=())
    assert other.configuration == cell.configuration
    assert other.name != cell.name
    assert replace(cell, config=(("BLOCK_M", 32),)).configuration != cell.configuration


@pytest.mark.parametrize(
    ("source", "family", "target"),
    [("mlir", "mha", "gfx1201"), ("mlir", "conv", "gfx1250"),
     *(pytest.param(*cell, marks=pytest.mark.long)
       for cell in (("mlir", "gemm", "gfx942"), ("triton", "gemm", "gfx1100"), ("triton", "layernorm", "gfx90a"),
                    ("iree", "mha", "gfx950")))],
)  # fmt: skip
def test_sources_make_ir_that_says_everything(source: str, family: str, target: str, tmp_path: Path) -> None:
    needs(source)
    cell = replace(first_cell(source, family, target), limits=(("amdgpu-waves-per-eu", "2,2"),))
    text = ir(cell)
    assert text.startswith(f"; {cell.name} ")
    assert text.count("\ndefine ") == 1
    for said in (f'"target-cpu"="{target}"', '"amdgpu-waves-per-eu"="2,2"'):
        assert said in text
    for left_out in (str(REPOSITORY), str(Path.home()), "/tmp/", "!DIFile"):
        assert left_out not in text
    # The processor is not given: it is in the text.
    mir = run_llc(text, target, "-stop-before=greedy,0", mir=False)
    assert "amdgpu_kernel" in mir
    store = Store(tmp_path)
    assert ir(cell, store) == text
    assert list(tmp_path.rglob("*")), "nothing was kept"
    assert ir(cell, store) == text


def test_valu_attention_and_gemm_compile_for_a_target_without_matrix_kernels() -> None:
    needs("mlir")
    for family in ("gemm", "mha"):
        cell = first_cell("mlir", family, "gfx1250")
        assert dict(cell.config)["unit"] == "valu"
        assert "fma" in ir(cell)


def test_without_a_source_tree_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("verilocc_model.corpus.sources.ROOT", tmp_path)
    with pytest.raises(ToolchainError, match="source tree"):
        next(cells(0, sources=["mlir"]))


def test_attributes_are_put_at_every_definition_and_replace_older_ones() -> None:
    text = (
        'define amdgpu_kernel void @"a(b)$c"(ptr %p) local_unnamed_addr #0 {\n  ret void\n}\n'
        "define internal i32 @f() {\n  ret i32 0\n}\ndeclare void @g()\n"
        'attributes #0 = { nounwind "amdgpu-num-vgpr"="64" "uniform-work-group-size"="true" }\n'
    )
    changed = with_attributes(text, {"amdgpu-num-vgpr": "96"})
    assert changed.count('"amdgpu-num-vgpr"="96"') == 2
    assert '"64"' not in changed
    assert '"uniform-work-group-size"="true"' in changed
    assert changed.endswith(text[text.index("declare") :].replace('"amdgpu-num-vgpr"="64" ', ""))
    assert with_attributes(text, {}) == text
    twice = with_features(with_features(text, "+a"), "+b")
    assert twice.count('"target-features"="+a,+b"') == 2


def test_the_committed_list_has_what_the_benchmarks_need() -> None:
    kernels = read_list(LIST)
    assert len(kernels) >= 240
    assert len({k.name for k in kernels}) == len(kernels) == len({k.sha256 for k in kernels})
    assert max(k.instructions for k in kernels) <= 4000
    by_target = Counter(k.cell.target for k in kernels)
    assert set(by_target) == {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
    assert min(by_target.values()) >= 46
    main = sum(k.cell.family in ("gemm", "mha") for k in kernels)
    assert main > 0.85 * len(kernels)
    rdna = [k for k in kernels if k.cell.target.startswith("gfx1")]
    assert sum(k.llvm.vgpr_spills > 0 for k in rdna) >= len(rdna) / 3
    assert any(k.llvm.vgpr_spills for k in kernels if k.cell.target == "gfx942")


@pytest.mark.long
@pytest.mark.parametrize("source", ["mlir", *long(*(s for s in SOURCES if s != "mlir"))])
def test_a_listed_kernel_is_made_again_byte_for_byte(source: str, tmp_path: Path) -> None:
    needs(source)
    kernel = min((k for k in read_list(LIST) if k.cell.source == source), key=lambda k: k.instructions)
    write_list(tmp_path / "list.json", [kernel], {})
    out = tmp_path / "out"
    assert verilocc(["corpus", "export", "--list", str(tmp_path / "list.json"), "--out", str(out)]) == 0
    path = out / f"{kernel.name}.ll"
    before = path.stat().st_mtime_ns
    (again,) = export([kernel], out)
    assert again.same
    assert path.stat().st_mtime_ns == before
    path.write_text("other")
    assert export([kernel], out)[0].same
    wrong = replace(kernel, sha256="0" * 64)
    write_list(tmp_path / "list.json", [wrong], {})
    assert verilocc(["corpus", "export", "--list", str(tmp_path / "list.json"), "--out", str(out)]) == 1


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2, "kernels": []}', '{"version": 1, "kernels": [{}]}'])
def test_what_is_no_list_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"list\.json"):
        read_list(path)


def test_list_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert verilocc(["corpus", "list", "--count", "5", "--source", "iree", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Cell.from_data(row).name for row in rows] == [row["name"] for row in rows]
    assert len(rows) == 5
    assert verilocc(["corpus", "list", "--target", "gfx906"]) == 2
    assert "gfx906" in capsys.readouterr().err


class _FirstIsLast(Pool[int]):
    """Ends the first task when no other is there."""

    def __init__(self) -> None:
        self.started = 0
        self._open: list[int] = []

    def __len__(self) -> int:
        return len(self._open)

    def start(self, number: int, task: int) -> None:
        self.started += 1
        self._open.append(number)

    def ended(self) -> list[tuple[int, Done[int]]]:
        number = self._open.pop()
        return [(number, Done(number, self.started, ""))]


def test_ends_are_in_order_and_those_that_wait_for_an_earlier_one_are_bounded() -> None:
    pool = _FirstIsLast()
    done = list(in_order(range(500), pool, 2))
    assert [one.task for one in done] == list(range(500))
    # How many had been started when the first one ended.
    assert done[0].result <= 1 + 16 * 2 + 1
    assert list(in_order([], pool, 2)) == []


def test_what_a_task_started_ends_with_it(tmp_path: Path) -> None:
    done = list(run(hold_once, ["a", str(tmp_path), "b"], jobs=1, seconds=4))
    assert [one.failure for one in done] == ["", "not finished within 4 s", ""]
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_task_that_crashes_hangs_or_fails_costs_itself_only() -> None:
    done = list(run(task, ["a", "crash", "b", "hang", "bad", "c"], jobs=2, seconds=10))
    assert [one.task for one in done] == ["a", "crash", "b", "hang", "bad", "c"]
    assert [one.result for one in done] == ["A", None, "B", None, None, "C"]
    failures = [one.failure for one in done]
    assert "status 7" in failures[1]
    assert "not finished within 10 s" in failures[3]
    assert failures[4] == "here: not good"
    assert failures[0] == failures[2] == failures[5] == ""
