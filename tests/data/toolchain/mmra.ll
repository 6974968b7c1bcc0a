define amdgpu_kernel void @fenced(ptr addrspace(1) %p) {
  store i32 1, ptr addrspace(1) %p
  fence syncscope("workgroup") release, !mmra !0
  store i32 2, ptr addrspace(1) %p
  ret void
}
!0 = !{!"amdgpu-synchronize-as", !"local"}
