target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i8, ptr addrspace(1) %p, i32 %t
  %v0 = load volatile <32 x i32>, ptr addrspace(1) %g
  %v1 = load volatile <32 x i32>, ptr addrspace(1) %g
  %v2 = load volatile <32 x i32>, ptr addrspace(1) %g
  %v3 = load volatile <32 x i32>, ptr addrspace(1) %g
  %v4 = load volatile <32 x i32>, ptr addrspace(1) %g
  store volatile <32 x i32> %v0, ptr addrspace(1) %g
  store volatile <32 x i32> %v1, ptr addrspace(1) %g
  store volatile <32 x i32> %v2, ptr addrspace(1) %g
  store volatile <32 x i32> %v3, ptr addrspace(1) %g
  store volatile <32 x i32> %v4, ptr addrspace(1) %g
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
