"""Allocators of other packages: the entry points of the group ``verilocc.allocators``.

The name of an entry point is what ``--allocator`` takes. Its object is called with the wall time for one problem, in
seconds, and returns an ``Allocator`` of that name. A package is loaded when its allocator is asked for, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from verilocc_mlir.allocators.protocol import Allocator
from verilocc_mlir.errors import InputError, VeriloccError, is_out_of_memory

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "verilocc.allocators"


@dataclass(frozen=True, slots=True)
class Plugin:
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
