"""``verilocc-allocate`` by name in a textual pass pipeline, through MLIR's Python bindings.

No MLIR Python bindings can register a pass that is defined in Python, so ``PassManager.parse`` does not know the name.
``parse_pipeline`` splits the text around it: what stands before and after goes to ``PassManager.add`` as text.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from smt_verifier.outcome import Outcome
from verilocc_mlir.crew.copied import Ended, call_isolated
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError
from verilocc_mlir.hooks.mlir_compile import IrOptions, OptMode, compile_ir
from verilocc_mlir.hooks.mlir_target import RocdlTarget
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.options import options_in, with_options
from verilocc_mlir.pipeline.settings import Settings
from verilocc_mlir.results.compile import Report

# One typed face for the MLIR Python bindings that a caller's operations come from.
#
# The same bindings exist under several names: upstream's ``mlir``, and copies inside packages (``torch_mlir``,
# ``iree.compiler``). Operations of one cannot be handed to another, so the bindings are taken from the operation
# itself.
#
# What differs, seen with torch-mlir 20261001, upstream 22.1.8 and iree-base-compiler 3.13.0:
#
# * ``translate_module_to_llvmir`` dereferences a null module where translation fails, which ends the process. So it is
#   called only for a verified module whose operations are all of the ``llvm`` and ``rocdl`` dialects, and in a copy of
#   the process.
# * IREE's bindings register no translation to LLVM IR at all: the module is carried over, as text in generic form, to
#   other bindings that have one.
# * Python can emit error diagnostics only, and where the pass then succeeds, upstream's bindings abort. A remark takes
#   the transform dialect's ``transform.debug.emit_remark_at``; IREE lacks it, and logging takes its place.


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


# An MLIR pass that turns every ``gpu.module`` for an AMD GPU into a ``gpu.binary`` with a proved code object.
#
# It takes the place of ``gpu-module-to-binary``, and is defined in Python::
#
#     allocate = AllocatePass()
#     pm = PassManager("builtin.module")
#     pm.add("gpu.module(convert-gpu-to-rocdl{chipset=gfx942 runtime=HIP})")
#     allocate.add_to(pm)
#     pm.add("gpu-to-llvm")
#     pm.run(module.operation)
#
# or by name, ``parse_pipeline("builtin.module(…, verilocc-allocate{fallback=false}, gpu-to-llvm)", context)``.
#
# The bindings (``mlir``, ``torch_mlir``, ``iree.compiler``) are those of the pass manager. None needs to be installed
# to import this module. What happens to each module is in ``AllocatePass.results``.


PASS_NAME = "verilocc-allocate"
"""The pass's name in a textual pipeline."""

_TARGET = "#rocdl.target"
Verdict = Literal["proved", "untouched", "failed"]


@dataclass(frozen=True)
class PassOptions:
    """Options of the pass.

    Attributes:
        settings: the spine's; processor, features, level and form of the result come from the target attribute.
        ir: how the translated IR is prepared.
        unhandled: what a module that is not handled gets, besides staying as it is: a ``remark`` or an ``error``.
    """

    settings: Settings = field(default_factory=Settings)
    ir: IrOptions = field(default_factory=IrOptions)
    unhandled: Literal["remark", "error"] = "remark"


@dataclass(frozen=True)
class ModuleResult:
    """What came of one ``gpu.module``.

    Attributes:
        verdict: ``proved``: replaced by a ``gpu.binary``; ``untouched``: not for this pass, or outside what it
            handles; ``failed``: an error, after which the pass fails.
        reason: why, or ``""``.
        reports: the spine's report for each target attribute, in order.
    """

    name: str
    location: str
    verdict: Verdict
    reason: str = ""
    reports: tuple[Report, ...] = ()
    code_objects: tuple[bytes, ...] = field(default=(), repr=False)


class AllocatePass:
    """The pass. One object may run any number of times; ``results`` are those of the last run, one a ``gpu.module``."""

    def __init__(self, options: PassOptions | None = None) -> None:
        self.options = options or PassOptions()
        self.results: tuple[ModuleResult, ...] = ()

    def add_to(self, pass_manager: Any) -> None:
        """Append to a pass manager that runs on a module (or anything that holds ``gpu.module`` operations)."""
        bindings = Bindings.of(pass_manager)
        context = bindings.ir.Context.current
        if context is not None:
            bindings.prepare_remarks(context)
        pass_manager.add(self, name="VeriloccAllocate", argument=PASS_NAME, description="Proved register allocation")

    def __call__(self, operation: Any, running: Any) -> None:
        """What the pass manager calls: the operation to work on, and the running pass."""
        bindings = Bindings.of(operation)
        modules = [nested for nested in walk(operation) if str(nested.name) == "gpu.module"]
        self.results = ()
        if modules and modules[0] == operation.operation:
            bindings.error(operation, f"{PASS_NAME} replaces gpu.module operations: run it on what holds them")
            running.signal_pass_failure()
            return
        worked = [(module, self._compile(bindings, module)) for module in modules]
        self.results = tuple(result for _, result in worked)
        # Diagnostics last: upstream's bindings abort if anything is raised between an error and the pass's failure.
        failed = False
        for module, result in worked:
            if result.verdict == "proved":
                _remark_parts(bindings, module, result)
                _replace(bindings, module, result)
            elif result.verdict == "failed" or self.options.unhandled == "error":
                bindings.error(module, f"{PASS_NAME}: @{result.name}: {result.reason}")
                failed = True
            else:
                bindings.remark(module, f"{PASS_NAME}: @{result.name} is left as it is: {result.reason}")
        if failed:
            running.signal_pass_failure()

    def _compile(self, bindings: Bindings, module: Any) -> ModuleResult:
        name = str(bindings.ir.StringAttr(module.attributes["sym_name"]).value)
        location = str(module.location)
        try:
            targets = _targets(bindings, module)
        except UnsupportedError as error:
            return ModuleResult(name, location, "untouched", error.render())
        reports: list[Report] = []
        objects: list[bytes] = []
        try:
            ir = bindings.translate(module)
            for target in targets:
                where = f"gpu.module @{name}"
                compiled = compile_ir(ir, target, where=where, settings=self.options.settings, options=self.options.ir)
                reports.append(compiled.report)
                if compiled.report.outcome is not Outcome.PROVED or compiled.data is None:
                    return ModuleResult(name, location, "failed", _why(compiled.report), tuple(reports))
                objects.append(compiled.data)
        except UnsupportedError as error:
            return ModuleResult(name, location, "untouched", error.render(), tuple(reports))
        except VeriloccError as error:
            return ModuleResult(name, location, "failed", error.render(), tuple(reports))
        return ModuleResult(name, location, "proved", "", tuple(reports), tuple(objects))


def _targets(bindings: Bindings, module: Any) -> list[RocdlTarget]:
    """The module's target attributes, all of them AMD GPUs.

    Raises:
        UnsupportedError: it has none, or others too.
    """
    texts = [str(attribute) for attribute in _target_attributes(bindings, module)]
    if not texts:
        raise UnsupportedError("it has no targets", hint="run rocdl-attach-target{chip=…} before")
    foreign = [text for text in texts if not text.startswith(_TARGET)]
    if foreign:
        raise UnsupportedError(f"it has a target that is no {_TARGET}: {', '.join(foreign)}")
    return [RocdlTarget.parse(text) for text in texts]


def _target_attributes(bindings: Bindings, module: Any) -> list[Any]:
    return list(bindings.ir.ArrayAttr(module.attributes["targets"])) if "targets" in module.attributes else []


def _replace(bindings: Bindings, module: Any, result: ModuleResult) -> None:
    attributes = _target_attributes(bindings, module)
    handler = module.attributes.get("offloadingHandler")
    bindings.replace_with_binary(module, list(zip(attributes, result.code_objects, strict=True)), handler)


def _remark_parts(bindings: Bindings, module: Any, result: ModuleResult) -> None:
    """The part of a server and of models, and what took the place of our allocation."""
    for report in result.reports:
        if report.server:
            message = f"{PASS_NAME}: @{result.name}: the allocation server had not its part: {report.server}"
            bindings.remark(module, message)
        for part in report.models:
            bindings.remark(module, f"{PASS_NAME}: @{result.name}: model {part.line()}")
        for function in report.functions:
            for phase in function.phases:
                if phase.fallback:
                    bindings.remark(
                        module,
                        f"{PASS_NAME}: @{result.name}: {function.name}, {phase.phase.upper()}: "
                        f"{phase.allocator}'s allocation instead, proved: {phase.fallback_reason}",
                    )


def _why(report: Report) -> str:
    """The reason of a report that is not proved, from the first phase that is not."""
    for function in report.functions:
        for phase in function.phases:
            if phase.outcome is not Outcome.PROVED:
                return f"{function.name}, {phase.phase.upper()}: {phase.outcome}: {phase.attempts[-1].reason}"
    return f"{report.outcome}, without a finding"


_ANCHOR = re.compile(r"\s*(?P<anchor>[\w.]+)\s*\((?P<body>.*)\)\s*\Z", re.DOTALL)
_ELEMENT = re.compile(rf"{re.escape(PASS_NAME)}\s*(?:\{{(?P<options>.*)\}})?\Z", re.DOTALL)


@dataclass(frozen=True)
class Pipeline:
    """A pass manager, ready to run, and the passes of ours in it, in order."""

    pass_manager: Any
    passes: tuple[AllocatePass, ...]

    def run(self, module: Any) -> None:
        """Run on a module; raises the bindings' ``MLIRError`` where a pass fails."""
        self.pass_manager.run(module.operation)


def parse_pipeline(text: str, context: Any, options: PassOptions | None = None) -> Pipeline:
    """A pass manager for ``text``, in which ``verilocc-allocate`` may stand beside MLIR's own passes.

    Args:
        text: ``builtin.module(first, verilocc-allocate{fallback=false}, last)``. The name stands at the outermost
            level, as the pass replaces whole ``gpu.module`` operations.
        context: the MLIR context of the module that is to be run on; decides the bindings.
        options: what the options in braces change: those of ``pipeline.options`` (``effort=best``,
            ``solver-seconds=5``, ``server=unix:PATH``, …), ``unhandled``, ``opt`` and ``device-libs``.

    Raises:
        InputError: the name stands elsewhere, an option is not known, or the text has no anchor.
        ValueError: MLIR does not know the rest (the bindings' own message).
    """
    match = _ANCHOR.match(text)
    if match is None:
        raise InputError(f"not a pipeline: {text!r}", hint="write builtin.module(pass, pass, …)")
    bindings = Bindings.of(context)
    passes: list[AllocatePass] = []
    with context:
        manager = bindings.passmanager.PassManager(match["anchor"])
        pending: list[str] = []
        for element in split_elements(match["body"]):
            ours = _ELEMENT.match(element)
            if ours is None:
                _refuse_nested(element)
                pending.append(element)
                continue
            _flush(manager, pending)
            passes.append(AllocatePass(parse_options(ours["options"] or "", options)))
            passes[-1].add_to(manager)
        _flush(manager, pending)
    return Pipeline(manager, tuple(passes))


def split_elements(text: str) -> list[str]:
    """The elements of a pipeline, split at the commas outside brackets and quotes.

    Raises:
        InputError: brackets do not match.
    """
    elements: list[str] = []
    depth = start = 0
    quote = ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            elements.append(text[start:index].strip())
            start = index + 1
        if depth < 0:
            break
    if depth or quote:
        raise InputError(f"brackets or quotes do not match in the pipeline {text!r}")
    return [element for element in (*elements, text[start:].strip()) if element]


def parse_options(text: str, options: PassOptions | None = None) -> PassOptions:
    """``key=value`` pairs, separated by blanks, as changes to ``options``.

    Raises:
        InputError: a key or value that is not known.
    """
    chosen = options or PassOptions()
    try:
        settings_given, own_options = options_in(text.split(), _OPTIONS)
        settings = with_options(chosen.settings, settings_given)
        check_settings(settings)
    except InputError as error:
        raise InputError(f"{PASS_NAME}: {error.what}", hint=error.hint) from error
    for key, value in own_options.items():
        try:
            chosen = _OPTIONS[key](chosen, value)
        except ValueError as error:
            raise InputError(f"{PASS_NAME}: {key} cannot be {value!r}") from error
    return replace(chosen, settings=settings)


def _flush(manager: Any, pending: list[str]) -> None:
    if pending:
        manager.add(",".join(pending))
        pending.clear()


def _refuse_nested(element: str) -> None:
    if re.search(rf"(?<![\w-]){re.escape(PASS_NAME)}(?![\w-])", element):
        raise InputError(
            f"{PASS_NAME} stands inside {element.split('(')[0]}(…)",
            hint="it replaces gpu.module operations: put it at the outermost level, after gpu.module(…)",
        )


def _one_of(value: str, *allowed: str) -> str:
    if value not in allowed:
        raise ValueError(value)
    return value


def _ir(options: PassOptions, **changes: Any) -> PassOptions:
    return replace(options, ir=replace(options.ir, **changes))


_OPTIONS: dict[str, Callable[[PassOptions, str], PassOptions]] = {
    "opt": lambda o, v: _ir(o, opt=cast(OptMode, _one_of(v, "auto", "always", "never"))),
    "device-libs": lambda o, v: _ir(o, device_libs=Path(v)),
    "unhandled": lambda o, v: replace(o, unhandled=_one_of(v, "remark", "error")),
}
"""The pass's own options; the others are those of ``pipeline.options``."""
