"""The verdict on a kernel that stays as its own compiler allocated it: an audit of what that compiler prints of it.

``verilocc audit --native`` says more of the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from smt_verifier.audit.wording import render
from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.pipeline.audit import SolverLimits
from verilocc_mlir.pipeline.native import NativeKernel, audit_native
from verilocc_mlir.pipeline.settings import Settings

NATIVE = "native, proved"
"""The status of a kernel that stays, and is proved as it is."""


@dataclass(frozen=True)
class NativeVerdict:
    """What the audit of a compiler's own allocation came to.

    Attributes:
        outcome: of all its phases together.
        phases: how many were audited, of all its functions.
        obligations: checked in them.
        reason: the first finding, or why there was no audit; ``""`` where it is proved.
    """

    outcome: str
    phases: int
    obligations: int
    reason: str = ""

    @property
    def proved(self) -> bool:
        return self.outcome == Outcome.PROVED.value

    @property
    def refuted(self) -> bool:
        return self.outcome == Outcome.REFUTED.value

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return NATIVE if self.proved else f"native, {self.outcome}: {self.reason}"


def native_verdict(made: Callable[[], NativeKernel], settings: Settings) -> NativeVerdict:
    """Audit what ``made`` gives; where it or the audit fails, nothing is proved, and the reason says why."""
    try:
        run = audit_native([made()], limits=SolverLimits(settings.solver_seconds))
    except VeriloccError as error:
        return not_audited(error)
    audited = [function for pair in run.pairs for function in pair.report.functions]
    finding = next((f for f in audited if f.outcome is run.outcome and f.findings), None)
    reason = "" if run.outcome is Outcome.PROVED else "nothing was audited"
    if finding is not None and run.outcome is not Outcome.PROVED:
        reason = render(finding.findings[0]).splitlines()[0]
    return NativeVerdict(str(run.outcome), len(audited), sum(f.obligations for f in audited), reason)


def not_audited(error: VeriloccError) -> NativeVerdict:
    """The verdict where there is no text to audit."""
    return NativeVerdict(str(Outcome.UNKNOWN), 0, 0, error.what)
