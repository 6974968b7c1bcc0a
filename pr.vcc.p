--- |
  define void @f() #0 {
    ret void
  }

  define amdgpu_kernel void @k() #0 {
    ret void
  }
  attributes #0 = { "target-cpu"="gfx1201" }
...
---
name:            f
tracksRegLiveness: true
registers:
  - { id: 1, class: vgpr_32 }
  - { id: 2, class: vgpr_32 }
frameInfo:
  maxAlignment:    4
stack: []
machineFunctionInfo:
  isEntryFunction: false
  stackPtrOffsetReg: '$sgpr32'
  frameOffsetReg: '$sgpr33'
body:             |
  bb.0:
    liveins: $vgpr0, $sgpr30_sgpr31
    %1:vgpr_32 = V_ADD_U32_e64 $vgpr0, $vgpr0, 0, implicit $exec
    %2:vgpr_32 = V_XOR_B32_e64 $vgpr0, %1, implicit $exec
    $vgpr0 = V_XOR_B32_e64 %2, %1, implicit $exec
    SI_RETURN implicit $vgpr0
...
---
name:            k
tracksRegLiveness: true
frameInfo:
  maxAlignment:    4
  hasCalls: true
stack: []
machineFunctionInfo:
  isEntryFunction: true
  stackPtrOffsetReg: '$sgpr32'
body:             |
  bb.0:
    liveins: $sgpr4_sgpr5, $vgpr0, $sgpr6
    $vcc_lo = S_MOV_B32 5
    renamable $sgpr4_sgpr5 = SI_PC_ADD_REL_OFFSET target-flags(amdgpu-rel32-lo) @f, target-flags(amdgpu-rel32-hi) @f, implicit-def dead $scc
    S_NOP 0
    dead $sgpr30_sgpr31 = SI_CALL killed renamable $sgpr4_sgpr5, @f, CustomRegMask($vcc,$vcc_lo,$vcc_hi,$sgpr31), implicit killed $vgpr0, implicit-def $vgpr0
    S_NOP 0, implicit $vgpr0, implicit $vcc_lo
    S_ENDPGM 0
...
