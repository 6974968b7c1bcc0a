"""The order of instructions behind allocation: made, proved, taken where it is cheaper, and nothing else changed."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from checker_support import needs_both
from support import REPOSITORY, cpu_of, kernel_paths, run_llc

from smt_verifier.certificate import second
from smt_verifier.certificate.verdict import order_answers
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.ordering import schedule
from verilocc_mlir.ordering.dependences import items_of
from verilocc_mlir.ordering.schedule import Ordered, certificate_of, in_order, ordered, pace_of, scheduled
from verilocc_mlir.pipeline.compile import Compiled, compile_module
from verilocc_mlir.pipeline.settings import Emit, Settings
from verilocc_mlir.target.targets import Target, target

KERNEL = REPOSITORY / "tests" / "data" / "order" / "gemm.gfx90a.ll"
"""A matrix product of ``verilocc corpus``, which waits for memory."""
NOTE = re.compile(
    r"valu_gemm_6fb77755d3: ([0-9,]+) instructions stand elsewhere than in LLVM's order behind allocation,"
    r" proved by both checkers: (0\.[0-9]{3}) of the modelled cycles"
)


def late_text(path: Path) -> str:
    return run_llc(path.read_text(errors="replace"), cpu_of(path), "-stop-before=si-post-ra-bundler", mir=False)


def compiled(*, order: bool = True, emit: Emit = Emit.ASM) -> Compiled:
    return compile_module(KERNEL.read_bytes(), KERNEL.name, Settings("gfx90a", emit=emit, order=order))


def notes_of(done: Compiled) -> list[str]:
    return [note for note in done.report.notes if "LLVM's order" in note]


def mnemonics(assembly: bytes) -> Counter[str]:
    """Of what is executed, without what LLVM puts in between by the order: waits, and nothing to do."""
    words = re.findall(r"^\t([a-z]\w+)(?= |$)", assembly.decode(), re.MULTILINE)
    return Counter(word for word in words if not word.startswith(("s_wait", "s_nop")))


@needs_both
def test_it_is_taken_where_it_is_cheaper_and_changes_nothing_else() -> None:
    with_order, without = compiled(), compiled(order=False)
    (note,) = notes_of(with_order)
    match = NOTE.fullmatch(note)
    assert match is not None
    assert int(match[1].replace(",", "")) > 20
    assert float(match[2]) < 0.98
    assert notes_of(without) == []
    assert with_order.data is not None
    assert without.data is not None
    assert with_order.data != without.data
    assert mnemonics(with_order.data) == mnemonics(without.data)
    assert with_order.report.functions[0].resources == without.report.functions[0].resources


@needs_both
def test_the_object_is_that_of_the_assembly() -> None:
    done = compile_module(KERNEL.read_bytes(), KERNEL.name, Settings("gfx90a", emit=Emit.OBJ, also=(Emit.HSACO,)))
    assert notes_of(done)
    assert done.data != compiled(order=False, emit=Emit.OBJ).data
    assert done.also[Emit.HSACO]


@needs_both
def test_the_allocated_text_is_the_same() -> None:
    assert compiled(emit=Emit.MIR).data == compiled(order=False, emit=Emit.MIR).data


def test_one_checker_alone_proves_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(second.ENVIRONMENT, "")
    second.second_program.cache_clear()
    try:
        done = compiled()
    finally:
        second.second_program.cache_clear()
    assert notes_of(done) == []
    assert done.data is not None


@needs_both
def test_an_order_that_is_refused_leaves_llvms(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(function: MachineFunction, target: Target) -> Ordered:
        """The list's order, but two of its instructions are exchanged of which the first reads what the second writes:
        LLVM's machine verifier sees nothing of it.
        """
        right = real(function, target)
        number, given = max(right.orders.items(), key=lambda row: len(row[1]))
        order, items = list(given), items_of(function.blocks[number].instructions)
        for at, (one, other) in enumerate(pairwise(given)):
            a, b = items[one], items[other]
            texts = "".join(i.render() for i in (*a.instructions, *b.instructions))
            if one in b.before and not a.writes & b.reads and not re.search(r"killed|\$[vs]cc", texts):
                order[at : at + 2] = [other, one]
                break
        blocks = list(right.function.blocks)
        blocks[number] = schedule.replace(blocks[number], instructions=in_order(items, order))
        return Ordered(schedule.replace(function, blocks=tuple(blocks)), {**right.orders, number: order}, right.moved)

    real = schedule.ordered
    expected = compiled(order=False).data
    monkeypatch.setattr(schedule, "ordered", wrong)
    done = compiled()
    (note,) = notes_of(done)
    assert re.fullmatch(
        r"valu_gemm_6fb77755d3: LLVM's order stays, ours is refused: python: order-(registers|memory): .*", note
    )
    assert done.data == expected


@needs_both
def test_two_functions_in_a_file_are_both_ordered(tmp_path: Path) -> None:
    text = KERNEL.read_text()
    kernel = text[text.index("define ") : text.index("\n}\n") + 3]
    both = text.replace(kernel, kernel + "\n" + kernel.replace("@valu_gemm_6fb77755d3(", "@other(", 1))
    done = compile_module(both.encode(), "two.ll", Settings("gfx90a", emit=Emit.ASM))
    assert sorted(note.split(":")[0] for note in notes_of(done)) == ["other", "valu_gemm_6fb77755d3"]


def answers_of(text: str, cpu: str) -> tuple[set[bool], int]:
    """What both checkers say of the list's order of each function of a text."""
    file = parse_mir(text)
    found = [ordered(function, target(cpu)) for function in file.functions]
    new = print_mir(schedule.replace(file, functions=tuple(one.function for one in found)))
    answers = [a for one in found for a in order_answers(text, new, one.certificate, one.function.name, cpu)]
    return {answer.accepted for answer in answers}, sum(one.moved for one in found)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.name, marks=[] if n % 6 == 0 else [pytest.mark.long]) for n, p in enumerate(kernel_paths())],
)
def test_both_checkers_accept_the_list_of_every_kernel(path: Path) -> None:
    accepted, moved = answers_of(late_text(path), cpu_of(path))
    assert accepted == {True}
    assert moved


def test_an_order_once_more_is_the_same() -> None:
    file = parse_mir(late_text(KERNEL))
    once = ordered(file.functions[0], target("gfx90a"))
    assert ordered(file.functions[0], target("gfx90a")).orders == once.orders


BODY = """--- |
  define amdgpu_kernel void @k(ptr addrspace(1) %p) {{ ret void }}
...
---
name:            k
tracksRegLiveness: true
body:             |
  bb.0:
    liveins: $sgpr0_sgpr1, $vgpr0, $vgpr1
{}
    S_ENDPGM 0
...
"""


def test_what_waits_for_memory_stands_behind_what_need_not_wait() -> None:
    memory = "load (s32) from %ir.p, addrspace 1"
    lines = [
        f"$vgpr2 = GLOBAL_LOAD_DWORD_SADDR $sgpr0_sgpr1, $vgpr0, 0, 0, implicit $exec :: ({memory})",
        "$vgpr3 = V_ADD_U32_e32 $vgpr2, $vgpr1, implicit $exec",
        "$vgpr4 = V_ADD_U32_e32 $vgpr1, $vgpr1, implicit $exec",
        f"$vgpr5 = GLOBAL_LOAD_DWORD_SADDR $sgpr0_sgpr1, $vgpr1, 0, 0, implicit $exec :: ({memory})",
        "$vgpr6 = V_ADD_U32_e32 $vgpr5, $vgpr3, implicit $exec",
    ]
    function = parse_mir(BODY.format("\n".join(f"    {line}" for line in lines))).functions[0]
    order = scheduled(
        items_of(function.blocks[0].instructions), pace_of(function.opcodes, target("gfx942")), loops=False
    )
    assert order[-1] == 5
    places = {of: at for at, of in enumerate(order)}
    assert places[3] < places[1] < places[4]
    assert places[2] < places[1]


def test_a_certificate_names_runs() -> None:
    assert certificate_of("f", {2: [0, 1, 2, 5, 3, 4]}) == "verilocc-order 1\nfunction f\nblock 2 0-2 5 3-4\nend\n"


def test_llc_takes_every_ordered_text() -> None:
    """With LLVM's machine verifier behind each pass."""
    text = late_text(KERNEL)
    file = parse_mir(text)
    new = print_mir(schedule.replace(file, functions=(ordered(file.functions[0], target("gfx90a")).function,)))
    flags = ["-start-before=si-post-ra-bundler", "-enable-post-misched=0", "-verify-machineinstrs"]
    assert "s_endpgm" in run_llc(new, "gfx90a", *flags)
