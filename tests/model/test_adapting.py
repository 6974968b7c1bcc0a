"""``verilocc adapt --measured``: what a GPU adds to the cost model, learned from times that were taken on GPUs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from measure_support import gemm, gemm_that_is
from support import REPOSITORY

from verilocc_mlir.cli.main import run
from verilocc_mlir.errors import InputError

pytest.importorskip("tokenizers", reason="the extra model is not installed")

from verilocc_model import adapting
from verilocc_model.adapting import FORM, PROGRESS, TREES, load
from verilocc_model.measured import Corrected, Judge, Predictor, Row, Ruler, kept_aside, read_rows, spearman

ROWS = REPOSITORY / "model" / "data" / "measured" / "rows.jsonl.xz"
GPUS = {"MI250X": "gfx90a", "W7800": "gfx1100"}


def configurations(gpu: str, kernel: str, most: int = 1000) -> list[dict[str, Any]]:
    of_kernel = [r for r in read_rows(ROWS) if r["cost"] and (r["gpu"], r["kernel"]) == (gpu, f"{kernel}_kernel")]
    return of_kernel[:most]


def rows_of(gpu: str) -> list[Row]:
    listed = [*configurations(gpu, "convolution"), *configurations(gpu, "dedispersion")]
    return [Row(r["kernel"], r["key"], r["key"], r["target"], r["cost"], r["waves"], r["ms"]) for r in listed]


def recorded(directory: Path, configured: list[dict[str, Any]], *, times: list[float] | None = None) -> Path:
    """A journal that ``verilocc measure`` wrote of a recording of these configurations."""
    taken = times or [one["ms"] for one in configured]
    kernel = configured[0]["kernel"]
    cache = {one["key"]: {"time": ms, "times": [ms] * 6} for one, ms in zip(configured, taken, strict=True)}
    recording, journal = directory / f"{kernel}.json.gz", directory / "j.jsonl"
    content = {"device_name": configured[0]["gpu"], "kernel_name": kernel, "problem_size": [1], "cache": cache}
    recording.write_bytes(gzip.compress(json.dumps(content).encode()))
    command = ["measure", *cache, f"--device=replay:{recording}", f"--journal={journal}", "--rounds=6", "--runs=1"]
    assert run([*command, "--quiet"]) == 0
    return journal


def adapted(journal: Path, out: Path, target: str = "gfx1100", codes: Path = ROWS) -> int:
    return run(["adapt", "--measured", str(journal), "--target", target, "--out", str(out), str(codes)])


@pytest.fixture(name="journal", scope="module")
def _journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("measured")
    recorded(directory, configurations("W7800", "convolution")[:150])
    return recorded(directory, configurations("W7800", "dedispersion")[:150])


def test_the_data_are_what_was_measured() -> None:
    lines = read_rows(ROWS)
    costed = [line for line in lines if line["cost"]]
    assert (len(lines), len(costed)) == (1687, 1063)
    names = {(line["kernel"], line["gpu"], line["key"]) for line in costed}
    assert len(names) == len(costed)
    assert {line["gpu"]: line["target"] for line in lines} == GPUS


@pytest.mark.long
@pytest.mark.parametrize("gpu", GPUS)
def test_trees_order_configurations_kept_aside_better_than_the_ruler(gpu: str) -> None:
    rows = rows_of(gpu)
    judge, ruler = Judge(rows), Ruler().log_time(rows)
    better = judge.gains(kept_aside(rows, Corrected), ruler)
    assert better.spearman[1] > 0
    assert better.pairs[1] > 0


def test_times_that_were_shuffled_teach_nothing() -> None:
    rows = rows_of("W7800")
    times = [row.ms for row in rows]
    Random(0).shuffle(times)
    learned = Corrected()
    learned.fit(
        [Row(r.group, r.code, r.name, r.target, r.cost, r.waves, ms) for r, ms in zip(rows, times, strict=True)]
    )
    judge = Judge(rows)
    assert judge.gains(learned.log_time(rows), Ruler().log_time(rows)).pairs[1] < 0


def test_the_figures_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rows = configurations("W7800", "dedispersion")
    said = np.array([round(row["cost"]["latency"], -4) for row in rows])
    times = np.array([row["ms"] for row in rows])
    assert spearman(said, times) == pytest.approx(stats.spearmanr(said, times).statistic)


def test_what_helps_is_kept_and_orders_what_was_not_measured(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adapted(journal, tmp_path) == 0
    said = capsys.readouterr().err
    assert f"helps: {Corrected.name}" in said
    assert "102 codes of convolution_kernel on W7800" in said
    assert "176 codes of dedispersion_kernel on W7800" in said
    card = json.loads((tmp_path / FORM).read_text())
    assert (card["target"], card["devices"], card["codes"], card["kernels"]) == ("gfx1100", ["W7800"], 300, 2)
    # The codes that it has not seen are in better order than the ruler has them.
    rows = [
        Row(r["kernel"], r["key"], r["key"], r["target"], r["cost"], r["waves"], r["ms"])
        for kernel in ("convolution", "dedispersion")
        for r in configurations("W7800", kernel)[150:]
    ]
    learned = load(tmp_path, "gfx1100")
    assert Judge(rows).gains(learned.log_time(rows), Ruler().log_time(rows)).pairs[1] > 0
    with pytest.raises(InputError, match="learned on gfx1100, not gfx90a"):
        load(tmp_path, "gfx90a")


@pytest.mark.long
def test_what_does_not_help_is_said_and_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured = configurations("W7800", "convolution", 120)
    times = [one["ms"] for one in configured]
    Random(0).shuffle(times)
    # Nothing can be learned of times that belong to other configurations, and the ruler is as good as any.
    assert adapted(recorded(tmp_path, configured, times=times), tmp_path / "out") == 0
    assert "does not help" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / FORM).read_text())["helps"] is False
    with pytest.raises(InputError, match="does not help"):
        load(tmp_path / "out", "gfx1100")


@pytest.mark.long
def test_code_objects_are_found_by_their_bytes_and_costed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = tmp_path / "codes", dict[str, Any]()
    folder.mkdir()
    for number in range(32):
        (folder / f"{number}.hsaco").write_bytes(gemm_that_is(str(number)))
    journal = recorded(tmp_path, configurations("W7800", "convolution", 32))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    keys = [lines[0]["base"]["sha256"], *(line["candidate"]["sha256"] for line in lines)]
    digests = {key: adapting.hashlib.sha256(gemm_that_is(str(n))).hexdigest() for n, key in enumerate(keys)}
    name = next(iter(adapting.cost_of_file(gemm(), "gemm").functions))
    for line in lines:
        line["kernel"]["name"] = name
        line["device"]["architecture"] = "gfx942:sramecc+:xnack-"
        for side in ("base", "candidate"):
            line[side]["sha256"] = digests[line[side]["sha256"]]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["adapt", "--measured", str(journal), str(folder)]) == 0
    # All have the same cost, so there is nothing to learn.
    assert "does not help" in capsys.readouterr().err
    out = journal.with_name("j.jsonl.adapted")
    records = [json.loads(line) for line in (out / PROGRESS).read_text().splitlines()]
    assert sum("kernels" in record for record in records) == 32
    assert json.loads((out / FORM).read_text())["target"] == "gfx942"
    assert run(["adapt", "--measured", str(journal), "--target=gfx90a", str(folder)]) == 2
    assert "nothing in the journal was timed on gfx90a, but on gfx942" in capsys.readouterr().err
    monkeypatch.setattr(adapting, "cost_of_file", lambda *_: cache["nothing"])
    assert run(["adapt", "--measured", str(journal), str(folder)]) == 0


@pytest.mark.long
def test_an_interrupted_run_leaves_no_result_and_goes_on(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_rows: object, learner: Callable[[], Predictor]) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(adapting, "unseen_kernels", interrupted)
        assert adapted(journal, tmp_path) == 130
    assert not (tmp_path / FORM).exists()
    assert "goes on from there" in capsys.readouterr().err
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / PROGRESS).write_bytes(b'{"cut')
    assert adapted(journal, tmp_path) == 0
    assert load(tmp_path, "gfx1100")


def _cut(journal: Path, at: Path) -> Path:
    result = at / "cut.jsonl"
    result.write_bytes(journal.read_bytes().splitlines()[0][:-40])
    return result


def _one(journal: Path, at: Path) -> Path:
    result = at / "one.jsonl"
    result.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    return result


@pytest.mark.parametrize(
    ("journal_of", "target", "message"),
    [
        (lambda journal, at: at / "none.jsonl", "gfx1100", "the journal cannot be read"),
        (_cut, "gfx1100", "nothing in the journal was timed"),
        (_one, "gfx1100", "it takes 30 codes that are measured; there are 2"),
        (lambda journal, at: journal, "", "the journal does not say on which GPU it was taken"),
        (lambda journal, at: journal, "gfx942", "the codes are for gfx1100, gfx90a, and were measured on gfx942"),
        (lambda journal, at: journal, "gfx1", "gfx1"),
    ],
)
def test_bad_input_is_one_error(
    journal: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    journal_of: Callable[[Path, Path], Path],
    target: str,
    message: str,
) -> None:
    arguments = ["adapt", "--measured", str(journal_of(journal, tmp_path)), "--out", str(tmp_path / "out")]
    assert run([*arguments, *([f"--target={target}"] if target else []), str(ROWS)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_trees_that_are_none_are_refused(tmp_path: Path) -> None:
    learned = Corrected()
    learned.fit(rows_of("W7800"))
    assert learned.trees is not None
    (tmp_path / FORM).write_text(json.dumps({"form": 2, "target": "gfx1100", "helps": True}))
    with pytest.raises(InputError, match="nothing learned from times is there"):
        load(tmp_path, "gfx1100")
    rows = rows_of("W7800")
    learned.trees.save(tmp_path / TREES)
    assert load(tmp_path, "gfx1100").log_time(rows).tolist() == learned.log_time(rows).tolist()
    for name, values in (("left", [1]), ("roots", [10**6]), ("base", list[float]())):
        replace(learned.trees, **{name: np.array(values)}).save(tmp_path / TREES)
        with pytest.raises(InputError, match="nothing learned from times is there"):
            load(tmp_path, "gfx1100")


@pytest.mark.parametrize("arguments", [["--base=DIR"], ["--kernels=3"]])
def test_options_that_do_not_go_together(journal: Path, arguments: list[str]) -> None:
    assert run(["adapt", "--measured", str(journal), *arguments]) == 2


def test_without_times_the_old_options_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["adapt", "--target=gfx1201"]) == 2
    assert "or --measured" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", '{"form": 2}', '{"form": 1, "target": "gfx90a", "helps": true}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FORM).write_text(content)
    with pytest.raises(InputError, match="nothing learned from times is there"):
        load(tmp_path, "gfx90a")
