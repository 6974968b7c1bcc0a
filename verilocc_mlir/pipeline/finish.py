"""LLVM's passes after allocation, with its machine verifier. A fault that it finds is ours or LLVM's.

llc verifies the whole allocated text when it reads it, before any pass. A fault that it finds there is ours, and an
error. A fault that a later pass shows is an error too, unless a plain compile with ``-verify-machineinstrs`` has the
same one: the same function, the same pass, the same message. That one is LLVM's (llvm/llvm-project#199350 and #201004
are examples), and so is the false alarm that ``verifier.py`` knows. A plain llc does not look for either, so the object
is made without the verifier, with a note. Every function is judged on its own: one with such a fault is left out of the
next run, until the rest has been verified through all passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from msgspec import Struct, field
from msgspec.structs import replace

from smt_verifier.certificate.second import second_program
from smt_verifier.certificate.verdict import order_answers
from verilocc_mlir.cost.model import KernelCost
from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.mir.model import MirFile
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.pipeline.events import Events
from verilocc_mlir.pipeline.plans import LEAST_PROMISE, Planned, promise
from verilocc_mlir.pipeline.resources import device_resources, resources_by_name
from verilocc_mlir.results.compile import Resources
from verilocc_mlir.target.targets import Target
from verilocc_mlir.toolchain.checked import CheckedObject, check_object
from verilocc_mlir.toolchain.drivers.job import FileKind
from verilocc_mlir.toolchain.long_branches import has_long_branch
from verilocc_mlir.toolchain.mir_repairs import same_but_waits, with_frame_marks, without_frame_marks
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_mlir.toolchain.verifier import VerifierFault, unverified, verifier_fault, verifier_faults


class Finished(Struct, frozen=True):
    """An object, checked, and what each function takes in it and in LLVM's own object, by name.

    Attributes:
        made: the object as LLVM made it, before its fields were mended.
    """

    made: bytes
    checked: CheckedObject
    ours: Mapping[str, Resources]
    greedy: Mapping[str, Resources]


class PlainCode:
    """LLVM's own code of an input, made in another thread: assembly, and the object of that where there is an
    assembler. Each is made once, inside ``with``; an exception that ends the block ends the tools of all threads.
    """

    def __init__(self, make: Callable[[FileKind], bytes], compiler: StagedCompiler) -> None:
        self._make = make
        self._compiler = compiler
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._assembly = b""
        self._futures: dict[FileKind, Future[bytes]] = {}

    def __enter__(self) -> None:
        """The object is begun at once."""
        self._begun("obj")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.give_up()
        self._beside.shutdown()

    def give_up(self) -> None:
        """End the tools: leaving the block waits for the other thread's, which has nothing left to do."""
        self._compiler.running.kill()

    def code(self, kind: FileKind) -> bytes:
        """Waits for it.

        Raises:
            ToolchainError: LLVM failed to make it.
        """
        return self._begun(kind).result()

    def _begun(self, kind: FileKind) -> Future[bytes]:
        if kind not in self._futures:
            self._futures[kind] = self._beside.submit(self._object if kind == "obj" else self._printed)
        return self._futures[kind]

    def _printed(self) -> bytes:
        self._assembly = self._assembly or self._make("asm")
        return self._assembly

    def _object(self) -> bytes:
        assembled = self._compiler.assemble(self._printed()) if self._compiler.driver.assembles else None
        return self._make("obj") if assembled is None else assembled


class Finisher(Struct):
    """Finishes the texts of one compilation.

    Attributes:
        plain: LLVM's own compile of the same input with the verifier, without the functions named.
        events: told of faults that are LLVM's, and of the time.
        ordered: texts whose instructions are in another order behind allocation, and the texts in that order.
        llvms: texts that LLVM's plain compile of the IR has after allocation, each with what that compile makes of it.
            That is taken where memory-model annotations were lost in the text, and nothing else differs.
    """

    compiler: StagedCompiler
    plain: Callable[[frozenset[str]], object]
    events: Events
    ordered: dict[str, str] = field(default_factory=dict[str, str])
    llvms: dict[str, Callable[[FileKind], bytes]] = field(default_factory=dict[str, Callable[[FileKind], bytes]])
    _verified: set[str] = field(default_factory=set[str])
    _plain_faults: dict[str, VerifierFault] | None = None

    def finish(self, text: str, kind: FileKind = "obj") -> bytes:
        """The object or assembly of an allocated text; a text that was verified once is not verified again.

        Raises:
            ToolchainError: a tool failed, or the verifier found what it does not find in a plain compile.
        """
        if text in self.ordered:
            return self.compiler.finish_ordered(self.ordered[text], kind, verify=False)
        data = self._finished(text, kind)
        return self.llvms[text](kind) if self._is_llvms(text) else data

    def checked(
        self,
        text: str,
        pre: str,
        file: MirFile,
        target: Target,
        llvm: PlainCode,
        *,
        is_reference: bool,
    ) -> Finished:
        """The object of an allocated text, checked, and what its functions take beside LLVM's own.

        Args:
            pre: machine IR as it entered the first phase; ``file``: the functions of the input.
            is_reference: LLVM's own object has the fields that machine IR loses.

        Raises:
            ToolchainError: as ``finish``; or the object differs from what it is compared with in more than is mended.
        """
        made, where = self.finish(text), self.compiler.options.input_name
        reference = llvm.code("obj") if is_reference else None
        with self.events.measure("check object"):
            mended = check_object(made, mir=pre, cpu=target.name, reference=reference, where=where)
        ours, theirs = (resources_by_name(elf, file, target) for elf in (mended.data, llvm.code("obj")))
        if not all(function.name in ours for function in file.functions):
            for kernels, assembly in ((ours, self.finish(text, "asm")), (theirs, llvm.code("asm"))):
                for name, resources in device_resources(assembly.decode(), target).items():
                    kernels.setdefault(name, resources)
        return Finished(made, mended, ours, theirs)

    def _is_llvms(self, text: str) -> bool:
        if text not in self.llvms:
            return False
        ours, theirs = self.compiler.finish(text, "asm", verify=False), self.llvms[text]("asm")
        return same_but_waits(ours.decode(), theirs.decode())

    def _finished(self, text: str, kind: FileKind) -> bytes:
        if text in self._verified:
            return self.compiler.finish(text, kind, verify=False)
        try:
            data = self.compiler.finish(text, kind)
        except ToolFailure as failure:
            self._must_be_llvms(text, failure)
            data = self.compiler.finish(text, kind, verify=False)
        self._verified.add(text)
        return data

    def _must_be_llvms(self, text: str, failure: ToolFailure) -> None:
        """Raise the failure, unless every fault of the text is one that a plain compile has too."""
        first = verifier_fault(failure)
        if first is None or not first.after:
            raise failure
        try:
            ours = verifier_faults(lambda names: self.compiler.finish(unverified(text, names)))
            faults = {name: fault for name, fault in ours.items() if not fault.is_false}
            if faults and self._plain_faults is None:
                self._plain_faults = verifier_faults(self.plain)
        except ToolchainError as error:
            raise failure from error
        plain = self._plain_faults or {}
        if not all(fault.after and fault.within(plain.get(name)) for name, fault in faults.items()):
            raise failure
        for fault in ours.values():
            why = (
                "a false alarm, since it takes a register that an early clobber writes for a value that is read"
                if fault.is_false
                else "it says the same of a plain compile, so this is LLVM's fault"
            )
            self.events.note_once(f"LLVM's machine verifier: {fault}; {why}")


# The order of instructions behind allocation: a list scheduler's in place of LLVM's, where both checkers prove it.
#
# LLVM schedules once more behind allocation. Here its text before that is taken, each block is put in the order of
# ``verilocc_mlir/ordering``, and LLVM goes on from there with its own scheduler off: waits, hazards and dual issue are
# its work as ever. A file is taken as a whole, because that scheduler is off for all of its functions.


LEAST_GAIN = 0.005
"""Share of its modelled cycles that a function must gain. Nothing else differs: no instruction, register or wave."""


class LateOrder(Struct, frozen=True):
    """A text in another order, a note on each function that gains by it, and what its functions cost; ``text`` is
    ``""`` where none is taken.
    """

    text: str
    notes: tuple[str, ...]
    costs: Mapping[str, KernelCost] = field(default_factory=dict[str, KernelCost])


def late_order(given: Planned, text: str, costs: Mapping[str, KernelCost]) -> LateOrder:
    """An allocated text's order behind allocation.

    Args:
        costs: of its functions, as LLVM orders them.

    Raises:
        VeriloccError: a tool fails, or finds a fault in the ordered text.
    """
    names = [name for name, cost in costs.items() if promise(cost) > LEAST_PROMISE]
    if not names or second_program() is None:
        return LateOrder("", ())
    work, compiler = given.work, given.work.compiler
    late, marks = without_frame_marks(compiler.before_late_order(text))
    with work.events.measure("order"):
        from verilocc_mlir.ordering.schedule import ordered

        file = parse_mir(late, work.path)
        found = [ordered(function, work.target) for function in file.functions]
        new = print_mir(replace(file, functions=tuple(one.function for one in found)))
    whole = with_frame_marks(new, marks)
    assembly = compiler.finish_ordered(whole, "asm")
    # Costed before it is proved: few orders are worth it. An order takes more or fewer waits: whether LLVM makes a long
    # branch, which the audit may rely on, was asked of its own.
    after = given.costs(assembly)
    if has_long_branch(assembly) or not _is_better(costs, after):
        return LateOrder("", ())
    refused: list[str] = []
    with work.events.measure("audit"):
        for function, one in zip(file.functions, found, strict=True):
            answers = order_answers(late, new, one.certificate, function.name, work.target.name)
            refused += [f"{function.name}: LLVM's order stays, ours is refused: {a}" for a in answers if not a.accepted]
    if refused:
        return LateOrder("", tuple(refused))
    moved = {one.function.name: one.moved for one in found}
    return LateOrder(
        whole, tuple(_note(name, moved[name], costs[name], after[name]) for name in costs if moved.get(name)), after
    )


def _is_better(before: Mapping[str, KernelCost], after: Mapping[str, KernelCost]) -> bool:
    """No function takes more cycles, and one takes fewer by enough."""
    if before.keys() != after.keys() or any(after[n].cycles > cost.cycles for n, cost in before.items()):
        return False
    return any(after[n].cycles < (1 - LEAST_GAIN) * cost.cycles for n, cost in before.items())


def _note(name: str, moved: int, before: KernelCost, after: KernelCost) -> str:
    ratio = after.cycles / before.cycles
    return (
        f"{name}: {moved:,} instructions stand elsewhere than in LLVM's order behind allocation, proved by both"
        f" checkers: {ratio:.3f} of the modelled cycles"
    )
