//! Walks through the blocks, step by step (spec 2.3, 5.1, 5.4, 5.5, 5.10, 6, 8.2 to 8.4, 9, 9.1, 11, 12.2, 12.3, 13.6).
//!
//! Spec 8.3 is `remember` and `remember_result`.

use crate::certificate::{BlockPart, Certificate, Take, ThreadKind};
use crate::context::{Code, Context, EXEC, FLAT_SCRATCH};
use crate::entry::{self, Claimed, MOST_CLAIMS};
use crate::forms::{self, is_exec, is_location, is_scc, Mode};
use crate::header;
use crate::lanes::{is_vector_unit, Lane, Of, Set};
use crate::masks::{self, Effect};
use crate::model::{Block, Flags, Kind, Operand, Refused};
use crate::moves;
use crate::tables::tables;
use crate::threads::{Class, Mask, Side, State};

struct Checker<'a> {
    context: &'a Context<'a>,
    certificate: &'a Certificate,
    claimed: Vec<Option<Claimed<'a>>>,
    /// Instructions of P that some `repeat` names.
    repeated: Set<(u32, u32)>,
    exec_lanes: Vec<Lane>,
    /// Units of the stack pointer and the like: a write of them moves the slots.
    frame_units: Set<u32>,
    /// Units that moves and instructions without code of P define (spec 13.6).
    moved_units: Set<u32>,
    /// Units that reloads of scalars of Q write (spec 12.3).
    reloaded: Set<u32>,
    has_virtual: bool,
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
}

/// What V_SET_INACTIVE reads in which classes (spec 5.4).
struct Blend {
    mask: usize,
    unread: [(usize, Vec<usize>); 2],
}

/// What is compared of what an instruction reads.
#[derive(Default)]
struct Reading {
    /// Classes.
    readers: Vec<usize>,
    /// Lanes of operands that are not read (spec 5.11).
    skip: Vec<(usize, usize)>,
    blend: Option<Blend>,
}

impl Reading {
    /// The classes that read this operand.
    fn of(&self, operand: usize) -> Vec<usize> {
        let unread = |class: &usize| {
            let mut all = self.blend.iter().flat_map(|blend| &blend.unread);
            all.any(|(number, classes)| *number == operand && classes.contains(class))
        };
        self.readers.iter().copied().filter(|class| !unread(class)).collect()
    }
}

/// What the members of a bundle of Q have done so far.
struct Bundle<'a> {
    head: Code<'a>,
    defined: Set<Lane>,
    /// What they read from outside.
    read: Set<Lane>,
}

/// Check the blocks of both texts against a certificate. How many operands were compared.
///
/// # Errors
/// The rule that does not hold.
pub fn check(context: &Context<'_>, certificate: &Certificate) -> Result<usize, Refused> {
    let blocks = context.after.function.blocks.len();
    let wrong = |message: &str| Refused::new("certificate", message, "");
    if certificate.function != context.after.function.name || certificate.blocks.len() != blocks {
        return Err(wrong("it is about another function"));
    }
    same_blocks(context)?;
    moves::saves_follow(&context.before)?;
    moves::saves_follow(&context.after)?;
    let mut budget = MOST_CLAIMS;
    let mut claimed = Vec::new();
    for (number, part) in certificate.blocks.iter().enumerate() {
        let claims = part.entry.as_ref().map(|entry| Claimed::new(context, entry, number, &mut budget));
        claimed.push(claims.transpose()?);
    }
    let repeated = certificate.blocks.iter().flat_map(|part| part.repeats.values().copied()).collect();
    let exec = EXEC.iter().take(context.processor.wave_size as usize / 16).copied().map(Lane::unit).collect();
    let exec_lanes = context.after.used(exec);
    let mut checker = Checker {
        context,
        certificate,
        claimed,
        repeated,
        exec_lanes,
        frame_units: Set::default(),
        moved_units: Set::default(),
        reloaded: Set::default(),
        has_virtual: header::has_virtual(context.after.function),
        compared: 0,
    };
    checker.find_units()?;
    checker.keeps_promises()?;
    for number in 0..blocks {
        checker.block(number)?;
    }
    Ok(checker.compared)
}

/// Spec 2.3.
fn same_blocks(context: &Context<'_>) -> Result<(), Refused> {
    let (a, b) = (&context.before.function.blocks, &context.after.function.blocks);
    let refused = |number: usize, message: &str| Err(Refused::new("control-flow", message, format!("block {number}")));
    if a.len() != b.len() {
        return refused(b.len(), "another number of blocks");
    }
    for (number, (x, y)) in a.iter().zip(b).enumerate() {
        if x.successors != y.successors || x.attributes != y.attributes {
            return refused(number, "other successors or attributes");
        }
        if x.successors.contains(&0) {
            return refused(number, "the first block is a successor");
        }
    }
    Ok(())
}

impl<'a> Checker<'a> {
    fn find_units(&mut self) -> Result<(), Refused> {
        for text in [&self.context.before, &self.context.after] {
            for field in ["stackPtrOffsetReg", "frameOffsetReg", "scratchRSrcReg"] {
                let register = tables().register(&moves::pointer(text, field));
                self.frame_units.extend(register.into_iter().flat_map(|register| register.units));
            }
        }
        self.frame_units.extend(FLAT_SCRATCH);
        let units = |lanes: Vec<Lane>| lanes.into_iter().filter(|lane| lane.of == Of::Unit).map(|lane| lane.a);
        for code in self.context.before.blocks.iter().flatten() {
            if is_moving(*code) {
                self.moved_units.extend(units(self.context.before.gather(*code, Operand::is_def)?));
            }
        }
        for code in self.context.after.blocks.iter().flatten().filter(|code| is_reload(**code)) {
            self.reloaded.extend(units(self.context.after.gather(*code, Operand::is_def)?));
        }
        Ok(())
    }

    /// What calls of this function in P's file rely on, Q leaves alone as P does (spec 9).
    fn keeps_promises(&self) -> Result<(), Refused> {
        let promised = &self.context.promised;
        let broken = |text: &crate::context::Text<'_>| -> Result<Vec<(u32, usize)>, Refused> {
            let mut all = Vec::new();
            for code in if promised.is_empty() { &[][..] } else { &text.blocks[..] }.iter().flatten() {
                let line = code.instruction.line;
                let units = text.gather(*code, Operand::is_def)?.into_iter().filter(|lane| lane.of == Of::Unit);
                all.extend(units.filter(|lane| promised.contains(&lane.a)).map(|lane| (lane.a, line)));
                if code.has("call") {
                    let kept = preserved(*code)?;
                    all.extend(promised.iter().filter(|unit| !kept.contains(unit)).map(|unit| (*unit, line)));
                }
            }
            Ok(all)
        };
        let before: Set<u32> = broken(&self.context.before)?.into_iter().map(|(unit, _)| unit).collect();
        match broken(&self.context.after)?.into_iter().find(|(unit, _)| !before.contains(unit)) {
            Some((unit, line)) => {
                let message = format!("${unit} is written, which a call relies on");
                Err(Refused::new("call-mask", message, format!("line {line}")))
            }
            None => Ok(()),
        }
    }

    fn block(&mut self, number: usize) -> Result<(), Refused> {
        let context = self.context;
        let Some(block) = context.after.function.blocks.get(number) else { return Ok(()) };
        let Some(part) = self.certificate.blocks.get(number) else { return Ok(()) };
        let state = match self.claimed.get(number).and_then(Option::as_ref) {
            _ if number == 0 => entry::of_function(context, block, &self.exec_lanes),
            Some(claimed) => claimed.state(context, block, &self.exec_lanes)?,
            None => return Ok(()),
        };
        let mut walk = Walk { state, block: number, part, terminated: false, bundle: None, repeats: 0, splits: 0 };
        let empty = Vec::new();
        let before = context.before.blocks.get(number).unwrap_or(&empty);
        let after = context.after.blocks.get(number).unwrap_or(&empty);
        let wrong = |message: &str| Refused::new("certificate", message, format!("block {number}"));
        let (mut i, mut j) = (0, 0);
        for (count, take) in &part.steps {
            for _ in 0..*count {
                walk.state.now = walk.state.now.saturating_add(1);
                match (take, before.get(i), after.get(j)) {
                    (Take::Pair, Some(p), Some(q)) => self.pair(&mut walk, i, *p, *q)?,
                    (Take::Before, Some(p), _) => self.before_alone(&mut walk, i, *p)?,
                    (Take::After, _, Some(q)) => self.after_alone(&mut walk, j, *q)?,
                    _ => return Err(wrong("steps behind the last instruction")),
                }
                i += usize::from(*take != Take::After);
                j += usize::from(*take != Take::Before);
            }
        }
        if i != before.len() || j != after.len() {
            return Err(wrong("instructions without a step"));
        }
        if walk.repeats != part.repeats.len() || walk.splits != part.splits.len() {
            return Err(wrong("a `repeat` or `split` at an instruction that is none"));
        }
        self.edges(&mut walk, before)
    }

    /// Spec 12.1, 12.2.
    fn edges(&self, walk: &mut Walk<'_>, codes: &[Code<'_>]) -> Result<(), Refused> {
        let Some(block) = self.context.after.function.blocks.get(walk.block) else { return Ok(()) };
        let tested = tested(codes, block, walk.block);
        walk.state.end_copies();
        for successor in block.successors.iter().copied() {
            let Some(claimed) = self.claimed.get(successor).and_then(Option::as_ref) else {
                let message = format!("block {successor} has no claims");
                return Err(Refused::new("relation", message, format!("block {}", walk.block)));
            };
            // What the branch says on this edge: the word behind `test=`, or its opposite.
            let (test, taken) = tested.map_or(("", false), |(test, target)| (test, target == successor));
            let exec_is_zero = (test, taken) == ("exec0", true) || (test, taken) == ("exec1", false);
            let mut state = walk.state.clone();
            if test.starts_with("exec") && !exec_is_zero {
                state.set_some_active();
            }
            for mask in if exec_is_zero { walk.state.emptied_by.as_slice() } else { &[] } {
                state.mark_nonempty(*mask);
            }
            if (test, taken) == ("scc1", true) || (test, taken) == ("scc0", false) {
                if let Some(mask) = state.scc {
                    state.mark_nonempty(mask);
                }
            }
            claimed.follows(&state, exec_is_zero, walk.block)?;
        }
        Ok(())
    }

    // Whom an instruction concerns (spec 5.4).

    /// The classes for which it runs, and those in which it reads.
    fn concerned(&self, state: &State, code: Code<'_>) -> (Vec<usize>, Vec<usize>) {
        let reach = code.opcode.value("reach");
        let wide = state.select(|class| class.active || class.kind == ThreadKind::Active);
        let active = state.select(|class| class.active);
        match reach {
            _ if self.names_active_thread(state, code) => (active.clone(), active),
            "writes" => (wide.clone(), wide),
            "reads" => (active, wide),
            _ => (active.clone(), active),
        }
    }

    /// The thread that it reads or writes is an active one (spec 10.8).
    fn names_active_thread(&self, state: &State, code: Code<'_>) -> bool {
        let number =
            code.opcode.numbers("lane-operand").first().and_then(|n| n.checked_add(code.instruction.definitions));
        let operand = number.and_then(|number| code.instruction.operands.get(number)).filter(|o| o.reads());
        let lanes = operand.and_then(|operand| self.context.before.lanes(code, operand).ok());
        lanes.is_some_and(|lanes| !lanes.is_empty() && state.is_number(&lanes))
    }

    fn reach_allowed(&self, state: &State, code: Code<'_>) -> Result<(), Refused> {
        let all_active = || state.classes.iter().all(|class| class.active || class.kind != ThreadKind::Active);
        let mut unclear = false;
        match code.opcode.value("reach") {
            "" | "active" | "reads" | "writes" => {}
            "first" => {
                let reads = code.instruction.explicit().any(Operand::reads);
                if reads && !state.some_active() {
                    return Err(code.refused("inactive-lanes", "no thread may be active"));
                }
            }
            _ => unclear = true,
        }
        if code.has("asm") {
            let texts = code.instruction.operands.iter().filter(|o| !o.is_register());
            unclear |= texts.into_iter().any(|o| tables().hints_at_threads(&o.text));
        }
        if unclear && !all_active() {
            return Err(code.refused("inactive-lanes", "it may reach threads that wait"));
        }
        Ok(())
    }

    /// Opcodes that nobody follows (spec 6).
    fn followed(&self, code: Code<'_>) -> Result<(), Refused> {
        let odd = ["vskip", "indexed-on", "indexed-off", "indexed-mode", "vgpr-msb", "generic"];
        let odd = odd.iter().any(|word| code.has(word) || !code.opcode.value(word).is_empty());
        // A write of MODE that reaches the bits which let indices or skips change what follows.
        let last = code.instruction.explicit().last().filter(|_| code.instruction.opcode.starts_with("S_SETREG"));
        let field = last.map(|o| o.text.parse::<u32>().unwrap_or(u32::MAX));
        let reaches = |word: u32| {
            let (first, size) = (word >> 6 & 31, (word >> 11 & 31) + 1);
            word > 0xffff || (word & 63 == 1 && first <= 28 && first + size > 27)
        };
        if odd || field.is_some_and(reaches) {
            return Err(code.refused("not-followed", "an instruction that is not followed"));
        }
        Ok(())
    }

    /// Spec 9.1: a callee leaves alone what threads keep that were not active when it was called.
    fn waiting_callers(&self, state: &State, q: Code<'_>) -> Result<(), Refused> {
        let function = self.context.after.function;
        let other = state.classes.iter().any(|class| class.active && class.kind == ThreadKind::Other);
        let whole_wave = q.has("wwm-copy") || q.opcode.value("spill").starts_with("WWM_");
        let entry = header::is_true(function, "machineFunctionInfo.isEntryFunction");
        if !(other || whole_wave) || entry || q.has("no-code") || self.has_virtual || self.context.saved_later {
            return Ok(());
        }
        for operand in q.instruction.operands.iter().filter(|o| o.is_def()) {
            let lanes = self.context.after.lanes(q, operand)?;
            if lanes.iter().any(|lane| lane.vector && !self.context.reserved_after.contains(&lane.a)) {
                return Err(q.refused("callee-saved", format!("`{}` is not set aside for whole waves", operand.text)));
            }
        }
        Ok(())
    }

    /// Spec 5.1.
    fn may_stand_alone(&self, walk: &Walk<'_>, code: Code<'_>) -> Result<(), Refused> {
        let instruction = code.instruction;
        let bundled = instruction.in_bundle || instruction.opens_bundle || instruction.closes_bundle;
        if bundled || walk.bundle.is_some() || walk.terminated || code.has("bundle") || code.has("terminator") {
            return Err(code.refused("instruction-sequence", "it stands alone"));
        }
        self.followed(code)
    }

    fn defines_exec(&self, text: &crate::context::Text<'_>, code: Code<'_>) -> Result<bool, Refused> {
        Ok(text.gather(code, Operand::is_def)?.into_iter().any(is_exec))
    }

    // P alone.

    fn before_alone(&mut self, walk: &mut Walk<'_>, i: usize, p: Code<'_>) -> Result<(), Refused> {
        self.may_stand_alone(walk, p)?;
        let text = &self.context.before;
        if let Some(moved) = moves::read(self.context, text, p)? {
            moved.apply(&mut walk.state, Side::Name);
            self.move_frame(&mut walk.state, p, &moved.written());
            return self.no_split(walk, i, p);
        }
        if self.defines_exec(text, p)? {
            return Err(p.refused("exec", "it stands alone and writes EXEC"));
        }
        if p.has("no-code") {
            self.without_code(walk, p, Side::Name)?;
            return self.no_split(walk, i, p);
        }
        if !forms::is_pure(self.context, p)? && !forms::is_plain_load(p) {
            return Err(p.refused("instruction-sequence", "it stands alone"));
        }
        let effect = Effect::of(self.context, &mut walk.state, p, &self.exec_lanes)?;
        let (run, _) = self.concerned(&walk.state, p);
        self.remember(walk, i, p, &run)?;
        let waiting = self.waiting_others(&walk.state, p);
        self.blank(walk, p, Side::Name, &run)?;
        let mut written = Vec::new();
        for name in text.gather(p, Operand::is_def)? {
            walk.state.define(name, &run);
            walk.state.forget(name, &waiting);
            written.push(name);
        }
        self.remember_result(walk, i, p, &run)?;
        self.move_frame(&mut walk.state, p, &written);
        self.follow_masks(walk, i, p, effect)
    }

    fn no_split(&self, walk: &Walk<'_>, i: usize, p: Code<'_>) -> Result<(), Refused> {
        if u32::try_from(i).is_ok_and(|i| walk.part.splits.contains(&i)) {
            return Err(p.refused("certificate", "a `split` where nothing is split"));
        }
        Ok(())
    }

    fn follow_masks(&self, walk: &mut Walk<'_>, i: usize, p: Code<'_>, effect: Effect) -> Result<(), Refused> {
        let split = u32::try_from(i).is_ok_and(|i| walk.part.splits.contains(&i));
        walk.splits += usize::from(split);
        effect.apply(&mut walk.state, p, &self.exec_lanes, split)
    }

    /// `IMPLICIT_DEF` and `KILL`: what they define and do not read has no value.
    fn without_code(&self, walk: &mut Walk<'_>, code: Code<'_>, side: Side) -> Result<(), Refused> {
        let text = self.context.text(side);
        let run = walk.state.select(|class| class.active);
        let read = text.gather(code, Operand::reads)?;
        let mut written = Vec::new();
        for operand in code.instruction.operands.iter().filter(|o| o.is_def()) {
            let own = text.lanes(code, operand)?;
            let beside = if operand.is_undef() && !operand.sub.is_empty() { text.whole(operand) } else { Vec::new() };
            for lane in own.into_iter().chain(beside) {
                if read.contains(&lane) {
                    continue;
                }
                written.push(lane);
                // What a KILL defines beside what it reads is not said to be undefined.
                if side == Side::Name && !code.has("undefines") {
                    walk.state.define(lane, &run);
                    continue;
                }
                walk.state.lose(lane, side, &run);
                for cell in self.context.cells_in(lane).filter(|_| side == Side::Name) {
                    walk.state.undefine(cell, &run);
                    walk.state.note_cell(cell, side);
                }
            }
        }
        self.move_frame(&mut walk.state, code, &written);
        Ok(())
    }

    // Q alone.

    fn after_alone(&mut self, walk: &mut Walk<'_>, j: usize, q: Code<'_>) -> Result<(), Refused> {
        self.may_stand_alone(walk, q)?;
        let text = &self.context.after;
        if let Some(of) = u32::try_from(j).ok().and_then(|j| walk.part.repeats.get(&j)).copied() {
            walk.repeats += 1;
            self.waiting_callers(&walk.state, q)?;
            return self.repeat(walk, of, q);
        }
        let flags = &q.instruction.flags;
        let split_copy = q.has("copy") && flags.iter().all(|flag| flag == "lr-split");
        if !(flags.is_empty() || split_copy || q.instruction.opcode == "KILL") {
            return Err(q.refused("instruction-sequence", "flags of an instruction that stands alone"));
        }
        if !q.instruction.tail.iter().all(|t| is_location(t)) {
            return Err(q.refused("instruction-sequence", "attributes of an instruction that stands alone"));
        }
        let moved = moves::read(self.context, text, q)?;
        if moved.is_none() && (!q.has("no-code") || self.defines_exec(text, q)?) {
            return Err(q.refused("instruction-sequence", "it stands alone"));
        }
        if q.instruction.operands.iter().any(|o| forms::last_of_special(self.context, q, o)) {
            return Err(q.refused("dead-flag", "a special register is dead"));
        }
        self.waiting_callers(&walk.state, q)?;
        self.may_define(q, false)?;
        if let Some(moved) = moved {
            moved.apply(&mut walk.state, Side::Place);
            self.move_frame(&mut walk.state, q, &moved.written());
        } else {
            self.without_code(walk, q, Side::Place)?;
        }
        self.heed_flags(walk, q)
    }

    /// Spec 13.6.
    fn may_define(&self, q: Code<'_>, repeat: bool) -> Result<(), Refused> {
        for operand in q.instruction.operands.iter().filter(|o| o.is_def()) {
            for lane in self.context.after.lanes(q, operand)? {
                let moved = !operand.flags.has(Flags::RENAMABLE) && self.moved_units.contains(&lane.a);
                // A reload gives back what it writes, not what it says to define besides.
                let restored =
                    is_reload(q) && !operand.is_implicit() && self.context.limits.saved.contains(&lane.a);
                let allowed =
                    if repeat { is_scc(lane) && operand.is_implicit() } else { moved || restored || is_exec(lane) };
                if !self.context.allocatable(lane) && !allowed {
                    return Err(q.refused("reserved-register", format!("`{}` must not be written", operand.text)));
                }
            }
        }
        Ok(())
    }

    /// Spec 8.2.
    fn repeat(&mut self, walk: &mut Walk<'_>, (block, instruction): (u32, u32), q: Code<'_>) -> Result<(), Refused> {
        let context = self.context;
        let refused = |message: &str| q.refused("repeat", message);
        let p =
            context.remembered(block, instruction).ok_or_else(|| refused("there is no such instruction to repeat"))?;
        if !forms::is_pure(context, p)? || !matches!(p.opcode.value("reach"), "" | "active") {
            return Err(refused("an instruction that must not be repeated"));
        }
        forms::compare(context, p, q, Mode::Repeat)?;
        let (before, undef_before) = context.before.read_lanes(p, usize::MAX)?;
        let (after, undef_after) = context.after.read_lanes(q, p.instruction.operands.len())?;
        let both = p.instruction.operands.iter().zip(&q.instruction.operands);
        let vague = both.into_iter().any(|(x, y)| y.is_use() && y.is_undef() && !x.is_undef());
        if undef_before || undef_after || vague || before.len() != after.len() {
            return Err(refused("an operand is `undef`"));
        }
        let active = walk.state.select(|class| class.active);
        for (k, (name, place)) in (0_u16..).zip(before.iter().zip(&after)) {
            if is_exec(*name) {
                continue;
            }
            let read = Lane::new(Of::Read, block, instruction, k).with_vector(name.vector);
            let state = &walk.state;
            let is_held = if name.vector {
                active.iter().filter_map(|n| state.classes.get(*n)).all(|class| match class.kind {
                    ThreadKind::Path => state.reads(Some(class), read, *place),
                    _ => class.part.holds(*place).contains(&read) && !class.part.is_doubtful(read),
                })
            } else {
                state.scalar.holds(*place).contains(&read) && !state.scalar.is_doubtful(read)
            };
            if !is_held {
                return Err(refused(&format!("{place} does not hold {read}")));
            }
        }
        let exec = remembered_exec(&before, block, instruction, context.wave_lanes);
        let mask = Mask::Known(walk.state.masks_of(&exec));
        let same = |class: &Class| class.kind == ThreadKind::Path || State::is_in(class, &mask) == Some(class.active);
        if !exec.is_empty() && !walk.state.classes.iter().all(same) {
            return Err(refused("other threads are active"));
        }
        forms::early_clobbers(context, p, q, &[], |_| false)?;
        self.may_define(q, true)?;
        let mut result = Vec::new();
        for (number, operand) in q.instruction.operands.iter().enumerate().filter(|(_, o)| o.is_def()) {
            for (k, lane) in (0_u16..).zip(context.after.lanes(q, operand)?) {
                if number == 0 {
                    walk.state.spoil_cells(lane, Side::Place);
                    let kept = Lane::new(Of::Result, block, instruction, k).with_vector(lane.vector);
                    result.push((lane, kept));
                } else {
                    walk.state.lose(lane, Side::Place, &active);
                }
            }
        }
        self.blank(walk, q, Side::Place, &active)?;
        walk.state.copy_places(&result, &active);
        for (lane, _) in &result {
            walk.state.note_written(*lane, false);
        }
        self.heed_flags(walk, q)
    }

    // Pairs.

    fn pair(&mut self, walk: &mut Walk<'a>, i: usize, p: Code<'a>, q: Code<'a>) -> Result<(), Refused> {
        let context = self.context;
        self.followed(p)?;
        self.waiting_callers(&walk.state, q)?;
        let moving =
            moves::read(context, &context.before, p)?.is_some() || moves::read(context, &context.after, q)?.is_some();
        if moving || p.has("no-code") || q.has("no-code") {
            return Err(q.refused("instruction-sequence", "a move that pairs"));
        }
        self.compared += forms::compare(context, p, q, Mode::Pair)?;
        walk.terminated |= p.has("terminator");
        if p.has("bundle") {
            // Passes behind read nothing but this line of a bundle, so it must say what the members do.
            let readers = walk.state.select(|class| class.active);
            self.read(walk, p, q, &Reading { readers, ..Reading::default() })?;
            walk.bundle = Some(Bundle { head: q, defined: Set::default(), read: Set::default() });
            return self.no_split(walk, i, p);
        }
        if p.opcode.value("reach") != q.opcode.value("reach") {
            return Err(q.refused("instruction-sequence", "another reach"));
        }
        self.reach_allowed(&walk.state, p)?;
        let (run, readers) = self.concerned(&walk.state, p);
        let [skip, upper] = forms::unread(context, p)?;
        let mut reading = Reading { readers, skip, blend: self.blend(walk, p)? };
        let mut lost = false;
        if let Err(error) = self.agrees(walk, p, q, &reading) {
            lost = !upper.is_empty();
            reading.skip.extend(upper);
            if !lost || self.agrees(walk, p, q, &reading).is_err() {
                return Err(error);
            }
        }
        let effect = Effect::of(context, &mut walk.state, p, &self.exec_lanes)?;
        self.remember(walk, i, p, &run)?;
        if p.has("call") {
            self.call(walk, q)?;
        }
        self.write(walk, p, q, &run, lost)?;
        self.remember_result(walk, i, p, &run)?;
        self.follow_masks_behind(walk, i, p, q, effect)
    }

    fn follow_masks_behind(
        &mut self, walk: &mut Walk<'a>, i: usize, p: Code<'a>, q: Code<'a>, effect: Effect,
    ) -> Result<(), Refused> {
        if p.has("returns") && !self.has_virtual && !self.context.saved_later {
            self.restored(walk, q)?;
        }
        self.heed_flags(walk, q)?;
        self.member(walk, q)?;
        self.follow_masks(walk, i, p, effect)
    }

    /// A member of a bundle: behind the last one, the head must have named all that they read and define.
    fn member(&self, walk: &mut Walk<'_>, q: Code<'_>) -> Result<(), Refused> {
        let text = &self.context.after;
        let Some(bundle) = walk.bundle.as_mut() else { return Ok(()) };
        let read = text.gather(q, Operand::reads)?;
        bundle.read.extend(read.into_iter().filter(|lane| !bundle.defined.contains(lane)));
        bundle.defined.extend(text.gather(q, Operand::is_def)?);
        if !q.instruction.closes_bundle {
            return Ok(());
        }
        let defined: Set<Lane> = text.gather(bundle.head, Operand::is_def)?.into_iter().collect();
        let read: Set<Lane> = text.gather(bundle.head, Operand::is_use)?.into_iter().collect();
        if defined != bundle.defined || !bundle.read.is_subset(&read) {
            return Err(bundle.head.refused("bundle", "it does not name what its members read and define"));
        }
        let head = bundle.head;
        walk.bundle = None;
        self.heed_flags(walk, head)
    }

    /// Of V_SET_INACTIVE: its mask's number; two operands, and the classes in which each is not read (spec 5.4).
    fn blend(&self, walk: &mut Walk<'_>, p: Code<'_>) -> Result<Option<Blend>, Refused> {
        let numbers = p.opcode.numbers("blend");
        let [inside, outside, mask] = numbers[..] else { return Ok(None) };
        let right = |number: usize| number.saturating_add(p.instruction.definitions);
        let operand = p.instruction.operands.get(right(mask));
        let known = masks::mask_of(self.context, &mut walk.state, p, operand, &self.exec_lanes)?;
        let without = |is_in: bool| {
            walk.state.select(|class| class.kind != ThreadKind::Path && State::is_in(class, &known) == Some(is_in))
        };
        Ok(Some(Blend {
            mask: right(mask),
            unread: [(right(inside), without(false)), (right(outside), without(true))],
        }))
    }

    /// Spec 5.5, 5.6.
    fn agrees(&self, walk: &Walk<'_>, p: Code<'_>, q: Code<'_>, reading: &Reading) -> Result<(), Refused> {
        self.read(walk, p, q, reading)?;
        forms::early_clobbers(self.context, p, q, &reading.skip, |name| walk.state.is_undefined(name, &reading.readers))
    }

    /// Spec 5.5.
    fn read(&self, walk: &Walk<'_>, p: Code<'_>, q: Code<'_>, reading: &Reading) -> Result<(), Refused> {
        let state = &walk.state;
        let both = p.instruction.operands.iter().zip(&q.instruction.operands).enumerate();
        let mask = reading.blend.as_ref().map(|blend| blend.mask);
        for (number, (x, y)) in both.filter(|(n, (x, _))| x.reads() || (x.is_use() && mask == Some(*n))) {
            let readers = &reading.of(number);
            let (names, places) = (self.context.before.lanes(p, x)?, self.context.after.lanes(q, y)?);
            let all =
                names.into_iter().zip(places).enumerate().filter(|(at, _)| !reading.skip.contains(&(number, *at)));
            for (_, (name, place)) in all {
                if y.is_undef() && !x.is_undef() && !state.is_undefined(name, readers) {
                    return Err(q.refused("undef-flag", format!("`{}` has a value, as `{}`,", y.text, x.text)));
                }
                let all = if name.vector {
                    readers
                        .iter()
                        .filter_map(|n| state.classes.get(*n))
                        .all(|class| state.reads(Some(class), name, place))
                } else {
                    state.reads(None, name, place)
                };
                if !all {
                    return Err(
                        q.refused("value", format!("{place} does not hold {name}, `{}` for `{}`,", y.text, x.text))
                    );
                }
            }
        }
        Ok(())
    }

    /// Classes `O` that wait, for an instruction that writes all threads (spec 5.4).
    fn waiting_others(&self, state: &State, code: Code<'_>) -> Vec<usize> {
        if code.opcode.value("reach") != "writes" || self.names_active_thread(state, code) {
            return Vec::new();
        }
        state.select(|class| class.kind == ThreadKind::Other && !class.active)
    }

    /// An `undef` definition of a subregister leaves the rest of its register without a value (spec 5.10).
    fn blank(&self, walk: &mut Walk<'_>, code: Code<'_>, side: Side, run: &[usize]) -> Result<(), Refused> {
        let text = self.context.text(side);
        let undef = |o: &&Operand| o.is_def() && o.is_undef() && !o.sub.is_empty();
        for operand in code.instruction.operands.iter().filter(undef) {
            let own = text.lanes(code, operand)?;
            for lane in text.whole(operand).into_iter().filter(|lane| !own.contains(lane)) {
                walk.state.lose(lane, side, run);
            }
        }
        Ok(())
    }

    /// Spec 5.3, 5.10.
    /// `lost`: of a wide product only the lower half of the result is known (spec 5.11).
    fn write(&self, walk: &mut Walk<'_>, p: Code<'_>, q: Code<'_>, run: &[usize], lost: bool) -> Result<(), Refused> {
        let (before, after) = (&self.context.before, &self.context.after);
        let state = &mut walk.state;
        let mut written = Vec::new();
        let read = after.gather(q, |o| o.is_implicit() && o.reads())?;
        for added in q.instruction.operands.iter().skip(p.instruction.operands.len()).filter(|o| o.is_def()) {
            for place in after.lanes(q, added)?.into_iter().filter(|place| !read.contains(place)) {
                state.lose(place, Side::Place, run);
                written.push(place);
            }
        }
        self.blank(walk, q, Side::Place, run)?;
        self.blank(walk, p, Side::Name, run)?;
        let waiting = self.waiting_others(&walk.state, p);
        let state = &mut walk.state;
        let both = p.instruction.operands.iter().zip(&q.instruction.operands).enumerate();
        for (number, (x, y)) in both.filter(|(_, (x, _))| x.is_def()) {
            let (names, places) = (before.lanes(p, x)?, after.lanes(q, y)?);
            let known = match number {
                _ if !lost => names.len(),
                0 => names.len() / 2,
                _ => 0,
            };
            for name in &names {
                state.define(*name, run);
                state.forget(*name, &waiting);
            }
            for (at, (name, place)) in names.into_iter().zip(places).enumerate() {
                state.lose(place, Side::Place, run);
                if place.vector {
                    state.spoil(place, &waiting);
                }
                if at < known {
                    state.hold(place, name, run);
                }
                written.push(place);
            }
        }
        self.move_frame(state, q, &written);
        Ok(())
    }

    /// A write of the stack pointer and the like moves all vector slots (spec 6).
    fn move_frame(&self, state: &mut State, code: Code<'_>, written: &[Lane]) {
        let moves = written.iter().any(|lane| lane.of == Of::Unit && self.frame_units.contains(&lane.a));
        if !moves || code.has("frame-adjust") || code.has("call") {
            return;
        }
        let everyone = state.select(|_| true);
        // Slots of scalars become lanes of registers.
        let in_memory = |lane: &Lane| lane.of == Of::Slot && (lane.vector || lane.cell != 0);
        let (mut places, mut names): (Set<Lane>, Set<Lane>) = (Set::default(), Set::default());
        for part in std::iter::once(&state.scalar).chain(state.classes.iter().map(|class| &class.part)) {
            places.extend(part.all_places().filter(in_memory));
            names.extend(part.all_names().filter(in_memory));
        }
        for place in places {
            state.spoil(place, &everyone);
        }
        for name in names {
            state.forget(name, &everyone);
        }
    }

    /// Spec 9.
    fn call(&self, walk: &mut Walk<'_>, q: Code<'_>) -> Result<(), Refused> {
        let preserved = preserved(q)?;
        let limits = self.context.limits;
        let run = walk.state.select(|class| class.active);
        let mut units: Vec<u32> = self.context.before.units().chain(self.context.after.units()).collect();
        units.extend(limits.saved.iter().copied());
        units.sort_unstable();
        units.dedup();
        for unit in units.into_iter().filter(|unit| !preserved.contains(unit) && !limits.kept.contains(unit)) {
            let lane = Lane::unit(unit);
            for side in [Side::Name, Side::Place] {
                walk.state.lose(lane, side, &run);
            }
        }
        Ok(())
    }

    /// Spec 11.
    fn heed_flags(&self, walk: &mut Walk<'_>, q: Code<'_>) -> Result<(), Refused> {
        let text = &self.context.after;
        let active = walk.state.select(|class| class.active);
        let flagged = |o: &Operand| o.flags.has(Flags::KILLED) || o.flags.has(Flags::DEAD);
        if !q.instruction.operands.iter().any(flagged) {
            return Ok(());
        }
        let defined = text.gather(q, |o| o.is_def() && !o.flags.has(Flags::DEAD))?;
        for operand in q.instruction.operands.iter().filter(|o| flagged(o)) {
            let dead = operand.is_def();
            for lane in text.lanes(q, operand)? {
                if !forms::is_special(lane) && (dead || !defined.contains(&lane)) {
                    walk.state.spoil_cells(lane, Side::Place);
                    walk.state.spoil(lane, &active);
                }
            }
        }
        Ok(())
    }

    /// Spec 12.3. The stack pointer and its like are for pairs to change, as P does (spec 14), but not for reloads.
    fn restored(&self, walk: &Walk<'_>, q: Code<'_>) -> Result<(), Refused> {
        let limits = self.context.limits;
        let kept = |unit: &u32| limits.kept.contains(unit) && !self.reloaded.contains(unit);
        for unit in limits.saved.iter().filter(|unit| !is_vector_unit(**unit) && !kept(unit)) {
            let (place, name) = (Lane::unit(*unit), Lane::entry(*unit));
            if !walk.state.scalar.holds(place).contains(&name) {
                return Err(q.refused("callee-saved", format!("{place} is not restored")));
            }
        }
        Ok(())
    }

    // What repeats need (spec 8.3).

    fn is_repeated(&self, block: usize, i: usize) -> Option<(u32, u32)> {
        let of = u32::try_from(block).ok().zip(u32::try_from(i).ok())?;
        self.repeated.contains(&of).then_some(of)
    }

    fn remember(&self, walk: &mut Walk<'_>, i: usize, p: Code<'_>, run: &[usize]) -> Result<(), Refused> {
        let Some((block, number)) = self.is_repeated(walk.block, i) else { return Ok(()) };
        let (lanes, undef) = self.context.before.read_lanes(p, usize::MAX)?;
        let state = &mut walk.state;
        let numbered = (0_u16..).zip(&lanes);
        let pairs: Vec<(Lane, Lane)> =
            numbered.map(|(k, lane)| (Lane::new(Of::Read, block, number, k).with_vector(lane.vector), *lane)).collect();
        let doubtful = lanes.iter().any(|lane| !lane.vector && state.scalar.is_doubtful(*lane));
        let exec = remembered_exec(&lanes, block, number, self.context.wave_lanes);
        if undef || doubtful {
            let everyone = state.select(|_| true);
            pairs.iter().for_each(|(read, _)| state.forget(*read, &everyone));
            return Ok(());
        }
        state.copy_names(&pairs, run);
        if !exec.is_empty() {
            let everyone = state.select(|_| true);
            for name in lanes.iter().zip(&pairs).filter(|(lane, _)| is_exec(**lane)).map(|(_, (read, _))| *read) {
                state.forget(name, &everyone);
            }
            state.note_active(&exec);
        }
        for at in run {
            let Some(class) = state.classes.get(*at).filter(|class| class.kind != ThreadKind::Path) else { continue };
            if lanes.iter().any(|lane| lane.vector && class.part.is_doubtful(*lane)) {
                pairs.iter().filter(|(read, _)| read.vector).for_each(|(read, _)| state.forget(*read, &[*at]));
            }
        }
        Ok(())
    }

    fn remember_result(&self, walk: &mut Walk<'_>, i: usize, p: Code<'_>, run: &[usize]) -> Result<(), Refused> {
        let Some((block, number)) = self.is_repeated(walk.block, i) else { return Ok(()) };
        let Some(first) = p.instruction.operands.first().filter(|o| o.is_def()) else { return Ok(()) };
        let (lanes, _) = self.context.before.read_lanes(p, usize::MAX)?;
        // A class that waits keeps the result of an earlier turn; the scalars read now are not those read then.
        let stale = if lanes.iter().any(|lane| !lane.vector && !is_exec(*lane)) {
            walk.state.select(|_| true)
        } else {
            Vec::new()
        };
        for (k, name) in (0_u16..).zip(self.context.before.lanes(p, first)?) {
            let kept = Lane::new(Of::Result, block, number, k).with_vector(name.vector);
            walk.state.spoil(kept, &stale);
            walk.state.hold(kept, name, run);
        }
        Ok(())
    }
}

/// The names `@B.I.K` that are parts of the mask of threads that were active (spec 8.3).
fn remembered_exec(lanes: &[Lane], block: u32, instruction: u32, wave: usize) -> Vec<Lane> {
    let count = lanes.iter().take_while(|lane| is_exec(**lane)).count().min(wave);
    (0_u16..).take(count).map(|k| Lane::new(Of::Read, block, instruction, k)).collect()
}

/// A scalar comes back from a lane or a slot.
fn is_reload(code: Code<'_>) -> bool {
    let spill = code.opcode.value("spill");
    code.has("lane-restore") || (spill.starts_with("S,") && spill.ends_with(",restore"))
}

/// Its opcode is one that may stand alone and move something (spec 7), or has no code.
fn is_moving(code: Code<'_>) -> bool {
    let words = ["copy", "wwm-copy", "no-code", "lane-save", "lane-restore"];
    words.iter().any(|word| code.has(word)) || !code.opcode.value("spill").is_empty()
}

/// The units that all register masks of a call preserve (spec 9).
fn preserved(q: Code<'_>) -> Result<Set<u32>, Refused> {
    let mut all: Option<Set<u32>> = None;
    for operand in q.instruction.operands.iter().filter(|o| o.kind == Kind::RegMask) {
        let mask = tables()
            .mask(&operand.text)
            .ok_or_else(|| q.refused("call-mask", format!("the register mask `{}`", operand.text)))?;
        all = Some(match all {
            None => mask.into_iter().collect(),
            Some(all) => all.into_iter().filter(|unit| mask.contains(unit)).collect(),
        });
    }
    all.ok_or_else(|| q.refused("well-formed", "no register mask"))
}

/// What the branch at the end of a block tests, and the successor that it leads to (spec 12.2).
fn tested(codes: &[Code<'_>], block: &Block, number: usize) -> Option<(&'static str, usize)> {
    let [one, two] = block.successors.as_slice() else { return None };
    let target =
        |code: &Code<'_>| code.instruction.operands.iter().find(|o| o.kind == Kind::Block).map(|o| o.number as usize);
    // No other branch may lead to the same block, whatever the tested one says.
    let branches = |code: &Code<'_>| code.has("branch") || code.has("indirect-branch") || target(code).is_some();
    let (last, rest) = codes.split_last()?;
    let (branch, other, rest) = match rest.split_last() {
        Some((branch, rest)) if last.instruction.opcode == "S_BRANCH" => (branch, target(last)?, rest),
        _ => (last, number + 1, rest),
    };
    if rest.iter().any(branches) {
        return None;
    }
    let taken = target(branch)?;
    let named = [(taken, other), (other, taken)].contains(&(*one, *two)) && taken != other;
    let test = branch.opcode.value("test");
    (named && !test.is_empty()).then_some((test, taken))
}
