target triple = "amdgcn-amd-amdhsa"
declare <6 x i32> @llvm.amdgcn.cvt.scalef32.2xpk16.fp6.f32(<16 x float>, <16 x float>, float)
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q, float %s) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr <16 x float>, ptr addrspace(1) %p, i32 %i
  %x = load <16 x float>, ptr addrspace(1) %a
  %b = getelementptr <16 x float>, ptr addrspace(1) %a, i32 1024
  %y = load <16 x float>, ptr addrspace(1) %b
  %c = call <6 x i32> @llvm.amdgcn.cvt.scalef32.2xpk16.fp6.f32(<16 x float> %x, <16 x float> %y, float %s)
  %d = getelementptr <6 x i32>, ptr addrspace(1) %q, i32 %i
  store <6 x i32> %c, ptr addrspace(1) %d
  ret void
}
