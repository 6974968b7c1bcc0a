target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
@lds = internal addrspace(3) global [64 x i32] poison
define internal i32 @helper(i32 %a, i32 %b) noinline {
  %c = mul i32 %a, %b
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %d = add i32 %c, %x
  ret i32 %d
}
define amdgpu_kernel void @ids(ptr addrspace(1) %p, i32 inreg %n) {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %z = call i32 @llvm.amdgcn.workgroup.id.z()
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %j = call i32 @llvm.amdgcn.workitem.id.y()
  %k = call i32 @llvm.amdgcn.workitem.id.z()
  %s0 = add i32 %x, %y
  %s1 = add i32 %s0, %z
  %s2 = add i32 %s1, %i
  %s3 = add i32 %s2, %j
  %s4 = add i32 %s3, %k
  %s5 = add i32 %s4, %n
  store i32 %s5, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @calls(ptr addrspace(1) %p) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %r = call i32 @helper(i32 %i, i32 7)
  %l = getelementptr [64 x i32], ptr addrspace(3) @lds, i32 0, i32 %i
  store i32 %r, ptr addrspace(3) %l
  %a = alloca [32 x i32], addrspace(5)
  %g = getelementptr [32 x i32], ptr addrspace(5) %a, i32 0, i32 %r
  store volatile i32 %r, ptr addrspace(5) %g
  %v = load volatile i32, ptr addrspace(5) %g
  store i32 %v, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @preload(ptr addrspace(1) inreg %p, i32 inreg %n, i64 inreg %m) {
  %t = trunc i64 %m to i32
  %s = add i32 %n, %t
  store i32 %s, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @indirect(ptr addrspace(1) %p, ptr %f) {
  %r = call i32 %f(i32 4)
  %d = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %w = load i32, ptr addrspace(4) %d
  %q = add i32 %r, %w
  store i32 %q, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @empty() {
  ret void
}
