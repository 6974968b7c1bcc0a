"""Plans: the ways in which LLVM makes the text that we allocate.

What LLVM does before allocation, above all the order in which its scheduler leaves the instructions, decides more of a
kernel's cycles than which registers are taken. A ``Plan`` is one setting of that, as data. ``Planned`` holds one input
and makes the pre-RA text of any plan. Which are tried for an input is said below; what the final code of each costs:
``candidates.py``.

Three rules:

* A plan's options are given to LLVM where it starts from IR, never where it goes on from a text. LLVM reads most of
  them in its scheduler before allocation (``GCNSchedStrategy.cpp``) or earlier: they have done their work when the text
  is printed, and given again they change no byte of the object (``tests/pipeline/test_plans.py``). The scheduler after
  allocation reads ``-misched-cluster`` too; it stays as it is by default.
* A plan's attributes are in the IR that the text is made of. Where that leaves the IR module as it was but for
  attributes, the text goes on over the module of the default plan: an attribute such as ``"amdgpu-waves-per-eu"`` then
  guides the scheduler, and our allocators have all registers. The functions of different plans can then stand in one
  file, as those of the default plan can.
* What the user says stays: a plan with an attribute that the IR has already, or with an option that the user gave, is
  none for that input.

That LLVM's passes before allocation are right is trusted, under every plan as under the default one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.certificate.second import second_program
from smt_verifier.certificate.verdict import order_answers
from verilocc_mlir.budget import check_seconds
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.together import Reference
from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.callees import with_masks
from verilocc_mlir.pipeline.chosen_allocators import allocators_of
from verilocc_mlir.pipeline.opened import Work, open_input
from verilocc_mlir.pipeline.phase import Shared, same_module
from verilocc_mlir.pipeline.runs import OURS, Runs, Variant
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.problem.build import build_with_liveness
from verilocc_mlir.problem.model import LARGE, Phase
from verilocc_mlir.target.targets import Target, target
from verilocc_mlir.toolchain.ir_compat import to_pre_ra, with_attributes
from verilocc_mlir.toolchain.staged import StagedCompiler

if TYPE_CHECKING:
    from verilocc_mlir.ordering.early import EarlyOrder
import re

from verilocc_mlir.cost.compare import spill_traffic
from verilocc_mlir.pipeline.settings import Effort


class Plan(Struct, frozen=True):
    """One way to make pre-RA text.

    Attributes:
        name: as reports show it.
        options: of LLVM, where it starts from IR.
        attributes: string attributes that every function gets.
        accumulators: only for targets whose accumulators share a file with the VGPRs.
        llvm: the LLVMs that have it, by their first version and, where a later one lost it, the first without.
        of: the plan whose text this one puts in an order of our own, where blocks need more registers than there are;
            both checkers prove it (``ordering/early.py``).
    """

    name: str
    options: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    accumulators: bool = False
    llvm: tuple[int, int] = (22, 1000)
    of: Plan | None = None

    @property
    def in_our_order(self) -> Plan:
        return replace(self, name=f"{self.name}-ordered", of=self)

    def suits(self, target: Target, version: Sequence[int], ir: str, options: Sequence[str] = ()) -> bool:
        """Whether LLVM of that version has it, for that target, and the IR and the user's options leave it open."""
        return (
            self.llvm[0] <= version[0] < self.llvm[1]
            and (target.unified_vgpr or not self.accumulators)
            and not any(f'"{name}"' in ir for name, _ in self.attributes)
            and not {*map(_name, self.options)} & {*map(_name, options)}
        )


def _name(option: str) -> str:
    return option.lstrip("-").partition("=")[0]


def _strategy(name: str, *more: str) -> tuple[str, ...]:
    return (f"-amdgpu-sched-strategy={name}", *more)


DEFAULT = Plan("default")

PLANS = (
    DEFAULT,
    Plan("max-ilp", _strategy("max-ilp")),
    Plan("max-memory-clause", _strategy("max-memory-clause")),
    Plan("iterative-ilp", _strategy("iterative-ilp")),
    Plan("iterative-minreg", _strategy("iterative-minreg")),
    Plan("iterative-max-occupancy", _strategy("iterative-max-occupancy-experimental")),
    Plan("coexec", _strategy("coexec"), llvm=(24, 1000)),
    Plan("trackers", ("-amdgpu-use-amdgpu-trackers=1",)),
    Plan("sinking", ("-sink-insts-to-avoid-spills=1",)),
    Plan("no-sinking", ("-disable-machine-sink=1",)),
    Plan("latency-first", ("-amdgpu-schedule-metric-bias=0",)),
    Plan("occupancy-first", ("-amdgpu-schedule-metric-bias=100",)),
    Plan("relaxed-occupancy", ("-amdgpu-schedule-relaxed-occupancy=1",)),
    Plan("no-clusters", ("-misched-cluster=0",)),
    Plan("top-down", ("-misched-prera-direction=topdown",)),
    Plan("bottom-up", ("-misched-prera-direction=bottomup",)),
    Plan("two-waves", attributes=(("amdgpu-waves-per-eu", "1,2"),)),
    Plan("four-waves", attributes=(("amdgpu-waves-per-eu", "1,4"),)),
    Plan("no-accumulators", attributes=(("amdgpu-agpr-alloc", "0"),), accumulators=True),
    Plan("matrices-in-vgprs", ("-amdgpu-mfma-vgpr-form=1",), accumulators=True),
)
"""All plans, the default first. LLVM's strategy ``max-occupancy`` is its default, so it is no plan of its own."""

WHOLE_PHIS = Plan("whole-phis", ("-amdgpu-codegenprepare-break-large-phis=0",), accumulators=True)
"""Vectors stay whole from one iteration of a loop to the next. By default LLVM takes them apart, and copies every
accumulator twice an iteration where its parts are of another class. No word of an answer: the models of plans do not
know it."""

ORDERED = tuple(plan.in_our_order for plan in PLANS if plan.name in ("default", "trackers"))
"""Texts that are put in an order of our own where registers do not suffice: of LLVM, and of the plan that counts them
exactly."""

BY_NAME: Mapping[str, Plan] = {plan.name: plan for plan in (*PLANS, *ORDERED)}


Allocating = Callable[[Work, str, str, Shared], Runs]
"""Makes ``Runs`` of its first attributes."""


class Planned(Struct):
    """One input, to be allocated under any plan; what was made once is kept.

    Attributes:
        work: its compiler has the user's options alone.
        ir: as LLVM takes it; ``""`` for an input of machine IR, which has the default plan alone.
        pre: the pre-RA text of the default plan.
        promised: what callees leave alone for their callers, in the masks of every plan's text (``callees.py``).
        allocating: makes the runs of a plan's text.
        counts_scalars: whether ``lack`` does.
        known_lack: answers of ``lack``.
        most_spilled: with another plan than the default one, by function, how many 32-bit registers our allocators may
            expect to store and reload, by estimated executions: half more than LLVM's own compile does.
        limits_default: the same with the default plan.
    """

    work: Work
    ir: str
    pre: str
    promised: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    allocating: Allocating = Runs
    counts_scalars: bool = False
    known_lack: dict[Plan, float] = field(default_factory=dict[Plan, float])
    most_spilled: Mapping[str, float] = field(default_factory=dict[str, float])
    limits_default: bool = False
    _early: dict[Plan, tuple[EarlyOrder, ...]] = field(default_factory=dict[Plan, "tuple[EarlyOrder, ...]"])
    _in_order: set[Plan] = field(default_factory=set[Plan])
    _texts: dict[Plan, str] = field(default_factory=dict[Plan, str])
    _lack_of_texts: dict[tuple[str, bool], float] = field(default_factory=dict[tuple[str, bool], float])
    shared: Shared = field(default_factory=Shared)
    _runs: dict[str, Runs] = field(default_factory=dict[str, Runs])
    _reference: Reference | None = None
    _costs_of_texts: dict[str, dict[str, KernelCost]] = field(default_factory=dict[str, "dict[str, KernelCost]"])

    def plans(self, plans: Iterable[Plan] = PLANS) -> list[Plan]:
        """Those of the plans that LLVM has for this input."""
        compiler = self.work.compiler
        version, given = compiler.toolchain.version, compiler.options.llc_options
        ordered = self.work.settings.order and second_program() is not None
        suitable = [plan for plan in plans if self.ir and plan.suits(self.work.target, version, self.ir, given)]
        # Where vectors wait in accumulators, no order brought anything but for scalars.
        ordered &= self.counts_scalars or not self.work.target.unified_vgpr
        return [plan for plan in suitable if ordered or plan.of is None]

    def pre_ra(self, plan: Plan) -> str:
        """The machine IR of a plan as it enters the first phase; over the default plan's IR module where that differs
        in attributes alone.

        Raises:
            ToolchainError, InputError: LLVM fails, or has no such option. OutOfSecondsError: the seconds are over.
        """
        if plan not in self._texts:
            self._texts[plan] = self.pre if plan == DEFAULT else self._made(plan)
        return self._texts[plan]

    def _made(self, plan: Plan) -> str:
        check_seconds()
        if plan.of is not None:
            file = self.shared.parsed(self.pre_ra(plan.of), self.work.path)
            return print_mir(replace(file, functions=tuple(early.function for early in self.early(plan.of))))
        text = self._compiler(plan).to_pre_ra(with_attributes(self.ir, plan.attributes))
        if self.promised:
            text = with_masks(parse_mir(text, self.work.path), self.promised)
        if not plan.attributes:
            return text
        file, default = parse_mir(text, self.work.path), parse_mir(self.pre, self.work.path)
        if not same_module(file, default):
            return text
        return print_mir(replace(file, preamble=default.preamble))

    def _compiler(self, plan: Plan) -> StagedCompiler:
        ours = self.work.compiler
        return dataclasses.replace(ours, of_ir=plan.options) if plan.options else ours

    @property
    def is_large(self) -> bool:
        """Whether the functions of the default plan have more than ``LARGE`` instructions together."""
        functions = self.shared.parsed(self.pre, self.work.path).functions
        return sum(len(block.instructions) for function in functions for block in function.blocks) > LARGE

    def lack(self, plan: Plan) -> float:
        """How much a plan's text lacks registers, over all functions, before anything is allocated: stores and loads of
        32-bit vector registers that the spiller would add, weighted by estimated executions, and moves of scalars to
        and from lanes by ``LANE_MOVE`` where those count. Of a large file, where that takes long, the vector registers
        beyond the files that are needed where most are.

        Which plan takes the fewest modelled cycles the first says far better (docs/results/plan-choice.md).

        Raises:
            ToolchainError, InputError: as ``pre_ra``. UnsupportedError: the problem cannot be stated.
        """
        if plan not in self.known_lack:
            text = self.pre_ra(plan)
            key = text, self.counts_scalars
            if key not in self._lack_of_texts:
                self._lack_of_texts[key] = self._estimated(text)
            self.known_lack[plan] = self._lack_of_texts[key]
        return self.known_lack[plan]

    def _estimated(self, text: str) -> float:
        # Few files spill.
        from verilocc_mlir.spilling.relieve import Spiller, most_too_many

        file, gpu, is_large = self.shared.parsed(text, self.work.path), self.work.target, self.is_large
        phases: dict[Phase, float] = {"vgpr": 1.0}
        if self.counts_scalars and not is_large:
            phases["sgpr"] = LANE_MOVE
        lack = 0.0
        for phase, weight in phases.items():
            for function in file.functions:
                with self.work.events.measure("spill"):
                    problem, waits = build_with_liveness(file, function, gpu, phase, pressure_alone=True)
                    lack += weight * (
                        most_too_many(problem) if is_large else Spiller(function, problem, gpu, waits).estimate()
                    )
        return lack

    def is_shorter(self, plan: Plan) -> bool:
        """Whether a plan in an order of our own is less short of registers than the one whose text it is made of.

        Raises:
            As ``early``.
        """
        assert plan.of is not None
        return any(early.strain < early.given for early in self.early(plan.of))

    def early(self, plan: Plan) -> tuple[EarlyOrder, ...]:
        """Each function of a plan's text in an order of our own, where it needs more registers than there are.

        Raises:
            ToolchainError, InputError: as ``pre_ra``. UnsupportedError: liveness or registers cannot be stated.
        """
        plan = plan.of or plan
        if plan not in self._early:
            from verilocc_mlir.ordering.early import ordered_early

            file = self.shared.parsed(self.pre_ra(plan), self.work.path)
            with self.work.events.measure("order"):
                self._early[plan] = tuple(
                    ordered_early(file, function, self.work.target) for function in file.functions
                )
        return self._early[plan]

    def check_order(self, plan: Plan) -> None:
        """Both checkers prove that a plan in an order of our own has its other plan's text but for the order; once.

        Raises:
            ToolchainError, InputError: as ``pre_ra``. UnsupportedError: one of them refuses it.
        """
        if plan.of is None or plan in self._in_order:
            return
        before, after = self.pre_ra(plan.of), self.pre_ra(plan)
        with self.work.events.measure("audit"):
            for early in self.early(plan.of):
                if early.moved:
                    name = early.function.name
                    for answer in order_answers(before, after, early.certificate, name, self.work.target.name):
                        if not answer.accepted:
                            raise UnsupportedError(f"our order is refused: {answer}", where=f"function {name}")
        self._in_order.add(plan)

    def runs(self, plan: Plan) -> Runs:
        """The variants of a plan's text; plans with the same text share them.

        Raises:
            ToolchainError, InputError: as ``pre_ra``.
        """
        text = self.pre_ra(plan)
        if text not in self._runs:
            work = replace(self.work, compiler=self._compiler(plan))
            runs = self.allocating(work, text, with_attributes(self.ir, plan.attributes), self.shared)
            runs.most_spilled = self.most_spilled if self.limits_default or text != self.pre else {}
            self._runs[text] = runs
        return self._runs[text]

    def lift_default_limit(self) -> None:
        """Let the default plan spill as much as it takes; its text is allocated anew."""
        self.limits_default = False
        self._runs.pop(self.pre, None)

    def cost(self, plan: Plan, variant: Variant = OURS) -> dict[str, KernelCost] | None:
        """The modelled cost of each function in the final code of our allocation, which is not audited; None where our
        allocators have nothing for some function. LLVM's allocation, with ``LLVM``.

        Raises:
            ToolchainError, InputError: as ``pre_ra``.
        """
        runs = self.runs(plan)
        text = runs.draft(variant) if variant.is_ours else runs.plain_text()
        return None if text is None else self.cost_of(text)

    def is_whole(self, costs: Mapping[str, KernelCost]) -> bool:
        """Whether there is a cost that compares for every function."""
        return self._reference is None or costs.keys() == self._reference.costs.keys()

    def cost_of(self, text: str) -> dict[str, KernelCost]:
        """The modelled cost of each function of an allocated text, finished without the machine verifier; once."""
        if text not in self._costs_of_texts:
            self._costs_of_texts[text] = self.costs(self.work.compiler.finish(text, "asm", verify=False))
        return self._costs_of_texts[text]

    def direct_cost(self) -> dict[str, KernelCost]:
        """The same of LLVM's default compile."""
        return self.costs(self.work.compiler.direct(self.ir, "asm"))

    def costs(self, assembly: bytes) -> dict[str, KernelCost]:
        """The modelled cost of each function of final code, whose loops run as often as in the code costed first.

        A function that does not do the same work there is left out: it cannot be compared (``cost/together.py``).
        """
        with self.work.events.measure("cost"):
            text = assembly.decode()
            if self._reference is None:
                self._reference = Reference.of_assembly(text, self.work.target, where=self.work.path)
                return dict(self._reference.costs)
            return self._reference.costs_of_assembly(text, where=self.work.path)


def planned(data: bytes, path: str, settings: Settings) -> Planned:
    """An input of LLVM IR, read once.

    Raises:
        InputError: unusable input or option. ToolchainError: a tool is missing or failed. UnsupportedError: outside
            what this version handles.
    """
    given, compiler = open_input(data, path, settings, verify=settings.verifies, llc_options=settings.llc_options)
    pre = to_pre_ra(compiler, given.text)
    work = Work(path, settings, compiler, target(given.cpu), tuple(allocators_of(settings)))
    return Planned(work, pre.ir, pre.mir)


# Which plans are tried for an input: by effort, target, and what the final code of the default plan costs.
#
# The estimates are cheap, since that code is costed anyway. Where a unit of the GPU binds a function (matrix unit,
# VALU, LDS, memory), no order of the instructions changes its modelled cycles, so nothing is tried for it. Where
# registers are spilled, an order that needs fewer may bring more than one that hides more.


LEAST_PROMISE = 0.03
"""Share of its modelled cycles that another order could bring at most, below which none is tried."""


def promise(cost: KernelCost) -> float:
    """The share of a function's modelled cycles that no unit needs: what another order could bring at most."""
    return 1 - cost.work / cost.cycles if cost.cycles else 0.0


def has_promise(costs: Mapping[str, KernelCost]) -> bool:
    """Whether another order of the instructions could bring something worth a try in one of these functions."""
    return any(promise(cost) > LEAST_PROMISE or spill_traffic(cost) for cost in costs.values())


LANE_MOVE = 0.25
"""What moving a scalar to a lane of a vector register, or back, counts of storing a vector register to memory."""

WHERE_TIGHT = ("trackers", "iterative-minreg", "max-ilp", "matrices-in-vgprs")
"""Plans that may stand in for the default one where LLVM spills vector registers. The schedulers of the first two count
registers. That of the third may need fewer in loops where there are AGPRs: elsewhere ``fast`` keeps it for none
of 42 kernels. The last has room for more accumulators of matrix instructions than there are AGPRs.
"""
_WIDE_PHI = re.compile(r" = phi (?:[a-z]+ )*<(?:8|16|32) x (?:float|i32)>")
"""An accumulator of a matrix instruction that a loop carries."""
NEARLY = 1.25
"""Times the least lack, up to which ``balanced`` tries a plan."""


def first_plans(given: Planned, *, ordered: bool = False, less: bool = False) -> tuple[Plan, ...]:
    """The plans that are tried in turn, until one comes to something, for an input that LLVM's default compile spills
    vector registers of; the default plan is the last.

    Args:
        ordered: its text in an order of our own comes first, where there are enough registers at every point so.
        less: only plans that lack less by ``LESS``.

    Raises:
        VeriloccError: LLVM fails, or an allocation problem cannot be stated.
    """
    if not given.lack(DEFAULT):
        # There are enough at every point: what is spilled found no place. Another order then costs more than it saves.
        return (DEFAULT,)
    has_agprs = given.work.target.unified_vgpr
    tight = (BY_NAME[name] for name in WHERE_TIGHT if has_agprs or name != "max-ilp")
    others = {plan: given.lack(plan) for plan in given.plans(tight)}
    # Whole vectors come after the others: what LLVM then moves to AGPRs counts as spilled.
    whole = given.plans((WHOLE_PHIS,)) if _WIDE_PHI.search(given.ir) else []
    ours = given.plans(plan for plan in ORDERED if plan.of == DEFAULT) if ordered else ()
    fitting = (plan for plan in ours if not any(early.strain for early in given.early(plan)))
    most = given.lack(DEFAULT) * (LESS if less else 1)
    return (*fitting, *tightest(most, others), *whole, DEFAULT)


def tightest(most: float, others: Mapping[Plan, float]) -> tuple[Plan, ...]:
    """The plans of which ``Planned.lack`` is less than so much, the best first.

    The scheduler of ``trackers`` counts registers exactly: where another plan lacks hardly less, or the default one as
    much, it does better.
    """
    exact = BY_NAME["trackers"]
    price = {plan: lack * LESS if plan == exact else lack for plan, lack in others.items()}
    fewer = (plan for plan, lack in others.items() if lack < most or (plan == exact and lack == most))
    return tuple(sorted(fewer, key=lambda plan: price[plan]))


LESS = 0.97
"""Share of what the default plan's text is short of registers, up to which another plan of a large function is worth a
try. What ``trackers`` lacks counts for so much of it.
"""


def ordered_plans(given: Planned, first: Plan, effort: Effort) -> list[Plan]:
    """The plans whose text is put in an order of our own, tried beside the first plan where LLVM's default compile
    spills: of ``best`` all that are less short of registers so, those that lack least first; of ``balanced`` those of
    them that lack less than the first plan, and nearly as little as any; of ``fast`` the first of these.

    Raises:
        VeriloccError: LLVM fails, or liveness or registers of a text cannot be stated.
    """
    better = sorted((plan for plan in given.plans(ORDERED) if given.is_shorter(plan)), key=given.lack)
    if effort is Effort.BEST or not better:
        return better
    better = [
        p for p in better if given.lack(p) < given.lack(first) and given.lack(p) <= NEARLY * given.lack(better[0])
    ]
    return better[:1] if effort.is_quick else better


_WHERE_SPILLED = ("trackers", "max-ilp", "iterative-minreg", "no-clusters")
_ELSEWHERE = ("max-ilp", "iterative-ilp", "max-memory-clause", "top-down")


def plans_of(effort: Effort, costs: Mapping[str, KernelCost]) -> tuple[Plan, ...]:
    """The plans tried beside the default one, whose final code has these costs, where there is promise: of ``balanced``
    four, which together brought most over 60 kernels (``benchmarks/plans.py``); of ``best`` all.
    """
    if effort is Effort.BEST:
        return tuple(plan for plan in PLANS if plan != DEFAULT)
    return balanced_plans(spilled=any(map(spill_traffic, costs.values()))) if effort is Effort.BALANCED else ()


def balanced_plans(*, spilled: bool) -> tuple[Plan, ...]:
    """The four of ``balanced``, where registers are spilled under the first plan or not."""
    return tuple(BY_NAME[name] for name in (_WHERE_SPILLED if spilled else _ELSEWHERE))


def extra_plan(costs: Mapping[str, KernelCost], *, short: bool) -> Plan | None:
    """The one plan that ``fast`` tries beside the default one, by what the default one's code costs.

    Only where ours stands worse than LLVM's, and an order can bring something: where registers are spilled, the one
    whose scheduler counts registers exactly, else the one that hides most. Elsewhere it would bring 0.1 to 0.3 % of the
    cycles (docs/results/plan-choice.md), and where registers are spilled it triples the time of a compilation.

    Args:
        short: what there is stands worse than LLVM's default compile.
    """
    most = max(costs.values(), key=lambda c: c.latency, default=None)
    if most is None or not short or not has_promise(costs):
        return None
    return BY_NAME["trackers" if spill_traffic(most) else "max-ilp"]
