"""Plans as configurations of Triton's autotuner: what says which plan a kernel is compiled by.

It is a string attribute of the kernel (``llvm_fn_attrs``, an option of Triton's AMD back end), so that it is part of
Triton's own cache key, and the hook finds it in the IR.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from verilocc_mlir.pipeline.answers import Answer

ATTRIBUTE = "verilocc-plan"
"""The attribute; its value is an answer of ``pipeline/answers.py``."""
THEIRS = "triton"
"""As a plan: Triton's own code."""
DEFAULT_PLANS = ("default", "max-ilp", "no-clusters", "four-waves")
_OPTION = "llvm_fn_attrs"
_IN_IR = re.compile(rf'"{ATTRIBUTE}"="([^"]*)"')


def plan_in(ir: object) -> str:
    """The plan that a kernel's IR asks for; ``""`` where it asks for none."""
    match = _IN_IR.search(ir) if isinstance(ir, str) else None
    return match[1] if match else ""


def without_plan(ir: str) -> str:
    """The IR as it would be without one."""
    return _IN_IR.sub("", ir)


def plan_configs(configs: Sequence[Any], plans: Sequence[str] = DEFAULT_PLANS) -> list[Any]:
    """Each configuration with Triton's own code, and with each plan.

    Args:
        configs: ``triton.Config``.
        plans: answers, such as ``"max-ilp"`` or ``"max-ilp + beside"``.

    Raises:
        InputError: there is no such plan.
    """
    words = [THEIRS, *dict.fromkeys(str(Answer.parse(plan)) for plan in plans)]
    return [_with_plan(config, plan) for config in configs for plan in words]


def plan_of(config: Any) -> str:
    """The plan of a configuration; ``""`` where it has none."""
    attributes = str(config.kwargs.get(_OPTION, ""))
    return next((text.partition("=")[2] for text in attributes.split(",") if text.startswith(f"{ATTRIBUTE}=")), "")


def _with_plan(config: Any, plan: str) -> Any:
    made = type(config)({})
    made.__dict__.update(config.__dict__)
    attributes = [text for text in str(config.kwargs.get(_OPTION, "")).split(",") if text]
    made.kwargs = {**config.kwargs, _OPTION: ",".join([*attributes, f"{ATTRIBUTE}={plan}"])}
    return made
