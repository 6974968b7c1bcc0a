//! Q as LLVM's MachineCopyPropagation leaves it (spec 10.13), which runs before most of the passes behind the phase.

use std::collections::BTreeSet;

use crate::context::used;
use crate::joined::live;
use crate::lanes::{Lane, Map, Set};
use crate::limits::Limits;
use crate::model::*;
use crate::tables::{tables, Processor, Register, RegisterClass};

/// What becomes of Q.
#[derive(Default)]
pub struct Propagated {
    /// Q once the pass has run in LLVM's blocks, and again where they are joined; left out where nothing changes.
    pub texts: Vec<Function>,
    /// Lines of copies that are gone because they stand already, and of those that nothing reads.
    pub again: Set<usize>,
    pub dead: Set<usize>,
}

impl Propagated {
    pub fn of(after: &Function, processor: &Processor, limits: &Limits, coarse: bool) -> Self {
        let mut all = Propagated::default();
        for joined in [false, true] {
            let text = all.texts.last().unwrap_or(after);
            // BranchFolder works out anew what some blocks declare.
            let live = joined.then(|| live(&text.blocks));
            let target = Target { text, processor, limits, coarse, live, defined: defined_units(text, processor) };
            let mut blocks = Vec::new();
            let mut changed = false;
            for block in &text.blocks {
                let (rows, joints) = target.block(block, joined);
                changed |= rows.iter().any(|row| row.changed || row.gone != Gone::Stays);
                for row in &rows {
                    match row.gone {
                        Gone::Again => drop(all.again.insert(row.i.line)),
                        Gone::Dead => drop(all.dead.insert(row.i.line)),
                        _ => {}
                    }
                }
                let instructions = rows.into_iter().filter(|row| row.gone == Gone::Stays).map(|row| row.i).collect();
                let (number, line, last) = (block.number, block.line, block.last);
                let (attributes, successors) = (block.attributes.clone(), block.successors.clone());
                let liveins = block.liveins.clone();
                blocks.push(Block { number, attributes, successors, liveins, instructions, line, joints, last });
            }
            if changed {
                let head =
                    Function { blocks, name: text.name.clone(), fields: text.fields.clone(), ..Function::default() };
                all.texts.push(Function { stack: text.stack.clone(), line: text.line, ..head });
            }
        }
        all
    }
}

/// Units that some operand defines.
fn defined_units(text: &Function, processor: &Processor) -> Set<u32> {
    let registers = text.instructions().flat_map(|i| i.defined().filter_map(|o| named(i, o, processor)));
    registers.flat_map(|register| &register.units).copied().collect()
}

/// The register that an operand means: an implicit `$vcc` is `$vcc_lo` on wave32. None without storage.
fn named(i: &Instruction, o: &Operand, processor: &Processor) -> Option<&'static Register> {
    let half = processor.wave_size == 32 && o.is(IMPLICIT) && o.names("vcc") && !i.has("asm");
    let register = if half { tables().register("vcc_lo") } else { o.register };
    register.filter(|register| !register.units.is_empty())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    Stays,
    Again,
    Dead,
    /// Another instruction writes its target.
    Written,
}

struct Row {
    i: Instruction,
    gone: Gone,
    changed: bool,
}

impl Row {
    fn is_tied(&self, number: usize) -> bool {
        let tied = |o: &Operand| [o.tied, o.table.and_then(|row| row.tied_to)];
        let to = |o: &Operand| tied(o).contains(&Some(number));
        tied(&self.i.operands[number]) != [None, None] || self.i.operands.iter().any(to)
    }
}

struct Target<'a> {
    text: &'a Function,
    processor: &'a Processor,
    limits: &'a Limits,
    coarse: bool,
    /// What is read on some path before it is written, if that counts.
    live: Option<Vec<Set<u32>>>,
    defined: Set<u32>,
}

/// A copy: its row, its registers, whether a call behind it changes one, and rows that read its source before it.
struct Copy {
    at: usize,
    to: &'static Register,
    of: &'static Register,
    called: bool,
    readers: Vec<usize>,
}

fn overlap(a: &Register, b: &Register) -> bool {
    a.units.iter().any(|unit| b.units.contains(unit))
}

/// Where a register's units begin among those of another one that has them all.
fn place(part: &Register, whole: &Register) -> Option<usize> {
    let start = whole.units.iter().position(|unit| *unit == part.units[0])?;
    whole.units[start..].starts_with(&part.units).then_some(start)
}

/// A register mask: whether a register is kept (a tuple, if it is named), and units that are.
struct Kept {
    names: Option<BTreeSet<String>>,
    units: BTreeSet<u32>,
}

impl Kept {
    fn of(text: &str) -> Kept {
        let Some(listed) = text.strip_prefix("CustomRegMask(") else {
            return Kept { names: None, units: tables().mask(text).unwrap_or_default() };
        };
        let names = listed.trim_end_matches(')').split(',').filter_map(|name| name.strip_prefix('$'));
        let names: BTreeSet<String> = names.map(str::to_string).collect();
        let registers = names.iter().filter_map(|name| tables().register(name));
        Kept { units: registers.flat_map(|register| register.units.iter().copied()).collect(), names: Some(names) }
    }

    fn keeps(&self, register: &Register) -> bool {
        match &self.names {
            Some(names) => names.contains(&register.name),
            None => register.units.iter().all(|unit| self.units.contains(unit)),
        }
    }
}

impl Target<'_> {
    /// The instructions of a block, and where others begin in it.
    fn block(&self, block: &Block, joined: bool) -> (Vec<Row>, Vec<(usize, usize)>) {
        let row = |i: &Instruction| Row { i: i.clone(), gone: Gone::Stays, changed: false };
        let mut rows: Vec<Row> = block.instructions.iter().map(row).collect();
        let mut starts: Vec<usize> = block.joints.iter().map(|(start, _)| *start).filter(|_| !joined).collect();
        starts.insert(0, 0);
        for (n, start) in starts.iter().enumerate() {
            let end = starts.get(n + 1).copied().unwrap_or(rows.len());
            let next = match block.joints.get(n).filter(|_| !joined) {
                Some((_, part)) => vec![*part],
                None => block.successors.clone(),
            };
            let part = &mut rows[*start..end];
            if part.iter().any(|row| row.i.has("copy") && !row.i.bundle[0]) {
                self.backwards(part);
                self.forwards(part, &next);
            }
        }
        let left = |start: usize| rows[..start].iter().filter(|row| row.gone == Gone::Stays).count();
        let joints = block.joints.iter().map(|(start, part)| (left(*start), *part)).collect();
        (rows, joints)
    }

    fn register(&self, i: &Instruction, o: &Operand) -> Option<&'static Register> {
        named(i, o, self.processor)
    }

    /// The registers that a copy writes and reads.
    fn ends(&self, i: &Instruction) -> Option<(&'static Register, &'static Register)> {
        match &i.operands[..] {
            [to, of, ..] if i.has("copy") => Some((self.register(i, to)?, self.register(i, of)?)),
            _ => None,
        }
    }

    fn is_reserved(&self, register: &Register) -> bool {
        register.name != "scc" && !register.units.iter().all(|unit| self.limits.allocatable.contains(unit))
    }

    /// MachineRegisterInfo::isConstantPhysReg of a reserved register.
    fn is_constant(&self, register: &Register) -> bool {
        register.is_marked("constant") || !register.units.iter().any(|unit| self.defined.contains(unit))
    }

    /// MachineOperand::isRenamable: no use of a vector instruction is (hasExtraSrcRegAllocReq).
    fn is_renamable(i: &Instruction, o: &Operand) -> bool {
        o.is(RENAMABLE) && (o.is_def() || !i.has("valu"))
    }

    /// Whether an operand may be a register (getRegClassConstraint); of assembly, whose classes are LLVM's numbers, if it is
    /// of the same file and width.
    fn suits(&self, i: &Instruction, number: usize, register: &Register) -> bool {
        if i.has("asm") {
            let own = self.register(i, &i.operands[number]);
            return own.is_some_and(|own| own.file == register.file && own.units.len() == register.units.len());
        }
        let class = i.opcode.row(number).and_then(|row| tables().class(row.class(self.processor)));
        class.is_some_and(|class| class.contains(register))
    }

    /// Whether an implicit use overlaps a register, other than one operand (hasImplicitOverlap).
    fn implicit(&self, i: &Instruction, number: Option<usize>, register: &Register) -> bool {
        let uses = i.operands.iter().enumerate().filter(|(n, o)| Some(*n) != number && o.is(IMPLICIT) && o.is_use());
        uses.filter_map(|(_, o)| self.register(i, o)).any(|own| overlap(own, register))
    }

    fn put(&self, row: &mut Row, number: usize, register: &'static Register, flags: u16) {
        let o = &mut row.i.operands[number];
        (o.text, o.register, o.flags) = (format!("${}", register.name), Some(register), flags);
        o.lanes = used(&register.units, self.coarse).into_iter().map(Lane::unit).collect();
        row.changed = true;
    }

    /// What rows read of a register they do not read for the last time (clearRegisterKills).
    fn revive(&self, rows: &mut [Row], register: &Register) {
        for row in rows.iter_mut().filter(|row| row.gone == Gone::Stays) {
            for n in 0..row.i.operands.len() {
                let o = &row.i.operands[n];
                let own = self.register(&row.i, o).filter(|_| o.is_use() && o.is(KILLED));
                if own.is_some_and(|own| overlap(own, register)) {
                    row.i.operands[n].flags &= !KILLED;
                    row.changed = true;
                }
            }
        }
    }

    /// Copies are gone if what wrote their source may write their target (BackwardCopyPropagateBlock).
    fn backwards(&self, rows: &mut [Row]) {
        // No two of these have a register in common.
        let mut copies: Vec<Copy> = Vec::new();
        let forget = |copies: &mut Vec<Copy>, register: &Register| {
            copies.retain(|copy| !overlap(copy.to, register) && !overlap(copy.of, register));
        };
        for at in (0..rows.len()).rev().filter(|at| !rows[*at].i.bundle[0]).collect::<Vec<_>>() {
            let i = &rows[at].i;
            if let Some((to, of)) = self.ends(i).filter(|(to, of)| i.operands.len() == 2 && !overlap(to, of)) {
                let killed = i.operands[1].is(KILLED) && Self::is_renamable(i, &i.operands[1]);
                if killed && !self.is_reserved(to) && !self.is_reserved(of) {
                    forget(&mut copies, of);
                    forget(&mut copies, to);
                    copies.push(Copy { at, to, of, called: false, readers: Vec::new() });
                    continue;
                }
            }
            for register in i.operands.iter().filter(|o| o.is(EARLY_CLOBBER)).filter_map(|o| self.register(i, o)) {
                forget(&mut copies, register);
            }
            for n in 0..rows[at].i.operands.len() {
                self.write_target(rows, at, n, &copies);
            }
            for o in &rows[at].i.operands {
                let Some(register) = self.register(&rows[at].i, o) else { continue };
                if o.is_def() {
                    forget(&mut copies, register);
                } else if o.reads() {
                    match copies.iter_mut().find(|copy| copy.of.name == register.name) {
                        Some(copy) => copy.readers.push(at),
                        None => forget(&mut copies, register),
                    }
                }
            }
        }
    }

    /// Has operand `n` of a row write the target of a copy of what it writes (propagateDefs).
    fn write_target(&self, rows: &mut [Row], at: usize, n: usize, copies: &[Copy]) {
        let i = &rows[at].i;
        let o = &i.operands[n];
        if !o.is_def() || o.is(IMPLICIT) || o.is(UNDEF) || rows[at].is_tied(n) || !o.is(RENAMABLE) {
            return;
        }
        let Some(written) = self.register(i, o) else { return };
        let Some(copy) = copies.iter().find(|copy| copy.of.name == written.name) else { return };
        let called = |row: &Row| {
            let masks = row.i.operands.iter().filter(|o| o.kind == Kind::RegMask).map(|o| Kept::of(&o.text));
            masks.into_iter().any(|kept| !kept.keeps(copy.to) || !kept.keeps(copy.of))
        };
        if rows[at..copy.at].iter().any(called) || !self.suits(i, n, copy.to) || self.implicit(i, Some(n), written) {
            return;
        }
        let others = i.operands.iter().enumerate().filter(|(m, d)| *m != n && d.is_def());
        let reads = |reader: &usize| {
            let i = &rows[*reader].i;
            let uses = i.operands.iter().enumerate().filter(|(_, o)| o.is_use() && o.names(&copy.of.name));
            let may = |(m, o): (usize, &Operand)| {
                !rows[*reader].is_tied(m) && Self::is_renamable(i, o) && self.suits(i, m, copy.to)
            };
            !self.implicit(i, None, copy.of) && uses.into_iter().all(may)
        };
        if others.filter_map(|(_, d)| self.register(i, d)).any(|d| overlap(d, copy.to))
            || !copy.readers.iter().all(reads)
        {
            return;
        }
        let renamable = rows[copy.at].i.operands[0].flags & RENAMABLE;
        let flags = rows[at].i.operands[n].flags & !RENAMABLE | renamable;
        self.put(&mut rows[at], n, copy.to, flags);
        for reader in &copy.readers {
            for m in 0..rows[*reader].i.operands.len() {
                let o = &rows[*reader].i.operands[m];
                if o.is_use() && o.names(&copy.of.name) {
                    let flags = o.flags & !RENAMABLE | renamable;
                    self.put(&mut rows[*reader], m, copy.to, flags);
                }
            }
        }
        rows[copy.at].gone = Gone::Written;
    }

    /// What reads a copy reads its source; copies go that stand already, or that nothing reads (ForwardCopyPropagateBlock).
    fn forwards(&self, rows: &mut [Row], next: &[usize]) {
        let mut known = Known::default();
        for at in 0..rows.len() {
            if rows[at].gone != Gone::Stays || rows[at].i.bundle[0] {
                continue;
            }
            let ends = self.ends(&rows[at].i).filter(|(to, of)| !overlap(to, of));
            if ends
                .is_some_and(|(to, of)| self.stands(rows, &known, at, to, of) || self.stands(rows, &known, at, of, to))
            {
                rows[at].gone = Gone::Again;
                continue;
            }
            for n in 0..rows[at].i.operands.len() {
                let o = &rows[at].i.operands[n];
                if let Some(register) = self.register(&rows[at].i, o).filter(|_| o.is(EARLY_CLOBBER)) {
                    if rows[at].is_tied(n) {
                        known.read(register);
                    }
                    known.clobber(&register.units);
                }
            }
            for n in 0..rows[at].i.operands.len() {
                self.read_source(rows, &known, at, n);
            }
            let i = &rows[at].i;
            let copy = self.ends(i).filter(|(to, of)| !overlap(to, of));
            let number = known.copies.len();
            if let Some((to, of)) = copy {
                known.copies.push(Copy { at, to, of, called: false, readers: Vec::new() });
                if !self.is_reserved(to) {
                    known.unread.insert(number);
                }
            }
            i.operands.iter().filter(|o| o.reads()).filter_map(|o| self.register(i, o)).for_each(|r| known.read(r));
            let masks: Vec<Kept> =
                i.operands.iter().filter(|o| o.kind == Kind::RegMask).map(|o| Kept::of(&o.text)).collect();
            let written = i.operands.iter().filter(|o| o.is_def() && !o.is(EARLY_CLOBBER));
            let written: Vec<&Register> = written.filter_map(|o| self.register(i, o)).collect();
            for kept in masks {
                for gone in known.call(&kept) {
                    rows[gone].gone = Gone::Dead;
                }
            }
            written.into_iter().for_each(|register| known.clobber(&register.units));
            if copy.is_some() {
                known.track(number);
            }
        }
        for block in next {
            let is_live = |unit: u32| {
                self.live
                    .as_ref()
                    .is_none_or(|live| live[*block].contains(&(unit - unit % if self.coarse { 2 } else { 1 })))
            };
            for (register, mask) in &self.text.blocks[*block].liveins {
                for (k, unit) in register.units.iter().enumerate() {
                    if is_live(*unit) && mask.is_none_or(|mask| mask >> k & 1 == 1) {
                        known.read_unit(*unit);
                    }
                }
            }
        }
        if next.is_empty() || self.text.fields.get("tracksRegLiveness").is_some_and(|value| value == "true") {
            for number in &known.unread {
                rows[known.copies[*number].at].gone = Gone::Dead;
            }
        }
    }

    /// Whether a copy from `of` to `to` stands (eraseIfRedundant); then its registers are not read for the last time there.
    fn stands(&self, rows: &mut [Row], known: &Known, at: usize, to: &'static Register, of: &'static Register) -> bool {
        let Some(copy) = known.find(to).filter(|_| !self.is_reserved(to) && !self.is_reserved(of)) else {
            return false;
        };
        let same = to.name == copy.to.name && of.name == copy.of.name;
        let part = || place(of, copy.of).filter(|_| of.units.len() < copy.of.units.len());
        if rows[copy.at].i.operands[0].is(DEAD) || !same && (part().is_none() || part() != place(to, copy.to)) {
            return false;
        }
        let written = self.ends(&rows[at].i).map_or(to, |(written, _)| written);
        self.revive(&mut rows[copy.at..at], written);
        if !rows[at].i.operands[1].is(UNDEF) && rows[copy.at].i.operands[1].is(UNDEF) {
            rows[copy.at].i.operands[1].flags &= !UNDEF;
            rows[copy.at].changed = true;
        }
        true
    }

    /// Has operand `n` of a row read the source of the copy that wrote what it reads (forwardUses).
    fn read_source(&self, rows: &mut [Row], known: &Known, at: usize, n: usize) {
        let i = &rows[at].i;
        let o = &i.operands[n];
        if !o.reads() || o.is(IMPLICIT) || rows[at].is_tied(n) || !Self::is_renamable(i, o) {
            return;
        }
        let Some(read) = self.register(i, o) else { return };
        let Some(copy) = known.find(read) else { return };
        let part = || {
            let start = place(read, copy.to)?;
            tables().named(copy.of.units.get(start..start + read.units.len())?)
        };
        let Some(source) = (if read.name == copy.to.name { Some(copy.of) } else { part() }) else { return };
        let fixed = self.is_reserved(copy.of) && !self.is_constant(copy.of);
        let ends = self.ends(i);
        let suits = match ends {
            Some((to, _)) => in_one_class(to, copy.of),
            None => self.suits(i, n, copy.of),
        };
        let part = ends.is_some_and(|(to, _)| overlap(to, copy.of) && to.name != copy.of.name);
        if fixed || !suits || part || self.implicit(i, Some(n), read) {
            return;
        }
        let flags = o.flags & !(RENAMABLE | UNDEF) | rows[copy.at].i.operands[1].flags & UNDEF;
        self.put(&mut rows[at], n, source, flags);
        self.revive(&mut rows[copy.at..=at], copy.of);
    }
}

/// Whether some class has both registers (isForwardableRegClassCopy).
fn in_one_class(a: &Register, b: &Register) -> bool {
    tables().classes().any(|class: &RegisterClass| class.contains(a) && class.contains(b))
}

/// LLVM's CopyTracker.
#[derive(Default)]
struct Known {
    copies: Vec<Copy>,
    /// The number of the copy that wrote a unit last.
    last: Map<u32, usize>,
    /// Units for which what the copy reads may be read.
    available: Set<u32>,
    /// Where a unit was copied to.
    targets: Map<u32, Vec<&'static Register>>,
    /// Numbers of the copies that nothing has read.
    unread: BTreeSet<usize>,
}

impl Known {
    fn read_unit(&mut self, unit: u32) {
        if let Some(number) = self.last.get(&unit) {
            self.unread.remove(number);
        }
    }

    fn read(&mut self, register: &Register) {
        register.units.iter().for_each(|unit| self.read_unit(*unit));
    }

    fn clobber(&mut self, units: &[u32]) {
        for unit in units {
            for register in self.targets.remove(unit).unwrap_or_default() {
                register.units.iter().for_each(|unit| _ = self.available.remove(unit));
            }
            let Some(copy) = self.last.remove(unit).map(|number| &self.copies[number]) else { continue };
            copy.to.units.iter().for_each(|unit| _ = self.available.remove(unit));
            for source in &copy.of.units {
                self.targets.entry(*source).or_default().retain(|register| register.name != copy.to.name);
            }
        }
    }

    fn track(&mut self, number: usize) {
        let (to, of) = (self.copies[number].to, self.copies[number].of);
        for unit in &to.units {
            self.last.insert(*unit, number);
            self.targets.remove(unit);
            self.available.insert(*unit);
        }
        for unit in &of.units {
            let targets = self.targets.entry(*unit).or_default();
            if targets.iter().all(|register| register.name != to.name) {
                targets.push(to);
            }
        }
    }

    /// Rows of copies that are gone because a call writes their targets.
    fn call(&mut self, kept: &Kept) -> Vec<usize> {
        let last: Set<usize> = self.last.values().copied().collect();
        for number in last {
            let copy = &mut self.copies[number];
            copy.called |= !kept.keeps(copy.to) || !kept.keeps(copy.of);
        }
        let mut gone = Vec::new();
        for number in self.unread.clone() {
            let (at, to) = (self.copies[number].at, self.copies[number].to);
            if kept.keeps(to) {
                continue;
            }
            self.unread.remove(&number);
            let (stay, go): (Vec<u32>, Vec<u32>) = to.units.iter().partition(|unit| kept.units.contains(unit));
            self.clobber(&go);
            if !stay.iter().any(|unit| self.last.get(unit) == Some(&number)) {
                gone.push(at);
            }
        }
        gone
    }

    /// The copy that wrote a register whole, or a wider one.
    fn find(&self, register: &Register) -> Option<&Copy> {
        let first = register.units.first().filter(|unit| self.available.contains(unit))?;
        let copy = &self.copies[*self.last.get(first)?];
        let within = register.units.iter().all(|unit| copy.to.units.contains(unit));
        Some(copy).filter(|copy| within && !copy.called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits, text};

    /// As scripts/generate_copies.py has asked LLVM.
    #[test]
    fn leaves_what_llvm_leaves() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/copies");
        for cpu in ["gfx942", "gfx1100"] {
            let [before, after] = ["before", "after"]
                .map(|way| text::read(&std::fs::read_to_string(format!("{folder}/{cpu}.{way}.mir")).unwrap()).unwrap());
            let processor = tables().processor(cpu).unwrap();
            let mut changed = 0;
            for (p, q) in before.functions.iter().zip(&after.functions) {
                let limits = limits::limits(p, &before.module, processor).unwrap();
                let all = Propagated::of(p, processor, &limits, false);
                let words = |function: &Function| -> Vec<String> {
                    let operand = |o: &Operand| format!(" {}{}", o.flags, o.text);
                    let word = |i: &Instruction| i.name.clone() + &i.operands.iter().map(operand).collect::<String>();
                    function.instructions().map(word).collect()
                };
                assert_eq!(words(all.texts.first().unwrap_or(p)), words(q), "{}", p.name);
                changed += usize::from(words(p) != words(q));
            }
            assert!(changed > before.functions.len() / 2);
        }
    }
}
