"""The few functions of Z3's C library that questions need, called as the package ``z3`` calls them.

The library is the one in that package. The package itself, which has all of Z3's interface, takes 60 ms of CPU to load;
a small compile takes 400.
"""

from __future__ import annotations

import ctypes
import importlib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_NAMES = ("libz3.so", "libz3.dylib", "libz3.dll")
_SMTLIB2 = 2
"""``Z3_PRINT_SMTLIB2_COMPLIANT``."""
UNSAT, SAT = -1, 1

_P, _U, _S = ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "Z3_mk_config": (_P,),
    "Z3_del_config": (None, _P),
    "Z3_mk_context_rc": (_P, _P),
    "Z3_del_context": (None, _P),
    "Z3_set_error_handler": (None, _P, _P),
    "Z3_set_ast_print_mode": (None, _P, _U),
    "Z3_get_error_code": (_U, _P),
    "Z3_get_error_msg": (_S, _P, _U),
    "Z3_mk_solver": (_P, _P),
    "Z3_solver_inc_ref": (None, _P, _P),
    "Z3_solver_dec_ref": (None, _P, _P),
    "Z3_mk_params": (_P, _P),
    "Z3_params_inc_ref": (None, _P, _P),
    "Z3_params_dec_ref": (None, _P, _P),
    "Z3_params_set_uint": (None, _P, _P, _P, _U),
    "Z3_mk_string_symbol": (_P, _P, _S),
    "Z3_solver_set_params": (None, _P, _P, _P),
    "Z3_solver_from_string": (None, _P, _P, _S),
    "Z3_solver_check_assumptions": (ctypes.c_int, _P, _P, _U, _P),
    "Z3_solver_get_reason_unknown": (_S, _P, _P),
    "Z3_solver_get_model": (_P, _P, _P),
    "Z3_model_inc_ref": (None, _P, _P),
    "Z3_model_dec_ref": (None, _P, _P),
    "Z3_model_to_string": (_S, _P, _P),
}
"""Result and parameters of each, from z3_api.h."""


class Z3Error(Exception):
    """What Z3 says of a call that failed."""


class Context:
    """A manager of terms; not for two threads at once."""

    def __init__(self) -> None:
        self._functions = functions = _library()
        config = functions["Z3_mk_config"]()
        self._handle = functions["Z3_mk_context_rc"](config)
        functions["Z3_set_error_handler"](self._handle, None)  # Z3's own ends the process
        functions["Z3_set_ast_print_mode"](self._handle, _SMTLIB2)
        functions["Z3_del_config"](config)

    def __del__(self) -> None:
        self._functions["Z3_del_context"](self._handle)

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of a function whose first parameter is the context.

        Raises:
            Z3Error: it failed.
        """
        result = self._functions[name](self._handle, *arguments)
        code = self._functions["Z3_get_error_code"](self._handle)
        if code:
            raise Z3Error(self._functions["Z3_get_error_msg"](self._handle, code).decode(errors="replace").strip())
        return result

    def release(self, name: str, handle: Any) -> None:
        """Call a function that gives something back, which does not fail and says nothing of an error before it."""
        self._functions[name](self._handle, handle)


class Solver:
    """Assertions in a context, and whether they have a model; every method may raise ``Z3Error``."""

    def __init__(self, context: Context, **limits: int) -> None:
        self._context = context
        self._handle = context.call("Z3_mk_solver")
        context.call("Z3_solver_inc_ref", self._handle)
        params = context.call("Z3_mk_params")
        context.call("Z3_params_inc_ref", params)
        for name, value in limits.items():
            context.call("Z3_params_set_uint", params, context.call("Z3_mk_string_symbol", name.encode()), value)
        context.call("Z3_solver_set_params", self._handle, params)
        context.release("Z3_params_dec_ref", params)

    def __del__(self) -> None:
        self._context.release("Z3_solver_dec_ref", self._handle)

    def read(self, script: str) -> None:
        """Add the assertions of SMT-LIB text."""
        self._context.call("Z3_solver_from_string", self._handle, script.encode())

    def check(self) -> int:
        """``UNSAT``, ``SAT``, or something else where that is not known."""
        return self._context.call("Z3_solver_check_assumptions", self._handle, 0, None)

    def reason_unknown(self) -> str:
        return self._context.call("Z3_solver_get_reason_unknown", self._handle).decode(errors="replace")

    def model_text(self) -> str:
        """The model of the last check, as SMT-LIB text."""
        model = self._context.call("Z3_solver_get_model", self._handle)
        self._context.call("Z3_model_inc_ref", model)
        try:
            return self._context.call("Z3_model_to_string", model).decode(errors="replace")
        finally:
            self._context.release("Z3_model_dec_ref", model)


def load() -> None:
    """Load it now, not with the first question; a failure shows with that."""
    with suppress(OSError, ImportError):
        _library()


def _library() -> dict[str, Any]:
    library = _loaded()
    functions: dict[str, Any] = {}
    for name, (result, *parameters) in _FUNCTIONS.items():
        function = functions[name] = getattr(library, name)
        function.restype, function.argtypes = result, parameters
    return functions


def _loaded() -> Any:
    """The library beside the package, or else the one that the package finds."""
    package = find_spec("z3")
    for directory in package.submodule_search_locations or () if package else ():
        for path in (Path(directory) / "lib" / name for name in _NAMES):
            if path.is_file():
                return ctypes.CDLL(str(path))
    return importlib.import_module("z3.z3core").lib()
