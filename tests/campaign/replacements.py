"""Every kind of replacement of every operand of an instruction, its memory operand, its flags and its place.

Each comes with the argument that it changes nothing, where there is one: see ``Edit.equivalent``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from campaign.shapes import Instruction, Op, Shaped, opcodes_by_shape, register_name
from campaign.subject import Mutant
from smt_verifier.checker.tables import Register, tables

SPECIALS = (
    "vcc", "vcc_lo", "vcc_hi", "exec", "exec_lo", "exec_hi", "m0", "scc", "mode", "noreg", "sgpr_null", "sgpr_null64",
    "flat_scr", "flat_scr_lo", "flat_scr_hi", "xnack_mask", "tba", "tma", "lds_direct", "src_vccz", "src_execz",
    "src_scc", "src_shared_base", "src_shared_base_lo", "src_private_limit", "src_pops_exiting_wave_id", "fp_reg",
    "sp_reg", "pc_reg", "private_rsrc_reg", "m0_lo16", "vcc_lo_lo16", "exec_lo_hi16", "asynccnt", "tensorcnt",
)  # fmt: skip
"""Registers outside the numbered files; each is a kind of replacement."""
_KINDS = (
    ("vcc", "VCC"), ("exec", "EXEC"), ("m0", "M0"), ("scc", "SCC"), ("mode", "MODE"), ("noreg", "null"),
    ("sgpr_null", "null"),
    ("src_vccz", "what shows another"), ("src_execz", "what shows another"), ("src_scc", "what shows another"),
    ("src_", "a constant"), ("fp_reg", "a pseudo register"), ("sp_reg", "a pseudo register"),
    ("pc_reg", "a pseudo register"), ("private", "a pseudo register"),
)  # fmt: skip


def special(name: str) -> str:
    """What kind of special register it is: a column of the coverage table."""
    return next((kind for start, kind in _KINDS if name.startswith(start)), "a reserved register")


NUMBERED = ("sgpr32", "sgpr96", "sgpr104", "sgpr105", "vgpr255", "vgpr256", "agpr255", "ttmp4", "ttmp4_ttmp5")
"""The stack pointer, the scratch descriptor, what is beyond a budget or a file, and trap registers."""
OTHERS = {
    "immediate 0": "0", "immediate 1": "1", "immediate -1": "-1", "immediate 64": "64", "literal": "305419896",
    "frame index": "%stack.0", "global": "@g", "block": "%bb.0", "register mask": "csr_amdgpu", "symbol": "&s",
    "constant": "i32 0", "metadata": "!0",
}  # fmt: skip
_UNREAD = "nothing reads it behind the instruction"
_WRITTEN = "nothing reads it behind the instruction, or the instruction writes it anyhow"
_TOGGLED = ("killed", "dead", "undef", "early-clobber", "implicit", "implicit-def", "internal", "renamable")
FLAGS = (
    "frame-setup", "frame-destroy", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "nuw", "nsw", "exact",
    "nofpexcept", "nomerge", "unpredictable", "noconvergent", "nneg", "disjoint", "nusw", "samesign", "inbounds",
    "lr-split", "bb-prolog",
)  # fmt: skip
TAILS = (
    "pre-instr-symbol <mcsymbol a>", "post-instr-symbol <mcsymbol a>", "heap-alloc-marker !0", "pcsections !0",
    "cfi-type 1", "mmra !0", "deactivation-symbol @g",
)  # fmt: skip
MEMORY = {
    "volatile": ("(", "(volatile "), "non-temporal": ("(", "(non-temporal "), "invariant": ("(", "(invariant "),
    "dereferenceable": ("(", "(dereferenceable "), "target flag": ("(", '("amdgpu-noclobber" '),
    "last use": ("(", '("amdgpu-last-use" '), "size": ("(s32)", "(s64)"), "type": ("(s32)", "(<2 x s16>)"),
    "unknown size": ("(s32)", "unknown-size"), "pointer": ("%ir.p", "@g"), "no pointer": (None, None),
    "offset": ("%ir.p", "%ir.p + 4"), "negative offset": ("%ir.p", "%ir.p - 4"), "align": (", addr", ", align 1, addr"),
    "basealign": (", addr", ", align 4, basealign 16, addr"), "address space": ("addrspace 1", "addrspace 3"),
    "no address space": (", addrspace 1", ""), "way": (None, None), "ordering": (" (s32)", " seq_cst (s32)"),
    "monotonic": (" (s32)", " monotonic (s32)"), "scope": (" (s32)", ' syncscope("agent") monotonic (s32)'),
    "tbaa": (", addr", ", !tbaa !0, addr"), "alias.scope": (", addr", ", !alias.scope !0, addr"),
    "noalias": (", addr", ", !noalias !0, addr"), "range": (", addr", ", !range !0, addr"),
    "noalias.addrspace": (", addr", ", !noalias.addrspace !0, addr"),
    "dropped": (None, None), "doubled": (None, None), "added": (None, None), "slot": ("%ir.p", "%stack.0"),
    "stack": ("%ir.p", "stack"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the instruction; ``equivalent`` as for a ``Mutant``."""

    column: str
    line: str
    what: str
    equivalent: str = ""


def mutants(shaped: Shaped) -> Iterator[Mutant]:
    """All of them."""
    own = shaped.instruction.printed(after=True)
    for edit in edits(shaped):
        if edit.line != own:
            yield Mutant(edit.column, shaped.with_line(edit.line), edit.what, edit.equivalent)


def edits(shaped: Shaped) -> Iterator[Edit]:
    """All replacements of the instruction's line."""
    i = shaped.instruction
    for number, op in enumerate(i.ops):
        role = {"imm": "immediate", "mask": "register mask"}.get(op.role, op.role)
        for column, new, why in _of(shaped, number, op):
            ops = (*i.ops[:number], *new, *i.ops[number + 1 :])
            # Definitions stand left of "=": what is no register cannot.
            if any(o.role == "def" and not o.name for o in ops):
                continue
            line = _printed(replace(i, ops=ops))
            yield Edit(f"{role}: {column}", line, f"operand {number} {op.name}: {column}", why)
    yield from _added(shaped)
    yield from _memory(i)
    yield from _marks(shaped)


def _printed(instruction: Instruction) -> str:
    return instruction.printed(after=True)


def _of(shaped: Shaped, number: int, op: Op) -> Iterator[tuple[str, tuple[Op, ...], str]]:
    """Replacements of one operand: the column, what stands in its place, and why that changes nothing."""
    later = shaped.read_later
    unread = "" if later else "nothing is read behind the end of the function"
    result_unread = unread if op.role == "def" else ""
    if not op.is_register:
        yield from _of_literal(shaped, number, op)
        return
    for column, name in _names(shaped, number, op):
        alias = (op.name, name) == ("vcc_lo", "vcc") and op.role.startswith("implicit")
        same = "LLVM takes an implicit VCC for VCC_LO on wave32 (GCNSubtarget::mirFileLoaded)" if alias else ""
        yield column, (replace(op, name=name),), result_unread or same
    if op.role != "def":
        for column, text in OTHERS.items():
            yield column, (Op("imm", text, text),), ""
    if op.cls is not None:
        yield "virtual register", (replace(op, name=f"\0{op.before}"),), ""
        yield "new virtual register", (replace(op, name=f"\0%99:{op.cls.name}"),), ""
        yield "low-level type", (replace(op, name=op.name + "(s32)"),), ""
        yield "subregister", (replace(op, name=op.name + ".sub0"),), ""
    yield "dropped", (), ""
    yield "doubled", (op, op), "it only says again what it says" if op.role.startswith("implicit") else ""
    for flag in _TOGGLED:
        yield f"flag {flag}", (replace(op, flags=op.flags ^ {flag}),), _harmless(shaped, number, op, flag)
    if op.tied >= 0:
        row = shaped.opcode.operands
        by_table = number < len(row) and row[number].tied_to == op.tied
        yield "tie dropped", (replace(op, tied=-1),), "the table ties it all the same" if by_table else ""
        yield "tied to another", (replace(op, tied=op.tied + 1),), ""
        name = shaped.spare.get(number) or shaped.spare.get(op.tied)
        if name:
            yield "tie broken by its use", (replace(op, name=name),), ""
    elif op.role in ("use", "implicit"):
        yield "tie added", (replace(op, tied=0),), ""


def _harmless(shaped: Shaped, number: int, op: Op, flag: str) -> str:
    """Why a flag of this operand, added or dropped, says nothing that is untrue; ``""`` where it does."""
    is_def = op.role in ("def", "implicit-def")
    if flag == "renamable":
        return "it only allows that other registers are chosen" if flag in op.flags else ""
    if flag == "undef" and is_def:
        return "no other lane of the register is left undefined"
    if flag in op.flags:
        return ""
    if flag == "killed" and not is_def:
        again = any(o.role in ("def", "implicit-def") and _overlap(o.name, op.name) for o in shaped.instruction.ops)
        if again:
            return "the instruction writes it anew"
        return "" if _kept(op.name) or (shaped.read_later and op.role == "use") else _UNREAD
    if flag == "dead" and is_def:
        return "" if _kept(op.name) or shaped.read_later else _UNREAD
    return ""


def _kept(name: str) -> bool:
    """A register that no text declares and every instruction may read (11): EXEC, MODE, M0, FLAT_SCRATCH."""
    register = tables().register(name)
    return register is not None and register.file == "x" and "reserved" in register.marks


def _overlap(a: str, b: str) -> bool:
    one, other = tables().register(a), tables().register(b)
    return one is not None and other is not None and not {*one.units}.isdisjoint(other.units)


def _names(shaped: Shaped, number: int, op: Op) -> Iterator[tuple[str, str]]:
    """Other registers in its place."""
    own = tables().register(op.name)
    ops = shaped.instruction.ops
    if number in shaped.spare:
        yield "another register", shaped.spare[number]
    if number in shaped.free:
        yield "undefined register", shaped.free[number]
    sibling = next((o.name for o in ops if o.cls is not None and o.name != op.name and _alike(o.name, op.name)), None)
    if sibling:
        yield "register of another operand", sibling
    other = next((o.name for o in ops if o.cls is not None and not _alike(o.name, op.name)), None)
    if other:
        yield "register of another width or file", other
    if own is not None and own.first >= 0:
        yield from _near(own)
    for name in SPECIALS:
        yield special(name), name
    for name in NUMBERED:
        yield f"${name}", name


def _alike(a: str, b: str) -> bool:
    one, other = tables().register(a), tables().register(b)
    return one is not None and other is not None and (one.file, len(one.units)) == (other.file, len(other.units))


def _near(own: Register) -> Iterator[tuple[str, str]]:
    width = max(1, len(own.units) // 2)
    if len(own.units) == 1:
        base = register_name(own.file, own.first, 1)
        yield "other half", base + ("_lo16" if own.name.endswith("hi16") else "_hi16")
        yield "wider", base
    elif width == 1:
        yield "lower half", own.name + "_lo16"
        yield "upper half", own.name + "_hi16"
    else:
        yield "lower half", register_name(own.file, own.first, width // 2)
        yield "upper half", register_name(own.file, own.first + width - width // 2, width // 2)
        yield "one narrower", register_name(own.file, own.first, width - 1)
    yield "one wider", register_name(own.file, own.first, width + 1)
    yield "twice as wide", register_name(own.file, own.first, 2 * width)
    yield "shifted up", register_name(own.file, own.first + 1, width)
    yield "shifted up by two", register_name(own.file, own.first + 2, width)
    if own.first:
        yield "shifted down", register_name(own.file, own.first - 1, width)
    for file in "vas":
        if file != own.file:
            yield f"file {file}", register_name(file, own.first, width)
            yield f"file {file}, far", register_name(file, own.first + 36, width)


def _of_literal(shaped: Shaped, number: int, op: Op) -> Iterator[tuple[str, tuple[Op, ...], str]]:
    for column, text in {
        **OTHERS,
        "immediate 15": "15",
        "immediate 16": "16",
        "immediate 1 << 32": "4294967296",
    }.items():
        if text != op.name:
            yield column, (Op("imm", text, text),), ""
    for column, text in {
        "no register mask": "csr_amdgpu_noregs", "another register mask": "csr_amdgpu_gfx",
        "custom mask": "CustomRegMask($vgpr40,$sgpr40)", "empty mask": "CustomRegMask()", "next block": "%bb.2",
        "target flags": "target-flags(amdgpu-rel32-lo) @g", "subregister index": "%subreg.sub0",
    }.items():  # fmt: skip
        yield column, (Op("imm", text, text),), ""
    spare = next(iter(shaped.spare.values()), "vgpr0")
    yield "register", (Op("use", "", spare, frozenset({"renamable"})),), ""
    yield "$exec", (Op("use", "", "exec"),), ""
    yield "dropped", (), ""
    yield "doubled", (op, op), ""


def _added(shaped: Shaped) -> Iterator[Edit]:
    """Operands behind the others."""
    i = shaped.instruction
    base = i.printed(after=True)
    line = base.removesuffix(i.rest)
    separator = ", " if any(o.role != "def" for o in i.ops) else " "

    def edit(column: str, operand: str, why: str = "") -> Edit:
        return Edit(f"added: {column}", f"{line}{separator}{operand}{i.rest}", f"{operand} was added", why)

    later = "" if shaped.read_later else "nothing is read behind the end of the function"
    register = next(((n, o) for n, o in enumerate(i.ops) if o.cls is not None), None)
    own = register[1].name if register else ""
    used = next((o.name for o in i.ops if o.role == "use" and o.cls is not None and o.tied < 0), "")
    result = next((o.name for o in i.ops if o.role == "def"), "")
    spare = shaped.spare.get(register[0], "") if register else "vgpr9"
    free = shaped.free.get(register[0], "") if register else "vgpr8"
    if own:
        says = "it reads that anyhow, or says that it is live"
        yield edit("implicit use of its own", f"implicit ${own}", says)
        yield edit("implicit undef use of its own", f"implicit undef ${own}", "an undef use reads nothing")
        yield edit("explicit use", f"renamable ${own}")
        yield edit("implicit internal use", f"implicit internal ${own}", "outside a bundle it reads nothing")
    if spare:
        yield edit(
            "implicit use of another", f"implicit ${spare}", "a register that holds something is only said to be live"
        )
        yield edit("implicit killed use of another", f"implicit killed ${spare}", "nothing else reads that register")
        yield edit("implicit-def of another", f"implicit-def ${spare}", "nothing else reads that register")
    if free:
        yield edit("implicit-def of a free one", f"implicit-def ${free}", "nothing else reads that register")
        yield edit("dead implicit-def of a free one", f"implicit-def dead ${free}", "nothing else reads that register")
        early = "nothing else reads that register"
        yield edit("early-clobber implicit-def", f"implicit-def dead early-clobber ${free}", early)
        yield edit("implicit use of an undefined one", f"implicit ${free}")
    if used:
        yield edit("implicit-def of a source", f"implicit-def ${used}", later)
        yield edit("dead implicit-def of a source", f"implicit-def dead ${used}", later)
        yield edit("early-clobber implicit-def of a source", f"implicit-def early-clobber ${used}", later)
        yield edit("implicit killed use of a source", f"implicit killed ${used}", later)
        yield edit(
            "implicit def and use of a source", f"implicit-def ${used}, implicit ${used}", "it reads and keeps it"
        )
    if result:
        yield edit("implicit-def of a result", f"implicit-def ${result}", "it writes that anyhow")
        yield edit("dead implicit-def of a result", f"implicit-def dead ${result}", later)
    for name in SPECIALS:
        has = tables().register(name)
        dead = has is None or not has.units
        why = "no storage" if dead else ""
        says = why or ("it reads that anyhow" if any(o.is_register and _overlap(o.name, name) for o in i.ops) else "")
        yield edit("implicit use of a special register", f"implicit ${name}", says)
        harmless = name.startswith(("vcc", "scc"))
        yield edit("implicit-def of a special register", f"implicit-def ${name}", why or (_WRITTEN if harmless else ""))
    for text in OTHERS.values():
        yield edit("operand that is no register", text)


def _memory(i: Instruction) -> Iterator[Edit]:
    base = _printed(i)
    line = base.removesuffix(i.rest)
    for column, (old, new) in MEMORY.items():
        rest = i.rest
        if not rest:
            if column == "added":
                rest = " :: (load (s32) from %ir.p, addrspace 1)"
        elif column == "dropped":
            rest = ""
        elif column == "doubled":
            rest += ", " + rest.removeprefix(" :: ")
        elif column == "added":
            rest += ", (load (s32) from @g, addrspace 1)"
        elif column == "no pointer":
            for word in (" from", " into", " on"):
                rest = rest.replace(f"{word} %ir.p", "")
        elif column == "way":
            if "load store" in rest:
                rest = rest.replace("load store", "load").replace(" on ", " from ")
            elif "load" in rest:
                rest = rest.replace("load", "store").replace(" from ", " into ")
            else:
                rest = rest.replace("store", "load").replace(" into ", " from ")
        elif old is not None and new is not None:
            rest = rest.replace(old, new, 1)
        if rest != i.rest:
            yield Edit(f"memory: {column}", line + rest, f"memory operand: {column}")


def _marks(shaped: Shaped) -> Iterator[Edit]:
    """Flags, attributes, the opcode, and where the instruction stands."""
    i = shaped.instruction
    base = _printed(i)
    for flag in FLAGS:
        yield Edit("instruction flag added", _printed(replace(i, flags=(flag,))), f"flag {flag} was added")
    for tail in TAILS:
        line = base.removesuffix(i.rest)
        separator = ", " if any(o.role != "def" for o in i.ops) else " "
        yield Edit(f"attribute {tail.split()[0]}", f"{line}{separator}{tail}{i.rest}", f"{tail} was added")
    names = opcodes_by_shape()[shaped.shape]
    data = tables()
    own = shaped.opcode.value("canon") or i.opcode
    other = next((n for n in reversed(names) if n != i.opcode), None)
    if other is not None:
        opcode = data.opcode(other)
        same = opcode is not None and (opcode.value("canon") or other) == own
        yield Edit("opcode: same shape", _printed(replace(i, opcode=other)), other, "one instruction" if same else "")
    for column, name in (("S_NOP", "S_NOP"), ("KILL", "KILL"), ("IMPLICIT_DEF", "IMPLICIT_DEF"), ("COPY", "COPY")):
        if name != i.opcode:
            yield Edit(f"opcode: {column}", _printed(replace(i, opcode=name)), name)
    yield Edit("instruction dropped", "", "it is gone", _may_be_dropped(shaped))
    yield Edit("instruction doubled", base + "\n" + base, "it stands twice", _may_be_doubled(shaped))
    yield Edit("in a bundle", f"    BUNDLE {{\n  {base}\n    }}", "it stands in a bundle")
    yield Edit("behind S_NOP", f"    S_NOP 0\n{base}", "an S_NOP stands before it")
    yield Edit("behind another write of EXEC", f"    $exec_lo = S_MOV_B32 0\n{base}", "EXEC is written before it")


def _may_be_dropped(shaped: Shaped) -> str:
    if "no-code" in shaped.opcode.traits:
        return "it has no code"
    return ""


def _may_be_doubled(shaped: Shaped) -> str:
    """A pure instruction may be executed again, where its sources are still there."""
    opcode = shaped.opcode
    if "no-code" in opcode.traits:
        return "it has no code"
    if opcode.traits.isdisjoint(("pure", "pure-exec", "scalar-load", "copy", "wwm-copy")) and not opcode.value("spill"):
        return ""
    kept = not any(o.tied >= 0 for o in shaped.instruction.ops)
    return "it computes the same again" if kept else ""
