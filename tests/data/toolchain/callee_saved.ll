; A local function that writes callee-saved VGPRs (v40 to v43), and a caller that keeps values across the call.
declare i32 @llvm.amdgcn.workitem.id.x()

define internal i32 @helper(i32 %a) noinline norecurse {
  call void asm sideeffect "; writes", "~{v40},~{v41},~{v42},~{v43}"()
  %r = mul i32 %a, 7
  ret i32 %r
}

define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i32, ptr addrspace(1) %q, i32 %i
  %v0 = load volatile i32, ptr addrspace(1) %g
  %v1 = load volatile i32, ptr addrspace(1) %g
  %r = call i32 @helper(i32 %i)
  %s0 = mul i32 %r, %v0
  %s1 = mul i32 %s0, %v1
  store i32 %s1, ptr addrspace(1) %p
  ret void
}
