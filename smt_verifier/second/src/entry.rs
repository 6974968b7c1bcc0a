//! What holds at a block's entry: the function's (spec 4.1), or claims (4.2, 4.3), which follow on every edge (12.1).

use std::collections::BTreeMap;

use crate::certificate::{ClaimedClass, Entry, Range, ThreadKind};
use crate::context::{self, Context, EXEC};
use crate::lanes::{Lane, Of, Set};
use crate::model::{Block, Refused};
use crate::state::Part;
use crate::threads::{Class, Mask, Side, State, MOST_CLASSES};

/// Claims with all their ranges written out.
#[derive(Default)]
struct Written {
    holds: Vec<(Lane, Lane)>,
    undefined: Vec<Lane>,
    doubtful: Vec<Lane>,
}

/// What is claimed of one part: numbers of `Claimed::written`, and the names that are claimed doubtful.
#[derive(Default)]
struct Of1 {
    written: Vec<usize>,
    doubtful: Set<Lane>,
}

/// The claims of one block.
pub struct Claimed<'a> {
    classes: &'a [ClaimedClass],
    masks: BTreeMap<u32, Vec<Lane>>,
    nonempty: &'a [u32],
    some: bool,
    written: Vec<Written>,
    scalar: Of1,
    parts: Vec<Of1>,
    place: String,
}

/// More lanes than this are claimed by no certificate of a function that is followed.
pub const MOST_CLAIMS: usize = 6_000_000;

impl<'a> Claimed<'a> {
    /// Write out the claims of block `number`. `budget`: how many claims are left.
    pub fn new(
        context: &Context<'_>, entry: &'a Entry, number: usize, budget: &mut usize,
    ) -> Result<Claimed<'a>, Refused> {
        let place = format!("entry of block {number}");
        let wrong = |message: String| Refused::new("certificate", message, place.clone());
        if entry.classes.len() > MOST_CLASSES {
            return Err(Refused::new("classes", "too many classes of threads", place.clone()));
        }
        let mut spell = |range: &Range, lane: Lane, is_place: bool| -> Result<Vec<Lane>, Refused> {
            let count = range.count as usize;
            *budget = budget.checked_sub(count).ok_or_else(|| wrong("too many claims".to_string()))?;
            let all: Option<Vec<Lane>> =
                (0..range.count).map(|n| context.resolve(lane.advanced(n, context.coarse)?, is_place)).collect();
            all.ok_or_else(|| wrong(format!("{lane} and what follows is not in the text")))
        };
        let mut masks: BTreeMap<u32, Vec<Lane>> = BTreeMap::new();
        for (mask, range) in &entry.masks {
            let names = spell(range, range.name, false)?;
            masks.entry(*mask).or_default().extend(names);
        }
        if masks.values().any(|names| names.len() != context.wave_lanes || names.iter().any(|name| name.vector)) {
            return Err(wrong("a mask that is not a wave wide".to_string()));
        }
        let mut claimed = Claimed {
            classes: &entry.classes,
            masks,
            nonempty: &entry.nonempty,
            some: entry.some,
            written: Vec::new(),
            scalar: Of1::default(),
            parts: entry.classes.iter().map(|_| Of1::default()).collect(),
            place: place.clone(),
        };
        for claims in &entry.claims {
            let mut written = Written::default();
            for range in &claims.holds {
                let names = spell(range, range.name, false)?;
                let places = range.place.map_or(Ok(Vec::new()), |place| spell(range, place, true))?;
                written.holds.extend(names.into_iter().zip(places));
            }
            for range in &claims.undefined {
                written.undefined.extend(spell(range, range.name, false)?);
            }
            for range in &claims.doubtful {
                written.doubtful.extend(spell(range, range.name, false)?);
            }
            // Spec 4: what belongs to which part.
            let of_wave = claims.classes.is_none();
            let holds = |(name, place): &(Lane, Lane)| {
                if of_wave {
                    !name.vector && !place.vector
                } else {
                    name.vector || place.vector
                }
            };
            let plain = written.undefined.iter().chain(&written.doubtful).all(|name| name.vector != of_wave);
            if !plain || !written.holds.iter().all(holds) {
                return Err(wrong("a claim that belongs to another part".to_string()));
            }
            let at = claimed.written.len();
            let whom: Vec<&mut Of1> = match &claims.classes {
                None => vec![&mut claimed.scalar],
                Some(classes) => {
                    let all = claimed.parts.iter_mut().enumerate();
                    all.filter(|(n, _)| classes.contains(n)).map(|(_, part)| part).collect()
                }
            };
            for part in whom {
                part.written.push(at);
                part.doubtful.extend(written.undefined.iter().chain(&written.doubtful));
            }
            claimed.written.push(written);
        }
        Ok(claimed)
    }

    fn of<'b>(&'b self, part: &'b Of1) -> impl Iterator<Item = &'b Written> {
        part.written.iter().filter_map(|at| self.written.get(*at))
    }

    fn fill(&self, claims: &Of1, part: &mut Part) {
        for written in self.of(claims) {
            for (name, place) in &written.holds {
                part.add(*place, *name);
            }
            for name in &written.undefined {
                part.set_undefined(*name);
            }
            for name in &written.doubtful {
                part.set_doubtful(*name);
            }
        }
    }

    /// The state that the claims describe (spec 4.2).
    pub fn state(&self, context: &Context<'_>, block: &Block, exec_lanes: &[Lane]) -> Result<State, Refused> {
        let live = live_ins(context, block);
        let mut state = State::default();
        self.fill(&self.scalar, &mut state.scalar);
        self.check_live_ins(context, &self.scalar, &live)?;
        let mut known: BTreeMap<u32, u32> = BTreeMap::new();
        for (mask, names) in &self.masks {
            let own = state.new_mask();
            known.insert(*mask, own);
            state.set_mask(names, own);
        }
        let unknown = |mask: &u32| Refused::new("certificate", format!("mask {mask} has no name"), self.place.clone());
        for mask in self.nonempty {
            let own = *known.get(mask).ok_or_else(|| unknown(mask))?;
            state.mark_nonempty(own);
        }
        for (claimed, claims) in self.classes.iter().zip(&self.parts) {
            let mut class = Class::new(claimed.kind, claimed.active, Part::default());
            self.fill(claims, &mut class.part);
            if claimed.kind == ThreadKind::Path {
                self.check_live_ins(context, claims, &live)?;
            }
            for (mask, inside) in &claimed.masks {
                class.masks.insert(*known.get(mask).ok_or_else(|| unknown(mask))?, *inside);
            }
            state.classes.push(class);
        }
        let paths = self.classes.iter().filter(|class| class.kind == ThreadKind::Path).count();
        if paths != 1 {
            return Err(Refused::new("certificate", "not one path", self.place.clone()));
        }
        for written in &self.written {
            for (name, place) in &written.holds {
                state.note_cell(*name, Side::Name);
                state.note_cell(*place, Side::Place);
            }
            for name in written.undefined.iter().chain(&written.doubtful) {
                state.note_cell(*name, Side::Name);
            }
        }
        for names in self.masks.values().flatten() {
            state.note_cell(*names, Side::Name);
        }
        state.begin(exec_lanes, self.some);
        Ok(state)
    }

    /// Spec 4.3.
    fn check_live_ins(&self, context: &Context<'_>, claims: &Of1, live: &Set<u32>) -> Result<(), Refused> {
        for (name, place) in self.of(claims).flat_map(|written| &written.holds) {
            // Passes behind leave alone what must be restored only where nothing touches it.
            let pristine =
                *name == Lane::entry(place.a) && place.cell == 0 && !context.after.touched.contains(&place.a);
            let reserved = place.cell != 0 && context.reserved_after.contains(&place.a);
            if place.of == Of::Unit && context.allocatable(*place) && !live.contains(&place.a) && !pristine && !reserved
            {
                return Err(Refused::new("live-in", format!("{place} is not declared"), self.place.clone()));
            }
        }
        Ok(())
    }

    /// What is known behind a predecessor implies the claims (spec 12.1). `exec_is_zero`: no thread of an active class is here.
    pub fn follows(&self, state: &State, exec_is_zero: bool, from: usize) -> Result<(), Refused> {
        let refused = |message: String| Refused::new("relation", message, format!("{} from block {from}", self.place));
        let mut masks: BTreeMap<u32, Mask> = BTreeMap::new();
        for (mask, names) in &self.masks {
            let same = state.masks_of(names);
            if same.is_empty() {
                return Err(refused(format!("mask {mask} is not known")));
            }
            masks.insert(*mask, Mask::Known(same));
        }
        for mask in self.nonempty {
            if !masks.get(mask).is_some_and(|mask| state.mask_is_nonempty(mask)) {
                return Err(refused(format!("mask {mask} may be empty")));
            }
        }
        if self.some && !state.some_active() {
            return Err(refused("no thread may be active".to_string()));
        }
        if let Some(message) = self.differs(state, None, &self.scalar) {
            return Err(refused(message));
        }
        for class in &state.classes {
            if exec_is_zero && class.active && class.kind != ThreadKind::Path {
                continue;
            }
            let mut why = "no class is like it".to_string();
            let covers = |(claimed, claims): (&ClaimedClass, &Of1)| {
                let known = |(mask, inside): &(u32, bool)| {
                    masks.get(mask).is_some_and(|mask| State::is_in(class, mask) == Some(*inside))
                };
                if claimed.kind != class.kind || claimed.active != class.active || !claimed.masks.iter().all(known) {
                    return false;
                }
                match self.differs(state, Some(class), claims) {
                    None => true,
                    Some(message) => {
                        why = message;
                        false
                    }
                }
            };
            if !self.classes.iter().zip(&self.parts).any(covers) {
                let kind = match class.kind {
                    ThreadKind::Active => "T",
                    ThreadKind::Other => "O",
                    ThreadKind::Path => "P",
                };
                let wait = if class.active { "active" } else { "waiting" };
                return Err(refused(format!("a class {kind}, {wait}, is not covered: {why}")));
            }
        }
        Ok(())
    }

    /// What the claims about one part say that is not known of it.
    fn differs(&self, state: &State, class: Option<&Class>, claims: &Of1) -> Option<String> {
        let doubtful = |name: Lane| match class {
            Some(class) if name.vector => class.part.is_doubtful(name) && !claims.doubtful.contains(&name),
            _ => state.scalar.is_doubtful(name) && !self.scalar.doubtful.contains(&name),
        };
        for written in self.of(claims) {
            for (name, place) in &written.holds {
                if !state.reads(class, *name, *place) {
                    return Some(format!("{place} does not hold {name}"));
                }
                if doubtful(*name) {
                    return Some(format!("{name} is doubtful"));
                }
            }
            for name in &written.undefined {
                let undefined = class.map_or(&state.scalar, |class| &class.part).is_undefined(*name);
                if !undefined {
                    return Some(format!("{name} is not undefined"));
                }
            }
        }
        None
    }
}

/// The units that a block's live-ins declare; with lanes of 32 bits those of which both halves are declared.
fn live_ins(context: &Context<'_>, block: &Block) -> Set<u32> {
    let mut units = Set::default();
    for live in &block.liveins {
        let Some(register) = context.after.register(&live.register) else { continue };
        for (lane, unit) in (0_u32..).zip(&register.units) {
            if live.mask.is_none_or(|mask| lane < 64 && mask >> lane & 1 == 1) {
                units.insert(*unit);
            }
        }
    }
    let numbered = |unit: &u32| *unit < context::VCC[0];
    if context.coarse {
        let whole = units.iter().filter(|unit| !numbered(unit) || units.contains(&(*unit ^ 1))).copied().collect();
        return whole;
    }
    units
}

/// The state at the entry of the function (spec 4.1).
pub fn of_function(context: &Context<'_>, block: &Block, exec_lanes: &[Lane]) -> State {
    let live = live_ins(context, block);
    // Thread by thread both texts start with the same registers; the path and the scalars know only what is declared.
    let (mut scalar, mut vector, mut undeclared) = (Part::default(), Part::default(), Vec::new());
    let mut units: Vec<u32> = context.before.touched.iter().chain(&context.after.touched).copied().collect();
    units.extend(context.limits.saved.iter().copied().chain(EXEC));
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let lane = Lane::unit(unit);
        let part = if lane.vector { &mut vector } else { &mut scalar };
        if !context.allocatable(lane) || live.contains(&unit) {
            part.add(lane, lane);
        } else if lane.vector {
            undeclared.push(lane);
        }
        let known = !context.allocatable(lane) || live.contains(&unit) || !context.after.touched.contains(&unit);
        if known && context.limits.saved.contains(&unit) {
            part.add(lane, Lane::entry(unit));
        }
    }
    let mut cells: Set<Lane> = Set::default();
    for (number, row) in context.before.virtuals() {
        let part = if row.class.is_vector { &mut vector } else { &mut scalar };
        for lane in context.before.used((0..row.lanes).collect::<Vec<u32>>()) {
            let name = Lane::new(Of::Virtual, number, lane, 0).with_vector(row.class.is_vector);
            part.set_undefined(name);
            cells.extend(context.cells_in(name));
        }
    }
    for (number, row) in &context.before.function.stack {
        let size: u32 = crate::header::object(row, "size").parse().unwrap_or(0);
        let is_vector = context.vector_slots.contains(number);
        // No spill slot is wider than the widest register; what another object holds is memory.
        let lanes = (0..size.min(128).div_ceil(2)).step_by(if context.coarse { 2 } else { 1 });
        let part = if is_vector { &mut vector } else { &mut scalar };
        for lane in lanes.filter(|_| !context.other_slots.contains(number)) {
            part.set_undefined(Lane::new(Of::Slot, *number, lane, 0).with_vector(is_vector));
        }
    }
    let mut state = State::default();
    state.scalar = scalar;
    for cell in cells {
        state.scalar.set_undefined(cell);
        state.note_cell(cell, Side::Name);
    }
    state.classes.push(Class::new(ThreadKind::Path, true, vector.clone()));
    undeclared.iter().for_each(|lane| vector.add(*lane, *lane));
    state.classes.push(Class::new(ThreadKind::Active, true, vector.clone()));
    state.classes.push(Class::new(ThreadKind::Other, false, vector));
    state.begin(exec_lanes, true);
    state
}
