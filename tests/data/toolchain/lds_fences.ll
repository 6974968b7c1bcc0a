; A tile in LDS, filled and read in a loop while loads of the next product are under way: its fences are for LDS alone.
@tile = internal addrspace(3) global [256 x float] poison
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %n) "amdgpu-flat-work-group-size"="256,256" {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %m = xor i32 %t, 255
  %s = getelementptr float, ptr addrspace(3) @tile, i32 %t
  %r = getelementptr float, ptr addrspace(3) @tile, i32 %m
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %new, %loop ]
  %o = shl i32 %i, 8
  %x = add i32 %o, %t
  %p = getelementptr float, ptr addrspace(1) %a, i32 %x
  %q = getelementptr float, ptr addrspace(1) %b, i32 %x
  %late = load float, ptr addrspace(1) %q
  %v = load float, ptr addrspace(1) %p
  store float %v, ptr addrspace(3) %s
  fence syncscope("workgroup") release, !mmra !0
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire, !mmra !0
  %w = load float, ptr addrspace(3) %r
  fence syncscope("workgroup") release, !mmra !0
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire, !mmra !0
  %f = fmul float %w, %late
  %new = fadd float %sum, %f
  %j = add i32 %i, 1
  %c = icmp slt i32 %j, %n
  br i1 %c, label %loop, label %done
done:
  %d = getelementptr float, ptr addrspace(1) %a, i32 %t
  store float %new, ptr addrspace(1) %d
  ret void
}
!0 = !{!"amdgpu-synchronize-as", !"local"}
