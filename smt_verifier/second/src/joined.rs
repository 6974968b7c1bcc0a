//! Blocks that LLVM joins (spec 2.5), instructions that it brings together behind the phase, and what other passes make of
//! moves there (10.11, 12.3).

use std::collections::BTreeSet;
use std::mem::take;

use crate::lanes::{Lane, Map, Of, Set};
use crate::model::{ensure, Block, Done, Function, Instruction, Operand};

/// Instructions of a block that LLVM duplicates (TailDuplicator.cpp, -tail-dup-size).
const DUPLICATED: usize = 2;

/// A register that was written, by a move from where, and whether EXEC was written since.
type Write = (Lane, Option<Lane>, bool);

/// What is known behind a block of Q, of registers whose last write stands in it or came from another one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Left {
    writes: Set<Write>,
    /// Targets of copies that nothing behind them reads.
    pub unread: Set<Lane>,
    /// Vector registers that are read in what LLVM may move to its end.
    pub read: Set<Lane>,
    /// The number of the instruction that wrote a register last in this block.
    last: Map<Lane, usize>,
}

/// With the instructions of which blocks, from which on, those of a block may be brought together, up to which.
#[derive(Default)]
struct Near {
    blocks: Vec<(usize, usize)>,
    stop: usize,
}

/// Of each block the positions of those that lead to it, and that the entry leads to.
fn predecessors(ahead: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let (mut entered, mut pending) = (BTreeSet::from([0]), vec![0]);
    while let Some(number) = pending.pop() {
        pending.extend(ahead[number].iter().copied().filter(|next| entered.insert(*next)));
    }
    let mut before = vec![BTreeSet::new(); ahead.len()];
    for number in entered {
        ahead[number].iter().for_each(|next| {
            before[*next].insert(number);
        });
    }
    before
}

fn successors(function: &Function) -> Vec<BTreeSet<usize>> {
    function.blocks.iter().map(|block| block.successors.iter().copied().collect()).collect()
}

fn only(places: &BTreeSet<usize>) -> Option<usize> {
    places.first().copied().filter(|_| places.len() == 1)
}

/// A block whose only successor has no other predecessor becomes one block with that.
pub fn join(function: &mut Function) {
    let ahead = successors(function);
    let before = predecessors(&ahead);
    let is_entered = |number: usize| number == 0 || !before[number].is_empty();
    let alone =
        |number: usize| only(&ahead[number]).filter(|next| is_entered(number) && *next > 0 && before[*next].len() == 1);
    let next: Vec<Option<usize>> = (0..ahead.len()).map(alone).collect();
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

/// Q without blocks that have no code.
struct Flow<'a> {
    blocks: &'a [Block],
    ahead: Vec<BTreeSet<usize>>,
    before: Vec<BTreeSet<usize>>,
    /// Instructions of each block that make code, but for jumps, which may be gone.
    kept: Vec<Vec<usize>>,
}

impl<'a> Flow<'a> {
    fn of(after: &'a Function) -> Self {
        let mut ahead = successors(after);
        let before = predecessors(&ahead);
        (1..ahead.len()).filter(|number| before[*number].is_empty()).for_each(|number| ahead[number].clear());
        let is_empty: Vec<bool> = after
            .blocks
            .iter()
            .map(|block| block.instructions.iter().all(|i| makes_no_code(i) || branches(i)))
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for number in (1..ahead.len()).filter(|number| is_empty[*number]) {
                let Some(target) = only(&ahead[number]).filter(|target| *target != number) else { continue };
                ahead[number].clear();
                changed = true;
                for places in ahead.iter_mut() {
                    if places.remove(&number) {
                        places.insert(target);
                    }
                }
            }
        }
        let before = predecessors(&ahead);
        let kept = |block: &Block| {
            let code = block.instructions.iter().enumerate();
            code.filter(|(_, i)| !makes_no_code(i) && !(branches(i) && i.has("barrier"))).map(|(at, _)| at).collect()
        };
        let kept = after.blocks.iter().map(kept).collect();
        Flow { blocks: &after.blocks, ahead, before, kept }
    }

    fn near(&self, number: usize) -> Near {
        let (own, length) = (&self.kept[number], self.blocks[number].instructions.len());
        let copied = || self.before[number].iter().filter(|from| only(&self.ahead[**from]).is_some());
        let copied: Vec<(usize, usize)> = copied().map(|from| (*from, 0)).collect();
        if own.len() <= DUPLICATED {
            return Near { blocks: copied, stop: length };
        }
        let behind: BTreeSet<usize> = self.before[number].iter().flat_map(|from| &self.ahead[*from]).copied().collect();
        let blocks = self.ends(&self.before[number]);
        if !blocks.is_empty() && only(&behind).is_some() {
            return Near { blocks, stop: length };
        }
        let beside = behind.iter().copied().find(|other| *other != number && behind.len() == 2);
        if let Some(other) = beside.filter(|other| !blocks.is_empty() && self.before[*other] == self.before[number]) {
            // What stands first in both is hoisted; where one only branches, so may be what it leads to.
            if self.blocks[other].instructions.iter().all(|i| makes_no_code(i) || branches(i)) {
                return Near { blocks, stop: length };
            }
            let alike = self.alike((number, own.iter()), (other, self.kept[other].iter()));
            if alike > 0 {
                return Near { blocks, stop: own[alike - 1] + 1 };
            }
        }
        // Its end may be merged with that of another block, so that it becomes small.
        let end = &own[DUPLICATED..];
        let others: BTreeSet<usize> = self.ahead[number].iter().flat_map(|next| &self.before[*next]).copied().collect();
        let merged = others.into_iter().filter(|other| *other != number && self.kept[*other].len() >= end.len());
        let mut merged = merged.map(|other| {
            let tail = &self.kept[other][self.kept[other].len() - end.len()..];
            self.alike((number, end.iter()), (other, tail.iter()))
        });
        if !copied.is_empty() && merged.any(|alike| alike == end.len()) {
            return Near { blocks: copied, stop: own[DUPLICATED - 1] + 1 };
        }
        Near::default()
    }

    /// From where on all of these blocks end alike.
    fn ends(&self, blocks: &BTreeSet<usize>) -> Vec<(usize, usize)> {
        let Some(first) = blocks.first() else { return Vec::new() };
        let count = blocks.iter().skip(1).map(|other| {
            self.alike((*first, self.kept[*first].iter().rev()), (*other, self.kept[*other].iter().rev()))
        });
        let count = count.min().unwrap_or(usize::MAX);
        let start = |block: &usize| match self.kept[*block].len() {
            length if count < length => (*block, self.kept[*block][length - count]),
            _ => (*block, 0),
        };
        if count == 0 {
            Vec::new()
        } else {
            blocks.iter().map(start).collect()
        }
    }

    /// How many of the first of these instructions are the same.
    fn alike<'b>(
        &self, (a, first): (usize, impl Iterator<Item = &'b usize>),
        (b, second): (usize, impl Iterator<Item = &'b usize>),
    ) -> usize {
        let (a, b) = (&self.blocks[a].instructions, &self.blocks[b].instructions);
        first.zip(second).take_while(|(x, y)| same(&a[**x], &b[**y])).count()
    }
}

fn same(a: &Instruction, b: &Instruction) -> bool {
    let operand = |(x, y): (&Operand, &Operand)| x.text == y.text && x.is_def() == y.is_def();
    a.name == b.name && a.operands.len() == b.operands.len() && a.operands.iter().zip(&b.operands).all(operand)
}

fn makes_no_code(i: &Instruction) -> bool {
    i.has("no-code") || i.has("frame-adjust")
}

fn branches(i: &Instruction) -> bool {
    i.has("branch") && !i.has("indirect-branch")
}

fn is_vector(lane: &Lane) -> bool {
    lane.vector && lane.of == Of::Unit
}

/// No moves that LLVM may exchange, or find in what it brings together, over a write of EXEC.
///
/// # Errors
/// `not-followed`: there are some.
pub fn check(after: &Function) -> Done<Vec<Left>> {
    let flow = Flow::of(after);
    let near: Vec<Near> = (0..after.blocks.len()).map(|number| flow.near(number)).collect();
    let mut all = vec![Left::default(); near.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in after.blocks.iter().enumerate() {
            let Near { blocks, stop } = &near[number];
            let mut reached = Left::default();
            for (from, start) in blocks {
                let code = &after.blocks[*from].instructions;
                let written: Set<Lane> = code[*start..].iter().flat_map(|i| i.lanes(Operand::is_def)).collect();
                let read = block.instructions[..*stop].iter().flat_map(|i| i.lanes(Operand::reads)).filter(is_vector);
                let behind = all[number].read.iter().copied().filter(|_| *stop >= block.instructions.len());
                let read: Set<Lane> = read.chain(behind).filter(|at| *start == 0 || written.contains(at)).collect();
                changed |= !read.is_subset(&all[*from].read);
                all[*from].read.extend(read);
                let left = &all[*from];
                let here = |lane: &Lane| *start == 0 || left.last.get(lane).is_some_and(|at| at >= start);
                reached.writes.extend(left.writes.iter().copied().filter(|(at, ..)| here(at)));
                reached.unread.extend(left.unread.iter().copied().filter(here));
            }
            reached.read.clone_from(&all[number].read);
            let left = behind(block, reached, *stop)?;
            changed |= left != all[number];
            all[number] = left;
        }
    }
    Ok(all)
}

/// Through a block, of which the first instructions may be brought together with what `reached` says.
fn behind(block: &Block, reached: Left, stop: usize) -> Done<Left> {
    let (mut earlier, mut unread) = (reached.writes, reached.unread);
    let (mut own, mut last) = (Set::<Write>::default(), Map::default());
    for (number, i) in block.instructions.iter().enumerate() {
        if number == stop {
            earlier.clear();
            unread.retain(|lane| last.contains_key(lane));
        }
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
                ensure!(!found, "not-followed", i, "it copies what was written for others ahead of its block");
            }
        }
        let named = |at: &Lane| match written.contains(at) {
            _ if i.has("copy") => read.contains(at) || written.contains(at),
            writes => writes && !read.contains(at) && unread.contains(at),
        };
        let missed = |(at, origin, old): &Write| *old && origin.is_some() && named(at);
        let why = "it names what a move ahead of its block wrote for others";
        ensure!(!earlier.iter().any(missed), "not-followed", i, "{why}");
        unread.retain(|lane| !read.contains(lane) && !written.contains(lane));
        unread.extend(written.iter().copied().filter(|_| i.has("copy")));
        for writes in [&mut earlier, &mut own] {
            writes.retain(|(at, ..)| !written.contains(at));
        }
        last.extend(written.iter().map(|lane| (*lane, number)));
        own.extend(written.iter().copied().filter(is_vector).map(|lane| (lane, None, false)));
        own.extend(rows().map(|(to, from)| (to, Some(from), false)));
        let ordered = |o: &Operand| i.has("copy") && o.is(crate::model::IMPLICIT);
        if i.defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()) && !ordered(o)) {
            for writes in [&mut earlier, &mut own] {
                *writes = writes.drain().map(|(at, origin, _)| (at, origin, true)).collect();
            }
        }
    }
    if stop < block.instructions.len() {
        earlier.clear();
        unread.retain(|lane| last.contains_key(lane));
    }
    earlier.extend(own);
    Ok(Left { writes: earlier, unread, read: reached.read, last })
}
