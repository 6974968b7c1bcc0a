//! What holds at a block's entry on the paths seen so far, as far as it is worth claiming.

use std::collections::BTreeMap;

use verilocc_check::check::tested;
use verilocc_check::context::Context;
use verilocc_check::entry::{self, holds_always, live_ins};
use verilocc_check::lanes::{Lane, Map, Of, Set};
use verilocc_check::masks::{Mark, Mask};
use verilocc_check::state::Part;
use verilocc_check::threads::{Class, State};

use crate::certificate::{self, is_plain, order, Claims, Entry};
use crate::liveness::{Names, Wanted};

/// Kind, whether it is active, and masks, by their first name, with whether it is in them.
type Membership = (char, bool, Vec<(Lane, bool)>);

/// What one part of the state says, in order: places with the names that they hold, and names that are undefined, and doubtful
/// (the first ones too).
#[derive(Clone, Default, PartialEq, Eq)]
struct Known {
    holds: Vec<(Lane, Lane)>,
    undefined: Vec<Lane>,
    doubtful: Vec<Lane>,
}

impl Known {
    fn part(&self) -> Part {
        let mut part = Part::default();
        self.holds.iter().for_each(|(place, name)| part.add(*place, *name));
        self.undefined.iter().for_each(|name| part.set_undefined(*name));
        self.doubtful.iter().for_each(|name| part.set_doubtful(*name));
        part
    }

    fn has_undefined(&self, name: &Lane) -> bool {
        self.undefined.binary_search(name).is_ok()
    }

    fn claims(&self, written: impl Fn(Lane) -> Lane) -> Claims {
        Claims {
            pairs: self.holds.iter().map(|(place, name)| (*name, written(*place))).collect(),
            undefined: self.undefined.clone(),
            doubtful: self.doubtful.iter().filter(|name| !self.has_undefined(name)).copied().collect(),
        }
    }

    /// What both say: what one says is held, the other may have undefined, or the scalars that belong to it.
    fn meet(&self, other: &Known, [scalars, of_other]: [&Known; 2]) -> Known {
        let mut holds = Vec::with_capacity(self.holds.len());
        let (mut own, mut others) = (self.holds.iter().peekable(), other.holds.iter().peekable());
        while let Some(first) = own.peek().into_iter().chain(others.peek()).min().copied() {
            let said = [own.next_if_eq(&first).is_some(), others.next_if_eq(&first).is_some()];
            let may_have = |said: bool, part: &Known, scalars: &Known| {
                said || part.has_undefined(&first.1) || scalars.has_undefined(&first.1)
            };
            if may_have(said[0], self, scalars) && may_have(said[1], other, of_other) {
                holds.push(*first);
            }
        }
        let undefined = self.undefined.iter().filter(|name| other.has_undefined(name)).copied().collect();
        let doubtful = self.doubtful.iter().chain(&other.doubtful).copied().collect();
        Known { holds, undefined, doubtful: ordered(doubtful) }
    }
}

/// In order, each once.
fn ordered<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

/// What holds at a block's entry on all paths seen so far: parts by class, and the names of masks, each in order.
pub struct Observed {
    scalars: Known,
    classes: Vec<(Membership, Known)>,
    masks: Vec<Vec<Lane>>,
    nonempty: Set<Lane>,
    beside: Set<Lane>,
    some: bool,
}

impl Observed {
    /// The state that is claimed.
    pub fn state(&self, context: &Context<'_>, live: &Set<u32>) -> State {
        let mut state = State::new(self.scalars.part(), context);
        let mut numbers: Map<Lane, u32> = Map::default();
        for names in &self.masks {
            let mask = state.facts.new_mask();
            state.facts.set_mask(names, mask);
            numbers.insert(names[0], mask);
        }
        state.facts.mark(&self.nonempty.iter().map(|first| numbers[first]).collect::<Vec<_>>(), Mark::Nonempty);
        for ((kind, active, member), part) in &self.classes {
            let mut class = Class::new(*kind, *active, part.part());
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

    /// As a certificate has it; `written`: how a place is written there.
    pub fn entry(&self, written: impl Fn(Lane) -> Lane) -> Entry {
        let numbers: Map<Lane, u32> = self.masks.iter().zip(0..).map(|(names, number)| (names[0], number)).collect();
        let class = |((kind, active, member), part): &(Membership, Known)| {
            let member = member.iter().map(|(first, inside)| (numbers[first], *inside)).collect();
            certificate::Class { kind: *kind, active: *active, member, claims: part.claims(&written) }
        };
        Entry {
            classes: self.classes.iter().map(class).collect(),
            scalars: self.scalars.claims(&written),
            masks: (0..).zip(self.masks.iter().cloned()).collect(),
            nonempty: self.nonempty.iter().map(|first| numbers[first]).collect(),
            beside: self.only_beside().map(|first| numbers[first]).collect(),
            some: self.some,
        }
    }
}

/// What is worth claiming of a function.
pub struct Scope<'a> {
    pub context: &'a Context<'a>,
    pub needs: &'a Wanted,
    /// The cells that P's moves name.
    pub cells: Set<Lane>,
    /// Classes are told apart only by the masks that may wake them.
    pub joined: bool,
}

impl Scope<'_> {
    /// What holds behind a block, on the way to a successor, as far as it is worth claiming.
    pub fn observe(&self, block: usize, successor: usize, state: &State) -> Observed {
        let (context, needs, joined) = (self.context, self.needs, self.joined);
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
            self.keep(part, &declared, every, is_live)
        };
        let (live, later) = (&needs.live[successor], &needs.read_later[successor]);
        let mut scalars = kept(state.wave(), &[live], true);
        let mut classes: Vec<(Membership, Known)> = Vec::new();
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
                Some((_, known)) => *known = known.meet(&part, [&scalars, &scalars]),
                None => classes.push((at, part)),
            }
        }
        let held = classes.iter().flat_map(|(_, part)| &part.holds).map(|(_, name)| *name);
        let in_vectors = held.filter(|name| !name.vector && state.wave().is_doubtful(*name));
        scalars.doubtful = ordered(scalars.doubtful.iter().copied().chain(in_vectors).collect());
        let some = exec_is_zero.map_or(state.facts.some_active(), |zero| !zero);
        let first = |(first, _): &(Lane, Mask)| *first;
        let nonempty: Set<Lane> = numbers.iter().filter(|(_, mask)| known(mask)).map(first).collect();
        let is_beside = |(_, mask): &&(Lane, Mask)| some || known(mask) || state.facts.is_beside(mask);
        let beside = numbers.iter().filter(is_beside).map(first).collect();
        Observed { scalars, classes, masks, nonempty, beside, some }
    }

    /// What is worth claiming: names that are read later, in places of which something may be claimed (spec 4.3). `every`: that is
    /// asked of vector places too.
    fn keep(&self, part: &Part, declared: &Set<u32>, every: bool, is_live: impl Fn(Lane) -> bool) -> Known {
        let context = self.context;
        let worth = |name: &&Lane| !is_plain(name) || is_live(**name);
        let mut holds = Vec::new();
        for place in part.all_places().filter(|place| place.of != Of::Unchanged) {
            let asked = place.of == Of::Unit && (every || !place.vector);
            let only = asked && !holds_always(context, place) && !declared.contains(&place.a);
            let own = Lane::entry(place.a);
            let pristine = || place.cell == 0 && !context.touched_after.contains(&place.a);
            let may = |name: &&Lane| !only || **name == own && pristine();
            holds.extend(part.holds(place).iter().filter(may).filter(worth).map(|name| (place, *name)));
        }
        let held: Set<Lane> = match part.all_doubtful().next() {
            Some(_) => holds.iter().map(|(_, name)| *name).collect(),
            None => Set::default(),
        };
        // The second checker speaks of the cells of all registers, the first one of those that P names.
        let named = |name: &Lane| name.cell == 0 || self.cells.contains(name) || held.contains(name);
        let undefined = part.all_doubtful().filter(|name| part.is_undefined(*name) && named(name) && worth(&name));
        let undefined: Vec<Lane> = ordered(undefined.collect());
        let doubtful = part.all_doubtful().filter(|name| held.contains(name)).chain(undefined.iter().copied());
        Known { holds: ordered(holds), doubtful: ordered(doubtful.collect()), undefined }
    }
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

/// What is claimed on both ways to a block.
pub fn meet(a: &Observed, b: &Observed) -> Observed {
    let masks: Vec<Vec<Lane>> =
        a.masks.iter().filter(|names| b.masks.iter().any(|other| other[0] == names[0])).cloned().collect();
    let left: Set<Lane> = masks.iter().map(|names| names[0]).collect();
    let scalars = a.scalars.meet(&b.scalars, [&a.scalars, &b.scalars]);
    // Each with the scalars of those that it comes from.
    let mut classes: Vec<(Membership, Known, &Known)> = Vec::new();
    for side in [a, b] {
        for ((kind, active, member), part) in &side.classes {
            let member = member.iter().copied().filter(|(first, _)| left.contains(first)).collect();
            let at: Membership = (*kind, *active, member);
            match classes.iter_mut().find(|(other, ..)| *other == at) {
                Some((_, known, owner)) => {
                    *known = known.meet(part, [*owner, &side.scalars]);
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

/// Whether both say the same.
pub fn same(a: &Observed, b: &Observed) -> bool {
    let by_first = |observed: &Observed| -> BTreeMap<Lane, Vec<Lane>> {
        observed.masks.iter().map(|names| (names[0], names.clone())).collect()
    };
    (&a.nonempty, &a.beside, a.some) == (&b.nonempty, &b.beside, b.some)
        && a.classes.len() == b.classes.len()
        && by_first(a) == by_first(b)
        && a.scalars == b.scalars
        && a.classes.iter().all(|(at, part)| b.classes.iter().any(|(other, own)| at == other && part == own))
}
