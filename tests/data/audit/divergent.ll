target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @ifelse(ptr addrspace(1) %p, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %v = load i32, ptr addrspace(1) %g
  %c = icmp sgt i32 %v, 10
  br i1 %c, label %a, label %b
a:
  %x1 = mul i32 %v, %t
  %x2 = load volatile i32, ptr addrspace(1) %p
  %x3 = add i32 %x1, %x2
  br label %j
b:
  %y1 = load volatile i32, ptr addrspace(1) %g
  %y2 = xor i32 %y1, %t
  br label %j
j:
  %r = phi i32 [%x3, %a], [%y2, %b]
  store i32 %r, ptr addrspace(1) %g
  ret void
}
define amdgpu_kernel void @divloop(ptr addrspace(1) %p, i32 %n) {
e:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i32, ptr addrspace(1) %p, i32 %t
  br label %l
l:
  %i = phi i32 [0, %e], [%i2, %latch]
  %acc = phi i32 [%t, %e], [%acc3, %latch]
  %q = getelementptr i32, ptr addrspace(1) %g, i32 %i
  %v = load i32, ptr addrspace(1) %q
  %c = icmp eq i32 %v, %t
  br i1 %c, label %exit, label %body
body:
  %d = and i32 %v, 1
  %dc = icmp eq i32 %d, 0
  br i1 %dc, label %odd, label %latch
odd:
  %acc2 = mul i32 %acc, %v
  %vv = load volatile i32, ptr addrspace(1) %g
  %acc4 = add i32 %acc2, %vv
  br label %latch
latch:
  %acc3 = phi i32 [%acc, %body], [%acc4, %odd]
  %i2 = add i32 %i, 1
  %m = icmp slt i32 %i2, %n
  br i1 %m, label %l, label %exit
exit:
  %r = phi i32 [%acc, %l], [%acc3, %latch]
  %w = phi i32 [%v, %l], [%i2, %latch]
  %s = add i32 %r, %w
  store i32 %s, ptr addrspace(1) %g
  ret void
}
define void @devf(ptr addrspace(1) %p, i64 %a, double %b, <4 x float> %c) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %x = trunc i64 %a to i32
  %cc = icmp ugt i32 %t, %x
  br i1 %cc, label %th, label %ex
th:
  %bb = fmul double %b, %b
  %pp = getelementptr double, ptr addrspace(1) %p, i64 %a
  store double %bb, ptr addrspace(1) %pp
  call void @devf(ptr addrspace(1) %pp, i64 %a, double %bb, <4 x float> %c)
  %e = extractelement <4 x float> %c, i32 2
  store float %e, ptr addrspace(1) %p
  br label %ex
ex:
  ret void
}
