target triple = "amdgcn-amd-amdhsa"
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
define void @tile(ptr %p, ptr %q, i32 %n) {
e:
  %z = icmp sgt i32 %n, 0
  br i1 %z, label %l, label %x
l:
  %i = phi i32 [ 0, %e ], [ %i2, %l ]
  %c = phi <4 x float> [ zeroinitializer, %e ], [ %m, %l ]
  %ap = getelementptr <4 x half>, ptr %q, i32 %i
  %a = load <4 x half>, ptr %ap
  %m = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %a, <4 x half> %a, <4 x float> %c, i32 0, i32 0, i32 0)
  %i2 = add i32 %i, 32
  %d = icmp slt i32 %i2, %n
  br i1 %d, label %l, label %x
x:
  %o = phi <4 x float> [ zeroinitializer, %e ], [ %m, %l ]
  store <4 x float> %o, ptr %p
  ret void
}
