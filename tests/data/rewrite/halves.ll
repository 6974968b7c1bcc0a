target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare half @llvm.fma.f16(half, half, half)
define amdgpu_kernel void @halves(ptr addrspace(1) %p, ptr addrspace(1) %q, i32 %n) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr half, ptr addrspace(1) %p, i32 %t
  %a = load half, ptr addrspace(1) %g
  %g1 = getelementptr half, ptr addrspace(1) %g, i32 64
  %b = load half, ptr addrspace(1) %g1
  %g2 = getelementptr half, ptr addrspace(1) %g, i32 128
  %c = load half, ptr addrspace(1) %g2
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %x = phi half [ %a, %entry ], [ %y, %loop ]
  %z = phi half [ %b, %entry ], [ %x, %loop ]
  %y = call half @llvm.fma.f16(half %x, half %z, half %c)
  %i1 = add i32 %i, 1
  %d = icmp slt i32 %i1, %n
  br i1 %d, label %loop, label %exit
exit:
  %v = insertelement <2 x half> poison, half %y, i32 0
  %v1 = insertelement <2 x half> %v, half %z, i32 1
  %o = getelementptr <2 x half>, ptr addrspace(1) %q, i32 %t
  store <2 x half> %v1, ptr addrspace(1) %o
  ret void
}
