target triple = "amdgcn-amd-amdhsa"
define void @f() {
  call void asm sideeffect "; x", "~{s[30:31]}"()
  ret void
}
