"""Answers of a model of plans, which is in a package of its own and loaded only where ``-O=learned`` asks for it."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.pipeline.answers import Answer
from verilocc_mlir.pipeline.plans import Plan, Planned

VARIABLE = "VERILOCC_PLAN_MODEL"
"""Environment variable: the model's directory, where no option names one."""


@dataclass(frozen=True)
class Stated:
    """What a model states: its name, with the adapter that it has for the target, and its answers, the best first."""

    model: str
    answers: Sequence[Answer]


def stated(given: Planned, first: Plan, code: bytes) -> Stated:
    """Ask the model for the file's dearest function.

    Args:
        first: the plan that was tried first.
        code: assembly of LLVM's default compile.

    Raises:
        InputError: no model is there, or it was trained with other facts. UnsupportedError: its packages are missing.
    """
    directory = model_directory(given.settings.plan_model)
    model, answers = _package().choose(given, first, code, directory)
    return Stated(model, answers)


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
        InputError: as ``model_directory``.
    """
    directory = model_directory(named)
    digest = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.suffix in (".json", ".safetensors")):
        digest.update(path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{directory.resolve().name} {digest.hexdigest()[:16]}"


def _package() -> Any:
    try:
        return importlib.import_module("verilocc_model.plans.choose")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"-O=learned needs the language model's packages, and {error.name} is not installed",
            hint="pip install 'verilocc-mlir[model]'",
        ) from error
