"""What a user may set for every kernel, whatever way it comes in: one definition of each option.

Derived from it: the options of the command line (``cli/options.py``, ``cli/server.py``), the keywords of
``verilocc_mlir.compile``, of IREE's ``compile_mlir`` and of Triton's ``install``, the options of Dynamo's back end, and
the words in MLIR's pipeline text and in ``VERILOCC_TRITON``. What goes over the wire and into the cache key are the
fields of ``Settings`` that the options set.

Processor, features, level and form of the result are not among them: with a front end, that decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from verilocc_mlir.errors import InputError
from verilocc_mlir.pipeline.settings import Effort, ServerAccess, Settings
from verilocc_mlir.toolchain import ToolchainChoice

_E = TypeVar("_E", bound=Enum)


class Kind(Enum):
    """What values an option takes; the value of the member says it in messages."""

    TEXT = "a text"
    SWITCH = "true or false"
    SECONDS = "a number of seconds above 0"
    COUNT = "a whole number of at least 1"
    PATH = "a path"
    EFFORT = "fast, balanced, best or learned"
    TOOLCHAIN = "auto, llc or triton"
    FLAGS = "a flag, or a list of flags"


class Group(Enum):
    """What an option is about, in panels of the command line's help. ``ACCESS``: how to get through to the server."""

    PROOF = "allocation and proof"
    LLVM = "LLVM"
    SERVER = "server"
    ACCESS = "access"


class Option(Struct, frozen=True):
    """One option.

    Attributes:
        name: as a keyword; in texts and on the command line with ``-`` for ``_``.
        field: the field of ``Settings`` that it sets; with ``Group.ACCESS`` of ``ServerAccess``.
        metavar: what stands for its value in the command line's help.
    """

    name: str
    kind: Kind
    help: str
    field: str
    metavar: str = ""
    group: Group = Group.PROOF

    @property
    def of_access(self) -> bool:
        return self.group is Group.ACCESS

    @property
    def word(self) -> str:
        return self.name.replace("_", "-")

    @property
    def default(self) -> Any:
        return getattr(ServerAccess() if self.of_access else Settings(), self.field)

    def value(self, given: object) -> Any:
        """``given``, be it a value or the text of one, as the field has it.

        Raises:
            InputError: it is neither.
        """
        try:
            return _CONVERSIONS[self.kind](given)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.word}={given!s} is not {self.kind.value}") from error


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError
    return given


def _switch(given: object) -> bool:
    return given if isinstance(given, bool) else {"true": True, "false": False}[_text(given)]


def _seconds(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        raise TypeError
    seconds = float(given)
    if not (isfinite(seconds) and seconds > 0):
        raise ValueError
    return seconds


def _count(given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, str)) or int(given) < 1:
        raise ValueError
    return int(given)


def _path(given: object) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, (str, Path)):
        raise TypeError
    return Path(given)


def _flags(given: object) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(_text(flag) for flag in given)  # type: ignore[attr-defined]


def _effort(given: object) -> Effort:
    return Effort(given)


def _toolchain(given: object) -> ToolchainChoice:
    return ToolchainChoice(given)


_CONVERSIONS: dict[Kind, Callable[[object], Any]] = {
    Kind.TEXT: _text,
    Kind.SWITCH: _switch,
    Kind.SECONDS: _seconds,
    Kind.COUNT: _count,
    Kind.PATH: _path,
    Kind.EFFORT: _effort,
    Kind.TOOLCHAIN: _toolchain,
    Kind.FLAGS: _flags,
}

OPTIONS = (
    Option("effort", Kind.EFFORT, "How many allocations are tried.", "effort"),
    Option("plan", Kind.TEXT, "Try this plan alone, e.g. max-ilp, or 'max-ilp + beside'.", "plan", "WORDS"),
    Option("plans", Kind.COUNT, "With learned: how many of its plans are tried. [default: 1]", "plans", "N"),
    Option("plan_model", Kind.PATH, "With learned: its model. [default: the installed one]", "plan_model", "DIR"),
    Option(
        "allocator", Kind.TEXT,
        "deterministic; exact: the fewest waves lost, then copies, by CP-SAT; model, model:DIR; llvm: LLVM's, audited; "
        "or one that a package adds: verilocc doctor lists them.",
        "allocator", "NAME",
    ),
    Option(
        "model_samples", Kind.COUNT,
        "Answers of the model that are compared; the cheapest is proved and kept. [default: 1]", "model_samples", "N",
    ),
    Option(
        "allocator_seconds", Kind.SECONDS, "For one phase of a function, with exact or a model.", "allocator_seconds"
    ),
    Option("spill", Kind.SWITCH, "Spill where registers do not suffice. [default: on]", "spill"),
    Option("order", Kind.SWITCH, "Put instructions in orders of our own, proved. [default: on]", "order"),
    Option("fallback", Kind.SWITCH, "Take LLVM's allocation where ours fails. [default: on]", "fallback"),
    Option(
        "seconds", Kind.SECONDS,
        "CPU for the whole, LLVM's tools counted: then nothing further is tried, and the best that is proved is taken.",
        "seconds",
    ),
    Option("solver_seconds", Kind.SECONDS, "For one question; then UNKNOWN.", "solver_seconds"),
    Option(
        "toolchain", Kind.TOOLCHAIN,
        "Which LLVM: llc; triton, the one in Triton's package; auto, llc where there is one.",
        "toolchain", group=Group.LLVM,
    ),
    Option("llvm", Kind.PATH, "Directory of llc, or llc.", "llvm", "DIR", group=Group.LLVM),
    Option("llc", Kind.FLAGS, "Hand a flag to llc, e.g. -fp-contract=fast.", "llc_options", "FLAG", group=Group.LLVM),
    Option(
        "verify", Kind.SWITCH, "Run llc's machine verifier after each pass. [default: not with fast]",
        "verify", group=Group.LLVM,
    ),
    Option("tool_seconds", Kind.SECONDS, "For one run of llc or ld.lld.", "tool_seconds", group=Group.LLVM),
    Option(
        "server", Kind.TEXT, "Ask an allocation server first: HOST:PORT or unix:PATH.",
        "server", "ADDR", group=Group.SERVER,
    ),
    Option(
        "server_allocator", Kind.TEXT, "Which of the server's allocators is asked.",
        "server_allocator", "NAME", group=Group.SERVER,
    ),
    Option(
        "server_required", Kind.SWITCH,
        "An error where the server is down, wrong or late. [default: off, the allocator here takes its place]",
        "server_required", group=Group.SERVER,
    ),
    Option(
        "server_ca", Kind.PATH, "CA of its certificate, PEM. [default: the system's]",
        "ca", "FILE", group=Group.ACCESS,
    ),
    Option(
        "server_cert", Kind.PATH, "Our certificate, PEM, if it wants one.",
        "certificate", "FILE", group=Group.ACCESS,
    ),
    Option("server_key", Kind.PATH, "Its key, PEM.", "key", "FILE", group=Group.ACCESS),
    Option("server_token", Kind.PATH, "Bearer token. [default: $VERILOCC_TOKEN]", "token", "FILE", group=Group.ACCESS),
    Option(
        "server_insecure", Kind.SWITCH, "No TLS to another machine; no token either.",
        "insecure", group=Group.ACCESS,
    ),
    Option("server_seconds", Kind.SECONDS, "For one answer.", "seconds", group=Group.ACCESS),
)  # fmt: skip
_BY_NAME = {option.name: option for option in OPTIONS}
OPTION_NAMES = tuple(_BY_NAME)


def option(name: str) -> Option:
    """The option of that name, as a keyword or as a word.

    Raises:
        InputError: there is none; the hint lists those that there are.
    """
    result = _BY_NAME.get(name.replace("-", "_"))
    if result is None:
        raise InputError(f"there is no option {name!r}", hint=f"there are {', '.join(OPTION_NAMES)}")
    return result


def with_options(settings: Settings | None, given: Mapping[str, Any]) -> Settings:
    """``settings``, or the default ones, with what ``given`` sets: values or their texts by name.

    Raises:
        InputError: there is no such option, or it does not take such a value.
    """
    base = settings or Settings()
    changes: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for name, text in given.items():
        setting = option(name)
        changes[setting.of_access][setting.field] = setting.value(text)
    if changes[True]:
        changes[False]["access"] = replace(base.access, **changes[True])
    return replace(base, **changes[False])


def member(kind: type[_E], given: _E | str, key: str) -> _E:
    """The value of a choice that a front end has beside these options, from itself or its text.

    Raises:
        InputError: ``key=given`` is none of them; all are named.
    """
    try:
        return kind(given)
    except ValueError as error:
        *first, last = (value.value for value in kind)
        raise InputError(f"{key}={given} is not {', '.join(first)} or {last}") from error


def options_in(words: Iterable[str], others: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Options written as ``KEY=VALUE``: those of this module by name, for ``with_options``, and the ``others`` by key.

    A flag that is given again is added to those before it; of another option the last value counts.

    Raises:
        InputError: a word that is none of them; the hint lists those that there are.
    """
    values: dict[str, Any] = {}
    other_values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        setting = _BY_NAME.get(key.replace("-", "_"))
        if not equals or (key not in others and setting is None):
            there = ", ".join(sorted((*others, *(o.word for o in OPTIONS))))
            raise InputError(f"there is no option {word!r}", hint=f"options: {there}")
        if key in others or setting is None:
            other_values[key] = value
        elif setting.kind is Kind.FLAGS:
            values[setting.name] = (*values.get(setting.name, ()), value)
        else:
            values[setting.name] = value
    return values, other_values
