; A called function that saves a scalar in a lane: LLVM 24 notes the lane for debuggers.
target triple = "amdgcn-amd-amdhsa"
define void @helper(ptr addrspace(1) %p) "amdgpu-num-vgpr"="24" {
  %a = load <16 x i32>, ptr addrspace(1) %p
  %q = getelementptr i8, ptr addrspace(1) %p, i64 64
  %b = load <16 x i32>, ptr addrspace(1) %q
  call void asm sideeffect "; clob", "~{s33},~{v0},~{v1},~{v2},~{v3},~{v4},~{v5},~{v6}"()
  %c = add <16 x i32> %a, %b
  store <16 x i32> %c, ptr addrspace(1) %q
  store <16 x i32> %b, ptr addrspace(1) %p
  ret void
}
