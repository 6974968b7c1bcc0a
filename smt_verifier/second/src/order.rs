//! The instructions of blocks in another order (spec 16).

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::{is_obscure, USAGE};
use crate::forms::counts_accesses;
use crate::header::registers_in;
use crate::model::{ensure, need, Block, Done, Function, Instruction, Kind, MemoryOperand, Operand, Refused};
use crate::model::{DEF, KILLED};
use crate::tables::{canonical, tables, Register};
use crate::text;

const STAYS: [&str; 21] = [
    "terminator", "branch", "indirect-branch", "return", "returns", "call", "barrier", "trap", "asm", "asm-goto",
    "side-effects", "frame-adjust", "generic", "setreg", "sets-mode", "indexed-on", "indexed-off", "indexed-mode",
    "vskip", "vgpr-msb", "enter-wwm",
];
const VIRTUAL: u64 = 1 << 40;

/// Check that a function of `after` is that of `before` in the order of the certificate. How many instructions stand
/// elsewhere.
///
/// # Errors
/// The rule that does not hold, or `usage` for an unknown processor or function.
pub fn check(before: &str, after: &str, certificate: &str, cpu: &str, name: Option<&str>) -> Done<usize> {
    ensure!(tables().processor(cpu).is_some(), USAGE, "", "unknown processor `{cpu}`");
    let (p, q) = (text::read(before)?, text::read(after)?);
    let one = |functions: Vec<Function>| {
        let mut found: Vec<Function> =
            functions.into_iter().filter(|function| name.is_none_or(|name| function.name == name)).collect();
        let only = found.pop().filter(|_| found.is_empty());
        Ok(need!(only, USAGE, "", "name one function of both texts with --function=NAME"))
    };
    let modules = p.module == q.module;
    let is_obscure = is_obscure(&p);
    let (old, new) = (one(p.functions)?, one(q.functions)?);
    ensure!(modules && same_head(&old, &new), "order", "", "more than the order of instructions differs");
    let orders = read(certificate, &old)?;
    let (mut moved, frame, counted) = (0, frame(&old), counts_accesses(&old, is_obscure));
    for (number, (a, b)) in old.blocks.iter().zip(&new.blocks).enumerate() {
        ensure!(same_block(a, b), "order", a.line, "more than the order of instructions differs");
        moved += check_block(&items(a, &frame), &items(b, &frame), orders.get(&number), counted)?;
    }
    Ok(moved)
}

/// Registers that a stack object may be addressed by (16.4).
fn frame(function: &Function) -> BTreeSet<u64> {
    let own = ["frameOffsetReg", "scratchRSrcReg", "stackPtrOffsetReg"];
    let own = own.into_iter().flat_map(|key| registers_in(function, key));
    own.chain(["sgpr32", "sgpr33", "sgpr34", "flat_scr"].map(String::from))
        .flat_map(|name| units(tables().register(&name)))
        .collect()
}

fn same_head(a: &Function, b: &Function) -> bool {
    let registers = a.registers.len() == b.registers.len()
        && a.registers
            .iter()
            .zip(&b.registers)
            .all(|((m, x), (n, y))| m == n && x.class.name == y.class.name && x.whole_wave == y.whole_wave);
    registers
        && a.name == b.name
        && a.fields == b.fields
        && a.liveins == b.liveins
        && a.fixed_stack == b.fixed_stack
        && a.stack == b.stack
        && a.blocks.len() == b.blocks.len()
}

fn same_block(a: &Block, b: &Block) -> bool {
    let liveins = |block: &Block| block.liveins.iter().map(|(r, mask)| (r.name.clone(), *mask)).collect::<Vec<_>>();
    a.number == b.number && a.attributes == b.attributes && a.successors == b.successors && liveins(a) == liveins(b)
}

/// By the position of a block: where the items of Q stand in P (16.1).
fn read(certificate: &str, function: &Function) -> Done<BTreeMap<usize, Vec<usize>>> {
    let wrong = |line: &str| Refused::new("order", format!("not a line of such a certificate: `{line}`"), "");
    let body = certificate.strip_prefix(&format!("verilocc-order 1\nfunction {}\n", function.name));
    let body = body.and_then(|body| body.strip_suffix("end\n"));
    let body = need!(body, "order", "", "not a certificate of an order of this function");
    let mut orders = BTreeMap::new();
    for line in body.split_terminator('\n') {
        let mut words = line.split(' ');
        let block = words.next().filter(|word| *word == "block").and_then(|_| canonical(words.next()?));
        let block = block.ok_or_else(|| wrong(line))? as usize;
        let mut order = Vec::new();
        for run in words {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let ends = canonical(first).zip(canonical(last)).filter(|(a, b)| a < b || a == b && !run.contains('-'));
            let (first, last) = ends.ok_or_else(|| wrong(line))?;
            let here = function.blocks.get(block).map_or(0, |block| block.instructions.len());
            ensure!((last as usize) < here, "order", "", "not a block, or not an instruction of it, in `{line}`");
            order.extend(first as usize..=last as usize);
            ensure!(order.len() <= here, "order", "", "not each instruction once in `{line}`");
        }
        let is_new = !order.is_empty() && orders.insert(block, order).is_none();
        ensure!(is_new, "order", "", "a block without instructions, or a second time, in `{line}`");
    }
    Ok(orders)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Read,
    Write,
    /// Both, or the value dies there.
    Both,
    /// A write of SCC that another write follows.
    Unread,
}

/// What moves as one: an instruction, or a bundle.
struct Item<'a> {
    instructions: Vec<&'a Instruction>,
    stays: bool,
    accesses: BTreeMap<u64, Access>,
    memory: Vec<Memory<'a>>,
    /// It may access memory of which its memory operands say nothing.
    anywhere: bool,
}

fn items<'a>(block: &'a Block, frame: &BTreeSet<u64>) -> Vec<Item<'a>> {
    let mut groups: Vec<Vec<&Instruction>> = Vec::new();
    for i in &block.instructions {
        match groups.last_mut() {
            Some(group) if i.bundle[0] => group.push(i),
            _ => groups.push(vec![i]),
        }
    }
    groups.into_iter().map(|group| item(group, frame)).collect()
}

fn item<'a>(instructions: Vec<&'a Instruction>, frame: &BTreeSet<u64>) -> Item<'a> {
    let mut accesses = BTreeMap::new();
    let mut note = |registers: BTreeSet<u64>, access| {
        for register in registers {
            let known = accesses.entry(register).or_insert(access);
            *known = if *known == access { access } else { Access::Both };
        }
    };
    for i in &instructions {
        for o in i.operands.iter().filter(|o| o.is_register()) {
            let access = match (o.is(DEF), o.sub.is_empty(), o.is(KILLED)) {
                (true, true, _) => Access::Write,
                (true, false, _) | (false, _, true) => Access::Both,
                (false, _, false) => Access::Read,
            };
            note(o.vreg.map_or_else(|| units(o.register), |number| [VIRTUAL + u64::from(number)].into()), access);
        }
        if i.operands.iter().any(|o| matches!(o.kind, Kind::FrameIndex | Kind::FixedFrame)) {
            note(frame.clone(), Access::Read);
        }
        // A copy reads EXEC and does not say so; then what LLVM's table says of every such instruction.
        note(units(tables().register("exec")), Access::Read);
        let implicit = [(&i.opcode.implicit_uses, Access::Read), (&i.opcode.implicit_definitions, Access::Write)];
        for (names, access) in implicit {
            names.iter().for_each(|name| note(units(tables().register(name)), access));
        }
    }
    Item {
        stays: instructions.iter().any(|i| stays(i)),
        memory: instructions.iter().flat_map(|i| accesses_of(i)).collect(),
        anywhere: instructions.iter().any(|i| is_anywhere(i)),
        accesses,
        instructions,
    }
}

/// Of the numbered files, registers of 32 bits; else units (16.4).
fn units(register: Option<&Register>) -> BTreeSet<u64> {
    let halves = |r: &Register| u32::from(r.file != 'x');
    register.iter().flat_map(|r| r.units.iter().map(|unit| u64::from(unit & !halves(r)))).collect()
}

/// It does or reads more than its operands say, or it says where in the code something is (16.3).
fn stays(i: &Instruction) -> bool {
    let shows_other = |o: &Operand| {
        o.register.is_some_and(|r| r.is_marked("alias") || r.is_marked("changes") && r.name != "scc")
            || o.is_register() && o.register.is_none() && o.vreg.is_none()
    };
    // It writes nothing, so that it is there for something else.
    let defines = i.defined().next().is_some() || !i.opcode.implicit_definitions.is_empty();
    let without_effect = !defines && !["may-load", "may-store", "no-code"].iter().any(|word| i.has(word));
    without_effect
        || STAYS.iter().any(|word| i.has(word))
        || i.has("indirect") && !(i.has("reach=writes") && i.opcode.definitions > 0)
        || i.has("meta") && !i.has("no-code")
        || i.has("relative") && i.operands.iter().any(|o| !o.is_register() && o.kind != Kind::Immediate)
        || i.operands.iter().any(Operand::is_relative)
        || i.flags.iter().any(|flag| ["frame-setup", "frame-destroy", "bb-prolog"].contains(&flag.as_str()))
        || i.tail.iter().any(|text| !text.starts_with("mmra ") && !text.starts_with("debug-"))
        || i.memory.iter().any(|memory| memory.volatile || memory.atomic)
        || i.operands.iter().any(|o| o.kind == Kind::RegMask || shows_other(o))
}

fn is_anywhere(i: &Instruction) -> bool {
    let memory: Vec<Memory<'_>> = i.memory.iter().map(Memory::of).collect();
    i.has("may-load") && !memory.iter().any(|m| m.loads) || i.has("may-store") && !memory.iter().any(|m| m.stores)
}

/// What it accesses. What it both loads and stores goes to LDS, for each thread of the wave to a place of its own: its
/// operands do not say how far (16.5).
fn accesses_of(i: &Instruction) -> Vec<Memory<'_>> {
    let mut all: Vec<Memory<'_>> = i.memory.iter().map(Memory::of).collect();
    if all.iter().any(|m| m.loads) && all.iter().any(|m| m.stores) {
        all.iter_mut().for_each(|m| m.bytes = None);
    }
    all
}

/// The offset of an access, and its alignment: without a word its own size, if that is known (spec 5.6).
pub fn placed(operand: &MemoryOperand) -> (i64, u64) {
    let Some((start, end)) = Memory::of(operand).bytes else { return (0, 0) };
    let own = end.saturating_sub(start);
    (start, operand.align.unwrap_or((own & own.wrapping_neg()).unsigned_abs()))
}

/// What a memory operand says of an access.
struct Memory<'a> {
    loads: bool,
    stores: bool,
    invariant: bool,
    space: u64,
    /// `%ir.NAME`, `%stack.N`, …, or nothing; and the bytes from there, if they are known.
    pointer: &'a str,
    bytes: Option<(i64, i64)>,
}

impl<'a> Memory<'a> {
    fn of(operand: &'a MemoryOperand) -> Self {
        let text = operand.text.trim_start_matches('(');
        let flag = |word: &&str| {
            word.starts_with('"') || ["volatile", "non-temporal", "dereferenceable", "invariant"].contains(word)
        };
        let flags: usize = text.split(' ').take_while(flag).map(|word| word.len() + 1).sum();
        let rest = text.get(flags..).unwrap_or("");
        let (loads, rest) = rest.strip_prefix("load ").map_or((false, rest), |rest| (true, rest));
        let (stores, rest) = rest.strip_prefix("store ").map_or((false, rest), |rest| (true, rest));
        let (size, rest) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((kind, rest)) => (bytes_of(kind), rest),
            None => rest
                .split_at_checked(rest.find([' ', ',', ')']).unwrap_or(rest.len()))
                .map_or((None, ""), |(n, rest)| (canonical(n).map(i64::from), rest)),
        };
        let place = [" from ", " into ", " on "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or("");
        let is_quoted = place.starts_with("%ir.\"");
        let end = if is_quoted {
            place.get(5..).and_then(|p| p.find('"')).map(|at| at + 6)
        } else {
            place.find([' ', ',', ')'])
        };
        let (pointer, rest) = place.split_at_checked(end.unwrap_or(place.len())).unwrap_or((place, ""));
        let digits = |rest: &str| rest.split([',', ')']).next().and_then(|digits| digits.parse::<i64>().ok());
        let offset = match (rest.strip_prefix(" + "), rest.strip_prefix(" - ")) {
            (Some(rest), _) => digits(rest),
            (_, Some(rest)) => digits(rest).map(|offset| -offset),
            _ => Some(0),
        };
        let bytes = size
            .filter(|size| *size > 0)
            .zip(offset)
            .and_then(|(size, offset)| Some((offset, offset.checked_add(size)?)));
        Memory { loads, stores, invariant: operand.invariant && !stores, space: operand.address_space, pointer, bytes }
    }

    fn is_stack(&self) -> bool {
        self.pointer.starts_with("%stack.")
    }

    /// Whether one access may change what the other one accesses (16.5, 16.7). What other threads see is settled by what
    /// stays (16.6).
    fn shares(&self, other: &Self) -> bool {
        if !(self.stores || other.stores) || self.invariant || other.invariant {
            return false;
        }
        if self.space != other.space {
            let own = |space: u64| space == 3 || space == 5;
            let known = |space: u64| [1, 3, 4, 5, 7, 8].contains(&space);
            return !(known(self.space) && known(other.space) && (own(self.space) || own(other.space)));
        }
        let number = |pointer: &'_ str| pointer.split('.').nth(1).map(str::to_string);
        if self.is_stack() && other.is_stack() && number(self.pointer) != number(other.pointer) {
            return false;
        }
        let known = ["%ir.", "%stack.", "%fixed-stack."].iter().any(|word| self.pointer.starts_with(word));
        match (self.bytes, other.bytes) {
            (Some((a, b)), Some((c, d))) if known && self.pointer == other.pointer => a < d && c < b,
            _ => true,
        }
    }
}

/// Bytes of a low-level type; None where it does not say, as a pointer's does not.
fn bytes_of(kind: &str) -> Option<i64> {
    let (lanes, scalar) = match kind.strip_prefix('<') {
        Some(vector) => vector.strip_suffix('>')?.split_once(" x ").and_then(|(n, one)| Some((canonical(n)?, one)))?,
        None => (1, kind),
    };
    let bits = i64::from(lanes) * i64::from(canonical(scalar.strip_prefix('s')?)?);
    Some((bits + 7) / 8)
}

/// `counted`: accesses to memory are (16.5).
fn check_block(p: &[Item<'_>], q: &[Item<'_>], order: Option<&Vec<usize>>, counted: bool) -> Done<usize> {
    let order = order.cloned().unwrap_or_else(|| (0..p.len()).collect());
    let once: BTreeSet<usize> = order.iter().copied().filter(|of| *of < p.len()).collect();
    let each = order.len() == p.len() && q.len() == p.len() && once.len() == p.len();
    ensure!(each, "order", "", "not each instruction once");
    // Flags count as Q has them: what P says beyond that need not be so any more.
    let mut items: Vec<Option<&Item<'_>>> = vec![None; p.len()];
    for (new, of) in q.iter().zip(&order) {
        let old = &p[*of];
        let same = old.instructions.len() == new.instructions.len()
            && old.instructions.iter().zip(&new.instructions).all(|(a, b)| say_the_same(a, b));
        ensure!(same, "order", new.instructions[0], "another instruction");
        items[*of] = Some(new);
    }
    let items: Vec<&Item<'_>> = items.into_iter().flatten().collect();
    let mut highest = None;
    for (at, of) in order.iter().enumerate() {
        let fits = !items[*of].stays || at == *of && highest.is_none_or(|highest| highest < *of);
        ensure!(fits, "order-stays", items[*of].instructions[0], "something passes it,");
        highest = highest.max(Some(*of));
    }
    check_registers(&items, &order)?;
    check_memory(&items, &order, counted)?;
    let moved = order.iter().enumerate().filter(|(at, of)| at != *of).count();
    for i in items.iter().flat_map(|item| item.instructions.iter()).filter(|_| moved > 0) {
        ensure!(!may_reuse(i), "order-stays", *i, "it may take a matrix of the one before it,");
    }
    Ok(moved)
}

/// A matrix operation that says something behind its sources: it may be that a matrix is that of the one before it.
fn may_reuse(i: &Instruction) -> bool {
    let is_matrix = ["V_WMMA_", "V_SWMMAC_"].iter().any(|word| i.name.starts_with(word));
    let mut rows = (0..i.opcode.operands.len()).rev();
    let last = rows.find(|k| i.opcode.row(*k).is_some_and(|row| row.kind.starts_with("register")));
    is_matrix && i.explicit().skip(last.map_or(0, |last| last + 1)).any(|o| o.text != "0")
}

/// The same but for debug locations, and deaths of registers of which Q, `b`, says nothing (16.2).
fn say_the_same(a: &Instruction, b: &Instruction) -> bool {
    let tail = |i: &Instruction| i.tail.iter().filter(|text| !text.starts_with("debug-")).cloned().collect::<Vec<_>>();
    let operand = |x: &Operand, y: &Operand| {
        x.kind == y.kind
            && x.text == y.text
            && x.same_register(y)
            && (&x.class, &x.llt, x.tied, x.number) == (&y.class, &y.llt, y.tied, y.number)
            && x.flags & !(KILLED & !y.flags) == y.flags
    };
    a.name == b.name
        && a.definitions == b.definitions
        && a.flags == b.flags
        && a.bundle == b.bundle
        && tail(a) == tail(b)
        && a.operands.len() == b.operands.len()
        && a.operands.iter().zip(&b.operands).all(|(x, y)| operand(x, y))
        && a.memory.iter().map(|m| &m.text).eq(b.memory.iter().map(|m| &m.text))
}

type Groups = Vec<(Access, BTreeSet<usize>)>;

/// By register: its accesses in an order, neighbouring reads as one, and of SCC neighbouring writes that nobody reads.
fn groups(items: &[&Item<'_>], order: impl Iterator<Item = usize>) -> BTreeMap<u64, Groups> {
    let scc = tables().register("scc").and_then(|scc| scc.units.first()).map(|unit| u64::from(*unit));
    let mut rows: BTreeMap<u64, Vec<(Access, usize)>> = BTreeMap::new();
    for of in order {
        for (register, access) in &items[of].accesses {
            rows.entry(*register).or_default().push((*access, of));
        }
    }
    let group = |(register, row): (u64, Vec<(Access, usize)>)| {
        let mut found: Groups = Vec::new();
        for (at, (access, of)) in row.iter().enumerate() {
            let again = row.get(at + 1).is_some_and(|(next, _)| *next == Access::Write);
            let is_unread = Some(register) == scc && *access == Access::Write && again;
            let access = if is_unread { Access::Unread } else { *access };
            match found.last_mut() {
                Some((last, of_group)) if *last == access && matches!(access, Access::Read | Access::Unread) => {
                    of_group.insert(*of);
                }
                _ => found.push((access, [*of].into())),
            }
        }
        (register, found)
    };
    rows.into_iter().map(group).collect()
}

fn check_registers(items: &[&Item<'_>], order: &[usize]) -> Done {
    let (given, now) = (groups(items, 0..items.len()), groups(items, order.iter().copied()));
    for (register, old) in &given {
        let new = now.get(register).map_or(&[][..], Vec::as_slice);
        if let Some((_, group)) = old.iter().zip(new).find(|(a, b)| a != b).map(|(a, _)| a) {
            let i = items[*group.first().unwrap_or(&0)].instructions[0];
            return Err(Refused::new("order-registers", "accesses to a register in another order", i));
        }
        ensure!(old.len() == new.len(), "order-registers", "", "accesses to a register in another order");
    }
    Ok(())
}

fn check_memory(items: &[&Item<'_>], order: &[usize], counted: bool) -> Done {
    // What is counted like an access to memory, whether or not it is one.
    let is_like = |i: &Instruction| ["DS_", "EXP", "IMAGE_", "LDS_"].iter().any(|word| i.name.starts_with(word));
    let counts = |item: &Item<'_>| counted && item.instructions.iter().any(|i| is_like(i));
    let mut waiting: BTreeSet<usize> = (0..items.len())
        .filter(|of| items[*of].anywhere || !items[*of].memory.is_empty() || counts(items[*of]))
        .collect();
    for of in order {
        if !waiting.remove(of) {
            continue;
        }
        for passed in waiting.range(..of) {
            let (a, b) = (items[*passed], items[*of]);
            let meet =
                counted || a.anywhere || b.anywhere || a.memory.iter().any(|m| b.memory.iter().any(|n| m.shares(n)));
            ensure!(!meet, "order-memory", b.instructions[0], "it passes another access to the same memory,");
        }
    }
    Ok(())
}
