; ModuleID = 'k.cpp'
source_filename = "k.cpp"
target datalayout = "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"

; Function Attrs: mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite)
define protected amdgpu_kernel void @calls2(ptr addrspace(1) noundef readonly captures(none) %0, ptr addrspace(1) noundef writeonly captures(none) %1, ptr addrspace(1) noundef writeonly captures(none) %2, i32 noundef %3) local_unnamed_addr #0 {
  %5 = tail call i32 @llvm.amdgcn.workgroup.id.x()
  %6 = shl i32 %5, 7
  %7 = tail call i32 @llvm.amdgcn.workitem.id.x()
  %8 = add i32 %6, %7
  %9 = urem i32 %8, 98304
  %10 = zext nneg i32 %9 to i64
  %11 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %10
  %12 = load i32, ptr addrspace(1) %11, align 4, !tbaa !4, !amdgpu.noclobber !8
  %13 = mul i32 %8, 13
  %14 = urem i32 %13, 98304
  %15 = zext nneg i32 %14 to i64
  %16 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %15
  %17 = load i32, ptr addrspace(1) %16, align 4, !tbaa !4, !amdgpu.noclobber !8
  %18 = insertelement <10 x i32> poison, i32 %17, i64 0
  %19 = add i32 %13, 7
  %20 = urem i32 %19, 98304
  %21 = zext nneg i32 %20 to i64
  %22 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %21
  %23 = load i32, ptr addrspace(1) %22, align 4, !tbaa !4, !amdgpu.noclobber !8
  %24 = insertelement <10 x i32> %18, i32 %23, i64 1
  %25 = add i32 %13, 14
  %26 = urem i32 %25, 98304
  %27 = zext nneg i32 %26 to i64
  %28 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %27
  %29 = load i32, ptr addrspace(1) %28, align 4, !tbaa !4, !amdgpu.noclobber !8
  %30 = insertelement <10 x i32> %24, i32 %29, i64 2
  %31 = add i32 %13, 21
  %32 = urem i32 %31, 98304
  %33 = zext nneg i32 %32 to i64
  %34 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %33
  %35 = load i32, ptr addrspace(1) %34, align 4, !tbaa !4, !amdgpu.noclobber !8
  %36 = insertelement <10 x i32> %30, i32 %35, i64 3
  %37 = add i32 %13, 28
  %38 = urem i32 %37, 98304
  %39 = zext nneg i32 %38 to i64
  %40 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %39
  %41 = load i32, ptr addrspace(1) %40, align 4, !tbaa !4, !amdgpu.noclobber !8
  %42 = insertelement <10 x i32> %36, i32 %41, i64 4
  %43 = add i32 %13, 35
  %44 = urem i32 %43, 98304
  %45 = zext nneg i32 %44 to i64
  %46 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %45
  %47 = load i32, ptr addrspace(1) %46, align 4, !tbaa !4, !amdgpu.noclobber !8
  %48 = insertelement <10 x i32> %42, i32 %47, i64 5
  %49 = add i32 %13, 42
  %50 = urem i32 %49, 98304
  %51 = zext nneg i32 %50 to i64
  %52 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %51
  %53 = load i32, ptr addrspace(1) %52, align 4, !tbaa !4, !amdgpu.noclobber !8
  %54 = insertelement <10 x i32> %48, i32 %53, i64 6
  %55 = add i32 %13, 49
  %56 = urem i32 %55, 98304
  %57 = zext nneg i32 %56 to i64
  %58 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %57
  %59 = load i32, ptr addrspace(1) %58, align 4, !tbaa !4, !amdgpu.noclobber !8
  %60 = insertelement <10 x i32> %54, i32 %59, i64 7
  %61 = add i32 %13, 56
  %62 = urem i32 %61, 98304
  %63 = zext nneg i32 %62 to i64
  %64 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %63
  %65 = load i32, ptr addrspace(1) %64, align 4, !tbaa !4, !amdgpu.noclobber !8
  %66 = insertelement <10 x i32> %60, i32 %65, i64 8
  %67 = add i32 %13, 63
  %68 = urem i32 %67, 98304
  %69 = zext nneg i32 %68 to i64
  %70 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %69
  %71 = load i32, ptr addrspace(1) %70, align 4, !tbaa !4, !amdgpu.noclobber !8
  %72 = insertelement <10 x i32> %66, i32 %71, i64 9
  %73 = zext i32 %12 to i64
  %74 = mul nuw nsw i64 %73, 3
  %75 = and i32 %12, 7
  %76 = uitofp nneg i32 %75 to float
  %77 = fadd float %76, 1.500000e+00
  %78 = sdiv i32 %3, 4
  %79 = icmp sgt i32 %3, 3
  br i1 %79, label %135, label %85

80:                                               ; preds = %176
  %81 = zext i32 %167 to i64
  %82 = bitcast float %240 to i32
  %83 = fmul double %169, 1.600000e+01
  %84 = fptoui double %83 to i64
  br label %85

85:                                               ; preds = %80, %4
  %86 = phi i64 [ %81, %80 ], [ %73, %4 ]
  %87 = phi <10 x i32> [ %236, %80 ], [ %72, %4 ]
  %88 = phi i32 [ %82, %80 ], [ 1065353216, %4 ]
  %89 = phi i64 [ %177, %80 ], [ %73, %4 ]
  %90 = phi i64 [ %166, %80 ], [ %74, %4 ]
  %91 = phi float [ %168, %80 ], [ %77, %4 ]
  %92 = phi i64 [ %84, %80 ], [ 32, %4 ]
  %93 = extractelement <10 x i32> %87, i64 0
  %94 = xor i32 %93, %88
  %95 = extractelement <10 x i32> %87, i64 1
  %96 = shl i32 %95, 1
  %97 = xor i32 %96, %94
  %98 = extractelement <10 x i32> %87, i64 2
  %99 = mul i32 %98, 3
  %100 = xor i32 %99, %97
  %101 = extractelement <10 x i32> %87, i64 3
  %102 = shl i32 %101, 2
  %103 = xor i32 %102, %100
  %104 = extractelement <10 x i32> %87, i64 4
  %105 = mul i32 %104, 5
  %106 = xor i32 %105, %103
  %107 = extractelement <10 x i32> %87, i64 5
  %108 = mul i32 %107, 6
  %109 = xor i32 %108, %106
  %110 = extractelement <10 x i32> %87, i64 6
  %111 = mul i32 %110, 7
  %112 = xor i32 %111, %109
  %113 = extractelement <10 x i32> %87, i64 7
  %114 = shl i32 %113, 3
  %115 = xor i32 %114, %112
  %116 = extractelement <10 x i32> %87, i64 8
  %117 = mul i32 %116, 9
  %118 = xor i32 %117, %115
  %119 = extractelement <10 x i32> %87, i64 9
  %120 = mul i32 %119, 10
  %121 = xor i32 %120, %118
  %122 = add i64 %89, %92
  %123 = shl i32 %8, 1
  %124 = urem i32 %123, 49152
  %125 = zext nneg i32 %124 to i64
  %126 = getelementptr inbounds nuw i64, ptr addrspace(1) %1, i64 %125
  store i64 %122, ptr addrspace(1) %126, align 8, !tbaa !9
  %127 = add i64 %90, %86
  %128 = or disjoint i32 %123, 1
  %129 = urem i32 %128, 49152
  %130 = zext nneg i32 %129 to i64
  %131 = getelementptr inbounds nuw i64, ptr addrspace(1) %1, i64 %130
  store i64 %127, ptr addrspace(1) %131, align 8, !tbaa !9
  %132 = fptoui float %91 to i32
  %133 = add i32 %121, %132
  %134 = getelementptr inbounds nuw i32, ptr addrspace(1) %2, i64 %10
  store i32 %133, ptr addrspace(1) %134, align 4, !tbaa !4
  ret void

135:                                              ; preds = %4, %176
  %136 = phi i32 [ %242, %176 ], [ %12, %4 ]
  %137 = phi double [ %169, %176 ], [ 2.000000e+00, %4 ]
  %138 = phi float [ %168, %176 ], [ %77, %4 ]
  %139 = phi i32 [ %167, %176 ], [ %12, %4 ]
  %140 = phi i64 [ %166, %176 ], [ %74, %4 ]
  %141 = phi i64 [ %177, %176 ], [ %73, %4 ]
  %142 = phi float [ %240, %176 ], [ 1.000000e+00, %4 ]
  %143 = phi i32 [ %243, %176 ], [ 0, %4 ]
  %144 = phi <10 x i32> [ %236, %176 ], [ %72, %4 ]
  %145 = shl nuw i32 1, %143
  %146 = and i32 %136, %145
  %147 = icmp eq i32 %146, 0
  br i1 %147, label %157, label %148

148:                                              ; preds = %135
  %149 = add i32 %136, %143
  %150 = tail call fastcc { i64, i32, float, double } @_ZL2mk1Sj(i64 %140, i32 %139, float %138, double %137, i32 noundef %149)
  %151 = extractvalue { i64, i32, float, double } %150, 0
  %152 = extractvalue { i64, i32, float, double } %150, 1
  %153 = extractvalue { i64, i32, float, double } %150, 2
  %154 = extractvalue { i64, i32, float, double } %150, 3
  %155 = add i64 %151, %141
  %156 = and i32 %143, 3
  br label %163

157:                                              ; preds = %135
  %158 = and i32 %143, 3
  %159 = add nuw nsw i32 %158, 1
  %160 = tail call fastcc noundef i32 @_ZL4mixsjji(i32 noundef %136, i32 noundef %143, i32 noundef %159)
  %161 = zext i32 %160 to i64
  %162 = xor i64 %141, %161
  br label %163

163:                                              ; preds = %157, %148
  %164 = phi i32 [ %158, %157 ], [ %156, %148 ]
  %165 = phi i64 [ %162, %157 ], [ %155, %148 ]
  %166 = phi i64 [ %140, %157 ], [ %151, %148 ]
  %167 = phi i32 [ %139, %157 ], [ %152, %148 ]
  %168 = phi float [ %138, %157 ], [ %153, %148 ]
  %169 = phi double [ %137, %157 ], [ %154, %148 ]
  %170 = and i32 %136, 3
  %171 = icmp eq i32 %170, %164
  br i1 %171, label %172, label %176

172:                                              ; preds = %163
  %173 = tail call fastcc noundef i32 @_ZL3midPU3AS1Kjj(ptr addrspace(1) noundef %0, i32 noundef %136)
  %174 = zext i32 %173 to i64
  %175 = add i64 %165, %174
  br label %176

176:                                              ; preds = %172, %163
  %177 = phi i64 [ %175, %172 ], [ %165, %163 ]
  %178 = extractelement <10 x i32> %144, i64 0
  %179 = mul i32 %178, 5
  %180 = trunc i64 %177 to i32
  %181 = add i32 %179, %180
  %182 = insertelement <10 x i32> poison, i32 %181, i64 0
  %183 = extractelement <10 x i32> %144, i64 1
  %184 = mul i32 %183, 5
  %185 = lshr i64 %177, 1
  %186 = trunc i64 %185 to i32
  %187 = add i32 %184, %186
  %188 = insertelement <10 x i32> %182, i32 %187, i64 1
  %189 = extractelement <10 x i32> %144, i64 2
  %190 = mul i32 %189, 5
  %191 = lshr i64 %177, 2
  %192 = trunc i64 %191 to i32
  %193 = add i32 %190, %192
  %194 = insertelement <10 x i32> %188, i32 %193, i64 2
  %195 = extractelement <10 x i32> %144, i64 3
  %196 = mul i32 %195, 5
  %197 = lshr i64 %177, 3
  %198 = trunc i64 %197 to i32
  %199 = add i32 %196, %198
  %200 = insertelement <10 x i32> %194, i32 %199, i64 3
  %201 = extractelement <10 x i32> %144, i64 4
  %202 = mul i32 %201, 5
  %203 = lshr i64 %177, 4
  %204 = trunc i64 %203 to i32
  %205 = add i32 %202, %204
  %206 = insertelement <10 x i32> %200, i32 %205, i64 4
  %207 = extractelement <10 x i32> %144, i64 5
  %208 = mul i32 %207, 5
  %209 = lshr i64 %177, 5
  %210 = trunc i64 %209 to i32
  %211 = add i32 %208, %210
  %212 = insertelement <10 x i32> %206, i32 %211, i64 5
  %213 = extractelement <10 x i32> %144, i64 6
  %214 = mul i32 %213, 5
  %215 = lshr i64 %177, 6
  %216 = trunc i64 %215 to i32
  %217 = add i32 %214, %216
  %218 = insertelement <10 x i32> %212, i32 %217, i64 6
  %219 = extractelement <10 x i32> %144, i64 7
  %220 = mul i32 %219, 5
  %221 = lshr i64 %177, 7
  %222 = trunc i64 %221 to i32
  %223 = add i32 %220, %222
  %224 = insertelement <10 x i32> %218, i32 %223, i64 7
  %225 = extractelement <10 x i32> %144, i64 8
  %226 = mul i32 %225, 5
  %227 = lshr i64 %177, 8
  %228 = trunc i64 %227 to i32
  %229 = add i32 %226, %228
  %230 = insertelement <10 x i32> %224, i32 %229, i64 8
  %231 = extractelement <10 x i32> %144, i64 9
  %232 = mul i32 %231, 5
  %233 = lshr i64 %177, 9
  %234 = trunc i64 %233 to i32
  %235 = add i32 %232, %234
  %236 = insertelement <10 x i32> %230, i32 %235, i64 9
  %237 = and i32 %136, 15
  %238 = uitofp nneg i32 %237 to float
  %239 = uitofp nneg i32 %164 to half
  %240 = tail call fastcc noundef float @_ZL2flffDF16_(float noundef %142, float noundef %238, half noundef %239)
  %241 = mul i32 %136, 1103515245
  %242 = add i32 %241, 12345
  %243 = add nuw nsw i32 %143, 1
  %244 = icmp eq i32 %243, %78
  br i1 %244, label %80, label %135, !llvm.loop !11
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef i32 @llvm.amdgcn.workgroup.id.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x() #1

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc { i64, i32, float, double } @_ZL2mk1Sj(i64 %0, i32 %1, float %2, double %3, i32 noundef %4) unnamed_addr #2 {
  %6 = or i32 %4, 1
  %7 = zext i32 %6 to i64
  %8 = mul i64 %0, %7
  %9 = tail call fastcc noundef i32 @_ZL4mixsjji(i32 noundef %4, i32 noundef %1, i32 noundef 3)
  %10 = zext i32 %9 to i64
  %11 = add i64 %8, %10
  %12 = lshr i64 %11, 17
  %13 = trunc i64 %12 to i32
  %14 = xor i32 %1, %13
  %15 = and i32 %14, 255
  %16 = uitofp nneg i32 %15 to float
  %17 = tail call float @llvm.fmuladd.f32(float %2, float 1.250000e+00, float %16)
  %18 = fpext float %17 to double
  %19 = tail call double @llvm.fmuladd.f64(double %3, double 5.000000e-01, double %18)
  %20 = insertvalue { i64, i32, float, double } poison, i64 %11, 0
  %21 = insertvalue { i64, i32, float, double } %20, i32 %14, 1
  %22 = insertvalue { i64, i32, float, double } %21, float %17, 2
  %23 = insertvalue { i64, i32, float, double } %22, double %19, 3
  ret { i64, i32, float, double } %23
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc noundef i32 @_ZL4mixsjji(i32 noundef %0, i32 noundef %1, i32 noundef range(i32 1, 5) %2) unnamed_addr #2 {
  br label %6

4:                                                ; preds = %6
  %5 = xor i32 %11, %14
  ret i32 %5

6:                                                ; preds = %3, %6
  %7 = phi i32 [ 0, %3 ], [ %15, %6 ]
  %8 = phi i32 [ %0, %3 ], [ %11, %6 ]
  %9 = phi i32 [ %1, %3 ], [ %14, %6 ]
  %10 = mul i32 %8, -1640531535
  %11 = add i32 %10, %9
  %12 = lshr i32 %11, 13
  %13 = xor i32 %12, %9
  %14 = tail call i32 @llvm.fshl.i32(i32 %13, i32 %13, i32 7)
  %15 = add nuw nsw i32 %7, 1
  %16 = icmp eq i32 %15, %2
  br i1 %16, label %4, label %6, !llvm.loop !13
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(argmem: read)
define internal fastcc noundef i32 @_ZL3midPU3AS1Kjj(ptr addrspace(1) noundef readonly captures(none) %0, i32 noundef %1) unnamed_addr #3 {
  %3 = urem i32 %1, 98304
  %4 = zext nneg i32 %3 to i64
  %5 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %4
  %6 = load i32, ptr addrspace(1) %5, align 4, !tbaa !4
  %7 = add i32 %1, 11
  %8 = urem i32 %7, 98304
  %9 = zext nneg i32 %8 to i64
  %10 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %9
  %11 = load i32, ptr addrspace(1) %10, align 4, !tbaa !4
  %12 = add i32 %1, 22
  %13 = urem i32 %12, 98304
  %14 = zext nneg i32 %13 to i64
  %15 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %14
  %16 = load i32, ptr addrspace(1) %15, align 4, !tbaa !4
  %17 = add i32 %1, 33
  %18 = urem i32 %17, 98304
  %19 = zext nneg i32 %18 to i64
  %20 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %19
  %21 = load i32, ptr addrspace(1) %20, align 4, !tbaa !4
  %22 = add i32 %1, 44
  %23 = urem i32 %22, 98304
  %24 = zext nneg i32 %23 to i64
  %25 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %24
  %26 = load i32, ptr addrspace(1) %25, align 4, !tbaa !4
  %27 = add i32 %1, 55
  %28 = urem i32 %27, 98304
  %29 = zext nneg i32 %28 to i64
  %30 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %29
  %31 = load i32, ptr addrspace(1) %30, align 4, !tbaa !4
  %32 = add i32 %1, 66
  %33 = urem i32 %32, 98304
  %34 = zext nneg i32 %33 to i64
  %35 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %34
  %36 = load i32, ptr addrspace(1) %35, align 4, !tbaa !4
  %37 = add i32 %1, 77
  %38 = urem i32 %37, 98304
  %39 = zext nneg i32 %38 to i64
  %40 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %39
  %41 = load i32, ptr addrspace(1) %40, align 4, !tbaa !4
  %42 = add i32 %1, 88
  %43 = urem i32 %42, 98304
  %44 = zext nneg i32 %43 to i64
  %45 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %44
  %46 = load i32, ptr addrspace(1) %45, align 4, !tbaa !4
  %47 = add i32 %1, 99
  %48 = urem i32 %47, 98304
  %49 = zext nneg i32 %48 to i64
  %50 = getelementptr inbounds nuw i32, ptr addrspace(1) %0, i64 %49
  %51 = load i32, ptr addrspace(1) %50, align 4, !tbaa !4
  %52 = or i32 %21, 1
  %53 = mul i32 %52, %6
  %54 = add i32 %53, %41
  %55 = or i32 %26, 1
  %56 = mul i32 %55, %11
  %57 = add i32 %56, %46
  %58 = or i32 %31, 1
  %59 = mul i32 %58, %16
  %60 = add i32 %59, %51
  %61 = or i32 %36, 1
  %62 = mul i32 %61, %21
  %63 = add i32 %62, %54
  %64 = or i32 %41, 1
  %65 = mul i32 %64, %26
  %66 = add i32 %65, %57
  %67 = or i32 %46, 1
  %68 = mul i32 %67, %31
  %69 = add i32 %68, %60
  %70 = or i32 %51, 1
  %71 = mul i32 %70, %36
  %72 = add i32 %71, %63
  %73 = or i32 %54, 1
  %74 = mul i32 %73, %41
  %75 = add i32 %74, %66
  %76 = or i32 %57, 1
  %77 = mul i32 %76, %46
  %78 = add i32 %77, %69
  %79 = or i32 %60, 1
  %80 = mul i32 %79, %51
  %81 = add i32 %80, %72
  %82 = tail call fastcc noundef i32 @_ZL4mixsjji(i32 noundef %54, i32 noundef %57, i32 noundef 2)
  %83 = or i32 %63, 1
  %84 = mul i32 %83, %54
  %85 = add i32 %84, %75
  %86 = or i32 %66, 1
  %87 = mul i32 %86, %57
  %88 = add i32 %87, %78
  %89 = or i32 %69, 1
  %90 = mul i32 %89, %60
  %91 = add i32 %90, %81
  %92 = or i32 %72, 1
  %93 = mul i32 %92, %63
  %94 = add i32 %93, %85
  %95 = or i32 %75, 1
  %96 = mul i32 %95, %66
  %97 = add i32 %96, %88
  %98 = or i32 %78, 1
  %99 = mul i32 %98, %69
  %100 = add i32 %99, %91
  %101 = or i32 %81, 1
  %102 = mul i32 %101, %72
  %103 = add i32 %102, %94
  %104 = or i32 %85, 1
  %105 = mul i32 %104, %75
  %106 = add i32 %105, %97
  %107 = or i32 %88, 1
  %108 = mul i32 %107, %78
  %109 = add i32 %108, %100
  %110 = or i32 %91, 1
  %111 = mul i32 %110, %81
  %112 = add i32 %111, %103
  %113 = tail call fastcc noundef i32 @_ZL4mixsjji(i32 noundef %88, i32 noundef %91, i32 noundef 2)
  %114 = add i32 %113, %82
  %115 = or i32 %94, 1
  %116 = mul i32 %115, %85
  %117 = add i32 %116, %106
  %118 = or i32 %97, 1
  %119 = mul i32 %118, %88
  %120 = add i32 %119, %109
  %121 = or i32 %100, 1
  %122 = mul i32 %121, %91
  %123 = add i32 %122, %112
  %124 = or i32 %103, 1
  %125 = mul i32 %124, %94
  %126 = add i32 %125, %117
  %127 = or i32 %106, 1
  %128 = mul i32 %127, %97
  %129 = add i32 %128, %120
  %130 = or i32 %109, 1
  %131 = mul i32 %130, %100
  %132 = add i32 %131, %123
  %133 = or i32 %112, 1
  %134 = mul i32 %133, %103
  %135 = add i32 %134, %126
  %136 = or i32 %117, 1
  %137 = mul i32 %136, %106
  %138 = add i32 %137, %129
  %139 = or i32 %120, 1
  %140 = mul i32 %139, %109
  %141 = add i32 %140, %132
  %142 = or i32 %123, 1
  %143 = mul i32 %142, %112
  %144 = add i32 %143, %135
  %145 = tail call fastcc noundef i32 @_ZL4mixsjji(i32 noundef %123, i32 noundef %126, i32 noundef 2)
  %146 = add i32 %145, %114
  %147 = xor i32 %146, %138
  %148 = xor i32 %147, %141
  %149 = xor i32 %148, %144
  %150 = xor i32 %149, %117
  %151 = xor i32 %150, %120
  %152 = xor i32 %151, %123
  %153 = xor i32 %152, %126
  %154 = xor i32 %153, %129
  %155 = xor i32 %154, %132
  %156 = xor i32 %155, %135
  ret i32 %156
}

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define internal fastcc noundef float @_ZL2flffDF16_(float noundef %0, float noundef %1, half noundef %2) unnamed_addr #2 {
  %4 = fcmp ogt float %0, %1
  %5 = fpext half %2 to float
  %6 = tail call float @llvm.fmuladd.f32(float %0, float 5.000000e-01, float %5)
  %7 = fneg float %0
  %8 = tail call float @llvm.fmuladd.f32(float %7, float %5, float %1)
  %9 = select i1 %4, float %6, float %8
  ret float %9
}

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.fmuladd.f32(float, float, float) #4

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare double @llvm.fmuladd.f64(double, double, double) #4

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.fshl.i32(i32, i32, i32) #5

attributes #0 = { mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }
attributes #3 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(argmem: read) "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-cluster-id-x" "amdgpu-no-cluster-id-y" "amdgpu-no-cluster-id-z" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-flat-scratch-init" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx1100" "target-features"="+16-bit-insts,+atomic-fadd-rtn-insts,+atomic-fmin-fmax-global-f32,+ci-insts,+cube-insts,+cvt-pknorm-vop2-insts,+dl-insts,+dot10-insts,+dot12-insts,+dot5-insts,+dot7-insts,+dot8-insts,+dot9-insts,+dpp,+gfx10-3-insts,+gfx10-insts,+gfx11-insts,+gfx8-insts,+gfx9-insts,+lerp-inst,+qsad-insts,+sad-insts,+wavefrontsize32" "uniform-work-group-size"="false" }
attributes #4 = { mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #5 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

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
!9 = !{!10, !10, i64 0}
!10 = !{!"long long", !6, i64 0}
!11 = distinct !{!11, !12}
!12 = !{!"llvm.loop.mustprogress"}
!13 = distinct !{!13, !12}
