//! Blocks that LLVM joins (spec 2.5), or makes copies of, and what its passes behind the phase make of moves there (10.11,
//! 12.3).

use std::collections::BTreeSet;
use std::mem::take;

use crate::lanes::{Lane, Of, Set};
use crate::model::{ensure, Block, Done, Function, Instruction, Operand};

/// Instructions of a block that LLVM duplicates (TailDuplicator.cpp, -tail-dup-size).
const DUPLICATED: usize = 2;

/// A register that was written, by a move from where, and whether EXEC was written since.
type Write = (Lane, Option<Lane>, bool);

/// What is known behind a block of Q.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Left {
    writes: Set<Write>,
    /// Targets of copies that nothing behind them reads.
    pub unread: Set<Lane>,
    /// Vector registers that are read in a copy of what follows.
    pub read: Set<Lane>,
}

/// Of each block the positions of those that lead to it.
fn predecessors(function: &Function) -> Vec<BTreeSet<usize>> {
    let mut before = vec![BTreeSet::new(); function.blocks.len()];
    for (number, block) in function.blocks.iter().enumerate() {
        block.successors.iter().for_each(|next| {
            before[*next].insert(number);
        });
    }
    before
}

/// The block that alone follows another one.
fn only(block: &Block) -> Option<usize> {
    let first = block.successors.first()?;
    block.successors.iter().all(|next| next == first).then_some(*first)
}

/// A block whose only successor has no other predecessor becomes one block with that.
pub fn join(function: &mut Function) {
    let before = predecessors(function);
    let alone = |from: &Block| only(from).filter(|next| *next > 0 && before[*next].len() == 1);
    let next: Vec<Option<usize>> = function.blocks.iter().map(alone).collect();
    let inner: BTreeSet<usize> = next.iter().flatten().copied().collect();
    function.blocks.iter_mut().enumerate().for_each(|(number, block)| block.last = number);
    for head in (0..next.len()).filter(|number| !inner.contains(number)) {
        while let Some(part) = next[function.blocks[head].last] {
            let (code, successors) =
                (take(&mut function.blocks[part].instructions), take(&mut function.blocks[part].successors));
            let block = &mut function.blocks[head];
            block.joints.push((block.instructions.len(), part));
            block.instructions.extend(code);
            (block.successors, block.last) = (successors, part);
        }
    }
}

/// No moves that LLVM may exchange, or find in a copy of another block, over a write of EXEC.
///
/// # Errors
/// `not-followed`: there are some.
pub fn check(after: &Function) -> Done<Vec<Left>> {
    let (blocks, before) = (&after.blocks, predecessors(after));
    let joined: Vec<Vec<usize>> = (0..blocks.len())
        .map(|number| {
            let small = blocks[number].instructions.iter().filter(|i| counts(i)).count() <= DUPLICATED;
            before[number].iter().copied().filter(|from| small && only(&blocks[*from]).is_some()).collect()
        })
        .collect();
    let mut all = vec![Left::default(); blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in blocks.iter().enumerate() {
            let mut reached = Left { read: all[number].read.clone(), ..Left::default() };
            for from in &joined[number] {
                reached.writes.extend(all[*from].writes.iter().copied());
                reached.unread.extend(all[*from].unread.iter().copied());
                let own = block.instructions.iter().flat_map(|i| i.lanes(Operand::reads)).filter(is_vector);
                let read: Set<Lane> = own.chain(all[number].read.iter().copied()).collect();
                changed |= !read.is_subset(&all[*from].read);
                all[*from].read.extend(read);
            }
            reached.read.clone_from(&all[number].read);
            let left = behind(block, reached)?;
            changed |= left != all[number];
            all[number] = left;
        }
    }
    Ok(all)
}

/// A branch may be gone by the time LLVM counts, and some instructions make no code.
fn counts(i: &Instruction) -> bool {
    let jumps = i.has("branch") && i.has("barrier") && !i.has("indirect-branch");
    !(jumps || i.has("no-code") || i.has("frame-adjust"))
}

fn is_vector(lane: &Lane) -> bool {
    lane.vector && lane.of == Of::Unit
}

fn behind(block: &Block, reached: Left) -> Done<Left> {
    let (mut earlier, mut unread) = (reached.writes, reached.unread);
    let mut own: Set<Write> = Set::default();
    for i in &block.instructions {
        let (read, written) = (i.lanes(Operand::reads), i.lanes(Operand::is_def));
        let moves = i.has("copy") || i.has("vector-move");
        let rows: Vec<(Lane, Lane)> = match &i.operands[..] {
            [to, from, ..] if moves => to.lanes.iter().copied().zip(from.lanes.iter().copied()).collect(),
            _ => Vec::new(),
        };
        let rows = || rows.iter().filter(|(to, from)| is_vector(to) && is_vector(from)).copied();
        for (to, from) in rows() {
            for (at, origin, old) in earlier.iter().chain(&own).copied().filter(|(at, ..)| *at == from) {
                let back = |old| {
                    earlier.contains(&(origin.unwrap_or(at), Some(to), old))
                        || own.contains(&(origin.unwrap_or(at), Some(to), old))
                };
                let exchanged = origin.is_some() && (back(true) || old && back(false));
                ensure!(!exchanged, "not-followed", i, "LLVM may exchange registers for other threads");
                let found = old && i.has("copy") && earlier.contains(&(at, origin, old));
                let why = "it copies what a block that gets a copy of this one wrote for others";
                ensure!(!found, "not-followed", i, "{why}");
            }
        }
        let named = |at: &Lane| match written.contains(at) {
            _ if i.has("copy") => read.contains(at) || written.contains(at),
            writes => writes && !read.contains(at) && unread.contains(at),
        };
        let missed = |(at, origin, old): &Write| *old && origin.is_some() && named(at);
        let why = "it names what a move in a block that gets a copy of this one wrote for others";
        ensure!(!earlier.iter().any(missed), "not-followed", i, "{why}");
        unread.retain(|lane| !read.contains(lane) && !written.contains(lane));
        unread.extend(written.iter().copied().filter(|_| i.has("copy")));
        for writes in [&mut earlier, &mut own] {
            writes.retain(|(at, ..)| !written.contains(at));
        }
        own.extend(written.iter().copied().filter(is_vector).map(|lane| (lane, None, false)));
        own.extend(rows().map(|(to, from)| (to, Some(from), false)));
        let ordered = |o: &Operand| i.has("copy") && o.is(crate::model::IMPLICIT);
        if i.defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()) && !ordered(o)) {
            for writes in [&mut earlier, &mut own] {
                *writes = writes.drain().map(|(at, origin, _)| (at, origin, true)).collect();
            }
        }
    }
    earlier.extend(own);
    Ok(Left { writes: earlier, unread, read: reached.read })
}
