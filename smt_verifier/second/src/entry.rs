//! What holds at a block's entry: the function's (spec 4.1), or claims (4.2, 4.3), which follow on every edge (12.1).

use std::collections::BTreeMap;

use crate::context::Context;
use crate::header::object;
use crate::lanes::{Lane, Map, Of, Set, FIRST_SCALAR, VCC};
use crate::masks::{Mark, Mask};
use crate::model::{ensure, Block, Done, Operand, IMPLICIT, UNDEF};
use crate::state;
use crate::threads::{Class, State, WAVE};

/// Claims about the scalar part or about some classes, with all their ranges written out.
#[derive(Default)]
pub struct Claims {
    pub holds: Vec<(Lane, Lane)>,
    pub undefined: Vec<Lane>,
    pub doubtful: Vec<Lane>,
}

/// What is claimed of one class: its kind, its masks, numbers of `Claimed::claims`, and names that may be undefined.
#[derive(Default)]
pub struct Part {
    pub kind: char,
    pub active: bool,
    pub masks: Map<u32, bool>,
    pub claims: Vec<usize>,
    pub doubtful: Set<Lane>,
}

/// The claims of one block. The scalar part is the first class.
#[derive(Default)]
pub struct Claimed {
    pub classes: Vec<Part>,
    /// Masks by number, each with the names that hold its parts.
    pub masks: BTreeMap<u32, Vec<Lane>>,
    pub nonempty: Vec<u32>,
    pub beside: Vec<u32>,
    pub some: bool,
    pub claims: Vec<Claims>,
    pub place: String,
}

/// Which masks a class is in, and which it is out of: two bits of each mask, in order.
struct Membership(Vec<u64>);

impl Membership {
    fn of(masks: impl Iterator<Item = u32>, is_in: impl Fn(u32) -> Option<bool>) -> Self {
        let mut bits = Vec::new();
        for (at, mask) in masks.enumerate() {
            if at % 32 == 0 {
                bits.push(0);
            }
            let known = is_in(mask).map_or(0, |inside| 1 + u64::from(inside));
            if let Some(word) = bits.last_mut() {
                *word |= known << (2 * (at % 32));
            }
        }
        Membership(bits)
    }

    /// All that it says the other one says too.
    fn is_said_by(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(asked, known)| asked & known == *asked)
    }
}

impl Claimed {
    /// There is one path, masks are scalars and a wave wide, and no other mask is named.
    pub fn is_complete(&self, wave: usize) -> bool {
        let paths = self.classes.iter().filter(|class| class.kind == 'P').count();
        let facts = self.nonempty.iter().chain(&self.beside);
        let mut named = self.classes.iter().flat_map(|class| class.masks.keys()).chain(facts);
        let wide = |names: &Vec<Lane>| names.len() == wave && names.iter().all(|name| !name.vector);
        paths == 1 && self.masks.values().all(wide) && named.all(|mask| self.masks.contains_key(mask))
    }

    fn of<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a Claims> {
        part.claims.iter().map(|number| &self.claims[*number])
    }

    /// What is claimed of scalars: names, and places.
    pub fn of_wave(&self) -> impl Iterator<Item = &(Lane, Lane)> {
        self.classes.get(WAVE).into_iter().flat_map(|part| self.of(part)).flat_map(|claims| &claims.holds)
    }

    /// The state that the claims describe (spec 4.2).
    pub fn state(&self, context: &Context<'_>, block: &Block) -> Done<State> {
        let live = live_ins(context, block);
        let mut state = State::new(state::Part::default(), context);
        let known: BTreeMap<u32, u32> = self.masks.keys().map(|mask| (*mask, state.facts.new_mask())).collect();
        for (mask, names) in &self.masks {
            state.facts.set_mask(names, known[mask]);
        }
        state.facts.mark(&self.nonempty.iter().map(|mask| known[mask]).collect::<Vec<_>>(), Mark::Nonempty);
        for (number, claimed) in self.classes.iter().enumerate() {
            let mut part = state::Part::default();
            for claims in self.of(claimed) {
                claims.holds.iter().for_each(|(name, place)| part.add(*place, *name));
                claims.undefined.iter().for_each(|name| part.set_undefined(*name));
                claims.doubtful.iter().for_each(|name| part.set_doubtful(*name));
            }
            self.check_live_ins(context, claimed, &live, number == WAVE || claimed.active)?;
            if number == WAVE {
                state.classes[WAVE].part = part;
                continue;
            }
            let mut class = Class::new(claimed.kind, claimed.active, part);
            class.masks = claimed.masks.iter().map(|(mask, inside)| (known[mask], *inside)).collect();
            state.classes.push(class);
        }
        note_undeclared(context, &live, &mut state);
        state.begin(&context.exec, self.some);
        state.facts.beside.extend(self.beside.iter().map(|mask| known[mask]));
        Ok(state)
    }

    /// Spec 4.3; `all`: of vector places too.
    fn check_live_ins(&self, context: &Context<'_>, part: &Part, live: &Set<u32>, all: bool) -> Done {
        let claims = self.of(part).flat_map(|claims| &claims.holds);
        for (name, place) in claims.filter(|(_, place)| place.of == Of::Unit && (all || !place.vector)) {
            // Passes behind leave alone what must be restored only where nothing touches it.
            let pristine =
                *name == Lane::entry(place.a) && place.cell == 0 && !context.touched_after.contains(&place.a);
            let fits = holds_always(context, *place) || live.contains(&place.a) || pristine;
            ensure!(fits, "live-in", self.place.as_str(), "{place} is not declared");
        }
        Ok(())
    }

    /// What is known behind a predecessor implies the claims (spec 12.1). `exec_is_zero`: no thread of an active class
    /// is here.
    pub fn follows(&self, state: &State, exec_is_zero: bool, from: usize) -> Done {
        let place = format!("{} from block {from}", self.place);
        let place = place.as_str();
        let known: Map<u32, Mask> =
            self.masks.iter().map(|(mask, names)| (*mask, state.facts.masks_of(names))).collect();
        let unknown = known.iter().find(|(_, mask)| mask.numbers().is_empty());
        ensure!(unknown.is_none(), "relation", place, "mask {} is not known", unknown.map_or(0, |(mask, _)| *mask));
        let empty = self.nonempty.iter().find(|mask| !state.facts.is(&known[mask], Mark::Nonempty));
        ensure!(empty.is_none(), "relation", place, "mask {} may be empty", empty.unwrap_or(&0));
        ensure!(!self.some || state.facts.some_active(), "relation", place, "no thread may be active");
        let beside = |mask: &u32| state.facts.is(&known[mask], Mark::Nonempty) || state.facts.is_beside(&known[mask]);
        let fits = state.facts.some_active() && !exec_is_zero || self.beside.iter().all(beside);
        ensure!(fits, "relation", place, "no thread may be active, or in a mask");
        let numbers = || self.masks.keys().copied();
        let asked: Vec<Membership> =
            self.classes.iter().map(|part| Membership::of(numbers(), |mask| part.masks.get(&mask).copied())).collect();
        for class in &state.classes {
            if exec_is_zero && class.active && matches!(class.kind, 'T' | 'O') {
                continue;
            }
            let own = Membership::of(numbers(), |mask| known[&mask].is_in(class));
            let mut why = "no class is like it".to_string();
            let covers = |(number, claimed): (usize, &Part)| {
                let alike = if class.kind == 'W' { number == WAVE } else { claimed.kind == class.kind };
                if !alike || number != WAVE && claimed.active != class.active || !asked[number].is_said_by(&own) {
                    return false;
                }
                self.differs(state, class, claimed).inspect(|message| why.clone_from(message)).is_none()
            };
            let covered = self.classes.iter().enumerate().any(covers);
            let wait = if class.active { "active" } else { "waiting" };
            ensure!(covered, "relation", place, "a class {}, {wait}, is not covered: {why}", class.kind);
        }
        Ok(())
    }

    /// What the claims about one part say that is not known of it.
    fn differs(&self, state: &State, class: &Class, claimed: &Part) -> Option<String> {
        let doubtful = |name: Lane| {
            let (known, claimed) =
                if name.vector { (&class.part, claimed) } else { (state.wave(), &self.classes[WAVE]) };
            known.is_doubtful(name) && !claimed.doubtful.contains(&name)
        };
        for claims in self.of(claimed) {
            for (name, place) in &claims.holds {
                if !state.reads(class, *name, *place) {
                    return Some(format!("{place} does not hold {name}"));
                }
                if doubtful(*name) {
                    return Some(format!("{name} is doubtful"));
                }
            }
            if let Some(name) = claims.undefined.iter().find(|name| !class.part.is_undefined(**name)) {
                return Some(format!("{name} is not undefined"));
            }
        }
        None
    }
}

/// The units that a block's live-ins declare; with lanes of 32 bits those of which both halves are declared.
pub fn live_ins(context: &Context<'_>, block: &Block) -> Set<u32> {
    let mut units = Set::default();
    for (register, mask) in &block.liveins {
        let is_in = |lane: u32| mask.is_none_or(|mask| lane < 64 && mask >> lane & 1 == 1);
        units.extend((0..).zip(&register.units).filter(|(lane, _)| is_in(*lane)).map(|(_, unit)| *unit));
    }
    let whole = |unit: &&u32| !context.coarse || **unit >= VCC[0] || units.contains(&(**unit ^ 1));
    units.iter().filter(whole).copied().collect()
}

/// Of each block of Q, the lanes of virtual vector registers that are read on some path before they are written (spec
/// 11.3).
pub fn live_virtual(context: &Context<'_>) -> Vec<Set<Lane>> {
    let blocks = &context.after.blocks;
    let mut all: Vec<Set<Lane>> = vec![Set::default(); blocks.len()];
    let mut changed = context.has_virtual;
    while changed {
        changed = false;
        for (number, block) in blocks.iter().enumerate().rev() {
            let mut live: Set<Lane> = block.successors.iter().flat_map(|next| all[*next].iter().copied()).collect();
            for i in block.instructions.iter().rev() {
                let beside = i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside);
                for lane in i.lanes(Operand::is_def).iter().chain(beside) {
                    live.remove(lane);
                }
                let read = i.lanes(|o| o.is_use() && o.reads()).into_iter();
                live.extend(read.filter(|lane| lane.vector && lane.of == Of::Virtual));
            }
            changed |= live.len() > all[number].len();
            all[number] = live;
        }
    }
    all
}

/// Scalar units that P's block does not declare are undefined at its entry (spec 4.4).
pub fn undefine_undeclared(context: &Context<'_>, number: usize, state: &mut State) {
    let live = live_ins(context, &context.before.blocks[number]);
    let units = context.touched.iter().filter(|unit| **unit >= FIRST_SCALAR && !live.contains(*unit));
    let names = units.map(|unit| Lane::unit(*unit)).filter(|name| context.allocatable(*name));
    names.for_each(|name| state.classes[WAVE].part.set_undefined(name));
}

/// No pass takes it for free, whatever a block declares (spec 4.3).
pub fn holds_always(context: &Context<'_>, place: Lane) -> bool {
    let reserved = place.cell != 0 && context.reserved_after.contains(&place.a);
    reserved || !context.allocatable(place) && !place.is_scc()
}

/// Places hold nothing where nothing may be claimed of them (spec 4.3): in waiting classes only scalar ones do.
pub fn leave_undeclared(context: &Context<'_>, live: &Set<u32>, state: &mut State) {
    for class in &mut state.classes {
        let all = class.kind == 'W' || class.active;
        let places = class.part.all_places().filter(|place| place.of == Of::Unit && (all || !place.vector));
        let places: Vec<Lane> = places.collect();
        for place in places {
            if !holds_always(context, place) && !live.contains(&place.a) {
                let own = Lane::entry(place.a);
                let pristine = place.cell == 0
                    && !context.touched_after.contains(&place.a)
                    && class.part.holds(place).contains(&own);
                class.part.write(place, if pristine { std::slice::from_ref(&own) } else { &[] });
            }
        }
    }
}

/// A class that becomes active loses what an active one could not have claimed (spec 4.3).
pub fn note_undeclared(context: &Context<'_>, live: &Set<u32>, state: &mut State) {
    state.note_undeclared(|place| !holds_always(context, place) && !live.contains(&place.a));
}

/// Of each scalar register that P's block reads something is declared, or defined before in it (spec 4.4).
///
/// # Errors
/// `undefined`: nothing is.
pub fn reads_defined(context: &Context<'_>, number: usize) -> Done {
    let block = &context.before.blocks[number];
    let declared = |number: usize| -> Set<u32> {
        context.before.blocks[number].liveins.iter().flat_map(|(register, _)| &register.units).copied().collect()
    };
    let mut known = declared(number);
    for (at, i) in block.instructions.iter().enumerate() {
        if let Some((_, part)) = block.joints.iter().rfind(|(joint, _)| *joint == at) {
            known = declared(*part);
        }
        let units = |o: &Operand| o.register.map_or(&[][..], |register| register.units.as_slice());
        let whole: Vec<&[u32]> = i.operands.iter().filter(|o| o.reads() && o.is(IMPLICIT)).map(units).collect();
        for operand in i.operands.iter().filter(|o| o.reads()) {
            let units = units(operand);
            if whole.iter().any(|all| all.len() > units.len() && units.iter().all(|unit| all.contains(unit))) {
                continue;
            }
            let asked = units.iter().any(|unit| *unit >= FIRST_SCALAR && context.allocatable(Lane::unit(*unit)));
            let fits = !asked || units.iter().any(|unit| known.contains(unit));
            ensure!(fits, "undefined", i, "nothing is declared or defined of `{}`", operand.text);
        }
        known.extend(i.defined().filter_map(|o| o.register).flat_map(|register| &register.units));
    }
    Ok(())
}

/// The state at the entry of the function (spec 4.1).
pub fn of_function(context: &Context<'_>, block: &Block) -> State {
    let live = live_ins(context, block);
    // Threads that wait start with the same registers in both texts; all others know only what is declared.
    let (mut scalar, mut vector, mut undeclared) = (state::Part::default(), state::Part::default(), Vec::new());
    let mut units = context.touched.clone();
    units.extend(&context.restored);
    for unit in units {
        let lane = Lane::unit(unit);
        let part = if lane.vector { &mut vector } else { &mut scalar };
        let declared = !context.allocatable(lane) || live.contains(&unit);
        if declared {
            part.add(lane, lane);
        } else if lane.vector {
            undeclared.push(lane);
        }
        if (declared || !context.touched_after.contains(&unit)) && context.restored.contains(&unit) {
            part.add(lane, Lane::entry(unit));
        }
    }
    let mut virtuals = Vec::new();
    for (number, row) in &context.before.registers {
        let lanes: Vec<u32> = (0..row.lanes()).collect();
        for lane in crate::context::used(&lanes, context.coarse) {
            let name = Lane::new(Of::Virtual, *number, lane, 0).with_vector(row.class.is_vector);
            if name.vector {
                vector.set_undefined(name)
            } else {
                scalar.set_undefined(name)
            }
            virtuals.push(name);
        }
    }
    for (number, row) in context.before.stack.iter().filter(|(number, _)| !context.other_slots.contains(number)) {
        let is_vector = context.vector_slots.contains(number);
        // No spill slot is wider than the widest register; what another object holds is memory.
        let size = object(row, "size").parse().unwrap_or(0_u32).min(128);
        let part = if is_vector { &mut vector } else { &mut scalar };
        context.slot_lanes(*number, 0, 8 * size, is_vector).into_iter().for_each(|lane| part.set_undefined(lane));
    }
    let mut state = State::new(scalar, context);
    let cells: Vec<Lane> = virtuals.into_iter().flat_map(|name| state.cells_in(name)).collect();
    cells.into_iter().for_each(|cell| state.classes[WAVE].part.set_undefined(cell));
    state.classes.push(Class::new('P', true, vector.clone()));
    state.classes.push(Class::new('T', true, vector.clone()));
    undeclared.iter().for_each(|lane| vector.add(*lane, *lane));
    state.classes.push(Class::new('O', false, vector));
    note_undeclared(context, &live, &mut state);
    state.begin(&context.exec, true);
    state
}
