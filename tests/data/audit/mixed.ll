target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare void @llvm.amdgcn.s.barrier()
@lds = internal addrspace(3) global [256 x half] poison, align 16
define amdgpu_kernel void @half16(ptr addrspace(1) %p, half %s, i16 %k) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %g = getelementptr half, ptr addrspace(1) %p, i32 %t
  %a = load half, ptr addrspace(1) %g
  %b = fmul half %a, %s
  %l = getelementptr [256 x half], ptr addrspace(3) @lds, i32 0, i32 %t
  store half %b, ptr addrspace(3) %l
  call void @llvm.amdgcn.s.barrier()
  %x = xor i32 %t, %y
  %l2 = getelementptr [256 x half], ptr addrspace(3) @lds, i32 0, i32 %x
  %c = load half, ptr addrspace(3) %l2
  %d = fadd half %c, %a
  %e = fcmp olt half %d, %s
  %f = select i1 %e, half %d, half %b
  %i = bitcast half %f to i16
  %j = mul i16 %i, %k
  %v = insertelement <2 x i16> poison, i16 %j, i32 0
  %w = insertelement <2 x i16> %v, i16 %i, i32 1
  %g2 = getelementptr <2 x i16>, ptr addrspace(1) %p, i32 %t
  store <2 x i16> %w, ptr addrspace(1) %g2
  ret void
}
define amdgpu_kernel void @f64(ptr addrspace(1) %p, double %s, i64 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %t64 = zext i32 %t to i64
  %c = icmp slt i64 %t64, %n
  br i1 %c, label %do, label %end
do:
  %g = getelementptr double, ptr addrspace(1) %p, i64 %t64
  %a = load double, ptr addrspace(1) %g
  %b = fdiv double %a, %s
  %q = sdiv i64 %t64, %n
  %f = sitofp i64 %q to double
  %r = fadd double %b, %f
  store double %r, ptr addrspace(1) %g
  br label %end
end:
  ret void
}
define amdgpu_kernel void @dyn(ptr addrspace(1) %p, i32 %n) {
  %a = alloca [64 x float], align 4, addrspace(5)
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %i = and i32 %t, 63
  %q = getelementptr [64 x float], ptr addrspace(5) %a, i32 0, i32 %i
  store float 1.0, ptr addrspace(5) %q
  %j = urem i32 %n, 64
  %q2 = getelementptr [64 x float], ptr addrspace(5) %a, i32 0, i32 %j
  %v = load float, ptr addrspace(5) %q2
  %o = getelementptr float, ptr addrspace(1) %p, i32 %t
  store float %v, ptr addrspace(1) %o
  %old = atomicrmw add ptr addrspace(1) %p, i32 %n seq_cst
  %cx = cmpxchg ptr addrspace(1) %p, i32 %old, i32 %n seq_cst seq_cst
  ret void
}
define <8 x float> @big(<8 x float> %a, <32 x float> %b, ptr %p) {
  %x = shufflevector <32 x float> %b, <32 x float> poison, <8 x i32> <i32 1, i32 3, i32 9, i32 4, i32 31, i32 30, i32 2, i32 8>
  %y = fadd <8 x float> %x, %a
  store <32 x float> %b, ptr %p
  ret <8 x float> %y
}
define amdgpu_kernel void @empty() {
  ret void
}
