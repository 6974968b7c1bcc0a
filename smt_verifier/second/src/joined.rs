//! What LLVM's passes behind the phase make of moves, whatever threads are active (spec 10.11, 12.3): they look at blocks
//! that they have joined or duplicated before.

use crate::lanes::{Lane, Of, Set};
use crate::model::{ensure, Block, Done, Function, Operand};

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
    /// LLVM joins it with what follows.
    pub joined: bool,
}

/// No moves that LLVM may exchange, or find in another block, over a write of EXEC.
///
/// # Errors
/// `not-followed`: there are some.
pub fn check(after: &Function) -> Done<Vec<Left>> {
    let blocks = &after.blocks;
    let only = |from: &Block| from.successors.iter().all(|next| Some(next) == from.successors.first());
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
    for (number, block) in blocks.iter().enumerate() {
        let next: std::collections::BTreeSet<usize> = block.successors.iter().copied().collect();
        next.into_iter().for_each(|successor| before[successor].push(number));
    }
    // With what LLVM joins to it first: a block that alone follows it and nothing else.
    let duplicated = |mut number: usize| {
        let (mut size, mut seen) = (0, Set::default());
        while size <= DUPLICATED && seen.insert(number) {
            let block = &blocks[number];
            size += block.instructions.iter().filter(|i| !i.has("no-code") && !i.has("frame-adjust")).count();
            match block.successors.first() {
                Some(next) if only(block) && before[*next].len() == 1 => {
                    size -= usize::from(block.instructions.last().is_some_and(|i| i.has("barrier")));
                    number = *next;
                }
                _ => break,
            }
        }
        size <= DUPLICATED
    };
    let joined: Vec<Vec<usize>> = (0..blocks.len())
        .map(|number| {
            let alone = before[number].len() == 1;
            let may = |from: &usize| only(&blocks[*from]) && (alone || from + 1 != number && duplicated(number));
            before[number].iter().copied().filter(may).collect()
        })
        .collect();
    let follows = |number: usize| joined.iter().any(|from| from.contains(&number));
    let mut all: Vec<Left> =
        (0..blocks.len()).map(|number| Left { joined: follows(number), ..Left::default() }).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in blocks.iter().enumerate() {
            let mut reached = Left { joined: all[number].joined, ..Left::default() };
            for from in &joined[number] {
                reached.writes.extend(all[*from].writes.iter().copied());
                reached.unread.extend(all[*from].unread.iter().copied());
            }
            let left = behind(block, reached)?;
            changed |= left != all[number];
            all[number] = left;
        }
    }
    Ok(all)
}

fn behind(block: &Block, reached: Left) -> Done<Left> {
    let (mut earlier, mut unread, joined) = (reached.writes, reached.unread, reached.joined);
    let mut own: Set<Write> = Set::default();
    for i in &block.instructions {
        let (read, written) = (i.lanes(Operand::reads), i.lanes(Operand::is_def));
        let vector = |lane: &Lane| lane.vector && lane.of == Of::Unit;
        let moves = i.has("copy") || i.has("vector-move");
        let rows: Vec<(Lane, Lane)> = match &i.operands[..] {
            [to, from, ..] if moves => to.lanes.iter().copied().zip(from.lanes.iter().copied()).collect(),
            _ => Vec::new(),
        };
        let rows = || rows.iter().filter(|(to, from)| vector(to) && vector(from)).copied();
        for (to, from) in rows() {
            for (at, origin, old) in earlier.iter().chain(&own).copied().filter(|(at, ..)| *at == from) {
                let back = |old| {
                    earlier.contains(&(origin.unwrap_or(at), Some(to), old))
                        || own.contains(&(origin.unwrap_or(at), Some(to), old))
                };
                let exchanged = origin.is_some() && (back(true) || old && back(false));
                ensure!(!exchanged, "not-followed", i, "LLVM may exchange registers for other threads");
                let found = old && i.has("copy") && earlier.contains(&(at, origin, old));
                ensure!(
                    !found,
                    "not-followed",
                    i,
                    "it copies what a block that LLVM joins with this one wrote for others"
                );
            }
        }
        let named = |at: &Lane| match written.contains(at) {
            _ if i.has("copy") => read.contains(at) || written.contains(at),
            writes => writes && !read.contains(at) && unread.contains(at),
        };
        let missed = |(at, origin, old): &Write| *old && origin.is_some() && named(at);
        let fits = !earlier.iter().any(missed);
        ensure!(
            fits,
            "not-followed",
            i,
            "it names what a move in a block that LLVM joins with this one wrote for others"
        );
        unread.retain(|lane| !read.contains(lane) && !written.contains(lane));
        unread.extend(written.iter().copied().filter(|_| i.has("copy")));
        for writes in [&mut earlier, &mut own] {
            writes.retain(|(at, ..)| !written.contains(at));
        }
        own.extend(written.iter().copied().filter(vector).map(|lane| (lane, None, false)));
        own.extend(rows().map(|(to, from)| (to, Some(from), false)));
        let ordered = |o: &Operand| i.has("copy") && o.is(crate::model::IMPLICIT);
        if i.defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()) && !ordered(o)) {
            for writes in [&mut earlier, &mut own] {
                *writes = writes.drain().map(|(at, origin, _)| (at, origin, true)).collect();
            }
        }
    }
    earlier.extend(own);
    Ok(Left { writes: earlier, unread, joined })
}
