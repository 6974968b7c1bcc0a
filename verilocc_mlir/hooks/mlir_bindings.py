"""One typed face for the MLIR Python bindings that a caller's operations come from.

The same bindings exist under several names: upstream's ``mlir``, and copies inside packages (``torch_mlir``,
``iree.compiler``). Operations of one cannot be handed to another, so the bindings are taken from the operation itself.

What differs, seen with torch-mlir 20261001, upstream 22.1.8 and iree-base-compiler 3.13.0:

* ``translate_module_to_llvmir`` dereferences a null module where translation fails, which ends the process. So it is
  called only for a verified module whose operations are all of the ``llvm`` and ``rocdl`` dialects, and in a copy of
  the process.
* IREE's bindings register no translation to LLVM IR at all: the module is carried over, as text in generic form, to
  other bindings that have one.
* Python can emit error diagnostics only, and where the pass then succeeds, upstream's bindings abort. A remark takes
  the transform dialect's ``transform.debug.emit_remark_at``; IREE lacks it, and logging takes its place.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verilocc_mlir.crew.copied import Ended, call_isolated
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError

log = logging.getLogger("verilocc_mlir.hooks.mlir")

TRANSLATING_PACKAGES = ("torch_mlir", "mlir")
"""Bindings that translate to LLVM IR, in the order in which they are tried for modules of bindings that do not."""

EXTRA = "mlir"
_INDEX = re.compile(r'("llvm\.mlir\.constant"\(\) <\{value = -?\d+ : )index(?=\}> : \(\) -> (i\d+))')
_BINARY_FORMAT = 3
"""gpu.object's ``bin`` (CompilationTarget in mlir/Dialect/GPU/IR/CompilationInterfaces.td)."""

_TRANSLATABLE = ("llvm.", "rocdl.")
_ALSO_TRANSLATABLE = frozenset({"gpu.module", "gpu.module_end", "builtin.module"})
_TRANSFORM_SCRIPT = """
module {{
  gpu.module @subject {{}} loc({location})
  module attributes {{transform.with_named_sequence}} {{
    transform.named_sequence @__transform_main(%root: !transform.any_op {{transform.readonly}}) {{
      %subject = transform.structured.match ops{{["gpu.module"]}} in %root : (!transform.any_op) -> !transform.any_op
      transform.debug.emit_remark_at %subject, "{message}" : !transform.any_op
      transform.yield
    }}
  }}
}}
"""


class MissingBindingsError(VeriloccError):
    """No MLIR Python bindings are installed that can do what was asked."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            hint=f"pip install 'verilocc-mlir[{EXTRA}]' (torch-mlir's copy of the bindings), "
            "or build LLVM with MLIR_ENABLE_BINDINGS_PYTHON and put its `mlir` package on PYTHONPATH",
        )


@dataclass(frozen=True)
class Bindings:
    """The bindings of one package: ``"mlir"``, ``"torch_mlir"``, ``"iree.compiler"`` or another copy."""

    package: str

    @classmethod
    def of(cls, thing: object) -> Bindings:
        """The bindings that an operation, module, context or pass manager belongs to.

        Raises:
            TypeError: it belongs to none.
        """
        thing = getattr(thing, "operation", thing)
        for kind in type(thing).__mro__:
            package, marker, _ = kind.__module__.partition("._mlir_libs")
            if marker:
                return cls(package)
        raise TypeError(f"{type(thing).__module__}.{type(thing).__qualname__} is no object of MLIR Python bindings")

    @classmethod
    def find(cls, packages: Sequence[str] = TRANSLATING_PACKAGES) -> Bindings:
        """The first of ``packages`` that is installed.

        Raises:
            MissingBindingsError: none is.
        """
        for package in packages:
            try:
                importlib.import_module(f"{package}.ir")
            except ImportError:
                continue
            return cls(package)
        raise MissingBindingsError(f"no MLIR Python bindings found (tried {', '.join(packages)})")

    @property
    def ir(self) -> Any:
        return importlib.import_module(f"{self.package}.ir")

    @property
    def passmanager(self) -> Any:
        return importlib.import_module(f"{self.package}.passmanager")

    @property
    def translates(self) -> bool:
        """Whether contexts of these bindings have the translation from the LLVM dialect to LLVM IR registered."""
        try:
            registration = importlib.import_module(f"{self.package}._mlir_libs._mlirRegisterEverything")
        except ImportError:
            return False
        return hasattr(registration, "register_llvm_translations")

    def translate(self, gpu_module: Any, *, isolated: bool = True) -> str:
        """A ``gpu.module`` in the LLVM and ROCDL dialects, as LLVM IR text.

        Args:
            isolated: translate in a copy of the process, which a failure then ends in place of this one.

        Raises:
            UnsupportedError: it has operations of other dialects, or the bindings that translate do not read it.
            InputError: it does not verify, or its LLVM IR does not.
            MissingBindingsError: these bindings cannot translate, and none that can is installed.
        """
        check_translatable(gpu_module)
        if self.translates:
            llvm = importlib.import_module(f"{self.package}.dialects.llvm")
            if not isolated:
                return str(llvm.translate_module_to_llvmir(gpu_module.operation))
            try:
                return call_isolated(lambda: str(llvm.translate_module_to_llvmir(gpu_module.operation)))
            except Ended as ended:
                raise InputError(f"MLIR cannot translate the module to LLVM IR: {ended}") from ended
        return self._translate_elsewhere(gpu_module)

    def _translate_elsewhere(self, gpu_module: Any) -> str:
        try:
            installed = Bindings.find()
        except MissingBindingsError as missing:
            raise MissingBindingsError(
                f"the bindings of {self.package} do not translate to LLVM IR, and no others are installed"
            ) from missing
        text = gpu_module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
        context = installed.ir.Context()
        with context:
            try:
                module = installed.ir.Module.parse(text)
            except installed.ir.MLIRError as error:
                reason = str(error).strip().splitlines()[-1]
                raise UnsupportedError(
                    f"the bindings of {self.package} do not translate to LLVM IR, "
                    f"and those of {installed.package} do not read the module: {reason}"
                ) from error
            return installed.translate(next(iter(module.body.operations)))

    def carry(self, module: Any, context: Any) -> Any:
        """A module of any other bindings, in these.

        What one MLIR prints another may not read: how attributes of operations such as ``llvm.load {alignment = 4}``
        stand in their own syntax changed, so the text is in generic form. In that, newer versions want the value of an
        ``llvm.mlir.constant`` of the type of its result, where ``convert-gpu-to-rocdl`` left ``index``.

        Args:
            module: lowered to the llvm and rocdl dialects, as ``gpu.module`` or around one.
            context: of these bindings.

        Raises:
            UnsupportedError: these bindings do not read it.
        """
        text = _INDEX.sub(r"\1\2", module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
        with context:
            try:
                return self.ir.Module.parse(text)
            except self.ir.MLIRError as error:
                reason = str(error).strip().splitlines()[-1]
                raise UnsupportedError(f"the bindings of {self.package} do not read the module: {reason}") from error

    def replace_with_binary(self, gpu_module: Any, objects: Sequence[tuple[Any, bytes]], handler: Any | None) -> Any:
        """Put a ``gpu.binary`` of the same name in the place of ``gpu_module``, which is erased.

        Args:
            objects: for each target attribute its code object.
            handler: the offloading handler; None takes ``#gpu.select_object``, the default of ``gpu.binary``.

        Returns:
            the new operation.
        """
        gpu = importlib.import_module(f"{self.package}.dialects.gpu")
        operation = gpu_module.operation
        with operation.context, operation.location, self.ir.InsertionPoint(operation):
            array = self.ir.ArrayAttr.get(
                [gpu.ObjectAttr.get(target, _BINARY_FORMAT, data) for target, data in objects]
            )
            chosen = handler if handler is not None else self.ir.Attribute.parse("#gpu.select_object<0 : index>")
            name = self.ir.StringAttr(operation.attributes["sym_name"]).value
            binary = gpu.BinaryOp(name, array, offloadingHandler=chosen)
        operation.erase()
        return binary.operation

    def prepare_remarks(self, context: Any) -> None:
        """Load what ``remark`` needs; not possible any more once a pass manager runs."""
        try:
            _ = context.dialects["transform"]
            importlib.import_module(f"{self.package}.dialects.transform")
        except (ImportError, IndexError, ValueError, self.ir.MLIRError):
            log.debug("the bindings of %s have no transform dialect: remarks go to logging", self.package)

    def remark(self, operation: Any, message: str) -> None:
        """A remark at the operation's location, through the context's diagnostics; through logging where that fails."""
        script = _TRANSFORM_SCRIPT.format(location=_location_text(operation), message=_escape(message))
        try:
            with operation.context:
                module = self.ir.Module.parse(script)
                pipeline = "builtin.module(transform-interpreter)"
                self.passmanager.PassManager.parse(pipeline).run(module.operation)
        except (ValueError, self.ir.MLIRError):
            log.info("%s: remark: %s", operation.location, message)

    def error(self, operation: Any, message: str) -> None:
        """An error at the operation's location. The pass must fail after it: upstream's bindings abort otherwise."""
        operation.location.emit_error(message)


def check_translatable(gpu_module: Any) -> None:
    """Make sure that translation to LLVM IR meets no operation that it does not know.

    Raises:
        UnsupportedError: one is of another dialect. InputError: the module does not verify.
    """
    for operation in walk(gpu_module):
        name = str(operation.name)
        if not name.startswith(_TRANSLATABLE) and name not in _ALSO_TRANSLATABLE:
            raise UnsupportedError(
                f"'{name}' is not lowered to the LLVM or ROCDL dialect",
                where=str(operation.location),
                hint="run gpu.module(convert-gpu-to-rocdl{chipset=… runtime=HIP}, reconcile-unrealized-casts) before",
            )
    if not gpu_module.operation.verify():
        raise InputError("the module does not verify", where=str(gpu_module.operation.location))


def walk(operation: Any) -> Iterator[Any]:
    """The operation and everything nested in it, outermost first."""
    yield operation.operation
    for region in operation.operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from walk(inner)


def _location_text(operation: Any) -> str:
    """The location as it stands inside ``loc(…)``."""
    text = str(operation.location)
    return text.removeprefix("loc(").removesuffix(")") if text.startswith("loc(") else "unknown"


def _escape(message: str) -> str:
    return message.replace("\\", "\\\\").replace('"', "'").replace("\n", "; ")
