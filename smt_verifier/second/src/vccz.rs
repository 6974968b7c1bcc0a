//! VCCZ, by which S_CBRANCH_VCCZ and S_CBRANCH_VCCNZ branch (spec 10.12).

use std::collections::BTreeSet;

use crate::context::Context;
use crate::joined::{predecessors, successors};
use crate::model::*;

/// Behind it VCCZ is that of VCC, however that is written (GCNSubtarget::partialVCCWritesUpdateVCCZ).
const LAST_MAJOR: u32 = 9;

/// What an instruction does to VCC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Nothing,
    /// LLVM takes it for a write of all, which it is not.
    Hollow,
    /// VCCZ stays as it was.
    Halves,
    /// VCCZ is written too.
    Whole,
}

/// No branch reads a VCCZ that LLVM takes for that of VCC because an instruction says that it defines VCC.
///
/// # Errors
/// `not-followed`: one does.
pub fn check(context: &Context<'_>, text: &Function) -> Done {
    if context.processor.major > LAST_MAJOR {
        return Ok(());
    }
    let (blocks, mut before) = (&text.blocks, None);
    for (number, block) in blocks.iter().enumerate() {
        for (at, i) in block.instructions.iter().enumerate() {
            if matches!(i.name.as_str(), "S_CBRANCH_VCCZ" | "S_CBRANCH_VCCNZ") {
                let before = before.get_or_insert_with(|| predecessors(&successors(text)));
                ensure!(!is_stale(blocks, before, (number, at)), "not-followed", i, "LLVM may not set VCCZ before it,");
            }
        }
    }
    Ok(())
}

/// Whether on some way to an instruction VCC is written by halves, or not at all, and later said to be defined.
fn is_stale(blocks: &[Block], before: &[BTreeSet<usize>], (number, at): (usize, usize)) -> bool {
    let (mut pending, mut seen) = (vec![(number, at, false)], BTreeSet::new());
    while let Some((number, end, mut hollow)) = pending.pop() {
        let mut last = Write::Nothing;
        for i in blocks[number].instructions[..end].iter().rev() {
            match write(i) {
                Write::Nothing => {}
                Write::Hollow => hollow = true,
                found => {
                    last = found;
                    break;
                }
            }
        }
        if hollow && (last == Write::Halves || last == Write::Nothing && number == 0) {
            return true;
        }
        if last == Write::Nothing {
            let new = before[number].iter().filter(|from| seen.insert((**from, hollow)));
            pending.extend(new.map(|from| (*from, blocks[*from].instructions.len(), hollow)));
        }
    }
    false
}

fn write(i: &Instruction) -> Write {
    let is_half = |o: &&Operand| o.names("vcc_lo") || o.names("vcc_hi");
    let whole = || i.defined().filter(|o| o.names("vcc"));
    let has_half = i.defined().any(|o| is_half(&o));
    if i.has("no-code") || !has_half && whole().next().is_none() {
        let said =
            has_half || whole().next().is_some() || i.spill().is_some() && i.operands.iter().any(|o| o.names("vcc"));
        return if said { Write::Hollow } else { Write::Nothing };
    }
    let is_own = i.has("asm") || i.opcode.implicit_definitions.iter().any(|name| *name == "vcc");
    // LLVM expands these, into writes of halves for all that is known here.
    let expands = i.name.starts_with("SI_") || i.name.to_ascii_uppercase().contains("PSEUDO");
    match () {
        () if has_half => Write::Halves,
        () if !is_own && whole().all(|o| o.is(IMPLICIT)) => Write::Hollow,
        () if expands => Write::Halves,
        () => Write::Whole,
    }
}
