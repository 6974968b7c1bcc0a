target triple = "amdgcn-amd-amdhsa"
define void @f(ptr addrspace(1) %p) {
  %v = load volatile i32, ptr addrspace(1) %p
  call void asm sideeffect "; x", "~{s33}"()
  store volatile i32 %v, ptr addrspace(1) %p
  ret void
}
