; A kernel that keeps 16 values across calls in a loop, of local functions two levels deep, as clang makes it of
;   static float step1(float a, float b) { … }  static float step2(float a, float b, float c) { … step1 … }
; with __attribute__((noinline)).
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()

define internal fastcc float @step1(float %a, float %b) #0 {
  %m = fmul float %a, %b
  %t0 = fadd float %m, 1.5
  %d0 = fadd float %t0, 2.0
  %q0 = fdiv arcp float %b, %d0
  %n0 = fmul float %t0, %a
  %t1 = fadd float %n0, %q0
  %d1 = fadd float %t1, 2.0
  %q1 = fdiv arcp float %b, %d1
  %n1 = fmul float %t1, %a
  %t2 = fadd float %n1, %q1
  %d2 = fadd float %t2, 2.0
  %q2 = fdiv arcp float %b, %d2
  %n2 = fmul float %t2, %a
  %t3 = fadd float %n2, %q2
  ret float %t3
}

define internal fastcc float @step2(float %a, float %b, float %c) #0 {
  %x = call fastcc float @step1(float %a, float %b)
  %y = call fastcc float @step1(float %b, float %c)
  %z = call fastcc float @step1(float %c, float %a)
  %m = fmul float %y, %z
  %r = fadd float %x, %m
  ret float %r
}

define amdgpu_kernel void @rows(ptr addrspace(1) %x, ptr addrspace(1) %o, i32 %n) {
entry:
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr float, ptr addrspace(1) %x, i32 %id
  %p0 = getelementptr float, ptr addrspace(1) %p, i32 0
  %v0 = load float, ptr addrspace(1) %p0
  %p1 = getelementptr float, ptr addrspace(1) %p, i32 64
  %v1 = load float, ptr addrspace(1) %p1
  %p2 = getelementptr float, ptr addrspace(1) %p, i32 128
  %v2 = load float, ptr addrspace(1) %p2
  %p3 = getelementptr float, ptr addrspace(1) %p, i32 192
  %v3 = load float, ptr addrspace(1) %p3
  %p4 = getelementptr float, ptr addrspace(1) %p, i32 256
  %v4 = load float, ptr addrspace(1) %p4
  %p5 = getelementptr float, ptr addrspace(1) %p, i32 320
  %v5 = load float, ptr addrspace(1) %p5
  %p6 = getelementptr float, ptr addrspace(1) %p, i32 384
  %v6 = load float, ptr addrspace(1) %p6
  %p7 = getelementptr float, ptr addrspace(1) %p, i32 448
  %v7 = load float, ptr addrspace(1) %p7
  %p8 = getelementptr float, ptr addrspace(1) %p, i32 512
  %v8 = load float, ptr addrspace(1) %p8
  %p9 = getelementptr float, ptr addrspace(1) %p, i32 576
  %v9 = load float, ptr addrspace(1) %p9
  %p10 = getelementptr float, ptr addrspace(1) %p, i32 640
  %v10 = load float, ptr addrspace(1) %p10
  %p11 = getelementptr float, ptr addrspace(1) %p, i32 704
  %v11 = load float, ptr addrspace(1) %p11
  %p12 = getelementptr float, ptr addrspace(1) %p, i32 768
  %v12 = load float, ptr addrspace(1) %p12
  %p13 = getelementptr float, ptr addrspace(1) %p, i32 832
  %v13 = load float, ptr addrspace(1) %p13
  %p14 = getelementptr float, ptr addrspace(1) %p, i32 896
  %v14 = load float, ptr addrspace(1) %p14
  %p15 = getelementptr float, ptr addrspace(1) %p, i32 960
  %v15 = load float, ptr addrspace(1) %p15
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi float [ 0.0, %entry ], [ %sum, %loop ]
  %a0 = phi float [ %v0, %entry ], [ %b0, %loop ]
  %a1 = phi float [ %v1, %entry ], [ %b1, %loop ]
  %a2 = phi float [ %v2, %entry ], [ %b2, %loop ]
  %a3 = phi float [ %v3, %entry ], [ %b3, %loop ]
  %a4 = phi float [ %v4, %entry ], [ %b4, %loop ]
  %a5 = phi float [ %v5, %entry ], [ %b5, %loop ]
  %a6 = phi float [ %v6, %entry ], [ %b6, %loop ]
  %a7 = phi float [ %v7, %entry ], [ %b7, %loop ]
  %a8 = phi float [ %v8, %entry ], [ %b8, %loop ]
  %a9 = phi float [ %v9, %entry ], [ %b9, %loop ]
  %a10 = phi float [ %v10, %entry ], [ %b10, %loop ]
  %a11 = phi float [ %v11, %entry ], [ %b11, %loop ]
  %a12 = phi float [ %v12, %entry ], [ %b12, %loop ]
  %a13 = phi float [ %v13, %entry ], [ %b13, %loop ]
  %a14 = phi float [ %v14, %entry ], [ %b14, %loop ]
  %a15 = phi float [ %v15, %entry ], [ %b15, %loop ]
  %e = getelementptr float, ptr addrspace(1) %x, i32 %i
  %f = load float, ptr addrspace(1) %e
  %r = call fastcc float @step2(float %s, float %f, float %a0)
  %sum = fadd float %s, %r
  %c0 = fmul float %a0, %sum
  %b0 = fadd float %c0, %f
  %c1 = fmul float %a1, %sum
  %b1 = fadd float %c1, %f
  %c2 = fmul float %a2, %sum
  %b2 = fadd float %c2, %f
  %c3 = fmul float %a3, %sum
  %b3 = fadd float %c3, %f
  %c4 = fmul float %a4, %sum
  %b4 = fadd float %c4, %f
  %c5 = fmul float %a5, %sum
  %b5 = fadd float %c5, %f
  %c6 = fmul float %a6, %sum
  %b6 = fadd float %c6, %f
  %c7 = fmul float %a7, %sum
  %b7 = fadd float %c7, %f
  %c8 = fmul float %a8, %sum
  %b8 = fadd float %c8, %f
  %c9 = fmul float %a9, %sum
  %b9 = fadd float %c9, %f
  %c10 = fmul float %a10, %sum
  %b10 = fadd float %c10, %f
  %c11 = fmul float %a11, %sum
  %b11 = fadd float %c11, %f
  %c12 = fmul float %a12, %sum
  %b12 = fadd float %c12, %f
  %c13 = fmul float %a13, %sum
  %b13 = fadd float %c13, %f
  %c14 = fmul float %a14, %sum
  %b14 = fadd float %c14, %f
  %c15 = fmul float %a15, %sum
  %b15 = fadd float %c15, %f
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  %w = getelementptr float, ptr addrspace(1) %o, i32 %id
  %w0 = getelementptr float, ptr addrspace(1) %w, i32 0
  store float %b0, ptr addrspace(1) %w0
  %w1 = getelementptr float, ptr addrspace(1) %w, i32 64
  store float %b1, ptr addrspace(1) %w1
  %w2 = getelementptr float, ptr addrspace(1) %w, i32 128
  store float %b2, ptr addrspace(1) %w2
  %w3 = getelementptr float, ptr addrspace(1) %w, i32 192
  store float %b3, ptr addrspace(1) %w3
  %w4 = getelementptr float, ptr addrspace(1) %w, i32 256
  store float %b4, ptr addrspace(1) %w4
  %w5 = getelementptr float, ptr addrspace(1) %w, i32 320
  store float %b5, ptr addrspace(1) %w5
  %w6 = getelementptr float, ptr addrspace(1) %w, i32 384
  store float %b6, ptr addrspace(1) %w6
  %w7 = getelementptr float, ptr addrspace(1) %w, i32 448
  store float %b7, ptr addrspace(1) %w7
  %w8 = getelementptr float, ptr addrspace(1) %w, i32 512
  store float %b8, ptr addrspace(1) %w8
  %w9 = getelementptr float, ptr addrspace(1) %w, i32 576
  store float %b9, ptr addrspace(1) %w9
  %w10 = getelementptr float, ptr addrspace(1) %w, i32 640
  store float %b10, ptr addrspace(1) %w10
  %w11 = getelementptr float, ptr addrspace(1) %w, i32 704
  store float %b11, ptr addrspace(1) %w11
  %w12 = getelementptr float, ptr addrspace(1) %w, i32 768
  store float %b12, ptr addrspace(1) %w12
  %w13 = getelementptr float, ptr addrspace(1) %w, i32 832
  store float %b13, ptr addrspace(1) %w13
  %w14 = getelementptr float, ptr addrspace(1) %w, i32 896
  store float %b14, ptr addrspace(1) %w14
  %w15 = getelementptr float, ptr addrspace(1) %w, i32 960
  store float %b15, ptr addrspace(1) %w15
  ret void
}

attributes #0 = { noinline "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" }
