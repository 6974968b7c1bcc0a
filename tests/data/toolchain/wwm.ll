target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.strict.wwm.i32(i32)
declare i32 @llvm.amdgcn.set.inactive.i32(i32, i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
define amdgpu_kernel void @wwm(ptr addrspace(1) %p, i32 %m) {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp ult i32 %i, %m
  br i1 %c, label %a, label %b
a:
  %s = call i32 @llvm.amdgcn.set.inactive.i32(i32 %i, i32 0)
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %s, i32 273, i32 15, i32 15, i1 false)
  %e = add i32 %d, %s
  %w = call i32 @llvm.amdgcn.strict.wwm.i32(i32 %e)
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i
  store i32 %w, ptr addrspace(1) %q
  br label %b
b:
  ret void
}
