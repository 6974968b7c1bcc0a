; What LLVM 24 prints and LLVM 22 does not read, in one kernel: literals of every spelling, denormal modes, a bare
; attribute, and a buffer resource with a 32-bit length that is no constant.
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-p10:32:32-p11:32:32-i64:64-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgpu9.0a-amd-amdhsa"

define amdgpu_kernel void @forms(ptr addrspace(1) %p, i32 %n) #0 {
  %r = call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) nonnull %p, i16 0, i32 %n, i32 159744)
  store volatile float 0.1, ptr addrspace(7) %r
  store volatile float +inf, ptr addrspace(1) %p
  store volatile float -qnan, ptr addrspace(1) %p
  store volatile float +snan(0x1), ptr addrspace(1) %p
  store volatile float f0x3F350481, ptr addrspace(1) %p
  store volatile half 0.1, ptr addrspace(1) %p
  store volatile half f0x7C00, ptr addrspace(1) %p
  store volatile bfloat 0.1, ptr addrspace(1) %p
  store volatile double 0.1, ptr addrspace(1) %p
  store volatile double f0x3FF921FB54442D18, ptr addrspace(1) %p
  store volatile <2 x float> <float 0.3, float 2.0>, ptr addrspace(1) %p
  %x = load volatile float, ptr addrspace(1) %p
  %y = fadd float %x, 0.7
  %c = fcmp olt float %y, -inf
  %s = select i1 %c, float 0.2, float %y
  store volatile float %s, ptr addrspace(1) %p
  ret void
}

declare ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) readnone, i16, i32, i32)

attributes #0 = { denormal_fpenv(ieee|preservesign, float: preservesign) "uniform-work-group-size" }
