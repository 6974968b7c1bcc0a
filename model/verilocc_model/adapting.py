"""``verilocc adapt --measured``: what a GPU adds to the ruler, learned from a journal of ``verilocc measure``.

The journal has times and digests; the codes themselves are looked for, costed and matched by digest. Each candidate of
``CANDIDATES`` is judged on rows that it did not learn from, a fifth of the configurations after the other, and, where
there are several kernels, each kernel after the other. The simplest that nothing beats is kept. Where that is the
ruler itself, the result says that it does not help, and ``load`` refuses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verilocc_mlir.cost.read import cost_of_file
from verilocc_mlir.errors import ExitCode, InputError, VeriloccError
from verilocc_mlir.files import JsonLines, write_whole
from verilocc_mlir.measure.journal import read_measurements
from verilocc_mlir.results.measure import Measurement
from verilocc_mlir.target.targets import target as target_called
from verilocc_mlir.version import __version__
from verilocc_model.measured import (
    Array,
    Corrected,
    Judge,
    Predictor,
    Row,
    Ruler,
    components,
    kept_aside,
    read_rows,
    unseen_kernels,
)
from verilocc_model.trees import Trees

FORM, TREES = "measured.json", "measured.safetensors"
_FORM = 2
PROGRESS = "progress.jsonl"
CANDIDATES: Sequence[Callable[[], Predictor]] = (Ruler, Corrected)
"""The simplest first. LoRA adapters on a network learn no more of the same rows (docs/results/ruler.md)."""
LEAST, LEAST_OF_GROUP = 30, 5
"""Measured codes that it takes, all together and of one kernel."""
_RANKED = 10
Say = Callable[[str], None]
_Split = Callable[[Sequence[Row], Callable[[], Predictor]], Array]


@dataclass(frozen=True)
class _Costed:
    """A code that was looked at: its kernels by name."""

    code: str
    name: str
    target: str
    kernels: Mapping[str, Mapping[str, float]]
    waves: float = 1.0


def adapt_to_measured(journal: Path, codes: Sequence[Path], out: Path, *, target: str, say: Say) -> int:
    """Learn, judge, and write ``out/measured.json``; costs that an interrupted run left in ``out`` are kept.

    Args:
        codes: code objects, folders of them, and files of costed configurations (``measured.read_rows``).
        target: the GPU; ``""`` for the one that the journal names.

    Raises:
        InputError: the journal has nothing for the GPU, its codes are not there or too few, or are of another GPU.
    """
    measurements, unread = read_measurements(journal)
    if unread:
        say(f"{unread} lines of the journal do not count: cut, or of another version")
    gpu, timed = _of_target(measurements, target, journal)
    times = _times(timed)
    if len(times) < LEAST:
        raise _too_few(len(times), "measured", journal)
    files = list(_listed(codes))
    out.mkdir(parents=True, exist_ok=True)
    progress = JsonLines(out / PROGRESS)
    try:
        costed = list(_costed(files, {kernel for _, kernel, _ in times}, progress, say))
        rows = _rows(times, costed, gpu, say)
        if len(rows) < LEAST:
            raise _too_few(len(rows), "measured and costed", journal)
        chosen, figures = _choose(rows, say)
    finally:
        progress.close()
        if not (out / PROGRESS).stat().st_size:
            # Nothing came of it that a later run could go on with.
            (out / PROGRESS).unlink()
            with contextlib.suppress(OSError):
                out.rmdir()
    card: dict[str, Any] = {
        "form": _FORM,
        "tool": __version__,
        "target": gpu,
        "devices": sorted({one.device.name for one in timed}),
        "codes": len(rows),
        "kernels": len({row.group for row in rows}),
        "journal": hashlib.sha256(journal.read_bytes()).hexdigest(),
        "figures": figures,
        "chosen": chosen.name,
        "helps": not isinstance(chosen, Ruler),
    }
    chosen.fit(rows)
    out.mkdir(exist_ok=True)
    if isinstance(chosen, Corrected) and chosen.trees is not None:
        chosen.trees.save(out / TREES)
    write_whole(out / FORM, (json.dumps(card, indent=1) + "\n").encode())
    for line in _table(figures):
        say(line)
    if not card["helps"]:
        say(f"does not help: nothing orders codes of {gpu} better than the ruler on rows kept aside; it is not loaded")
        return ExitCode.PROVED
    say(f"helps: {chosen.name}; it is in {out / FORM}")
    for line in _unmeasured(load(out, gpu), rows, times, costed, gpu):
        say(line)
    return ExitCode.PROVED


def load(directory: Path, target: str) -> Predictor:
    """What ``adapt_to_measured`` wrote, for a GPU.

    Raises:
        InputError: nothing is there, it does not help, or it is for another GPU.
    """
    path = directory / FORM
    try:
        card = json.loads(path.read_text())
        form, own, helps = card["form"], str(card["target"]), bool(card["helps"])
        if form != _FORM:
            raise ValueError(f"form {form}")
        result = Corrected(Trees.load(directory / TREES)) if helps else Ruler()
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "make one: verilocc adapt --measured JOURNAL --out DIR"
        raise InputError(f"nothing learned from times is there: {error}", where=str(path), hint=hint) from error
    if not helps:
        raise InputError("does not help on rows kept aside, so it is not loaded", where=str(path))
    if own != target:
        raise InputError(f"it was learned on {own}, not {target}", where=str(path))
    return result


def _too_few(count: int, what: str, where: Path) -> InputError:
    hint = "measure more of them, and give the codes beside the journal"
    return InputError(f"it takes {LEAST} codes that are {what}; there are {count}", where=str(where), hint=hint)


# What was measured.


def _of_target(measurements: Iterable[Measurement], target: str, journal: Path) -> tuple[str, list[Measurement]]:
    """The GPU, and what was timed on it; a device that does not say what it is counts where the user says it."""
    timed = [one for one in measurements if one.base_ms and one.candidate_ms and one.ratio]
    named = [one.device.architecture.partition(":")[0] for one in timed]
    gpus = sorted(set(named) - {""})
    if not timed:
        raise InputError("nothing in the journal was timed", where=str(journal), hint="verilocc measure --journal FILE")
    if not target and len(gpus) != 1:
        what = f"the journal has {', '.join(gpus)}" if gpus else "the journal does not say on which GPU it was taken"
        raise InputError(what, where=str(journal), hint="--target=GPU")
    gpu = target_called(target or gpus[0]).name
    own = [one for one, name in zip(timed, named, strict=True) if name in ("", gpu)]
    if not own:
        raise InputError(f"nothing in the journal was timed on {gpu}, but on {', '.join(gpus)}", where=str(journal))
    return gpu, own


def _times(timed: Iterable[Measurement]) -> dict[tuple[str, str, str], tuple[str, float]]:
    """Name and milliseconds by group, kernel and code. A candidate's are those of its base, times the ratio: both took
    turns, so what drifts cancels. The last measurement of a candidate counts.
    """
    by_base: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    names: dict[str, str] = {}
    ratios: dict[tuple[str, str, str], tuple[str, float]] = {}
    for one in timed:
        assert one.base_ms is not None
        assert one.ratio is not None
        group = f"{one.kernel.name} on {one.device.name}, {one.kernel.interface[:8]} {one.work[:8]}"
        by_base[group, one.kernel.name, one.base.sha256].append(one.base_ms.median)
        ratios[group, one.kernel.name, one.candidate.sha256] = one.base.sha256, one.ratio.median
        names |= {one.base.sha256: one.base.name, one.candidate.sha256: one.candidate.name}
    bases = {key: float(np.median(values)) for key, values in by_base.items()}
    candidates = {
        (group, kernel, code): bases[group, kernel, base] * ratio
        for (group, kernel, code), (base, ratio) in ratios.items()
    }
    return {key: (names[key[2]], ms) for key, ms in {**candidates, **bases}.items() if ms > 0}


def _listed(codes: Iterable[Path]) -> Iterator[Path]:
    for path in codes:
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in (".hsaco", ".co", ".o"))
        elif path.is_file():
            yield path
        else:
            raise InputError("there is nothing", where=str(path))


def _costed(files: Iterable[Path], wanted: set[str], progress: JsonLines, say: Say) -> Iterator[_Costed]:
    """Every code, costed; what was costed already by an earlier run is not costed again."""
    known = {one["code"]: one for one in progress.records if "kernels" in one and one.get("tool") == __version__}
    for number, path in enumerate(files, 1):
        if path.name.endswith((".jsonl", ".jsonl.xz")):
            yield from _of_lines(path)
            continue
        data = path.read_bytes()
        code = hashlib.sha256(data).hexdigest()
        record = known.get(code)
        if record is None:
            try:
                costed = cost_of_file(data, str(path))
            except VeriloccError as error:
                say(f"not costed: {error}")
                continue
            own = {k: components(cost) for k, cost in costed.functions.items() if k in wanted}
            record = {"code": code, "tool": __version__, "target": costed.target, "kernels": own}
            progress.add(record)
        if number % 50 == 0:
            say(f"{number} codes costed")
        yield _Costed(code, path.name, record["target"], record["kernels"])


def _of_lines(path: Path) -> Iterator[_Costed]:
    for line in read_rows(path):
        if line["cost"] is not None:
            code = hashlib.sha256(line["key"].encode()).hexdigest()
            yield _Costed(code, line["key"], line["target"], {str(line["kernel"]): line["cost"]}, line["waves"])


def _rows(
    times: Mapping[tuple[str, str, str], tuple[str, float]], costed: Iterable[_Costed], gpu: str, say: Say
) -> list[Row]:
    by_code: dict[tuple[str, str], _Costed] = {}
    elsewhere: set[str] = set()
    measured = {code for _, _, code in times}
    for one in costed:
        if one.target.partition(":")[0] != gpu:
            elsewhere.add(one.target if one.code in measured else "")
            continue
        by_code |= {(kernel, one.code): one for kernel in one.kernels}
    rows = [
        Row(group, code, name, gpu, by_code[kernel, code].kernels[kernel], by_code[kernel, code].waves, ms)
        for (group, kernel, code), (name, ms) in times.items()
        if (kernel, code) in by_code
    ]
    if not rows and elsewhere - {""}:
        raise InputError(f"the codes are for {', '.join(sorted(elsewhere - {''}))}, and were measured on {gpu}")
    counts = Counter(row.group for row in rows)
    kept = [row for row in rows if counts[row.group] >= LEAST_OF_GROUP]
    for count, what in (
        (len(times) - len(rows), "measured codes are not there, or are not costed"),
        (len(rows) - len(kept), f"codes are of kernels with fewer than {LEAST_OF_GROUP}"),
    ):
        if count:
            say(f"{count} {what}")
    return kept


# Judging, and keeping the simplest that is best.


def _choose(rows: Sequence[Row], say: Say) -> tuple[Predictor, dict[str, Any]]:
    """The simplest candidate that no other beats, and the figures of all.

    A candidate takes the ruler's place if it ranks more pairs of kept configurations rightly, and of kernels that it
    has not seen no fewer than the ruler does, each by the whole interval.
    """
    judge = Judge(rows)
    splits: list[_Split] = [kept_aside, unseen_kernels] if len({row.group for row in rows}) > 1 else [kept_aside]
    ruler = Ruler().log_time(rows)
    best = CANDIDATES[0]
    figures: dict[str, Any] = {}
    for learner in CANDIDATES:
        say(f"{learner().name}: learning and judging")
        said = {split.__name__: split(rows, learner) for split in splits}
        gains = {name: judge.gains(times, ruler) for name, times in said.items()}
        figures[learner().name] = {
            name: {**asdict(judge.judged(times)), "over the ruler": asdict(gains[name])} for name, times in said.items()
        }
        if gains["kept_aside"].pairs[1] > 0 and all(gain.pairs[2] >= 0 for gain in gains.values()):
            best = learner
    return best(), figures


def _table(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| predictor | rows kept aside | Spearman | pairs ranked rightly | regret |"
    yield "|---|---|---|---|---|"
    for name, of_splits in figures.items():
        for split, values in of_splits.items():
            of_split = (values[figure] for figure in ("spearman", "pairs", "regret"))
            cells = [f"{mean:.3f} ({low:.3f} to {high:.3f})" for mean, low, high in of_split]
            yield f"| {' | '.join([name, split.replace('_', ' '), *cells])} |"


# What was not measured.


def _unmeasured(
    learned: Predictor,
    rows: Sequence[Row],
    times: Mapping[tuple[str, str, str], object],
    costed: Iterable[_Costed],
    gpu: str,
) -> Iterator[str]:
    """For each kernel the codes that were not measured, the fastest first, with the time that is expected of them."""
    own = [one for one in costed if one.target.partition(":")[0] == gpu]
    for group, kernel in dict.fromkeys((group, kernel) for group, kernel, _ in times):
        of_group = [row for row in rows if row.group == group]
        left = [
            Row(group, one.code, one.name, gpu, one.kernels[kernel], one.waves)
            for one in own
            if kernel in one.kernels and (group, kernel, one.code) not in times
        ]
        if not of_group or not left:
            continue
        # Of a group only the order is learned: its measured codes have the scale.
        scale = float(np.mean([row.log_ms for row in of_group] - learned.log_time(of_group)))
        expected = np.exp(learned.log_time(left) + scale)
        yield f"{len(left)} codes of {group} were not measured; expected, the fastest of them first:"
        for k in np.argsort(expected, kind="stable")[:_RANKED]:
            yield f"  {left[k].name}: {expected[k]:.4g} ms"
