"""Several allocations of one input, compared by their final code before anything is proved; what is kept is proved.

A candidate is a plan (``plans.py``) and a way to allocate its text (``effort.Variant``). Each is allocated, finished
and costed without an audit. Each function then takes the one that stands best against LLVM's default compile
(``guard.py``), and that one is audited, from its own pre-RA text. Where the audit does not prove it, the next best
takes its place. Nothing is kept that is not proved.

Functions of a file may take different candidates: their documents stand over one IR module. A plan that leaves another
module is tried for files of one function alone.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from verilocc_mlir.allocators.registry import LLVM_ALLOCATOR, MODEL, model_is_there
from verilocc_mlir.cost.compare import error_bar, spill_traffic
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.cost.unhidden import work
from verilocc_mlir.errors import ToolchainError, UnsupportedError, VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.pipeline.candidates import Answer, Candidate, effective
from verilocc_mlir.pipeline.effort import BESIDE, MODELS, PACKED, variants
from verilocc_mlir.pipeline.events import Tried
from verilocc_mlir.pipeline.guard import shortfalls
from verilocc_mlir.pipeline.learned import stated
from verilocc_mlir.pipeline.phase import same_module, with_functions
from verilocc_mlir.pipeline.plans import (
    DEFAULT,
    NEARLY,
    Plan,
    Planned,
    extra_plan,
    first_plans,
    has_promise,
    ordered_plans,
    plans_of,
)
from verilocc_mlir.pipeline.runs import LLVM, OURS, RESUMED, LlvmVariant, Result, Variant, mixed_records
from verilocc_mlir.pipeline.settings import Effort
from verilocc_mlir.results.compile import Attempt, PhaseReport, Resources
from verilocc_mlir.target.targets import target
from verilocc_mlir.toolchain.run import ToolFailure

Costs = Mapping[str, "KernelCost"]
_ALIKE = ("mfma", "lds", "memory")
"""Units that do the same work in every allocation without spills; copies are work of the VALU and SALU."""


class Kept(Struct, frozen=True):
    """What is kept of a file.

    Attributes:
        pre: machine IR as it enters the first phase, each function as its candidate has it.
        candidates: by function.
    """

    result: Result
    pre: str
    candidates: Mapping[str, Candidate]

    @property
    def is_llvms(self) -> bool:
        """Whether all of it is LLVM's allocation of a plain compile."""
        return all(candidate == Candidate(DEFAULT, LLVM) for candidate in self.candidates.values())


OVER = "the seconds were over: the best that was proved by then is taken"
MANY_LANE_MOVES = 256
"""Moves of scalars to and from lanes in LLVM's default compile, by estimated executions, above which other plans are
tried first if they need fewer."""
ESTIMATED = 1.5
"""What an allocator expects to store and reload, over what the code does, at most: 1.2 was seen."""
_TOO_DEAR = f"ours is expected to store and reload over {ESTIMATED} times as many registers as LLVM's"


class Portfolio(Struct):
    """The candidates of one input.

    Attributes:
        given: the input.
        functions: their names.
        greedy_code: gives the assembly of LLVM's default compile.
        greedy_kernels: gives its resources, for the functions of which its object says so.
    """

    given: Planned
    functions: Sequence[str]
    greedy_code: Callable[[], bytes]
    greedy_kernels: Callable[[], Mapping[str, Resources]]
    _prices: dict[Candidate, Costs] = field(default_factory=dict[Candidate, Costs])
    _results: dict[Candidate, Result] = field(default_factory=dict[Candidate, Result])
    _refused: set[tuple[str, Candidate]] = field(default_factory=set[tuple[str, Candidate]])
    _failures: dict[Candidate, str] = field(default_factory=dict[Candidate, str])
    _greedy: Costs | None = None
    _first: Plan = DEFAULT

    @property
    def greedy(self) -> Costs:
        """The cost of LLVM's default compile, by function."""
        if self._greedy is None:
            self._greedy = self.given.costs(self.greedy_code())
        return self._greedy

    def kept(self) -> Kept | None:
        """What is proved and stands best, function by function; None where some function has nothing that is proved."""
        if not self._prices:
            self._fill()
            # What all that was tried has in common: of a large function a hundred MiB, some of it in cycles.
            self.given.shared.starts.clear()
            if self.given.is_large:
                gc.collect()
        while True:
            chosen = {name: self._best(name) for name in self.functions}
            if None in chosen.values() and self._failures.get(Candidate(DEFAULT, OURS)) == _TOO_DEAR:
                # LLVM's is not proved: ours may be, however much it spills.
                del self._failures[Candidate(DEFAULT, OURS)]
                self.given.lift_default_limit()
                self._add(Candidate(DEFAULT, OURS))
                continue
            worse = [name for name, best in chosen.items() if best is None or self._shortfalls(name, best)]
            # Of machine IR, LLVM's is that of our text already.
            if worse and self._llvm_is_wanted and self.given.ir and self._add(Candidate(DEFAULT, RESUMED)):
                continue
            proved = {name: best for name, best in chosen.items() if best is not None}
            if len(proved) < len(self.functions):
                return None
            pending = [(name, best) for name, best in proved.items() if not self._is_proved(name, best)]
            if not pending:
                return self._merged(proved)
            self._prove(pending[0][1], [name for name, best in pending if best == pending[0][1]])

    def costs(self, kept: Kept) -> Costs:
        """The cost of each function of what is kept."""
        return {name: self._prices[candidate][name] for name, candidate in kept.candidates.items()}

    def refuse_dearer(self, kept: Kept, costs: Costs) -> bool:
        """Take back kernels of ours that take more modelled cycles than LLVM's, be it within the error bar, where
        LLVM's own is there; False if there are none.

        Args:
            costs: of the final code.
        """
        llvms = Candidate(DEFAULT, LLVM)
        dearer = {
            (name, candidate)
            for name, candidate in kept.candidates.items()
            if candidate.variant.is_ours and costs[name].is_kernel and costs[name].cycles > self.greedy[name].cycles
            if llvms in self._prices and (name, llvms) not in self._refused
        }
        self._refused |= dearer
        return bool(dearer)

    @property
    def unproved(self) -> Collection[str]:
        """Functions that no audited candidate proves; where each of them is proved in some, those that one does not."""
        results = self._results.values()
        refused = {name: [r.has_refused(name) for r in results if name in r.phases] for name in self.functions}
        return [n for n in refused if refused[n] and all(refused[n])] or [n for n in refused if any(refused[n])]

    def refuse(self, kept: Kept, error: ToolchainError) -> bool:
        """Take back what was kept, which LLVM does not finish: what the default plan does not come to first, then all
        that is ours; False if it is LLVM's throughout.
        """
        _raise_if_killed(error)
        chosen = set(kept.candidates.values())
        others = {c for c in chosen if c.plan != DEFAULT or c.variant not in (OURS, LLVM)}
        others = others or {c for c in chosen if c.variant.is_ours}
        self._refused |= {(name, candidate) for name in self.functions for candidate in others}
        for candidate in sorted(others, key=lambda c: c.name):
            self._tell(f"{candidate.name} was left out: {error.what}")
        return bool(others)

    def _tell(self, note: str) -> None:
        self.given.work.events.note(note)

    # What is tried.

    def _fill(self) -> None:
        settings, ours = self.given.work.settings, Candidate(DEFAULT, OURS)
        if settings.plan:
            self._add_only(settings.plan)
            return
        # An order of our own stands for all others where it needs no spill code, or stands as well as LLVM's.
        tried = (c for c in self._first_candidates() if self._add(c))
        first = next((c for c in tried if c.plan.of is None or not self._saves(c) or not self._is_short), ours)
        self._first = first.plan
        if settings.effort.is_quick and self._is_unbeaten(self._prices.get(first, {})):
            # So LLVM's need not be made, nor costed.
            self._greedy = self._prices[first]
            if settings.effort is Effort.LEARNED:
                self._tell("the model of plans is not asked: a unit binds it whose work no allocation changes")
            return
        if self._llvm_is_wanted:
            self._add(Candidate(DEFAULT, LLVM))
        if settings.effort is Effort.FAST and self.given.is_large:
            return
        if first.plan.of is None:
            self._add_plans(self._ordered_plans(first.plan))
        if settings.effort.is_quick:
            self._add_relieved(first)
            if first != ours and self._is_short and self._add(ours):
                self._add_relieved(ours)
            costs = self._prices.get(first, {})
            if self._failures.get(ours) == _TOO_DEAR:
                costs = costs or self.greedy
            plan = extra_plan(costs, short=self._is_short)
            self._add_plans(() if plan is None else (plan,))
            if settings.effort is Effort.LEARNED:
                self._add_stated()
            return
        if self._saves(first) or first not in self._prices:
            self._add(Candidate(first.plan, BESIDE))
        costs = self._prices.get(first, self.greedy)
        if self._is_short or has_promise(costs):
            self._add_plans(self._worth_a_try(plans_of(settings.effort, costs)))
        if self._is_short or settings.effort is Effort.BEST:
            self._add(ours)
        if settings.effort is Effort.BEST:
            self._add_searched()

    def _add_only(self, words: str) -> None:
        """The one answer that is asked for.

        Raises:
            InputError: it is none. UnsupportedError: it comes to nothing for this input.
        """
        given, candidate = self.given, Answer.parse(words).candidate
        if candidate.plan != DEFAULT and candidate.plan not in given.plans((candidate.plan,)):
            reason = "LLVM does not have it for this input, or the input has decided it"
        elif self._add(candidate):
            return
        else:
            alike = "what is allocated is the same as without it, or our allocators have nothing"
            reason = self._failures.get(candidate) or alike
        raise UnsupportedError(f"the plan {words} comes to nothing: {reason}", where=given.work.path)

    @property
    def _llvm_spills(self) -> bool:
        """Whether LLVM's default compile spills vector registers, or many scalars, of an input that has plans."""
        if not self.given.ir:
            return False
        return any(resources.vgpr_spills for resources in self.greedy_kernels().values()) or self._spills_scalars

    @property
    def _spills_scalars(self) -> bool:
        """Whether LLVM's default compile moves many scalars to lanes of vector registers and back."""
        # Few kernels spill scalars, and the others need not be costed for that.
        if not any(resources.sgpr_spills for resources in self.greedy_kernels().values()):
            return False
        moves = (move for cost in self.greedy.values() for move in (cost.lane_saves, cost.lane_reloads))
        return sum(move.weighted for move in moves) > MANY_LANE_MOVES

    def _ordered_plans(self, first: Plan) -> Sequence[Plan]:
        """Plans in an order of our own, where the registers do not suffice for the first plan."""
        if not self._llvm_spills:
            return ()
        try:
            return ordered_plans(self.given, first, self.given.work.settings.effort)
        except VeriloccError as error:
            _raise_if_killed(error)
            return ()

    def _first_candidates(self) -> Iterator[Candidate]:
        """The default plan; before it, those whose texts need fewer registers where LLVM spills, or our allocators have
        nothing for the default one's. Quick efforts begin with the order of our own that they try.
        """
        given, plans, is_quick = self.given, (DEFAULT,), self.given.work.settings.effort.is_quick
        try:
            if self._llvm_spills:
                given.counts_scalars = self._spills_scalars
                given.most_spilled = {n: ESTIMATED * spill_traffic(cost) for n, cost in self.greedy.items()}
                # Of several functions another one may stand well, and without LLVM's the default plan's stands alone.
                given.limits_default = is_quick and self._llvm_is_wanted and len(self.functions) == 1
            if given.ir and (self._llvm_spills or given.runs(DEFAULT).draft(OURS) is None):
                plans = first_plans(given, ordered=is_quick, less=is_quick and given.is_large)
                if is_quick and plans[0].of is None:
                    plans = (*self._ordered_plans(plans[0]), *plans)
        except VeriloccError as error:
            _raise_if_killed(error)
        yield from (Candidate(plan, OURS) for plan in plans)

    def _worth_a_try(self, plans: Sequence[Plan]) -> Sequence[Plan]:
        """Where the registers do not suffice, those plans of ``balanced`` that lack nearly as little as any."""
        least = min(self.given.known_lack.values(), default=0)
        if self.given.work.settings.effort is Effort.BEST or not least:
            return plans
        try:
            return [plan for plan in self.given.plans(plans) if self.given.lack(plan) <= NEARLY * least]
        except VeriloccError as error:
            _raise_if_killed(error)
            return plans

    @property
    def _is_short(self) -> bool:
        """Whether some function has nothing of ours that stands as well as LLVM's."""
        ours = [c for c in self._prices if c.variant.is_ours]
        return not all(any(not self._shortfalls(name, c) for c in ours) for name in self.functions)

    def _is_unbeaten(self, costs: Costs) -> bool:
        """Whether LLVM's can be no cheaper: a unit binds each function whose work no allocation changes, nothing is
        spilled or copied between register files, and there are no fewer waves.
        """
        if not all(n in costs and _is_bound(costs[n]) for n in self.functions):
            return False
        kernels = self.greedy_kernels()
        return all(name in kernels and costs[name].occupancy >= kernels[name].waves for name in self.functions)

    def _add_plans(self, plans: Iterable[Plan]) -> None:
        """Our allocation of each plan's text."""
        for plan in self.given.plans(plans):
            if self._add(Candidate(plan, OURS)):
                self._add_relieved(Candidate(plan, OURS))

    def _add_relieved(self, candidate: Candidate) -> None:
        """The same with loads beside their use, where it saves registers and falls short: fewer are saved then."""
        if self._saves(candidate) and any(self._shortfalls(name, candidate) for name in self.functions):
            self._add(Candidate(candidate.plan, BESIDE))

    def _add_stated(self) -> None:
        """What the model of plans states, as many answers as are wanted; nothing where no order promises anything."""
        given = self.given
        costs = self._prices.get(Candidate(self._first), self.greedy)
        if not given.ir or not (self._is_short or has_promise(costs)):
            why = "no order promises anything here" if given.ir else "machine IR has the default plan alone"
            self._tell(f"the model of plans is not asked: {why}")
            return
        code = self.greedy_code()
        with given.work.events.measure_rest("plans"):
            said = stated(given, self._first, code)
        given.work.events.note(*said.notes)
        if not said.model:
            return
        seen = {key for tried in self._prices if (key := self._key(tried)) is not None}
        chosen: list[str] = []
        for answer in said.answers:
            if len(chosen) == given.work.settings.plans:
                break
            key = self._key(answer.candidate)
            if key is None or key in seen:
                continue
            seen.add(key)
            chosen.append(str(answer))
            self._add(answer.candidate)
        self._tell(f"{said.model} stated {len(chosen)} plans to try: {', '.join(chosen) or 'none'}")

    def _key(self, candidate: Candidate) -> tuple[str, Variant] | None:
        """The same for candidates that are allocated alike; None for one that the input cannot have."""
        if not candidate.variant.is_ours or candidate.plan not in self.given.plans((candidate.plan,)):
            return None
        try:
            return self.given.pre_ra(candidate.plan), effective(self.given, candidate)
        except VeriloccError as error:
            _raise_if_killed(error)
            return None

    def _add_searched(self) -> None:
        """What takes a search, for the default plan and for the plan that stands best."""
        ours, settings = Candidate(DEFAULT, OURS), self.given.work.settings
        kernels = [c.occupancy for c in self._prices.get(ours, {}).values()]
        searched = [v for v in variants(Effort.BEST, self.given.work.target, min(kernels, default=0)) if v.is_ours]
        if not settings.server and MODEL not in [a.name for a in self.given.work.allocators] and model_is_there():
            searched.append(MODELS)
        plans = [DEFAULT]
        total = {c: sum(x.cycles for x in costs.values()) for c, costs in self._prices.items() if c.variant == OURS}
        if total:
            plans = list(dict.fromkeys((DEFAULT, min(total, key=lambda c: total[c]).plan)))
        for plan in plans:
            for variant in searched:
                self._add(Candidate(plan, variant))
            if self._is_fragmented(Candidate(plan, OURS)) and _exact_is_there():
                self._add(Candidate(plan, PACKED))

    @property
    def _llvm_is_wanted(self) -> bool:
        return self.given.work.settings.fallback and not self.given.work.settings.plan

    def _add(self, candidate: Candidate) -> bool:
        """Cost a candidate; False if it was tried already, came to nothing, or is what another one is."""
        if candidate in self._prices or candidate in self._failures:
            return False
        if self.given.work.events.budget.is_over and candidate.variant.is_ours:
            self._failures[candidate] = "the seconds are over"
            self.given.work.events.note_once(OVER)
            return False
        self.given.work.events.tell(Tried(candidate.name))
        try:
            if self._has_no_draft(candidate):
                if self.given.runs(DEFAULT).is_too_dear(OURS):
                    self._failures[candidate] = _TOO_DEAR
                    return False
                self._prove(candidate, self.functions)
            elif (costs := self._costs(candidate)) is not None:
                self._prices[candidate] = costs
        except VeriloccError as error:
            _raise_if_killed(error)
            self._leave_out(candidate, error)
            return False
        if candidate not in self._prices:
            self._failures.setdefault(candidate, "")
            return False
        return True

    def _has_no_draft(self, candidate: Candidate) -> bool:
        """Whether only the audit shows what the text is, so that it is costed with that: of ours where LLVM's stands in
        for it in some functions.
        """
        return candidate == Candidate(DEFAULT, OURS) and self.given.runs(DEFAULT).draft(OURS) is None

    def _leave_out(self, candidate: Candidate, error: VeriloccError) -> None:
        self._failures[candidate] = error.what
        whose = "ours" if candidate == Candidate(DEFAULT, OURS) else candidate.name
        self._tell(f"{whose} was left out: {error.what}")

    def _costs(self, candidate: Candidate) -> Costs | None:
        given, runs = self.given, self.given.runs(candidate.plan)
        if isinstance(candidate.variant, LlvmVariant):
            # Where one function calls another, LLVM's own compile knows more than one that is stopped in between.
            one = len(self.functions) == 1 and candidate == Candidate(DEFAULT, LLVM) and given.ir
            return self.greedy if one else given.cost_of(candidate.variant.text(runs))
        if candidate.plan != DEFAULT and (runs is given.runs(DEFAULT) or not self._fits(candidate.plan)):
            return None
        text = runs.draft(candidate.variant)
        return None if text is None else given.cost_of(text)

    def _fits(self, plan: Plan) -> bool:
        """Whether functions of the plan can stand beside those of others."""
        if len(self.functions) == 1:
            return True
        texts = self.given.pre_ra(plan), self.given.pre
        return same_module(*(parse_mir(text, self.given.work.path) for text in texts))

    def _saves(self, candidate: Candidate) -> bool:
        return self._drafted(candidate) and self.given.runs(candidate.plan).saves(candidate.variant)

    def _is_fragmented(self, candidate: Candidate) -> bool:
        return self._drafted(candidate) and self.given.runs(candidate.plan).is_fragmented(candidate.variant)

    def _drafted(self, candidate: Candidate) -> bool:
        return candidate in self._prices and self.given.runs(candidate.plan).draft(candidate.variant) is not None

    # What is chosen.

    def _shortfalls(self, name: str, candidate: Candidate) -> list[str]:
        costs = self._prices.get(candidate, {})
        return shortfalls(costs[name], self.greedy[name]) if name in costs and name in self.greedy else []

    def _best(self, name: str) -> Candidate | None:
        """Of those that fall short in least, and that the model cannot tell from the cheapest, the one that spills
        least and has most waves; then the cheapest, ours and the default plan first. Of a called function, whose
        cycles its callers count, the one that executes fewest instructions.
        """
        candidates = [c for c, costs in self._prices.items() if name in costs and (name, c) not in self._refused]
        if not candidates:
            return None
        lacking = {c: len(self._shortfalls(name, c)) for c in candidates}
        candidates = [c for c in candidates if lacking[c] == min(lacking.values())]
        cheapest = min((self._prices[c][name] for c in candidates), key=lambda cost: cost.cycles)

        def price(candidate: Candidate) -> tuple[float, int, float, float, bool]:
            cost = self._prices[candidate][name]
            instructions = 0.0 if cost.is_kernel else cost.issued
            return spill_traffic(cost), -cost.occupancy, cost.cycles, instructions, not candidate.variant.is_ours

        def is_told_apart(candidate: Candidate) -> bool:
            cost = self._prices[candidate][name]
            return cost.cycles > (1 + error_bar(cost, cheapest)) * cheapest.cycles

        return min((c for c in candidates if not is_told_apart(c)), key=price)

    # What is proved.

    def _is_proved(self, name: str, candidate: Candidate) -> bool:
        result = self._results.get(candidate)
        return result is not None and result.is_proved(name)

    def _prove(self, candidate: Candidate, names: Sequence[str]) -> None:
        """Audit a candidate, its order first; it is refused for the functions of which that proves nothing."""
        runs = self.given.runs(candidate.plan)
        try:
            result = candidate.variant.run(runs, names) if self._is_in_order(candidate) else None
        except ToolchainError as error:
            _raise_if_killed(error)
            self._leave_out(candidate, error)
            result = None
        if result is None:
            self._refused |= {(name, candidate) for name in self.functions}
            return
        if candidate in self._results:
            result = replace(result, phases={**self._results[candidate].phases, **result.phases})
        self._results[candidate] = result
        self._refused |= {(name, candidate) for name in names if result.text is None or not result.is_proved(name)}
        if result.text is None:
            return
        if candidate not in self._prices or (
            candidate.variant.is_ours and not self._is_as_drafted(candidate, result.text)
        ):
            # LLVM's allocation stands in for ours in some function.
            self._prices[candidate] = self.given.cost_of(result.text)

    def _is_in_order(self, candidate: Candidate) -> bool:
        """Whether both checkers accept an order of our own, where the candidate's plan has one."""
        try:
            self.given.check_order(candidate.plan)
        except UnsupportedError as error:
            self._leave_out(candidate, error)
            return False
        return True

    def _is_as_drafted(self, candidate: Candidate, text: str) -> bool:
        return self.given.runs(candidate.plan).draft(candidate.variant) == text

    # What is kept.

    def _merged(self, chosen: Mapping[str, Candidate]) -> Kept:
        """The functions as their candidates have them, in one text."""
        order = list(dict.fromkeys(chosen.values()))
        results = [self._results[candidate] for candidate in order]
        path = self.given.work.path
        text, pre = results[0].text or "", self.given.runs(order[0].plan).pre
        records = results[0].records
        for candidate, result in zip(order[1:], results[1:], strict=True):
            names = [name for name, whose in chosen.items() if whose == candidate]
            text = with_functions(text, result.text or "", names, path)
            pre = with_functions(pre, self.given.runs(candidate.plan).pre, names, path)
            records = mixed_records(records, result.records, names)
        phases = {name: self._explained(name, candidate) for name, candidate in chosen.items()}
        return Kept(Result(text, phases, records), pre, chosen)

    def _explained(self, name: str, candidate: Candidate) -> list[PhaseReport]:
        """The phases of a function; each that LLVM allocated says why."""
        reports = self._results[candidate].phases[name]
        earlier = {r.phase: r for r in self._earlier(name, candidate)}
        return [
            replace(
                report,
                attempts=(*_of_ours(earlier.get(report.phase)), *report.attempts),
                fallback=True,
                fallback_reason=report.fallback_reason or self._reason(name, report.phase, candidate),
            )
            if report.allocator == LLVM_ALLOCATOR
            else report
            for report in reports
        ]

    def _earlier(self, name: str, candidate: Candidate) -> Sequence[PhaseReport]:
        """What was proved or not of ours, where LLVM's is kept."""
        ours = self._results.get(Candidate(DEFAULT, OURS))
        return () if candidate.variant.is_ours or ours is None else ours.phases.get(name, ())

    def _reason(self, name: str, phase: str, candidate: Candidate) -> str:
        """Why LLVM's allocation stands."""
        for report in self._earlier(name, candidate):
            if report.phase == phase and report.fallback and report.fallback_reason:
                return report.fallback_reason
        return self._reason_of_file(name)

    def _reason_of_file(self, name: str) -> str:
        ours = Candidate(DEFAULT, OURS)
        if self._failures.get(ours):
            return self._failures[ours]
        unproved = [c for f, c in self._refused if f == name and c.variant.is_ours and c in self._results]
        priced = [c for c in self._prices if c.variant.is_ours and name in self._prices[c] and c not in unproved]
        if not priced:
            return self._unproved(name, unproved)
        best = min(priced, key=lambda c: self._prices[c][name].cycles)
        short = self._shortfalls(name, best) or self._shortfalls(name, ours)
        if short:
            return f"ours {' and '.join(short)}"
        if unproved:
            return self._unproved(name, unproved)
        return "LLVM's is as cheap as ours by the model, and stores and reloads fewer registers"

    def _unproved(self, name: str, candidates: Sequence[Candidate]) -> str:
        for candidate in sorted(candidates, key=lambda c: c.name):
            for report in self._results[candidate].phases.get(name, ()):
                for attempt in report.attempts:
                    if attempt.reason:
                        return attempt.reason
        return "our allocators have no allocation that is proved"

    def standing(self, kept: Kept) -> tuple[int, float]:
        """In how much what is kept falls short of LLVM's default compile, and the modelled cycles of all functions."""
        short = sum(len(self._shortfalls(name, candidate)) for name, candidate in kept.candidates.items())
        return short, sum(self._prices[candidate][name].cycles for name, candidate in kept.candidates.items())

    def note(self, kept: Kept) -> None:
        """Say what was tried, and what was kept instead of ours."""
        chosen = kept.candidates
        llvms = [name for name, c in chosen.items() if c.variant == LLVM]
        if llvms:
            of = "" if len(llvms) == len(self.functions) else f" of {', '.join(llvms)}"
            whose = "is that of a plain compile" if self.given.ir else "was kept"
            self._tell(f"LLVM's allocation{of} {whose}: {self._reason_of_file(llvms[0])}")
        if any(c == Candidate(DEFAULT, BESIDE) for c in chosen.values()):
            self._tell("what is spilled is loaded beside its use: loaded ahead, it stands worse")
        if self._first != DEFAULT and self._first.of is None and self._first in {c.plan for c in chosen.values()}:
            what = "vector registers more than there are" if self.given.is_large else "stores and loads of registers"
            self._tell(
                f"the plan {self._first.name} was tried before the default one: its text needs"
                f" {self.given.lack(self._first):,.0f} {what}, the default one's {self.given.lack(DEFAULT):,.0f}"
            )
        for name, candidate in chosen.items():
            if candidate.plan.of is not None:
                early = next(e for e in self.given.early(candidate.plan) if e.function.name == name)
                self._tell(
                    f"{name}: {early.moved:,} instructions stand elsewhere before allocation than LLVM put them, so"
                    " that fewer registers are needed at once, proved by both checkers"
                )
        if len(self._prices) > 1 and (self.given.work.settings.effort is not Effort.FAST or self._took_a_plan(chosen)):
            tried = ", ".join(f"{c.name} {sum(x.cycles for x in self._prices[c].values()):.0f}" for c in self._prices)
            names = ", ".join(dict.fromkeys(c.name for c in chosen.values()))
            self._tell(f"modelled cycles of what was tried: {tried}; kept: {names}")

    @staticmethod
    def _took_a_plan(chosen: Mapping[str, Candidate]) -> bool:
        return any(c.plan != DEFAULT for c in chosen.values())


def _is_bound(cost: KernelCost) -> bool:
    """Whether units bind it whose work no allocation changes, and it has nothing that an allocation adds. On RDNA the
    VALU's work adds to theirs, and LLVM's allocation may pair more of it, so there it is never so.
    """
    alike = {name: cycles if name in _ALIKE else 0.0 for name, cycles in cost.units.items()}
    return cost.cycles <= work(alike, target(cost.target)) and not spill_traffic(cost)


def _of_ours(report: PhaseReport | None) -> tuple[Attempt, ...]:
    return () if report is None else tuple(a for a in report.attempts if a.allocator != LLVM_ALLOCATOR)


def _raise_if_killed(error: VeriloccError) -> None:
    """A tool that was killed ends the run: whoever waits for it gave it up."""
    if isinstance(error, ToolFailure) and error.status == -signal.SIGKILL:
        raise error


def _exact_is_there() -> bool:
    from verilocc_mlir.allocators.exact import available

    return available()
