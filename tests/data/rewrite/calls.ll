target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @extern_sum(i32, i32)

define internal fastcc i64 @scale(i64 %a, i64 %b) noinline {
  %m = mul i64 %a, %b
  %s = add i64 %m, 17
  ret i64 %s
}

define float @callee_saved(ptr addrspace(1) %p, float %x, i32 %n) noinline {
entry:
  %v0 = load <8 x float>, ptr addrspace(1) %p
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %acc = phi <8 x float> [ %v0, %entry ], [ %next, %loop ]
  %r = call i32 @extern_sum(i32 %i, i32 %n)
  %f = sitofp i32 %r to float
  %b = insertelement <8 x float> poison, float %f, i32 0
  %s = shufflevector <8 x float> %b, <8 x float> poison, <8 x i32> zeroinitializer
  %next = fadd <8 x float> %acc, %s
  %i1 = add i32 %i, 1
  %c = icmp slt i32 %i1, %n
  br i1 %c, label %loop, label %exit
exit:
  %e0 = extractelement <8 x float> %next, i32 0
  %e7 = extractelement <8 x float> %next, i32 7
  %t = fadd float %e0, %e7
  %u = fmul float %t, %x
  ret float %u
}

define amdgpu_kernel void @entry(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %w = zext i32 %t to i64
  %k = call fastcc i64 @scale(i64 %w, i64 12345678901)
  %g = getelementptr i64, ptr addrspace(1) %q, i32 %t
  store i64 %k, ptr addrspace(1) %g
  %f = call float @callee_saved(ptr addrspace(1) %p, float 2.0, i32 %n)
  %h = getelementptr float, ptr addrspace(1) %p, i32 %t
  store float %f, ptr addrspace(1) %h
  ret void
}
