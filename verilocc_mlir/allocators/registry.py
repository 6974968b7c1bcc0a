"""Allocators by name: this project's own, and those of other packages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from verilocc_mlir.allocators.deterministic import DeterministicAllocator
from verilocc_mlir.allocators.protocol import Allocator
from verilocc_mlir.errors import InputError, UnsupportedError, VeriloccError, is_out_of_memory

if TYPE_CHECKING:
    from importlib import metadata


MODEL = "model"
"""The language model in the directory that ``$VERILOCC_MODEL`` names, else the one that is installed with the package
``verilocc_model``; ``model:DIR`` names one itself."""
MODEL_VARIABLE = "VERILOCC_MODEL"
LLVM_ALLOCATOR = "llvm"
"""Name of LLVM's own allocation: the fallback, and a choice of its own (then it is audited only)."""
SAMPLES_VARIABLE = "VERILOCC_MODEL_SAMPLES"
"""How many answers of the model are compared where no option says it."""
UNMASKED_VARIABLE = "VERILOCC_MODEL_UNMASKED"
"""``1``: the model's first answer is its own, which no mask holds to the constraints."""
MOST_SAMPLES = 1000
DEFAULT_SECONDS = 60.0


def _exact(seconds: float) -> Allocator:
    # Imported only when it is used: it needs an extra.
    from verilocc_mlir.allocators.exact import ExactAllocator

    return ExactAllocator(seconds, order="waves")


_FACTORIES: dict[str, Callable[[float], Allocator]] = {
    "deterministic": lambda _seconds: DeterministicAllocator(),
    "exact": _exact,
}
_TAKEN = frozenset({*_FACTORIES, MODEL, LLVM_ALLOCATOR})
"""Names that no other package can give to an allocator."""


def allocator_names() -> tuple[str, ...]:
    """Names that ``allocator`` takes, sorted; those of other packages among them."""
    return tuple(sorted({*_FACTORIES, MODEL, *(one.name for one in plugins() if not is_taken(one.name))}))


def is_taken(name: str) -> bool:
    """Whether the name is one of this project's own. An entry point of that name is never used."""
    return name.partition(":")[0] in _TAKEN


def plugin_called(name: str) -> Plugin | None:
    """Where the allocator called ``name`` comes from; None for this project's own, and where there is none.

    Raises:
        InputError: more than one package has it.
    """
    return None if is_taken(name) else plugin(name)


def allocator(name: str, *, seconds: float = DEFAULT_SECONDS, samples: int | None = None) -> Allocator:
    """The allocator called ``name``.

    Args:
        name: one of ``allocator_names()``.
        seconds: wall time for one problem, for allocators that use all the time they get.
        samples: answers of the model that are compared; the cheapest is proposed. None: what
            ``$VERILOCC_MODEL_SAMPLES`` says, else one. Other allocators answer once.

    Raises:
        InputError: no allocator has that name, or more than one package has; the directory named holds no model; the
            number of samples is out of range; the allocator's package cannot be loaded, or gives no allocator.
        UnsupportedError: it needs packages that are not installed; the hint names the extra.
    """
    kind, _, where = name.partition(":")
    if kind == MODEL:
        directory = str(Path(where or os.environ.get(MODEL_VARIABLE, "") or packaged_model()).resolve())
        return _model(directory, seconds, _samples(samples))
    if factory := _FACTORIES.get(name):
        return factory(seconds)
    if installed := plugin_called(name):
        return installed.make(seconds)
    raise InputError(f"no allocator called {name!r}", hint=f"choose one of: {', '.join(allocator_names())}")


def model_is_there() -> bool:
    """Whether ``allocator(MODEL)`` gives an allocator. The weights are not loaded."""
    try:
        allocator(MODEL)
    except (InputError, UnsupportedError):
        return False
    return True


def packaged_model() -> Path:
    """The model that came with the package."""
    spec = find_spec("verilocc_model")
    for place in (spec and spec.submodule_search_locations) or ():
        directory = Path(place, "weights", "base")
        if directory.is_dir():
            return directory
    raise InputError(
        "no model is named, and none is installed", hint=f"--model=DIR, --allocator=model:DIR, or {MODEL_VARIABLE}=DIR"
    )


def _samples(count: int | None) -> int:
    where, text = "", str(count)
    if count is None:
        where, text = SAMPLES_VARIABLE, os.environ.get(SAMPLES_VARIABLE, "") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SAMPLES:
        raise InputError(f"{text} samples of the model are wanted, not between 1 and {MOST_SAMPLES}", where=where)
    return int(text)


def _model(directory: str, seconds: float, samples: int) -> Allocator:
    """The language model. Its weights are loaded once in a process, and not before they are needed."""
    try:
        for name in ("torch", "transformers", "peft"):
            if find_spec(name) is None:
                raise ModuleNotFoundError(name=name)
        module: Any = importlib.import_module("verilocc_model.allocator")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"this needs the language model's packages, and {error.name} is not installed",
            hint="pip install 'verilocc-mlir[model]'",
        ) from error
    unmasked = os.environ.get(UNMASKED_VARIABLE, "") == "1"
    return module.ModelAllocator(Path(directory), seconds=seconds, samples=samples, unmasked=unmasked)


# Allocators of other packages: the entry points of the group ``verilocc.allocators``.
#
# The name of an entry point is what ``--allocator`` takes. Its object is called with the wall time for one problem, in
# seconds, and returns an ``Allocator`` of that name. A package is loaded when its allocator is asked for, not before.


GROUP = "verilocc.allocators"


class Plugin(Struct, frozen=True):
    """One entry point.

    Attributes:
        name: of the allocator.
        place: module and object, ``"verilocc_first_fit:make"``.
        package: distribution and version, ``"verilocc-first-fit 0.1.0"``.
    """

    name: str
    place: str
    package: str
    entry: metadata.EntryPoint

    @property
    def sources(self) -> Path | None:
        """Directory of the top-level package, or the file of the top-level module; None where neither is found."""
        spec = find_spec(self.place.partition(":")[0].partition(".")[0])
        if spec is None or spec.origin is None:
            return None
        return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)

    def make(self, seconds: float) -> Allocator:
        """The allocator.

        Raises:
            InputError: the package cannot be loaded, its object raises an exception, or what it returns is no allocator
                of this name.
            VeriloccError: its object raised it.
        """
        try:
            loaded = self.entry.load()(seconds)
        except VeriloccError:
            raise
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise self._error(f"it cannot be loaded: {reason}") from error
        if fault := _fault(loaded, self.name):
            raise self._error(fault)
        return loaded

    def _error(self, what: str) -> InputError:
        hint = f"mend or uninstall {self.package}; docs/extend/index.md says what an entry point must be"
        return InputError(f"the allocator {self.name!r} of {self.package}: {what}", where=self.place, hint=hint)


def plugins() -> tuple[Plugin, ...]:
    """Every entry point of the group, by name; a name may be there twice."""
    from importlib import metadata

    listed = {
        (entry.name, entry.value): Plugin(entry.name, entry.value, _package(entry), entry)
        for entry in metadata.entry_points(group=GROUP)
    }
    return tuple(listed[key] for key in sorted(listed))


def plugin(name: str) -> Plugin | None:
    """The entry point of that name, None where there is none.

    Raises:
        InputError: more than one package has it.
    """
    named = [one for one in plugins() if one.name == name]
    if len(named) > 1:
        packages = " and ".join(one.package for one in named)
        raise InputError(f"{packages} each have an allocator called {name!r}", hint="uninstall all but one")
    return named[0] if named else None


def _package(entry: metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


def _fault(given: object, name: str) -> str:
    """What keeps ``given`` from being an allocator called ``name``; ``""`` where nothing does."""
    kind = type(given).__name__
    if not callable(getattr(given, "allocate", None)):
        return f"it returned no allocator: {kind} has no method 'allocate'"
    if getattr(given, "name", None) != name:
        return f"its 'name' is {getattr(given, 'name', None)!r}, not {name!r}"
    version = getattr(given, "version", None)
    if not isinstance(version, str) or not version:
        return f"its 'version' is {version!r}, not a text"
    return ""
