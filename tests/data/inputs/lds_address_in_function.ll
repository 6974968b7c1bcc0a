target triple = "amdgcn-amd-amdhsa"
@l = internal addrspace(3) global [64 x i32] poison
define ptr addrspace(3) @f() {
  ret ptr addrspace(3) @l
}
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}
