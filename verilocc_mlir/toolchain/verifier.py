"""The faults that LLVM's machine verifier reports, in all functions of a text.

llc verifies every function of a machine IR text as it reads it, before any pass (MIRParserImpl::parseMachineFunction),
and with ``-verify-machineinstrs`` again after each pass. It stops at the first function with a fault. To see the
others, that function is marked ``available_externally``: passes leave it alone (MachineFunctionPass::runOnFunction),
and nothing is emitted for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from verilocc_mlir.toolchain.run import ToolFailure

_FAULT = re.compile(r"^\*\*\* Bad machine code: (?P<kind>.*?) \*\*\*\n- function: +(?P<function>.*?)$", re.MULTILINE)
_PASS = re.compile(r"^# After (.+)$", re.MULTILINE)
_LINKAGE = (
    "private|internal|available_externally|linkonce_odr|linkonce|weak_odr|weak|common|appending|extern_weak|external"
)
_DEFINE = re.compile(
    rf'^(?P<head>\s*define )(?:(?:{_LINKAGE}) )?(?P<rest>[^@\n]*@(?P<name>"[^"]+"|[\w.$-]+)\()', re.MULTILINE
)


@dataclass(frozen=True)
class VerifierFault:
    """The verifier's complaint about one function after one pass.

    Attributes:
        after: LLVM's name of the pass; ``""`` for the text as it was read.
        kinds: the verifier's messages.
    """

    function: str
    after: str
    kinds: frozenset[str]

    def __str__(self) -> str:
        return f"{', '.join(sorted(self.kinds))} in {self.function} after {self.after or 'reading the text'}"

    def within(self, other: VerifierFault | None) -> bool:
        """Whether ``other`` is about the same function and pass and has all of these messages."""
        return (
            other is not None
            and (self.function, self.after) == (other.function, other.after)
            and (self.kinds <= other.kinds)
        )


def verifier_fault(failure: ToolFailure) -> VerifierFault | None:
    """The fault that ended a run of llc; None where something else did."""
    faults = list(_FAULT.finditer(failure.stderr))
    if not faults:
        return None
    passes = _PASS.findall(failure.stderr, 0, faults[0].start())
    return VerifierFault(faults[0]["function"], passes[-1] if passes else "", frozenset(f["kind"] for f in faults))


def defined_functions(text: str) -> tuple[str, ...]:
    """Names of the functions with a body in IR, or in the IR in machine IR."""
    return tuple(match["name"].strip('"') for match in _DEFINE.finditer(text))


def without_functions(text: str, names: Collection[str]) -> str:
    """IR, or machine IR, in which llc's passes leave the functions called ``names`` alone."""

    def mark(match: re.Match[str]) -> str:
        external = "available_externally " if match["name"].strip('"') in names else ""
        return f"{match['head']}{external}{match['rest']}" if external else match[0]

    return _DEFINE.sub(mark, text) if names else text


def verifier_faults(run: Callable[[frozenset[str]], object]) -> dict[str, VerifierFault]:
    """Every function's first fault, by name: each such function is left out of the next run, until there is no fault.

    Args:
        run: runs llc with the verifier, without the functions named.

    Raises:
        ToolFailure: a run ended for another reason.
    """
    faults: dict[str, VerifierFault] = {}
    while True:
        try:
            run(frozenset(faults))
        except ToolFailure as failure:
            fault = verifier_fault(failure)
            if fault is None or fault.function in faults:
                raise
            faults[fault.function] = fault
        else:
            return faults
