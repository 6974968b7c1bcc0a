; LDS whose size is known at launch only, and the implicit arguments: as HIP's "extern __shared__", aligned or of bytes.
target triple = "amdgcn-amd-amdhsa"
@floats = external addrspace(3) global [0 x float], align 16
@"its bytes" = external addrspace(3) global [0 x i8], align 1
@table = addrspace(3) global [64 x float] poison, align 4
declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()

define amdgpu_kernel void @of_floats(ptr addrspace(1) %p) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %n = load i32, ptr addrspace(4) %a
  %i = mul i32 %id, %n
  %s = getelementptr float, ptr addrspace(3) @floats, i32 %id
  %v = load float, ptr addrspace(1) %p
  store float %v, ptr addrspace(3) %s
  fence syncscope("workgroup") seq_cst
  %t = getelementptr float, ptr addrspace(3) @floats, i32 %i
  %w = load float, ptr addrspace(3) %t
  store float %w, ptr addrspace(1) %p
  ret void
}

define amdgpu_kernel void @"of bytes"(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %n = load i32, ptr addrspace(4) %a
  %t = getelementptr i8, ptr addrspace(3) @"its bytes", i32 %n
  %w = load volatile i8, ptr addrspace(3) %t
  store i8 %w, ptr addrspace(1) %p
  ret void
}

define amdgpu_kernel void @of_known_size(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %n = load i32, ptr addrspace(4) %a
  %t = getelementptr float, ptr addrspace(3) @table, i32 %n
  %w = load volatile float, ptr addrspace(3) %t
  store float %w, ptr addrspace(1) %p
  ret void
}

define void @helper(i32 %n) noinline {
  %t = getelementptr float, ptr addrspace(3) @floats, i32 %n
  %w = load volatile float, ptr addrspace(3) %t
  ret void
}

define amdgpu_kernel void @by_call(ptr addrspace(1) %p) {
  %a = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %n = load i32, ptr addrspace(4) %a
  call void @helper(i32 %n)
  ret void
}
