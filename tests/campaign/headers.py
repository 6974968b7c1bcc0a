"""Every field of the header, row of a list, live-in and line of the IR module changed, missing, doubled or swapped.

Subjects are the right pairs of ``tests/cases`` and LLVM's own texts among them. A change of the text after allocation
is equivalent only by one of the arguments of ``_argument``: LLVM's default, what the text before says, or one of the
few fields that an allocation may change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from campaign.subject import Mutant, Subject

CASES = Path(__file__).resolve().parent.parent / "cases"
_FIELD = re.compile(r"( *)([A-Za-z_0-9-]+):( *)(.*)\Z")
_ENTRY = re.compile(r"([a-zA-Z-]+): ('[^']*'|\[[^\]]*\]|\"[^\"]*\"|[^,}\s][^,}]*)")
_FUNCTION = re.compile(r"^name: +(\S+)$", re.MULTILINE)
_SPILLED = re.compile(r"SI_SPILL_S\d+_(?:SAVE|RESTORE)")
_RAISED = frozenset({"tracksDebugUserValues", "hasSpilledSGPRs", "hasSpilledVGPRs", "isCalleeSavedInfoValid"})
_RAISED_ROWS = (
    *("tracksDebugUserValues", "frameInfo.isCalleeSavedInfoValid"),
    *("machineFunctionInfo.hasSpilledSGPRs", "machineFunctionInfo.hasSpilledVGPRs"),
)
"""Fields of these that an allocation may raise, and that a text may leave out: then they are false."""
_DEFAULTS = {
    "false": re.compile(r"(?!tracksRegLiveness|isEntryFunction)"),
    "[]": re.compile(r""),
    "''": re.compile(r""),
    "'$fp_reg'": re.compile(r"frameOffsetReg"),
    "'$sp_reg'": re.compile(r"stackPtrOffsetReg"),
    "'$private_rsrc_reg'": re.compile(r"scratchRSrcReg"),
    "0": re.compile(r""),
    "1": re.compile(r"alignment\Z|dynLDSAlign|maxKernArgAlign"),
    "8": re.compile(r"maxMemoryClusterDWords"),
    "true": re.compile(r"noPhis|noVRegs|returnsVoid|ieee|dx10-clamp|fp32-|fp64-"),
    "4294967295": re.compile(r"maxCallFrameSize\Z"),
}


@lru_cache(maxsize=1)
def subjects() -> dict[str, Subject]:
    """Right pairs with one function, by the names of their cases."""
    found: dict[str, Subject] = {}
    for path in sorted(CASES.glob("right_*.before.mir")):
        before = path.read_text()
        after = path.with_name(path.name.replace(".before.", ".after.")).read_text()
        first = before.split("\n", 1)[0]
        target = re.search(r"target: (\w+)", first)
        names = _FUNCTION.findall(after)
        if target and len(names) == 1 and "verdict: proved" in first and "\r" not in after:
            name = path.name.removesuffix(".before.mir")
            found[name] = Subject(name, target[1], before, after, names[0])
    return found


def _sections(after: str) -> Iterator[tuple[int, str]]:
    """Numbers of the lines above the body, and the row of the table that each belongs to."""
    section = listed = ""
    inside = ir = False
    for number, line in enumerate(after.split("\n")):
        if line == "--- |":
            ir = True
        elif line == "...":
            if inside:
                return
            ir = False
        elif line == "---":
            inside = True
        elif line.startswith("body:"):
            return
        elif ir:
            yield number, f"IR: {_kind(line)}"
        elif inside and line and not line.startswith("#"):
            match = _FIELD.match(line)
            if match and not match[1]:
                section = listed = match[2]
                yield number, section
            elif match:
                listed = f"{section}.{match[2]}"
                yield number, listed
            else:
                yield number, f"{listed}: row"


def _kind(line: str) -> str:
    words = line.split()
    if not words:
        return "empty line"
    if words[0].startswith(("@", "!", "$", "^")):
        return {"@": "global", "!": "metadata", "$": "comdat"}.get(words[0][0], "other")
    return (
        words[0].rstrip(":")
        if words[0] in ("source_filename", "target", "define", "declare", "attributes", "ret", "}", ";")
        else "instruction"
    )


@lru_cache(maxsize=1)
def _where() -> dict[str, list[str]]:
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for name, subject in subjects().items():
        for _, row in _sections(subject.after):
            if name not in rows[row]:
                rows[row].append(name)
        for row in ("bb: liveins", "bb: successors", "bb: name"):
            rows[row].append(name)
    return dict(rows)


def rows() -> list[str]:
    """Fields, lists and kinds of lines of IR that some subject has."""
    return sorted(_where())


def candidates(name: str, turn: int) -> Iterator[tuple[Subject, list[Mutant]]]:
    """Subjects that have such a line, each with its mutants."""
    names = _where()[name]
    for at in range(min(len(names), 8)):
        subject = subjects()[names[(turn + at) % len(names)]]
        yield subject, list(_mutants(subject, name))


def _mutants(subject: Subject, row: str) -> Iterator[Mutant]:
    lines = subject.after.split("\n")
    if row.startswith("bb: "):
        yield from (m for m in _of_blocks(subject, lines, row) if m.after != subject.after)
        return
    before = {row: f"{row.rpartition('.')[2]}: false" for row in _RAISED_ROWS} | _fields(subject.before)
    for number, at in _sections(subject.after):
        if at == row:
            for column, new in _changes(lines, number, row):
                rest = number + 2 if new[-1:] == ["\0"] else number + 1
                new = [n for n in new if n != "\0"]
                after = "\n".join([*lines[:number], *new, *lines[rest:]])
                if after != subject.after:
                    what = f"{lines[number].strip()} became {' / '.join(n.strip() for n in new) or 'nothing'}"
                    yield Mutant(column, after, what, _argument(column, row, lines[number], new, before, subject))


def _fields(text: str) -> dict[str, str]:
    """The lines of a header by their rows."""
    lines = text.split("\n")
    return {row: lines[number].strip() for number, row in _sections(text)}


def _changes(lines: list[str], number: int, row: str) -> Iterator[tuple[str, list[str]]]:
    line = lines[number]
    yield "missing", []
    yield "doubled", [line, line]
    yield "a comment behind it", [line + " # so"]
    yield "text behind it", [line + " x"]
    yield "a tab in it", [line.replace(" ", "\t", 1)]
    yield "indented", ["  " + line]
    yield "unindented", [line.removeprefix(" ")]
    if number + 1 < len(lines) and lines[number + 1] not in ("...", "") and not lines[number + 1].startswith("body"):
        swapped = [lines[number + 1], line]
        yield "swapped with the next", [*swapped, "\0"]
    if row.startswith("IR: "):
        yield from _of_ir(line)
        return
    match = _FIELD.match(line)
    if match and not line.lstrip().startswith("- "):
        blanks, key, gap, value = match.groups()
        for column, new in _values(value):
            yield column, [f"{blanks}{key}:{gap}{new}"]
        yield "misspelt", [f"{blanks}{key}x:{gap}{value}"]
        yield "doubled with another value", [line, f"{blanks}{key}:{gap}{_other(value)}"]
    for entry in _ENTRY.finditer(line if "{" in line or line.startswith("      ") else ""):
        name = entry[1]
        for column, new in _values(entry[2].strip()):
            yield f"{name}: {column}", [line[: entry.start(2)] + new + line[entry.end(2) :]]
        yield (
            f"{name}: missing",
            [(line[: entry.start()] + line[entry.end() :]).replace(", ,", ",").replace("{ , ", "{ ")],
        )
        yield f"{name}: doubled", [line[: entry.end()].rstrip() + f", {entry[0].strip()}" + line[entry.end() :]]


def _other(value: str) -> str:
    return next((new for _, new in _values(value)), "0")


def _values(value: str) -> Iterator[tuple[str, str]]:
    """Other values of a field."""
    if value in ("true", "false"):
        yield "flipped", "false" if value == "true" else "true"
        yield "capitals", value.upper()
        yield "a number for it", "1"
    elif value.lstrip("-").isdigit():
        n = int(value)
        for column, new in (
            ("+ 1", n + 1),
            ("- 1", n - 1),
            ("0", 0),
            ("doubled in value", 2 * n),
            ("large", 4096),
            ("negative", -n - 1),
        ):
            yield column, str(new)
        yield "hexadecimal", hex(n)
        yield "leading zero", f"0{value}"
        yield "2^64", str(1 << 64)
    elif value.startswith("'"):
        for column, new in (
            ("no register", "''"),
            ("another scalar", "'$sgpr50'"),
            ("a pair", "'$sgpr50_sgpr51'"),
            ("a vector register", "'$vgpr50'"),
            ("a virtual register", "'%77'"),
            ("unknown", "'$foo'"),
            ("the stack pointer", "'$sgpr32'"),
            ("vcc", "'$vcc'"),
            ("exec", "'$exec'"),
            ("a quad", "'$sgpr96_sgpr97_sgpr98_sgpr99'"),
            ("without quotes", value.strip("'")),
        ):
            yield column, new
    elif value in ("[]", "[ ]", "[  ]", ""):
        yield "an item", "[ '$vgpr40' ]"
        yield "an item of another kind", "[ 1 ]"
        yield "WWM_REG", "[ WWM_REG ]"
        yield "a row", "\n  - '$vgpr50'"
    else:
        yield "another word", f"{value}x"
        yield "default", "default"
        yield "spill-slot", "spill-slot"
        yield "sgpr-spill", "sgpr-spill"
        yield "variable-sized", "variable-sized"
        yield "scalable-vector", "scalable-vector"
        yield "vgpr_32", "vgpr_32"
        yield "sreg_64", "sreg_64"
    yield "empty", ""


def _of_ir(line: str) -> Iterator[tuple[str, list[str]]]:
    for old, new in (
        ("define ", "define hidden "),
        ("define ", "define internal "),
        ("amdgpu_kernel ", ""),
        ("amdgpu_kernel", "amdgpu_cs"),
        ("void", "i32"),
        ("i32", "i64"),
        ("@", "@x"),
        ("#0", "#1"),
        ("ptr", "ptr addrspace(3)"),
        ("addrspace(1)", "addrspace(3)"),
        (" {", " align 256 {"),
        ("gfx942", "gfx90a"),
        ("nounwind", ""),
        (" }", " noinline }"),
        (" }", ' "amdgpu-num-vgpr"="24" }'),
        (" }", ' "amdgpu-num-sgpr"="32" }'),
        (" }", ' "amdgpu-waves-per-eu"="8,8" }'),
        (" }", ' "amdgpu-waves-per-eu"="0x8" }'),
        (" }", ' "target-features"="+xnack" }'),
        (" }", ' "target-features"="-xnack" }'),
        (" }", ' "target-features"="+sgpr-init-bug" }'),
        (" }", ' "target-features"="+cumode" }'),
        (" }", ' "amdgpu-agpr-alloc"="8" }'),
        (" }", ' "frame-pointer"="all" }'),
        (" }", ' "no-realign-stack" }'),
        (" }", " alignstack=64 }"),
        (" }", ' "amdgpu-lds-size"="65536" }'),
        (" }", ' "amdgpu-flat-work-group-size"="1,1024" }'),
        (" }", ' "amdgpu-no-dispatch-ptr" }'),
        (" }", ' "amdgpu-dynamic-vgpr-block-size"="16" }'),
        (" }", ' "denormal-fp-math"="preserve-sign,preserve-sign" }'),
        ("=", "= "),
        ('="', '="0'),
        (",", ", "),
        ("!0", "!1"),
        ("0", "1"),
        ("64", "32"),
        ("4", "8"),
        ("ret void", "unreachable"),
        (";", "; so"),
        (";", ""),
        ("external", "internal"),
        ("global", "constant"),
        ('"', "'"),
        ("e-m:e", "E-m:e"),
        ("amdgcn", "r600"),
        ("amdhsa", "amdpal"),
        ("(", "(i32 %more, "),
        ("nocallback ", ""),
        ("memory(none)", "memory(read)"),
        ("declare ", "declare hidden "),
        ("volatile ", ""),
        ("load ", "load volatile "),
        ("add ", "sub "),
        ("store ", "store volatile "),
        ("sideeffect ", ""),
    ):
        if old in line:
            yield f"{old.strip()} to {new.strip() or 'nothing'}", [line.replace(old, new, 1)]
            if line.count(old) > 1:
                at = line.rindex(old)
                yield f"last {old.strip()} to {new.strip() or 'nothing'}", [line[:at] + new + line[at + len(old) :]]
    yield "a character more", [line + "}"]
    yield "a comment added", [line + " ; so"]
    yield "an unknown line", [line, "  foo"]
    yield "a second function", ["  define void @second() { ret void }", line]
    yield "module assembly", ['  module asm "s_nop 0"', line]


def _of_blocks(subject: Subject, lines: list[str], row: str) -> Iterator[Mutant]:
    """Live-ins, successors and attributes of blocks."""
    body = next(n for n, line in enumerate(lines) if line.startswith("body:"))
    for number in range(body, len(lines)):
        line = lines[number]
        if row == "bb: name" and line.startswith("  bb."):
            head = line.partition(":")[0].split(" ")[0]
            for column, new in (
                (
                    "attribute added",
                    line.replace(head, f"{head} (machine-block-address-taken)") if "(" not in line else line,
                ),
                ("alignment", line.replace(head, f"{head} (align 64)") if "(" not in line else line),
                ("attributes gone", re.sub(r" \([^)]*\)", "", line)),
                (
                    "inlineasm-br target",
                    line.replace(head, f"{head} (inlineasm-br-indirect-target)") if "(" not in line else line,
                ),
                ("another number", line.replace("bb.0", "bb.77")),
                ("landing pad", line.replace(head, f"{head} (landing-pad)") if "(" not in line else line),
                ("IR block", re.sub(r"%ir-block\.\w+", "%ir-block.zz", line)),
                ("missing", ""),
                ("doubled", f"{line}\n{line}"),
            ):
                branches = any("%bb." in other for other in lines[body:])
                why = "no operand names it" if column == "another number" and not branches else ""
                yield _mutant(subject, lines, number, column, new, why)
        elif row == "bb: liveins" and line.startswith("    liveins:"):
            names = re.findall(r"\$\w+(?::0x\w+)?", line)
            for which, name in enumerate(names):
                rest = [n for k, n in enumerate(names) if k != which]
                used = [
                    r
                    for r in name.split(":")[0].strip("$").split("_")
                    if any(f"${r}" in i for i in lines[number + 1 :])
                ]
                new = "    liveins: " + ", ".join(rest) if rest else ""
                yield _mutant(
                    subject, lines, number, "register missing", new, "" if used and number == body + 2 else _MAYBE
                )
                doubled = "    liveins: " + ", ".join([*names, name])
                yield _mutant(subject, lines, number, "register doubled", doubled, "it only says again what it says")
                other = line.replace(name, "$vgpr251")
                yield _mutant(
                    subject, lines, number, "another register", other, "" if used and number == body + 2 else _MAYBE
                )
                yield _mutant(
                    subject,
                    lines,
                    number,
                    "no lanes of it",
                    line.replace(name, name.split(":")[0] + ":0x0000000000000000"),
                    _MAYBE,
                )
                yield _mutant(
                    subject,
                    lines,
                    number,
                    "some lanes of it",
                    line.replace(name, name.split(":")[0] + ":0x0000000000000001"),
                    _MAYBE,
                )
            yield _mutant(subject, lines, number, "register added", line + ", $vgpr250", "nothing reads it")
            yield _mutant(subject, lines, number, "unknown register", line + ", $foo", "")
            yield _mutant(subject, lines, number, "a virtual register", line + ", %0", "")
            yield _mutant(subject, lines, number, "a second line", f"{line}\n{line}", "")
            yield _mutant(subject, lines, number, "text behind it", f"{line} x", "")
        elif row == "bb: successors" and line.startswith("    successors:"):
            names = re.findall(r"%bb\.\d+(?:\(0x\w+\))?", line)
            changed = {
                "missing": "    successors: ",
                "one less": "    successors: " + ", ".join(names[1:]),
                "swapped": "    successors: " + ", ".join(names[::-1]),
                "doubled": line + ", " + names[0],
                "another": line.replace(names[0], "%bb.0"),
                "unknown": line.replace(names[0], "%bb.99"),
                "a second line": f"{line}\n{line}",
                "probabilities gone": re.sub(r"\(0x\w+\)", "", line),
                "probability": re.sub(r"\(0x\w+\)", "(0x00000001)", line),
            }
            for column, new in changed.items():
                if new != line:
                    why = "probabilities do not matter" if column.startswith("probabilit") else ""
                    same = len(names) == 1 and column == "swapped"
                    yield _mutant(subject, lines, number, column, new, why or ("one is in any order" if same else ""))


_OF_A_ROW = "callee-saved-register: '', callee-saved-restored: true, debug-info-variable: '',"
"""A line of a stack object's row that says what is so without it."""
_MAYBE = "later blocks may not need it, or part of it"


def _mutant(subject: Subject, lines: list[str], number: int, column: str, new: str, why: str) -> Mutant:
    kept = [new] if new else []
    after = "\n".join([*lines[:number], *kept, *lines[number + 1 :]])
    return Mutant(column, after, f"{lines[number].strip()} became {new.strip() or 'nothing'}", why)


def _argument(column: str, row: str, line: str, new: list[str], before: dict[str, str], subject: Subject) -> str:
    """Why a changed header says what it should; ``""``: it does not."""
    field = row.rpartition(".")[2]
    match = _FIELD.match(line)
    value = match[4] if match else ""
    if row.startswith("IR: "):
        return _argument_of_ir(column, line, new)
    if column == "swapped with the next" and new:
        indents = {len(n) - len(n.lstrip()) for n in new}
        values = all((m := _FIELD.match(n)) and (m[4] or n.startswith("  - ")) for n in new) or row.endswith(": row")
        return "fields and rows stand in any order" if len(indents) == 1 and values else ""
    if field == "noVRegs" and column == "flipped":
        return "the text before says the same"
    if (
        column in ("without quotes", "reg: without quotes")
        or "debug-info" in column
        or ("callee-saved" in column and "missing" in column)
        or column.endswith("indented")
    ):
        return "YAML means the same, or only debuggers ask"
    if (
        column in ("type: missing", "offset: missing", "name: missing", "stack-id: missing")
        and "default, offset: 0" in line
    ):
        return "LLVM takes the same where it is absent"
    if column == "missing" and line.strip() == _OF_A_ROW:
        return "LLVM takes the same where it is absent"
    of_entry = before.get("machineFunctionInfo.isEntryFunction", "").endswith("true")
    if column == "missing" and row == "machineFunctionInfo.wwmReservedRegs: row" and of_entry:
        return "an entry function has no caller whose threads wait"
    if column == "missing" and row == "machineFunctionInfo.spillPhysVGPRs: row":
        # Read only by SIMachineFunctionInfo::shiftWwmVGPRsToLowestRange, whose count of lanes no text has.
        return "llc writes the same code without it"
    if "sgpr-spill" in line and (column == "stack-id: default" or column == "missing"):
        return "as with -amdgpu-spill-sgpr-to-vgpr=0"
    if (row, column) == ("stack: row", "id: large") and f"%stack.{line.split()[3][:-1]}" not in subject.after:
        return "nothing names the object, and its number may be another one (13.3)"
    if column == "size: doubled in value" and "type: spill-slot" in line and line.strip() not in subject.before:
        return "an added spill slot may be larger"
    if column == "doubled" and line.lstrip().startswith("- '$"):
        return "a register that is reserved twice is reserved"
    if column == "empty" and value == "[]":
        return "nothing behind the key of a list is an empty list"
    if column == "missing" and value in _DEFAULTS and _DEFAULTS[value].match(field):
        return "LLVM takes the same where it is absent"
    if column == "missing" and (
        (field in _RAISED and before.get(row, "").endswith("false")) or "stack-id: default" in line
    ):
        return "" if field == "hasSpilledSGPRs" and _SPILLED.search(subject.after) else "the text before says the same"
    text = new[0].strip() if len(new) == 1 else ""
    if text and text == before.get(row):
        return "" if field == "hasSpilledSGPRs" and _SPILLED.search(subject.after) else "the text before says the same"
    changed = _FIELD.match(new[0]) if len(new) == 1 else None
    if column == "flipped" and field in _RAISED and value == "false":
        return "an allocation may raise it"
    if field == "maxAlignment" and changed and changed[4].isdigit() and int(changed[4]) <= 16:
        return "a slot of that alignment may have been added"
    if field in ("wwmReservedRegs", "spillPhysVGPRs") and column in ("an item", "a row"):
        return "a register that nothing else names may be reserved"
    if field == "sgprForEXECCopy":
        return "another free scalar, or none, may keep EXEC"
    if "virtual-reg" in column or "preferred-register" in column:
        return "a virtual register that is gone, or a wish"
    if row.startswith(("registers", "liveins")) and column.startswith(("id", "class", "flags", "missing", "doubled")):
        return "it may be of a virtual register that Q does not name" if row.startswith("registers") else ""
    return ""


def _argument_of_ir(column: str, line: str, new: list[str]) -> str:
    if column == "swapped with the next" and any(n.strip().startswith(";") or not n.strip() for n in new):
        return "a comment or an empty line"
    if column == "swapped with the next" and line.strip() == "}":
        return "LLVM does not read such a module: nothing is compiled"
    if line.strip().startswith(";") or not line.strip():
        rest = [n for n in new if n.strip() and not n.strip().startswith(";")]
        return "" if rest else "a comment or an empty line"
    if column == "a comment added":
        return "a comment"
    return ""
