//! The form of a pair: every operand is compared once (spec 5.2, 5.3, 5.6, 5.7, 5.8, 5.9, 5.11); what is pure (8.1).

use crate::context::{assembly_operands, Context};
use crate::lanes::{Lane, Map, FIRST_AGPR};
use crate::model::*;
use crate::tables::{tables, RegisterClass};

/// How strictly the registers that are defined are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pair,
    /// Q repeats what P did elsewhere (spec 8.2).
    Repeat,
}

/// Compare all that two instructions say, but the values. How many operands were compared.
pub fn compare(context: &Context<'_>, p: &Instruction, q: &Instruction, mode: Mode) -> Done<usize> {
    let canonical =
        |i: &Instruction| if i.value("canon").is_empty() { i.name.clone() } else { i.value("canon").to_string() };
    ensure!(canonical(p) == canonical(q), "instruction-sequence", q, "{} before", p.name);
    ensure!(p.flags == q.flags, "instruction-flags", q, "other flags");
    let memory = |i: &Instruction| -> Vec<_> { i.memory.iter().map(|m| (m.text.clone(), m.object)).collect() };
    ensure!(memory(p) == memory(q), "memory-operands", q, "other memory operands");
    let without: Vec<&String> = p.tail.iter().filter(|attribute| !attribute.starts_with("mmra ")).collect();
    let tail = p.tail == q.tail || without.into_iter().eq(&q.tail);
    ensure!(tail, "operands", q, "other attributes behind the operands");
    ensure!(p.bundle == q.bundle, "bundle", q, "another bundle");
    let count = p.definitions == q.definitions && p.operands.len() <= q.operands.len();
    ensure!(count, "operands", q, "another number of operands");
    let mut compared = 0;
    for (number, y) in q.operands.iter().enumerate() {
        match p.operands.get(number) {
            Some(x) => operand(context, q, number, x, y, mode)?,
            None => added_operand(context, q, y)?,
        }
        compared += 1;
    }
    ensure!(compared == q.operands.len(), "operands", q, "operands that nobody compared");
    one_place(p, q)?;
    ties(context, p, q)?;
    let mut written: Vec<Lane> = Vec::new();
    for lane in q.lanes(|o| o.is_def() && (!o.is(IMPLICIT) || o.early)) {
        ensure!(!written.contains(&lane), "overlapping-definitions", q, "{lane} is written twice");
        written.push(lane);
    }
    files(context, p, q)?;
    Ok(compared)
}

fn operand(context: &Context<'_>, q: &Instruction, number: usize, x: &Operand, y: &Operand, mode: Mode) -> Done {
    let both = format!("operand {number}: `{}` is `{}`", x.text, y.text);
    let alike =
        x.kind == y.kind && x.number == y.number && (x.is_register() || x.kind == Kind::Block || x.text == y.text);
    ensure!(alike, "operands", q, "{both}");
    if !x.is_register() {
        return Ok(());
    }
    let flags = |o: &Operand| (o.flags & (DEF | IMPLICIT | EARLY_CLOBBER | INTERNAL | DEBUG_USE), o.tied);
    // A physical register is printed without a type.
    let untyped = y.llt.is_empty() && y.register.is_some() || mode == Mode::Repeat && x.is_def();
    ensure!(flags(x) == flags(y) && (x.llt == y.llt || untyped), "operands", q, "{both}");
    ensure!(x.lanes.len() == y.lanes.len(), "width", q, "{both}");
    if let Some(fixed) = x.register {
        // A whole VCC that wave32 reads as its half is the half in both (spec 3.1): lanes and names are equal.
        let vcc = |o: &Operand| o.is(IMPLICIT) && (o.names("vcc") || o.names("vcc_lo"));
        let same = (y.names(&fixed.name) || vcc(x) && vcc(y)) && x.lanes == y.lanes;
        ensure!(same, "fixed-register", q, "{both}");
        let told = !last_of_special(y) || y.flags & (DEAD | KILLED) & !x.flags == 0;
        ensure!(told, "dead-flag", q, "{both}");
        ensure!(!y.is(RENAMABLE) || x.is(RENAMABLE), "fixed-register", q, "{both}, renamable");
        return Ok(());
    }
    let Some(row) = x.row else { return Ok(()) };
    if let Some(own) = y.row {
        let fits = if mode == Mode::Repeat && x.is_def() {
            let allowed = own.class.files();
            let table = y.table.and_then(|table| tables().class(table.class(context.processor)));
            let by_table = table.is_none_or(|class| allowed.is_subset(&class.files()));
            x.sub == y.sub && row.class.bits == own.class.bits && row.class.files() == allowed && by_table
        } else {
            (row.class.name, row.whole_wave, &x.sub) == (own.class.name, own.whole_wave, &y.sub)
        };
        ensure!(fits, "register-class", q, "{both}");
        return Ok(());
    }
    let Some(register) = y.register else { return Ok(()) };
    ensure!(!y.lanes.is_empty(), "fixed-register", q, "{both}, which has no storage");
    // The values are compared too, but no encoding has room for any register of the other file.
    let same_file = y.lanes.iter().all(|lane| lane.vector == row.class.is_vector);
    ensure!(same_file, "register-class", q, "{both}, of another file");
    let free = y.lanes.iter().all(|lane| context.allocatable(*lane));
    ensure!(free, "reserved-register", q, "{both}, which must not be allocated");
    let part = if x.sub.is_empty() { (0..row.lanes()).collect() } else { tables().lanes(&x.sub).unwrap_or_default() };
    let either = context.processor.has_agprs && row.class.is_vector && q.opcode.numbers("either").contains(&number);
    let read = |class: &'static RegisterClass| if either { class.in_either_file() } else { class };
    let fits = match y.table.and_then(|table| tables().class(table.class(context.processor))) {
        Some(class) => read(class).contains(register),
        None => read(row.class).contains_part(register, &part),
    };
    ensure!(register.units.len() == part.len() && fits, "register-class", q, "{both}, which its class does not have");
    Ok(())
}

/// What reads one lane of a virtual register of P reads one place of Q; where registers are counted from an operand on,
/// it also writes there (spec 5.12).
fn one_place(p: &Instruction, q: &Instruction) -> Done {
    let asked = |x: &Operand| x.vreg.is_some() && (x.is_use() || p.has("indirect") && p.value("reach").is_empty());
    let operands = p.operands.iter().zip(&q.operands).filter(|(x, _)| asked(x));
    let mut places: Map<Lane, Lane> = Map::default();
    for (name, place) in operands.flat_map(|(x, y)| x.lanes.iter().zip(&y.lanes)) {
        ensure!(places.insert(*name, *place).is_none_or(|old| old == *place), "operands", q, "{name} in two places");
    }
    Ok(())
}

/// An operand says of a register outside the numbered files that nobody reads it again: passes behind would believe it,
/// though nobody asks whether it is so (spec 11).
pub fn last_of_special(operand: &Operand) -> bool {
    operand.register.is_some()
        && operand.flags & (DEAD | KILLED) != 0
        && operand.lanes.iter().any(|lane| lane.is_special())
}

/// What Q has more than P: an implicit register that says nothing new (spec 5.3).
fn added_operand(context: &Context<'_>, q: &Instruction, added: &Operand) -> Done {
    let odd =
        added.flags & (EARLY_CLOBBER | INTERNAL | DEBUG_USE) != 0 || added.tied.is_some() || !added.llt.is_empty();
    let covers = |other: &Operand| {
        let within = !other.lanes.is_empty() && other.lanes.iter().all(|lane| added.lanes.contains(lane));
        other.is_register()
            && !std::ptr::eq(other, added)
            && (other.same_register(added) || !other.is(IMPLICIT) && within)
    };
    let says_nothing = added.is_def() || q.operands.iter().any(covers);
    let plain = added.is(IMPLICIT) && !odd && !added.lanes.is_empty() && !last_of_special(added) && says_nothing;
    ensure!(plain, "operands", q, "an added operand `{}`", added.text);
    let free = added.register.is_some() && added.lanes.iter().all(|lane| context.allocatable(*lane));
    ensure!(!added.is_def() || free, "reserved-register", q, "an added definition `{}`", added.text);
    Ok(())
}

fn ties(context: &Context<'_>, p: &Instruction, q: &Instruction) -> Done {
    let mut grouped = assembly_operands(q).into_iter().filter(|o| o.is_tied).filter_map(|o| q.operands.get(o.number));
    let loose = grouped.find(|o| o.is_register() && o.tied.is_none());
    ensure!(loose.is_none(), "tied-operand", q, "an operand of a tied group that is not tied");
    for (number, operand) in q.operands.iter().enumerate().filter(|(_, o)| o.is_register()) {
        let text = p.operands.get(number).and_then(|o| o.tied);
        let table = operand.table.filter(|row| row.class(context.processor) != "-").and_then(|row| row.tied_to);
        for definition in [operand.tied, text, table].into_iter().flatten() {
            let same = q.operands.get(definition).is_some_and(|o| o.is_def() && o.same_register(operand));
            ensure!(same, "tied-operand", q, "operand {number} is not its definition");
        }
    }
    Ok(())
}

/// No use that is compared reads what an early-clobber definition writes (spec 5.6).
pub fn early_clobbers(
    p: &Instruction, q: &Instruction, skip: &[(usize, usize)], is_undefined: impl Fn(Lane) -> bool,
) -> Done {
    for (number, definition) in q.operands.iter().enumerate().filter(|(_, o)| o.early) {
        let (written, by_p) = (&definition.lanes, p.operands.get(number).map_or(&[][..], |o| &o.lanes));
        for (at, (x, y)) in p.operands.iter().zip(&q.operands).enumerate() {
            let tied = y.tied == Some(number) || y.table.and_then(|row| row.tied_to) == Some(number);
            for (k, (name, place)) in x.lanes.iter().zip(&y.lanes).enumerate().filter(|_| x.reads() && !tied) {
                // Where P reads what it overwrites, Q does.
                let both = by_p.iter().zip(written).any(|pair| pair == (name, place));
                let fits = !written.contains(place) || both || is_undefined(*name) || skip.contains(&(at, k));
                ensure!(fits, "early-clobber", q, "operand {at} is overwritten by operand {number}");
            }
        }
    }
    Ok(())
}

/// C and D of a matrix instruction lie in the file that its opcode demands (spec 5.9).
fn files(context: &Context<'_>, p: &Instruction, q: &Instruction) -> Done {
    let named = q.lanes(|o| q.has("asm") && o.register.is_some());
    let low = named.iter().all(|lane| !(512..FIRST_AGPR).contains(&lane.a));
    ensure!(low, "register-class", q, "a register that assembly cannot name");
    let Some(wanted) = q.value("file").chars().next().filter(|_| context.processor.has_agprs) else { return Ok(()) };
    let other = if wanted == 'v' { 'a' } else { 'v' };
    for operand in [0, 3].iter().filter_map(|n| q.operands.get(*n)) {
        let by_register = operand.register.is_none_or(|register| register.file == wanted);
        let by_class = p.name == q.name || operand.row.is_none_or(|row| !row.class.files().contains(&other));
        let fits = by_register && by_class;
        ensure!(fits, "register-class", q, "`{}` is not of the file that the opcode demands", operand.text);
    }
    Ok(())
}

/// Lanes that an instruction of P does not read: operand and position (spec 5.11). The second list: the upper half of
/// what
/// a wide product adds, which matters to the upper half of the result only.
pub fn unread(p: &Instruction) -> [Vec<(usize, usize)>; 2] {
    let first = p.definitions;
    let is_vector = |o: &Operand| o.lanes.iter().all(|lane| lane.vector);
    let mut unread = Vec::new();
    let uses = p.operands.iter().enumerate().skip(first + 1);
    for (number, operand) in uses.filter(|(_, o)| o.is_use() && !o.is(IMPLICIT)) {
        let Some(modifiers) = p.immediate(number - 1) else { continue };
        let (low, high, count) = (modifiers & 4 != 0, modifiers & 8 != 0, operand.lanes.len());
        if p.has("packed-f32") && count % 2 == 0 {
            // The lower half of a scalar source is always read.
            let lower = !(low && high && is_vector(operand));
            let needed = |at: usize| if at < count / 2 { lower } else { low || high };
            unread.extend((0..count).filter(|at| !needed(*at)).map(|at| (number, at)));
        }
        if p.has("mixed") && is_vector(operand) && count == 2 && high && matches!(number - first, 1 | 3 | 5) {
            unread.push((number, usize::from(!low)));
        }
    }
    let plain = p.has("wide-mad") && p.immediate(first + 3) == Some(0);
    let added = p.operands.get(first + 2).filter(|o| plain && o.reads() && is_vector(o));
    let upper = added.map_or(0..0, |o| o.lanes.len() / 2..o.lanes.len());
    [unread, upper.map(|at| (first + 2, at)).collect()]
}

/// Whether an instruction of P may be left out or repeated (spec 8.1).
pub fn is_pure(i: &Instruction) -> bool {
    let same_anywhere =
        |m: &MemoryOperand| m.invariant && (m.dereferenceable || m.address_space == 4) && !m.volatile && !m.atomic;
    let invariant = i.has("scalar-load") && !i.memory.is_empty() && i.memory.iter().all(same_anywhere);
    let by_opcode = (i.has("pure") || i.has("pure-exec")) && i.memory.is_empty();
    let raises = i.has("may-raise") && !i.flags.iter().any(|flag| flag == "nofpexcept");
    let alone = i.bundle == [false; 3] && i.tail.is_empty() && i.definitions == 1;
    let fits = |o: &Operand| {
        let relative = o.is_relative() || o.kind == Kind::Block;
        let by_register = o.register.is_none_or(|register| {
            let special =
                register.file == 'x' && !matches!(register.name.as_str(), "scc" | "vcc" | "vcc_lo" | "vcc_hi");
            let changing = register.is_marked("changes") || register.is_marked("alias");
            // EXEC is read where the opcode's result depends on it: as an implicit operand.
            let by_hand = register.name.starts_with("exec") && !o.is(IMPLICIT);
            !(o.is_def() && special || o.is_use() && (changing || by_hand))
        });
        by_register && (!relative || i.has("relative"))
    };
    (invariant || by_opcode) && alone && !raises && i.operands.iter().all(fits)
}

/// Whether a function waits for accesses to memory, or may: until at most so many are under way (S_WAITCNT, S_WAIT_LOADCNT). With
/// one less behind it, or in another order, an access is not done then (spec 8.4, 16.5).
pub fn counts_accesses(function: &Function, is_obscure: bool) -> bool {
    let waits = |text: &str| is_obscure || text.to_ascii_lowercase().contains("wait");
    function.instructions().any(|i| i.name.starts_with("S_WAIT"))
        || function.operands().any(|o| o.kind == Kind::AsmString && waits(&o.text))
}

/// Whether an instruction of P may be left out because it only loads (spec 8.1).
pub fn is_plain_load(i: &Instruction) -> bool {
    i.has("plain-load") && !i.memory.is_empty() && i.memory.iter().all(|m| !m.volatile && !m.atomic)
}
