"""One rule of the rewriter at a time, on small machine functions with registers given by hand."""

from __future__ import annotations

import pytest
from builders import mir_file, problem_of_body
from msgspec.structs import replace

from verilocc_mlir.errors import InputError
from verilocc_mlir.mir.model import MachineFunction
from verilocc_mlir.mir.parser import parse_mir
from verilocc_mlir.mir.printer import print_mir
from verilocc_mlir.problem.build import Phase, build_problem
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.rewrite import rewrite_function
from verilocc_mlir.target.targets import target


def rewritten(body: str, places: dict[str, str], phase: Phase = "vgpr", cpu: str = "gfx942") -> MachineFunction:
    """``body`` with registers given by virtual register, ``{"%0": "vgpr4"}``."""
    file = mir_file(body)
    problem = build_problem(file, file.functions[0], target(cpu), phase)
    proposal = Proposal(1, "by hand", tuple(places[r.name] for r in problem.ranges))
    return rewrite_function(file, file.functions[0], problem, proposal, target(cpu))


def lines(function: MachineFunction, block: int = 0) -> list[str]:
    return [str(i) for i in function.blocks[block].instructions]


def liveins(function: MachineFunction, block: int) -> set[str]:
    return {str(live) for live in function.blocks[block].liveins}


class TestOperands:
    def test_a_subregister_names_its_physical_part(self) -> None:
        done = rewritten(
            """
  bb.0:
    %0:vreg_128 = IMPLICIT_DEF
    S_NOP 0, implicit %0.sub1_sub2, implicit %0.sub3, implicit %0
""",
            {"%0": "vgpr4_vgpr5_vgpr6_vgpr7"},
        )
        assert lines(done)[0].startswith("S_NOP 0, implicit ")
        names = [o.phys for o in done.blocks[0].instructions[0].operands[1:]]
        assert names == ["vgpr5_vgpr6", "vgpr7", "vgpr4_vgpr5_vgpr6_vgpr7"]

    def test_class_type_and_kill_flag_go_and_renamable_comes(self) -> None:
        done = rewritten(
            """
  bb.0:
    %0:vgpr_32(s32) = V_MOV_B32_e32 7, implicit $exec
    S_NOP 0, implicit killed %0(s32)
""",
            {"%0": "vgpr3"},
        )
        assert lines(done) == [
            "renamable $vgpr3 = V_MOV_B32_e32 7, implicit $exec",
            "S_NOP 0, implicit renamable $vgpr3",
        ]

    def test_a_partial_definition_loses_undef(self) -> None:
        done = rewritten(
            """
  bb.0:
    undef %0.sub1:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    S_NOP 0, implicit %0.sub1
""",
            {"%0": "vgpr2_vgpr3"},
        )
        assert lines(done)[0] == "renamable $vgpr3 = V_MOV_B32_e32 7, implicit $exec"

    def test_an_undefined_use_stays_undefined(self) -> None:
        done = rewritten(
            """
  bb.0:
    S_NOP 0, implicit undef %0:vgpr_32
""",
            {"%0": "vgpr2"},
        )
        assert lines(done) == ["S_NOP 0, implicit undef renamable $vgpr2"]

    def test_a_read_of_lanes_never_defined_becomes_undefined(self) -> None:
        done = rewritten(
            """
  bb.0:
    undef %0.sub1:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    S_NOP 0, implicit %0.sub0, implicit %0
""",
            {"%0": "vgpr2_vgpr3"},
        )
        assert lines(done)[1] == "S_NOP 0, implicit undef renamable $vgpr2, implicit renamable $vgpr2_vgpr3"

    def test_dead_early_clobber_and_tie_stay(self) -> None:
        done = rewritten(
            """
  bb.0:
    %1:vgpr_32 = V_MOV_B32_e32 7, implicit $exec
    INLINEASM &"; $0 $1", 0 /* attdialect */, 2228234 /* regdef:VGPR_32 */, def early-clobber dead %0:vgpr_32, """
            """2228233 /* regdef */, def %1, 2147549193 /* reguse tiedto:$1 */, %1(tied-def 5)
    S_NOP 0, implicit %1
""",
            {"%0": "vgpr0", "%1": "vgpr1"},
        )
        text = lines(done)[1]
        flags = {o.phys: o.flags for o in done.blocks[0].instructions[1].operands if o.phys == "vgpr0"}
        assert set(flags["vgpr0"]) == {"def", "dead", "early-clobber", "renamable"}
        assert text.endswith("renamable $vgpr1(tied-def 5)")

    def test_fixed_registers_are_untouched(self) -> None:
        done = rewritten(
            """
  bb.0:
    liveins: $vgpr0
    %0:vgpr_32 = COPY killed $vgpr0
    S_NOP 0, implicit %0, implicit-def dead $scc
""",
            {"%0": "vgpr1"},
        )
        assert lines(done) == [
            "renamable $vgpr1 = COPY killed $vgpr0",
            "S_NOP 0, implicit renamable $vgpr1, implicit-def dead $scc",
        ]

    def test_halves_of_a_register(self) -> None:
        done = rewritten(
            """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec
    %1:vgpr_16 = COPY %0.hi16
    S_NOP 0, implicit %1
""",
            {"%0": "vgpr0", "%1": "vgpr1_lo16"},
            cpu="gfx1100",
        )
        assert lines(done)[1] == "renamable $vgpr1_lo16 = COPY renamable $vgpr0_hi16"


class TestCopies:
    BODY = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec
    %1:vgpr_32 = COPY %0{more}
    S_NOP 0, implicit %1
"""

    def test_a_copy_onto_itself_vanishes(self) -> None:
        done = rewritten(self.BODY.format(more=""), {"%0": "vgpr0", "%1": "vgpr0"})
        assert [i.opcode for i in done.blocks[0].instructions] == ["V_MOV_B32_e32", "S_NOP"]

    def test_a_copy_elsewhere_stays(self) -> None:
        done = rewritten(self.BODY.format(more=""), {"%0": "vgpr0", "%1": "vgpr1"})
        assert [i.opcode for i in done.blocks[0].instructions] == ["V_MOV_B32_e32", "COPY", "S_NOP"]

    def test_a_copy_with_more_to_say_becomes_a_kill(self) -> None:
        done = rewritten(self.BODY.format(more=", implicit $exec"), {"%0": "vgpr0", "%1": "vgpr0"})
        assert lines(done)[1] == "renamable $vgpr0 = KILL renamable $vgpr0, implicit $exec"

    def test_a_copy_of_an_undefined_register_onto_itself_becomes_a_kill(self) -> None:
        body = "\n  bb.0:\n    %1:vgpr_32 = COPY undef %0:vgpr_32\n    S_NOP 0, implicit %1\n"
        done = rewritten(body, {"%0": "vgpr0", "%1": "vgpr0"})
        assert lines(done)[0] == "renamable $vgpr0 = KILL undef renamable $vgpr0"

    @pytest.mark.parametrize(
        ("first", "width", "left"), [("undef %0.sub1:vreg_64", "", ["KILL"]), ("%0:vreg_64", "X2", [])]
    )
    def test_a_copy_of_lanes_never_defined_onto_itself_becomes_a_kill(
        self, first: str, width: str, left: list[str]
    ) -> None:
        """Spill code may store such a lane alone; the verifier wants to see where it comes from."""
        body = f"""
  bb.0:
    liveins: $vgpr0_vgpr1
    {first} = GLOBAL_LOAD_DWORD{width} $vgpr0_vgpr1, 0, 0, implicit $exec
    %1:vreg_64 = COPY %0
    S_NOP 0, implicit %1.sub0
"""
        done = rewritten(body, {"%0": "vgpr2_vgpr3", "%1": "vgpr2_vgpr3"})
        assert [i.opcode for i in done.blocks[0].instructions][1:-1] == left

    def test_a_copy_of_a_part_onto_itself_vanishes(self) -> None:
        body = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec
    undef %1.sub1:vreg_64 = COPY %0
    S_NOP 0, implicit %1.sub1
"""
        done = rewritten(body, {"%0": "vgpr3", "%1": "vgpr2_vgpr3"})
        assert [i.opcode for i in done.blocks[0].instructions] == ["V_MOV_B32_e32", "S_NOP"]


class TestDebugValues:
    BODY = """
  bb.0:
    %0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec
    DBG_VALUE %0, $noreg, !1, !DIExpression()
    S_NOP 0, implicit %0
    DBG_VALUE %0, $noreg, !1, !DIExpression()
"""

    def test_a_value_is_named_only_where_it_is(self) -> None:
        done = lines(rewritten(self.BODY, {"%0": "vgpr5"}))
        assert done[1].startswith("DBG_VALUE renamable $vgpr5, $noreg")
        assert done[3].startswith("DBG_VALUE $noreg, $noreg")


class TestLiveIns:
    BODY = """
  bb.0:
    successors: %bb.1(0x80000000)
    liveins: $vgpr9, $sgpr2
    undef %0.sub0:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    %1:vreg_64 = IMPLICIT_DEF
    %1.sub0:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    %1.sub1:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    %2:sreg_32 = S_MOV_B32 0

  bb.1:
    liveins: $sgpr2
    S_NOP 0, implicit %0, implicit %1, implicit $sgpr2, implicit %2
"""

    def test_lane_masks_stand_where_only_a_part_is_live(self) -> None:
        done = rewritten(self.BODY, {"%0": "vgpr0_vgpr1", "%1": "vgpr2_vgpr3"})
        assert liveins(done, 1) == {"$sgpr2", "$vgpr0_vgpr1:0x0000000000000003", "$vgpr2_vgpr3"}

    def test_what_was_declared_stays_and_other_phases_are_left_out(self) -> None:
        done = rewritten(self.BODY, {"%2": "sgpr3"}, phase="sgpr")
        assert liveins(done, 0) == {"$vgpr9", "$sgpr2"}
        assert liveins(done, 1) == {"$sgpr2", "$sgpr3"}
        assert "%1.sub0:vreg_64" in str(done.blocks[0].instructions[2])

    def test_lanes_undefined_on_one_path_into_a_join_are_defined_implicitly(self) -> None:
        body = """
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    undef %0.sub0:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    S_CBRANCH_SCC0 %bb.2, implicit undef $scc
    S_BRANCH %bb.1

  bb.1:
    successors: %bb.2(0x80000000)
    %0.sub1:vreg_64 = V_MOV_B32_e32 7, implicit $exec

  bb.2:
    S_NOP 0, implicit %0
"""
        done = rewritten(body, {"%0": "vgpr0_vgpr1"})
        assert lines(done)[0] == "renamable $vgpr0 = V_MOV_B32_e32 7, implicit $exec, implicit-def $vgpr1"
        assert liveins(done, 2) == {"$vgpr0_vgpr1"}

    def test_but_not_where_another_value_is_held(self) -> None:
        body = """
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    %1:vgpr_32 = V_MOV_B32_e32 1, implicit $exec
    undef %0.sub0:vreg_64 = V_MOV_B32_e32 7, implicit $exec
    S_NOP 0, implicit %1
    S_CBRANCH_SCC0 %bb.2, implicit undef $scc
    S_BRANCH %bb.1

  bb.1:
    successors: %bb.2(0x80000000)
    %0.sub1:vreg_64 = V_MOV_B32_e32 7, implicit $exec

  bb.2:
    S_NOP 0, implicit %0
"""
        done = rewritten(body, {"%0": "vgpr0_vgpr1", "%1": "vgpr1"})
        assert "implicit-def" not in lines(done)[1]


class TestUndefinedIntoAJoin:
    """A scalar that only one path into a join defines: the other one says that it may be anything."""

    BODY = """
  bb.0:
    successors: %bb.1(0x40000000), %bb.2(0x40000000)
    %1:sreg_32 = S_MOV_B32 1
    %0:sreg_64 = IMPLICIT_DEF
    S_NOP 0, implicit %1
    S_CBRANCH_SCC0 %bb.2, implicit undef $scc
    S_BRANCH %bb.1

  bb.1:
    successors: %bb.3(0x80000000)
    %0:sreg_64 = S_MOV_B64 8
    S_BRANCH %bb.3

  bb.2:
    successors: %bb.3(0x80000000)
    S_NOP 2

  bb.3:
    S_NOP 0, implicit %0
"""

    def test_the_last_block_before_the_join_defines_it(self) -> None:
        """Between, the register is another's."""
        done = rewritten(self.BODY, {"%0": "sgpr2_sgpr3", "%1": "sgpr2"}, phase="sgpr")
        assert lines(done)[1] == "S_NOP 0, implicit renamable $sgpr2"
        assert lines(done, 2) == ["S_NOP 2", "renamable $sgpr2_sgpr3 = IMPLICIT_DEF"]
        assert liveins(done, 2) == set()
        assert liveins(done, 3) == {"$sgpr2_sgpr3"}

    def test_before_the_branch(self) -> None:
        body = self.BODY.replace("S_NOP 2\n", "S_NOP 2\n    S_BRANCH %bb.3\n")
        done = rewritten(body, {"%0": "sgpr2_sgpr3", "%1": "sgpr2"}, phase="sgpr")
        assert lines(done, 2) == ["S_NOP 2", "renamable $sgpr2_sgpr3 = IMPLICIT_DEF", "S_BRANCH %bb.3"]

    def test_only_what_nothing_is_held_in(self) -> None:
        """The branch reads the low half for another value."""
        body = self.BODY.replace(
            "S_NOP 2\n",
            "%2:sreg_32 = S_MOV_B32 4\n    $exec_lo = S_MOV_B32_term %2\n",
        )
        done = rewritten(body, {"%0": "sgpr2_sgpr3", "%1": "sgpr2", "%2": "sgpr2"}, phase="sgpr")
        assert lines(done, 2)[1:] == [
            "renamable $sgpr3 = IMPLICIT_DEF",
            "$exec_lo = S_MOV_B32_term renamable $sgpr2",
        ]

    def test_one_that_stayed_is_enough(self) -> None:
        """An IMPLICIT_DEF of a vector register occupies it for a moment where lanes may be inactive."""
        body = self.BODY.replace("S_MOV_B64 8", "V_MOV_B64_PSEUDO 8, implicit $exec")
        body = body.replace("S_NOP 2", "%0:sreg_64 = IMPLICIT_DEF\n    $exec = S_MOV_B64 1")
        body = body.replace("sreg_64", "vreg_64_align2")
        done = rewritten(body, {"%0": "vgpr2_vgpr3"})
        assert lines(done, 2) == ["renamable $vgpr2_vgpr3 = IMPLICIT_DEF", "$exec = S_MOV_B64 1"]


class TestHeader:
    def header(self, phase: Phase, places: dict[str, str]) -> list[str]:
        file = mir_file("\n  bb.0:\n    %0:vgpr_32 = COPY $vgpr0\n    %1:sgpr_32 = COPY $sgpr4\n")
        text = (
            print_mir(file)
            .replace("registers:", "noVRegs:         false\nregisters:")
            .replace("class: vgpr_32, preferred-register: ''", "class: vgpr_32, preferred-register: '%1'")
            .replace(
                "machineFunctionInfo:",
                "liveins:\n  - { reg: '$vgpr0', virtual-reg: '%0' }\n"
                "  - { reg: '$sgpr4', virtual-reg: '%1' }\nmachineFunctionInfo:",
            )
        )
        file = parse_mir(text)
        problem = build_problem(file, file.functions[0], target("gfx942"), phase)
        proposal = Proposal(1, "by hand", tuple(places[r.name] for r in problem.ranges))
        done = rewrite_function(file, file.functions[0], problem, proposal, target("gfx942"))
        assert "\n".join(done.header_lines).count("scratchRSrcReg:  '$private_rsrc_reg'") == 1
        return [line.strip() for line in done.header_lines]

    def test_scalar_phase_keeps_the_vector_registers(self) -> None:
        header = self.header("sgpr", {"%1": "sgpr5"})
        assert "- { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }" in header
        assert not any("id: 1," in line for line in header)
        assert "noVRegs:         false" in header
        assert "- { reg: '$vgpr0', virtual-reg: '%0' }" in header
        assert "- { reg: '$sgpr4', virtual-reg: '' }" in header

    def test_last_phase_leaves_none(self) -> None:
        header = self.header("vgpr", {"%0": "vgpr5"})
        assert "registers:       []" in header
        assert "noVRegs:         true" in header
        assert "- { reg: '$vgpr0', virtual-reg: '' }" in header


class TestRefusals:
    BODY = "\n  bb.0:\n    %0:vreg_64 = IMPLICIT_DEF\n    S_NOP 0, implicit %0\n"

    def ask(self) -> tuple[AllocationProblem, Proposal]:
        problem = problem_of_body(self.BODY)
        return problem, Proposal(1, "by hand", ("vgpr0_vgpr1",))

    def test_a_register_of_another_size(self) -> None:
        with pytest.raises(InputError, match=r"\$vgpr0 has 2 16-bit lanes, %0 has 4"):
            rewritten(self.BODY, {"%0": "vgpr0"})

    def test_a_range_without_a_register(self) -> None:
        with pytest.raises(InputError, match="no register proposed for %0"):
            rewritten(self.BODY, {"%0": ""})

    def test_a_proposal_of_another_length(self) -> None:
        file = mir_file(self.BODY)
        problem, proposal = self.ask()
        with pytest.raises(InputError, match="0 registers proposed for 1 ranges"):
            rewrite_function(file, file.functions[0], problem, replace(proposal, registers=()), target("gfx942"))

    def test_a_problem_of_another_function(self) -> None:
        file = mir_file(self.BODY)
        problem, proposal = self.ask()
        with pytest.raises(InputError, match="the allocation problem of g is not this function's"):
            rewrite_function(file, file.functions[0], replace(problem, function="g"), proposal, target("gfx942"))

    def test_a_problem_for_another_target(self) -> None:
        file = mir_file(self.BODY)
        problem, proposal = self.ask()
        with pytest.raises(InputError, match="is for gfx942, not gfx950"):
            rewrite_function(file, file.functions[0], problem, proposal, target("gfx950"))
