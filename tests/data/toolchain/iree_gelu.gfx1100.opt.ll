; To reproduce the .optimized.ll from the .linked.ll, run:
; The flag '-S' is to emit LLVMIR.

; ModuleID = 'gelu_dispatch_0'
source_filename = "gelu_dispatch_0"
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-p10:32:32-p11:32:32-p12:32:32-p13:32:32-p14:32:32-p15:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgpu11.00-amd-amdhsa"

; Function Attrs: alwaysinline mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: write)
define amdgpu_kernel void @gelu_dispatch_0_elementwise_1000_f32(ptr addrspace(1) noalias noundef nonnull readonly align 16 captures(none) %0, ptr addrspace(1) noalias nofree noundef nonnull writeonly align 16 captures(none) %1) local_unnamed_addr #0 !reqd_work_group_size !0 {
  %3 = tail call range(i32 0, 32) i32 @llvm.amdgcn.workitem.id.x()
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %0, i64 64) ]
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %1, i64 64) ]
  %4 = tail call range(i32 0, 32) i32 @llvm.amdgcn.workgroup.id.x()
  %5 = shl nuw nsw i32 %4, 5
  %6 = sub nuw nsw i32 1000, %5
  %7 = icmp samesign ugt i32 %6, %3
  br i1 %7, label %.lr.ph.preheader, label %._crit_edge

.lr.ph.preheader:                                 ; preds = %2
  %8 = tail call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) nonnull %1, i16 0, i32 4000, i32 822243328)
  %9 = tail call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) nonnull %0, i16 0, i32 4000, i32 822243328)
  %10 = or disjoint i32 %3, %5
  %11 = getelementptr [4 x i8], ptr addrspace(7) %9, i32 %10
  %12 = load <1 x float>, ptr addrspace(7) %11, align 4
  %13 = fmul <1 x float> %12, splat (float f0x3F350481)
  %14 = tail call <1 x float> @llvm.fabs.v1f32(<1 x float> %13)
  %15 = fcmp olt <1 x float> %14, splat (float 1.000000e+00)
  %16 = fmul <1 x float> %13, %13
  %17 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %16, <1 x float> splat (float f0xBA1345E1), <1 x float> splat (float f0x3BA10414))
  %18 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %16, <1 x float> %17, <1 x float> splat (float f0xBCDAC9B8))
  %19 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %16, <1 x float> %18, <1 x float> splat (float f0x3DE703BE))
  %20 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %16, <1 x float> %19, <1 x float> splat (float f0xBEC09330))
  %21 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %16, <1 x float> %20, <1 x float> splat (float f0x3E0375D0))
  %22 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %21, <1 x float> %14)
  %23 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> splat (float f0x378E98AB), <1 x float> splat (float f0xB9C68948))
  %24 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %23, <1 x float> splat (float f0x3B7CD369))
  %25 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %24, <1 x float> splat (float f0xBCC618B2))
  %26 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %25, <1 x float> splat (float f0x3DDA74E4))
  %27 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %26, <1 x float> splat (float f0x3F228AFD))
  %28 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %27, <1 x float> splat (float f0x3E03C728))
  %29 = tail call <1 x float> @llvm.fma.v1f32(<1 x float> %14, <1 x float> %28, <1 x float> %14)
  %30 = extractelement <1 x float> %29, i64 0
  %31 = fneg float %30
  %32 = tail call float @llvm.exp.f32(float %31)
  %.scalar = fsub float 1.000000e+00, %32
  %33 = insertelement <1 x float> poison, float %.scalar, i64 0
  %34 = select <1 x i1> %15, <1 x float> %22, <1 x float> %33
  %35 = tail call <1 x float> @llvm.copysign.v1f32(<1 x float> %34, <1 x float> %13)
  %36 = fadd <1 x float> %35, splat (float 1.000000e-01)
  %37 = getelementptr [4 x i8], ptr addrspace(7) %8, i32 %10
  store <1 x float> %36, ptr addrspace(7) %37, align 4
  br label %._crit_edge

._crit_edge:                                      ; preds = %.lr.ph.preheader, %2
  ret void
}

; Function Attrs: alwaysinline mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1

; Function Attrs: alwaysinline mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write)
declare void @llvm.assume(i1 noundef) #2

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) readnone, i16, i32, i32) #3

; Function Attrs: alwaysinline mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.amdgcn.workgroup.id.x() #1

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.fabs.v1f32(<1 x float>) #3

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.fma.v1f32(<1 x float>, <1 x float>, <1 x float>) #3

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.exp.f32(float) #3

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <1 x float> @llvm.copysign.v1f32(<1 x float>, <1 x float>) #3

attributes #0 = { alwaysinline mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: write) "amdgpu-flat-work-group-size"="32,32" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-wwm" "uniform-work-group-size" }
attributes #1 = { alwaysinline mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { alwaysinline mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #3 = { alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!1, !2, !3}

!0 = !{i32 32, i32 1, i32 1}
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!3 = !{i32 7, !"amdgpu.buffer.oob.mode", i32 1}
