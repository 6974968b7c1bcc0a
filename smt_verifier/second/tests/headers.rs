//! Rules of spec 2.2 and 13.1 to 13.3: what each allows, and what it refuses.

use verilocc_check::{header, limits, model::Refused, tables, text, wellformed};

const TEXT: &str = "--- |
  define void @f() #0 {
    ret void
  }
  attributes #0 = { \"target-cpu\"=\"gfx942\" }
...
---
name:            f
tracksRegLiveness: true
noVRegs:         false
isSSA:           true
registers:
  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }
liveins:
  - { reg: '$vgpr0', virtual-reg: '%0' }
frameInfo:
  maxAlignment:    4
  isCalleeSavedInfoValid: false
fixedStack:
  - { id: 0, type: default, offset: 0, size: 4, alignment: 16 }
stack:
  - { id: 0, name: t, type: default, offset: 0, size: 16, alignment: 8 }
  - { id: 1, name: '', type: spill-slot, offset: 0, size: 4, alignment: 4, stack-id: sgpr-spill }
machineFunctionInfo:
  hasSpilledSGPRs: false
  stackPtrOffsetReg: '$sgpr32'
  sgprForEXECCopy: '$sgpr98_sgpr99'
body:             |
  bb.0:
    successors: %bb.1
    liveins: $vgpr0
    %0:vgpr_32 = COPY $vgpr0
    V_CMP_EQ_U32_e32 %0, %0, implicit-def $vcc, implicit $exec
    S_CBRANCH_VCCNZ %bb.1, implicit $vcc
  bb.1:
    S_ENDPGM 0
...
";

/// The text of Q: no virtual register is left.
fn after() -> String {
    TEXT.replace("    %0:vgpr_32 = COPY $vgpr0\n", "").replace("%0, %0", "$vgpr0, $vgpr0")
}

fn check(before: &str, after: &str) -> Result<header::Objects, Refused> {
    let target = tables::tables().processor("gfx942").expect("it is known");
    let (before, after) = (text::read(before)?, text::read(after)?);
    let (p, q) = (&before.functions[0], &after.functions[0]);
    wellformed::check(p, target)?;
    wellformed::check(q, target)?;
    header::compare(p, q, &limits::limits(p, &before.module, target)?, target)
}

fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

#[test]
fn what_may_change() {
    for (from, to) in [
        ("    S_ENDPGM 0", "    S_ENDPGM 0\n    S_TRAP 2"),
        ("noVRegs:         false", "noVRegs:         true"),
        ("isSSA:           true", "isSSA:           false"),
        ("noVRegs:", "tracksDebugUserValues: true\nnoVRegs:"),
        ("maxAlignment:    4", "maxAlignment:    16"),
        ("isCalleeSavedInfoValid: false", "isCalleeSavedInfoValid: true"),
        ("hasSpilledSGPRs: false", "hasSpilledSGPRs: true"),
        ("$sgpr98_sgpr99", "$sgpr40_sgpr41"),
        ("'$sgpr98_sgpr99'", "''"),
        ("  hasSpilled", "  wwmReservedRegs:\n    - '$vgpr9'\n  hasSpilled"),
        (", virtual-reg: '%0'", ""),
        ("registers:\n  - { id: 0, class: vgpr_32, preferred-register: '', flags: [  ] }\n", "registers:\n"),
        ("  hasSpilled", "  wwmReservedRegs:\n  hasSpilled"),
        ("  - { id: 1, name: '', type: spill-slot, offset: 0, size: 4, alignment: 4, stack-id: sgpr-spill }\n", ""),
        ("stack-id: sgpr-spill }", "stack-id: sgpr-spill }\n  - { id: 2, type: spill-slot, size: 8, alignment: 4 }"),
    ] {
        assert!(
            check(TEXT, &changed(&after(), from, to)).is_ok(),
            "{to}: {:?}",
            check(TEXT, &changed(&after(), from, to))
        );
    }
}

#[test]
fn what_may_not_change() {
    for (from, to) in [
        ("tracksRegLiveness: true", "tracksRegLiveness: false"),
        ("tracksRegLiveness: true", "tracksRegLiveness: true\nalignment: 2"),
        ("maxAlignment:    4", "maxAlignment:    32"),
        ("maxAlignment:    4", "maxAlignment:    2"),
        ("maxAlignment:    4", "maxAlignment:    4\n  hasCalls: true"),
        ("'$sgpr32'", "'$sgpr33'"),
        ("$sgpr98_sgpr99", "$sgpr40"),
        ("$sgpr98_sgpr99", "$sgpr32_sgpr33"),
        ("$sgpr98_sgpr99", "$vcc"),
        ("$sgpr98_sgpr99", "$vgpr40_vgpr41"),
        ("  hasSpilled", "  wwmReservedRegs:\n    - '$vgpr0'\n  hasSpilled"),
        ("  hasSpilled", "  wwmReservedRegs:\n    - '$sgpr9'\n  hasSpilled"),
        ("  hasSpilled", "  spillPhysVGPRs:\n    - '$vgpr0'\n  hasSpilled"),
        ("'$vgpr0'", "'$vgpr1'"),
        ("  hasSpilled", "  wwmReservedRegs:\n    - '$vgpr9'\n    - '$vgpr9'\n  hasSpilled"),
        ("liveins:\n  - { reg: '$vgpr0', virtual-reg: '%0' }\n", ""),
        ("fixedStack:\n  - { id: 0, type: default, offset: 0, size: 4, alignment: 16 }\n", ""),
        ("size: 4, alignment: 16", "size: 8, alignment: 16"),
        ("size: 16, alignment: 8", "size: 16, alignment: 4"),
        ("name: t", "name: u"),
        ("stack-id: sgpr-spill }", "stack-id: sgpr-spill }\n  - { id: 2, size: 8, alignment: 4 }"),
        ("stack-id: sgpr-spill }", "stack-id: sgpr-spill }\n  - { id: 2, type: spill-slot, size: 8, alignment: 3 }"),
    ] {
        let answer = check(TEXT, &changed(&after(), from, to));
        let rule = answer.err().map(|error| error.rule);
        assert!(matches!(rule, Some("header" | "object")), "{to}: {rule:?}");
    }
    let with_virtual = changed(TEXT, "noVRegs:         false", "noVRegs:         true");
    assert_eq!(check(TEXT, &with_virtual).err().map(|error| error.rule), Some("header"));
    let back = changed(TEXT, "isSSA:           true", "isSSA:           false");
    assert_eq!(check(&back, &after()).err().map(|error| error.rule), Some("header"));
}

#[test]
fn objects_have_the_numbers_of_p() {
    let gone = "  - { id: 0, type: spill-slot, size: 4, alignment: 4, stack-id: sgpr-spill }\n";
    let before = changed(TEXT, "stack:\n  - { id: 0, name: t", &format!("stack:\n{gone}  - {{ id: 5, name: t"))
        .replace("{ id: 1, name", "{ id: 7, name");
    let before = before.replace(
        "fixedStack:\n  - { id: 0, type: spill-slot, size: 4, alignment: 4, stack-id: sgpr-spill }\n",
        "fixedStack:\n",
    );
    let objects = check(&before, &after()).expect("they agree");
    assert_eq!(objects.stack.into_iter().collect::<Vec<_>>(), [(0, 5), (1, 7)]);
}

#[test]
fn what_is_not_well_formed() {
    for (from, to) in [
        ("V_CMP_EQ_U32_e32", "V_CMP_NO_SUCH"),
        ("$vgpr0, $vgpr0, implicit-def", "$vgpr0, implicit-def"),
        ("$vgpr0, $vgpr0, implicit-def", "$vgpr0, 4, implicit-def"),
        ("implicit-def $vcc, implicit $exec", "implicit $exec"),
        ("implicit-def $vcc, implicit $exec", "implicit-def $vcc"),
        ("implicit-def $vcc, implicit $exec", "implicit $exec, implicit-def dead $scc"),
        ("S_CBRANCH_VCCNZ %bb.1", "S_CBRANCH_VCCNZ %bb.0"),
        ("S_CBRANCH_VCCNZ %bb.1", "S_CBRANCH_VCCNZ 1"),
        ("    successors: %bb.1\n", "    successors: %bb.0\n"),
        ("  bb.1:\n", "    S_NOP 0\n  bb.1:\n"),
        ("  bb.1:\n", "    S_TRAP 2\n  bb.1:\n"),
        ("    S_ENDPGM 0", "    S_ENDPGM 0\n    S_NOP 0"),
        ("    S_ENDPGM 0", "    S_ENDPGM 0\n    S_TRAP 2\n    S_NOP 0"),
        ("    S_ENDPGM 0", "    $sgpr0 = S_MOV_B32 $src_scc\n    S_ENDPGM 0"),
        ("    S_ENDPGM 0", "    $sgpr30_sgpr31 = SI_CALL $sgpr4_sgpr5, @g\n    S_ENDPGM 0"),
        ("    S_ENDPGM 0", "    $vgpr1 = V_MOV_B32_e32 debug-use $vgpr0, implicit $exec\n    S_ENDPGM 0"),
    ] {
        let answer = check(TEXT, &changed(&after(), from, to));
        assert_eq!(answer.err().map(|error| error.rule), Some("well-formed"), "{to}");
    }
}
