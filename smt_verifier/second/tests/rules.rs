//! Each rule of the specification: a pair that it accepts, and one that it refuses.

#[path = "common/texts.rs"]
mod texts;

use texts::{block, certificate, text};
use verilocc_check::audit::audit;

/// The rule that refuses a pair of one block; `""` where it is accepted.
fn rule(classes: &[&str], slots: &[u32], live: &str, before: &[&str], after: &[&str], steps: &str) -> String {
    judge(&text(classes, &[], &block(live, before)), &text(&[], slots, &block(live, after)), &certificate(steps))
}

fn judge(before: &str, after: &str, certificate: &str) -> String {
    match audit(before, after, certificate, "gfx942", None) {
        Ok(_) => String::new(),
        Err(error) => {
            println!("{error}");
            error.rule.to_string()
        }
    }
}

const USE: &str = "S_NOP 0, implicit %0";

/// P copies `$vgpr0`; Q is given.
fn vector(after: &[&str], steps: &str) -> String {
    rule(&["vgpr_32"], &[4], "$vgpr0, $vgpr1", &["%0:vgpr_32 = COPY $vgpr0", USE], after, steps)
}

fn scalar(after: &[&str], steps: &str) -> String {
    rule(&["sreg_32"], &[4], "$sgpr4, $sgpr5", &["%0:sreg_32 = COPY $sgpr4", USE], after, steps)
}

#[test]
fn values_are_compared() {
    assert_eq!(
        rule(
            &["vgpr_32"],
            &[],
            "$vgpr0, $vgpr1",
            &["%0:vgpr_32 = COPY $vgpr0", USE],
            &["S_NOP 0, implicit $vgpr0"],
            "1- 2="
        ),
        ""
    );
    assert_eq!(
        rule(
            &["vgpr_32"],
            &[],
            "$vgpr0, $vgpr1",
            &["%0:vgpr_32 = COPY $vgpr0", USE],
            &["S_NOP 0, implicit $vgpr1"],
            "1- 2="
        ),
        "value"
    );
    let copied = ["$vgpr9 = COPY killed $vgpr0", "S_NOP 0, implicit killed $vgpr9"];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &["%0:vgpr_32 = COPY $vgpr0", USE], &copied, "1- 1+ 2="), "");
}

#[test]
fn a_register_of_the_other_file_is_refused() {
    let before =
        ["%0:vgpr_32 = COPY $vgpr0", "%1:vgpr_32 = V_ADD_U32_e64 %0, %0, 0, implicit $exec", "S_NOP 0, implicit %1"];
    let live = "$vgpr0, $sgpr4";
    let after = |operand: &str| format!("$vgpr1 = V_ADD_U32_e64 {operand}, {operand}, 0, implicit $exec");
    let classes = ["vgpr_32", "vgpr_32"];
    for (operand, expected) in
        [("$vgpr0", ""), ("$sgpr4", "register-class"), ("$vgpr1", "value"), ("$m0", "register-class")]
    {
        let line = after(operand);
        assert_eq!(
            rule(&classes, &[], live, &before, &[&line, "S_NOP 0, implicit $vgpr1"], "1- 3="),
            expected,
            "{operand}"
        );
    }
}

#[test]
fn flags_of_q_are_heeded_and_those_of_p_are_not() {
    let after = ["S_NOP 1, implicit killed $vgpr0", "S_NOP 0, implicit $vgpr0"];
    let before = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 1, implicit %0", USE];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &before, &after, "1- 3="), "value");
    let before = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 1, implicit killed %0", USE];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &before, &["S_NOP 1, implicit $vgpr0", after[1]], "1- 3="), "");
    // A dead definition is gone.
    let before = ["%0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec", USE];
    let dead = ["dead $vgpr0 = V_MOV_B32_e32 7, implicit $exec", "S_NOP 0, implicit $vgpr0"];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr1", &before, &dead, "3="), "value");
    // M0 is reserved: nobody believes that it is dead.
    let m0 = ["dead $m0 = S_MOV_B32 1", "S_SENDMSG 2, implicit $exec, implicit $m0"];
    assert_eq!(rule(&[], &[], "$vgpr1", &m0, &m0, "3="), "");
}

#[test]
fn steps_use_up_all_instructions() {
    let (p, q) = (["%0:vgpr_32 = COPY $vgpr0", USE], ["S_NOP 0, implicit $vgpr0"]);
    let check = |steps: &str| rule(&["vgpr_32"], &[], "$vgpr0", &p, &q, steps);
    assert_eq!(check("1- 2="), "");
    for steps in ["1- 1=", "1- 3=", "1-", "", "1- 2= 1+", "1- 2= 1-", "1- 4294967295=", "0- 1- 2=", "1- 01="] {
        assert_eq!(check(steps), "certificate", "{steps}");
    }
    assert_eq!(check("3="), "instruction-sequence");
}

#[test]
fn what_stands_alone_is_a_move_or_harmless() {
    let p = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 3", USE];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &p, &["S_NOP 0, implicit $vgpr0"], "2- 2="), "instruction-sequence");
    let p = ["%0:vgpr_32 = COPY $vgpr0", "%1:vgpr_32 = V_ADD_U32_e32 %0, %0, implicit $exec", USE];
    let classes = ["vgpr_32", "vgpr_32"];
    assert_eq!(rule(&classes, &[], "$vgpr0", &p, &["S_NOP 0, implicit $vgpr0"], "2- 2="), "");
    let volatile = "%1:vgpr_32 = GLOBAL_LOAD_DWORD_SADDR $sgpr4_sgpr5, %0, 0, 0, implicit $exec :: (volatile load (s32), addrspace 1)";
    let plain = volatile.replace("volatile ", "");
    for (load, expected) in [(volatile, "instruction-sequence"), (plain.as_str(), "")] {
        let p = ["%0:vgpr_32 = COPY $vgpr0", load, USE];
        assert_eq!(rule(&classes, &[], "$vgpr0, $sgpr4_sgpr5", &p, &["S_NOP 0, implicit $vgpr0"], "2- 2="), expected);
    }
    let added = ["$vgpr5 = V_MOV_B32_e32 1, implicit $exec", "S_NOP 0, implicit $vgpr0"];
    assert_eq!(vector(&added, "1- 1+ 2="), "instruction-sequence");
    let reserved = ["$m0 = COPY $sgpr4", "S_NOP 0, implicit $sgpr4"];
    assert_eq!(scalar(&reserved, "1- 1+ 2="), "reserved-register");
}

#[test]
fn spill_code_is_of_the_form_that_llvm_writes() {
    let save =
        "SI_SPILL_V32_SAVE $vgpr0, %stack.0, $sgpr32, 0, implicit $exec :: (store (s32) into %stack.0, addrspace 5)";
    let load =
        "$vgpr3 = SI_SPILL_V32_RESTORE %stack.0, $sgpr32, 0, implicit $exec :: (load (s32) from %stack.0, addrspace 5)";
    let end = "S_NOP 0, implicit $vgpr3";
    assert_eq!(vector(&[save, load, end], "1- 2+ 2="), "");
    assert_eq!(vector(&[load, end], "1- 1+ 2="), "value");
    for (from, to, expected) in [
        ("$sgpr32", "$sgpr33", "move"),
        ("addrspace 5", "addrspace 1", "move"),
        ("(store (s32)", "(store (s16)", "move"),
        ("into %stack.0,", "into %stack.0, align 8,", "move"),
        (", implicit $exec", "", "well-formed"),
        ("SAVE $vgpr0", "SAVE $agpr0", "register-class"),
        ("SAVE $vgpr0", "SAVE $sgpr4", "move"),
        ("SAVE $vgpr0", "SAVE $vgpr1", "value"),
        ("SAVE $vgpr0", "SAVE undef $vgpr0", "value"),
        ("into %stack.0", "into %stack.1", "header"),
    ] {
        let changed = save.replacen(from, to, 1);
        let answer = vector(&[&changed, load, end], "1- 2+ 2=");
        assert!(!answer.is_empty() && (answer == expected || expected != "value"), "{from}: {answer}");
    }
    let (save, load) = (
        "SI_SPILL_S32_SAVE $sgpr4, %stack.0, implicit $exec, implicit $sgpr32 :: (store (s32) into %stack.0, addrspace 5)",
        "$sgpr6 = SI_SPILL_S32_RESTORE %stack.0, implicit $exec, implicit $sgpr32 :: (load (s32) from %stack.0, addrspace 5)",
    );
    assert_eq!(scalar(&[save, load, "S_NOP 0, implicit $sgpr6"], "1- 2+ 2="), "");
    assert_eq!(
        scalar(&[&save.replace("$sgpr4", "$m0"), load, "S_NOP 0, implicit $sgpr6"], "1- 2+ 2="),
        "register-class"
    );
}

#[test]
fn scalars_live_in_lanes() {
    let start = "$vgpr9 = IMPLICIT_DEF";
    let save = "$vgpr9 = SI_SPILL_S32_TO_VGPR $sgpr4, 3, $vgpr9(tied-def 0)";
    let load = "$sgpr7 = SI_RESTORE_S32_FROM_VGPR $vgpr9, 3";
    let end = "S_NOP 0, implicit $sgpr7";
    assert_eq!(scalar(&[start, save, load, end], "1- 3+ 2="), "");
    assert_eq!(scalar(&[start, save, &load.replace(", 3", ", 4"), end], "1- 3+ 2="), "value");
    assert_eq!(scalar(&[start, &save.replace(", 3", ", 64"), load, end], "1- 3+ 2="), "move");
    assert_eq!(scalar(&[start, save, start, load, end], "1- 4+ 2="), "value");
    assert_eq!(scalar(&[start, &save.replace("$vgpr9(t", "$vgpr8(t"), load, end], "1- 3+ 2="), "move");
}

#[test]
fn copies_have_widths_and_files() {
    let classes = ["vreg_64_align2"];
    let p = ["%0:vreg_64_align2 = COPY $vgpr0_vgpr1", USE];
    let check = |copy: &str| {
        rule(&classes, &[], "$vgpr0_vgpr1, $vgpr2", &p, &[copy, "S_NOP 0, implicit $vgpr4_vgpr5"], "1- 1+ 2=")
    };
    assert_eq!(check("$vgpr4_vgpr5 = COPY $vgpr0_vgpr1"), "");
    assert_eq!(check("$agpr4_agpr5 = COPY $vgpr0_vgpr1"), "value");
    assert_eq!(check("$vgpr4_vgpr5 = COPY $vgpr0"), "move");
    assert_eq!(check("$vgpr4_vgpr5 = COPY undef $vgpr0_vgpr1"), "value");
    let readlane = ["%0:vgpr_32 = COPY $vgpr0", "$sgpr4 = COPY $vgpr0", "S_NOP 0, implicit $sgpr4"];
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &readlane, &readlane[1..], "1- 3="), "");
    assert_eq!(rule(&["vgpr_32"], &[], "$vgpr0", &readlane, &readlane[1..], "2- 1+ 2="), "instruction-sequence");
}

#[test]
fn repeats_read_what_was_read() {
    let add = "V_ADD_U32_e32";
    let p = [
        "%0:vgpr_32 = COPY $vgpr0".to_string(),
        format!("%1:vgpr_32 = {add} %0, %0, implicit $exec"),
        "S_NOP 1".to_string(),
        "S_NOP 0, implicit %1".to_string(),
    ];
    let p: Vec<&str> = p.iter().map(String::as_str).collect();
    let check = |again: &str, line: &str| {
        let after = ["S_NOP 1", again, "S_NOP 0, implicit $vgpr5"];
        let certificate = certificate("2- 1= 1+ 2=").replace("end\n", &format!("{line}end\n"));
        judge(
            &text(&["vgpr_32", "vgpr_32"], &[], &block("$vgpr0, $vgpr1", &p)),
            &text(&[], &[], &block("$vgpr0, $vgpr1", &after)),
            &certificate,
        )
    };
    let right = "$vgpr5 = V_ADD_U32_e32 $vgpr0, $vgpr0, implicit $exec";
    assert_eq!(check(right, "repeat 1 0 1\n"), "");
    assert_eq!(check(right, ""), "instruction-sequence");
    assert_eq!(check(&right.replace("$vgpr0", "$vgpr1"), "repeat 1 0 1\n"), "repeat");
    assert_eq!(check(&right.replace("ADD", "SUB"), "repeat 1 0 1\n"), "instruction-sequence");
    assert_eq!(check(right, "repeat 1 0 0\n"), "repeat");
    assert_eq!(check(right, "repeat 1 9 1\n"), "repeat");
    assert_eq!(check(right, "repeat 1 0 1\nrepeat 0 0 1\n"), "certificate");
}

#[test]
fn early_clobbers_ties_and_reserved_registers() {
    let asm = |flag: &str, to: &str, from: &str| {
        format!("INLINEASM &\"x $0, $1\", 0 /* attdialect */, {flag}:VGPR_32 */, def {to}, 2228233 /* reguse:VGPR_32 */, {from}")
    };
    let plain = "2228234 /* regdef";
    let early = "2228235 /* regdef-ec";
    for (flag, expected) in [(plain, ""), (early, "early-clobber")] {
        let p = ["%0:vgpr_32 = COPY $vgpr0".to_string(), asm(flag, "%1", "%0"), "S_NOP 0, implicit %1".to_string()];
        let q = [asm(flag, "$vgpr0", "$vgpr0"), "S_NOP 0, implicit $vgpr0".to_string()];
        let p: Vec<&str> = p.iter().map(String::as_str).collect();
        let q: Vec<&str> = q.iter().map(String::as_str).collect();
        assert_eq!(rule(&["vgpr_32", "vgpr_32"], &[], "$vgpr0", &p, &q, "1- 3="), expected);
    }
    let p = ["%0:sreg_32 = S_MOV_B32 7", USE];
    assert_eq!(
        rule(&["sreg_32"], &[], "$sgpr4", &p, &["$sgpr32 = S_MOV_B32 7", "S_NOP 0, implicit $sgpr32"], "3="),
        "reserved-register"
    );
}

/// Two blocks; the second is reached from the first one and from itself.
const LOOP: &str = "  bb.0:
    liveins: $vgpr0
    V0 = COPY $vgpr0
  bb.1:
    successors: %bb.1, %bb.2
    LIVE
    S_NOP 0, implicit V1
    S_CBRANCH_SCC1 %bb.1, implicit undef $scc
  bb.2:
    S_ENDPGM 0
";

#[test]
fn claims_follow_on_every_edge() {
    let before =
        text(&["vgpr_32"], &[], &LOOP.replace("V0", "%0:vgpr_32").replace("V1", "%0").replace("    LIVE\n", ""));
    let after = |live: &str, read: &str| {
        let body = LOOP.replace("    V0 = COPY $vgpr0\n", "    S_NOP 2\n").replace("V1", read).replace("LIVE", live);
        text(&[], &[], &body)
    };
    let before = before.replace("COPY $vgpr0\n", "COPY $vgpr0\n    S_NOP 2\n");
    let entry = |claim: &str| {
        format!(
            "verilocc-certificate 2\nfunction f\nblock 0\nsteps 1- 1=\nblock 1\nentry\nclass 0 P on\nclass 1 T on\nclass 2 O off\n\
             in 0 1\n{claim}in 2\nu %0.0 1\nsteps 2=\nblock 2\nentry\nclass 0 P on\nclass 1 T on\n\
             class 2 O off\nsteps 1=\nend\n"
        )
    };
    let right = "h %0.0 $0 1\n";
    let live = "liveins: $vgpr0";
    assert_eq!(judge(&before, &after(live, "$vgpr0"), &entry(right)), "");
    assert_eq!(judge(&before, &after("liveins: $vgpr1", "$vgpr0"), &entry(right)), "live-in");
    assert_eq!(judge(&before, &after(live, "killed $vgpr0"), &entry(right)), "relation");
    assert_eq!(judge(&before, &after(live, "$vgpr0"), &entry("")), "value");
    assert_eq!(judge(&before, &after(live, "$vgpr0"), &entry("u %0.0 1\n")), "relation");
    assert_eq!(judge(&before, &after("liveins: $vgpr0, $vgpr1", "$vgpr0"), &entry("h %0.0 $2 1\n")), "relation");
    for (from, to) in
        [("class 0 P on\n", ""), ("class 1 T on", "class 1 T off"), ("class 2 O off\n", ""), ("steps 2=", "steps 1=")]
    {
        let changed = entry(right).replacen(from, to, 1);
        assert_ne!(judge(&before, &after(live, "$vgpr0"), &changed), "", "{from}");
    }
    let entry_gone =
        entry(right).replace("block 2\nentry\nclass 0 P on\nclass 1 T on\nclass 2 O off\nsteps 1=\n", "block 2\n");
    assert_eq!(judge(&before, &after(live, "$vgpr0"), &entry_gone), "relation");
    // No operand names EXEC, so nothing is known of it (spec 4.1).
    let of_exec = entry(right).replacen("steps 2=", "in wave\nh $12292 $12292 2\nsteps 2=", 1);
    assert_eq!(judge(&before, &after(live, "$vgpr0"), &of_exec), "relation");
}

#[test]
fn classes_wait_and_wake() {
    let head = ["%0:vgpr_32 = COPY $vgpr0", "%1:sreg_64 = V_CMP_GT_U32_e64 3, %0, implicit $exec"];
    let save = "%2:sreg_64 = S_AND_SAVEEXEC_B64 %1, implicit-def $exec, implicit-def dead $scc, implicit $exec";
    let wake = "$exec = S_OR_B64 $exec, %2, implicit-def dead $scc";
    let p = [head[0], head[1], save, "%3:vgpr_32 = V_MOV_B32_e32 5, implicit $exec", "S_NOP 1, implicit %3", wake, USE];
    let q = |register: &str| {
        [
            "$sgpr0_sgpr1 = V_CMP_GT_U32_e64 3, $vgpr0, implicit $exec".to_string(),
            "$sgpr2_sgpr3 = S_AND_SAVEEXEC_B64 $sgpr0_sgpr1, implicit-def $exec, implicit-def dead $scc, implicit $exec".to_string(),
            format!("{register} = V_MOV_B32_e32 5, implicit $exec"),
            format!("S_NOP 1, implicit {register}"),
            "$exec = S_OR_B64 $exec, $sgpr2_sgpr3, implicit-def dead $scc".to_string(),
            "S_NOP 0, implicit $vgpr0".to_string(),
        ]
    };
    let check = |register: &str| {
        let q = q(register);
        let q: Vec<&str> = q.iter().map(String::as_str).collect();
        rule(&["vgpr_32", "sreg_64", "sreg_64", "vgpr_32"], &[], "$vgpr0", &p, &q, "1- 7=")
    };
    assert_eq!(check("$vgpr1"), "");
    // The register of a value that is read behind: it is lost in the threads that are active.
    assert_eq!(check("$vgpr0"), "value");
}
