target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare <32 x float> @llvm.amdgcn.mfma.f32.32x32x1f32(float, float, <32 x float>, i32, i32, i32)
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half>, <4 x half>, <16 x float>, i32, i32, i32)
define amdgpu_kernel void @mfma(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr float, ptr addrspace(1) %p, i32 %t
  %gh = getelementptr <4 x half>, ptr addrspace(1) %p, i32 %t
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %acc = phi <32 x float> [ zeroinitializer, %entry ], [ %next, %loop ]
  %acc2 = phi <16 x float> [ zeroinitializer, %entry ], [ %next2, %loop ]
  %ga = getelementptr float, ptr addrspace(1) %g, i32 %i
  %a = load float, ptr addrspace(1) %ga
  %gb = getelementptr <4 x half>, ptr addrspace(1) %gh, i32 %i
  %b = load <4 x half>, ptr addrspace(1) %gb
  %next = call <32 x float> @llvm.amdgcn.mfma.f32.32x32x1f32(float %a, float %a, <32 x float> %acc, i32 0, i32 0, i32 0)
  %next2 = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x8f16(<4 x half> %b, <4 x half> %b, <16 x float> %acc2, i32 0, i32 0, i32 0)
  %i1 = add i32 %i, 1
  %c = icmp slt i32 %i1, %n
  br i1 %c, label %loop, label %exit
exit:
  %o = getelementptr <32 x float>, ptr addrspace(1) %q, i32 %t
  store <32 x float> %next, ptr addrspace(1) %o
  %o2 = getelementptr <16 x float>, ptr addrspace(1) %q, i32 %t
  store <16 x float> %next2, ptr addrspace(1) %o2
  ret void
}
