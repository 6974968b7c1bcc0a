; More uniform values live at once than the SGPRs allowed: they are spilled to VGPR lanes.
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)

define amdgpu_kernel void @spilling(ptr addrspace(1) %p, ptr addrspace(4) %q) #0 {
  %v0 = load volatile i32, ptr addrspace(4) %q
  %w0 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v0)
  %v1 = load volatile i32, ptr addrspace(4) %q
  %w1 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v1)
  %v2 = load volatile i32, ptr addrspace(4) %q
  %w2 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v2)
  %v3 = load volatile i32, ptr addrspace(4) %q
  %w3 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v3)
  %v4 = load volatile i32, ptr addrspace(4) %q
  %w4 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v4)
  %v5 = load volatile i32, ptr addrspace(4) %q
  %w5 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v5)
  %v6 = load volatile i32, ptr addrspace(4) %q
  %w6 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v6)
  %v7 = load volatile i32, ptr addrspace(4) %q
  %w7 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v7)
  %v8 = load volatile i32, ptr addrspace(4) %q
  %w8 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v8)
  %v9 = load volatile i32, ptr addrspace(4) %q
  %w9 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v9)
  %v10 = load volatile i32, ptr addrspace(4) %q
  %w10 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v10)
  %v11 = load volatile i32, ptr addrspace(4) %q
  %w11 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v11)
  %v12 = load volatile i32, ptr addrspace(4) %q
  %w12 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v12)
  %v13 = load volatile i32, ptr addrspace(4) %q
  %w13 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v13)
  %v14 = load volatile i32, ptr addrspace(4) %q
  %w14 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v14)
  %v15 = load volatile i32, ptr addrspace(4) %q
  %w15 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v15)
  %v16 = load volatile i32, ptr addrspace(4) %q
  %w16 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v16)
  %v17 = load volatile i32, ptr addrspace(4) %q
  %w17 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v17)
  %v18 = load volatile i32, ptr addrspace(4) %q
  %w18 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v18)
  %v19 = load volatile i32, ptr addrspace(4) %q
  %w19 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v19)
  %v20 = load volatile i32, ptr addrspace(4) %q
  %w20 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v20)
  %v21 = load volatile i32, ptr addrspace(4) %q
  %w21 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v21)
  %v22 = load volatile i32, ptr addrspace(4) %q
  %w22 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v22)
  %v23 = load volatile i32, ptr addrspace(4) %q
  %w23 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v23)
  %v24 = load volatile i32, ptr addrspace(4) %q
  %w24 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v24)
  %v25 = load volatile i32, ptr addrspace(4) %q
  %w25 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v25)
  %v26 = load volatile i32, ptr addrspace(4) %q
  %w26 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v26)
  %v27 = load volatile i32, ptr addrspace(4) %q
  %w27 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v27)
  %v28 = load volatile i32, ptr addrspace(4) %q
  %w28 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v28)
  %v29 = load volatile i32, ptr addrspace(4) %q
  %w29 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v29)
  %v30 = load volatile i32, ptr addrspace(4) %q
  %w30 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v30)
  %v31 = load volatile i32, ptr addrspace(4) %q
  %w31 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v31)
  %v32 = load volatile i32, ptr addrspace(4) %q
  %w32 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v32)
  %v33 = load volatile i32, ptr addrspace(4) %q
  %w33 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v33)
  %v34 = load volatile i32, ptr addrspace(4) %q
  %w34 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v34)
  %v35 = load volatile i32, ptr addrspace(4) %q
  %w35 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v35)
  %v36 = load volatile i32, ptr addrspace(4) %q
  %w36 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v36)
  %v37 = load volatile i32, ptr addrspace(4) %q
  %w37 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v37)
  %v38 = load volatile i32, ptr addrspace(4) %q
  %w38 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v38)
  %v39 = load volatile i32, ptr addrspace(4) %q
  %w39 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v39)
  %v40 = load volatile i32, ptr addrspace(4) %q
  %w40 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v40)
  %v41 = load volatile i32, ptr addrspace(4) %q
  %w41 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v41)
  %v42 = load volatile i32, ptr addrspace(4) %q
  %w42 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v42)
  %v43 = load volatile i32, ptr addrspace(4) %q
  %w43 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v43)
  %v44 = load volatile i32, ptr addrspace(4) %q
  %w44 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v44)
  %v45 = load volatile i32, ptr addrspace(4) %q
  %w45 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v45)
  %v46 = load volatile i32, ptr addrspace(4) %q
  %w46 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v46)
  %v47 = load volatile i32, ptr addrspace(4) %q
  %w47 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v47)
  %v48 = load volatile i32, ptr addrspace(4) %q
  %w48 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v48)
  %v49 = load volatile i32, ptr addrspace(4) %q
  %w49 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v49)
  %v50 = load volatile i32, ptr addrspace(4) %q
  %w50 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v50)
  %v51 = load volatile i32, ptr addrspace(4) %q
  %w51 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v51)
  %v52 = load volatile i32, ptr addrspace(4) %q
  %w52 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v52)
  %v53 = load volatile i32, ptr addrspace(4) %q
  %w53 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v53)
  %v54 = load volatile i32, ptr addrspace(4) %q
  %w54 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v54)
  %v55 = load volatile i32, ptr addrspace(4) %q
  %w55 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v55)
  %v56 = load volatile i32, ptr addrspace(4) %q
  %w56 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v56)
  %v57 = load volatile i32, ptr addrspace(4) %q
  %w57 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v57)
  %v58 = load volatile i32, ptr addrspace(4) %q
  %w58 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v58)
  %v59 = load volatile i32, ptr addrspace(4) %q
  %w59 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v59)
  %v60 = load volatile i32, ptr addrspace(4) %q
  %w60 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v60)
  %v61 = load volatile i32, ptr addrspace(4) %q
  %w61 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v61)
  %v62 = load volatile i32, ptr addrspace(4) %q
  %w62 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v62)
  %v63 = load volatile i32, ptr addrspace(4) %q
  %w63 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v63)
  %v64 = load volatile i32, ptr addrspace(4) %q
  %w64 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v64)
  %v65 = load volatile i32, ptr addrspace(4) %q
  %w65 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v65)
  %v66 = load volatile i32, ptr addrspace(4) %q
  %w66 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v66)
  %v67 = load volatile i32, ptr addrspace(4) %q
  %w67 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v67)
  %v68 = load volatile i32, ptr addrspace(4) %q
  %w68 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v68)
  %v69 = load volatile i32, ptr addrspace(4) %q
  %w69 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v69)
  %v70 = load volatile i32, ptr addrspace(4) %q
  %w70 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v70)
  %v71 = load volatile i32, ptr addrspace(4) %q
  %w71 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v71)
  %v72 = load volatile i32, ptr addrspace(4) %q
  %w72 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v72)
  %v73 = load volatile i32, ptr addrspace(4) %q
  %w73 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v73)
  %v74 = load volatile i32, ptr addrspace(4) %q
  %w74 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v74)
  %v75 = load volatile i32, ptr addrspace(4) %q
  %w75 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v75)
  %v76 = load volatile i32, ptr addrspace(4) %q
  %w76 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v76)
  %v77 = load volatile i32, ptr addrspace(4) %q
  %w77 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v77)
  %v78 = load volatile i32, ptr addrspace(4) %q
  %w78 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v78)
  %v79 = load volatile i32, ptr addrspace(4) %q
  %w79 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v79)
  call void asm sideeffect "; nothing moves across", ""()
  store volatile i32 %w0, ptr addrspace(1) %p
  store volatile i32 %w1, ptr addrspace(1) %p
  store volatile i32 %w2, ptr addrspace(1) %p
  store volatile i32 %w3, ptr addrspace(1) %p
  store volatile i32 %w4, ptr addrspace(1) %p
  store volatile i32 %w5, ptr addrspace(1) %p
  store volatile i32 %w6, ptr addrspace(1) %p
  store volatile i32 %w7, ptr addrspace(1) %p
  store volatile i32 %w8, ptr addrspace(1) %p
  store volatile i32 %w9, ptr addrspace(1) %p
  store volatile i32 %w10, ptr addrspace(1) %p
  store volatile i32 %w11, ptr addrspace(1) %p
  store volatile i32 %w12, ptr addrspace(1) %p
  store volatile i32 %w13, ptr addrspace(1) %p
  store volatile i32 %w14, ptr addrspace(1) %p
  store volatile i32 %w15, ptr addrspace(1) %p
  store volatile i32 %w16, ptr addrspace(1) %p
  store volatile i32 %w17, ptr addrspace(1) %p
  store volatile i32 %w18, ptr addrspace(1) %p
  store volatile i32 %w19, ptr addrspace(1) %p
  store volatile i32 %w20, ptr addrspace(1) %p
  store volatile i32 %w21, ptr addrspace(1) %p
  store volatile i32 %w22, ptr addrspace(1) %p
  store volatile i32 %w23, ptr addrspace(1) %p
  store volatile i32 %w24, ptr addrspace(1) %p
  store volatile i32 %w25, ptr addrspace(1) %p
  store volatile i32 %w26, ptr addrspace(1) %p
  store volatile i32 %w27, ptr addrspace(1) %p
  store volatile i32 %w28, ptr addrspace(1) %p
  store volatile i32 %w29, ptr addrspace(1) %p
  store volatile i32 %w30, ptr addrspace(1) %p
  store volatile i32 %w31, ptr addrspace(1) %p
  store volatile i32 %w32, ptr addrspace(1) %p
  store volatile i32 %w33, ptr addrspace(1) %p
  store volatile i32 %w34, ptr addrspace(1) %p
  store volatile i32 %w35, ptr addrspace(1) %p
  store volatile i32 %w36, ptr addrspace(1) %p
  store volatile i32 %w37, ptr addrspace(1) %p
  store volatile i32 %w38, ptr addrspace(1) %p
  store volatile i32 %w39, ptr addrspace(1) %p
  store volatile i32 %w40, ptr addrspace(1) %p
  store volatile i32 %w41, ptr addrspace(1) %p
  store volatile i32 %w42, ptr addrspace(1) %p
  store volatile i32 %w43, ptr addrspace(1) %p
  store volatile i32 %w44, ptr addrspace(1) %p
  store volatile i32 %w45, ptr addrspace(1) %p
  store volatile i32 %w46, ptr addrspace(1) %p
  store volatile i32 %w47, ptr addrspace(1) %p
  store volatile i32 %w48, ptr addrspace(1) %p
  store volatile i32 %w49, ptr addrspace(1) %p
  store volatile i32 %w50, ptr addrspace(1) %p
  store volatile i32 %w51, ptr addrspace(1) %p
  store volatile i32 %w52, ptr addrspace(1) %p
  store volatile i32 %w53, ptr addrspace(1) %p
  store volatile i32 %w54, ptr addrspace(1) %p
  store volatile i32 %w55, ptr addrspace(1) %p
  store volatile i32 %w56, ptr addrspace(1) %p
  store volatile i32 %w57, ptr addrspace(1) %p
  store volatile i32 %w58, ptr addrspace(1) %p
  store volatile i32 %w59, ptr addrspace(1) %p
  store volatile i32 %w60, ptr addrspace(1) %p
  store volatile i32 %w61, ptr addrspace(1) %p
  store volatile i32 %w62, ptr addrspace(1) %p
  store volatile i32 %w63, ptr addrspace(1) %p
  store volatile i32 %w64, ptr addrspace(1) %p
  store volatile i32 %w65, ptr addrspace(1) %p
  store volatile i32 %w66, ptr addrspace(1) %p
  store volatile i32 %w67, ptr addrspace(1) %p
  store volatile i32 %w68, ptr addrspace(1) %p
  store volatile i32 %w69, ptr addrspace(1) %p
  store volatile i32 %w70, ptr addrspace(1) %p
  store volatile i32 %w71, ptr addrspace(1) %p
  store volatile i32 %w72, ptr addrspace(1) %p
  store volatile i32 %w73, ptr addrspace(1) %p
  store volatile i32 %w74, ptr addrspace(1) %p
  store volatile i32 %w75, ptr addrspace(1) %p
  store volatile i32 %w76, ptr addrspace(1) %p
  store volatile i32 %w77, ptr addrspace(1) %p
  store volatile i32 %w78, ptr addrspace(1) %p
  store volatile i32 %w79, ptr addrspace(1) %p
  ret void
}

attributes #0 = { "amdgpu-num-sgpr"="48" }
