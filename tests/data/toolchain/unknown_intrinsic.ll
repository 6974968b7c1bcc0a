declare void @llvm.amdgcn.asyncmark()
define amdgpu_kernel void @marked(ptr addrspace(1) %p) {
  call void @llvm.amdgcn.asyncmark()
  store i32 1, ptr addrspace(1) %p
  ret void
}
