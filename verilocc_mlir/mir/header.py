"""The YAML part of a machine function: rows that matter, read from LLVM's fixed layout; the rest stays verbatim.

YAML can say one thing in many ways, which LLVM's reader takes (YAMLTraits.cpp, YAMLParser.cpp): ``check_header`` takes
only what its writer makes, so that no reader of these lines can understand them otherwise. The fields are those of
llvm/include/llvm/CodeGen/MIRYamlMapping.h and llvm/lib/Target/AMDGPU/SIMachineFunctionInfo.h.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from verilocc_mlir.errors import InputError, UnsupportedError
from verilocc_mlir.mir.model import (
    FunctionLiveIn,
    MachineFunction,
    StackObject,
    VirtualRegister,
)

_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_LETTERS = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"}
_NAME = re.compile(r"name: +(.+?) *\Z")
_HINTS = r"(?:,\s+anti-hints: \[[^\]]*\])?"
_REGISTER_ROW = re.compile(
    r"  - \{ id: ([0-9]{1,9}), class: ([A-Za-z0-9_]+)(?:,\s+preferred-register: '([%$][A-Za-z0-9_]+)?')?"
    + _HINTS
    + r"(?:,\s+flags: \[([\sA-Z_,]*)\])?"
    + _HINTS
    + r" *\}\Z"
)
"""``anti-hints`` (LLVM 23 and later) are, like the preferred register, a wish that no allocation owes."""
_LIVEIN_ROW = re.compile(r"  - \{ reg: '\$([A-Za-z0-9_]+)'(?:,\s+virtual-reg: '(?:%([0-9]{1,9}))?')? \}\Z")

_BOOL = "true|false"
_COUNT = "0|[1-9][0-9]{0,18}"
_NUMBER = rf"-?(?:{_COUNT})"
_QUOTED = r"'(?:[^'\n]|'')*'"
_REGISTER = r"'(?:\$\w+)?'"
_ARGUMENT = rf"\{{ (?:reg: '\$\w+'|offset: (?:{_COUNT}))(?:, mask: (?:{_COUNT}))? \}}"
_POLICY = "none|all|non-leaf|non-leaf-no-reserve|reserved"
_NONE = r"\[\]"
_TEXT = rf"{_QUOTED}|[\w$.](?:[\w$. -]*[\w$.-])?|\"(?:[^\"\\\n]|\\.)*\""
_LIST = "list"
_MAP = "map"


def _table(**kinds: str) -> dict[str, str]:
    """Patterns of values by field, from the fields of each pattern."""
    return {name: globals()[f"_{kind.upper()}"] for kind, names in kinds.items() for name in names.split()}


_DEBUG_INFO = "debug-info-variable debug-info-expression debug-info-location"
_FIELDS = {
    "": _table(
        text="name",
        count="alignment",
        bool="exposesReturnsTwice legalized regBankSelected selected failedISel tracksRegLiveness hasWinCFI noPhis "
        "isSSA noVRegs hasFakeUses callsEHReturn callsUnwindInit hasEHContTarget hasEHScopes hasEHFunclets isOutlined "
        "debugInstrRef failsVerification tracksDebugUserValues",
        list="registers liveins fixedStack stack machineMetadataNodes",
        none="entry_values callSites debugValueSubstitutions constants calledGlobals",
        map="frameInfo machineFunctionInfo",
    )
    | {"body": r"\|"},
    "frameInfo": _table(
        bool="isFrameAddressTaken isReturnAddressTaken hasStackMap hasPatchPoint adjustsStack hasCalls "
        "hasOpaqueSPAdjustment hasVAStart hasMustTailInVarArgFunc hasTailCall isCalleeSavedInfoValid",
        count="stackSize maxAlignment maxCallFrameSize cvBytesOfCalleeSavedRegisters localFrameSize",
        number="offsetAdjustment",
        quoted="stackProtector functionContext",
        policy="framePointerPolicy",
        none="savePoint restorePoint",
    ),
    "machineFunctionInfo": _table(
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
    "argumentInfo": _table(
        argument="privateSegmentBuffer dispatchPtr queuePtr kernargSegmentPtr dispatchID flatScratchInit "
        "privateSegmentSize workGroupIDX workGroupIDY workGroupIDZ workGroupInfo LDSKernelId "
        "privateSegmentWaveByteOffset implicitArgPtr implicitBufferPtr workItemIDX workItemIDY workItemIDZ "
        "firstKernArgPreloadReg"
    ),
    "mode": _table(
        bool="ieee dx10-clamp fp32-input-denormals fp32-output-denormals fp64-fp16-input-denormals "
        "fp64-fp16-output-denormals"
    ),
}
_STACK = _table(
    count="id size alignment",
    number="offset local-offset",
    text=f"name {_DEBUG_INFO}",
    register="callee-saved-register",
    bool="callee-saved-restored isImmutable isAliased",
) | {"type": "default|spill-slot|variable-sized", "stack-id": "default|sgpr-spill|noalloc"}
_NESTED = {"argumentInfo": "machineFunctionInfo", "mode": "machineFunctionInfo"}
_LINE = re.compile(r"( *)([A-Za-z][A-Za-z0-9_-]*):(?: +(\S.*))?\Z")
_ENTRY = re.compile(rf"([a-zA-Z-]+): ({_TEXT}|{_NUMBER})(?:,\s+|\Z)", re.ASCII)


def _unescape(match: re.Match[str]) -> str:
    """One escape of a double-quoted YAML scalar."""
    text = match[1]
    if len(text) == 1:
        return _LETTERS.get(text, text)
    code = int(text[1:], 16)
    return chr(code) if code <= sys.maxunicode else "\N{REPLACEMENT CHARACTER}"


def function_name(header: tuple[str, ...], *, where: str) -> str:
    """The function's name, YAML quotes removed.

    Raises:
        InputError: there is no ``name:`` line.
    """
    for line in header:
        if match := _NAME.match(line):
            name = match[1]
            if name.startswith("'") and name.endswith("'") and len(name) > 1:
                return name[1:-1].replace("''", "'")
            if name.startswith('"') and name.endswith('"') and len(name) > 1:
                return _ESCAPE.sub(_unescape, name[1:-1])
            return name
    raise InputError("machine function without a name", where=where)


def check_header(header: tuple[str, ...], *, where: str, line: int) -> None:
    """Raise unless every line is one that LLVM writes, each field once; rows are checked where they are read.

    Raises:
        InputError: another layout, a value that is none of the field's, or a field twice.
        UnsupportedError: a field that is not known here, or one whose value this package does not handle.
    """
    fields: set[tuple[str, str]] = set()
    section, listing = "", ""
    for number, text in enumerate(header[1:], line + 1):
        if text.startswith(" ") and listing:
            if not section:
                continue
            if re.fullmatch(r"    - '\$\w+'", text, re.ASCII):
                continue
        try:
            indent, key, kind = _header_line(section, text)
        except (InputError, UnsupportedError) as error:
            raise type(error)(error.what, where=f"{where}:{number}") from None
        section = section if indent == _depth(section) else "" if indent == 0 else _NESTED[section]
        if (section, key) in fields:
            raise InputError(f"the field {key!r} stands twice in the header", where=f"{where}:{number}")
        fields.add((section, key))
        listing = key if kind == _LIST else ""
        if kind == _MAP:
            section = key
    if ("", "body") not in fields:
        raise InputError("the header has no body", where=f"{where}:{line}")


def _depth(section: str) -> int:
    return 0 if not section else 4 if section in _NESTED else 2


def _header_line(section: str, text: str) -> tuple[int, str, str]:
    """Indent, field and pattern of a line in a section or above it."""
    match = _LINE.match(text)
    if match is None:
        raise InputError(f"not laid out as LLVM prints it: {text.strip()!r}")
    indent, key, value = len(match[1]), match[2], match[3] or ""
    if indent != _depth(section):
        section = "" if indent == 0 else _NESTED.get(section, "") if indent == 2 else ""
        if _depth(section) != indent:
            raise InputError(f"not laid out as LLVM prints it: {text.strip()!r}")
    kind = _FIELDS[section].get(key)
    if kind is None:
        raise UnsupportedError(f"the header's field {key!r} is not known here")
    if kind == _NONE and value != "[]":
        raise UnsupportedError(f"the header's field {key!r} is not handled here unless it is []")
    if kind in (_LIST, _MAP):
        if value not in ("", "[]"):
            raise InputError(f"the field {key!r} is not laid out as LLVM prints it")
        return indent, key, _LIST if value else kind
    if not re.fullmatch(kind, value, re.ASCII):
        raise InputError(f"{value!r} is no value of the field {key!r}")
    return indent, key, kind


def section(header: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Lines that belong to a top-level key such as ``registers``, the key's own line left out."""
    prefix = f"{key}:"
    inside = False
    lines: list[str] = []
    for line in header:
        if inside:
            if not line.startswith(" "):
                break
            lines.append(line)
        elif line.startswith(prefix):
            inside = True
    return tuple(lines)


def rows(header: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Rows ``  - { … }`` of a section; LLVM's YAML writer breaks long ones over several lines, which stay joined by
    breaks.
    """
    complete: list[str] = []
    current = ""
    for line in section(header, key):
        current = f"{current}\n{line}" if current else line
        if line.endswith(" }"):
            complete.append(current)
            current = ""
    if current:
        raise InputError(f"a row of {key!r} does not end")
    return tuple(complete)


def virtual_registers(header: tuple[str, ...]) -> dict[int, VirtualRegister]:
    """Rows of ``registers:`` by number. ``_`` (no class yet) is kept as the class name."""
    table: dict[int, VirtualRegister] = {}
    for row in rows(header, "registers"):
        register = _virtual_register(row)
        if register.id in table:
            raise InputError(f"a second row for the virtual register %{register.id}")
        table[register.id] = register
    return table


@lru_cache(maxsize=1 << 14)
def _virtual_register(row: str) -> VirtualRegister:
    """A row of ``registers:``. All texts of a compile, and of the next one, have much the same rows."""
    match = _REGISTER_ROW.match(row)
    if match is None:
        raise InputError(f"not a row of 'registers': {row.strip()!r}")
    flags = tuple(f.strip() for f in match[4].split(",") if f.strip()) if match[4] else ()
    return VirtualRegister(int(match[1]), match[2], match[3] or "", flags)


def function_liveins(header: tuple[str, ...]) -> tuple[FunctionLiveIn, ...]:
    liveins: list[FunctionLiveIn] = []
    for row in rows(header, "liveins"):
        match = _LIVEIN_ROW.match(row)
        if match is None:
            raise InputError(f"not a row of 'liveins': {row.strip()!r}")
        liveins.append(FunctionLiveIn(match[1], int(match[2]) if match[2] else -1))
    return tuple(liveins)


def stack_objects(header: tuple[str, ...], key: str) -> dict[int, StackObject]:
    """Rows of ``stack:`` or ``fixedStack:`` by number. Sizes in bytes; 0 where LLVM prints none (variable-sized)."""
    table: dict[int, StackObject] = {}
    for row in rows(header, key):
        fields = _row_fields(row)
        number = int(fields["id"])
        if number in table:
            raise InputError(f"a second row for the stack object {number}")
        size, alignment = int(fields.get("size", "0")), int(fields.get("alignment", "1"))
        table[number] = StackObject(number, size, alignment, fields.get("type", "default"), row)
    return table


def _row_fields(row: str) -> dict[str, str]:
    """The fields of a stack object, quotes kept."""
    text = row.strip()
    fields: dict[str, str] = {}
    if text.startswith("- { ") and text.endswith(" }"):
        at, end = 4, len(text) - 2
        while (match := _ENTRY.match(text, at, end)) and match[1] not in fields:
            if not re.fullmatch(_STACK.get(match[1], _NONE), match[2], re.ASCII):
                break
            fields[match[1]] = match[2]
            at = match.end()
        if at == end and "id" in fields:
            return fields
    raise InputError(f"not a row of a stack object: {text!r}")


def header_field(function: MachineFunction, key: str) -> str | None:
    """Value of a scalar field of the header, ``machineFunctionInfo`` included, quotes removed; None where absent.

    ``header_field(f, "frameOffsetReg")`` gives ``"$sgpr33"``. The first line with that key counts.
    """
    value = function.header_value(key)
    return value[1:-1] if value is not None and len(value) > 1 and value[0] == value[-1] == "'" else value
