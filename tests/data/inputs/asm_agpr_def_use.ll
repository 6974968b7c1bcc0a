target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k() {
  %a = call i32 asm sideeffect "; def $0", "=a"()
  call void asm sideeffect "; use $0", "a"(i32 %a)
  ret void
}
