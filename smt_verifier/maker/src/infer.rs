//! Claims for the entry of every block: an optimistic forward data flow with the checker's own transfer functions.

use std::collections::BTreeSet;

use verilocc_check::certificate::{BlockPart, Take};
use verilocc_check::check::{Texts, Walk};
use verilocc_check::context::Context;
use verilocc_check::entry::{self, live_ins};
use verilocc_check::forms::{self, Mode};
use verilocc_check::lanes::{Lane, Map, Of, Set};
use verilocc_check::model::{Done, Instruction, Operand, Refused};
use verilocc_check::threads::{Class, State};

use crate::certificate::{Block, Certificate};
use crate::liveness::{wanted, Asked, Splits};
use crate::observed::{meet, same, Observed, Scope};
use crate::pairing::{pair_all, Pairing};
use crate::program::{Place, Program, Row};

/// Rounds over all blocks until the claims must have settled.
const ROUNDS: usize = 200;

/// How a certificate is made.
#[derive(Clone, Copy, Default)]
pub struct Options {
    /// Claim more of masks, to show that some thread is active.
    pub witnesses: bool,
    /// Classes are told apart only by the masks that may wake them, and no comparison splits them. That is enough but where a
    /// condition is asked again, or all threads must be active behind an else.
    pub joined: bool,
    /// Those are split by the results that decide whom a mask wakes. Then, and unless `joined`, what is read of threads that
    /// wait is claimed where it is not live, too.
    pub waking_splits: bool,
    /// Pure instructions pair as they stand, whatever their readers call for.
    pub in_order: bool,
    /// A block without successors, in which nothing is repeated, is not executed: nobody needs what holds at its end, and
    /// what is wrong in it, the checker says.
    pub hasty: bool,
}

/// What was found for one function.
pub struct Found {
    pub pairing: Pairing,
    /// Of each block what is split and repeated.
    pub parts: Vec<BlockPart>,
    pub entries: Vec<Option<Observed>>,
}

/// A certificate for one function; whether it shows anything is for a checker to say. `unpaired`: pure instructions of P that
/// have no partner, because they seem to have the wrong one.
///
/// # Errors
/// Something that no certificate could mend, or the claims do not settle.
pub fn find(
    context: &mut Context<'_>, texts: &Texts, program: &Program, unpaired: &BTreeSet<Place>, options: Options,
) -> Done<Found> {
    let pairing = pair_all(context, program, unpaired, options.in_order);
    context.repeated = pairing.choices.values().flatten().copied().collect();
    let context: &Context<'_> = context;
    let splits = match (options.joined, options.waking_splits) {
        (false, _) => Some(Splits::All),
        (true, true) => Some(Splits::Waking),
        (true, false) => None,
    };
    let waiting = options.waking_splits || !options.joined;
    let needs = wanted(context, program, Asked { witnesses: options.witnesses, waiting, splits });
    let moves = program.rows[0].iter().flatten().filter_map(|row| row.moved.as_ref()).flat_map(|moved| &moved.pairs);
    let cells = moves.flat_map(|(to, from)| [*to, *from]).filter(|lane| lane.cell != 0).collect();
    let scope = Scope { context, needs: &needs, cells, joined: options.joined && !options.witnesses };
    let blocks = &context.before.blocks;
    let part = |splits: &Set<u32>| BlockPart { splits: splits.clone(), ..BlockPart::default() };
    let parts = needs.splits.iter().map(part).collect();
    let mut found = Found { pairing, parts, entries: blocks.iter().map(|_| None).collect() };
    let mut compared = vec![false; blocks.len()];
    let mut pending = BTreeSet::from([0]);
    for _ in 0..ROUNDS {
        for n in program.order.iter().copied() {
            if !pending.remove(&n) {
                continue;
            }
            let repeats = found.pairing.choices.keys().any(|(block, _)| *block as usize == n);
            if options.hasty && blocks[n].successors.is_empty() && !repeats {
                continue;
            }
            let first = !std::mem::replace(&mut compared[n], true);
            let (state, repeats) = run(context, texts, &program.rows[0][n], &found, n, first)?;
            program.spend(state.now as usize * state.classes.len())?;
            found.parts[n].repeats = repeats;
            for next in blocks[n].successors.iter().copied() {
                let seen = scope.observe(n, next, &state);
                let old = found.entries[next].as_ref();
                let new = if let Some(old) = old { meet(old, &seen) } else { seen };
                if old.is_none_or(|old| !same(old, &new)) {
                    found.entries[next] = Some(new);
                    pending.insert(next);
                }
            }
        }
        if pending.is_empty() {
            return Ok(found);
        }
    }
    Err(Refused::new("certificate", "the claims do not settle", ""))
}

/// The state at a block's entry.
pub fn begin(context: &Context<'_>, observed: Option<&Observed>, block: usize) -> State {
    let text = &context.after.blocks[block];
    let mut state = match observed {
        None => entry::of_function(context, text),
        Some(observed) => observed.state(context, &live_ins(context, text)),
    };
    entry::undefine_undeclared(context, block, &mut state);
    state
}

/// Execute a block without asking that anything agrees, and choose what is repeated. The state behind it. `rows`: those of P.
/// `compare`: whether
/// pairs are the same but for what they read.
fn run<'a>(
    context: &'a Context<'a>, texts: &'a Texts, rows: &[Row], found: &Found, block: usize, compare: bool,
) -> Done<(State, Map<u32, Place>)> {
    let (p, q) = (&context.before.blocks[block].instructions, &context.after.blocks[block].instructions);
    let mut walk =
        Walk::of(context, texts, &found.parts[block], block, begin(context, found.entries[block].as_ref(), block));
    walk.is_search = true;
    let mut repeats = Map::default();
    for (count, take) in &found.pairing.steps[block] {
        for _ in 0..*count {
            let (i, j) = walk.at;
            let choices = match take {
                Take::After => found.pairing.choices.get(&(block as u32, j as u32)),
                _ => None,
            };
            let mut options = choices.cloned().unwrap_or_default();
            options.sort_by_key(|of| is_forgotten(context, &walk.state, *of));
            if compare && *take == Take::Pair {
                forms::compare(context, &p[i], &q[j], Mode::Pair)?;
            }
            // Classes that EXEC divides stand side by side.
            let divides = *take == Take::Pair && p[i].defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()));
            if divides {
                let marks = (0..).map(|n| u32::MAX - n);
                walk.state.classes.iter_mut().zip(marks).for_each(|(class, mark)| _ = class.masks.insert(mark, true));
            }
            let of_p = *take != Take::After;
            let vague = if of_p { without_mask(&walk.state, &p[i]) } else { Vec::new() };
            let fresh = if of_p { fresh_cells(context, &walk.state, &p[i], &rows[i]) } else { Vec::new() };
            walk.step(*take, &options)?;
            vague.into_iter().for_each(|name| walk.state.facts.forget(name));
            fresh.into_iter().for_each(|name| walk.state.forget(name, &[]));
            if divides {
                put_side_by_side(&mut walk.state.classes);
            }
            if let Some(first) = options.first() {
                repeats.insert(j as u32, walk.repeated.unwrap_or(*first));
            }
        }
    }
    walk.end();
    Ok((walk.state, repeats))
}

/// What an operation on masks reads of which nothing is known, and does not write. The second checker gives it a mask of its own,
/// the first one none: it is not claimed.
fn without_mask(state: &State, p: &Instruction) -> Vec<Lane> {
    let values = ["mask", "save", "blend"].iter().any(|word| !p.value(word).is_empty());
    if !values && !p.has("mask-move") && !p.has("first-bit") {
        return Vec::new();
    }
    let written = p.lanes(Operand::is_def);
    let unknown = |lane: &Lane| state.facts.parts_of(*lane, *lane).is_none_or(|parts| parts.is_empty());
    let vague =
        |lane: &Lane| !lane.vector && !lane.is_scc() && !lane.is_exec() && !written.contains(lane) && unknown(lane);
    p.lanes(Operand::is_use).into_iter().filter(vague).collect()
}

/// Cells that the second checker says are undefined, and the first one does not: of a physical register that a save makes anew
/// those of which nothing is known, and those of a register of which a half is undefined, lane by lane.
fn fresh_cells(context: &Context<'_>, state: &State, p: &Instruction, row: &Row) -> Vec<Lane> {
    let Some(moved) = &row.moved else {
        let upper = |lane: &Lane| lane.vector && *lane != lane.base();
        let lost = p.lanes(Operand::is_def).into_iter().filter(|lane| p.has("undefines") && upper(lane));
        return lost.flat_map(|lane| state.cells_in(lane)).collect();
    };
    let written = |cell: &Lane| moved.pairs.iter().any(|(to, _)| to == cell);
    let known = |cell: &Lane| state.wave().is_doubtful(*cell) || !state.wave().places(*cell).is_empty();
    let fresh = |cell: &Lane| cell.of == Of::Unit && !known(cell) && !written(cell);
    moved.lost_cells(context).into_iter().filter(fresh).collect()
}

/// Each class has one mask more than it should, by which those that come from one are known.
fn put_side_by_side(classes: &mut [Class]) {
    let count = classes.len() as u32;
    classes.sort_by_cached_key(|class| {
        (u32::MAX - count..=u32::MAX).rev().find(|mask| class.masks.contains_key(mask)).map(|mask| u32::MAX - mask)
    });
    classes.iter_mut().for_each(|class| class.masks.retain(|mask, _| *mask < u32::MAX - count));
}

/// Whether nobody reads what an instruction of P has made any more: it is not what is repeated.
fn is_forgotten(context: &Context<'_>, state: &State, (block, number): Place) -> bool {
    let Some(place) = context.resolve(Lane::new(Of::Result, block, number, 0), true) else { return true };
    if place.vector {
        state.threads().any(|class| class.active && class.part.holds(place).is_empty())
    } else {
        state.wave().holds(place).is_empty()
    }
}

impl Found {
    /// What is found, as a certificate has it: places in slots have Q's numbers.
    pub fn certificate<'a>(&self, context: &Context<'a>) -> Certificate<'a> {
        let of_q: Map<u32, u32> = context.objects.stack.iter().map(|(of_q, of_p)| (*of_p, *of_q)).collect();
        let written = |place: Lane| match place.of {
            Of::Slot => Lane { a: of_q.get(&place.a).copied().unwrap_or(place.a), ..place },
            _ => place,
        };
        let blocks = self.pairing.steps.iter().zip(&self.parts).zip(&self.entries);
        let block = |((steps, part), entry): ((&Vec<_>, &BlockPart), &Option<Observed>)| Block {
            steps: steps.clone(),
            repeats: part.repeats.iter().map(|(at, of)| (*at, *of)).collect(),
            splits: part.splits.iter().copied().collect(),
            entry: entry.as_ref().map(|entry| entry.entry(written)),
        };
        let function = &context.before.name;
        let mut certificate = Certificate { function, blocks: blocks.map(block).collect(), coarse: context.coarse };
        if !self.pairing.choices.is_empty() {
            certificate.drop_unused();
        }
        certificate
    }
}
