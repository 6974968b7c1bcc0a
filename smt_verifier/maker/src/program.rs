//! What making a certificate asks of both texts time and again: the operation of each instruction, and the order of blocks.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use verilocc_check::context::Context;
use verilocc_check::forms::is_pure;
use verilocc_check::model::{Done, Function, Instruction, Kind, Refused};
use verilocc_check::moves::{self, Move};

/// Block and number of an instruction.
pub type Place = (u32, u32);

/// How an instruction may stand in a certificate's steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A move, or without code: it never pairs.
    Passive,
    /// It must stand on both sides. Loads, which P may have alone, are among these: Q never has.
    Certain,
    Pure,
}

/// One instruction. The operation is the same number for all that are the same but for their registers.
pub struct Row {
    pub role: Role,
    pub operation: u32,
    pub moved: Option<Move>,
}

/// Both texts. Where there are two of something, P's is the first.
pub struct Program {
    pub rows: [Vec<Vec<Row>>; 2],
    /// The blocks that can be reached, each before its successors but for loops.
    pub order: Vec<usize>,
    /// Steps that the search may still take, each counted once for every class of threads.
    left: Cell<usize>,
}

/// No certificate of a function that is followed takes so many steps: some 20 s.
const MOST_STEPS: usize = 40_000_000;

impl Program {
    /// # Errors
    /// A move of a form that is not on the checker's list.
    pub fn of(context: &Context<'_>) -> Done<Program> {
        let mut numbers = HashMap::new();
        let rows = [rows(context, context.before, &mut numbers)?, rows(context, context.after, &mut numbers)?];
        Ok(Program { rows, order: reverse_postorder(context.before), left: Cell::new(MOST_STEPS) })
    }

    /// # Errors
    /// The search has taken too many steps.
    pub fn spend(&self, steps: usize) -> Done {
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or_else(|| Refused::new("certificate", "the search takes too many steps", ""))
    }

    pub fn row(&self, side: usize, (block, number): Place) -> &Row {
        &self.rows[side][block as usize][number as usize]
    }
}

fn rows(context: &Context<'_>, text: &Function, numbers: &mut HashMap<Vec<u8>, u32>) -> Done<Vec<Vec<Row>>> {
    let mut row = |i: &Instruction| {
        let next = numbers.len() as u32;
        let operation = *numbers.entry(operation(i)).or_insert(next);
        let moved = if i.has("no-code") { None } else { moves::read(context, text, i)? };
        let role = match () {
            () if moved.is_some() || i.has("no-code") => Role::Passive,
            () if is_pure(i) => Role::Pure,
            () => Role::Certain,
        };
        Ok(Row { role, operation, moved })
    };
    text.blocks.iter().map(|block| block.instructions.iter().map(&mut row).collect()).collect()
}

/// What an instruction of P and one of Q must have in common to be the same operation on registers.
fn operation(i: &Instruction) -> Vec<u8> {
    let canonical = i.value("canon");
    let mut key = if canonical.is_empty() { i.name.clone() } else { canonical.to_string() }.into_bytes();
    key.extend([0, i.definitions as u8]);
    for flag in &i.flags {
        key.extend(flag.bytes().chain([1]));
    }
    for operand in i.explicit() {
        match operand.kind {
            Kind::Register => key.push(2),
            Kind::Block | Kind::FrameIndex | Kind::FixedFrame => {
                key.extend([3, operand.kind as u8]);
                key.extend(operand.number.to_le_bytes());
            }
            _ => key.extend([4].into_iter().chain(operand.text.bytes()).chain([0])),
        }
    }
    key
}

fn reverse_postorder(text: &Function) -> Vec<usize> {
    let (mut order, mut visited, mut stack) = (Vec::new(), HashSet::from([0]), vec![(0, 0)]);
    while let Some((block, at)) = stack.last_mut() {
        match text.blocks[*block].successors.get(*at).copied() {
            Some(next) => {
                *at += 1;
                if visited.insert(next) {
                    stack.push((next, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}
