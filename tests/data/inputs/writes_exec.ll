; A function that nobody proves, because it writes EXEC by itself, and a kernel.
target triple = "amdgcn-amd-amdhsa"
define void @f() {
  call void @llvm.write_register.i64(metadata !0, i64 0)
  ret void
}
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
declare void @llvm.write_register.i64(metadata, i64)
!0 = !{!"exec"}
