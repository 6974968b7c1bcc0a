"""The oracle accepts what LLVM does and tells seeded faults from it: it can contradict the audit."""

from __future__ import annotations

import random

import pytest
from allocation import Pair, phases_of_ir, phases_of_kernel
from audit_support import CALLS, DIVERGENT, MIXED, STRAIGHT, moved_narrow
from mutants import CLASSES, Subject, read_again
from mutants.samples import samples
from oracle import Oracle
from oracle.statics import module_fault
from oracle.verifier import complaints
from support import cpu_of, few, kernel_paths, long

from verilocc_mlir.errors import VeriloccError
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_function
from verilocc_mlir.target.targets import target

KERNELS = [p for p in kernel_paths() if p.stat().st_size < 30_000][::6]
SEEDED = [
    "wrong register read", "wrong register written", "wrong lane", "swapped operands", "dropped copy",
    "lost back-edge copy", "moved copy", "wrong copy", "dropped reload", "dropped save", "spill slots mixed up",
    "wrong spill offset", "moved under a narrower EXEC", "clobbered by a call", "undef flag added",
    "changed immediate", "changed opcode", "inverted branch", "deleted instruction", "duplicated instruction",
]  # fmt: skip
TOLD_QUICKLY = (
    "wrong copy", "moved under a narrower EXEC", "clobbered by a call", "inverted branch",
)  # fmt: skip


def subjects_of(pair: Pair) -> list[Subject]:
    pre, post = parse_mir(pair.pre), parse_mir(pair.post)
    after = {f.name: f for f in post.functions}
    return [Subject(pre, f, after[f.name], target(pair.cpu)) for f in pre.functions]


def agree(subject: Subject, runs: int = 15) -> None:
    answer = Oracle(subject.pre, subject.target.wave_size).compare(subject.post, runs)
    assert answer.supported, answer.where
    assert not answer.differs, (answer.where, answer.path)


@pytest.mark.parametrize("text", [MIXED, CALLS, *long(STRAIGHT, DIVERGENT)])
def test_llvms_allocation_makes_no_difference(text: str) -> None:
    for pair in phases_of_ir(text, "gfx942"):
        for subject in subjects_of(pair):
            agree(subject)


@pytest.mark.long
@pytest.mark.parametrize("path", few([p for p in KERNELS if "lds" in p.name], KERNELS), ids=[p.stem for p in KERNELS])
def test_kernels_make_no_difference(path) -> None:
    for pair in phases_of_kernel(path):
        assert pair.cpu == cpu_of(path)
        for subject in subjects_of(pair):
            agree(subject, 3)


@pytest.mark.parametrize("each", [1, *long(8)])
@pytest.mark.parametrize("name", few(TOLD_QUICKLY, SEEDED))
def test_seeded_faults_are_told_apart(name: str, each: int) -> None:
    """So many edits in each sample."""
    seen = made = 0
    for number, subject in enumerate(samples()):
        oracle = Oracle(subject.pre, subject.target.wave_size)
        for _, edit in zip(range(each), CLASSES[name].edits(subject, random.Random(number)), strict=False):
            made += 1
            try:
                seen += oracle.compare(read_again(edit.function, ""), 6).differs
            except VeriloccError:
                seen += 1  # no text that LLVM would read
    assert made, f"no place for {name}: choose other functions"
    assert seen


@pytest.mark.parametrize("each", [1, *long(4)])
@pytest.mark.parametrize("name", few(("register renamed",), [c.name for c in CLASSES.values() if c.equivalent]))
def test_equivalent_edits_make_no_difference(name: str, each: int) -> None:
    made = 0
    for number, subject in enumerate(samples()):
        oracle = Oracle(subject.pre, subject.target.wave_size)
        for _, edit in zip(range(each), CLASSES[name].edits(subject, random.Random(number)), strict=False):
            made += 1
            answer = oracle.compare(read_again(edit.function, ""), 6)
            assert not answer.differs, (edit.what, answer.where)
    assert made


def test_a_copy_under_a_narrower_exec_differs_in_the_threads_that_wait() -> None:
    copy = "$vgpr9 = COPY $vgpr0"
    same = moved_narrow(copy, "", ", $vgpr9", ", $vgpr9", "$vgpr9")
    wrong = moved_narrow("$vgpr9 = IMPLICIT_DEF", copy, ", $vgpr0, $vgpr9", ", $vgpr9", "$vgpr9")
    for pair, differs in ((same, False), (wrong, True)):
        (pre,), (post,) = parse_mir(pair.pre).functions, parse_mir(pair.post).functions
        assert Oracle(pre, 64).compare(post, 30).differs is differs


def test_what_the_pre_ra_side_leaves_undefined_may_be_anything() -> None:
    text = moved_narrow("", "", ", $vgpr0", ", $vgpr0", "$vgpr0")
    pre = text.pre.replace("%0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec", "%0:vgpr_32 = IMPLICIT_DEF")
    (before,), (after,) = parse_mir(pre).functions, parse_mir(text.post).functions
    dropped = parse_mir(text.post.replace("    $vgpr0 = V_MOV_B32_e32 7, implicit $exec\n", "")).functions[0]
    assert not Oracle(before, 64).compare(dropped, 30).differs
    (defined,) = parse_mir(text.pre).functions
    assert Oracle(defined, 64).compare(dropped, 30).differs
    assert not Oracle(defined, 64).compare(after, 30).differs


def special(cpu: str = "gfx942") -> Subject:
    """The sample with inline assembly, whole-wave code and a call, after the vector phase."""
    return next(s for s in samples() if s.target.name == cpu and "asm sideeffect" in s.file.preamble and s.module)


def differs(subject: Subject, old: str, new: str) -> str:
    """What the oracle says of the second text with ``old`` replaced; the text must be there."""
    text = print_function(subject.post)
    assert old in text, f"{old!r} is not in the text: choose another site"
    answer = Oracle(subject.pre, subject.target.wave_size, subject.available.reserved_units).compare(
        read_again_text(text.replace(old, new, 1)), 40
    )
    assert answer.supported, answer.where
    return answer.where


def read_again_text(text: str):
    (function,) = parse_mir(text, "post.mir").functions
    return function


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hasCalls:        true", "hasCalls:        false", "hasCalls"),
        ("maxAlignment:    16", "maxAlignment:    64", "maxAlignment"),
        ("ldsSize:         0", "ldsSize:         64", "ldsSize"),
        ("isImmutable: true", "isImmutable: false", "fixed stack objects"),
    ],
)
def test_header_fields_that_later_passes_believe(old: str, new: str, why: str) -> None:
    assert why in differs(special(), old, new)


def spilling() -> Subject:
    return next(s for s in samples() if any(i.opcode == "SI_SPILL_V32_SAVE" for _, i in s.lines))


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: f"invariant {m}", "invariant"),
        (lambda m: m.replace("addrspace 5", "addrspace 1"), "address space"),
        (lambda m: m.replace("(s32)", "(s16)"), "cover"),
        (lambda m: m.replace("%stack", "%fixed-stack"), "no slot"),
        (lambda m: m.replace(", addrspace", ", align 64, addrspace"), "aligned"),
        (lambda m: f"volatile {m}", ""),
    ],
)
def test_memory_operands_of_spill_code(change, why: str) -> None:
    subject = spilling()
    text = next(i.memory[0] for _, i in subject.lines if i.opcode == "SI_SPILL_V32_SAVE")
    found = differs(subject, f"({text})", f"({change(text)})")
    assert (why in found) if why else not found


def test_what_kill_defines_and_does_not_read_is_lost() -> None:
    copy = "$vgpr9 = COPY $vgpr0"
    for kill, lost in (("$vgpr9 = KILL $vgpr9", False), ("$vgpr9 = KILL undef $vgpr9", True)):
        pair = moved_narrow(f"{copy}\n    {kill}", "", ", $vgpr9", ", $vgpr9", "$vgpr9")
        (pre,), (post,) = parse_mir(pair.pre).functions, parse_mir(pair.post).functions
        assert Oracle(pre, 64).compare(post, 30).differs is lost


def test_llvms_verifier_is_a_witness() -> None:
    subject = special()
    text = (subject.module or "") + print_function(subject.post)
    said = complaints(text, "gfx942")
    assert complaints(text.replace("tracksRegLiveness: true", "isSSA: [", 1), "gfx942") - said


def test_a_module_that_differs() -> None:
    subject = special()
    before = subject.file.preamble
    assert not module_fault(before, subject.module or "")
    assert "@table" in module_fault(before, before.replace("i32 5]", "i32 6]"))
