//! Walks through the blocks, step by step (spec 2.3, 5.1, 5.4, 5.5, 5.10, 6, 8.2 to 8.4, 9, 9.1, 11, 12.2, 12.3, 13.6).
//!
//! Spec 8.3 is `remember` and `remember_result`.

use crate::certificate::{BlockPart, Take};
use crate::context::{read_lanes, Context};
use crate::entry;
use crate::forms::{self, Mode};
use crate::header::info;
use crate::lanes::{Lane, Of, Set};
use crate::masks::{mask_of, Effect};
use crate::model::{
    ensure, Block, Done, Function, Instruction, Kind, Operand, Refused, DEAD, IMPLICIT, KILLED, RENAMABLE, UNDEF,
};
use crate::moves;
use crate::tables::tables;
use crate::threads::{Side, State, WAVE};

struct Checker<'a> {
    context: &'a Context<'a>,
    parts: &'a [BlockPart],
    /// Instructions of P that some `repeat` names.
    repeated: Set<(u32, u32)>,
    frame_units: Set<u32>,
    /// Units that moves and instructions without code of P define (spec 13.6).
    moved_units: Set<u32>,
    /// Units that reloads of scalars of Q write (spec 12.3).
    reloaded: Set<u32>,
    compared: usize,
}

/// What is going on in one block.
struct Walk<'a> {
    state: State,
    block: usize,
    part: &'a BlockPart,
    terminated: bool,
    /// The `BUNDLE` of Q that is open.
    bundle: Option<Bundle<'a>>,
    repeats: usize,
    splits: usize,
    /// Scalar registers that moves of P, and of Q, have killed since the last pair (spec 11.2).
    killed: [Set<Lane>; 2],
    /// Scalar registers that both have killed, and nothing has written since: pairs may read them (spec 11.2).
    revived: Set<Lane>,
}

/// What is compared of what an instruction reads: classes that read, lanes that are not read (operand and position, spec
/// 5.11), operands with classes that do not read them, and one that is read although it is `undef` (5.4).
#[derive(Default)]
struct Reading {
    readers: Vec<usize>,
    skip: Vec<(usize, usize)>,
    unread: Vec<(usize, Vec<usize>)>,
    mask: Option<usize>,
}

impl Reading {
    /// The classes that read this operand.
    fn of(&self, operand: usize) -> Vec<usize> {
        let unread = |class: &usize| self.unread.iter().any(|(number, all)| *number == operand && all.contains(class));
        self.readers.iter().copied().filter(|class| !unread(class)).collect()
    }
}

/// What the members of a bundle of Q have done so far.
struct Bundle<'a> {
    head: &'a Instruction,
    defined: Set<Lane>,
    /// What they read from outside.
    read: Set<Lane>,
}

/// Check the blocks of both texts against a certificate. How many operands were compared.
///
/// # Errors
/// The rule that does not hold.
pub fn check(context: &Context<'_>, parts: &[BlockPart]) -> Done<usize> {
    let (p, q) = (context.before, context.after);
    moves::saves_follow(p)?;
    moves::saves_follow(q)?;
    let units = |lanes: Vec<Lane>| lanes.into_iter().filter(|lane| lane.of == Of::Unit).map(|lane| lane.a);
    let moved = p.instructions().filter(|i| is_moving(i)).flat_map(|i| units(i.lanes(Operand::is_def)));
    let reloaded = q.instructions().filter(|i| is_reload(i)).flat_map(|i| units(i.lanes(Operand::is_def)));
    let mut checker = Checker {
        context,
        parts,
        repeated: parts.iter().flat_map(|part| part.repeats.values().copied()).collect(),
        frame_units: context.frame_units(),
        moved_units: moved.collect(),
        reloaded: reloaded.collect(),
        compared: 0,
    };
    checker.keeps_promises()?;
    for (number, part) in parts.iter().enumerate() {
        checker.block(number, part)?;
    }
    Ok(checker.compared)
}

/// Blocks correspond by position (spec 2.3).
///
/// # Errors
/// `control-flow`: they do not.
pub fn same_blocks(p: &Function, q: &Function) -> Done {
    ensure!(p.blocks.len() == q.blocks.len(), "control-flow", "", "another number of blocks");
    for (x, y) in p.blocks.iter().zip(&q.blocks) {
        let same = x.successors == y.successors && x.attributes == y.attributes;
        ensure!(same, "control-flow", y.line, "other successors or attributes");
        ensure!(!x.successors.contains(&0), "control-flow", y.line, "the first block is a successor");
    }
    Ok(())
}

impl<'a> Checker<'a> {
    /// What calls of this function in P's file rely on, Q leaves alone as P does (spec 9).
    fn keeps_promises(&self) -> Done {
        let promised = &self.context.promised;
        let broken = |text: &'a Function| -> Done<Vec<(u32, &'a Instruction)>> {
            let mut all = Vec::new();
            for i in text.instructions().filter(|_| !promised.is_empty()) {
                let lanes = i.lanes(Operand::is_def).into_iter().filter(|lane| lane.of == Of::Unit);
                let kept = if i.has("call") { preserved(i)? } else { promised.iter().copied().collect() };
                let lost = promised.iter().copied().filter(|unit| !kept.contains(unit));
                let written = lanes.map(|lane| lane.a).filter(|unit| promised.contains(unit));
                all.extend(written.chain(lost).map(|unit| (unit, i)));
            }
            Ok(all)
        };
        let before: Set<u32> = broken(self.context.before)?.into_iter().map(|(unit, _)| unit).collect();
        let wrong = broken(self.context.after)?.into_iter().find(|(unit, _)| !before.contains(unit));
        wrong.map_or(Ok(()), |(unit, i)| Err(Refused::new("call-mask", format!("${unit}, which a call relies on,"), i)))
    }

    fn block(&mut self, number: usize, part: &'a BlockPart) -> Done {
        let context = self.context;
        let (before, after) = (&context.before.blocks[number], &context.after.blocks[number]);
        let state = match &part.entry {
            _ if number == 0 => entry::of_function(context, after),
            Some(claimed) => claimed.state(context, after)?,
            None => return Ok(()),
        };
        let (killed, revived) = (Default::default(), Set::default());
        let mut walk = Walk {
            state,
            block: number,
            part,
            terminated: false,
            bundle: None,
            repeats: 0,
            splits: 0,
            killed,
            revived,
        };
        let place = format!("block {number}");
        let (mut i, mut j) = (0, 0);
        for (count, take) in part.steps.iter().flatten() {
            for _ in 0..*count {
                walk.state.now += 1;
                match (take, before.instructions.get(i), after.instructions.get(j)) {
                    (Take::Pair, Some(p), Some(q)) => self.pair(&mut walk, i, p, q)?,
                    (Take::Before, Some(p), _) => self.before_alone(&mut walk, i, p)?,
                    (Take::After, _, Some(q)) => self.after_alone(&mut walk, j, q)?,
                    _ => return Err(Refused::new("certificate", "steps behind the last instruction", place.as_str())),
                }
                i += usize::from(*take != Take::After);
                j += usize::from(*take != Take::Before);
            }
        }
        let all = i == before.instructions.len() && j == after.instructions.len();
        ensure!(all, "certificate", place.as_str(), "instructions without a step");
        let marked = walk.repeats == part.repeats.len() && walk.splits == part.splits.len();
        ensure!(marked, "certificate", place.as_str(), "a `repeat` or `split` at an instruction that is none");
        self.edges(walk, before)
    }

    /// Spec 12.1, 12.2.
    fn edges(&self, mut walk: Walk<'_>, block: &Block) -> Done {
        let tested = tested(block, walk.block);
        walk.state.bury();
        walk.state.end_copies();
        for successor in block.successors.iter().copied() {
            let claimed = self.parts[successor].entry.as_ref();
            let unclaimed = || Refused::new("relation", format!("block {successor} has no claims"), block.line);
            // What the branch says on this edge: the word behind `test=`, or its opposite.
            let said =
                tested.map_or(("", false), |(test, target)| (test, test.ends_with('0') == (target == successor)));
            let mut state = walk.state.clone();
            match said {
                ("exec0" | "exec1", false) => state.facts.set_some_active(),
                ("exec0" | "exec1", true) => state.facts.mark_nonempty(&walk.state.facts.emptied_by),
                ("scc0" | "scc1", false) => state.facts.mark_nonempty(walk.state.facts.scc.as_slice()),
                _ => {}
            }
            claimed.ok_or_else(unclaimed)?.follows(&state, said.0.starts_with("exec") && said.1, walk.block)?;
        }
        Ok(())
    }

    // Whom an instruction concerns (spec 5.4).

    /// The classes for which it runs, and those in which it reads.
    fn concerned(&self, state: &State, i: &Instruction) -> (Vec<usize>, Vec<usize>) {
        let wide = state.select(|class| class.active || class.kind == 'T');
        let active = state.select(|class| class.active);
        match i.value("reach") {
            "writes" if !names_active_thread(state, i) => (wide.clone(), wide),
            "reads" if !names_active_thread(state, i) => (active, wide),
            _ => (active.clone(), active),
        }
    }

    fn reach_allowed(&self, state: &State, i: &Instruction) -> Done {
        let reach = i.value("reach");
        let no_one = reach == "first" && i.explicit().any(Operand::reads) && !state.facts.some_active();
        ensure!(!no_one, "inactive-lanes", i, "no thread may be active");
        let hints = |o: &Operand| !o.is_register() && tables().hints_at_threads(&o.text);
        let unclear = !matches!(reach, "" | "active" | "reads" | "writes" | "first")
            || i.has("asm") && i.operands.iter().any(hints);
        let all_active = state.threads().all(|class| class.active || class.kind != 'T');
        ensure!(!unclear || all_active, "inactive-lanes", i, "it may reach threads that wait");
        Ok(())
    }

    /// Opcodes that nobody follows (spec 6).
    fn followed(&self, i: &Instruction) -> Done {
        let odd = ["vskip", "indexed-on", "indexed-off", "indexed-mode", "vgpr-msb", "generic"];
        let odd = odd.iter().any(|word| i.has(word) || !i.value(word).is_empty());
        // A write of MODE that reaches the bits which let indices or skips change what follows.
        let last = i.explicit().last().filter(|_| i.name.starts_with("S_SETREG"));
        let reaches = last.map(|o| o.text.parse().unwrap_or(u32::MAX)).is_some_and(|word| {
            let (first, size) = (word >> 6 & 31, (word >> 11 & 31) + 1);
            word > 0xffff || (word & 63 == 1 && first <= 28 && first + size > 27)
        });
        ensure!(!odd && !reaches, "not-followed", i, "an instruction that is not followed");
        Ok(())
    }

    /// Spec 9.1: a callee leaves alone what threads keep that were not active when it was called.
    fn waiting_callers(&self, state: &State, q: &Instruction) -> Done {
        let other = state.threads().any(|class| class.active && class.kind == 'O');
        let entry = info(self.context.after, "isEntryFunction") == "true";
        let asked = (other || q.is_whole_wave()) && !entry && !q.has("no-code") && self.is_last();
        let written = q.lanes(Operand::is_def).into_iter().filter(|lane| lane.vector && asked);
        let wrong = written.filter(|lane| !self.context.reserved_after.contains(&lane.a)).next();
        ensure!(wrong.is_none(), "callee-saved", q, "a register that is not set aside for whole waves");
        Ok(())
    }

    /// Nothing is left to allocate, and LLVM saves nothing behind the phase.
    fn is_last(&self) -> bool {
        !self.context.has_virtual && !self.context.saved_later
    }

    /// Spec 5.1.
    fn may_stand_alone(&self, walk: &Walk<'_>, i: &Instruction) -> Done {
        let within = i.bundle != [false; 3] || walk.bundle.is_some() || walk.terminated;
        let alone = !within && !i.has("bundle") && !i.has("terminator");
        ensure!(alone, "instruction-sequence", i, "it stands alone");
        self.followed(i)
    }

    // P alone.

    fn before_alone(&mut self, walk: &mut Walk<'_>, number: usize, p: &Instruction) -> Done {
        self.may_stand_alone(walk, p)?;
        if let Some(moved) = moves::read(self.context, self.context.before, p)? {
            moved.apply(&mut walk.state, Side::Name);
            self.move_frame(&mut walk.state, p, &moved.written());
            revive(walk, Some(p), None);
            return no_split(walk, number, p);
        }
        let defined = p.lanes(Operand::is_def);
        ensure!(!defined.iter().any(|lane| lane.is_exec()), "exec", p, "it stands alone and writes EXEC");
        if p.has("no-code") {
            self.without_code(walk, p, Side::Name);
            revive(walk, Some(p), None);
            return no_split(walk, number, p);
        }
        let dropped = forms::is_pure(p) || forms::is_plain_load(p);
        ensure!(dropped, "instruction-sequence", p, "it stands alone");
        let effect = Effect::of(self.context, &mut walk.state, p)?;
        let (run, _) = self.concerned(&walk.state, p);
        self.remember(walk, number, p, &run);
        let waiting = waiting_others(&walk.state, p);
        blank(walk, p, Side::Name, &run);
        for name in &defined {
            walk.state.define(*name, &run);
            walk.state.forget(*name, &waiting);
        }
        self.remember_result(walk, number, p, &run);
        self.move_frame(&mut walk.state, p, &defined);
        revive(walk, Some(p), None);
        self.follow_masks(walk, number, p, effect)
    }

    fn follow_masks(&self, walk: &mut Walk<'_>, number: usize, p: &Instruction, effect: Effect) -> Done {
        let split = walk.part.splits.contains(&(number as u32));
        walk.splits += usize::from(split);
        effect.apply(&mut walk.state, p, &self.context.exec, split)
    }

    /// `IMPLICIT_DEF` and `KILL`: what they define and do not read has no value.
    fn without_code(&self, walk: &mut Walk<'_>, i: &Instruction, side: Side) {
        let run = walk.state.select(|class| class.active);
        let read = i.lanes(Operand::reads);
        let beside = i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside);
        let lanes = i.lanes(Operand::is_def).into_iter().chain(beside.copied());
        let written: Vec<Lane> = lanes.filter(|lane| !read.contains(lane)).collect();
        for lane in &written {
            // What a KILL defines beside what it reads is not said to be undefined.
            if side == Side::Name && !i.has("undefines") {
                walk.state.define(*lane, &run);
                continue;
            }
            walk.state.lose(*lane, side, &run);
            for cell in self.context.cells_in(*lane).filter(|_| side == Side::Name) {
                walk.state.undefine(cell, &run);
                walk.state.note_cell(cell, side);
            }
        }
        self.move_frame(&mut walk.state, i, &written);
    }

    // Q alone.

    fn after_alone(&mut self, walk: &mut Walk<'_>, number: usize, q: &Instruction) -> Done {
        self.may_stand_alone(walk, q)?;
        walk.state.bury();
        if let Some(of) = walk.part.repeats.get(&(number as u32)).copied() {
            walk.repeats += 1;
            self.waiting_callers(&walk.state, q)?;
            return self.repeat(walk, of, q);
        }
        let split_copy = q.has("copy") && q.flags.iter().all(|flag| flag == "lr-split");
        let plain = (q.flags.is_empty() || split_copy || q.name == "KILL") && q.tail.is_empty();
        ensure!(plain, "instruction-sequence", q, "flags or attributes of an instruction that stands alone");
        let moved = moves::read(self.context, self.context.after, q)?;
        let defines_exec = q.lanes(Operand::is_def).iter().any(|lane| lane.is_exec());
        let alone = moved.is_some() || q.has("no-code") && !defines_exec;
        ensure!(alone, "instruction-sequence", q, "it stands alone");
        ensure!(!q.operands.iter().any(forms::last_of_special), "dead-flag", q, "a special register is dead");
        self.waiting_callers(&walk.state, q)?;
        self.may_define(q, false)?;
        if let Some(moved) = moved {
            moved.apply(&mut walk.state, Side::Place);
            self.move_frame(&mut walk.state, q, &moved.written());
        } else {
            self.without_code(walk, q, Side::Place);
        }
        revive(walk, None, Some(q));
        heed_flags(walk, q);
        Ok(())
    }

    /// Spec 13.6.
    fn may_define(&self, q: &Instruction, repeat: bool) -> Done {
        for operand in q.defined() {
            let moved = |lane: &Lane| !operand.is(RENAMABLE) && self.moved_units.contains(&lane.a);
            // A reload gives back what it writes, not what it says to define besides.
            let reload = is_reload(q) && !operand.is(IMPLICIT);
            let restored = |lane: &Lane| reload && self.context.limits.saved.contains(&lane.a);
            let allowed = |lane: &Lane| match repeat {
                _ if self.context.allocatable(*lane) => true,
                true => lane.is_scc() && operand.is(IMPLICIT),
                false => moved(lane) || restored(lane) || lane.is_exec(),
            };
            let fits = operand.lanes.iter().all(allowed);
            ensure!(fits, "reserved-register", q, "`{}` must not be written", operand.text);
        }
        Ok(())
    }

    /// Spec 8.2.
    fn repeat(&mut self, walk: &mut Walk<'_>, (block, instruction): (u32, u32), q: &Instruction) -> Done {
        let context = self.context;
        let p = context.remembered(block, instruction);
        let p = p.ok_or_else(|| Refused::new("repeat", "there is no such instruction to repeat", q))?;
        let may = forms::is_pure(p) && matches!(p.value("reach"), "" | "active");
        ensure!(may, "repeat", q, "an instruction that must not be repeated");
        forms::compare(context, p, q, Mode::Repeat)?;
        let own = Instruction { operands: q.operands[..p.operands.len()].to_vec(), ..q.clone() };
        let ((before, undef_before), (after, undef_after)) = (read_lanes(p), read_lanes(&own));
        let vague = p.operands.iter().zip(&q.operands).any(|(x, y)| y.is_use() && y.is(UNDEF) && !x.is(UNDEF));
        let defined = !undef_before && !undef_after && !vague && before.len() == after.len();
        ensure!(defined, "repeat", q, "an operand is `undef`");
        let active = walk.state.select(|class| class.active);
        let state = &walk.state;
        for (k, (name, place)) in (0..).zip(before.iter().zip(&after)).filter(|(_, (name, _))| !name.is_exec()) {
            let read = Lane::new(Of::Read, block, instruction, k).with_vector(name.vector);
            let mut readers = if name.vector { &active[..] } else { &[WAVE] }.iter().map(|n| &state.classes[*n]);
            let is_held = readers.all(|class| match class.kind {
                'P' => state.reads(class, read, *place),
                _ => class.part.holds(*place).contains(&read) && !class.part.is_doubtful(read),
            });
            ensure!(is_held, "repeat", q, "{place} does not hold {read}");
        }
        let exec = remembered_exec(&before, block, instruction, context.exec.len());
        let mask = state.facts.masks_of(&exec);
        let same = state.threads().all(|class| class.kind == 'P' || mask.is_in(class) == Some(class.active));
        ensure!(exec.is_empty() || same, "repeat", q, "other threads are active");
        forms::early_clobbers(p, q, &[], |_| false)?;
        self.may_define(q, true)?;
        let mut result = Vec::new();
        for (number, operand) in q.operands.iter().enumerate().filter(|(_, o)| o.is_def()) {
            for (k, lane) in (0..).zip(operand.lanes.iter().copied()) {
                if number == 0 {
                    walk.state.spoil_cells(lane, Side::Place);
                    result.push((lane, Lane::new(Of::Result, block, instruction, k).with_vector(lane.vector)));
                } else {
                    walk.state.lose(lane, Side::Place, &active);
                }
            }
        }
        blank(walk, q, Side::Place, &active);
        walk.state.copy_places(&result, &active);
        result.iter().for_each(|(lane, _)| walk.state.note_written(*lane, false));
        revive(walk, None, Some(q));
        heed_flags(walk, q);
        Ok(())
    }

    // Pairs.

    fn pair(&mut self, walk: &mut Walk<'a>, number: usize, p: &'a Instruction, q: &'a Instruction) -> Done {
        let context = self.context;
        self.followed(p)?;
        self.waiting_callers(&walk.state, q)?;
        let moving =
            moves::read(context, context.before, p)?.is_some() || moves::read(context, context.after, q)?.is_some();
        let paired = !moving && !p.has("no-code") && !q.has("no-code");
        ensure!(paired, "instruction-sequence", q, "a move that pairs");
        self.compared += forms::compare(context, p, q, Mode::Pair)?;
        if p.has("call") || q.operands.iter().any(|o| matches!(o.kind, Kind::FrameIndex | Kind::FixedFrame)) {
            walk.state.bury();
        }
        walk.terminated |= p.has("terminator");
        if p.has("bundle") {
            // Passes behind read nothing but this line of a bundle, so it must say what the members do.
            let readers = walk.state.select(|class| class.active);
            read(walk, p, q, &Reading { readers, ..Reading::default() })?;
            walk.bundle = Some(Bundle { head: q, defined: Set::default(), read: Set::default() });
            return no_split(walk, number, p);
        }
        ensure!(p.value("reach") == q.value("reach"), "instruction-sequence", q, "another reach");
        self.reach_allowed(&walk.state, p)?;
        let (run, readers) = self.concerned(&walk.state, p);
        let [skip, upper] = forms::unread(p);
        let mut reading = Reading { readers, skip, ..Reading::default() };
        self.blend(walk, p, &mut reading);
        let mut lost = false;
        if let Err(error) = agrees(walk, p, q, &reading) {
            lost = !upper.is_empty();
            reading.skip.extend(upper);
            if !lost || agrees(walk, p, q, &reading).is_err() {
                return Err(error);
            }
        }
        let effect = Effect::of(context, &mut walk.state, p)?;
        self.remember(walk, number, p, &run);
        if p.has("call") {
            self.call(walk, q)?;
        }
        self.write(walk, p, q, &run, lost);
        self.remember_result(walk, number, p, &run);
        if p.has("returns") && self.is_last() {
            self.restored(walk, q)?;
        }
        revive(walk, Some(p), Some(q));
        heed_flags(walk, q);
        member(walk, q)?;
        self.follow_masks(walk, number, p, effect)
    }

    /// Of V_SET_INACTIVE: its mask, and two operands that some classes do not read (spec 5.4).
    fn blend(&self, walk: &mut Walk<'_>, p: &Instruction, reading: &mut Reading) {
        let numbers: Vec<usize> = p.opcode.numbers("blend").iter().map(|number| number + p.definitions).collect();
        let [inside, outside, mask] = numbers[..] else { return };
        let known = mask_of(self.context, &mut walk.state, p.operands.get(mask));
        let without = |is_in: bool| walk.state.select(|class| class.kind != 'P' && known.is_in(class) == Some(is_in));
        reading.mask = Some(mask);
        reading.unread = vec![(inside, without(false)), (outside, without(true))];
    }

    /// Spec 5.3, 5.10. `lost`: of a wide product only the lower half of the result is known (spec 5.11).
    fn write(&self, walk: &mut Walk<'_>, p: &Instruction, q: &Instruction, run: &[usize], lost: bool) {
        let read = q.lanes(|o| o.is(IMPLICIT) && o.reads());
        let added = q.operands.iter().skip(p.operands.len()).filter(|o| o.is_def()).flat_map(|o| &o.lanes);
        let mut written: Vec<Lane> = added.filter(|place| !read.contains(place)).copied().collect();
        written.iter().for_each(|place| walk.state.lose(*place, Side::Place, run));
        blank(walk, q, Side::Place, run);
        blank(walk, p, Side::Name, run);
        let waiting = waiting_others(&walk.state, p);
        let state = &mut walk.state;
        for (number, (x, y)) in p.operands.iter().zip(&q.operands).enumerate().filter(|(_, (x, _))| x.is_def()) {
            let known = match number {
                _ if !lost => x.lanes.len(),
                0 => x.lanes.len() / 2,
                _ => 0,
            };
            for name in &x.lanes {
                state.define(*name, run);
                state.forget(*name, &waiting);
            }
            for (at, (name, place)) in x.lanes.iter().zip(&y.lanes).enumerate() {
                state.lose(*place, Side::Place, run);
                if place.vector {
                    state.spoil(*place, &waiting);
                }
                if at < known {
                    state.hold(*place, *name, run);
                }
                written.push(*place);
            }
        }
        self.move_frame(state, q, &written);
    }

    /// A write of the stack pointer and the like moves all vector slots (spec 6).
    fn move_frame(&self, state: &mut State, i: &Instruction, written: &[Lane]) {
        let moves = written.iter().any(|lane| lane.of == Of::Unit && self.frame_units.contains(&lane.a));
        if moves && !i.has("frame-adjust") && !i.has("call") {
            let everyone = state.select(|_| true);
            let [places, names] = state.in_memory();
            places.into_iter().for_each(|place| state.spoil(place, &everyone));
            names.into_iter().for_each(|name| state.forget(name, &everyone));
        }
    }

    /// Spec 9.
    fn call(&self, walk: &mut Walk<'_>, q: &Instruction) -> Done {
        let (preserved, limits) = (preserved(q)?, self.context.limits);
        let run = walk.state.select(|class| class.active);
        let mut units = self.context.touched.clone();
        let live = [self.context.before, self.context.after].into_iter().flat_map(|text| &text.blocks);
        units.extend(live.flat_map(|block| &block.liveins).flat_map(|(register, _)| &register.units));
        units.extend(&limits.saved);
        for unit in units.into_iter().filter(|unit| !preserved.contains(unit) && !limits.kept.contains(unit)) {
            walk.state.lose(Lane::unit(unit), Side::Name, &run);
            walk.state.lose(Lane::unit(unit), Side::Place, &run);
        }
        Ok(())
    }

    /// Spec 12.3. The stack pointer and its like are for pairs to change, as P does (spec 14), but not for reloads.
    fn restored(&self, walk: &Walk<'_>, q: &Instruction) -> Done {
        let limits = self.context.limits;
        let kept = |unit: &u32| limits.kept.contains(unit) && !self.reloaded.contains(unit);
        for unit in limits.saved.iter().copied().filter(|unit| !(self.context.coarse && unit % 2 == 1) && !kept(unit)) {
            let held = walk.state.wave().holds(Lane::unit(unit)).contains(&Lane::entry(unit));
            ensure!(held, "callee-saved", q, "${unit} is not restored");
        }
        Ok(())
    }

    // What repeats need (spec 8.3).

    fn is_repeated(&self, block: usize, number: usize) -> Option<(u32, u32)> {
        Some((block as u32, number as u32)).filter(|of| self.repeated.contains(of))
    }

    fn remember(&self, walk: &mut Walk<'_>, number: usize, p: &Instruction, run: &[usize]) {
        let Some((block, number)) = self.is_repeated(walk.block, number) else { return };
        let (lanes, undef) = read_lanes(p);
        let state = &mut walk.state;
        let read = |(k, lane): (u16, &Lane)| (Lane::new(Of::Read, block, number, k).with_vector(lane.vector), *lane);
        let pairs: Vec<(Lane, Lane)> = (0..).zip(&lanes).map(read).collect();
        let everyone = state.select(|_| true);
        if undef || lanes.iter().any(|lane| !lane.vector && state.wave().is_doubtful(*lane)) {
            pairs.iter().for_each(|(read, _)| state.forget(*read, &everyone));
            return;
        }
        state.copy_names(&pairs, run);
        let exec = remembered_exec(&lanes, block, number, self.context.exec.len());
        if !exec.is_empty() {
            pairs.iter().filter(|(_, lane)| lane.is_exec()).for_each(|(read, _)| state.forget(*read, &everyone));
            state.note_active(&exec);
        }
        for at in run.iter().copied().filter(|at| walk.state.classes[*at].kind != 'P').collect::<Vec<_>>() {
            let part = &walk.state.classes[at].part;
            if lanes.iter().any(|lane| lane.vector && part.is_doubtful(*lane)) {
                pairs.iter().filter(|(read, _)| read.vector).for_each(|(read, _)| walk.state.forget(*read, &[at]));
            }
        }
    }

    fn remember_result(&self, walk: &mut Walk<'_>, number: usize, p: &Instruction, run: &[usize]) {
        let Some((block, number)) = self.is_repeated(walk.block, number) else { return };
        // A class that waits keeps the result of an earlier turn; the scalars read now are not those read then.
        let is_new = read_lanes(p).0.iter().any(|lane| !lane.vector && !lane.is_exec());
        let stale = walk.state.select(|_| is_new);
        for (k, name) in (0..).zip(p.operands.first().filter(|o| o.is_def()).iter().flat_map(|o| &o.lanes)) {
            let kept = Lane::new(Of::Result, block, number, k).with_vector(name.vector);
            walk.state.spoil(kept, &stale);
            walk.state.hold(kept, *name, run);
        }
    }
}

fn no_split(walk: &Walk<'_>, number: usize, p: &Instruction) -> Done {
    let split = walk.part.splits.contains(&(number as u32));
    ensure!(!split, "certificate", p, "a `split` where nothing is split");
    Ok(())
}

/// The thread that it reads or writes is an active one (spec 10.8).
fn names_active_thread(state: &State, i: &Instruction) -> bool {
    let number = i.opcode.numbers("lane-operand").first().map(|number| number + i.definitions);
    let operand = number.and_then(|number| i.operands.get(number)).filter(|o| o.reads() && !o.lanes.is_empty());
    operand.is_some_and(|operand| state.facts.is_number(&operand.lanes))
}

/// Classes `O` that wait, for an instruction that writes all threads (spec 5.4).
fn waiting_others(state: &State, i: &Instruction) -> Vec<usize> {
    let writes = i.value("reach") == "writes" && !names_active_thread(state, i);
    state.select(|class| writes && class.kind == 'O' && !class.active)
}

/// An `undef` definition of a subregister leaves the rest of its register without a value (spec 5.10).
fn blank(walk: &mut Walk<'_>, i: &Instruction, side: Side, run: &[usize]) {
    let undef = i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside);
    undef.for_each(|lane| walk.state.lose(*lane, side, run));
}

/// Spec 5.5, 5.6.
fn agrees(walk: &Walk<'_>, p: &Instruction, q: &Instruction, reading: &Reading) -> Done {
    read(walk, p, q, reading)?;
    forms::early_clobbers(p, q, &reading.skip, |name| walk.state.is_undefined(name, &reading.readers))
}

/// Spec 5.5.
fn read(walk: &Walk<'_>, p: &Instruction, q: &Instruction, reading: &Reading) -> Done {
    let state = &walk.state;
    for (number, (x, y)) in p.operands.iter().zip(&q.operands).enumerate() {
        if !x.is_use() || x.is(UNDEF) && reading.mask != Some(number) {
            continue;
        }
        let readers = &reading.of(number);
        let lanes = x.lanes.iter().zip(&y.lanes).enumerate().filter(|(at, _)| !reading.skip.contains(&(number, *at)));
        for (_, (name, place)) in lanes {
            let told = !y.is(UNDEF) || x.is(UNDEF) || state.is_undefined(*name, readers);
            ensure!(told, "undef-flag", q, "`{}` has a value, as `{}`,", y.text, x.text);
            let mut classes = if name.vector { &readers[..] } else { &[WAVE] }.iter();
            let held = classes.all(|number| state.reads(&state.classes[*number], *name, *place));
            let held = held || name == place && walk.revived.contains(place);
            ensure!(held, "value", q, "{place} does not hold {name}, `{}` for `{}`,", y.text, x.text);
        }
    }
    Ok(())
}

/// A member of a bundle: behind the last one, the head must have named all that they read and define.
fn member(walk: &mut Walk<'_>, q: &Instruction) -> Done {
    let Some(bundle) = walk.bundle.as_mut() else { return Ok(()) };
    let read = q.lanes(Operand::reads);
    bundle.read.extend(read.into_iter().filter(|lane| !bundle.defined.contains(lane)));
    bundle.defined.extend(q.lanes(Operand::is_def));
    if q.bundle[2] {
        let head = bundle.head;
        let defined: Set<Lane> = head.lanes(Operand::is_def).into_iter().collect();
        let read: Set<Lane> = head.lanes(Operand::is_use).into_iter().collect();
        let named = defined == bundle.defined && bundle.read.is_subset(&read);
        ensure!(named, "bundle", head, "it does not name what its members read and define");
        walk.bundle = None;
        heed_flags(walk, head);
    }
    Ok(())
}

/// Spec 11.
fn heed_flags(walk: &mut Walk<'_>, q: &Instruction) {
    let active = walk.state.select(|class| class.active);
    killed(q).filter(|lane| !lane.is_special()).for_each(|lane| walk.state.kill(lane));
    for lane in q.lanes(|o| o.is_def() && o.is(DEAD)).into_iter().filter(|lane| !lane.is_special()) {
        walk.state.spoil_cells(lane, Side::Place);
        walk.state.spoil(lane, &active);
    }
}

/// What an instruction kills and does not define.
fn killed(i: &Instruction) -> impl Iterator<Item = Lane> {
    let defined = i.lanes(|o| o.is_def() && !o.is(DEAD));
    i.lanes(|o| o.is(KILLED)).into_iter().filter(move |lane| !defined.contains(lane))
}

/// Scalar registers that both texts have killed may be read until one writes them (spec 11.2).
fn revive(walk: &mut Walk<'_>, p: Option<&Instruction>, q: Option<&Instruction>) {
    let (sides, is_pair) = ([p, q], p.is_some() && q.is_some());
    let written: Vec<Lane> = sides.iter().flatten().flat_map(|i| i.lanes(Operand::is_def)).collect();
    let ends = q.is_some_and(|q| q.has("call") || p.is_none() && !q.has("copy"));
    if ends || is_pair {
        walk.killed = Default::default();
    }
    walk.killed
        .iter_mut()
        .chain([&mut walk.revived])
        .for_each(|all| all.retain(|lane| !ends && !written.contains(lane)));
    for (side, i) in sides.iter().enumerate().filter_map(|(side, i)| Some((side, (*i)?))) {
        let mine = |lane: &Lane| side == 0 || walk.state.wave().holds(*lane).contains(lane);
        let killed = killed(i).filter(|lane| lane.of == Of::Unit && !lane.vector && mine(lane));
        walk.killed[side].extend(killed.filter(|_| !ends && (is_pair || is_moving(i) && !i.has("no-code"))));
    }
    walk.revived.extend(walk.killed[0].intersection(&walk.killed[1]).copied());
    if is_pair {
        walk.killed = Default::default();
    }
}

/// The names `@B.I.K` that are parts of the mask of threads that were active (spec 8.3).
fn remembered_exec(lanes: &[Lane], block: u32, instruction: u32, wave: usize) -> Vec<Lane> {
    let count = lanes.iter().take_while(|lane| lane.is_exec()).count().min(wave);
    (0..).take(count).map(|k| Lane::new(Of::Read, block, instruction, k)).collect()
}

/// A scalar comes back from a lane or a slot.
fn is_reload(i: &Instruction) -> bool {
    i.has("lane-restore") || matches!(i.spill(), Some(("S", _, false)))
}

/// Its opcode is one that may stand alone and move something (spec 7), or has no code.
fn is_moving(i: &Instruction) -> bool {
    let words = ["copy", "wwm-copy", "no-code", "lane-save", "lane-restore"];
    words.iter().any(|word| i.has(word)) || i.spill().is_some()
}

/// The units that all register masks of a call preserve (spec 9).
fn preserved(q: &Instruction) -> Done<Set<u32>> {
    let mut all: Option<Set<u32>> = None;
    for operand in q.operands.iter().filter(|o| o.kind == Kind::RegMask) {
        let unknown = || Refused::new("call-mask", format!("the register mask `{}`", operand.text), q);
        let mask = tables().mask(&operand.text).ok_or_else(unknown)?;
        let kept = |unit: &u32| all.as_ref().is_none_or(|all| all.contains(unit));
        all = Some(mask.into_iter().filter(kept).collect());
    }
    all.ok_or_else(|| Refused::new("well-formed", "no register mask", q))
}

/// What the branch at the end of a block tests, and the successor that it leads to (spec 12.2).
fn tested(block: &Block, number: usize) -> Option<(&'static str, usize)> {
    let [one, two] = block.successors.as_slice() else { return None };
    let target = |i: &Instruction| i.operands.iter().find(|o| o.kind == Kind::Block).map(|o| o.number as usize);
    // No other branch may lead to the same block, whatever the tested one says.
    let branches = |i: &Instruction| i.has("branch") || i.has("indirect-branch") || target(i).is_some();
    let (last, rest) = block.instructions.split_last()?;
    let (branch, other, rest) = match rest.split_last() {
        Some((branch, rest)) if last.name == "S_BRANCH" => (branch, target(last)?, rest),
        _ => (last, number + 1, rest),
    };
    let taken = target(branch)?;
    let test = branch.value("test");
    let named = [(taken, other), (other, taken)].contains(&(*one, *two)) && taken != other;
    (named && !test.is_empty() && !rest.iter().any(branches)).then_some((test, taken))
}
