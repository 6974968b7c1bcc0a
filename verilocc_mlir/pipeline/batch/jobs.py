"""A job, its result, and what an executor is."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from smt_verifier.outcome import Outcome
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.results.compile import LAST_PHASE
from verilocc_mlir.results.compile_document import CompileDocument, FunctionForm
from verilocc_mlir.toolchain.descriptor import read_code_object
from verilocc_mlir.toolchain.elf import read_elf

BEFORE = "before"
"""Name of the part that is the machine IR as it entered allocation; it comes with ``Emit.MIR``."""
REST = "rest"
"""Name of the part that is the result without the functions that nobody proves (``Report.left_out``)."""


class Job(Struct, frozen=True):
    """One compilation.

    Attributes:
        number: tells it apart from the others of a run; the result has it too.
        path: the input's name, for messages.
    """

    number: int
    path: str
    data: bytes
    settings: Settings


class Result(Struct, frozen=True):
    """What came of a job.

    Attributes:
        number: the job's.
        outcome: INVALID for bad input or a tool that failed.
        data: the result in the form asked for; None unless it is proved.
        report: the report as ``results.compile_document.to_data`` has it, None where it did not come to one.
        message: why it is not proved, in a line.
        final: the job would end the same way again, as far as can be told.
        seconds: elapsed time of the work itself.
        keyed: it is what was asked for. A local result where a server was to allocate is delivered, but neither kept
            nor taken for done.
        server_version: what allocated behind the server, as it said then; ``""`` where no server took part.
        parts: the further forms that the settings ask for (``Settings.also``), by ``Emit.value``, and ``BEFORE``; they
            may be unproved. ``REST`` where functions are left out: what is left is proved.
    """

    number: int
    outcome: Outcome
    data: bytes | None = None
    report: Mapping[str, Any] | None = None
    message: str = ""
    final: bool = True
    seconds: float = 0.0
    keyed: bool = True
    server_version: str = ""
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


class Executor(Protocol):
    """Does jobs, here or elsewhere."""

    def run(self, jobs: Iterable[Job]) -> Generator[Result, None, None]:
        """One result for each job, in the order in which they are ready.

        Jobs are taken as there is room for them, never all at once. Closing the generator, or an exception in it,
        ends all that is still running before it returns. A job that fails is a result; what is raised ends the run.
        """
        ...


# A result as the store keeps it, and whether what is found there is what was asked for.


RESULT, REPORT = "result", "report.json"
_ELF_FORMS = (Emit.OBJ, Emit.HSACO)


def fault_of(parts: Mapping[str, bytes], input_sha256: str, settings: Settings) -> str:
    """Why an entry is not the proved result of that input with those settings; ``""`` if it is.

    The store says that it is ours and unchanged. This says that report and result belong together.
    """
    try:
        data = parts[RESULT]
        report = msgspec.json.decode(parts[REPORT], type=CompileDocument)
    except (KeyError, msgspec.MsgspecError) as error:
        return f"it is no result with its report: {error}"
    if report.input.sha256 != input_sha256:
        return "its report is about another input"
    if report.emit != settings.emit.value:
        return f"it is {report.emit}, not {settings.emit.value}"
    if report.outcome is not Outcome.PROVED or not report.functions or not all(map(_proved, report.functions)):
        return "its report does not say that it is proved"
    if settings.emit not in _ELF_FORMS:
        missing = [f.name for f in report.functions if f.name.encode() not in data]
        return f"function {missing[0]} is not in its text" if missing else ""
    try:
        return _code_fault(data, report, settings)
    except ToolchainError as error:
        return error.what


def _proved(function: FunctionForm) -> bool:
    phases = function.phases
    return bool(phases) and phases[-1].phase == LAST_PHASE and all(p.outcome is Outcome.PROVED for p in phases)


def _code_fault(data: bytes, report: CompileDocument, settings: Settings) -> str:
    """What of an object is not as the report has it.

    Raises:
        ToolchainError: it is no object of this machine.
    """
    image = read_elf(data)
    if image.machine != report.target or image.shared != (settings.emit is Emit.HSACO):
        return f"it is {'a code object' if image.shared else 'an object file'} for {image.machine}"
    for function in report.functions:
        symbol = image.symbols.get(function.name)
        if symbol is None or not symbol.defined:
            return f"function {function.name} is not in it"
    kernels = read_code_object(image).kernels
    for function in report.functions:
        counts, resources = kernels.get(function.name), function.resources
        if counts is not None and resources is not None:
            here = (counts.vgpr_count, counts.agpr_count, counts.sgpr_count, counts.private_segment_fixed_size)
            if here != (resources.vgprs, resources.agprs, resources.sgprs, resources.scratch_bytes):
                return f"function {function.name} takes other registers than its report says"
    return ""
