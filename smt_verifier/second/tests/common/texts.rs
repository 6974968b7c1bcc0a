//! Small texts of one kernel for gfx942, and certificates for them.
#![allow(dead_code)]

/// Rows of `registers:` for classes, from register 0 on.
fn registers(classes: &[&str]) -> String {
    let row = |(n, class): (usize, &&str)| {
        format!("  - {{ id: {n}, class: {class}, preferred-register: '', flags: [  ] }}\n")
    };
    let rows: String = classes.iter().enumerate().map(row).collect();
    if rows.is_empty() {
        "noVRegs:         true\nregisters:       []\n".to_string()
    } else {
        format!("registers:\n{rows}")
    }
}

/// A text of one function: classes of its virtual registers, spill slots (size), and the body.
pub fn text(classes: &[&str], slots: &[u32], body: &str) -> String {
    let slot = |(n, size): (usize, &u32)| format!("  - {{ id: {n}, type: spill-slot, size: {size}, alignment: 4 }}\n");
    let rows: String = slots.iter().enumerate().map(slot).collect();
    let stack = if rows.is_empty() { String::new() } else { format!("stack:\n{rows}") };
    let marks = if body.contains("SI_SPILL_S") { "  hasSpilledSGPRs: true\n" } else { "" };
    let marks =
        if body.contains("SI_SPILL_V") { format!("{marks}  hasSpilledVGPRs: true\n") } else { marks.to_string() };
    let body: String = body.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!(
        "--- |\n  define amdgpu_kernel void @f() #0 {{\n    ret void\n  }}\n  attributes #0 = {{ \"target-cpu\"=\"gfx942\" }}\n...\n\
         ---\nname:            f\ntracksRegLiveness: true\n{}{stack}machineFunctionInfo:\n{marks}  isEntryFunction: true\n  \
         scratchRSrcReg:  '$sgpr96_sgpr97_sgpr98_sgpr99'\n  stackPtrOffsetReg: '$sgpr32'\nbody:             |\n{body}...\n",
        registers(classes)
    )
}

/// Instructions of one block with these live-ins.
pub fn block(liveins: &str, instructions: &[&str]) -> String {
    let lines: String = instructions.iter().map(|line| format!("    {line}\n")).collect();
    format!("  bb.0:\n    liveins: {liveins}\n{lines}    S_ENDPGM 0\n")
}

/// A certificate of one block.
pub fn certificate(steps: &str) -> String {
    format!("verilocc-certificate 2\nfunction f\nblock 0\nsteps {steps}\nend\n")
}
