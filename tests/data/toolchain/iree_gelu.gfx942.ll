; ModuleID = 'gelu_dispatch_0'
source_filename = "gelu_dispatch_0"
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-p10:32:32-p11:32:32-p12:32:32-p13:32:32-p14:32:32-p15:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgpu9.42-amd-amdhsa"

; Function Attrs: alwaysinline
define amdgpu_kernel void @gelu_dispatch_0_elementwise_1000_f32(ptr addrspace(1) inreg noalias noundef nonnull readonly align 16 %0, ptr addrspace(1) inreg noalias noundef nonnull align 16 %1) #0 !reqd_work_group_size !0 {
  %3 = call range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()
  %4 = sext i32 %3 to i64
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %0, i64 64) ]
  %5 = call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) %0, i16 0, i32 4000, i32 159744)
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %1, i64 64) ]
  %6 = call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) %1, i16 0, i32 4000, i32 159744)
  %7 = call range(i32 0, 16) i32 @llvm.amdgcn.workgroup.id.x()
  %8 = sext i32 %7 to i64
  %9 = trunc i64 %8 to i32
  %10 = mul nsw i32 %9, -64
  %11 = add i32 %10, 1000
  %12 = call i32 @llvm.umin.i32(i32 %11, i32 64)
  %13 = trunc i64 %4 to i32
  br label %14

14:                                               ; preds = %17, %2
  %15 = phi i32 [ %49, %17 ], [ %13, %2 ]
  %16 = icmp slt i32 %15, %12
  br i1 %16, label %17, label %50

17:                                               ; preds = %14
  %18 = mul nsw i32 %9, 64
  %19 = add i32 %18, %15
  %20 = zext i32 %19 to i64
  %21 = getelementptr float, ptr addrspace(7) %5, i64 %20
  %22 = load <1 x float>, ptr addrspace(7) %21, align 4
  %23 = fmul <1 x float> %22, splat (float f0x3F350481)
  %24 = call <1 x float> @llvm.fabs.v1f32(<1 x float> %23)
  %25 = fcmp olt <1 x float> %24, splat (float 1.000000e+00)
  %26 = fmul <1 x float> %24, %24
  %27 = call <1 x float> @llvm.fma.v1f32(<1 x float> %26, <1 x float> splat (float f0xBA1345E1), <1 x float> splat (float f0x3BA10414))
  %28 = call <1 x float> @llvm.fma.v1f32(<1 x float> %26, <1 x float> %27, <1 x float> splat (float f0xBCDAC9B8))
  %29 = call <1 x float> @llvm.fma.v1f32(<1 x float> %26, <1 x float> %28, <1 x float> splat (float f0x3DE703BE))
  %30 = call <1 x float> @llvm.fma.v1f32(<1 x float> %26, <1 x float> %29, <1 x float> splat (float f0xBEC09330))
  %31 = call <1 x float> @llvm.fma.v1f32(<1 x float> %26, <1 x float> %30, <1 x float> splat (float f0x3E0375D0))
  %32 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %31, <1 x float> %24)
  %33 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> splat (float f0x378E98AB), <1 x float> splat (float f0xB9C68948))
  %34 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %33, <1 x float> splat (float f0x3B7CD369))
  %35 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %34, <1 x float> splat (float f0xBCC618B2))
  %36 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %35, <1 x float> splat (float f0x3DDA74E4))
  %37 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %36, <1 x float> splat (float f0x3F228AFD))
  %38 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %37, <1 x float> splat (float f0x3E03C728))
  %39 = call <1 x float> @llvm.fma.v1f32(<1 x float> %24, <1 x float> %38, <1 x float> %24)
  %40 = fneg <1 x float> %39
  %41 = extractelement <1 x float> %40, i64 0
  %42 = call float @llvm.exp.f32(float %41)
  %43 = insertelement <1 x float> poison, float %42, i64 0
  %44 = fsub <1 x float> splat (float 1.000000e+00), %43
  %45 = select <1 x i1> %25, <1 x float> %32, <1 x float> %44
  %46 = call <1 x float> @llvm.copysign.v1f32(<1 x float> %45, <1 x float> %23)
  %47 = fadd <1 x float> %46, splat (float 1.000000e-01)
  %48 = getelementptr float, ptr addrspace(7) %6, i64 %20
  store <1 x float> %47, ptr addrspace(7) %48, align 4
  %49 = add i32 %15, 64
  br label %14

50:                                               ; preds = %14
  ret void
}

; Function Attrs: alwaysinline nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1

; Function Attrs: alwaysinline nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write)
declare void @llvm.assume(i1 noundef) #2

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) readnone, i16, i32, i32) #3

; Function Attrs: alwaysinline nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.amdgcn.workgroup.id.x() #1

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.umin.i32(i32, i32) #3

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.fabs.v1f32(<1 x float>) #3

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.fma.v1f32(<1 x float>, <1 x float>, <1 x float>) #3

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.exp.f32(float) #3

; Function Attrs: alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.copysign.v1f32(<1 x float>, <1 x float>) #3

attributes #0 = { alwaysinline "amdgpu-flat-work-group-size"="64,64" "uniform-work-group-size" }
attributes #1 = { alwaysinline nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { alwaysinline nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #3 = { alwaysinline nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!1, !2, !3}

!0 = !{i32 64, i32 1, i32 1}
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!3 = !{i32 7, !"amdgpu.buffer.oob.mode", i32 1}
