; A value that lives around a divergent branch, with more registers in use behind it than there are. In the SGPR phase
; LLVM's greedy splits live ranges by copies at the top of the block where EXEC is restored, and marks them (LRSplit).
; LLVM 22 does not print the mark. Resumed from the text, it saves the vector register above these copies, under the
; narrower EXEC of the branch; in a compile in one go it does not (LLVM issue 222368, pull request 117544).
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n, i32 %t) #0 {
entry:
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %v = mul i32 %id, %n
  %s1 = call i32 asm sideeffect "; def $0", "=s"()
  %c = icmp ult i32 %id, 17
  br i1 %c, label %then, label %join
then:
  %j = phi i32 [0, %entry], [%j2, %then]
  %j2 = add i32 %j, 1
  call void asm sideeffect "; use $0 $1", "v,s"(i32 %v, i32 %s1)
  call void asm sideeffect "; then", "~{vcc},~{s0},~{s1},~{s2},~{s3},~{s4},~{s5},~{s6},~{s7},~{s8},~{s9},~{s10},~{s11},~{s12},~{s13},~{s14},~{s15},~{s16},~{s17},~{s18},~{s19},~{s20},~{s21},~{s22},~{s23},~{s24},~{s25},~{s26},~{s27},~{s28},~{s29},~{s30},~{s31},~{s32},~{s33},~{s34},~{s35},~{s36},~{s37},~{s38},~{s39},~{s48},~{s49},~{s50},~{s51},~{s52},~{s53},~{s54},~{s55},~{s56},~{s57},~{s58},~{s59},~{s60},~{s61},~{s62},~{s63},~{s64},~{s65},~{s66},~{s67},~{s68},~{s69},~{s70},~{s71},~{s72},~{s73},~{s74},~{s75},~{s76},~{s77},~{s78},~{s79},~{s80},~{s81},~{s82},~{s83},~{s84},~{s85},~{s86},~{s87},~{s88},~{s89},~{s90},~{s91},~{s92},~{s93},~{s94},~{s95},~{s96},~{s97},~{s98},~{s99},~{s100},~{s101},~{s102},~{s103},~{s104},~{s105}"()
  call void asm sideeffect "; use $0 $1", "v,s"(i32 %v, i32 %s1)
  %e = icmp ult i32 %j2, %t
  br i1 %e, label %then, label %last
last:
  call void asm sideeffect "; last", "~{vcc},~{s0},~{s1},~{s2},~{s3},~{s4},~{s5},~{s6},~{s7},~{s8},~{s9},~{s10},~{s11},~{s12},~{s13},~{s14},~{s15},~{s16},~{s17},~{s18},~{s19},~{s20},~{s21},~{s22},~{s23},~{s24},~{s25},~{s26},~{s27},~{s28},~{s29},~{s30},~{s31},~{s32},~{s33},~{s34},~{s35},~{s36},~{s37},~{s38},~{s39},~{s48},~{s49},~{s50},~{s51},~{s52},~{s53},~{s54},~{s55},~{s56},~{s57},~{s58},~{s59},~{s60},~{s61},~{s62},~{s63},~{s64},~{s65},~{s66},~{s67},~{s68},~{s69},~{s70},~{s71},~{s72},~{s73},~{s74},~{s75},~{s76},~{s77},~{s78},~{s79},~{s80},~{s81},~{s82},~{s83},~{s84},~{s85},~{s86},~{s87},~{s88},~{s89},~{s90},~{s91},~{s92},~{s93},~{s94},~{s95},~{s96},~{s97},~{s98},~{s99},~{s100},~{s101},~{s102},~{s103},~{s104},~{s105}"()
  br label %join
join:
  call void asm sideeffect "; join", "~{vcc},~{s0},~{s1},~{s2},~{s3},~{s4},~{s5},~{s6},~{s7},~{s8},~{s9},~{s10},~{s11},~{s12},~{s13},~{s14},~{s15},~{s16},~{s17},~{s18},~{s19},~{s20},~{s21},~{s22},~{s23},~{s24},~{s25},~{s26},~{s27},~{s28},~{s29},~{s30},~{s31},~{s32},~{s33},~{s34},~{s35},~{s36},~{s37},~{s38},~{s39},~{s40},~{s41},~{s42},~{s43},~{s44},~{s45},~{s46},~{s47},~{s48},~{s49},~{s50},~{s51},~{s52},~{s53},~{s54},~{s55},~{s56},~{s57},~{s58},~{s59},~{s68},~{s69},~{s70},~{s71},~{s72},~{s73},~{s74},~{s75},~{s76},~{s77},~{s78},~{s79},~{s80},~{s81},~{s82},~{s83},~{s84},~{s85},~{s86},~{s87},~{s88},~{s89},~{s90},~{s91},~{s92},~{s93},~{s94},~{s95},~{s96},~{s97},~{s98},~{s99},~{s100},~{s101},~{s102},~{s103},~{s104},~{s105},~{v0},~{v1},~{v2},~{v3},~{v4},~{v5},~{v6},~{v7}"()
  br label %more
more:
  %i = phi i32 [0, %join], [%i2, %more]
  %i2 = add i32 %i, 1
  call void asm sideeffect "; use $0 $1", "v,s"(i32 %v, i32 %s1)
  %d = icmp ult i32 %i2, %t
  br i1 %d, label %more, label %end
end:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-num-vgpr"="8" "amdgpu-agpr-alloc"="0" "target-cpu"="gfx1100" "amdgpu-flat-work-group-size"="1,64" }
