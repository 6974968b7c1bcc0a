//! The form of a pair: every operand is compared once (spec 5.2, 5.3, 5.6, 5.7, 5.8, 5.9, 5.11); what is pure (8.1).

use crate::context::{Code, Context, EXEC, SCC, VCC};
use crate::lanes::{Lane, Of};
use crate::model::{Flags, Instruction, Kind, Operand, Refused};
use crate::tables::{tables, RegisterClass};

/// How strictly the registers that are defined are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pair,
    /// Q repeats what P did elsewhere (spec 8.2).
    Repeat,
}

/// Compare all that two instructions say, but the values. How many operands were compared.
pub fn compare(context: &Context<'_>, p: Code<'_>, q: Code<'_>, mode: Mode) -> Result<usize, Refused> {
    let (a, b) = (p.instruction, q.instruction);
    if canonical(p) != canonical(q) {
        return Err(q.refused("instruction-sequence", format!("{} before", a.opcode)));
    }
    if a.flags != b.flags {
        return Err(q.refused("instruction-flags", "other flags"));
    }
    memory(context, p, q)?;
    tail(p, q)?;
    if (a.in_bundle, a.opens_bundle, a.closes_bundle) != (b.in_bundle, b.opens_bundle, b.closes_bundle) {
        return Err(q.refused("bundle", "another bundle"));
    }
    if a.definitions != b.definitions || a.operands.len() > b.operands.len() {
        return Err(q.refused("operands", "another number of operands"));
    }
    let mut compared = 0;
    for (number, (x, y)) in a.operands.iter().zip(&b.operands).enumerate() {
        operand(context, p, q, number, x, y, mode)?;
        compared += 1;
    }
    for added in b.operands.iter().skip(a.operands.len()) {
        added_operand(context, q, added)?;
        compared += 1;
    }
    if compared != b.operands.len() {
        return Err(q.refused("operands", "operands that nobody compared"));
    }
    ties(context, p, q)?;
    overlaps(context, q)?;
    matrix_files(context, p, q)?;
    Ok(compared)
}

fn canonical<'a>(code: Code<'a>) -> &'a str {
    match code.opcode.value("canon") {
        "" => &code.instruction.opcode,
        name => name,
    }
}

fn memory(context: &Context<'_>, p: Code<'_>, q: Code<'_>) -> Result<(), Refused> {
    let (a, b) = (&p.instruction.memory, &q.instruction.memory);
    let same = a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| match y.stack {
            Some(number) => {
                context.after.slot(number).is_some_and(|number| x.stack.is_some() && x.text == y.with_number(number))
            }
            None => x.text == y.text,
        });
    if same {
        Ok(())
    } else {
        Err(q.refused("memory-operands", "other memory operands"))
    }
}

/// A debug location behind the operands; it says nothing.
pub fn is_location(attribute: &str) -> bool {
    attribute.starts_with("debug-location ")
}

fn tail(p: Code<'_>, q: Code<'_>) -> Result<(), Refused> {
    let kept = |i: &Instruction| -> Vec<String> { i.tail.iter().filter(|t| !is_location(t)).cloned().collect() };
    let (a, b) = (kept(p.instruction), kept(q.instruction));
    let without: Vec<&String> = a.iter().filter(|t| !t.starts_with("mmra ")).collect();
    if a == b || without == b.iter().collect::<Vec<_>>() {
        return Ok(());
    }
    Err(q.refused("operands", "other attributes behind the operands"))
}

const COMPARED_FLAGS: Flags = Flags(1 | 2 | 64 | 128 | 256);

fn operand(
    context: &Context<'_>, p: Code<'_>, q: Code<'_>, number: usize, x: &Operand, y: &Operand, mode: Mode,
) -> Result<(), Refused> {
    let differs = || q.refused("operands", format!("operand {number}: `{}` is `{}`,", x.text, y.text));
    if x.kind != y.kind {
        return Err(differs());
    }
    match x.kind {
        Kind::Register => {}
        Kind::Block => return if x.number == y.number { Ok(()) } else { Err(differs()) },
        Kind::FrameIndex => {
            let rest = |o: &Operand| o.text.replacen(&format!("%stack.{}", o.number), "", 1);
            let same = context.after.slot(y.number) == Some(x.number) && rest(x) == rest(y);
            return if same { Ok(()) } else { Err(differs()) };
        }
        _ => return if x.text == y.text && x.number == y.number { Ok(()) } else { Err(differs()) },
    }
    let flags = |o: &Operand| (o.flags.0 & COMPARED_FLAGS.0, o.tied);
    // A physical register is printed without a type.
    let same_type = x.llt == y.llt || (y.llt.is_empty() && y.is_physical()) || (mode == Mode::Repeat && x.is_def());
    if flags(x) != flags(y) || !same_type {
        return Err(differs());
    }
    let (a, b) = (context.before.lanes(p, x)?, context.after.lanes(q, y)?);
    if a.len() != b.len() {
        return Err(q.refused("width", format!("operand {number}: `{}` is `{}`,", x.text, y.text)));
    }
    match (x.vreg, y.vreg) {
        (None, None) => fixed(context, p, q, number, x, y),
        (None, Some(_)) => Err(q.refused("fixed-register", format!("operand {number}: `{}` is virtual", x.text))),
        (Some(m), Some(n)) => both_virtual(context, q, number, (x, m), (y, n), mode),
        (Some(m), None) => assigned(context, q, number, (x, m), y, &b),
    }
}

fn fixed(
    context: &Context<'_>, p: Code<'_>, q: Code<'_>, number: usize, x: &Operand, y: &Operand,
) -> Result<(), Refused> {
    // A whole VCC that wave32 reads as its half is the half in both (spec 3.1): lanes and names are equal.
    let vcc = |o: &Operand| o.flags.has(Flags::IMPLICIT) && (o.register == "vcc" || o.register == "vcc_lo");
    let same = x.register == y.register || (vcc(x) && vcc(y));
    if !same || context.before.lanes(p, x)? != context.after.lanes(q, y)? {
        return Err(q.refused("fixed-register", format!("operand {number}: `{}` is `{}`,", x.text, y.text)));
    }
    if last_of_special(context, q, y) && y.flags.0 & LAST & !x.flags.0 != 0 {
        return Err(q.refused("dead-flag", format!("operand {number}: `{}`", y.text)));
    }
    if y.flags.has(Flags::RENAMABLE) && !x.flags.has(Flags::RENAMABLE) {
        return Err(q.refused("fixed-register", format!("operand {number}: `{}` is renamable", y.text)));
    }
    Ok(())
}

fn both_virtual(
    context: &Context<'_>, q: Code<'_>, number: usize, (x, m): (&Operand, u32), (y, n): (&Operand, u32), mode: Mode,
) -> Result<(), Refused> {
    let refused = || q.refused("register-class", format!("operand {number}: `{}` is `{}`,", x.text, y.text));
    if mode == Mode::Repeat && x.is_def() {
        let (a, b) = context.before.virtual_register(m).zip(context.after.virtual_register(n)).ok_or_else(refused)?;
        let row = q.opcode.row(number).and_then(|row| tables().register_class(row.class(context.processor.mode)));
        let allowed = files(b.class);
        let fits = (x.sub == y.sub && a.class.bits == b.class.bits && files(a.class) == allowed)
            && row.is_none_or(|row| allowed.iter().all(|f| files(row).contains(f)));
        return if fits { Ok(()) } else { Err(refused()) };
    }
    let row = |function: &crate::model::Function, n: u32| {
        function.registers.get(&n).map(|row| (row.class.clone(), row.flags.clone()))
    };
    let (a, b) = (row(context.before.function, m), row(context.after.function, n));
    if a.is_none() || a != b || x.sub != y.sub {
        return Err(refused());
    }
    Ok(())
}

/// The letters of the register files that a class takes its members from.
pub fn files(class: &RegisterClass) -> Vec<char> {
    let width = (class.bits / 32).max(1);
    let half = if class.bits == 16 { "_lo16" } else { "" };
    let is_in = |prefix: &&str| {
        let name: Vec<String> = (0..width).map(|n| format!("{prefix}{n}")).collect();
        let register = tables().register(&format!("{}{half}", name.join("_")));
        register.is_some_and(|register| tables().contains(class, &register))
    };
    ["vgpr", "agpr", "sgpr"].iter().filter(|p| is_in(p)).filter_map(|p| p.chars().next()).collect()
}

const LAST: u16 = Flags::DEAD.0 | Flags::KILLED.0;

/// An operand says of a register outside the numbered files that nobody reads it again: passes behind would believe it,
/// though nobody asks whether it is so (spec 11).
pub fn last_of_special(context: &Context<'_>, q: Code<'_>, operand: &Operand) -> bool {
    let last = operand.is_physical() && operand.flags.0 & LAST != 0;
    let lanes = if last { context.after.lanes(q, operand).unwrap_or_default() } else { Vec::new() };
    lanes.iter().any(|lane| is_special(*lane))
}

/// Neither in a numbered file nor VCC or SCC.
pub fn is_special(lane: Lane) -> bool {
    lane.of == Of::Unit && lane.a > VCC[3] && !is_scc(lane)
}

/// A virtual register of P has become the register r.
fn assigned(
    context: &Context<'_>, q: Code<'_>, number: usize, (x, m): (&Operand, u32), y: &Operand, lanes: &[Lane],
) -> Result<(), Refused> {
    let named = |rule, what: &str| q.refused(rule, format!("operand {number}: `{}` is `{}`, {what},", x.text, y.text));
    let (Some(row), Some(r)) = (context.before.virtual_register(m), context.after.register(&y.register)) else {
        return Err(named("register-class", "which is no register"));
    };
    if r.units.is_empty() || lanes.is_empty() {
        return Err(named("fixed-register", "which has no storage"));
    }
    // The values are compared too, but no encoding has room for any register of the other file.
    if lanes.iter().any(|lane| lane.vector != row.class.is_vector) {
        return Err(named("register-class", "of another file"));
    }
    if !lanes.iter().all(|lane| context.allocatable(*lane)) {
        return Err(named("reserved-register", "which must not be allocated"));
    }
    let part = if x.sub.is_empty() { (0..row.lanes).collect() } else { tables().lanes(&x.sub).unwrap_or_default() };
    let either = context.processor.has_agprs && q.opcode.numbers("either").contains(&number) && row.class.is_vector;
    let read =
        |class: &'static RegisterClass| if either { tables().either_file(class).unwrap_or(class) } else { class };
    let by_class = tables().contains_part(read(row.class), r, &part);
    let by_row = !x.is_implicit()
        && q.opcode.row(number).is_some_and(|row| {
            let class = tables().register_class(row.class(context.processor.mode));
            class.is_some_and(|class| tables().contains(read(class), r))
        });
    if r.units.len() != part.len() || !(by_class || by_row) {
        return Err(named("register-class", "which its class does not have"));
    }
    Ok(())
}

/// What Q has more than P: an implicit register that says nothing new (spec 5.3).
fn added_operand(context: &Context<'_>, q: Code<'_>, added: &Operand) -> Result<(), Refused> {
    let refused = || q.refused("operands", format!("an added operand `{}`", added.text));
    let odd = Flags::EARLY_CLOBBER.0 | Flags::INTERNAL.0 | Flags::DEBUG_USE.0;
    let plain = added.is_register()
        && added.is_implicit()
        && added.tied.is_none()
        && added.llt.is_empty()
        && added.flags.0 & odd == 0;
    let lanes = context.after.lanes(q, added)?;
    if !plain || lanes.is_empty() || last_of_special(context, q, added) {
        return Err(refused());
    }
    if added.is_def() {
        let fits = added.is_physical() && lanes.iter().all(|lane| context.allocatable(*lane));
        return if fits {
            Ok(())
        } else {
            Err(q.refused("reserved-register", format!("an added definition `{}`", added.text)))
        };
    }
    for other in q.instruction.operands.iter().filter(|o| o.is_register() && !std::ptr::eq(*o, added)) {
        let covered = context.after.lanes(q, other)?;
        let repeats = other.vreg == added.vreg && other.register == added.register && other.sub == added.sub;
        let covers = !other.is_implicit() && !covered.is_empty() && covered.iter().all(|lane| lanes.contains(lane));
        if repeats || covers {
            return Ok(());
        }
    }
    Err(refused())
}

fn ties(context: &Context<'_>, p: Code<'_>, q: Code<'_>) -> Result<(), Refused> {
    for (number, _, _) in assembly_groups(q).into_iter().filter(|(_, _, tied)| *tied) {
        if q.instruction.operands.get(number).is_some_and(|o| o.is_register() && o.tied.is_none()) {
            return Err(q.refused("tied-operand", format!("operand {number} is not its definition")));
        }
    }
    for (number, operand) in q.instruction.operands.iter().enumerate() {
        let text = p.instruction.operands.get(number).and_then(|o| o.tied);
        let table = if operand.is_implicit() { None } else { q.opcode.row(number).and_then(|row| row.tied_to) };
        let class = q.opcode.row(number).map_or("", |row| row.class(context.processor.mode));
        for definition in [operand.tied, text, table.filter(|_| class != "-")].into_iter().flatten() {
            let other = q.instruction.operands.get(definition);
            let same = other.is_some_and(|o| {
                o.is_def() && (o.vreg, &o.register, &o.sub) == (operand.vreg, &operand.register, &operand.sub)
            });
            if !same && operand.is_register() {
                return Err(q.refused("tied-operand", format!("operand {number} is not its definition")));
            }
        }
    }
    Ok(())
}

/// Operands of inline assembly whose group is early-clobber, or tied: the text's number or words say so to LLVM.
fn assembly_groups(q: Code<'_>) -> Vec<(usize, bool, bool)> {
    let operands = &q.instruction.operands;
    let mut all = Vec::new();
    // The text and a number about it come first; then groups: a flag, and as many operands as it says.
    let mut at = if q.has("asm") { 2 } else { operands.len() };
    while let Some(flag) = operands.get(at).filter(|o| !o.is_register()) {
        let digits: String = flag.text.chars().take_while(char::is_ascii_digit).collect();
        let (early, tied, count) = match digits.parse::<u32>() {
            Ok(word) => (word & 7 == 3, word >> 31 == 1, (word >> 3 & 0x1fff) as usize),
            Err(_) => {
                let rest = operands.iter().skip(at + 1);
                let count = rest.take_while(|o| o.kind != Kind::AsmFlag).count();
                (flag.text.contains("-ec"), flag.text.contains("tiedto"), count)
            }
        };
        all.extend((at + 1..).take(count).map(|n| (n, early, tied)));
        at = at.saturating_add(1).saturating_add(count);
    }
    all
}

/// Whether a definition writes before all uses are read.
fn is_early(q: Code<'_>, number: usize, operand: &Operand) -> bool {
    let row = !operand.is_implicit() && q.opcode.row(number).is_some_and(|row| row.early_clobber);
    let table = row || assembly_groups(q).iter().any(|(n, early, _)| *n == number && *early);
    operand.is_def() && (table || operand.flags.has(Flags::EARLY_CLOBBER))
}

fn overlaps(context: &Context<'_>, q: Code<'_>) -> Result<(), Refused> {
    let mut written: Vec<Lane> = Vec::new();
    for (number, operand) in q.instruction.operands.iter().enumerate() {
        if operand.is_def() && (!operand.is_implicit() || is_early(q, number, operand)) {
            for lane in context.after.lanes(q, operand)? {
                if written.contains(&lane) {
                    return Err(q.refused("overlapping-definitions", format!("{lane} is written twice")));
                }
                written.push(lane);
            }
        }
    }
    Ok(())
}

/// No use that is compared reads what an early-clobber definition writes (spec 5.6).
pub fn early_clobbers(
    context: &Context<'_>, p: Code<'_>, q: Code<'_>, skip: &[(usize, usize)], is_undefined: impl Fn(Lane) -> bool,
) -> Result<(), Refused> {
    for (number, definition) in q.instruction.operands.iter().enumerate().filter(|(n, o)| is_early(q, *n, o)) {
        let written = context.after.lanes(q, definition)?;
        let by_p = p.instruction.operands.get(number).map_or(Ok(Vec::new()), |o| context.before.lanes(p, o))?;
        for (at, (x, y)) in p.instruction.operands.iter().zip(&q.instruction.operands).enumerate() {
            let table = if y.is_implicit() { None } else { q.opcode.row(at).and_then(|row| row.tied_to) };
            let tied = y.tied == Some(number) || table == Some(number);
            if !x.reads() || tied {
                continue;
            }
            let lanes = context.before.lanes(p, x)?.into_iter().zip(context.after.lanes(q, y)?).enumerate();
            for (k, (name, place)) in lanes {
                // Where P reads what it overwrites, Q does.
                let both = by_p.iter().zip(&written).any(|pair| pair == (&name, &place));
                if written.contains(&place) && !both && !is_undefined(name) && !skip.contains(&(at, k)) {
                    return Err(q.refused("early-clobber", format!("operand {at} is overwritten by operand {number}")));
                }
            }
        }
    }
    Ok(())
}

/// C and D of a matrix instruction lie in the file that its opcode demands (spec 5.9).
fn matrix_files(context: &Context<'_>, p: Code<'_>, q: Code<'_>) -> Result<(), Refused> {
    let named = context.after.gather(q, |o| q.has("asm") && o.is_physical())?;
    if named.iter().any(|lane| (512..4096).contains(&lane.a)) {
        return Err(q.refused("register-class", "a register that assembly cannot name"));
    }
    let (wanted, other) = match q.opcode.value("file") {
        "v" => ("v", 'a'),
        "a" => ("a", 'v'),
        _ => return Ok(()),
    };
    if !context.processor.has_agprs {
        return Ok(());
    }
    for operand in [0, 3].iter().filter_map(|n| q.instruction.operands.get(*n)).filter(|o| o.is_register()) {
        let wrong = match operand.vreg {
            None => context.after.register(&operand.register).is_some_and(|r| r.file.to_string() != wanted),
            Some(number) => {
                let unchanged = p.instruction.opcode == q.instruction.opcode;
                let class = context.after.virtual_register(number).map(|row| files(row.class));
                !unchanged && class.is_none_or(|files| files.contains(&other))
            }
        };
        if wrong {
            return Err(
                q.refused("register-class", format!("`{}` is not of the file that the opcode demands", operand.text))
            );
        }
    }
    Ok(())
}

/// Lanes that an instruction of P does not read: operand and position (spec 5.11). The second list: the upper half of what
/// a wide product adds, which matters to the upper half of the result only.
pub fn unread(context: &Context<'_>, p: Code<'_>) -> Result<[Vec<(usize, usize)>; 2], Refused> {
    let operands = &p.instruction.operands;
    let first = p.instruction.definitions;
    let mut unread = Vec::new();
    let uses = |(_, o): &(usize, &Operand)| o.is_use() && !o.is_implicit();
    for (number, operand) in operands.iter().enumerate().filter(uses) {
        let modifiers = number.checked_sub(1).filter(|before| *before >= first).and_then(|before| operands.get(before));
        let Some(modifiers) = modifiers.filter(|o| o.kind == Kind::Immediate).and_then(|o| o.text.parse::<u32>().ok())
        else {
            continue;
        };
        let lanes = context.before.lanes(p, operand)?;
        if lanes.iter().any(|lane| !lane.vector) {
            continue;
        }
        let (low, high) = (modifiers & 4 != 0, modifiers & 8 != 0);
        let half = lanes.len() / 2;
        if p.has("packed-f32") && lanes.len() % 2 == 0 {
            let needed = |at: usize| if at < half { !(low && high) } else { low || high };
            unread.extend((0..lanes.len()).filter(|at| !needed(*at)).map(|at| (number, at)));
        }
        if p.has("mixed") && lanes.len() == 2 && high && matches!(number - first, 1 | 3 | 5) {
            unread.push((number, usize::from(!low)));
        }
    }
    let right = |n: usize| operands.get(first + n);
    let plain = right(3).is_some_and(|o| o.kind == Kind::Immediate && o.text == "0");
    let added = right(2).filter(|o| o.reads() && p.has("wide-mad") && plain);
    let lanes = added.map_or(Ok(Vec::new()), |operand| context.before.lanes(p, operand))?;
    let upper = if lanes.iter().all(|lane| lane.vector) { lanes.len() / 2..lanes.len() } else { 0..0 };
    Ok([unread, upper.map(|at| (first + 2, at)).collect()])
}

/// Whether an operand relates to where the instruction stands (spec 8.1).
fn is_relative(operand: &Operand) -> bool {
    operand.text.contains("rel32") || operand.text.contains("rel64") || operand.kind == Kind::Block
}

/// Whether an instruction of P may be left out or repeated (spec 8.1).
pub fn is_pure(context: &Context<'_>, code: Code<'_>) -> Result<bool, Refused> {
    let instruction = code.instruction;
    let invariant = code.has("scalar-load")
        && !instruction.memory.is_empty()
        && instruction
            .memory
            .iter()
            .all(|m| m.invariant && (m.dereferenceable || m.address_space == 4) && !m.volatile && !m.atomic);
    let by_opcode = (code.has("pure") || code.has("pure-exec")) && instruction.memory.is_empty();
    let outside = instruction.in_bundle || instruction.opens_bundle || instruction.closes_bundle;
    let raises = code.has("may-raise") && !instruction.flags.contains("nofpexcept");
    let located = instruction.tail.iter().all(|t| is_location(t));
    if !(invariant || by_opcode) || outside || raises || !located || instruction.definitions != 1 {
        return Ok(false);
    }
    for operand in &instruction.operands {
        if is_relative(operand) && !code.has("relative") {
            return Ok(false);
        }
        let Some(register) = context.before.register(&operand.register).filter(|_| operand.is_physical()) else {
            continue;
        };
        let special = register.file == 'x' && !matches!(operand.register.as_str(), "scc" | "vcc" | "vcc_lo" | "vcc_hi");
        let changing = register.is_marked("changes") || register.is_marked("alias");
        if (operand.is_def() && special) || (operand.is_use() && changing) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an instruction of P may be left out because it only loads (spec 8.1).
pub fn is_plain_load(code: Code<'_>) -> bool {
    let memory = &code.instruction.memory;
    code.has("plain-load") && !memory.is_empty() && memory.iter().all(|m| !m.volatile && !m.atomic)
}

/// Whether a lane belongs to EXEC.
pub fn is_exec(lane: Lane) -> bool {
    lane.of == crate::lanes::Of::Unit && EXEC.contains(&lane.a)
}

/// Whether a lane is SCC.
pub fn is_scc(lane: Lane) -> bool {
    lane.of == crate::lanes::Of::Unit && lane.a == SCC
}
