target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k() {
  %x = call i32 asm sideeffect "s_mov_b32 $0, 0", "={vcc_lo}"()
  call void asm sideeffect "; use $0", "{vcc_lo}"(i32 %x)
  ret void
}
