//! What LLVM's tables demand of both texts (spec 2.2).

use crate::model::{Block, Flags, Function, Instruction, Kind, Operand, Refused};
use crate::tables::{tables, Opcode, OperandRow, Processor};

/// Checks a function against LLVM's tables.
///
/// # Errors
/// `well-formed`: an instruction or a block that LLVM would not make.
pub fn check(function: &Function, target: &Processor) -> Result<(), Refused> {
    for (position, block) in function.blocks.iter().enumerate() {
        let (mut last, mut terminator): (Option<&Opcode>, Option<&Opcode>) = (None, None);
        for instruction in &block.instructions {
            let Some(opcode) = tables().opcode(&instruction.opcode) else {
                return refuse(instruction, "its opcode is not known");
            };
            if opcode.has("debug") {
                continue;
            }
            if instruction.operands.iter().any(|operand| operand.flags.has(Flags::DEBUG_USE)) {
                return refuse(instruction, "it is no debug instruction, and has a debug use");
            }
            check_counts(instruction, opcode)?;
            check_kinds(instruction, opcode, target)?;
            check_implicit(instruction, opcode, target)?;
            if opcode.has("call") && !instruction.operands.iter().any(|op| op.kind == Kind::RegMask) {
                return refuse(instruction, "a call without a register mask");
            }
            let may_stand = |other: &Opcode| opcode.has("terminator") || opcode.has("trap") && other.has("barrier");
            if !terminator.is_none_or(may_stand) {
                return refuse(instruction, "it stands behind a terminator");
            }
            if instruction.operands.iter().any(is_alias) {
                return refuse(instruction, "it names a register that shows the state of another");
            }
            check_targets(instruction, opcode, block)?;
            last = Some(opcode);
            terminator = last.filter(|opcode| opcode.has("terminator")).or(terminator);
        }
        let is_held_up = last.is_some_and(|last| last.has("barrier"))
            || terminator.is_some_and(|terminator| terminator.has("barrier"));
        check_end(block, position, function.blocks.len(), is_held_up)?;
    }
    Ok(())
}

fn refuse<T>(instruction: &Instruction, message: &str) -> Result<T, Refused> {
    let message = format!("{}: {message}", instruction.opcode);
    Err(Refused::new("well-formed", message, format!("line {}", instruction.line)))
}

/// `$src_vccz` and the like (spec 2.2): whoever compares registers would have to compare two.
fn is_alias(operand: &Operand) -> bool {
    operand.is_physical() && tables().register(&operand.register).is_some_and(|register| register.is_marked("alias"))
}

/// Explicit operands as LLVM counts them: a register mask is none.
fn explicit(instruction: &Instruction) -> Vec<&Operand> {
    instruction.explicit().filter(|operand| operand.kind != Kind::RegMask).collect()
}

fn check_counts(instruction: &Instruction, opcode: &Opcode) -> Result<(), Refused> {
    let operands = explicit(instruction);
    let least = opcode.counts.iter().min().copied().unwrap_or(0);
    let is_variadic = opcode.has("variadic");
    let is_right = opcode.counts.contains(&operands.len()) || is_variadic && operands.len() >= least;
    if !is_right {
        return refuse(instruction, &format!("it has {} explicit operands", operands.len()));
    }
    if is_variadic {
        let is_enough = instruction.definitions >= opcode.definitions;
        return if is_enough { Ok(()) } else { refuse(instruction, "it lacks a definition") };
    }
    // An operand whose form is not described is a definition or not.
    let is_described = opcode.not_described.is_empty();
    let wanted = operands.iter().enumerate().all(|(k, operand)| operand.is_def() == (k < opcode.definitions));
    if is_described && (instruction.definitions != opcode.definitions || !wanted) {
        return refuse(instruction, &format!("it has {} definitions", instruction.definitions));
    }
    let first_implicit = instruction.operands.iter().position(Operand::is_implicit);
    let last_explicit = instruction.operands.iter().rposition(|op| !op.is_implicit() && op.kind != Kind::RegMask);
    if first_implicit.is_some() && first_implicit < last_explicit {
        return refuse(instruction, "an explicit operand stands behind an implicit one");
    }
    Ok(())
}

fn check_kinds(instruction: &Instruction, opcode: &Opcode, target: &Processor) -> Result<(), Refused> {
    for (k, operand) in explicit(instruction).into_iter().enumerate() {
        let Some(row) = opcode.row(k).filter(|_| !opcode.not_described.contains(&k)) else { continue };
        if !fits(operand, row, target) {
            return refuse(instruction, &format!("`{}` is no operand of the kind {}", operand.text, row.kind));
        }
    }
    let is_asm = opcode.has("asm");
    let only_in_asm = |op: &Operand| matches!(op.kind, Kind::AsmString | Kind::AsmFlag);
    if !is_asm && instruction.operands.iter().any(only_in_asm) {
        return refuse(instruction, "it is no inline assembly");
    }
    Ok(())
}

fn fits(operand: &Operand, row: &OperandRow, target: &Processor) -> bool {
    let is_block = operand.kind == Kind::Block;
    match row.kind {
        // A stack object stands for a register until the frame is laid out.
        "register" if matches!(operand.kind, Kind::FrameIndex | Kind::FixedFrame) => true,
        "register" => operand.is_register() && row.class(target.mode) != "-",
        "register-or-immediate" => !is_block && operand.kind != Kind::AsmString,
        "immediate" => !operand.is_register() && !is_block,
        "branch-target" => !operand.is_register() && operand.kind != Kind::Immediate,
        "generic" => operand.is_register(),
        _ => true,
    }
}

/// Every register that the table says is read or written beside the operands is named.
fn check_implicit(instruction: &Instruction, opcode: &Opcode, target: &Processor) -> Result<(), Refused> {
    if opcode.has("asm") {
        return Ok(());
    }
    let uses = opcode.implicit_uses.iter().map(|name| (*name, false));
    let definitions = opcode.implicit_definitions.iter().map(|name| (*name, true));
    for (name, is_def) in uses.chain(definitions) {
        let is_it = |operand: &&Operand| {
            let is_half = target.wave_size == 32
                && matches!((name, operand.register.as_str()), ("vcc", "vcc_lo") | ("exec", "exec_lo"));
            operand.is_implicit() && operand.is_def() == is_def && (operand.register == name || is_half)
        };
        if !instruction.operands.iter().any(|operand| is_it(&operand)) {
            return refuse(instruction, &format!("it lacks the implicit ${name}"));
        }
    }
    Ok(())
}

fn check_targets(instruction: &Instruction, opcode: &Opcode, block: &Block) -> Result<(), Refused> {
    if instruction.opcode == "PHI" {
        return Ok(());
    }
    for target in instruction.operands.iter().filter(|operand| operand.kind == Kind::Block) {
        let is_successor = block.successors.contains(&(target.number as usize));
        if !is_successor || !(opcode.has("terminator") || opcode.has("asm-goto")) {
            return refuse(instruction, &format!("{} is no successor of its block", target.text));
        }
    }
    Ok(())
}

/// Control that is not held up goes on to the next block, which must be a successor. A block without successors may
/// end anywhere: control does not get there (`unreachable` in the IR).
fn check_end(block: &Block, position: usize, count: usize, is_held_up: bool) -> Result<(), Refused> {
    let next = position.saturating_add(1);
    let is_successor = next < count && block.successors.contains(&next);
    if !is_held_up && !block.successors.is_empty() && !is_successor {
        let message = format!("control leaves bb.{} for a block that is no successor", block.number);
        return Err(Refused::new("well-formed", message, format!("bb.{}", block.number)));
    }
    Ok(())
}
