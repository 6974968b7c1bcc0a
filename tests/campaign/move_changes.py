"""What may become of one move: other registers, flags, operands, memory operands, opcodes."""

from __future__ import annotations

from collections.abc import Iterator

from campaign.move_forms import Form


def changes(f: Form, line: str, which: str, number: int, *, again: bool) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What becomes of one move, the lines in its place, and why they are right.

    Args:
        line: move ``number`` of those that move the value ``which`` way, ``out`` or ``back``.
        again: the value is moved out of its register more than once, so that the register must keep it.
    """
    yield "dropped", (), "it has no code" if "IMPLICIT_DEF" in line else ""
    yield "doubled", (line, line), "it moves the same again"
    head, equals, tail = line.partition(" = ")
    if not equals:
        head, tail = "", line
    others = {
        "another vector register": "vgpr9",
        "another scalar": "sgpr9",
        "another pair": "vgpr8_vgpr9",
        "a scalar pair": "sgpr8_sgpr9",
        "an accumulator": "agpr9",
        "vcc": "vcc",
        "vcc_lo": "vcc_lo",
        "exec": "exec",
        "exec_lo": "exec_lo",
        "m0": "m0",
        "scc": "scc",
        "null": "sgpr_null",
        "flat_scr": "flat_scr",
        "ttmp4": "ttmp4",
        "half": "vgpr9_lo16",
        "noreg": "noreg",
        "the stack pointer": "sgpr32",
        "src_vccz": "src_vccz",
        "src_scc": "src_scc",
        "src_shared_base": "src_shared_base",
        "mode": "mode",
        "xnack_mask": "xnack_mask",
        "beyond": "vgpr256",
    }
    for column, name in others.items():
        for own in ("{s}", "{r}", "vgpr44", "vgpr40", "agpr40", "vcc", "sgpr0", "sgpr1", "sgpr40", "sgpr41"):
            explicit, comma, implicit = tail.partition(", implicit")
            if f"${own}" in explicit:
                changed = explicit.replace(f"${own}", f"${name}", 1)
                yield f"source {column}", (f"{head}{equals}{changed}{comma}{implicit}",), ""
                break
        for own in ("{r}", "vgpr44", "vgpr40", "agpr40", "vcc", "sgpr40", "sgpr41"):
            if f"${own}" in head:
                yield f"target {column}", (f"{head.replace(f'${own}', f'${name}', 1)}{equals}{tail}",), ""
                break
    if "${s}" in tail.partition(", implicit")[0]:
        yield "source undef", (line.replace("${s}", "undef ${s}", 1),), ""
        yield "source killed", (line.replace("${s}", "killed ${s}", 1),), "" if again else "nothing else reads it"
        yield "source virtual", (line.replace("${s}", "%1", 1),), ""
    if "renamable ${r}" in head:
        yield "target dead", (line.replace("renamable ${r}", "dead renamable ${r}", 1),), ""
        yield (
            "target not renamable",
            (line.replace("renamable ${r}", "${r}", 1),),
            "it only allows that others are chosen",
        )
        yield (
            "target undef",
            (line.replace("renamable ${r}", "undef renamable ${r}", 1),),
            "nothing else of it is undefined",
        )
        yield (
            "target early-clobber",
            (line.replace("renamable", "early-clobber renamable", 1),),
            "source and target are two",
        )
    for column, flag in (
        ("nofpexcept", "nofpexcept "),
        ("nuw", "nuw "),
        ("frame-setup", "frame-setup "),
        ("lr-split", "lr-split "),
    ):
        code = tail if not tail.startswith("lr-split") else tail.removeprefix("lr-split ")
        why = "it is the mark of a copy that splits a live range" if column == "lr-split" and "COPY" in line else ""
        yield f"flag {column}", (f"{head}{equals}{flag}{code}",), why
    memory = " :: " in tail
    code, _, rest = tail.partition(" :: ")

    def with_operand(operand: str) -> str:
        return f"{head}{equals}{code}, {operand}" + (f" :: {rest}" if memory else "")

    if ", implicit ${s}" in tail:
        why = "" if "implicit-def ${s}" in tail else "it is only said to be live"
        yield "implicit use dropped", (line.replace(", implicit ${s}", ""),), why
    # Behind the first of several moves that each write a part, it says that the other parts are written too.
    rest_lost = number > 0 and (which == "back" or not f.back)
    yield "implicit-def of the target", (with_operand("implicit-def ${r}"),), "" if rest_lost else _WRITES
    # What it also reads implicitly, it keeps.
    lost = (
        ""
        if again and not f.again and "implicit ${s}" not in code
        else "nothing reads the source any more, or it keeps it"
    )
    yield "implicit-def of the source", (with_operand("implicit-def ${s}"),), lost
    yield "implicit use of the source", (with_operand("implicit ${s}"),), "it is only said to be live"
    yield "implicit-def of another", (with_operand("implicit-def $vgpr200"),), "nothing reads it"
    yield "implicit-def of the stack pointer", (with_operand("implicit-def $sgpr32"),), ""
    yield "implicit-def of exec", (with_operand("implicit-def $exec"),), ""
    yield "implicit-def of m0", (with_operand("implicit-def $m0"),), ""
    yield "explicit operand added", (f"{head}{equals}{code}, 0" + (f" :: {rest}" if memory else ""),), ""
    yield "attribute", (with_operand("post-instr-symbol <mcsymbol a>"),), ""
    yield "in a bundle", ("BUNDLE {{", f"  {line}", "}}"), ""
    yield "KILL of the target behind it", (line, "KILL killed ${r}"), _HIDES if which == "out" and f.back else ""
    yield "IMPLICIT_DEF behind it", (line, "renamable ${r} = IMPLICIT_DEF"), _HIDES if which == "out" and f.back else ""
    yield "IMPLICIT_DEF of another behind it", (line, "renamable $vgpr200 = IMPLICIT_DEF"), "nothing reads it"
    if memory:
        for column, old, new in (
            ("volatile", "(store", "(volatile store"),
            ("volatile load", "(load", "(volatile load"),
            ("size", "(s", "(s1"),
            ("object", "into %stack.0", "into %stack.1"),
            ("object of a load", "from %stack.0", "from %stack.1"),
            ("offset", "%stack.0,", "%stack.0 + 4,"),
            ("align", "addrspace", "align 16, addrspace"),
            ("space", "addrspace 5", "addrspace 3"),
            ("basealign", ", addrspace", ", align 2, basealign 4, addrspace"),
            ("value", "%stack.0", "%ir.p"),
        ):
            if old in rest:
                yield f"memory {column}", (f"{head}{equals}{code} :: {rest.replace(old, new, 1)}",), ""
        yield "memory dropped", (f"{head}{equals}{code}",), ""
        yield "memory doubled", (f"{line}, {rest}",), ""
    if "%stack.0" in code:
        yield "slot", (line.replace("%stack.0", "%stack.1"),), ""
        yield "slot of the operand alone", (line.replace("%stack.0", "%stack.1", 1),), ""
        yield "offset 4", (line.replace("$sgpr32, 0,", "$sgpr32, 4,"),), ""
        yield "offset -4", (line.replace("$sgpr32, 0,", "$sgpr32, -4,"),), ""
        yield "pointer", (line.replace("$sgpr32", "$sgpr33", 1),), ""
        yield "exec missing", (line.replace(", implicit $exec_lo", "").replace(", implicit $exec", ""),), ""
        for old, new in (
            ("AV", "V"),
            ("_V", "_AV"),
            ("_V", "_A"),
            ("_S", "_V"),
            ("_V", "_S"),
            ("32_", "64_"),
            ("64_", "32_"),
            ("128_", "96_"),
            ("WWM_", ""),
            ("SPILL_V", "SPILL_WWM_V"),
            ("SPILL_AV", "SPILL_WWM_AV"),
            ("SPILL_V", "SPILL_S"),
        ):
            if old in code and (changed := code.replace(old, new, 1)) != code:
                yield f"opcode {old} to {new}", (f"{head}{equals}{changed} :: {rest}",), _same_spill(old, new)
    if "VGPR" in code and ", 3" in code:
        for column, thread in (
            ("lane 4", "4"),
            ("lane 0", "0"),
            ("lane 64", "64"),
            ("lane -1", "-1"),
            ("lane a register", "$sgpr9"),
        ):
            yield column, (line.replace(", 3", f", {thread}"),), ""
        yield "tie dropped", (line.replace("(tied-def 0)", ""),), "the table ties it all the same"
        yield "tied to undef", (line.replace("killed $vgpr44", "undef $vgpr44"),), "no other lane holds anything"
    for old, new in (
        ("COPY", "WWM_COPY"),
        ("COPY", "V_MOV_B32_e32"),
        ("COPY", "S_MOV_B32"),
        ("S_MOV_B32", "S_BREV_B32"),
        ("V_MOV_B32_e32", "V_NOT_B32_e32"),
        ("V_LSHL_ADD_U32_e64", "V_ADD_LSHL_U32_e64"),
        ("S_BFM_B32", "S_LSHL_B32"),
        (" 7", " 8"),
        ("LOAD_DWORD_", "LOAD_DWORDX2_"),
        ("invariant ", ""),
        ("dereferenceable ", ""),
        ("SAVE", "RESTORE"),
        ("%ir.p", "@g"),
        ("4, 0 ::", "8, 0 ::"),
        ("7,", "$vgpr9,"),
    ):
        if old in line and (changed := line.replace(old, new, 1)) != line:
            yield f"{old.strip()} to {new.strip() or 'nothing'}", (changed,), ""
    if "implicit $exec" in line and " :: " not in line:
        yield "exec missing", (line.replace(", implicit $exec_lo", "").replace(", implicit $exec", ""),), ""
        yield "exec undef", (line.replace("implicit $exec", "implicit undef $exec"),), ""
        yield "exec killed", (line.replace("implicit $exec", "implicit killed $exec"),), ""


_WRITES = "the move writes it, or another one does before it is read"
_HIDES = "another move writes it before it is read"


def _same_spill(old: str, new: str) -> str:
    """Spill code of another kind for the same registers moves the same."""
    either = {
        ("AV", "V"),
        ("_V", "_AV"),
        ("WWM_", ""),
        ("SPILL_V", "SPILL_WWM_V"),
        ("SPILL_AV", "SPILL_WWM_AV"),
        ("_V", "_A"),
    }
    return "another opcode for the same bits of the same register" if (old, new) in either else ""
