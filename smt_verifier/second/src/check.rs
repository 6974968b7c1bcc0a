//! Walks through the blocks, step by step (spec 2.3, 5.1, 5.4, 5.5, 5.10, 6, 8.2 to 8.4, 9, 9.1, 11, 12.2, 12.3, 13.6).
//!
//! Spec 8.3 is `remember` and `remember_result`.

use std::collections::BTreeSet;

use crate::behind;
use crate::certificate::{BlockPart, Take};
use crate::context::{assembly_operands, read_lanes, Context};
use crate::entry;
use crate::forms::{self, Mode};
use crate::header::{self, info, registers_in, value};
use crate::joined;
use crate::lanes::{Lane, Map, Of, Set, FIRST_AGPR, SCC};
use crate::masks::{mask_of, Effect, Mark};
use crate::model::*;
use crate::moves;
use crate::propagated::Propagated;
use crate::tables::{tables, Register};
use crate::threads::{Side, State, WAVE};
use crate::vccz;

/// What is known of both texts without a certificate.
pub struct Texts {
    /// Of each block of Q, virtual vector registers that are live at its entry (spec 11.3).
    live: Vec<Set<Lane>>,
    /// What each block of Q leaves to those that LLVM makes copies of at its end.
    left: Vec<joined::Left>,
    /// What LLVM makes of copies (spec 10.13).
    propagated: Propagated,
}

/// What is going on in one block.
pub struct Walk<'a> {
    context: &'a Context<'a>,
    texts: &'a Texts,
    part: &'a BlockPart,
    block: usize,
    /// Numbers of the next instructions.
    pub at: (usize, usize),
    pub state: State,
    /// Set by a search for a certificate, which asks of no pair and of no repeat that it agrees; never by a check.
    pub is_search: bool,
    /// The instruction of P that was repeated last.
    pub repeated: Option<(u32, u32)>,
    terminated: bool,
    /// The `BUNDLE` of Q that is open.
    bundle: Option<Bundle<'a>>,
    /// How many operands were compared, and how many lines `repeat` and `split` used.
    compared: usize,
    repeats: usize,
    splits: usize,
    /// Scalar registers that moves of P, and of Q, have killed since the last pair (spec 11.2).
    killed: [Set<Lane>; 2],
    /// Scalar registers that both have killed, and nothing has written since: pairs may read them (spec 11.2).
    pub revived: Set<Lane>,
}

/// What is compared of what an instruction reads: classes that read, lanes that are not read (operand and position,
/// spec
/// 5.11), operands with classes that do not read them, and one that is read although it is `undef` (5.4).
#[derive(Default)]
pub struct Reading {
    readers: Vec<usize>,
    pub skip: Vec<(usize, usize)>,
    unread: Vec<(usize, Vec<usize>)>,
    pub mask: Option<usize>,
}

impl Reading {
    /// The classes that read this operand.
    pub fn of(&self, operand: usize) -> Vec<usize> {
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
pub fn check(context: &Context<'_>, texts: &Texts, parts: &[BlockPart]) -> Done<usize> {
    parts.iter().enumerate().try_fold(0, |compared, (block, part)| {
        let claimed = |entry: &entry::Claimed| entry.state(context, &context.after.blocks[block]);
        let mut state = match part.entry.as_ref().map(claimed).transpose()? {
            _ if block == 0 => entry::of_function(context, &context.after.blocks[0]),
            Some(state) => state,
            None => return Ok(compared),
        };
        entry::undefine_undeclared(context, block, &mut state);
        entry::reads_defined(context, block)?;
        Walk { compared, ..Walk::of(context, texts, part, block, state) }.steps(parts)
    })
}

/// Check both texts where no certificate is asked for.
///
/// # Errors
/// The rule that does not hold.
pub fn texts(context: &Context<'_>) -> Done<Texts> {
    moves::saves_follow(context.before)?;
    moves::saves_follow(context.after)?;
    let propagated = Propagated::of(context.after, context.processor, context.limits, context.coarse);
    // What Q names, and what is left of that once LLVM has propagated its copies.
    let named: Vec<Set<u32>> = std::iter::once(context.after).chain(&propagated.texts).map(Function::units).collect();
    let promised = keeps_promises(context, &named)?;
    let is_entry = info(context.before, "isEntryFunction") == "true";
    let framed = !is_entry && frame(context).framed;
    if framed {
        header::given(context.before, &context.convention, context.processor)?;
        edges_are_free(context)?;
    }
    frame_stays(context, is_entry, framed)?;
    let live = entry::live_virtual(context);
    let mut left = joined::check(context, context.after)?;
    nothing_taken(context)?;
    nothing_moved(context, &named)?;
    if !context.premises.near_branches {
        branches_have_scalars(context, &named[0], promised)?;
    }
    restored_before_read(context)?;
    let returns = context.after.instructions().any(|i| i.has("returns"));
    let address = tables().register("sgpr30_sgpr31").map(|r| &r.units);
    let saved = is_entry || address.is_some_and(|units| units.iter().all(|unit| context.preserved.contains(unit)));
    ensure!(saved || !returns, "calling-convention", "", "it returns, and its convention saves no return address");
    scalar_is_free(context)?;
    slots_have_one_file(context)?;
    behind::check(context, context.after)?;
    behind::kept_in_lanes(context.after)?;
    vccz::check(context, context.after)?;
    for text in &propagated.texts {
        behind::check(context, text)?;
        vccz::check(context, text)?;
        let more = joined::check(context, text)?;
        left.iter_mut().zip(more).for_each(|(left, more)| left.join(more));
    }
    Ok(Texts { live, left, propagated })
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

/// What calls of this function in P's file rely on, Q leaves alone as P does, and LLVM for a frame (spec 9).
/// Whether they rely on anything that P keeps.
fn keeps_promises(context: &Context<'_>, named: &[Set<u32>]) -> Done<bool> {
    let promised = &context.promised;
    if promised.is_empty() {
        return Ok(false);
    }
    let broken = |text: &'_ Function| -> Done<Vec<(u32, usize)>> {
        let mut all = Vec::new();
        for i in text.instructions() {
            let lanes = i.lanes(Operand::is_def).into_iter().filter(|lane| lane.of == Of::Unit);
            let kept = if i.has("call") { preserved(i)? } else { promised.iter().copied().collect() };
            let lost = promised.iter().copied().filter(|unit| !kept.contains(unit));
            let written = lanes.map(|lane| lane.a).filter(|unit| promised.contains(unit));
            all.extend(written.chain(lost).map(|unit| (unit, i.line)));
        }
        Ok(all)
    };
    let before: Set<u32> = broken(context.before)?.into_iter().map(|(unit, _)| unit).collect();
    if let Some((unit, line)) = broken(context.after)?.into_iter().find(|(unit, _)| !before.contains(unit)) {
        return Err(Refused::new("call-mask", format!("${unit} is written, which a call relies on"), line));
    }
    for named in named {
        let mut kept = promised.iter().filter(|unit| !before.contains(unit));
        let all = spared(context, named)?.is_none_or(|spared| kept.all(|unit| spared.contains(unit)));
        ensure!(all, "call-mask", "", "LLVM may take for a frame what a call relies on");
    }
    Ok(promised.iter().any(|unit| !before.contains(unit)))
}

/// Whether LLVM lays out a frame for Q, and for what: registers in units.
struct Frame {
    framed: bool,
    objects: bool,
    vectors: usize,
    scalars: usize,
    defined: Set<u32>,
    saved: Set<u32>,
}

fn frame(context: &Context<'_>) -> Frame {
    let q = context.after;
    let units = |keys: &[&str]| -> usize {
        let names: BTreeSet<String> = keys.iter().flat_map(|key| registers_in(q, key)).collect();
        names.iter().filter_map(|name| tables().register(name)).map(|r| r.units.len()).sum()
    };
    let (vectors, scalars) = (units(&["wwmReservedRegs", "spillPhysVGPRs"]), units(&["longBranchReservedReg"]));
    let defined: Set<u32> =
        q.instructions().flat_map(|i| i.lanes(Operand::is_def)).filter(|l| l.of == Of::Unit).map(|l| l.a).collect();
    let saved: Set<u32> = defined.iter().copied().filter(|unit| context.preserved.contains(unit)).collect();
    let objects = !q.stack.is_empty() || !q.fixed_stack.is_empty();
    let framed = objects
        || vectors + scalars > 0
        || !saved.is_empty()
        || wants_frame_pointer(context)
        || q.instructions().any(|i| i.has("call"))
        || !matches!(&*value(q, "frameInfo.stackSize"), "" | "0")
        || info(q, "isWholeWaveFunction") == "true";
    Frame { framed, objects, vectors, scalars, defined, saved }
}

/// Whether a called function has a frame pointer whatever is in its frame (SIFrameLowering::hasFPImpl).
fn wants_frame_pointer(context: &Context<'_>) -> bool {
    let flag = |(path, value): (&String, &String)| {
        let asks = |key| !matches!(key, "isCalleeSavedInfoValid" | "hasOpaqueSPAdjustment");
        path.strip_prefix("frameInfo.").is_some_and(|key| value == "true" && asks(key))
    };
    let q = context.after;
    let by_policy = !matches!(&*value(q, "frameInfo.framePointerPolicy"), "" | "-" | "none");
    context.keeps_frame_pointer || by_policy || has_dynamic_object(q) || q.fields.iter().any(flag)
}

fn has_dynamic_object(q: &Function) -> bool {
    q.stack.values().any(|row| header::object(row, "type") == "variable-sized")
}

/// Nothing in Q writes where the frame is, by which spill code finds its slots, LLVM restores what a called function has saved, and
/// callees begin; but the stack pointer, if there is an object of unknown size, beside which it has a frame pointer (spec 13.4).
fn frame_stays(context: &Context<'_>, is_entry: bool, framed: bool) -> Done {
    let (p, q) = (context.before, context.after);
    let grows = q.stack.len() > p.stack.len() && q.instructions().any(|i| i.has("call"));
    let mut names = if has_dynamic_object(q) || !(framed || is_entry && grows) {
        Vec::new()
    } else {
        registers_in(q, "stackPtrOffsetReg")
    };
    if framed || header::is_in_memory(q) {
        names.push("flat_scr".to_string());
    }
    if header::is_in_memory(q) {
        names.extend(registers_in(q, "scratchRSrcReg"));
        names.extend(registers_in(q, "frameOffsetReg").into_iter().filter(|_| is_entry));
    }
    let registers = names.iter().filter_map(|name| tables().register(name));
    let base: Set<u32> = registers.flat_map(|r| r.units.iter().copied()).collect();
    for i in q.instructions() {
        ensure!(!moves_frame(i, &base), "reserved-register", i, "it moves the frame that Q has");
    }
    Ok(())
}

/// Whether it writes one of the units `base`, by which a frame is addressed (spec 6, 13.4): a clobber of assembly does not.
fn moves_frame(i: &Instruction, base: &Set<u32>) -> bool {
    let clobbers: Set<usize> = assembly_operands(i).iter().filter(|o| o.is_clobber).map(|o| o.number).collect();
    let written = i.operands.iter().enumerate().filter(|(n, o)| o.is_def() && !clobbers.contains(n));
    let mut lanes = written.flat_map(|(_, o)| &o.lanes);
    !i.has("frame-adjust") && !i.has("call") && lanes.any(|lane| lane.of == Of::Unit && base.contains(&lane.a))
}

/// The units that LLVM leaves alone for sure where it lays out a frame. It takes the lowest registers: VGPRs and an SGPR that
/// nothing uses; SGPRs that are dead there for EXEC, where the function begins and returns; whatever is dead, for what is
/// addressed in the frame; accumulators for VGPRs that it saves, VGPRs for accumulators. None where there is no frame
/// (SIFrameLowering, SIRegisterInfo::eliminateFrameIndex; spec 9).
fn spared(context: &Context<'_>, named: &Set<u32>) -> Done<Option<Set<u32>>> {
    let (q, allocatable) = (context.after, &context.limits.allocatable);
    let Frame { framed, objects, vectors, scalars, defined, saved } = frame(context);
    if !framed {
        return Ok(None);
    }
    let file = |letter| tables().file(letter).0..tables().file(letter).1;
    if defined.iter().any(|unit| file('a').contains(unit)) {
        return Ok(Some(Set::default()));
    }
    let usable: BTreeSet<u32> = allocatable.iter().copied().filter(|unit| !context.preserved.contains(unit)).collect();
    let mut unused = usable.clone();
    unused.retain(|unit| !named.contains(unit));
    for i in q.instructions().filter(|i| i.has("call")) {
        let kept = preserved(i)?;
        unused.retain(|unit| kept.contains(unit));
    }
    let saved: Set<u32> = saved.iter().filter(|unit| file('s').contains(unit)).map(|unit| unit / 2).collect();
    let (lanes, branches) = (1 + (saved.len() + 4) / 32 + vectors / 2, usize::from(scalars > 0));
    // The first aligned tuples of a file's free registers.
    let first = |letter, width: u32, count: usize, free: &BTreeSet<u32>| -> BTreeSet<u32> {
        let tuples = file(letter).step_by(2 * width as usize).map(|first| first..first + 2 * width);
        tuples.filter(|tuple| tuple.clone().all(|unit| free.contains(&unit))).take(count).flatten().collect()
    };
    if objects || value(q, "frameInfo.maxAlignment").parse().is_ok_and(|bytes: u32| bytes > 16) {
        let above = |letter, width: u32, count: usize| {
            let taken = first(letter, width, count, &unused);
            let all = taken.len() == 2 * width as usize * count;
            file(letter).filter(|unit| all && taken.last() < Some(unit)).collect::<Set<u32>>()
        };
        let mut units = above('v', 1, lanes + 2);
        if !units.is_empty() {
            units.extend(above('s', 2, 4 + branches));
        }
        return Ok(Some(units));
    }
    let of_branches = match first('s', 2, branches, &unused) {
        none if none.is_empty() => registers_in(q, "longBranchReservedReg").iter().flat_map(|r| units_of(r)).collect(),
        pair => pair,
    };
    let taken: BTreeSet<u32> =
        [first('v', 1, lanes, &unused), first('s', 1, 1, &unused), of_branches].into_iter().flatten().collect();
    if first('v', 1, lanes, &unused).len() < 2 * lanes {
        return Ok(Some(Set::default()));
    }
    let mut units: Set<u32> = file('v').chain(file('s')).filter(|unit| !taken.contains(unit)).collect();
    let has_frame_pointer = !first('s', 1, 1, &unused).is_empty();
    for live in edges(q) {
        let mut free: BTreeSet<u32> =
            usable.iter().copied().filter(|unit| !live.contains(unit) && !taken.contains(unit)).collect();
        if !has_frame_pointer {
            // Prologue and epilogue keep it in one that is dead there, before they look for EXEC's.
            let dead = first('s', 1, 1, &free);
            free.retain(|unit| !dead.contains(unit));
        }
        let pair = first('s', 2, 1, &free);
        let end = pair.last().copied().unwrap_or(u32::MAX);
        units.retain(|unit| !file('s').contains(unit) || *unit > end || live.contains(unit));
    }
    if !saves_vectors(context)? {
        units.extend(file('a'));
    }
    Ok(Some(units))
}

/// What is live where LLVM's prologue begins, and where each epilogue ends.
fn edges(q: &Function) -> Vec<Set<u32>> {
    let entry: Set<u32> = q.blocks[0].liveins.iter().flat_map(|(r, _)| r.units.iter().copied()).collect();
    let ends =
        q.blocks.iter().filter(|block| block.successors.is_empty()).filter_map(|block| block.instructions.last());
    let read = |i: &Instruction| -> Set<u32> {
        i.operands.iter().filter(|o| o.reads()).filter_map(|o| o.register).flat_map(|r| &r.units).copied().collect()
    };
    std::iter::once(entry).chain(ends.map(read)).collect()
}

/// A called function with a frame leaves LLVM SGPRs where it begins and ends: two pairs for EXEC, frame and base pointer, and one
/// for the address of a slot, which would else be in a VGPR of all threads (spec 13.4).
fn edges_are_free(context: &Context<'_>) -> Done {
    let (first, end) = tables().file('s');
    let usable = |unit: &u32| context.limits.allocatable.contains(unit) && !context.preserved.contains(unit);
    let usable: Vec<u32> = (first..end).step_by(2).filter(usable).collect();
    for live in edges(context.after) {
        let free = usable.iter().filter(|unit| !live.contains(unit) && !live.contains(&(*unit + 1))).count();
        ensure!(free >= 8, "not-followed", "", "fewer than 8 SGPRs are free where LLVM saves or restores");
    }
    Ok(())
}

/// Whether LLVM saves vector registers that the convention preserves by spill code, which may take accumulators. Those for
/// lanes it saves by plain stores, and moves (SIFrameLowering::determineCalleeSaves).
fn saves_vectors(context: &Context<'_>) -> Done<bool> {
    let q = context.after;
    let lanes: Set<u32> = registers_in(q, "wwmReservedRegs")
        .iter()
        .filter_map(|name| tables().register(name))
        .flat_map(|r| r.units.iter().copied())
        .collect();
    let scalars = tables().file('s').0..tables().file('s').1;
    let saved = |unit: &u32| context.preserved.contains(unit) && !scalars.contains(unit) && !lanes.contains(unit);
    for i in q.instructions() {
        let defined = i.lanes(Operand::is_def).into_iter().any(|lane| lane.of == Of::Unit && saved(&lane.a));
        let kept = if i.has("call") { Some(preserved(i)?) } else { None };
        let lost = |kept: &Set<u32>| context.preserved.iter().any(|unit| saved(unit) && !kept.contains(unit));
        if defined || kept.as_ref().is_some_and(lost) {
            return Ok(true);
        }
    }
    Ok(info(q, "isWholeWaveFunction") == "true")
}

/// No instruction of either text names the frame pointer of a called function that has one, by which LLVM addresses slots and
/// saves vector registers (spec 6, 13.4). None of Q reads what is kept for long branches; nor what keeps EXEC, but to write EXEC,
/// where no scalars are still to be spilled to lanes: LLVM moves it.
fn nothing_taken(context: &Context<'_>) -> Done {
    let q = context.after;
    let units = |key: &str| -> Set<u32> {
        let names = registers_in(q, key);
        names.iter().filter_map(|name| tables().register(name)).flat_map(|r| r.units.iter().copied()).collect()
    };
    // What is realigned has a base pointer, s34, too, by which the stack pointer is restored.
    let base = tables().register("sgpr34").map_or(&[][..], |register| &register.units);
    let realigned = base.iter().any(|unit| context.limits.kept.contains(unit));
    let keeps = (realigned || wants_frame_pointer(context)) && info(q, "isEntryFunction") != "true";
    let frame = if keeps { units("frameOffsetReg") } else { Set::default() };
    ensure!(
        !keeps || info(q, "frameOffsetReg") == "$sgpr33",
        "header",
        "",
        "a frame pointer is wanted, and is nowhere"
    );
    let is_taken = |unit: &u32| frame.contains(unit) || realigned && base.contains(unit);
    ensure!(!context.touched.iter().any(is_taken), "reserved-register", "", "a pointer to the frame is named");
    // Where few registers are left, what keeps EXEC has the stack pointer in it, which all spill code names.
    let pointer = units("stackPtrOffsetReg");
    let [mask, branches] = ["sgprForEXECCopy", "longBranchReservedReg"].map(|key| &units(key) - &pointer);
    let keeps = registers_in(q, "sgprForEXECCopy");
    let spills = context.has_virtual && q.instructions().any(|i| matches!(i.spill(), Some(("S", ..))));
    let (mut restored, mut in_parts) = (false, false);
    for i in q.instructions() {
        for o in i.operands.iter().filter(|o| o.reads() || o.is_def()) {
            let meets = |units: &Set<u32>| o.lanes.iter().any(|lane| lane.of == Of::Unit && units.contains(&lane.a));
            let whole = keeps.iter().any(|name| o.names(name));
            let restores = whole && !spills && behind::writes_exec(i);
            let read = o.reads() && (meets(&branches) || meets(&mask) && !restores);
            ensure!(!read, "reserved-register", i, "it reads what LLVM keeps for itself");
            restored |= o.reads() && meets(&mask);
            in_parts |= o.is_def() && meets(&mask) && !whole;
        }
    }
    ensure!(!(restored && in_parts), "reserved-register", "", "what keeps EXEC is written in parts");
    let mut live = q.blocks.iter().flat_map(|block| &block.liveins).flat_map(|(register, _)| &register.units);
    ensure!(
        live.all(|unit| !mask.contains(unit)),
        "reserved-register",
        "",
        "what keeps EXEC is live at a block's entry"
    );
    Ok(())
}

/// LLVM restores what a function must leave as it was before the first terminator of a block that returns, and overwrites SCC
/// and M0: none of its terminators names what it restores, or reads those (spec 12.3).
fn restored_before_read(context: &Context<'_>) -> Done {
    let q = context.after;
    let restores = |lane: &Lane| {
        lane.of == Of::Unit && context.preserved.contains(&lane.a) && (context.premises.saved_later || lane.vector)
    };
    let restored: Set<Lane> = q.instructions().flat_map(|i| i.lanes(Operand::is_def)).filter(restores).collect();
    let returns = |block: &&Block| block.instructions.last().is_some_and(|last| last.has("returns"));
    for i in q.blocks.iter().filter(returns).flat_map(|b| &b.instructions).filter(|i| i.has("terminator")) {
        let kept = !i.lanes(|o| o.reads() || o.is_def()).iter().any(|lane| restored.contains(lane));
        let overwritten = |o: &Operand| o.register.is_some_and(|own| own.name == "scc" || own.name.starts_with("m0"));
        let asks =
            !i.has("branch") && !context.preserved.is_empty() && i.operands.iter().any(|o| o.reads() && overwritten(o));
        ensure!(kept && !asks, "callee-saved", i, "LLVM has restored what is named here, or overwritten it");
    }
    Ok(())
}

fn names_object(i: &Instruction) -> bool {
    i.operands.iter().any(is_object)
}

fn is_object(o: &Operand) -> bool {
    matches!(o.kind, Kind::FrameIndex | Kind::FixedFrame)
}

/// Spill code of a slot names registers of one vector file, or EXEC is not written between such code of a block, or of blocks
/// that LLVM may bring together, nor in one that it may be hoisted into: it may keep the slot in registers of the other file, but makes COPYs of saves and reloads of
/// the same one (SIFrameLowering; spec 7.3).
fn slots_have_one_file(context: &Context<'_>) -> Done {
    let slots = |i: &Instruction| -> Vec<u32> {
        let spills = i.spill().is_some();
        i.operands.iter().filter(|o| spills && o.kind == Kind::FrameIndex).map(|o| o.number).collect()
    };
    let mut files: Map<u32, BTreeSet<char>> = Map::default();
    for i in context.after.instructions().filter(|_| context.processor.has_agprs) {
        for slot in slots(i) {
            let letters = i.operands.iter().filter_map(|o| o.register).map(|r| r.file);
            files.entry(slot).or_default().extend(letters.filter(|file| "va".contains(*file)));
        }
    }
    files.retain(|_, letters| letters.len() > 1);
    if files.is_empty() {
        return Ok(());
    }
    let near = joined::near_blocks(context.after);
    // Slots that were named in a block, or near it, and whether EXEC was written since.
    let mut left: Vec<Set<(u32, bool)>> = vec![Set::default(); near.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (number, block) in context.after.blocks.iter().enumerate() {
            let (blocks, stop) = &near[number];
            let mut named: Set<(u32, bool)> = blocks.iter().flat_map(|from| left[*from].iter().copied()).collect();
            let parts = |from: &usize| context.after.blocks[*from].successors.iter().collect::<BTreeSet<_>>().len() > 1;
            let writes = |from: &usize| context.after.blocks[*from].instructions.iter().any(behind::writes_exec);
            let hoisted = blocks.iter().any(|from| parts(from) && writes(from));
            for (at, i) in block.instructions.iter().enumerate() {
                if behind::writes_exec(i) {
                    named = named.into_iter().map(|(slot, _)| (slot, true)).collect();
                }
                for slot in slots(i).into_iter().filter(|slot| files.contains_key(slot)) {
                    let across = named.contains(&(slot, true)) || hoisted && at < *stop;
                    ensure!(!across, "spill-slot", i, "a slot is of both vector files where EXEC is written");
                    named.insert((slot, false));
                }
            }
            changed |= named != left[number];
            left[number] = named;
        }
    }
    Ok(())
}

/// Where an instruction names stack objects, LLVM finds as many free SGPRs, which nothing near names: else it adds to the frame register,
/// and takes that back where SCC is live, or too early; or it takes a VGPR in whole waves, and gives it back to fewer threads, as it
/// does where EXEC is written. Where SCC is live it adds over that, or in a VGPR, if a register addresses the frame. Passes ahead of
/// that make registers live longer, in their block and loop (SIRegisterInfo::eliminateFrameIndex, buildSpillLoadStore; spec 13.4).
fn scalar_is_free(context: &Context<'_>) -> Done {
    let (q, limits) = (context.after, context.limits);
    if context.has_virtual {
        return Ok(());
    }
    let units = |i: &Instruction, chosen: fn(&Operand) -> bool| -> Vec<u32> {
        i.lanes(chosen).into_iter().filter(|lane| lane.of == Of::Unit).map(|lane| lane.a).collect()
    };
    let defined: Set<u32> = q.instructions().flat_map(|i| units(i, Operand::is_def)).collect();
    let (first, end) = tables().file('s');
    let usable =
        |unit: &u32| limits.allocatable.contains(unit) && (!context.preserved.contains(unit) || defined.contains(unit));
    let usable: Vec<u32> = (first..end).step_by(2).filter(usable).collect();
    let by_register = info(q, "isEntryFunction") != "true" || wants_frame_pointer(context);
    // What immediates reach, beside all that LLVM may save, asks for no register.
    let bytes =
        |row| ["size", "alignment"].map(|key| header::object(row, key).parse().unwrap_or(0u64)).iter().sum::<u64>();
    let near = q.stack.values().chain(q.fixed_stack.values()).map(bytes).sum::<u64>() < 1024;
    // Spill code that asks for no SGPR, or whose VGPR LLVM gives back; scalars go to lanes behind their phase.
    let quiet = |i: &Instruction| {
        i.spill().is_some_and(|(kind, ..)| {
            near || kind.starts_with(['V', 'A']) || context.premises.saved_later && kind == "S"
        })
    };
    let ahead: Vec<BTreeSet<usize>> = q.blocks.iter().map(|b| b.successors.iter().copied().collect()).collect();
    let loops = behind::loops(&ahead);
    for (number, block) in q.blocks.iter().enumerate() {
        let mut starts = vec![(0, number)];
        starts.extend(block.joints.iter().copied());
        for (n, (start, part)) in starts.iter().enumerate() {
            let (end, next) = match starts.get(n + 1) {
                Some((end, next)) => (*end, vec![*next]),
                None => (block.instructions.len(), block.successors.clone()),
            };
            let own = &block.instructions[*start..end];
            let live = || next.iter().any(|part| entry::live_ins(context, &q.blocks[*part]).contains(&SCC));
            let of_scc =
                |i: &Instruction, chosen: fn(&Operand) -> bool| i.lanes(chosen).iter().any(|lane| lane.is_scc());
            let asks = |i: &Instruction| names_object(i) && (!quiet(i) || of_scc(i, Operand::is_register));
            let named: Vec<_> = own.iter().enumerate().filter(|(_, i)| asks(i)).collect();
            for &(at, i) in &named {
                let met = |i: &Instruction| {
                    let read = of_scc(i, Operand::reads);
                    (read || of_scc(i, Operand::is_def)).then_some(read)
                };
                let is_live = own[at..].iter().find_map(met).unwrap_or_else(live);
                let changes = of_scc(i, Operand::is_def) && of_scc(i, Operand::is_use);
                ensure!(
                    !(changes || by_register && is_live),
                    "not-followed",
                    i,
                    "a stack object is named where SCC is live,"
                );
                ensure!(!behind::writes_exec(i), "not-followed", i, "a stack object is named, and EXEC written,");
            }
            if named.is_empty() {
                continue;
            }
            let beside = |other: &usize| loops[*other].is_some() && loops[*other] == loops[number];
            let others = (0..q.blocks.len()).filter(beside).flat_map(|other| &q.blocks[other].instructions);
            let near = own.iter().chain(others).flat_map(|i| units(i, Operand::is_register));
            let declared = next.iter().chain([part]).flat_map(|part| entry::live_ins(context, &q.blocks[*part]));
            let busy: Set<u32> = near.chain(declared).collect();
            let free = usable.iter().filter(|unit| !busy.contains(unit) && !busy.contains(&(*unit + 1))).count();
            for (_, i) in named {
                // To keep scalars in memory LLVM takes a pair for EXEC as well.
                let objects = i.operands.iter().filter(|o| is_object(o)).count();
                let needed = if matches!(i.spill(), Some(("S", ..))) { 3 } else { objects };
                ensure!(free >= needed, "not-followed", i, "too few SGPRs are free at a stack object");
            }
        }
    }
    Ok(())
}

/// Of a Q without virtual registers, in which LLVM keeps no pair of SGPRs for long branches, four pairs that it may use are named
/// nowhere, or no branch is long: else LLVM may save a pair over the slots (SIInstrInfo::insertIndirectBranch; spec 13.4).
fn branches_have_scalars(context: &Context<'_>, named: &Set<u32>, promised: bool) -> Done {
    let q = context.after;
    let branches = q.blocks.iter().any(|block| !block.successors.is_empty());
    let units = |key| registers_in(q, key).iter().flat_map(|name| units_of(name)).collect::<Set<u32>>();
    if context.has_virtual || !branches || !units("longBranchReservedReg").is_empty() {
        return Ok(());
    }
    let kept = units("sgprForEXECCopy");
    let live: Set<u32> = q.blocks.iter().flat_map(|b| &b.liveins).flat_map(|(r, _)| r.units.iter().copied()).collect();
    let usable = |unit: &u32| {
        let is_named = named.contains(unit) || live.contains(unit);
        let is_taken = is_named || context.preserved.contains(unit) || kept.contains(unit);
        context.limits.allocatable.contains(unit) && !is_taken
    };
    let unnamed = pairs().filter(|pair| pair.units.iter().all(usable)).count();
    ensure!(
        unnamed >= 4 && !promised || !may_branch_far(context),
        "far-branch",
        "",
        "LLVM may make a long branch, and too few SGPRs are named nowhere: it may save some over slots"
    );
    Ok(())
}

/// Whether Q may be more than 100,000 bytes of the 128 KB that a branch reaches: waits and the like have a part.
fn may_branch_far(context: &Context<'_>) -> bool {
    let q = context.after;
    // LLVM makes an instruction or two of each lane that is moved, and TailDuplicator may copy a COPY into each block.
    let lanes = |i: &Instruction| 12 * i.operands.iter().map(|o| o.lanes.len()).sum::<usize>();
    let code = q.instructions().map(|i| {
        let words = i.operands.iter().filter(|o| o.kind == Kind::AsmString).map(|o| 20 * o.text.len());
        let own = if i.has("copy") || i.spill().is_some() { lanes(i) } else { 0 };
        let copied = if i.name == "COPY" { lanes(i) * q.blocks.len() } else { 0 };
        64 + words.sum::<usize>() + own + copied
    });
    // Whether it begins or ends, LLVM saves or restores there.
    let ends =
        1 + q.blocks.iter().filter(|block| block.successors.is_empty() && !block.instructions.is_empty()).count();
    let vectors = ["wwmReservedRegs", "spillPhysVGPRs"].map(|key| registers_in(q, key));
    let listed = vectors.iter().flatten().flat_map(|name| units_of(name));
    let is_called = info(q, "isEntryFunction") != "true";
    let saved: Set<u32> =
        listed.chain(context.preserved.iter().copied()).map(|unit| unit / 2).filter(|_| is_called).collect();
    info(q, "isWholeWaveFunction") == "true"
        || code.sum::<usize>() + 24 * saved.len() * ends > 100_000
        || context.is_obscure && q.operands().any(|o| o.kind == Kind::AsmString)
        || q.blocks.iter().any(|block| block.attributes.contains("align "))
}

fn units_of(name: &str) -> Vec<u32> {
    tables().register(name).map(|register| register.units.clone()).unwrap_or_default()
}

/// Even pairs of SGPRs, the lowest first.
fn pairs() -> impl Iterator<Item = &'static Register> {
    (0..106).step_by(2).filter_map(|n| tables().register(&format!("sgpr{n}_sgpr{}", n + 1)))
}

/// LLVM moves what it reserved to lower registers that nothing names (spec 13.4): a vector register of whole-wave code,
/// wherever an operand or a live-in is that very register; the pair of a called function's long branches, which is not
/// saved then.
fn nothing_moved(context: &Context<'_>, named: &[Set<u32>]) -> Done {
    let q = context.after;
    let registers = |key| registers_in(q, key).into_iter().filter_map(|name| tables().register(&name));
    let listed: Vec<_> = registers("wwmReservedRegs").chain(registers("spillPhysVGPRs")).collect();
    if !listed.is_empty() && !context.has_virtual {
        let live = q.blocks.iter().flat_map(|block| &block.liveins).map(|(register, _)| *register);
        for register in q.operands().filter_map(|o| o.register).chain(live) {
            let is_part = |own: &&Register| {
                own.name != register.name && own.units.iter().any(|unit| register.units.contains(unit))
            };
            let named = listed.iter().any(is_part) && listed.iter().all(|own| own.name != register.name);
            ensure!(!named, "reserved-register", "", "${} is named, a part of which LLVM may move", register.name);
        }
    }
    let reserved: Vec<u32> =
        registers("longBranchReservedReg").flat_map(|register| register.units.iter().copied()).collect();
    if reserved.is_empty() || info(q, "isEntryFunction") == "true" {
        return Ok(());
    }
    // LLVM counts what a call clobbers as used.
    let mut unused = context.limits.allocatable.clone();
    for i in q.instructions().filter(|i| i.has("call")) {
        let kept = preserved(i)?;
        unused.retain(|unit| kept.contains(unit));
    }
    for named in named {
        let free = |unit: &u32| unused.contains(unit) && !named.contains(unit);
        let lowest = pairs().map(|pair| &pair.units).find(|units| units.iter().all(free));
        let is_lost = lowest.unwrap_or(&reserved).iter().any(|unit| context.preserved.contains(unit));
        ensure!(!is_lost, "reserved-register", "", "LLVM makes long branches by a pair of scalars that nobody saves");
    }
    Ok(())
}

impl<'a> Walk<'a> {
    /// At the beginning of a block, where this state holds.
    pub fn of(context: &'a Context<'a>, texts: &'a Texts, part: &'a BlockPart, block: usize, state: State) -> Walk<'a> {
        let (killed, revived) = (Default::default(), Set::default());
        let (at, is_search, repeated, terminated, bundle) = ((0, 0), false, None, false, None);
        let (compared, repeats, splits) = (0, 0, 0);
        Walk {
            context,
            texts,
            part,
            block,
            at,
            state,
            is_search,
            repeated,
            terminated,
            bundle,
            compared,
            repeats,
            splits,
            killed,
            revived,
        }
    }

    /// One step; `of`: the instruction of P that it repeats, if any. A search names several: the first one that may be.
    ///
    /// # Errors
    /// The rule that does not hold.
    pub fn step(&mut self, take: Take, of: &[(u32, u32)]) -> Done {
        let (before, after) = (&self.context.before.blocks[self.block], &self.context.after.blocks[self.block]);
        self.state.now += 1;
        let (i, j) = self.at;
        self.go_on((take != Take::After).then_some(i), (take != Take::Before).then_some(j));
        match (take, before.instructions.get(i), after.instructions.get(j)) {
            (Take::Pair, Some(p), Some(q)) => self.pair(p, q)?,
            (Take::Before, Some(p), _) => self.before_alone(p)?,
            (Take::After, _, Some(q)) => self.after_alone(q, of)?,
            _ => {
                let place = format!("block {}", self.block);
                return Err(Refused::new("certificate", "steps behind the last instruction", place.as_str()));
            }
        }
        self.at = (i + usize::from(take != Take::After), j + usize::from(take != Take::Before));
        Ok(())
    }

    fn steps(mut self, parts: &[BlockPart]) -> Done<usize> {
        let (before, after) = (&self.context.before.blocks[self.block], &self.context.after.blocks[self.block]);
        let place = format!("block {}", self.block);
        for (count, take) in self.part.steps.iter() {
            for _ in 0..*count {
                self.step(*take, self.part.repeats.get(&(self.at.1 as u32)).map_or(&[], std::slice::from_ref))?;
            }
        }
        let all = self.at == (before.instructions.len(), after.instructions.len());
        ensure!(all, "certificate", place.as_str(), "instructions without a step");
        let marked = (self.repeats, self.splits) == (self.part.repeats.len(), self.part.splits.len());
        ensure!(marked, "certificate", place.as_str(), "a `repeat` or `split` at an instruction that is none");
        self.end();
        self.edges(before, parts)?;
        Ok(self.compared)
    }

    /// The next instructions of P and of Q, by number: what begins before them is entered (spec 4.5).
    fn go_on(&mut self, before: Option<usize>, after: Option<usize>) {
        let context = self.context;
        let begin = |text: &'a Function, number: Option<usize>| {
            let joints = text.blocks[self.block].joints.iter();
            joints.filter(move |(at, _)| Some(*at) == number).map(|(_, part)| *part)
        };
        let parts: [Vec<usize>; 2] = [begin(context.before, before).collect(), begin(context.after, after).collect()];
        self.terminated &= parts.iter().all(Vec::is_empty);
        for part in &parts[0] {
            entry::undefine_undeclared(context, *part, &mut self.state);
        }
        for part in &parts[1] {
            self.end_part();
            self.revived.clear();
            self.killed = Default::default();
            let declared = entry::live_ins(context, &context.after.blocks[*part]);
            let free =
                |place: &Lane| place.of == Of::Unit && context.allocatable(*place) && !declared.contains(&place.a);
            let held: Set<Lane> = self
                .state
                .threads()
                .flat_map(|class| class.part.all_places())
                .filter(|p| p.vector && free(p))
                .collect();
            held.into_iter().for_each(|place| self.state.abandon(place));
            entry::leave_undeclared(context, &declared, &mut self.state);
            entry::note_undeclared(context, &declared, &mut self.state);
        }
    }

    /// At the end of one of LLVM's blocks, what both have killed may be read where it is declared (spec 11.2).
    fn end_part(&mut self) {
        self.state.bury();
        self.state.leave_undeclared();
        self.revived.iter().for_each(|lane| self.state.classes[WAVE].part.add(*lane, *lane));
    }

    /// Behind the last step of a block.
    pub fn end(&mut self) {
        let (block, texts) = (&self.context.before.blocks[self.block], &self.context.after.blocks);
        self.go_on(Some(block.instructions.len()), Some(texts[self.block].instructions.len()));
        self.end_part();
        let left = &self.texts.left[self.block];
        self.state.end_copies(&left.read);
        let declared: Set<u32> =
            block.successors.iter().flat_map(|successor| entry::live_ins(self.context, &texts[*successor])).collect();
        let virtual_too =
            |place: &Lane| block.successors.iter().any(|successor| self.texts.live[*successor].contains(place));
        let free = |place: &Lane| match place.of {
            Of::Unit => place.vector && !declared.contains(&place.a) && self.context.allocatable(*place),
            _ => place.of == Of::Virtual && place.vector && !virtual_too(place),
        };
        let held: Set<Lane> = self.state.threads().flat_map(|class| class.part.all_places()).filter(free).collect();
        held.into_iter().for_each(|place| self.state.abandon(place));
    }

    /// Spec 12.1, 12.2.
    fn edges(&self, block: &Block, parts: &[BlockPart]) -> Done {
        let tested = tested(block);
        for successor in block.successors.iter().copied() {
            let claimed = parts[successor].entry.as_ref();
            let claimed = need!(claimed, "relation", block.line, "block {successor} has no claims");
            // What the branch says on this edge: whether what it tests is zero.
            let (test, zero) =
                tested.map_or(("", false), |(test, target)| (test, test.ends_with('0') == (target == successor)));
            let mut state = self.state.clone();
            match test.trim_end_matches(['0', '1']) {
                "exec" if zero => state.facts.set_exec_empty(),
                "exec" => state.facts.set_some_active(),
                "scc" if !zero => state.facts.mark(self.state.facts.scc.as_slice(), Mark::Nonempty),
                _ => {}
            }
            let nobody = test.starts_with("exec") && zero;
            for way in behind::ways(self.context, self.block, successor)? {
                let line = block.line;
                ensure!(
                    !way.wakes,
                    "relation",
                    line,
                    "threads wake on the way that a branch to block {successor} skips"
                );
                let known = |name: Lane| self.state.wave().is_undefined(name);
                let mut pairs = claimed.of_wave();
                let wrong = pairs.find(|(name, place)| !known(*name) && way.loses(self.context, *name, *place));
                ensure!(
                    wrong.is_none(),
                    "relation",
                    line,
                    "LLVM may go through block {successor}'s other way to {wrong:?}"
                );
                state.forget_in_threads(&way.wide, if way.beside { Some(&way.wide_places) } else { None });
            }
            claimed.follows(&state, nobody, self.block)?;
        }
        Ok(())
    }

    // Whom an instruction concerns (spec 5.4).

    fn active(&self) -> Vec<usize> {
        self.state.select(|class| class.active)
    }

    /// The classes for which it runs, and those in which it reads.
    fn concerned(&self, i: &Instruction) -> (Vec<usize>, Vec<usize>) {
        let wide = || self.state.select(|class| class.active || class.kind == 'T');
        match i.value("reach") {
            "writes" if !self.names_active_thread(i) => (wide(), wide()),
            "reads" if !self.names_active_thread(i) => (self.active(), wide()),
            _ => (self.active(), self.active()),
        }
    }

    /// The thread that it reads or writes is an active one (spec 10.8).
    fn names_active_thread(&self, i: &Instruction) -> bool {
        let number = i.opcode.numbers("lane-operand").first().map(|number| number + i.definitions);
        let operand = number.and_then(|number| i.operands.get(number)).filter(|o| o.reads() && !o.lanes.is_empty());
        let facts = &self.state.facts;
        operand.is_some_and(|operand| facts.is(&facts.masks_of(&operand.lanes), Mark::Number))
    }

    /// Classes `O` that wait, for an instruction that may write all threads (spec 5.4).
    fn waiting_others(&self, i: &Instruction) -> Vec<usize> {
        let writes = i.value("reach") == "writes" && !self.names_active_thread(i) || self.reaches_unclear(i);
        self.state.select(|class| writes && class.kind == 'O' && !class.active)
    }

    fn reach_allowed(&self, i: &Instruction) -> Done {
        let no_one = i.value("reach") == "first" && i.explicit().any(Operand::reads) && !self.state.facts.some_active();
        ensure!(!no_one, "inactive-lanes", i, "no thread may be active");
        let all_active = self.state.threads().all(|class| class.active || class.kind != 'T');
        ensure!(!self.reaches_unclear(i) || all_active, "inactive-lanes", i, "it may reach threads that wait");
        Ok(())
    }

    /// Nobody says which threads it reads and writes.
    fn reaches_unclear(&self, i: &Instruction) -> bool {
        let hints = |o: &Operand| !o.is_register() && tables().hints_at_threads(&o.text);
        let is_unclear = i.has("asm") && (self.context.is_obscure || i.operands.iter().any(hints));
        is_unclear || !matches!(i.value("reach"), "" | "active" | "reads" | "writes" | "first")
    }

    /// Spec 9.1: a callee leaves alone what threads keep that were not active when it was called.
    fn waiting_callers(&self, q: &Instruction, wide: bool) -> Done {
        let other = self.state.threads().any(|class| class.active && class.kind == 'O');
        let entry = info(self.context.after, "isEntryFunction") == "true";
        let asked = (other || wide) && !entry && !q.has("no-code") && self.is_last();
        // LLVM may keep slots of vectors in registers of the other vector file, or have the address of an object in one (spec 13.4).
        let stores = q.spill().is_some_and(|(.., saves)| saves) && self.context.processor.has_agprs;
        let taken = names_object(q) && (stores || !q.is_whole_wave());
        ensure!(!(asked && taken), "callee-saved", q, "LLVM may write registers for it that are not set aside");
        let set_aside = |lane: &Lane| !lane.vector || self.context.reserved_after.contains(&lane.a);
        let fits = !asked || q.lanes(Operand::is_def).iter().all(set_aside);
        ensure!(fits, "callee-saved", q, "a register that is not set aside for whole waves");
        Ok(())
    }

    /// Nothing is left to allocate, and LLVM saves nothing behind the phase.
    fn is_last(&self) -> bool {
        !self.context.has_virtual && !self.context.premises.saved_later
    }

    /// Spec 5.1.
    fn may_stand_alone(&self, i: &Instruction) -> Done {
        let within = i.bundle != [false; 3] || self.bundle.is_some() || self.terminated;
        let alone = !within && !i.has("bundle") && !i.has("terminator");
        ensure!(alone, "instruction-sequence", i, "it stands alone");
        self.followed(i)
    }

    /// Opcodes that nobody follows are refused (spec 6).
    fn followed(&self, i: &Instruction) -> Done {
        let odd = ["vskip", "indexed-on", "indexed-off", "indexed-mode", "vgpr-msb", "generic"];
        let odd = odd.iter().any(|word| i.has(word) || !i.value(word).is_empty());
        // A write of MODE that reaches the bits which let indices or skips change what follows, or round halves and
        // doubles (SIModeRegister sets them anew); or any access to upper bits of VGPRs' numbers.
        let has_upper = self.context.processor.addressable_vgprs > 256;
        let writes = i.has("setreg");
        let last = i.explicit().last().filter(|_| writes || i.has("getreg"));
        // TRAPSTS beside MODE: others move scratch, take registers away, or checks of what is not ready.
        let low = |o: &Operand, bits: i64| o.text.parse::<i64>().map_or(u32::MAX, |word| (word & bits) as u32);
        let reaches = last.map(|o| low(o, 0xffff)).is_some_and(|word| {
            let (first, size) = (word >> 6 & 31, (word >> 11 & 31) + 1);
            let touches = |bits: &std::ops::RangeInclusive<u32>| first <= *bits.end() && first + size > *bits.start();
            let own = writes && (touches(&(2..=3)) || touches(&(27..=28))) || has_upper && touches(&(12..=19));
            match word & 63 {
                1 => own,
                // STATUS has SCC and VCCZ, since gfx12 STATE_PRIV has SCC; GPR_ALLOC says how many VGPRs there are, TRAPSTS
                // and two of gfx12 which exceptions there were.
                2 | 5 | 17 | 18 => true,
                3 => !writes,
                4 => writes || self.context.processor.major > 11,
                _ => writes,
            }
        });
        // LLVM sets none for such an opcode, or not again behind it (AMDGPULowerVGPREncoding).
        // Nor for assembly that has VGPRs, but none before its first implicit register (SIInstrInfo::hasVGPRUses).
        let vector = |o: &Operand| o.lanes.iter().any(|lane| lane.vector);
        let seen = i.operands.iter().position(|o| o.is_register() && o.is(IMPLICIT)).unwrap_or(i.operands.len());
        let unseen = i.has("asm") && i.operands.iter().any(vector) && !i.operands[..seen].iter().any(vector);
        let lost = (unseen || i.has("low-vgprs"))
            && self.context.touched_after.iter().any(|unit| (512..FIRST_AGPR).contains(unit));
        // By this message a wave gives its VGPRs back.
        let leaves = i.has("message") && i.explicit().any(|o| matches!(low(o, 0xff), 3 | u32::MAX));
        let odd = odd || has_upper && lost;
        ensure!(!odd && !reaches && !leaves, "not-followed", i, "an instruction that is not followed");
        Ok(())
    }

    // P alone.

    fn before_alone(&mut self, p: &Instruction) -> Done {
        self.may_stand_alone(p)?;
        let is_place = p.tail.iter().any(|attribute| attribute.contains("symbol "));
        ensure!(!is_place, "instruction-sequence", p, "a symbol is where it stands, alone");
        let moved = moves::read(self.context, self.context.before, p)?;
        let defined = p.lanes(Operand::is_def);
        let effect = if let Some(moved) = &moved {
            let is_access = p.spill().is_some_and(|(kind, ..)| kind != "S");
            ensure!(
                !(self.context.is_counted && is_access),
                "instruction-sequence",
                p,
                "accesses are counted, and it is one"
            );
            moved.apply(&mut self.state, Side::Name);
            Effect::default()
        } else if p.has("no-code") && !defined.iter().any(|lane| lane.is_exec()) {
            self.without_code(p, Side::Name);
            Effect::default()
        } else {
            ensure!(!defined.iter().any(|lane| lane.is_exec()), "exec", p, "it stands alone and writes EXEC");
            let dropped = forms::is_pure(p) || forms::is_plain_load(p) && !self.context.is_counted;
            ensure!(dropped, "instruction-sequence", p, "it stands alone");
            let effect = Effect::of(self.context, &mut self.state, p)?;
            let ((run, _), waiting) = (self.concerned(p), self.waiting_others(p));
            self.remember(p, &run);
            self.blank(p, Side::Name, &run);
            for name in &defined {
                self.state.define(*name, &run);
                self.state.forget(*name, &waiting);
            }
            self.remember_result(p, &run);
            effect
        };
        self.move_frame(p);
        self.revive(Some(p), None, false);
        self.follow_masks(p, effect)
    }

    fn follow_masks(&mut self, p: &Instruction, effect: Effect) -> Done {
        let split = self.part.splits.contains(&(self.at.0 as u32));
        self.splits += usize::from(split);
        effect.apply(&mut self.state, p, &self.context.exec, split)
    }

    /// `IMPLICIT_DEF` and `KILL`: what they define and do not read has no value.
    fn without_code(&mut self, i: &Instruction, side: Side) {
        let (run, read) = (self.active(), i.lanes(Operand::reads));
        let unread = i.lanes(|o| o.is_use() && o.is(UNDEF));
        let beside = i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside);
        let lanes = i.lanes(Operand::is_def).into_iter().chain(beside.copied());
        for lane in lanes.filter(|lane| !read.contains(lane)) {
            // What a KILL defines beside what it reads is not said to be undefined, but for a scalar that it does not read.
            if side == Side::Name && !i.has("undefines") && (lane.vector || !unread.contains(&lane)) {
                self.state.define(lane, &run);
                continue;
            }
            self.state.lose(lane, side, &run);
            let cells = if side == Side::Name { self.state.cells_in(lane) } else { Vec::new() };
            cells.into_iter().for_each(|cell| self.state.undefine(cell, &run));
        }
    }

    // Q alone.

    fn after_alone(&mut self, q: &Instruction, of: &[(u32, u32)]) -> Done {
        self.may_stand_alone(q)?;
        self.state.bury();
        self.waiting_callers(q, q.is_whole_wave())?;
        self.state.note_expanded();
        if q.is_whole_wave() && q.spill().is_some() {
            self.state.note_expanded_for_all();
        }
        self.access(q, q.has("copy"));
        if let Some((first, others)) = of.split_first() {
            self.repeats += 1;
            let may = |of: &(u32, u32)| self.repeatable(*of, q).map(|()| *of);
            let tried = others.iter().fold(may(first), |tried, of| tried.or_else(|error| may(of).or(Err(error))));
            self.repeated = tried.as_ref().ok().copied();
            match tried {
                Ok(of) => self.repeat(of, q),
                Err(_) if self.is_search => {
                    let active = self.active();
                    q.lanes(Operand::is_def).into_iter().for_each(|lane| self.state.lose(lane, Side::Place, &active));
                }
                Err(error) => return Err(error),
            }
        } else {
            let split_copy = q.has("copy") && q.flags.iter().all(|flag| flag == "lr-split");
            let plain = (q.flags.is_empty() || split_copy || q.name == "KILL") && q.tail.is_empty();
            ensure!(plain, "instruction-sequence", q, "flags or attributes of an instruction that stands alone");
            let moved = moves::read(self.context, self.context.after, q)?;
            let alone =
                moved.is_some() || q.has("no-code") && !q.lanes(Operand::is_def).iter().any(|lane| lane.is_exec());
            ensure!(alone, "instruction-sequence", q, "it stands alone");
            ensure!(!q.operands.iter().any(forms::last_of_special), "dead-flag", q, "a special register is dead");
            self.may_define(q, false)?;
            if let Some(moved) = moved {
                let state = &mut self.state;
                let targets = || moved.pairs.iter().map(|(to, _)| *to).filter(|to| to.of == Of::Unit && to.cell == 0);
                let again = targets().filter(|_| self.texts.propagated.again.contains(&q.line));
                let again: Vec<_> = again.map(|to| (to, state.missed(to))).collect();
                let dead = targets().filter(|_| self.texts.propagated.dead.contains(&q.line));
                let dead: Vec<_> = dead.map(|to| (to, state.held_by_all(to))).collect();
                moved.apply(state, Side::Place);
                again.into_iter().for_each(|(to, missed)| state.leave(to, missed));
                dead.into_iter().for_each(|(to, held)| state.note_unwritten(to, &held));
            } else {
                self.without_code(q, Side::Place);
            }
            self.move_frame(q);
        }
        self.compared += q.operands.len();
        self.revive(None, Some(q), !of.is_empty());
        self.heed_flags(q);
        Ok(())
    }

    /// Spec 11.3.
    fn access(&mut self, q: &Instruction, copies: bool) {
        let may_die = |place: Lane| place.of != Of::Unit || self.context.allocatable(place);
        // MachineCopyPropagation has no other operand read the source of a copy (forwardUses).
        let stays = |o: &Operand| o.reads() && (!o.is(RENAMABLE) || o.is(IMPLICIT));
        let (read, stays) = (q.lanes(Operand::reads), q.lanes(stays));
        self.state.access(&read, &stays, &q.lanes(Operand::is_def), copies, may_die);
    }

    /// Spec 13.6.
    fn may_define(&self, q: &Instruction, repeat: bool) -> Done {
        for operand in q.defined() {
            let moved = |lane: &Lane| !operand.is(RENAMABLE) && self.context.moved_units.contains(&lane.a);
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

    /// Whether Q may repeat an instruction of P here (spec 8.2).
    fn repeatable(&self, (block, instruction): (u32, u32), q: &Instruction) -> Done {
        let p = need!(self.context.remembered(block, instruction), "repeat", q, "no such instruction to repeat");
        let may = forms::is_pure(p) && matches!(p.value("reach"), "" | "active");
        ensure!(may, "repeat", q, "an instruction that must not be repeated");
        forms::compare(self.context, p, q, Mode::Repeat)?;
        let own = Instruction { operands: q.operands[..p.operands.len()].to_vec(), ..q.clone() };
        let ((before, undef_before), (after, undef_after)) = (read_lanes(p), read_lanes(&own));
        let vague = p.operands.iter().zip(&q.operands).any(|(x, y)| y.is_use() && y.is(UNDEF) && !x.is(UNDEF));
        let defined = !undef_before && !undef_after && !vague && before.len() == after.len();
        ensure!(defined, "repeat", q, "an operand is `undef`");
        let (active, state) = (self.active(), &self.state);
        for (k, (name, place)) in (0..).zip(before.iter().zip(&after)).filter(|(_, (name, _))| !name.is_exec()) {
            let read = Lane::new(Of::Read, block, instruction, k).with_vector(name.vector);
            let mut readers = if name.vector { &active[..] } else { &[WAVE] }.iter().map(|n| &state.classes[*n]);
            let is_held = readers.all(|class| match class.kind {
                'P' => state.reads(class, read, *place),
                _ => state.reads(class, read, *place) && !class.part.is_doubtful(read),
            });
            ensure!(is_held, "repeat", q, "{place} does not hold {read}");
        }
        let exec = self.remembered_exec(&before, block, instruction);
        let mask = state.facts.masks_of(&exec);
        let same = state.threads().all(|class| class.kind == 'P' || mask.is_in(class) == Some(class.active));
        ensure!(exec.is_empty() || same, "repeat", q, "other threads are active");
        forms::early_clobbers(p, q, &[], |_| false)?;
        self.may_define(q, true)
    }

    fn repeat(&mut self, (block, instruction): (u32, u32), q: &Instruction) {
        let active = self.active();
        q.lanes(Operand::is_def).into_iter().for_each(|lane| self.state.spoil_cells(lane, Side::Place));
        let first = q.operands.first().map_or(&[][..], |o| &o.lanes);
        let of =
            |(k, lane): (u16, &Lane)| (*lane, Lane::new(Of::Result, block, instruction, k).with_vector(lane.vector));
        let result: Vec<(Lane, Lane)> = (0..).zip(first).map(of).collect();
        let others = q.defined().skip(1).flat_map(|o| &o.lanes);
        others.for_each(|lane| self.state.lose(*lane, Side::Place, &active));
        self.blank(q, Side::Place, &active);
        self.state.copy_places(&result, &active);
        result.iter().for_each(|(lane, _)| self.state.note_written(*lane, false));
    }

    // Pairs.

    fn pair(&mut self, p: &'a Instruction, q: &'a Instruction) -> Done {
        let context = self.context;
        self.followed(p)?;
        // A load into half a register writes all of it (SRAM ECC; GCNSubtarget::d16PreservesUnusedBits).
        let halves = !self.context.coarse && self.context.processor.addressable_vgprs > 256 && p.has("may-load");
        let halves = halves && p.operands.iter().take(p.definitions).any(|o| o.lanes.len() == 1);
        ensure!(!halves, "not-followed", p, "a load into half a register");
        self.waiting_callers(q, !self.waiting_others(p).is_empty())?;
        let moving =
            moves::read(context, context.before, p)?.is_some() || moves::read(context, context.after, q)?.is_some();
        let paired = !moving && !p.has("no-code") && !q.has("no-code");
        ensure!(paired, "instruction-sequence", q, "a move that pairs");
        if !self.is_search {
            self.compared += forms::compare(context, p, q, Mode::Pair)?;
        }
        let expands = p.has("call") || names_object(q);
        if expands {
            self.state.bury();
        }
        self.terminated |= p.has("terminator");
        if p.has("bundle") {
            // Passes behind read nothing but this line of a bundle, so it must say what the members do.
            let reading = Reading { readers: self.active(), ..Reading::default() };
            if !self.is_search {
                self.read(p, q, &reading)?;
            }
            self.bundle = Some(Bundle { head: q, defined: Set::default(), read: Set::default() });
            return self.follow_masks(p, Effect::default());
        }
        ensure!(p.value("reach") == q.value("reach"), "instruction-sequence", q, "another reach");
        self.reach_allowed(p)?;
        let (run, mut reading, upper) = self.reading(p);
        let mut lost = false;
        let agreed = if self.is_search && upper.is_empty() { Ok(()) } else { self.agrees(p, q, &reading) };
        if let Err(error) = agreed {
            lost = !upper.is_empty();
            reading.skip.extend(upper);
            if !self.is_search && (!lost || self.agrees(p, q, &reading).is_err()) {
                return Err(error);
            }
        }
        let effect = Effect::of(context, &mut self.state, p)?;
        self.remember(p, &run);
        if expands {
            self.state.note_expanded();
        }
        self.access(q, false);
        if p.has("call") {
            self.call(q)?;
        }
        self.write(p, q, &run, lost);
        self.remember_result(p, &run);
        if p.has("returns") && self.is_last() {
            self.restored(q)?;
        }
        self.revive(Some(p), Some(q), false);
        self.heed_flags(q);
        self.member(q)?;
        self.follow_masks(p, effect)
    }

    /// The classes for which a pair runs; what is compared of what it reads, and lanes that are asked for only if all of the
    /// result is to be known (spec 5.11).
    pub fn reading(&mut self, p: &Instruction) -> (Vec<usize>, Reading, Vec<(usize, usize)>) {
        let (run, readers) = self.concerned(p);
        let [skip, upper] = forms::unread(p);
        let mut reading = Reading { readers, skip, ..Reading::default() };
        self.blend(p, &mut reading);
        (run, reading, upper)
    }

    /// Of V_SET_INACTIVE: its mask, and two operands that some classes do not read (spec 5.4).
    fn blend(&mut self, p: &Instruction, reading: &mut Reading) {
        let numbers: Vec<usize> = p.opcode.numbers("blend").iter().map(|number| number + p.definitions).collect();
        let [inside, outside, mask] = numbers[..] else { return };
        let known = mask_of(self.context, &mut self.state, p.operands.get(mask));
        let without = |is_in: bool| self.state.select(|class| class.kind != 'P' && known.is_in(class) == Some(is_in));
        reading.mask = Some(mask);
        reading.unread = vec![(inside, without(false)), (outside, without(true))];
    }

    /// Spec 5.5, 5.6.
    fn agrees(&self, p: &Instruction, q: &Instruction, reading: &Reading) -> Done {
        self.read(p, q, reading)?;
        forms::early_clobbers(p, q, &reading.skip, |name| self.state.is_undefined(name, &reading.readers))
    }

    /// Spec 5.5.
    fn read(&self, p: &Instruction, q: &Instruction, reading: &Reading) -> Done {
        let state = &self.state;
        for (number, (x, y)) in p.operands.iter().zip(&q.operands).enumerate() {
            if !x.is_use() || x.is(UNDEF) && reading.mask != Some(number) {
                continue;
            }
            let readers = &reading.of(number);
            let lanes =
                x.lanes.iter().zip(&y.lanes).enumerate().filter(|(at, _)| !reading.skip.contains(&(number, *at)));
            for (_, (name, place)) in lanes {
                let told = !y.is(UNDEF) || x.is(UNDEF) || state.is_undefined(*name, readers);
                ensure!(told, "undef-flag", q, "`{}` has a value, as `{}`,", y.text, x.text);
                let mut classes = if name.vector { &readers[..] } else { &[WAVE] }.iter();
                let held = classes.all(|number| state.reads(&state.classes[*number], *name, *place));
                let held = held || name == place && self.revived.contains(place);
                ensure!(held, "value", q, "{place} does not hold {name}, `{}` for `{}`,", y.text, x.text);
            }
        }
        Ok(())
    }

    /// An `undef` definition of a subregister leaves the rest of its register without a value (spec 5.10).
    fn blank(&mut self, i: &Instruction, side: Side, run: &[usize]) {
        let undef = i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside);
        undef.for_each(|lane| self.state.lose(*lane, side, run));
    }

    /// Spec 5.3, 5.10. `lost`: of a wide product only the lower half of the result is known (spec 5.11).
    fn write(&mut self, p: &Instruction, q: &Instruction, run: &[usize], lost: bool) {
        let read = q.lanes(|o| o.is(IMPLICIT) && o.reads());
        let own: Vec<Lane> =
            q.operands.iter().take(p.operands.len()).filter(|o| o.is_def()).flat_map(|o| o.lanes.clone()).collect();
        for added in q.operands.iter().skip(p.operands.len()).filter(|o| o.is_def()) {
            // LLVM's passes take the instruction for one that writes it (MachineInstr::definesRegister).
            let apart = !added.lanes.iter().any(|place| own.contains(place));
            let lost = added.lanes.iter().filter(|place| apart || !read.contains(place));
            lost.for_each(|place| self.state.lose(*place, Side::Place, run));
        }
        self.blank(q, Side::Place, run);
        self.blank(p, Side::Name, run);
        let waiting = self.waiting_others(p);
        for (number, (x, y)) in p.operands.iter().zip(&q.operands).enumerate().filter(|(_, (x, _))| x.is_def()) {
            let known = match number {
                _ if !lost => x.lanes.len(),
                0 => x.lanes.len() / 2,
                _ => 0,
            };
            for name in &x.lanes {
                self.state.define(*name, run);
                self.state.forget(*name, &waiting);
            }
            for (at, (name, place)) in x.lanes.iter().zip(&y.lanes).enumerate() {
                self.state.lose(*place, Side::Place, run);
                if place.vector {
                    self.state.spoil(*place, &waiting);
                }
                if at < known {
                    self.state.hold(*place, *name, run);
                }
            }
        }
        self.move_frame(q);
    }

    /// A write of the stack pointer and the like moves all slots that do not become lanes (spec 6).
    fn move_frame(&mut self, i: &Instruction) {
        if moves_frame(i, &self.context.frame_units) {
            let everyone = self.state.select(|_| true);
            let [places, names] = self.state.in_memory(self.is_last());
            places.into_iter().for_each(|place| self.state.spoil(place, &everyone));
            names.into_iter().for_each(|name| self.state.forget(name, &everyone));
        }
    }

    /// Spec 9.
    fn call(&mut self, q: &Instruction) -> Done {
        let (context, preserved, run) = (self.context, preserved(q)?, self.active());
        for unit in context.lost_to_calls.iter().filter(|unit| !preserved.contains(unit)) {
            self.state.lose(Lane::unit(*unit), Side::Name, &run);
            self.state.lose(Lane::unit(*unit), Side::Place, &run);
        }
        Ok(())
    }

    /// Spec 12.3.
    fn restored(&self, q: &Instruction) -> Done {
        let context = self.context;
        // LLVM deletes a copy that nothing reads in a block without successors, and a return does not say what it needs.
        let unread = self.texts.left[self.block].unread();
        for unit in &context.restored {
            let held = self.state.wave().holds(Lane::unit(*unit)).contains(&Lane::entry(*unit));
            let stays = !unread.contains(&Lane::unit(*unit)) || context.limits.kept.contains(unit);
            let held = held && stays && !self.state.wave().is_unwritten(Lane::unit(*unit));
            ensure!(held, "callee-saved", q, "${unit} is not restored");
        }
        Ok(())
    }

    /// A member of a bundle: behind the last one, the head must have named all that they read and define.
    fn member(&mut self, q: &Instruction) -> Done {
        let Some(bundle) = self.bundle.as_mut() else { return Ok(()) };
        let read = q.lanes(Operand::reads);
        bundle.read.extend(read.into_iter().filter(|lane| !bundle.defined.contains(lane)));
        bundle.defined.extend(q.lanes(Operand::is_def));
        if let Some(bundle) = self.bundle.take_if(|_| q.bundle[2]) {
            let head = bundle.head;
            let defined: Set<Lane> = head.lanes(Operand::is_def).into_iter().collect();
            let read: Set<Lane> = head.lanes(Operand::is_use).into_iter().collect();
            let named = defined == bundle.defined && bundle.read.is_subset(&read);
            ensure!(named, "bundle", head, "it does not name what its members read and define");
            self.heed_flags(head);
        }
        Ok(())
    }

    // What repeats need (spec 8.3).

    fn is_repeated(&self) -> Option<(u32, u32)> {
        Some((self.block as u32, self.at.0 as u32)).filter(|of| self.context.repeated.contains(of))
    }

    /// The names `@B.I.K` that are parts of the mask of threads that were active (spec 8.3).
    fn remembered_exec(&self, lanes: &[Lane], block: u32, instruction: u32) -> Vec<Lane> {
        let count = lanes.iter().take_while(|lane| lane.is_exec()).count().min(self.context.exec.len());
        (0..).take(count).map(|k| Lane::new(Of::Read, block, instruction, k)).collect()
    }

    fn remember(&mut self, p: &Instruction, run: &[usize]) {
        let Some((block, number)) = self.is_repeated() else { return };
        let (lanes, undef) = read_lanes(p);
        let exec = self.remembered_exec(&lanes, block, number);
        let state = &mut self.state;
        let read = |(k, lane): (u16, &Lane)| (Lane::new(Of::Read, block, number, k).with_vector(lane.vector), *lane);
        let pairs: Vec<(Lane, Lane)> = (0..).zip(&lanes).map(read).collect();
        let everyone = state.select(|_| true);
        if undef || lanes.iter().any(|lane| !lane.vector && state.wave().is_doubtful(*lane)) {
            pairs.iter().for_each(|(read, _)| state.forget(*read, &everyone));
            return;
        }
        state.copy_names(&pairs, run);
        if !exec.is_empty() {
            pairs.iter().filter(|(_, lane)| lane.is_exec()).for_each(|(read, _)| state.forget(*read, &everyone));
            state.note_active(&exec);
        }
        for at in run.iter().copied() {
            let class = &state.classes[at];
            if class.kind != 'P' && lanes.iter().any(|lane| lane.vector && class.part.is_doubtful(*lane)) {
                pairs.iter().filter(|(read, _)| read.vector).for_each(|(read, _)| state.forget(*read, &[at]));
            }
        }
    }

    fn remember_result(&mut self, p: &Instruction, run: &[usize]) {
        let Some((block, number)) = self.is_repeated() else { return };
        // A class that waits keeps the result of an earlier turn; the scalars read now are not those read then.
        let is_new = read_lanes(p).0.iter().any(|lane| !lane.vector && !lane.is_exec());
        let stale = self.state.select(|_| is_new);
        for (k, name) in (0..).zip(p.operands.first().filter(|o| o.is_def()).iter().flat_map(|o| &o.lanes)) {
            let kept = Lane::new(Of::Result, block, number, k).with_vector(name.vector);
            self.state.spoil(kept, &stale);
            self.state.hold(kept, *name, run);
        }
    }

    /// Spec 11.
    fn heed_flags(&mut self, q: &Instruction) {
        let active = self.active();
        killed(q).filter(|lane| !lane.is_special()).for_each(|lane| self.state.kill(lane));
        for lane in q.lanes(|o| o.is_def() && o.is(DEAD)).into_iter().filter(|lane| !lane.is_special()) {
            self.state.spoil_cells(lane, Side::Place);
            self.state.spoil(lane, &active);
        }
    }

    /// Scalar registers that both texts have killed may be read until one writes them (spec 11.2).
    fn revive(&mut self, p: Option<&Instruction>, q: Option<&Instruction>, repeats: bool) {
        let (sides, is_pair) = ([p, q], p.is_some() && q.is_some());
        let written: Vec<Lane> = sides.iter().flatten().flat_map(|i| i.lanes(Operand::is_def)).collect();
        // Moves that need no register but their own.
        let plain = |q: &Instruction| ["copy", "lane-save", "lane-restore"].iter().any(|word| q.has(word));
        let harmless = |q: &Instruction| is_pair || plain(q) || repeats;
        let ends = q.is_some_and(|q| q.has("call") || !harmless(q));
        if is_pair {
            self.killed = Default::default();
        }
        if ends {
            self.killed[1].clear();
            self.revived.clear();
        }
        let all = self.killed.iter_mut().chain([&mut self.revived]);
        all.for_each(|all| all.retain(|lane| !written.contains(lane)));
        for (side, i) in sides.iter().enumerate().filter_map(|(side, i)| Some((side, (*i)?))) {
            let mine = |lane: &Lane| side == 0 || self.state.wave().holds(*lane).contains(lane);
            let dead = i.lanes(|o| is_pair && o.is_def() && o.is(DEAD)).into_iter();
            let all = killed(i).chain(dead.filter(|lane| self.context.allocatable(*lane)));
            let all = all.filter(|lane| lane.of == Of::Unit && !lane.vector && mine(lane));
            let counts = !ends && (is_pair || is_moving(i) && !i.has("no-code"));
            self.killed[side].extend(all.filter(|_| counts).collect::<Vec<_>>());
        }
        self.revived.extend(self.killed[0].intersection(&self.killed[1]).copied());
        if is_pair {
            self.killed = Default::default();
        }
    }
}

/// What an instruction kills and does not define.
fn killed(i: &Instruction) -> impl Iterator<Item = Lane> {
    let defined = i.lanes(Operand::is_def);
    i.lanes(|o| o.is(KILLED)).into_iter().filter(move |lane| !defined.contains(lane))
}

/// A scalar comes back from a lane or a slot.
pub fn is_reload(i: &Instruction) -> bool {
    i.has("lane-restore") || matches!(i.spill(), Some(("S", _, false)))
}

/// Its opcode is one that may stand alone and move something (spec 7), or has no code.
pub fn is_moving(i: &Instruction) -> bool {
    let words = ["copy", "no-code", "lane-save", "lane-restore"];
    words.iter().any(|word| i.has(word)) || i.spill().is_some()
}

/// The units that all register masks of a call preserve (spec 9).
fn preserved(q: &Instruction) -> Done<Set<u32>> {
    let mut all: Option<Set<u32>> = None;
    for operand in q.operands.iter().filter(|o| o.kind == Kind::RegMask) {
        let mask = need!(tables().mask(&operand.text), "call-mask", q, "the register mask `{}`", operand.text);
        let kept = |unit: &u32| all.as_ref().is_none_or(|all| all.contains(unit));
        all = Some(mask.into_iter().filter(kept).collect());
    }
    all.ok_or_else(|| Refused::new("well-formed", "no register mask", q))
}

/// What the branch at the end of a block tests, and the successor that it leads to (spec 12.2).
pub fn tested(block: &Block) -> Option<(&'static str, usize)> {
    let [one, two] = block.successors.as_slice() else { return None };
    let target = |i: &Instruction| i.operands.iter().find(|o| o.kind == Kind::Block).map(|o| o.number as usize);
    // No other branch may lead to the same block, whatever the tested one says.
    let branches = |i: &Instruction| i.has("branch") || i.has("indirect-branch") || target(i).is_some();
    let start = block.joints.last().map_or(0, |(start, _)| *start);
    let (last, rest) = block.instructions.get(start..)?.split_last()?;
    let (branch, other, rest) = match rest.split_last() {
        Some((branch, rest)) if last.name == "S_BRANCH" => (branch, target(last)?, rest),
        _ => (last, block.last + 1, rest),
    };
    let taken = target(branch)?;
    let test = branch.value("test");
    let named = [(taken, other), (other, taken)].contains(&(*one, *two)) && taken != other;
    (named && !test.is_empty() && !rest.iter().any(branches)).then_some((test, taken))
}
