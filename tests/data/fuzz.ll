target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare hidden i32 @other(i32, i64)
define hidden i32 @helper(i32 %a, ptr addrspace(1) %p) {
  %s = alloca [16 x i32], addrspace(5)
  %i = and i32 %a, 15
  %e = getelementptr [16 x i32], ptr addrspace(5) %s, i32 0, i32 %i
  store volatile i32 %a, ptr addrspace(5) %e
  %r = call i32 @other(i32 %a, i64 7)
  %x = call i32 asm "v_add_u32 $0, $1, $2", "=&v,v,v,~{vcc}"(i32 %r, i32 %a)
  ret i32 %x
}
define amdgpu_kernel void @"a kernel"(ptr addrspace(1) %p, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %join ]
  %c = icmp ult i32 %t, %i
  br i1 %c, label %then, label %join
then:
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %v = load i32, ptr addrspace(1) %q
  %w = mul i32 %v, %i
  store i32 %w, ptr addrspace(1) %q
  br label %join
join:
  %j = add i32 %i, 1
  %d = icmp slt i32 %j, %n
  br i1 %d, label %loop, label %end
end:
  ret void
}
