//! Which names matter at the entry of each block: what P reads later, and the masks that may reach EXEC.

use std::collections::BTreeSet;

use verilocc_check::context::Context;
use verilocc_check::header::object;
use verilocc_check::lanes::{Lane, Map, Set};
use verilocc_check::model::{Instruction, Kind, Operand, IMPLICIT, UNDEF};

use crate::program::{Program, Row};

/// What is asked for.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    /// What EXEC was saved in is wanted too where an instruction follows that needs an active thread.
    pub witnesses: bool,
    /// What is read of threads that wait is live from the start: a thread that waits meanwhile has the value that it had,
    /// whatever others write.
    pub waiting: bool,
    /// Whether the comparisons and operations on masks are wanted by whose results classes are split.
    pub splits: Option<Splits>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Splits {
    /// Those whose results may reach EXEC.
    All,
    /// Those on whose results it depends which threads a mask wakes.
    Waking,
}

/// What is wanted at each block's entry.
pub struct Wanted {
    /// Names that some path reads before it writes them.
    pub live: Vec<Names>,
    /// Names that some instruction on some path reads.
    pub read_later: Vec<Names>,
    /// Scalar names whose values may reach EXEC.
    pub masks: Vec<Set<Lane>>,
    /// Those of them that may make a thread active, not only narrow EXEC.
    pub waking: Vec<Set<Lane>>,
    /// Of each block, the comparisons and operations on masks that are asked for.
    pub splits: Vec<Set<u32>>,
    numbers: Map<Lane, usize>,
}

impl Wanted {
    /// Whether a name is among these.
    pub fn has(&self, names: &Names, name: Lane) -> bool {
        self.numbers.get(&name).is_some_and(|number| names.has(*number))
    }
}

/// A set of names of P, by their numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<u64>);

impl Names {
    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn add(&mut self, other: &Names) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, word)| *own |= word);
    }

    fn remove(&mut self, other: &Names) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, word)| *own &= !word);
    }
}

/// What a block reads before it writes it, writes, and reads at all; and reads of threads that wait, too.
#[derive(Default)]
struct Summary {
    first: Names,
    written: Names,
    read: Names,
    crossing: Names,
}

/// By backward data flow over P.
pub fn wanted(context: &Context<'_>, program: &Program, asked: Asked) -> Wanted {
    let blocks = &context.before.blocks;
    let mut numbers: Map<Lane, usize> = Map::default();
    let mut number = |lane: &Lane| {
        let next = numbers.len();
        *numbers.entry(*lane).or_insert(next)
    };
    let mut summaries: Vec<Summary> = Vec::new();
    for block in blocks {
        let mut summary = Summary::default();
        for i in &block.instructions {
            let of_all = asked.waiting && matches!(i.value("reach"), "reads" | "writes");
            for lane in i.operands.iter().filter(|o| o.is_use()).flat_map(|o| &o.lanes) {
                let read = number(lane);
                if !summary.written.has(read) {
                    summary.first.set(read);
                }
                summary.read.set(read);
                if of_all && lane.vector {
                    summary.crossing.set(read);
                }
            }
            for o in i.defined() {
                let beside = o.beside.iter().filter(|_| o.is(UNDEF));
                o.lanes.iter().chain(beside).for_each(|lane| summary.written.set(number(lane)));
            }
        }
        summaries.push(summary);
    }
    let mut slots = Names::default();
    for slot in spilled(context) {
        let size: u32 = context.before.stack.get(&slot).map_or(0, |row| object(row, "size").parse().unwrap_or(0));
        let lanes = context.slot_lanes(slot, 0, 8 * size.min(128), context.vector_slots.contains(&slot));
        lanes.iter().for_each(|lane| slots.set(number(lane)));
    }
    let (live, read_later) = live(context, &mut summaries, &slots);
    let flows: Vec<Vec<Flow>> = (0..blocks.len()).map(|n| flows(context, n, &program.rows[0][n])).collect();
    let mut masks = masks(context, &flows, false);
    let waking = self::masks(context, &flows, true);
    let splits = match asked.splits {
        Some(Splits::All) => splits(context, &flows, &masks, false),
        Some(Splits::Waking) => splits(context, &flows, &waking, true),
        None => vec![Set::default(); blocks.len()],
    };
    if asked.witnesses {
        add_witnesses(context, &mut masks);
    }
    Wanted { live, read_later, masks, waking, splits, numbers }
}

/// Slots of P's spill code.
fn spilled(context: &Context<'_>) -> BTreeSet<u32> {
    let code = context.before.instructions().filter(|i| i.spill().is_some());
    code.flat_map(|i| &i.operands).filter(|o| o.kind == Kind::FrameIndex).map(|o| o.number).collect()
}

/// Names that some path reads before it writes them, and that it reads at all.
fn live(context: &Context<'_>, summaries: &mut [Summary], slots: &Names) -> (Vec<Names>, Vec<Names>) {
    let blocks = &context.before.blocks;
    let (mut live, mut later) = (vec![Names::default(); blocks.len()], vec![Names::default(); blocks.len()]);
    let mut changed = true;
    while changed {
        changed = false;
        for n in (0..blocks.len()).rev() {
            let (mut alive, mut after) = (Names::default(), slots.clone());
            let mut crossing = std::mem::take(&mut summaries[n].crossing);
            for next in blocks[n].successors.iter().copied() {
                alive.add(&live[next]);
                after.add(&later[next]);
                crossing.add(&summaries[next].crossing);
            }
            alive.remove(&summaries[n].written);
            alive.add(&summaries[n].first);
            alive.add(slots);
            alive.add(&crossing);
            after.add(&summaries[n].read);
            summaries[n].crossing = crossing;
            if alive != live[n] || after != later[n] {
                (live[n], later[n], changed) = (alive, after, true);
            }
        }
    }
    (live, later)
}

/// What an instruction does to masks.
struct Flow {
    /// It writes EXEC.
    to_exec: bool,
    /// Masks go through it.
    carries: bool,
    /// Its result holds no thread that is not active.
    narrows: bool,
    /// It is a comparison or an operation on masks. A comparison joined with an unknown mask says nothing, and neither does
    /// what is made of both.
    splits: bool,
    /// Scalar names that it reads, and writes.
    sources: Vec<Lane>,
    written: Vec<Lane>,
}

impl Flow {
    /// Go back over it; says whether it makes something that is needed.
    fn step(&self, needed: &mut Set<Lane>, waking: bool) -> bool {
        let mut hit = self.to_exec;
        self.written.iter().for_each(|lane| hit |= needed.remove(lane));
        if hit && self.carries && !(waking && self.narrows) {
            needed.extend(&self.sources);
        }
        hit
    }
}

fn is_exec(o: &Operand) -> bool {
    ["exec", "exec_lo", "exec_hi"].iter().any(|name| o.names(name))
}

/// `implicit-def $exec` on a copy only orders it.
fn writes_exec(i: &Instruction) -> bool {
    i.defined().any(|o| is_exec(o) && !(i.has("copy") && o.is(IMPLICIT)))
}

/// Of the instructions of a block, in order.
fn flows(context: &Context<'_>, block: usize, rows: &[Row]) -> Vec<Flow> {
    let mut flows = Vec::new();
    // Scalar names that hold what EXEC is.
    let mut copies: Set<Lane> = Set::default();
    for (i, row) in context.before.blocks[block].instructions.iter().zip(rows) {
        let flow = flow(i, row, &copies);
        copies.retain(|lane| !flow.written.contains(lane));
        let reads_exec = || i.explicit().any(|o| o.is_use() && is_exec(o));
        if writes_exec(i) {
            copies.clear();
        } else if (i.has("copy") || i.has("mask-move")) && i.value("mask").is_empty() && reads_exec() {
            copies.extend(&flow.written);
        }
        flows.push(flow);
    }
    flows
}

fn flow(i: &Instruction, row: &Row, copies: &Set<Lane>) -> Flow {
    let splits = i.has("compare") || !i.value("mask").is_empty();
    if let Some(moved) = &row.moved {
        let scalar = |lane: &Lane| !lane.vector;
        let sources = moved.pairs.iter().map(|(_, from)| *from).filter(scalar).collect();
        let written = moved.pairs.iter().map(|(to, _)| *to).filter(scalar).collect();
        return Flow { to_exec: false, carries: true, narrows: false, splits, sources, written };
    }
    let scalars = |chosen: fn(&Operand) -> bool| -> Vec<Lane> {
        let operands = i.operands.iter().filter(|o| chosen(o) && !is_exec(o) && !o.names("scc"));
        operands.flat_map(|o| &o.lanes).filter(|lane| !lane.vector).copied().collect()
    };
    // Which thread it is of a mask that is known (spec 10.8).
    let finds = i.has("first-bit");
    let marked = !i.value("mask").is_empty() || !i.value("save").is_empty() || i.has("mask-move") || i.has("copy");
    Flow {
        to_exec: finds || writes_exec(i),
        carries: finds || marked,
        narrows: narrows(i, copies),
        splits,
        sources: scalars(Operand::is_use),
        written: scalars(Operand::is_def),
    }
}

fn narrows(i: &Instruction, copies: &Set<Lane>) -> bool {
    if matches!(i.value("save"), "AND" | "ANDN2") {
        return true;
    }
    let count = match i.value("mask") {
        "AND" => 2,
        "ANDN2" => 1,
        _ => 0,
    };
    let mut operands = i.explicit().filter(|o| o.is_use() && !o.names("noreg")).take(count);
    operands.any(|o| is_exec(o) || o.lanes.iter().all(|lane| copies.contains(lane)))
}

/// At each block's entry the scalar names whose values may reach EXEC; `waking`: not only to narrow it.
fn masks(context: &Context<'_>, flows: &[Vec<Flow>], waking: bool) -> Vec<Set<Lane>> {
    let mut entry: Vec<Set<Lane>> = vec![Set::default(); flows.len()];
    let mut changed = flows.iter().flatten().any(|flow| flow.to_exec);
    while changed {
        changed = false;
        for n in (0..flows.len()).rev() {
            let mut needed = behind(context, n, &entry);
            flows[n].iter().rev().for_each(|flow| _ = flow.step(&mut needed, waking));
            if needed != entry[n] {
                (entry[n], changed) = (needed, true);
            }
        }
    }
    entry
}

/// What the successors of a block need.
fn behind(context: &Context<'_>, block: usize, entry: &[Set<Lane>]) -> Set<Lane> {
    context.before.blocks[block].successors.iter().flat_map(|next| &entry[*next]).copied().collect()
}

/// For each block, the comparisons and operations on masks whose results may reach EXEC.
fn splits(context: &Context<'_>, flows: &[Vec<Flow>], masks: &[Set<Lane>], waking: bool) -> Vec<Set<u32>> {
    let mut splits = vec![Set::default(); flows.len()];
    for (n, rows) in flows.iter().enumerate() {
        let mut needed = behind(context, n, masks);
        for (number, flow) in rows.iter().enumerate().rev() {
            if flow.step(&mut needed, waking) && flow.splits {
                splits[n].insert(number as u32);
            }
        }
    }
    splits
}

/// Registers that EXEC is saved in, defined once: they stay what they are, read or not.
fn add_witnesses(context: &Context<'_>, masks: &mut [Set<Lane>]) {
    let blocks = &context.before.blocks;
    let (mut saved, mut defined): (Set<Lane>, Set<Lane>) = Default::default();
    for i in context.before.instructions() {
        let saves = !i.value("save").is_empty() || i.has("copy") || i.has("mask-move");
        let saves = saves && i.operands.iter().any(|o| o.is_use() && is_exec(o));
        for o in i.defined().filter(|o| o.vreg.is_some()) {
            saved.extend(o.lanes.iter().filter(|_| saves));
            saved.retain(|lane| !(o.lanes.contains(lane) && defined.contains(lane)));
            defined.extend(&o.lanes);
        }
    }
    let needs = |i: &Instruction| i.value("reach") == "first";
    let mut needing: Vec<bool> = blocks.iter().map(|block| block.instructions.iter().any(needs)).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (n, block) in blocks.iter().enumerate() {
            if !needing[n] && block.successors.iter().any(|next| needing[*next]) {
                (needing[n], changed) = (true, true);
            }
        }
    }
    masks.iter_mut().zip(needing).filter(|(_, needs)| *needs).for_each(|(masks, _)| masks.extend(&saved));
}
