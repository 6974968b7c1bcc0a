"""Answers of a model of plans, which is in a package of its own and loaded only where ``-O=learned`` asks for it."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.allocators.protocol import AllocationFailure
from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.own_process import is_own_process
from verilocc_mlir.pipeline.candidates import Answer
from verilocc_mlir.pipeline.plans import Plan, Planned
from verilocc_mlir.pipeline.settings import Effort, Settings
from verilocc_mlir.remote import PlanServer
from verilocc_mlir.target.targets import TARGETS

VARIABLE = "VERILOCC_PLAN_MODEL"
"""Environment variable: the model's directory, where no option names one."""
_THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable that NumPy's OpenBLAS reads when it is loaded."""


class Stated(Struct, frozen=True):
    """What a model states.

    Attributes:
        model: its name, and the server that has it; ``""``: none was asked.
        answers: the best first.
        notes: for people: which model was not asked, and why.
    """

    model: str
    answers: Sequence[Answer] = ()
    notes: tuple[str, ...] = ()


class PlanModel(Struct, frozen=True):
    """A model of plans that reads facts alone.

    Attributes:
        version: as ``model_version`` gives it.
    """

    version: str
    _name: str
    _model: Any

    @classmethod
    def load(cls, directory: Path) -> PlanModel:
        """
        Raises:
            InputError: no model of plans is there. UnsupportedError: its packages are missing.
        """
        package = _package()
        return cls(model_version(directory), directory.resolve().name, package.Nearest.load(directory))

    @property
    def targets(self) -> Sequence[str]:
        return list(TARGETS)

    @property
    def facts(self) -> frozenset[str]:
        """Names of the facts that it reads."""
        return frozenset(self._model.names)

    def ranked(self, target: str, facts: Mapping[str, float]) -> Stated:
        """All its answers.

        Raises:
            InputError: a fact is missing.
        """
        return Stated(self._name, self._model.ranked(target, facts))


def stated(given: Planned, first: Plan, code: bytes) -> Stated:
    """Ask the model for the file's dearest function: that of the server where one allocates, else the one here.

    Where the server ranks nothing, the model here is asked; where there is none either, the notes say so.

    Args:
        first: the plan that was tried first.
        code: assembly of LLVM's default compile.

    Raises:
        InputError: no server allocates, and no model is here, or it was trained with other facts.
        UnsupportedError: likewise, and its packages are missing.
    """
    server = next((a for a in given.work.allocators if isinstance(a, PlanServer)), None)
    if server is None:
        return _stated_here(given, first, code, _package().facts_of(given, first, code))
    notes: list[str] = []
    try:
        facts = _package().facts_of(given, first, code)
        try:
            return _stated_there(server, given, facts)
        except (AllocationFailure, InputError) as error:
            notes.append(f"plans: {error.without_hint}; the model here is asked instead")
        return replace(_stated_here(given, first, code, facts), notes=tuple(notes))
    except (InputError, UnsupportedError) as error:
        return Stated("", notes=(*notes, f"plans: none of a model is tried: {error.without_hint}"))


def _stated_here(given: Planned, first: Plan, code: bytes, facts: Mapping[str, float] | None) -> Stated:
    directory = model_directory(given.work.settings.plan_model)
    model, answers = _package().ranked(given, first, code, facts, directory)
    return Stated(model, answers)


def _stated_there(server: PlanServer, given: Planned, facts: Mapping[str, float] | None) -> Stated:
    """
    Raises:
        AllocationFailure: the server ranks nothing. InputError: what it says are no answers. UnsupportedError: no facts
            are there to be sent.
    """
    if facts is None:
        raise UnsupportedError("the allocation problem of the dearest function cannot be stated")
    ranked = server.rank_plans(given.work.target.name, facts)
    answers = [answer for text in ranked.answers if (answer := _answer(text)) is not None]
    if not answers:
        raise InputError("it has no answer with words that are known here", where=server.address)
    return Stated(f"{ranked.model} of {server.address}", answers)


def _answer(text: str) -> Answer | None:
    """None for one with words that this version does not have."""
    try:
        return Answer.parse(text)
    except InputError:
        return None


def model_directory(named: Path | None) -> Path:
    """Where the model is.

    Raises:
        InputError: none is named, and none is installed.
    """
    if named is not None or os.environ.get(VARIABLE):
        return named or Path(os.environ[VARIABLE])
    spec = find_spec("verilocc_model")
    for place in (spec and spec.submodule_search_locations) or ():
        directory = Path(place, "weights", "plans")
        if directory.is_dir():
            return directory
    raise InputError("no model of plans is named, and none is installed", hint=f"--plan-model=DIR, or {VARIABLE}=DIR")


def model_version(named: Path | None) -> str:
    """The model's name and a digest of all of its files.

    Raises:
        InputError: as ``model_directory``; no model of plans is there.
    """
    directory = model_directory(named)
    _check_directory(directory)
    digest = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.suffix in (".json", ".safetensors") and p.is_file()):
        digest.update(path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{directory.resolve().name} {digest.hexdigest()[:16]}"


def check_plan_model(settings: Settings) -> None:
    """See that there is a model where one is named, be it asked or not. It is not loaded.

    Raises:
        InputError: there is none.
    """
    from_environment = settings.effort is Effort.LEARNED and not settings.server and bool(os.environ.get(VARIABLE))
    if settings.plan_model is not None or from_environment:
        _check_directory(model_directory(settings.plan_model))


def _check_directory(directory: Path) -> None:
    missing = [next((name for name in names if not (directory / name).is_file()), "") for names in _FORMS]
    if all(missing):
        raise InputError(f"no model of plans is there: it has no {missing[0]}", where=str(directory), hint=_MAKE)


_FORMS = (("neighbours.json", "neighbours.safetensors"), ("critic.json", "critic.safetensors"))
"""Files of a model that states answers, and of one that judges them."""
_MAKE = "make one: verilocc train plans DATA --out DIR"


def _package() -> Any:
    """The package, with NumPy's matrix products on one thread, if this process is ours and has not loaded NumPy before.

    The model's matrices are small. On a machine with other work its threads wait for each other, and an answer of 17 ms
    takes seconds (docs/guide/service-operate.md).
    """
    threads = os.environ.get(_THREADS)
    if is_own_process():
        os.environ.setdefault(_THREADS, "1")
    try:
        return importlib.import_module("verilocc_model.plans.choose")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"-O=learned needs the language model's packages, and {error.name} is not installed",
            hint="pip install 'verilocc-mlir[plans]'",
        ) from error
    finally:
        if threads is None and is_own_process():
            os.environ.pop(_THREADS, None)
