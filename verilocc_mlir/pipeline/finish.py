"""LLVM's passes after allocation, with its machine verifier. A fault that it finds is ours or LLVM's.

llc verifies the whole allocated text when it reads it, before any pass. A fault that it finds there is ours, and an
error. A fault that a later pass shows is an error too, unless a plain compile with ``-verify-machineinstrs`` has the
same one: the same function, the same pass, the same message. That one is LLVM's (llvm/llvm-project#199350 and #201004
are examples), and so is the false alarm that ``verifier.py`` knows. A plain llc does not look for either, so the object
is made without the verifier, with a note. Every function is judged on its own: one with such a fault is left out of the
next run, until the rest has been verified through all passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from verilocc_mlir.errors import ToolchainError
from verilocc_mlir.toolchain.drivers.job import FileKind
from verilocc_mlir.toolchain.mmra import same_but_waits
from verilocc_mlir.toolchain.run import ToolFailure
from verilocc_mlir.toolchain.staged import StagedCompiler
from verilocc_mlir.toolchain.verifier import VerifierFault, unverified, verifier_fault, verifier_faults


@dataclass
class Finisher:
    """Finishes the texts of one compilation.

    Attributes:
        plain: LLVM's own compile of the same input with the verifier, without the functions named.
        notes: is told of faults that are LLVM's.
        ordered: texts whose instructions are in another order behind allocation, and the texts in that order.
        llvms: texts that LLVM's plain compile of the IR has after allocation, each with what that compile makes of it.
            That is taken where memory-model annotations were lost in the text, and nothing else differs.
    """

    compiler: StagedCompiler
    plain: Callable[[frozenset[str]], object]
    notes: list[str]
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
            self._note(f"LLVM's machine verifier: {fault}; {why}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
