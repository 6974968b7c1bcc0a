; Two halves of a register loaded in one clause: on gfx1100 LLVM 22's SI Insert Hard Clauses bundles them so that its own
; machine verifier finds a register undefined, in a plain compile too.
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @halves(ptr addrspace(1) %p, ptr addrspace(1) %q) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %i = zext i32 %id to i64
  %a = getelementptr half, ptr addrspace(1) %p, i64 %i
  %b = getelementptr i8, ptr addrspace(1) %a, i64 64
  %c = getelementptr i8, ptr addrspace(1) %a, i64 128
  %d = getelementptr i8, ptr addrspace(1) %a, i64 192
  %la = load half, ptr addrspace(1) %a
  %lb = load half, ptr addrspace(1) %b
  %lc = load half, ptr addrspace(1) %c
  %ld = load half, ptr addrspace(1) %d
  %u = insertelement <2 x half> poison, half %la, i32 0
  %v = insertelement <2 x half> %u, half %lb, i32 1
  %x = insertelement <2 x half> poison, half %lc, i32 0
  %y = insertelement <2 x half> %x, half %ld, i32 1
  %s = fadd <2 x half> %v, %y
  %r = getelementptr <2 x half>, ptr addrspace(1) %q, i64 %i
  store <2 x half> %s, ptr addrspace(1) %r
  ret void
}

define amdgpu_kernel void @whole(ptr addrspace(1) %p) {
  %v = load <2 x half>, ptr addrspace(1) %p
  %s = fadd <2 x half> %v, %v
  store <2 x half> %s, ptr addrspace(1) %p
  ret void
}
