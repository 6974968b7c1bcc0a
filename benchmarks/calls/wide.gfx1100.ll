; ModuleID = 'k.cpp'
source_filename = "k.cpp"
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"

; Function Attrs: mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite)
define protected amdgpu_kernel void @calls3(ptr addrspace(1) noundef readonly captures(none) %0, ptr addrspace(1) noundef writeonly captures(none) %1, i32 noundef %2) local_unnamed_addr #0 {
  %4 = tail call i32 @llvm.amdgcn.workgroup.id.x()
  %5 = shl i32 %4, 7
  %6 = tail call i32 @llvm.amdgcn.workitem.id.x()
  %7 = add i32 %5, %6
  %8 = urem i32 %7, 98304
  %9 = zext nneg i32 %8 to i64
  %10 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %9
  %11 = load i32, ptr addrspace(1) %10, align 4, !tbaa !4, !amdgpu.noclobber !8
  %12 = mul i32 %7, 7
  %13 = urem i32 %12, 98304
  %14 = zext nneg i32 %13 to i64
  %15 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %14
  %16 = load i32, ptr addrspace(1) %15, align 4, !tbaa !4, !amdgpu.noclobber !8
  %17 = insertelement <6 x i32> poison, i32 %16, i64 0
  %18 = add i32 %12, 1
  %19 = urem i32 %18, 98304
  %20 = zext nneg i32 %19 to i64
  %21 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %20
  %22 = load i32, ptr addrspace(1) %21, align 4, !tbaa !4, !amdgpu.noclobber !8
  %23 = insertelement <6 x i32> %17, i32 %22, i64 1
  %24 = add i32 %12, 2
  %25 = urem i32 %24, 98304
  %26 = zext nneg i32 %25 to i64
  %27 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %26
  %28 = load i32, ptr addrspace(1) %27, align 4, !tbaa !4, !amdgpu.noclobber !8
  %29 = insertelement <6 x i32> %23, i32 %28, i64 2
  %30 = add i32 %12, 3
  %31 = urem i32 %30, 98304
  %32 = zext nneg i32 %31 to i64
  %33 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %32
  %34 = load i32, ptr addrspace(1) %33, align 4, !tbaa !4, !amdgpu.noclobber !8
  %35 = insertelement <6 x i32> %29, i32 %34, i64 3
  %36 = add i32 %12, 4
  %37 = urem i32 %36, 98304
  %38 = zext nneg i32 %37 to i64
  %39 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %38
  %40 = load i32, ptr addrspace(1) %39, align 4, !tbaa !4, !amdgpu.noclobber !8
  %41 = insertelement <6 x i32> %35, i32 %40, i64 4
  %42 = add i32 %12, 5
  %43 = urem i32 %42, 98304
  %44 = zext nneg i32 %43 to i64
  %45 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %44
  %46 = load i32, ptr addrspace(1) %45, align 4, !tbaa !4, !amdgpu.noclobber !8
  %47 = insertelement <6 x i32> %41, i32 %46, i64 5
  %48 = add i32 %2, %4
  %49 = sdiv i32 %2, 2
  %50 = icmp sgt i32 %2, 1
  br i1 %50, label %51, label %54

51:                                               ; preds = %3
  %52 = shl i32 %7, 4
  %53 = add i32 %52, 32768
  br label %77

54:                                               ; preds = %108, %3
  %55 = phi <6 x i32> [ %47, %3 ], [ %89, %108 ]
  %56 = phi i32 [ %11, %3 ], [ %101, %108 ]
  %57 = phi i32 [ %48, %3 ], [ %103, %108 ]
  %58 = mul i32 %56, 7
  %59 = extractelement <6 x i32> %55, i64 0
  %60 = add i32 %59, %58
  %61 = mul i32 %60, 7
  %62 = extractelement <6 x i32> %55, i64 1
  %63 = add i32 %62, %61
  %64 = mul i32 %63, 7
  %65 = extractelement <6 x i32> %55, i64 2
  %66 = add i32 %65, %64
  %67 = mul i32 %66, 7
  %68 = extractelement <6 x i32> %55, i64 3
  %69 = add i32 %68, %67
  %70 = mul i32 %69, 7
  %71 = extractelement <6 x i32> %55, i64 4
  %72 = add i32 %71, %70
  %73 = mul i32 %72, 7
  %74 = extractelement <6 x i32> %55, i64 5
  %75 = add i32 %74, %73
  %76 = add i32 %75, %57
  tail call fastcc void @_ZL2wrPU3AS1jjj(ptr addrspace(1) noundef %1, i32 noundef %7, i32 noundef %76)
  ret void

77:                                               ; preds = %51, %108
  %78 = phi i32 [ 0, %51 ], [ %82, %108 ]
  %79 = phi i32 [ %48, %51 ], [ %103, %108 ]
  %80 = phi i32 [ %11, %51 ], [ %101, %108 ]
  %81 = phi <6 x i32> [ %47, %51 ], [ %89, %108 ]
  %82 = add nuw nsw i32 %78, 1
  %83 = urem i32 %82, 6
  %84 = extractelement <6 x i32> %81, i32 %83
  %85 = tail call fastcc noundef i32 @_ZL2lpjj(i32 noundef %80, i32 noundef %84)
  %86 = urem i32 %78, 6
  %87 = extractelement <6 x i32> %81, i32 %86
  %88 = add i32 %85, %87
  %89 = insertelement <6 x i32> %81, i32 %88, i32 %86
  %90 = and i32 %80, 8
  %91 = icmp eq i32 %90, 0
  br i1 %91, label %98, label %92

92:                                               ; preds = %77
  %93 = extractelement <6 x i32> %89, i64 2
  %94 = extractelement <6 x i32> %89, i64 1
  %95 = extractelement <6 x i32> %89, i64 0
  %96 = tail call fastcc noundef i32 @_ZL3h2fjjjjj(i32 noundef %80, i32 noundef %95, i32 noundef %94, i32 noundef %93, i32 noundef %79)
  %97 = xor i32 %96, %80
  br label %98

98:                                               ; preds = %92, %77
  %99 = phi i32 [ %97, %92 ], [ %80, %77 ]
  %100 = mul i32 %99, 69069
  %101 = add i32 %100, %78
  %102 = mul i32 %79, 5
  %103 = add i32 %102, 1
  %104 = and i32 %101, 15872
  %105 = icmp eq i32 %104, 3584
  br i1 %105, label %106, label %108

106:                                              ; preds = %98
  %107 = add i32 %53, %78
  tail call fastcc void @_ZL2wrPU3AS1jjj(ptr addrspace(1) noundef %1, i32 noundef %107, i32 noundef %101)
  br label %108

108:                                              ; preds = %98, %106
  %109 = icmp eq i32 %82, %49
  br i1 %109, label %54, label %77, !llvm.loop !9
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.amdgcn.workgroup.id.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc noundef i32 @_ZL2lpjj(i32 noundef %0, i32 noundef %1) unnamed_addr #2 {
  %3 = and i32 %1, 7
  %4 = icmp eq i32 %3, 0
  br i1 %4, label %5, label %7

5:                                                ; preds = %17, %2
  %6 = phi i32 [ %0, %2 ], [ %18, %17 ]
  ret i32 %6

7:                                                ; preds = %2, %17
  %8 = phi i32 [ %19, %17 ], [ 0, %2 ]
  %9 = phi i32 [ %18, %17 ], [ %0, %2 ]
  %10 = and i32 %9, 1
  %11 = icmp eq i32 %10, 0
  br i1 %11, label %14, label %12

12:                                               ; preds = %7
  %13 = tail call fastcc noundef i32 @_ZL3h2fjjjjj(i32 noundef %9, i32 noundef %8, i32 noundef %0, i32 noundef %1, i32 noundef 3)
  br label %17

14:                                               ; preds = %7
  %15 = mul i32 %9, 3
  %16 = or disjoint i32 %15, 1
  br label %17

17:                                               ; preds = %12, %14
  %18 = phi i32 [ %13, %12 ], [ %16, %14 ]
  %19 = add nuw nsw i32 %8, 1
  %20 = icmp eq i32 %19, %3
  br i1 %20, label %5, label %7, !llvm.loop !11
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc noundef i32 @_ZL3h2fjjjjj(i32 noundef %0, i32 noundef %1, i32 noundef %2, i32 noundef %3, i32 noundef %4) unnamed_addr #2 {
  %6 = zext i32 %0 to i64
  %7 = zext i32 %1 to i64
  %8 = shl nuw i64 %7, 32
  %9 = or disjoint i64 %8, %6
  %10 = zext i32 %2 to i64
  %11 = tail call fastcc noundef i64 @_ZL2h1yy(i64 noundef %9, i64 noundef %10)
  %12 = mul i32 %4, %3
  %13 = trunc i64 %11 to i32
  %14 = add i32 %12, %13
  ret i32 %14
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(argmem: write)
define internal fastcc void @_ZL2wrPU3AS1jjj(ptr addrspace(1) noundef writeonly captures(none) %0, i32 noundef %1, i32 noundef %2) unnamed_addr #3 {
  %4 = urem i32 %1, 98304
  %5 = zext nneg i32 %4 to i64
  %6 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %5
  store i32 %2, ptr addrspace(1) %6, align 4, !tbaa !4
  ret void
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc noundef i64 @_ZL2h1yy(i64 noundef %0, i64 noundef range(i64 0, 4294967296) %1) unnamed_addr #2 {
  %3 = shl nuw nsw i64 %1, 13
  %4 = xor i64 %3, %0
  %5 = mul i64 %4, -7046029254386353131
  %6 = lshr i64 %1, 7
  %7 = add i64 %5, %6
  ret i64 %7
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }
attributes #3 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(argmem: write) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }

!llvm.module.flags = !{!0, !1, !2}
!llvm.ident = !{!3}
!llvm.errno.tbaa = !{!4}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!1 = !{i32 1, !"wchar_size", i32 4}
!2 = !{i32 8, !"PIC Level", i32 2}
!3 = !{!"Debian clang version 22.1.8 (1~deb12u1)"}
!4 = !{!5, !5, i64 0}
!5 = !{!"int", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C++ TBAA"}
!8 = !{}
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.mustprogress"}
!11 = distinct !{!11, !10}
