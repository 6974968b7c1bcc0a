"""Traps of LLVM's machine IR as text, each with its repair: made in what llc reads, or in what it printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from verilocc_mlir.errors import UnsupportedError
from verilocc_mlir.toolchain.verifier import defined_functions, without_functions

# Trap: MIR does not say that a kernel uses dynamic LDS, so the hidden argument with its size is lost.
#
# Instruction selection notes the use of an LDS array without a size (SITargetLowering::LowerGlobalAddress:
# setDynLDSAlign and setUsesDynamicLDS, always together). MIR keeps the alignment but not the note. Without the note the
# metadata has no ``hidden_dynamic_lds_size`` (AMDGPUHSAMetadataStreamer), so the runtime leaves that argument unset.
#
# When LLVM reads MIR again, it notes the use for a kernel ``k`` if the module has a variable ``llvm.amdgcn.k.dynlds``
# (AMDGPUMachineFunction's constructor). LLVM's own lowering makes that variable for LDS that is reached by calls.
# Nothing is emitted for a declaration in LDS, and later passes look at no such name. So a text to be finished gets the
# declaration, and LLVM writes object and assembly as if it had never stopped. ``checked.py`` compares the metadata with
# a direct compile's: a declaration too many or too few is refused there.


_ALIGN = re.compile(r"^  dynLDSAlign: +(\d+)", re.MULTILINE)
_MODULE = re.compile(r"\A(?:;[^\n]*\n)*--- \|\n(?P<ir>.*?)^\.\.\.$", re.MULTILINE | re.DOTALL)
_UNSIZED = re.compile(
    r'^  (?P<name>@(?:"[^"]+"|[\w$.-]+)) = external (?:\w+ )*addrspace\(3\) (?:\w+ )*global (?:\[0 x |\{\})',
    re.MULTILINE,
)
_BODY = re.compile(
    r'^  define [^\n]*?@(?P<name>"[^"]+"|[\w$.-]+)\([^\n]*\{\n(?P<body>.*?)^  \}$', re.MULTILINE | re.DOTALL
)


def declare_dynamic_lds(mir: str) -> str:
    """The text, with the declaration that makes LLVM note dynamic LDS for each kernel that uses it."""
    module = _MODULE.match(mir)
    if module is None:
        return mir
    names = [f'@"llvm.amdgcn.{name}.dynlds"' for name in sorted(dynamic_lds_users(mir))]
    missing = [name for name in names if name not in module["ir"] and name.replace('"', "") not in module["ir"]]
    declared = "".join(f"  {name} = external addrspace(3) global [0 x i8]\n" for name in missing)
    end = module.end("ir")
    return mir[:end] + declared + mir[end:]


def dynamic_lds_users(mir: str) -> set[str]:
    """Functions whose code takes the address of dynamic LDS.

    An alignment above 1 says so. An array of bytes has alignment 1, which is also the default. For such functions the
    IR says whether they name an array without a size.
    """
    aligned = {name for name, header in function_headers(mir) if int(m[1] if (m := _ALIGN.search(header)) else 1) > 1}
    module = _MODULE.match(mir)
    arrays = [re.escape(name) for name in _UNSIZED.findall(module["ir"])] if module is not None else []
    if module is None or not arrays:
        return aligned
    mention = re.compile(rf"(?:{'|'.join(arrays)})(?![\w$.-])")
    return aligned | {
        body["name"].strip('"') for body in _BODY.finditer(module["ir"]) if mention.search(_code(body["body"]))
    }


def _code(body: str) -> str:
    """Instructions alone: a debug record may name what no instruction uses."""
    return "\n".join(line for line in body.split("\n") if not line.lstrip().startswith("#dbg_"))


# Function headers in machine IR text: the part between a function's name and its body.


_NAME = re.compile(r"^name: +(?:'(?P<quoted>[^']*)'|(?P<plain>\S+)) *$", re.MULTILINE)


def function_headers(mir: str) -> Iterator[tuple[str, str]]:
    """Name and header of each function, in the text's order."""
    heads = list(_NAME.finditer(mir))
    ends = [head.start() for head in heads[1:]] + [len(mir)]
    for head, end in zip(heads, ends, strict=True):
        body = mir.find("\nbody:", head.end(), end)
        yield head["quoted"] or head["plain"], mir[head.end() : body + 1 if body >= 0 else end]


# Trap: a register mask that is written out says one thing of each register that LLVM has, tuples and halves too.
#
# Where a mask names ``$vgpr4`` and ``$vgpr5`` alone, LLVM takes ``$vgpr4_vgpr5`` for overwritten, so that its allocator
# spills a pair, and the 16-bit halves too, of which its scavenger asks. So llc gets masks with the halves of every
# register that is named, and the usual tuples of vector and scalar registers. (It takes other tuples for overwritten,
# which only costs its own allocator room; all of them are several hundred kilobytes a call.) What it prints is
# shortened to the 32-bit registers again, for all who read it.


_MASK = re.compile(r"CustomRegMask\(([^)]*)\)")
_PART = re.compile(r"(agpr|sgpr|vgpr)([0-9]+)(?:_(?:hi|lo)16)?")
_BANKS = ("agpr", "sgpr", "vgpr")
"""In the order in which LLVM prints registers: each of 32 bits, halves, then tuples by bank, width and number."""
_WIDTHS = {"agpr": (), "sgpr": (2, 4), "vgpr": (2, 3, 4, 8)}
"""Of the tuples that masks name. AGPRs take no part: a call preserves most of them by convention."""


def close_masks(mir: str) -> str:
    """Machine IR whose masks name the halves, and the usual tuples, of the 32-bit registers that they name."""
    return _with_masks(mir, _closed)


def shorten_masks(mir: str) -> str:
    """Machine IR whose masks leave out what ``close_masks`` adds."""
    return _with_masks(mir, _shortened)


def _with_masks(mir: str, changed: Callable[[str], str]) -> str:
    """The text with its masks changed, of which it repeats a few."""
    masks = {mask: changed(mask) for mask in {match[0] for match in _MASK.finditer(mir)}}
    return _MASK.sub(lambda match: masks[match[0]], mir)


def _closed(mask: str) -> str:
    names = _names(mask)
    whole = {bank: {n for n in range(1024) if f"${bank}{n}" in names} for bank in _BANKS}
    implied = dict.fromkeys(name for bank in _BANKS for name in _made_of(bank, whole[bank]))
    return f"CustomRegMask({','.join([*names, *(name for name in implied if name not in names)])})"


def _shortened(mask: str) -> str:
    names = _names(mask)
    kept = [name for name in names if not _is_implied(name, names)]
    return f"CustomRegMask({','.join(kept)})"


def _names(mask: str) -> dict[str, None]:
    return dict.fromkeys(name for name in _MASK.sub(r"\1", mask).split(",") if name)


def _is_implied(name: str, names: dict[str, None]) -> bool:
    """Whether a register is a half or a tuple of registers that are named themselves."""
    parts = _PART.findall(name)
    wholes = [f"${bank}{number}" for bank, number in parts]
    return bool(wholes) and wholes != [name] and all(whole in names for whole in wholes)


def _made_of(bank: str, numbers: set[int]) -> Iterator[str]:
    """Halves and tuples of 32-bit registers; tuples of scalars begin at even numbers, wider ones at multiples of 4."""
    for number in numbers:
        yield f"${bank}{number}_hi16"
        yield f"${bank}{number}_lo16"
    for width in _WIDTHS[bank]:
        for first in numbers:
            if bank == "sgpr" and first % (2 if width == 2 else 4):
                continue
            if numbers.issuperset(range(first, first + width)):
                yield "$" + "_".join(f"{bank}{n}" for n in range(first, first + width))


# Trap: LLVM puts ``S_TRAP`` behind the return of a function that is no kernel and takes an address in LDS.
#
# llc warns ("local memory global used by non-kernel function") and goes on. Its machine verifier then finds a
# "non-terminator instruction after the first terminator" in what LLVM itself selected, and LLVM's own compile with
# ``-verify-machineinstrs`` ends so too. For gfx11 the trap is ten instructions and a loop
# (SITargetLowering::insertSimulatedTrap). Nothing reaches it. So what is behind the return gets a block of its own, to
# which nothing leads. LLVM goes on from there, and deletes it.


_DOCUMENT = re.compile(r"^---\nname: +(?P<name>\S.*?) *$", re.MULTILINE)
_RETURN = re.compile(r" +(?:SI_RETURN|S_SETPC_B64_return)\b")
_BLOCK = re.compile(r"  bb\.\d")
_BLOCK_NUMBER = re.compile(r"\bbb\.(\d+)")
_LED_TO = re.compile(r"%bb\.\d+")
_APART = re.compile(
    r"^ +(?:SI_RETURN|S_SETPC_B64_return)\b.*\n  \n  bb\.(\d+):\n(?:    successors:.*\n  \n)? +S_TRAP ", re.MULTILINE
)


def traps_apart(mir: str) -> str:
    """Machine IR as LLVM selected it, with such traps in blocks of their own."""
    if "S_TRAP " not in mir:
        return mir
    head, *documents = _documents(mir)
    apart = (_trap_apart(document.split("\n")) for document in documents)
    return head + "".join("\n".join(lines) for lines in apart)


def trapped(mir: str) -> tuple[str, ...]:
    """Names of the functions that have such a block."""
    names: list[str] = []
    for document in _documents(mir)[1:] if "S_TRAP " in mir else ():
        apart, name = _APART.search(document), _DOCUMENT.match(document)
        if apart is not None and name is not None and f"%bb.{apart[1]}" not in set(_LED_TO.findall(document)):
            names.append(name["name"].strip("'\""))
    return tuple(names)


def _documents(mir: str) -> list[str]:
    """What comes before the first function, and each function."""
    starts = [0, *(start.start() for start in _DOCUMENT.finditer(mir)), len(mir)]
    return [mir[start:end] for start, end in pairwise(starts)]


def _trap_apart(lines: list[str]) -> list[str]:
    """The lines of a function, with its trap apart where there is one behind a return."""
    at = next((n for n, line in enumerate(lines[:-1]) if _RETURN.match(line) and "S_TRAP " in lines[n + 1]), None)
    if at is None:
        return lines
    head = next(n for n in range(at, 0, -1) if _BLOCK.match(lines[n]))
    last = int(_BLOCK_NUMBER.findall(lines[head])[0])
    renumbered = [_BLOCK_NUMBER.sub(lambda m: f"bb.{int(m[1]) + (int(m[1]) > last)}", line) for line in lines]
    leads = [line for line in renumbered[head : at + 1] if line.startswith("    successors:")]
    before = [line for line in renumbered[head : at + 1] if line not in leads]
    apart = ["  ", f"  bb.{last + 1}:", *([*leads, "  "] if leads else [])]
    return [*renumbered[:head], *before, *apart, *renumbered[at + 1 :]]


# Trap: LLVM 22 makes copies between registers of different widths where gfx11's 16-bit registers are in use.
#
# With the feature ``real-true16`` (on by default for gfx11), a 16-bit element that is put into an otherwise undefined
# vector of four or more becomes ``%1:vreg_64 = COPY %0:vgpr_32``. Such a copy has no meaning: LLVM's own expansion
# reads no register (``V_MOV_B32_e32 $noreg``), and a plain llc crashes on it in the assembly printer. And the half of a
# scalar becomes a whole one, ``%1:sreg_32 = COPY %0.lo16`` (V_CMP_CLASS_F16), whose other half means nothing. Without
# the feature LLVM selects the same values in 32-bit registers.


WITHOUT_TRUE16 = "-real-true16"
"""The feature string that avoids them."""

_DEFINED = re.compile(r"%(\d+)(?:\.\w+)?:([a-z]\w+)")
_COPY = re.compile(r"^ *%\d+:[av]\w*reg_(\d+)\w*(?:\([^)]*\))? = COPY (?:killed )?%(\d+)(?=[ ,\n]|$)", re.MULTILINE)
_NARROW = re.compile(r"(?:vgpr|agpr|av)_(?:16|32)(?:_\w+)?")
_HALF_AS_WHOLE = re.compile(
    r"^ *%\d+:s(?:reg|gpr)_32\w*(?:\([^)]*\))? = COPY (?:killed )?%\d+\.(?:lo|hi)16\b", re.MULTILINE
)


def copies_between_widths(mir: str) -> bool:
    """Whether pre-RA machine IR copies a 32-bit vector register into a wider one, or half a scalar into a whole one."""
    return any(map(_copies_between_widths, _documents(mir)))


def _copies_between_widths(function: str) -> bool:
    if _HALF_AS_WHOLE.search(function):
        return True
    copies = _COPY.findall(function)
    if not copies:
        return False
    classes = dict(_DEFINED.findall(function))
    return any(_NARROW.fullmatch(classes.get(source, "")) for _, source in copies)


# Trap: LLVM 24 has ``real-true16`` by default for gfx12, LLVM 22 has not, and machine IR does not say who had it.
#
# LLVM has registers of class ``vgpr_16`` only with it (SIISelLowering.cpp, ``useRealTrue16Insts``), and on it depends
# what a copy of a scalar into a half of a VGPR writes (SIInstrInfo::copyPhysReg). So the text is given the feature.

_GROUP = re.compile(r"^(  attributes #(\d+) = \{ )(.*)$", re.MULTILINE)
_GROUP_OF_FUNCTION = re.compile(r"^  define [^\n]*? #(\d+)\b", re.MULTILINE)


def has_true16(mir: str) -> bool:
    """Whether LLVM selected it with the feature, and its functions do not say so."""
    return "vgpr_16" in mir and "real-true16" not in mir


def state_true16(mir: str) -> str:
    """Machine IR whose functions say that they have the feature."""
    of_functions = set(_GROUP_OF_FUNCTION.findall(mir))
    stated = '"target-features"="+real-true16'

    def group(match: re.Match[str]) -> str:
        start, number, attributes = match.groups()
        if number not in of_functions:
            return match[0]
        if '"target-features"="' in attributes:
            return start + attributes.replace('"target-features"="', f"{stated},", 1)
        return f'{start}{stated}" {attributes}'

    return _GROUP.sub(group, mir)


# What llc prints before allocation, mended or refused before anybody reads it.


# Trap: LLVM 22 lets two conversions of gfx950 overwrite their own sources.
#
# ``v_cvt_scalef32_2xpk16_{fp6,bf6}_f32`` write their result before they have read everything. LLVM's tables say so
# since pull request 188809 only. The text is given the ``early-clobber`` that newer LLVMs print; then LLVM 22 heeds it
# too.

_CONVERSION = "V_CVT_SCALEF32_2XPK16_"
_NOT_STATED = re.compile(rf"^( +)(?! |early-clobber )([^=\n]* = (?:[a-z]+ )*{_CONVERSION}\w+_F32_e64 )", re.MULTILINE)


def state_early_clobbers(mir: str) -> str:
    """Machine IR with ``early-clobber`` where LLVM 22 leaves it out."""
    return _NOT_STATED.sub(r"\1early-clobber \2", mir) if _CONVERSION in mir else mir


# A local function that nothing calls has no machine code, but its IR stands in the module that LLVM prints.
#
# Read again, it would be a machine function without blocks, at which LLVM's passes crash. So it is marked
# ``available_externally``: passes leave it alone, and nothing is emitted for it, as in a compile in one go.

_MACHINE = re.compile(r"^---\nname: +(['\"]?)(.*?)\1\s*$", re.MULTILINE)


def mark_uncalled(mir: str) -> str:
    """Machine IR as LLVM prints it, with the mark."""
    # YAML doubles a quote between quotes.
    machine = {match[2].replace("''", "'") for match in _MACHINE.finditer(mir)}
    module, rest = mir[: mir.find("\n---\nname:") + 1], mir[mir.find("\n---\nname:") + 1 :]
    uncalled = [name for name in defined_functions(module) if name not in machine and "\\" not in name]
    return without_functions(module, uncalled) + rest


# Trap: an intrinsic that this LLVM does not know silently becomes a call to an external symbol.
#
# Newer front ends emit ``llvm.amdgcn.*`` that an older llc lacks (gfx950 ``llvm.amdgcn.asyncmark``). It then lowers the
# call like any other. Nothing fails before the link, and nothing at all if the linker is lenient. So a function
# declared as ``@llvm.…`` must not survive instruction selection. Globals with such names are ordinary
# (``@llvm.amdgcn.module.lds``).

_DECLARED = re.compile(r"^[^\S\n]*declare\b[^@\n]*@(\"llvm\.[^\"]+\"|llvm\.[\w.$-]+)\(", re.MULTILINE)
_MENTIONED = re.compile(r"[@&](\"llvm\.[^\"]+\"|llvm\.[\w.$-]+)")


def surviving_intrinsics(mir: str) -> tuple[str, ...]:
    """Names of the ``llvm.*`` functions, declared in the IR module, that machine code of ``mir`` refers to, sorted."""
    start = mir.find("\n---\nname:")
    if start < 0:
        return ()
    declared = {match.strip('"') for match in _DECLARED.findall(mir[:start])}
    if not declared:
        return ()
    mentioned = {match.strip('"') for match in _MENTIONED.findall(mir[start:])}
    return tuple(sorted(declared & mentioned))


def refuse_unknown_intrinsics(mir: str, *, where: str = "", version: str = "this LLVM") -> None:
    """Raise UnsupportedError if an intrinsic was lowered to a call of an external symbol."""
    names = surviving_intrinsics(mir)
    if names:
        raise UnsupportedError(
            f"{version} does not know {', '.join(names)}: the call would become one to an external symbol",
            where=where,
            hint="use the LLVM that the front end was built against (VERILOCC_LLVM=DIR), "
            "or switch the front-end feature off (Triton on gfx950: TRITON_HIP_USE_ASYNC_COPY=0)",
        )


# What LLVM notes for debuggers at the head of a function that may unwind: where the caller's frame is.
#
# ``CFI_INSTRUCTION`` makes a directive and no code. Our parser and the checkers do not read all of its forms, and the
# order of a block does not touch its head, so these lines are taken out of a text and put back where they stood.


_HEAD = r"(\nbody: +\|\n  bb\.0[^\n]*:\n(?:    (?:successors|liveins): [^\n]*\n)*(?: *\n)?)"
_MARKS = r"((?:    frame-setup CFI_INSTRUCTION [^\n]*\n)*)"


def without_frame_marks(mir: str) -> tuple[str, tuple[str, ...]]:
    """The text without them, and those of each function in order. Any others stay."""
    marks = tuple(found[2] for found in re.finditer(_HEAD + _MARKS, mir))
    return re.sub(_HEAD + _MARKS, r"\1", mir), marks


def with_frame_marks(mir: str, marks: Sequence[str]) -> str:
    """The text with them at the head of its functions."""
    left = iter(marks)
    return re.sub(_HEAD, lambda head: head[1] + next(left), mir)


# Trap: LLVM does not parse wave32 machine IR as it prints it.
#
# The instruction tables name the implicit operand ``$vcc``. For wave32 LLVM replaces it in memory by ``$vcc_lo``
# (SIInstrInfo::fixImplicitOperands), prints that, and then refuses it ("missing implicit register operand 'implicit
# $vcc'"). On parsing it makes the same replacement again (GCNSubtarget::mirFileLoaded). So a text that names ``$vcc``
# gives back exactly the instruction that was printed. Inline assembly has no entry in the tables: there ``$vcc`` stays
# ``$vcc``, another operand, and ``$vcc_lo`` is read as it is printed. The mended text is for llc's parser only.
# Everything else in this project reads the text as printed, in which ``$vcc_hi`` is rightly free.


# It begins with plain text, which is looked for quickly.
_IMPLICIT_VCC_LO = re.compile(
    r"(implicit(?<=\bimplicit)(?:-def)?(?: (?:dead|killed|undef|renamable|internal|early-clobber))*) \$vcc_lo\b"
)


def is_wave32(cpu: str, mattr: str = "", text: str = "") -> bool:
    """Whether functions of ``text`` run with 32 lanes: on gfx10 and later, unless ``+wavefrontsize64`` is given.

    The version in the names of gfx9 and older has three characters ("gfx90a", "gfx942", "gfx803").
    """
    if "+wavefrontsize64" in mattr or "+wavefrontsize64" in text:
        return False
    match = re.fullmatch(r"gfx(\d+)[0-9a-f]{2}|gfx(\d+)-\d*-?generic", cpu)
    return match is not None and int(match[1] or match[2]) >= 10


def mend_implicit_vcc(mir: str) -> str:
    """``implicit $vcc_lo`` as ``implicit $vcc`` (also ``implicit-def``), for a wave32 text that llc is to parse."""
    if "$vcc_lo" not in mir:
        return mir
    if "INLINEASM" not in mir:
        return _IMPLICIT_VCC_LO.sub(r"\1 $vcc", mir)
    return "\n".join(
        line if "INLINEASM" in line or "$vcc_lo" not in line else _IMPLICIT_VCC_LO.sub(r"\1 $vcc", line)
        for line in mir.split("\n")
    )


# Trap: LLVM 22 prints memory-model relaxation annotations but does not parse them.
#
# LLVM prints ``ATOMIC_FENCE 5, 3, mmra !4``; LLVM 24 parses that, LLVM 22 does not. An annotation only allows LLVM to
# order *less* than the fence or access says (LLVM's MemoryModelRelaxationAnnotations), so leaving it off is
# conservative. It costs: a fence of the LDS alone then waits for memory too, and on RDNA drops what the first cache
# holds.


_MMRA = tuple(re.compile(rf"{before} mmra !\d+(?=\s|,|$)", re.MULTILINE) for before in (",", ""))
"""Two patterns, one after the other: one that begins with fixed text is found several times as fast."""
_READ_FROM = 24
_LEFT_OUT = re.compile(
    r"\s+(?:\.|(?:s_wait\w*|s_delay_alu|s_nop|s_clause|global_(?:inv|wb)|buffer_(?:gl[01]_inv|inv|wbl2|wbinvl1\w*)"
    r"|s_sendmsg sendmsg\(MSG_DEALLOC_VGPRS\))(?=\s|$))"
)
"""Directives, and what LLVM inserts behind allocation for fences, waits and hazards, which changes no register."""


def reads_mmra(version: Sequence[int]) -> bool:
    """Whether LLVM of that version parses the annotations that it prints."""
    return version[0] >= _READ_FROM


def strip_mmra(mir: str) -> str:
    """The text without ``mmra !N`` on instructions; the IR module before the first function is not changed."""
    if "mmra !" not in mir:
        return mir
    start = max(mir.find("\n---\n"), 0)
    machine = mir[start:]
    for pattern in _MMRA:
        machine = pattern.sub("", machine)
    return mir[:start] + machine


def loses_mmra(ir: str, version: Sequence[int]) -> bool:
    """Whether fences or accesses of the IR have annotations that go through text to LLVM of that version unread."""
    return ", !mmra !" in ir and not reads_mmra(version)


def same_but_waits(first: str, second: str) -> bool:
    """Whether two assembly texts are the same instructions in the same order, but for waits and what goes with them."""
    return _without_waits(first) == _without_waits(second)


def _without_waits(assembly: str) -> list[str]:
    lines = (line.partition(";")[0].rstrip() for line in assembly.splitlines())
    return [line for line in lines if line and not _LEFT_OUT.match(line)]
