target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.set.inactive.i32(i32, i32)
declare i32 @llvm.amdgcn.strict.wwm.i32(i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
define amdgpu_kernel void @wwm(ptr addrspace(1) %p, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp slt i32 %t, %n
  br i1 %c, label %then, label %exit
then:
  %g = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %v = load i32, ptr addrspace(1) %g
  %i = call i32 @llvm.amdgcn.set.inactive.i32(i32 %v, i32 0)
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %i, i32 273, i32 15, i32 15, i1 false)
  %s = add i32 %d, %i
  %w = call i32 @llvm.amdgcn.strict.wwm.i32(i32 %s)
  store i32 %w, ptr addrspace(1) %g
  br label %exit
exit:
  ret void
}
