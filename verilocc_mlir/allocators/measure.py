"""What an assignment costs, as far as it can be said of the assignment alone."""

from __future__ import annotations

from dataclasses import dataclass

from verilocc_mlir.allocators.cost import file_total, scalar_waves, vector_waves
from verilocc_mlir.problem.model import AllocationProblem, Proposal
from verilocc_mlir.target.registers import physical_register


@dataclass(frozen=True, slots=True)
class Measured:
    """Registers and copies of one phase.

    Attributes:
        sgprs, vgprs, agprs: 32-bit registers of the file, up to the highest one used.
        waves: waves per SIMD that this phase's registers allow.
        copies: estimated executions of the copies that stay.
    """

    sgprs: int
    vgprs: int
    agprs: int
    waves: int
    copies: float


def measure(problem: AllocationProblem, proposal: Proposal) -> Measured:
    """The cost of a proposal that answers ``problem``: every range with a register that exists, or none."""
    registers = [physical_register(name) if name else None for name in proposal.registers]
    highest = {"sgpr": 0, "vgpr": 0, "agpr": 0}
    for register in registers:
        if register is not None and register.bank.value in highest:
            bank = register.bank.value
            highest[bank] = max(highest[bank], register.first + -(-len(register.units) // 2))
    copies = 0.0
    for affinity in problem.affinities:
        source = registers[affinity.a]
        partner = registers[affinity.b] if affinity.b >= 0 else physical_register(affinity.fixed)
        if source is None or partner is None or source.units[0] + affinity.a_lane != partner.units[0] + affinity.b_lane:
            copies += affinity.weight
    if problem.phase == "sgpr":
        waves = min(scalar_waves(problem, highest["sgpr"]), problem.occupancy.max_waves)
    else:
        waves = vector_waves(file_total(highest["vgpr"], highest["agpr"], problem.occupancy), problem.occupancy)
    return Measured(highest["sgpr"], highest["vgpr"], highest["agpr"], waves, copies)
