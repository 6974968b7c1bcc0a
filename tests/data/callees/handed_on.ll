; Local functions that hand on arguments of the hardware (dispatch pointer, work-group ids, …), as in a device library
; without opt's attributor; a loop calls one of them with the same arguments and with others.
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()

define internal float @inner(float %a, i32 inreg %s) noinline {
  %f = uitofp i32 %s to float
  %q = fdiv arcp float %a, %f
  ret float %q
}

define internal float @outer(float %a, i32 inreg %s) noinline {
  %x = call float @inner(float %a, i32 inreg %s)
  %y = call float @inner(float %x, i32 inreg %s)
  %r = fadd float %x, %y
  ret float %r
}

define amdgpu_kernel void @handed_on(ptr addrspace(1) %x, ptr addrspace(1) %o, i32 %n, i32 %s) #0 {
entry:
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %total, %loop ]
  %e = getelementptr float, ptr addrspace(1) %x, i32 %i
  %f = load float, ptr addrspace(1) %e
  %a = call float @outer(float %f, i32 inreg %s)
  %b = call float @outer(float %a, i32 inreg %s)
  %c = call float @outer(float %f, i32 inreg %i)
  %d = call float @outer(float %b, i32 inreg %s)
  %u = fadd float %c, %d
  %total = fadd float %sum, %u
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  %w = getelementptr float, ptr addrspace(1) %o, i32 %id
  store float %total, ptr addrspace(1) %w
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="64,256" }
