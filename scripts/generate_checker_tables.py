"""Write what the checkers of certificates know of the target: smt_verifier/checker/data/target.txt.

    python scripts/generate_checker_tables.py [FILE]

The file is plain text; ``README.md`` beside it says what each column and each word means. Regular expressions and
reviewed lists of opcodes live here and in the modules that are imported here: the checkers only look things up.
Sources: LLVM's instruction tables (``verilocc_mlir/target/instructions.dat``), the register classes inside the
libLLVM of ``llc-22`` (or of ``$LLC``), and today's reviewed lists (``smt_verifier/audit/core``). Equal sources give
equal bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from scripts.llvm_register_tables import ClassRow, RegisterTables, register_tables_of  # noqa: E402
from smt_verifier.audit.core import masks, product, semantics  # noqa: E402
from smt_verifier.audit.core import opcodes as opcode_facts  # noqa: E402
from smt_verifier.audit.core.opcodes import facts  # noqa: E402
from verilocc_mlir.target import instructions, registers, reserved  # noqa: E402
from verilocc_mlir.target.attributes import CALLING_CONVENTIONS, GRAPHICS  # noqa: E402
from verilocc_mlir.target.callingconv import REGMASKS, callee_saved  # noqa: E402
from verilocc_mlir.target.instructions import (  # noqa: E402
    InstructionDescription,
    OperandDescription,
    instruction,
    llvm_versions,
    opcodes,
)
from verilocc_mlir.target.occupancy import max_sgprs, max_vectors, min_sgprs, min_vectors  # noqa: E402
from verilocc_mlir.target.registers import Bank, physical_register  # noqa: E402
from verilocc_mlir.target.targets import TARGETS, Target  # noqa: E402

TABLES = HERE.parent / "smt_verifier" / "checker" / "data" / "target.txt"

MODES = tuple({instructions._tables().modes[name]: name for name in TARGETS}.values())
"""One processor of each hardware mode that the project's targets have; its place is the mode's number."""

LLVM_PROPERTIES = frozenset({
    "barrier", "branch", "call", "convergent", "generic", "indirect-branch", "may-load", "may-store", "meta", "pseudo",
    "rematerialisable", "return", "side-effects", "terminator", "trap", "variadic",
})  # fmt: skip
"""Flags of MCInstrDesc that are traits under their own names."""

INDEX_MODES = {
    "S_SET_GPR_IDX_ON": "indexed-on", "S_SET_GPR_IDX_OFF": "indexed-off", "S_SET_GPR_IDX_MODE": "indexed-mode",
    "S_SET_GPR_IDX_IDX": "indexed-mode", "S_SETVSKIP": "vskip", "S_SET_VGPR_MSB": "vgpr-msb",
}  # fmt: skip
"""What changes how the vector instructions behind it name their registers, or whether they are executed (ISA manuals,
S_SET_GPR_IDX_*, S_SETVSKIP; gfx1250, S_SET_VGPR_MSB)."""

_FILE_MARKS = {
    Bank.VGPR: "input result", Bank.AGPR: "input result", Bank.SGPR: "input result", Bank.TTMP: "reserved kept input",
}  # fmt: skip
"""Marks of the numbered files, as those of the special registers."""

NAMED = {
    "COPY": ("copy",), opcode_facts.LANE_SAVE: ("lane-save",),
    opcode_facts.LANE_RESTORE: ("lane-restore",), "BUNDLE": ("bundle",), "INLINEASM": ("asm",),
    "INLINEASM_BR": ("asm", "asm-goto"), "IMPLICIT_DEF": ("no-code", "undefines"), "KILL": ("no-code",),
    "ADJCALLSTACKUP": ("frame-adjust",), "ADJCALLSTACKDOWN": ("frame-adjust",), "ENTER_STRICT_WWM": ("enter-wwm",),
    **dict.fromkeys(("V_MOV_B32_e32", "V_MOV_B64_PSEUDO", "V_MOV_B16_t16_e32", "V_MOV_B16_t16_e64"), ("vector-move",)),
}  # fmt: skip
"""Traits of single opcodes."""


_IN_PARTS = frozenset({"V_MOV_B64_PSEUDO", "V_MOV_B64_DPP_PSEUDO"})
"""LLVM expands it into a move of each half, so that its result is written before all is read, though LLVM's table does
not say so (SIInstrInfo::expandPostRAPseudo)."""
_PAIRED = "V_DUAL_"
"""Made behind allocation; which banks its registers must be of, no table says (GCNCreateVOPD.cpp)."""
_COPIED = frozenset({"EXTRACT_SUBREG", "INSERT_SUBREG", "REG_SEQUENCE", "SUBREG_TO_REG", "WWM_COPY"})
"""Made into copies before allocation, or in the phase for whole waves (SILowerWWMCopies); behind that LLVM knows no
such instruction, prints nothing for it, or moves a part of what it says to define (ExpandPostRAPseudos.cpp,
LowerSubregToReg)."""
_NOT_SAID = re.compile(
    r"S_CBRANCH_(?:[GI]_FORK|JOIN)|S_RFE_\w+|S_CMOVK?_\w+|V_SWAPREL_\w+|(?:GLOBAL|SCRATCH)_LOAD_BLOCK|SI_BLOCK_SPILL_\w+_RESTORE"
    r"|V_(?:FMA|MAD)_MIX_F32_(?:BF16_)?dpp|V_PK_FMAC_F16_\w+|V_CVT_PKACCUM_U8_F32_\w+|V_INTERP_P2_F32_e64"
    r"|BUFFER_LOAD_FORMAT_D16_HI_X_\w+|S_SCRATCH_LOAD_\w+"
    r"|SCRATCH_LOAD_\w+_D16_(?:HI_)?VE_gfx940$|V_CVT_SCALEF32_SR_PK_FP4_\w+"
    r"|FPTRUNC_ROUND_\w+|S_ROUND_MODE|V_INTERP_(?:P1L[LV]|P2)_F16(?:_opsel)?$|S_CLAUSE"
    r"|V_MFMA_\w+_(?:vi|[av]cd)$|V_WMMA_SCALE\w+_gfx1250$|V_(?:MFMA|WMMA)_LD_SCALE\w+"
)
"""Sets EXEC or the program counter, keeps what its result held or adds to it (of a block of registers, what M0 leaves
out; of DPP, for threads that a mask leaves out), or exchanges registers that M0 chooses, or may be done again (XNACK),
or writes a matrix before it has read all, or belongs to the matrix operation or accesses behind it, or rounds what
follows until LLVM sets MODE anew (SIModeRegister.cpp), and LLVM's table does not say so. Ahead of its allocation LLVM
makes none of them (ISA manuals; SIFrameLowering.cpp) but those that round: of random rounding to four bits, the three
bytes that stay are those of whatever register it allocates."""
_WHOLE_WAVES = re.compile(r"SI_CS_CHAIN_TC_|SI_TCRETURN_(?:CHAIN|GFX_WholeWave)|SI_WHOLE_WAVE_FUNC_")
"""Leaves for a function, with another EXEC, that reads what threads hold that never entered this one (AMDGPUUsage,
amdgpu_cs_chain, llvm.amdgcn.set.inactive.chain.arg), or is of such a function."""
_OPENS_BRACKETS = re.compile(r"S_OR_SAVEEXEC_B(?:32|64)\Z")
"""What may open a whole-wave bracket (``core/brackets.py``)."""


def sections() -> Iterator[tuple[str, Iterable[str]]]:
    """Each section's name and its lines, comments included."""
    llvm = register_tables_of(_llc())
    if llvm is None:
        raise SystemExit(f"{_llc()} is no llc of LLVM 22 with a shared libLLVM: set LLC")
    yield "processors", _processors()
    yield "budgets", _budgets()
    yield "files", _files(llvm)
    yield "specials", _specials(llvm)
    yield "classes", _classes(llvm)
    yield "masks", _masks()
    yield "assembly", _assembly()
    yield "features", _features()
    yield "conventions", _conventions()
    yield "arguments", _arguments()
    tables = _Instructions()
    yield "operands", tables.operand_rows
    yield "shapes", tables.shape_rows
    yield "opcodes", tables.opcode_rows


def _llc() -> str:
    program = os.environ.get("LLC", "llc-22")
    path = shutil.which(program)
    if path is None:
        raise SystemExit(f"{program} is not there: set LLC to the llc of LLVM 22")
    return path


def _row(*columns: object) -> str:
    return "\t".join(str(int(c) if isinstance(c, bool) else c) for c in columns)


def _processors() -> Iterator[str]:
    yield (
        "# name mode wave_size major unified_vgpr has_agprs align2 addressable_vgprs addressable_agprs "
        "addressable_sgprs max_waves simds lds_bytes max_barriers cu_mode architected_flat_scratch xnack half_moves"
    )
    for t in TARGETS.values():
        yield _row(
            t.name, _mode(t.name), t.wave_size, t.major, t.unified_vgpr, t.has_agprs, t.align2, t.addressable_vgprs,
            t.addressable_agprs, t.addressable_sgprs, t.max_waves, t.simds, t.lds_bytes, t.max_barriers,
            "-" if t.cu_mode is None else t.cu_mode, t.architected_flat_scratch, t.xnack, _moves_halves(t.name),
        )  # fmt: skip


_HALVES = """--- |
  define amdgpu_kernel void @k() { ret void }
...
---
name: k
tracksRegLiveness: true
body: |
  bb.0:
    liveins: $sgpr3, $vgpr0, $vgpr1
    $vgpr0_hi16 = COPY $sgpr3
    $vgpr1_lo16 = COPY $sgpr3
    $vgpr200_lo16 = COPY $sgpr3
    S_NOP 0, implicit $vgpr0, implicit $vgpr1, implicit $vgpr200_lo16
    S_ENDPGM 0
...
"""
_KEEPS_THE_REST = re.compile(
    r"v_mov_b16_e(?:32|64) v\d+\.[hl], s3|v_mov_b32_sdwa .*dst_unused:UNUSED_PRESERVE src0_sel:WORD_0"
)


def _moves_halves(name: str) -> bool:
    """Whether llc copies a scalar into a half of a VGPR, and leaves the other half alone (SIInstrInfo::copyPhysReg)."""
    flags = ["-mtriple=amdgcn-amd-amdhsa", f"-mcpu={name}", "-x=mir", "-start-before=postrapseudos", "-", "-o", "-"]
    done = subprocess.run([_llc(), *flags], input=_HALVES, capture_output=True, text=True, check=False)
    moves = [line for line in done.stdout.splitlines() if re.match(r"\s+v_", line)]
    return not done.returncode and len(moves) == 3 and all(_KEEPS_THE_REST.search(line) for line in moves)


def _mode(name: str) -> int:
    modes = instructions._tables().modes
    return [modes[other] for other in MODES].index(modes[name])


def _budgets() -> Iterator[str]:
    yield "# processor waves max_sgprs max_addressable_sgprs min_sgprs max_vectors min_vectors"
    for t in TARGETS.values():
        for waves in range(1, t.max_waves + 1):
            yield _row(
                t.name, waves, max_sgprs(t, waves, addressable=False), max_sgprs(t, waves, addressable=True),
                min_sgprs(t, waves), max_vectors(t, waves), min_vectors(t, waves),
            )  # fmt: skip


def _files(llvm: RegisterTables) -> Iterator[str]:
    """The numbered files, and which tuples of how many registers LLVM has, by the multiple they begin at."""
    yield "# letter name first-unit registers width:align ... marks"
    tuples: dict[Bank, dict[int, set[int]]] = {bank: {} for bank in registers.BANK_BASE}
    for name in llvm.units:
        register = physical_register(name)
        if register.bank is not Bank.SPECIAL and not name.endswith(("_lo16", "_hi16")):
            tuples[register.bank].setdefault(len(register.units) // 2, set()).add(register.first)
    for bank, base in registers.BANK_BASE.items():
        size = len(tuples[bank][1])
        forms: list[str] = []
        for width, firsts in sorted(tuples[bank].items()):
            align = min(firsts - {0}, default=1)
            assert firsts == set(range(0, size - width + 1, align)), (bank, width)
            forms.append(f"{width}:{align}")
        yield _row(bank.value[0], bank.value, base, size, " ".join(forms), _FILE_MARKS[bank])


def _specials(llvm: RegisterTables) -> Iterator[str]:
    yield "# name units marks"
    names = list(dict.fromkeys([*(n for n, _ in registers.SPECIAL_REGISTERS), *registers._PARTS]))
    halves = [f"{n}_{h}" for n in names if len(physical_register(n).units) == 2 for h in ("lo16", "hi16")]
    known = [*names, *halves, *sorted(registers.NULL_REGISTERS)]
    for name in (n for n in known if n in llvm.units or n == "noreg"):
        units = physical_register(name).units
        assert not units or units == tuple(range(units[0], units[-1] + 1)), name
        yield _row(name, f"{units[0]}-{units[-1]}" if units else "", " ".join(_marks(name, units)))


def _marks(name: str, units: tuple[int, ...]) -> Iterator[str]:
    always = {unit for unit, _ in reserved._ALWAYS_RESERVED}
    lost = {unit for n in reserved._LOST_IN_CALLS for unit in physical_register(n).units}
    whole = name.removesuffix("_lo16").removesuffix("_hi16")
    if not units:
        yield "null"
    if f"{name}_lo" in registers._PARTS.get(name, ()) and len(units) == 2:
        yield "wide"
    if units and always.issuperset(units):
        yield "reserved"
        if lost.isdisjoint(units):
            yield "kept"
    if whole in semantics.ALIASES:
        yield "alias"
    if whole in semantics._NO_PLACES:
        yield "changes"
    if whole.startswith(("src_shared_", "src_private_", "src_flat_scratch_base", "sgpr_null")):
        yield "constant"
    if semantics._PURE_INPUT.match(name):
        yield "input"
    if semantics._PURE_RESULT.match(name):
        yield "result"


def _classes(llvm: RegisterTables) -> Iterator[str]:
    yield "# name bits vector either members"
    for name, row in sorted(llvm.classes.items()):
        yield _row(name, row.bits, _is_vector(name, row), _either(name, llvm.classes), " ".join(_members(row)))


def _is_vector(name: str, row: ClassRow) -> bool:
    """Whether a class's registers hold a value a thread; M0 and the like beside vector registers are LDS addresses."""
    banks = {physical_register(m).bank for m in row.members}
    return name == "vreg_1" or (bool(banks & {Bank.VGPR, Bank.AGPR}) and not banks & {Bank.SGPR, Bank.TTMP})


def _either(name: str, classes: dict[str, ClassRow]) -> str:
    """The class of the same width and alignment with VGPRs and AGPRs."""
    either = re.sub(r"\A(?:vgpr|vreg|agpr|areg)_(?=\d+(?:_align2)?\Z)", "av_", name)
    return either if either in classes else name


def _members(row: ClassRow) -> Iterator[str]:
    firsts: dict[tuple[str, str], set[int]] = {}
    specials: list[str] = []
    for name in row.members:
        register = physical_register(name)
        if register.bank is Bank.SPECIAL:
            specials.append(name)
            continue
        half = name[-4:-2] if name.endswith(("lo16", "hi16")) else ""
        part = f".{half}" if half else ".w" if row.bits == 16 else ""
        firsts.setdefault((register.bank.value[0], part), set()).add(register.first)
    for letter in "vast":
        if firsts.get((letter, ".lo"), set()) == firsts.get((letter, ".hi")):
            firsts[letter, ".lo.hi"] = firsts.pop((letter, ".lo"))
            del firsts[letter, ".hi"]
    for (letter, part), numbers in sorted(firsts.items()):
        yield from (f"{letter}{first}..{last}+{step}{part}" for first, last, step in _runs(sorted(numbers)))
    yield from (f"={name}" for name in sorted(specials))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int, int]]:
    """Ascending numbers as first, last and step of few arithmetic sequences."""
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
            end += 1
        yield numbers[at], numbers[end], step
        at = end + 1


def _ranges(units: Iterable[int]) -> str:
    return ",".join(f"{first}-{last}" for first, last in _spans(sorted(units)))


def _spans(units: list[int]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(units):
        end = at
        while end + 1 < len(units) and units[end + 1] == units[end] + 1:
            end += 1
        yield units[at], units[end]
        at = end + 1


def _masks() -> Iterator[str]:
    yield "# name preserved-units"
    for name, units in sorted(REGMASKS.items()):
        yield _row(name, _ranges(units))


ASSEMBLY_WORDS = (
    ("exec", ""), ("lane", ""), ("dpp", ""), ("perm", "perm_b32"), ("swizzle", ""), ("row_", ""), ("wave_", ""),
    ("quad", ""), ("mfma", ""), ("wmma", ""), ("_tr", ""), ("sample", ""), ("gather", ""), ("get_lod", ""),
    ("interp", ""), ("lds_direct", ""), ("direct_load", ""), ("param_load", ""), ("barrier_arrive", ""),
    ("async_barrier", ""),
)  # fmt: skip
"""Words in inline assembly that hint at other threads, and where they do not: opcodes._ASSEMBLY as a list."""


def _assembly() -> Iterator[str]:
    yield "# word except"
    for word, unless in ASSEMBLY_WORDS:
        yield _row(word, unless)


def _having(has: Callable[[Target], bool]) -> str:
    return " ".join(t.name for t in TARGETS.values() if has(t))


FEATURES = {
    "wavefrontsize16": _having(lambda t: False),
    "wavefrontsize32": _having(lambda t: t.wave_size == 32),
    "wavefrontsize64": _having(lambda t: t.wave_size == 64),
    "southern-islands": _having(lambda t: False), "sea-islands": _having(lambda t: False),
    "volcanic-islands": _having(lambda t: False), "gfx10": _having(lambda t: False),
    "gfx9": _having(lambda t: t.major == 9), "gfx11": _having(lambda t: t.major == 11),
    "gfx12": _having(lambda t: t.major == 12), "gfx90a-insts": _having(lambda t: t.major == 9),
    "mai-insts": _having(lambda t: t.has_agprs), "gfx1250-insts": _having(lambda t: t.name == "gfx1250"),
    "1024-addressable-vgprs": _having(lambda t: t.addressable_vgprs == 1024),
    "allocate1_5xvgprs": _having(lambda t: t.vgpr_total == 1536),
    "vgpr-align2": _having(lambda t: t.align2),
    "architected-flat-scratch": _having(lambda t: t.architected_flat_scratch),
    "sgpr-init-bug": _having(lambda t: False), "trap-handler": _having(lambda t: True),
    "xnack-support": _having(lambda t: t.xnack),
    "addressablelocalmemorysize32768": _having(lambda t: False),
    "addressablelocalmemorysize65536": _having(lambda t: t.lds_bytes <= 128 * 1024),
    "addressablelocalmemorysize163840": _having(lambda t: t.name == "gfx950"),
    "addressablelocalmemorysize327680": _having(lambda t: t.name == "gfx1250"),
}  # fmt: skip
"""Features that LLVM asks about where it counts registers (GCNSubtarget.cpp, AMDGPUSubtarget.cpp, AMDGPUBaseInfo.cpp,
SIRegisterInfo.cpp), and who has them. XNACK and CU mode may change: limits.py follows them."""

MODES_OFF = frozenset({
    "cumode", "enable-flat-scratch", "enable-prt-strict-null", "flat-for-global", "load-store-opt", "precise-memory",
    "promote-alloca", "real-true16", "sramecc", "tgsplit", "unaligned-access-mode", "xnack",
})  # fmt: skip
"""Features that may be turned off. Most may not: LLVM turns off, with a feature, all that need it, generations too."""

OFF = {"fma-mix-insts": _having(lambda t: t.major == 9)}
"""Features that may be turned off on some processors: their ISA versions list them, no generation does (AMDGPU.td)."""


def _conventions() -> Iterator[str]:
    yield "# name saved saved_with_agprs shader"
    for name in sorted(CALLING_CONVENTIONS - {"amdgpu_gfx_whole_wave"} | {"ccc"}):
        saved = [callee_saved(name, TARGETS[cpu]) for cpu in ("gfx1100", "gfx942")]
        masks = [next((mask for mask, units in REGMASKS.items() if units and units == own), "") for own in saved]
        assert all(bool(mask) is bool(units) for mask, units in zip(masks, saved, strict=True)), name
        yield _row(name, *masks, name in GRAPHICS)


def _arguments() -> Iterator[str]:
    yield "# name sgprs"
    none = ("firstKernArgPreloadReg", "implicitArgPtr", "workItemIDX", "workItemIDY", "workItemIDZ")
    for name, count in sorted((reserved._ARGUMENT_SGPRS | dict.fromkeys(none, 0)).items()):
        yield _row(name, count)


def _features() -> Iterator[str]:
    yield "# name on off"
    command = [_llc(), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-mattr=help", "-o", os.devnull]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    names = re.findall(r"^  ([\w-]+) +- ", done.stderr.partition("Available features")[2], re.MULTILINE)
    if not FEATURES.keys() <= set(names):
        raise SystemExit(f"LLVM has other features: {sorted(FEATURES.keys() - set(names))}")
    everywhere = " ".join(TARGETS)
    for name in sorted(set(names)):
        having = FEATURES.get(name, everywhere)
        lacking = " ".join(n for n in TARGETS if n not in having.split())
        yield _row(name, having, everywhere if name in MODES_OFF else OFF.get(name, lacking))


class _Instructions:
    """Rows of the last three sections: equal operands and equal shapes are written once."""

    def __init__(self) -> None:
        operands: dict[str, int] = {}
        shapes: dict[str, int] = {}
        self.opcode_rows: list[str] = ["# name shape"]
        for name in sorted(n for n in opcodes() if _is_followed(n)):
            of_modes = [described(name, processor) for processor in MODES]
            table = of_modes[0]
            of_operands = enumerate(zip(*(t.operands for t in of_modes), strict=True))
            rows = [_operand(of_mode, early=number == 0 and name in _IN_PARTS) for number, of_mode in of_operands]
            shape = _row(
                table.definitions,
                " ".join(str(operands.setdefault(row, len(operands))) for row in rows),
                " ".join(table.implicit_uses),
                " ".join(table.implicit_definitions),
                " ".join(sorted(traits(name))),
                " ".join(map(str, table.counts)),
                " ".join(map(str, table.not_described)),
            )
            self.opcode_rows.append(_row(name, shapes.setdefault(shape, len(shapes))))
        self.operand_rows = ["# kind tied_to early_clobber classes", *operands]
        self.shape_rows = ["# definitions operands implicit_uses implicit_definitions traits counts not_described"]
        self.shape_rows += shapes


def _is_followed(name: str) -> bool:
    return not (name.startswith(_PAIRED) or name in _COPIED or _NOT_SAID.match(name) or _WHOLE_WAVES.match(name))


def described(name: str, processor: str = MODES[0]) -> InstructionDescription:
    """LLVM's table of an opcode that it has."""
    table = instruction(name, processor)
    assert table is not None, name
    return table


def _operand(of_modes: tuple[OperandDescription, ...], *, early: bool = False) -> str:
    kinds = {(row.kind, row.tied_to, row.early_clobber or early) for row in of_modes}
    assert len(kinds) == 1
    classes = [row.register_class for row in of_modes]
    return _row(*kinds.pop(), classes[0] if len(set(classes)) == 1 else "/".join(classes))


def traits(name: str) -> Iterator[str]:
    """What is known of an opcode beside its operands; README.md beside the file says what each word means."""
    table = described(name)
    properties = table.properties | table.format
    yield from table.properties & LLVM_PROPERTIES
    yield from _of_format(name, table)
    yield from _kept_parts(name, table)
    yield from _of_formats(name)
    yield from _of_threads(name)
    yield from _of_purity(name, table)
    yield from _of_masks(name)
    yield from _of_moves(name)
    yield from _of_files(name)
    if "may-raise-fp-exception" in properties:
        yield "may-raise"
    if facts(name).returns:
        yield "returns"
    if name in INDEX_MODES:
        yield INDEX_MODES[name]
    if "mode" in table.implicit_definitions or name.startswith("S_SETREG_"):
        yield "sets-mode"
    if name.startswith("S_SETREG_"):
        yield "setreg"
    if name.startswith("S_GETREG_"):
        yield "getreg"
    if re.match(r"EXP|V_INTERP_(MOV|P1|P2)_F32|V_MOV_B32_indirect|S_SETREG_IMM32_B32_mode", name):
        # AMDGPULowerVGPREncoding.cpp sets no upper bits for its operands (getVGPRLoweringOperandTables), or does not
        # set them again behind it (handleSetregMode).
        yield "low-vgprs"
    if name in ("S_SENDMSG", "S_SENDMSGHALT"):
        yield "message"
    if name in product._TESTS:
        exec_, on_zero = product._TESTS[name]
        yield f"test={'exec' if exec_ else 'scc'}{0 if on_zero else 1}"


def _of_format(name: str, table: InstructionDescription) -> Iterator[str]:
    for flag, trait in (("VALU", "valu"), ("SALU", "salu"), ("DPP", "dpp"), ("TiedSourceNotRead", "tied-not-read")):
        if flag in table.format:
            yield trait
    if name.startswith(opcode_facts._VECTOR):
        yield "vector"


def _kept_parts(name: str, table: InstructionDescription) -> Iterator[str]:
    """Which immediates have the instruction keep a part of what its result held.

    Source: SIDefines.h, SISrcMods::DST_OP_SEL, SDWA::DstUnused; VOP3 and SDWA encodings of the ISA manuals. The
    modifiers stand before the first source; ``dst_unused`` before what selects from each source. A load that says
    whether it failed (TFE, LWE) writes that register only if it did: SITargetLowering::AddMemOpInit ties it.
    """
    if table.definitions and (failing := list(_failing(name, table))):
        yield "keeps=" + ",".join(failing)
        return
    sources = table.operands[table.definitions :]
    modifies = len(sources) > 1 and sources[0].kind == "immediate" and sources[1].kind != "immediate"
    if "SDWA" in table.format and table.definitions and modifies and len(sources) > 5:
        selected = min(2, sum(source.kind != "immediate" for source in sources))
        yield f"keeps={len(sources) - 1 - selected},3,2"
    elif not table.format.isdisjoint(("VOP3", "VINTERP")) and "VOP3P" not in table.format and modifies:
        yield "keeps=0,8,8"


def _of_formats(name: str) -> Iterator[str]:
    """Which immediates have a matrix operation read registers behind its first or second source: formats of more bits
    than the opcode's (ISA manuals, F8F6F4: 0 and 1 are of 8 bits, 2 and 3 of 6, 4 of 4; VOP3PInstructions.td).
    """
    found = re.search(r"_F8F6F4_(f[468])_(f[468])", name)
    first = 3 if name.startswith("V_MFMA_") else 6 if "_SCALE" in name else 4
    bits = [{"f4": 4, "f6": 6, "f8": 0}[word] for word in found.groups()] if found else []
    if rows := [f"{first + n},{mask},0" for n, mask in enumerate(bits) if mask]:
        yield "beyond=" + ",".join(rows)


def _failing(name: str, table: InstructionDescription) -> Iterator[str]:
    """The immediates of a load, behind its definitions, that have it say whether it failed (MUBUFInstructions in
    BUFInstructions.td; the operands ``TFE`` and ``LWE`` of MIMGInstructions.td, VIMAGE and VSAMPLE, behind ``DMask``).
    """
    kinds = [operand.kind for operand in table.operands[table.definitions :]]
    if "immediate" not in kinds:
        return
    first = kinds.index("immediate")
    if name.startswith("BUFFER_LOAD_") and "_TFE_" in name:
        yield f"{first},0,0"
    elif name.startswith("IMAGE_") and "_BVH" not in name:
        if "VIMAGE" in table.format:
            behind: tuple[int, ...] = (5,)
        elif name.endswith("_gfx90a"):
            behind = (4,)
        elif name.endswith(("_gfx10", "_gfx11", "_gfx12", "_gfx13")):
            behind = (6, 7)
        else:
            behind = (4, 5)
        yield from (f"{first + n},1,1" for n in behind)


def _of_threads(name: str) -> Iterator[str]:
    reach = facts(name).reach
    if reach is not None:
        yield f"reach={reach.name.lower()}"
    if facts(name).takes_lane:
        yield f"lane-operand={masks.LANE_OPERAND}"
    if name in opcode_facts.BLENDS:
        yield "blend=" + ",".join(map(str, opcode_facts.BLENDS[name]))


def _of_purity(name: str, table: InstructionDescription) -> Iterator[str]:
    if facts(name).is_pure:
        yield "pure"
    if facts(name).asks_exec:
        yield "pure-exec"
        if name.endswith("_dpp"):
            yield "may-leave-old"
    if opcode_facts.HIDDEN_INPUT.match(name):
        yield "indirect"
    if name in opcode_facts.PSEUDO_PURE:
        yield "relative"
    if facts(name).loads_scalars:
        yield "scalar-load"
    loads = "may-load" in table.properties <= opcode_facts.LOADS_ONLY
    if loads and table.definitions == 1 and "MONITOR" not in name:
        yield "plain-load"
    if facts(name).is_packed:
        yield "packed-f32"
    if facts(name).is_mixed:
        yield "mixed"
    if facts(name).is_wide_mad:
        yield "wide-mad"


def _of_masks(name: str) -> Iterator[str]:
    form = facts(name).mask
    if form.binary:
        yield f"mask={form.binary}"
    if form.save:
        yield f"save={form.save}"
    for trait, has in (
        ("mask-move", form.moves),
        ("compare", form.compares),
        ("first-bit", form.finds_first_bit),
        ("compare-equal", form.compares_equal),
        ("cmpx", name.startswith("V_CMPX_")),
        ("bracket-open", _OPENS_BRACKETS.match(name)),
    ):
        if has:
            yield trait


def _of_moves(name: str) -> Iterator[str]:
    yield from NAMED.get(name, ())
    if name in opcode_facts.DEBUG:
        yield "debug"
    spill = facts(name).spill
    if spill is not None:
        kind, bits, is_save = spill
        yield f"spill={kind},{bits},{'save' if is_save else 'restore'}"


def _of_files(name: str) -> Iterator[str]:
    canonical = facts(name).canonical
    if canonical != name:
        yield f"canon={canonical}"
    if semantics.reads_matrices(name):
        yield f"file={'v' if '_vgprcd' in name else 'a'}"
    either = either_file_operands(name)
    if either:
        yield "either=" + ",".join(map(str, sorted(either)))


def either_file_operands(name: str) -> frozenset[int]:
    """Numbers of the operands that take VGPRs or AGPRs, where both are one file: those of an ``av_`` class, D and C of
    an MFMA, whose file its form says, and what is tied to them. Scales of an MFMA are VGPRs
    (VOP3PInstructions.td, ScaledMAI).
    """
    rows = described(name, "gfx90a").operands
    either = {number for number, row in enumerate(rows) if row.register_class.startswith("av_")}
    if semantics.reads_matrices(name):
        either |= {0, 3}
    return frozenset(either.union(number for number, row in enumerate(rows) if row.tied_to in either))


def text() -> str:
    """The whole file."""
    lines = [
        "# What the checkers of certificates know of the target. Generated; README.md beside it describes it.",
        f"# Instructions are those of LLVM {' and '.join(llvm_versions())}.",
    ]
    for name, rows in sections():
        lines += [f"[{name}]", *rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    written = text().encode("ascii")
    Path(sys.argv[1] if len(sys.argv) > 1 else TABLES).write_bytes(written)
