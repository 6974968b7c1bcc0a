"""``verilocc-allocate`` by name in a textual pass pipeline.

No MLIR Python bindings can register a pass that is defined in Python, so ``PassManager.parse`` does not know the name.
``parse_pipeline`` splits the text around it: what stands before and after goes to ``PassManager.add`` as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from verilocc_mlir.errors import InputError
from verilocc_mlir.hooks.mlir_bindings import Bindings
from verilocc_mlir.hooks.mlir_compile import OptMode
from verilocc_mlir.hooks.mlir_pass import PASS_NAME, AllocatePass, PassOptions
from verilocc_mlir.pipeline.checked_settings import check_settings
from verilocc_mlir.pipeline.options import options_in, with_options

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
