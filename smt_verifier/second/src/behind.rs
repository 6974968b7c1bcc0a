//! What LLVM's passes behind the phase make of Q, where they look at less than it says (spec 10.12), and of a branch to where
//! no thread is active (12.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::check::tested;
use crate::context::Context;
use crate::entry::{holds_always, live_ins};
use crate::joined::{live, predecessors, successors};
use crate::lanes::{Lane, Of, Set, SCC, VCC};
use crate::masks::Nobody;
use crate::model::*;
use crate::moves;
use crate::tables::{tables, Register};

/// No pass behind the phase makes something else of Q, or of what MachineCopyPropagation makes of it: `after`.
///
/// # Errors
/// `not-followed`: one may.
pub fn check(context: &Context<'_>, after: &Function) -> Done {
    copied_in_loops(context, &after.blocks)?;
    reserved_in_loops(context, &after.blocks)?;
    for (number, block) in after.blocks.iter().enumerate() {
        conditions(context, &after.blocks, block)?;
        taken_for_masks(&after.blocks, number, block)?;
        hoisted(context, &after.blocks, number, block)?;
        overwritten(&after.blocks, number, block)?;
        let starts: Vec<usize> = [0].into_iter().chain(block.joints.iter().map(|(start, _)| *start)).collect();
        for (n, start) in starts.iter().enumerate() {
            let code = &block.instructions[*start..starts.get(n + 1).copied().unwrap_or(block.instructions.len())];
            let next = block.joints.get(n).map_or(block.successors.clone(), |(_, part)| vec![*part]);
            masked(context, &after.blocks, code, &next)?;
        }
    }
    Ok(())
}

fn is_exec(o: &Operand) -> bool {
    !o.lanes.is_empty() && o.lanes.iter().all(|lane| lane.is_exec())
}

fn moves_mask(i: &Instruction) -> bool {
    i.definitions == 1 && (i.has("copy") || i.has("mask-move"))
}

/// R of `EXEC = R`.
pub fn mask_set(i: &Instruction) -> Option<&Operand> {
    match &i.operands[..] {
        [to, from, ..] if moves_mask(i) && is_exec(to) && !is_exec(from) && !from.lanes.is_empty() => Some(from),
        _ => None,
    }
    .filter(|from| from.register.is_some())
}

/// C = EXEC.
pub fn copies_exec(i: &Instruction) -> bool {
    matches!(&i.operands[..], [to, from, ..] if moves_mask(i) && to.register.is_some() && is_exec(from))
}

pub fn writes_exec(i: &Instruction) -> bool {
    i.defined().any(|o| o.lanes.iter().any(|lane| lane.is_exec()) && !(i.has("copy") && o.is(IMPLICIT)))
}

fn meets(lanes: &[Lane], units: &[u32]) -> bool {
    lanes.iter().any(|lane| lane.is_in(units))
}

/// SCC of what LLVM replaces whether or not it is read: S_AND_SAVEEXEC behind a comparison (SIOptimizeExecMasking), the AND
/// of VCC with EXEC before a branch on VCC (SIPreEmitPeephole).
fn conditions(context: &Context<'_>, texts: &[Block], block: &Block) -> Done {
    let declared: Set<u32> = block.successors.iter().flat_map(|next| live_ins(context, &texts[*next])).collect();
    let (mut read, mut asked) = (declared.contains(&SCC), VCC.iter().any(|unit| declared.contains(unit)));
    for i in block.instructions.iter().rev() {
        let (reads, defined) = (i.lanes(Operand::reads), i.lanes(Operand::is_def));
        if meets(&defined, &[SCC]) {
            let replaced = i.value("save") == "AND" || asked && ands_vcc(i);
            ensure!(!(read && replaced), "not-followed", i, "LLVM may replace what defines SCC, which is read,");
            read = false;
        }
        read |= meets(&reads, &[SCC]);
        asked = asked && !meets(&defined, &VCC) || i.has("branch") && meets(&reads, &VCC);
    }
    Ok(())
}

fn is_vcc(o: &Operand) -> bool {
    o.names("vcc") || o.names("vcc_lo")
}

/// What EXEC is joined with, to VCC: the mask, or what is not in it.
fn in_vcc(i: &Instruction) -> Option<&Operand> {
    match &i.operands[..] {
        [to, a, b, ..] if matches!(i.value("mask"), "AND" | "ANDN2") && is_vcc(to) && is_exec(a) => Some(b),
        [to, a, b, ..] if matches!(i.value("mask"), "AND" | "ANDN2") && is_vcc(to) && is_exec(b) => Some(a),
        _ => None,
    }
}

fn ands_vcc(i: &Instruction) -> bool {
    i.value("mask") == "AND" && in_vcc(i).is_some_and(is_vcc)
}

/// What defines a part of a mask is taken for what makes it: by SIOptimizeExecMasking a comparison before S_AND_SAVEEXEC, which
/// becomes V_CMPX there, by SIPreEmitPeephole a move of an immediate before an AND of EXEC to VCC, which is deleted: on any way to
/// that, for TailDuplicator may have put both into one block.
fn taken_for_masks(blocks: &[Block], number: usize, block: &Block) -> Done {
    for (end, i) in block.instructions.iter().enumerate() {
        let saves = i.value("save") == "AND";
        let source = if saves { i.explicit().find(|o| o.is_use()) } else { in_vcc(i) };
        let Some(source) = source.filter(|o| !o.lanes.is_empty()) else { continue };
        let part = |o: &Operand| o.is_def() && o.lanes.iter().any(|lane| source.lanes.contains(lane));
        let last = |code: &[Instruction]| code.iter().rposition(|b| b.operands.iter().any(part));
        let exact = |b: &Instruction| b.defined().next().is_some_and(|o| o.lanes == source.lanes);
        if !saves {
            let (mut pending, mut seen) = (vec![(number, end)], BTreeSet::new());
            while let Some((block, end)) = pending.pop() {
                let code = &blocks[block].instructions[..end];
                let Some(b) = last(code).map(|at| &code[at]) else {
                    let before = (0..blocks.len()).filter(|from| blocks[*from].successors.contains(&block));
                    let new = before.filter(|from| seen.insert(*from));
                    pending.extend(new.map(|from| (from, blocks[from].instructions.len())));
                    continue;
                };
                let immediate = b.definitions == 1 && b.operands.get(1).is_some_and(|o| !o.is_register());
                ensure!(
                    !immediate || exact(b),
                    "not-followed",
                    i,
                    "LLVM takes for its mask what moves a part, or more,"
                );
            }
            continue;
        }
        compared(&block.instructions[..end], source, i)?;
    }
    Ok(())
}

/// The comparison that defines a part of a source last in some code makes that very register, in the mode behind the code.
fn compared(code: &[Instruction], source: &Operand, i: &Instruction) -> Done {
    let mode: &[u32] = tables().register("mode").map_or(&[], |register| &register.units);
    let part = |o: &Operand| o.is_def() && o.lanes.iter().any(|lane| source.lanes.contains(lane));
    let Some(start) = code.iter().rposition(|b| b.operands.iter().any(part)) else { return Ok(()) };
    let (b, between) = (&code[start], &code[start + 1..]);
    if !b.name.starts_with("V_CMP_") {
        return Ok(());
    }
    let exact = b.defined().next().is_some_and(|o| o.lanes == source.lanes);
    ensure!(exact, "not-followed", i, "LLVM takes for its mask what defines a part of that, or more,");
    let moded = meets(&b.lanes(Operand::reads), mode) && between.iter().any(|b| meets(&b.lanes(Operand::is_def), mode));
    ensure!(!moded, "not-followed", i, "LLVM may compare in another mode, behind what sets it,");
    Ok(())
}

/// What MachineLICM takes out of a loop, to before the first terminator of the block before it, must not depend on what that
/// terminator writes: EXEC, or another register that need not be declared live; nor write what another one names.
fn hoisted(context: &Context<'_>, blocks: &[Block], number: usize, block: &Block) -> Done {
    let start = block.joints.last().map_or(0, |(start, _)| *start);
    let last = || block.instructions[start..].iter().filter(|i| i.has("terminator"));
    let free = |lane: &Lane| context.allocatable(*lane);
    let mut sets: Set<Lane> = last().flat_map(|i| i.lanes(Operand::is_def)).filter(|lane| !free(lane)).collect();
    let ahead: BTreeSet<usize> = block.successors.iter().copied().collect();
    let others: Set<Lane> = last().skip(1).flat_map(|i| i.lanes(Operand::is_register)).collect();
    let asked = !sets.is_empty() || !others.is_empty();
    let Some(head) = ahead.first().copied().filter(|_| asked && ahead.len() == 1) else { return Ok(()) };
    let sets_exec = last().any(writes_exec);
    let forwards: Vec<BTreeSet<usize>> =
        blocks.iter().map(|b| b.successors.iter().copied().filter(|next| *next != number).collect()).collect();
    let mut backwards = vec![BTreeSet::new(); blocks.len()];
    for (from, places) in forwards.iter().enumerate() {
        for to in places {
            backwards[*to].insert(from);
        }
    }
    let body: Vec<usize> = led_to(&forwards, head).intersection(&led_to(&backwards, head)).copied().collect();
    let code = || body.iter().flat_map(|block| &blocks[*block].instructions);
    for lane in code().filter(|i| !i.has("copy")).flat_map(|i| i.lanes(Operand::is_def)) {
        sets.remove(&lane);
    }
    for i in code().filter(|i| !i.has("terminator")) {
        let defined = i.lanes(Operand::is_def);
        let reads = i.lanes(Operand::is_use).iter().any(|lane| sets.contains(lane));
        let changed = reads || sets_exec && i.has("copy") && defined.iter().any(|lane| lane.vector);
        let changed = changed || defined.iter().any(|lane| others.contains(lane));
        let stays = defined.is_empty() || !changed || !reads_fixed(context, i);
        ensure!(stays, "not-followed", i, "LLVM may hoist over a terminator that sets what it reads what is done");
    }
    Ok(())
}

/// MachineLICM hoists the only definition of a register in a loop, if nobody declares that live; so it does where nobody must (EXEC,
/// M0) and the loop reads what it held before.
fn reserved_in_loops(context: &Context<'_>, blocks: &[Block]) -> Done {
    let reserved = |lane: &Lane| lane.of == Of::Unit && !lane.is_scc() && !context.allocatable(*lane);
    let sets = |i: &Instruction| -> Vec<Lane> {
        let asked = i.definitions == 1 && !i.has("terminator") && reads_fixed(context, i);
        i.operands.iter().take(1).filter(|_| asked).flat_map(|o| o.lanes.iter().copied().filter(reserved)).collect()
    };
    let rows = blocks.iter().enumerate().flat_map(|(n, b)| b.instructions.iter().map(move |i| (n, i)));
    let rows = rows.map(|(n, i)| (n, i, sets(i))).filter(|(.., lanes)| !lanes.is_empty());
    let rows: Vec<(usize, &Instruction, Vec<Lane>)> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let ahead: Vec<BTreeSet<usize>> = blocks.iter().map(|b| b.successors.iter().copied().collect()).collect();
    let mut before = vec![BTreeSet::new(); blocks.len()];
    ahead.iter().enumerate().for_each(|(from, places)| places.iter().for_each(|to| _ = before[*to].insert(from)));
    let live = live(blocks);
    for (own, entered) in nested_loops(&ahead, &before) {
        let entered = if entered.len() == 1 { &entered } else { &own };
        for (_, i, lanes) in rows.iter().filter(|(number, ..)| own.contains(number)) {
            let is_live = lanes.iter().any(|lane| entered.iter().any(|block| live[*block].contains(&lane.a)));
            let code = || own.iter().flat_map(|block| &blocks[*block].instructions);
            let defines =
                |b: &&Instruction, lanes: &[Lane]| b.lanes(Operand::is_def).iter().any(|lane| lanes.contains(lane));
            let alone = code().filter(|b| defines(b, lanes)).count() == 1;
            let read = i.lanes(Operand::reads);
            let stays = !is_live || !alone || code().any(|b| defines(&b, &read));
            ensure!(
                stays,
                "not-followed",
                *i,
                "LLVM may hoist out of a loop that reads what it held before what is set"
            );
        }
    }
    Ok(())
}

/// It reads no virtual register and none that may be allocated.
fn reads_fixed(context: &Context<'_>, i: &Instruction) -> bool {
    let fixed = |o: &Operand| o.is(UNDEF) || o.vreg.is_none() && !o.lanes.iter().any(|lane| context.allocatable(*lane));
    i.operands.iter().filter(|o| o.is_use()).all(fixed)
}

/// MachineLICM moves a COPY out of a loop, over what writes EXEC there: it has no EXEC operand yet.
fn copied_in_loops(context: &Context<'_>, blocks: &[Block]) -> Done {
    let ahead: Vec<BTreeSet<usize>> = blocks.iter().map(|b| b.successors.iter().copied().collect()).collect();
    let loops = loops(&ahead);
    let rows = || blocks.iter().zip(&loops).filter_map(|(block, of)| Some((block, (*of)?)));
    let changing = rows().filter(|(block, _)| block.instructions.iter().any(writes_exec));
    let changing: BTreeSet<usize> = changing.map(|(_, of)| of).collect();
    for (block, _) in rows().filter(|(_, of)| changing.contains(of)) {
        let code = || block.instructions.iter();
        let moves = |i: &&Instruction| i.has("copy") && i.lanes(Operand::is_def).iter().any(|lane| lane.vector);
        let copies: Vec<&Instruction> = code().filter(moves).filter(|i| reads_fixed(context, i)).collect();
        let defined: Set<Lane> = match copies.is_empty() {
            true => Set::default(),
            false => code().flat_map(|i| i.lanes(Operand::is_def)).collect(),
        };
        for i in copies {
            let read = i.lanes(Operand::reads);
            let stays = read.is_empty() || read.iter().any(|lane| lane.is_exec() || defined.contains(lane));
            ensure!(stays, "not-followed", i, "LLVM may hoist out of a loop that writes EXEC what is done");
        }
    }
    Ok(())
}

/// Blocks that lead to each other, and those of them that others lead to; behind each such loop those that are in it without the
/// only one to which others lead (spec 10.11).
pub fn nested_loops(ahead: &[BTreeSet<usize>], before: &[BTreeSet<usize>]) -> Vec<(BTreeSet<usize>, BTreeSet<usize>)> {
    let mut all = Vec::new();
    let mut pending: Vec<BTreeSet<usize>> = vec![(0..ahead.len()).collect()];
    while let Some(within) = pending.pop() {
        let inside = |(number, places): (usize, &BTreeSet<usize>)| match within.contains(&number) {
            true => places.intersection(&within).copied().collect(),
            false => BTreeSet::new(),
        };
        let inside: Vec<BTreeSet<usize>> = ahead.iter().enumerate().map(inside).collect();
        let mut members: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (block, head) in loops(&inside).into_iter().enumerate() {
            head.iter().for_each(|head| _ = members.entry(*head).or_default().insert(block));
        }
        for own in members.into_values() {
            let entered: BTreeSet<usize> =
                own.iter().copied().filter(|block| *block == 0 || !before[*block].is_subset(&own)).collect();
            if entered.len() == 1 {
                pending.push(own.difference(&entered).copied().collect());
            }
            all.push((own, entered));
        }
    }
    all
}

/// The smallest loop that each block may be in, by its number, and the loops; each block alone, where others lead to several.
pub fn smallest_loops(
    ahead: &[BTreeSet<usize>], before: &[BTreeSet<usize>],
) -> (Vec<Option<usize>>, Vec<BTreeSet<usize>>) {
    let (mut of, mut all) = (vec![None; ahead.len()], Vec::new());
    for (own, entered) in nested_loops(ahead, before) {
        for block in &own {
            of[*block] = Some(all.len());
            if entered.len() > 1 {
                all.push(BTreeSet::from([*block]));
            }
        }
        if entered.len() <= 1 {
            all.push(own);
        }
    }
    (of, all)
}

/// The loop that each block is in, if any: those that it leads to and that lead to it, named by one of them.
pub fn loops(ahead: &[BTreeSet<usize>]) -> Vec<Option<usize>> {
    // Blocks as a search is done with all that they lead to; from the last one on, backwards, each finds its own loop.
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    let mut pending: Vec<(usize, bool)> = (0..ahead.len()).map(|number| (number, false)).collect();
    while let Some((block, is_done)) = pending.pop() {
        if is_done {
            order.push(block);
        } else if seen.insert(block) {
            pending.push((block, true));
            pending.extend(ahead[block].iter().map(|next| (*next, false)));
        }
    }
    let mut before = vec![Vec::new(); ahead.len()];
    ahead.iter().enumerate().for_each(|(from, places)| places.iter().for_each(|to| before[*to].push(from)));
    let mut found: Vec<Option<usize>> = vec![None; ahead.len()];
    for head in order.into_iter().rev() {
        let (mut members, mut pending) = (Vec::new(), vec![head]);
        while let Some(block) = pending.pop() {
            if seen.remove(&block) {
                members.push(block);
                pending.extend(&before[block]);
            }
        }
        if members.len() > 1 || ahead[head].contains(&head) {
            members.into_iter().for_each(|block| found[block] = Some(head));
        }
    }
    found
}

/// What a block leads to by one step or more.
pub fn led_to(ahead: &[BTreeSet<usize>], start: usize) -> BTreeSet<usize> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![start]);
    while let Some(block) = pending.pop() {
        pending.extend(ahead[block].iter().copied().filter(|next| found.insert(*next)));
    }
    found
}

/// MachineCopyPropagation has what wrote the source of a COPY write its target, and what reads the target read the source:
/// not over what is read, where LLVM knows of no early clobber (spec 5.6).
fn overwritten(blocks: &[Block], number: usize, block: &Block) -> Done {
    for (at, i) in block.instructions.iter().enumerate() {
        let early: BTreeSet<Lane> = i.lanes(|o| o.early && !o.is(EARLY_CLOBBER)).into_iter().collect();
        let read: BTreeSet<Lane> = i.lanes(Operand::reads).into_iter().collect();
        if !early.is_empty() {
            forwarded(blocks, i, (number, at), &early, &read)?;
        }
        let mut pending = vec![(number, at + 1, early, read)];
        let mut seen = BTreeSet::new();
        while let Some((block, start, mut moved, mut kept)) = pending.pop() {
            for b in &blocks[block].instructions[start..] {
                if moved.is_empty() || kept.is_empty() {
                    break;
                }
                let rows = match &b.operands[..] {
                    [to, from, ..] if b.has("copy") => to.lanes.iter().zip(&from.lanes).collect(),
                    _ => Vec::new(),
                };
                let targets: Vec<Lane> =
                    rows.into_iter().filter(|(_, from)| moved.contains(from)).map(|(to, _)| *to).collect();
                let over = targets.iter().any(|to| kept.contains(to));
                ensure!(!over, "not-followed", i, "LLVM may have it write what it reads");
                for lane in b.lanes(Operand::is_def) {
                    moved.remove(&lane);
                    kept.remove(&lane);
                }
                moved.extend(targets);
            }
            if !moved.is_empty() && !kept.is_empty() {
                for next in &blocks[block].successors {
                    if seen.insert((*next, moved.clone(), kept.clone())) {
                        pending.push((*next, 0, moved.clone(), kept.clone()));
                    }
                }
            }
        }
    }
    Ok(())
}

/// What an instruction reads is no copy of what it writes early.
fn forwarded(
    blocks: &[Block], of: &Instruction, (block, at): (usize, usize), early: &BTreeSet<Lane>, read: &BTreeSet<Lane>,
) -> Done {
    let mut pending = vec![(block, at, read.clone(), BTreeSet::new())];
    let mut seen = BTreeSet::new();
    while let Some((block, end, mut names, mut written)) = pending.pop() {
        for b in blocks[block].instructions[..end].iter().rev() {
            if names.is_empty() {
                break;
            }
            let rows: Vec<(Lane, Lane)> = match &b.operands[..] {
                [to, from, ..] if b.has("copy") => to.lanes.iter().copied().zip(from.lanes.iter().copied()).collect(),
                _ => Vec::new(),
            };
            let sources: Vec<Lane> = rows
                .iter()
                .filter(|(to, from)| names.contains(to) && !written.contains(from))
                .map(|(_, from)| *from)
                .collect();
            let over = sources.iter().any(|from| early.contains(from));
            ensure!(!over, "not-followed", of, "LLVM may have it read what it writes");
            for lane in b.lanes(Operand::is_def) {
                names.remove(&lane);
                written.insert(lane);
            }
            names.extend(sources);
        }
        if names.is_empty() {
            continue;
        }
        let written: BTreeSet<Lane> = written.intersection(early).copied().collect();
        for (number, before) in blocks.iter().enumerate() {
            if before.successors.contains(&block) && seen.insert((number, names.clone(), written.clone())) {
                pending.push((number, before.instructions.len(), names.clone(), written.clone()));
            }
        }
    }
    Ok(())
}

/// SIOptimizeExecMasking makes `C = S_AND_SAVEEXEC Y` of `C = EXEC`, `R = S_AND C, Y` and `EXEC = R`, and does not look at
/// everything that writes C or reads R. `next`: the blocks behind.
fn masked(context: &Context<'_>, blocks: &[Block], code: &[Instruction], next: &[usize]) -> Done {
    let threads = |o: &Operand| o.lanes.iter().any(|lane| context.exec.contains(lane));
    let whole = |o: Option<&Operand>| o.is_some_and(|o| o.lanes == context.exec);
    let copies = |i: &Instruction| copies_exec(i) && whole(i.operands.get(1));
    for (end, i) in code.iter().enumerate() {
        let Some(from) = mask_set(i).filter(|_| whole(i.operands.first())) else { continue };
        let Some(result) = from.register else { continue };
        let names = |lanes: &[Lane]| lanes.iter().any(|lane| from.lanes.contains(lane));
        let Some(start) = code[..end].iter().rposition(copies) else { continue };
        let Some(copied) = code[start].operands.first() else { continue };
        let takes = |lanes: &[Lane]| lanes.iter().any(|lane| copied.lanes.contains(lane));
        let mut middle = None;
        for (n, b) in code.iter().enumerate().take(end).skip(start + 1) {
            let (reads, defined) = (b.lanes(Operand::reads), b.lanes(Operand::is_def));
            if middle.is_some() && b.operands.iter().any(|o| o.reads() && threads(o)) {
                middle = None;
                break;
            }
            if names(&defined) {
                let makes = middle.is_none() && !b.value("mask").is_empty() && takes(&reads);
                middle = Some(n).filter(|_| makes);
                if !makes {
                    break;
                }
            } else if middle.is_none() && takes(&reads) {
                break;
            }
        }
        let Some(middle) = middle else { continue };
        let made = is_made_of(&code[middle], result, copied);
        ensure!(made, "not-followed", &code[middle], "LLVM takes for the new EXEC's definition what is none");
        let same = !code[start + 1..end].iter().any(writes_exec);
        ensure!(same, "not-followed", &code[middle], "LLVM takes what it reads for EXEC, which is written,");
        let apart = |b: &Instruction| b.has("call") || b.has("asm") || b.has("bundle") || b.bundle != [false; 3];
        let plain = !code[middle + 1..end].iter().any(apart);
        ensure!(plain, "not-followed", i, "LLVM may not set EXEC before a call, assembly or a bundle");
        let follows = code[middle + 1..].iter().find_map(|b| {
            let read = meets(&b.lanes(Operand::reads), &[SCC]);
            (read || meets(&b.lanes(Operand::is_def), &[SCC])).then_some(read)
        });
        let live = || next.iter().any(|number| live_ins(context, &blocks[*number]).contains(&SCC));
        let read = code[middle].value("mask") == "AND" && follows.unwrap_or_else(live);
        ensure!(!read, "not-followed", &code[middle], "LLVM may replace what defines SCC, which is read,");
        if code[middle].value("mask") == "AND" {
            let other = code[middle].explicit().find(|o| !o.is_def() && !o.same_register(copied));
            other.map_or(Ok(()), |source| compared(&code[..middle], source, &code[middle]))?;
        }
        let kept = !code[start + 1..middle].iter().any(|b| takes(&b.lanes(Operand::is_def)));
        ensure!(kept, "not-followed", &code[middle], "LLVM takes for EXEC what was written since");
        let part = |o: &Operand| o.reads() && names(&o.lanes) && !o.names(&result.name);
        let whole = !code[middle + 1..end].iter().any(|b| b.operands.iter().any(part));
        ensure!(whole, "not-followed", i, "LLVM deletes what wrote the source, a part of which is read");
        let unread = !code[end + 1..].iter().any(|b| names(&b.lanes(Operand::reads)));
        ensure!(unread, "not-followed", i, "LLVM deletes what wrote the source, which is read behind");
        for block in next.iter().map(|number| &blocks[*number]) {
            let exact = block.liveins.iter().any(|(register, mask)| register.name == result.name && mask.is_none());
            let live = live_ins(context, block);
            let dead = exact || !from.lanes.iter().any(|lane| lane.of == Of::Unit && live.contains(&lane.a));
            ensure!(dead, "not-followed", i, "LLVM deletes what wrote the source, which is live behind the block");
        }
    }
    Ok(())
}

/// It makes R of C and another register: the first source of what turns the second round is not C.
fn is_made_of(i: &Instruction, result: &Register, copied: &Operand) -> bool {
    let of_exec = |o: &Operand| o.register.is_some() && o.same_register(copied);
    let apart = |o: &Operand| o.is_register() && !o.lanes.iter().any(|lane| copied.lanes.contains(lane));
    let sources: Vec<&Operand> = i.explicit().filter(|o| !o.is_def()).collect();
    let [first, second, ..] = sources[..] else { return false };
    let turns = matches!(i.value("mask"), "ANDN2" | "ORN2");
    let is_source = of_exec(second) && apart(first) || !turns && of_exec(first) && apart(second);
    is_source && i.definitions == 1 && i.operands.first().is_some_and(|o| o.is_def() && o.names(&result.name))
}

/// SILowerSGPRSpills says that the lanes which slots of scalars become hold nothing before the first access to them: at the end
/// of the last block that is on every way to one, or in it. What a loop brings back to there is lost.
///
/// # Errors
/// `spill-slot`: something is.
pub fn kept_in_lanes(after: &Function) -> Done {
    let mut slots: BTreeMap<u32, BTreeMap<usize, Vec<(bool, u32)>>> = BTreeMap::new();
    for (number, block) in after.blocks.iter().enumerate() {
        for i in &block.instructions {
            let Some(("S", bits, saves)) = i.spill() else { continue };
            for o in i.operands.iter().filter(|o| o.kind == Kind::FrameIndex) {
                slots.entry(o.number).or_default().entry(number).or_default().push((saves, bits));
            }
        }
    }
    let ahead: Vec<BTreeSet<usize>> = after.blocks.iter().map(|b| b.successors.iter().copied().collect()).collect();
    let without = |block: Option<usize>| {
        let mut ahead = ahead.clone();
        block.iter().for_each(|block| {
            ahead.iter_mut().for_each(|places| {
                places.remove(block);
            });
        });
        let mut found = led_to(&ahead, 0);
        found.insert(0);
        if block == Some(0) {
            found.clear();
        }
        found
    };
    let entered = without(None);
    let mut others: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (slot, accesses) in &slots {
        let all = accesses.values().flatten();
        let width = all.filter(|(saves, _)| !saves).map(|(_, bits)| *bits).max().unwrap_or(0);
        let first = |block: &usize| {
            accesses.get(block).and_then(|rows| rows.iter().find(|(saves, bits)| !saves || *bits >= width))
        };
        let mut live: BTreeSet<usize> =
            accesses.keys().copied().filter(|block| first(block).is_some_and(|(saves, _)| !saves)).collect();
        loop {
            let leads = |n: &usize| first(n).is_none() && !live.contains(n) && !ahead[*n].is_disjoint(&live);
            let more: Vec<usize> = (0..ahead.len()).filter(leads).collect();
            if more.is_empty() {
                break;
            }
            live.extend(more);
        }
        if !live.contains(&0) {
            continue;
        }
        if others.is_empty() {
            others = entered.iter().map(|n| (*n, without(Some(*n)))).collect();
        }
        let named: Vec<usize> = accesses.keys().copied().filter(|n| entered.contains(n)).collect();
        let on_every_way = |n: &usize| named.iter().all(|access| access == n || !others[n].contains(access));
        let common: Vec<usize> = entered.iter().copied().filter(on_every_way).collect();
        let is_last = |n: &usize| common.iter().all(|other| other == n || others[n].contains(other));
        let Some(last) = common.iter().copied().find(is_last) else { continue };
        let lost = if accesses.contains_key(&last) { live.contains(&last) } else { !ahead[last].is_disjoint(&live) };
        let saved = accesses.iter().filter(|(_, rows)| rows.iter().any(|(saves, _)| *saves)).map(|(block, _)| *block);
        let back = saved.into_iter().any(|block| led_to(&ahead, block).contains(&last));
        ensure!(!(lost && back), "spill-slot", "", "slot {slot} is read before it is written, and again in a loop");
    }
    Ok(())
}

/// What a block of P leaves undefined and what it defines of scalars, and the places that Q's writes.
#[derive(Clone, Default)]
pub struct Written {
    lost: Set<Lane>,
    defined: Set<Lane>,
    /// Scalar ones.
    places: Set<Lane>,
    vectors: Set<Lane>,
    /// Vector places that moves write for every thread.
    everywhere: Set<Lane>,
}

/// What LLVM goes through if it deletes a branch to where no thread is active (spec 12.2).
pub struct Way {
    blocks: BTreeSet<usize>,
    /// P leads elsewhere there: the ends of these blocks may become the code that the branch leads to.
    pub beside: bool,
    lost: Set<Lane>,
    written: Set<Lane>,
    /// Vector names that P defines for threads that wait, too.
    pub wide: Set<Lane>,
    /// Vector places that Q may write for them.
    pub wide_places: Set<Lane>,
    /// Threads may be active behind it.
    pub wakes: bool,
}

/// For each block a number, the same for those that LLVM may make one of: BranchFolder does of blocks with equal code that
/// lead to the same ones, in any order of their instructions (MachineBlockPlacement, behind the scheduler), but never
/// with another number of stores and calls; and the numbers of the blocks to which it leads where the way behind parts.
pub type MadeOne = (usize, BTreeSet<usize>);

fn made_one(context: &Context<'_>) -> Done<Vec<MadeOne>> {
    let before = context.before;
    let mut effects = Vec::new();
    for block in &before.blocks {
        let mut count = 0;
        for i in block.instructions.iter().filter(|i| i.has("may-store") || i.has("call")) {
            count += usize::from(moves::read(context, before, i)?.is_none());
        }
        effects.push(count);
    }
    let mut one: Vec<MadeOne> = (0..effects.len()).map(|number| (number, BTreeSet::new())).collect();
    let mut known = effects.len();
    loop {
        let mut numbers: BTreeMap<(usize, BTreeSet<usize>), usize> = BTreeMap::new();
        let row = |number: usize| {
            let (mut total, mut passed, mut last) = (0, BTreeSet::new(), number);
            loop {
                passed.insert(last);
                total += effects[last];
                let ahead = &before.blocks[last].successors;
                let aims: BTreeSet<usize> = ahead.iter().map(|next| one[*next].0).collect();
                match ahead.iter().min().filter(|next| aims.len() == 1 && !passed.contains(next)) {
                    Some(next) => last = *next,
                    None => return (total, aims),
                }
            }
        };
        let rows: Vec<_> = (0..effects.len()).map(row).collect();
        one.clear();
        for (total, aims) in rows {
            let next = numbers.len();
            one.push((*numbers.entry((total, aims.clone())).or_insert(next), aims));
        }
        if numbers.len() == known {
            return Ok(one);
        }
        known = numbers.len();
    }
}

/// A block and those behind it, as long as each leads to one, or to several that may become one.
fn onward(before: &Function, one: &[MadeOne], number: usize) -> BTreeSet<usize> {
    let (mut onward, mut pending) = (BTreeSet::from([number]), vec![number]);
    while let Some(block) = pending.pop() {
        let ahead = &before.blocks[block].successors;
        if !parts(one, ahead) {
            pending.extend(ahead.iter().copied().filter(|next| onward.insert(*next)));
        }
    }
    onward
}

/// Whether these are none, or several that do not become one.
fn parts(one: &[MadeOne], ahead: &[usize]) -> bool {
    ahead.iter().map(|next| one[*next].0).collect::<BTreeSet<_>>().len() != 1
}

/// Whether a branch on EXEC leads from a block to another one where EXEC is 0.
fn leads_by_zero(before: &Function, number: usize, successor: usize) -> bool {
    let is_zero =
        |(test, target): (&str, usize)| test.starts_with("exec") && test.ends_with('0') == (target == successor);
    tested(&before.blocks[number]).is_some_and(is_zero)
}

/// The ways of all branches that lead to an edge where EXEC is 0: by way of blocks with one successor, of which nothing
/// may be left when LLVM deletes the branch.
pub fn ways(context: &Context<'_>, number: usize, successor: usize) -> Done<Vec<Way>> {
    let before = context.before;
    let led = context.led.get_or_init(|| predecessors(&successors(before)));
    let mut all = Vec::new();
    if before.blocks[number].successors.len() != 1 {
        if leads_by_zero(before, number, successor) {
            all.extend(way(context, number, &BTreeSet::new(), successor)?);
        }
        return Ok(all);
    }
    let mut pending = vec![(number, BTreeSet::from([number]))];
    while let Some((block, by)) = pending.pop() {
        for ahead in led[block].difference(&by) {
            if before.blocks[*ahead].successors.len() == 1 {
                pending.push((*ahead, by.iter().chain([ahead]).copied().collect()));
            } else if leads_by_zero(before, *ahead, block) {
                all.extend(way(context, *ahead, &by, successor)?);
            }
        }
    }
    Ok(all)
}

/// Whether a block of either text has instructions that make code, direct branches aside.
fn has_code(context: &Context<'_>, number: usize) -> bool {
    let makes_none = |i: &Instruction| i.has("no-code") || i.has("branch") && i.has("barrier");
    let texts = [context.before, context.after];
    !texts.iter().flat_map(|text| &text.blocks[number].instructions).all(makes_none)
}

/// `by`: the blocks with one successor by way of which the branch of `origin` leads to `successor`.
fn way(context: &Context<'_>, origin: usize, by: &BTreeSet<usize>, successor: usize) -> Done<Option<Way>> {
    let before = context.before;
    let led = context.led.get_or_init(|| predecessors(&successors(before)));
    if context.made_one.get().is_none() {
        // Nobody has set it since.
        let _ = context.made_one.set(made_one(context)?);
    }
    let Some(one) = context.made_one.get() else { return Ok(None) };
    let forward = onward(before, one, successor);
    let aims = &one[successor].1;
    let other = |next: &usize| !leads_by_zero(before, origin, *next);
    let mut pending: Vec<usize> = before.blocks[origin].successors.iter().copied().filter(other).collect();
    let (mut blocks, mut straight) = (BTreeSet::new(), true);
    while let Some(block) = pending.pop() {
        if forward.contains(&block) {
            straight &= block == successor;
            continue;
        }
        if by.contains(&block) || block == origin {
            return Ok(None);
        }
        if !blocks.insert(block) {
            continue;
        }
        match before.blocks[block].successors.as_slice() {
            ahead if parts(one, ahead) && one[block].1 == *aims => straight = false,
            [] => return Ok(None),
            ahead => pending.extend(ahead),
        }
    }
    let Some(order) = in_order(before, led, &blocks) else { return Ok(None) };
    let beside = by.iter().any(|block| has_code(context, *block)) || !straight && has_code(context, successor);
    let calls = blocks.iter().flat_map(|block| &before.blocks[*block].instructions).any(|i| i.has("call"));
    if blocks.is_empty() || calls && !beside {
        return Ok(None);
    }
    let code = forward.iter().flat_map(|block| &before.blocks[*block].instructions);
    let is_exec = |o: &Operand| o.lanes.iter().any(|lane| lane.is_exec());
    let ends = aims.is_empty() && !code.flat_map(|i| &i.operands).any(is_exec);
    let (lost, written) = passed(context, &blocks)?;
    let (wide, wakes, acts) = widely(before, led, origin, &order);
    let rows = rows(context)?;
    let places = order.iter().flat_map(|block| match wide.is_empty() {
        true => &rows[*block].everywhere,
        false => &rows[*block].vectors,
    });
    let wide_places = places.copied().collect();
    Ok(Some(Way { blocks, beside, lost, written, wide, wide_places, wakes: acts || wakes && !ends }))
}

impl Way {
    /// Whether LLVM may overwrite a scalar place, of which this name is claimed behind, where it goes this way.
    pub fn loses(&self, context: &Context<'_>, name: Lane, place: Lane) -> bool {
        if place.is_exec() || !self.beside && !self.lost.contains(&name) {
            return false;
        }
        let pristine = name == Lane::entry(place.a) && place.cell == 0 && !context.touched_after.contains(&place.a);
        let declares = |part: &usize| live_ins(context, &context.after.blocks[*part]).contains(&place.a);
        // For LLVM's passes it is live at the end of a block if a successor declares it.
        let is_live = |number: &usize| {
            let block = &context.before.blocks[*number];
            block.joints.iter().all(|(_, part)| declares(part)) && block.successors.iter().any(declares)
        };
        let fixed = place.of != Of::Unit || pristine || holds_always(context, place);
        let kept = fixed || self.blocks.iter().all(is_live);
        self.written.contains(&place) || !kept
    }
}

/// Blocks, each behind all that lead to it; `None` where some are in a loop.
fn in_order(before: &Function, led: &[BTreeSet<usize>], blocks: &BTreeSet<usize>) -> Option<Vec<usize>> {
    let leading = |block: &usize| led[*block].intersection(blocks).count();
    let mut left: BTreeMap<usize, usize> = blocks.iter().map(|block| (*block, leading(block))).collect();
    let mut ready: Vec<usize> = blocks.iter().copied().filter(|block| left[block] == 0).collect();
    let mut order = Vec::new();
    while let Some(block) = ready.pop() {
        order.push(block);
        let ahead: BTreeSet<usize> = before.blocks[block].successors.iter().copied().collect();
        for next in ahead {
            if let Some(count) = left.get_mut(&next) {
                *count -= 1;
                ready.extend((*count == 0).then_some(next));
            }
        }
    }
    (order.len() == blocks.len()).then_some(order)
}

/// What nobody may do whom P has wait (spec 12.2).
const ACTS: [&str; 4] = ["may-store", "call", "asm", "side-effects"];

/// Of what such a branch skips, in order: vector names that P defines for threads that wait, too, whether some may be active behind,
/// and whether some may be where something acts.
fn widely(before: &Function, led: &[BTreeSet<usize>], number: usize, skipped: &[usize]) -> (Set<Lane>, bool, bool) {
    let (mut wide, mut wakes, mut acts) = (Set::default(), false, false);
    let mut known: BTreeMap<usize, Nobody> = BTreeMap::new();
    for block in skipped {
        let entered = before.blocks[number].successors.contains(block);
        let mut leading = led[*block].iter().filter_map(|ahead| known.get(ahead));
        let Some(mut left) = entered.then(Nobody::new).or_else(|| leading.next().cloned()) else { continue };
        leading.for_each(|other| left.meet(other));
        for i in &before.blocks[*block].instructions {
            let reaches = matches!(i.value("reach"), "writes" | "unclear") && i.value("lane-operand").is_empty();
            if left.active != Some(false) || reaches {
                wide.extend(i.lanes(Operand::is_def).into_iter().filter(|lane| lane.vector));
            }
            acts |= left.active != Some(false) && ACTS.iter().any(|word| i.has(word));
            left.follow(i);
        }
        known.insert(*block, left);
    }
    for (block, left) in &known {
        let ahead = &before.blocks[*block].successors;
        wakes |= left.active != Some(false) && (ahead.is_empty() || !ahead.iter().all(|next| known.contains_key(next)));
    }
    (wide, wakes, acts)
}

/// Of what such a branch skips: scalar names that P leaves undefined, and scalar places that Q writes.
fn passed(context: &Context<'_>, skipped: &BTreeSet<usize>) -> Done<(Set<Lane>, Set<Lane>)> {
    let rows = rows(context)?;
    let all = |of: fn(&Written) -> &Set<Lane>| skipped.iter().flat_map(move |block| of(&rows[*block])).copied();
    let defined: Set<Lane> = all(|row| &row.defined).collect();
    let lost = all(|row| &row.lost).filter(|lane| !defined.contains(lane)).collect();
    Ok((lost, all(|row| &row.places).collect()))
}

/// What is written in each block.
fn rows<'a>(context: &'a Context<'_>) -> Done<&'a [Written]> {
    let before = context.before;
    if context.written.get().is_none() {
        let units: Vec<Lane> = before.units().into_iter().map(Lane::unit).filter(|lane| !lane.vector).collect();
        let rows = (0..before.blocks.len()).map(|block| written(context, block, &units)).collect::<Done<Vec<_>>>()?;
        // Nobody has set it since.
        let _ = context.written.set(rows);
    }
    Ok(context.written.get().map_or(&[][..], Vec::as_slice))
}

/// `units`: of the scalars of P.
fn written(context: &Context<'_>, block: usize, units: &[Lane]) -> Done<Written> {
    let (before, after) = (context.before, context.after);
    let Written { mut lost, mut defined, mut places, mut vectors, mut everywhere } = Written::default();
    for part in [block].into_iter().chain(before.blocks[block].joints.iter().map(|(_, part)| *part)) {
        let live = live_ins(context, &before.blocks[part]);
        lost.extend(units.iter().filter(|lane| context.allocatable(**lane) && !live.contains(&lane.a)));
    }
    for i in &before.blocks[block].instructions {
        lost.extend(i.defined().filter(|o| o.is(UNDEF)).flat_map(|o| &o.beside).copied());
        let own = i.lanes(Operand::is_def);
        if let Some(moved) = moves::read(context, before, i)? {
            let to = moved.pairs.iter().map(|(to, _)| *to);
            if moved.is_of_nothing() {
                lost.extend(to);
            } else {
                defined.extend(to);
            }
            lost.extend(moved.blank.iter().copied().chain(moved.lost_cells(context)));
        } else if i.has("no-code") {
            lost.extend(own.iter().filter(|lane| lane.vector).flat_map(|lane| context.cells_in(*lane)));
            lost.extend(own);
        } else {
            defined.extend(own);
        }
    }
    for i in &after.blocks[block].instructions {
        let moved = moves::read(context, after, i)?;
        let to = moved.iter().flat_map(|moved| moved.pairs.iter().map(|(to, _)| *to));
        let own: Vec<Lane> = i.lanes(Operand::is_def).into_iter().chain(to).collect();
        places.extend(own.iter().copied());
        vectors.extend(own.iter().copied().filter(|lane| lane.vector));
        let whole = moved.as_ref().is_some_and(|moved| moved.whole_wave);
        everywhere.extend(own.into_iter().filter(|lane| whole && lane.vector));
    }
    for lanes in [&mut lost, &mut defined, &mut places] {
        lanes.retain(|lane| !lane.vector);
    }
    Ok(Written { lost, defined, places, vectors, everywhere })
}
