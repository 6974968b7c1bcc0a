; A loop that loads the arguments of a call: each address is worked out from the one before, and dies when all are loaded.
target triple = "amdgcn-amd-amdhsa"

define internal float @volume(float %a0, float %a1, float %a2, float %a3, float %a4, float %a5, float %a6, float %a7) noinline {
  %s1 = fmul float %a0, %a1
  %s2 = fadd float %s1, %a2
  %s3 = fmul float %s2, %a3
  %s4 = fadd float %s3, %a4
  %s5 = fmul float %s4, %a5
  %s6 = fadd float %s5, %a6
  %s7 = fmul float %s6, %a7
  %r = fdiv float %s7, %a0
  ret float %r
}

define amdgpu_kernel void @volumes(ptr addrspace(1) noalias %in, ptr addrspace(1) noalias %out, i32 %n, i64 %stride) {
entry:
  %id = tail call i32 @llvm.amdgcn.workitem.id.x()
  %start = getelementptr float, ptr addrspace(1) %in, i32 %id
  br label %loop

loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %sum.next, %loop ]
  %row = mul i32 %i, 8
  %p0 = getelementptr float, ptr addrspace(1) %start, i32 %row
  %p1 = getelementptr float, ptr addrspace(1) %p0, i64 %stride
  %p2 = getelementptr float, ptr addrspace(1) %p1, i64 %stride
  %p3 = getelementptr float, ptr addrspace(1) %p2, i64 %stride
  %p4 = getelementptr float, ptr addrspace(1) %p3, i64 %stride
  %p5 = getelementptr float, ptr addrspace(1) %p4, i64 %stride
  %p6 = getelementptr float, ptr addrspace(1) %p5, i64 %stride
  %p7 = getelementptr float, ptr addrspace(1) %p6, i64 %stride
  %x0 = load float, ptr addrspace(1) %p0
  %x1 = load float, ptr addrspace(1) %p1
  %x2 = load float, ptr addrspace(1) %p2
  %x3 = load float, ptr addrspace(1) %p3
  %x4 = load float, ptr addrspace(1) %p4
  %x5 = load float, ptr addrspace(1) %p5
  %x6 = load float, ptr addrspace(1) %p6
  %x7 = load float, ptr addrspace(1) %p7
  %v = tail call float @volume(float %x0, float %x1, float %x2, float %x3, float %x4, float %x5, float %x6, float %x7)
  %sum.next = fadd float %sum, %v
  %i.next = add i32 %i, 1
  %more = icmp slt i32 %i.next, %n
  br i1 %more, label %loop, label %done

done:
  %to = getelementptr float, ptr addrspace(1) %out, i32 %id
  store float %sum.next, ptr addrspace(1) %to
  ret void
}

declare i32 @llvm.amdgcn.workitem.id.x()
