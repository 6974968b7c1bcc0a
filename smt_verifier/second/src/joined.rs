//! Blocks that LLVM joins (spec 2.5), instructions that it brings together behind the phase, and what other passes make of
//! moves there (10.11, 12.3).

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::behind::{copies_exec, loops, mask_set, smallest_loops};
use crate::context::Context;
use crate::entry::live_ins;
use crate::header::registers_in;
use crate::lanes::{Lane, Map, Of, Set};
use crate::model::{
    ensure, Block, Done, Function, Instruction, Kind, Operand, Refused, DEAD, IMPLICIT, KILLED, RENAMABLE, UNDEF,
};
use crate::tables::tables;

/// Instructions of a block that LLVM duplicates (TailDuplicator.cpp, -tail-dup-size). The last one is a branch, if it
/// leads to another block: it must not fall through.
const DUPLICATED: usize = 2;

/// A register, where it was moved from, and whether EXEC was written since.
type Move = (Lane, Lane, bool);

/// What was written so far, as far as it may matter.
#[derive(Clone, Default, PartialEq, Eq)]
struct Known {
    /// Moves whose target nothing has written since.
    moves: Set<Move>,
    /// Copies neither of whose registers has been written since.
    copies: Set<Move>,
    /// What nothing has read or written since, and whether EXEC was written.
    fresh: Map<Lane, bool>,
    /// Targets of copies that nothing has read.
    unread: Set<Lane>,
}

impl Known {
    fn add(&mut self, other: &Known, near: impl Fn(&Lane) -> bool) {
        self.moves.extend(other.moves.iter().filter(|(at, ..)| near(at)));
        self.copies.extend(other.copies.iter().filter(|(at, ..)| near(at)));
        for (at, old) in other.fresh.iter().filter(|(at, _)| near(at)) {
            *self.fresh.entry(*at).or_default() |= old;
        }
    }

    /// `hidden`: what is written otherwise than by explicit definitions, which SIShrinkInstructions does not see.
    fn access(&mut self, read: &[Lane], written: &[Lane], hidden: &[Lane]) {
        self.moves.retain(|(at, ..)| !written.contains(at) || hidden.contains(at));
        if !hidden.is_empty() {
            let age = |(to, from, old)| (to, from, old || hidden.contains(&to) || hidden.contains(&from));
            self.moves = self.moves.drain().map(age).collect();
        }
        self.copies.retain(|(to, from, _)| !written.contains(to) && !written.contains(from));
        for at in read.iter().chain(written) {
            self.fresh.remove(at);
            self.unread.remove(at);
        }
    }

    /// EXEC is written.
    fn age(&mut self) {
        for moves in [&mut self.moves, &mut self.copies] {
            *moves = moves.drain().map(|(to, from, _)| (to, from, true)).collect();
        }
        self.fresh.values_mut().for_each(|old| *old = true);
    }
}

/// What is known behind a block of Q.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Left {
    known: Known,
    /// Vector registers that are read in what LLVM may move to its end.
    pub read: Set<Lane>,
    /// The number of the instruction that wrote a register last in this block.
    last: Map<Lane, usize>,
}

impl Left {
    /// Targets of copies that nothing behind them reads.
    pub fn unread(&self) -> &Set<Lane> {
        &self.known.unread
    }

    /// What either says.
    pub fn join(&mut self, other: Left) {
        self.read.extend(other.read);
        self.known.unread.extend(other.known.unread);
    }
}

/// With the instructions of which blocks, from which on, those of a block may be brought together, up to which.
#[derive(Default)]
struct Near {
    blocks: Vec<(usize, usize)>,
    stop: usize,
}

/// Of each block the positions of those that lead to it, and that the entry leads to.
pub fn predecessors(ahead: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
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

pub fn successors(function: &Function) -> Vec<BTreeSet<usize>> {
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
    /// Numbers of the instructions, the same for those that LLVM makes equal.
    forms: Vec<Vec<usize>>,
    /// Instructions of each block that make code, but for jumps.
    counted: Vec<Vec<usize>>,
    /// Those of them that stay.
    kept: Vec<Vec<usize>>,
    /// The loop that each block is in.
    loops: Vec<Option<usize>>,
    /// The first of the blocks that are one with each, and such of those that each leads to.
    one: Vec<usize>,
    next: Vec<BTreeSet<usize>>,
}

impl<'a> Flow<'a> {
    fn of(after: &'a Function) -> Self {
        let ahead = without_empty(after);
        let (before, loops) = (predecessors(&ahead), loops(&ahead));
        let counts = |block: &Block| {
            let code = block.instructions.iter().enumerate();
            code.filter(|(_, i)| !(makes_no_code(i) || branches(i) && i.has("barrier"))).map(|(at, _)| at).collect()
        };
        let counted: Vec<Vec<usize>> = after.blocks.iter().map(counts).collect();
        let forms = forms(&after.blocks);
        let gone = gone(after, &forms, &ahead, &before);
        let stay = |(counted, gone): (&Vec<usize>, &BTreeSet<usize>)| {
            counted.iter().copied().filter(|at| !gone.contains(at)).collect()
        };
        let kept = counted.iter().zip(&gone).map(stay).collect();
        let mut flow =
            Flow { blocks: &after.blocks, before, forms, counted, kept, loops, one: vec![], next: vec![], ahead };
        flow.one = flow.ones();
        flow.next = flow.ahead.iter().map(|places| flow.once(places)).collect();
        flow
    }

    /// Blocks that are one: they lead to the same blocks, and what stays is alike in all of them.
    fn ones(&self) -> Vec<usize> {
        let mut known: BTreeMap<(&BTreeSet<usize>, Vec<usize>), usize> = BTreeMap::new();
        let first = |number: usize| {
            let forms = self.kept[number].iter().map(|at| self.forms[number][*at]).collect();
            *known.entry((&self.ahead[number], forms)).or_insert(number)
        };
        (0..self.blocks.len()).map(first).collect()
    }

    /// Those that are one are counted once.
    fn once(&self, places: &BTreeSet<usize>) -> BTreeSet<usize> {
        places.iter().map(|number| self.one[*number]).collect()
    }

    fn near(&self, number: usize) -> Near {
        let (own, length, before) = (&self.kept[number], self.blocks[number].instructions.len(), &self.before[number]);
        let copied = before.iter().filter(|from| only(&self.next[**from]).is_some());
        let copied: Vec<(usize, usize)> = copied.map(|from| (*from, 0)).collect();
        let small = DUPLICATED - usize::from(!self.ahead[number].is_empty());
        if own.len() <= small && !copied.is_empty() {
            return Near { blocks: copied, stop: length };
        }
        let blocks = self.ends(before);
        if !blocks.is_empty() && copied.len() == before.len() {
            return Near { blocks, stop: length };
        }
        if let Some(stop) = self.beside(number).filter(|stop| !blocks.is_empty() && *stop > 0) {
            return Near { blocks, stop };
        }
        // Its end may be merged with that of another block, so that it becomes small.
        let Some((first, end)) = own.split_at_checked(small).filter(|_| !copied.is_empty()) else {
            return Near::default();
        };
        let exits = (0..self.ahead.len()).filter(|other| self.ahead[*other].is_empty());
        let others: BTreeSet<usize> = match self.ahead[number].is_empty() {
            true => exits.collect(),
            false => self.ahead[number].iter().flat_map(|next| &self.before[*next]).copied().collect(),
        };
        let mut tails = others.into_iter().filter(|other| *other != number).filter_map(|other| {
            let start = self.kept[other].len().checked_sub(end.len())?;
            Some((other, self.kept[other].get(start..)?))
        });
        let is_end =
            |(other, tail): (usize, &[usize])| self.alike((number, end.iter()), (other, tail.iter())) == end.len();
        match first.last() {
            Some(last) if tails.any(is_end) => Near { blocks: copied, stop: last + 1 },
            _ => Near::default(),
        }
    }

    /// Up to where a block may be hoisted, if all that lead to it lead to the same two blocks. What stands first in both is;
    /// where one only branches, so may be what it leads to.
    fn beside(&self, number: usize) -> Option<usize> {
        let before = &self.before[number];
        let behind: BTreeSet<usize> = before.iter().flat_map(|from| &self.next[*from]).copied().collect();
        if behind.len() != 2 || before.iter().any(|from| self.next[*from].len() != 2) {
            return None;
        }
        let led = before.iter().flat_map(|from| &self.ahead[*from]).copied().collect::<BTreeSet<usize>>();
        let ahead = self.once(before);
        let others = led.into_iter().filter(|other| self.one[*other] != self.one[number]);
        let stop = |other: usize| {
            if self.blocks[other].instructions.iter().all(|i| makes_no_code(i) || branches(i)) {
                return self.blocks[number].instructions.len();
            }
            let alike = self.alike((number, self.kept[number].iter()), (other, self.kept[other].iter()));
            alike.checked_sub(1).map_or(0, |last| self.kept[number][last] + 1)
        };
        others.filter(|other| self.once(&self.before[*other]).is_subset(&ahead)).map(stop).max()
    }

    /// From where on all of these blocks end alike: behind what stays and is not alike.
    fn ends(&self, blocks: &BTreeSet<usize>) -> Vec<(usize, usize)> {
        let alone = self.once(blocks);
        let Some(first) = alone.first() else { return Vec::new() };
        let count = alone.iter().skip(1).map(|other| {
            self.alike((*first, self.kept[*first].iter().rev()), (*other, self.kept[*other].iter().rev()))
        });
        let count = count.min().unwrap_or(usize::MAX);
        let start = |block: &usize| {
            let kept = &self.kept[*block];
            (*block, kept.iter().rev().nth(count).map_or(0, |last| last + 1))
        };
        if count == 0 {
            Vec::new()
        } else {
            blocks.iter().map(start).collect()
        }
    }

    /// How many of the first of these instructions are equal.
    fn alike<'b>(
        &self, (a, first): (usize, impl Iterator<Item = &'b usize>),
        (b, second): (usize, impl Iterator<Item = &'b usize>),
    ) -> usize {
        let (a, b) = (&self.forms[a], &self.forms[b]);
        first.zip(second).take_while(|(x, y)| a[**x] == b[**y]).count()
    }
}

/// What each block leads to, without those that the entry does not lead to, and those that have no code and one successor.
fn without_empty(after: &Function) -> Vec<BTreeSet<usize>> {
    let mut ahead = successors(after);
    let before = predecessors(&ahead);
    (1..ahead.len()).filter(|number| before[*number].is_empty()).for_each(|number| ahead[number].clear());
    let is_empty = |block: &Block| block.instructions.iter().all(|i| makes_no_code(i) || branches(i));
    let is_empty: Vec<bool> = after.blocks.iter().map(is_empty).collect();
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
    ahead
}

/// An opcode, and of each operand whether it is a definition, and its text.
type Form<'a> = Vec<(bool, &'a str)>;

/// A number for each instruction, the same for those that LLVM makes equal: where the address of a stack object stands
/// somewhere (PrologEpilogInserter makes a number of it), numbers do not count.
fn forms(blocks: &[Block]) -> Vec<Vec<usize>> {
    let is_address = |o: &Operand| matches!(o.kind, Kind::FrameIndex | Kind::FixedFrame);
    let code = blocks.iter().flat_map(|block| &block.instructions);
    let framed: BTreeSet<Form> = code
        .filter(|i| i.operands.iter().any(is_address))
        .map(|i| form(i, |o| is_address(o) || is_number(o)))
        .collect();
    let mut numbers: BTreeMap<(bool, Form), usize> = BTreeMap::new();
    let mut number = |i| {
        let form_of_all = form(i, |o| is_address(o) || is_number(o));
        let is_framed = framed.contains(&form_of_all);
        let next = numbers.len();
        *numbers.entry((is_framed, if is_framed { form_of_all } else { form(i, |_| false) })).or_insert(next)
    };
    blocks.iter().map(|block| block.instructions.iter().map(&mut number).collect()).collect()
}

fn is_number(o: &Operand) -> bool {
    o.kind == Kind::Immediate
}

/// What an instruction says, but for flags and the operands that are left `out`. BranchFolder turns conditions round, and gives
/// a branch its other target: all are equal. So are opcodes and those with `_term` (SIOptimizeExecMasking), and a COPY of
/// scalars and what SIInstrInfo::copyPhysReg makes of it.
fn form(i: &Instruction, out: impl Fn(&Operand) -> bool) -> Form<'_> {
    if branches(i) && !i.has("barrier") {
        return vec![(false, "a branch on a condition")];
    }
    let is_scalar = |o: &Operand| o.register.is_some() && !o.lanes.iter().any(|lane| lane.vector);
    let scalar = i.has("copy") && matches!(&i.operands[..], [to, from, ..] if is_scalar(to) && is_scalar(from));
    let name = match i.name.strip_suffix("_term").unwrap_or(&i.name) {
        "S_MOV_B32" | "S_MOV_B64" => "a move of scalars",
        _ if scalar => "a move of scalars",
        name => name,
    };
    let operands = i.operands.iter().map(|o| (o.is_def(), if out(o) { "" } else { o.text.as_str() }));
    [(false, name)].into_iter().chain(operands).collect()
}

/// Of each block the instructions that may be gone when LLVM joins blocks.
fn gone(
    after: &Function, forms: &[Vec<usize>], ahead: &[BTreeSet<usize>], before: &[BTreeSet<usize>],
) -> Vec<BTreeSet<usize>> {
    let pointers = ["stackPtrOffsetReg", "frameOffsetReg"].map(|key| registers_in(after, key));
    let pointers = pointers.iter().flatten().filter_map(|name| tables().register(name));
    let pointers: Vec<u32> = pointers.flat_map(|register| register.units.iter().copied()).collect();
    let constants = |(block, forms): (&Block, &Vec<usize>)| -> Vec<Option<usize>> {
        let constant = |(i, form): (&Instruction, &usize)| is_constant(i, &pointers).then_some(*form);
        block.instructions.iter().zip(forms).map(constant).collect()
    };
    let constants: Vec<Vec<Option<usize>>> = after.blocks.iter().zip(forms).map(constants).collect();
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    constants.iter().flatten().flatten().for_each(|form| *times.entry(*form).or_default() += 1);
    let (of, loops) = smallest_loops(ahead, before);
    let lanes = |block: &usize| after.blocks[*block].instructions.iter().flat_map(|i| i.lanes(Operand::is_def));
    let defined =
        |of: &BTreeSet<usize>| of.iter().flat_map(lanes).filter(|lane| !lane.is_exec()).collect::<Set<Lane>>();
    let defined: Vec<Set<Lane>> = loops.iter().map(defined).collect();
    let gone = |(number, block): (usize, &Block)| {
        let inside = of[number].and_then(|of| defined.get(of));
        let said_again = |form: &Option<usize>| form.and_then(|form| times.get(&form)).is_some_and(|times| *times > 1);
        let cleaned = constants[number].iter().enumerate().filter(|(_, form)| said_again(form)).map(|(at, _)| at);
        let code = block.instructions.iter().enumerate();
        let hoisted = code.filter(|(_, i)| inside.is_some_and(|defined| is_invariant(i, defined))).map(|(at, _)| at);
        cleaned.chain(hoisted).chain(masked(block)).collect()
    };
    after.blocks.iter().enumerate().map(gone).collect()
}

/// It names no register but its result and `pointers` (MachineLateInstrsCleanup.cpp, isCandidate).
fn is_constant(i: &Instruction, pointers: &[u32]) -> bool {
    let Some((first, others)) = i.operands.split_first() else { return false };
    let names = |o: &Operand| o.is_register() && !o.lanes.iter().all(|lane| lane.is_in(pointers));
    (i.has("pure") || i.has("copy")) && first.is_def() && !others.iter().any(names)
}

/// MachineLICM may move it out of a loop in which this is defined.
fn is_invariant(i: &Instruction, defined: &Set<Lane>) -> bool {
    (i.has("pure") || i.has("may-load")) && !i.lanes(Operand::reads).iter().any(|lane| defined.contains(lane))
}

/// What SIOptimizeExecMasking may make one instruction of, in LLVM's own blocks.
fn masked(block: &Block) -> Vec<usize> {
    let starts: Vec<usize> = [0].into_iter().chain(block.joints.iter().map(|(start, _)| *start)).collect();
    let ends = starts.iter().copied().skip(1).chain([block.instructions.len()]);
    let parts = starts.iter().zip(ends).filter_map(|(start, end)| Some((*start, block.instructions.get(*start..end)?)));
    let parts = parts.filter(|(_, code)| code.iter().any(|i| mask_set(i).is_some()));
    let goes = |i: &Instruction| !i.value("mask").is_empty() || copies_exec(i);
    let rows = |(start, code): (usize, &[Instruction])| -> Vec<usize> {
        code.iter().enumerate().filter(|(_, i)| goes(i)).map(|(at, _)| start + at).collect()
    };
    parts.flat_map(rows).collect()
}

/// MachineLateInstrsCleanup deletes what gives a register the same again, and MachineLICM moves it out of a loop. What reads the
/// program counter does not give the same.
fn said_once(flow: &Flow<'_>) -> Done<()> {
    let mut said = BTreeSet::new();
    for (number, block) in flow.blocks.iter().enumerate() {
        let mut code = block.instructions.iter().filter(|i| i.name == "S_GETPC_B64" || i.name == "S_GETPC_B64_pseudo");
        let wrong = code.find(|i| {
            !said.insert((i.name.clone(), i.operands.first().map(|o| o.text.clone()))) || flow.loops[number].is_some()
        });
        if let Some(i) = wrong {
            return Err(Refused::new(
                "not-followed",
                "LLVM takes the result for the one before, or from before a loop",
                i,
            ));
        }
    }
    Ok(())
}

/// BranchFolder makes one of what blocks end alike in that lead to the same block, or nowhere, and keeps one of two
/// instructions that may differ in `dead` and `killed`.
fn merged_alike(context: &Context<'_>, flow: &Flow<'_>, every: bool) -> Done<()> {
    let code = if every { &flow.counted } else { &flow.kept };
    // Whether an operand says that it ends there, or nothing behind reads what it defines.
    let ends_there = |block: &Block, at: usize, o: &Operand| {
        if o.is(DEAD) || !o.is_def() {
            return o.is(DEAD) || o.is(KILLED) && block.instructions[at].has("copy");
        }
        let mut lanes: BTreeSet<Lane> = o.lanes.iter().copied().collect();
        for i in &block.instructions[at + 1..] {
            if i.lanes(Operand::reads).iter().any(|lane| lanes.contains(lane)) {
                return false;
            }
            i.lanes(Operand::is_def).iter().for_each(|lane| _ = lanes.remove(lane));
        }
        let live: Vec<Set<u32>> = block.successors.iter().map(|next| live_ins(context, &flow.blocks[*next])).collect();
        !lanes.iter().any(|lane| lane.of != Of::Unit || live.iter().any(|live| live.contains(&lane.a)))
    };
    let exits: BTreeSet<usize> = (0..flow.ahead.len()).filter(|number| flow.ahead[*number].is_empty()).collect();
    for blocks in flow.before.iter().chain([&exits]) {
        // By the end so far, told apart by a number, and what comes before it.
        let mut ends: Vec<(usize, usize, usize)> = Vec::new();
        for number in blocks {
            let mut end = usize::MAX;
            for at in code[*number].iter().rev() {
                let block = &flow.blocks[*number];
                let i = &block.instructions[*at];
                let form = flow.forms[*number][*at];
                let is_it = |(behind, of, n): &(usize, usize, usize)| *behind == end && form == flow.forms[*of][*n];
                let Some(known) = ends.iter().position(is_it) else {
                    ends.push((end, *number, *at));
                    end = ends.len() - 1;
                    continue;
                };
                let (_, other, n) = ends[known];
                let other = &flow.blocks[other];
                if branches(i) {
                    end = known;
                    continue;
                }
                let copies = i.has("copy") || other.instructions[n].has("copy");
                let marks = if copies { DEAD | KILLED } else { DEAD };
                let alike = i.operands.iter().zip(&other.instructions[n].operands).all(|(x, y)| {
                    x.flags & marks == y.flags & marks || ends_there(block, *at, x) == ends_there(other, n, y)
                });
                ensure!(alike, "not-followed", i, "another block ends with it, but for what is dead or killed");
                end = known;
            }
        }
    }
    Ok(())
}

/// The instructions at a block's beginning that LLVM may hoist, and whether only branches follow them.
fn first(flow: &Flow<'_>, number: usize, every: bool) -> (Vec<usize>, bool) {
    let code = &flow.blocks[number].instructions;
    let stays = |i: &Instruction| {
        !i.has("asm") && ["may-store", "call", "side-effects", "terminator"].iter().any(|word| i.has(word))
    };
    let all = if every { &flow.counted[number] } else { &flow.kept[number] };
    let numbers: Vec<usize> = all.iter().copied().take_while(|at| !stays(&code[*at])).collect();
    let leads_on = all.get(numbers.len()).is_none_or(|at| branches(&code[*at]));
    (numbers, leads_on)
}

/// BranchFolder hoists what both successors of a block begin with, as far as `MachineInstr::isSafeToMove` lets it, and keeps
/// one of two instructions that may differ in `undef`, memory operands and marks. Where all of a block is hoisted, what
/// follows it comes next.
fn hoisted_alike(flow: &Flow<'_>, every: bool) -> Done<()> {
    let firsts: Vec<(Vec<usize>, bool)> = (0..flow.blocks.len()).map(|number| first(flow, number, every)).collect();
    let pairs = flow.ahead.iter().filter(|places| places.len() == 2);
    let mut pending: Vec<[usize; 4]> =
        pairs.filter_map(|places| Some([*places.first()?, 0, *places.last()?, 0])).collect();
    let mut seen: BTreeSet<[usize; 4]> = pending.iter().copied().collect();
    while let Some([a, mut i, b, mut j]) = pending.pop() {
        if a == b {
            continue;
        }
        let ((of_a, a_leads), (of_b, b_leads)) = (&firsts[a], &firsts[b]);
        while let (Some(x), Some(y)) = (of_a.get(i), of_b.get(j)) {
            if flow.forms[a][*x] != flow.forms[b][*y] {
                break;
            }
            let (x, y) = (&flow.blocks[a].instructions[*x], &flow.blocks[b].instructions[*y]);
            let undefined = |o: &Operand| o.register.is_some() && !o.is_def() && o.is(UNDEF);
            let memory = x.memory.iter().map(|m| &m.text).eq(y.memory.iter().map(|m| &m.text));
            let undef = x.operands.iter().map(undefined).eq(y.operands.iter().map(undefined));
            let alike = undef && memory && x.tail == y.tail;
            ensure!(alike, "not-followed", y, "one like it, in its stead, says otherwise");
            (i, j) = (i + 1, j + 1);
        }
        let of_a = flow.ahead[a].iter().filter(|_| i == of_a.len() && *a_leads).map(|next| [*next, 0, b, j]);
        let of_b = flow.ahead[b].iter().filter(|_| j == of_b.len() && *b_leads).map(|next| [a, i, *next, 0]);
        for pair in of_a.chain(of_b) {
            if seen.insert(pair) {
                pending.push(pair);
            }
        }
    }
    Ok(())
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

/// Of each block the registers that are read on some path before they are written.
pub fn live(blocks: &[Block]) -> Vec<Set<u32>> {
    let mut all: Vec<Set<u32>> = vec![Set::default(); blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in blocks.iter().enumerate().rev() {
            let mut live: Set<u32> = block.successors.iter().flat_map(|next| all[*next].iter().copied()).collect();
            for i in block.instructions.iter().rev() {
                i.lanes(Operand::is_def)
                    .iter()
                    .filter(|lane| lane.of == Of::Unit)
                    .for_each(|lane| _ = live.remove(&lane.a));
                live.extend(i.lanes(Operand::reads).iter().filter(|lane| lane.of == Of::Unit).map(|lane| lane.a));
            }
            changed |= live.len() > all[number].len();
            all[number] = live;
        }
    }
    all
}

/// Of each block those with whose instructions LLVM may bring its own together, up to which one.
pub fn near_blocks(after: &Function) -> Vec<(Vec<usize>, usize)> {
    let flow = Flow::of(after);
    let near = (0..after.blocks.len()).map(|number| flow.near(number));
    near.map(|near| (near.blocks.into_iter().map(|(block, _)| block).collect(), near.stop)).collect()
}

/// No moves that LLVM may exchange, or find in what it brings together, over a write of EXEC.
///
/// # Errors
/// `not-followed`: there are some.
pub fn check(context: &Context<'_>, after: &Function) -> Done<Vec<Left>> {
    let flow = Flow::of(after);
    // Some instructions may be gone by then.
    for every in [true, false] {
        hoisted_alike(&flow, every)?;
        merged_alike(context, &flow, every)?;
    }
    said_once(&flow)?;
    // Where PostRAMachineSinking may move a copy of another block to the beginning of a block.
    let before = predecessors(&successors(after));
    let above = |number: &usize| {
        let above = only(&before[*number])?;
        let next: BTreeSet<usize> = after.blocks[above].successors.iter().copied().collect();
        (next.len() > 1).then_some(above)
    };
    let above: Vec<Option<usize>> = (0..before.len()).map(|number| above(&number)).collect();
    let near: Vec<Near> = (0..after.blocks.len()).map(|number| flow.near(number)).collect();
    let mut all = vec![Left::default(); near.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in after.blocks.iter().enumerate() {
            let Near { blocks, stop } = &near[number];
            let mut near_by = Known::default();
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
                near_by.add(&left.known, here);
            }
            let beside = above[number].iter().flat_map(|from| &after.blocks[*from].successors);
            let beside = beside.filter(|next| **next != number).map(|next| &after.blocks[*next]);
            let sunk = sunk(context, above[number].map(|from| &all[from].known), block, beside);
            if let Some(above) = above[number] {
                let code = block.instructions.iter().flat_map(|i| i.lanes(Operand::reads));
                let reads = code.chain(all[number].read.iter().copied());
                let read: Set<Lane> = reads.filter(|at| sunk.unread.contains(at)).collect();
                changed |= !read.is_subset(&all[above].read);
                all[above].read.extend(read);
            }
            let left = Left { read: all[number].read.clone(), ..behind(block, near_by, sunk, *stop)? };
            changed |= left != all[number];
            all[number] = left;
        }
    }
    Ok(all)
}

/// Copies that may be moved to a block's beginning: nothing has read them, EXEC was not written since, and no block beside it
/// declares their targets.
fn sunk<'b>(
    context: &Context<'_>, above: Option<&Known>, block: &Block, beside: impl Iterator<Item = &'b Block>,
) -> Known {
    let Some(above) = above else { return Known::default() };
    let (live, others) = (live_ins(context, block), beside.flat_map(|b| live_ins(context, b)).collect::<Set<u32>>());
    let declared = |lane: &Lane| lane.of == Of::Unit && live.contains(&lane.a) && !others.contains(&lane.a);
    let rows = above.copies.iter().filter(|(to, _, old)| !old && above.unread.contains(to) && declared(to));
    let copies: Set<Move> = rows.copied().collect();
    let unread = copies.iter().map(|(to, ..)| *to).collect();
    Known { unread, moves: copies.clone(), copies, ..Known::default() }
}

/// Through a block, the first instructions of which may be brought together with what is known `near`.
fn behind(block: &Block, mut near: Known, mut sunk: Known, stop: usize) -> Done<Left> {
    let (mut own, mut last) = (Known::default(), Map::default());
    // The number of the instruction that moved to a register last.
    let mut moved: Map<Lane, usize> = Map::default();
    for (number, i) in block.instructions.iter().enumerate() {
        if number == stop {
            near = Known::default();
        }
        let (read, written) = (i.lanes(Operand::reads), i.lanes(Operand::is_def));
        // A stack object's address may be 0: LLVM makes a move of an addition then.
        let of_frame = i.definitions == 1 && i.operands.iter().any(|o| o.kind == Kind::FrameIndex);
        let (copies, moves) = (i.has("copy"), i.has("copy") || i.has("vector-move") || of_frame);
        let explicit: Vec<&Operand> =
            i.operands.iter().take(3).filter(|o| o.is_register() && !o.is(IMPLICIT)).collect();
        let rows: Vec<(Lane, Lane)> = match &explicit[..] {
            [to, from, ..] if moves => to.lanes.iter().copied().zip(from.lanes.iter().copied()).collect(),
            _ => Vec::new(),
        };
        let own_results: Vec<Lane> = i.operands[..i.definitions].iter().flat_map(|o| o.lanes.iter().copied()).collect();
        let hidden: Vec<Lane> = written.iter().copied().filter(|lane| !own_results.contains(lane)).collect();
        let rows = || rows.iter().filter(|(to, from)| is_vector(to) && is_vector(from)).copied();
        for (to, from) in rows() {
            // SIShrinkInstructions makes one exchange of three moves, of which the one from X comes before the one to X.
            let made = |rows: &Set<Move>, origin: Lane, since: bool| {
                rows.contains(&(origin, to, true)) || since && rows.contains(&(origin, to, false))
            };
            let by = |rows: &Set<Move>| -> Vec<(Lane, bool)> {
                rows.iter().filter(|(at, ..)| *at == from).map(|(_, origin, old)| (*origin, *old)).collect()
            };
            let behind = |origin: &Lane| moved.get(&from) <= moved.get(origin);
            let ahead = |moves: &Set<Move>| {
                by(moves).iter().any(|(x, old)| made(moves, *x, *old) || made(&own.moves, *x, *old))
            };
            let exchanged = ahead(&near.moves)
                || ahead(&sunk.moves)
                || by(&own.moves).iter().any(|(x, old)| behind(x) && made(&own.moves, *x, *old));
            ensure!(!exchanged, "not-followed", i, "LLVM may exchange registers for other threads");
        }
        if let ([to, from, ..], true) = (&i.operands[..], copies) {
            // MachineCopyPropagation deletes a copy that stands already, and lets what wrote the source write the target.
            let stands = |row: Move| near.copies.contains(&row) || sunk.copies.contains(&row);
            let again = |(to, from): (Lane, Lane)| stands((to, from, true)) || stands((from, to, true));
            ensure!(
                !rows().any(again),
                "not-followed",
                i,
                "a copy for others ahead of its block makes it look needless"
            );
            let may = from.is(KILLED | RENAMABLE) && to.is(RENAMABLE);
            let found = may && rows().any(|(_, from)| near.fresh.get(&from) == Some(&true));
            ensure!(!found, "not-followed", i, "its source was written for others ahead of its block");
        }
        [&mut near, &mut sunk, &mut own].into_iter().for_each(|known| known.access(&read, &written, &hidden));
        last.extend(written.iter().map(|lane| (*lane, number)));
        own.fresh.extend(written.iter().copied().filter(is_vector).map(|lane| (lane, false)));
        if i.has("call") {
            // SIShrinkInstructions looks for no move from a register over what reads it, implicitly too; a call stays.
            own.moves.retain(|(_, from, _)| !read.contains(from));
        }
        own.moves.extend(rows().map(|(to, from)| (to, from, false)));
        moved.extend(rows().map(|(to, _)| (to, number)));
        if copies {
            own.unread.extend(written.iter().copied());
            own.copies.extend(rows().map(|(to, from)| (to, from, false)));
        }
        let ordered = |o: &Operand| copies && o.is(IMPLICIT);
        if i.defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()) && !ordered(o)) {
            [&mut near, &mut sunk, &mut own].into_iter().for_each(Known::age);
        }
    }
    if stop < block.instructions.len() {
        near = Known::default();
    }
    own.add(&near, |_| true);
    own.add(&sunk, |_| true);
    Ok(Left { known: own, last, ..Left::default() })
}
