"""The YAML header of a machine function: every line is one that LLVM's writer makes.

YAML can say one thing in many ways. Only the layout of YAMLTraits.cpp's writer is read, so that no reader of these
lines can understand them otherwise. The fields are those of MIRYamlMapping.h and SIMachineFunctionInfo.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from smt_verifier.checker.model import Row, VirtualRegister
from smt_verifier.checker.outcome import Refused

_BOOL = "true|false"
_COUNT = "0|[1-9][0-9]{0,18}"
_INTEGER = "0|-?[1-9][0-9]{0,18}"
_QUOTED = r"'(?:[^'\n]|'')*'"
_PLAIN = r"[\w$.](?:[\w$. -]*[\w$.-])?"
_TEXT = rf"{_QUOTED}|{_PLAIN}|\"[^\"\\\n]*\""
_REGISTER = r"'(?:\$\w+)?'"
_ARGUMENT = rf"\{{ (?:reg: '\$\w+'|offset: (?:{_COUNT}))(?:, mask: (?:{_COUNT}))? \}}"
_POLICY = "none|all|non-leaf|non-leaf-no-reserve|reserved"
_NONE = r"\[\]"
_ARGUMENTS = "machineFunctionInfo.argumentInfo"
_LIST = "list"
_MAP = "map"


def _fields(**names: str) -> dict[str, str]:
    """Pattern of the value by field."""
    return {name: globals()[f"_{kind.upper()}"] for kind, of_kind in names.items() for name in of_kind.split()}


_SECTIONS = {
    "": _fields(
        text="name",
        count="alignment",
        bool="exposesReturnsTwice legalized regBankSelected selected failedISel tracksRegLiveness hasWinCFI noPhis "
        "isSSA noVRegs hasFakeUses callsEHReturn callsUnwindInit hasEHContTarget hasEHScopes hasEHFunclets isOutlined "
        "debugInstrRef failsVerification tracksDebugUserValues",
        list="registers liveins fixedStack stack machineMetadataNodes",
        none="entry_values callSites debugValueSubstitutions constants calledGlobals",
        map="frameInfo machineFunctionInfo",
    ),
    "frameInfo": _fields(
        bool="isFrameAddressTaken isReturnAddressTaken hasStackMap hasPatchPoint adjustsStack hasCalls "
        "hasOpaqueSPAdjustment hasVAStart hasMustTailInVarArgFunc hasTailCall isCalleeSavedInfoValid",
        count="stackSize maxAlignment maxCallFrameSize cvBytesOfCalleeSavedRegisters localFrameSize",
        integer="offsetAdjustment",
        quoted="stackProtector functionContext",
        policy="framePointerPolicy",
        none="savePoint restorePoint",
    ),
    "machineFunctionInfo": _fields(
        bool="isEntryFunction isChainFunction noSignedZerosFPMath memoryBound waveLimiter hasSpilledSGPRs "
        "hasSpilledVGPRs returnsVoid hasInitWholeWave isWholeWaveFunction hasNoWWMPoolSGPRSpillFallback",
        count="explicitKernArgSize maxKernArgAlign ldsSize gdsSize dynLDSAlign numWaveDispatchSGPRs "
        "numWaveDispatchVGPRs bytesInStackArgArea psInputAddr psInputEnable maxMemoryClusterDWords "
        "highBitsOf32BitAddress occupancy dynamicVGPRBlockSize scratchReservedForDynamicVGPRs numKernargPreloadSGPRs "
        "minNumAGPRs",
        register="scratchRSrcReg frameOffsetReg stackPtrOffsetReg vgprForAGPRCopy sgprForEXECCopy "
        "longBranchReservedReg",
        quoted="scavengeFI",
        list="spillPhysVGPRs wwmReservedRegs",
        map="argumentInfo mode",
    ),
    _ARGUMENTS: _fields(
        argument="privateSegmentBuffer dispatchPtr queuePtr kernargSegmentPtr dispatchID flatScratchInit "
        "privateSegmentSize workGroupIDX workGroupIDY workGroupIDZ workGroupInfo LDSKernelId "
        "privateSegmentWaveByteOffset implicitArgPtr implicitBufferPtr workItemIDX workItemIDY workItemIDZ "
        "firstKernArgPreloadReg"
    ),
    "machineFunctionInfo.mode": _fields(
        bool="ieee dx10-clamp fp32-input-denormals fp32-output-denormals fp64-fp16-input-denormals "
        "fp64-fp16-output-denormals"
    ),
}
_OBJECT = _fields(
    count="id size alignment",
    integer="offset local-offset",
    text="name debug-info-variable debug-info-expression debug-info-location",
    register="callee-saved-register",
    bool="callee-saved-restored isImmutable isAliased",
) | {"type": "default|spill-slot|variable-sized", "stack-id": "default|sgpr-spill|noalloc"}
_ROWS = {
    "registers": _fields(count="id")
    | {
        "class": r"\w+",
        "preferred-register": r"'(?:[%$]\w+)?'",
        "flags": r"\[ (?:WWM_REG)? \]",
        "anti-hints": r"\[(?: '[%$]\w+',?)* \]",
    },
    "liveins": {"reg": r"'\$\w+'", "virtual-reg": rf"'(?:%(?:{_COUNT}))?'"},
    "stack": _OBJECT,
    "fixedStack": _OBJECT,
}
"""Of rows ``- { key: value, … }``. ``anti-hints`` (LLVM 23 and later) is, like the preferred register, a wish."""
_NOT_FIELDS = {*_ROWS, "frameInfo", "machineFunctionInfo", "machineFunctionInfo.mode"}
_ORDER = (
    *("id", "class", "preferred-register", "anti-hints", "flags", "reg", "virtual-reg", "name", "type", "offset"),
    *("size", "alignment", "stack-id", "isImmutable", "isAliased", "callee-saved-register", "callee-saved-restored"),
    *("local-offset", "debug-info-variable", "debug-info-expression", "debug-info-location"),
)
"""In which the entries of rows are printed."""
_REQUIRED = {"registers": {"id", "class"}, "liveins": {"reg"}, "stack": {"id"}, "fixedStack": {"id"}}
_LINE = re.compile(r"( *)([A-Za-z][A-Za-z0-9_-]*):(?: +(\S.*))?\Z")
_ENTRY = re.compile(
    rf"([a-z-]+|isImmutable|isAliased): ({_QUOTED}|\"[^\"\n]*\"|\[[^][{{}}]*\]|[^][,'\"{{}}]+)(?:, |\Z)"
)
_ITEM = re.compile(rf" *- ({_QUOTED})\Z")


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says; see ``Function`` for its fields. ``name`` is resolved."""

    name: str
    fields: Mapping[str, str]
    registers: dict[int, VirtualRegister]
    liveins: tuple[tuple[str, int], ...]
    fixed_stack: Mapping[int, Row]
    stack: Mapping[int, Row]


def read_header(lines: list[str], first: int) -> Header:
    """Read the lines between ``---`` and ``body:``, of which the first has the number ``first``.

    Raises:
        Refused: a line that LLVM does not write, a field that is not known, or one that stands twice.
    """
    fields: dict[str, str] = {}
    rows: dict[str, list[Row]] = {key: [] for key in _ROWS}
    path: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("#"):
            continue
        where = f"line {first + at - 1}"
        match = _LINE.match(line)
        depth = len(match[1]) // 2 if match else 0
        if match is None or len(match[1]) % 2 or depth > len(path):
            raise Refused("header", f"not laid out as LLVM prints it: {line!r}", where)
        path = path[:depth]
        section, key, value = ".".join(path), match[2], match[3] or ""
        kind = _SECTIONS[section].get(key)
        full = f"{section}.{key}" if section else key
        if kind is None or full in fields:
            raise Refused("header", f"the field {full} " + ("stands twice" if kind else "is not known"), where)
        if kind == _MAP and value in ("", "{}"):
            path += [] if value else [key]
        elif kind == _LIST and not value:
            items = list(_items(lines, at, match[1]))
            at += sum(text.count("\n") + 1 for text in items)
            if key in _ROWS:
                rows[key] = [_row(key, text, where) for text in items]
            elif items and all(map(_ITEM.fullmatch, items)):
                value = ", ".join(text.strip().removeprefix("- ") for text in items)
            else:
                raise Refused("header", f"the list {full} is not laid out as LLVM prints it", where)
        elif not re.fullmatch(_NONE if kind == _LIST else kind, value, re.ASCII):
            raise Refused("header", f"{value!r} is no value of the field {full}", where)
        fields[full] = value
    return _header(fields, rows, f"line {first}")


def _items(lines: list[str], at: int, indent: str) -> Iterator[str]:
    """The items of a list that begins at line ``at``; what goes on in the next lines has breaks in it."""
    begin, more = f"{indent}  - ", f"{indent}      "
    while at < len(lines) and lines[at].startswith(begin):
        end = at + 1
        while end < len(lines) and lines[end].startswith(more) and lines[end - 1].rstrip(" ").endswith(","):
            end += 1
        yield "\n".join(lines[at:end])
        at = end


@lru_cache(maxsize=1 << 14)
def _row(key: str, item: str, where: str) -> Row:
    """The entries of a row of the list ``key``."""
    text = " ".join(line.strip(" ") for line in item.split("\n"))
    entries: dict[str, str] = {}
    at, end = 4, len(text) - 2
    if text.startswith("- { ") and text.endswith(" }"):
        while (match := _ENTRY.match(text, at, end)) and match[1] not in entries:
            if not re.fullmatch(_ROWS[key].get(match[1], _NONE), match[2], re.ASCII):
                break
            entries[match[1]] = match[2]
            at = match.end()
    if at != end or not entries.keys() >= _REQUIRED[key] or [k for k in _ORDER if k in entries] != list(entries):
        raise Refused("header", f"not a row of {key}: {text!r}", where)
    return entries


def unquoted(text: str) -> str:
    """A YAML scalar without its quotes; one with escapes is not read."""
    return text[1:-1].replace("''", "'") if text[:1] == "'" else text.strip('"')


def _header(fields: dict[str, str], rows: Mapping[str, list[Row]], where: str) -> Header:
    if "name" not in fields:
        raise Refused("header", "the function has no name", where)
    arguments = {key: fields.pop(key) for key in list(fields) if key.startswith(f"{_ARGUMENTS}.")}
    if arguments:
        fields[_ARGUMENTS] = ", ".join(f"{key.rpartition('.')[2]}: {value}" for key, value in arguments.items())
    plain = {key: value for key, value in fields.items() if key not in _NOT_FIELDS}
    registers = {number: _register(number, row) for number, row in _numbered(rows["registers"], where).items()}
    liveins = tuple((r["reg"][2:-1], int(r.get("virtual-reg", "''")[2:-1] or -1)) for r in rows["liveins"])
    objects = (_numbered(rows[key], where) for key in ("fixedStack", "stack"))
    return Header(unquoted(fields["name"]), plain, registers, liveins, *objects)


def _numbered(rows: list[Row], where: str) -> Mapping[int, Row]:
    """Rows by their number, which is taken out of them."""
    table = {int(row["id"]): {key: value for key, value in row.items() if key != "id"} for row in rows}
    if len(table) != len(rows):
        raise Refused("header", "two rows of a list have one number", where)
    return table


def _register(number: int, row: Row) -> VirtualRegister:
    flags = tuple(row.get("flags", "[ ]").strip("[] ").split())
    return VirtualRegister(number, row["class"], row.get("preferred-register", "''")[1:-1], flags)
