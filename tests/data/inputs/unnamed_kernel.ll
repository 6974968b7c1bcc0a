target triple = "amdgcn-amd-amdhsa"
@0 = internal addrspace(3) global i32 poison
define amdgpu_kernel void @named(i32 %x) {
  store i32 %x, ptr addrspace(3) @0
  ret void
}
define amdgpu_kernel void @1() {
  ret void
}
