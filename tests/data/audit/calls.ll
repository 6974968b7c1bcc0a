target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define internal fastcc i32 @helper(i32 %a, ptr addrspace(1) %p) noinline {
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %a
  %v = load i32, ptr addrspace(1) %q
  %s = alloca [16 x i32], addrspace(5)
  %i = and i32 %v, 15
  %e = getelementptr [16 x i32], ptr addrspace(5) %s, i32 0, i32 %i
  store volatile i32 %a, ptr addrspace(5) %e
  %r = add i32 %v, %a
  ret i32 %r
}
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  br label %loop
loop:
  %i = phi i32 [0, %0], [%i2, %latch]
  %c = icmp ult i32 %t, %i
  br i1 %c, label %then, label %latch
then:
  %r = call fastcc i32 @helper(i32 %t, ptr addrspace(1) %p)
  %g = getelementptr i32, ptr addrspace(1) %p, i32 %i
  store i32 %r, ptr addrspace(1) %g
  br label %latch
latch:
  %i2 = add i32 %i, 1
  %d = icmp ult i32 %i2, %n
  br i1 %d, label %loop, label %exit
exit:
  ret void
}
define i64 @"ext fn"(i64 %a, i64 %b, ptr %f) {
  %x = call i64 %f(i64 %b)
  %y = add i64 %x, %a
  %z = call i64 asm "v_add_co_u32 $0, vcc, $1, $2", "=&v,v,v,~{vcc}"(i64 %y, i64 %b)
  ret i64 %z
}
