target triple = "amdgcn-amd-amdhsa"
declare i32 @callee(i32)
declare i32 @llvm.amdgcn.workitem.id.x()
define void @k(ptr addrspace(1) %p) "amdgpu-num-vgpr"="12" "amdgpu-agpr-alloc"="0" "target-cpu"="gfx942" {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %r = call i32 @callee(i32 %t)
  %a0 = getelementptr i32, ptr addrspace(1) %q, i32 1
  %x0 = load volatile i32, ptr addrspace(1) %a0
  %a1 = getelementptr i32, ptr addrspace(1) %q, i32 2
  %x1 = load volatile i32, ptr addrspace(1) %a1
  %a2 = getelementptr i32, ptr addrspace(1) %q, i32 3
  %x2 = load volatile i32, ptr addrspace(1) %a2
  %a3 = getelementptr i32, ptr addrspace(1) %q, i32 4
  %x3 = load volatile i32, ptr addrspace(1) %a3
  %a4 = getelementptr i32, ptr addrspace(1) %q, i32 5
  %x4 = load volatile i32, ptr addrspace(1) %a4
  %a5 = getelementptr i32, ptr addrspace(1) %q, i32 6
  %x5 = load volatile i32, ptr addrspace(1) %a5
  store volatile i32 %x0, ptr addrspace(1) %q
  store volatile i32 %x1, ptr addrspace(1) %q
  store volatile i32 %x2, ptr addrspace(1) %q
  store volatile i32 %x3, ptr addrspace(1) %q
  store volatile i32 %x4, ptr addrspace(1) %q
  store volatile i32 %x5, ptr addrspace(1) %q
  store volatile i32 %t, ptr addrspace(1) %q
  store volatile i32 %r, ptr addrspace(1) %q
  ret void
}
