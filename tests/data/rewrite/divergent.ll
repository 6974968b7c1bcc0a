target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @divergent(ptr addrspace(1) %p, ptr addrspace(1) %q, i64 %k, double %s) {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr i64, ptr addrspace(1) %p, i32 %t
  %a = load i64, ptr addrspace(1) %g
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i1, %latch ]
  %x = phi i64 [ %a, %entry ], [ %x2, %latch ]
  %d = phi double [ 1.0, %entry ], [ %d2, %latch ]
  %c = icmp ult i32 %i, %t
  br i1 %c, label %inner, label %other
inner:
  %j = phi i64 [ %x, %outer ], [ %j1, %inner ]
  %e = phi double [ %d, %outer ], [ %e1, %inner ]
  %e1 = fdiv double %e, %s
  %j1 = sdiv i64 %j, %k
  %w = icmp sgt i64 %j1, 3
  br i1 %w, label %inner, label %latch
other:
  %o = mul i64 %x, 7
  br label %latch
latch:
  %x2 = phi i64 [ %j1, %inner ], [ %o, %other ]
  %d2 = phi double [ %e1, %inner ], [ %d, %other ]
  %i1 = add i32 %i, 1
  %z = icmp ult i32 %i1, 64
  %y = icmp ne i64 %x2, 0
  %b = and i1 %z, %y
  br i1 %b, label %outer, label %exit
exit:
  %h = getelementptr i64, ptr addrspace(1) %q, i32 %t
  store i64 %x2, ptr addrspace(1) %h
  %hd = getelementptr double, ptr addrspace(1) %h, i32 4096
  store double %d2, ptr addrspace(1) %hd
  ret void
}
