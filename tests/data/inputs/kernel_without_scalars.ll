target triple = "amdgcn-amd-amdhsa"
@x = internal addrspace(3) global i32 poison
define amdgpu_kernel void @k() {
  store i32 7, ptr addrspace(3) @x
  ret void
}
