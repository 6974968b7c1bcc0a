"""Costs and comparisons as JSON: what ``verilocc cost --json`` and ``verilocc compare --json`` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from verilocc_mlir import forms
from verilocc_mlir.cost.compare import Comparison, latency_parts
from verilocc_mlir.cost.model import COUNTS, MODELLED, CostedFile, KernelCost
from verilocc_mlir.forms import Amount, Form, Positive, Tool, Whole, about, filled

COST_VERSION = 3

Bound = Literal["latency", "valu", "mfma", "lds", "memory", "salu"]


class CostForm(Form):
    """Figures of the model have two digits."""

    DIGITS: ClassVar[int] = 2


class CostedFileForm(CostForm):
    """One file; ``llvm`` is null where no LLVM was used."""

    path: str
    kind: Literal["assembly", "code object", "machine IR"]
    target: str
    llvm: str | None
    notes: list[str]


class CountForm(CostForm):
    """How often something stands in the code, and how often a wave executes it."""

    static: Whole
    executed: Amount


class CountsForm(CostForm):
    """What is counted."""

    instructions: CountForm
    copies: CountForm
    accumulator_copies: CountForm
    scalar_copies: CountForm
    spill_stores: CountForm
    spill_reloads: CountForm
    lane_saves: CountForm
    lane_reloads: CountForm
    scratch: CountForm
    group_changes: CountForm
    dual: CountForm
    dual_blocked: CountForm
    nops: CountForm
    bank_conflicts: CountForm


class BoundsForm(CostForm):
    """Cycles of each component."""

    latency: Amount
    valu: Amount
    mfma: Amount
    lds: Amount
    memory: Amount
    salu: Amount


class LatencyPartsForm(CostForm):
    """The latency by what a wave does in it."""

    waits: Amount
    dependencies: Amount
    busy: Amount
    hazards: Amount
    branches: Amount
    issue: Amount


class LoopForm(CostForm):
    """One loop of the machine code."""

    header: str | None
    ir_name: str | None
    depth: Positive
    trips: Positive
    source: Literal["ir", "code", "other", "default"]


class KernelCostForm(CostForm):
    """One function."""

    name: str
    kind: Literal["kernel", "device"]
    cycles: Annotated[float, about("What a wave costs its SIMD: unhidden, and what bounds make together.", minimum=0)]
    unhidden: Amount
    bound: Bound
    bounds: BoundsForm
    latency: Amount
    latency_parts: LatencyPartsForm
    occupancy: Positive
    vector_registers: Whole
    agprs: Whole
    sgprs: Whole
    lds_bytes: Whole
    scratch_bytes: Whole
    code_bytes: Whole | None
    counts: CountsForm
    loops: list[LoopForm]


class JudgementForm(CostForm):
    """Which of two codes is better, and by what."""

    better: Literal["first", "second"] | None
    by: str
    error_bar: Annotated[float, about("Share by which modelled cycles must differ to decide.", minimum=0)]


class ComparisonForm(CostForm):
    """One function in two compilations; null where it is not there."""

    name: str
    percent: Annotated[float | None, about("How much dearer the second is.")]
    explanation: str | None
    problem: Annotated[str | None, about("Why the two do not compare.")]
    judgement: JudgementForm | None
    first: KernelCostForm | None
    second: KernelCostForm | None


class CostDocument(CostForm, kw_only=True):
    """What ``verilocc cost`` prints."""

    cost_version: Annotated[int, about("of this form", const=COST_VERSION)] = COST_VERSION
    tool: Tool
    modelled: Annotated[str, about("What the figures are.")] = MODELLED
    file: CostedFileForm
    functions: list[KernelCostForm]


class ComparisonDocument(CostForm, kw_only=True):
    """What ``verilocc compare`` prints."""

    cost_version: Annotated[int, about("of this form", const=COST_VERSION)] = COST_VERSION
    tool: Tool
    modelled: Annotated[str, about("What the figures are.")] = MODELLED
    first: CostedFileForm
    second: CostedFileForm
    functions: list[ComparisonForm]


def schema() -> dict[str, Any]:
    return forms.json_schema(
        CostDocument, ComparisonDocument, title="What verilocc cost --json and verilocc compare --json print"
    )


def cost_json(file: CostedFile, version: str) -> str:
    """The costs of one file, indented, with a final line break. ``version``: this program's."""
    functions = [_cost(c) for c in file.functions.values()]
    return forms.to_json(filled(CostDocument, tool=filled(Tool, version=version), file=file, functions=functions))


def comparison_json(first: CostedFile, second: CostedFile, rows: Sequence[Comparison], version: str) -> str:
    tool, functions = filled(Tool, version=version), [_compared(row) for row in rows]
    return forms.to_json(filled(ComparisonDocument, tool=tool, first=first, second=second, functions=functions))


def _compared(row: Comparison) -> ComparisonForm:
    first, second = (None if cost is None else _cost(cost) for cost in (row.first, row.second))
    judged = row.judgement
    judgement = None
    if judged is not None:
        better = None if judged.order == 0 else "first" if judged.order < 0 else "second"
        judgement = filled(JudgementForm, better=better, by=judged.ground.value, error_bar=judged.bar)
    return filled(ComparisonForm, row, first=first, second=second, judgement=judgement)


def _cost(cost: KernelCost) -> KernelCostForm:
    counted = {name: getattr(cost, name) for name in COUNTS}
    return filled(
        KernelCostForm,
        cost,
        kind="kernel" if cost.is_kernel else "device",
        latency_parts=filled(LatencyPartsForm, **latency_parts(cost)),
        vector_registers=cost.vectors,
        counts=filled(CountsForm, **{n: filled(CountForm, c, executed=c.weighted) for n, c in counted.items()}),
        loops=[filled(LoopForm, loop, header=loop.label) for loop in cost.loops],
    )
