//! Claims for the entry of every block: an optimistic forward data flow with the checker's own transfer functions.

use std::collections::{BTreeMap, BTreeSet};

use verilocc_check::certificate::{BlockPart, Take};
use verilocc_check::check::{tested, Texts, Walk};
use verilocc_check::context::Context;
use verilocc_check::entry::{self, holds_always, live_ins};
use verilocc_check::forms::{self, Mode};
use verilocc_check::lanes::{Lane, Map, Of, Set};
use verilocc_check::masks::{Mark, Mask};
use verilocc_check::model::{Done, Instruction, Refused, UNDEF};
use verilocc_check::state::Part;
use verilocc_check::threads::{Class, State, WAVE};

use crate::certificate::{is_plain, order, Block, Certificate, Claims, Entry};
use crate::liveness::{wanted, Asked, Names, Splits, Wanted};
use crate::pairing::{pair_all, Pairing};
use crate::program::{Place, Program};

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

/// Kind, whether it is active, and masks, by their first name, with whether it is in them.
type Membership = (char, bool, Vec<(Lane, bool)>);

/// What holds at a block's entry on all paths seen so far: parts by class, and the names of masks, each in order.
pub struct Observed {
    scalars: Part,
    classes: Vec<(Membership, Part)>,
    masks: Vec<Vec<Lane>>,
    nonempty: Set<Lane>,
    beside: Set<Lane>,
    some: bool,
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
            let (state, repeats) = run(context, texts, &found, n, first)?;
            found.parts[n].repeats = repeats;
            for next in blocks[n].successors.iter().copied() {
                let seen = observe(context, n, next, &state, &needs, options.joined && !options.witnesses);
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

/// Execute a block without asking that anything agrees, and choose what is repeated. The state behind it. `compare`: whether
/// pairs are the same but for what they read.
fn run<'a>(
    context: &'a Context<'a>, texts: &'a Texts, found: &Found, block: usize, compare: bool,
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
            walk.step(*take, &options)?;
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

impl Observed {
    fn state(&self, context: &Context<'_>, live: &Set<u32>) -> State {
        let mut state = State::new(self.scalars.clone(), context);
        let mut numbers: Map<Lane, u32> = Map::default();
        for names in &self.masks {
            let mask = state.facts.new_mask();
            state.facts.set_mask(names, mask);
            numbers.insert(names[0], mask);
        }
        state.facts.mark(&self.nonempty.iter().map(|first| numbers[first]).collect::<Vec<_>>(), Mark::Nonempty);
        for ((kind, active, member), part) in &self.classes {
            let mut class = Class::new(*kind, *active, part.clone());
            class.masks = member.iter().map(|(first, inside)| (numbers[first], *inside)).collect();
            state.classes.push(class);
        }
        entry::note_undeclared(context, live, &mut state);
        state.begin(&context.exec, self.some);
        state.facts.beside.extend(self.only_beside().map(|first| numbers[first]));
        state
    }

    /// Masks of each of which it is claimed that some thread is active, or in it.
    fn only_beside(&self) -> impl Iterator<Item = &Lane> {
        self.beside.iter().filter(|first| !self.some && !self.nonempty.contains(first))
    }

    fn entry(&self, written: impl Fn(Lane) -> Lane) -> Entry {
        let numbers: Map<Lane, u32> = self.masks.iter().zip(0..).map(|(names, number)| (names[0], number)).collect();
        let class = |((kind, active, member), part): &(Membership, Part)| {
            let member = member.iter().map(|(first, inside)| (numbers[first], *inside)).collect();
            crate::certificate::Class { kind: *kind, active: *active, member, claims: claims(part, &written) }
        };
        Entry {
            classes: self.classes.iter().map(class).collect(),
            scalars: claims(&self.scalars, &written),
            masks: (0..).zip(self.masks.iter().cloned()).collect(),
            nonempty: self.nonempty.iter().map(|first| numbers[first]).collect(),
            beside: self.only_beside().map(|first| numbers[first]).collect(),
            some: self.some,
        }
    }
}

fn claims(part: &Part, written: impl Fn(Lane) -> Lane) -> Claims {
    let mut claims = Claims::default();
    for place in part.all_places() {
        claims.pairs.extend(part.holds(place).iter().map(|name| (*name, written(place))));
    }
    for name in doubtful(part) {
        if part.is_undefined(name) {
            claims.undefined.push(name);
        } else {
            claims.doubtful.push(name);
        }
    }
    claims
}

/// Names that are doubtful or undefined, each once.
fn doubtful(part: &Part) -> Set<Lane> {
    part.all_names().filter(|name| part.is_doubtful(*name)).collect()
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

/// What holds behind a block, on the way to a successor, as far as it is worth claiming.
fn observe(
    context: &Context<'_>, block: usize, successor: usize, state: &State, needs: &Wanted, joined: bool,
) -> Observed {
    let (test, target) = tested(&context.before.blocks[block]).unwrap_or_default();
    let zero = test.ends_with('0') == (target == successor);
    let exec_is_zero = test.starts_with("exec").then_some(zero);
    let scc = state.facts.scc.filter(|_| test.starts_with("scc") && !zero);
    let nobody = exec_is_zero == Some(true);
    let known = |mask: &Mask| {
        let by_scc = scc.is_some_and(|scc| mask.numbers().contains(&scc));
        by_scc || state.facts.is(mask, Mark::Nonempty) || nobody && state.facts.is_beside(mask)
    };
    let ghosts: Set<Lane> = state.facts.all_names().filter(|name| name.of == Of::Read).collect();
    let masks = runs(context, state, needs.masks[successor].union(&ghosts).copied());
    let numbers: Vec<(Lane, Mask)> = masks.iter().map(|names| (names[0], state.facts.masks_of(names))).collect();
    let declared = live_ins(context, &context.after.blocks[successor]);
    let kept = |part: &Part, live: &[&Names], every: bool| {
        let is_live = |name: Lane| live.iter().any(|live| needs.has(live, name));
        keep(context, part, &declared, every, is_live)
    };
    let (live, later) = (&needs.live[successor], &needs.read_later[successor]);
    let mut scalars = kept(state.wave(), &[live], true);
    let mut classes: Vec<(Membership, Part)> = Vec::new();
    for class in state.threads().filter(|class| !(nobody && class.active && class.kind != 'P')) {
        let told_apart = |first: &Lane| {
            class.kind != 'P' && (!joined || needs.waking[successor].contains(first) || ghosts.contains(first))
        };
        let told = numbers.iter().filter(|(first, _)| told_apart(first));
        let member = told.filter_map(|(first, mask)| Some((*first, mask.is_in(class)?))).collect();
        let read: &[&Names] = match () {
            () if class.active => &[live],
            // Mostly nobody wakes them.
            () if joined && class.kind == 'O' => &[],
            () => &[later],
        };
        let part = kept(&class.part, read, class.active);
        let at: Membership = (class.kind, class.active, member);
        match classes.iter_mut().find(|(other, _)| *other == at) {
            Some((_, known)) => *known = meet_parts([known, &part], [&scalars, &scalars]),
            None => classes.push((at, part)),
        }
    }
    let in_vectors = |name: &Lane| classes.iter().any(|(_, part)| !part.places(*name).is_empty());
    doubtful(state.wave()).into_iter().filter(in_vectors).for_each(|name| scalars.set_doubtful(name));
    let some = exec_is_zero.map_or(state.facts.some_active(), |zero| !zero);
    let first = |(first, _): &(Lane, Mask)| *first;
    let nonempty: Set<Lane> = numbers.iter().filter(|(_, mask)| known(mask)).map(first).collect();
    let is_beside = |(_, mask): &&(Lane, Mask)| some || known(mask) || state.facts.is_beside(mask);
    let beside = numbers.iter().filter(is_beside).map(first).collect();
    Observed { scalars, classes, masks, nonempty, beside, some }
}

/// Registers of wave size, and cells, that hold a mask which may reach EXEC, in the order of their first names.
fn runs(context: &Context<'_>, state: &State, names: impl Iterator<Item = Lane>) -> Vec<Vec<Lane>> {
    let width = context.exec.len();
    let mut names: Vec<Lane> = names.filter(|name| !name.is_exec()).collect();
    names.sort_by_cached_key(order);
    let mut found: Vec<Vec<Lane>> = Vec::new();
    let mut cells: Vec<(u32, Vec<Vec<Lane>>)> = Vec::new();
    for name in names {
        if is_plain(&name) || name.of == Of::Read && name.c == 0 {
            let keys: Option<Vec<Lane>> = (0..width as u32).map(|k| name.advanced(k, context.coarse)).collect();
            let keys = keys.unwrap_or_default().into_iter().map(|key| key.with_vector(false)).collect::<Vec<_>>();
            if !state.facts.masks_of(&keys).numbers().is_empty() {
                found.push(keys);
            }
        } else if name.cell != 0 {
            // A mask is written to cells part by part.
            for part in 0..width {
                let parts = state.facts.parts_of(name, name).unwrap_or_default();
                let Some((mask, _)) = parts.into_iter().rfind(|(_, of)| *of == part as u32) else { continue };
                let at = cells.iter().position(|(other, _)| *other == mask);
                let at = at.unwrap_or_else(|| {
                    cells.push((mask, vec![Vec::new(); width]));
                    cells.len() - 1
                });
                cells[at].1[part].push(name);
            }
        }
    }
    for (_, parts) in cells {
        let count = parts.iter().map(Vec::len).min().unwrap_or(0);
        found.extend((0..count).map(|n| parts.iter().map(|names| names[n]).collect()));
    }
    found
}

/// What is worth claiming: names that are read later, in places of which something may be claimed (spec 4.3). `every`: that is
/// asked of vector places too.
fn keep(context: &Context<'_>, part: &Part, declared: &Set<u32>, every: bool, is_live: impl Fn(Lane) -> bool) -> Part {
    let mut new = Part::default();
    let worth = |name: &&Lane| !is_plain(name) || is_live(**name);
    for place in part.all_places().filter(|place| place.of != Of::Unchanged) {
        let asked = place.of == Of::Unit && (every || !place.vector);
        let only = asked && !holds_always(context, place) && !declared.contains(&place.a);
        let own = Lane::entry(place.a);
        let pristine = place.cell == 0 && !context.touched_after.contains(&place.a);
        let may = |name: &&Lane| !only || pristine && **name == own;
        part.holds(place).iter().filter(may).filter(worth).for_each(|name| new.add(place, *name));
    }
    for name in doubtful(part) {
        if part.is_undefined(name) && worth(&&name) {
            new.set_undefined(name);
        } else if !new.places(name).is_empty() {
            new.set_doubtful(name);
        }
    }
    new
}

/// What both say: what one says is held, the other may have undefined.
fn meet_parts([a, b]: [&Part; 2], [a_scalars, b_scalars]: [&Part; 2]) -> Part {
    let mut new = Part::default();
    for (one, other, scalars) in [(a, b, b_scalars), (b, a, a_scalars)] {
        for place in one.all_places() {
            let held = other.holds(place);
            let both = |name: &&Lane| held.contains(name) || other.is_undefined(**name) || scalars.is_undefined(**name);
            one.holds(place).iter().filter(both).for_each(|name| new.add(place, *name));
        }
    }
    for name in doubtful(a).into_iter().chain(doubtful(b)) {
        if a.is_undefined(name) && b.is_undefined(name) {
            new.set_undefined(name);
        } else {
            new.set_doubtful(name);
        }
    }
    new
}

/// What is claimed on both ways to a block.
fn meet(a: &Observed, b: &Observed) -> Observed {
    let masks: Vec<Vec<Lane>> =
        a.masks.iter().filter(|names| b.masks.iter().any(|other| other[0] == names[0])).cloned().collect();
    let left: Set<Lane> = masks.iter().map(|names| names[0]).collect();
    let scalars = meet_parts([&a.scalars, &b.scalars], [&a.scalars, &b.scalars]);
    // Each with the scalars of those that it comes from.
    let mut classes: Vec<(Membership, Part, &Part)> = Vec::new();
    for side in [a, b] {
        for ((kind, active, member), part) in &side.classes {
            let member = member.iter().copied().filter(|(first, _)| left.contains(first)).collect();
            let at: Membership = (*kind, *active, member);
            match classes.iter_mut().find(|(other, ..)| *other == at) {
                Some((_, known, owner)) => {
                    *known = meet_parts([known, part], [*owner, &side.scalars]);
                    *owner = &side.scalars;
                }
                None => classes.push((at, part.clone(), &side.scalars)),
            }
        }
    }
    let both = |a: &Set<Lane>, b: &Set<Lane>| a.iter().filter(|n| b.contains(n) && left.contains(n)).copied().collect();
    Observed {
        scalars,
        classes: classes.into_iter().map(|(at, part, _)| (at, part)).collect(),
        nonempty: both(&a.nonempty, &b.nonempty),
        beside: both(&a.beside, &b.beside),
        some: a.some && b.some,
        masks,
    }
}

fn same(a: &Observed, b: &Observed) -> bool {
    let by_first = |observed: &Observed| -> BTreeMap<Lane, Vec<Lane>> {
        observed.masks.iter().map(|names| (names[0], names.clone())).collect()
    };
    (&a.nonempty, &a.beside, a.some) == (&b.nonempty, &b.beside, b.some)
        && a.classes.len() == b.classes.len()
        && by_first(a) == by_first(b)
        && same_part(&a.scalars, &b.scalars)
        && a.classes.iter().all(|(at, part)| b.classes.iter().any(|(other, own)| at == other && same_part(part, own)))
}

fn same_part(a: &Part, b: &Part) -> bool {
    let alike = |place: Lane| {
        let (x, y) = (a.holds(place), b.holds(place));
        x.len() == y.len() && x.iter().all(|name| y.contains(name))
    };
    let says = |part: &Part| -> BTreeSet<(Lane, bool)> {
        doubtful(part).into_iter().map(|name| (name, part.is_undefined(name))).collect()
    };
    a.all_places().count() == b.all_places().count() && a.all_places().all(alike) && says(a) == says(b)
}

/// Names that Q reads otherwise than P, with the number of the instruction, and whether something is
/// wrong on the path.
#[derive(Default)]
pub struct Wrong {
    pub reads: Set<(u32, Lane)>,
    pub on_path: bool,
}

/// What a block reads that does not agree.
///
/// # Errors
/// It cannot be executed.
pub fn wrong_reads<'a>(context: &'a Context<'a>, texts: &'a Texts, found: &'a Found, block: usize) -> Done<Wrong> {
    let (p, q) = (&context.before.blocks[block].instructions, &context.after.blocks[block].instructions);
    let mut walk =
        Walk::of(context, texts, &found.parts[block], block, begin(context, found.entries[block].as_ref(), block));
    walk.is_search = true;
    let mut wrong = Wrong::default();
    for (count, take) in &found.pairing.steps[block] {
        for _ in 0..*count {
            let (i, j) = walk.at;
            let repeat = found.parts[block].repeats.get(&(j as u32)).filter(|_| *take == Take::After);
            if *take == Take::Pair {
                forms::compare(context, &p[i], &q[j], Mode::Pair)?;
                note_wrong(&mut walk, &p[i], &q[j], i as u32, &mut wrong);
            }
            walk.step(*take, repeat.map_or(&[], std::slice::from_ref))?;
            if repeat.is_some() && walk.repeated.is_none() {
                wrong.on_path = true;
            }
        }
    }
    Ok(wrong)
}

/// What a pair reads that does not agree.
fn note_wrong(walk: &mut Walk<'_>, p: &Instruction, q: &Instruction, number: u32, wrong: &mut Wrong) {
    let (_, reading, upper) = walk.reading(p);
    let state = &walk.state;
    for (n, (x, y)) in p.operands.iter().zip(&q.operands).enumerate() {
        if !x.is_use() || x.is(UNDEF) && reading.mask != Some(n) {
            continue;
        }
        let readers = reading.of(n);
        for (at, (name, place)) in x.lanes.iter().zip(&y.lanes).enumerate() {
            if reading.skip.contains(&(n, at)) || upper.contains(&(n, at)) {
                continue;
            }
            let told = !y.is(UNDEF) || x.is(UNDEF);
            let fits = |class: &usize| {
                let class = &state.classes[*class];
                state.reads(class, *name, *place) && (told || state.is_undefined(*name, &readers))
            };
            let classes = if name.vector { &readers[..] } else { &[WAVE] };
            if !classes.iter().all(fits) && !(name == place && walk.revived.contains(place)) {
                wrong.reads.insert((number, *name));
                wrong.on_path |= !name.vector || !classes.iter().all(|n| state.classes[*n].kind != 'P' || fits(n));
            }
        }
    }
}
