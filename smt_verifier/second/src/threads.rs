//! Classes of threads (spec 3.6), changes of the state (4), masks (10.1, 10.2, 10.3, 10.4), copies across EXEC (10.6).

use crate::certificate::ThreadKind;
use crate::context::EXEC;
use crate::forms::is_scc;
use crate::lanes::{Lane, Map, Of, Set};
use crate::model::Refused;
use crate::state::{Known, Part};

/// What classes hold, by their numbers.
pub type ByClass = Vec<(usize, Vec<Lane>)>;

pub const MOST_CLASSES: usize = 256;

#[derive(Clone, Debug)]
pub struct Class {
    pub kind: ThreadKind,
    pub active: bool,
    /// Masks that its threads are in (true) or out of.
    pub masks: Map<u32, bool>,
    pub part: Part,
    /// When it became active, or began to wait, in this block; before the first it was the other.
    turns: Vec<(u32, bool)>,
    /// Copies of this block at which it waited (spec 10.6), by their numbers.
    waited: Vec<usize>,
}

impl Class {
    pub fn new(kind: ThreadKind, active: bool, part: Part) -> Class {
        Class { kind, active, masks: Map::default(), part, turns: Vec::new(), waited: Vec::new() }
    }
}

impl Class {
    /// Whether it was active when instruction `time` of this block was executed.
    fn was_active(&self, time: u32) -> bool {
        let first = self.turns.first().map_or(self.active, |(_, active)| !active);
        self.turns.iter().take_while(|(at, _)| *at < time).last().map_or(first, |(_, active)| *active)
    }
}

/// What an operand is as a mask (spec 10.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    Everybody,
    Nobody,
    /// All these masks are the operand's value.
    Known(Vec<u32>),
    Unknown,
}

/// One copy of a vector register in this block (spec 10.6).
#[derive(Clone, Debug)]
struct Copied {
    target: Lane,
    source: Lane,
    valid: bool,
}

/// All that is known between two instructions.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub scalar: Part,
    pub classes: Vec<Class>,
    /// Of which masks a scalar name is a part, and which part.
    parts: Map<Lane, Vec<(u32, u32)>>,
    nonempty: Set<u32>,
    next_mask: u32,
    exec: u32,
    /// Facts that names carry as they carry masks, until EXEC is written: the vector lane of which a scalar is what the
    /// first active thread has (spec 10.7).
    first_of: Map<u32, Lane>,
    /// Masks that hold the first active thread (spec 10.7).
    first_in: Set<u32>,
    /// Names with this for a part number an active thread (spec 10.8).
    numbers: Set<u32>,
    /// Masks that are not empty where EXEC has become 0 (spec 10.10).
    pub emptied_by: Vec<u32>,
    /// The mask that is not empty where SCC is 1 (spec 10.9).
    pub scc: Option<u32>,
    /// Cells by the first lane of their register: as names, as places.
    cells: [Map<Lane, Vec<Lane>>; 2],
    copies: Vec<Copied>,
    /// When a place was last written in this block.
    written: Map<Lane, u32>,
    exec_written: u32,
    pub now: u32,
}

/// Which of the two texts a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Name = 0,
    Place = 1,
}

impl State {
    /// All classes for which `choose` holds, by number.
    pub fn select(&self, choose: impl Fn(&Class) -> bool) -> Vec<usize> {
        (0..self.classes.len()).filter(|n| self.classes.get(*n).is_some_and(&choose)).collect()
    }

    fn each(&mut self, run: &[usize], mut change: impl FnMut(&mut Part)) {
        for number in run {
            if let Some(class) = self.classes.get_mut(*number) {
                change(&mut class.part);
            }
        }
    }

    /// The scalar part and every class.
    fn everywhere(&mut self, mut change: impl FnMut(&mut Part)) {
        change(&mut self.scalar);
        for class in &mut self.classes {
            change(&mut class.part);
        }
    }

    /// Change what is said of a lane: a scalar one everywhere, a vector one in these classes.
    fn change(&mut self, lane: Lane, run: &[usize], change: impl FnMut(&mut Part)) {
        if lane.vector {
            self.each(run, change);
        } else {
            self.everywhere(change);
        }
    }

    pub fn forget(&mut self, name: Lane, run: &[usize]) {
        self.change(name, run, |part| part.forget(name));
        if name.vector {
            self.first_of.retain(|_, of| *of != name);
        } else {
            self.parts.remove(&name);
            if is_scc(name) {
                self.scc = None;
            }
        }
    }

    pub fn undefine(&mut self, name: Lane, run: &[usize]) {
        self.forget(name, run);
        if name.vector {
            self.each(run, |part| part.set_undefined(name));
        } else {
            self.scalar.set_undefined(name);
        }
    }

    pub fn spoil(&mut self, place: Lane, run: &[usize]) {
        self.change(place, run, |part| part.write(place, &[]));
    }

    /// The name is defined, and the place holds it and nothing else.
    pub fn hold(&mut self, place: Lane, name: Lane, run: &[usize]) {
        self.spoil(place, run);
        if name.vector {
            self.each(run, |part| part.add(place, name));
        } else if !place.vector {
            self.scalar.add(place, name);
        } else {
            self.each(run, |part| part.add(place, name));
        }
    }

    /// What a place holds in a class, scalar names included.
    pub fn held(&self, class: &Class, place: Lane) -> Vec<Lane> {
        let mut names = class.part.holds(place).to_vec();
        if !place.vector {
            names.extend_from_slice(self.scalar.holds(place));
        }
        names
    }

    /// A place holds a name, or the name is undefined (spec 5.5). `class`: of which class, for a vector name.
    pub fn reads(&self, class: Option<&Class>, name: Lane, place: Lane) -> bool {
        match class {
            Some(class) if name.vector => class.part.holds(place).contains(&name) || class.part.is_undefined(name),
            Some(class) if place.vector => class.part.holds(place).contains(&name) || self.scalar.is_undefined(name),
            _ if name.vector || place.vector => false,
            _ => self.scalar.holds(place).contains(&name) || self.scalar.is_undefined(name),
        }
    }

    pub fn is_undefined(&self, name: Lane, run: &[usize]) -> bool {
        if name.vector {
            run.iter().filter_map(|n| self.classes.get(*n)).all(|c| c.part.is_undefined(name))
        } else {
            self.scalar.is_undefined(name)
        }
    }

    /// Names `t` become copies of names `f`; all are read before one is written (spec 4, `copy name`).
    pub fn copy_names(&mut self, pairs: &[(Lane, Lane)], run: &[usize]) {
        struct Moved {
            to: Lane,
            scalar: Known,
            classes: Vec<(usize, Known)>,
            parts: Option<Vec<(u32, u32)>>,
        }
        let mut all = Vec::new();
        for (to, from) in pairs.iter().filter(|(to, from)| to != from) {
            let wave = if from.vector { Known::default() } else { self.scalar.known(*from) };
            let mut moved = Moved { to: *to, scalar: Known::default(), classes: Vec::new(), parts: None };
            let concerned: Vec<usize> = if to.vector { run.to_vec() } else { (0..self.classes.len()).collect() };
            for number in concerned {
                let Some(class) = self.classes.get(number) else { continue };
                let mut known = class.part.known(*from);
                if to.vector {
                    known.places.extend_from_slice(&wave.places);
                    known.undefined |= wave.undefined;
                    known.doubtful |= wave.doubtful;
                }
                moved.classes.push((number, known));
            }
            if !to.vector && !from.vector {
                moved.scalar = wave;
                moved.parts = self.parts.get(from).cloned();
            }
            all.push(moved);
        }
        for moved in &all {
            self.forget(moved.to, run);
        }
        for moved in all {
            let to = moved.to;
            if !to.vector {
                give(&mut self.scalar, to, &moved.scalar);
                if let Some(parts) = moved.parts {
                    self.parts.insert(to, parts);
                }
                self.note_cell(to, Side::Name);
            }
            for (number, known) in moved.classes {
                if let Some(class) = self.classes.get_mut(number) {
                    give(&mut class.part, to, &known);
                }
            }
        }
    }

    /// Places `t` hold what places `f` held; all are read before one is written (spec 4, `copy place`).
    pub fn copy_places(&mut self, pairs: &[(Lane, Lane)], run: &[usize]) {
        let mut all: Vec<(Lane, Vec<Lane>, ByClass)> = Vec::new();
        for (to, from) in pairs.iter().filter(|(to, from)| to != from) {
            let concerned: Vec<usize> = if to.vector { run.to_vec() } else { (0..self.classes.len()).collect() };
            let mut classes = Vec::new();
            for number in concerned {
                let Some(class) = self.classes.get(number) else { continue };
                let names = if to.vector { self.held(class, *from) } else { class.part.holds(*from).to_vec() };
                classes.push((number, names));
            }
            let scalar = if to.vector || from.vector { Vec::new() } else { self.scalar.holds(*from).to_vec() };
            all.push((*to, scalar, classes));
        }
        for (to, scalar, classes) in all {
            if !to.vector {
                self.scalar.write(to, &scalar);
                self.note_cell(to, Side::Place);
            }
            for (number, names) in classes {
                if let Some(class) = self.classes.get_mut(number) {
                    class.part.write(to, &names);
                }
            }
        }
    }

    // Cells (spec 3.5, 7.4).

    /// Remember that a cell is named, so that a write of its register finds it.
    pub fn note_cell(&mut self, lane: Lane, side: Side) {
        if lane.cell == 0 {
            return;
        }
        let known = self.cells.get_mut(side as usize).map(|cells| cells.entry(lane.base()).or_default());
        if let Some(list) = known.filter(|list| !list.contains(&lane)) {
            list.push(lane);
        }
    }

    /// The cells ever named in the register that a lane lies in.
    pub fn cells_in(&self, lane: Lane, side: Side) -> Vec<Lane> {
        let cells = self.cells.get(side as usize).filter(|cells| !cells.is_empty());
        cells.and_then(|cells| cells.get(&lane.base())).cloned().unwrap_or_default()
    }

    /// A vector register or slot was written in some way: its cells hold nothing.
    pub fn spoil_cells(&mut self, lane: Lane, side: Side) {
        for cell in if lane.vector { self.cells_in(lane, side) } else { Vec::new() } {
            match side {
                Side::Name => self.forget(cell, &[]),
                Side::Place => self.spoil(cell, &[]),
            }
        }
    }

    /// A lane gets no value: a name is undefined, a place holds nothing; cells in it likewise.
    pub fn lose(&mut self, lane: Lane, side: Side, run: &[usize]) {
        self.spoil_cells(lane, side);
        match side {
            Side::Name => self.undefine(lane, run),
            Side::Place => {
                self.spoil(lane, run);
                self.note_written(lane, false);
            }
        }
    }

    /// A name is defined anew, and no place holds it; cells in it likewise.
    pub fn define(&mut self, name: Lane, run: &[usize]) {
        self.spoil_cells(name, Side::Name);
        self.forget(name, run);
    }

    // Masks (spec 10.1 to 10.3).

    pub fn new_mask(&mut self) -> u32 {
        self.next_mask = self.next_mask.saturating_add(1);
        self.next_mask
    }

    pub fn mark_nonempty(&mut self, mask: u32) {
        self.nonempty.insert(mask);
    }

    pub fn is_nonempty(&self, mask: u32) -> bool {
        self.nonempty.contains(&mask)
    }

    /// These names are the parts of a mask, from part 0 on.
    pub fn set_mask(&mut self, names: &[Lane], mask: u32) {
        for (part, name) in (0_u32..).zip(names).filter(|(_, name)| !name.vector) {
            let parts = self.parts.entry(*name).or_default();
            if parts.len() < 16 {
                parts.push((mask, part));
            }
        }
    }

    /// These names are the parts of a new mask, that of the active classes.
    pub fn note_active(&mut self, names: &[Lane]) {
        let mask = self.new_mask();
        for class in &mut self.classes {
            class.masks.insert(mask, class.active);
        }
        self.set_mask(names, mask);
    }

    /// The masks whose parts these names are, in order.
    pub fn masks_of(&self, names: &[Lane]) -> Vec<u32> {
        let Some(first) = names.first().and_then(|name| self.parts.get(name)) else { return Vec::new() };
        let is_whole = |mask: u32| {
            let mut numbered = (0_u32..).zip(names);
            numbered.all(|(part, name)| self.parts.get(name).is_some_and(|parts| parts.contains(&(mask, part))))
        };
        first.iter().map(|(mask, _)| *mask).filter(|mask| is_whole(*mask)).collect()
    }

    /// Whether the threads of a class are in a mask (spec 10.2).
    pub fn is_in(class: &Class, mask: &Mask) -> Option<bool> {
        match mask {
            _ if class.kind == ThreadKind::Path => Some(true),
            Mask::Everybody => Some(true),
            Mask::Nobody => Some(false),
            Mask::Known(masks) => masks.iter().find_map(|mask| class.masks.get(mask).copied()),
            Mask::Unknown => None,
        }
    }

    /// Some thread is active (spec 10.5).
    pub fn some_active(&self) -> bool {
        self.is_nonempty(self.exec)
    }

    pub fn set_some_active(&mut self) {
        for mask in self.exec_masks() {
            self.mark_nonempty(mask);
        }
    }

    fn exec_masks(&self) -> Vec<u32> {
        let parts = self.parts.get(&Lane::unit(EXEC[0]));
        let mut masks: Vec<u32> = parts.map(|parts| parts.iter().map(|(mask, _)| *mask).collect()).unwrap_or_default();
        masks.push(self.exec);
        masks
    }

    pub fn mask_is_nonempty(&self, mask: &Mask) -> bool {
        match mask {
            Mask::Everybody => true,
            Mask::Known(masks) => masks.iter().any(|mask| self.is_nonempty(*mask)),
            Mask::Nobody | Mask::Unknown => false,
        }
    }

    /// The first active thread is in this mask (spec 10.7).
    pub fn has_first(&self, mask: &Mask) -> bool {
        match mask {
            Mask::Everybody => true,
            Mask::Known(masks) => masks.iter().any(|mask| *mask == self.exec || self.first_in.contains(mask)),
            Mask::Nobody | Mask::Unknown => false,
        }
    }

    pub fn set_has_first(&mut self, mask: u32) {
        self.first_in.insert(mask);
    }

    /// A scalar lane has become what the first active thread has in a vector lane.
    pub fn set_first(&mut self, scalar: Lane, vector: Lane) {
        let doubtful = self.classes.iter().any(|class| class.active && class.part.is_doubtful(vector));
        if !doubtful && vector.vector && !scalar.vector {
            let fact = self.new_mask();
            self.first_of.insert(fact, vector);
            self.set_mask(&[scalar], fact);
        }
    }

    pub fn is_first(&self, scalar: Lane, vector: Lane) -> bool {
        self.masks_of(&[scalar]).iter().any(|fact| self.first_of.get(fact) == Some(&vector))
    }

    /// These names number an active thread (spec 10.8).
    pub fn set_number(&mut self, names: &[Lane]) {
        let fact = self.new_mask();
        self.numbers.insert(fact);
        self.set_mask(names, fact);
    }

    pub fn is_number(&self, names: &[Lane]) -> bool {
        self.masks_of(names).iter().any(|fact| self.numbers.contains(fact))
    }

    /// No thread that waits is in the mask.
    pub fn only_active(&self, mask: &Mask) -> bool {
        self.classes.iter().all(|class| class.active || State::is_in(class, mask) == Some(false))
    }

    /// At a block's entry: EXEC is a mask of its own, of the classes that are active.
    pub fn begin(&mut self, exec_lanes: &[Lane], some: bool) {
        self.note_active(exec_lanes);
        self.exec = self.next_mask;
        if some {
            self.set_some_active();
        }
    }

    /// EXEC has become a mask: each class is active or waits (spec 10.4). `value` says in which a class is.
    pub fn set_exec(&mut self, exec_lanes: &[Lane], mask: u32, also: &Mask, grows: bool) {
        self.first_of.clear();
        self.first_in.clear();
        self.emptied_by.clear();
        if !grows {
            self.numbers.clear();
        }
        for name in exec_lanes {
            self.parts.remove(name);
        }
        self.set_mask(exec_lanes, mask);
        if let Mask::Known(masks) = also {
            for other in masks.iter().filter(|other| **other != mask) {
                self.set_mask(exec_lanes, *other);
            }
        }
        self.exec = mask;
        self.exec_written = self.now;
        for number in 0..self.classes.len() {
            let Some(class) = self.classes.get_mut(number) else { continue };
            let active = class.kind == ThreadKind::Path || class.masks.get(&mask).copied().unwrap_or(false);
            if active != class.active {
                class.turns.push((self.now, active));
                class.active = active;
                if active {
                    self.wake(number);
                }
            }
        }
    }

    /// Behind a write of EXEC: no thread of a mask that is not empty waits (spec 10.5). At function entry all threads of
    /// kind `T` are such a mask.
    pub fn find_active(&mut self) {
        let all_active = self.classes.iter().all(|class| class.active || class.kind != ThreadKind::Active);
        let covers = |mask: &u32| self.only_active(&Mask::Known(vec![*mask]));
        if all_active || self.nonempty.iter().any(covers) {
            self.set_some_active();
        }
    }

    /// Divide each class of which nothing is known about `by` in two (spec 10.4).
    pub fn split(&mut self, by: impl Fn(&Class) -> Option<u32>) -> Result<(), Refused> {
        for number in 0..self.classes.len() {
            let Some(class) = self.classes.get(number) else { continue };
            let Some(mask) = by(class).filter(|_| class.kind != ThreadKind::Path) else { continue };
            let mut other = class.clone();
            other.masks.insert(mask, false);
            if let Some(class) = self.classes.get_mut(number) {
                class.masks.insert(mask, true);
            }
            if self.classes.len() >= MOST_CLASSES {
                return Err(Refused::new("classes", format!("more than {MOST_CLASSES} classes of threads"), ""));
            }
            self.classes.push(other);
        }
        Ok(())
    }

    // Copies across EXEC (spec 10.6).

    /// A place was written by an instruction of Q, in whatever classes; `again`: by a copy that stands there already,
    /// which the pass may delete: then it is as if nothing had been written.
    pub fn note_written(&mut self, place: Lane, again: bool) {
        if !again {
            for copied in self.copies.iter_mut().filter(|c| c.valid) {
                copied.valid = copied.target != place && copied.source != place;
            }
            self.written.insert(place, self.now);
        }
        if place.of == Of::Unit && !self.copies.is_empty() {
            let unchanged = Lane { of: Of::Unchanged, ..place };
            self.everywhere(|part| part.write(unchanged, &[]));
        }
    }

    /// What a place holds in each class if no copy is propagated.
    pub fn before_copies(&self, place: Lane) -> ByClass {
        (0..).zip(&self.classes).map(|(number, class)| (number, class.part.unchanged(place).to_vec())).collect()
    }

    /// The same copy stands before, and neither register has been written since.
    pub fn is_copied(&self, (target, source): (Lane, Lane)) -> bool {
        self.copies.iter().any(|copied| copied.valid && (copied.target, copied.source) == (target, source))
    }

    /// A vector COPY of Q alone has copied `source` to `target`; `old` is what the target held before, by class.
    pub fn note_copy(&mut self, target: Lane, source: Lane, old: &ByClass) {
        let written = self.written.get(&source).copied().filter(|at| *at < self.exec_written);
        // The pass may delete a copy that stands again. Those behind it are then compared with the first one.
        let first = self.copies.iter().position(|c| c.valid && (c.target, c.source) == (target, source));
        let number = first.unwrap_or(self.copies.len());
        if first.is_none() {
            self.copies.push(Copied { target, source, valid: true });
        }
        for at in 0..self.classes.len() {
            let Some(class) = self.classes.get(at).filter(|class| class.kind != ThreadKind::Path) else { continue };
            let holds_source = self.held(class, source);
            let both =
                |own: &[Lane]| own.iter().copied().filter(|name| holds_source.contains(name)).collect::<Vec<_>>();
            let before = old.iter().find(|(n, _)| *n == at).map_or(&[][..], |(_, names)| names);
            let repeated = first.is_some() && class.waited.contains(&number);
            let narrowed = match written {
                _ if repeated => Some(both(before)),
                Some(written) if !class.active && class.was_active(written) => Some(both(class.part.holds(target))),
                Some(written) if class.active && !class.was_active(written) => Some(both(before)),
                _ => None,
            };
            let waits = !class.active && first.is_none();
            if let Some(class) = self.classes.get_mut(at) {
                if let Some(names) = narrowed {
                    class.part.write(target, &names);
                }
                if waits {
                    class.waited.push(number);
                }
            }
        }
    }

    /// At the end of a block: copies are propagated within it only.
    pub fn end_copies(&mut self) {
        if !self.copies.is_empty() {
            self.everywhere(Part::unpropagate);
        }
    }

    fn wake(&mut self, number: usize) {
        let waited = self.classes.get(number).map(|class| class.waited.clone()).unwrap_or_default();
        // In order: a copy of a copy is narrowed by the first one too.
        for at in waited {
            let Some(copied) = self.copies.get(at).filter(|copied| copied.valid) else { continue };
            let (Some(class), target) = (self.classes.get(number), copied.target) else { return };
            let source = self.held(class, copied.source);
            if let Some(class) = self.classes.get_mut(number) {
                class.part.narrow(target, &source);
            }
        }
    }
}

fn give(part: &mut Part, name: Lane, known: &Known) {
    for place in &known.places {
        part.add(*place, name);
    }
    if known.undefined {
        part.set_undefined(name);
    } else if known.doubtful {
        part.set_doubtful(name);
    }
}

/// Three-valued logic of spec 10.3; `None` for an operation that is not known.
pub fn combine(operation: &str, a: Option<bool>, b: Option<bool>) -> Option<bool> {
    let not = |x: Option<bool>| x.map(|x| !x);
    let and = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    let or = |a, b| not(and(not(a), not(b)));
    let xor = a.zip(b).map(|(a, b)| a != b);
    match operation {
        "AND" => and(a, b),
        "OR" => or(a, b),
        "XOR" => xor,
        "NAND" => not(and(a, b)),
        "NOR" => not(or(a, b)),
        "XNOR" => not(xor),
        "ANDN1" => and(not(a), b),
        "ANDN2" => and(a, not(b)),
        "ORN1" => or(not(a), b),
        "ORN2" => or(a, not(b)),
        _ => None,
    }
}
