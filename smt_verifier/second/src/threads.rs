//! Classes of threads (spec 3.6), changes of the state (4), copies across EXEC (10.6).

use std::rc::Rc;

use crate::context::Context;
use crate::lanes::{Lane, Map, Of, Set};
use crate::masks::{Facts, Mask};
use crate::model::{ensure, Done};
use crate::state::{Known, Part};

pub const MOST_CLASSES: usize = 256;

/// Number of the scalar part among the classes.
pub const WAVE: usize = 0;

/// Threads of which the same is known, or the scalar part.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// `T`: active at function entry. `O`: not so. `P`: the path. `W`: no threads, the scalar part.
    pub kind: char,
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
    pub fn new(kind: char, active: bool, part: Part) -> Class {
        Class { kind, active, part, ..Class::default() }
    }

    /// Threads that are active.
    fn is_running(&self) -> bool {
        self.active && matches!(self.kind, 'T' | 'O')
    }

    /// Whether it was active when instruction `time` of this block was executed.
    fn was_active(&self, time: u32) -> bool {
        let first = self.turns.first().map_or(self.active, |(_, active)| !active);
        self.turns.iter().take_while(|(at, _)| *at < time).last().map_or(first, |(_, active)| *active)
    }
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
    /// The scalar part first.
    pub classes: Vec<Class>,
    pub facts: Facts,
    /// Numbers of the cells that the texts name.
    cells: Rc<[u8]>,
    copies: Vec<Copied>,
    /// When a place was last written in this block.
    written: Map<Lane, u32>,
    /// When Q last read or wrote a vector register in this block, and when LLVM may have written dead ones: the last time
    /// between two writes of EXEC (spec 11.3).
    accessed: Map<Lane, u32>,
    expanded: Vec<u32>,
    expanded_for_all: Option<u32>,
    pub exec_written: u32,
    /// Vector places that are killed, until EXEC is written (spec 11.1).
    dying: Set<Lane>,
    /// Vector registers that classes held while they waited where the block, or its part, began, which does not declare
    /// them, and that Q has not defined since (spec 4.3).
    undeclared: Set<Lane>,
    pub now: u32,
}

/// Which of the two texts a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Name = 0,
    Place = 1,
}

impl State {
    pub fn new(wave: Part, context: &Context<'_>) -> State {
        State { classes: vec![Class::new('W', true, wave)], cells: context.cells.clone(), ..State::default() }
    }

    /// All classes of threads.
    pub fn threads(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().skip(1)
    }

    /// Nothing is known of what these names have in threads, but that some are undefined, and of these places.
    pub fn forget_in_threads(&mut self, names: &Set<Lane>, places: Option<&Set<Lane>>) {
        for class in self.classes.iter_mut().filter(|class| matches!(class.kind, 'T' | 'O')) {
            places.into_iter().flatten().for_each(|place| class.part.write(*place, &[]));
            names.iter().for_each(|name| {
                if !class.part.is_undefined(*name) {
                    class.part.forget(*name)
                }
            });
        }
    }

    pub fn wave(&self) -> &Part {
        &self.classes[WAVE].part
    }

    /// The numbers of all classes of threads for which `choose` holds.
    pub fn select(&self, choose: impl Fn(&Class) -> bool) -> Vec<usize> {
        (1..self.classes.len()).filter(|number| choose(&self.classes[*number])).collect()
    }

    /// Whom a change of a lane concerns: a scalar one every part, a vector one these classes.
    fn concerned(&self, lane: Lane, run: &[usize]) -> Vec<usize> {
        if lane.vector {
            run.to_vec()
        } else {
            (0..self.classes.len()).collect()
        }
    }

    fn each(&mut self, run: &[usize], mut change: impl FnMut(&mut Part)) {
        run.iter().for_each(|number| change(&mut self.classes[*number].part));
    }

    pub fn forget(&mut self, name: Lane, run: &[usize]) {
        self.each(&self.concerned(name, run), |part| part.forget(name));
        self.facts.forget(name);
    }

    pub fn undefine(&mut self, name: Lane, run: &[usize]) {
        self.forget(name, run);
        self.each(if name.vector { run } else { &[WAVE] }, |part| part.set_undefined(name));
    }

    pub fn spoil(&mut self, place: Lane, run: &[usize]) {
        self.each(&self.concerned(place, run), |part| part.write(place, &[]));
    }

    /// The name is defined, and the place holds it and nothing else.
    pub fn hold(&mut self, place: Lane, name: Lane, run: &[usize]) {
        self.spoil(place, run);
        self.each(if name.vector || place.vector { run } else { &[WAVE] }, |part| part.add(place, name));
    }

    /// What a place holds in a class, scalar names included. Where it waited at a copy, and waits, the source may be read
    /// for the target (spec 10.6).
    fn held(&self, class: &Class, place: Lane) -> Vec<Lane> {
        let of = |place: Lane| {
            if self.is_undeclared(class, place) {
                return Vec::new();
            }
            let wave = if place.vector { &[][..] } else { self.wave().holds(place) };
            class.part.holds(place).iter().chain(wave).copied().collect::<Vec<Lane>>()
        };
        let missed = |target: Lane| {
            let mut waited = class.waited.iter().filter(|_| !class.active).map(|at| &self.copies[*at]);
            waited.find(|copied| copied.valid && copied.target == target)
        };
        let (mut names, mut at) = (of(place), place);
        // One may be the source of the next one; a register may be its own.
        for _ in &self.copies {
            let Some(copied) = missed(at) else { break };
            at = copied.source;
            let source = of(at);
            names.retain(|name| source.contains(name));
        }
        names
    }

    /// A place holds a name, or the name is undefined (spec 5.5). `class`: of which class, or the scalar part.
    pub fn reads(&self, class: &Class, name: Lane, place: Lane) -> bool {
        let fits = (name.vector || place.vector) == (class.kind != 'W');
        let known = if name.vector { &class.part } else { self.wave() };
        let dead = class.is_running() && self.dying.contains(&place) || self.is_undeclared(class, place);
        let holds =
            class.part.holds(place).contains(&name) && (class.active || self.held(class, place).contains(&name));
        fits && (!dead && holds || known.is_undefined(name))
    }

    /// A place is killed (spec 11, 11.1): nothing reads it any more, but threads that are about to wait keep a vector
    /// one.
    pub fn kill(&mut self, place: Lane) {
        self.spoil_cells(place, Side::Place);
        self.spoil(place, &self.select(|class| class.kind == 'P'));
        if place.vector {
            self.dying.insert(place);
        }
    }

    /// Nobody on the path reads any more what a vector register holds. Threads that wait may have lost it while they were
    /// active behind the last access (spec 11.3).
    pub fn abandon(&mut self, place: Lane) {
        let since = self.accessed.get(&place).copied().unwrap_or(0);
        let times: Vec<u32> = self.expanded.iter().copied().filter(|at| *at > since).collect();
        let all = self.expanded_for_all.is_some_and(|at| at > since);
        self.spoil(place, &self.select(|class| !class.active && (all || times.iter().any(|at| class.was_active(*at)))));
    }

    /// LLVM may write dead registers where it expands this instruction (spec 11.3).
    pub fn note_expanded(&mut self) {
        self.expanded.retain(|at| *at <= self.exec_written);
        self.expanded.push(self.now);
    }

    /// Likewise for all threads: it is whole-wave spill code.
    pub fn note_expanded_for_all(&mut self) {
        self.expanded_for_all = Some(self.now);
    }

    /// Q reads the first ones, and is about to write the third ones. A copy counts as soon as it is read (spec 11.3), by an
    /// operand in the place of which LLVM cannot have the copy's source read: the second ones.
    pub fn access(
        &mut self, read: &[Lane], stays: &[Lane], written: &[Lane], copies: bool, may_die: impl Fn(Lane) -> bool,
    ) {
        // A virtual register may yet become one that is dead here.
        if written.iter().any(|place| place.vector && place.of == Of::Virtual) {
            self.note_expanded();
        }
        self.undeclared.retain(|place| !written.contains(place));
        let abandoned = written.iter().filter(|place| place.vector && !read.contains(place) && may_die(**place));
        abandoned.for_each(|place| self.abandon(*place));
        let written = written.iter().map(|place| (*place, self.now - u32::from(copies)));
        let is_copy = |place: &Lane| self.copies.iter().any(|copied| copied.valid && copied.target == *place);
        let read = read.iter().filter(|place| stays.contains(place) || !is_copy(place)).map(|place| (*place, self.now));
        self.accessed.extend(written.chain(read).filter(|(place, _)| place.vector));
    }

    /// Which vector registers hold something only while the classes that hold it wait (spec 4.3).
    pub fn note_undeclared(&mut self, is_free: impl Fn(Lane) -> bool) {
        let waiting = self.threads().filter(|class| !class.active);
        let held = waiting.flat_map(|class| class.part.all_places());
        self.undeclared = held.filter(|place| place.vector && place.of == Of::Unit && is_free(*place)).collect();
    }

    /// Nobody who is active has something there (spec 4.3).
    fn is_undeclared(&self, class: &Class, place: Lane) -> bool {
        class.active && self.undeclared.contains(&place)
    }

    /// At the end of one of LLVM's blocks.
    pub fn leave_undeclared(&mut self) {
        let active = self.select(|class| class.active);
        std::mem::take(&mut self.undeclared).iter().for_each(|place| self.spoil(*place, &active));
    }

    /// What is killed holds nothing for the active classes of threads (spec 11.1).
    pub fn bury(&mut self) {
        let running = self.select(Class::is_running);
        std::mem::take(&mut self.dying).into_iter().for_each(|place| self.spoil(place, &running));
    }

    pub fn is_undefined(&self, name: Lane, run: &[usize]) -> bool {
        let mut run = if name.vector { run } else { &[WAVE] }.iter();
        run.all(|number| self.classes[*number].part.is_undefined(name))
    }

    /// Names `t` become copies of names `f`; all are read before one is written (spec 4, `copy name`).
    pub fn copy_names(&mut self, pairs: &[(Lane, Lane)], run: &[usize]) {
        let mut all: Vec<(Lane, usize, Known)> = Vec::new();
        let pairs: Vec<_> = pairs.iter().copied().filter(|(to, from)| to != from).collect();
        for (to, from) in &pairs {
            for number in self.concerned(*to, run) {
                let mut known = self.classes[number].part.known(*from);
                if to.vector && !from.vector {
                    let wave = self.wave().known(*from);
                    known.0.extend(wave.0);
                    known = (known.0, known.1 | wave.1, known.2 | wave.2);
                }
                all.push((*to, number, known));
            }
        }
        let carried: Vec<_> = pairs.iter().map(|(to, from)| (*to, self.facts.parts_of(*from, *to))).collect();
        pairs.iter().for_each(|(to, _)| self.forget(*to, run));
        carried.into_iter().for_each(|(to, parts)| self.facts.set_parts(to, parts));
        all.iter().for_each(|(to, number, known)| self.classes[*number].part.give(*to, known));
    }

    /// Places `t` hold what places `f` held; all are read before one is written (spec 4, `copy place`).
    pub fn copy_places(&mut self, pairs: &[(Lane, Lane)], run: &[usize]) {
        let mut all: Vec<(Lane, usize, Vec<Lane>)> = Vec::new();
        for (to, from) in pairs {
            for number in self.concerned(*to, run) {
                let class = &self.classes[number];
                all.push((
                    *to,
                    number,
                    if to.vector { self.held(class, *from) } else { class.part.holds(*from).to_vec() },
                ));
            }
        }
        all.iter().for_each(|(to, number, names)| self.classes[*number].part.write(*to, names));
    }

    // Cells (spec 3.5, 7.4).

    /// The cells in the vector register or slot that a lane lies in.
    pub fn cells_in(&self, lane: Lane) -> Vec<Lane> {
        let cells = self.cells.iter().filter(|_| lane.vector);
        cells.map(|cell| Lane { cell: *cell, vector: false, ..lane.base() }).collect()
    }

    /// A vector register or slot was written in some way: its cells hold nothing.
    pub fn spoil_cells(&mut self, lane: Lane, side: Side) {
        for cell in self.cells_in(lane) {
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

    /// A name, or a place, of `run` has no value that anything is known of.
    pub fn clear(&mut self, lane: Lane, side: Side, run: &[usize]) {
        match side {
            Side::Name => self.forget(lane, run),
            Side::Place => self.spoil(lane, run),
        }
    }

    /// No thread that waits is in the mask.
    pub fn only_active(&self, mask: &Mask) -> bool {
        self.threads().all(|class| class.active || mask.is_in(class) == Some(false))
    }

    /// Divide each class of which nothing is known about `by` in two (spec 10.4).
    pub fn split(&mut self, by: impl Fn(&Class) -> Option<u32>) -> Done {
        for number in self.select(|class| class.kind != 'P' && by(class).is_some()) {
            let mask = by(&self.classes[number]).unwrap_or_default();
            let mut other = self.classes[number].clone();
            other.masks.insert(mask, false);
            self.classes[number].masks.insert(mask, true);
            self.classes.push(other);
            ensure!(
                self.threads().count() <= MOST_CLASSES,
                "classes",
                "",
                "more than {MOST_CLASSES} classes of threads"
            );
        }
        Ok(())
    }

    /// Each class is active, or waits, as the mask says that EXEC has become (spec 10.4).
    pub fn activate(&mut self, mask: u32) {
        self.exec_written = self.now;
        for number in 1..self.classes.len() {
            let class = &mut self.classes[number];
            let active = class.kind == 'P' || class.masks.get(&mask) == Some(&true);
            if active != class.active {
                class.turns.push((self.now, active));
                class.active = active;
                // In order: a copy of a copy is narrowed by the first one too (spec 10.6).
                let waited = if active { class.waited.clone() } else { Vec::new() };
                for at in waited {
                    let copied = self.copies[at].clone();
                    if copied.valid {
                        let source = self.held(&self.classes[number], copied.source);
                        self.classes[number].part.narrow(copied.target, &source);
                    }
                }
            }
        }
    }

    // Copies across EXEC (spec 10.6).

    /// A place was written by an instruction of Q, in whatever classes; `again`: by a copy that stands there already,
    /// which the pass may delete: then it is as if nothing had been written.
    pub fn note_written(&mut self, place: Lane, again: bool) {
        if !again {
            for copied in self.copies.iter_mut().filter(|copied| copied.valid) {
                copied.valid = copied.target != place && copied.source != place;
            }
            self.written.insert(place, self.now);
        }
        self.dying.remove(&place);
        if place.of == Of::Unit && !self.copies.is_empty() {
            let unchanged = Lane { of: Of::Unchanged, ..place };
            self.classes.iter_mut().for_each(|class| class.part.write(unchanged, &[]));
        }
    }

    /// What a place holds in each class if no copy is propagated.
    pub fn before_copies(&self, place: Lane) -> Vec<Vec<Lane>> {
        self.classes.iter().map(|class| class.part.unchanged(place).to_vec()).collect()
    }

    /// What a place holds in each class, if no copy is propagated, for which a copy to it was made while the class waited:
    /// where LLVM deletes a later one (spec 10.13).
    pub fn missed(&self, place: Lane) -> Vec<(usize, Vec<Lane>)> {
        let to_it = |number: &usize| self.copies[*number].valid && self.copies[*number].target == place;
        let missed = |number: &usize| {
            let class = &self.classes[*number];
            class.kind != 'P' && class.active && class.waited.iter().any(to_it)
        };
        let numbers = self.select(|_| true).into_iter().filter(missed);
        numbers.map(|number| (number, self.classes[number].part.unchanged(place).to_vec())).collect()
    }

    /// A copy to a place is deleted: of what it holds now stays what it held before.
    pub fn leave(&mut self, place: Lane, before: Vec<(usize, Vec<Lane>)>) {
        for (number, before) in before {
            let part = &mut self.classes[number].part;
            let both: Vec<Lane> = part.holds(place).iter().filter(|name| before.contains(name)).copied().collect();
            part.write(place, &both);
        }
    }

    /// What a place holds, of scalars and in each class.
    pub fn held_by_all(&self, place: Lane) -> Vec<Vec<Lane>> {
        self.classes.iter().map(|class| class.part.holds(place).to_vec()).collect()
    }

    /// A copy to a place that held this before is deleted.
    pub fn note_unwritten(&mut self, place: Lane, before: &[Vec<Lane>]) {
        for (class, before) in self.classes.iter_mut().zip(before) {
            if !class.part.holds(place).iter().any(|name| before.contains(name)) {
                class.part.note_unwritten(place);
            }
        }
    }

    /// Where the same copy stands before, and neither register has been written since.
    pub fn copied_before(&self, (target, source): (Lane, Lane)) -> Option<usize> {
        self.copies.iter().position(|c| c.valid && (c.target, c.source) == (target, source))
    }

    /// A vector COPY of Q alone has copied `source` to `target`; `old` is what the target held before, by class.
    pub fn note_copy(&mut self, target: Lane, source: Lane, old: &[Vec<Lane>]) {
        // A scalar is written for whoever waits too.
        let written = self.written.get(&source).copied().filter(|at| source.vector && *at < self.exec_written);
        // The pass may delete a copy that stands again. Those behind it are then compared with the first one.
        let first = self.copied_before((target, source));
        let copy = first.unwrap_or(self.copies.len());
        if first.is_none() {
            self.copies.push(Copied { target, source, valid: true });
        }
        for number in self.select(|class| class.kind != 'P') {
            let (class, before) = (&self.classes[number], &old[number]);
            let holds_source = self.held(class, source);
            let both =
                |own: &[Lane]| -> Vec<Lane> { own.iter().copied().filter(|n| holds_source.contains(n)).collect() };
            let narrowed = match written.map(|at| (class.active, class.was_active(at))) {
                _ if first.is_some() && class.active && class.waited.contains(&copy) => Some(both(before)),
                Some((false, true)) => Some(both(class.part.holds(target))),
                Some((true, false)) => Some(both(before)),
                _ => None,
            };
            let class = &mut self.classes[number];
            if let Some(names) = narrowed {
                class.part.write(target, &names);
            }
            if !class.active && first.is_none() {
                class.waited.push(copy);
            }
        }
    }

    /// At the end of a block: copies are propagated within it only. What is `read` in a copy of the next block holds, in
    /// a class that missed it, no more than what may be read for it (spec 10.11).
    pub fn end_copies(&mut self, read: &Set<Lane>) {
        for class in &mut self.classes {
            for place in class.part.unwritten() {
                class.part.write(place, &[]);
            }
        }
        for number in self.select(|class| !read.is_empty() && class.kind != 'P') {
            let class = &self.classes[number];
            let held: Vec<(Lane, Vec<Lane>)> = read.iter().map(|at| (*at, self.held(class, *at))).collect();
            held.iter().for_each(|(at, names)| self.classes[number].part.write(*at, names));
        }
        if !self.copies.is_empty() {
            self.classes.iter_mut().for_each(|class| class.part.unpropagate());
            self.classes.iter_mut().for_each(|class| class.waited.clear());
        }
    }

    /// All lanes of slots, as places and as names (spec 6); of slots of scalars only with `scalars`: they may become lanes of registers.
    pub fn in_memory(&self, scalars: bool) -> [Set<Lane>; 2] {
        let in_memory = |lane: &Lane| lane.of == Of::Slot && (scalars || lane.vector || lane.cell != 0);
        let parts = || self.classes.iter().map(|class| &class.part);
        [
            parts().flat_map(Part::all_places).filter(in_memory).collect(),
            parts().flat_map(Part::all_names).filter(in_memory).collect(),
        ]
    }
}
