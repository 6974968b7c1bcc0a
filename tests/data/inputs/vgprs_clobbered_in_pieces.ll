target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %x) {
  call void asm sideeffect "", "~{v[0:7]}"()
  call void asm sideeffect "", "~{v[8:39]}"()
  call void asm sideeffect "", "~{v[40:55]}"()
  call void asm sideeffect "", "~{v[56:63]}"()
  store i32 %x, ptr addrspace(1) %p
  ret void
}
