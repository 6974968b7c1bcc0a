target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @asm(ptr addrspace(1) %p, i32 %n) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %t
  %v = load <4 x i32>, ptr addrspace(1) %g
  %a = extractelement <4 x i32> %v, i32 0
  %b = extractelement <4 x i32> %v, i32 3
  %r = call { i32, i32 } asm "v_mov_b32 $0, $2\0Av_add_u32 $1, $0, $3", "=&v,=&v,v,v"(i32 %a, i32 %b)
  %r0 = extractvalue { i32, i32 } %r, 0
  %r1 = extractvalue { i32, i32 } %r, 1
  %f = call i32 asm sideeffect "v_mov_b32 v5, $1 ; fixed $0", "={v5},v,~{v6},~{s20}"(i32 %r1)
  %x = call <4 x i32> asm "; tied $0", "=v,0"(<4 x i32> %v)
  %s = call i64 asm "s_mov_b64 $0, $1", "=s,s"(i64 42)
  %st = trunc i64 %s to i32
  %k = add i32 %f, %r0
  %k2 = add i32 %k, %st
  %k3 = add i32 %k2, %n
  %y = insertelement <4 x i32> %x, i32 %k3, i32 2
  store <4 x i32> %y, ptr addrspace(1) %g
  ret void
}
