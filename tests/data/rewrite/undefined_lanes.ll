target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @undef(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %a = load i32, ptr addrspace(1) %g
  %c = icmp slt i32 %a, %n
  br i1 %c, label %then, label %join
then:
  %b = mul i32 %a, %a
  br label %join
join:
  %m = phi i32 [ %b, %then ], [ undef, %entry ]
  %v = insertelement <4 x i32> poison, i32 %m, i32 1
  %w = insertelement <4 x i32> %v, i32 %a, i32 3
  %o = getelementptr <4 x i32>, ptr addrspace(1) %q, i32 %t
  store <4 x i32> %w, ptr addrspace(1) %o
  ret void
}
