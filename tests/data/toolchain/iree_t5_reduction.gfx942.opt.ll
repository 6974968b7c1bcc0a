; ModuleID = 'main$async_dispatch_10'
source_filename = "main$async_dispatch_10"
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-p10:32:32-p11:32:32-p12:32:32-p13:32:32-p14:32:32-p15:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgpu9.42-amd-amdhsa"

; Function Attrs: alwaysinline nofree norecurse nosync nounwind memory(write, argmem: readwrite, target_mem: none)
define amdgpu_kernel void @"main$async_dispatch_10_reduction_2048_f16xi1"(ptr addrspace(1) inreg noalias noundef nonnull readonly align 16 captures(none) %0, ptr addrspace(1) inreg noalias nofree noundef nonnull writeonly align 16 captures(none) %1) local_unnamed_addr #0 !reqd_work_group_size !0 {
vector.ph:
  %2 = getelementptr i8, ptr addrspace(1) %0, i64 4096
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %0, i64 64) ]
  %3 = tail call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) %2, i16 0, i32 4096, i32 159744)
  call void @llvm.assume(i1 true) [ "align"(ptr addrspace(1) %1, i64 64) ]
  br label %vector.body

vector.body:                                      ; preds = %vector.body, %vector.ph
  %index = phi i32 [ 0, %vector.ph ], [ %index.next.7, %vector.body ]
  %vec.phi = phi <4 x i1> [ zeroinitializer, %vector.ph ], [ %42, %vector.body ]
  %4 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %wide.load = load <4 x half>, ptr addrspace(7) %4, align 2
  %5 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load)
  %6 = fcmp oeq <4 x half> %5, splat (half +inf)
  %7 = or <4 x i1> %6, %vec.phi
  %8 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %9 = getelementptr inbounds nuw i8, ptr addrspace(7) %8, i32 8
  %wide.load.1 = load <4 x half>, ptr addrspace(7) %9, align 2
  %10 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.1)
  %11 = fcmp oeq <4 x half> %10, splat (half +inf)
  %12 = or <4 x i1> %11, %7
  %13 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %14 = getelementptr inbounds nuw i8, ptr addrspace(7) %13, i32 16
  %wide.load.2 = load <4 x half>, ptr addrspace(7) %14, align 2
  %15 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.2)
  %16 = fcmp oeq <4 x half> %15, splat (half +inf)
  %17 = or <4 x i1> %16, %12
  %18 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %19 = getelementptr inbounds nuw i8, ptr addrspace(7) %18, i32 24
  %wide.load.3 = load <4 x half>, ptr addrspace(7) %19, align 2
  %20 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.3)
  %21 = fcmp oeq <4 x half> %20, splat (half +inf)
  %22 = or <4 x i1> %21, %17
  %23 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %24 = getelementptr inbounds nuw i8, ptr addrspace(7) %23, i32 32
  %wide.load.4 = load <4 x half>, ptr addrspace(7) %24, align 2
  %25 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.4)
  %26 = fcmp oeq <4 x half> %25, splat (half +inf)
  %27 = or <4 x i1> %26, %22
  %28 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %29 = getelementptr inbounds nuw i8, ptr addrspace(7) %28, i32 40
  %wide.load.5 = load <4 x half>, ptr addrspace(7) %29, align 2
  %30 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.5)
  %31 = fcmp oeq <4 x half> %30, splat (half +inf)
  %32 = or <4 x i1> %31, %27
  %33 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %34 = getelementptr inbounds nuw i8, ptr addrspace(7) %33, i32 48
  %wide.load.6 = load <4 x half>, ptr addrspace(7) %34, align 2
  %35 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.6)
  %36 = fcmp oeq <4 x half> %35, splat (half +inf)
  %37 = or <4 x i1> %36, %32
  %38 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index
  %39 = getelementptr inbounds nuw i8, ptr addrspace(7) %38, i32 56
  %wide.load.7 = load <4 x half>, ptr addrspace(7) %39, align 2
  %40 = tail call <4 x half> @llvm.fabs.v4f16(<4 x half> %wide.load.7)
  %41 = fcmp oeq <4 x half> %40, splat (half +inf)
  %42 = or <4 x i1> %41, %37
  %index.next.7 = add nuw nsw i32 %index, 32
  %43 = icmp eq i32 %index.next.7, 2048
  br i1 %43, label %.preheader, label %vector.body, !llvm.loop !5

.preheader:                                       ; preds = %vector.body
  %44 = tail call ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) nonnull %1, i16 0, i32 4096, i32 159744)
  %45 = bitcast <4 x i1> %42 to i4
  %.not = icmp eq i4 %45, 0
  %46 = select i1 %.not, half 6.550400e+04, half 6.451200e+04
  %47 = fneg half %46
  %broadcast.splatinsert = insertelement <4 x half> poison, half %46, i64 0
  %broadcast.splat = shufflevector <4 x half> %broadcast.splatinsert, <4 x half> poison, <4 x i32> zeroinitializer
  %broadcast.splatinsert5 = insertelement <4 x half> poison, half %47, i64 0
  %broadcast.splat6 = shufflevector <4 x half> %broadcast.splatinsert5, <4 x half> poison, <4 x i32> zeroinitializer
  br label %vector.body7

vector.body7:                                     ; preds = %vector.body7, %.preheader
  %index8 = phi i32 [ 0, %.preheader ], [ %index.next10.3, %vector.body7 ]
  %48 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index8
  %wide.load9 = load <4 x half>, ptr addrspace(7) %48, align 2
  %49 = fcmp oge <4 x half> %wide.load9, %broadcast.splat6
  %50 = select <4 x i1> %49, <4 x half> %wide.load9, <4 x half> %broadcast.splat6
  %51 = fcmp ole <4 x half> %50, %broadcast.splat
  %52 = select <4 x i1> %51, <4 x half> %50, <4 x half> %broadcast.splat
  %53 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %44, i32 %index8
  store <4 x half> %52, ptr addrspace(7) %53, align 2
  %index.next10 = or disjoint i32 %index8, 4
  %54 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index.next10
  %wide.load9.1 = load <4 x half>, ptr addrspace(7) %54, align 2
  %55 = fcmp oge <4 x half> %wide.load9.1, %broadcast.splat6
  %56 = select <4 x i1> %55, <4 x half> %wide.load9.1, <4 x half> %broadcast.splat6
  %57 = fcmp ole <4 x half> %56, %broadcast.splat
  %58 = select <4 x i1> %57, <4 x half> %56, <4 x half> %broadcast.splat
  %59 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %44, i32 %index.next10
  store <4 x half> %58, ptr addrspace(7) %59, align 2
  %index.next10.1 = or disjoint i32 %index8, 8
  %60 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index.next10.1
  %wide.load9.2 = load <4 x half>, ptr addrspace(7) %60, align 2
  %61 = fcmp oge <4 x half> %wide.load9.2, %broadcast.splat6
  %62 = select <4 x i1> %61, <4 x half> %wide.load9.2, <4 x half> %broadcast.splat6
  %63 = fcmp ole <4 x half> %62, %broadcast.splat
  %64 = select <4 x i1> %63, <4 x half> %62, <4 x half> %broadcast.splat
  %65 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %44, i32 %index.next10.1
  store <4 x half> %64, ptr addrspace(7) %65, align 2
  %index.next10.2 = or disjoint i32 %index8, 12
  %66 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %3, i32 %index.next10.2
  %wide.load9.3 = load <4 x half>, ptr addrspace(7) %66, align 2
  %67 = fcmp oge <4 x half> %wide.load9.3, %broadcast.splat6
  %68 = select <4 x i1> %67, <4 x half> %wide.load9.3, <4 x half> %broadcast.splat6
  %69 = fcmp ole <4 x half> %68, %broadcast.splat
  %70 = select <4 x i1> %69, <4 x half> %68, <4 x half> %broadcast.splat
  %71 = getelementptr inbounds nuw [2 x i8], ptr addrspace(7) %44, i32 %index.next10.2
  store <4 x half> %70, ptr addrspace(7) %71, align 2
  %index.next10.3 = add nuw nsw i32 %index8, 16
  %72 = icmp eq i32 %index.next10.3, 2048
  br i1 %72, label %middle.block11, label %vector.body7, !llvm.loop !6

middle.block11:                                   ; preds = %vector.body7
  ret void
}

; Function Attrs: alwaysinline mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write)
declare void @llvm.assume(i1 noundef) #1

; Function Attrs: alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare ptr addrspace(7) @llvm.amdgcn.make.buffer.rsrc.p7.p1.i32(ptr addrspace(1) readnone, i16, i32, i32) #2

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <4 x half> @llvm.fabs.v4f16(<4 x half>) #3

attributes #0 = { alwaysinline nofree norecurse nosync nounwind memory(write, argmem: readwrite, target_mem: none) "amdgpu-agpr-alloc"="0" "amdgpu-flat-work-group-size"="1,1" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-wwm" "uniform-work-group-size" }
attributes #1 = { alwaysinline mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #2 = { alwaysinline mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.module.flags = !{!1, !2, !3}

!0 = !{i32 1, i32 1, i32 1}
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!3 = !{i32 7, !"amdgpu.buffer.oob.mode", i32 1}
!4 = !{!"llvm.loop.isvectorized", i32 1}
!5 = distinct !{!5, !4}
!6 = distinct !{!6, !4}
