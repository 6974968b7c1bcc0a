//! Masks (spec 10.1, 10.2), what an instruction does with them and with EXEC (10.3 to 10.5), and what it says of
//! threads
//! (10.7, 10.8, 10.9, 10.10).

use crate::context::Context;
use crate::lanes::{Lane, Map, Set, EXEC};
use crate::model::{ensure, Done, Instruction, Kind, Operand, IMPLICIT};
use crate::threads::{Class, State};

/// What an operand is as a mask (spec 10.1).
#[derive(Clone, Debug)]
pub enum Mask {
    Everybody,
    Nobody,
    /// All these masks are the operand's value.
    Known(Vec<u32>),
    Unknown,
}

impl Mask {
    /// Whether the threads of a class are in it (spec 10.2).
    pub fn is_in(&self, class: &Class) -> Option<bool> {
        match self {
            _ if class.kind == 'P' => Some(true),
            Mask::Everybody => Some(true),
            Mask::Nobody => Some(false),
            Mask::Known(masks) => masks.iter().find_map(|mask| class.masks.get(mask).copied()),
            Mask::Unknown => None,
        }
    }

    /// The numbers of the masks that it is known to be.
    pub fn numbers(&self) -> &[u32] {
        if let Mask::Known(masks) = self {
            masks
        } else {
            &[]
        }
    }

    fn is(&self, found: impl Fn(u32) -> bool) -> bool {
        matches!(self, Mask::Everybody) || self.numbers().iter().any(|mask| found(*mask))
    }
}

/// What a mask, or a fact that names carry as they carry masks, may be known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Not empty.
    Nonempty,
    /// It holds the first active thread (spec 10.7).
    HasFirst,
    /// Not a mask, but the number of an active thread (spec 10.8).
    Number,
}

/// What is known of masks, by their numbers, and of the scalar names that are parts of them. Some are no masks, but
/// facts
/// that names carry as they carry masks.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Of which masks a scalar name is a part, and which part.
    parts: Map<Lane, Vec<(u32, u32)>>,
    marks: Set<(u32, Mark)>,
    next: u32,
    exec: u32,
    /// The vector lane of which a scalar is what the first active thread has (spec 10.7).
    first_of: Map<u32, Lane>,
    /// Masks that are not empty where EXEC is 0 (spec 10.10).
    pub beside: Set<u32>,
    /// The mask that is not empty where SCC is 1 (spec 10.9).
    pub scc: Option<u32>,
}

impl Facts {
    pub fn forget(&mut self, name: Lane) {
        if name.vector {
            self.first_of.retain(|_, of| *of != name);
        } else {
            self.parts.remove(&name);
            self.scc = self.scc.filter(|_| !name.is_scc());
        }
    }

    /// The scalar names that are parts of something.
    pub fn all_names(&self) -> impl Iterator<Item = Lane> + '_ {
        self.parts.keys().copied()
    }

    /// What a scalar name carries to a copy.
    pub fn parts_of(&self, from: Lane, to: Lane) -> Option<Vec<(u32, u32)>> {
        self.parts.get(&from).filter(|_| !from.vector && !to.vector).cloned()
    }

    pub fn set_parts(&mut self, to: Lane, parts: Option<Vec<(u32, u32)>>) {
        self.parts.extend(parts.map(|parts| (to, parts)));
    }

    pub fn new_mask(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn mark(&mut self, masks: &[u32], mark: Mark) {
        self.marks.extend(masks.iter().map(|mask| (*mask, mark)));
    }

    pub fn is(&self, mask: &Mask, mark: Mark) -> bool {
        mask.is(|mask| self.marks.contains(&(mask, mark)))
    }

    /// These names are the parts of a mask, from part 0 on.
    pub fn set_mask(&mut self, names: &[Lane], mask: u32) {
        for (part, name) in (0..).zip(names).filter(|(_, name)| !name.vector) {
            let parts = self.parts.entry(*name).or_default();
            if parts.len() < 16 && !parts.contains(&(mask, part)) {
                parts.push((mask, part));
            }
        }
    }

    /// The masks whose parts these names are, in order.
    pub fn masks_of(&self, names: &[Lane]) -> Mask {
        let has = |name: &Lane, part: (u32, u32)| self.parts.get(name).is_some_and(|parts| parts.contains(&part));
        let first = names.first().and_then(|name| self.parts.get(name)).map_or(&[][..], Vec::as_slice);
        let is_whole = |mask: &u32| (0..).zip(names).all(|(part, name)| has(name, (*mask, part)));
        Mask::Known(first.iter().map(|(mask, _)| *mask).filter(is_whole).collect())
    }

    fn set_exec(&mut self, mask: u32) {
        self.exec = mask;
        self.mark(&[mask], Mark::HasFirst);
    }

    /// Some thread is active (spec 10.5).
    pub fn some_active(&self) -> bool {
        self.marks.contains(&(self.exec, Mark::Nonempty))
    }

    pub fn set_some_active(&mut self) {
        let parts = self.parts.get(&Lane::unit(EXEC[0])).map_or(&[][..], Vec::as_slice);
        self.marks.extend(parts.iter().map(|(mask, _)| *mask).chain([self.exec]).map(|mask| (mask, Mark::Nonempty)));
    }

    /// Some thread is active or in this mask (spec 10.10).
    pub fn is_beside(&self, mask: &Mask) -> bool {
        mask.is(|mask| self.beside.contains(&mask))
    }

    /// No thread is active: the masks beside EXEC have one (spec 10.10).
    pub fn set_exec_empty(&mut self) {
        self.marks.extend(self.beside.iter().map(|mask| (*mask, Mark::Nonempty)));
    }

    fn is_first(&self, scalar: Lane, vector: Lane) -> bool {
        self.masks_of(&[scalar]).is(|fact| self.first_of.get(&fact) == Some(&vector))
    }
}

impl State {
    /// These names are the parts of a new mask, that of the active classes.
    pub fn note_active(&mut self, names: &[Lane]) -> u32 {
        let mask = self.facts.new_mask();
        self.classes.iter_mut().for_each(|class| class.masks.extend([(mask, class.active)]));
        self.facts.set_mask(names, mask);
        mask
    }

    /// At a block's entry: EXEC is a mask of its own, of the classes that are active.
    pub fn begin(&mut self, exec: &[Lane], some: bool) {
        let mask = self.note_active(exec);
        self.facts.set_exec(mask);
        if some {
            self.facts.set_some_active();
        }
    }

    /// A new mask that is this value.
    fn mask_with(&mut self, value: &Value) -> u32 {
        let mask = self.facts.new_mask();
        for class in &mut self.classes {
            class.masks.extend(value.is_in(class).map(|inside| (mask, inside)));
        }
        let nonempty = value.has(&self.facts, Mark::Nonempty);
        self.facts.mark(&[mask][..usize::from(nonempty)], Mark::Nonempty);
        mask
    }

    /// Divide the classes of which a mask says nothing (spec 10.4).
    fn split_by(&mut self, mask: u32) -> Done {
        self.split(|class| Mask::Known(vec![mask]).is_in(class).is_none().then_some(mask))
    }
}

/// How a value comes about.
#[derive(Clone, Debug)]
enum Value {
    Operation(&'static str, Mask, Mask),
    Same(Mask),
    /// A comparison: out for classes that wait, unknown for others.
    Comparison,
}

impl Value {
    /// Whether the threads of a class are in it.
    fn is_in(&self, class: &Class) -> Option<bool> {
        match self {
            Value::Operation(operation, a, b) => combine(operation, a.is_in(class), b.is_in(class)),
            Value::Same(mask) => mask.is_in(class),
            Value::Comparison => Some(false).filter(|_| !class.active),
        }
    }

    /// What is known of its parts makes it such a mask (spec 10.5, 10.7).
    fn has(&self, facts: &Facts, mark: Mark) -> bool {
        match self {
            Value::Operation("AND", a, b) => mark == Mark::HasFirst && facts.is(a, mark) && facts.is(b, mark),
            Value::Operation("OR", a, b) => {
                let is_exec = |mask: &Mask| mask.is(|mask| mask == facts.exec);
                let beside = is_exec(a) && facts.is_beside(b) || is_exec(b) && facts.is_beside(a);
                facts.is(a, mark) || facts.is(b, mark) || mark == Mark::Nonempty && beside
            }
            Value::Same(mask) => facts.is(mask, mark),
            _ => false,
        }
    }
}

/// Three-valued logic of spec 10.3; `None` for an operation that is not known.
fn combine(operation: &str, a: Option<bool>, b: Option<bool>) -> Option<bool> {
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

/// Whether a thread that waits at a branch which skips some blocks would be active in them, and in masks (spec 12.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nobody {
    pub active: Option<bool>,
    /// Of parts of masks, where it is known.
    masks: Map<Lane, bool>,
}

impl Nobody {
    /// At the branch nobody is active.
    pub fn new() -> Nobody {
        Nobody { active: Some(false), masks: Map::default() }
    }

    /// What both say.
    pub fn meet(&mut self, other: &Nobody) {
        self.masks.retain(|lane, inside| other.masks.get(lane) == Some(inside));
        self.active = self.active.filter(|_| self.active == other.active);
    }

    /// Whether it is in what an operand is as a mask.
    fn is_in(&self, operand: &Operand) -> Option<bool> {
        let (first, rest) = match (operand.kind, operand.text.as_str()) {
            (Kind::Immediate, "0") => return Some(false),
            (Kind::Immediate, "-1") => return Some(true),
            _ => operand.lanes.split_first().filter(|_| operand.reads())?,
        };
        if first.is_exec() {
            return self.active;
        }
        let inside = self.masks.get(first);
        inside.filter(|_| rest.iter().all(|lane| self.masks.get(lane) == inside)).copied()
    }

    /// Go through an instruction of P (spec 10.3, 10.4).
    pub fn follow(&mut self, p: &Instruction) {
        if p.defined().all(|o| o.lanes.iter().all(|lane| lane.vector)) {
            return;
        }
        let source = |number: usize| p.operands.get(p.definitions + number).and_then(|o| self.is_in(o));
        let compared = self.active.filter(|inside| !inside);
        let (result, active) = match (p.value("save"), p.value("mask")) {
            ("", _) if p.has("enter-wwm") => (self.active, Some(true)),
            ("", _) if p.has("compare") || p.has("cmpx") => (compared, compared),
            ("", "") if p.has("mask-move") || p.has("copy") => (source(0), source(0)),
            ("", binary) => (combine(binary, source(0), source(1)), combine(binary, source(0), source(1))),
            (saving, _) => (self.active, combine(saving, source(0), self.active)),
        };
        let orders = |o: &Operand| p.has("copy") && o.is(IMPLICIT);
        if p.defined().any(|o| !orders(o) && o.lanes.iter().any(|lane| lane.is_exec())) {
            self.active = active;
        }
        for lane in p.defined().flat_map(|o| &o.lanes) {
            self.masks.remove(lane);
        }
        if let (Some(first), Some(inside)) = (p.operands.first().filter(|o| o.is_def()), result) {
            self.masks.extend(first.lanes.iter().map(|lane| (*lane, inside)));
        }
    }
}

/// What is to be done when the instruction has written.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    result: Option<(Vec<Lane>, Value)>,
    exec: Option<Value>,
    /// The old EXEC, by its masks.
    old: Vec<u32>,
    /// The result is a comparison with what the first active thread has (spec 10.7).
    first: bool,
    /// Lanes that become what the first active thread has in others (spec 10.7).
    firsts: Vec<(Lane, Lane)>,
    /// Lanes that become an active thread's number (spec 10.8).
    number: Vec<Lane>,
    /// It defines SCC by its result (spec 10.9).
    scc: bool,
}

impl Effect {
    /// Read the operands that are masks, before anything is written.
    pub fn of(context: &Context<'_>, state: &mut State, p: &Instruction) -> Done<Effect> {
        let exec = &context.exec;
        let operand = |number: usize| p.operands.get(number);
        let lanes_of = |number: usize| operand(number).map_or(&[][..], |o| &o.lanes);
        let defined = p.lanes(Operand::is_def);
        let written: Vec<Lane> = defined.iter().copied().filter(|lane| lane.is_exec()).collect();
        let writes_exec = !written.is_empty();
        let first = operand(0).filter(|o| o.is_def() && !o.is(IMPLICIT)).map_or(Vec::new(), |o| o.lanes.clone());
        let is_wide = |lanes: &[Lane]| lanes.len() == exec.len() && lanes.iter().all(|lane| !lane.vector);
        let wide = is_wide(&first);
        let old = state.facts.masks_of(exec);
        let mut effect = Effect { old: old.numbers().to_vec(), ..Effect::default() };
        if p.has("compare-equal") && [1, 2].iter().all(|n| operand(*n).is_none_or(Operand::reads)) {
            let (a, b) = (lanes_of(1), lanes_of(2));
            let same = |(one, other): (&Lane, &Lane)| state.facts.is_first(*one, *other);
            let all = |a: &[Lane], b: &[Lane]| a.iter().zip(b).all(same);
            effect.first = a.len() == b.len() && !a.is_empty() && (all(a, b) || all(b, a));
        }
        let reads_one = p.definitions == 1 && operand(1).is_some_and(Operand::reads) && p.explicit().count() == 2;
        if p.value("reach") == "first" && reads_one && lanes_of(1).len() == first.len() {
            effect.firsts = first.iter().copied().zip(lanes_of(1).iter().copied()).collect();
        }
        let mut of = |number: usize| mask_of(context, state, operand(number));
        let (binary, saving) = (p.value("mask"), p.value("save"));
        if p.has("first-bit") {
            let mask = of(1);
            if state.facts.is(&mask, Mark::Nonempty) && state.only_active(&mask) {
                effect.number = first.clone();
            }
        } else if !binary.is_empty() && wide {
            effect.result = Some((first.clone(), Value::Operation(binary, of(1), of(2))));
            effect.scc = defined.iter().any(|lane| lane.is_scc());
        } else if !saving.is_empty() && wide && writes_exec {
            effect.exec = Some(Value::Operation(saving, of(1), old.clone()));
            effect.result = Some((first.clone(), Value::Same(old)));
        } else if p.has("enter-wwm") && wide && writes_exec {
            effect.result = Some((first.clone(), Value::Same(old)));
            effect.exec = Some(Value::Same(Mask::Everybody));
        } else if p.has("mask-move") && wide {
            effect.result = Some((first.clone(), Value::Same(of(1))));
        } else if p.has("compare") {
            // The implicit result of a comparison is `$vcc` or its half.
            let is_vcc = |o: &Operand| o.register.is_some_and(|register| register.name.starts_with("vcc"));
            let implicit = p.defined().find(|o| o.is(IMPLICIT) && is_vcc(o)).filter(|_| first.is_empty());
            let lanes = implicit.map_or(first.clone(), |o| o.lanes.clone());
            effect.result = is_wide(&lanes).then_some((lanes, Value::Comparison));
        } else if p.has("cmpx") && writes_exec {
            effect.exec = Some(Value::Comparison);
        }
        if writes_exec && first == *exec && effect.exec.is_none() && !p.has("compare") {
            effect.exec = effect.result.take().map(|(_, value)| value);
        }
        let covers = exec.iter().all(|lane| written.contains(lane));
        // Wave32 has no use for EXEC's high half, but `implicit-def $exec` names it.
        let stray = written.iter().any(|lane| !exec.contains(lane)) && context.processor.wave_size != 32;
        let followed = !writes_exec || effect.exec.is_some() && covers && !stray;
        ensure!(followed, "exec", p, "it writes EXEC in a way that is not followed");
        Ok(effect)
    }

    /// Follow it; at an instruction marked `split`, classes are split by the result.
    pub fn apply(self, state: &mut State, p: &Instruction, exec: &[Lane], split: bool) -> Done {
        let marked = self.result.is_some() || self.exec.is_some();
        ensure!(!split || marked, "certificate", p, "a `split` where nothing is split");
        for (scalar, vector) in self.firsts {
            let doubtful = state.threads().any(|class| class.active && class.part.is_doubtful(vector));
            if !doubtful && vector.vector && !scalar.vector {
                let fact = state.facts.new_mask();
                state.facts.first_of.insert(fact, vector);
                state.facts.set_mask(&[scalar], fact);
            }
        }
        if !self.number.is_empty() {
            let fact = state.facts.new_mask();
            state.facts.mark(&[fact], Mark::Number);
            state.facts.set_mask(&self.number, fact);
        }
        let some = state.facts.some_active();
        if let Some((names, value)) = self.result {
            let mask = state.mask_with(&value);
            if self.first || value.has(&state.facts, Mark::HasFirst) {
                state.facts.mark(&[mask], Mark::HasFirst);
            }
            state.facts.scc = Some(mask).filter(|_| self.scc).or(state.facts.scc);
            state.facts.set_mask(&names, mask);
            if let Value::Same(same) = &value {
                same.numbers().iter().for_each(|other| state.facts.set_mask(&names, *other));
            }
            if split {
                state.split_by(mask)?;
            }
        }
        let Some(value) = self.exec else { return Ok(()) };
        // First by the one operand that is unknown, then by the result.
        state.split(|class| match &value {
            _ if value.is_in(class).is_some() => None,
            Value::Operation(_, a, b) => match (a.is_in(class), b.is_in(class)) {
                (None, Some(_)) => a.numbers().first().copied(),
                (Some(_), None) => b.numbers().first().copied(),
                _ => None,
            },
            Value::Same(mask) => mask.numbers().first().copied(),
            Value::Comparison => None,
        })?;
        let mask = state.mask_with(&value);
        if some && value.has(&state.facts, Mark::HasFirst) {
            state.facts.mark(&[mask], Mark::Nonempty);
        }
        state.split_by(mask)?;
        let is_old = |mask: &Mask| mask.numbers().iter().any(|number| self.old.contains(number));
        // Masks that hold every class that leaves EXEC here.
        let stays = |class: &Class| !class.active || class.kind == 'P' || class.masks.get(&mask) == Some(&true);
        let left: Vec<&Class> = state.threads().filter(|class| !stays(class)).collect();
        let all = state.facts.parts.values().flatten().map(|(mask, _)| *mask);
        let beside = all.filter(|mask| some && left.iter().all(|class| class.masks.get(mask) == Some(&true))).collect();
        let facts = &mut state.facts;
        facts.scc = Some(mask).filter(|_| self.scc).or(facts.scc);
        facts.first_of.clear();
        facts.beside = beside;
        let grows = matches!(&value, Value::Operation("OR", a, b) if is_old(a) || is_old(b));
        facts.marks.retain(|(_, mark)| *mark == Mark::Nonempty || *mark == Mark::Number && grows);
        exec.iter().for_each(|name| drop(facts.parts.remove(name)));
        let same = if let Value::Same(same) = &value { same.numbers() } else { &[] };
        [mask].iter().chain(same).for_each(|mask| facts.set_mask(exec, *mask));
        facts.set_exec(mask);
        state.activate(mask);
        state.bury();
        // No thread of a mask that is not empty waits (spec 10.5). At function entry all threads of kind `T` are such
        // a mask.
        let all_active = state.threads().all(|class| class.active || class.kind != 'T');
        let covers =
            |(mask, mark): &(u32, Mark)| *mark == Mark::Nonempty && state.only_active(&Mask::Known(vec![*mask]));
        if all_active || state.facts.marks.iter().any(covers) {
            state.facts.set_some_active();
        }
        Ok(())
    }
}

/// What an operand is as a mask. Names of which nothing is known become a mask of their own.
pub fn mask_of(context: &Context<'_>, state: &mut State, operand: Option<&Operand>) -> Mask {
    let Some(operand) = operand else { return Mask::Unknown };
    match operand.text.as_str() {
        "0" if operand.kind == Kind::Immediate => return Mask::Nobody,
        "-1" if operand.kind == Kind::Immediate => return Mask::Everybody,
        _ => {}
    }
    let is_exec = operand.lanes.iter().all(|lane| lane.is_exec()) && operand.lanes.starts_with(&context.exec);
    let lanes = if is_exec { context.exec.clone() } else { operand.lanes.clone() };
    let settled = |lane: &Lane| !lane.vector && !state.wave().is_doubtful(*lane);
    if !operand.reads() || lanes.len() != context.exec.len() || !lanes.iter().all(settled) {
        return Mask::Unknown;
    }
    let known = state.facts.masks_of(&lanes);
    if !known.numbers().is_empty() {
        return known;
    }
    let own = state.facts.new_mask();
    state.facts.set_mask(&lanes, own);
    Mask::Known(vec![own])
}
