//! What LLVM's tables demand of both texts (spec 2.2).

use crate::model::{ensure, Done, Function, Instruction, Kind, Operand, DEBUG_USE, IMPLICIT};
use crate::tables::{OperandRow, Processor};

/// Checks a function against LLVM's tables.
///
/// # Errors
/// `well-formed`: an instruction or a block that LLVM would not make.
pub fn check(function: &Function, target: &Processor) -> Done {
    for (position, block) in function.blocks.iter().enumerate() {
        let (mut terminator, mut branched, mut ended): (Option<&Instruction>, bool, bool) = (None, false, false);
        for i in &block.instructions {
            check_operands(i, target)?;
            let has = |is_it: &dyn Fn(&Operand) -> bool| i.operands.iter().any(is_it);
            ensure!(!has(&|o| o.is(DEBUG_USE)), "well-formed", i, "a debug use in no debug instruction");
            let is_masked = has(&|o| o.kind == Kind::RegMask);
            ensure!(
                i.has("call") == is_masked,
                "well-formed",
                i,
                "a call without a mask, or another instruction with one"
            );
            // Whoever compares registers would have to compare two.
            let is_alias = |o: &Operand| o.register.is_some_and(|register| register.is_marked("alias"));
            ensure!(!has(&is_alias), "well-formed", i, "a register that shows the state of another");
            ensure!(!branched || !has(&Operand::is_def), "well-formed", i, "it defines something behind a branch");
            branched |= i.has("branch");
            let leaves = i.has("indirect-branch") && block.successors.is_empty();
            ensure!(!leaves, "well-formed", i, "it leaves the function, and is no return");
            ensure!(!i.has("asm-goto"), "not-followed", i, "assembly that may branch");
            ensure!(!ended || i.has("trap"), "well-formed", i, "it stands behind a return");
            ended |= i.has("return");
            ensure!(
                !ended || block.successors.is_empty(),
                "well-formed",
                i,
                "it returns, in a block that has successors"
            );
            ensure!(!keeps_a_part(i), "well-formed", i, "it keeps a part of what it does not read");
            let is_apart = !i.bundle[0] && !i.name.starts_with("SI_PC_ADD_REL_OFFSET") && has(&Operand::is_relative);
            ensure!(!is_apart, "well-formed", i, "an address relative to it, and nothing keeps its distance");
            ensure!(!has_immediate(i, "beyond"), "well-formed", i, "it reads registers behind those of its operands");
            let may_stand = |other: &Instruction| i.has("terminator") || i.has("trap") && other.has("barrier");
            ensure!(terminator.is_none_or(may_stand), "well-formed", i, "it stands behind a terminator");
            terminator = Some(i).filter(|i| i.has("terminator")).or(terminator);
            for target in i.operands.iter().filter(|o| o.kind == Kind::Block && i.name != "PHI") {
                let leads = block.successors.contains(&(target.number as usize));
                let fits = leads && i.has("terminator");
                ensure!(fits, "well-formed", i, "{} is no successor of its block", target.text);
            }
        }
        // Control that is not held up goes on to the next block. A block without successors may end anywhere: control
        // does not get there (`unreachable` in the IR).
        let is_held_up = block.instructions.last().into_iter().chain(terminator).any(|last| last.has("barrier"));
        let goes_on = position + 1 < function.blocks.len() && block.successors.contains(&(position + 1));
        let fits = is_held_up || block.successors.is_empty() || goes_on;
        ensure!(fits, "well-formed", block.line, "control leaves bb.{} for no successor", block.number);
    }
    Ok(())
}

/// Whether it leaves a part of its result as it was (trait `keeps`), and no use is tied to that.
fn keeps_a_part(i: &Instruction) -> bool {
    let rows = 0..i.opcode.operands.len();
    if i.operands.iter().any(|o| o.tied == Some(0))
        || rows.filter_map(|k| i.opcode.row(k)).any(|row| row.tied_to == Some(0))
    {
        return false;
    }
    has_immediate(i, "keeps")
}

/// Whether an immediate is one of those that the trait names, or is none.
fn has_immediate(i: &Instruction, word: &str) -> bool {
    i.opcode.numbers(word).chunks(3).any(|three| {
        let [number, bits, value] = three[..] else { return true };
        let operand = i.operands.get(i.opcode.definitions + number).filter(|o| o.kind == Kind::Immediate);
        operand.is_none_or(|o| o.text.parse().map_or(true, |word: i64| word & bits as i64 == value as i64))
    })
}

/// Spec 2.2: counts, kinds, and implicit operands that the table demands.
fn check_operands(i: &Instruction, target: &Processor) -> Done {
    // As LLVM counts them, a register mask is no explicit operand.
    let operands: Vec<&Operand> = i.explicit().filter(|operand| operand.kind != Kind::RegMask).collect();
    let (count, opcode) = (operands.len(), i.opcode);
    let least = opcode.counts.iter().min().copied().unwrap_or(0);
    let is_right = opcode.counts.contains(&count) || opcode.has("variadic") && count >= least;
    ensure!(is_right, "well-formed", i, "{count} explicit operands");
    if opcode.has("variadic") {
        ensure!(i.definitions >= opcode.definitions, "well-formed", i, "a definition is missing");
    } else {
        // An operand whose form is not described is a definition or not.
        let wanted = operands.iter().enumerate().all(|(k, operand)| operand.is_def() == (k < opcode.definitions));
        let fits = !opcode.not_described.is_empty() || wanted && i.definitions == opcode.definitions;
        ensure!(fits, "well-formed", i, "{} definitions", i.definitions);
        let implicit = i.operands.iter().position(|o| o.is(IMPLICIT)).unwrap_or(usize::MAX);
        let last = i.operands.iter().rposition(|o| !o.is(IMPLICIT) && o.kind != Kind::RegMask);
        ensure!(
            last.is_none_or(|last| last < implicit),
            "well-formed",
            i,
            "an explicit operand behind an implicit one"
        );
    }
    for (k, operand) in operands.into_iter().enumerate().filter(|(k, _)| !opcode.not_described.contains(k)) {
        let fits = opcode.row(k).is_none_or(|row| fits(operand, row, target));
        ensure!(fits, "well-formed", i, "operand {k}, `{}`, is of another kind", operand.text);
    }
    let uses = opcode.implicit_uses.iter().map(|name| (*name, false));
    let implicit = uses.chain(opcode.implicit_definitions.iter().map(|name| (*name, true)));
    for (name, is_def) in implicit.filter(|_| !opcode.has("asm")) {
        let half =
            if target.wave_size == 32 && matches!(name, "vcc" | "exec") { format!("{name}_lo") } else { name.into() };
        let is_it = |o: &Operand| o.is(IMPLICIT) && o.is_def() == is_def && (o.names(name) || o.names(&half));
        ensure!(i.operands.iter().any(is_it), "well-formed", i, "the implicit ${name} is missing");
    }
    Ok(())
}

fn fits(operand: &Operand, row: &OperandRow, target: &Processor) -> bool {
    let (kind, is_register) = (operand.kind, operand.is_register());
    match row.kind {
        // A stack object stands for a register until the frame is laid out.
        "register" if matches!(kind, Kind::FrameIndex | Kind::FixedFrame) => true,
        "register" => is_register && row.class(target) != "-",
        "register-or-immediate" => !matches!(kind, Kind::Block | Kind::AsmString),
        "immediate" => !is_register && kind != Kind::Block,
        "branch-target" => !is_register && kind != Kind::Immediate,
        "generic" => is_register,
        _ => true,
    }
}
