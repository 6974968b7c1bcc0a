; mlir-gemm-gfx90a-6fb77755d3 element=f32 layout=nk relu=False prefetch=True tile_m=2 tile_n=4 unit=valu unroll=4 amdgpu-waves-per-eu=2,2
source_filename = "mlir-gemm-gfx90a-6fb77755d3"
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @valu_gemm_6fb77755d3(ptr addrspace(1) readonly captures(none) %0, ptr addrspace(1) readonly captures(none) %1, ptr addrspace(1) writeonly captures(none) %2, i64 %3, i64 %4) local_unnamed_addr "target-cpu"="gfx90a" "amdgpu-waves-per-eu"="2,2" #0 !reqd_work_group_size !2 {
  %6 = tail call i32 @llvm.amdgcn.workgroup.id.y()
  %7 = sext i32 %6 to i64
  %8 = shl nuw nsw i64 %7, 1
  %9 = tail call i32 @llvm.amdgcn.workgroup.id.x()
  %10 = sext i32 %9 to i64
  %11 = tail call range(i32 0, 256) i32 @llvm.amdgcn.workitem.id.x()
  %12 = shl nsw i64 %10, 10
  %13 = shl nuw nsw i32 %11, 2
  %14 = zext nneg i32 %13 to i64
  %15 = or disjoint i64 %12, %14
  %16 = mul nuw nsw i64 %4, %8
  %17 = or disjoint i64 %8, 1
  %18 = mul nuw nsw i64 %4, %17
  %19 = mul nuw nsw i64 %4, %15
  %20 = or disjoint i64 %15, 1
  %21 = mul nuw nsw i64 %4, %20
  %22 = or disjoint i64 %15, 2
  %23 = mul nuw nsw i64 %4, %22
  %24 = or disjoint i64 %15, 3
  %25 = mul nuw nsw i64 %4, %24
  %26 = add i64 %4, -4
  %27 = icmp sgt i64 %4, 0
  br i1 %27, label %.lr.ph, label %._crit_edge
.lr.ph:                                           ; preds = %5, %.lr.ph
  %.pn1023 = phi i64 [ %46, %.lr.ph ], [ %25, %5 ]
  %.pn822 = phi i64 [ %45, %.lr.ph ], [ %23, %5 ]
  %.pn621 = phi i64 [ %44, %.lr.ph ], [ %21, %5 ]
  %.pn420 = phi i64 [ %43, %.lr.ph ], [ %19, %5 ]
  %.pn219 = phi i64 [ %42, %.lr.ph ], [ %18, %5 ]
  %.pn18 = phi i64 [ %41, %.lr.ph ], [ %16, %5 ]
  %28 = phi i64 [ %39, %.lr.ph ], [ 0, %5 ]
  %29 = phi <2 x float> [ %73, %.lr.ph ], [ zeroinitializer, %5 ]
  %30 = phi <2 x float> [ %75, %.lr.ph ], [ zeroinitializer, %5 ]
  %31 = phi <2 x float> [ %77, %.lr.ph ], [ zeroinitializer, %5 ]
  %32 = phi <2 x float> [ %78, %.lr.ph ], [ zeroinitializer, %5 ]
  %.in9 = getelementptr float, ptr addrspace(1) %1, i64 %.pn1023
  %33 = load <4 x float>, ptr addrspace(1) %.in9, align 4
  %.in7 = getelementptr float, ptr addrspace(1) %1, i64 %.pn822
  %34 = load <4 x float>, ptr addrspace(1) %.in7, align 4
  %.in5 = getelementptr float, ptr addrspace(1) %1, i64 %.pn621
  %35 = load <4 x float>, ptr addrspace(1) %.in5, align 4
  %.in3 = getelementptr float, ptr addrspace(1) %1, i64 %.pn420
  %36 = load <4 x float>, ptr addrspace(1) %.in3, align 4
  %.in1 = getelementptr float, ptr addrspace(1) %0, i64 %.pn219
  %37 = load <4 x float>, ptr addrspace(1) %.in1, align 4
  %.in = getelementptr float, ptr addrspace(1) %0, i64 %.pn18
  %38 = load <4 x float>, ptr addrspace(1) %.in, align 4
  %39 = add nuw nsw i64 %28, 4
  %40 = tail call i64 @llvm.umin.i64(i64 %39, i64 %26)
  %41 = add nuw nsw i64 %40, %16
  %42 = add nuw nsw i64 %40, %18
  %43 = add nuw nsw i64 %40, %19
  %44 = add nuw nsw i64 %40, %21
  %45 = add nuw nsw i64 %40, %23
  %46 = add nuw nsw i64 %40, %25
  %47 = shufflevector <4 x float> %38, <4 x float> poison, <2 x i32> zeroinitializer
  %48 = shufflevector <4 x float> %36, <4 x float> %35, <2 x i32> <i32 0, i32 4>
  %49 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %47, <2 x float> %48, <2 x float> %29)
  %50 = shufflevector <4 x float> %38, <4 x float> poison, <2 x i32> <i32 1, i32 1>
  %51 = shufflevector <4 x float> %36, <4 x float> %35, <2 x i32> <i32 1, i32 5>
  %52 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %50, <2 x float> %51, <2 x float> %49)
  %53 = shufflevector <4 x float> %38, <4 x float> poison, <2 x i32> <i32 2, i32 2>
  %54 = shufflevector <4 x float> %36, <4 x float> %35, <2 x i32> <i32 2, i32 6>
  %55 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %53, <2 x float> %54, <2 x float> %52)
  %56 = shufflevector <4 x float> %34, <4 x float> %33, <2 x i32> <i32 0, i32 4>
  %57 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %47, <2 x float> %56, <2 x float> %30)
  %58 = shufflevector <4 x float> %34, <4 x float> %33, <2 x i32> <i32 1, i32 5>
  %59 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %50, <2 x float> %58, <2 x float> %57)
  %60 = shufflevector <4 x float> %34, <4 x float> %33, <2 x i32> <i32 2, i32 6>
  %61 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %53, <2 x float> %60, <2 x float> %59)
  %62 = shufflevector <4 x float> %37, <4 x float> poison, <2 x i32> zeroinitializer
  %63 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %62, <2 x float> %48, <2 x float> %31)
  %64 = shufflevector <4 x float> %37, <4 x float> poison, <2 x i32> <i32 1, i32 1>
  %65 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %64, <2 x float> %51, <2 x float> %63)
  %66 = shufflevector <4 x float> %37, <4 x float> poison, <2 x i32> <i32 2, i32 2>
  %67 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %66, <2 x float> %54, <2 x float> %65)
  %68 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %62, <2 x float> %56, <2 x float> %32)
  %69 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %64, <2 x float> %58, <2 x float> %68)
  %70 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %66, <2 x float> %60, <2 x float> %69)
  %71 = shufflevector <4 x float> %38, <4 x float> poison, <2 x i32> <i32 3, i32 3>
  %72 = shufflevector <4 x float> %36, <4 x float> %35, <2 x i32> <i32 3, i32 7>
  %73 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %71, <2 x float> %72, <2 x float> %55)
  %74 = shufflevector <4 x float> %34, <4 x float> %33, <2 x i32> <i32 3, i32 7>
  %75 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %71, <2 x float> %74, <2 x float> %61)
  %76 = shufflevector <4 x float> %37, <4 x float> poison, <2 x i32> <i32 3, i32 3>
  %77 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %76, <2 x float> %72, <2 x float> %67)
  %78 = tail call <2 x float> @llvm.fma.v2f32(<2 x float> %76, <2 x float> %74, <2 x float> %70)
  %79 = icmp slt i64 %39, %4
  br i1 %79, label %.lr.ph, label %._crit_edge
._crit_edge:                                      ; preds = %.lr.ph, %5
  %80 = phi <2 x float> [ zeroinitializer, %5 ], [ %73, %.lr.ph ]
  %81 = phi <2 x float> [ zeroinitializer, %5 ], [ %75, %.lr.ph ]
  %82 = phi <2 x float> [ zeroinitializer, %5 ], [ %77, %.lr.ph ]
  %83 = phi <2 x float> [ zeroinitializer, %5 ], [ %78, %.lr.ph ]
  %84 = mul nuw nsw i64 %3, %8
  %85 = shufflevector <2 x float> %80, <2 x float> %81, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %86 = getelementptr float, ptr addrspace(1) %2, i64 %84
  %87 = getelementptr float, ptr addrspace(1) %86, i64 %15
  store <4 x float> %85, ptr addrspace(1) %87, align 4
  %88 = mul nuw nsw i64 %3, %17
  %89 = shufflevector <2 x float> %82, <2 x float> %83, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %90 = getelementptr float, ptr addrspace(1) %2, i64 %88
  %91 = getelementptr float, ptr addrspace(1) %90, i64 %15
  store <4 x float> %89, ptr addrspace(1) %91, align 4
  ret void
}
declare noundef i32 @llvm.amdgcn.workgroup.id.y() #1
declare noundef i32 @llvm.amdgcn.workgroup.id.x() #1
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1
declare i64 @llvm.umin.i64(i64, i64) #2
declare <2 x float> @llvm.fma.v2f32(<2 x float>, <2 x float>, <2 x float>) #3
attributes #0 = { nofree norecurse nosync nounwind memory(argmem: readwrite) "amdgpu-agpr-alloc"="0" "amdgpu-flat-work-group-size"="256,256" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "uniform-work-group-size"="false" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
!llvm.module.flags = !{!0, !1}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = !{i32 1, !"amdhsa_code_object_version", i32 600}
!2 = !{i32 256, i32 1, i32 1}
