"""What LLVM believes of Q's header alone: a field that both checkers let Q change does not change the code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from case_support import CASES
from checker_support import needs_both
from support import run_llc

from smt_verifier.certificate.verdict import certify_texts
from smt_verifier.checker.fields import known_fields

_VALUES = {
    "bool": ["true", "false"],
    "count": ["0", "1", "16", "64", "4096"],
    "integer": ["-16", "0", "16"],
    "policy": ["none", "all", "reserved"],
    "register": ["''", "'$sgpr33'", "'$sgpr34'", "'$sgpr40'", "'$sgpr40_sgpr41'", "'$sgpr0_sgpr1_sgpr2_sgpr3'"],
}
_MAY_CHANGE_CODE = {
    "machineFunctionInfo.hasSpilledVGPRs": "slots in accumulators, or in memory (7.3 holds for both)",
    "machineFunctionInfo.hasSpilledSGPRs": "a slot for the scavenger that stays unused",
}
_FUNCTIONS = [
    "right_frame_pointer_written_that_nobody_keeps", "right_saved_vectors_over_a_call", "right_scalar_slot",
    "right_stack_pointer_moved_for_a_dynamic_object", "right_vector_spill",
]  # fmt: skip


def _changed(text: str) -> Iterator[tuple[str, str]]:
    """The text with one field of its header said otherwise, or said at all."""
    head, body, rest = text.partition("\nbody: ")
    for path, (kind, _) in known_fields()["fields"].items():
        outer, _, key = path.rpartition(".")
        indent = "  " * path.count(".") if outer else ""
        for value in _VALUES.get(kind, ()) if outer.count(".") == 0 else ():
            line = f"\n{indent}{key}: {value}"
            changed, count = re.subn(rf"\n{indent}{key}: .*", lambda _, line=line: line, head)
            if not count:
                above = rf"\n{outer}:(?=\n)" if outer else r"(?=\nname:)"
                changed = re.sub(above, lambda m, line=line: m[0] + line, head)
            yield path, changed + body + rest


@needs_both
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_what_q_alone_says_in_its_header_changes_no_code(name: str) -> None:
    before, after = ((CASES / f"{name}.{side}.mir").read_text() for side in ("before", "after"))
    (function,) = re.findall(r"^name: +(\w+)", before, re.MULTILINE)
    (cpu,) = re.findall(r"target: (\w+)", before)

    def code(text: str) -> str:
        return run_llc(text, cpu, "-start-after=virtregrewriter,2", "-enable-ipra=0")

    own = code(after)
    changed = [(path, text) for path, text in _changed(after) if text != after and path not in _MAY_CHANGE_CODE]
    accepted = [(path, text) for path, text in changed if certify_texts(before, text, function, cpu).accepted]
    assert len(changed) > 100
    assert accepted
    assert [path for path, text in accepted if code(text) != own] == []
