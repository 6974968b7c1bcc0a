//! Rules about flags, whole waves, copies across EXEC, and what a callee leaves alone: each accepts one pair and refuses another.

#[path = "common/texts.rs"]
mod texts;

use texts::{block, certificate, text};
use verilocc_check::audit::audit_phase;
use verilocc_check::context::Premises;

fn judged(before: &str, after: &str, certificate: &str, saved_later: bool) -> String {
    match audit_phase(before, after, certificate, "gfx942", None, Premises { saved_later, ..Premises::default() }) {
        Ok(_) => String::new(),
        Err(error) => {
            println!("{error}");
            error.rule.to_string()
        }
    }
}

fn judge(before: &str, after: &str, certificate: &str) -> String {
    judged(before, after, certificate, false)
}

/// The rule that refuses a pair of one block; `""` where it is accepted.
fn rule(classes: &[&str], live: &str, before: &[&str], after: &[&str], steps: &str) -> String {
    judge(&text(classes, &[], &block(live, before)), &text(&[], &[], &block(live, after)), &certificate(steps))
}

#[test]
fn added_operands_say_nothing_new() {
    for (added, expected) in [
        ("implicit-def $vgpr5", ""),
        ("implicit-def dead $vgpr5", ""),
        ("implicit-def early-clobber $vgpr5", "operands"),
        ("implicit-def $sgpr_null", "operands"),
        ("implicit internal $vgpr0", "operands"),
        ("implicit-def $m0", "reserved-register"),
        ("implicit-def $vgpr0", "value"),
        ("implicit killed $vgpr0", "value"),
    ] {
        let after = [&format!("S_NOP 1, implicit $vgpr0, {added}"), "S_NOP 0, implicit $vgpr0"];
        let before = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 1, implicit %0", "S_NOP 0, implicit %0"];
        assert_eq!(rule(&["vgpr_32"], "$vgpr0", &before, &after, "1- 3="), expected, "{added}");
    }
}

#[test]
fn a_whole_wave_writes_all_threads_and_v_set_inactive_reads_each_operand_in_some() {
    let code = |x: &str, y: &str, m: &str, n: &str, operands: &str| {
        let enter = "ENTER_STRICT_WWM -1, implicit-def $exec, implicit-def dead $scc, implicit $exec";
        [
            format!("{m} = {enter}"),
            format!("{x} = V_MOV_B32_e32 1, implicit $exec"),
            "S_NOP 1".to_string(),
            format!("$exec = EXIT_STRICT_WWM {}", m.trim_end_matches(":sreg_64")),
            format!("{x} = V_MOV_B32_e32 7, implicit $exec"),
            format!("{n} = {enter}"),
            format!("{y} = V_SET_INACTIVE_B32 {operands}, {}, implicit $exec", n.trim_end_matches(":sreg_64")),
            format!("$exec = EXIT_STRICT_WWM {}", n.trim_end_matches(":sreg_64")),
            format!("S_NOP 0, implicit {}", y.trim_end_matches(":vgpr_32")),
        ]
    };
    // In threads that are not active v8 is lost: they read the second value, not the first.
    for (p, q, expected) in [("0, %0, 0, 5", "0, $vgpr8, 0, 5", ""), ("0, 5, 0, %0", "0, 5, 0, $vgpr8", "value")] {
        let before = code("%0:vgpr_32", "%1:vgpr_32", "%2:sreg_64", "%3:sreg_64", p);
        let mut after = code("$vgpr8", "$vgpr9", "$sgpr8_sgpr9", "$sgpr10_sgpr11", q).to_vec();
        after.insert(3, "$vgpr8 = COPY $vgpr0".to_string());
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        let classes = ["vgpr_32", "vgpr_32", "sreg_64", "sreg_64"];
        assert_eq!(rule(&classes, "$vgpr0", &before, &after, "3= 1+ 7="), expected, "{q}");
    }
}

#[test]
fn a_move_keeps_what_it_reads_and_defines_implicitly_if_it_writes_a_part_of_that() {
    let before = ["%0:vgpr_32 = COPY $vgpr7", "S_NOP 1", "S_NOP 0, implicit %0", "S_NOP 0, implicit %0"];
    for (more, expected) in [
        ("", ""),
        (", implicit-def $vgpr41", "value"),
        (", implicit-def $vgpr41, implicit $vgpr41", "value"),
        (", implicit-def $vgpr40_vgpr41", "value"),
        (", implicit-def $vgpr40_vgpr41, implicit $vgpr41", ""),
    ] {
        let copy = format!("$vgpr40 = COPY $vgpr41{more}");
        let after =
            ["$vgpr41 = COPY $vgpr7", &copy, "S_NOP 1", "S_NOP 0, implicit $vgpr41", "S_NOP 0, implicit $vgpr40"];
        assert_eq!(rule(&["vgpr_32"], "$vgpr7", &before, &after, "1- 2+ 4="), expected, "{more}");
    }
}

#[test]
fn saves_of_a_tuple_follow_one_another() {
    let before = ["%0:sreg_64 = COPY $sgpr4_sgpr5", "S_NOP 0, implicit %0"];
    let check = |defined: &str, second: &str| {
        let first = format!("$vgpr9 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, $vgpr9(tied-def 0){defined}");
        let second = format!("$vgpr9 = SI_SPILL_S32_TO_VGPR {second}, 1, $vgpr9(tied-def 0)");
        let after = ["$vgpr9 = IMPLICIT_DEF", &first, &second, "S_NOP 0, implicit $sgpr4_sgpr5"];
        rule(&["sreg_64"], "$sgpr4_sgpr5", &before, &after, "1- 3+ 2=")
    };
    let both = ", implicit-def $sgpr4_sgpr5, implicit $sgpr4_sgpr5";
    assert_eq!(check(both, "$sgpr5"), "");
    assert_eq!(check(both, "$sgpr4"), "spill-slot");
    assert_eq!(check(", implicit-def $sgpr4_sgpr5", "$sgpr5"), "spill-slot");
    // It would say that it writes what it saves.
    assert_eq!(check(", implicit-def $sgpr4", "$sgpr5"), "spill-slot");
}

#[test]
fn spill_code_of_whole_waves_needs_a_register_for_exec() {
    let before = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 0, implicit %0"];
    let check = |register: &str, opcode: &str| {
        let place = "  stackPtrOffsetReg: '$sgpr32'\n";
        let with = |text: String| text.replace(place, &format!("{place}  sgprForEXECCopy: '{register}'\n"));
        let before = with(text(&["vgpr_32"], &[], &block("$vgpr0, $sgpr4", &before)));
        let save = format!(
            "SI_SPILL_{opcode}_SAVE $vgpr0, %stack.0, $sgpr32, 0, implicit $exec :: (store (s32) into %stack.0, addrspace 5)"
        );
        let after = with(text(&[], &[4], &block("$vgpr0, $sgpr4", &[&save, "S_NOP 0, implicit $vgpr0"])));
        judge(&before, &after, &certificate("1- 1+ 2="))
    };
    assert_eq!(check("$sgpr80_sgpr81", "WWM_V32"), "");
    assert_eq!(check("", "WWM_V32"), "move");
}

#[test]
fn whole_wave_copies_are_not_known() {
    let before = ["%0:vgpr_32 = COPY $vgpr0", "S_NOP 0, implicit %0"];
    let after = ["$vgpr4 = WWM_COPY $vgpr0, implicit $exec", "S_NOP 0, implicit $vgpr4"];
    assert_eq!(rule(&["vgpr_32"], "$vgpr0", &before, &after, "1- 1+ 2="), "well-formed");
}

#[test]
fn a_repeat_depends_on_exec_as_what_it_repeats() {
    let before = ["%0:vgpr_32 = V_MOV_B32_e32 7, implicit $exec", "S_NOP 1", "S_NOP 0, implicit %0"];
    for (exec, expected) in [("implicit $exec", ""), ("implicit undef $exec", "repeat")] {
        let again = format!("$vgpr5 = V_MOV_B32_e32 7, {exec}");
        let after = ["S_NOP 1", &again, "S_NOP 0, implicit $vgpr5"];
        let steps = certificate("1- 1= 1+ 2=").replace("end\n", "repeat 1 0 0\nend\n");
        let (p, q) = (block("$vgpr0", &before), block("$vgpr0", &after));
        assert_eq!(judge(&text(&["vgpr_32"], &[], &p), &text(&[], &[], &q), &steps), expected, "{exec}");
    }
}

/// Claims of block 1, of the path, of the threads that entered, and of all others.
fn two_blocks(first: &str, second: &str, path: &str, threads: &str) -> String {
    format!(
        "verilocc-certificate 2\nfunction f\nblock 0\nsteps {first} 1=\nblock 1\nentry\nclass 0 P on\nclass 1 T on\nclass 2 O off\n\
         in 0\n{path}in 1\n{threads}steps {second}block 2\nentry\nclass 0 P on\nclass 1 T on\nclass 2 O off\nsteps 1=\nend\n"
    )
}

/// Two blocks that LLVM does not join, because the first one may also lead to a third.
fn body(live: &str, first: &[&str], live_second: &str, second: &[&str]) -> String {
    let lines = |all: &[&str]| all.iter().map(|line| format!("    {line}\n")).collect::<String>();
    let (first, second) = (lines(first), lines(second));
    format!(
        "  bb.0:\n    liveins: {live}\n{first}    S_CBRANCH_SCC1 %bb.2, implicit undef $scc\n  bb.1:\n    liveins: {live_second}\n\
         {second}    S_ENDPGM 0\n  bb.2:\n    S_ENDPGM 0\n"
    )
}

#[test]
fn on_the_path_a_repeat_may_read_what_no_thread_reads() {
    let (first, add) = (["%0:vgpr_32 = COPY $vgpr0"], "V_ADD_U32_e32");
    let second = [&format!("%1:vgpr_32 = {add} %0, %0, implicit $exec"), "S_NOP 1", "S_NOP 0, implicit %1"];
    let before = text(&["vgpr_32", "vgpr_32"], &[], &body("$vgpr0", &first, "$vgpr0", &second));
    let again = ["S_NOP 1", &format!("$vgpr5 = {add} $vgpr0, $vgpr0, implicit $exec"), "S_NOP 0, implicit $vgpr5"];
    let after = text(&[], &[], &body("$vgpr0", &[], "$vgpr0", &again));
    let (known, doubtful) = ("h %0.0 $0 1\n", "h %0.0 $0 1\nd %0.0 1\n");
    for (path, threads, expected) in [(known, known, ""), (doubtful, known, ""), (known, doubtful, "repeat")] {
        let certificate = two_blocks("1-", "1- 1= 1+ 2=\nrepeat 1 1 0\n", path, threads);
        assert_eq!(judge(&before, &after, &certificate), expected);
    }
}

const COMPARE: &str = "V_CMP_GT_U32_e64 3, ";
const SAVE: &str = "S_AND_SAVEEXEC_B64";
const FLAGS: &str = "implicit-def $exec, implicit-def dead $scc, implicit $exec";

#[test]
fn copies_are_propagated_across_exec_within_their_block() {
    let head = |v: &str, c: &str, s: &str| {
        let (c_use, exec) = (c.trim_end_matches(":sreg_64"), s.trim_end_matches(":sreg_64"));
        [
            format!("{c} = {COMPARE}{v}, implicit $exec"),
            format!("{s} = {SAVE} {c_use}, {FLAGS}"),
            format!("$exec = S_OR_B64 $exec, {exec}, implicit-def dead $scc"),
        ]
    };
    let (p, q) = (head("%0", "%1:sreg_64", "%2:sreg_64"), head("$vgpr0", "$sgpr0_sgpr1", "$sgpr2_sgpr3"));
    let classes = ["vgpr_32", "sreg_64", "sreg_64", "vgpr_32"];
    // The threads that wait keep in %3 what v1 was; the others have %0.
    let p = ["%0:vgpr_32 = COPY $vgpr0", "%3:vgpr_32 = COPY $vgpr1", &p[0], &p[1], "%3:vgpr_32 = COPY %0", &p[2]];
    let q = ["$vgpr8 = COPY $vgpr1", &q[0], &q[1], "$vgpr8 = COPY $vgpr0", &q[2]];
    let (live, end) = ("$vgpr0, $vgpr1", ["S_NOP 0, implicit %3"]);
    let steps = "2- 1+ 2= 1- 1+ 1=";
    let inside = rule(
        &classes,
        live,
        &[&p[..], &end].concat(),
        &[&q[..], &["S_NOP 0, implicit $vgpr8"]].concat(),
        &format!("{steps} 2="),
    );
    assert_eq!(inside, "value");
    let before = text(&classes, &[], &body(live, &p, live, &end));
    let after = text(&[], &[], &body(live, &q, "$vgpr8", &["S_NOP 0, implicit $vgpr8"]));
    let claim = "h %3.0 $16 1\n";
    // The first copy is dead on the path, so LLVM may delete it: the threads that wait have lost it (11.3).
    assert_eq!(judge(&before, &after, &two_blocks(steps, "2=\n", claim, claim)), "relation");
    // A copy that stands again may be deleted, a third one too.
    let copy = "$vgpr8 = COPY $vgpr0";
    let check = |between: &[&str], behind: &[&str], read: &str, count: &str| {
        let p = ["%0:vgpr_32 = COPY $vgpr0", p[2], p[3], p[5], "S_NOP 0, implicit %0"];
        let read = format!("S_NOP 0, implicit {read}");
        let q = [&[q[1], q[2]], between, &[q[4]], behind, &[&read]].concat();
        rule(&classes, live, &p, &q, &format!("1- 2={} 1={count} 2=", if between.is_empty() { "" } else { " 1+" }))
    };
    assert_eq!(check(&[], &[copy], "$vgpr8", " 1+"), "");
    assert_eq!(check(&[copy], &[copy], "$vgpr8", " 1+"), "value");
    assert_eq!(check(&[copy], &[copy, copy], "$vgpr8", " 2+"), "value");
    assert_eq!(check(&[copy], &[copy, "$vgpr9 = COPY $vgpr0"], "$vgpr9", " 2+"), "");
    assert_eq!(check(&[copy], &["$vgpr8 = COPY $vgpr1", copy], "$vgpr8", " 2+"), "");
}

#[test]
fn a_branch_on_exec_tells_only_if_no_other_leads_there() {
    let body = |other: &str| {
        text(
            &[],
            &[],
            &format!(
                "  bb.0:\n    successors: %bb.2, %bb.1\n    liveins: $vgpr0\n{other}    S_CBRANCH_EXECZ %bb.2, implicit $exec\n  \
                 bb.1:\n    S_ENDPGM 0\n  bb.2:\n    S_ENDPGM 0\n"
            ),
        )
    };
    let certificate = |steps: &str| {
        format!(
            "verilocc-certificate 2\nfunction f\nblock 0\nsteps {steps}\nblock 1\nentry\nclass 0 P on\nclass 1 T on\nclass 2 O off\n\
             steps 1=\nblock 2\nentry\nclass 0 P on\nclass 1 O off\nsteps 1=\nend\n"
        )
    };
    assert_eq!(judge(&body(""), &body(""), &certificate("1=")), "");
    let other = body("    S_CBRANCH_SCC1 %bb.2, implicit undef $scc\n");
    assert_eq!(judge(&other, &other, &certificate("2=")), "relation");
}

#[test]
fn a_mask_may_be_claimed_in_several_lines() {
    let body = text(&[], &[], &body("$vgpr0", &["S_NOP 0"], "$vgpr0", &[]));
    for (masks, expected) in [
        ("mask 0 $12292 2\n", ""),
        ("mask 0 $12292 1\nmask 0 $12294 1\n", ""),
        ("mask 0 $12294 1\nmask 0 $12292 1\n", "relation"),
        ("mask 0 $12292 1\n", "certificate"),
        ("mask 0 $12292 2\nmember 1 +0\n", ""),
        ("mask 0 $12292 2\nmember 1 -0\n", "relation"),
        ("mask 0 $12292 2\nmember 1 +0 +0\n", "certificate"),
        ("mask 0 $12292 2\nmember 1 +0\nmember 1 +0\n", "certificate"),
        ("mask 0 $12292 2\nmask 0 $12292 2\n", "certificate"),
    ] {
        let claims = two_blocks("1=", "1=\n", "", "").replace("in 0\nin 1\n", masks);
        assert_eq!(judge(&body, &body, &claims), expected, "{masks}");
    }
}

#[test]
fn cells_of_a_register_without_a_value_are_undefined() {
    for (start, expected) in [("IMPLICIT_DEF", ""), ("COPY $vgpr0", "value")] {
        let start = format!("%1:vgpr_32 = {start}");
        let before = [&start, "%0:sreg_32 = SI_RESTORE_S32_FROM_VGPR %1, 3", "S_NOP 0, implicit %0"];
        let after = ["S_NOP 0, implicit $sgpr4"];
        assert_eq!(rule(&["sreg_32", "vgpr_32"], "$vgpr0, $sgpr4", &before, &after, "2- 2="), expected);
    }
}

#[test]
fn what_p_overwrites_before_it_reads_it_q_may_overwrite_too() {
    let asm = |to: &str, from: &str| {
        format!("INLINEASM &\"x $0, $1\", 0 /* attdialect */, 2228235 /* regdef-ec:VGPR_32 */, def {to}, 2228233 /* reguse:VGPR_32 */, {from}")
    };
    for (p, q, expected) in [
        (("$vgpr0", "$vgpr0"), ("$vgpr0", "$vgpr0"), ""),
        (("%0:vgpr_32", "$vgpr0"), ("$vgpr0", "$vgpr0"), "early-clobber"),
    ] {
        let (p, q) = (asm(p.0.trim_end_matches(":vgpr_32"), p.1), asm(q.0, q.1));
        assert_eq!(rule(&["vgpr_32"], "$vgpr0", &[&p], &[&q], "2="), expected, "{p}");
    }
}

/// A function that is called.
fn callee(classes: &[&str], code: &[&str]) -> String {
    let body = block("$vgpr0, $sgpr30_sgpr31", code).replace("S_ENDPGM 0", "SI_RETURN");
    let text = text(classes, &[], &body).replace("$sgpr96_sgpr97_sgpr98_sgpr99", "$private_rsrc_reg");
    text.replace("amdgpu_kernel ", "").replace("isEntryFunction: true", "isEntryFunction: false")
}

#[test]
fn a_callee_restores_scalars_unless_llvm_saves_them_later() {
    let before = callee(&["sreg_32"], &["%0:sreg_32 = S_MOV_B32 7", "S_NOP 0, implicit %0"]);
    for (register, saved_later, expected) in
        [("$sgpr4", false, ""), ("$sgpr34", false, "callee-saved"), ("$sgpr34", true, "")]
    {
        let code = [&format!("{register} = S_MOV_B32 7"), &format!("S_NOP 0, implicit {register}")[..]];
        assert_eq!(judged(&before, &callee(&[], &code), &certificate("3="), saved_later), expected, "{register}");
    }
}

#[test]
fn a_callee_leaves_alone_what_threads_keep_that_wait() {
    let code = |m: &str, x: &str| {
        let (m_use, x_use) = (m.trim_end_matches(":sreg_64"), x.trim_end_matches(":vgpr_32"));
        [
            format!("{m} = ENTER_STRICT_WWM -1, implicit-def $exec, implicit-def dead $scc, implicit $exec"),
            format!("{x} = V_MOV_B32_e32 7, implicit $exec"),
            format!("$exec = EXIT_STRICT_WWM {m_use}"),
            format!("S_NOP 0, implicit {x_use}"),
        ]
    };
    let list = |code: [String; 4], classes: &[&str]| {
        let code: Vec<&str> = code.iter().map(String::as_str).collect();
        callee(classes, &code)
    };
    let before = list(code("%0:sreg_64", "%1:vgpr_32"), &["sreg_64", "vgpr_32"]);
    let after = list(code("$sgpr4_sgpr5", "$vgpr8"), &[]);
    let aside = after.replace("stackPtr", "wwmReservedRegs:\n    - '$vgpr8'\n  stackPtr");
    assert_eq!(judged(&before, &after, &certificate("5="), false), "callee-saved");
    assert_eq!(judged(&before, &after, &certificate("5="), true), "");
    assert_eq!(judged(&before, &aside, &certificate("5="), false), "");
}

/// Spec 11.2: what both texts kill may be read again, until something writes it.
#[test]
fn what_both_kill_too_early_is_still_there() {
    let killed = ["S_NOP 0, implicit killed $sgpr4", "S_NOP 1, implicit $sgpr4"];
    let kept = ["S_NOP 0, implicit $sgpr4", "S_NOP 1, implicit $sgpr4"];
    let copied = [killed[0], "$sgpr5 = COPY killed $sgpr6", killed[1]];
    let written = [killed[0], "$sgpr4 = COPY killed $sgpr6", killed[1]];
    let saved = [killed[0], "renamable $sgpr5 = IMPLICIT_DEF", killed[1]];
    let live = "$sgpr4, $sgpr6";
    assert_eq!(rule(&[], live, &killed, &killed, "3="), "");
    assert_eq!(rule(&[], live, &killed, &copied, "1= 1+ 2="), "");
    assert_eq!(rule(&[], live, &kept, &killed, "3="), "value");
    assert_eq!(rule(&[], live, &killed, &written, "1= 1+ 2="), "value");
    assert_eq!(rule(&[], live, &killed, &saved, "1= 1+ 2="), "value");
}

/// Spec 11.1: nothing reads a vector register that is killed, until it is written.
#[test]
fn a_killed_vector_register_is_not_read() {
    let killed = ["S_NOP 0, implicit killed $vgpr0", "S_NOP 1, implicit $vgpr0"];
    let again = [killed[0], "$vgpr0 = V_MOV_B32_e32 1, implicit $exec", killed[1]];
    assert_eq!(rule(&[], "$vgpr0", &killed, &killed, "3="), "value");
    assert_eq!(rule(&[], "$vgpr0", &again, &again, "4="), "");
}

/// Spec 4.4: what P's block does not declare may be anything; of what P reads something is declared or defined.
#[test]
fn what_no_block_declares_is_undefined() {
    let before = ["S_NOP 0, implicit $sgpr4_sgpr5"];
    let after = ["$sgpr5 = COPY $sgpr4", "S_NOP 0, implicit $sgpr4_sgpr5"];
    assert_eq!(rule(&[], "$sgpr4", &before, &after, "1+ 2="), "");
    assert_eq!(rule(&[], "$sgpr4, $sgpr5", &before, &after, "1+ 2="), "value");
    assert_eq!(rule(&[], "$sgpr6", &before, &before, "2="), "undefined");
}

/// Spec 7.4: nothing names the parts of a tuple between the saves of them.
#[test]
fn nothing_stands_between_saves_of_a_tuple() {
    let first =
        "$vgpr9 = SI_SPILL_S32_TO_VGPR $sgpr4, 0, $vgpr9(tied-def 0), implicit-def $sgpr4_sgpr5, implicit $sgpr4_sgpr5";
    let second = "$vgpr9 = SI_SPILL_S32_TO_VGPR $sgpr5, 1, $vgpr9(tied-def 0), implicit $sgpr4_sgpr5";
    let make = "$vgpr9 = IMPLICIT_DEF";
    let back = "$sgpr5 = SI_RESTORE_S32_FROM_VGPR $vgpr9, 1";
    let last = "S_NOP 0, implicit $sgpr4";
    let between = ["S_NOP 0, implicit $sgpr5", "S_NOP 1"];
    assert_eq!(rule(&[], "$sgpr4, $sgpr5", &[last], &[make, first, second, back, last], "4+ 2="), "");
    let apart = [make, first, between[1], second, between[0], last];
    assert_eq!(rule(&[], "$sgpr4, $sgpr5", &["S_NOP 1", between[0], last], &apart, "2+ 1= 1+ 3="), "");
    let used = [make, first, between[0], second, between[1], last];
    assert_eq!(rule(&[], "$sgpr4, $sgpr5", &[between[0], between[1], last], &used, "2+ 1= 1+ 3="), "spill-slot");
}
