"""Control flow: uniform and divergent branches and loops, calls, and live ranges of physical registers."""

from __future__ import annotations

from collections.abc import Callable

from random_mir.code import Block, Operand, Register
from random_mir.skeleton import Skeleton
from random_mir.writer import Writer


class Flow:
    """Writes a function body, statement by statement."""

    def __init__(self, writer: Writer, skeleton: Skeleton) -> None:
        self.writer = writer
        self.skeleton = skeleton
        self.budget = writer.features.size

    # -- statements -------------------------------------------------------------------------------

    def statements(self, count: int, depth: int) -> None:
        features = self.writer.features
        choices: list[tuple[Callable[[int], None], int]] = [(self.straight, 60)]
        choices += [(self.call, 20)] if features.calls else []
        if depth < 3:
            choices += [(self.diamond, 8), (self.skip, 8)] if features.branches else []
            choices += [(self.repeat, 8), (self.maybe_repeat, 5)] if features.loops else []
            choices += [(self.two_entries, 8)] if features.irreducible else []
            if features.divergent:
                choices += [
                    (self.divergent_if, 10),
                    (self.divergent_if_else, 7),
                    (self.divergent_loop, 7),
                    (self.waterfall, 4),
                ]
            choices += [(self.fixed_across_blocks, 4)] if features.fixed else []
        for _ in range(count):
            (statement,) = self.writer.seed.choices([c for c, _ in choices], [w for _, w in choices])
            statement(depth)

    def straight(self, _depth: int = 0) -> None:
        for _ in range(self.writer.seed.randint(1, 5)):
            self.writer.any_instruction()
            self.budget -= 1

    def body(self, depth: int, count: int | None = None) -> None:
        """A region whose values end with it."""
        writer = self.writer
        writer.scopes.append([])
        self.statements(count or writer.seed.randint(1, 3 if self.budget > 0 else 1), depth + 1)
        self.update()
        writer.scopes.pop()

    def apart(self, depth: int, count: int | None = None) -> None:
        """A region that only some threads run."""
        self.writer.narrowed += 1
        self.body(depth, count)
        self.writer.narrowed -= 1

    def update(self) -> None:
        """Sometimes a variable gets a value of this region."""
        writer = self.writer
        for variable in writer.variables:
            if writer.chance(0.3):
                spec = f"{variable.bank}{variable.width}"
                value = writer.use({"av1": "w1"}.get(spec, spec))
                assert isinstance(value, Operand)
                if not value.undef and value.register is not variable:
                    writer.emit("<0> = COPY <1>", Operand(variable, is_def=True), value)

    # -- blocks -----------------------------------------------------------------------------------

    def start(self, block: Block) -> Block:
        """Goes on in ``block``, which comes next in the layout."""
        self.writer.blocks.append(block)
        self.writer.block = block
        return block

    def goto(self, target: Block) -> None:
        self.writer.block.successors = [target]
        self.writer.emit("S_BRANCH <bb0>")

    def choose(self, taken: Block, other: Block) -> None:
        """A uniform branch on SCC or VCC."""
        writer = self.writer
        writer.block.successors = [taken, other]
        machine = writer.machine
        if writer.chance(0.6):
            left, right = writer.use("s1"), writer.use("s1")
            assert isinstance(left, Operand)
            assert isinstance(right, Operand)
            writer.emit("S_CMP_LG_U32 <0>, <1>, implicit-def $scc", left, right)
            writer.emit(f"S_CBRANCH_SCC{writer.seed.randint(0, 1)} <bb0>, implicit $scc")
        else:
            mask = self.condition()
            writer.emit(
                f"{machine.vcc} = S_AND_{machine.suffix} {machine.exec}, <0>, implicit-def dead $scc", Operand(mask)
            )
            writer.emit(f"S_CBRANCH_VCCNZ <bb0>, implicit {machine.vcc}")
        writer.emit("S_BRANCH <bb1>")

    def condition(self) -> Register:
        """A fresh mask from a comparison."""
        writer = self.writer
        mask = writer.new("s", writer.machine.mask)
        left, right = writer.use("v1"), writer.use("v1")
        assert isinstance(left, Operand)
        assert isinstance(right, Operand)
        kind = writer.seed.choice(["V_CMP_GT_I32_e64", "V_CMP_NE_U32_e64", "V_CMP_LT_U32_e64"])
        writer.emit(f"<0> = {kind} <1>, <2>, implicit $exec", Operand(mask, is_def=True), left, right)
        return mask

    # -- uniform ----------------------------------------------------------------------------------

    def diamond(self, depth: int) -> None:
        then, other, join = Block(), Block(), Block()
        self.choose(other, then)
        for arm in (then, other):
            self.start(arm)
            self.body(depth)
            self.goto(join)
        self.start(join)

    def skip(self, depth: int) -> None:
        """A branch over a region: the edge that skips it is critical."""
        then, join = Block(), Block()
        self.choose(join, then)
        self.start(then)
        self.body(depth)
        self.goto(join)
        self.start(join)

    def repeat(self, depth: int) -> None:
        loop, leave = Block(), Block()
        self.goto(loop)
        self.start(loop)
        self.body(depth)
        self.choose(loop, leave)
        self.start(leave)

    def maybe_repeat(self, depth: int) -> None:
        """A loop that tests first, so it may run zero times."""
        head, loop, leave = Block(), Block(), Block()
        self.goto(head)
        self.start(head)
        self.writer.any_instruction()
        self.choose(leave, loop)
        self.start(loop)
        self.body(depth)
        self.goto(head)
        self.start(leave)

    def two_entries(self, depth: int) -> None:
        left, right, leave = Block(), Block(), Block()
        self.choose(right, left)
        self.start(left)
        self.body(depth)
        self.goto(right)
        self.start(right)
        self.body(depth)
        self.choose(left, leave)
        self.start(leave)

    # -- divergent --------------------------------------------------------------------------------

    def narrow(self, join: Block, then: Block) -> tuple[Register, Register]:
        """What SILowerControlFlow makes of SI_IF: the mask to restore, and that of the other threads."""
        writer, machine = self.writer, self.writer.machine
        condition = self.condition()
        saved, inside, others = (writer.new("s", machine.mask, strict=False) for _ in range(3))
        writer.emit(f"<0> = COPY {machine.exec}, implicit-def {machine.exec}", Operand(saved, is_def=True))
        writer.emit(
            f"<0> = S_AND_{machine.suffix} <1>, <2>, implicit-def dead $scc",
            Operand(inside, is_def=True),
            Operand(saved),
            Operand(condition),
        )
        writer.emit(
            f"<0> = S_XOR_{machine.suffix} <1>, <2>, implicit-def dead $scc",
            Operand(others, is_def=True),
            Operand(inside),
            Operand(saved),
        )
        writer.emit(f"{machine.exec} = S_MOV_{machine.suffix}_term <0>", Operand(inside))
        writer.emit("S_CBRANCH_EXECZ <bb0>, implicit $exec")
        writer.emit("S_BRANCH <bb1>")
        writer.block.successors = [join, then]
        return saved, others

    def widen(self, saved: Register) -> None:
        machine = self.writer.machine
        self.writer.emit(
            f"{machine.exec} = S_OR_{machine.suffix} {machine.exec}, <0>, implicit-def $scc", Operand(saved)
        )

    def divergent_if(self, depth: int) -> None:
        then, join = Block(), Block()
        saved, _ = self.narrow(join, then)
        self.start(then)
        self.apart(depth)
        self.goto(join)
        self.start(join)
        self.widen(saved)

    def divergent_if_else(self, depth: int) -> None:
        writer, machine = self.writer, self.writer.machine
        then, flow, other, join = Block(), Block(), Block(), Block()
        _, others = self.narrow(flow, then)
        self.start(then)
        self.apart(depth)
        self.goto(flow)
        self.start(flow)
        saved = writer.new("s", machine.mask, strict=False)
        writer.emit(
            f"<0> = S_OR_SAVEEXEC_{machine.suffix} <1>, implicit-def $exec, implicit-def $scc, implicit $exec",
            Operand(saved, is_def=True),
            Operand(others),
        )
        writer.emit(
            f"{machine.exec} = S_XOR_{machine.suffix}_term {machine.exec}, <0>, implicit-def $scc", Operand(saved)
        )
        writer.emit("S_CBRANCH_EXECZ <bb0>, implicit $exec")
        writer.emit("S_BRANCH <bb1>")
        writer.block.successors = [join, other]
        self.start(other)
        self.apart(depth)
        self.goto(join)
        self.start(join)
        self.widen(saved)

    def divergent_loop(self, depth: int) -> None:
        writer, machine = self.writer, self.writer.machine
        loop, leave = Block(), Block()
        done = writer.new("s", machine.mask, strict=False)
        writer.emit(f"<0> = S_MOV_{machine.suffix} 0", Operand(done, is_def=True))
        self.goto(loop)
        self.start(loop)
        self.apart(depth)
        stop, both = self.condition(), writer.new("s", machine.mask, strict=False)
        inside = writer.new("s", machine.mask, strict=False)
        writer.emit(
            f"<0> = S_AND_{machine.suffix} {machine.exec}, <1>, implicit-def $scc",
            Operand(inside, is_def=True),
            Operand(stop),
        )
        writer.emit(
            f"<0> = S_OR_{machine.suffix} <1>, <2>, implicit-def $scc",
            Operand(both, is_def=True),
            Operand(inside),
            Operand(done),
        )
        writer.emit("<0> = COPY <1>", Operand(done, is_def=True), Operand(both))
        writer.emit(
            f"{machine.exec} = S_ANDN2_{machine.suffix}_term {machine.exec}, <0>, implicit-def $scc", Operand(done)
        )
        writer.emit("S_CBRANCH_EXECNZ <bb0>, implicit $exec")
        writer.emit("S_BRANCH <bb1>")
        writer.block.successors = [loop, leave]
        self.start(leave)
        self.widen(done)

    def waterfall(self, depth: int) -> None:
        """One round for each distinct value of a vector register, which is read as a scalar in the loop."""
        writer, machine = self.writer, self.writer.machine
        head, body, leave = Block(), Block(), Block()
        value = writer.use("v1")
        assert isinstance(value, Operand)
        if value.undef:
            return
        saved = writer.new("s", machine.mask, strict=False)
        writer.emit(f"<0> = S_MOV_{machine.suffix} {machine.exec}", Operand(saved, is_def=True))
        self.goto(head)
        self.start(head)
        writer.scopes.append([])
        scalar, same, before = writer.new("s", 1), writer.new("s", machine.mask), writer.new("s", machine.mask)
        writer.emit("<0> = V_READFIRSTLANE_B32 <1>, implicit $exec", Operand(scalar, is_def=True), _again(value))
        writer.emit(
            "<0> = V_CMP_EQ_U32_e64 <1>, <2>, implicit $exec",
            Operand(same, is_def=True),
            Operand(scalar),
            _again(value),
        )
        writer.emit(
            f"<0> = S_AND_SAVEEXEC_{machine.suffix} killed <1>, implicit-def $exec, implicit-def $scc, implicit $exec",
            Operand(before, is_def=True),
            Operand(same),
        )
        writer.known(scalar)
        self.goto(body)
        self.start(body)
        self.apart(max(depth, 2), 1)
        writer.emit(
            f"{machine.exec} = S_XOR_{machine.suffix}_term {machine.exec}, <0>, implicit-def $scc", Operand(before)
        )
        writer.emit("S_CBRANCH_EXECNZ <bb0>, implicit $exec")
        writer.emit("S_BRANCH <bb1>")
        writer.block.successors = [head, leave]
        writer.scopes.pop()
        self.start(leave)
        writer.emit(f"{machine.exec} = S_MOV_{machine.suffix} <0>", Operand(saved))

    # -- physical registers -----------------------------------------------------------------------

    def fixed_across_blocks(self, _depth: int) -> None:
        """A scalar argument register that is written in one block and read in the next."""
        writer = self.writer
        name = f"$sgpr{writer.seed.randint(4, 12)}"
        value = writer.use("s1")
        assert isinstance(value, Operand)
        if value.undef:
            return
        writer.emit(f"{name} = COPY <0>", value)
        after = Block(live_ins=[name])
        self.goto(after)
        self.start(after)
        for _ in range(writer.seed.randint(0, 3)):
            writer.any_instruction()
        register = writer.new("s", 1, strict=writer.chance(0.5))
        writer.emit(f"<0> = COPY {name}", Operand(register, is_def=True))
        writer.known(register)

    def call(self, _depth: int) -> None:
        writer = self.writer
        stack = "implicit-def dead $scc, implicit-def $sgpr32, implicit $sgpr32"
        writer.emit(f"ADJCALLSTACKUP 0, 0, {stack}")
        callee = writer.new("s", 2, strict=True)
        writer.emit(
            "<0> = SI_PC_ADD_REL_OFFSET target-flags(amdgpu-rel32-lo) @callee, target-flags(amdgpu-rel32-hi) @callee, "
            "implicit-def dead $scc",
            Operand(callee, is_def=True),
        )
        values: list[tuple[str, Operand | None]] = []
        for name in self.skeleton.passed:
            bank, width = bank_and_width(name)
            value = writer.use(f"{bank}{width}")
            assert isinstance(value, Operand)
            given = not value.undef and not (writer.features.undef and writer.chance(0.15)) and not value.sub
            values.append((name, value if given else None))
        for name, value in values:
            if value is not None:
                writer.emit(f"{name} = COPY <0>", value)
        passed = ", ".join(f"implicit {'' if value else 'undef '}{name}" for name, value in values)
        writer.emit(
            f"dead $sgpr30_sgpr31 = SI_CALL <0>, @callee, {self.skeleton.mask}, {passed}, implicit-def $vgpr0",
            Operand(callee),
        )
        writer.emit(f"ADJCALLSTACKDOWN 0, 0, {stack}")
        result = writer.new("v", 1)
        writer.emit("<0> = COPY $vgpr0", Operand(result, is_def=True))
        writer.known(result)


def bank_and_width(name: str) -> tuple[str, int]:
    """``$sgpr4_sgpr5`` is scalar, two lanes."""
    return ("v" if "vgpr" in name else "s"), name.count("_") + 1


def _again(operand: Operand) -> Operand:
    return Operand(operand.register, operand.sub)
