"""Mutations of the YAML part: fields that later passes believe, stack objects, reserved registers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mutants.moves import VALUE
from mutants.subject import Edit, Mutation, Subject
from verilocc_mlir.mir.model import OperandKind

HEADER = frozenset({"header"})
_FIELD = re.compile(r"( *)([\w-]+):( +)(\S.*)\Z")
_LISTS = ("registers", "liveins", "fixedStack", "stack", "body", "name", "entry_values", "callSites", "constants",
          "debugValueSubstitutions")  # fmt: skip
RECOMPUTED = frozenset({
    "noVRegs", "failsVerification", "tracksDebugUserValues", "isSSA", "hasCalls", "adjustsStack", "maxAlignment",
    "isCalleeSavedInfoValid", "occupancy", "hasSpilledSGPRs", "hasSpilledVGPRs", "sgprForEXECCopy",
    "vgprForAGPRCopy", "maxCallFrameSize", "hasDebugInfo",
})  # fmt: skip
"""Fields that an allocator or a later pass may set otherwise; some of their values do no harm."""


def _lines(subject: Subject) -> list[tuple[int, re.Match[str]]]:
    """Scalar fields outside the tables, by line number."""
    found: list[tuple[int, re.Match[str]]] = []
    section = ""
    for n, line in enumerate(subject.post.header_lines):
        if not line.startswith((" ", "-")):
            section = line.partition(":")[0]
        if section not in _LISTS and (match := _FIELD.match(line)) and not match[4].startswith("{"):
            found.append((n, match))
    return found


def _other(value: str, rng: random.Random) -> str:
    if value in ("true", "false"):
        return "false" if value == "true" else "true"
    if re.fullmatch(r"-?\d+", value):
        number = int(value)
        return str(rng.choice((number + 1, 2 * number + 4, number + 64, max(number - 1, 0) if number else 7)))
    if value.startswith("'$"):
        return rng.choice(("'$sgpr33'", "'$sgpr20'", "'$sgpr8_sgpr9_sgpr10_sgpr11'", "''"))
    return rng.choice(("'$sgpr20'", "'$vgpr9'", "'%stack.0'"))


def _field_edits(subject: Subject, rng: random.Random, recomputed: bool) -> Iterator[Edit]:
    rows = [(n, m) for n, m in _lines(subject) if (m[2] in RECOMPUTED) == recomputed]
    while rows:
        n, match = rng.choice(rows)
        value = _other(match[4], rng)
        if value != match[4]:
            header = list(subject.post.header_lines)
            header[n] = f"{match[1]}{match[2]}:{match[3]}{value}"
            yield Edit(replace(subject.post, header_lines=tuple(header)), f"{match[2]} {value} for {match[4]}")


def kept_field(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A field that allocation leaves alone."""
    yield from _field_edits(subject, rng, False)


def recomputed_field(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A field that allocation or a later pass sets: calls, alignment, occupancy, scratch registers."""
    yield from _field_edits(subject, rng, True)


def believed_field(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A field with a value that is untrue and that frame lowering believes."""
    body = [i for _, i in subject.lines]
    calls = any(op.kind is OperandKind.REGMASK for i in body for op in i.operands)
    named = sorted({op.phys for i in body for op in i.all_operands if re.fullmatch(r"[sv]gpr\d+", op.phys)})
    while True:
        key, value = rng.choice((
            ("maxAlignment", str(rng.choice((16, 32, 64, 256)))),
            ("hasCalls", "false" if calls else ""),
            ("adjustsStack", "false" if calls else ""),
            ("sgprForEXECCopy", f"'${rng.choice(named)}'" if named else ""),
            ("vgprForAGPRCopy", f"'${rng.choice(named)}'" if named else ""),
        ))  # fmt: skip
        row = next(((n, m) for n, m in _lines(subject) if m[2] == key), None)
        if row is None or not value:
            if rng.random() < 0.01:
                return
            continue
        n, match = row
        if value == match[4]:
            continue
        header = list(subject.post.header_lines)
        header[n] = f"{match[1]}{key}:{match[3]}{value}"
        yield Edit(replace(subject.post, header_lines=tuple(header)), f"{key} {value} for {match[4]}")


def _with_row(subject: Subject, old: str, new: str, what: str) -> Edit | None:
    text = "\n".join(subject.post.header_lines)
    if old not in text:
        return None
    changed = text.replace(old, new, 1)
    return Edit(replace(subject.post, header_lines=tuple(changed.split("\n"))), what) if changed != text else None


def stack_object(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A field of a stack object, fixed ones included."""
    rows = [*subject.post.stack.values(), *subject.post.fixed_stack.values()]
    for row in rng.sample(rows, len(rows)) * 4:
        changes = (
            (r"\bsize: \d+", f"size: {max(row.size // 2, 2) if rng.random() < 0.5 else 2 * row.size + 4}"),
            (r"\balignment: \d+", f"alignment: {rng.choice((1, 32, 128))}"),
            (r"\btype: [a-z-]+", "type: default" if row.type != "default" else "type: spill-slot"),
            (r"\bstack-id: [a-z-]+", rng.choice(("stack-id: sgpr-spill", "stack-id: scalable-vector"))),
            (r"\boffset: -?\d+", f"offset: {rng.choice((4, 16, -8))}"),
            (r"\bcallee-saved-register: '[^']*'", "callee-saved-register: '$vgpr40'"),
            (r"\bisImmutable: \w+", "isImmutable: " + ("false" if "isImmutable: true" in row.text else "true")),
        )
        pattern, new = rng.choice(changes)
        text = re.sub(pattern, new, row.text, count=1)
        edit = _with_row(subject, row.text, text, f"stack object {row.id}: {new}")
        if edit is not None and text != row.text:
            yield edit


def stack_object_dropped(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """An object of the program is no longer in the table."""
    rows = [r for n, r in subject.post.stack.items() if n in subject.pre.stack]
    rows += list(subject.post.fixed_stack.values())
    rng.shuffle(rows)
    for row in rows:
        edit = _with_row(subject, row.text + "\n", "", f"stack object {row.id} dropped")
        if edit is not None:
            yield edit


def reserved_list(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A register of whole-wave code or of spilled scalars is no longer reserved."""
    rows = [n for n, line in enumerate(subject.post.header_lines) if re.match(r" +- '\$", line)]
    rng.shuffle(rows)
    for n in rows:
        header = subject.post.header_lines
        yield Edit(replace(subject.post, header_lines=header[:n] + header[n + 1 :]), f"{header[n].strip()} dropped")


def entry_live_in(subject: Subject, rng: random.Random) -> Iterator[Edit]:
    """A row of the function's live-in registers dropped, exchanged or added."""
    rows = [n for n, line in enumerate(subject.post.header_lines) if line.startswith("  - { reg: '$")]
    while rows:
        n = rng.choice(rows)
        header = list(subject.post.header_lines)
        kind = rng.randrange(3)
        if kind == 0:
            what = f"{header.pop(n).strip()} dropped"
        elif kind == 1:
            header[n] = re.sub(r"\$\w+", "$sgpr70", header[n], count=1)
            what = "another live-in register"
        else:
            header.insert(n, "  - { reg: '$sgpr70', virtual-reg: '' }")
            what = "one live-in register more"
        yield Edit(replace(subject.post, header_lines=tuple(header)), what)


CLASSES = (
    Mutation("header: kept field", HEADER | {"unsupported"}, kept_field, always=True),
    Mutation("header: field of later passes", HEADER | {"reserved-register"}, recomputed_field),
    Mutation("header: believed field", HEADER | {"reserved-register"}, believed_field, always=True),
    Mutation("header: stack object", HEADER | VALUE | {"spill-slot"}, stack_object),
    Mutation(
        "header: stack object dropped",
        HEADER | VALUE | {"spill-slot", "memory-operands", "operands"},
        stack_object_dropped,
        always=True,
    ),
    Mutation("header: reserved list", HEADER | {"reserved-register", "callee-saved"}, reserved_list, always=True),
    Mutation("header: live-in register", HEADER, entry_live_in, always=True),
)
