"""Which operands may be in either vector register file, whatever class the text before allocation gives them."""

from __future__ import annotations

import pytest
from allocation import Pair
from audit_support import HEAD

from smt_verifier.outcome import Outcome

END = "    S_ENDPGM 0\n...\n"
VREGS = HEAD.replace(
    "  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }\n",
    "  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }\n"
    "  - { id: 1, class: vreg_128_align2, preferred-register: '', flags: [  ] }\n",
)
MEMORY = ":: (load (s128), addrspace 3)"
CASES = [
    (
        "%1:vreg_128_align2 = DS_READ2_B64_gfx9 $vgpr0, 0, 1, 0, implicit $exec " + MEMORY,
        "DS_WRITE_B128_gfx9 $vgpr0, %1, 0, 0, implicit $exec :: (store (s128), addrspace 3)",
        "$agpr0_agpr1_agpr2_agpr3",
        True,
    ),
    (
        "%0:vgpr_32 = AV_MOV_B32_IMM_PSEUDO 0, implicit $exec",
        "DS_WRITE_B32_gfx9 $vgpr0, %0, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
        "$agpr4",
        True,
    ),
    (
        "%0:vgpr_32 = V_MOV_B32_e32 0, implicit $exec",
        "DS_WRITE_B32_gfx9 $vgpr0, %0, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
        "$agpr4",
        False,
    ),
    (
        "%1:vreg_128_align2 = DS_READ2_B64_gfx9 $vgpr0, 0, 1, 0, implicit $exec " + MEMORY,
        "DS_WRITE_B128_gfx9 $vgpr0, %1, 0, 0, implicit $exec :: (store (s128), addrspace 3)",
        "$agpr1_agpr2_agpr3_agpr4",
        False,
    ),
    (
        "%0:vgpr_32 = AV_MOV_B32_IMM_PSEUDO 0, implicit $exec",
        "DS_WRITE_B32_gfx9 %0, $vgpr0, 0, 0, implicit $exec :: (store (s32), addrspace 3)",
        "$agpr4",
        False,
    ),
]


@pytest.mark.parametrize(
    ("define", "use", "register", "right"),
    CASES,
    ids=["load and store", "constant", "computed", "misaligned", "address"],
)
def test_either_file(define: str, use: str, register: str, right: bool) -> None:
    before = f"{VREGS}    {define}\n    {use}\n{END}"
    after = before
    for name in ("%0:vgpr_32", "%1:vreg_128_align2", "%0", "%1"):
        after = after.replace(name, register)
    audited = Pair("gfx942", before, after)
    if right:
        assert audited.audit().outcome is Outcome.PROVED
    else:
        assert audited.rules() == {"register-class"}
