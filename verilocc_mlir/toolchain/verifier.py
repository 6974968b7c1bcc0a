"""The faults that LLVM's machine verifier reports, in all functions of a text.

llc verifies every function of a machine IR text as it reads it, before any pass (MIRParserImpl::parseMachineFunction),
and with ``-verify-machineinstrs`` again after each pass. It stops at the first function with a fault. To see the
others, that function is marked: in machine IR ``failsVerification``, so that the verifier leaves it alone
(MachineVerifier::verify), in IR ``available_externally``, so that all passes do (MachineFunctionPass::runOnFunction)
and nothing is emitted for it.

One complaint is a false alarm whichever compile has it. Where no value reaches an operand, LiveIntervals lets an early
clobber of the same instruction give it one (LiveRangeCalc, ``144e`` beside a use at ``144B``), and the verifier misses
that value at the instruction's start. Nothing that is defined is overwritten: whether such a lane may be undefined is
what the audit proves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from msgspec import Struct

from verilocc_mlir.toolchain.run import ToolFailure

_FAULT = re.compile(r"^\*\*\* Bad machine code: (?P<kind>.*?) \*\*\*\n- function: +(?P<function>.*?)$", re.MULTILINE)
_COMPLAINT = re.compile(
    r"^\*\*\* Bad machine code: .*?(?=^\*\*\* Bad machine code: |^LLVM ERROR|\Z)", re.MULTILINE | re.DOTALL
)
_UNREACHED = re.compile(
    r"\A\*\*\* Bad machine code: No live segment at use \*\*\*\n.*^- instruction: +(?P<at>\d+)B\s[^\n]*\bearly-clobber "
    r".*^- liverange: [^\n]*\[(?P=at)e,[^\n]*\n- regunit:",
    re.MULTILINE | re.DOTALL,
)
_BODY = re.compile(r"^failsVerification: +false$", re.MULTILINE)
_DOCUMENT = re.compile(r"^---\nname: +(?P<name>\S.*?) *$", re.MULTILINE)
_PASS = re.compile(r"^# After (.+)$", re.MULTILINE)
_LINKAGE = (
    "private|internal|available_externally|linkonce_odr|linkonce|weak_odr|weak|common|appending|extern_weak|external"
)
_DEFINE = re.compile(
    rf'^(?P<head>\s*define )(?:(?:{_LINKAGE}) )?(?P<rest>[^@\n]*@(?P<name>"[^"]+"|[\w.$-]+)\()', re.MULTILINE
)


class VerifierFault(Struct, frozen=True):
    """The verifier's complaint about one function after one pass.

    Attributes:
        after: LLVM's name of the pass; ``""`` for the text as it was read.
        kinds: the verifier's messages.
        is_false: each is the false alarm at an early clobber.
    """

    function: str
    after: str
    kinds: frozenset[str]
    is_false: bool = False

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
    is_false = all(_UNREACHED.match(complaint) for complaint in _COMPLAINT.findall(failure.stderr))
    kinds = frozenset(fault["kind"] for fault in faults)
    return VerifierFault(faults[0]["function"], passes[-1] if passes else "", kinds, is_false)


def defined_functions(text: str) -> tuple[str, ...]:
    """Names of the functions with a body in IR, or in the IR in machine IR."""
    return tuple(match["name"].strip('"') for match in _DEFINE.finditer(text))


def without_functions(text: str, names: Collection[str]) -> str:
    """IR, or machine IR, in which llc's passes leave the functions called ``names`` alone."""

    def mark(match: re.Match[str]) -> str:
        external = "available_externally " if match["name"].strip('"') in names else ""
        return f"{match['head']}{external}{match['rest']}" if external else match[0]

    return _DEFINE.sub(mark, text) if names else text


def unverified(text: str, names: Collection[str]) -> str:
    """Machine IR in which the verifier leaves the functions called ``names`` alone."""
    starts = [*_DOCUMENT.finditer(text)]
    pieces = [text[: starts[0].start()]] if starts else [text]
    for start, end in zip(starts, [*(s.start() for s in starts[1:]), len(text)], strict=True):
        document = text[start.start() : end]
        chosen = start["name"].strip("'\"") in names
        pieces.append(_BODY.sub("failsVerification: true", document, count=1) if chosen else document)
    return "".join(pieces)


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
